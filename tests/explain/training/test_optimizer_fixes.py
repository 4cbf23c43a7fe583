"""What is printed to be done about an optimizer: never what the port has already."""

from __future__ import annotations

from tipchain.errors import Outcome


def test_a_knob_that_the_port_has_already_is_not_told_to_be_passed(pieces, kits):
    class Forgetful(kits.theirs.Momentum):
        """Says that its momentum is 0.9, and moves as without any."""

        def step(self):
            for one in self._parameter_list:
                if one.grad is not None:
                    one.set_value(one - self.get_lr() * one.grad)

    def ours(parameters):
        return kits.ours.SGD(parameters, lr=0.1, momentum=0.9)

    found = pieces.optimizers(ours, lambda parameters: Forgetful(0.1, 0.9, parameters))
    assert found.outcome is Outcome.FAIL
    assert found.diagnoses[0].code == "parting"
    assert "compare the step() of Forgetful at test_optimizer_fixes.py:" in found.diagnoses[0].fix
    assert "momentum=0.9" in found.diagnoses[0].evidence


def test_a_setting_of_all_parameters_is_told_once_though_only_some_are_decayed(pieces, kits):
    def ours(parameters):
        groups = [{"params": parameters[:4]}, {"params": parameters[4:], "weight_decay": 0.0}]
        return kits.ours.AdamW(groups, lr=0.1, weight_decay=0.1, betas=(0.9, 0.95))

    def theirs(parameters):
        groups = [{"params": parameters[:4]}, {"params": parameters[4:], "weight_decay": 0.0}]
        return kits.theirs.AdamW(0.1, parameters=groups, weight_decay=0.1)

    (told,) = pieces.optimizers(ours, theirs).diagnoses
    assert told.message == "`beta2` of the port's optimizer is 0.999, the reference's 0.95"
    assert told.explained >= 0.99
