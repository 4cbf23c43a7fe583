"""``tipchain init`` writes a case that loads, and one that works at once."""

from __future__ import annotations

import argparse
import sys

import pytest

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


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A project of a module ``their_net``, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(ROOT_VARIABLE, "")
    (tmp_path / "their_net.py").write_text(NET)
    (tmp_path / "their_port.py").write_text("def build(): pass\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("their_net", None)


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
    assert init("--input", "2,5") == 1
    said = capsys.readouterr().err
    assert f"error: {here}/their_net.py:11: RuntimeError: mat1 and mat2 shapes cannot be multiplied" in said
    told = "trying an input of shape 2,5 (--input says another or integers such as 2,5:int64:1000)"
    assert f"the reference (torch), {told}" in said
    assert init("--lang", "zh", "--input", "2,5") == 1
    assert "试用形状为 2,5 的输入（可用 --input 指定其他形状，或整数，如 2,5:int64:1000）" in capsys.readouterr().err
    assert init("--input", "2,5:int64:9") == 1
    assert "trying an input of shape 2,5 (--input says another)" in capsys.readouterr().err
    assert not (here / "their_net.yaml").exists()


@pytest.mark.frameworks
def test_a_root_that_the_place_does_not_tell_stands_in_the_case(here, monkeypatch):
    (here / "configs").mkdir()
    assert init("--input", "2,4") == 0
    assert "root: ..\n" in (here / "configs/their_net.yaml").read_text()
    assert load_case(here / "configs/their_net.yaml").root == here
    monkeypatch.setenv(ROOT_VARIABLE, str(here / "configs"))
    assert load_case(here / "configs/their_net.yaml").root == here / "configs"


@pytest.mark.frameworks
def test_root_says_where_imports_start(here, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    assert init("--input", "2,4", "--root", str(here)) == 0
    assert (here / "their_net.yaml").is_file()
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


@pytest.mark.parametrize("text", ["", "a", "1,0", "1,,2", "x=1:float", "1,2:int64:many", "a b=1"])
def test_what_is_no_input_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError):
        read_input(text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "expected: --torch M:C and --paddle M:C, or --full and an id"),
        (["--torch", "a:b"], "--torch and --paddle belong together"),
        (["--torch", "a:b", "--paddle", "c"], "--paddle: 'c' is no builder"),
        (["--torch", "a:b", "--paddle", "c:d", "--full"], "belong together"),
        (["x", "--input", "1,2"], "--input goes with --torch and --paddle"),
        (["--torch", "nowhere_at_all:b", "--paddle", "c:d"], "nowhere_at_all does not exist"),
    ],
)
def test_wrong_use_is_one_message(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", *words]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_full_case_loads(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "my_net", "--full"]) == 0
    case = load_case(tmp_path / "configs" / "my_net.yaml")
    assert case.id == "my_net"
    assert case.sides["paddle"].model == "alignment.my_net.paddle_side:build_model"
    assert "configs/my_net.yaml" in capsys.readouterr().out
    assert main(["init", "other_net"]) == 0
    assert "note: a case of builders that are there" in capsys.readouterr().err


def test_an_existing_file_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "case.yaml"
    path.write_text("mine")
    assert main(["init", "my_net", "--full", "--path", "case.yaml"]) == 2
    assert path.read_text() == "mine"
    assert "--force" in capsys.readouterr().err
    assert main(["init", "my_net", "--full", "--path", "case.yaml", "--force"]) == 0
    assert load_case(path).id == "my_net"


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
    for words in ("align configs/net.yaml", "train configs/net.yaml", "infer configs/net.yaml"):
        assert f"python -m tipchain {words}" in shown
    assert "--only forward,inference" in shown
    assert main(["lint", params]) == 0
    assert main(["init", "--chain", "configs/net.yaml"]) == 2
    assert main(["init", "net", "--chain", "configs/net.yaml"]) == 2


@pytest.mark.parametrize("name", ["my net", "../x", "1st", ""])
def test_a_bad_name_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert main(["init", name, "--full"]) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ['a"b', "alignment/my_net", "a..b"])
def test_a_bad_package_is_refused(tmp_path, monkeypatch, capsys, package):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "my_net", "--full", "--package", package]) == 2
    assert "cannot be a Python package" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
