"""Which commands of a plan are chosen, and what may start when."""

import pytest
from chain_samples import a_plan

from tipchain.chain.gpus import Gpus
from tipchain.chain.plan import Command, Options, Result, default_timeout, matches, select
from tipchain.chain.run import Policy, Schedule, unaccounted
from tipchain.errors import Outcome, UsageError
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


def test_each_mode_has_its_own_limit():
    assert default_timeout(Mode.LITE_TRAIN_LITE_INFER) == 3600
    assert {default_timeout(mode) for mode in Mode if "whole" in mode.value} == {None}
    assert Options().timeout_s is None


def of_step(name, *needs):
    return Command(id=name, step=name.partition("[")[0], argv=("x",), needs=needs)


def plan(*commands):
    return a_plan(
        params="p.txt", mode=Mode.LITE_TRAIN_LITE_INFER, out="o", run="r", commands=commands, notes=("first",)
    )


CHAIN = plan(
    of_step("align[01]"),
    of_step("train[norm_train;gpus=-1]"),
    of_step("eval[norm_train;gpus=-1]", "train[norm_train;gpus=-1]"),
    of_step("export[norm_train;gpus=-1]", "train[norm_train;gpus=-1]"),
    of_step("infer[cpu;bs=1]", "export[norm_train;gpus=-1]"),
    of_step("infer[cpu;bs=16]", "export[norm_train;gpus=-1]"),
)


def steps(found):
    return [one.id.partition("[")[0] for one in found.commands]


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("train", "train[a]", True),
        ("train[a]", "train[a]", True),
        ("train[a]", "traina", False),
        ("*bs=1]", "infer[cpu;bs=11]", False),
        ("*bs=1?]", "infer[cpu;bs=11]", True),
        ("infer[*]", "infer[]", True),
        ("train[a.b]", "train[axb]", False),
        ("tra", "train[a]", False),
        ("TRAIN", "train[a]", False),
    ],
)
def test_only_stars_and_question_marks_are_special(pattern, name, found):
    assert matches(pattern, of_step(name)) is found


def test_both_together():
    assert steps(select(CHAIN, ["infer"], ["train"])) == ["export", "infer", "infer"]
    assert select(CHAIN, ["eval"], ["eval", "train"]).commands == ()


def test_many_ids_are_shortened():
    many = plan(*(of_step(f"infer[{number}]") for number in range(40)))
    with pytest.raises(UsageError) as caught:
        select(many, ["eval"])
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("--only 'eval' names no command of p.txt in mode lite_train_lite_infer")
    assert "    infer[3]" in lines
    assert len(lines) == 15
    assert lines[-1] == "    and 28 more; tipchain plan shows them"
