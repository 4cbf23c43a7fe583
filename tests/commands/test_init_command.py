"""``tipchain init`` writes a case that loads, and one that works at once."""

import argparse
import os
import sys

import pytest
from chain_samples import ROOT

from tipchain.cli import main
from tipchain.commands.init import input_line, read_input, short_case
from tipchain.core.files import ROOT_VARIABLE
from tipchain.parity.case import load_case

NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 3)

    def forward(self, rows, scale=None):
        found = self.body(rows)
        return found if scale is None else (found, found * scale)


def build():
    return Net()
"""


PORTS = """
import os
import signal


def raises():
    raise ValueError("4 layers are too few")


def nothing():
    return None


def crash():
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def here(tmp_path, monkeypatch, forked):
    """A project of the modules ``their_net`` and ``their_port``, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(ROOT_VARIABLE, "")
    (tmp_path / "their_net.py").write_text(NET)
    (tmp_path / "their_port.py").write_text("import paddle\n\n\ndef build():\n    return paddle.nn.Linear(4, 3)\n")
    return tmp_path


def init(*more):
    return main(["init", "--torch", "their_net:build", "--paddle", "their_port:build", *more])


@pytest.mark.frameworks
def test_a_case_of_builders_is_short_loads_and_names_forwards_own_arguments(here, capsys):
    assert init("--input", "2,4") == 0
    text = (here / "their_net.yaml").read_text()
    assert 8 <= len(text.splitlines()) <= 12
    case = load_case(here / "their_net.yaml")
    assert case.sides["torch"].model == "their_net:build"
    assert case.sides["paddle"].model == "their_port:build"
    assert case.inputs["rows"].shape == (2, 4)
    assert (case.weights.init, case.weights.calibrate) == ("kaiming", "inputs")
    assert case.stages == ("forward", "inference")
    assert case.backward.dtype == "float64"
    assert case.root == here
    out = capsys.readouterr().out
    assert f"project root: {here}\n" in out
    assert "next:  tipchain align their_net.yaml" in out


@pytest.mark.frameworks
def test_several_outputs_get_names(here):
    assert init("net", "--input", "2,4", "--input", "scale=2,1") == 0
    case = load_case(here / "net.yaml")
    assert (tuple(case.inputs), case.outputs) == (("rows", "scale"), ("output_0", "output_1"))


@pytest.mark.frameworks
def test_inputs_that_the_model_does_not_take_are_told_with_the_line(here, capsys):
    assert init("--input", "2,5") == 2
    said = capsys.readouterr().err
    assert f"error: {here}/their_net.py:11: RuntimeError: mat1 and mat2 shapes cannot be multiplied" in said
    told = "trying an input of shape 2,5 (--input says another or integers such as 2,5:int64:1000)"
    assert f"the reference (torch), {told}" in said
    assert init("--lang", "zh", "--input", "2,5") == 2
    assert "试用形状为 2,5 的输入（可用 --input 指定其他形状，或整数，如 2,5:int64:1000）" in capsys.readouterr().err
    assert init("--input", "2,5:int64:9") == 2
    assert "trying an input of shape 2,5 (--input says another)" in capsys.readouterr().err
    assert not (here / "their_net.yaml").exists()


def test_builders_that_are_not_there_are_all_told_before_anything_is_built(here, capsys):
    assert main(["init", "--torch", "their_net:absent", "--paddle", "no_such_port:build"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: their_net:absent: their_net has no 'absent'\n")
    assert "\nno_such_port:build: no_such_port does not exist\n  hint: imports start at " in told
    assert not list(here.glob("*.yaml"))


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("port", "said"),
    [
        ("raises", "their_port.py:7: ValueError: 4 layers are too few\n  in: the port (Paddle), building the model"),
        ("nothing", "their_port.py:10: nothing returned None\n  expected: a paddle.nn.Layer"),
        ("crash", "the process that built their_port:crash was killed by SIGKILL"),
    ],
)
def test_a_port_that_cannot_be_built_is_one_message_and_nothing_is_written(here, capsys, port, said):
    (here / "their_port.py").write_text(PORTS)
    assert main(["init", "--torch", "their_net:build", "--paddle", f"their_port:{port}", "--input", "2,4"]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told
    assert not list(here.glob("*.yaml"))


def test_a_side_without_its_framework_is_not_built_but_its_builder_is_looked_for(here, capsys, monkeypatch):
    for name in ("torch", "paddle"):
        (here / "none" / name).mkdir(parents=True)
        (here / "none" / name / "__init__.py").write_text("raise ImportError('not on this machine')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(here / "none"), str(ROOT)]))
    assert init("--input", "2,4") == 0
    told = capsys.readouterr().err
    assert "note: not built here, as its framework is missing: the reference (torch) and the port (Paddle)" in told
    assert load_case(here / "their_net.yaml").inputs["input_0"].shape == (2, 4)
    assert main(["init", "net", "--torch", "their_net:build", "--paddle", "their_port:absent"]) == 2
    assert "their_port has no 'absent'" in capsys.readouterr().err
    assert not (here / "net.yaml").exists()


def test_both_missing_frameworks_are_named_at_once(here, capsys, monkeypatch):
    case = short_case(
        "net", here / "net.yaml", here, ("their_net:build", "their_port:build"), [read_input("x=2,4")], []
    )
    (here / "net.yaml").write_text(case)
    for name in ("torch", "paddle"):
        monkeypatch.setitem(sys.modules, name, None)
    for words in (["align", "net.yaml"], ["locate", "net.yaml"]):
        assert main(words) == 2
        assert "error: neither torch nor paddle is installed\n  install them: pip" in capsys.readouterr().err


@pytest.mark.frameworks
def test_a_root_that_the_place_does_not_tell_stands_in_the_case(here, monkeypatch):
    (here / "configs").mkdir()
    assert init("--input", "2,4") == 0
    assert "root: ..\n" in (here / "configs/their_net.yaml").read_text()
    assert load_case(here / "configs/their_net.yaml").root == here
    monkeypatch.setenv(ROOT_VARIABLE, str(here / "configs"))
    assert load_case(here / "configs/their_net.yaml").root == here / "configs"
    monkeypatch.chdir(here / "configs")
    assert init("net", "--input", "2,4", "--root", str(here)) == 0
    assert (here / "configs/net.yaml").is_file()
    assert init("--input", "2,4", "--root", str(here / "nowhere")) == 2


def test_a_stage_comes_with_its_builder(tmp_path):
    text = short_case("net", tmp_path / "net.yaml", tmp_path, ("a:b", "c:d"), [read_input("x=2,4")], [])
    text = text.replace('b"', 'b", loss: "a:l"').replace('d"', 'd", loss: "c:l"')
    (tmp_path / "net.yaml").write_text(text.replace("inputs:", "inputs:\n  label: {shape: [2], dtype: int64}"))
    assert load_case(tmp_path / "net.yaml").stages == ("forward", "loss", "inference")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("image=1,3,8,8", "  image: {shape: [1, 3, 8, 8]}"),
        ("ids=2x16:int64:100", "  ids: {shape: [2, 16], dtype: int64, high: 100}"),
        ("m=2:bool", "  m: {shape: [2], dtype: bool}"),
    ],
)
def test_inputs_are_read(text, line):
    assert input_line(read_input(text)) == line


@pytest.mark.parametrize("text", ["", "a", "1,0", "1,,2", "2,3,64x64", "x=1:float", "1,2:int64:many", "a b=1"])
def test_what_is_no_input_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError):
        read_input(text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "expected: --torch M:C and --paddle M:C"),
        (["--torch", "a:b", "--paddle", "c"], "--paddle: 'c' is no builder"),
        (["--torch", "nowhere_at_all:b", "--paddle", "c:d"], "nowhere_at_all does not exist"),
        (["../x", "--torch", "a:b", "--paddle", "c:d"], "cannot be a Python package"),
    ],
)
def test_wrong_use_is_one_message(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", *words]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_existing_file_is_kept(here, capsys):
    path = here / "their_net.yaml"
    path.write_text("mine")
    assert init() == 2
    assert path.read_text() == "mine"
    assert "--force" in capsys.readouterr().err


def test_a_chain_calls_the_programs_of_the_package(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    text = short_case("net", tmp_path / "net.yaml", tmp_path, ("a:b", "c:d"), [read_input("x=2,4")], [])
    (tmp_path / "configs/net.yaml").write_text(f"root: ..\n{text}")
    assert main(["init", "--chain", "configs/net.yaml"]) == 0
    said = capsys.readouterr().out
    params = "test_tipc/configs/net/train_infer_python.txt"
    assert "the case needs loss, optimizer, dataset, metric among the builders" in said
    assert f"next:  tipchain run {params} lite_train_lite_infer" in said
    assert main(["plan", params, "lite_train_lite_infer"]) == 0
    shown = capsys.readouterr().out
    for words in ("align configs/net.yaml", "case train configs/net.yaml", "case infer configs/net.yaml"):
        assert f"python -m tipchain {words}" in shown
    assert "--only forward,inference" in shown
    assert main(["lint", params]) == 0
    assert main(["init", "--chain", "configs/net.yaml"]) == 2
    assert main(["init", "net", "--chain", "configs/net.yaml"]) == 2
