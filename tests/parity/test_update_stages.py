"""On the tiny case a fault of one step of the guide fails that step's stage alone, and the documents' script says so."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import forking
import pytest
from tiny_project import make_tiny_project
from updates_bench import STAGES, align, failed

from tipchain.errors import Outcome
from tipchain.parity.case import load_case

pytestmark = pytest.mark.frameworks

ROOT = Path(__file__).resolve().parents[2]
FAULTS = {
    "optimizer": ("momentum=momentum", "momentum=0.8", "update 2 is the first that differs"),
    "lr": ("gamma=gamma", "gamma=0.9", "first differs at step 2: expected 0.0005, actual 0.0009"),
    "regularization": ("weight_decay=weight_decay", "weight_decay=None", "decayed in the reference only"),
}


@pytest.fixture(scope="module")
def case():
    return load_case(ROOT / "tests" / "cases" / "tiny" / "tiny.yaml")


@pytest.mark.parametrize("stage", FAULTS)
def test_a_fault_of_one_step_fails_its_stage_alone(case, tmp_path, monkeypatch, stage):
    old, new, words = FAULTS[stage]
    source = (ROOT / "tests" / "cases" / "tiny" / "tiny_paddle.py").read_text()
    assert old in source
    (tmp_path / f"faulty_{stage}.py").write_text(source.replace(old, new))
    monkeypatch.syspath_prepend(tmp_path)
    builders = {name: f"faulty_{stage}:build_{name}" for name in ("model", "optimizer", "scheduler")}
    port = replace(case, sides={**case.sides, "paddle": replace(case.sides["paddle"], **builders)})
    verdicts = {name: align(name, case, port) for name in STAGES}
    assert [name for name in STAGES if failed(verdicts[name])] == [stage]
    assert any(words in reason for reason in failed(verdicts[stage]).values())
    errors = [name for name in STAGES if any(one.outcome is Outcome.ERROR for one in verdicts[name].values())]
    # Decay cannot be told from updates that differ by themselves.
    assert errors == (["regularization"] if stage == "optimizer" else [])


def test_the_documents_script_compares_both_curves_and_ends_by_result(tmp_path):
    project = make_tiny_project(tmp_path / "project")
    project.edit("case.yaml", "stages: [", "stages: [lr, ")
    project.edit("tiny_paddle.py", "gamma=gamma", "gamma=0.9")
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "alignment" / "test_lr.py"),
            "--case",
            str(project.case),
            "--threads",
            "1",
            "--no-locate",
        ],
        cwd=tmp_path,
        env=forking.environment(ROOT),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    assert "first differs at step 2: expected 0.0005, actual 0.0009" in text
    assert "step torch paddle" in text
    assert "2 0.0005 0.0009 <-" in text
    assert (project.root / "test_tipc/output/tiny/lite_train_lite_infer/log_reprod/lr_diff.log").is_file()
