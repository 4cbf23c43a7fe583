"""Two schedules, held against each other step by step."""

from math import cos, pi

import both_frameworks  # noqa: F401
import numpy as np
import pytest

from tipchain.errors import Outcome


def warm(kits, optimizer, steps, start, main):
    rise = kits.our_lr.LambdaLR(optimizer, lambda t: start + (1 - start) * min(t, steps) / steps)
    return kits.our_lr.SequentialLR(optimizer, [rise, main(optimizer)], [steps])


def wave(step):
    return (1 + cos(pi * step / 100)) / 2


OURS = {
    "step": lambda o, k: k.our_lr.StepLR(o, 30),
    "multistep": lambda o, k: k.our_lr.MultiStepLR(o, [30, 60]),
    "cosine": lambda o, k: k.our_lr.CosineAnnealingLR(o, 100),
    "one cycle": lambda o, k: k.our_lr.OneCycleLR(o, 0.1, 100, cycle_momentum=False),
    "warm-up": lambda o, k: warm(k, o, 5, 0.1, lambda one: k.our_lr.CosineAnnealingLR(one, 100)),
    "plateau": lambda o, k: k.our_lr.ReduceLROnPlateau(o, factor=0.5, patience=3),
    "lambda": lambda o, k: k.our_lr.LambdaLR(o, lambda t: max(0.0, 1 - t / 100)),
    "restarts": lambda o, k: k.our_lr.CosineAnnealingWarmRestarts(o, 10, 2),
    "noam": lambda o, k: k.our_lr.LambdaLR(o, lambda t: t and 64**-0.5 * min(t**-0.5, t * 30**-1.5)),
}
THEIRS = {
    "step": lambda k: k.their_lr.StepDecay(0.1, 30),
    "multistep": lambda k: k.their_lr.MultiStepDecay(0.1, [30, 60]),
    "cosine": lambda k: k.their_lr.CosineAnnealingDecay(0.1, 100),
    "one cycle": lambda k: k.their_lr.OneCycleLR(0.1, 100, 25.0, 0.1 / 25 / 1e4, 0.3),
    "warm-up": lambda k: k.their_lr.LinearWarmup(k.their_lr.CosineAnnealingDecay(0.1, 100), 5, 0.01, 0.1),
    "plateau": lambda k: k.their_lr.ReduceOnPlateau(0.1, factor=0.5, patience=3),
    "lambda": lambda k: k.their_lr.PolynomialDecay(0.1, 100, 0.0, 1.0),
    "restarts": lambda k: k.their_lr.CosineAnnealingWarmRestarts(0.1, 10, 2),
    "noam": lambda k: k.their_lr.NoamDecay(64, 30, 0.1),
}


def run(pieces, kits, reference, port, **options):
    theirs = None if port is None else lambda: port(kits)
    return pieces.schedulers(lambda optimizer: reference(optimizer, kits), theirs, **options)


def codes(found):
    return [one.code for one in found.diagnoses]


@pytest.mark.parametrize("name", OURS)
def test_equal_schedules_of_both_frameworks_agree(pieces, kits, name):
    found = run(pieces, kits, OURS[name], THEIRS[name])
    assert found.outcome is Outcome.PASS, (found.reason, found.diagnoses)
    assert len(found.curves["reference_lr"]) == found.numbers["steps"] >= 100
    assert np.ptp(found.curves["port_lr"]) > 0


FAULTS = {
    "learning rate": ("cosine", lambda k: k.their_lr.CosineAnnealingDecay(0.2, 100), "learning_rate"),
    "rise of one cycle": (
        "one cycle",
        lambda k: k.their_lr.OneCycleLR(0.1, 100, 25.0, 0.1 / 25 / 1e4, 0.4),
        "phase_pct",
    ),
    "warm-up's start": (
        "warm-up",
        lambda k: k.their_lr.LinearWarmup(k.their_lr.CosineAnnealingDecay(0.1, 100), 5, 0.0, 0.1),
        "start_lr",
    ),
}
OTHER = {
    "no warm-up": ("multistep warm-up", THEIRS["multistep"], "LinearWarmup(learning_rate=MultiStepDecay("),
    "another schedule": ("cosine", THEIRS["step"], "CosineAnnealingDecay(learning_rate=0.1, T_max=100, eta_min=0.0)"),
    "no schedule": ("cosine", None, "CosineAnnealingDecay(learning_rate=0.1, T_max=100, eta_min=0.0)"),
    "single values": (
        "multistep",
        lambda k: k.their_lr.PiecewiseDecay([30, 60], [0.1, 0.01, 0.005]),
        "MultiStepDecay(learning_rate=0.1, milestones=(30, 60), gamma=0.1)",
    ),
}
OURS["multistep warm-up"] = lambda o, k: warm(k, o, 5, 0.1, lambda one: OURS["multistep"](one, k))
THEIRS["multistep warm-up"] = lambda k: k.their_lr.LinearWarmup(THEIRS["multistep"](k), 5, 0.01, 0.1)


@pytest.mark.parametrize("name", FAULTS)
def test_a_setting_that_differs_is_named_and_was_tried(pieces, kits, name):
    reference, port, argument = FAULTS[name]
    found = run(pieces, kits, OURS[reference], port)
    assert found.outcome is Outcome.FAIL
    (cause,) = found.diagnoses
    assert (cause.code, cause.port_path, cause.explained) == ("setting", "scheduler", 1.0)
    assert cause.message.startswith(f"`{argument}` of the port's schedule is "), cause.message
    assert cause.fix.startswith(f"pass `{argument}=")
    assert "first at step" in found.reason


@pytest.mark.parametrize("name", OTHER)
def test_another_schedule_is_built_as_the_reference_is(pieces, kits, name):
    reference, port, call = OTHER[name]
    (cause,) = run(pieces, kits, OURS[reference], port).diagnoses
    assert (cause.code, cause.explained) == ("setting", 1.0)
    assert cause.fix.startswith(f"use `paddle.optimizer.lr.{call}"), cause.fix


def test_what_no_setting_explains_is_shown(pieces, kits):
    def odd(k):
        return k.their_lr.LambdaDecay(0.1, lambda t: 1 - t / 100 if t < 20 else 0.5)

    (cause,) = run(pieces, kits, OURS["lambda"], odd).diagnoses
    assert (cause.code, cause.explained) == ("parting", None)
    assert cause.message.startswith("at step 20 the learning rate is 0.05, the reference's 0.08: ")
    assert "the port's schedule is LambdaDecay(lr_lambda at test_schedulers.py:" in cause.message
    assert "the reference's LambdaLR(lr_lambdas at test_schedulers.py:" in cause.message
    assert cause.evidence.startswith("from step 19 on the rates of 0.weight are 0.081, 0.05, 0.05 in the port, 0.081, ")


def test_both_values_are_told(pieces, kits):
    found = run(pieces, kits, OURS["step"], lambda k: k.their_lr.StepDecay(0.1, 30, 0.2))
    assert found.reason == ("learning rates differ at 170 of 200 steps; first at step 30: expected 0.01, actual 0.02")
    assert found.diagnoses[0].message == "`gamma` of the port's schedule is 0.2, the reference's 0.1"
    assert "the port's own schedule gives the reference's rates" in found.diagnoses[0].evidence


def test_a_schedule_that_moves_the_momentum(pieces, kits):
    builders = (
        lambda params: kits.ours.SGD(params, lr=0.1, momentum=0.9),
        lambda parameters, learning_rate: kits.theirs.Momentum(learning_rate, 0.9, parameters=parameters),
    )
    found = run(pieces, kits, lambda o, k: k.our_lr.OneCycleLR(o, 0.1, 100), THEIRS["one cycle"], builders=builders)
    assert codes(found) == ["setting"]
    assert "between 0.85 and 0.95" in found.reason


def test_rates_of_groups_are_compared_by_parameter(pieces, kits):
    def reference(p):
        return kits.ours.SGD([{"params": p[:4]}, {"params": p[4:], "lr": 1.0}], lr=0.1)

    def grouped(factor):
        return lambda parameters, learning_rate: kits.theirs.SGD(
            learning_rate, parameters=[{"params": parameters[:4]}, {"params": parameters[4:], "learning_rate": factor}]
        )

    assert run(pieces, kits, OURS["step"], THEIRS["step"], builders=(reference, grouped(10.0))).outcome is Outcome.PASS
    found = run(pieces, kits, OURS["step"], THEIRS["step"], builders=(reference, grouped(1.0)))
    assert found.outcome is Outcome.FAIL
    assert "for 2 of 6 parameters (first 3.weight)" in found.reason
    assert codes(found) == ["parting"]
    assert "the rates of 3.weight are 0.1, 0.1 in the port, 1, 1 in the reference" in found.diagnoses[0].evidence


@pytest.mark.parametrize(
    "port",
    [
        lambda k: lambda: k.their_lr.StepDecay(0.1, 30),
        lambda k: lambda optimizer: k.their_lr.StepDecay(optimizer.get_lr(), 30),
        lambda k: lambda optimizer, lr: k.their_lr.StepDecay(lr, 30),
    ],
    ids=range(3),
)
@pytest.mark.parametrize("asks", [True, False])
def test_builders_of_schedules_are_called_with_what_they_ask_for(pieces, kits, port, asks):
    def with_rate(parameters, learning_rate):
        return kits.theirs.SGD(learning_rate, parameters=parameters)

    def without(parameters):
        return kits.theirs.SGD(0.1, parameters=parameters)

    builders = (lambda params: kits.ours.SGD(params, lr=0.1), with_rate if asks else without)
    found = pieces.schedulers(lambda optimizer: kits.our_lr.StepLR(optimizer, 30), port(kits), builders)
    assert found.outcome is Outcome.PASS, found.reason


def test_a_schedule_inside_the_ports_optimizer_is_found(pieces, kits):
    builders = (
        lambda params: kits.ours.SGD(params, lr=0.1),
        lambda parameters: kits.theirs.SGD(kits.their_lr.StepDecay(0.1, 30), parameters=parameters),
    )
    assert pieces.schedulers(lambda o: kits.our_lr.StepLR(o, 30), None, builders).outcome is Outcome.PASS
    (cause,) = pieces.schedulers(lambda o: kits.our_lr.StepLR(o, 20), None, builders).diagnoses
    assert "`step_size`" in cause.message


def test_schedules_that_cannot_be_compared(pieces, kits):
    def broken(optimizer):
        raise ValueError("no milestones")

    found = pieces.schedulers(broken, lambda: kits.their_lr.StepDecay(0.1, 30))
    assert found.outcome is Outcome.ERROR
    assert "ValueError: no milestones" in found.reason
    found = pieces.schedulers(lambda o: kits.our_lr.StepLR(o, 30), lambda: 0.1)
    assert found.outcome is Outcome.ERROR
    assert "expected an LRScheduler" in found.reason
    zero = (lambda p: kits.ours.SGD(p, lr=0.0), lambda p, learning_rate: kits.theirs.SGD(learning_rate, parameters=p))
    found = pieces.schedulers(lambda o: kits.our_lr.StepLR(o, 30), lambda: kits.their_lr.StepDecay(0.0, 30), zero)
    assert found.outcome is Outcome.ERROR
    assert "proves nothing" in found.reason


def test_a_schedule_of_the_ports_that_ends_before_the_references_is_told_to(pieces, kits):
    rates = [0.1 * 0.99**step for step in range(60)]
    found = run(
        pieces,
        kits,
        lambda o, k: k.our_lr.LambdaLR(o, lambda step: 0.99**step),
        lambda k: k.their_lr.LambdaDecay(0.1, lambda step: rates[step] / 0.1),
    )
    assert found.outcome is Outcome.PASS, found.reason
    assert "60 learning rates" in found.reason
    assert "; then the port's schedule raises, the reference's does not: " in found.reason
    assert "IndexError" in found.reason


def test_what_becomes_of_a_schedule_after_its_end_is_no_difference(pieces, kits):
    """A lambda says nothing about its length; the port's schedule does."""
    found = run(pieces, kits, lambda o, k: k.our_lr.LambdaLR(o, lambda t: wave(min(t, 100))), THEIRS["cosine"])
    assert found.outcome is Outcome.PASS, found.reason
    assert found.numbers["steps"] == 101
    longer = run(
        pieces, kits, lambda o, k: k.our_lr.LambdaLR(o, lambda t: wave(min(t, 100))), THEIRS["cosine"], iterations=150
    )
    assert longer.outcome is Outcome.FAIL


def test_a_setting_that_no_compared_step_shows_fails(pieces, kits):
    found = run(pieces, kits, lambda o, k: k.our_lr.StepLR(o, 30_000), lambda k: k.their_lr.StepDecay(0.1, 40_000))
    assert found.outcome is Outcome.FAIL
    assert found.reason == "`step_size` of the port's schedule is 40000, the reference's 30000"
    assert [one.fix for one in found.diagnoses] == ["pass `step_size=30000` to the scheduler"]
