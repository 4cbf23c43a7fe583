"""Pairs that are equal: each net with all it is trained with, and ports that say the same in other words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from zoo.planting import FAMILIES, Edits, Pair, pair, source_of


@dataclass(frozen=True, kw_only=True)
class Equal:
    """A pair that must pass: what reads otherwise in its files means the same."""

    id: str
    port_edits: Edits = ()
    reference_edits: Edits = ()
    how: Mapping[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> str:
        """The net."""
        return self.id.partition("-")[0]

    def build(self) -> Pair:
        """Return the pair."""
        return pair(self.family, port_edits=self.port_edits, reference_edits=self.reference_edits, **self.how)


def _port(name: str, *texts: str, **how: Any) -> Equal:
    return Equal(id=name, port_edits=tuple(zip(texts[::2], texts[1::2], strict=True)), how=how)


def _reference(name: str, *texts: str, **how: Any) -> Equal:
    return Equal(id=name, reference_edits=tuple(zip(texts[::2], texts[1::2], strict=True)), how=how)


def _as_it_is(family: str) -> Equal:
    source = source_of(f"{family}_paddle")
    return _port(
        f"{family}-trained",
        training=True,
        updates=True,
        data="def transform(" in source,
        metrics="def metric(" in source,
    )


AS_THEY_ARE = tuple(map(_as_it_is, FAMILIES))

# fmt: off
VARIED = (
    _port("unet-up-to-a-size",
          "F.interpolate(x, scale_factor=2,", "F.interpolate(x, size=[2 * x.shape[2], 2 * x.shape[3]],", loss=False),
    _reference("unet-pools-by-function",
          "self.enc2(self.pool(x1))", "self.enc2(F.max_pool2d(x1, 2))",
          "self.enc3(self.pool(x2))", "self.enc3(F.max_pool2d(x2, 2))",
          "        self.pool = nn.MaxPool2d(2, stride=2)\n", "", loss=False, training=True),
    _port("vqvae-copies-buffers-in-place",
          "self.cluster_size.set_value(size)", "paddle.assign(size, self.cluster_size)", training=True, updates=True),
    _port("video-one-peephole",
          "        self.w_ci = self.create_parameter([hidden, size, size])\n"
          "        self.w_cf = self.create_parameter([hidden, size, size])\n"
          "        self.w_co = self.create_parameter([hidden, size, size])\n",
          "        self.peephole = self.create_parameter([3, hidden, size, size])\n",
          "self.w_ci * c", "self.peephole[0] * c",
          "self.w_cf * c", "self.peephole[1] * c",
          "self.w_co * c_next", "self.peephole[2] * c_next",
          '            weights[cell + "w_ci"], weights[cell + "w_cf"], weights[cell + "w_co"] = value\n',
          '            weights[cell + "peephole"] = value\n', training=True, updates=True),
    _port("video-grid-kept",
          "        grid_y, grid_x = paddle.meshgrid(paddle.arange(h, dtype=img.dtype), paddle.arange(w, "
          "dtype=img.dtype))\n",
          '        if getattr(self, "grid", None) is None or self.grid[0].dtype != img.dtype:\n'
          "            self.grid = paddle.meshgrid(paddle.arange(h, dtype=img.dtype), paddle.arange(w, "
          "dtype=img.dtype))\n"
          "        grid_y, grid_x = self.grid\n"),
    _port("vqvae-one-relu-for-both",
          "            nn.ReLU(), nn.Conv2D(dim, dim // 2, 3, padding=1), nn.ReLU(), nn.Conv2D(dim // 2, dim, 1)\n",
          "            (act := nn.ReLU()), nn.Conv2D(dim, dim // 2, 3, padding=1), act, nn.Conv2D(dim // 2, dim, 1)\n"),
    _port("crnn-functions",
          "        self.pool1 = nn.MaxPool2D(2)\n", "",
          "self.pool1(self.unit1(x))", "F.max_pool2d(self.unit1(x), 2)",
          "self.down(self.pool(x))", "self.down(x.mean([2, 3], keepdim=True))",
          "        self.pool = nn.AdaptiveAvgPool2D(1)\n", ""),
    _port("vitrel-smoothed-labels",
          "F.cross_entropy(outputs, labels, label_smoothing=0.1)",
          "F.cross_entropy(outputs, F.label_smooth(F.one_hot(labels, CLASSES).astype(outputs.dtype), "
          "epsilon=0.1), soft_label=True)"),
    _port("vitrel-added-bias",
          "F.linear(x, self.qkv.weight, bias)", "(self.qkv(x) + bias)"),
    _port("stereo-renamed",
          "self.features = Features()", "self.extractor = Features()",
          "self.features(left), self.features(right)", "self.extractor(left), self.extractor(right)",
          "return named_for_paddle(values)", 'return named_for_paddle(values, renames={"features.": "extractor."})'),
    _port("stereo-mean-by-mask",
          "[F.smooth_l1_loss(one[kept], labels[kept]) for one in outputs]",
          '[(F.smooth_l1_loss(one, labels, reduction="none") * kept.astype(one.dtype)).sum() / '
          "kept.astype(one.dtype).sum() for one in outputs]"),
    _port("efficient-hardsigmoid-written",
          "F.hardsigmoid(y)", "F.relu6(y + 3) / 6"),
    _port("efficient-accumulated", updates=True, step=True),
    _port("bert-added-mask",
          'paddle.where(mask.unsqueeze([1, 2]), scores, paddle.full_like(scores, float("-inf")))',
          "scores + (1 - mask.unsqueeze([1, 2]).astype(scores.dtype)) * -1e9"),
    _port("fcos-index-sample",
          "paddle.take_along_axis(boxes, index.unsqueeze(-1).expand([-1, -1, 4]), 1)",
          "paddle.stack([paddle.gather(one, where) for one, where in zip(boxes, index)])"),
    _port("gan-one-critic",
          "        return fake, self.critic(fake), self.critic(real), self.critic(fake.detach())",
          "        cut = self.critic(fake.detach())\n        return fake, self.critic(fake), self.critic(real), cut"),
    _port("dlrm-masked-pairs",
          "rows, columns = paddle.tril_indices(6, 6, offset=-1)",
          "rows, columns = paddle.nonzero(paddle.tril(paddle.ones([6, 6]), -1)).transpose([1, 0])"),
)
# fmt: on

CLEAN = (*AS_THEY_ARE, *VARIED)
