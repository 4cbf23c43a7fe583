"""Edits of a port's source: what they write, and where."""

import ast
from difflib import ndiff
from pathlib import Path

import pytest

pytest.importorskip("paddle")  # its names are looked up

from tipchain.explain.findings import CodeEdit, Diagnosis, SourceLine
from tipchain.explain.source_edits import PortFile
from tipchain.port.rewrites import named, of_cause, of_error

PORT = """\
import paddle
import paddle.nn.functional as F
from functools import partial


class Norm(paddle.nn.LayerNorm):
    def forward(self, x):
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class Net(paddle.nn.Layer):
    def __init__(self):
        norm = partial(paddle.nn.BatchNorm2D, eps=1e-3, momentum=0.01)
        settings = {"inplace": True, "name": None}
        self.act = paddle.nn.ReLU6(inplace=True)
        self.body = paddle.nn.Sequential(norm(8), self.act)
        self.more = self.make(inplace=True)
        self.drop = torch.nn.Dropout2d(**settings)

    def forward(self, x):
        x = F.softmax(x - self.body(x))
        x = self.attend(F.relu6(x, dim=1), need_weights=False)
        x = x.mean(1)  # kept
        x = self.power + paddle.pow(2.0, x)
        x = paddle.compat.pad(x, (0, 1)).divide_(0.8)
        x = paddle.nn.functional.linear(x, self.qkv.weight.T)
        x = x.div(self.keep) * paddle.nn.Linear(8, 8, True)(paddle.nn.Linear(8, 8, bias_attr=False))
        x = torch.nn.MultiheadAttention(8, 2)(paddle.nn.MultiHeadAttention(8, 2), x)
        x = self.more // 2
        return x / self.linear.out_features
"""
REFERENCE = PORT.replace("        x = x.mean(1)  # kept\n", "        x = x.flatten(1)\n").replace("F.softmax", "F.gelu")


NO_TORCH = "NameError: name 'torch' is not defined"


def unexpected(function, name):
    return f"TypeError: {function}() got an unexpected keyword argument '{name}'"


def lacking(kind, name):
    return f"AttributeError: '{kind}' object has no attribute '{name}'"


def no_tensor(function, name, place, found):
    return f"ValueError: (InvalidArgument) {function}(): argument '{name}' (position {place}) must be Tensor, but got {found}"


def unlike(one, other):
    return f"TypeError: (InvalidType) Type promotion only support floats. But got different data type x: {one}, y: {other}."


@pytest.fixture
def port(tmp_path):
    file = tmp_path / "port.py"
    file.write_text(PORT)
    return file


def lines_of(port, word):
    return next(number for number, line in enumerate(PORT.splitlines(), 1) if word in line)


def changed(edits):
    """Return the lines that each edit changes, as they are after it."""
    return [
        [line[2:].strip() for line in ndiff(one.before.splitlines(), one.after.splitlines()) if line.startswith("+ ")]
        for one in edits
    ]


@pytest.mark.parametrize(
    ("word", "error", "wanted"),
    [
        (
            "norm(8)",
            unexpected("_BatchNormBase.__init__", "eps"),
            "norm = partial(paddle.nn.BatchNorm2D, epsilon=0.001, momentum=0.99)",
        ),
        ("ReLU6", unexpected("ReLU6.__init__", "inplace"), "settings = {'name': None}\nself.act = paddle.nn.ReLU6()"),
        (
            "F.layer_norm",
            lacking("Norm", "normalized_shape"),
            "return F.layer_norm(x, self._normalized_shape, self.weight, self.bias, self._epsilon)",
        ),
        ("out_features", lacking("Linear", "out_features"), "return x / self.linear.weight.shape[1]"),
        ("attend", unexpected("MultiHeadAttention.forward", "need_weights"), "x = self.attend(F.relu6(x, dim=1))"),
        ("attend", unexpected("relu6", "dim"), "x = self.attend(F.relu6(x, axis=1), need_weights=False)"),
        (
            "power",
            no_tensor("elementwise_pow", "x", 0, "float"),
            "x = self.power + paddle.pow(paddle.to_tensor(2.0), x)",
        ),
        ("power", no_tensor("add", "x", 0, "float"), "x = paddle.to_tensor(self.power) + paddle.pow(2.0, x)"),
        ("F.layer_norm", "AttributeError: module 'xml' has no attribute 'dom'", "import xml.dom"),
        (
            "torch.nn",
            NO_TORCH,
            (
                "self.drop = paddle.nn.Dropout(**settings)\n"
                "x = paddle.compat.nn.MultiheadAttention(8, 2)(paddle.nn.MultiHeadAttention(8, 2), x)"
            ),
        ),
        (
            "attend",
            unexpected("MultiHeadAttention.forward", "need_weights"),
            "x = torch.nn.MultiheadAttention(8, 2)(paddle.compat.nn.MultiheadAttention(8, 2), x)",
        ),
        (
            "compat.pad",
            "TypeError: 'NoneType' object is not callable",
            "x = paddle.compat.nn.functional.pad(x, (0, 1)).divide_(0.8)",
        ),
        ("compat.pad", lacking("float", "shape"), "x = paddle.compat.pad(x, (0, 1)).divide_(paddle.to_tensor(0.8))"),
        ("power", unlike("int64", "float32"), "x = self.power.astype('float32') + paddle.pow(2.0, x)"),
        ("power", unlike("float64", "int32"), "x = self.power + paddle.pow(2.0, x).astype('float64')"),
        (
            "ReLU6",
            "TypeError: paddle.nn.ReLU6() received unexpected keyword argument 'inplace'",
            "settings = {'name': None}\nself.act = paddle.nn.ReLU6()",
        ),
        ("more //", no_tensor("floor_divide", "y", 1, "int"), "x = self.more // paddle.to_tensor(2)"),
        (
            "self.keep",
            "TypeError: <class 'bool'> cast to ParamAttr",
            "x = x.div(self.keep) * paddle.compat.nn.Linear(8, 8, True)(paddle.nn.Linear(8, 8, bias_attr=False))",
        ),
        (
            "qkv",
            "ValueError: (InvalidArgument) In operator matmul, the [2] dimension of Input(X) must be equal to the [0] of Y",
            "x = paddle.nn.functional.linear(x, self.qkv.weight)",
        ),
    ],
)
def test_a_port_that_raises_gets_the_names_of_paddle(port, word, error, wanted):
    reason = f"{port}:{lines_of(port, word)}: {error}\n  called from: {port}:3\n  in: the port (Paddle)"
    assert wanted.splitlines() in changed(of_error(reason))


@pytest.mark.parametrize(
    ("text", "error", "wanted"),
    [
        ("y = torch.tanh(x)\n", NO_TORCH, "import paddle\ny = paddle.tanh(x)\n"),
        (
            '"""A net."""\r\nimport paddle as pd\r\ny = torch.tanh(x)\r\n',
            NO_TORCH,
            '"""A net."""\r\nimport paddle\nimport paddle as pd\r\ny = paddle.tanh(x)\r\n',
        ),
        (
            "import paddle\ny = (x + y).T @ w\n",
            "ValueError: (InvalidArgument) In operator matmul, the sizes differ",
            "import paddle\ny = (x + y) @ w\n",
        ),
    ],
)
def test_what_is_written_fits_the_file(tmp_path, text, error, wanted):
    """It imports Paddle, keeps the ends of lines, and computes what it did where parentheses go."""
    file = tmp_path / "port.py"
    file.write_bytes(text.encode())
    line = text.count("\n")
    assert wanted in [one.after for one in of_error(f"{file}:{line}: {error}\n  in: the port (Paddle)")]


def test_of_an_error_that_the_table_does_not_know_nothing_is_written(port):
    assert not list(of_error(f"{port}:3: ValueError: no"))
    assert not list(of_error("no line of code at all"))
    assert not list(of_error(f"{port.parent / 'absent.py'}:3: NameError: name 'torch' is not defined"))


def cause(port, word, code, **more):
    place = SourceLine(file=str(port), line=lines_of(port, word))
    return Diagnosis(code=code, port_path="", message="", evidence="", fix="", place=place, **more)


MEAN = CodeEdit(kind="after", call="mean", written="tanh")


@pytest.mark.parametrize(
    ("word", "code", "edit", "first"),
    [
        (
            "norm(8)",
            "argument",
            CodeEdit(kind="pass", call="BatchNorm2D", arguments=(("momentum", "0.99"),)),
            "norm = partial(paddle.nn.BatchNorm2D, eps=1e-3, momentum=0.99)",
        ),
        (
            "softmax",
            "argument",
            CodeEdit(kind="pass", call="softmax", arguments=(("axis", "1"),)),
            "x = F.softmax(x - self.body(x), axis=1)",
        ),
        ("softmax", "function", CodeEdit(kind="write", call="softmax", written="gelu"), "x = F.gelu(x - self.body(x))"),
        (
            "softmax",
            "function",
            CodeEdit(kind="write", call="subtract", written="add"),
            "x = F.softmax(x + self.body(x))",
        ),
        ("x.mean", "missing-call", MEAN, "x = F.tanh(x.mean(1))  # kept"),
        (
            "softmax",
            "operand-order",
            CodeEdit(kind="order", call="subtract", order=(1, 0)),
            "x = F.softmax(self.body(x) - x)",
        ),
        (
            "self.act =",
            "structure",
            CodeEdit(kind="make", call="ReLU6", written="paddle.nn.ReLU"),
            "self.act = paddle.nn.ReLU(inplace=True)",
        ),
    ],
)
def test_a_cause_is_written_where_it_stands(port, word, code, edit, first):
    assert changed(of_cause(cause(port, word, code, edit=edit), lambda _: None))[0] == [first]


def test_a_statement_is_written_as_the_reference_has_it(port, tmp_path):
    reference = tmp_path / "reference.py"
    reference.write_text(REFERENCE)
    told = cause(
        port, "x.mean", "parting", reference_place=SourceLine(file=str(reference), line=lines_of(port, "x.mean"))
    )
    assert changed(of_cause(told, lambda file: ast.parse(Path(file).read_text()))) == [["x = x.flatten(1)  # kept"]]
    assert not list(of_cause(told, lambda _: None))


def test_a_transpose_that_paddles_linear_has_already_is_left_out(port):
    told = cause(port, "qkv", "parting")
    assert ["x = paddle.nn.functional.linear(x, self.qkv.weight)"] in changed(of_cause(told, lambda _: None))


def test_of_a_cause_without_a_place_nothing_is_written(port):
    told = Diagnosis(code="argument", port_path="", message="", evidence="", fix="", edit=MEAN)
    assert not list(of_cause(told, lambda _: None))


@pytest.mark.parametrize(
    ("text", "error", "wanted"),
    [
        (
            (
                "class Norm(paddle.nn.BatchNorm2D):\n    def __init__(self):\n"
                "        super().__init__(8, eps=1e-3, affine=False, momentum=m, track_running_stats=stats or True, own=1, device=None)\n"
            ),
            unexpected("_BatchNormBase.__init__", "eps"),
            "super().__init__(8, epsilon=0.001, weight_attr=False, bias_attr=False, momentum=1 - m, use_global_stats=None if stats or True else False, own=1)",
        ),
        (
            (
                "class Head(paddle.nn.Linear):\n    def __init__(self, kind: paddle.nn.Linear = paddle.nn.Linear):\n"
                "        kept = isinstance(self, paddle.nn.Linear), paddle.nn.Linear(2, 2, bias_attr=False)\n"
                "        self.kind = kind or paddle.nn.Linear\n        self.kind(2, 2, device=None)\n"
            ),
            "TypeError: paddle.nn.Linear() received unexpected keyword arguments 'device', 'dtype'.",
            (
                "def __init__(self, kind: paddle.nn.Linear = paddle.compat.nn.Linear):\n"
                "self.kind = kind or paddle.compat.nn.Linear"
            ),
        ),
        (
            (
                "class Norm(paddle.nn.BatchNorm2D):\n    def forward(self, x):\n        self.weight = self.other.eps\n"
                "        return self.running_mean, self.momentum if self.track_running_stats else self.num_batches_tracked\n"
            ),
            lacking("Norm", "running_mean"),
            "return self._mean, (1 - self._momentum) if (self._use_global_stats is None) else None",
        ),
        (
            "def count(m):\n    fan = m.kernel_size[0] * m.out_channels * n.groups\n    return fan // m.groups, m.weight\n",
            lacking("Conv2d", "groups"),
            "fan = m._kernel_size[0] * m._out_channels * n.groups\nreturn fan // m._groups, m.weight",
        ),
        (
            "mode = getattr(torch, 'compiler', None) or torch.float32\n",
            NO_TORCH,
            "mode = getattr(paddle, 'compiler', None) or paddle.float32",
        ),
    ],
)
def test_what_a_file_says_of_torch_is_written_in_one_edit(tmp_path, text, error, wanted):
    file = tmp_path / "port.py"
    file.write_text(f"import paddle\n{text}")
    line = len(file.read_text().splitlines())
    assert wanted.splitlines() in changed(of_error(f"{file}:{line}: {error}\n  in: the port (Paddle)"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x = torch.ones(2).cpu()\n", "import paddle\nx = paddle.ones(2).cpu()\n"),
        ("x = torch.nowhere([torch.ones(1)])\n", "import paddle\nx = torch.nowhere([paddle.ones(1)])\n"),
        ("torch = None\nx = torch.ones\n", ""),
        ("from a import torch\nx = torch.ones\n", ""),
        ("def f(torch):\n    return torch.ones\n", ""),
    ],
)
def test_names_of_torch_are_written_in_place_of_what_is_torchs(text, wanted):
    edit = named(PortFile(file=Path("port.py"), text=text, tree=ast.parse(text)))
    assert (edit.after if edit else "") == wanted


def test_the_lines_that_called_what_raised_are_edited(tmp_path):
    file = tmp_path / "port.py"
    file.write_text(
        "import paddle\n\ndef make(kind, **given):\n    return kind(8, **given)\n\nnorm = make(kind, eps=1e-3)\nother = make(kind, eps=1e-3)\n"
    )
    error = unexpected("_BatchNormBase.__init__", "eps")
    reason = f"{file}:4: {error}\n  called from: {file}:6\n  in: the port (Paddle)"
    assert ["norm = make(kind, epsilon=0.001)"] in changed(of_error(reason))
