from types import SimpleNamespace

import both_frameworks  # noqa: F401
import pytest

from tipchain.explain.preflight.optimizers import compare
from tipchain.explain.preflight.schedules import differences, read

W = "[one for one in m.parameters() if one.ndim > 1]"
V = "[one for one in m.parameters() if one.ndim <= 1]"
EQUAL = (
    ("SGD(m.parameters(), lr=0.1)", "SGD(0.1, m.parameters())"),
    ("SGD(m.parameters(), lr=0.1)", "Momentum(0.1, 0.0, m.parameters(), use_nesterov=True)"),
    (
        "SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)",
        "Momentum(0.1, 0.9, m.parameters(), True, 1e-4)",
    ),
    (
        "SGD(m.parameters(), lr=0.1, weight_decay=1e-4)",
        "SGD(0.1, m.parameters(), weight_decay=paddle.regularizer.L2Decay(1e-4))",
    ),
    (
        "SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)",
        "Momentum(0.1, 0.9, [{'params': m.parameters(), 'weight_decay': 1e-4}])",
    ),
    ("Adam(m.parameters(), lr=0.1, weight_decay=0.1)", "Adam(0.1, parameters=m.parameters(), weight_decay=0.1)"),
    ("Adam(m.parameters(), lr=0.1)", "AdamW(0.1, parameters=m.parameters(), weight_decay=0.0)"),
    ("AdamW(m.parameters(), lr=0.1)", "AdamW(0.1, parameters=m.parameters())"),
    (
        "Adam(m.parameters(), lr=0.1, weight_decay=0.1, decoupled_weight_decay=True)",
        "AdamW(0.1, parameters=m.parameters(), weight_decay=0.1)",
    ),
    (
        f"AdamW([{{'params': {W}}}, {{'params': {V}, 'weight_decay': 0.0}}], lr=0.1)",
        f"AdamW(0.1, parameters=m.parameters(), apply_decay_param_fun={{one.name for one in {W}}}.__contains__)",
    ),
    (
        f"AdamW([{{'params': {W}}}, {{'params': {V}, 'lr': 0.01}}], lr=0.1)",
        f"AdamW(0.1, parameters=[{{'params': {W}}}, {{'params': {V}, 'learning_rate': 0.1}}])",
    ),
    ("Adagrad(m.parameters(), lr=0.1)", "Adagrad(0.1, 1e-10, parameters=m.parameters())"),
    ("RAdam(m.parameters(), lr=0.1)", "RAdam(0.1, parameters=m.parameters())"),
    ("SGD(m.parameters(), lr=0.1)", "SGD(paddle.optimizer.lr.StepDecay(0.1, 3), m.parameters())"),
)
SGD, MOMENTUM = "SGD(m.parameters(), lr=0.1, momentum=0.9{})", "Momentum(0.1, 0.9, m.parameters(){})"
ADAM = "Adam(m.parameters(), lr=0.1{})", "Adam(0.1, parameters=m.parameters(){})"
RMS = "RMSprop(m.parameters(), lr=0.1, eps=1e-6, alpha=0.95{})", "RMSProp(0.1, parameters=m.parameters(){})"
CHANGED = (
    (SGD.format(""), "SGD(0.1, m.parameters())", "momentum", "0.9", "0"),
    (SGD.format(", nesterov=True"), MOMENTUM.format(""), "use_nesterov", "True", "False"),
    (SGD.format(", maximize=True"), MOMENTUM.format(""), "maximize", "True", "False"),
    (SGD.format(", weight_decay=1e-4"), MOMENTUM.format(", weight_decay=1e-5"), "weight_decay", "0.0001 (l2)", "1e-05 (l2)"),
    (SGD.format(", weight_decay=1e-4"), MOMENTUM.format(""), "weight_decay", "0.0001", "0"),
    (SGD.format(", weight_decay=1e-4"), MOMENTUM.format(", weight_decay=paddle.regularizer.L1Decay(1e-4)"),
     "weight_decay", "(l2)", "(l1)"),
    ("AdamW(m.parameters(), lr=0.1)", "Adam(0.1, parameters=m.parameters(), weight_decay=0.01)", "weight_decay",
     "0.01 (decoupled)", "0.01 (l2)"),
    (f"AdamW([{{'params': {W}}}, {{'params': {V}, 'weight_decay': 0.0}}], lr=0.1)", "AdamW(0.1, parameters=m.parameters())",
     "weight_decay", "0", "0.01"),
    (f"AdamW([{{'params': {W}}}, {{'params': {V}, 'lr': 0.01}}], lr=0.1)", "AdamW(0.1, parameters=m.parameters())",
     "learning_rate", "0.01", "0.1"),
    (ADAM[0].format(", betas=(0.8, 0.999)"), ADAM[1].format(""), "beta1", "0.8", "0.9"),
    (ADAM[0].format(", amsgrad=True"), ADAM[1].format(""), "amsgrad", "True", "False"),
    (ADAM[0].format(""), "SGD(0.1, m.parameters())", "kind", "Adam", "SGD"),
    (RMS[0].format(""), RMS[1].format(""), "epsilon", "1e-12", "1e-06"),
    ("Adagrad(m.parameters(), lr=0.1, lr_decay=0.1)", "Adagrad(0.1, 1e-10, m.parameters())", "lr_decay", "0.1", "0.0"),
    ("Adagrad(m.parameters(), lr=0.1)", "Adagrad(0.1, 1e-10, m.parameters(), initial_accumulator_value=1.0)",
     "initial_accumulator_value", "0", "1.0"),
    ("Rprop(m.parameters(), lr=0.1)", "Rprop(0.1, parameters=m.parameters(), etas=(0.4, 1.2))", "etas", "(0.5", "(0.4"),
)  # fmt: skip


def built(live, pair, ours, theirs):
    made = []
    for model, package, text in ((pair.reference, "torch.optim", ours), (pair.port, "paddle.optimizer", theirs)):
        made.append(eval(f"{package}.{text}", {"torch": live.torch, "paddle": live.paddle, "m": model}))
    return made


def settings(pair, ours, theirs):
    port = dict(pair.port.named_parameters())
    found = compare(ours, theirs, [(name, one, port[name]) for name, one in pair.reference.named_parameters()])
    return found.found, [found.port_alone, found.reference_alone]


@pytest.mark.parametrize(("ours", "theirs"), EQUAL)
def test_optimizers_made_alike_differ_in_nothing(live, pair, ours, theirs):
    assert settings(pair, *built(live, pair, ours, theirs))[0] == []


@pytest.mark.parametrize(("ours", "theirs", "name", "expected", "actual"), CHANGED)
def test_a_changed_setting_of_an_optimizer_is_the_one_finding(live, pair, ours, theirs, name, expected, actual):
    (found,), _ = settings(pair, *built(live, pair, ours, theirs))
    port_shown, _, shown = found.message.partition(", the reference's ")
    assert found.path[-1] == name
    assert expected in shown
    assert actual in port_shown
    assert found.fix


def test_a_regularizer_of_a_parameter_comes_before_the_optimizers(live, pair):
    ours, theirs = built(live, pair, SGD.format(", weight_decay=1e-4"), MOMENTUM.format(", weight_decay=1e-4"))
    pair.port[0].weight.regularizer = live.paddle.regularizer.L2Decay(0.5)
    (found,), _ = settings(pair, ours, theirs)
    assert "`weight_decay` of the port's optimizer is 0.5 (l2) for 0.weight" in found.message


def test_parameters_that_one_side_alone_updates_are_told(live, pair):
    _, alone = settings(pair, *built(live, pair, ADAM[0].format(""), "Adam(0.1, parameters=m[0].parameters())"))
    assert alone == [[], ["1.weight", "1.bias", "2.weight", "2.bias"]]


def test_of_an_optimizer_that_tells_no_parameters_nothing_is_said(live, pair):
    ours, _ = built(live, pair, ADAM[0].format(""), ADAM[1].format(""))
    own = SimpleNamespace(step=int, clear_grad=int)
    assert settings(pair, ours, own) == ([], [[], []])


# schedules

ALIKE = (
    ("StepLR(o, 3)", "StepDecay(0.1, 3)"),
    ("MultiStepLR(o, [2, 5], 0.2)", "MultiStepDecay(0.1, (2, 5), 0.2)"),
    ("CosineAnnealingLR(o, 9, 1e-3)", "CosineAnnealingDecay(0.1, 9, 1e-3)"),
    ("PolynomialLR(o, 9, 2.0)", "PolynomialDecay(0.1, 9, 0.0, 2.0)"),
    ("LambdaLR(o, lambda step: 1.0)", "LambdaDecay(0.1, lambda step: 1.0)"),
    ("OneCycleLR(o, 0.5, 20)", "OneCycleLR(0.5, 20, 25, 0.5 / 25e4)"),
    ("ReduceLROnPlateau(o)", "ReduceOnPlateau(0.1)"),
    (
        "SequentialLR(o, [S.LinearLR(o, 0.1, 1.0, 4), S.CosineAnnealingLR(o, 9)], [4])",
        "LinearWarmup(L.CosineAnnealingDecay(0.1, 9), 4, 0.01, 0.1)",
    ),
    ("StepLR(o, 3)", "ExponentialDecay(0.2, 0.9)"),  # other types: the rates themselves are compared elsewhere
)
OTHER = (
    ("StepLR(o, 3)", "StepDecay(0.2, 3)", "learning_rate", "0.1", "0.2"),
    ("StepLR(o, 3)", "StepDecay(0.1, 4)", "step_size", "3", "4"),
    ("StepLR(o, 3)", "StepDecay(0.1, 3, last_epoch=1)", "last_epoch", "-1", "1"),
    ("MultiStepLR(o, [2, 5])", "MultiStepDecay(0.1, [2, 6])", "milestones", "(2, 5)", "(2, 6)"),
    ("CosineAnnealingLR(o, 9)", "CosineAnnealingDecay(0.1, 9, 1e-3)", "eta_min", "0.0", "0.001"),
    ("CosineAnnealingWarmRestarts(o, 9)", "CosineAnnealingWarmRestarts(0.1, 9, 2)", "T_mult", "1", "2"),
    ("PolynomialLR(o, 9)", "PolynomialDecay(0.1, 9)", "end_lr", "0.0", "0.0001"),
    ("LinearLR(o, 0.5)", "LinearLR(0.1, 5)", "start_factor", "0.5", "0.333333333"),
    ("OneCycleLR(o, 0.5, 20)", "OneCycleLR(0.4, 20, 25, 0.5 / 25e4)", "max_learning_rate", "0.5", "0.4"),
    ("CyclicLR(o, 0.1, 0.5, 3)", "CyclicLR(0.1, 0.5, 3, 4)", "step_size_down", "3", "4"),
    ("ReduceLROnPlateau(o)", "ReduceOnPlateau(0.1, patience=5)", "patience", "10", "5"),
    ("SequentialLR(o, [S.LinearLR(o, 0.1, 1.0, 4), S.CosineAnnealingLR(o, 9)], [4])",
     "LinearWarmup(L.CosineAnnealingDecay(0.1, 9), 4, 0.02, 0.1)", "start_lr", "0.01", "0.02"),
    ("SequentialLR(o, [S.LinearLR(o, 0.1, 1.0, 4), S.CosineAnnealingLR(o, 9)], [4])",
     "LinearWarmup(L.CosineAnnealingDecay(0.1, 8), 4, 0.01, 0.1)", "T_max", "9", "8"),
)  # fmt: skip


def told(live, ours, theirs):
    parameter = live.torch.nn.Parameter(live.torch.zeros(1))
    names = {
        "o": live.torch.optim.SGD([parameter], lr=0.1, momentum=0.9),
        "S": live.torch.optim.lr_scheduler,
        "L": live.paddle.optimizer.lr,
    }
    return list(differences(read(eval(f"S.{ours}", names), 0), read(eval(f"L.{theirs}", names), 1)))


@pytest.mark.parametrize(("ours", "theirs"), ALIKE)
def test_schedules_made_alike_differ_in_nothing(live, ours, theirs):
    assert told(live, ours, theirs) == []


@pytest.mark.parametrize(("ours", "theirs", "name", "expected", "actual"), OTHER)
def test_a_changed_argument_of_a_schedule_is_the_one_finding(live, ours, theirs, name, expected, actual):
    (found,) = told(live, ours, theirs)
    port_shown, _, shown = found.message.partition(", the reference's ")
    assert found.path[-1] == name
    assert expected in shown
    assert actual in port_shown
