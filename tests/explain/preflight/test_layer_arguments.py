"""What layers are made with, compared kind by kind."""

import pytest

from tests.explain.preflight.samples import CHANGED, EQUAL
from tipchain.explain.preflight.construction import PairedLayers, check_layers
from tipchain.facts.layers import KINDS, kind_of


def findings(live, reference, port, shapes=None):
    pair = PairedLayers("ours", *live.built(reference, "None")[:1], "theirs", live.built("None", port)[1], shapes)
    return list(check_layers([pair]))


@pytest.mark.parametrize(("reference", "port"), EQUAL)
def test_layers_made_alike_differ_in_nothing(live, reference, port):
    assert findings(live, reference, port) == []


@pytest.mark.parametrize(("reference", "port", "code", "ours", "theirs"), CHANGED)
def test_a_changed_argument_is_the_one_finding(live, reference, port, code, ours, theirs):
    (found,) = findings(live, reference, port)
    assert (found.name, found.code, found.harmless) == (code, "argument", False)
    assert ours in found.reference
    assert theirs in found.port
    assert (found.reference_path, found.port_path) == ("ours", "theirs")
    assert found.reference in found.message
    assert found.port in found.message
    assert "`theirs`" in found.fix


def test_every_property_of_every_kind_is_among_the_samples(live):
    seen = {(kind_of(live.built(sample[0], "None")[0], 0).name, sample[2]) for sample in CHANGED}
    alike = {kind_of(live.built(sample[0], "None")[0], 0).name for sample in EQUAL}
    wanted = {(kind.name, one.code) for kind in KINDS if kind.compared for one in kind.properties} - {
        (name, "time-order") for name in ("LSTM", "GRU", "RNN", "MultiheadAttention")
    }  # tested below: it needs shapes
    wanted -= {("Embedding", "padding-row"), ("BatchNorm", "activation")}  # and these fail nothing
    assert wanted <= seen
    assert {kind.name for kind in KINDS if kind.compared} <= alike


@pytest.mark.parametrize(
    ("reference", "port", "harmless"),
    [
        ("t.ReLU()", "p.GELU()", False),
        ("t.MaxPool2d(2)", "p.AvgPool2D(2)", False),
        ("t.LSTM(3, 4)", "p.GRU(3, 4)", False),
        ("t.Conv1d(4, 4, 3)", "p.Conv2D(4, 4, 3)", True),
        ("t.GroupNorm(1, 4)", "p.LayerNorm(4)", True),
    ],
)
def test_layers_of_different_kinds(live, reference, port, harmless):
    (found,) = findings(live, reference, port)
    assert (found.name, found.harmless) == ("layer-type", harmless)
    assert found.reference in reference.replace("t.", "nn.")
    assert found.port in port.replace("p.", "nn.")
    name = reference.removeprefix("t.").partition("(")[0]
    assert found.fix.lower() == f"make `theirs` a `paddle.nn.{name}`".lower(), "of as many axes"


def test_an_identity_in_place_of_a_dropout(live):
    (found,) = findings(live, "t.Dropout(0.1)", "p.Identity()")
    assert (found.name, found.harmless) == ("missing-dropout", False)
    assert {found.reference, found.port} == {"p=0.1", "nn.Identity"}
    assert "`theirs`" in found.fix


@pytest.mark.parametrize(
    ("reference", "port", "ours", "theirs", "code"),
    [
        # where only the shapes of the inputs tell
        ("t.Softmax(1)", "p.Softmax()", (2, 3), (2, 3), None),
        ("t.Softmax(1)", "p.Softmax()", (2, 3, 4), (2, 3, 4), "softmax-axis"),
        ("t.Softmax(1)", "p.Softmax()", (2, 3, 4, 5), (2, 4, 5, 3), None),
        ("t.Flatten()", "p.Flatten(1, 2)", (2, 3, 4, 5), (2, 3, 4, 5), "stop-axis"),
        ("t.Conv2d(4, 4, 3, 2, 1)", "p.Conv2D(4, 4, 3, 2, 'SAME')", (1, 4, 7, 7), (1, 4, 7, 7), None),
        ("t.Conv2d(4, 4, 3, 2, 1)", "p.Conv2D(4, 4, 3, 2, 'SAME')", (1, 4, 8, 8), (1, 4, 8, 8), "padding"),
        ("t.AdaptiveAvgPool2d(2)", "p.AvgPool2D(4)", (1, 4, 8, 8), (1, 8, 8, 4), "layer-type"),
        ("t.AdaptiveAvgPool2d(2)", "p.AvgPool2D(4, data_format='NHWC')", (1, 4, 8, 8), (1, 8, 8, 4), None),
        ("t.Upsample(scale_factor=2)", "p.Upsample((8, 6))", (1, 2, 4, 3), (1, 2, 4, 3), None),
        ("t.LSTM(3, 4)", "p.LSTM(3, 4)", (5, 2, 3), (2, 5, 3), None),
        ("t.LSTM(3, 4)", "p.LSTM(3, 4)", (5, 2, 3), (5, 2, 3), "time-order"),
        ("t.LSTM(3, 4)", "p.LSTM(3, 4)", (5, 5, 3), (5, 5, 3), None),
        ("t.MultiheadAttention(8, 2)", "p.MultiHeadAttention(8, 2)", (5, 2, 8), (5, 2, 8), "time-order"),
    ],
)
def test_shapes_tell_what_arguments_alone_do_not(live, reference, port, ours, theirs, code):
    found = findings(live, reference, port, (ours, theirs))
    assert [one.name for one in found] == ([] if code is None else [code])


def test_a_momentum_is_given_as_paddle_has_it(live):
    (found,) = findings(live, "t.BatchNorm2d(4, momentum=0.01)", "p.BatchNorm2D(4, momentum=0.01)")
    assert found.message == "theirs has momentum=0.01 (0.99 in torch's terms) where torch's has momentum=0.01"
    assert found.fix == "pass `momentum=0.99` to `theirs`"


def test_a_subclass_with_a_forward_of_its_own_may_do_what_its_arguments_do_not_say(live):
    class SamePadded(live.torch.nn.Conv2d):
        def forward(self, x):
            return super().forward(live.torch.nn.functional.pad(x, (1, 1, 1, 1)))

    class Normed(live.torch.nn.BatchNorm2d):
        def forward(self, x):
            return super().forward(x).relu()

    (found,) = check_layers([PairedLayers("a", SamePadded(4, 4, 3), "b", live.paddle.nn.Conv2D(4, 4, 3, padding=1))])
    assert (found.name, found.harmless) == ("padding", True)
    (found,) = check_layers([PairedLayers("a", Normed(4), "b", live.paddle.nn.BatchNorm2D(4, momentum=0.1))])
    assert (found.name, found.harmless) == ("momentum", False), "no forward shows it"


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ({"drop_prob": 0.1}, {"drop_prob": 0.1}, []),
        ({"p": 3.0}, {"p": 2.0}, [("p", True)]),
        ({"stages": [1, 2]}, {"stages": (1, 3)}, [("stages", True)]),
        ({"momentum": 0.1}, {"momentum": 0.9}, []),
        ({"size": None, "fn": len}, {"size": 4, "fn": 4}, []),
    ],
)
def test_attributes_of_users_own_classes(live, ours, theirs, expected):
    def build(base, attributes):
        made = type("DropPath", (base,), {})()
        for name, value in attributes.items():
            setattr(made, name, value)
        return made

    pair = PairedLayers("a", build(live.torch.nn.Module, ours), "b", build(live.paddle.nn.Layer, theirs))
    assert [(one.name, one.harmless) for one in check_layers([pair])] == expected


def test_a_row_of_padding_that_is_not_zero_is_told(live):
    """https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/nn/Embedding_en.html: its output is all zero."""
    ours, theirs = live.built("t.Embedding(5, 2, padding_idx=1)", "p.Embedding(5, 2, padding_idx=1)")
    assert list(check_layers([PairedLayers("a", ours, "b", theirs)])) == []
    with live.torch.no_grad():
        ours.weight[1] = 1.0
    theirs.weight.set_value(ours.weight.detach().numpy())
    (found,) = check_layers([PairedLayers("a", ours, "b", theirs)])
    assert (found.name, found.harmless) == ("padding-row", True), "only inputs with that index show it"
    assert not theirs(live.paddle.to_tensor([1])).numpy().any()


def test_a_norm_that_activates_by_itself_may_stand_for_two_layers(live):
    (found,) = findings(live, "t.BatchNorm2d(4)", "p.BatchNorm(4, act='relu')")
    assert (found.name, found.port, found.harmless) == ("activation", "act='relu'", True)
