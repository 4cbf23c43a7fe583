"""Which statement a cause is told at: the one that a person changes, marked ``# wrong``."""

import numpy as np
import pytest
from live_nets import copy_and_align, loaded
from zoo.ports import in_paddle

pytestmark = pytest.mark.frameworks
HEAD = """\
import torch
from torch import nn
from torch.nn import functional as F


class Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


def attend(query, key, value):
    weights = query @ key.transpose(1, 2)
    return weights.softmax(-1) @ value


def scaled(x, by):
    return x * by.sigmoid()


class Weighed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x, by):
        x = self.inner(x) * by
        return x.softmax(-1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weighed = Weighed()
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.a, self.b = nn.LayerNorm(8), nn.LayerNorm(8)
        self.scale = (8 // 2) ** -0.5
        self.register_buffer("table", torch.linspace(0, 1, 8), persistent=False)
        self.register_buffer("count", torch.ones(8))
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x):
"""
FORWARD = {
    "a setting": """
        weights = (self.q(x) * self.scale) @ self.k(x).transpose(1, 2)
        return self.out(weights.softmax(-1) @ self.v(x))
""",
    "what is handed on": """
        x = x + attend(x, x, x)
        q, k, v = self.q(x), self.k(x), self.v(x)
        return self.out(attend(q, k, v))
""",
    "one of two": """
        q, k = F.elu(self.q(x)) + 1, F.elu(self.k(x)) + 1
        both = torch.einsum("bnd,bne->bde", k, self.v(x))
        return self.out(q @ both)
""",
    "groups": """
        y = self.q(x)
        y = y.view(len(y), 2, 4, -1)
        y = y - y.mean([2, 3], keepdim=True)
        return self.out(y.reshape(len(y), -1, 8))
""",
    "a table": """
        return self.out(self.q(x) * self.table.to(x.dtype))
""",
    "a backward": """
        return self.out(Turned.apply(self.q(x)))
""",
    "twins": """
        x = self.a(self.q(x)) + self.k(x)
        return self.b(x)
""",
    "parts of a tensor": """
        pairs = self.q(x).view(len(x), -1, 4, 2).exp()
        return self.out(pairs.flatten(2))
""",
    "no weight": """
        weight = x.sign()
        return self.out((self.q(x) * weight).sum(1))
""",
    "an operand of a helper": """
        one, other = self.q(x), self.k(x)
        return self.out(self.mixed(x, one, other))

    def mixed(self, x, one, other):
        y = scaled(x + other, one)
        return scaled(y, other)
""",
    "a mean": """
        h = self.q(x).sigmoid()
        penalty = 1 - 0.5 * (0.5 * torch.log(h) + 0.5 * torch.log(1 - h)).mean()
        return self.out(h) * penalty
""",
    "another form": """
        rows, columns = torch.meshgrid(torch.arange(2.0), torch.arange(4.0), indexing="ij")
        y = self.q(x) * rows.flatten()
        return self.out(y - columns.flatten())
""",
    "what is carried": """
        prior = self.q(x).sin()
        prior = (1.5 - x) * prior
        return self.out(self.weighed(self.k(x), prior))
""",
    "complex numbers": """
        a, b = self.q(x).chunk(2, -1)
        c, d = self.k(x).chunk(2, -1)
        z = torch.complex(a, b) * torch.complex(c, d)
        return self.out(torch.cat([z.real, z.imag], -1))
""",
    "neighbours": """
        y = self.q(x)
        return self.out(torch.cat([y[:, 1:], torch.zeros_like(y[:, :1])], 1))
""",
    "buffers": """
        if self.training:
            self.count.mul_(0.5)
            self.total.fill_(2.0)
        return self.out(x)
""",
}
WRONG = {
    "a setting": ("(8 // 2) ** -0.5", "8**-0.5  # wrong"),
    "what is handed on": ("attend(q, k, v))", "attend(q, v, k))  # wrong"),
    "one of two": ("F.elu(self.k(x)) + 1", "F.elu(self.k(x))  # wrong"),
    "groups": (
        "y.reshape([len(y), 2, 4, -1])\n        y = y - y.mean([2, 3]",
        "y.reshape([len(y), 4, 2, -1])  # wrong\n        y = y - y.mean([1, 3]",
    ),
    "a table": ("paddle.linspace(0, 1, 8), persistable=False)", "paddle.arange(8) / 8, persistable=False)  # wrong"),
    "a backward": ("return -gradient", "return gradient * 0.5  # wrong"),
    "twins": ("return self.b(x)", "return self.a(x)  # wrong"),
    "parts of a tensor": (
        "pairs = self.q(x).reshape([len(x), -1, 4, 2]).exp()",
        """pairs = self.q(x).reshape([len(x), -1, 4, 2])
        first = pairs[..., 0].exp()
        second = (-pairs[..., 1]).exp()  # wrong
        pairs = paddle.stack([first, second], -1)""",
    ),
    "no weight": ("weight = x.sign()", "weight = paddle.ones_like(x)  # wrong"),
    "an operand of a helper": ("return scaled(y, other)", "return scaled(y, one)  # wrong"),
    "a table of a function": (
        "class Net(nn.Layer):",
        "def ramp(count):\n    return paddle.arange(count) / count  # wrong\n\n\nclass Net(nn.Layer):",
        "paddle.linspace(0, 1, 8), persistable=False)",
        "ramp(8), persistable=False)",
    ),
    "a mean": (
        "penalty = 1 - 0.5 * (0.5 * paddle.log(h) + 0.5 * paddle.log(1 - h)).mean()",
        "both = 0.5 * paddle.log(h) + 0.5 * paddle.log(1 - h)",
        "return self.out(h) * penalty",
        "return self.out(h) * (1 - 0.1 * both.sum())  # wrong",
    ),
    "another form": (
        'rows, columns = paddle.meshgrid(paddle.arange(2.0), paddle.arange(4.0), indexing="ij")',
        "index = paddle.arange(8.0)\n        rows = index // 4\n        columns = index % 2  # wrong",
    ),
    "complex numbers": (
        """z = paddle.complex(a, b) * paddle.complex(c, d)
        return self.out(paddle.concat([z.real, z.imag], -1))""",
        """real = a * c - b * d
        other = a * d - b * c  # wrong
        return self.out(paddle.concat([real, other], -1))""",
    ),
    "neighbours": (
        """return self.out(paddle.concat([y[:, 1:], paddle.zeros_like(y[:, :1])], 1))""",
        """edge = paddle.zeros_like(y[:, :1])
        wide = paddle.concat([edge, y, edge], 1)
        near = wide[:, 1:-1]  # wrong
        return self.out(near)""",
    ),
    "what is carried": ("prior = (1.5 - x) * prior", "prior = 1.5 - x  # wrong"),
}


def report_of(folder, forward, *edits):
    text = HEAD + FORWARD[forward].lstrip("\n")
    port = in_paddle(text)
    for right, wrong in (
        (".transpose(1, 2)", ".transpose([0, 2, 1])"),
        ("paddle.autograd.Function", "paddle.autograd.PyLayer"),
        ("paddle.ones(8)", "paddle.ones([8])"),
        *edits,
    ):
        assert right in port
        port = port.replace(right, wrong)
    reference = loaded(folder / "statements_torch.py", text).Net().eval()
    port = loaded(folder / "statements_paddle.py", port).Net()
    port.eval()
    return copy_and_align(reference, port, np.random.default_rng(0).standard_normal((3, 5, 8)).astype("float32"))


@pytest.mark.parametrize("name", WRONG)
def test_a_cause_is_told_at_the_statement_that_is_wrong(tmp_path, name):
    edits = WRONG[name]
    report = report_of(tmp_path, name.removesuffix(" of a function"), *zip(edits[::2], edits[1::2], strict=True))
    assert not report.passed
    cause, *_ = report.diagnoses
    assert cause.place.code.endswith("# wrong"), str(report)


def test_buffers_are_compared_where_train_mode_does_not_run_in_float64(tmp_path):
    refused = "self.total.set_value(paddle.full([8], 2.0, 'float32'))"
    report = report_of(
        tmp_path, "buffers", ("self.count.mul_(0.5)", "self.count * 0.5"), ("self.total.fill_(2.0)", refused)
    )
    assert not report.passed
    assert "leaves its buffer `count` as it is" in report.diagnoses[0].message
