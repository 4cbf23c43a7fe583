"""Where a fault is said to stand, and why: code around layers, layers that are left out, losses of one's own code."""

from types import SimpleNamespace

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import model

import tipchain

TF, PF = torch.nn.functional, paddle.nn.functional
IMAGES = np.random.default_rng(0).standard_normal((2, 4, 6, 6)).astype(np.float32)
ROWS = np.random.default_rng(1).standard_normal((3, 5, 8)).astype(np.float32)


def align(ours, theirs, inputs, **options):
    torch.manual_seed(0)
    tipchain.copy_weights(ours, theirs)
    ours.eval(), theirs.eval()
    given = inputs if isinstance(inputs, dict) else {"args": inputs}
    return tipchain.align(ours, theirs, given, **options)


def told(ours, theirs, inputs, **options):
    """Return the place, the code and the message of what is said first; nothing else is found to be at fault."""
    report = align(ours, theirs, inputs, **options)
    assert not report.passed
    first, cause = report.first_divergence, report.diagnoses[0]
    return SimpleNamespace(
        place=None if first is None else first.port_path,
        path=cause.port_path,
        code=cause.code,
        message=cause.message,
        causes=report.diagnoses,
    )


def padded(side):
    if side is torch:
        return model(
            torch,
            lambda nn: {"pad": nn.ReflectionPad2d(1), "conv": nn.Conv2d(4, 4, 3)},
            lambda self, x: self.conv(self.pad(x)),
        )
    return model(
        paddle,
        lambda nn: {"conv": nn.Conv2D(4, 4, 3)},
        lambda self, x: self.conv(PF.pad(x, [1, 1, 1, 1], mode="reflect")),
    )


def test_code_in_front_of_a_container_is_not_the_containers():
    ours = model(
        torch,
        lambda _: {"first": padded(torch), "second": padded(torch)},
        lambda self, x: self.second(self.first(x) * 3 + x),
    )
    theirs = model(
        paddle,
        lambda _: {"first": padded(paddle), "second": padded(paddle)},
        lambda self, x: self.second(self.first(x) * 2 + x),
    )
    found = told(ours, theirs, IMAGES)
    assert (found.place, found.path) == ("", "")
    assert "multiplies by 2" in found.message
    assert "it multiplies by 2 at test_where_and_why.py:62; with 3" in found.message
    assert len(found.causes) == 1  # what comes after it only inherits


def merging(side, conv):
    def forward(self, given):
        return self.conv(given[0] + 2 * given[1] - given[2])

    return model(side, lambda _: {"conv": conv(4, 4, 1)}, forward)


@pytest.mark.parametrize("nested", [False, True])
def test_a_container_that_is_given_another_tensor_in_a_list_is_right(nested):
    def build(side, conv, wrong):
        def forward(self, x):
            a, b = self.a(x), self.b(x)
            return self.join([a, a if wrong else b, x])

        layers = {"a": conv(4, 4, 1), "b": conv(4, 4, 1), "join": merging(side, conv)}
        made = model(side, lambda _: layers, forward)
        if not nested:
            return made
        return model(side, lambda _: {"neck": made, "out": conv(4, 2, 1)}, lambda self, x: self.out(self.neck(x)))

    found = told(build(torch, torch.nn.Conv2d, False), build(paddle, paddle.nn.Conv2D, True), IMAGES)
    assert found.place == ("neck" if nested else "")


class Attention(paddle.nn.Layer):
    """Attention with one matrix for queries, keys and values, as torch's layer has it."""

    def __init__(self, size, heads, scaled):
        super().__init__()
        self.qkv = paddle.nn.Linear(size, 3 * size)
        self.out = paddle.nn.Linear(size, size)
        self.heads, self.scale = heads, (size // heads) ** -0.5 if scaled else 1.0

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape([b, n, 3, self.heads, c // self.heads]).transpose([2, 0, 3, 1, 4])
        weights = PF.softmax(paddle.matmul(q, k, transpose_y=True) * self.scale, axis=-1)
        return self.out(paddle.matmul(weights, v).transpose([0, 2, 1, 3]).reshape([b, n, c]))


def attending(scaled):
    def forward(self, x):
        y = self.norm(x)
        return self.head(x + self.attn(y, y, y, need_weights=False)[0])

    ours = model(
        torch,
        lambda nn: {
            "norm": nn.LayerNorm(8),
            "attn": nn.MultiheadAttention(8, 2, batch_first=True),
            "head": nn.Linear(8, 3),
        },
        forward,
    )
    theirs = model(
        paddle,
        lambda nn: {"norm": nn.LayerNorm(8), "attn": Attention(8, 2, scaled), "head": nn.Linear(8, 3)},
        lambda self, x: self.head(x + self.attn(self.norm(x))),
    )
    torch.manual_seed(0)
    with torch.no_grad():
        ours.attn.in_proj_bias.normal_(), ours.attn.out_proj.bias.normal_()
    tipchain.copy_weights(ours, theirs)
    ours.eval(), theirs.eval()
    return ours, theirs


def test_a_layer_and_a_container_that_holds_its_numbers_are_compared():
    report = tipchain.align(*attending(scaled=True), {"args": ROWS})
    assert report.passed
    assert "attn" in {one.port_path for one in report.layers}
    report = tipchain.align(*attending(scaled=False), {"args": ROWS})
    assert report.first_divergence.port_path == "attn"
    assert (report.diagnoses[0].code, report.diagnoses[0].port_path) == ("parting", "attn")
    assert {one.port_path for one in report.layers if one.at_fault} == {"attn"}


def test_a_parameter_of_zeros_that_nothing_uses_is_no_gradient_that_was_cut():
    def build(side, forward):
        zeros = (
            torch.nn.Parameter(torch.zeros(3))
            if side is torch
            else paddle.create_parameter([3], "float32", is_bias=True)
        )
        made = {"a": side.nn.Linear(8, 3), "bias": zeros}
        return model(side, lambda _: made, forward)

    found = told(build(torch, lambda self, x: self.a(x) + self.bias), build(paddle, lambda self, x: self.a(x)), ROWS)
    assert found.code == "parting"
    assert "self.a(x) + self.bias" in found.causes[0].reference_place.code
    assert "gives its parameter bias another gradient, or none" in found.causes[0].evidence


def test_code_that_comes_to_the_same_is_not_told():
    def ours(self, x):
        scores = self.a(x)
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        return self.b(weights / weights.sum(-1, keepdim=True) + scores.mean(-1, keepdim=True))

    def theirs(self, x):
        scores = self.a(x)
        weights = paddle.exp(scores - scores.max())
        return self.b(weights / weights.sum(-1, keepdim=True) + scores.sum(-1, keepdim=True))

    def make(nn):
        return {"a": nn.Linear(8, 8), "b": nn.Linear(8, 8)}

    found = told(model(torch, make, ours), model(paddle, make, theirs), ROWS)
    assert "max" not in found.message
    assert "sum" in found.message


def activated(side, first, second):
    functions = side.nn.functional

    def forward(self, x):
        x = getattr(functions, first)(self.a(x))
        return self.c(getattr(functions, second)(self.b(x)))

    return model(side, lambda nn: {name: nn.Linear(8, 8) for name in ("a", "b", "c")}, forward)


def faults(report):
    return [one.port_path for one in report.layers if one.at_fault and one.direction == "forward"]


def test_two_faults_of_the_code_between_layers_are_both_named():
    report = align(activated(torch, "relu", "sigmoid"), activated(paddle, "gelu", "tanh"), ROWS)
    assert [(one.code, one.name) for one in report.diagnoses] == [("function", "relu"), ("function", "sigmoid")]
    assert faults(report) == [""], "no layer is accused"


def unrolled(self, x):
    x = TF.leaky_relu(self.a(x), 0.2)
    x = TF.leaky_relu(self.b(x), 0.2)
    return self.c(x)


def in_a_loop(self, x):
    for layer in (self.a, self.b):
        x = PF.leaky_relu(layer(x), 0.1)
    return self.c(x)


def test_a_line_that_runs_several_times_is_one_cause():
    reference, port = (
        model(side, lambda nn: {name: nn.Linear(8, 8) for name in ("a", "b", "c")}, forward)
        for side, forward in ((torch, unrolled), (paddle, in_a_loop))
    )
    report = align(reference, port, ROWS)
    assert [(one.code, one.explained) for one in report.diagnoses] == [("argument", 1.0)]
    message = report.diagnoses[0].message
    assert "is 0.1; with 0.2 it makes what the reference makes" in message
    assert message.endswith(", in 2 calls")


def summed(self, x):
    total = 0
    for layer in (self.a, self.b, self.a):
        x = layer(x)
        total = total + x.sin()
    return self.c(total)


def overwriting():
    def summed(self, x):
        total = 0
        for layer in (self.a, self.b, self.a):
            x = layer(x)
            total = x.sin()
        return self.c(total)

    return summed


def with_places(self, x):
    return self.c(self.b(self.a(x)) + (torch if isinstance(x, torch.Tensor) else paddle).arange(8).to(x.dtype))


def with_places_from_one(self, x):
    return self.c(self.b(self.a(x)) + paddle.arange(1, 9).to(x.dtype))


@pytest.mark.parametrize(
    ("ours", "theirs", "words", "fix"),
    [
        (summed, overwriting(), "the reference's `add", "`total = total + x.sin()`"),
        (with_places, with_places_from_one, "is 9; with 0, 8 it makes", "pass `start=0`, `end=8` to `arange` at"),
    ],
)
def test_the_fix_quotes_the_line_that_differs(ours, theirs, words, fix):
    """A line that reads alike on both sides is no fix, and `arange(8)` ends at 8."""

    def make(nn):
        return {name: nn.Linear(8, 8) for name in "abc"}

    report = align(model(torch, make, ours), model(paddle, make, theirs), ROWS)
    assert words in report.diagnoses[0].message
    assert fix in report.diagnoses[0].fix


def branched(side, scale, turn):
    class Block(torch.nn.Module if side is torch else paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.norm, self.linear = side.nn.LayerNorm(8), side.nn.Linear(8, 8)

        def forward(self, x):
            return x + scale * self.linear(self.norm(x))

    return model(
        side,
        lambda nn: {"blocks": nn.Sequential(Block(), Block()), "head": nn.Linear(8, 8)},
        lambda self, x: self.head(getattr(side.nn.functional, turn)(self.blocks(x))),
    )


def test_code_behind_the_first_fault_is_judged_by_what_it_makes_of_the_references_tensors():
    report = align(branched(torch, 2.0, "relu"), branched(paddle, 0.5, "gelu"), ROWS)
    assert faults(report) == ["blocks.0", ""], "of blocks of one class the first"
    first, second = report.diagnoses
    assert (first.port_path, "multiplies by 0.5" in first.message) == ("blocks.0", True)
    assert (second.port_path, "relu" in second.message) == ("", True)
    alone = align(branched(torch, 2.0, "relu"), branched(paddle, 0.5, "relu"), ROWS)
    assert faults(alone) == ["blocks.0"], "the code behind it is right"


def test_code_behind_a_wrong_layer_is_judged():
    for second, found in (("sigmoid", ["a"]), ("tanh", ["a", ""])):
        port = activated(paddle, "relu", second)
        port.a.register_forward_post_hook(lambda layer, given, made: 2 * made)
        assert faults(align(activated(torch, "relu", "sigmoid"), port, ROWS)) == found


def test_a_layer_that_is_called_for_another_of_equal_weights_is_told_in_all_turns():
    """Two norms are equal before training: values agree, and the gradients go to the wrong one."""

    def turned(second):
        def forward(self, x):
            for _ in range(3):
                x = x + self.a(self.first(x))
                x = x + self.b(getattr(self, second)(x))
            return x

        return forward

    def layers(nn):
        return {"a": nn.Linear(8, 8), "b": nn.Linear(8, 8), "first": nn.LayerNorm(8), "second": nn.LayerNorm(8)}

    report = align(model(torch, layers, turned("second")), model(paddle, layers, turned("first")), ROWS)
    cause = report.diagnoses[0]
    assert (cause.code, cause.explained) == ("operand", pytest.approx(1)), str(report)
    assert "the reference `second`" in cause.message
    assert "in 3 calls" in cause.message


def test_layers_that_part_at_one_statement_have_one_cause():
    """Their values differ, what is to be done does not."""

    class Gate(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((8,), 0.5))

        def forward(self, x):
            return torch.relu(x).cumsum(-1) * self.weight

    class GatePort(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.weight = self.create_parameter([8], default_initializer=paddle.nn.initializer.Constant(0.5))

        def forward(self, x):
            return (x.abs() + 0.1 * x).logcumsumexp(-1) * self.weight

    def chained(side, gate):
        parts = {"a": side.nn.Linear(8, 8), "b": gate(), "c": side.nn.Linear(8, 8), "d": gate()}
        return model(side, lambda _: parts, lambda self, x: self.d(self.c(self.b(self.a(x)))))

    report = align(chained(torch, Gate), chained(paddle, GatePort), ROWS)
    assert [(one.code, one.layers) for one in report.diagnoses] == [("parting", ("b", "d"))], str(report)
