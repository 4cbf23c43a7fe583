"""Parameters and buffers of matched layers, and the modes and precisions of layers."""

from __future__ import annotations

import numpy as np
import pytest
from live_nets import model

from tipchain.explain.locate.matching import LayerPair, pair_layers
from tipchain.explain.preflight.construction import PairedLayers, check_flags
from tipchain.explain.preflight.parameters import Tensors, check_parameters


def findings(reference, port):
    return check_parameters(Tensors(reference, port, pair_layers(reference, port)))


def put(tensor, values):
    tensor.set_value(np.ascontiguousarray(values, dtype=str(tensor.dtype).rpartition(".")[2]))


def test_what_differs_is_counted_in_a_transposed_weight_too(live):
    reference, port = live.equal(*live.built("t.Sequential(t.Linear(200, 300))", "p.Sequential(p.Linear(200, 300))"))
    values = np.array(port[0].weight.numpy())
    values[[0, 150], [299, 7]] += 0.25
    values[3, 3] += 0.5
    put(port[0].weight, values)
    (found,) = findings(reference, port)
    assert "has 3 wrong of 60000 values: [3, 3] " in found.message


KINDS = (
    ("t.Linear(4, 4)", "p.Linear(4, 4)"),
    ("t.Conv2d(2, 4, 3)", "p.Conv2D(2, 4, 3)"),
    ("t.BatchNorm2d(4)", "p.BatchNorm2D(4)"),
    ("t.LSTM(3, 4, 2, bidirectional=True)", "p.LSTM(3, 4, 2, direction='bidirect')"),
    ("t.GRUCell(3, 4)", "p.GRUCell(3, 4)"),
    ("t.MultiheadAttention(8, 2, kdim=6, vdim=4)", "p.MultiHeadAttention(8, 2, kdim=6, vdim=4)"),
    ("t.TransformerEncoderLayer(8, 2, 16)", "p.TransformerEncoderLayer(8, 2, 16)"),
)


@pytest.mark.parametrize(("reference", "port"), KINDS)
def test_one_wrong_number_is_told(live, reference, port):
    ours, theirs = live.equal(*live.built(f"t.Sequential({reference})", f"p.Sequential({port})"))
    assert findings(ours, theirs) == []
    tensor = theirs.parameters()[0]
    values = tensor.numpy()
    values.reshape(-1)[1] += 0.25
    put(tensor, values)
    (found,) = findings(ours, theirs)
    assert (found.name, found.code, found.harmless) == ("wrong-values", "parameter", False)
    assert "has 1 wrong of " in found.message


def test_norms_are_paired_that_are_left_in_containers_whose_other_layers_belong_together(live):
    reference, port = live.built(
        "t.ModuleDict({'a': t.Sequential(t.LayerNorm(4), t.Linear(4, 4)), 'x': t.LayerNorm(4), 'y': t.LayerNorm(4),"
        " 'b': t.Sequential(t.LayerNorm(4), t.Linear(4, 4))})",
        "p.LayerDict({'last': p.LayerNorm(4), 'p': p.Sequential(('w', p.Linear(4, 4)), ('norm', p.LayerNorm(4))),"
        " 'middle': p.LayerNorm(4), 'q': p.Sequential(('w', p.Linear(4, 4)), ('norm', p.LayerNorm(4)))})",
    )
    for one, other in (("a", "q"), ("b", "p")):
        for name, values in reference[one][1].state_dict().items():
            put(getattr(port[other]["w"], name), values.numpy().T)
    found = {pair.reference: pair.port for pair in pair_layers(reference, port)}
    assert {name: found.get(name) for name in ("a.0", "b.0")} == {"a.0": "q.norm", "b.0": "p.norm"}


def test_rounding_in_the_last_bits_is_no_difference(live):
    ours, theirs = live.equal(*live.built("t.Sequential(t.Linear(64, 64))", "p.Sequential(p.Linear(64, 64))"))
    values = theirs[0].weight.numpy()
    put(theirs[0].weight, np.nextafter(values, np.float32(9)))
    assert findings(ours, theirs) == []


CONVOLUTIONS = ("t.Conv2d(3, 5, 3)", "p.Conv2D(3, 5, 3)")


@pytest.mark.parametrize(
    ("layers", "change", "code", "text"),
    [
        (("t.Linear(4, 4)", "p.Linear(4, 4)"), lambda w: w.T, "transposed-weight", "transposed"),
        (CONVOLUTIONS, lambda w: w.transpose(0, 1, 3, 2), "permuted-weight", "[0, 1, 3, 2]"),
        (CONVOLUTIONS, lambda w: w[:, :, ::-1, ::-1], "permuted-weight", "in another order"),
        (CONVOLUTIONS, lambda w: np.roll(w.reshape(-1), 1).reshape(w.shape), "permuted-weight", "another order"),
        (CONVOLUTIONS, np.zeros_like, "wrong-values", ": [0, 0, 0, 0] 0 for "),
        (CONVOLUTIONS, np.cos, "wrong-values", "has 135 wrong of 135"),
    ],
)
def test_how_a_weight_is_wrong_is_told(live, layers, change, code, text):
    ours, theirs = live.equal(*live.built(*(f"{name[0]}.Sequential({name})" for name in layers)))
    put(theirs[0].weight, change(theirs[0].weight.numpy()))
    (found,) = findings(ours, theirs)
    assert (found.name, found.port_path) == (code, "0")
    assert text in found.message
    assert found.message.startswith("`0`: its `weight` ")


def test_one_projection_that_is_wrong_is_told_by_its_name(live):
    ours, theirs = live.equal(
        *live.built("t.Sequential(t.MultiheadAttention(8, 2))", "p.Sequential(p.MultiHeadAttention(8, 2))")
    )
    put(theirs[0].v_proj.weight, theirs[0].v_proj.weight.numpy().T)
    (found,) = findings(ours, theirs)
    assert found.name == "transposed-weight"
    assert found.message == "`0`: its `v_proj.weight` is transposed"


def test_the_weights_of_another_layer_are_told(live):
    ours, theirs = live.equal(
        *live.built(
            "t.ModuleDict({'a': t.Linear(4, 3), 'b': t.Linear(4, 3)})",
            "p.LayerDict({'a': p.Linear(4, 3), 'b': p.Linear(4, 3)})",
        )
    )
    put(theirs["a"].weight, theirs["b"].weight.numpy())
    (found,) = findings(ours, theirs)
    assert (found.name, found.port_path) == ("weight-of-another-layer", "a")
    assert "the reference's `b.weight`" in found.message


def test_other_running_statistics_are_told(live):
    ours, theirs = live.equal(*live.built("t.Sequential(t.BatchNorm1d(4))", "p.Sequential(p.BatchNorm1D(4))"))
    ours[0].num_batches_tracked += 7
    assert findings(ours, theirs) == [], "Paddle has no such count"
    put(theirs[0]._variance, [1, 2, 3, 4])
    (found,) = findings(ours, theirs)
    assert (found.name, found.harmless) == ("wrong-values", False)


def test_weights_that_were_never_copied_are_one_finding(live):
    ours, theirs = live.built(
        "t.Sequential(*[t.Linear(8, 8) for _ in range(4)])", "p.Sequential(*[p.Linear(8, 8) for _ in range(4)])"
    )
    for layer in theirs:
        put(layer.bias, np.arange(8))
    (found,) = findings(ours, theirs)
    assert (found.name, found.reference_path, found.port_path) == ("weights-not-copied", "", "")
    assert "8 of 8" in found.message
    assert "copy_weights" in found.fix


@pytest.mark.parametrize(
    ("reference", "port", "code"),
    [
        ("t.Linear(3, 4)", "p.Linear(3, 4, bias_attr=False)", "bias"),
        ("t.LSTM(3, 4)", "p.LSTM(3, 4, bias_hh_attr=False)", "bias"),
        ("t.Linear(3, 4)", "p.Linear(3, 5)", "shape"),
    ],
)
def test_a_missing_parameter_or_another_shape_is_told(live, reference, port, code):
    ours, theirs = live.built(f"t.Sequential({reference})", f"p.Sequential({port})")
    found = check_parameters(Tensors(ours, theirs, [LayerPair(reference="0", port="0", evidence="name")]))
    found = [one for one in found if one.name not in ("wrong-values", "weight-of-another-layer")]
    assert {(one.name, one.port_path, one.harmless) for one in found} == {(code, "0", False)}


def test_a_bias_fixed_at_zero_is_as_good_as_none(live):
    ours, theirs = live.built("t.Sequential(t.Linear(3, 4, bias=False))", "p.Sequential(p.Linear(3, 4))")
    put(theirs[0].weight, ours[0].weight.detach().numpy().T)
    pairs = [LayerPair(reference="0", port="0", evidence="name")]
    put(theirs[0].bias, [0, 0, 0, 0])
    assert [one.harmless for one in check_parameters(Tensors(ours, theirs, pairs))] == [False], "it will be trained"
    theirs[0].bias.stop_gradient = True
    assert [one.harmless for one in check_parameters(Tensors(ours, theirs, pairs))] == [True]


def test_what_is_frozen_on_one_side_is_told(live, pair):
    pair.reference[0].weight.requires_grad_(False)
    (found,) = findings(pair.reference, pair.port)
    assert (found.name, found.port_path, found.harmless) == ("trainable", "0", False)
    assert found.fix == "set `stop_gradient = True` of 0.weight"
    pair.port[0].weight.stop_gradient = True
    assert findings(pair.reference, pair.port) == []


def test_layers_in_no_pair_are_told_and_fail_nothing(live):
    ours, theirs = live.built(
        "t.ModuleDict({'qkv': t.Linear(4, 12)})", "p.LayerDict({name: p.Linear(4, 4) for name in 'qkv'})"
    )
    for number, name in enumerate("qkv"):
        for leaf in ("weight", "bias"):
            rows = getattr(ours["qkv"], leaf).detach().numpy()[4 * number : 4 * number + 4]
            put(getattr(theirs[name], leaf), rows.T)
    found = findings(ours, theirs)
    assert [(one.name, one.harmless) for one in found] == [("unmatched-parameters", True)] * 2
    assert [one.message.rpartition(": ")[2] for one in found] == ["qkv", "q, k, v"]


@pytest.mark.parametrize("values", [np.arange(8.0), np.full(8, 0.1)])
def test_parameters_of_other_names_belong_together_where_their_values_are_equal(live, values):
    """Joined layers keep the models' weights from being matched as a whole."""
    torch, paddle, values = live.torch, live.paddle, values.astype(np.float32)
    parameter = paddle.create_parameter([8], "float32")
    reference = model(
        torch,
        lambda nn: {"k": nn.Linear(4, 4), "v": nn.Linear(4, 4), "scale": nn.Parameter(torch.tensor(values))},
        lambda net, x: net.k(x),
    )
    port = model(paddle, lambda nn: {"kv": nn.Linear(4, 8), "gamma": parameter}, lambda net, x: net.kv(x))
    for leaf in ("weight", "bias"):
        put(
            getattr(port.kv, leaf),
            torch.cat([getattr(one, leaf) for one in (reference.k, reference.v)]).detach().numpy().T,
        )
    put(parameter, values)
    assert {one.name for one in findings(reference, port)} == {"unmatched-parameters"}
    put(parameter, values + 1)
    assert "missing-parameter" in {one.name for one in findings(reference, port)}


# flags


def flags(reference, port):
    layers = pair_layers(reference, port)
    made = [
        PairedLayers(one.reference, reference.get_submodule(one.reference), one.port, port[int(one.port)])
        for one in layers
    ]
    return [*check_flags(reference, port, made, Tensors(reference, port, layers))]


def test_a_layer_in_another_mode_than_its_model_is_told(live, pair):
    for layer in (pair.reference, pair.port):
        layer.eval()
    assert flags(pair.reference, pair.port) == []
    pair.port[1].train()
    pair.port[0].train()  # a Linear does the same in both
    (found,) = flags(pair.reference, pair.port)
    assert (found.name, found.port_path, found.harmless) == ("mode", "1", False)
    assert "train mode" in found.message


def test_models_in_different_modes_are_told_once(live, pair):
    pair.reference.eval()
    pair.port.train()
    (found,) = flags(pair.reference, pair.port)
    assert (found.name, found.port_path, found.effect) == ("mode", "", "elsewhere")


@pytest.mark.parametrize(
    ("reference", "port", "told"),
    [
        ("t.Dropout(0.5)", "p.Dropout(0.5)", True),
        ("t.Dropout(0.0)", "p.Dropout(0.0)", False),
        ("t.BatchNorm1d(4)", "p.BatchNorm1D(4, use_global_stats=True)", False),  # frozen in either mode
        ("t.LSTM(3, 4, 2, dropout=0.1)", "p.LSTM(3, 4, 2, dropout=0.1)", True),
    ],
)
def test_modes_count_where_they_change_something(live, pair, reference, port, told):
    ours, theirs = live.built(reference, port)
    ours.eval()
    theirs.train()
    for layer in (pair.reference, pair.port):
        layer.eval()
    tensors = Tensors(pair.reference, pair.port, [])
    found = check_flags(pair.reference, pair.port, [PairedLayers("a", ours, "b", theirs)], tensors)
    assert bool([*found]) == told


def test_other_precisions_are_told(live, pair):
    pair.reference.double()
    (found,) = flags(pair.reference, pair.port)
    assert (found.name, found.port_path, found.reference, found.port) == (
        "dtype",
        "",
        "torch.float64",
        "paddle.float32",
    )
    pair.reference.float()
    pair.port[2].to(dtype="float16")
    found = flags(pair.reference, pair.port)
    assert {(one.name, one.port_path) for one in found} == {("dtype", "2")}


class TestMatricesKeptElsewhere:
    """One model keeps a matrix itself, the other in a Linear."""

    @staticmethod
    def built(live, *, torch_keeps: bool):
        torch, paddle = live.torch, live.paddle
        ours, theirs = (
            {"scale": torch.nn.Parameter(torch.tensor(0.5))},
            {"scale": paddle.create_parameter([1], "float32")},
        )
        if torch_keeps:
            ours["projection"] = torch.nn.Parameter(torch.rand(6, 4))
            theirs["project"] = paddle.nn.Linear(6, 4, bias_attr=False)
        else:
            ours["project"] = torch.nn.Linear(6, 4, bias=False)
            theirs["projection"] = paddle.create_parameter([6, 4], "float32")
        return live.equal(model(torch, lambda _: ours, None), model(paddle, lambda _: theirs, None))

    @pytest.mark.parametrize("torch_keeps", [False, True])
    def test_they_are_one_parameter(self, live, torch_keeps):
        assert findings(*self.built(live, torch_keeps=torch_keeps)) == []

    @pytest.mark.parametrize("torch_keeps", [False, True])
    def test_its_values_are_compared(self, live, torch_keeps):
        ours, theirs = self.built(live, torch_keeps=torch_keeps)
        matrix = theirs.project.weight if torch_keeps else theirs.projection
        values = matrix.numpy()
        values[0, 1] += 0.25
        put(matrix, values)
        (found,) = findings(ours, theirs)
        assert (found.name, found.harmless) == ("wrong-values", False)
        assert "has 1 wrong of 24 values" in found.message

    def test_what_is_not_in_the_other_model_is_still_told(self, live):
        ours, theirs = self.built(live, torch_keeps=False)
        theirs.more = theirs.create_parameter([3])
        assert "missing-parameter" in {one.name for one in findings(ours, theirs)}
