"""The alignment run: a faithful port passes, and each stage fails for a fault of its own."""

import json
import os
import re
import shutil
import socket
import sys
from pathlib import Path

import pytest
from tiny_project import TinyProject, make_tiny_project

from tipchain.core.files import RUN_VARIABLE
from tipchain.numbers.dumps import load_record

pytestmark = pytest.mark.frameworks


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """A project whose faithful port was aligned once; its dumps serve the other tests."""
    project = make_tiny_project(tmp_path_factory.mktemp("clean"))
    done = project.align()
    assert done.returncode == 0, done.stdout + done.stderr
    return project, done


@pytest.fixture
def port(clean, tmp_path):
    """A copy of the clean project, whose Paddle side a test may spoil, with the torch dumps at hand."""
    shutil.copytree(clean[0].root, tmp_path / "port")
    project = TinyProject(tmp_path / "port")
    shutil.move(project.root / "out", project.root / "made_elsewhere")
    return project


def align_port(project, *args, **kwargs):
    dumps = project.root / "made_elsewhere" / "log_reprod"
    return project.align("--reference", dumps, *args, **kwargs)


def test_a_faithful_port_passes_and_leaves_the_guides_files(clean):
    project, done = clean
    names = {path.name for path in project.latest().iterdir()}
    for stem in ("forward", "data", "metric", "loss", "bp_align"):
        assert {f"{stem}_torch.npy", f"{stem}_paddle.npy", f"{stem}_diff.log"} <= names
    assert {"train_align_paddle.npy", "train_align_benchmark.npy", "train_align_diff.log"} <= names
    assert {"bp_align_torch.safetensors", "bp_align_paddle.safetensors"} <= names
    assert (project.latest() / "forward_diff.log").read_text().endswith("diff check passed\n")
    assert "root INFO: logits: " in done.stdout
    assert "exit code 0" in done.stdout


def test_alignments_of_other_stages_keep_their_own_reports_in_a_chains_run(port):
    folder = port.root / "shared" / "log_reprod"
    for stages in ("data,train_data", "metric"):
        assert align_port(port, "--only", stages, env={RUN_VARIABLE: str(folder.parent)}).returncode == 0
    names = {path.name for path in folder.glob("alignment*.json")}
    assert names == {"alignment_data+1.json", "alignment_metric.json"}


def test_an_optimizer_stage_without_regularization_says_that_no_decay_was_compared(tmp_path):
    project = make_tiny_project(tmp_path)
    project.edit(project.case.name, "stages: [forward, ", "stages: [optimizer, regularization, forward, ")
    told = "optimizer: weight decay was not compared: the stage regularization does that"
    for stages, alone in (("optimizer", True), ("optimizer,regularization", False)):
        assert project.align("--only", stages).returncode == 0
        stem = "alignment_optimizer" + "+1" * ("," in stages)
        (report,) = (project.root / "out" / "runs").rglob(f"{stem}.json")
        assert (told in json.loads(report.read_text())["notes"]) is alone


def test_dumps_hold_what_the_stages_promise(clean):
    latest = clean[0].latest()
    data = load_record(latest / "data_paddle.npy")
    assert data.arrays["length"].tolist() == [20]
    assert {"dataloader_0", "label_4"} <= set(data.arrays)
    assert len(data.meta["details"]["files"]) == 20
    backward = load_record(latest / "bp_align_paddle.npy").arrays
    assert list(backward) == [*(f"loss_{n}" for n in range(5)), *(f"lr_{n}" for n in range(5))]
    rates = [float(backward[f"lr_{n}"][0]) for n in range(5)]
    assert rates == pytest.approx([1e-4, 1e-4, 5e-5, 5e-5, 2.5e-5]), "the schedule is really stepped"
    metric = load_record(latest / "metric_torch.npy").arrays["acc_top1"]
    assert metric.shape == (1,)
    assert metric.dtype == "float32"
    assert 10 < float(metric[0]) < 100, "better than chance, so that a fault can show"


def test_alignment_log_has_a_header_per_run_and_keeps_old_runs(clean):
    project, _ = clean
    project.align("--only", "data")
    text = (project.root / "out" / "alignment.log").read_text()
    assert text.count("# ==== run ") == 2
    assert re.search(r"^# run \S+ stage forward$", text, re.MULTILINE), "two runs at once can be told apart"
    for word in ("time=", "device=cpu", "torch=", "paddle=", "tf32=off", "exit code 0"):
        assert word in text


def test_json_stands_alone_on_standard_output(clean):
    done = clean[0].align("--only", "loss", "--json", "-", out="json")
    document = json.loads(done.stdout)
    assert [one["subject"] for one in document["verdicts"][:3]] == [
        "preflight/construction",
        "loss/function",
        "loss/loss",
    ]
    assert document["where"]["machine"] == socket.gethostname()
    assert "diff check passed" in done.stderr


FAULTS = {
    "relu left out": (
        "forward", ("nn.functional.relu(self.square(hidden))", "self.square(hidden)"), ["FAIL", "forward/logits", "worst at (", "expected", "actual"],
    ),
    "rate too high": ("train", ("Momentum(learning_rate,", "Momentum(3000.0,"), ["train/acc_top1"]),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_its_stage(port, fault):
    stage, change, words = FAULTS[fault]
    port.edit("tiny_paddle.py", *change)
    done = align_port(port, "--only", stage)
    assert done.returncode == 1, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    for word in words:
        assert word in text
    logs = list(port.latest().glob("*_diff.log"))
    assert len(logs) == 1
    assert logs[0].read_text().endswith("diff check failed\n")
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise KeyError('lost')", ["tiny_paddle.py:", "KeyError", "lost"]),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", ["killed by SIGSEGV"]),
        ("import os; os._exit(0)", ["ended with exit code 0"]),
    ],
)
def test_a_model_that_breaks_is_an_error(port, body, words):
    port.edit(
        "tiny_paddle.py",
        "        hidden = paddle.flatten(self.features(image), 1)",
        f"        hidden = paddle.flatten(self.features(image), 1)\n        {body}",
    )
    done = align_port(port, "--only", "forward")
    assert done.returncode == 1
    assert "ERROR" in done.stdout
    for word in words:
        assert word in " ".join(done.stdout.split())


def test_a_model_that_cannot_be_built_is_named_with_its_place(tmp_path):
    project = make_tiny_project(tmp_path)
    project.edit("tiny_torch.py", "    return Tiny(num_classes, dropout)", "    raise ValueError('no such depth')")
    done = project.align("--only", "forward,data")
    assert done.returncode == 1
    said = "".join(done.stdout.split())
    assert "tiny_torch.py:29:ValueError:nosuchdepth" in said
    assert "bugoftipchain" not in said
    assert "Traceback" not in done.stdout + done.stderr
    assert "PASS     data" in done.stdout


def test_a_model_that_hangs_is_ended(port):
    port.edit(
        "tiny_paddle.py", "        hidden = paddle", "        import time; time.sleep(600)\n        hidden = paddle"
    )
    done = align_port(port, "--only", "forward", "--timeout", "2", timeout=60)
    assert done.returncode == 1
    assert "took longer than 2 s" in " ".join(done.stdout.split())


def test_a_truncated_weight_file_is_an_error(port):
    weights = port.root / "tipchain-output" / "data" / "weights" / "tiny" / "lite" / "paddle.pdparams"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 0xFF
    weights.write_bytes(data)
    done = align_port(port, "--only", "forward")
    assert done.returncode == 1
    assert "is damaged or was changed" in " ".join(done.stdout.split())
    weights.write_bytes(data[: len(data) // 2])
    done = align_port(port, "--only", "forward")
    assert done.returncode == 0, "a file of the wrong size is seen at once and made again"


def test_a_dump_that_is_no_dump_is_an_error(port):
    bad = port.latest("made_elsewhere") / "forward_torch.npy"
    bad.write_bytes(b"not a dump at all")
    done = align_port(port, "--only", "forward")
    assert done.returncode == 1
    assert "ERROR" in done.stdout
    assert "Traceback" not in done.stderr
    named = port.align("--only", "forward", "--reference", bad)
    assert named.returncode == 2, "a file that the command line names is input"
    assert "forward_torch.npy: is not a dump" in named.stderr


def test_missing_data_stops_only_the_stages_that_need_it(port):
    shutil.rmtree(port.root / "test_tipc" / "data" / "lite_data")
    done = align_port(port, "--only", "data")
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert "no such data folder" in text
    assert "`tipchain align CASE --prepare` makes the shipped data" in text


def test_recording_one_side_checks_nothing(port):
    done = port.align("--only", "forward", "--record", "paddle", out="one")
    assert done.returncode == 4, done.stdout
    assert "only paddle was recorded" in " ".join(done.stdout.split())
    last = f"  tipchain align {port.case} --prepare --port {port.latest('one')}"
    assert done.stdout.splitlines()[-1] == last, "what to do with the dumps elsewhere"
    assert "diff check failed" not in done.stdout + (port.root / "one" / "alignment.log").read_text()
    both = port.align("--only", "forward", "--port", port.latest("one"), out="two")
    assert both.returncode == 0, both.stdout


def test_only_the_stage_at_fault_fails_in_a_whole_run(port):
    port.edit("tiny_paddle.py", "return like_torch(Tiny(num_classes, dropout))", "return Tiny(num_classes, dropout)")
    done = port.align("--only", "data,train_data,init")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAIL     init/head.bias: expected random values" in done.stdout
    rows = {line.split()[1]: line for line in done.stdout.splitlines() if re.match("PASS   |FAIL   ", line)}
    assert re.match(r"PASS   data +\d+ checks", rows["data"])
    assert re.match(r"PASS   train_data +32 checks", rows["train_data"])
    assert re.match(r"FAIL   init +5 of 9 checks failed: ", rows["init"]), "never green"
    assert (port.latest() / "init_diff.log").read_text().endswith("diff check failed\n")
    assert (port.latest() / "train_data_diff.log").read_text().endswith("diff check passed\n")


def test_a_published_number_is_the_benchmark(port):
    port.edit(
        "case.yaml", "learning_rate: 1.0e-3}", "learning_rate: 1.0e-3, benchmark: {acc_top1: 1.5, acc_top5: 1.5}}"
    )
    done = port.align("--only", "train")
    assert done.returncode == 1
    assert "expected 1.5" in " ".join(done.stdout.split())
    benchmark = load_record(port.latest() / "train_align_benchmark.npy")
    assert benchmark.meta["details"]["source"].startswith("published")


def test_a_missing_framework_is_one_message(port):
    package = port.root / "broken" / "paddle"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('libsomething.so is missing')\n")
    env = {"PYTHONPATH": os.pathsep.join([str(package.parent), str(os.environ.get("PYTHONPATH", ""))])}
    done = align_port(port, "--only", "forward", env=env)
    assert done.returncode == 2
    assert "paddle cannot be imported: libsomething.so is missing" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_gpu_that_is_not_there_is_one_message(port):
    import paddle

    if paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count():
        pytest.skip("this machine has a GPU that Paddle can use")
    done = align_port(port, "--only", "forward", "--device", "gpu")
    assert done.returncode == 2
    assert "has no usable gpu:0" in done.stderr
    assert "--device cpu" in done.stderr


def test_judging_again_runs_nothing(clean):
    project, _ = clean
    command = [sys.executable, "-m", "tipchain", "report", str(project.latest())]
    assert project.run(command).returncode == 0
    held = min(project.root.glob("out/runs/*/"))
    for words, title in (([], str(project.root / "case.yaml")), (["--strict"], f"judged again: {held}")):
        done = project.run([*command[:-1], str(held), *words, "--json", "-"])
        assert json.loads(done.stdout)["title"] == title
    tight = project.run([*command, "--only", "forward", "--method", "max", "--threshold", "0"])
    assert tight.returncode == 1
    assert "would pass with" in " ".join(tight.stdout.split())
    assert project.run([*command, "--only", "forward", "--rtol", "1", "--atol", "1"]).returncode == 0
    assert project.run([*command[:-1], str(project.root / "nowhere")]).returncode == 2


def test_a_numbered_script_outside_the_environment_says_how_to_enter_it(tmp_path):
    script = Path(__file__).resolve().parents[2] / "test_tipc" / "01_test_forward.py"
    done = TinyProject(tmp_path).run([sys.executable, "-S", str(script)])
    assert done.returncode == 2
    assert "source " in done.stderr
    assert ".venv/bin/activate" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_is_a_failure_without_traceback_or_halves(port):
    dumps = port.root / "made_elsewhere" / "log_reprod"
    command = (
        f"ulimit -f 40; exec {sys.executable} -m tipchain align case.yaml --out full --only data --reference {dumps}"
    )
    shutil.rmtree(port.root / "full", ignore_errors=True)
    (dumps / "data_torch.npy").write_bytes((dumps / "forward_torch.npy").read_bytes())  # small enough to copy
    done = port.run(["bash", "-c", command])
    assert done.returncode == 1, done.stdout + done.stderr
    assert "File too large" in " ".join(done.stdout.split())
    assert "Traceback" not in done.stdout + done.stderr
    run = next((port.root / "full" / "runs").iterdir())
    assert not (run / "log_reprod" / "data_paddle.npy").exists()
    assert not list(run.rglob(".*.npy")), "nothing half-written stays"


def test_nan_on_both_sides_passes_no_stage(tmp_path):
    project = make_tiny_project(tmp_path)
    for side in ("torch", "paddle"):
        head = "return self.head("
        project.edit(f"tiny_{side}.py", head, head.replace("self", "float('nan') * self"))
    stages = ("forward", "metric", "loss", "backward", "train")
    done = project.align("--only", ",".join(stages))
    assert done.returncode == 1, done.stderr
    for stage in stages:
        assert f"FAIL     {stage}/" in done.stdout
    assert "the torch model put out 200 NaN" in done.stdout
