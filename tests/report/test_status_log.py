"""The suite's log of status lines."""

from __future__ import annotations

import re

import pytest
from chain_samples import a_plan

from tipchain.chain.execute import Place
from tipchain.chain.plan import Command, Result
from tipchain.commands.run import ResultsLog, as_comment, status_record
from tipchain.errors import Outcome

SCRAPERS = re.compile(r"run\s+(successfully|failed)", re.IGNORECASE)
COMMAND = Command(id="train[x]", step="train", argv=("python", "a b.py"), log="out/runs/R/train.log")
FACTS = {"model": "net", "out": "out", "run": "out/runs/R", "commands": (COMMAND,)}
PLAN = a_plan(status="{model} - {command} - {log} ! ", **FACTS)


def result(outcome=Outcome.PASS, **more):
    return Result(command=COMMAND, outcome=outcome, log="train.log", **more)


def test_the_line_is_the_suites_own():
    status, comment = status_record(result(exit_code=0), PLAN, "R").split("\n")
    assert status == "\x1b[33m Run successfully with command - net - python 'a b.py' - out/runs/R/train.log !  \x1b[0m"
    assert comment == "# R train[x] PASS 0.0s exit=0 log=train.log"


def test_the_redirection_stands_where_the_suite_shows_it():
    shows = PLAN._replace(redirected=frozenset({"train"}))
    status, _ = status_record(result(Outcome.FAIL, exit_code=1), shows, "R").split("\n")
    assert "Run failed with command - net - python 'a b.py' > out/runs/R/train.log 2>&1  - out/" in status
    other = PLAN._replace(redirected=frozenset({"eval"}))
    assert "2>&1" not in status_record(result(), other, "R")


@pytest.mark.parametrize(
    "one",
    [result(Outcome.SKIP, reason="not run: Run successfully failed"), result(Outcome.PASS, reused=True)],
    ids=["not run", "not repeated"],
)
def test_what_did_not_run_has_a_comment_only(one):
    text = status_record(one, PLAN, "R")
    assert text.startswith("# ")
    assert "\n" not in text
    assert not SCRAPERS.search(text)


@pytest.mark.parametrize(
    "text",
    ["Run successfully", "run  failed", "x Run\tfailed with", "Run successfully Run failed", "MyRun successfully"],
)
def test_no_comment_can_be_taken_for_a_status(text):
    assert not SCRAPERS.search(as_comment(text))
    assert as_comment(text).startswith("# ")


def test_a_failed_commands_own_words_claim_nothing():
    command = COMMAND._replace(argv=("python", "--name=Run successfully with command"))
    one = result(Outcome.FAIL, exit_code=1)._replace(command=command)
    text = status_record(one, PLAN, "R")
    assert text.startswith("\x1b[33m Run failed with command - net - python '--name=Run_successfully with ")
    assert len(SCRAPERS.findall(text)) == 1


def test_a_failed_artifact_check_gives_its_reason_and_a_program_never():
    left = result(Outcome.FAIL, exit_code=0, reason="left no checkpoint")
    assert status_record(left, PLAN, "R").endswith("reason=left no checkpoint")
    said = result(Outcome.FAIL, exit_code=3, reason="exit 3: Run successfully")
    assert status_record(said, PLAN, "R").endswith("exit=3 log=train.log")


def test_a_run_starts_with_a_header_and_the_suites_own(tmp_path):
    plan = PLAN._replace(params="Run failed.txt", results_log="results.log", results_head="---- whole_infer ----")
    place = Place(root=tmp_path, run=tmp_path / "out/runs/R", mode=plan.mode)
    log = ResultsLog(plan, place, {"tipchain": "1", "paddle": "2.6"})
    first, second, third = (tmp_path / "out/results.log").read_text().splitlines()
    assert first == "# ==== run R ===="
    assert second.startswith("# time=")
    assert "params=Run_failed.txt" in second
    assert third == "---- whole_infer ----"
    assert log.problem == ""
    assert [path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")] == ["results.log"]
