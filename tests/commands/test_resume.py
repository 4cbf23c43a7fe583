import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from chain_samples import LEAVES, TEMPLATE, living, stub
from programs import await_, completed

from tipchain.cli import main

MODE = "lite_train_lite_infer"
OUT = Path("test_tipc/output/net") / MODE
BODY = f"""
echo "$1" >> calls
{LEAVES}
[ -e "$1.breaks" ] && exit 3
[ -e "$1.hangs" ] && {{ echo $$ > hanging; sleep 60; }}
exit 0
"""
INFERENCES = ["infer.py"] * 4


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("p.txt").write_text(TEMPLATE)
    Path("a.yaml").write_text("lr: 1")
    stub(Path("py"), BODY)
    return tmp_path


def words(*options, params="p.txt"):
    python = str(Path.cwd() / "py")
    return [sys.executable, "-m", "tipchain", "run", params, MODE, "--python", python, *options]


@pytest.fixture
def go(forked):
    """Return what runs a process of its own, as runs are held until theirs ends, and gives code and calls."""

    def start(*options, **more):
        Path("calls").write_text("")
        done = completed(words(*options, **more))
        print(done.stdout, end="")
        print(done.stderr, end="", file=sys.stderr)
        return done.returncode, Path("calls").read_text().split()

    return start


def runs():
    return sorted(OUT.glob("runs/*"))


def report():
    (run,) = runs()
    return json.loads((run / "report.json").read_text())


def test_a_failed_step_and_what_needs_it_is_all_that_is_repeated(go, capsys):
    Path("export.py.breaks").touch()
    assert go() == (1, ["train.py", "eval.py", "export.py"])
    Path("export.py.breaks").unlink()
    capsys.readouterr()
    assert go("--resume") == (0, ["export.py", *INFERENCES])
    captured = capsys.readouterr()
    assert "resuming test_tipc/output/net/" in captured.err
    assert "in an earlier attempt" in captured.out
    assert "note  2 of 7 commands passed in an earlier attempt" in captured.out
    assert [one["reused"] for one in report()["results"]] == [True, True, *[False] * 5]
    log = (OUT / "results_python.log").read_text()
    assert log.count("Run successfully with command") == 2 + 5
    assert log.count("# ==== run ") == 2


@contextmanager
def killed_in(program, *options):
    """Start a run, yield when ``program`` runs in it, and kill it."""
    Path(f"{program}.hangs").touch()
    with subprocess.Popen(words(*options), stdout=subprocess.PIPE) as process:
        await_(Path("hanging").exists)
        yield
        process.kill()
        process.communicate(timeout=60)
    Path(f"{program}.hangs").unlink()


def test_a_killed_run_goes_on_where_it_stopped(go):
    with killed_in("eval.py"):
        assert go("--resume")[0] == 2, "it still goes on"
    assert go("--resume") == (0, ["eval.py", "export.py", *INFERENCES])
    assert not living(Path("hanging"))
    assert len(runs()) == 1


def test_what_rests_on_a_repeated_step_is_repeated_even_if_a_kill_comes_between(go):
    assert go()[0] == 0
    Path("a.yaml").write_text("lr: 2")
    with killed_in("infer.py", "--resume"):
        pass  # trained and exported anew; the inferences that have passed saw the old model
    assert go("--resume") == (0, INFERENCES)


def test_what_has_passed_is_told_again_and_not_repeated(go, capsys):
    assert go("--resume", "--only", "train") == (0, ["train.py"])
    assert "nothing to resume below test_tipc/output/net/" in capsys.readouterr().err
    assert go("--resume", "--only", "train") == (0, [])
    captured = capsys.readouterr()
    assert "note  1 of 1 commands passed in an earlier attempt" in captured.out
    assert "the chain passed: 1 command\n" in captured.out
    assert go("--resume") == (0, ["eval.py", "export.py", *INFERENCES]), "more was asked for"
    assert go("--resume") == (0, [])
    Path("a.yaml").write_text("lr: 2")
    assert len(go("--resume")[1]) == 7
    assert len(runs()) == 1


def test_an_older_report_is_not_shown_for_what_passed_since(go):
    go()
    Path("a.yaml").write_text("lr: 2")
    (run,) = runs()
    older = (run / "report.json").read_bytes()
    assert go("--resume")[0] == 0
    (run / "report.json").write_bytes(older)  # as if killed just before the report was written
    assert go("--resume") == (0, [])
    assert {Path(one["log"]).suffixes[-2:] == [".2", ".log"] for one in report()["results"]} == {True}


def test_a_journal_that_cannot_be_written_is_an_error(capsys, monkeypatch):
    for name in ("chain.run.FILE_NAME", "commands.run.JOURNAL"):
        monkeypatch.setattr(f"tipchain.{name}", "absent/journal.jsonl")
    assert main(words()[3:]) == 1
    assert "absent/journal.jsonl: cannot be written: No such file" in capsys.readouterr().out
