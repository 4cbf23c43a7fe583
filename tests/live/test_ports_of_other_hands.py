"""Ports with names and layers of their own, right and wrong ones: which tensor is which, and what is told of them."""

import math

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import model, random

import tipchain
from tipchain.explain.locate.trace import with_results
from tipchain.frameworks.live_models import PaddleSide

pytestmark = pytest.mark.frameworks
F, PF = torch.nn.functional, paddle.nn.functional
ROWS = random(3, 5, 8)


def attend(q, k, v, softmax):
    return softmax(q @ k.swapaxes(-1, -2) / math.sqrt(8), -1) @ v


def attention():
    """A reference that declares its norms beside its projections."""

    def forward(net, x):
        kept = net.norm1(x)
        x = x + net.out(attend(net.query(kept), net.key(kept), net.value(kept), F.softmax))
        return net.norm2(x)

    def layers(nn):
        torch.manual_seed(0)
        made = {name: nn.Linear(8, 8, bias=False) for name in ("query", "key", "value", "out")}
        norms = {name: nn.LayerNorm(8) for name in ("norm1", "norm2")}
        for number, one in enumerate(norms.values()):
            torch.nn.init.uniform_(one.weight, 0.5 + number, 1.0 + number)
        return {"norm1": norms["norm1"], **made, "norm2": norms["norm2"]}

    return model(torch, layers, forward)


def renamed(forward, *, square=False):
    """A port whose names tell nothing, with its layers in another order, and perhaps matrices of its own."""

    def own(nn):
        return {"kernel": nn.Layer().create_parameter([8, 8])}

    def layers(nn):
        names = ("last", "d", "c", "b", "first", "a")
        made = {
            name: nn.LayerNorm(8) if name in ("last", "first") else nn.Linear(8, 8, bias_attr=False) for name in names
        }
        if square:  # applied as x @ kernel.T: as torch keeps it
            made |= {one: model(paddle, own, lambda net, x: x @ net.kernel.T) for one in "abcd"}
        return made

    return model(paddle, layers, forward)


def right(net, x):
    kept = net.first(x)
    return net.last(x + net.d(attend(net.b(kept), net.a(kept), net.c(kept), PF.softmax)))


@pytest.mark.parametrize("square", [False, True])
def test_a_run_tells_which_tensor_is_which(square):
    reference, port = attention(), renamed(right, square=square)
    tipchain.copy_weights(reference, port)
    assert not tipchain.align(reference, port, ROWS).passed
    names = tipchain.copy_weights(reference, port, inputs=ROWS).names
    assert names["query.weight" if square else "query"].startswith("b")
    assert tipchain.align(reference, port, ROWS).passed


def test_names_that_mislead_are_refuted_by_a_run_and_equal_ones_are_kept():
    """The port calls the reference's first layer ``w2``; one that exchanges two layers of equal names is wrong."""

    def mlp(side, first, second):
        linear = side.nn.Linear
        return model(
            side,
            lambda _: {first: linear(8, 8), second: linear(8, 8)},
            lambda net, x: getattr(net, second)(getattr(net, first)(x).tanh()),
        )

    torch.manual_seed(0)
    reference, port, exchanged = mlp(torch, "fc1", "fc2"), mlp(paddle, "w2", "w1"), mlp(paddle, "fc2", "fc1")
    assert tipchain.copy_weights(reference, port, inputs=ROWS).names["fc1"] == "w2"
    assert tipchain.align(reference, port, ROWS).passed
    tipchain.copy_weights(reference, exchanged, inputs=ROWS)
    assert not tipchain.align(reference, exchanged, ROWS).passed


def test_the_order_of_calls_tells_of_a_port_that_is_wrong():
    def wrong(net, x):
        kept = net.first(x)
        return net.last(x - net.d(attend(net.b(kept), net.a(kept), net.c(kept), PF.softmax)))

    def layers(nn):
        names = ("last", "b", "a", "c", "d", "first")
        return {
            name: nn.LayerNorm(8) if name in ("last", "first") else nn.Linear(8, 8, bias_attr=False) for name in names
        }

    reference, port = attention(), model(paddle, layers, wrong)
    assert tipchain.copy_weights(reference, port, inputs=ROWS).names["norm1"] == "first"
    cause = tipchain.align(reference, port, ROWS).diagnoses[0]
    assert (cause.code, cause.name) == ("function", "add")


def test_models_that_do_not_run_are_matched_by_structure():
    def raising(net, x):
        raise RuntimeError(net.a.weight.shape)

    reference = model(torch, lambda nn: {"b": nn.Linear(8, 8)}, lambda net, x: net.b(x))
    port = model(paddle, lambda nn: {"a": nn.Linear(8, 8)}, raising)
    assert tipchain.copy_weights(reference, port, inputs=ROWS).names == {"b": "a"}


def test_constants_that_the_port_keeps_in_other_layers_are_matched():
    """Ones and zeros look alike, and the port keeps them in one layer where the reference has two."""

    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gain, self.shift = (torch.nn.Parameter(value * torch.ones(8)) for value in (1, 0))

        def forward(self, x):
            return (x * self.gain).tanh() + self.shift

    class Both(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            for name, value in (("d", 0.0), ("c", 1.0), ("b", 0.0), ("a", 1.0)):
                constant = paddle.nn.initializer.Constant(value)
                setattr(self, name, self.create_parameter([8], default_initializer=constant))

        def forward(self, x):
            return paddle.tanh((paddle.tanh(x * self.a) + self.b) * self.c) + self.d

    reference = model(torch, lambda _: {"one": Scale(), "two": Scale()}, lambda net, x: net.two(net.one(x)))
    port = model(paddle, lambda _: {"both": Both()}, lambda net, x: net.both(x))
    tipchain.copy_weights(reference, port, inputs=ROWS)
    report = tipchain.align(reference, port, ROWS)
    assert report.passed, str(report)


# Layers that begin or end at other calls than their counterparts.


def test_a_layer_is_right_whose_activation_the_port_applies_around_it():
    """Elsewhere the port is wrong, so that its outputs refute nothing."""

    def active(net, x):
        return F.leaky_relu(net.inner(x), 0.2) * 2**0.5

    def scaled(axis):
        def forward(net, x):
            for layer in (net.a, net.b):
                x = PF.leaky_relu(layer(x), 0.2) * 2**0.5
            return net.out(x / (x**2).mean(axis, keepdim=True).sqrt())

        return forward

    def one(side, forward):
        return model(side, lambda nn: {"inner": nn.Linear(8, 8)}, forward)

    torch.manual_seed(0)
    reference = model(
        torch,
        lambda nn: {"a": one(torch, active), "b": one(torch, active), "out": nn.Linear(8, 2)},
        lambda net, x: net.out((y := net.b(net.a(x))) / (y**2).mean(-1, keepdim=True).sqrt()),
    )

    def port(axis):
        own = one(paddle, lambda net, x: net.inner(x)), one(paddle, lambda net, x: net.inner(x))
        return model(paddle, lambda nn: {"a": own[0], "b": own[1], "out": nn.Linear(8, 2)}, scaled(axis))

    for axis in (-1, 1):
        made = port(axis)
        tipchain.copy_weights(reference, made)
        report = tipchain.align(reference, made, ROWS)
        assert report.passed is (axis == -1), str(report)
    assert (report.diagnoses[0].code, report.diagnoses[0].name) == ("argument", "axis")


def test_a_state_that_a_cell_gives_twice_is_changed_in_both_places():
    """Paddle's `LSTMCell` returns ``h, (h, c)``."""
    h, c = paddle.ones([2]), paddle.zeros([2])
    first, (second, cell) = with_results(PaddleSide(), (h, (h, c)), {0: lambda one: one + 1})
    assert first is second
    assert (float(first.sum()), cell is c) == (4.0, True)


def test_an_order_of_places_stays_one_in_other_inputs():
    """A route visits each place once: the port blocks a place once more at each visit, which no route shows."""

    def ours(net, x, route):
        seen = torch.zeros(3, 5)
        for turn in range(route.shape[1]):
            seen = (
                seen.maximum(F.one_hot(route[:, turn], x.shape[1]).to(x.dtype))
                if turn
                else F.one_hot(route[:, 0], x.shape[1]).to(x.dtype)
            )
        return net.a(x) - seen[..., None]

    def theirs(net, x, route):
        return net.a(x) - PF.one_hot(route, x.shape[1]).sum(1).unsqueeze(-1)

    torch.manual_seed(0)
    reference, port = (
        model(side, lambda nn: {"a": nn.Linear(8, 4)}, forward) for side, forward in ((torch, ours), (paddle, theirs))
    )
    tipchain.copy_weights(reference, port)
    route = np.stack([np.random.default_rng(at).permutation(5) for at in range(3)])
    report = tipchain.align(reference, port, (ROWS, route))
    assert report.passed, str(report)


# Edits and statements.


def told(reference, port, *args):
    torch.manual_seed(0)
    tipchain.copy_weights(reference, port)
    report = tipchain.align(reference, port, {"args": args})
    assert not report.passed, str(report)
    return report.diagnoses[0]


def linear(**layers):
    return lambda nn: {name: nn.Linear(*sizes) for name, sizes in layers.items()}


def test_two_parts_of_a_split_into_uneven_ones_are_exchanged():
    def ours(net, x):
        rate, gain, shift = net.a(x).split([2, 3, 3], -1)
        return (gain * rate.sum(-1, keepdim=True)).exp() + shift

    def theirs(net, x):
        rate, shift, gain = net.a(x).split([2, 3, 3], -1)
        return (gain * rate.sum(-1, keepdim=True)).exp() + shift

    layers = linear(a=(8, 8))
    cause = told(model(torch, layers, ours), model(paddle, layers, theirs), ROWS)
    assert cause.code == "operand-order"
    assert cause.place.code == "rate, shift, gain = net.a(x).split([2, 3, 3], -1)"


class Tables(torch.nn.Module):
    """Holds a table among others of its shape."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(8, 8)
        places = torch.arange(64.0).reshape(8, 8)
        for number in range(12):
            self.register_buffer(f"other{number}", (places + number).sin(), persistent=False)
            self.register_buffer(f"small{number}", places[:2, :2] + number, persistent=False)
        steps = torch.arange(8)
        index = steps[:, None] - steps[None, :] + 7
        self.register_buffer("index", index, persistent=False)
        sizes = torch.tensor([[10.0, 13.0], [16.0, 30.0]])
        self.register_buffer("sizes", sizes / 8, persistent=False)

    def forward(self, x):
        bias = torch.linspace(0, 1, 15, dtype=x.dtype)[self.index.reshape(-1)].reshape(8, 8)
        for number in range(12):
            bias = bias + getattr(self, f"other{number}") * getattr(self, f"small{number}").sum()
        for one in self.sizes:
            x = x * one[0] + one[1]
        return self.layer(x) @ bias


class PortsTables(paddle.nn.Layer):
    def __init__(self, *, turned=False, whole=False):
        super().__init__()
        self.turned, self.whole = turned, whole
        self.layer = paddle.nn.Linear(8, 8)
        places = paddle.arange(64, dtype="float32").reshape([8, 8])
        for number in range(12):
            self.register_buffer(f"other{number}", (places + number).sin(), persistable=False)
            self.register_buffer(f"small{number}", places[:2, :2] + number, persistable=False)
        steps = paddle.arange(8)
        index = steps[None, :] - steps[:, None] + 7 if turned else steps[:, None] - steps[None, :] + 7
        self.register_buffer("index", index, persistable=False)
        sizes = paddle.to_tensor([[10.0, 13.0], [16.0, 30.0]])
        self.register_buffer("sizes", sizes // 8 if whole else sizes / 8, persistable=False)

    def forward(self, x):
        bias = paddle.linspace(0, 1, 15).astype(x.dtype)[self.index.reshape([-1])].reshape([8, 8])
        for number in range(12):
            bias = bias + getattr(self, f"other{number}") * getattr(self, f"small{number}").sum()
        for one in self.sizes:
            x = x * one[0] + one[1]
        return self.layer(x) @ bias


@pytest.mark.parametrize(
    ("fault", "line"), [("turned", "index = steps[None, :]"), ("whole", 'register_buffer("sizes"')]
)
def test_a_table_that_is_transposed_or_one_of_many_is_told_where_it_is_computed(fault, line):
    cause = told(Tables().eval(), PortsTables(**{fault: True}), ROWS)
    assert cause.code == "buffer"
    assert line in cause.place.code


class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def mixed(self, x, far=False):
        rows = x.roll(1, 1)
        kept = rows - x if far else rows + x
        return self.b(kept.tanh())

    def forward(self, x):
        made = self.a(x)
        made = self.mixed(made, far=True)
        return x + made


class PortsResidual(paddle.nn.Layer):
    """Lacks the input that the reference adds."""

    def __init__(self):
        super().__init__()
        self.a, self.b = paddle.nn.Linear(8, 8), paddle.nn.Linear(8, 8)

    def mixed(self, x, far=False):
        rows = paddle.roll(x, 1, 1)
        kept = rows - x if far else rows + x
        return self.b(kept.tanh())

    def forward(self, x):
        made = self.a(x)
        made = self.mixed(made, far=True)
        return made  # noqa: RET504


class WithoutFar(PortsResidual):
    def forward(self, x):
        made = self.a(x)
        made = self.mixed(made)
        return x + made


@pytest.mark.parametrize(("port", "line"), [(PortsResidual, "return made"), (WithoutFar, "made = self.mixed(made)")])
def test_a_statement_that_alone_reads_otherwise_is_told(port, line):
    cause = told(Residual(), port(), ROWS)
    assert cause.place.code.startswith(line)


def test_another_meaning_of_paddles_is_told_of_all_turns_of_a_loop():
    """Behind a mask its `log_softmax` gives 64 below the largest, at every turn."""

    def forward(side, fill):
        def run(net, x):
            found = []
            for turn in range(3):
                scores = fill(net.a(x[:, turn]))
                found.append(side.log_softmax(scores, -1))
            return sum(found)

        return run

    hide, port_hide = np.array([False] * 6 + [True] * 2), paddle.to_tensor([False] * 6 + [True] * 2)
    layers = linear(a=(8, 8))
    ours = forward(F, lambda one: one.masked_fill(torch.tensor(hide), -1e4))
    theirs = forward(PF, lambda one: paddle.where(port_hide, paddle.full_like(one, -1e4), one))
    cause = told(model(torch, layers, ours), model(paddle, layers, theirs), ROWS)
    assert (cause.code, cause.name) == ("function", "log_softmax")
    assert "in 3 calls" in cause.message


def blocks(base, nn):
    class Block(base):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            return self.b(self.a(x).tanh())

    return {"for_hidden": Block(), "for_cell": Block(), "out": nn.Linear(8, 2)}


def test_a_block_that_is_never_called_is_told_where_another_of_its_class_is():
    def start(net, x):
        hidden = net.for_hidden(x)
        cell = net.for_cell(x)
        return net.out(hidden * cell.tanh())

    def wrong(net, x):
        hidden = net.for_hidden(x)
        cell = net.for_hidden(x)
        return net.out(hidden * cell.tanh())

    reference = model(torch, lambda nn: blocks(nn.Module, nn), start)
    cause = told(reference, model(paddle, lambda nn: blocks(nn.Layer, nn), wrong), ROWS)
    assert cause.place.code == "cell = net.for_hidden(x)"
    assert "never `for_cell`" in cause.message


def test_a_reshape_without_its_transpose_is_told_where_that_is_missing():
    """Both end in one shape, and the wrong one holds the reference's numbers in the order of before."""

    def ours(net, x):
        windows = net.a(x).reshape(-1, 2, 2, 2, 4)
        return net.b(windows.permute(0, 1, 3, 2, 4).permute(0, 2, 1, 3, 4).reshape(-1, 4, 8))

    def pasted(windows):
        parts = windows.reshape([-1, 2, 2, 2, 4])
        return parts.reshape([-1, 4, 8])

    layers = linear(a=(8, 8), b=(8, 2))
    cause = told(
        model(torch, layers, ours), model(paddle, layers, lambda net, x: net.b(pasted(net.a(x)) + 0)), random(2, 4, 8)
    )
    assert cause.place.code == "return parts.reshape([-1, 4, 8])"


def test_a_function_that_writes_to_its_input_is_told():
    def ours(net, x):
        y = net.a(x)
        return net.b(F.relu(y)) + y

    def theirs(net, x):
        y = net.a(x)
        made = PF.relu_(y)
        return net.b(made) + y

    layers = linear(a=(8, 8), b=(8, 8))
    cause = told(model(torch, layers, ours), model(paddle, layers, theirs), ROWS)
    assert cause.place.code == "made = PF.relu_(y)"
    assert "writes the result of `relu`" in cause.message


def test_tables_of_several_levels_are_put_right_at_once():
    """Each level's table has its columns exchanged: no one of them mends the port."""
    tables = [random(4, 2), random(6, 2) + 1, random(8, 2) + 2]

    def forward(side, places):
        def run(net, x):
            made = net.a(x)
            return sum(
                (made[:, :2, None] + side(table)).exp().mean((1, 2)) * scale for scale, table in enumerate(places, 1)
            )

        return run

    layers = linear(a=(8, 2))
    ours = forward(torch.tensor, tables)
    theirs = forward(lambda one: paddle.to_tensor(np.ascontiguousarray(one)), [one[:, ::-1] for one in tables])
    cause = told(model(torch, layers, ours), model(paddle, layers, theirs), ROWS)
    assert (cause.code, cause.explained > 0.99) == ("buffer", True)


def test_a_number_is_changed_in_all_calls_that_are_given_it():
    """An FFT convolution that is not padded: no one of its three calls mends it."""

    def convolved(fft, x, kernel, size):
        return fft.irfft(fft.rfft(x, size) * fft.rfft(kernel, size), size)

    def ours(net, x):
        return net.b(convolved(torch.fft, net.a(x), net.a(x + 1), 16)[..., :8])

    def theirs(net, x):
        return net.b(convolved(paddle.fft, net.a(x), net.a(x + 1), 8)[..., :8])

    layers = linear(a=(8, 8), b=(8, 2))
    cause = told(model(torch, layers, ours), model(paddle, layers, theirs), ROWS)
    assert (cause.code, cause.name) == ("argument", "n")
    assert "in 3 calls" in cause.message
