"""Two optimizers, held against each other by their updates of equal gradients."""

import copy
from functools import partial
from types import SimpleNamespace

import both_frameworks  # noqa: F401
import pytest

from tipchain.errors import Outcome

EQUAL = {
    "amsgrad": (
        lambda p, k: k.ours.AdamW(p, lr=1e-3, amsgrad=True),
        lambda p, k: k.theirs.AdamW(1e-3, parameters=p, amsgrad=True),
    ),
    "adadelta": (
        lambda p, k: k.ours.Adadelta(p, lr=1.0, rho=0.95, eps=1e-6),
        lambda p, k: k.theirs.Adadelta(1.0, parameters=p),
    ),
    "nadam": (lambda p, k: k.ours.NAdam(p, lr=2e-3), lambda p, k: k.theirs.NAdam(2e-3, parameters=p)),
    "rprop": (
        lambda p, k: k.ours.Rprop(p, lr=1e-3),
        lambda p, k: k.theirs.Rprop(1e-3, parameters=p, learning_rate_range=(1e-6, 50)),
    ),
    "clip by global norm": (
        lambda p, k: clipped(k, p),
        lambda p, k: k.theirs.SGD(0.1, parameters=p, grad_clip=k.paddle.nn.ClipGradByGlobalNorm(1.0)),
    ),
}


def clipped(kits, parameters):
    made = kits.ours.SGD(parameters, lr=0.1)

    def clip(*_):
        kits.torch.nn.utils.clip_grad_norm_(parameters, 1.0)

    made.register_step_pre_hook(clip)
    return made


def run(pieces, kits, reference, port, **options):
    return pieces.optimizers(
        lambda parameters: reference(parameters, kits), lambda parameters: port(parameters, kits), **options
    )


def codes(found):
    return [one.code for one in found.diagnoses]


@pytest.mark.parametrize("name", EQUAL)
def test_equal_settings_of_both_frameworks_agree(pieces, kits, name):
    found = run(pieces, kits, *EQUAL[name])
    assert found.outcome is Outcome.PASS, (found.reason, found.diagnoses)
    assert found.diagnoses == ()
    assert found.numbers["largest_update_difference"] <= 2e-5
    assert found.numbers["updates"] == 8


SGD = (lambda p, k: k.ours.SGD(p, lr=0.1, momentum=0.9), lambda p, k: k.theirs.Momentum(0.1, 0.9, parameters=p))
ADAM = (lambda p, k: k.ours.Adam(p, lr=1e-3), lambda p, k: k.theirs.Adam(1e-3, parameters=p))
FAULTS = {
    "no momentum": (SGD[0], lambda p, k: k.theirs.SGD(0.1, parameters=p), ["`momentum`"]),
    "dampening": (lambda p, k: k.ours.SGD(p, lr=0.1, momentum=0.9, dampening=0.1), SGD[1], ["`dampening`"]),
    "another algorithm": (
        ADAM[0],
        lambda p, k: k.theirs.SGD(0.1, parameters=p),
        ["the port's optimizer is SGD, the reference's Adam"],
    ),
    "another limit": (
        lambda p, k: clipped(k, p),
        lambda p, k: k.theirs.SGD(0.1, parameters=p, grad_clip=k.paddle.nn.ClipGradByGlobalNorm(5.0)),
        ["the port's gradients are clipped by "],
    ),
    "clip each group by itself": (
        lambda p, k: clipped(k, p),
        lambda p, k: k.theirs.SGD(
            0.1, parameters=[{"params": p[:4]}, {"params": p[4:]}], grad_clip=k.paddle.nn.ClipGradByGlobalNorm(1.0)
        ),
        ["the port's gradients are clipped by "],
    ),
    "two knobs": (ADAM[0], lambda p, k: k.theirs.Adam(2e-3, beta1=0.8, parameters=p), ["`learning_rate`", "`beta1`"]),
    # Nominally equal arguments that mean something else, measured on paddle 3.3.1.
    "RMSProp's momentum": (
        lambda p, k: k.ours.RMSprop(p, lr=1e-3, momentum=0.9),
        lambda p, k: k.theirs.RMSProp(1e-3, rho=0.99, epsilon=1e-8, momentum=0.9, parameters=p),
        ["`epsilon`"],
    ),
    "Adamax's epsilon": (
        lambda p, k: k.ours.Adamax(p, lr=1e-3),
        lambda p, k: k.theirs.Adamax(1e-3, parameters=p),
        ["0.weight parts at update 1"],
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_setting_that_differs_is_named(pieces, kits, name):
    reference, port, expected = FAULTS[name]
    found = run(pieces, kits, reference, port)
    assert found.outcome is Outcome.FAIL
    assert len(found.diagnoses) == len(expected), found.diagnoses
    for cause, words in zip(found.diagnoses, expected, strict=True):
        assert cause.message.startswith(words), cause.message
        assert cause.code == ("parting" if "parts" in words else "setting")
        assert (cause.explained is None) == (name in UNTRIED), cause
        assert (cause.explained or 1.0) >= 0.99
    if name == "Adamax's epsilon":
        assert cause.evidence.endswith("Paddle's Adamax adds epsilon to the norm kept, torch's to the gradient")
    assert {one.port_path for one in found.diagnoses} == {"optimizer"}
    assert "expected a step of size" in found.reason


UNTRIED = ("dampening", "RMSProp's momentum", "Adamax's epsilon")
"""What Paddle has no setting for, and what equal arguments mean otherwise."""


def test_values_stand_in_the_message(pieces, kits):
    found = run(pieces, kits, SGD[0], lambda p, k: k.theirs.Momentum(0.1, 0.8, parameters=p))
    (cause,) = found.diagnoses
    assert cause.message == "`momentum` of the port's optimizer is 0.8, the reference's 0.9"
    assert cause.fix == "pass `momentum=0.9` to the optimizer"
    assert cause.evidence.startswith("with the reference's value 100.00% of the difference is gone; 0.weight parts at ")
    found = run(pieces, kits, *FAULTS["another limit"][:2])
    assert "are clipped by `ClipGradByGlobalNorm(5.0)`, the reference's by `" in found.diagnoses[0].message
    assert found.diagnoses[0].evidence.startswith("with the gradients that the reference's update uses 100.00%")


def test_rmsprops_epsilon_is_told_as_paddle_takes_it(pieces, kits):
    (cause,) = run(
        pieces,
        kits,
        lambda p, k: k.ours.RMSprop(p, lr=1e-3, eps=1e-8),
        lambda p, k: k.theirs.RMSProp(1e-3, rho=0.99, epsilon=1e-8, parameters=p),
    ).diagnoses
    assert cause.fix == (
        "pass `epsilon=1e-16` to the optimizer: torch's 1e-08 stands beside the root, Paddle's below it"
    )
    assert cause.explained >= 0.99


def test_epsilons_of_rmsprop_that_correspond_are_equal(pieces, kits):
    def ours(p, k):
        return k.ours.RMSprop(p, lr=1e-3, eps=1e-8, alpha=0.95, centered=True)

    def theirs(p, k):
        return k.theirs.RMSProp(1e-3, rho=0.95, epsilon=1e-16, centered=True, parameters=p)

    found = run(pieces, kits, ours, theirs)
    assert found.outcome is Outcome.PASS, found.diagnoses
    assert "epsilon is left out: 1e-08 beside torch's root is 1e-16 below Paddle's" in found.reason


def test_a_learning_rate_of_one_group_names_it(pieces, kits):
    found = run(
        pieces,
        kits,
        lambda p, k: k.ours.SGD([{"params": p[:4]}, {"params": p[4:], "lr": 1.0}], lr=0.1),
        lambda p, k: k.theirs.SGD(0.1, parameters=p),
    )
    (cause,) = found.diagnoses
    assert cause.message == "`learning_rate` of the port's optimizer is 0.1 for 3.weight, 3.bias, the reference's 1.0"
    assert cause.fix == (
        "let the factor for 3.weight, 3.bias be 10: a group's `learning_rate` multiplies the optimizer's 0.1"
    )
    assert found.diagnoses[0].explained >= 0.99


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


def own_optimizer(kits, rule):
    """Return a builder of a Paddle optimizer that is written by hand and says nothing about itself."""

    class Own(kits.theirs.Optimizer):
        def __init__(self, parameters, rate):
            super().__init__(rate, parameters)
            self.states = {}

        @kits.paddle.no_grad()
        def step(self):
            for one in (one for one in self._parameter_list if one.grad is not None):
                state = self.states.setdefault(one.name, {"t": 0, "m": 0.0 * one, "v": 0.0 * one})
                state["t"] += 1
                one.set_value(one - rule(one, one.grad, state, self.get_lr()))

    return Own


def test_an_optimizer_written_by_hand_is_shown_where_it_parts(pieces, kits):
    own = own_optimizer(kits, lambda p, g, state, rate: -rate * g)
    found = run(pieces, kits, lambda p, k: k.ours.SGD(p, lr=0.1), lambda p, _: own(p, 0.1))
    (cause,) = found.diagnoses
    assert cause.code == "parting"
    assert " parts at update 1: of the gradient [" in cause.message
    assert cause.message.endswith("the port's is -1 times the reference's everywhere")
    assert "the reference's is SGD(decay=0, " in cause.evidence
    assert "compare the step() of Own at test_updates_alike.py:" in cause.fix


def test_gradients_that_are_never_cleared(pieces, kits):
    class Kept(kits.theirs.SGD):
        def clear_grad(self, set_to_zero=True):
            pass

    found = run(pieces, kits, lambda p, k: k.ours.SGD(p, lr=0.1), lambda p, _: Kept(0.1, parameters=p))
    assert codes(found) == ["parting"]
    assert " parts at update 2: " in found.diagnoses[0].message
    assert "with the gradients that the reference's update uses 100.00%" in found.diagnoses[0].evidence


def test_a_parameter_that_the_port_leaves_out(pieces, kits):
    found = run(pieces, kits, SGD[0], lambda p, k: k.theirs.Momentum(0.1, 0.9, parameters=p[:-1]))
    assert codes(found) == ["setting"]
    assert found.diagnoses[0].message == "the reference alone updates 3.bias, the port does not"
    frozen = copy.deepcopy(pieces.port)
    frozen[3].weight.stop_gradient = True
    (cause,) = run(pieces, kits, *SGD, models=(pieces.reference, frozen)).diagnoses
    assert "3.weight" in cause.message


def test_parameters_that_cannot_be_matched_are_listed(pieces, kits):
    nn = kits.paddle.nn
    port = nn.Sequential(nn.Conv2D(3, 8, 3), nn.BatchNorm2D(8), nn.Flatten(), nn.Linear(8, 6))
    found = run(pieces, kits, *SGD, models=(pieces.reference, port))
    assert found.outcome is Outcome.PASS
    assert found.left_out == ("3.weight", "3.bias")
    assert "2 parameters could not be matched" in found.reason
    other = nn.Sequential(nn.Conv2D(5, 9, 3))
    assert run(pieces, kits, *SGD, models=(pieces.reference, other)).outcome is Outcome.ERROR


def test_nothing_that_moves_proves_nothing(pieces, kits):
    found = run(pieces, kits, lambda p, k: k.ours.SGD(p, lr=0.0), lambda p, k: k.theirs.SGD(0.0, parameters=p))
    assert found.outcome is Outcome.ERROR
    assert "proves nothing" in found.reason


BUILDERS = {
    "by name": ("params: SGD(params, 0.05)", "parameters: SGD(parameters, 0.05)"),
    "the model, without a telling name": ("m: SGD(m.parameters(), 0.05)", "m: SGD(m.parameters(), 0.05)"),
    "the model": ("model: SGD(model.parameters(), 0.05)", "parameters, model: SGD(model.parameters(), 0.05)"),
    "a rate in the port": ("params: SGD(params, 0.05)", "parameters, learning_rate: SGD(parameters, learning_rate)"),
    "a rate with a default": ("params, lr=0.05: SGD(params, lr)", "p, learning_rate=0.05: SGD(p, learning_rate)"),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_builders_are_called_with_what_they_ask_for(pieces, kits, name):
    ours, theirs = (f"lambda {text}" for text in BUILDERS[name])
    found = pieces.optimizers(
        eval(ours, {"SGD": kits.ours.SGD}), eval(theirs, {"SGD": lambda p, rate: kits.theirs.SGD(rate, parameters=p)})
    )
    assert found.outcome is Outcome.PASS, found.reason


def test_classes_and_partials_are_builders(pieces, kits):
    assert pieces.optimizers(kits.ours.SGD, kits.theirs.SGD).outcome is Outcome.PASS
    found = pieces.optimizers(partial(kits.ours.SGD, lr=0.3), partial(kits.theirs.SGD, learning_rate=0.3))
    assert found.outcome is Outcome.PASS


def test_builders_that_cannot_be_used_say_why(pieces, kits):
    found = run(pieces, kits, SGD[0], lambda _, k: k.theirs.SGD(0.1, parameters=pieces.port.parameters()))
    assert found.outcome is Outcome.ERROR
    assert "holds none of the parameters" in found.reason
    found = run(pieces, kits, SGD[0], lambda *_: SimpleNamespace(clear_grad=int))
    assert "the port's builder returned a SimpleNamespace, which has no `step`" in found.reason
    found = pieces.optimizers(lambda a, b: None, lambda parameters: None)
    assert found.outcome is Outcome.ERROR
    assert "asks for a, b" in found.reason

    def broken(parameters):
        raise RuntimeError("no such optimizer")

    found = pieces.optimizers(broken, broken)
    assert found.outcome is Outcome.ERROR
    assert "RuntimeError: no such optimizer" in found.reason


def test_schedules_are_left_to_their_own_check(pieces, kits):
    schedulers = (
        lambda optimizer: kits.our_lr.StepLR(optimizer, 3),
        lambda: kits.their_lr.LinearWarmup(kits.their_lr.StepDecay(0.7, 2), 5, 0.0, 0.7),
    )
    found = pieces.optimizers(
        lambda params: kits.ours.SGD(params, lr=0.1),
        lambda parameters, learning_rate: kits.theirs.SGD(learning_rate, parameters=parameters),
        schedulers=schedulers,
    )
    assert found.outcome is Outcome.PASS
    assert "the schedules are compared by themselves" in found.reason


def test_a_setting_that_no_compared_update_shows_fails(pieces, kits):
    found = pieces.optimizers(
        lambda p: kits.ours.Adam(p, lr=1e-3, eps=1e-30), lambda p: kits.theirs.Adam(1e-3, parameters=p, epsilon=1e-28)
    )
    assert found.outcome is Outcome.FAIL
    assert found.reason == "`epsilon` of the port's optimizer is 1e-28, the reference's 1e-30"
