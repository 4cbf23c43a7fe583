"""Which imported files are the user's own: the sources that weights depend on follow from it."""

from __future__ import annotations

import sys

from tipchain.core.files import sha256_of
from tipchain.parity.inputs import imported_sources


def test_imported_files_are_known_by_their_content(tmp_path, monkeypatch):
    (tmp_path / "own_net.py").write_text("WIDTH = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("own_net")
    try:
        found = imported_sources(tmp_path)
    finally:
        del sys.modules["own_net"]
    assert found["own_net.py"] == sha256_of(tmp_path / "own_net.py")
    assert not [name for name in found if "site-packages" in name or name.endswith("json/__init__.py")]
    assert not [name for name in found if name.endswith("tipchain/cli.py")]
