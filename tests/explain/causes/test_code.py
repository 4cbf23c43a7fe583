"""Faults in a container's own code: between layers, in functions, in the order of things, and backward."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tipchain.explain.causes import walk
from tipchain.explain.causes.functions import OWN_ARGUMENTS, by_function_arguments
from tipchain.explain.causes.hypotheses import explained, name_number
from tipchain.explain.causes.piece import CallRecord
from tipchain.explain.causes.program import Op, Tap, signature_of
from tipchain.explain.causes.steps import by_indices, by_scales


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def attention(live):
    """Return self-attention of both frameworks; ``fault`` is planted into the port's code."""
    torch, paddle = live.torch, live.paddle

    class Reference(torch.nn.Module):
        def __init__(self, *, causal=False):
            super().__init__()
            self.q, self.k, self.v, self.out = (torch.nn.Linear(12, 12) for _ in range(4))
            self.causal = causal

        def heads(self, x):
            return x.view(*x.shape[:2], 3, 4).transpose(1, 2)

        def forward(self, x):
            q, k, v = (self.heads(layer(x)) for layer in (self.q, self.k, self.v))
            scores = q @ k.transpose(-1, -2) * 0.5
            if self.causal:
                scores = scores.masked_fill(torch.ones(5, 5).tril() == 0, -1e30)
            return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    class Port(paddle.nn.Layer):
        def __init__(self, fault=""):
            super().__init__()
            self.q, self.k, self.v, self.out = (paddle.nn.Linear(12, 12) for _ in range(4))
            self.fault = fault

        def heads(self, x):
            if self.fault == "heads inside":
                return x.reshape([*x.shape[:2], 4, 3]).transpose([0, 3, 1, 2])
            return x.reshape([*x.shape[:2], 3, 4]).transpose([0, 2, 1, 3])

        def forward(self, x):
            q, k, v = (self.heads(layer(x)) for layer in (self.q, self.k, self.v))
            if self.fault == "q for k":
                q, k = k, q
            scores = paddle.matmul(q, k, transpose_y=True)
            scores = scores if self.fault == "no scale" else scores * 0.5
            axis = 1 if self.fault == "axis" else -1
            made = paddle.matmul(paddle.nn.functional.softmax(scores, axis), v)
            return self.out(made.transpose([0, 2, 1, 3]).flatten(2))

    return SimpleNamespace(Reference=Reference, Port=Port)


@pytest.mark.parametrize(
    ("fault", "code", "fix"),
    [
        ("no scale", "scale-factor", "by 0.5"),
        ("axis", "softmax-axis", "axis=-1"),
        ("q for k", "swapped-qkv", "exchange"),
        ("heads inside", "head-order", "transpose"),
    ],
)
def test_attention(live, causes, attention, fault, code, fix):
    cause = causes.first(*live.equal(attention.Reference(), attention.Port(fault)), random(2, 5, 12))
    assert cause.code == code
    assert fix in cause.fix
    assert "test_code.py:" in cause.fix, "the line of the port's code is told"


def test_a_missing_causal_mask(live, causes, attention):
    cause = causes.first(*live.equal(attention.Reference(causal=True), attention.Port()), random(2, 5, 12))
    assert cause.code == "causal-mask"


@pytest.mark.parametrize(
    ("mode", "code"),
    [
        ("other activation", "other-activation"),
        ("no shortcut", "missing-residual"),
        ("no activation", "missing-activation"),
    ],
)
def test_residual_blocks(live, nets, causes, mode, code):
    reference, port = live.equal(nets.torch.residual(2), nets.paddle.residual("", mode))
    cause = causes.first(reference, port, random(2, 3, 12, 12))
    assert (cause.code, cause.port_path) == (code, "2")
    assert "conftest.py:" in cause.fix


def test_gradients_that_are_scaled(live, nets, causes):
    reference, port = live.equal(nets.torch.residual(2), nets.paddle.residual("", "cut gradient"))
    cause = causes.first(reference, port, random(2, 3, 12, 12))
    assert (cause.code, cause.port_path) == ("scaled-gradient", "2")
    assert "1/2 times" in cause.message


def code_pair(live, ours, theirs, *sizes):
    """Return two containers with the same two Linear layers and their own code."""
    torch, paddle = live.torch, live.paddle
    sizes = sizes or (6, 6)

    class Reference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = torch.nn.Linear(*sizes), torch.nn.Linear(*sizes)
            self.norm = torch.nn.LayerNorm(sizes[-1])

        def forward(self, *x):
            return ours(self, *x)

    class Port(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.one, self.two = paddle.nn.Linear(*sizes), paddle.nn.Linear(*sizes)
            self.norm = paddle.nn.LayerNorm(sizes[-1])

        def forward(self, *x):
            return theirs(self, *x)

    return live.equal(Reference(), Port())


CODE = [
    ("concat-order", lambda m, x: cat(m, [m.one(x), m.two(x)]), lambda m, x: cat(m, [m.two(x), m.one(x)])),
    ("wrong-index", lambda m, x: m.norm(m.two(m.one(x))[:, -1]), lambda m, x: m.norm(m.two(m.one(x))[:, 0])),
    ("pooling", lambda m, x: m.norm(m.two(m.one(x)).mean(1)), lambda m, x: m.norm(m.two(m.one(x)).max(1))),
    ("sign", lambda m, x: m.norm(m.one(x) - m.two(x)), lambda m, x: m.norm(m.one(x) + m.two(x))),
    ("norm-order", lambda m, x: m.two(m.norm(m.one(x))), lambda m, x: m.two(m.one(m.norm(x)))),
    ("residual", lambda m, x: m.norm(m.two(m.one(x)) + x), lambda m, x: m.norm(residual(m, x))),
    ("extra-activation", lambda m, x: m.two(m.one(x)).sigmoid(), lambda m, x: m.two(m.one(x)).sigmoid().tanh()),
    ("lower-precision", lambda m, x: m.two(m.one(x)), lambda m, x: m.two(m.one(x).astype("float16").astype("float64"))),
]


def cat(module, tensors):
    import paddle
    import torch

    return module.norm((torch.cat if isinstance(tensors[0], torch.Tensor) else paddle.concat)(tensors, 1))


def residual(model, x):
    y = model.one(x)
    return model.two(y) + y


@pytest.mark.parametrize(("code", "ours", "theirs"), CODE, ids=[one[0] for one in CODE])
def test_code_between_layers(live, causes, code, ours, theirs):
    cause = causes.first(*code_pair(live, ours, theirs), 2 * random(3, 4, 6))
    assert cause.code == code
    assert cause.explained > 0.9999


def test_a_detached_layer_is_told_with_its_line(live, causes):
    reference, port = code_pair(
        live, lambda m, x: m.norm(m.two(m.one(x)) + x), lambda m, x: m.norm(m.two(m.one(x).detach()) + x)
    )
    cause = causes.first(reference, port, random(3, 6))
    assert cause.code == "stop-gradient"
    assert "test_code.py:" in cause.fix


STRANGE = [
    (
        lambda m, x: m.norm(m.one(x).cumsum(1) * m.two(x).sin()),
        lambda m, x: m.norm(m.one(x) + m.two(x).cos()),
        ("sin", "cos"),
    ),
    (lambda m, x: m.two(m.one(x).sort(-1).values.cumsum(-1)), lambda m, x: m.two(m.one(x)), ("cumsum", "sort")),
]


@pytest.mark.parametrize(("ours", "theirs", "words"), STRANGE)
def test_of_what_is_in_no_catalogue_the_place_is_told_in_both_programs(live, causes, ours, theirs, words):
    cause = causes.first(*code_pair(live, ours, theirs), random(3, 4, 6))
    assert all(f"{word}(" in cause.message for word in words)
    assert "what the reference does at test_code.py:" in cause.fix


def test_an_expression_is_written_once_however_often_it_is_used(live, causes, monkeypatch):
    """Each step of a loop that uses its state twice doubled the work: a network of optical flow took six minutes."""

    def doubled(m, x):
        y = m.one(x)
        for _ in range(12):
            y = (y * 0.7 + y.sin()) * 0.9
        return m.two(y)

    seen = []
    monkeypatch.setattr(walk, "_called", lambda name, parts, call=walk._called: seen.append(name) or call(name, parts))
    cause = causes.first(*code_pair(live, lambda m, x: m.two(m.one(x).cumsum(-1)), doubled), random(3, 4, 6))
    assert "cumsum(" in cause.message
    assert len(seen) < 12**3


def apart(model, x):
    """A port's code that computes outside of Paddle."""
    import paddle

    return paddle.to_tensor(np.sort(np.cumsum(model.one(x).numpy(), -1), -1))


def test_what_cannot_be_watched_is_unknown(live, causes):
    found = causes.of(*code_pair(live, lambda m, x: m.one(x), apart), random(3, 4, 6))
    assert [one.code for one in found] == ["unknown"]
    assert found[0].explained < 0.99
    assert "causes were tried" in found[0].evidence


def test_the_number_of_runs_is_bounded(live, causes):
    found = causes.of(*code_pair(live, lambda m, x: m.one(x), apart), random(3, 4, 6), most=50)
    assert "in 50 runs" in found[0].evidence


def test_numbers_are_named():
    assert name_number(0.125, (64,)) == "1/sqrt(64)"
    assert name_number(8.0, (64, 3)) == "sqrt(64)"
    assert name_number(1.2345, (64,)) == "1.2345"


def test_what_is_left_of_an_error():
    assert explained(1.0, 0.0) == 1.0
    assert explained(0.5, 0.125) == 0.75
    assert explained(456.0, 1.0) == 0.0, "zeros, which are as far away as the truth is large, explain nothing"
    assert explained(456.0, 0.001) == 0.999
    assert explained(1.0, 3.0) == 0.0
    assert explained(float("inf"), 1e-9) == pytest.approx(1.0)
    assert explained(1.0, float("inf")) == 0.0


def test_a_layer_of_the_reference_that_writes_to_its_input_hides_nothing(live, causes):
    torch, paddle = live.torch, live.paddle

    class Reference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.relu = (torch.nn.Linear(6, 6), torch.nn.Linear(6, 6), torch.nn.ReLU(inplace=True))

        def forward(self, x):
            return self.relu(self.two(self.relu(self.one(x))) + x)

    class Port(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.relu = paddle.nn.Linear(6, 6), paddle.nn.Linear(6, 6), paddle.nn.ReLU()

        def forward(self, x):
            return self.relu(self.two(self.relu(self.one(x))))

    cause = causes.first(*live.equal(Reference(), Port()), random(3, 6))
    assert cause.code == "missing-residual"


def test_an_index_that_a_search_makes_beyond_a_tensors_end_raises_and_reads_nothing(live):
    paddle = live.paddle
    rows = paddle.arange(12).reshape([3, 4])
    with Tap(paddle).open({}, lambda _: False):
        for index in (
            paddle.to_tensor([0, 3]),
            (slice(None), None, paddle.to_tensor([-5])),
            (..., np.array([4])),
            [-1, 3],
        ):
            with pytest.raises(IndexError, match="out of bounds"):
                rows[index]
        assert rows[paddle.to_tensor([0, -3])].tolist() == rows[[0, -3]].tolist() == [[0, 1, 2, 3]] * 2
        assert rows[..., paddle.to_tensor([[3]])].shape == [3, 1, 1]
        assert rows[rows > 9].tolist() == [10, 11]
        assert rows[1:, paddle.to_tensor([True, False, False, True])].tolist() == [[4, 7], [8, 11]]


def test_an_index_is_told_as_code_writes_it():
    op = Op(
        number=0, name="getitem", args=(None, slice(None, None, -1)), kwargs={}, result=None, place="a.py:1", line=""
    )
    (one,) = by_indices(op, SimpleNamespace(shown="`net`"))
    assert "it takes index ::-1 at a.py:1, the reference :" in one.message


def test_numbers_that_the_references_code_multiplies_or_divides_by_are_tried_as_factors(live):
    with CallRecord.over({}) as watch:
        numbers = 2 / (live.torch.ones(2) / 0.3 * 1.7)
    assert numbers.numel() == 2
    piece = SimpleNamespace(shown="`net`", truth=SimpleNamespace(record=watch), floats_given=lambda _: [])
    op = Op(number=0, name="sin", args=(), kwargs={}, result=None, place="a.py:1", line="")
    found = [one.message for one in by_scales(op, piece, live.paddle.ones([2])) if one.confirmed]
    for told in ("by 1/0.3 ", "by 1.7 ", "by 2 "):
        assert any(told in one for one in found), told


def test_arguments_that_are_tried_are_those_of_paddles_functions(live):
    paddle, functions = live.paddle, live.paddle.nn.functional
    for name, arguments in OWN_ARGUMENTS.items():
        function = next(one for one in (getattr(functions, name, None), getattr(paddle, name, None)) if callable(one))
        assert all(set(one.arguments) & signature_of(function).keys() for one in arguments), name
    piece = SimpleNamespace(truth=SimpleNamespace(record=SimpleNamespace(constants={})))
    x = paddle.ones([2, 6])
    for name, args, wrong in (
        (
            "dropout",
            (x, 0.5, None, True, False, "downscale_in_infer"),
            "`mode` of `dropout` at a.py:1 is 'downscale_in_infer'",
        ),
        ("rms_norm", (x, [6], None, 1e-3), "`eps` of `rms_norm` at a.py:1 is 0.001"),
        ("max_pool2d", (x, 2, 2, 0, False, True), "`ceil_mode` of `max_pool2d` at a.py:1 is True"),
    ):
        function = getattr(functions, name)
        op = Op(number=0, name=name, args=args, kwargs={}, result=None, place="a.py:1", line="", function=function)
        assert any(one.message.startswith(wrong) for one in by_function_arguments(op, piece)), name
