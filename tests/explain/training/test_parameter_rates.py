"""Factors of the learning rate that parameters have: their own, and AdamW's ``lr_ratio``."""

import pytest

from tipchain.errors import Outcome


def adamw(kits, model, ratio, rate=1e-3):
    """Return AdamW with another rate for the last layer; Paddle's for a CPU takes ``lr_ratio`` only after it is built."""
    heads = {one.name for one in model[3].parameters()}
    made = kits.theirs.AdamW(rate, parameters=model.parameters(), weight_decay=0.01)
    made._lr_ratio = lambda one: ratio if one.name in heads else 1.0
    return made


@pytest.mark.parametrize(("ratio", "outcome"), [(2.0, Outcome.PASS), (3.0, Outcome.FAIL)])
def test_lr_ratio_is_part_of_each_parameters_rate(pieces, kits, ratio, outcome):
    def ours(model):
        rest = [one for name, one in model.named_parameters() if not name.startswith("3.")]
        groups = [{"params": rest}, {"params": list(model[3].parameters()), "lr": 2e-3}]
        return kits.ours.AdamW(groups, lr=1e-3, weight_decay=0.01)

    found = pieces.schedulers(
        lambda optimizer: kits.our_lr.StepLR(optimizer, 2, 0.5),
        lambda learning_rate: kits.their_lr.StepDecay(learning_rate, 2, 0.5),
        (ours, lambda model, learning_rate: adamw(kits, model, ratio, learning_rate)),
    )
    assert found.outcome is outcome, found.reason


def test_of_a_group_whose_factor_is_wrong_the_other_group_is_not_blamed(pieces, kits):
    def ours(parameters):
        return kits.ours.Adam([{"params": parameters[:1]}, {"params": parameters[1:], "lr": 5e-3}], lr=1e-3)

    def theirs(parameters, learning_rate):
        groups = [{"params": parameters[:1]}, {"params": parameters[1:], "learning_rate": 5e-3}]
        return kits.theirs.Adam(learning_rate, parameters=groups)

    schedules = (
        lambda optimizer: kits.our_lr.StepLR(optimizer, 2, 0.5),
        lambda learning_rate: kits.their_lr.StepDecay(learning_rate, 2, 0.5),
    )
    found = pieces.optimizers(ours, theirs, schedulers=schedules)
    assert found.outcome is Outcome.FAIL
    (cause,) = found.diagnoses
    assert "is 5e-06 for 0.bias, 1.weight, 1.bias, 3.weight and 1 more, the reference's 0.005" in cause.message
    assert " be 5: a group's `learning_rate` multiplies" in cause.fix, "not to be given the 0.005 that it was given"
