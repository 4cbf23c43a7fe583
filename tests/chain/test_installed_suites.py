"""Suites that come with installed packages, by the entry points of the group ``tipchain.suites``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from chain_samples import TEMPLATE

from tipchain.chain import profiles
from tipchain.cli import main

PROFILE = "suite: speechful\ntitle: SpeechFul's driver\nextends: template\nrecognise: {folders: [speechful]}\n"
PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "speechful-tipc"
version = "2.1"
[project.entry-points."tipchain.suites"]
speechful = "speechful_tipc.profiles"
[tool.hatch.build.targets.wheel]
packages = ["speechful_tipc"]
"""
MODE = "lite_train_lite_infer"


@pytest.fixture
def fresh():
    """Forget which suites there are, before and after."""
    profiles._profiles.cache_clear()
    yield
    profiles._profiles.cache_clear()


@pytest.fixture
def installed(tmp_path, monkeypatch, fresh):
    """Return what installs a package whose entry points are given, beside a folder with a profile."""

    def install(points: str, **files: str) -> Path:
        site = tmp_path / "site"
        info = site / "speechful_tipc-2.1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: speechful-tipc\nVersion: 2.1\n")
        (info / "entry_points.txt").write_text(f"[tipchain.suites]\n{points}\n")
        package = site / "speechful_tipc"
        package.mkdir()
        (package / "__init__.py").write_text("raise SystemExit('a profile runs no code')\n")
        for name, text in files.items():
            (package / f"{name}.yaml").write_text(text)
        monkeypatch.syspath_prepend(site)
        return package

    return install


def test_the_suite_of_a_package_that_pip_installed_is_known_by_name_and_found_by_its_marks(tmp_path):
    pytest.importorskip("hatchling")
    source, site = tmp_path / "source", tmp_path / "site"
    below = source / "speechful_tipc" / "profiles"
    below.mkdir(parents=True)
    (source / "pyproject.toml").write_text(PYPROJECT)
    (source / "speechful_tipc/__init__.py").write_text("raise SystemExit('a profile runs no code')\n")
    (below / "speechful.yaml").write_text(PROFILE)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation", "--target", site, source],
        check=True, capture_output=True,
    )  # fmt: skip
    project = tmp_path / "project"
    params = project / "test_tipc/configs/net/train_infer_python.txt"
    params.parent.mkdir(parents=True)
    params.write_text(TEMPLATE)
    (project / "speechful").mkdir()
    path = os.pathsep.join([str(site), *sys.path])
    for options in ((), ("--suite", "speechful")):
        done = subprocess.run(
            [sys.executable, "-m", "tipchain", "plan", params, MODE, "--json", "-", *options],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["suite"] == "speechful"


@pytest.mark.parametrize(
    ("points", "files", "message"),
    [
        ("speechful = no_such_package", {}, "there is no package 'no_such_package'"),
        ("speechful = speechful_tipc", {}, "speechful_tipc/speechful.yaml"),
        ("speechful = speechful_tipc:Suite", {}, "there is no package 'speechful_tipc:Suite'"),
        ("paddleseg = speechful_tipc", {"paddleseg": PROFILE}, "there is a suite 'paddleseg' already"),
    ],
)
def test_a_broken_entry_point_is_one_error_that_names_its_package(installed, tmp_path, capsys, points, files, message):
    installed(points, **files)
    (tmp_path / "f.txt").write_text(TEMPLATE)
    assert main(["plan", str(tmp_path / "f.txt"), MODE, "--suite", "speechful"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "speechful-tipc 2.1" in error
    assert points in error
    assert "expected: NAME = PACKAGE" in error
    # What does not need it does not stumble over it.
    assert main(["plan", str(tmp_path / "f.txt"), MODE, "--suite", "template"]) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PROFILE.replace("suite: speechful", "suite: other"), "is called otherwise than its entry point"),
        (PROFILE.replace("title:", "tilte:"), "speechful.yaml: title: is missing"),
    ],
)
def test_a_wrong_profile_of_a_package_is_named_with_its_file(installed, tmp_path, capsys, text, message):
    installed("speechful = speechful_tipc", speechful=text)
    (tmp_path / "f.txt").write_text(TEMPLATE)
    assert main(["lint", str(tmp_path / "f.txt")]) == 2
    assert message in capsys.readouterr().err


def test_an_unknown_suite_is_told_the_installed_ones(installed, tmp_path, capsys):
    installed("speechful = speechful_tipc", speechful=PROFILE)
    (tmp_path / "f.txt").write_text(TEMPLATE)
    assert main(["plan", str(tmp_path / "f.txt"), MODE, "--suite", "speechfull"]) == 2
    assert "did you mean 'speechful'?" in capsys.readouterr().err
