"""The scripts that the user documents name, on the tiny case and from another working folder."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import forking
import pytest
from tiny_project import make_tiny_project

ROOT = Path(__file__).resolve().parents[1]
STEPS = sorted((ROOT / "alignment").glob("step*/*.py"))
LINE = r"\[\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\] root INFO: "


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return make_tiny_project(tmp_path_factory.mktemp("documents"))


@pytest.fixture
def script(project, tmp_path):
    """Run one of the documents' scripts with the tiny case, from a folder that is not the project's."""

    def run(name: str, *args: str, program: str = sys.executable, code: int = 0) -> str:
        done = subprocess.run(
            [program, str(ROOT / "alignment" / name), "--case", str(project.case), *args],
            cwd=tmp_path,
            env={**forking.environment(ROOT), "TIPCHAIN_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    return run


def latest(project) -> Path:
    return project.root / "test_tipc" / "output" / "tiny" / "lite_train_lite_infer" / "log_reprod"


@pytest.mark.frameworks
def test_step_1_records_each_side_and_prints_the_documents_lines(project, script):
    assert "image: float32 [4, 3, 16, 16]" in script("step1/create_fakedata.py")
    assert (latest(project) / "fake_inputs.npy").is_file()
    assert "logits: float32 [4, 10]" in script("step1/paddle_forward.py")
    assert not (latest(project) / "forward_diff.log").exists()
    script("step1/torch_forward.py")
    assert script("step1/check_step1.py").startswith("the port equals its reference: 1 stage, closest call forward, ")
    said = (latest(project) / "forward_diff.log").read_text().splitlines()
    assert re.fullmatch(LINE + "logits: ", said[0])
    assert re.fullmatch(LINE + r"\tmean diff: check passed: True, value: [\d.e-]+", said[1])
    assert re.fullmatch(LINE + "diff check passed", said[-1])
    again = script("step1/check_step1.py", "-v").splitlines()
    assert [line for line in again if re.match(LINE, line)][-1].endswith("diff check passed")


@pytest.mark.frameworks
def test_the_documents_misspelt_script_takes_their_data_folder(project, script):
    data = str(project.root / "test_tipc" / "data" / "lite_data")
    assert "acc_top1" in script("step2/toch_val.py", "--dataset_root", data)
    script("step2/paddle_val.py", "--dataset_root", data)
    assert "the port equals its reference: 1 stage" in script("step2/check_step2.py")


@pytest.mark.frameworks
def test_the_train_sh_pair_feeds_the_check_and_a_wrong_port_fails_it(project, script):
    project.edit("tiny_paddle.py", "nn.functional.relu(self.square(hidden))", "self.square(hidden)")
    try:
        script("pipeline/Step4/AlexNet_paddle/train.sh", program="sh")
        script("pipeline/Step4/AlexNet_torch/train.sh", program="sh")
        said = script("pipeline/Step4/check_step4.py", code=1)
        assert said.startswith("NOT the same gradients: backward/loss_0: not close")
        assert "why   not looked for: dumps were compared" in said
    finally:
        project.edit(
            "tiny_paddle.py",
            "self.dropout(self.square(hidden))",
            "self.dropout(nn.functional.relu(self.square(hidden)))",
        )


def test_a_check_without_dumps_fails_and_names_what_is_missing(project, script, tmp_path):
    said = script("step3/check_step3.py", "--out", str(tmp_path / "empty"), code=1)
    assert said.startswith("no verdict: loss/dump: ")
    assert "loss_torch.npy" in "".join(said.split())


def test_the_demo_prints_one_pass_and_one_failure(tmp_path):
    for name, code in (("write_log.py", 0), ("check_log_diff.py", 1)):
        path = ROOT / "alignment" / "pipeline" / "reprod_log_demo" / name
        done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
    said = done.stdout + done.stderr
    assert re.search(r"demo_test_1: \n.*mean diff: check passed: True, value: 0.0", said)
    assert re.search(r"demo_test_2: \n.*mean diff: check passed: False, value: 0.3", said)
    assert "diff check failed" in said


def test_every_step_of_the_documents_has_its_scripts():
    names = {path.relative_to(ROOT / "alignment").as_posix() for path in STEPS}
    assert names == {
        "step1/create_fakedata.py",
        "step1/paddle_forward.py",
        "step1/torch_forward.py",
        "step1/check_step1.py",
        "step2/paddle_val.py",
        "step2/torch_val.py",
        "step2/toch_val.py",
        "step2/check_step2.py",
        "step3/paddle_loss.py",
        "step3/torch_loss.py",
        "step3/check_step3.py",
        "step4/paddle_train.py",
        "step4/torch_train.py",
        "step4/check_step4.py",
        "step5/paddle_train.py",
        "step5/torch_train.py",
        "step5/check_step5.py",
    }


@pytest.mark.parametrize("path", STEPS, ids=lambda path: path.name)
def test_the_scripts_only_call_the_engine(path):
    """Whatever a script did by itself would be logic that stands twice."""
    statements = ast.parse(path.read_text()).body
    kinds = [type(one).__name__ for one in statements]
    assert kinds == ["Expr", "Import", "ImportFrom", "Expr", "ImportFrom", "If"]
