"""What may start when."""

from __future__ import annotations

import pytest
from chain_samples import a_plan

from tipchain.chain.gpus import Gpus
from tipchain.chain.plan import Command, Options, Result, default_timeout
from tipchain.chain.run import Policy, Schedule, forecast, unaccounted
from tipchain.errors import Outcome
from tipchain.modes import Mode


def command(name, *needs, leg="", step="train", **more):
    return Command(id=name, step=step, argv=("x",), needs=needs, leg=leg, **more)


def schedule(*commands, gpus=None, **policy):
    return Schedule(commands, gpus or Gpus(), Policy(**policy))


def turn(plan):
    return [one.id for _, one in plan.ready()]


def end(plan, one, outcome=Outcome.PASS, **more):
    plan.settle(Result(command=one, outcome=outcome, **more))


def test_needs_are_waited_for_across_legs():
    norm, pact = command("norm", leg="a"), command("pact", "norm", leg="b")
    plan = schedule(norm, pact)
    plan.running.add(norm.id)
    assert turn(plan) == []
    end(plan, norm, Outcome.FAIL)
    assert turn(plan) == ["pact"]
    assert plan.unstarted(pact).reason == "not run: norm failed"


@pytest.mark.parametrize("needs", [("b",), ("absent",)])
def test_what_waits_for_ever_is_an_error(needs):
    plan = schedule(command("a", *needs, leg="x"), command("b", leg="x"))
    assert turn(plan) == []
    (result,) = plan.stuck()
    assert (result.outcome, result.reason) == (
        Outcome.ERROR,
        f"not run: it needs {needs[0]}, which cannot come before it",
    )


def test_executed_must_equal_planned():
    a, b = command("a"), command("b")
    done = {"a": Result(command=a, outcome=Outcome.PASS)}
    assert unaccounted([a], done) == ()
    assert [(r.command.id, r.outcome) for r in unaccounted([a, b], done)] == [("b", Outcome.ERROR)]
    assert [r.command.id for r in unaccounted([a, a], done)] == ["a"]


def test_a_forecast_names_what_would_not_start_and_all_that_needs_it():
    commands = (
        command("train", on_gpu=True, leg="a"),
        command("infer", "train", leg="a"),
        command("cpu", leg="b"),
        command("amp", skip="AMP on a CPU", leg="c"),
        command("early", "late", leg="d"),
        command("late", leg="d"),
    )
    plan = a_plan(commands=commands)
    found = {one.command.id: one.reason for one in forecast(plan, Gpus(trouble="no GPU"), Policy())}
    assert found == {
        "train": "not run: no GPU",
        "infer": "not run: train was not run",
        "amp": "not run: AMP on a CPU",
        "early": "not run: it needs late, which cannot come before it",
    }


def test_each_mode_has_its_own_limit():
    assert default_timeout(Mode.LITE_TRAIN_LITE_INFER) == 3600
    assert {default_timeout(mode) for mode in Mode if "whole" in mode.value} == {None}
    assert Options().timeout_s is None
