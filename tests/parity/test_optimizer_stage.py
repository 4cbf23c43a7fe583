"""The optimizer stage: equal pairs pass with every optimizer, and each wrong rule fails with words about it."""

from dataclasses import replace

import pytest
from updates_bench import align, failed, outcomes, record_side, with_args

from tipchain.errors import InputError, Outcome

pytestmark = pytest.mark.frameworks

RULES = {"no_decay": ["norm", "bias"], "lr_multipliers": {"head.*": 10.0, "bias": 2.0}, "weight_decay": 0.1}
EQUAL = {
    "nesterov": {"name": "momentum", "nesterov": True},
    "adam, amsgrad": {"name": "adam", "amsgrad": True},
    "rmsprop, centered": {"name": "rmsprop", "momentum": 0.9, "centered": True, "rho": 0.9},
    "adagrad": {"name": "adagrad", "initial_accumulator_value": 0.1},
    "adamax": {"name": "adamax"},
    "clipped by norm": {"name": "momentum", "clip_norm": 0.5},
    "rules": {"name": "momentum", "clip_global_norm": 0.5, **RULES},
    "rules of adamw": {"name": "adamw", "clip_global_norm": 0.5, **RULES},
}


@pytest.mark.parametrize("name", EQUAL)
@pytest.mark.parametrize("stage", ["optimizer", "regularization"])
def test_pairs_make_equal_updates(case, name, stage):
    verdicts = align(stage, with_args(case, **EQUAL[name]))
    decays = stage == "optimizer" or "weight_decay" in EQUAL[name]
    assert outcomes(verdicts) == {Outcome.PASS if decays else Outcome.SKIP}
    assert len(verdicts) == (55 if stage == "optimizer" else 12 if decays else 1)
    assert decays or "neither side decays any parameter" in verdicts["decayed"].reason


FAULTS = {
    "nesterov missing": ({"name": "momentum", "nesterov": True}, {"name": "momentum"}, "_0", "the port's is 0.526316 times the reference's"),
    "epsilon": ({"name": "adam"}, {"name": "adam", "epsilon": 1e-7}, "_0", "gradients of size 1e-06"),
    "another optimizer": ({"name": "momentum"}, {"name": "sgd"}, "_1", "update 2 is the first"),
    "clipped by norm instead of the global one": ({"name": "sgd", "clip_global_norm": 5.0}, {"name": "sgd", "clip_norm": 5.0}, "_2", "times the reference's at every element"),
    "multiplier missing": ({"name": "sgd", "lr_multipliers": {"*.weight": 10.0}}, {"name": "sgd"}, "weight_0", "the port's is 0.1 times the reference's"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_rule_fails_from_the_first_update_that_it_touches(case, fault):
    right, wrong, where, words = FAULTS[fault]
    reasons = failed(align("optimizer", with_args(case, **right), with_args(case, **wrong)))
    assert reasons
    explained = {name for name, reason in reasons.items() if "is the first that differs" in reason}
    assert all(name.endswith(where) for name in explained), explained
    assert any(words in reason for reason in reasons.values()), reasons


@pytest.mark.parametrize("stage", ["optimizer", "lr"])
def test_decay_is_no_matter_of_the_other_stages(case, stage):
    port = with_args(case, name="momentum", weight_decay=0.1, decay="l1")
    assert outcomes(align(stage, case, port)) == {Outcome.PASS}


def test_the_rate_that_changes_tells_a_momentum_that_holds_it(case):
    """Paddle's RMSProp keeps lr inside the momentum: equal at a constant rate but for epsilon, and not beyond."""
    sides = dict(case.sides)
    sides["paddle"] = replace(sides["paddle"], optimizer="tests.cases.native_optimizers:build_rmsprop")
    tiny = {"epsilon": 1e-30, "rho": 0.9, "momentum": 0.9}
    port = replace(case, sides=sides, optimizer_args=tiny)
    reasons = failed(align("optimizer", with_args(case, name="rmsprop", **tiny), port))
    assert {name.rpartition("_")[2] for name, one in reasons.items() if "first that differs" in one} == {"1"}


def test_variants_are_checked_each(case):
    updates = replace(case.updates, variants={"clip": {"name": "sgd", "clip_value": 1.0}, "adam": {"name": "adam"}})
    wrong = replace(updates, variants={**updates.variants, "clip": {"name": "sgd", "clip_value": 2.0}})
    verdicts = align("optimizer", replace(case, updates=updates), replace(case, updates=wrong))
    assert len(verdicts) == 3 * 55
    assert {name.partition("/")[0] for name in failed(verdicts)} == {"clip"}


def test_a_frozen_parameter_is_told_from_one_that_moves(case):
    own = replace(case, updates=replace(case.updates, parameters="model"))
    frozen = {
        side: replace(one, model=f"tests.cases.native_optimizers:build_frozen_{side}")
        for side, one in case.sides.items()
    }
    verdicts = align("optimizer", replace(own, sides=frozen))
    assert {n.rpartition("_")[0] for n, one in verdicts.items() if one.outcome is Outcome.SKIP} == {"square.weight"}
    port = replace(own, sides={**case.sides, "paddle": frozen["paddle"]})
    assert {name.rpartition("_")[0] for name in failed(align("optimizer", own, port))} == {"square.weight"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"name": "adm"}, ["optimizer.name", "adm", "did you mean 'adam'"]),
        ({"name": "sgd", "momentum": 0.9}, ["optimizer.momentum", "no argument of sgd"]),
        ({"name": "adam", "decay": "decoupled"}, ["optimizer.decay", "cannot go with adam"]),
        ({"name": "adam", "clip_norm": 0}, ["optimizer.clip_norm", "> 0"]),
        (
            {"name": "adam", "no_decay": ["classifier.*"]},
            ["optimizer.no_decay", "fits no parameter", "classifier.*", "updates: {parameters: model}"],
        ),
    ],
)
@pytest.mark.parametrize("side", ["torch", "paddle"])
def test_arguments_that_cannot_be_are_refused(case, side, args, words):
    with pytest.raises(InputError) as caught:
        record_side(with_args(case, **args), side, "optimizer")
    for word in (str(case.path), *words):
        assert word in str(caught.value)
