"""Which kind of chain a file is, and what plan, run, lint and prepare do with that."""

import json

import pytest
from chain_samples import kind_sample

from tipchain.chain.kinds import KINDS, TRAIN_INFER, tell_kind
from tipchain.chain.params import parse_params
from tipchain.cli import main
from tipchain.errors import UsageError
from tipchain.modes import CHAIN_MODES, Mode

CLAS = kind_sample("paddle2onnx", "paddleclas")


def told(text: str, name: str = "file.txt", **more):
    return tell_kind(parse_params(text, name), **more)


@pytest.fixture
def clas(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "onnx.txt").write_text(CLAS)
    return "onnx.txt"


def test_every_kind_is_told_by_its_own_marks_and_has_a_planner():
    for kind in KINDS.values():
        for mark in kind.marks:
            name = mark.name.replace("*", "x")
            assert told(f"==={mark.section}===\n", name, mode=mark.mode).kind is kind
        assert kind.modes
        assert (kind.module == "") == (kind.name == TRAIN_INFER or bool(kind.lacks))


def test_the_named_kind_counts():
    assert told(CLAS, chain=TRAIN_INFER).kind.name == TRAIN_INFER
    with pytest.raises(UsageError, match="did you mean 'paddle2onnx'"):
        told(CLAS, chain="paddle2onx")


def test_a_file_of_another_kind_is_told_as_such(clas, capsys):
    assert main(["plan", clas, "lite_train_lite_infer", "--chain", TRAIN_INFER]) == 2
    said = capsys.readouterr().err
    assert "expected the section [train_params]" in said
    assert "this is a file for test_paddle2onnx.sh: --chain paddle2onnx" in said


def test_a_sole_mode_need_not_be_named(clas, capsys):
    assert main(["plan", clas, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["mode"], found["chain"], found["suite"]) == ("paddle2onnx_infer", "paddle2onnx", "paddleclas")


def test_a_kind_that_is_not_run_is_told_in_one_line_and_nothing_is_checked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.txt").write_text("===serving_params===\nmodel_name:net\npython:python\n")
    why = "tipchain does not run test_serving_infer_python.sh: it needs Paddle Serving"
    assert main(["lint", "net.txt"]) == 0
    assert " ".join(capsys.readouterr().out.split()).startswith(f"net.txt: info: {why}")
    for command in ("plan", "run"):
        assert main([command, "net.txt"]) == 4
        assert f"net.txt: nothing to run in mode serving_infer\n  {why}" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plan", "run", "prepare"])
def test_a_mode_of_another_kind_is_refused_with_the_reason(command, clas, capsys):
    assert main([command, clas, "lite_train_lite_infer"]) == 2
    said = capsys.readouterr().err
    assert "lite_train_lite_infer is no mode of paddle2onnx chains" in said
    assert "it begins with the section [paddle2onnx_params]" in said
    assert "train_infer_python takes" in said


def test_alignments_know_the_modes_of_training_chains_only(capsys):
    assert main(["align", "case.yaml", "--mode", "paddle2onnx_infer"]) == 2
    assert "unknown mode 'paddle2onnx_infer'" in capsys.readouterr().err
    assert Mode.PADDLE2ONNX_INFER not in CHAIN_MODES


def test_lint_reads_a_file_by_its_kind(clas, capsys):
    assert main(["lint", clas, "--json", "-", "-v"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["chain"], found["modes"]) == ("paddle2onnx", ["paddle2onnx_infer"])
    lines = {line["line"]: line for line in found["lines"]}
    assert lines[8]["meaning"] == "the ONNX model to write"
    assert lines[8]["use"] == "in convert, compare"


def test_a_file_of_a_suite_whose_chains_of_a_kind_are_not_known_is_not_judged_by_anothers_lines(clas, capsys, tmp_path):
    path, own = tmp_path / clas, CLAS.replace("--model_dir:", "--det_model_dir:")
    path.write_text(own)
    assert main(["lint", clas]) == 1
    assert "expected `--model_dir:`, found `--det_model_dir:`" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "test_tipc").mkdir()
    (tmp_path / "ppgan").mkdir()
    assert main(["lint", clas]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "warning: is a file of PaddleGAN, whose chains of this kind are not known: nothing in it was checked" in told
    assert main(["plan", clas]) == 2
    assert "whose chains of this kind are not known" in capsys.readouterr().err
    assert main(["plan", clas, "--suite", "paddleclas"]) == 2
    assert "found `--det_model_dir:`" in capsys.readouterr().err
    path.write_text(CLAS)  # what fits is read
    assert main(["lint", clas]) == 0
    assert "nothing in it was checked" not in capsys.readouterr().out
