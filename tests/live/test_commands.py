"""`tipchain locate` and `certify`, and what a failed alignment adds by itself."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_project import make_tiny_project

from tipchain.cli import main
from tipchain.live import worker

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.frameworks

SIDES = """
import os
import numpy as np

def reference():
    import torch
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())

def port():
    import paddle
    made = paddle.nn.Sequential(paddle.nn.Linear(4, 4), paddle.nn.GELU(approximate=True))
    weights = reference()[0]
    made[0].weight.set_value(weights.weight.detach().numpy().T)
    made[0].bias.set_value(weights.bias.detach().numpy())
    return made

def crash():
    import signal
    os.kill(os.getpid(), signal.SIGSEGV)

def hang():
    import time
    time.sleep(600)

def sgd(parameters):
    import sys
    import torch
    made = torch.optim.SGD(parameters, 0.1)
    assert "torch._dynamo.eval_frame" not in sys.modules, "the compiler takes longer to import than torch itself"
    return made

def port_sgd(parameters):
    import paddle
    return paddle.optimizer.SGD(0.1, parameters)

def impatient(output, labels):
    import signal
    from tipchain.core.progress import interrupted
    if not interrupted.is_set():
        os.kill(os.getppid(), signal.SIGINT)
        assert interrupted.wait(60)
    return 1.0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("pair")
    (made / "sides.py").write_text(SIDES)
    np.savez(made / "inputs.npz", args=np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32))
    return made


@pytest.fixture
def here(folder, monkeypatch, forked):
    monkeypatch.chdir(folder)
    return folder


def options(port="port"):
    return ["--reference", "sides:reference", "--port", f"sides:{port}", "--inputs", "inputs.npz"]


def test_locate_takes_any_pair_of_callables_and_names_the_cause(here, capsys):
    assert main(["locate", *options(), "--json", "report.json"]) == 1
    shown = capsys.readouterr().out
    assert "first divergence: 1 (GELU)" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "cause: argument" in shown
    report = json.loads((here / "report.json").read_text())
    assert report["passed"] is False
    assert report["diagnoses"][0]["name"] == "gelu-form"
    assert report["first_divergence"]["port_path"] == "1"


def test_a_commands_time_counts_from_its_start(here, monkeypatch, capfd):
    """Importing and building count too: by then the minute is over, and no layer is run."""
    began = worker.time.monotonic() - 60
    monkeypatch.setattr(worker.time, "monotonic", lambda: began)
    assert main(["locate", *options(), "--within", "1m"]) == 1
    shown = capfd.readouterr()
    assert "ERROR forward: not compared: out of time" in shown.out
    assert "out of time: nothing new is begun" in shown.err


def test_an_interrupted_search_tells_what_is_known_and_on_the_way_where_it_is(here, tmp_path):
    """The user presses Ctrl-C while the metrics are compared; by then the layers have been."""
    rows = np.load(here / "inputs.npz")["args"]
    np.savez(tmp_path / "labelled.npz", args=rows, labels=np.zeros(3, np.int64))
    words = [*options()[:5], str(tmp_path / "labelled.npz"), "--metrics", "sides:impatient", "sides:impatient"]
    done = subprocess.run(
        [sys.executable, "-m", "tipchain", "locate", *words, "--json", str(tmp_path / "report.json")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 130
    said = done.stderr.splitlines()
    assert said[:2] == ["importing torch and Paddle", "building the models"]
    assert "comparing layers" in said
    assert said[-1] == "interrupted: the result so far follows; Ctrl-C again ends at once"
    assert done.stdout.startswith("interrupted; what was known by then:\nFAIL: ")
    assert "first divergence: 1 (GELU)" in done.stdout
    assert "cause: argument: 1 has approximate=True" in done.stdout, "construction is known"
    assert json.loads((tmp_path / "report.json").read_text())["passed"] is False


def test_a_wrong_name_of_a_loss_does_not_stop_the_layers(here, tmp_path, capsys):
    np.savez(tmp_path / "labelled.npz", args=np.load(here / "inputs.npz")["args"], labels=np.zeros(3, np.int64))
    words = [*options()[:5], str(tmp_path / "labelled.npz"), "--no-causes"]
    losses = ["--loss", "torch.nn:cross_entropy", "paddle.nn:CrossEntropyLoss"]
    assert main(["locate", *words, *losses, "--optimizers", "sides:sgd", "sides:sgd"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "first divergence: 1 (GELU)" in shown
    assert "ERROR loss: torch.nn:cross_entropy: torch.nn has no 'cross_entropy'; hint: did you mean" in shown
    assert "torch.nn:CrossEntropyLoss or torch.nn.functional:cross_entropy" in shown
    assert "ERROR optimizer: not compared: it needs loss" in shown


def test_without_causes_the_layers_that_are_furthest_off_are_listed(here, capsys):
    assert main(["locate", *options(), "--no-causes", "--json", "-"]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["diagnoses"] == [], "no causes were asked for"
    assert "own error" in shown.err
    assert "1 GELU, forward: differs" in shown.err


def test_a_model_that_crashes_or_hangs_is_a_failed_check(here, capsys):
    assert main(["locate", *options("crash")]) == 1
    assert "killed by SIGSEGV" in capsys.readouterr().out
    assert main(["locate", *options("hang"), "--timeout", "3"]) == 1
    assert "not finished after 3 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected a case, or --reference, --port and --inputs"),
        ([*options(), "--iterations", "0"], "--iterations must be at least 1, found 0"),
        ([*options("nothing")], "sides has no 'nothing'"),
    ],
)
def test_wrong_use_is_one_message(here, arguments, words, capsys):
    assert main(["locate", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_certify_says_what_a_pass_is_worth(here, capsys):
    (here / "same.py").write_text(SIDES.replace("approximate=True", "approximate=False"))
    arguments = [word.replace("sides:", "same:") for word in options()]
    assert main(["case", "certify", *arguments, "--most", "8", "--json", "certificate.json"]) == 0
    assert "7 of 7 planted faults would be caught" in capsys.readouterr().out
    assert json.loads((here / "certificate.json").read_text())["caught"] == 7


def test_a_failed_stage_says_where_and_why(tmp_path):
    project = make_tiny_project(tmp_path)
    project.edit("tiny_paddle.py", "nn.functional.relu(self.square(hidden))", "self.square(hidden)")
    done = project.align("--only", "forward", locate=True, every=False)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith("NOT the same model: ")
    assert len(lines) <= 30
    assert all(len(line) <= 80 or " " not in line or line.startswith("tipchain ") for line in lines)
    assert any(re.match(r"  at    tiny_paddle\.py:29: return self\.head", line) for line in lines)
    assert any(re.match(r"  fix   .*relu", line) for line in lines)
    assert "FAIL   forward    3 of 3 checks failed because of the model's own code" in lines
    assert "root INFO" not in done.stdout, "the lines of the logs stay in the logs"
    assert (project.root / "out" / "log_reprod" / "forward_diff.log").read_text().endswith("diff check failed\n")
    assert "it lacks `relu`" in (project.root / "out" / "alignment.log").read_text()
    (kept,) = (project.root / "out").glob("runs/*/log_reprod/alignment_forward.json")
    report = json.loads(kept.read_text())
    (cause,) = report["diagnoses"]
    assert (cause["stage"], cause["code"]) == ("forward", "missing-call")
    assert cause["explained"] > 0.99
    assert (cause["place"]["file"], cause["place"]["line"]) == ("tiny_paddle.py", 29)
    assert cause["reference_place"]["file"] == "tiny_torch.py"
    assert cause["explains"] == ["forward/layers", "forward/logits", "forward/logits@1x3x17x19"]
    located = json.loads(next(kept.parents[1].rglob("*located*.json")).read_text())
    assert "train" not in located["stages"], "nothing that failed updates parameters"
    assert located["stages"]["forward"] == "FAIL"
    page = kept.with_suffix(".html")
    assert (project.root / report["page"]).samefile(page)
    assert report["page"] in done.stdout
    text = page.read_text().replace("<wbr>", "")
    assert "tiny_paddle.py:29" in text
    assert "reference <code>tiny_torch:" in text
    assert 'id="layers"' in text  # what the live models showed
    shown = [sys.executable, "-m", "tipchain", "report", str(kept.parents[1]), "--html", "again.html"]
    assert project.run(shown).returncode == 1
    assert 'id="layers"' in (project.root / "again.html").read_text()
    again = project.run([sys.executable, "-m", "tipchain", "locate", str(project.case)])
    assert again.returncode == 1
    assert "FAIL  forward: the model (Tiny)" in again.stdout
    assert re.search(r"^\w+  train", again.stdout, re.MULTILINE)
