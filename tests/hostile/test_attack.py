"""Hostile files end in an answer or in one clear error, in bounded time and memory; see ``attack.py``."""

import json
import subprocess
import sys

import forking
import pytest

from hostile.attack import KINDS, ROOT

QUICK, LONG = 30, 15_000


def attacked(kind, folder, *, seed, count):
    """Return what an attack came to; a process that was ended by a file leaves the file in the folder."""
    done = subprocess.run(
        [sys.executable, "-m", "hostile.attack", kind, "--seed", str(seed), "--count", str(count), "--folder", str(folder)],
        cwd=folder, capture_output=True, text=True, check=False,
        env=forking.environment(ROOT, ROOT / "tests") | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode in (0, 1), f"exit {done.returncode}; the file is below {folder}\n{done.stderr[-2000:]}"
    assert done.stdout, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_hostile_files_end_in_an_answer_or_one_clear_error(kind, tmp_path):
    if kind == "weights":
        pytest.importorskip("torch")
    found = attacked(kind, tmp_path, seed=0, count=QUICK)
    assert found["problems"] == []
    assert found["files"] >= QUICK
    assert found["codes"].get("2"), "no file was refused: the attack reaches nothing"


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_many_hostile_files(kind, seed, tmp_path):
    assert attacked(kind, tmp_path, seed=1 + seed, count=LONG)["problems"] == []
