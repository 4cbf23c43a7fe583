"""Ports that read as their references do, in Paddle's words; the ports of the other nets are files of their own."""

from __future__ import annotations

import ast
import re

INSIDE = r"((?:[^()]|\([^()]*\))*)"
"""What stands in parentheses, others among it."""
LISTED = {"view": "reshape", "reshape": "reshape", "permute": "transpose", "expand": "expand", "repeat": "tile"}
"""Methods that take a list in Paddle."""
WORDS = (
    (r"(from torch.nn import functional as F .*)", r"\1\n\nfrom zoo.planting import named_for_paddle"),
    (r"torch\.cat\(", "paddle.concat("),
    (r"torch\.sigmoid", "F.sigmoid"),
    (r"torch\.(from_numpy|tensor)\(", "paddle.to_tensor("),
    (r"torch\.optim\.lr_scheduler\.(\w+)LR\(built, ", r"paddle.optimizer.lr.\1Decay(RATE, "),
    (r"torch\.optim\.Adam\(parameters, lr=RATE", "paddle.optimizer.Adam(rate, parameters=parameters"),
    (r"nn\.ModuleList", "nn.LayerList"),
    (r"nn\.Module", "nn.Layer"),
    (r"\btorch\b", "paddle"),
    (rf"\.({'|'.join(LISTED)})\({INSIDE}\)", lambda found: f".{LISTED[found[1]]}([{found[2]}])"),
    (r"optimizer\(parameters\)", "optimizer(parameters, rate=RATE)"),
    (r"scheduler\(built\)", "scheduler()"),
    (r"zero_grad\(\)", "clear_grad()"),
    (r"\.clamp\(", ".clip("),
    (r"\.to\((\w+\.dtype)\)", r".astype(\1)"),
    (r"\bbias=False", "bias_attr=False"),
    (r"\beps=", "epsilon="),
    (r"betas=\((.*?), (.*?)\)", r"beta1=\1, beta2=\2"),
    (r"momentum=0\.01\b", "momentum=0.99"),
    (r'approximate="tanh"', "approximate=True"),
    (r"persistent=False", "persistable=False"),
    (r"batch_first=True, bidirectional=True|bidirectional=True, batch_first=True", 'direction="bidirect"'),
    (r"\b(Conv|BatchNorm|MaxPool|AvgPool|AdaptiveAvgPool)(\d)d\b", r"\1\2D"),
    (r"\bConvTranspose(\d)d\b", r"Conv\1DTranspose"),
    (rf"nn\.Parameter\((?:0\.3 \* )?paddle\.(?:zeros|ones|randn)\({INSIDE}\)\)", r"self.create_parameter([\1])"),
    (rf"paddle\.(zeros|randn)\({INSIDE}\)", r"paddle.\1([\2])"),
    (r"([\w.]+(?:\([^()]*\))?)\.softmax\(-1\)", r"F.softmax(\1, -1)"),
    (r"\b(\w+)\.sigmoid\(\)", r"F.sigmoid(\1)"),
)
"""Patterns of the reference's text, and what stands in the port for each."""
KEPT = {
    "bert": ("words.", "positions.", "kinds."),
    "crnn": ("rnn.",),
    "dlrm": ("fields.", "tags.", "ages."),
    "translate": ("source.", "target."),
}
"""Matrices that are not transposed."""

# fmt: off
OWN = {
    "bert": (
        "    def forward(self, x, mask):\n        size, count, _ = x.shape\n",
        ("    def split_heads(self, y):\n        return y.reshape([y.shape[0], y.shape[1], HEADS, -1]).transpose([0, 2, 1, 3])\n\n"
        "    def forward(self, x, mask):\n"),
        "one(x).reshape([size, count, HEADS, -1]).transpose(1, 2) for", "self.split_heads(one(x)) for",
        "q @ k.transpose(-2, -1)", "paddle.matmul(q, k, transpose_y=True)",
        'scores.masked_fill(~mask[:, None, None, :], float("-inf"))',
        'paddle.where(mask.unsqueeze([1, 2]), scores, paddle.full_like(scores, float("-inf")))',
        "self.dropout(F.softmax(scores, -1)) @ v", "paddle.matmul(self.dropout(F.softmax(scores, -1)), v)",
        "y.transpose(1, 2).reshape([size, count, WIDTH])", "y.transpose([0, 2, 1, 3]).reshape(x.shape)",
        "mask.cumsum(1) * mask", 'paddle.cumsum(mask.astype("int64"), 1) * mask.astype("int64")',
        "F.linear(F.gelu(self.transform(x), approximate=True), self.words.weight, self.bias)",
        "paddle.matmul(F.gelu(self.transform(x), True), self.words.weight, transpose_y=True) + self.bias",
        "    masked = F.cross_entropy(words.reshape([-1, VOCAB]), labels[0].reshape([-1]), ignore_index=-100)\n",
        ("    wanted = labels[0].reshape([-1])\n"
        '    masked = F.cross_entropy(words.reshape([-1, VOCAB]), wanted, ignore_index=-100, reduction="sum")\n'
        "    masked = masked / (wanted != -100).astype(masked.dtype).sum()\n"),
        ("    groups = [\n"
        '        {"params": [one for one in parameters if one.ndim > 1], "weight_decay": 0.1},\n'
        '        {"params": [one for one in parameters if one.ndim <= 1], "weight_decay": 0.0},\n'
        "    ]\n"
        "    return paddle.optim.AdamW(groups, lr=0.01, beta1=0.9, beta2=0.98, epsilon=1e-6)"),
        ("    decayed = {one.name for one in parameters if one.ndim > 1}\n"
        "    return paddle.optimizer.AdamW(\n"
        "        rate,\n"
        "        parameters=parameters,\n"
        "        beta1=0.9,\n"
        "        beta2=0.98,\n"
        "        epsilon=1e-6,\n"
        "        weight_decay=0.1,\n"
        "        apply_decay_param_fun=lambda name: name in decayed,\n"
        "        grad_clip=paddle.nn.ClipGradByGlobalNorm(0.5),\n"
        "    )"),
        "def clip(parameters):\n    return paddle.nn.utils.clip_grad_norm_(parameters, 0.5)\n\n\n", "",
    ),
    "crnn": (
        ("    logs = outputs.transpose(0, 1).log_softmax(2)\n"
        "    times = paddle.full((outputs.shape[0],), outputs.shape[1], dtype=paddle.int64)\n"
        "    return F.ctc_loss(logs, targets, times, lengths, blank=0)\n"),
        ("    logits = outputs.transpose([1, 0, 2])\n"
        '    times = paddle.full([outputs.shape[0]], outputs.shape[1], dtype="int64")\n'
        '    return F.ctc_loss(logits, targets.astype("int32"), times, lengths, blank=0, reduction="mean")\n'),
    ),
    "dlrm": (
        "paddle.to_tensor(SIZES)", 'paddle.to_tensor(SIZES, dtype="int64")',
        "paddle.to_tensor((0, *SIZES[:-1]))", 'paddle.to_tensor((0, *SIZES[:-1]), dtype="int64")',
        "features @ features.transpose(1, 2)", "paddle.matmul(features, features, transpose_y=True)",
        "paddle.optim.Adagrad(parameters, lr=0.05, epsilon=1e-10)",
        "paddle.optimizer.Adagrad(rate, epsilon=1e-10, parameters=parameters)",
    ),
    "efficient": (
        "nn.AvgPool2D(3, stride, padding=1)", "nn.AvgPool2D(3, stride, padding=1, exclusive=False)",
        "self.expand([x])", "self.expand(x)",
        "(0, 1, 0, 1) if self.stride > 1 else (1, 1, 1, 1)", "[0, 1, 0, 1] if self.stride > 1 else [1, 1, 1, 1]",
        "paddle.split(x, 2, dim=1)", "paddle.split(x, 8, axis=1)",
        "paddle.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-2)",
        "paddle.optimizer.Momentum(rate, momentum=0.9, parameters=parameters, weight_decay=1e-2)",
        "Image.Resampling.BILINEAR", "Image.BILINEAR",
        ".transpose(2, 0, 1).copy()", ".transpose([2, 0, 1]).copy()",
    ),
    "fcos": (
        ', indexing="ij"', "",
        "quality.max(-1)[0].topk(BEST, dim=1)", "quality.max(-1).topk(BEST, axis=1)",
        "boxes.gather(1, index.unsqueeze(-1).expand([-1, -1, 4]))",
        "paddle.take_along_axis(boxes, index.unsqueeze(-1).expand([-1, -1, 4]), 1)",
        ".astype(scores.dtype) * positive.unsqueeze(-1)\n",
        ".astype(scores.dtype) * positive.unsqueeze(-1).astype(scores.dtype)\n",
        "positive.sum().clip(min=1)", "positive.astype(scores.dtype).sum().clip(min=1)",
        "beta=0.5)", "delta=0.5) / 0.5",
        "if one.ndim > 1]}", 'if one.ndim > 1], "weight_decay": 1e-2}',
        '"lr": 0.02', '"learning_rate": 2.0',
        "paddle.optim.SGD(groups, lr=0.01, momentum=0.9, weight_decay=1e-2, nesterov=True)",
        "paddle.optimizer.Momentum(rate, momentum=0.9, parameters=groups, use_nesterov=True)",
    ),
    "gan": (
        "self.create_parameter([outputs, inputs])", "self.create_parameter([inputs, outputs])",
        "math.sqrt(self.weight.shape[1])", "math.sqrt(self.weight.shape[0])",
        "(1, 1, 1, 1)", "[1, 1, 1, 1]",
        "self.average.copy_(w.mean(0).lerp(self.average, 0.9))",
        "self.average.set_value(w.mean(0) * 0.1 + self.average * 0.9)",
        "kernel[:, None] * kernel[None]", "kernel.unsqueeze(1) * kernel.unsqueeze(0)",
        "self.slow[name].mul_(decay).add_(one, alpha=1 - decay)",
        "self.slow[name].set_value(self.slow[name] * decay + one * (1 - decay))",
    ),
    "stereo": (
        "rows = []", "rows, width = [], right.shape[-1]",
        "F.pad(right, (number, 0))[..., : right.shape[-1]]", "F.pad(right, [number, 0, 0, 0])[..., :width]",
        "            both[..., :number] = 0\n            rows.append(both)\n",
        "            kept = (paddle.arange(width) >= number).astype(both.dtype)\n            rows.append(both * kept)\n",
        "    kept = (labels > 0) & (labels < 2 * SHIFTS)\n    values",
        "    kept = paddle.logical_and(labels > 0, labels < 2 * SHIFTS)\n    values",
    ),
    "translate": (
        "F.softmax(scores.masked_fill(mask == 0, -1e9), -1)",
        "F.softmax(paddle.where(mask, scores, paddle.full_like(scores, -1e9)), -1)",
        "paddle.arange(source.shape[1])[None] < lengths[:, None]",
        "paddle.arange(source.shape[1]).unsqueeze(0) < lengths.unsqueeze(1)",
        "words.scatter_add(1, source, (1 - own) * weights)",
        'paddle.put_along_axis(words, source, (1 - own) * weights, 1, reduce="add")',
        "    return F.nll_loss(outputs.reshape([-1, VOCAB]), labels.reshape([-1]), ignore_index=0)\n",
        ("    kept = (labels != 0).astype(outputs.dtype)\n"
        "    chosen = paddle.take_along_axis(outputs, labels.unsqueeze(-1), -1).squeeze(-1)\n"
        "    return -(chosen * kept).sum() / kept.sum()\n"),
    ),
    "vae": (".sum((1, 2, 3))", ".sum([1, 2, 3])"),
    "vitrel": (
        "q @ k.transpose(-2, -1)", "paddle.matmul(q, k, transpose_y=True)",
        "self.table[self.index.reshape([-1])]", "paddle.gather(self.table, self.index.reshape([-1]))",
        "(scores + near[None]).softmax(-1)", "F.softmax(scores + near.unsqueeze(0), -1)",
        "(weights @ v).transpose(1, 2)", "paddle.matmul(weights, v).transpose([0, 2, 1, 3])",
        ".flatten(2).transpose(1, 2)", ".flatten(2).transpose([0, 2, 1])",
        ("    return paddle.optim.AdamW(\n"
        '        [{"params": decayed, "weight_decay": 0.5}, {"params": kept, "weight_decay": 0.0}], lr=1e-3, '
        "beta1=0.9, beta2=0.999\n"),
        ("    return paddle.optimizer.AdamW(\n"
        "        rate,\n        beta1=0.9,\n        beta2=0.999,\n"
        '        parameters=[{"params": decayed, "weight_decay": 0.5}, {"params": kept, "weight_decay": 0.0}],\n'),
        "    warm = paddle.optimizer.lr.LinearDecay(1e-3, start_factor=0.1, total_iters=2)\n", "",
        "SequentialDecay(1e-3, [warm, cosine], milestones=[2])",
        "LinearWarmup(cosine, warmup_steps=2, start_lr=1e-4, end_lr=1e-3)",
    ),
}
"""Texts after that, each with the one that stands in the port for it."""
# fmt: on


def translated(source: str, family: str) -> str:
    """Return the reference's text in Paddle's words: without its samples, and with what converts weights for its batch."""
    lines = source.splitlines(keepends=True)
    kept = f", kept={KEPT[family]}".replace("'", '"') if family in KEPT else ""
    convert = f"def convert(values):\n    return named_for_paddle(values{kept})\n"
    for node in reversed(ast.parse(source).body):
        if getattr(node, "name", None) in ("batch", "samples"):
            lines[node.lineno - 1 : node.end_lineno] = [convert if node.name == "batch" else ""]
    text = "".join(lines)
    rate = re.search(r"\blr=([\de.-]+)", text)[1]
    return in_paddle(text.replace(f"lr={rate}", "lr=RATE")).replace("RATE", rate)


def in_paddle(text: str) -> str:
    """Return a text of torch in Paddle's words."""
    for pattern, words in WORDS:
        text = re.sub(pattern, words, text)
    return text
