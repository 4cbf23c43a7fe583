"""What a resumed run need not do again, and what it must."""

import json
import math
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tipchain.chain.execute import Place, run_command
from tipchain.chain.plan import Artifact, Command, Find, Plan, Result
from tipchain.chain.run import FILE_NAME, Journal, resumable
from tipchain.errors import Outcome
from tipchain.modes import Mode

CHECKPOINT = Artifact(what="checkpoint", files=("run/out/*.pdparams",))
SCRIPT = 'mkdir -p run/out; echo w > run/out/a.pdparams; echo "psnr: nan, top1: 0.5"\n'


def plan(**changes):
    facts = {"params": "p.txt", "mode": Mode.LITE_TRAIN_LITE_INFER, "suite": "template", **changes}
    return Plan(model="net", status="", out="out", run="run", commands=(), latest=(), notes=(), **facts)


class Bench:
    """A run's folder with a training script, a configuration and a data folder."""

    def __init__(self, root):
        self.root, self.run = root, root / "run"
        self.run.mkdir()
        (root / "train.sh").write_text(SCRIPT)
        (root / "net.yaml").write_text("lr: 0.1\n")
        (root / "data/images").mkdir(parents=True)
        (root / "data/images/1.png").write_text("1")
        self.place = Place(root=root, run=self.run, mode=Mode.LITE_TRAIN_LITE_INFER)
        self.command = Command(
            id="train",
            step="train",
            log="run/train.log",
            leaves=(CHECKPOINT,),
            env={"A": "1"},
            argv=("bash", "train.sh", "-c", "net.yaml", "-o", "data=data", "--save=run/out"),
        )

    def passes(self, command=None, **changes):
        command = (command or self.command)._replace(**changes)
        journal = Journal(self.run)
        journal.start(plan())
        journal.before(command, self.place)
        result, _ = run_command(command, self.place, lambda line: None)
        journal.record(result, self.place)
        assert journal.problem == ""
        return result

    def earlier(self, command=None, place=None, **changes):
        return Journal(self.run).finished((command or self.command)._replace(**changes), place or self.place)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Bench(tmp_path)


def test_a_pass_is_found_again_with_all_that_it_said(bench):
    result = bench.passes()
    assert result.outcome is Outcome.PASS
    earlier = bench.earlier()
    assert earlier.reused
    assert math.isnan(earlier.figures["psnr"])
    assert earlier._replace(reused=False, figures={}) == result._replace(figures={})


@pytest.mark.parametrize(
    "change",
    [
        {"argv": ("bash", "train.sh")},
        {"env": {"A": "2"}},
        {"cwd": "data/.."},
        {"id": "train2"},
        {"leaves": (CHECKPOINT, Artifact(what="log", files=("run/train.log",)))},
    ],
)
def test_another_command_is_not_the_one_that_passed(bench, change):
    bench.passes()
    assert bench.earlier(**change) is None
    assert bench.earlier(timeout_s=5.0, log="run/other.log") is not None


def test_another_data_folder_of_the_users_is_another_command(bench):
    bench.passes()
    assert bench.earlier(place=replace(bench.place, data=bench.root / "data")) is None


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("train.sh", SCRIPT + "#\n"),
        ("net.yaml", "lr: 0.2\n"),
        ("data/images/1.png", "12"),
        ("data/images/2.png", "2"),
        ("run/out/a.pdparams", "x\n"),
        ("run/out/a.pdparams", None),
        ("net.yaml", None),
        ("data/images/1.png", None),
    ],
)
def test_changed_inputs_and_artifacts_count(bench, file, text):
    bench.passes()
    if text is None:
        (bench.root / file).unlink()
    else:
        (bench.root / file).write_text(text)
    assert bench.earlier() is None


def test_a_file_written_anew_with_the_same_bytes_is_the_same_input(bench):
    bench.passes()
    (bench.root / "net.yaml").write_text("lr: 0.1\n")
    os.utime(bench.root / "train.sh", (1, 1))
    (bench.run / "out/b.pdparams").write_text("of a later command")  # more than before is no change
    assert bench.earlier() is not None


@pytest.mark.parametrize("edit", ["echo 'lr: 0.2' > net.yaml\n", "echo 123 > data/images/1.png\n"])
def test_inputs_are_taken_before_the_start(bench, edit):
    """What the user or the command edits while it runs is not what passed."""
    (bench.root / "train.sh").write_text(SCRIPT + edit)
    assert bench.passes().outcome is Outcome.PASS
    assert bench.earlier() is None


def test_what_the_command_itself_adds_to_a_folder_is_no_change(bench):
    (bench.root / "train.sh").write_text(SCRIPT + "mkdir -p data/x/__pycache__; echo > data/x/cache\n")
    bench.passes()
    assert bench.earlier() is not None
    (bench.root / "data/x/__pycache__/a.pyc").write_text("")
    assert bench.earlier() is not None
    (bench.root / "data/x/cache").write_text("other")
    assert bench.earlier() is None


def test_the_modes_data_folder_is_an_input(bench):
    images = bench.root / "test_tipc/data/lite_data"
    images.mkdir(parents=True)
    (images / "a.png").write_text("a")
    bench.passes()
    assert bench.earlier() is not None
    (images / "b.png").write_text("b")
    assert bench.earlier() is None


def test_an_output_that_was_not_there_is_no_input(bench):
    (bench.root / "train.sh").write_text(SCRIPT + "echo > new.txt\n")
    command = bench.command._replace(argv=(*bench.command.argv, "--list=new.txt"))
    bench.passes(command)
    assert bench.earlier(command) is not None


def test_a_result_line_needs_its_log(bench):
    leaves = (Artifact(what="result line", in_log=True),)
    result = bench.passes(leaves=leaves)
    assert bench.earlier(leaves=leaves) is not None
    (bench.run / result.log).write_text("")
    assert bench.earlier(leaves=leaves) is None


def test_a_settled_command_is_known_by_its_planned_words(bench):
    (bench.run / "out").mkdir()
    weights = bench.run / "out/iter_2.pdparams"
    weights.write_text("w")
    command = bench.command._replace(
        id="eval",
        leaves=(),
        argv=("bash", "-c", "true", "w=run/best"),
        finds=(Find(text="run/best", files=("run/out/iter_*.pdparams", "run/out/iter_*")),),
    )
    assert bench.passes(command).command.argv[-1] == "w=run/out/iter_2"
    assert bench.earlier(command).command.argv[-1] == "w=run/out/iter_2"
    newer = bench.run / "out/iter_3.pdparams"
    newer.write_text("w")
    os.utime(newer, (2**31, 2**31))
    assert bench.earlier(command) is None
    newer.unlink()
    weights.write_text("other")
    assert bench.earlier(command) is None


def test_an_earlier_pass_no_longer_counts_once_the_command_was_started_again(bench):
    bench.passes()
    journal = Journal(bench.run)
    journal.before(bench.command, bench.place)  # and then the machine went down
    assert bench.earlier() is None
    assert journal.finished(bench.command, bench.place) is None


def test_a_reused_result_is_not_written_again_and_stays_good(bench):
    bench.passes()
    before = (bench.run / FILE_NAME).read_bytes()
    for _ in range(2):
        journal = Journal(bench.run)
        journal.record(journal.finished(bench.command, bench.place), bench.place)
    assert (bench.run / FILE_NAME).read_bytes() == before
    skipped = Result(command=bench.command, outcome=Outcome.SKIP, reason="not run: a failed")
    assert skipped.reused is False


def test_a_line_cut_short_is_ignored_and_does_not_spoil_the_next(bench):
    bench.passes()
    path = bench.run / FILE_NAME
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    assert [next(iter(json.loads(line))) for line in lines] == ["journal", "started", "ended"]
    for cut in (1, len(lines[2]) // 2, len(lines[2]) - 1):
        path.write_bytes(b"".join(lines[:2]) + lines[2][:cut])
        assert bench.earlier() is None
        bench.passes()
        assert bench.earlier() is not None


@pytest.mark.parametrize(
    "text", [b"", b"[1]\n", b"\xff\xfe\n", b'{"ended": "train", "entry": 1, "result": {}}\n', b"[" * 100_000 + b"\n"]
)
def test_a_broken_journal_costs_repeats_only(bench, text):
    (bench.run / FILE_NAME).write_bytes(text)
    assert bench.earlier() is None
    bench.passes()
    assert bench.earlier() is not None


def test_commands_may_end_at_once(bench):
    journal = Journal(bench.run)
    commands = [bench.command._replace(id=str(number), leaves=()) for number in range(12)]

    def one(command):
        journal.before(command, bench.place)
        journal.record(Result(command=command, outcome=Outcome.PASS, tail=("x" * 5000,)), bench.place)

    threads = [threading.Thread(target=one, args=(command,)) for command in commands]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    again = Journal(bench.run)
    assert all(again.finished(command, bench.place) for command in commands)


def test_the_latest_run_of_the_same_file_mode_and_suite_is_resumed(bench):
    out = bench.root / "out"
    Path("p.txt").write_text("one")

    def attempt(name, **changes):
        folder = out / "runs" / name
        folder.mkdir(parents=True)
        Journal(folder).start(plan(**changes))
        return folder

    assert resumable(out, plan()) is None
    first = attempt("20260101-000000-aa")
    second = attempt("20260102-000000-aa", params="./p.txt")
    attempt("20260103-000000-aa", mode=Mode.WHOLE_INFER)
    attempt("20260104-000000-aa", suite="paddleseg")
    attempt("20260105-000000-aa", params="q.txt")
    (out / "runs/20260106-000000-aa").mkdir()
    (out / "runs/20260107-000000-aa").mkdir()
    (out / "runs/20260107-000000-aa" / FILE_NAME).write_text('{"journal": 99}\n')
    Path("p.txt").write_text("two")
    assert resumable(out, plan()) == second
    assert resumable(out, plan(params=str(bench.root / "p.txt"))) == second
    header = json.loads((first / FILE_NAME).read_text())
    assert header["params"] == "p.txt"
