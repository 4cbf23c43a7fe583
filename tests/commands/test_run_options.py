"""The options of ``tipchain run`` that say what runs, where, and how much at once."""

import json
import shlex
import sys
from pathlib import Path

import pytest
from chain_samples import ALIGNMENT, LEAVES, TEMPLATE, edit, lay_programs, stub
from programs import completed

from tipchain import __version__
from tipchain.chain.gpus import Gpus
from tipchain.cli import main, parser_of
from tipchain.commands.run import CALLED, _usual_seconds, words_behind_mode

MODE = "lite_train_lite_infer"
OUT = Path("test_tipc/output/net") / MODE


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("p.txt").write_text(TEMPLATE + ALIGNMENT)
    return tmp_path


def python(body=LEAVES):
    return ["--python", str(stub(Path.cwd() / "py", body))]


def run(*options, body=LEAVES):
    return main(["run", "p.txt", MODE, *python(body), *options])


def report():
    (found,) = OUT.glob("runs/*/report.json")
    return json.loads(found.read_text())


def outcomes():
    return {one["command"]["id"].partition("[")[0]: one["outcome"] for one in report()["results"]}


def test_only_runs_what_is_named_and_what_that_needs(capsys):
    assert run("--only", "eval") == 0
    assert outcomes() == {"train": "PASS", "eval": "PASS"}
    assert "2 of 12 commands are selected" in " ".join(report()["notes"])
    assert "2 of 12 commands are selected" in capsys.readouterr().err


def test_a_device_and_changed_lines_are_told_of_and_reported(capsys):
    Path("p.txt").write_text(edit(TEMPLATE, ("gpu_list", "gpu_list:0"), ("--device", "--device:gpu")))
    assert run("--device", "cpu", "--set", "--epochs=lite_train_lite_infer=7") == 0
    found = report()
    train = found["results"][0]["command"]
    assert {"--epochs=7", "--device=cpu"} <= set(train["argv"])
    assert (train["on_gpu"], found["results"][0]["outcome"]) == (False, "PASS")
    told = " ".join(capsys.readouterr().err.split())
    for note in ("--set '--epochs=lite_train_lite_infer=7': line 7", "--device cpu: line 4, gpu_list, is '-1'"):
        assert any(one.startswith(note) for one in found["notes"])
        assert note in told


def test_skip_leaves_out_and_says_what_needed_it(capsys):
    assert run("--skip", "export", "--skip", "align") == 0
    assert outcomes() == {"train": "PASS", "eval": "PASS", "infer": "SKIP"}
    assert "not run: export[norm_train;gpus=-1] is left out (--skip)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_pattern_that_names_nothing_is_2_and_makes_nothing(command, capsys):
    assert main([command, "p.txt", MODE, "--only", "trian"]) == 2
    assert "did you mean 'train'?" in capsys.readouterr().err
    assert not OUT.exists()


def test_nothing_left_is_4(capsys):
    assert run("--only", "eval", "--skip", "*") == 4
    assert "0 of 12 commands are selected" in capsys.readouterr().err


def test_a_gpu_that_is_required(monkeypatch):
    gpus = Gpus(trouble="no usable GPU on this machine")
    monkeypatch.setattr("tipchain.chain.run.find_gpus", lambda: gpus)
    Path("p.txt").write_text(edit(TEMPLATE, ("gpu_list", "gpu_list:0")))
    assert run("--require-gpu") == 1
    assert outcomes()["train"] == "ERROR"


def test_fail_fast_stops_where_keep_going_does_not():
    body = 'case "$1" in *02_test*) exit 1;; esac\n' + LEAVES
    assert run("--fail-fast", body=body) == 1
    reasons = {one["reason"] for one in report()["results"] if one["outcome"] == "SKIP"}
    assert reasons == {"not run: align[02] failed (--fail-fast)"}
    assert [one["outcome"] for one in report()["results"]][:2] == ["PASS", "FAIL"]


def test_a_limit_of_ones_own_and_none_can_be_asked_for(capsys):
    for word, seconds in (("90s", 90.0), ("none", None)):
        assert main(["plan", "p.txt", MODE, "--timeout", word, "--json", "-"]) == 0
        text = capsys.readouterr().out
        assert {one["timeout_s"] for one in json.loads(text)["commands"]} == {seconds}
        assert "Infinity" not in text
    assert run("--timeout", "none", "--only", "train") == 0
    assert report()["results"][0]["command"]["timeout_s"] is None


def test_runs_with_folders_of_their_own_share_nothing():
    for folder in ("one", "two/deep"):
        assert run("--out", folder, "--only", "train") == 0
        (log,) = Path(folder).rglob("results_python.log")
        assert log.read_text().count("# ==== run ") == 1
        assert (Path(folder) / "net" / MODE / "norm_train_gpus_-1_autocast_null/best.pdparams").exists()
    assert not Path("test_tipc").exists()


def test_a_folder_that_cannot_be_had_is_2(capsys):
    assert run("--out", "p.txt") == 2
    assert "cannot write below p.txt/" in capsys.readouterr().err
    assert run("--out", "/dev/null/x") == 2
    assert "cannot write below /dev/null/x/" in capsys.readouterr().err


def test_what_commands_took_is_the_basis_of_the_next_runs_time_left():
    assert run("--only", "train") == 0
    (latest,) = OUT.glob("runs/*/")
    usual = _usual_seconds(latest.parent / "next")
    assert usual == {one["command"]["id"]: one["seconds"] for one in report()["results"]}
    (latest / "report.json").write_text("{")
    assert _usual_seconds(latest.parent / "next") == {}


SHOWN = {"params", "mode", "mode_by_name", "prepare", "resume"} | {
    *("json", "junit", "html", "github", "quiet", "verbose", "color", "lang")
}
"""What a call that goes on with a run does not need."""
FULL = shlex.split("""
--chain train_infer_python --suite template --lenient --gpu-id 0 --timeout 90s --warm-up 3 --device cpu --jobs 2
--set --epochs=lite_train_lite_infer=7 '--set=trainer:norm_train|pact_train' --out 'else where' --only train
--skip infer[*] --require-gpu --fail-fast --python 'py 3'
""")


@pytest.mark.parametrize("options", [(), FULL, ("--timeout", "none"), ("3",)])
def test_another_call_with_the_words_of_this_one_runs_the_same(options):
    parser = parser_of("run")
    here = parser.parse_args(["p.txt", MODE, *options])
    again = parser.parse_args(["p.txt", MODE, *words_behind_mode(here)])
    assert vars(again) == vars(here)


def test_each_argument_decides_what_is_run_or_is_of_one_call():
    names = set(vars(parser_of("run").parse_args(["p.txt", MODE])))
    assert names == {*CALLED, "gpu"} | SHOWN


def test_a_failed_run_says_how_to_go_on_with_the_same_chain():
    def call(*words):  # a run is held until the process that began it ends
        argv = [sys.executable, "-m", "tipchain", *words]
        return completed(argv)

    options = ("--set", "--epochs=lite_train_lite_infer=7", "--device=cpu", "--json", "r.json")
    failed = call("run", "p.txt", MODE, *python("exit 3"), *options)
    lines = [line.strip() for line in failed.stdout.splitlines()]
    words = shlex.split(lines[lines.index("next") + 1].removeprefix("tipchain "))
    assert words[-1] == "--resume"
    stub(Path.cwd() / "py", LEAVES)
    done = call(*words)
    assert done.returncode == 0, (words, done.stdout)
    (train,) = (one["command"] for one in report()["results"] if one["command"]["step"] == "train")
    assert "--epochs=7" in train["argv"]


def test_versions_are_those_of_the_interpreter_that_runs_the_chain():
    lay_programs(Path())
    site = Path.cwd() / "site"
    (site / "paddlepaddle-2.6.2.dist-info").mkdir(parents=True)
    (site / "paddlepaddle-2.6.2.dist-info" / "METADATA").write_text("Name: paddlepaddle\nVersion: 2.6.2\n")
    told = json.dumps(["3.8.9", [str(site)]])
    python = stub(Path.cwd() / "python3.8", f"""[ "$1" = -c ] && {{ echo '{told}'; exit; }}; {LEAVES}""")
    assert main(["run", "p.txt", MODE, "--python", str(python)]) == 0
    assert report()["versions"] == {"tipchain": __version__, "python": "3.8.9", "paddle": "2.6.2"}
    assert "python=3.8.9 paddle=2.6.2" in (OUT / "results_python.log").read_text().splitlines()[1]


def test_of_an_interpreter_that_cannot_be_asked_no_versions_are_known():
    lay_programs(Path())
    python = stub(Path.cwd() / "python3.8", f"""[ "$1" = -c ] && exit 127; {LEAVES}""")
    assert main(["run", "p.txt", MODE, "--python", str(python)]) == 0
    assert report()["versions"] == {"tipchain": __version__}
