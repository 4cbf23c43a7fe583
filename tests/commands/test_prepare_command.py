import json
from pathlib import Path

import pytest
from chain_samples import DEMO_ALIGNMENT, DEMO_CASE, DEMO_HEAD, TEMPLATE, stub

from tipchain.cli import main
from tipchain.commands import prepare
from tipchain.errors import UsageError, WeightsError
from tipchain.parity import weights


@pytest.fixture
def params(tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/demo.yaml").write_text(DEMO_CASE)
    path = tmp_path / "test_tipc/configs/demo/train_infer_python.txt"
    path.parent.mkdir(parents=True)
    path.write_text(DEMO_HEAD + DEMO_ALIGNMENT)
    return path


@pytest.fixture
def asked(monkeypatch):
    """Calls of prepare_variants, which needs frameworks and has tests of its own."""
    calls = []

    def fake(cases, mode, **more):
        calls.extend((case.id, mode.value, more) for case in cases)
        path = cases[0].root / "test_tipc/data/weights/demo/lite/torch.pth"
        return [weights.WeightFiles(paths={"torch": path}, sha256={}, digest="") for _ in cases]

    monkeypatch.setattr(weights, "prepare_variants", fake)
    return calls


def folders(params):
    data = params.parents[2] / "data"
    return sorted(path.name for path in data.glob("*_data")) if data.exists() else []


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("lite_train_lite_infer", ["lite_data"]),
        ("lite_train_whole_infer", ["lite_data", "whole_data"]),
        ("whole_infer", ["whole_data"]),
    ],
)
def test_each_mode_gets_its_data_then_its_weights(params, asked, mode, expected, capsys):
    assert main(["prepare", str(params), mode]) == 0
    assert folders(params) == expected
    assert asked == [("demo", mode, {"data_path": None, "force": False})]
    assert "weights ready" in capsys.readouterr().out


def test_data_that_the_case_asks_for_beyond_the_mode(params, asked):
    text = DEMO_CASE + "modes: {lite_train_lite_infer: {data: whole}}\n"
    (params.parents[3] / "configs/demo.yaml").write_text(text)
    assert main(["prepare", str(params), "lite_train_lite_infer", "--data-only"]) == 0
    assert folders(params) == ["lite_data", "whole_data"]


def test_data_only_makes_no_weights_and_force_makes_data_anew(params, asked):
    assert main(["prepare", str(params), "lite_train_lite_infer", "--data-only"]) == 0
    folder = params.parents[2] / "data/lite_data"
    before = folder.stat().st_ino
    assert main(["prepare", str(params), "lite_train_lite_infer", "--data-only"]) == 0
    assert folder.stat().st_ino == before
    assert main(["prepare", str(params), "lite_train_lite_infer", "--data-only", "--force"]) == 0
    assert folder.stat().st_ino != before
    assert asked == []


def test_ones_own_data_is_checked_and_used(params, asked, tmp_path, capsys):
    data = tmp_path / "mine"
    for split in ("train", "val"):
        (data / split / "cat").mkdir(parents=True)
        (data / split / "cat/1.png").write_bytes(b"")
    command = ["prepare", str(params), "lite_train_lite_infer", "--data-path", str(data)]
    assert main(command) == 0
    assert folders(params) == []
    assert asked[0][2]["data_path"] == data
    (data / "val/cat/1.png").unlink()
    assert main(command) == 2
    assert "val/cat: has no image" in capsys.readouterr().err


@pytest.mark.parametrize("text", [DEMO_HEAD, DEMO_HEAD + "===alignment_params===\nalignment:null\nsteps:01\n"])
def test_a_file_without_alignment_prepares_nothing_and_says_so(params, asked, text, capsys):
    params.write_text(text)
    assert main(["prepare", str(params), "lite_train_lite_infer"]) == 0
    assert "nothing to prepare" in capsys.readouterr().out
    assert (folders(params), asked) == ([], [])


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        (DEMO_HEAD + DEMO_ALIGNMENT, "lite_trian_lite_infer", "did you mean 'lite_train_lite_infer'"),
        (DEMO_HEAD + "===alignment_params===\nalignment:nowhere.yaml\nsteps:01\n", "whole_infer", "no such case file"),
        ("model_name:demo\n", "whole_infer", "before the first section header"),
    ],
)
def test_wrong_use_is_exit_2(params, asked, text, mode, message, capsys):
    params.write_text(text)
    assert main(["prepare", str(params), mode]) == 2
    assert message in capsys.readouterr().err
    assert folders(params) == []


def test_a_parameter_file_outside_the_project_means_the_projects_case(params, tmp_path_factory, monkeypatch):
    project = params.parents[3]
    monkeypatch.setattr(prepare, "PROJECT", project)
    outside = tmp_path_factory.mktemp("elsewhere") / "own.txt"
    outside.write_text(params.read_text())
    assert prepare.alignment_case(outside) == project / "configs/demo.yaml"


def test_a_dry_run_names_what_would_be_made_and_makes_nothing(params, asked, capsys):
    assert main(["prepare", str(params), "lite_train_whole_infer", "--dry-run"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == ["would prepare: lite data", "would prepare: whole data"]
    assert out[2].startswith("would prepare: the weights of ")
    assert main(["prepare", str(params), "lite_train_lite_infer", "--dry-run", "--data-only"]) == 0
    assert capsys.readouterr().out == "would prepare: lite data\n"
    assert (folders(params), asked) == ([], [])


@pytest.mark.parametrize("option", [["--timeout", "5"], ["--suite", "paddleseg"], ["--python", "py"], ["--keep-data"]])
def test_options_for_suites_are_refused_where_there_is_none(params, asked, option, capsys):
    assert main(["prepare", str(params), "lite_train_lite_infer", *option]) == 2
    assert f"{option[0]} is for the checkouts of suites" in capsys.readouterr().err
    assert (folders(params), asked) == ([], [])


def test_a_file_with_a_case_is_prepared_by_us_even_where_a_script_stands(params, asked):
    (params.parents[2] / "prepare.sh").write_text("exit 9\n")
    assert main(["prepare", str(params), "lite_train_lite_infer"]) == 0
    assert folders(params) == ["lite_data"]


def test_our_own_project_is_no_suites_checkout(params, asked, capsys):
    root = params.parents[3]
    (root / "test_tipc/prepare.sh").write_text("exit 9\n")
    (root / "tipchain").mkdir()
    (root / "tipchain/__main__.py").write_text("")
    params.write_text(DEMO_HEAD)
    assert main(["prepare", str(params), "lite_train_lite_infer"]) == 0
    assert "nothing to prepare" in capsys.readouterr().out


@pytest.fixture
def chain(params, monkeypatch):
    """Words that run a whole chain of a case, with an interpreter that does nothing."""
    monkeypatch.chdir(params.parents[3])
    params.write_text(TEMPLATE + DEMO_ALIGNMENT)
    return ["run", str(params), "lite_train_lite_infer", "--python", str(stub(Path("py"), "exit 0"))]


def test_a_chain_is_prepared_before_it_runs(chain, params, asked, capsys):
    main(chain)
    assert (asked, folders(params)) == ([], []), "not asked for"
    capsys.readouterr()
    main([*chain, "--prepare", "--json", "-"])
    assert folders(params) == ["lite_data"]
    assert asked == [("demo", "lite_train_lite_infer", {"data_path": None, "force": False})]
    out, err = capsys.readouterr()
    assert json.loads(out)["results"]
    assert "weights ready" in err


def test_a_cases_data_are_prepared_before_it_is_aligned(params, asked, monkeypatch, capsys):
    """The weights are not: aligning makes those of the sides that it runs, where the other framework may be absent."""
    seen = []

    def stop(*_):
        seen.append(folders(params))
        raise UsageError("far enough")

    monkeypatch.setattr("tipchain.commands.align.make_request", stop)
    for words in ((), ("--prepare",)):
        assert main(["align", str(params.parents[3] / "configs/demo.yaml"), *words]) == 2
    assert seen == [[], ["lite_data"]]
    assert not asked
    assert "lite_data: made" in capsys.readouterr().out


def test_what_cannot_be_prepared_is_not_run(chain, monkeypatch, capsys):
    def refuse(cases, mode, **more):
        return [WeightsError("do not fit", file=case.path) for case in cases]

    monkeypatch.setattr(weights, "prepare_variants", refuse)
    assert main([*chain, "--prepare", "--json", "report.json"]) == 1
    err = capsys.readouterr().err
    assert "do not fit" in err
    assert "could not be prepared; nothing was run" in err
    assert not Path("report.json").exists()
    assert not Path("test_tipc/output").exists()
