"""One command from its settling to its result, with stub interpreters that do well, badly, nothing or too much."""

import argparse
import os
import sys
import time
from functools import partial
from math import isnan
from pathlib import Path

import pytest
from chain_samples import ROOT, stub

from tipchain.chain.execute import Place, run_command, search_path
from tipchain.chain.plan import Artifact, Command, Find
from tipchain.chain.process import call
from tipchain.commands.plan import add_chain_arguments, options
from tipchain.errors import Outcome
from tipchain.modes import DataFolders, Mode

CHECKPOINT = Artifact(what="checkpoint", files=("run/out/*.pdparams",))
RESULT = Artifact(what="result line", in_log=True)


@pytest.fixture
def go(tmp_path):
    (tmp_path / "run").mkdir()
    place = Place(root=tmp_path, run=tmp_path / "run", mode=Mode.LITE_TRAIN_LITE_INFER)

    def run(body="true", *, step="train", argv=None, **more):
        """Run a stub interpreter with this body in bash as one command."""
        argv = argv or (str(stub(tmp_path / "python", body)), "train.py")
        more = {"log": "run/train.log", **more}
        result, _ = run_command(Command(id=step, step=step, argv=argv, **more), place, lambda line: None)
        return result

    return run


def ended(result):
    return result.outcome.value, result.reason


@pytest.mark.parametrize("link", ["ln -s ../../old/a.pdparams run/out/", "rmdir run/out; ln -s ../old run/out"])
def test_a_link_to_an_old_artifact_is_not_taken_for_this_commands(go, tmp_path, link):
    (tmp_path / "old").mkdir()
    (tmp_path / "old/a.pdparams").write_text("w")
    time.sleep(0.05)  # the times of files are as fine as the kernel's ticks
    result = go(f"mkdir -p run/out; {link}", leaves=(CHECKPOINT,))
    assert result.outcome is Outcome.FAIL
    assert "no checkpoint: run/out/a.pdparams is older than this command: it is a link to" in result.reason
    assert (
        go(f"rm -r run/out; mkdir -p run/out; {link}; echo w > old/a.pdparams", leaves=(CHECKPOINT,)).outcome
        is Outcome.PASS
    )


@pytest.mark.parametrize(
    ("given", "bad"), [("", False), ("lite", True), ("lite/more", False), ("lite/a.jpg", True), ("lite/all.txt", False)]
)
def test_a_result_is_of_a_file_of_the_data_that_are_given(go, tmp_path, given, bad):
    (tmp_path / "lite/more/deep").mkdir(parents=True)
    for name in ("a.jpg", "all.txt", "more/deep/b.jpg"):
        (tmp_path / "lite" / name).touch()
    result = go(
        "echo more/deep/b.jpg: class 1; echo c.jpg: class 2" if not bad else "echo c.jpg: class 2",
        step="infer",
        leaves=(RESULT._replace(reads=True, given=given),),
    )
    assert (result.outcome is Outcome.FAIL) is bad
    assert ("it tells of c.jpg" in result.reason) is bad


def test_what_a_failed_or_killed_command_did_not_leave_is_not_its_reason(go):
    failed = go("echo boom; exit 3", leaves=(CHECKPOINT, RESULT))
    assert (ended(failed), failed.missing) == (("FAIL", "exit 3: boom"), ())
    assert ended(go("kill -SEGV $$", leaves=(CHECKPOINT,))) == ("ERROR", "killed by SIGSEGV")
    launcher = "exit 245: a process that it started was killed by SIGSEGV"  # sys.exit(-11)
    assert ended(go("exit 245", leaves=(CHECKPOINT,))) == ("ERROR", launcher)
    assert ended(go("exit 255", leaves=(CHECKPOINT,)))[0] == "FAIL"
    hung = go("echo $$ > pid; exec sleep 60", leaves=(CHECKPOINT,), timeout_s=0.3)
    assert ended(hung) == ("ERROR", "timed out after 0.3 s")
    assert hung.missing == ()


def test_what_a_hanging_program_said_before_it_was_ended_is_its_reason(go, monkeypatch):
    monkeypatch.setattr("tipchain.chain.execute.call", partial(call, grace_s=(0.3, 5.0, 5.0)))
    # As Paddle, whose reader died: it hears no interrupt, and answers the termination with a report of it.
    body = """trap '' INT; trap 'for i in {1..60}; do echo noise; done; echo "FatalError: Termination"; exit 1' TERM
    echo 'FileNotFoundError: no 6.npy'; echo waiting; while :; do sleep 0.05; done"""
    hung = go(body, timeout_s=0.5)
    assert ended(hung) == ("ERROR", "timed out after 0.5 s; its log has: FileNotFoundError: no 6.npy")
    assert hung.tail == ("FileNotFoundError: no 6.npy", "waiting")


def test_the_reason_is_the_exception_and_not_its_hint(go):
    lines = "Traceback (most recent call last):\\n  File x\\nRuntimeError: (NotFound) Cannot open file m.json\\n  [Hint: Expected]"
    assert ended(go(f"printf '{lines}\\n\\n'; exit 1"))[1] == "exit 1: RuntimeError: (NotFound) Cannot open file m.json"
    refused = "error: tipchain case train: argument --epochs: expected a number\\n  see tipchain case train --help\\n"
    assert ended(go(f"printf '{refused}'; exit 2"))[1] == "exit 2: " + refused.partition("\\n")[0]
    assert ended(go("printf 'ready\\n  but not quite\\n'; exit 1"))[1].endswith("but not quite")
    converted = "\\33[31m2026-11-23 [ERROR]\\tFailed to convert\\n  [Hint: Expected]\\n.\\33[0m\\n"
    assert ended(go(f"printf '{converted}'; exit 255"))[1].endswith("[ERROR] Failed to convert")


def test_the_error_is_the_reason_and_not_the_last_line(go, tmp_path):
    reader = f"""echo 'Traceback (most recent call last):'; echo '  File "{tmp_path}/tools/reader.py", line 3, in load'
    echo "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff"
    echo 'SystemError: (Fatal) Blocking queue is killed because the data reader raises an exception.'
    echo '  [Hint: Expected killed_ != true]'; exit 1"""
    (tmp_path / "list.csv").write_bytes(b"a,1\n\xff\n")
    place = "(tools/reader.py:3); list.csv is not UTF-8"
    assert ended(go(reader))[1] == f"exit 1: UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff {place}"
    assert ended(go("echo 'sh: bc: command not found'; echo bye; exit 1"))[1] == "exit 1: sh: bc: command not found"
    long = f"FileNotFoundError: no {'folder/' * 40}x.csv"
    assert ended(go(f"echo '{long}'; echo bye; exit 1"))[1] == f"exit 1: {long}"
    missing = ended(go("echo \"ModuleNotFoundError: No module named 'auto_log'\"; exit 1"))[1]
    assert missing.endswith("; --set=--benchmark=False does without it, which no index has")
    (tmp_path / "test_tipc").mkdir()
    (tmp_path / "test_tipc/prepare.sh").touch()
    for line in (long, "error: data/net.pdparams: no such weight file"):
        assert ended(go(f"echo '{line}'; exit 1"))[1] == f"exit 1: {line}; `tipchain prepare` makes the data of a mode"


def test_a_missing_result_names_what_the_program_complained_of(go):
    pattern = Artifact(what="result line", in_log=True, line="^class_id: ")
    noise = "echo 'W1129 00:00:49.5 1 fuse_pass.cc:232] Check of the pass failed!'"
    result = go(f"echo 'Image file failed to read: a.jpg'; {noise}", step="infer", leaves=(pattern,))
    assert result.reason.startswith("exit 0, but its log has: Image file failed to read: a.jpg; no result line in ")


def test_an_inference_that_saves_what_it_found_need_not_print_it(go):
    infer = {"step": "infer", "leaves": (RESULT,)}
    assert go("sleep 0.05; echo x >found.npy; echo ready", **infer).outcome is Outcome.PASS
    save = f"sleep 0.05; {sys.executable} -c 'import numpy; numpy.save(\"found\", numpy.full(3, %s))'"
    assert go(save % "0.5", **infer).outcome is Outcome.PASS
    lost = go(save % "numpy.nan", **infer)
    assert ended(lost) == ("FAIL", "exit 0, but no finite result in found.npy: it holds no finite number")
    assert go("echo ready", **infer).outcome is Outcome.FAIL, "the file is an older one"
    assert go("sleep 0.05; echo x >found.log; echo ready", **infer).outcome is Outcome.FAIL


def test_a_log_that_vanished_is_no_pass(go):
    result = go("rm run/train.log", leaves=(RESULT,))
    assert result.outcome is Outcome.ERROR
    assert "train.log cannot be read: No such file" in result.reason


def test_a_bad_pattern_is_an_error_before_the_start(go, tmp_path):
    result = go("touch ran", leaves=(Artifact(what="x", in_log=True, line="("),))
    assert result.outcome is Outcome.ERROR
    assert not (tmp_path / "ran").exists()


def test_figures_come_from_the_log_also_of_what_failed(go):
    assert go("echo 'loss: 1.5, ips: 4 samples/s'").outcome is Outcome.PASS
    assert isnan(go("echo 'loss: nan, ips: 4 samples/s'").figures["loss"])
    assert go("echo 'loss: 2.5, ips: 4 samples/s'; exit 1").figures == {"loss": 2.5, "ips": 4.0, "avg_ips": 4.0}
    assert go("echo 'inference_time(ms): 12.3'", step="infer").figures == {"inference_ms": 12.3}
    assert go("echo 'loss: 1'", step="export").figures == {}


def test_a_find_without_a_match_does_not_start(go, tmp_path):
    result = go("touch ran", finds=(Find(text="run/best", files=("run/none/*.pdparams",)),))
    assert ended(result) == ("ERROR", "not started: nothing is there for run/best: looked for run/none/*.pdparams")
    assert (result.started, result.log) == ("", "")
    assert not (tmp_path / "ran").exists()


def test_a_log_that_cannot_be_made_is_an_error(go, tmp_path):
    (tmp_path / "file").write_text("")
    result = go(log="file/x.log")
    assert result.outcome is Outcome.ERROR
    assert "cannot write the log" in result.reason


def test_links_are_made_where_their_target_is_and_nothing_is_in_the_way(go, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "mine").write_text("mine")
    links = (("dataset/x", "data"), ("absent", "nowhere"), ("mine", "data"))
    for _ in range(2):
        assert go("test -d dataset/x", links=links).outcome is Outcome.PASS
    assert (tmp_path / "dataset/x").readlink() == Path("../data")
    assert not os.path.lexists(tmp_path / "absent")
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_link_that_cannot_be_made_is_an_error(go, tmp_path):
    (tmp_path / "file").write_text("")
    result = go("touch ran", links=(("file/link", "run"),))
    assert result.outcome is Outcome.ERROR
    assert not (tmp_path / "ran").exists()


LAUNCH = ("-m", "paddle.distributed.launch", "--gpus=0,1")
WORKERS = """
mkdir -p "$PADDLE_LOG_DIR"
echo 'all is well' > "$PADDLE_LOG_DIR/workerlog.0"
: > "$PADDLE_LOG_DIR/workerlog.1"
for n in 2 10; do printf 'Traceback (most recent call last):\\nValueError: rank %s\\n' $n > "$PADDLE_LOG_DIR/workerlog.$n"; done
echo LAUNCH INFO Exit code 1
exit 1"""


def test_workers_log_beside_their_commands_log_and_say_why_it_failed(go, tmp_path):
    program = str(stub(tmp_path / "python", WORKERS))
    for stem in ("train", "train.2"):
        result = go(argv=(program, *LAUNCH, "train.py", "--log_dir=mine"), launched=True)
        assert result.command.env["PADDLE_LOG_DIR"] == f"{tmp_path}/run/{stem}-workers"
        assert result.tail == (
            "LAUNCH INFO Exit code 1",
            f"---- {stem}-workers/workerlog.2 ----",
            "Traceback (most recent call last):",
            "ValueError: rank 2",
        )
        assert ended(result) == ("FAIL", "exit 1: ValueError: rank 2")


@pytest.mark.parametrize("words", [("--log_dir=logs",), ("--log_dir", "logs")])
def test_a_worker_folder_named_by_the_file_is_kept(go, tmp_path, words):
    program = str(stub(tmp_path / "python", 'echo "${PADDLE_LOG_DIR-none}"'))
    argv = (program, *LAUNCH, *words, "train.py")
    assert go(argv=argv, launched=True).tail == ("none",)
    assert go(argv=(program, "train.py")).tail == ("none",)
    own = go(argv=(program, *LAUNCH, "train.py"), launched=True, env={"PADDLE_LOG_DIR": "x"})
    assert own.tail == ("x",)


def test_a_launch_that_exits_with_0_passes_if_no_worker_ended_with_an_exception(go):
    result = go(WORKERS.replace("exit 1", "exit 0"), launched=True)
    told = "exit 0, but no end without an exception in train-workers/workerlog.2: ValueError: rank 2"
    assert (*ended(result), result.tail) == ("FAIL", told, ("LAUNCH INFO Exit code 1",))
    went_on = WORKERS.replace("exit 1", "").replace("rank %s\\n", "rank %s\\nnext batch\\n")
    assert ended(go(went_on, launched=True)) == ("PASS", "")


TRACEBACK = """echo 'result 1'
echo 'Traceback (most recent call last):
  File "a.py", line 1, in <module>
paddle.base.core.EOFException: no more'
"""


def test_an_exception_that_a_program_ends_with_is_no_pass_though_it_exits_with_0(go):
    told = "exit 0, but no end without an exception in train.log: paddle.base.core.EOFException: no more"
    assert ended(go(TRACEBACK)) == ("FAIL", told)
    noise = "echo '  [Hint: x] (at y.cc:1)'; echo; echo 'I1121 12:00:00.000000 1 a.cc:1] freed'"
    assert ended(go(TRACEBACK + noise, step="infer", leaves=(RESULT,)))[0] == "FAIL"
    assert ended(go(TRACEBACK + "echo skipped", step="export")) == ("PASS", "")  # it went on
    again = "echo; echo 'During handling of the above exception, another exception occurred:'; echo\n"
    assert ended(go(TRACEBACK + again + TRACEBACK.partition("\n")[2]))[0] == "FAIL"
    for before in (
        "Exception ignored in: <function Reader.__del__>",
        "Exception in thread Thread-1:",
        "--- Logging error ---",
    ):
        assert ended(go(TRACEBACK.replace("'Trace", f"'{before}\nTrace"))) == ("PASS", "")


@pytest.mark.parametrize("step", ["train", "eval"])
@pytest.mark.parametrize("name", ["loss", "CELoss"])
def test_a_loss_that_is_no_number_at_the_end_is_no_pass(go, step, name):
    lines = f"echo 'epoch: 1, {name}: {{}}, lr: 0.1'; echo 'epoch: 2, {name}: {{}}, lr: 0.1'".format
    assert ended(go(lines("nan", "0.5"), step=step)) == ("PASS", "")
    for last in ("nan", "inf"):
        reason = f"exit 0, but no finite loss or metric in {last}.log: {name.lower()} {last}"
        assert ended(go(lines("0.5", last), step=step, log=f"run/{last}.log")) == ("FAIL", reason)
    assert ended(go(f"echo '{name}: 0.5'; echo 'loss_mask: nan, loss: 0.5'", step=step))[0] == "PASS"  # the sum counts
    assert ended(go("echo 'loss: 0.5, mIoU: nan'", step=step))[1].endswith(": miou nan")


def test_an_interpreter_that_exits_with_127_itself_gets_the_hint(go):
    result = go("echo 'pyenv: python3.7: command not found' >&2; exit 127")
    assert result.outcome is Outcome.ERROR
    assert result.reason == "exit 127: python3.7: command not found (`--python` names another)"
    assert go(argv=("bash", "-c", "exit 127")).reason == "exit 127"


def test_python_is_the_projects_own_or_else_the_users(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin")
    own = str(Path(sys.executable).parent)
    assert search_path(Path(sys.prefix).parent) == f"{own}:/usr/bin"
    assert search_path(tmp_path) == f"/usr/bin:{own}"


def environment_of(step: str, **place) -> dict[str, str]:
    command = Command(id=step, step=step, argv=("true",))
    mode = Mode.LITE_TRAIN_WHOLE_INFER
    return Place(root=Path("/root"), run=Path("/run"), mode=mode, **place).environment(command)


def data_of(step: str, **place) -> str:
    return environment_of(step, **place)["TIPCHAIN_DATA"]


def test_logs_are_english_whoever_reads_them(monkeypatch):
    monkeypatch.setenv("TIPCHAIN_LANG", "zh")
    assert environment_of("align")["TIPCHAIN_LANG"] == "en"


def test_the_folders_that_a_place_is_given_go_before_the_modes_and_the_users_before_all():
    assert (data_of("train"), data_of("eval")) == ("/root/test_tipc/data/lite_data", "/root/test_tipc/data/whole_data")
    folders = DataFolders(train="a", other="b")
    assert [data_of(step, folders=folders) for step in ("train", "eval", "align", "infer")] == [
        "/root/a",
        "/root/b",
        "/root/b",
        "/root/b",
    ]
    assert data_of("train", folders=folders, data=Path("/mine")) == "/mine"


def options_of(*words):
    parser = argparse.ArgumentParser()
    add_chain_arguments(parser)
    return options(parser.parse_args(words))


def test_options_hold_the_folders_of_the_files_case():
    found = options_of(str(ROOT / "test_tipc/configs/mvf/train_infer_python.txt"), "lite_train_whole_infer").data
    assert (found.train, found.other) == ("test_tipc/data/mini_ucf", "test_tipc/data/whole_ucf")


def test_a_file_without_a_case_has_the_modes_folders(tmp_path):
    (tmp_path / "p.txt").write_text("no parameter file")
    assert options_of(str(tmp_path / "p.txt"), "whole_infer").data is None
