import json
from pathlib import Path

import pytest
from chain_samples import TEMPLATE, edit

from tipchain.cli import main
from tipchain.commands import lint

WARNED = edit(TEMPLATE, ("gpu_list", "gpu_list:-1|-1"))
WRONG = edit(TEMPLATE, ("infer_quant", "infer_quant:Fasle"))
CLEAN = TEMPLATE.replace("=1|whole", "=1|lite_train_whole_infer=1|whole").replace(
    "--batch-size:lite_train_lite_infer=4", "--batch-size:null"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in (("wrong", WRONG), ("warned", WARNED), ("clean", CLEAN)):
        Path(f"{name}.txt").write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["clean.txt"], 0),
        (["warned.txt"], 0),
        (["warned.txt", "--strict"], 1),
        (["clean.txt", "--strict"], 0),
        (["wrong.txt"], 1),
        (["wrong.txt", "absent.txt"], 2),
        (["."], 4),
        (["clean.txt", "--suite", "tempalte"], 2),
        (["clean.txt", "--mode", "whole"], 2),
    ],
)
@pytest.mark.parametrize("how", [[], ["--json", "-"], ["--github"]])
def test_exit_codes(folder, capsys, arguments, code, how):
    assert main(["lint", *arguments, *how]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_text_names_the_place_and_ends_with_the_counts(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["lint", "wrong.txt", "absent.txt", "-v"]) == 2
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert "wrong.txt:39: error: infer_quant: 'Fasle' is neither True nor False; did you" in lines
    assert "absent.txt: error: cannot be read: No such file or directory [unreadable]" in lines
    assert lines[-1].startswith("2 errors, ")
    assert lines[-1].endswith(" in 2 files")
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in text


def test_what_is_right_is_shown_only_where_it_is_asked_for(folder, capsys):
    main(["lint", "clean.txt"])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("0 errors, 0 warnings, ")
    assert line.endswith("in 1 file; -v shows the remarks and what each line means")
    main(["lint", "clean.txt", "-v"])
    told = capsys.readouterr().out
    assert "   16  norm_train:train.py --case a.yaml\n" in told
    assert told.startswith("clean.txt: suite tipchain, tipchain: its lines fit")
    assert ": info: " in told
    main(["lint", "wrong.txt", "-q"])
    assert capsys.readouterr().out.startswith("1 error, ")


def test_json(folder, capsys):
    assert main(["lint", "wrong.txt", "clean.txt", "--json", "-", "--mode", "whole_infer"]) == 1
    wrong, clean = json.loads(capsys.readouterr().out)
    assert (wrong["file"], wrong["suite"], wrong["modes"]) == ("wrong.txt", "tipchain", ["whole_infer"])
    assert {
        "code": "typos",
        "severity": "error",
        "line": 39,
        "key": "infer_quant",
        "message": "'Fasle' is neither True nor False; did you mean 'False'?",
        "modes": ["whole_infer"],
    } in wrong["findings"]
    assert "lines" not in clean
    main(["lint", "clean.txt", "--json", "-", "-v"])
    assert json.loads(capsys.readouterr().out)[0]["lines"][1]["role"] == "model_name"


def test_github_commands_are_escaped(folder, capsys):
    name = "50%,a:b_train_infer_python.txt"
    Path(name).write_text(edit(WRONG, ("eval:", "eval:eval.py 100%;x")))
    assert main(["lint", ".", "--github"]) == 1
    lines = capsys.readouterr().out.splitlines()
    start = "::error file=50%25%2Ca%3Ab_train_infer_python.txt,line=24,title=no-shell::eval: ';' would be"
    assert sum(line.startswith(start) for line in lines) == 1
    assert all(line.startswith(("::error file=", "::warning file=", "::notice file=")) for line in lines[:-1])


def test_what_a_file_holds_cannot_write_to_the_terminal(folder, capsys):
    Path("bad.txt").write_text(edit(TEMPLATE, ("eval:", "eval:\x1b[2Jx")))
    for how in ([], ["--github"]):
        main(["lint", "bad.txt", *how])
        assert "\x1b" not in capsys.readouterr().out


def test_a_folders_chains_of_all_kinds_are_looked_at(folder, capsys):
    Path("more").mkdir()
    Path("more/net_train_amp_infer_python.txt").write_text(Path("clean.txt").read_text())
    Path("more/readme.txt").write_text("nothing\n")
    assert main(["lint", "more", "-v"]) == 0
    assert "more/net_train_amp_infer_python.txt" in capsys.readouterr().out
    Path("more/net_quantized.txt").write_text("===ptq_params===\nmodel_name:net\n")
    assert main(["lint", "more"]) == 1
    out = capsys.readouterr().out
    assert "more/net_quantized.txt" in out
    assert "readme" not in out
    assert main(["lint", "more/net_quantized.txt", "--chain", "train_infer_python"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "a file for test_ptq_inference_python.sh: --chain ptq_infer_python" in said


def test_a_folder_without_files_is_told_of(folder, capsys):
    Path("empty").mkdir()
    assert main(["lint", "empty"]) == 4
    assert capsys.readouterr().err == "error: no *train*infer_python*.txt below empty\n"
    assert main(["lint", "clean.txt", "empty"]) == 0
    assert capsys.readouterr().err == "note: no *train*infer_python*.txt below empty\n"


def test_names_that_no_disk_takes(tmp_path, capsys):
    assert main(["lint", "a" * 5000]) == 2
    assert "File name too long" in capsys.readouterr().err
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").touch()
    (tmp_path / "p.txt").write_text(edit(TEMPLATE, ("eval:", f"eval:{'a' * 5000}.py")))
    assert main(["lint", str(tmp_path / "p.txt")]) == 0
    assert "is not in" in capsys.readouterr().out


def test_many_files_are_shared_between_cores_and_shown_in_their_order(folder, capsys, monkeypatch):
    names, shares = [f"{number}.txt" for number in range(7)], []
    for name in names:
        Path(name).write_text(WARNED)
    arguments = ["lint", *names, "wrong.txt", "--json", "-"]
    assert main(arguments) == 1
    alone = capsys.readouterr().out
    monkeypatch.setattr(lint, "SHARE", 2)
    monkeypatch.setattr(lint, "core_count", lambda: 3)
    monkeypatch.setattr(lint, "on_cores", lambda work: [shares.append(one()) or shares[-1] for one in work])
    assert main(arguments) == 1
    assert capsys.readouterr().out == alone
    assert [len(one) for one in shares] == [3, 3, 2]
