from functools import partial

import numpy as np
import pytest
from live_nets import model, random

EYE = np.eye(8, dtype=np.float32)
"""A constant that a model brings along: nothing asks for its precision."""


def faults(found):
    return [(one.direction, one.port_path) for one in found.verdicts if one.at_fault]


@pytest.mark.parametrize("factor", [1.0, 1.05])
def test_a_gradient_that_is_scaled_between_layers_names_the_code_around_them(live, factor):

    def layers(nn):
        return {"body": nn.Sequential(nn.Linear(6, 8), nn.Tanh()), "head": nn.Linear(8, 4)}

    def scaled(net, x):
        hidden = net.body(x)
        return net.head(hidden.detach() + (hidden - hidden.detach()) * factor)

    reference = model(live.torch, layers, lambda net, x: net.head(net.body(x)))
    found = live.locate(reference, model(live.paddle, layers, scaled), random(5, 6))
    assert faults(found) == ([] if factor == 1 else [("backward", "")])
    said = "times the reference's gradient" if factor else "hands body no gradient, the reference one"
    assert factor == 1 or said in found.first.reason


def test_attention_of_either_framework_is_one_layer(live):
    layer = live.torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    other = live.paddle.nn.TransformerEncoderLayer(32, 4, 64, activation="gelu")
    reference, port = live.equal(
        live.torch.nn.TransformerEncoder(layer, 2), live.paddle.nn.TransformerEncoder(other, 2)
    )
    assert faults(live.locate(reference, port, random(2, 7, 32), equal=False)) == []
    weight = port.layers[1].self_attn.k_proj.weight
    weight.set_value(weight.numpy().T)
    found = live.locate(reference, port, random(2, 7, 32), equal=False)
    assert found.first.port_path == "layers.1.self_attn"


def test_what_does_not_fit_into_memory_is_read_from_a_file(live, nets):
    found = live.locate(nets.torch(2), nets.paddle("", "no shortcut"), random(2, 3, 12, 12), limit=1000)
    assert found.first.port_path == "2"
    assert live.stores[-1].held <= 1000
    assert live.stores[-1].written > 10_000


@pytest.mark.parametrize("single", [("port",), ("reference", "port")])
@pytest.mark.parametrize("epsilon", [1e-5, 1e-3])
def test_models_that_cannot_run_in_float64_are_judged_in_float32(live, epsilon, single, request):
    torch, paddle = live.torch, live.paddle
    # On two threads torch's convolution adds up the gradients of its bias in another order.
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(2)
    eyes = torch.from_numpy(EYE), paddle.to_tensor(EYE)

    def build(side, convolution, norm, eye):
        def forward(net, x):
            y = net.norm(net.conv(x)).mean([2, 3])
            return net.fc(side.matmul(y, eye) if eye is not None else y)

        return model(side, lambda nn: {"conv": convolution(3, 8, 3), "norm": norm, "fc": nn.Linear(8, 4)}, forward)

    reference = build(torch, torch.nn.Conv2d, torch.nn.BatchNorm2d(8), eyes[0] if "reference" in single else None)
    port = build(paddle, paddle.nn.Conv2D, paddle.nn.BatchNorm2D(8, epsilon=epsilon), eyes[1])
    found = live.locate(reference, port, random(2, 3, 12, 12))
    assert not found.exact
    alone = single == ("port",)  # each of its layers runs in float64 by itself
    assert {one.method for one in found.verdicts} == {"float64" if alone else "float32"}
    assert {path for _, path in faults(found)} == ({"norm"} if epsilon == 1e-3 else set())


@pytest.mark.parametrize(("mode", "guilty"), [("no shortcut", "1"), ("no norm", "1")])
def test_what_the_port_leaves_out_is_sought_where_the_reference_has_it(live, mode, guilty):
    """Not in the layer whose result is handed on: that one is right."""

    def layers(nn):
        first = {"norm": nn.LayerNorm(8), "fc1": nn.Linear(8, 8), "act": nn.Tanh()}
        return {**first, "drop": nn.Dropout(0.1), "fc2": nn.Linear(8, 8)}

    def build(side, *modes):
        def block(mode):
            def forward(net, x):
                y = net.act(net.fc1(x if mode == "no norm" else net.norm(x)))
                return net.fc2(net.drop(y if mode == "no shortcut" else y + x)) * 2

            return model(side, layers, forward)

        return side.nn.Sequential(*map(block, modes))

    found = live.locate(build(live.torch, "", "", ""), build(live.paddle, "", mode, ""), random(5, 8))
    assert found.first.port_path == guilty


def test_layers_that_hold_each_others_weights_are_told_by_where_they_run(live):
    torch, paddle = live.torch.nn, live.paddle.nn
    reference = torch.Sequential(*[torch.Linear(6, 6) for _ in range(4)])
    port = paddle.Sequential(paddle.Sequential(*[paddle.Linear(6, 6) for _ in range(4)]))
    live.equal(reference, port)
    states = [{name: value.numpy() for name, value in port[0][n].state_dict().items()} for n in (1, 2)]
    port[0][1].set_state_dict(states[1])
    port[0][2].set_state_dict(states[0])
    found = live.locate(reference, port, random(5, 6), equal=False)
    assert [path for way, path in faults(found) if way == "forward"] == ["0.1", "0.2"]
    assert [(pair.reference.path, pair.port.path) for pair in found.matching.pairs] == [
        (str(n), f"0.{n}") for n in range(4)
    ]
