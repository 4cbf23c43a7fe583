"""The Paddle programs: train, evaluate, export and infer, on a tiny net and images made here."""

import argparse
import importlib.util
import json
import os
import re
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
from chain_samples import ROOT
from PIL import Image
from programs import completed, half_full_disk

from tipchain.core.files import DATA_VARIABLE, MODE_VARIABLE
from tipchain.errors import UsageError
from tipchain.paddle_tools.program import run_program

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(importlib.util.find_spec("paddle") is None, reason="needs paddle"),
]
CASE = ROOT / "tests/cases/tiny/tiny.yaml"
LOSS = (
    r"loss: \d+\.\d{5}, avg_reader_cost: \d+\.\d{5} sec, avg_batch_cost: \d+\.\d{5} sec, "
    r"avg_samples: \d+, avg_ips: \d+\.\d{5} images/sec"
)


@pytest.fixture(autouse=True)
def _outside_a_chain(monkeypatch):
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    monkeypatch.delenv(MODE_VARIABLE, raising=False)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Ten classes of noisy images that differ in brightness; 20 to train on, 10 to validate."""
    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    for split, each in (("train", 2), ("val", 1)):
        for label in range(10):
            (folder / split / str(label)).mkdir(parents=True)
            for number in range(each):
                pixels = np.clip(random.normal(25 * label, 20, (8, 8)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / split / str(label) / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained")
    assert train(data, out, "--epochs", "2") == 0
    return out


@pytest.fixture(scope="module")
def exported(data, trained, tmp_path_factory):
    out = tmp_path_factory.mktemp("exported")
    assert export(data, trained / "best_model.pdparams", out) == 0
    return out


def train(data, out, *more):
    return run_program("train", ["--case", str(CASE), "--data-path", str(data), "--output-dir", str(out), *more])


def export(data, weights, out):
    flags = ["--data-path", str(data), "--pretrained", str(weights), "--save-inference-dir", str(out)]
    return run_program("export", ["--case", str(CASE), *flags])


def infer(model_dir, images, *more):
    return run_program("infer", ["--case", str(CASE), "--model-dir", str(model_dir), "--image-dir", str(images), *more])


def case_with(tmp_path, old, new):
    """Write a copy of the tiny case with one change; it still imports from the project's root."""
    folder = ROOT / "tests/cases/tiny"
    text = (folder / "tiny.yaml").read_text()
    assert old in text
    path = tmp_path / "case.yaml"
    path.write_text(text.replace(old, new))
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    return path


def read_state(path):
    from tipchain.weights.files import read_paddle_file

    return read_paddle_file(path)


def test_training_prints_and_saves(data, tmp_path, capsys):
    assert train(data, tmp_path, "--epochs", "1", "--print-freq", "2", "--num-workers", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [re.match(r"\[\w+\]\[Epoch 1(/1\]\[Iter \d/5)?\]", line).group() for line in lines] == [
        "[Train][Epoch 1/1][Iter 2/5]",
        "[Train][Epoch 1/1][Iter 4/5]",
        "[Train][Epoch 1/1][Iter 5/5]",
        "[Eval][Epoch 1]",
    ]
    assert all(re.fullmatch(rf"\[Train\]\S+ \S+ \S+ {LOSS}", line) for line in lines[:3])
    assert re.fullmatch(r"\[Eval\]\S* 1\] (?:\w+: \d+\.\d{3}, ){3}loss: \d\.\d{5}", lines[3])
    names = ["best_model.pdparams", "latest.json", "latest.pdopt", "latest.pdparams"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert json.loads((tmp_path / "latest.json").read_text())["epoch"] == 1


def test_resume_is_exact(data, trained, tmp_path):
    """Also within an epoch: order, dropout, moments and schedule all go on as if nothing had happened."""
    assert train(data, tmp_path, "--epochs", "2", "--max-iters", "7") == 0
    assert train(data, tmp_path, "--epochs", "2", "--resume", str(tmp_path / "latest")) == 0
    for name in ("latest.pdparams", "latest.pdopt"):
        np.testing.assert_equal(read_state(tmp_path / name), read_state(trained / name))
    saved, expected = (json.loads((folder / "latest.json").read_text()) for folder in (tmp_path, trained))
    assert (saved["epoch"], saved["iteration"], saved["step"]) == (2, 0, 10)
    assert saved["metric"] == expected["metric"]


def test_finished_checkpoint_is_left_alone(data, trained, capsys):
    before = (trained / "latest.json").read_bytes()
    assert train(data, trained, "--epochs", "2", "--resume", str(trained / "latest")) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert (trained / "latest.json").read_bytes() == before


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--amp-level", "O1"], "on a CPU Paddle ignores mixed precision"),
        (["Global.scale_loss=many"], "unknown word 'Global.scale_loss=many'"),
        (["--epochs", "0"], "whole number > 0"),
        (["--num-workers", "-1"], "--num-workers"),
        (["--resume", "nowhere/latest"], "no complete checkpoint"),
        (["--case", "nowhere.yaml"], "nowhere.yaml: no such case file"),
    ],
)
def test_wrong_use_is_one_message(data, tmp_path, capsys, flags, message):
    assert train(data, tmp_path, *flags) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not list(tmp_path.iterdir())


def test_resume_refuses_another_run(data, trained, tmp_path, capsys):
    assert train(data, tmp_path, "--resume", str(trained / "latest"), "--lr", "0.5") == 2
    assert "checkpoint" in capsys.readouterr().err


def test_nan_loss_stops_with_its_place(data, tmp_path, capsys):
    case = case_with(tmp_path, "tiny_paddle:build_model", "tiny_paddle:build_nan_model")
    out = tmp_path / "out"
    assert train(data, out, "--case", str(case)) == 1
    error = capsys.readouterr().err
    assert "the loss is nan in epoch 1, step 1" in error
    assert "Traceback" not in error
    assert not out.exists()


def test_an_unreadable_sample_stops_training_with_its_name(data, tmp_path, capsys):
    shutil.copytree(data, tmp_path / "data")
    (tmp_path / "data" / "train" / "3" / "0.png").write_bytes(b"no image")
    assert train(tmp_path / "data", tmp_path / "out") == 1
    error = capsys.readouterr().err
    assert "train/3/0.png" in error
    assert "Traceback" not in error


def test_truncated_weights(data, trained, tmp_path, capsys):
    broken = tmp_path / "a.pdparams"
    broken.write_bytes((trained / "latest.pdparams").read_bytes()[:-50])
    flags = ["--case", str(CASE), "--data-path", str(data), "--pretrained", str(broken)]
    for name in ("train", "evaluate", "export"):
        assert run_program(name, flags) == 2
        assert "is no complete Paddle weight file" in capsys.readouterr().err


def test_full_disk_keeps_the_checkpoint_before(data, tmp_path, capsys, monkeypatch):
    import paddle

    assert train(data, tmp_path, "--epochs", "1") == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    monkeypatch.setattr(paddle, "save", half_full_disk)
    assert train(data, tmp_path, "--epochs", "2", "--resume", str(tmp_path / "latest")) == 1
    assert "the checkpoint cannot be saved: No space left on device" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_evaluation_agrees_with_training(data, trained, capsys):
    flags = ["--case", str(CASE), "--data-path", str(data), "--pretrained", str(trained / "latest.pdparams")]
    assert run_program("evaluate", [*flags, "--batch-size", "3"]) == 0
    line = capsys.readouterr().out
    for key, value in json.loads((trained / "latest.json").read_text())["metric"].items():
        assert f"{key}: {value:.3f}" in line
    assert "samples: 10" in line
    assert train(data, trained, "--test-only", "--resume", str(trained / "latest")) == 0
    assert capsys.readouterr().out.startswith("[Eval] acc_top1")


def test_the_metric_is_that_of_the_whole_set_not_the_average_of_the_batches(data, trained):
    """Were it averaged, a metric such as mean class accuracy would depend on the batch size."""
    from tipchain.paddle_tools.evaluate import evaluate
    from tipchain.paddle_tools.program import open_bench
    from tipchain.weights.files import load_paddle_weights

    seen = []

    class Watched:
        def __init__(self, bench):
            self.bench = bench

        def __getattr__(self, name):
            return getattr(self.bench, name)

        def builder(self, name):
            build = self.bench.builder(name)
            return (lambda: self.measure) if name == "metric" else build

        def measure(self, output, label):
            seen.append((tuple(output.shape), label.tolist()))
            return {"classes": len(set(label.tolist()))}

    bench = Watched(open_bench(CASE, data, "cpu"))
    model = bench.model()
    load_paddle_weights(model, trained / "latest.pdparams")
    result = evaluate(bench, model, bench.dataset("val"), batch_size=3, num_workers=0)
    assert seen == [((10, 10), list(range(10)))]
    assert result.metric == {"classes": 10.0}
    assert result.samples == 10


def test_export_writes_a_whole_model(exported):
    import yaml

    names = {path.name for path in exported.iterdir()}
    assert {"inference.pdiparams", "inference.yml"} < names
    assert names & {"inference.json", "inference.pdmodel"}
    assert len(names) == 3
    card = yaml.safe_load((exported / "inference.yml").read_text())
    assert card["class_names"] == [str(label) for label in range(10)]
    assert card["inputs"] == [{"name": "image", "shape": [None, 3, 16, 16], "dtype": "float32"}]


def test_export_that_computes_something_else_is_refused(data, trained, exported, tmp_path):
    from tipchain.paddle_tools.export import check_export
    from tipchain.paddle_tools.program import ProgramError, open_bench

    bench = open_bench(CASE, data, "cpu")
    model = bench.model()
    model.eval()
    with pytest.raises(ProgramError, match=r"output 0 at batch 1 .* worst at \(0, \d\): expected \S+, actual \S+"):
        check_export(bench, model, exported)


def test_inference_agrees_with_the_training_engine(data, trained, exported, capsys):
    import paddle

    from tests.cases.tiny.tiny_paddle import build_dataset, build_model
    from tipchain.weights.files import load_paddle_weights

    model = build_model()
    load_paddle_weights(model, trained / "best_model.pdparams")
    model.eval()
    assert infer(exported, data / "val", "--batch-size", "3", "--top-k", "2", "--enable-mkldnn", "True") == 0
    lines = capsys.readouterr().out.splitlines()
    samples = build_dataset(data, "val")
    assert len(lines) == len(samples) == 10
    for line, (image, _, name) in zip(lines, samples, strict=True):
        scores = paddle.nn.functional.softmax(model(paddle.to_tensor(image[None])))[0].numpy()
        found = re.fullmatch(r"file: (\S+), top-2: \[\((\d), (\S+)\), \((\d), (\S+)\)\]", line)
        assert found.group(1).endswith(name)
        assert int(found.group(2)) == scores.argmax()
        assert float(found.group(3)) == pytest.approx(scores.max(), abs=2e-5)


def test_benchmark_prints_times_and_memory(data, exported, capsys):
    assert infer(exported, data / "val/0/0.png", "--benchmark=True", "--cpu-threads=2") == 0
    out = capsys.readouterr().out
    pattern = r"preprocess_time\(ms\): [\d.]+, inference_time\(ms\): [\d.]+, postprocess_time\(ms\): [\d.]+"
    assert re.search(pattern, out)
    assert re.search(r"cpu_rss\(MB\): \d+", out)
    assert "cpu_threads: 2" in out
    assert "total number of samples: 1" in out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--precision", "fp16"], "needs --use-gpu True"),
        (["--use-gpu", "True", "--enable-mkldnn", "True"], "oneDNN computes on the CPU"),
        (["--model-dir", "nowhere"], "nowhere/inference.yml: no exported model here"),
    ],
)
def test_wrong_use_of_inference(data, exported, capsys, flags, message):
    assert infer(exported, data / "val", *flags) == 2
    assert message in capsys.readouterr().err


def test_another_cases_model_is_refused(data, exported, tmp_path, capsys):
    case = case_with(tmp_path, "id: tiny", "id: other")
    assert infer(exported, data / "val", "--case", str(case)) == 2
    assert "was exported from case tiny, but --case is other" in capsys.readouterr().err


def test_unreadable_image_is_named(exported, tmp_path, capsys):
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nno more")
    assert infer(exported, tmp_path) == 1
    error = capsys.readouterr().err
    assert "broken.png: cannot be read as an image" in error
    assert "Traceback" not in error


def test_the_programs_are_commands_too_and_each_takes_what_the_one_before_has_left(
    data, trained, tmp_path, monkeypatch, capsys
):
    """So that a chain needs no clone of this project; their case is the first word."""
    from tipchain.cli import main

    shutil.copytree(trained, tmp_path / "output")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIPCHAIN_ROOT", "")  # the programs set it, for this process too
    where = ["--data-path", str(data), "--root", str(ROOT)]
    assert [main(["case", name, str(CASE), *where]) for name in ("eval", "export")] == [0, 0]
    assert main(["case", "infer", str(CASE), "--image-dir", str(data / "val")]) == 0
    out = capsys.readouterr().out
    assert "[Eval] acc_top1:" in out
    assert out.count("file: ") == 10
    assert main(["case", "train", str(CASE), *where, "--output-dir", "one", "--max-iters", "1"]) == 0
    assert main(["case", "infer", "--model-dir", "one", "nowhere.yaml"]) == 2
    assert main(["case", "train", "nowhere.yaml"]) == 2
    assert "nowhere.yaml: no such case file" in capsys.readouterr().err


def test_without_a_case_it_is_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_program("train", []) == 2
    assert "no case was named" in capsys.readouterr().err


BARE = """
import numpy as np
import paddle


class Rows(paddle.io.Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return np.full(4, index, np.float32), index % 2, f"row {index}"


class Pairs(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner = paddle.nn.Linear(4, 4)

    def forward(self, one, other):
        return self.inner(one + other).reshape([-1, 2, 2])


def build_dataset(root, split):
    return Rows()


def build_model():
    return paddle.nn.Linear(4, 2)
"""


@pytest.mark.parametrize(
    ("builders", "inputs", "shown"),
    [
        (
            "model: bare_port:build_model, dataset: bare_port:build_dataset",
            "{rows: {shape: [3, 4]}}",
            "file: row 2, top-2: [(",
        ),
        (
            "model: bare_port:Pairs",
            "{one: {shape: [3, 4]}, other: {shape: [3, 4]}}",
            "file: fake input 2, output: [2, 2], mean",
        ),
    ],
)
def test_inference_needs_no_builders_of_its_own(builders, inputs, shown, tmp_path, capsys):
    """Without ``build_transform`` the data set is inferred, without a data set the fake inputs."""
    (tmp_path / "bare_port.py").write_text(BARE)
    case = tmp_path / "case.yaml"
    side = f"{{{builders}}}"
    case.write_text(f"id: bare\nsides: {{torch: {side}, paddle: {side}}}\ninputs: {inputs}\nstages: [forward]\n")
    import paddle

    sys.path.insert(0, str(tmp_path))
    try:
        import bare_port

        model = getattr(bare_port, builders.split(",")[0].rpartition(":")[2])()
        paddle.save(model.state_dict(), str(tmp_path / "w.pdparams"))
        flags = ["--pretrained", str(tmp_path / "w.pdparams"), "--output-dir", str(tmp_path / "out")]
        assert run_program("export", [str(case), *flags]) == 0
        assert run_program("infer", [str(case), "--model-dir", str(tmp_path / "out"), "--batch-size", "2"]) == 0
    finally:
        sys.path.remove(str(tmp_path))
        del sys.modules["bare_port"]
    out = capsys.readouterr().out
    assert out.count("file: ") == 3
    assert shown in out
    assert run_program("infer", [str(case), "--model-dir", str(tmp_path / "out"), "--image-dir", str(tmp_path)]) == 2
    assert "build_inference_set or build_transform" in capsys.readouterr().err


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def test_tools_run_from_the_root_and_load_no_torch(data, tmp_path):
    argv = [sys.executable, "-X", "importtime", "tools/train.py", "--case", "tests/cases/tiny/tiny.yaml"]
    done = completed(
        [*argv, "--data-path", str(data), "--output-dir", str(tmp_path), "--max-iters", "1"],
        cwd=ROOT,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "paddle" in imported
    assert "torch" not in imported
    assert [line for line in done.stderr.splitlines() if not line.startswith("import time:")] == []


CRASH_AT_THE_END = """\
import atexit, os, signal
if "PADDLE_TRAINER_ID" in os.environ:
    atexit.register(os.kill, os.getpid(), signal.SIGSEGV)
"""
"""What a gloo thread does now and then to a process whose work is done, while its libraries are unloaded."""


def test_two_processes_train_one_model(data, tmp_path):
    """Each trains on its half of every batch's data; rank 0 alone prints, evaluates and saves."""
    (tmp_path / "sitecustomize.py").write_text(CRASH_AT_THE_END)
    launch = f"-m paddle.distributed.launch --nproc_per_node 2 --backend gloo --log_dir {tmp_path}/log"
    argv = f"tools/train.py --case tests/cases/tiny/tiny.yaml --data-path {data} --output-dir {tmp_path}/out"
    more = "--lr 0.0005 --lr-scaling linear --batch-size 4 --epochs 2"
    env = {**environment(), "PYTHONPATH": str(tmp_path)}
    done = completed([sys.executable, *f"{launch} {argv} {more}".split()], cwd=ROOT, env=env, timeout=240)
    logs = {path.name: path.read_text() for path in (tmp_path / "log").glob("workerlog.*")}
    assert done.returncode == 0, (done.stderr[-2000:], logs)
    assert "[Train][Epoch 2/2][Iter 3/3]" in logs["workerlog.0"]  # 10 of the 20 images, 4 at a time
    assert logs["workerlog.0"].count("[Eval]") == 2
    assert logs["workerlog.0"].count("learning rate 0.0005 x 2 processes = 0.001 (linear scaling)\n") == 1
    for word in ("[Train]", "[Eval]", "learning rate"):
        assert word not in logs["workerlog.1"]
    position = json.loads((tmp_path / "out/latest.json").read_text())
    assert (position["devices"], position["learning_rate"], position["lr_scaling"]) == (2, 0.0005, "linear")
    # The case's schedule halves the rate after two epochs.
    state = read_state(tmp_path / "out/latest.pdopt")
    assert state["LR_Scheduler"]["last_lr"] == pytest.approx(0.0005)
    assert any(key.endswith("velocity_0") for key in state), "its optimizer, too"


def test_a_resumed_run_does_not_scale_the_rate_twice(trained, monkeypatch):
    from tipchain.paddle_tools import train as program
    from tipchain.paddle_tools.checkpoint import load_position
    from tipchain.paddle_tools.train import read_settings
    from tipchain.parity.case import load_case

    def settings(*words, position=None):
        parser = argparse.ArgumentParser()
        program.add_arguments(parser)
        return read_settings(parser.parse_args(words), load_case(CASE), position)

    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "8")
    assert settings("--lr", "0.00125").rate == 0.00125
    first = settings("--lr", "0.00125", "--lr-scaling", "linear")
    assert first.rate == pytest.approx(0.01)
    saved = load_position(trained / "latest")
    position = replace(saved, learning_rate=first.learning_rate, devices=8, lr_scaling=first.lr_scaling)
    assert settings(position=position).rate == pytest.approx(0.01)
    with pytest.raises(UsageError, match="was trained with lr_scaling linear, this run has none"):
        program._check_resumable(position, replace(position, lr_scaling="none"))


def test_the_words_that_tipc_adds_for_mixed_precision_are_understood():
    from tipchain.paddle_tools.train import AMP_LEVELS, parse_scaling

    words = ["Global.use_amp=True", "Global.scale_loss=1024.0", "Global.use_dynamic_loss_scaling=True"]
    assert parse_scaling(words) == {"init_loss_scaling": 1024.0, "use_dynamic_loss_scaling": True}
    assert (AMP_LEVELS["amp"], AMP_LEVELS["fp16"], AMP_LEVELS["fp32"]) == ("O1", "O2", "O0")
