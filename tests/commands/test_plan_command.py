"""``tipchain plan`` as users call it."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from chain_samples import ALIGNMENT, TEMPLATE, edit

from tipchain.cli import main

ROOT = Path(__file__).resolve().parents[2]
OURS = ROOT / "test_tipc/configs/alexnet/train_infer_python.txt"
MODES = ("lite_train_lite_infer", "lite_train_whole_infer", "whole_train_whole_infer", "whole_infer")


@pytest.fixture
def params(tmp_path):
    file = tmp_path / "p.txt"
    file.write_text(TEMPLATE + ALIGNMENT)
    return file


def test_json(params, capsys):
    assert main(["plan", str(params), "lite_train_lite_infer", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["commands"][0]["id"] == "align[01]"
    assert [command["step"] for command in data["commands"]].count("infer") == 4


def test_text_and_shell(params, capsys):
    assert main(["plan", str(params), "lite_train_lite_infer"]) == 0
    assert "train[norm_train;gpus=-1]\n  $ python train.py --case a.yaml" in capsys.readouterr().out
    assert main(["plan", str(params), "lite_train_lite_infer", "--shell"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "mkdir -p test_tipc/output/net/lite_train_lite_infer/runs/RUN"
    assert lines[2].endswith("runs/RUN/align-01.log 2>&1")


def test_legacy(params, capsys):
    assert (
        main(["plan", str(params), "lite_train_lite_infer", "--legacy", "--suite", "template", "--json"]) == 0
    )
    data = json.loads(capsys.readouterr().out)
    assert "--output-dir=./test_tipc/output/norm_train_gpus_-1_autocast_null" in data["commands"][0]["argv"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["p.txt", "lite_trian_lite_infer"], 2, "did you mean 'lite_train_lite_infer'"),
        (["absent.txt", "whole_infer"], 2, "absent.txt: cannot be read"),
        (["p.txt", "whole_infer", "--suite", "paddleclass"], 2, "did you mean 'paddleclas'"),
        (["p.txt", "whole_infer", "--timeout", "0"], 2, "positive number of seconds"),
        (["p.txt", "whole_infer", "--timeout", "soon"], 2, "'soon' is not a positive number of seconds"),
        (["p.txt", "whole_infer", "--device", "tpu"], 2, "unknown device 'tpu'"),
        (["null.txt", "whole_infer"], 4, "nothing to run in mode whole_infer\n  null.txt:37: infer_model:"),
        (["short.txt", "whole_infer"], 2, "short.txt:15: expected `trainer:`"),
        (["typo.txt", "whole_infer"], 2, "typo.txt:39: infer_quant: 'Fasle' is neither"),
    ],
)
def test_errors_are_one_message_and_an_exit_code(params, monkeypatch, capsys, arguments, code, message):
    monkeypatch.chdir(params.parent)
    Path("null.txt").write_text(edit(TEMPLATE, ("infer_model", "infer_model:null")))
    Path("short.txt").write_text(TEMPLATE.replace("trainer:norm_train\n", ""))
    Path("typo.txt").write_text(edit(TEMPLATE, ("infer_quant", "infer_quant:Fasle")))
    assert main(["plan", *arguments]) == code
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize("mode", MODES)
def test_the_shipped_file_plans_in_every_mode(mode, capsys):
    assert main(["plan", str(OURS), mode, "--json"]) == 0
    captured = capsys.readouterr()
    commands = json.loads(captured.out)["commands"]
    steps = [command["step"] for command in commands]
    assert captured.err == ""
    assert steps.count("infer") <= 4
    assert steps.count("align") == (3 if mode == "whole_infer" else 5)
    assert steps.count("train") == (mode != "whole_infer")
    epochs = {word for command in commands for word in command["argv"] if word.startswith("--epochs")}
    assert (
        epochs == {"lite": {"--epochs=1"}, "whol": {"--epochs=3"}}[mode[:4]]
        if "train" in mode
        else not epochs
    )


@pytest.mark.parametrize("arguments", [["--version"], ["plan", str(OURS), MODES[0], "--json"]])
def test_start_up_loads_nothing_heavy(arguments):
    heavy = ("numpy", "torch", "paddle", "rich", "filelock")
    script = (
        f"import sys; from tipchain.cli import main; code = main({arguments!r}); "
        f"sys.exit(code or [name for name in {heavy!r} if name in sys.modules] or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", [["--version"], ["plan", str(OURS), MODES[0], "--json"]])
def test_start_up_takes_at_most_150_ms_of_computing(arguments):
    # Processor time, not wall time, so that a busy machine does not fail it.
    def spent():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    times = []
    for _ in range(5):
        before = spent()
        subprocess.run([sys.executable, "-m", "tipchain", *arguments], capture_output=True, check=True)
        times.append(spent() - before)
    assert min(times) <= 0.15
