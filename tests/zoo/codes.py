"""The fifth list: for each diagnosis code a port of a few lines, its fault, and the line that mends it.

They are recorded by ``tools/record_diagnoses.py`` and shown by the page of codes; what is measured stands in the other lists. A port is
written with the line that mends it, and the edit plants the fault.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from zoo.third.planting import Edits, ThirdPair, _folder, edited

PARTS = ("layer", "code", "weights", "loss", "data", "metric")
IMAGES, SEQUENCES, VECTORS = (2, 4, 8, 8), (2, 5, 6), (8, 6)
HEADS = {
    "torch": "import numpy as np\nimport torch\nfrom torch import nn\nfrom torch.nn import functional as F\n",
    "paddle": "import numpy as np\nimport paddle\nfrom paddle import nn\nfrom paddle.nn import functional as F\n",
}
NET = """

class Net(nn.{base}):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}
"""
PLAIN = ("self.layer = nn.Linear(6, 4)", "return self.layer(x)")


@dataclass(frozen=True, kw_only=True)
class CodeFault:
    """A port whose fault one code names.

    Attributes:
        code: the diagnosis code.
        part: one of `PARTS`.
        sources: the text of the reference and of the sound port.
        edits: what reads otherwise in the wrong port.
        inputs: the shape of the input, or how many classes of numbers it is made of and their shape.
        training: whether the models are in train mode.
    """

    code: str
    part: str
    sources: Mapping[str, str]
    edits: Edits
    inputs: Sequence[int] = VECTORS
    tokens: int = 0
    training: bool = False
    where: Sequence[str] = ()
    how: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The list's name, and the code."""
        return f"codes-{self.code}"

    @property
    def family(self) -> str:
        """What the page calls the net."""
        return "of a few lines"

    def is_named(self, cause: Any) -> bool:
        """Return whether a cause has the code."""
        return cause is not None and str(cause.code) == self.code


def _net(
    code: str,
    part: str,
    torch: Sequence[str],
    paddle: Sequence[str],
    old: str,
    new: str,
    inputs: Sequence[int] = IMAGES,
    **more: Any,
) -> CodeFault:
    sides = {"torch": ("Module", torch), "paddle": ("Layer", paddle)}
    sources = {}
    for side, (base, (init, forward, *rest)) in sides.items():
        lines = [text.replace("\n", "\n        ") for text in (init, forward)]
        sources[side] = (
            HEADS[side]
            + NET.format(base=base, init=lines[0], forward=lines[1])
            + "".join(f"\n\n{one}\n" for one in rest)
        )
    # The page shows whole lines.
    line = next((one.strip() for one in sources["paddle"].splitlines() if old in one), "")
    whole = old in line and sources["paddle"].count(line) == 1
    edit = (line, line.replace(old, new)) if whole else (old, new)
    return CodeFault(code=code, part=part, sources=sources, edits=(edit,), inputs=inputs, **more)


def _layer(
    code: str,
    torch: str,
    paddle: str,
    old: str,
    new: str,
    inputs: Sequence[int] = IMAGES,
    *,
    call: str = "self.layer(x)",
    **more: Any,
) -> CodeFault:
    """A port of one layer, one of whose arguments is wrong."""
    pair = [(f"self.layer = nn.{one}", f"return {call}") for one in (torch, paddle)]
    return _net(code, "layer", *pair, old, new, inputs, **more)


def _code(
    code: str, torch: str, paddle: str, old: str, new: str, inputs: Sequence[int] = SEQUENCES, **more: Any
) -> CodeFault:
    """A port of a Linear layer and code after it, which is wrong."""
    size = inputs[-1]
    layer = "pass" if more.get("tokens") else f"self.layer = nn.Linear({size}, {size})"
    pair = [(layer, f"x = self.layer(x)\n{one}") for one in (torch, paddle)]
    return _net(code, "code", *pair, old, new, inputs, **more)


def _around(code: str, part: str, torch: str, paddle: str, old: str, new: str, **more: Any) -> CodeFault:
    """A port whose model is right, and something around it wrong."""
    return _net(code, part, (*PLAIN, torch), (*PLAIN, paddle), old, new, VECTORS, **more)


def _loss(code: str, torch: str, paddle: str, old: str, new: str) -> CodeFault:
    return _around(
        code, "loss", f"def loss(output, label):\n    {torch}", f"def loss(output, label):\n    {paddle}", old, new
    )


def _data(
    code: str,
    right: str,
    old: str,
    new: str,
    *,
    start: str = "image = random.random((3, 8, 8), dtype=np.float32)",
    label: str = "index % 4",
    count: int = 12,
    **more: Any,
) -> CodeFault:
    """Both sides have the same samples; what the port does otherwise is planted into the line ``right``."""

    def text(line: str) -> str:
        return (
            f"def data():\n    samples = []\n    for index in range({count}):\n        random = np.random.default_rng(index)\n        {start}\n"
            f"        label = {label}\n        samples.append((image, label))\n    {line}\n    return samples"
        )

    return _around(code, "data", text(right), text(right), old, new, **more)


def _metric(code: str, torch: str, old: str, new: str, paddle: str = "") -> CodeFault:
    return _around(code, "metric", torch, paddle or torch, old, new)


LAYERS = (
    _layer("activation", 'RNN(6, 5, nonlinearity="relu", batch_first=True)', 'SimpleRNN(6, 5, activation="relu")', ', activation="relu"', "", SEQUENCES, call="self.layer(x)[0]"),
    _layer("align-mode", 'Upsample(scale_factor=2, mode="bilinear")', 'Upsample(scale_factor=2, mode="bilinear")', 'mode="bilinear")', 'mode="bilinear", align_mode=1)'),
    _layer("alpha", "ELU(alpha=0.5)", "ELU(alpha=0.5)", "alpha=0.5", ""),
    _layer("bounds", "Hardtanh(-1.0, 0.5)", "Hardtanh(min=-1.0, max=0.5)", ", max=0.5", ""),
    _layer("divisor", "AvgPool2d(2, divisor_override=3)", "AvgPool2D(2, divisor_override=3)", ", divisor_override=3", ""),
    _layer("direction", "LSTM(6, 5, batch_first=True, bidirectional=True)", 'LSTM(6, 5, direction="bidirect")', ', direction="bidirect"', "", SEQUENCES, call="self.layer(x)[0]"),
    _layer("groups", "Conv2d(4, 4, 3, groups=2)", "Conv2D(4, 4, 3, groups=2)", ", groups=2", ""),
    _layer("num-heads", "MultiheadAttention(6, 3, batch_first=True)", "MultiHeadAttention(6, 3)", "(6, 3)", "(6, 2)", SEQUENCES, call="self.layer(x, x, x)"),
    _layer("stride", "Conv2d(4, 4, 3, stride=2, padding=1)", "Conv2D(4, 4, 3, stride=2, padding=1)", "stride=2, ", ""),
    _layer("layers", "LSTM(6, 5, num_layers=2, batch_first=True)", "LSTM(6, 5, num_layers=2)", ", num_layers=2", "", SEQUENCES, call="self.layer(x)[0]"),
    _layer("lower", "RReLU(0.2, 0.3)", "RReLU(0.2, 0.3)", "(0.2, 0.3)", "(upper=0.3)"),
    _layer("upper", "RReLU(0.125, 0.5)", "RReLU(0.125, 0.5)", "(0.125, 0.5)", "(0.125)"),
    _layer("norm-type", "LPPool2d(4, 2)", "LPPool2D(4, 2)", "(4, 2)", "(2, 2)"),
    _layer("normalized-shape", "LayerNorm([8, 8])", "LayerNorm([8, 8])", "([8, 8])", "(8)"),
    _layer("output-size", "AdaptiveAvgPool2d(2)", "AdaptiveAvgPool2D(2)", "(2)", "(4)"),
    _layer("projection", "LSTM(6, 5, proj_size=3, batch_first=True)", "LSTM(6, 5, proj_size=3)", ", proj_size=3", "", SEQUENCES, call="self.layer(x)[0]"),
    _layer("scale-grad-by-freq", "Embedding(12, 6, scale_grad_by_freq=True)", "Embedding(12, 6, scale_grad_by_freq=True)", ", scale_grad_by_freq=True", "", (4, 6), tokens=12),
    _layer("start-axis", "Flatten(2)", "Flatten(2)", "(2)", "(1)"),
    _layer("stop-axis", "Flatten(1, 2)", "Flatten(1, 2)", "(1, 2)", "(1)"),
    _layer("upscale-factor", "PixelShuffle(2)", "PixelShuffle(2)", "(2)", "(1)"),
    _layer("keepdim", "PairwiseDistance(keepdim=True)", "PairwiseDistance(keepdim=True)", "keepdim=True", "", call="self.layer(x, 0.5 * x)"),
    _layer("value-size", "MultiheadAttention(6, 2, vdim=6, batch_first=True)", "MultiHeadAttention(6, 2, vdim=6)", "vdim=6", "vdim=5", SEQUENCES, call="self.layer(x, x, x)"),
    _layer("key-size", "MultiheadAttention(6, 2, kdim=6, batch_first=True)", "MultiHeadAttention(6, 2, kdim=6)", "kdim=6", "kdim=5", SEQUENCES, call="self.layer(x, x, x)"),
    _layer("layer-type", "InstanceNorm2d(4)", "InstanceNorm2D(4, weight_attr=False, bias_attr=False)", "InstanceNorm2D(4, weight_attr=False, bias_attr=False)", "BatchNorm2D(4, weight_attr=False, bias_attr=False)"),
    _net("mode", "layer", ("self.layer = nn.BatchNorm2d(4)\nself.eval()", "return self.layer(x)"), ("self.layer = nn.BatchNorm2D(4)\nself.layer.eval()", "return self.layer(x)"), "self.layer.eval()", "self.layer.train()", IMAGES, how={"keep_mode": True}),
    _layer("kernel-size", "MaxPool2d(3, 2)", "MaxPool2D(3, 2)", "(3, 2)", "(2, 2)"),
    _layer("missing-dropout", "Sequential(nn.Linear(6, 6), nn.Dropout(0.5))", "Sequential(nn.Linear(6, 6), nn.Dropout(0.5))", "nn.Dropout(0.5)", "nn.Identity()", SEQUENCES, training=True),
)  # fmt: skip
CODES = (
    _code("dropout-shape", "return F.dropout1d(x, 0.5, self.training)", "return F.dropout(x, 0.5, axis=[0, 1], training=self.training)", ", axis=[0, 1]", ""),
    _code("dropout-in-eval", "return F.dropout(x, 0.5, self.training)", "return F.dropout(x, 0.5, training=self.training)", ", training=self.training", ""),
    _code("extra-dropout", "return x.tanh()", "return x.tanh()", "x.tanh()", "F.dropout(x.tanh(), 0.5, training=self.training)"),
    _net("dropout-place", "code", ("self.first, self.drop, self.second = nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 4)", "return self.second(self.drop(self.first(x)))"), ("self.first, self.drop, self.second = nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 4)", "return self.second(self.drop(self.first(x)))"), "self.second(self.drop(self.first(x)))", "self.drop(self.second(self.first(x)))", SEQUENCES),
    _code("exclusive", "return F.avg_pool1d(x, 3, 2, 1)", "return F.avg_pool1d(x, 3, 2, 1, exclusive=False)", ", exclusive=False", ""),
    _code("norm-p", "return F.normalize(x, p=1, dim=1)", "return F.normalize(x, p=1, axis=1)", "p=1, ", ""),
    _code("missing-function", "return torch.sin(x)", "return paddle.sin(x)", "paddle.sin(x)", "x"),
    _code("axis-order", "return x.permute(0, 2, 3, 1).tanh()", "return x.transpose([0, 2, 3, 1]).tanh()", "[0, 2, 3, 1]", "[0, 3, 2, 1]", IMAGES),
    _code("scaled-gradient", "return x.tanh()", "return x.tanh()", "x.tanh()", "x.tanh() * 2 - x.tanh().detach()"),
    _code("upscale-factor", "return F.pixel_shuffle(x, 2)", "return F.pixel_shuffle(x, 2)", "(x, 2)", "(x, 4)", (2, 16, 4, 4)),
    _code("shift-ratio", "n, c, h, w = x.shape\nv = x.reshape(n // 2, 2, c, h, w)\nzero = torch.zeros_like(v[:, :1])\nback, ahead = torch.cat([zero, v[:, :-1]], 1), torch.cat([v[:, 1:], zero], 1)\nreturn torch.cat([back[:, :, : c // 4], ahead[:, :, c // 4 : c // 2], v[:, :, c // 2 :]], 2).reshape(x.shape)", "return F.temporal_shift(x, 2, 0.25)", "0.25", "0.125", (4, 8, 4, 4)),
    _code("value", 'mask = torch.ones(5, 5).tril() == 0\nreturn (x @ x.transpose(1, 2)).masked_fill(mask, float("-inf")).softmax(-1)', 'mask = paddle.ones([5, 5]).tril() == 0\nreturn F.softmax((x @ x.transpose([0, 2, 1])).masked_fill(mask, -float("inf")), -1)', '-float("inf")', "-1.0"),
)  # fmt: skip
WEIGHTED = ("self.first = nn.Linear(6, 6)\nself.second = nn.Linear(6, 6)", "return self.second(self.first(x).tanh())")
WEIGHTS = (
    _net("scaled-weight", "weights", (WEIGHTED[0], WEIGHTED[1], "def after(net):\n    pass"), (*WEIGHTED, "def after(net):\n    net.second.weight.set_value(net.second.weight * 1.0)"), "* 1.0", "* 2.0", SEQUENCES),
    _net("flipped-weight", "weights", ("self.layer = nn.Conv2d(4, 4, 3)", PLAIN[1], "def after(net):\n    pass"), ("self.layer = nn.Conv2D(4, 4, 3)", PLAIN[1], "def after(net):\n    net.layer.weight.set_value(net.layer.weight.clone())"), ".clone()", ".flip([2, 3])", IMAGES),
    _net("wrong-bias", "weights", (*PLAIN, "def after(net):\n    pass"), (*PLAIN, "def after(net):\n    pass"), "    pass", "    net.layer.weight.set_value(paddle.randn([6, 4]))\n    net.layer.bias.set_value(paddle.randn([4]))", VECTORS),
    _net("tied-weights", "weights", ("self.first = nn.Linear(6, 6, bias=False)\nself.second = nn.Linear(6, 6, bias=False)\nself.second.weight = self.first.weight", WEIGHTED[1]), ("self.first = nn.Linear(6, 6, bias_attr=False)\nself.second = nn.Linear(6, 6, bias_attr=False)\nself.second.weight = self.first.weight", WEIGHTED[1]), "\n        self.second.weight = self.first.weight", "", SEQUENCES),
)  # fmt: skip
LOSSES = (
    _loss("margin", "return F.multi_margin_loss(output, label, margin=0.5)", "return F.multi_margin_loss(output, label, margin=0.5)", ", margin=0.5", ""),
    _loss("argument", "return F.cross_entropy(output, label)", 'return F.cross_entropy(output, label, reduction="mean")', '"mean"', '"none"'),
)  # fmt: skip
SEQUENCE = "image = random.integers(1, 50, 8)"
EACH = "samples = [(image, label) for image, label in samples]"
DATA = (
    _data("channels", EACH, "[(image,", "[(image[:1],"),
    _data("clipped", EACH, "[(image,", "[(np.clip(image, 0.2, 0.8),"),
    _data("inverted", EACH, "[(image,", "[(1 - image,"),
    _data("layout", EACH, "[(image,", "[(image.transpose(1, 2, 0),"),
    _data("nan", EACH, "[(image,", "[(np.where(image > 0.9, np.nan, image).astype(np.float32),"),
    _data("crop-size", EACH, "[(image,", "[(image[:, 1:-1, 1:-1],"),
    _data("size", EACH, "[(image,", "[(image[:, ::2, ::2],"),
    _data("uint8-overflow", "samples = [(image + 60, label) for image, label in samples]", "image + 60", "image.astype(np.uint8) + np.uint8(60)", start="image = random.integers(0, 256, (3, 8, 8))"),
    _data("class-order", EACH, "[(image, label)", "[(image, (2, 0, 3, 1)[label])"),
    _data("label-constant", EACH, "[(image, label)", "[(image, 0)"),
    _data("label-shift", EACH, "[(image, label)", "[(image, label + 1)"),
    _data("one-hot", EACH, "[(image, label)", "[(image, np.eye(4, dtype=np.float32)[label])"),
    _data("fields", EACH, "(image, label) for", "(image,) for"),
    _data("label-order", "labels = [label for _, label in samples]\n    samples = [(image, labels[index]) for index, (image, _) in enumerate(samples)]", "labels[index]", "labels[index - 1]", label="(index * 7 % 12) % 5"),
    _data("extra-samples", EACH, "samples]", "samples] + [(samples[0][0] / 2, 1)]"),
    _data("missing-samples", EACH, "in samples]", "in samples[1:]]"),
    _data("repeated-samples", EACH, "samples]", "samples] + samples[:2]"),
    _data("sample-order", EACH, "in samples]", "in samples[::-1]]"),
    _data("drop-last", "batches = [samples[at : at + 5] for at in range(0, 12, 5)]\n    samples = [tuple(map(np.stack, zip(*batch))) for batch in batches]", "range(0, 12, 5)", "range(0, 10, 5)"),
    _data("token-order", EACH, "[(image,", "[(image[::-1],", start=SEQUENCE),
    _data("token-shift", EACH, "[(image,", "[(image + 1,", start=SEQUENCE),
    _data("vocabulary", EACH, "[(image,", "[((image * 7) % 53,", start=SEQUENCE),
)  # fmt: skip
TOP = 'def metric(outputs, labels):\n    return {"top1": float((np.asarray(outputs).argmax(1) == np.asarray(labels)).mean())}'
METRICS = (_metric("other-metric", TOP, ".mean())", ".mean() * 100)"),)
FAULTS = (*LAYERS, *CODES, *WEIGHTS, *LOSSES, *DATA, *METRICS)


def load(side: str, text: str) -> ModuleType:
    """Import a text as a file."""
    title = f"codes_{side}_{hashlib.sha256(text.encode()).hexdigest()[:10]}"
    path = _folder() / f"{title}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(title, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[title] = module
    spec.loader.exec_module(module)
    return module


def planted(fault: CodeFault, *, sound: bool = False) -> ThirdPair:
    """Return the pair with the fault, or without."""
    import torch

    import tipchain
    from tipchain.errors import TipchainError

    theirs = load("torch", fault.sources["torch"])
    ours = load("paddle", edited(fault.sources["paddle"], () if sound else fault.edits))
    torch.manual_seed(11)
    reference, port = theirs.Net(), ours.Net()
    with suppress(TipchainError):  # where the fault is one of parameters
        tipchain.copy_weights(reference, port)
    for model in (reference, port):
        if not fault.how.get("keep_mode"):
            model.train() if fault.training else model.eval()
    if hasattr(ours, "after"):
        ours.after(port)
    random = np.random.default_rng(5)
    args = (
        random.integers(0, fault.tokens, fault.inputs)
        if fault.tokens
        else random.standard_normal(fault.inputs, dtype=np.float32)
    )

    def both(name: str) -> Any:
        return (getattr(theirs, name), getattr(ours, name)) if hasattr(ours, name) else None

    inputs: dict[str, Any] = {"args": args}
    if both("loss") or both("metric"):
        inputs["labels"] = random.integers(0, 4, fault.inputs[0])
    return ThirdPair(
        reference=reference,
        port=port,
        inputs=inputs,
        loss=both("loss"),
        optimizers=both("optimizer"),
        schedulers=both("scheduler"),
        training=fault.training,
        data=both("data"),
        metrics=both("metric"),
    )
