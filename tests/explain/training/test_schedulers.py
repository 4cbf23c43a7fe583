"""Two schedules, held against each other step by step."""

from __future__ import annotations

from math import cos, pi

import numpy as np
import pytest

from tipchain.errors import Outcome


def warm(kits, optimizer, steps, start, main):
    """Return torch's schedule behind a linear warm-up."""
    rise = kits.our_lr.LambdaLR(optimizer, lambda t: start + (1 - start) * min(t, steps) / steps)
    return kits.our_lr.SequentialLR(optimizer, [rise, main(optimizer)], [steps])


def wave(step):
    return (1 + cos(pi * step / 100)) / 2


OURS = {
    "step": lambda o, k: k.our_lr.StepLR(o, 30),
    "multistep": lambda o, k: k.our_lr.MultiStepLR(o, [30, 60]),
    "exponential": lambda o, k: k.our_lr.ExponentialLR(o, 0.95),
    "cosine": lambda o, k: k.our_lr.CosineAnnealingLR(o, 100),
    "cosine to an end": lambda o, k: k.our_lr.CosineAnnealingLR(o, 100, 1e-3),
    "polynomial": lambda o, k: k.our_lr.PolynomialLR(o, 100, 0.9),
    "one cycle": lambda o, k: k.our_lr.OneCycleLR(o, 0.1, 100, cycle_momentum=False),
    "warm-up": lambda o, k: warm(k, o, 5, 0.1, lambda one: k.our_lr.CosineAnnealingLR(one, 100)),
    "plateau": lambda o, k: k.our_lr.ReduceLROnPlateau(o, factor=0.5, patience=3),
    "lambda": lambda o, k: k.our_lr.LambdaLR(o, lambda t: max(0.0, 1 - t / 100)),
    "restarts": lambda o, k: k.our_lr.CosineAnnealingWarmRestarts(o, 10, 2),
    "inverse time": lambda o, k: k.our_lr.LambdaLR(o, lambda t: 1 / (1 + 0.1 * t)),
    "noam": lambda o, k: k.our_lr.LambdaLR(o, lambda t: t and 64**-0.5 * min(t**-0.5, t * 30**-1.5)),
}
THEIRS = {
    "step": lambda k: k.their_lr.StepDecay(0.1, 30),
    "multistep": lambda k: k.their_lr.MultiStepDecay(0.1, [30, 60]),
    "exponential": lambda k: k.their_lr.ExponentialDecay(0.1, 0.95),
    "cosine": lambda k: k.their_lr.CosineAnnealingDecay(0.1, 100),
    "cosine to an end": lambda k: k.their_lr.CosineAnnealingDecay(0.1, 100, 1e-3),
    "polynomial": lambda k: k.their_lr.PolynomialDecay(0.1, 100, 0.0, 0.9),
    "one cycle": lambda k: k.their_lr.OneCycleLR(0.1, 100, 25.0, 0.1 / 25 / 1e4, 0.3),
    "warm-up": lambda k: k.their_lr.LinearWarmup(k.their_lr.CosineAnnealingDecay(0.1, 100), 5, 0.01, 0.1),
    "plateau": lambda k: k.their_lr.ReduceOnPlateau(0.1, factor=0.5, patience=3),
    "lambda": lambda k: k.their_lr.PolynomialDecay(0.1, 100, 0.0, 1.0),
    "restarts": lambda k: k.their_lr.CosineAnnealingWarmRestarts(0.1, 10, 2),
    "inverse time": lambda k: k.their_lr.InverseTimeDecay(0.1, 0.1),
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


@pytest.mark.parametrize("warmup", [{}, {"warmup_steps": 7, "warmup_start": 0.1}])
@pytest.mark.parametrize(
    "settings",
    [
        {"name": "constant"},
        {"name": "step", "step_size": 20},
        {"name": "multistep", "milestones": [9, 50]},
        {"name": "exponential", "gamma": 0.9},
        {"name": "cosine", "total_steps": 60, "end_rate": 1e-3},
        {"name": "polynomial", "total_steps": 60, "power": 2.0, "end_rate": 1e-3},
        {"name": "polynomial", "total_steps": 30, "cycle": True},
        {"name": "onecycle", "total_steps": 80},
    ],
    ids=lambda one: one["name"],
)
def test_the_schedules_of_pairs_agree(pieces, settings, warmup):
    from tipchain.pairs import paddle_schedulers, torch_schedulers

    def reference(optimizer):
        return torch_schedulers.build_scheduler(optimizer, **settings, **warmup)

    def port(optimizer, learning_rate):
        return paddle_schedulers.build_scheduler(optimizer, learning_rate, **settings, **warmup)

    found = pieces.schedulers(reference, port)
    assert found.outcome is Outcome.PASS, (found.reason, found.diagnoses)


FAULTS = {
    "learning rate": ("cosine", lambda k: k.their_lr.CosineAnnealingDecay(0.2, 100), "learning-rate"),
    "factor of no known shape": (
        "lambda",
        lambda k: k.their_lr.LambdaDecay(0.05, lambda t: max(0.0, 1 - t / 100)),
        "learning-rate",
    ),
    "gamma": ("step", lambda k: k.their_lr.StepDecay(0.1, 30, 0.2), "gamma"),
    "gamma of an exponential": ("exponential", lambda k: k.their_lr.ExponentialDecay(0.1, 0.9), "gamma"),
    "step size": ("step", lambda k: k.their_lr.StepDecay(0.1, 20), "step-size"),
    "milestones": ("multistep", lambda k: k.their_lr.MultiStepDecay(0.1, [30, 80]), "milestones"),
    "period": ("cosine", lambda k: k.their_lr.CosineAnnealingDecay(0.1, 90), "period"),
    "end": ("cosine to an end", lambda k: k.their_lr.CosineAnnealingDecay(0.1, 100), "end-rate"),
    "power": ("polynomial", lambda k: k.their_lr.PolynomialDecay(0.1, 100, 0.0, 2.0), "power"),
    "rise of one cycle": (
        "one cycle",
        lambda k: k.their_lr.OneCycleLR(0.1, 100, 25.0, 0.1 / 25 / 1e4, 0.4),
        "pct-start",
    ),
    "one step behind": (
        "cosine",
        lambda k: k.their_lr.LambdaDecay(0.1, lambda t: wave(max(t - 1, 0))),
        "schedule-shift",
    ),
    "started late": ("cosine", lambda k: k.their_lr.LambdaDecay(0.1, lambda t: wave(t + 3)), "schedule-shift"),
    "an exponential ahead": ("exponential", lambda k: k.their_lr.ExponentialDecay(0.095, 0.95), "learning-rate"),
    "per epoch": ("cosine", lambda k: k.their_lr.LambdaDecay(0.1, lambda t: wave(t // 10)), "schedule-per-epoch"),
    "per iteration": ("lambda", lambda k: k.their_lr.LambdaDecay(0.1, lambda t: max(0.0, 1 - t * 10 / 100)), "unknown"),
    "warm-up's length": (
        "warm-up",
        lambda k: k.their_lr.LinearWarmup(k.their_lr.CosineAnnealingDecay(0.1, 100), 10, 0.01, 0.1),
        "warmup-steps",
    ),
    "warm-up's start": (
        "warm-up",
        lambda k: k.their_lr.LinearWarmup(k.their_lr.CosineAnnealingDecay(0.1, 100), 5, 0.0, 0.1),
        "unknown",
    ),
    "no warm-up": ("warm-up", THEIRS["cosine"], "schedule-type"),
    "a warm-up too many": ("cosine", THEIRS["warm-up"], "schedule-type"),
    "another schedule": ("cosine", THEIRS["step"], "schedule-type"),
    "no schedule": ("cosine", None, "missing-schedule"),
    "no step in sight": ("step", lambda k: k.their_lr.StepDecay(0.1, 3000), "step-size"),
    "single values": ("multistep", lambda k: k.their_lr.PiecewiseDecay([30, 60], [0.1, 0.01, 0.005]), "schedule-type"),
    "first period": ("restarts", lambda k: k.their_lr.CosineAnnealingWarmRestarts(0.1, 20, 2), "period"),
    "next periods": ("restarts", lambda k: k.their_lr.CosineAnnealingWarmRestarts(0.1, 10, 1), "period-factor"),
    "no restarts": ("restarts", lambda k: k.their_lr.CosineAnnealingDecay(0.1, 10), "schedule-type"),
    "the warm-up's steps counted": (
        "warm-up",
        lambda k: k.their_lr.LambdaDecay(0.1, lambda t: 0.1 + 0.18 * t if t < 5 else wave(t)),
        "unknown",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_differs_is_named(pieces, kits, name):
    reference, port, code = FAULTS[name]
    found = run(pieces, kits, OURS[reference], port)
    assert found.outcome is Outcome.FAIL
    assert codes(found) == [code], found.diagnoses
    assert found.diagnoses[0].explained in {None, 1.0}
    assert found.diagnoses[0].port_path == "scheduler"
    assert "first at step" in found.reason


def test_both_values_are_told(pieces, kits):
    found = run(pieces, kits, OURS["step"], FAULTS["gamma"][1])
    assert found.reason == ("learning rates differ at 170 of 200 steps; first at step 30: expected 0.01, actual 0.02")
    assert found.diagnoses[0].message == "the port's schedule has gamma=0.2 where torch's has gamma=0.1"
    found = run(pieces, kits, OURS["cosine"], FAULTS["one step behind"][1])
    assert found.diagnoses[0].message == "the port's schedule is 1 step behind the reference's"


def test_a_setting_behind_a_warm_up_is_told(pieces, kits):
    def reference(optimizer, k):
        return warm(k, optimizer, 5, 0.1, lambda one: k.our_lr.CosineAnnealingLR(one, 100, 1e-3))

    (cause,) = run(pieces, kits, reference, THEIRS["warm-up"]).diagnoses
    assert (cause.code, cause.explained) == ("end-rate", 1.0)
    assert cause.fix == "pass `eta_min=0.001` to the scheduler"


def test_several_knobs_are_all_told(pieces, kits):
    found = run(pieces, kits, OURS["cosine"], lambda k: k.their_lr.CosineAnnealingDecay(0.1, 80, 1e-3))
    assert codes(found) == ["period", "end-rate"]


def test_what_nothing_explains_is_shown(pieces, kits):
    def odd(k):
        return k.their_lr.LambdaDecay(0.1, lambda t: wave(t) if t < 20 else 0.5)

    (cause,) = run(pieces, kits, OURS["cosine"], odd).diagnoses
    assert (cause.code, cause.explained) == ("unknown", None)
    assert "the port's schedule is LambdaDecay(lr_lambda at test_schedulers.py:" in cause.message
    assert "the reference's CosineAnnealingLR(T_max=100, eta_min=0.0" in cause.message
    assert cause.evidence.startswith("the rates part at step 20: from step 19 on expected 0.091354")
    assert "they are equal again" not in cause.evidence


def test_a_schedule_that_moves_the_momentum(pieces, kits):
    builders = (
        lambda params: kits.ours.SGD(params, lr=0.1, momentum=0.9),
        lambda parameters, learning_rate: kits.theirs.Momentum(learning_rate, 0.9, parameters=parameters),
    )
    found = run(pieces, kits, lambda o, k: k.our_lr.OneCycleLR(o, 0.1, 100), THEIRS["one cycle"], builders=builders)
    assert codes(found) == ["cycle-momentum"]
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
    assert codes(found) == ["learning-rate"]


@pytest.mark.parametrize(
    "port",
    [
        lambda k: lambda: k.their_lr.StepDecay(0.1, 30),
        lambda k: lambda _: k.their_lr.StepDecay(0.1, 30),
        lambda k: lambda optimizer: k.their_lr.StepDecay(optimizer.get_lr(), 30),
        lambda k: lambda opt=None: k.their_lr.StepDecay(0.1, 30),
        lambda k: lambda learning_rate: k.their_lr.StepDecay(learning_rate, 30),
        lambda k: lambda optimizer, lr: k.their_lr.StepDecay(lr, 30),
    ],
    ids=range(6),
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
    assert codes(pieces.schedulers(lambda o: kits.our_lr.StepLR(o, 20), None, builders)) == ["step-size"]


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
