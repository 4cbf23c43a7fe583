"""The equal pairs of the fourth zoo: as they are, and with ports that say the same in other words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from zoo.fourth.planting import FAMILIES, pair
from zoo.third.planting import Edits, ThirdPair

EVERYTHING = {
    "retina": ("updates", "data"),
    "deeplab": ("updates", "data", "metrics"),
    "crnn": ("updates", "data", "metrics"),
    "tts": ("updates",),
    "pix2pix": ("updates", "data"),
    "din": ("updates", "data", "metrics"),
    "diffusion": ("updates", "data"),
    "vitrel": ("updates", "data", "metrics"),
    "retention": ("updates", "data", "metrics"),
    "vae": ("updates", "data"),
    "arcface": ("updates", "data", "metrics"),
    "stereo": ("updates", "data", "metrics"),
}
"""What a family has beside a model and a loss."""


@dataclass(frozen=True, kw_only=True)
class FourthClean:
    """A pair that must pass: what reads otherwise in its files means the same."""

    id: str
    port_edits: Edits = ()
    reference_edits: Edits = ()
    how: Mapping[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> str:
        """The net."""
        return self.id.split("-")[0]

    def build(self, *, double: bool = False) -> ThirdPair:
        """Return the pair; a recurrent layer of Paddle's has gradients in train mode alone."""
        how = {"training": self.family == "crnn"} | dict(self.how)
        return pair(self.family, port_edits=self.port_edits, reference_edits=self.reference_edits, double=double, **how)


def _port(name: str, *edits: tuple[str, str], **how: Any) -> FourthClean:
    return FourthClean(id=name, port_edits=edits, how=how)


def _reference(name: str, *edits: tuple[str, str], **how: Any) -> FourthClean:
    return FourthClean(id=name, reference_edits=edits, how=how)


CONVERTED = "return named_for_paddle(values)"

AS_THEY_ARE = tuple(
    FourthClean(id=f"{family}-trained", how=dict.fromkeys(("training", *EVERYTHING[family]), True))
    for family in FAMILIES
)

VARIED = (
    _port(
        "retina-anchors-anew",
        ('self.register_buffer("anchors", paddle.to_tensor(make_anchors()), persistable=False)', "self.boxes = make_anchors()"),
        ("        centre = deltas[..., :2] * 0.1 * self.anchors[:, 2:] + self.anchors[:, :2]", "        anchors = paddle.to_tensor(self.boxes, dtype=deltas.dtype)\n        centre = deltas[..., :2] * 0.1 * anchors[:, 2:] + anchors[:, :2]"),
        ("* 0.2) * self.anchors[:, 2:]", "* 0.2) * anchors[:, 2:]"),
    ),
    _port("retina-log-sigmoid", ('entropy = F.binary_cross_entropy_with_logits(scores, onehot, reduction="none")', "entropy = -(onehot * F.log_sigmoid(scores) + (1 - onehot) * F.log_sigmoid(-scores))")),
    _port("retina-flattened", ("score.transpose([0, 2, 3, 1]).reshape(", "score.flatten(2).transpose([0, 2, 1]).reshape(")),
    _port("retina-zipped", ("for number, x in enumerate(levels):", "for x, scale in zip(levels, self.scales):"), ("self.scales[number]", "scale")),
    _port("deeplab-relu-layers", ("        self.bn = nn.BatchNorm2D(outputs)\n", "        self.bn = nn.BatchNorm2D(outputs)\n        self.act = nn.ReLU()\n"), ("return F.relu(self.bn(self.conv(x)))", "return self.act(self.bn(self.conv(x)))")),
    _port("deeplab-relu-in-place", ("return F.relu(self.bn(self.conv(x)))", "return F.relu_(self.bn(self.conv(x)))")),
    _port("deeplab-pool-layer", ("        self.project = ConvBN(inputs, outputs, 1)\n\n", "        self.pool = nn.AdaptiveAvgPool2D(1)\n        self.project = ConvBN(inputs, outputs, 1)\n\n"), ("x.mean([2, 3], keepdim=True)", "self.pool(x)")),
    _port("deeplab-classes-last", ("F.cross_entropy(outputs, labels.unsqueeze(1), weight=weight, ignore_index=IGNORED, axis=1)", "F.cross_entropy(outputs.transpose([0, 2, 3, 1]), labels, weight=weight, ignore_index=IGNORED)")),
    _port("deeplab-nested", ("class DeepLab(nn.Layer):", "class Whole(nn.Layer):\n    def __init__(self):\n        super().__init__()\n        self.net = DeepLab()\n\n    def forward(self, x):\n        return self.net(x)\n\n\nclass DeepLab(nn.Layer):"), ("return DeepLab()", "return Whole()"), (CONVERTED, 'return {f"net.{k}": v for k, v in named_for_paddle(values).items()}')),
    _port("crnn-functions", ("        self.pool1 = nn.MaxPool2D(2)\n", ""), ("self.pool1(self.unit1(x))", "F.max_pool2d(self.unit1(x), 2)"), ("self.down(self.pool(x))", "self.down(x.mean([2, 3], keepdim=True))"), ("        self.pool = nn.AdaptiveAvgPool2D(1)\n", "")),
    _port("crnn-hardswish-written", ("        self.act = nn.Hardswish()\n", ""), ("        return self.act(self.bn(self.conv(x)))", "        x = self.bn(self.conv(x))\n        return x * F.relu6(x + 3) / 6")),
    _port("tts-einsum", ("paddle.matmul(q, k, transpose_y=True) / math.sqrt(WIDTH // HEADS)", 'paddle.einsum("bhqd,bhkd->bhqk", q / math.sqrt(WIDTH // HEADS), k)')),
    _port("tts-added-mask", ("scores = masked_fill(scores, mask.unsqueeze([1, 2]), -1e9)", "scores = scores - 1e9 * mask.unsqueeze([1, 2]).astype(scores.dtype)")),
    _port("tts-gather-by-product", ("paddle.take_along_axis(x, index, 1)", "paddle.matmul(F.one_hot(index[..., 0], x.shape[1]).astype(x.dtype), x)")),
    _port(
        "tts-linear-for-conv",
        ("self.conv2 = nn.Conv1D(24, WIDTH, 1)", "self.conv2 = nn.Linear(24, WIDTH)"),
        ("y = self.conv2(F.relu(self.conv1(x.transpose([0, 2, 1])))).transpose([0, 2, 1])", "y = self.conv2(F.relu(self.conv1(x.transpose([0, 2, 1]))).transpose([0, 2, 1]))"),
        ('return named_for_paddle(values, kept=("embed.",))', 'named = named_for_paddle(values, kept=("embed.",))\n    return {k: v[..., 0].T if v.ndim == 3 and v.shape[1:] == (24, 1) else v for k, v in named.items()}'),
    ),
    _port(
        "pix2pix-padding-mode",
        ('        self.pad1 = nn.Pad2D(1, mode="reflect")\n        self.conv1 = nn.Conv2D(channels, channels, 3)', '        self.conv1 = nn.Conv2D(channels, channels, 3, padding=1, padding_mode="reflect")'),
        ("self.conv1(self.pad1(x))", "self.conv1(x)"),
    ),
    _port("pix2pix-pad-function", ('        self.tail_pad = nn.Pad2D(2, mode="reflect")\n', ""), ("self.tail(self.tail_pad(x))", 'self.tail(F.pad(x, [2, 2, 2, 2], mode="reflect"))')),
    _port("pix2pix-leaky-written", ("F.leaky_relu(self.norm(self.conv2(x)), 0.2)", "self.norm(self.conv2(x))\n        x = paddle.maximum(x, 0.2 * x)")),
    _port("pix2pix-norm-function", ("        self.up_norm = instance_norm(8)\n", ""), ("self.up_norm(self.up(x))", "F.instance_norm(self.up(x))")),
    _port("din-softplus", ("F.binary_cross_entropy_with_logits(outputs, labels, pos_weight=weight)", "(weight * labels * F.softplus(-outputs) + (1 - labels) * F.softplus(outputs)).mean()")),
    _port("din-tiled", ("target.unsqueeze(1).expand_as(history)", "paddle.tile(target.unsqueeze(1), [1, history.shape[1], 1])")),
    _port("din-declared-otherwise", ("        self.deep = Deep()\n        self.wide = Wide()\n", ""), ("        self.item = nn.Embedding(ITEMS", "        self.wide = Wide()\n        self.deep = Deep()\n        self.item = nn.Embedding(ITEMS"), updates=True),
    _port("din-weighted-product", ("(scores.unsqueeze(-1) * history).sum(1)", "paddle.matmul(scores.unsqueeze(1), history).squeeze(1)")),
    _port("diffusion-conv-pads", ("channels, channels, 3, stride=2)", "channels, channels, 3, stride=2, padding=[0, 1, 0, 1])"), ("self.conv(F.pad(x, [0, 1, 0, 1]))", "self.conv(x)")),
    _port("diffusion-silu-written", ("class Residual(nn.Layer):", "def swish(x):\n    return x * F.sigmoid(x)\n\n\nclass Residual(nn.Layer):"), ("self.conv1(F.silu(self.norm1(x)))", "self.conv1(swish(self.norm1(x)))")),
    _port(
        "diffusion-three-projections",
        ("        self.qkv = nn.Linear(channels, 3 * channels)\n", "        self.query = nn.Linear(channels, channels)\n        self.key = nn.Linear(channels, channels)\n        self.value = nn.Linear(channels, channels)\n"),
        ("        y = self.qkv(y).reshape([size, -1, 3, self.heads, channels // self.heads]).transpose([2, 0, 3, 1, 4])\n", "        shape = [size, -1, self.heads, channels // self.heads]\n        y = [one(y).reshape(shape).transpose([0, 2, 1, 3]) for one in (self.query, self.key, self.value)]\n"),
        (
            CONVERTED,
            'named = named_for_paddle(values)\n    for part in ("weight", "bias"):\n        whole = named.pop(f"attention.qkv.{part}")\n        for number, name in enumerate(("query", "key", "value")):\n            named[f"attention.{name}.{part}"] = whole[..., 16 * number : 16 * (number + 1)]\n    return named',
        ),
    ),
    _port("diffusion-repeated", ('F.interpolate(x, scale_factor=2.0, mode="nearest")', "x.repeat_interleave(2, 2).repeat_interleave(2, 3)")),
    _port("diffusion-in-place", ("y = y + self.time(F.silu(time)).unsqueeze([2, 3])", "y.add_(self.time(F.silu(time)).unsqueeze([2, 3]))")),
    _reference("diffusion-fused-attention", ("        weight = (y[0] @ y[1].transpose(-2, -1) * (channels // self.heads) ** -0.5).softmax(-1)\n        y = (weight @ y[2])", "        y = F.scaled_dot_product_attention(y[0], y[1], y[2])")),
    _port("vitrel-indexed", ("paddle.gather(self.table, self.index.reshape([-1])).reshape([count, count, HEADS])", "self.table[self.index]")),
    _port("vitrel-sequential", ("nn.LayerList([Block(0.2) for _ in range(2)])", "nn.Sequential(*[Block(0.2) for _ in range(2)])"), ("        for block in self.blocks:\n            x = block(x)\n", "        x = self.blocks(x)\n")),
    _port("vitrel-smoothed-labels", ("F.cross_entropy(outputs, labels, label_smoothing=0.1)", "F.cross_entropy(outputs, F.label_smooth(F.one_hot(labels, CLASSES).astype(outputs.dtype), epsilon=0.1), soft_label=True)")),
    _port("vitrel-added-bias", ("F.linear(x, self.qkv.weight, bias)", "(self.qkv(x) + bias)")),
    _port("retention-divided", ("x * paddle.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)", "x / paddle.sqrt((x * x).mean(-1, keepdim=True) + self.eps)")),
    _port("retention-lower-triangle", ("paddle.exp(apart * self.decay.reshape([-1, 1, 1])) * (apart >= 0).astype(apart.dtype)", "paddle.tril(paddle.exp(apart * self.decay.reshape([-1, 1, 1])))")),
    _port(
        "retention-fused-projections",
        ("        self.q_proj = nn.Linear(WIDTH, WIDTH, bias_attr=False)\n        self.k_proj = nn.Linear(WIDTH, WIDTH, bias_attr=False)\n", "        self.qk_proj = nn.Linear(WIDTH, 2 * WIDTH, bias_attr=False)\n"),
        ("        q = self.q_proj(x).reshape", "        both = self.qk_proj(x)\n        q = both[..., :WIDTH].reshape"),
        ("self.k_proj(x).reshape", "both[..., WIDTH:].reshape"),
        (
            'return named_for_paddle(values, kept=("embed.",))',
            'named = named_for_paddle(values, kept=("embed.",))\n    for number in range(2):\n        stem = f"blocks.{number}.retention."\n        halves = [named.pop(f"{stem}{one}_proj.weight") for one in "qk"]\n        named[f"{stem}qk_proj.weight"] = np.concatenate(halves, 1)\n    return named',
        ),
    ),
    _port("vae-softplus", ('F.binary_cross_entropy_with_logits(scores, labels, reduction="none")', "(F.softplus(scores) - labels * scores)")),
    _port(
        "vae-sequential",
        ("        self.conv1 = nn.Conv2D(1, 6, 4, stride=2, padding=1)\n        self.bn1 = nn.BatchNorm2D(6)\n        self.conv2 = nn.Conv2D(6, 8, 4, stride=2, padding=1)\n        self.bn2 = nn.BatchNorm2D(8)\n", "        self.body = nn.Sequential(\n            nn.Conv2D(1, 6, 4, stride=2, padding=1), nn.BatchNorm2D(6), nn.LeakyReLU(0.01),\n            nn.Conv2D(6, 8, 4, stride=2, padding=1), nn.BatchNorm2D(8), nn.LeakyReLU(0.01),\n        )\n"),
        ("        x = F.leaky_relu(self.bn1(self.conv1(x)), 0.01)\n        x = F.leaky_relu(self.bn2(self.conv2(x)), 0.01)\n", "        x = self.body(x)\n"),
        (CONVERTED, 'return named_for_paddle(values, renames={"encoder.conv1": "encoder.body.0", "encoder.bn1": "encoder.body.1", "encoder.conv2": "encoder.body.3", "encoder.bn2": "encoder.body.4"})'),
    ),
    _port("vae-sliced", ("mean, logvar = self.fc(x.flatten(1)).chunk(2, -1)\n", "both = self.fc(paddle.reshape(x, [x.shape[0], -1]))\n        mean, logvar = both[:, :LATENT], both[:, LATENT:]\n"), ("mean + noise * paddle.exp(0.5 * logvar)", "noise * paddle.sqrt(paddle.exp(logvar)) + mean")),
    _port("arcface-divided", ("F.linear(F.normalize(x, axis=1), F.normalize(self.weight, axis=0))", "paddle.matmul(x / x.norm(p=2, axis=1, keepdim=True), self.weight / self.weight.norm(p=2, axis=0, keepdim=True))")),
    _port("arcface-pool-function", (".mean([2, 3]).pow(1.0 / self.p)", ".mean(-1).mean(-1) ** (1.0 / self.p)")),
    _port("arcface-chosen", ("scale * (onehot * phi + (1 - onehot) * cosine)", "scale * paddle.where(onehot > 0, phi, cosine)")),
    _port("stereo-renamed", ("self.features = Features()", "self.extractor = Features()"), ("self.features(left), self.features(right)", "self.extractor(left), self.extractor(right)"), (CONVERTED, 'return named_for_paddle(values, renames={"features.": "extractor."})')),
    _port("stereo-joined-zeros", ("rows.append(both * kept)", "rows.append(paddle.concat([paddle.zeros_like(both[..., :number]), both[..., number:]], -1) if number else both)"), ("            kept = (paddle.arange(width) >= number).astype(both.dtype)\n", "")),
    _port("stereo-one-batch", ("self.volume(self.shift(self.features(left), self.features(right)))", "self.volume(self.shift(*self.features(paddle.concat([left, right], 0)).chunk(2, 0)))")),
    _port("stereo-mean-by-mask", ("[F.smooth_l1_loss(one[kept], labels[kept]) for one in outputs]", '[(F.smooth_l1_loss(one, labels, reduction="none") * kept.astype(one.dtype)).sum() / kept.astype(one.dtype).sum() for one in outputs]')),
)  # fmt: skip

FOURTH_CLEAN = (*AS_THEY_ARE, *VARIED)
