"""``tipchain nightly`` and the history: a night goes in when it has ended, whatever becomes of the database."""

from __future__ import annotations

import subprocess
import sys

import forking
import pytest

MANIFEST = """
commands:
  - {id: good, argv: [sh, -c, "exit 0"]}
  - {id: other, argv: [sh, -c, "exit $(cat code)"]}
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "suite.yaml").write_text(MANIFEST)
    (tmp_path / "code").write_text("0")
    return tmp_path


def tipchain(project, *words: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in forking.environment().items() if name != "TIPCHAIN_DATABASE"}
    argv = [sys.executable, "-m", "tipchain", *words]
    return subprocess.run(argv, cwd=project, env=env, capture_output=True, text=True, check=False)


def test_trouble_with_the_history_changes_no_exit_code(project):
    url = ("--database", "postgresql://me:s3cret@127.0.0.1:1/none?sslpassword=s3cret2")
    done = tipchain(project, "nightly", "run", "suite.yaml", *url)
    assert done.returncode == 0
    assert "the next night of its manifest hands it on" in done.stderr
    assert "s3cret" not in done.stdout + done.stderr
    told = [one.read_text() for one in project.rglob("*.json")]
    assert told
    assert "s3cret" not in "".join(told)
    refused = tipchain(project, "nightly", "run", "suite.yaml", "--database", "mysql://x/y")
    assert refused.returncode == 2
    assert len([*project.glob("tipchain-nights/suite/*/night.json")]) == 1
