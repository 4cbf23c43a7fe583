"""The main job as a user types it: the shipped case passes, a sabotaged port does not."""

import json
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path

import forking
import pytest
from programs import commit_all, completed, git

from tipchain.modes import STAGES, log_name

ROOT = Path(__file__).resolve().parents[1]
FEWER = (
    ("[4, 3, 224, 224], [2, 3, 127, 159]", "[4, 3, 64, 64], [2, 3, 70, 90]"),
    ("backward: {iterations: 5", "backward: {iterations: 2"),
    ("envelope: {runs: 3, iterations: 10}", "envelope: {runs: 2, iterations: 2}"),
    ("processes: 2, iterations: 2", "processes: 2, iterations: 1"),
    ("seeds: 3", "seeds: 2"),
)
"""What AlexNet's case has, and what it has here: smaller images, fewer updates and drawings of its 61 million parameters."""
EXPORTED = "overrides: {inference: {inputs: {image: {shape: [4, 3, 224, 224], dtype: float32, seed: 0}}}}\n"
"""ONNX has no adaptive pooling but to sizes that divide the input's."""
MODELS = (
    pytest.param("alexnet", FEWER, id="alexnet, fewer updates"),
    *(pytest.param(one, (), marks=pytest.mark.nightly, id=one) for one in ("alexnet", "mobilenet_v3", "mvf")),
)
TINY = "tests/cases/tiny/train_infer_python.txt"

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(1500)]


def drive(root: Path, *words: object, driver: str = "test_train_inference_python.sh", fork: bool = True):
    """Run the job; without forks as a user does, with the frameworks imported by each process anew."""
    return completed(
        ["bash", driver, *map(str, words)],
        cwd=root,
        env={**(forking.environment() if fork else os.environ), "TIPCHAIN_PYTHON": sys.executable},
        timeout=1200,
    )


def untracked(root: Path) -> list[str]:
    """Return the files that git does not know and does not ignore."""
    return [line for line in git(root, "status", "--porcelain").splitlines() if line.startswith("??")]


@pytest.fixture
def clone(tmp_path):
    """A copy of the project's files as they are now, with a git history of its own."""
    root = tmp_path / "clone"
    for name in git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        if name and (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
    commit_all(root)
    return root


@pytest.mark.parametrize(("model", "fewer"), MODELS)
def test_the_shipped_cases_pass_and_can_be_submitted(model, fewer, tmp_path):
    """At night as they are."""
    before, case, options = untracked(ROOT), f"configs/{model}.yaml", ()
    if fewer:
        text = (ROOT / case).read_text()
        for old, new in fewer:
            assert old in text
            text = text.replace(old, new)
        case = tmp_path / f"{model}.yaml"
        case.write_text(f"root: {ROOT}\n{EXPORTED}{text}")
        options = ("--set", f"alignment={case}")
    done = drive(ROOT, f"test_tipc/configs/{model}/train_infer_python.txt", "lite_train_lite_infer", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    out = ROOT / "test_tipc" / "output" / model / "lite_train_lite_infer"
    run = max((out / "runs").iterdir())
    report = json.loads((run / "report.json").read_text())
    steps = [result["command"]["step"] for result in report["results"]]
    # The five numbered scripts, and the stages that have none.
    assert steps == ["align"] * 6 + ["train", "eval", "export"] + ["infer"] * 4
    assert {result["outcome"] for result in report["results"]} == {"PASS"}
    for stage in STAGES:
        assert (out / "log_reprod" / log_name(stage)).read_text().endswith("diff check passed\n"), stage
    printed = (run / "align-03.log").read_text()
    assert re.search(r"^\{'\w+': array\(\[[\d.]+\], dtype=float32\), .*\} \{'\w+': array", printed, re.MULTILINE), (
        "the documents' two dictionaries"
    )
    assert (out / "results_python.log").read_text().count("Run successfully with command") >= 13
    assert re.search(r"^13 passed in [\d.]+ s, exit code 0$", done.stdout, re.MULTILINE)
    assert "the chain passed: 13 commands; the port equals its reference" in (ROOT / "README.md").read_text()
    assert "the chain passed: 13 commands; the port equals its reference" in " ".join(done.stdout.split())
    assert all(
        len(line) <= 80 for line in done.stdout.splitlines() if line.startswith(("PASS", "FAIL", "ERROR", "SKIP"))
    )
    assert untracked(ROOT) == before, "a run leaves git's view of the project as it was"
    archive = tmp_path / "submitted.zip"
    command = ["case", "pack", case, "--spelling", "acceptance", "--out", archive]
    packed = completed([sys.executable, "-m", "tipchain", *map(str, command)], cwd=ROOT)
    assert packed.returncode == 0, packed.stdout + packed.stderr
    with zipfile.ZipFile(archive) as file:
        names = {Path(name).name for name in file.namelist()}
    dumps = {
        f"{name}_{side}.npy" for name in ("forward", "metric", "loss", "bp_align") for side in ("pytorch", "paddle")
    }
    dumps |= {"train_align_paddle.npy", "train_align_benchmark.npy"}
    assert dumps <= names
    assert {f"{name}_diff_log.txt" for name in ("forward", "metric", "loss", "bp_align", "train_align")} <= names


def test_a_sabotaged_port_fails_step_01_and_the_job(clone):
    params, case = clone / TINY, clone / "tests" / "cases" / "tiny" / "tiny.yaml"
    text = params.read_text()
    for old, new in (("steps:01|02|03|04|05", "steps:01"), ("/whole/paddle.pdparams", "/lite/paddle.pdparams")):
        assert old in text
        text = text.replace(old, new)
    params.write_text(text)
    case.write_text(case.read_text() + "modes: {whole_infer: {data: lite}}\n")
    port = clone / "tests" / "cases" / "tiny" / "tiny_paddle.py"
    port.write_text(port.read_text().replace("nn.functional.relu(self.square(hidden))", "self.square(hidden)"))
    # Without training, which a port at fault takes part in as any other does.
    done = drive(clone, TINY, "whole_infer", driver="test_tipc/test_train_inference_python.sh")
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("FAIL") and "align[01]" in line for line in lines)
    assert any(line.startswith("PASS") and "infer[" in line for line in lines), "the chain still runs"
    text = " ".join(done.stdout.replace("|", " ").split())
    assert "the chain FAILED at align[01]: NOT the same model: " in text
    assert "lacks `relu` in front of `head` at tiny_paddle.py:29" in text
    assert "fix apply `relu` in front of `head` at tiny_paddle.py:29" in text
    assert "exit code 1" in text


@pytest.mark.nightly
def test_modes_share_nothing_but_the_prepared_data(clone):
    """The second mode finds what the first has prepared; each process imports the frameworks anew, as a user's does."""
    output = clone / "test_tipc" / "output" / "tiny"
    modes = ("lite_train_whole_infer", "whole_infer")
    for number, mode in enumerate(modes, 1):
        done = drive(clone, TINY, mode, fork=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert {path.name for path in output.iterdir()} == set(modes[:number])
        assert untracked(clone) == []
    assert "align[03]" in done.stdout
    assert "align[04]" not in done.stdout
