"""Faults in a model's own code: the place where it parts from the reference's, and the edit that mends it."""

import os
import time

import numpy as np
import pytest
from live_nets import model, random

from tipchain.explain.causes.hypotheses import explained
from tipchain.explain.causes.mutations import _mending
from tipchain.explain.causes.program import Tap


@pytest.fixture(scope="module")
def pair(live):
    """Return a builder of two models with equal layers ``a``, ``b``, ``norm`` and ``relu`` and code of their own."""
    torch, paddle = live.torch, live.paddle

    def build(ours, theirs, *, images=False, table=None):
        def layers(nn):
            convolution = nn.Conv2d if nn is torch.nn else nn.Conv2D
            a, b = (convolution(3, 12, 1), convolution(12, 3, 1)) if images else (nn.Linear(6, 6), nn.Linear(6, 6))
            return {"a": a, "b": b, "norm": nn.LayerNorm(6), "relu": nn.ReLU()}

        reference, port = model(torch, layers, ours), model(paddle, layers, theirs)
        if table is not None:
            reference.register_buffer("table", torch.tensor(table[0]), persistent=False)
            port.register_buffer("table", paddle.to_tensor(table[1]), persistable=False)
        return live.equal(reference, port)

    return build


def here(x):
    import paddle
    import torch

    return torch if isinstance(x, torch.Tensor) else paddle


def grouped(x, *sizes):
    """Return an image with its channels divided and turned, as a shuffle of channels does."""
    count, channels, *rest = x.shape
    made, order = x.reshape([count, *sizes, *rest]), [0, 2, 1, 3, 4]
    made = made.permute(*order) if "torch" in type(made).__module__ else made.transpose(order)
    return made.reshape([count, channels, *rest])


def attend(m, x, *, scale=0.5, causal=False):
    """Return attention with three heads; ``a`` makes the queries, ``b`` the keys."""
    q, k = (one.reshape([*x.shape[:2], 3, 2]) for one in (m.a(x), m.b(x)))
    scores = here(x).einsum("bqhd,bkhd->bhqk", q, k)
    scores = scores if scale is None else scores * scale
    if causal:
        seen = here(x).tril(here(x).ones_like(scores))
        scores = scores + (seen - 1) * 1e9
    weights = here(x).nn.functional.softmax(scores, -1)
    return here(x).einsum("bhqk,bkhd->bqhd", weights, q)


def functional(x):
    return here(x).nn.functional


ROWS, SEQUENCE, IMAGE = random(4, 6), 2 * random(2, 5, 6), random(2, 3, 6, 7)
GRID = (np.random.default_rng(3).random((2, 4, 5, 2)) * 2.6 - 1.3).astype(np.float32)
EDITS = {
    "a number": ("argument", "y", "write 0.07 in `divide`", (ROWS,), lambda m, x: m.b(m.a(x) / 0.07), lambda m, x: m.b(m.a(x) / 0.7)),
    "an index": ("argument", "item", "write [:, -1] for [:, 0]", (SEQUENCE,), lambda m, x: m.norm(m.a(x)[:, -1]), lambda m, x: m.norm(m.a(x)[:, 0])),
    "groups of channels": (
        "argument", "shape", "[2, 3, 4, 6, 7]", (IMAGE,), lambda m, x: m.b(grouped(m.a(x), 3, 4)), lambda m, x: m.b(grouped(m.a(x), 4, 3)),
    ),
    "another function": ("function", "mean", "write `mean", (SEQUENCE,), lambda m, x: m.norm(m.a(x).mean(1)), lambda m, x: m.norm(m.a(x).max(1))),
    "copies": ("function", "tile", "tile", (ROWS,), lambda m, x: m.b(m.a(x).repeat(3, 1)), lambda m, x: m.b(m.a(x).repeat_interleave(3, 0))),
    "a layer for a function": ("function", "sigmoid", "write `sigmoid`", (ROWS,), lambda m, x: m.b(m.a(x).sigmoid()), lambda m, x: m.b(m.relu(m.a(x)))),
    "a factor too few": ("missing-call", "multiply", "by 0.5", (SEQUENCE,), attend, lambda m, x: attend(m, x, scale=None)),
    "a last call too few": ("missing-call", "sigmoid", "apply `sigmoid` after `b`", (ROWS,), lambda m, x: m.b(m.a(x)).sigmoid(), lambda m, x: m.b(m.a(x))),
    "a layer too many": ("extra-call", "ReLU", "remove `relu`", (ROWS,), lambda m, x: m.b(m.a(x)), lambda m, x: m.b(m.relu(m.a(x)))),
    "a flag that nobody passes": (
        "argument", "align_corners", "pass `align_corners=False`", (IMAGE, GRID),
        lambda m, x, g: m.b(functional(x).grid_sample(m.a(x), g)), lambda m, x, g: m.b(functional(x).grid_sample(m.a(x), g)),
    ),
    "a sign in a sum": (
        "function", "subtract", "write `subtract` for `add`", (SEQUENCE,),
        lambda m, x: m.norm((m.a(x) - m.b(x)).sin()),
        lambda m, x: m.norm(m.a(x).sin() * m.b(x).cos() + m.a(x).cos() * m.b(x).sin()),
    ),
    "two calls the other way round": (
        "call-order", "add", "call `add` behind `square`", (SEQUENCE,),
        lambda m, x: m.norm((m.a(x).square() + 1).log()), lambda m, x: m.norm((m.a(x) + 1).square().log()),
    ),
    "a number of another form": (
        "argument", "y", "write 0.1666667 in `multiply`", (SEQUENCE,),
        lambda m, x: m.norm((-m.a(x).square() / 6).exp()), lambda m, x: m.norm(1 / (m.a(x) * 0.5 * m.a(x)).exp()),
    ),
    "an edge of frames": (
        "argument", "pad", "pass `pad=[1, 2]` to `pad`", (SEQUENCE,),
        lambda m, x: functional(x).pad(m.a(x), (1, 2)).unfold(2, 3, 3).sin(),
        lambda m, x: here(x).signal.frame(functional(x).pad(m.a(x), [2, 1], data_format="NCL"), 3, 3).transpose([0, 1, 3, 2]).sin(),
    ),
    "a cast that cuts": (
        "extra-call", "astype", "remove `astype`", (SEQUENCE,),
        lambda m, x: m.norm(3 * m.a(x)), lambda m, x: m.norm((3 * m.a(x)).astype("int64").astype(x.dtype)),
    ),
    "layers exchanged": ("parting", "LayerNorm", "what the reference does", (ROWS,), lambda m, x: m.b(m.norm(m.a(x))), lambda m, x: m.b(m.a(m.norm(x)))),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Default grid_sample")
@pytest.mark.parametrize("fault", EDITS)
def test_one_edit_is_named_with_both_lines(live, pair, fault):
    kind, name, fix, inputs, ours, theirs = EDITS[fault]
    cause = live.cause(*pair(ours, theirs, images=inputs[0].ndim == 4), {"args": inputs})
    assert cause.code == kind, cause
    assert name in cause.name
    assert fix in cause.fix
    assert "test_edits.py:" in cause.message + cause.fix
    assert cause.explained > 0.999


def test_rows_of_a_table_that_no_checkpoint_holds_are_compared(live, pair):
    tables = [(base ** (-np.arange(6) / 6)).astype(np.float32) for base in (1e6, 1e4)]
    models = pair(lambda m, x: m.b(m.a(x) * m.table), lambda m, x: m.b(m.a(x) * m.table), table=tables)
    cause = live.cause(*models, ROWS)
    assert (cause.code, cause.name) == ("buffer", "table")
    assert models[1].table.numpy() == pytest.approx(tables[1]), "the user's buffer is as it was"


TABLES = np.linspace(0.5, 2, 12).astype(np.float32).reshape(2, 6)


def steps(m, x, *counts):
    for count in counts:
        x = m.a(x) + here(x).full([6], count, dtype=x.dtype)
    return m.b(x)


CONSTANTS = {
    "a row that the port repeats": ("table", lambda m, x: m.b(m.a(x) * m.table[1]), lambda m, x: m.b(m.a(x) * m.table)),
    "made in a loop": ("full", lambda m, x: steps(m, x, 1, 0.5, 0.25), lambda m, x: steps(m, x, 1, 2, 3)),
    "what a layer is given": (
        "zeros_like",
        lambda m, x: m.b(x) + m.norm(m.a(x)),
        lambda m, x: m.b(x) + m.norm(zeros(m.a(x))),
    ),
}


def zeros(x):
    return here(x).zeros_like(x)


@pytest.mark.parametrize("fault", CONSTANTS)
def test_a_constant_with_other_values_is_named(live, pair, fault):
    name, ours, theirs = CONSTANTS[fault]
    cause = live.cause(*pair(ours, theirs, table=(TABLES, np.tile(-TABLES[:1], (4, 1)))), ROWS)
    assert (cause.code, cause.name) == ("buffer", name), cause
    assert " for " in cause.message, "both values"
    assert name == "table" or "test_edits.py:" in cause.message


def test_outputs_in_another_order(live, pair):
    cause = live.cause(
        *pair(lambda m, x: [m.a(x), m.b(x), m.b(x[:, :2])], lambda m, x: [m.a(x), m.b(x), m.b(x[:, :2])][::-1]),
        SEQUENCE,
    )
    assert cause.code == "parting"
    assert "the port's `a()` at test_edits.py:" in cause.message


def test_outputs_that_the_reference_alone_detaches(live, pair):
    def outputs(m, x, *, cut):
        target = m.a(x)
        return m.b(target), target.detach() if cut else target

    found = live.cause(*pair(lambda m, x: outputs(m, x, cut=True), lambda m, x: outputs(m, x, cut=False)), ROWS)
    assert (found.code, found.name) == ("cut-gradient", "detach")
    assert "detach the outputs 1 of" in found.fix


@pytest.mark.parametrize("reference_cuts", [False, True])
def test_a_cut_gradient_is_told_with_its_line(live, pair, reference_cuts):
    def cut(m, x):
        return m.norm(m.b(m.a(x).detach()) + x)

    def whole(m, x):
        return m.norm(m.b(m.a(x)) + x)

    cause = live.cause(*pair(*((cut, whole) if reference_cuts else (whole, cut))), ROWS)
    assert cause.code == "cut-gradient"
    assert ("the reference stops the gradient" in cause.message) is reference_cuts
    assert "test_edits.py:" in cause.fix


def test_functions_in_another_order_are_told(live, pair):
    def ours(m, x):
        content, style = m.a(x), m.b(x)
        stds = [(one.var(1, keepdim=True) + 0.01).sqrt() for one in (content, style)]
        return (content - content.mean(1, keepdim=True)) / stds[0] * stds[1]

    def spread(x):
        return (x.var(1).sqrt() + 0.01).reshape([x.shape[0], 1])

    def theirs(m, x):
        content, style = m.a(x), m.b(x)
        return (content - content.mean(1, keepdim=True)) / spread(content) * spread(style)

    cause = live.cause(*pair(ours, theirs), ROWS)
    assert cause.code == "call-order", cause
    assert "`return (x.var(1).sqrt() + 0.01).reshape([x.shape[0], 1])`" in cause.fix
    assert "before `add`; the other way round it makes what the reference makes" in cause.message


def test_functions_of_a_table_are_watched(live, pair):
    table = {"act": live.paddle.nn.functional.gelu}
    silu, gelu = live.torch.nn.functional.silu, table["act"]
    models = pair(lambda m, x: m.b(silu(m.a(x))), lambda m, x: m.b(m.table_of["act"](m.a(x))))
    models[1].table_of = table
    cause = live.cause(*models, ROWS)
    assert (cause.code, cause.name) == ("function", "silu")
    assert table["act"] is gelu, "the user's table is as it was"


# No edit mends it: the place and both statements are shown.


SHOWN = [
    (lambda m, x: m.norm(m.a(x).cumsum(1) * m.b(x).sin()), lambda m, x: m.norm(m.a(x) + m.b(x).cos()), ("sin", "cos")),
    (lambda m, x: attend(m, x, causal=True), attend, ("softmax", "add")),
]


@pytest.mark.parametrize(("ours", "theirs", "words"), SHOWN)
def test_the_place_is_proved_and_both_statements_are_shown(live, pair, ours, theirs, words):
    cause = live.cause(*pair(ours, theirs), SEQUENCE)
    assert cause.code == "parting"
    assert all(f"`{word}(" in cause.message for word in words), cause.message
    assert "what the reference does at test_edits.py:" in cause.fix
    assert "with the reference's tensor" in cause.evidence


def test_an_equal_statement_behind_a_wrong_layout_is_not_blamed(live, pair):
    def ours(m, x):
        y = m.a(x).unflatten(2, (3, 2)).permute(0, 2, 1, 3).flatten(2).reshape(2, 5, 6)
        return m.norm(y * (y**2).sum(-1, keepdim=True).rsqrt())

    def theirs(m, x):
        y = m.a(x).reshape([2, 3, 10])
        y = y.reshape([2, 5, 6])
        return m.norm(y * (y * y).sum(-1, keepdim=True).rsqrt())

    cause = live.cause(*pair(ours, theirs), SEQUENCE)
    assert "y = m.a(x).reshape([2, 3, 10])" in cause.fix, cause
    assert "permute" in cause.fix


def test_what_cannot_be_watched_is_no_known_cause(live, pair):
    def apart(m, x):
        return live.paddle.to_tensor(np.sort(np.cumsum(m.a(x).numpy(), -1), -1))

    found = live.causes(*pair(lambda m, x: m.a(x), apart), SEQUENCE)
    assert [(one.code, one.is_known) for one in found] == [("parting", False)]
    assert "edits were tried" in found[0].evidence


def test_a_layer_of_the_reference_that_writes_to_its_input_hides_nothing(live):
    def layers(nn, **more):
        return {"one": nn.Linear(6, 6), "two": nn.Linear(6, 6), "relu": nn.ReLU(**more)}

    reference = model(
        live.torch, lambda nn: layers(nn, inplace=True), lambda net, x: net.relu(net.two(net.relu(net.one(x))) + x)
    )
    port = model(live.paddle, layers, lambda net, x: net.relu(net.two(net.relu(net.one(x)))))
    cause = live.cause(*live.equal(reference, port), random(3, 6))
    assert (cause.code, cause.name) == ("missing-call", "add")


def test_an_index_that_an_edit_makes_beyond_a_tensors_end_raises_and_reads_nothing(live):
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


def tries(succeeding, at, then):
    def trying(start):
        for number in range(start, 100_000):
            if number == at:
                then()
            yield number in succeeding

    return trying


def spin():
    while True:
        time.perf_counter()


@pytest.mark.parametrize(
    ("then", "found"), [(lambda: None, [2, 5]), (os.abort, [2]), (lambda: time.sleep(60), [2]), (spin, [2])]
)
def test_edits_are_tried_in_a_copy_of_the_process(then, found):
    """What ends the copy ends nothing else, and what was found before counts."""
    assert _mending(tries({2, 5}, 4, then), 0.2) == found
    assert _mending(tries({2}, 0, lambda: None), 0.0) == [], "no time is left"


@pytest.mark.parametrize("then", [os.abort, lambda: 1 / 0, spin])
def test_what_ends_the_copy_is_passed_over(then):
    """Some of Paddle's kernels end the process, or never end, for wrong arguments."""
    before = os.times().children_user
    assert _mending(tries({6}, 4, then), 20.0) == [6]
    assert os.times().children_user - before < 10


def test_what_is_left_of_an_error():
    assert explained(1.0, 0.0) == 1.0
    assert explained(0.5, 0.125) == 0.75
    assert explained(456.0, 1.0) == 0.0, "zeros, which are as far away as the truth is large, explain nothing"
    assert explained(456.0, 0.001) == 0.999
    assert explained(1.0, 3.0) == 0.0
    assert explained(float("inf"), 1e-9) == pytest.approx(1.0)
    assert explained(1.0, float("inf")) == 0.0


# One side's block has no counterpart: the code around it is told, not the layer in it.


@pytest.fixture(scope="module")
def blocks(live):
    """Return builders of a reference whose code stands in one forward, and of ports with a block of their own."""
    torch, paddle = live.torch, live.paddle

    class Step(paddle.nn.Layer):
        def __init__(self, squash):
            super().__init__()
            self.gates, self.squash = paddle.nn.Linear(6, 8), squash

        def forward(self, x, state):
            keep, new = self.gates(x).chunk(2, -1)
            return keep.sigmoid() * state + self.squash(new)

    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = torch.nn.Parameter(torch.linspace(-1, 1, 6))

        def forward(self, x):
            return x * self.gain.exp()

    class Scaled(paddle.nn.Layer):
        def __init__(self, squash, cut):
            super().__init__()
            self.gain = self.create_parameter([6])
            self.dense, self.squash, self.cut = paddle.nn.Linear(6, 6), squash, cut

        def forward(self, x):
            gain = self.gain.detach() if self.cut else self.gain
            return self.squash(self.dense(x * gain.exp()))

    def step(net, x):
        keep, new = net.gates(x).chunk(2, -1)
        return net.head(keep.sigmoid() * x[:, :4] + new.tanh())

    def stepping(squash):
        return live.equal(
            model(torch, lambda nn: {"gates": nn.Linear(6, 8), "head": nn.Linear(4, 3)}, step),
            model(
                paddle,
                lambda nn: {"step": Step(squash), "head": nn.Linear(4, 3)},
                lambda net, x: net.head(net.step(x, x[:, :4])),
            ),
        )

    def scaling(squash, *, cut=False):
        return live.equal(
            model(
                torch,
                lambda nn: {"scale": Scale(), "dense": nn.Linear(6, 6), "head": nn.Linear(6, 3)},
                lambda net, x: net.head(net.dense(net.scale(x)).tanh()),
            ),
            model(
                paddle,
                lambda nn: {"scaled": Scaled(squash, cut), "head": nn.Linear(6, 3)},
                lambda net, x: net.head(net.scaled(x)),
            ),
        )

    return {"around one layer": stepping, "with a parameter of its own": scaling}


@pytest.mark.parametrize("block", ["around one layer", "with a parameter of its own"])
def test_a_block_is_no_counterpart_of_one_layer_of_several(live, blocks, block):
    squashes = live.paddle.tanh, live.paddle.nn.functional.sigmoid
    right, wrong = (blocks[block](squash) for squash in squashes)
    found = live.locate(*right, ROWS, equal=False)
    assert found.first is None
    assert {one.port_path for one in found.verdicts if one.direction == "forward"} >= {"head"}
    cause = live.cause(*wrong, ROWS)
    assert (cause.code, cause.name) == ("function", "tanh"), cause
    assert "`sigmoid` at test_edits.py:" in cause.message


def test_the_parameter_of_a_block_without_counterpart_must_get_its_gradient(live, blocks):
    found = live.locate(*blocks["with a parameter of its own"](live.paddle.tanh, cut=True), ROWS, equal=False)
    assert (found.first.port_path, found.first.direction) == ("scaled", "backward")
    assert "parameter gain" in found.first.reason


def test_the_statement_is_shown_at_which_gradients_part(live, pair):
    """The values are equal: the straight-through estimate takes its gradient from another tensor, twice."""

    def ours(m, x):
        y = m.a(x)
        return m.b(y * y.detach() + 0.5 * (y * y).detach())

    def theirs(m, x):
        y = m.a(x)
        return m.b(1.5 * (y * y))

    (cause,) = live.causes(*pair(ours, theirs), ROWS)
    assert (cause.code, cause.is_known) == ("parting", False)
    assert cause.message.startswith("the model itself: the values agree, and the gradients do not")
    assert "1.5 * (y * y)" in cause.fix


def test_results_that_nobody_uses_get_no_gradient(live, pair):
    """Both frameworks call a hook without a gradient for such, as for the second part and for the places of the largest."""

    def cut(m, x, *, detach):
        y = m.a(x)
        first, _ = y.split(3 if detach else [3, 3], 1)
        largest = y.topk(2, 1)[0].sum(1, keepdim=True)
        added = y.sin() - y
        return m.b(y * largest + first.sum(1, keepdim=True) + (added.detach() if detach else added))

    cause = live.cause(*pair(lambda m, x: cut(m, x, detach=True), lambda m, x: cut(m, x, detach=False)), ROWS)
    assert (cause.code, cause.explained) == ("cut-gradient", pytest.approx(1)), cause
