"""Which statement a cause is told at: the one that a person changes, marked ``# wrong``."""

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import copy_and_align

pytestmark = pytest.mark.frameworks
F, PF = torch.nn.functional, paddle.nn.functional
WIDTH = 8


class Net(torch.nn.Module):
    """Four layers that the nets below share."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))


class Port(paddle.nn.Layer):
    """The same in Paddle."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (paddle.nn.Linear(WIDTH, WIDTH) for _ in range(4))


class Scaled(Net):
    def __init__(self):
        super().__init__()
        self.heads, self.scale = 2, (WIDTH // 2) ** -0.5

    def forward(self, x):
        weights = (self.q(x) * self.scale) @ self.k(x).transpose(1, 2)
        return self.out(weights.softmax(-1) @ self.v(x))


class ScaledPort(Port):
    def __init__(self):
        super().__init__()
        self.heads, self.scale = 2, WIDTH**-0.5  # wrong

    def forward(self, x):
        weights = (self.q(x) * self.scale) @ self.k(x).transpose([0, 2, 1])
        return self.out(PF.softmax(weights, -1) @ self.v(x))


def attend(query, key, value):
    return torch.softmax(query @ key.transpose(1, 2), dim=-1) @ value


def attend_in_paddle(query, key, value):
    return PF.softmax(paddle.matmul(query, key, transpose_y=True), axis=-1) @ value


class Handed(Net):
    def forward(self, x):
        x = x + attend(x, x, x)
        q, k, v = self.q(x), self.k(x), self.v(x)
        return self.out(attend(q, k, v))


class HandedPort(Port):
    def forward(self, x):
        x = x + attend_in_paddle(x, x, x)
        q, k, v = self.q(x), self.k(x), self.v(x)
        return self.out(attend_in_paddle(q, v, k))  # wrong


class Linear(Net):
    def forward(self, x):
        q, k = F.elu(self.q(x)) + 1, F.elu(self.k(x)) + 1
        both = torch.einsum("bnd,bne->bde", k, self.v(x))
        return self.out(q @ both)


class LinearPort(Port):
    def forward(self, x):
        q, k = PF.elu(self.q(x)) + 1, PF.elu(self.k(x))  # wrong
        both = paddle.einsum("bnd,bne->bde", k, self.v(x))
        return self.out(q @ both)


class Grouped(Net):
    def forward(self, x):
        y = self.q(x)
        y = y.view(len(y), 2, WIDTH // 2, -1)
        y = y - y.mean((2, 3), keepdim=True)
        return self.out(y.reshape(len(y), -1, WIDTH))


class GroupedPort(Port):
    def forward(self, x):
        y = self.q(x)
        y = y.reshape([len(y), WIDTH // 2, 2, -1])  # wrong
        y = y - y.mean([1, 3], keepdim=True)
        return self.out(y.reshape([len(y), -1, WIDTH]))


class Table(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.linspace(0, 1, WIDTH), persistent=False)

    def forward(self, x):
        return self.out(self.q(x) * self.table.to(x.dtype))


class TablePort(Port):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", paddle.arange(WIDTH) / WIDTH, persistable=False)  # wrong

    def forward(self, x):
        return self.out(self.q(x) * self.table.astype(x.dtype))


class Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


class TurnedPort(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 0.5  # wrong


class Reversed(Net):
    def forward(self, x):
        return self.out(Turned.apply(self.q(x)))


class ReversedPort(Port):
    def forward(self, x):
        return self.out(TurnedPort.apply(self.q(x)))


class Kept(Net):
    def forward(self, x):
        y = self.q(x)
        total = y + self.k(x)
        return self.out(total) + self.v(y)


class KeptPort(Port):
    def forward(self, x):
        y = self.q(x)
        total = y
        total.add_(self.k(x))  # wrong
        return self.out(total) + self.v(y)


class Twins(Net):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)

    def forward(self, x):
        x = self.a(self.q(x)) + self.k(x)
        return self.b(x)


class TwinsPort(Port):
    def __init__(self):
        super().__init__()
        self.a, self.b = paddle.nn.LayerNorm(WIDTH), paddle.nn.LayerNorm(WIDTH)

    def forward(self, x):
        x = self.a(self.q(x)) + self.k(x)
        return self.a(x)  # wrong


class Ended(Net):
    def forward(self, x):
        return self.out(self.q(x).tanh())


class EndedPort(Port):
    def forward(self, x):
        return PF.relu(self.out(self.q(x).tanh()))  # wrong


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Scaled, ScaledPort),
        (Handed, HandedPort),
        (Linear, LinearPort),
        (Grouped, GroupedPort),
        (Table, TablePort),
        (Reversed, ReversedPort),
        (Kept, KeptPort),
        (Twins, TwinsPort),
        (Ended, EndedPort),
    ],
)
def test_a_cause_is_told_at_the_statement_that_is_wrong(ours, theirs):
    reference, port = ours(), theirs()
    report = copy_and_align(reference, port, np.random.default_rng(0).standard_normal((3, 5, WIDTH)).astype("float32"))
    assert not report.passed
    cause, *_ = report.diagnoses
    assert cause.place.code.endswith("# wrong"), str(report)


class Counted(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.ones(WIDTH))
        self.register_buffer("table", torch.zeros(WIDTH))

    def forward(self, x):
        if self.training:
            self.count.mul_(0.5)
            self.table.fill_(2.0)
        return self.out(x)


class CountedPort(Port):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", paddle.ones([WIDTH]))
        self.register_buffer("table", paddle.zeros([WIDTH]))

    def forward(self, x):
        if self.training:
            self.count * 0.5
            self.table.set_value(paddle.full([WIDTH], 2.0, "float32"))  # refused in float64
        return self.out(x)


def test_buffers_are_compared_where_train_mode_does_not_run_in_float64():
    reference, port = Counted(), CountedPort()
    report = copy_and_align(reference, port, np.ones((2, 3, WIDTH), "float32"))
    assert not report.passed
    assert "leaves its buffer `count` as it is" in report.diagnoses[0].message
