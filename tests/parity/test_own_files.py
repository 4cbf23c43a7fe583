"""Which imported files are the user's own: places in messages, and the sources that weights depend on, follow from it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import tipchain.cli
from tipchain.parity.builders import blame, is_users
from tipchain.parity.sources import file_hash, imported_sources


@pytest.mark.parametrize(
    ("file", "own"),
    [
        (json.__file__, False),
        (np.__file__, False),
        (tipchain.cli.__file__, False),
        ("<string>", False),
        ("/elsewhere/lib/python3/dist-packages/net.py", False),
        ("/elsewhere/site-packages/net.py", False),
        ("/elsewhere/my-site-packages/net.py", True),
        (__file__, True),
    ],
)
def test_what_python_packages_and_tipchain_brought_is_not_the_users(file, own):
    assert is_users(file) is own


def test_imported_files_are_known_by_their_content(tmp_path, monkeypatch):
    (tmp_path / "own_net.py").write_text("WIDTH = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("own_net")
    try:
        found = imported_sources(tmp_path)
    finally:
        del sys.modules["own_net"]
    assert found["own_net.py"] == file_hash(tmp_path / "own_net.py")
    assert not [name for name in found if "site-packages" in name or name.endswith("json/__init__.py")]
    assert not [name for name in found if name.endswith("tipchain/cli.py")]


def test_the_innermost_place_in_ones_own_files_is_blamed():
    try:
        json.loads("{")
    except ValueError as error:
        said = blame(error)
    assert said.startswith(f"{__file__}:")
    assert Path(said.partition(":")[0]).name == "test_own_files.py"
