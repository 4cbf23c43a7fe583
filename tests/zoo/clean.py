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
    _port("wavenet-pads-and-cuts",
          "kernel_size, dilation=dilation)", "kernel_size, dilation=dilation, padding=(kernel_size - 1) * dilation)",
          '        x = F.pad(x, [self.pad, 0], data_format="NCL")\n        return self.conv(x)',
          "        return self.conv(x)[:, :, : x.shape[2]]"),
    _port("wavenet-embeds-by-one-hot",
          "self.embedding(self.encode(audio))",
          "paddle.matmul(F.one_hot(self.encode(audio), self.classes).astype(audio.dtype), self.embedding.weight)",
          loss=False),
    _port("graph-scatters-by-matrix",
          "paddle.index_add(paddle.zeros_like(h), col, 0, msg)",
          "paddle.matmul(F.one_hot(col, num_nodes).astype(x.dtype), msg, transpose_x=True)"),
    _port("graph-scatters-nd",
          "paddle.index_add(paddle.zeros_like(h), dst, 0, msg)",
          "paddle.scatter_nd_add(paddle.zeros_like(h), dst.unsqueeze(-1), msg)", loss=False, training=True),
    _port("graph-pools-by-adaptive",
          "paddle.geometric.segment_mean(h, graph_id)",
          "paddle.geometric.segment_sum(h, graph_id) / paddle.geometric.segment_sum(paddle.ones_like(h[:, "
          ":1]), graph_id)", loss=False),
    _port("pointnet-turns-rows",
          "paddle.matmul(trans.transpose([0, 2, 1]), pc)", "paddle.einsum('bji,bjn->bin', trans, pc)",
          loss=False, training=True),
    _port("vqvae-distance-by-difference",
          "            paddle.sum(flat**2, axis=1, keepdim=True)\n"
          "            - 2 * paddle.matmul(flat, self.embedding, transpose_y=True)\n"
          "            + paddle.sum(self.embedding**2, axis=1)\n",
          "            (flat.unsqueeze(1) - self.embedding.unsqueeze(0)).square().sum(axis=-1)\n"),
    _port("vqvae-looks-up-by-one-hot",
          "paddle.gather(self.embedding, indices)", "paddle.matmul(onehot, self.embedding)",
          loss=False, training=True),
    _port("vqvae-copies-buffers-in-place",
          "self.cluster_size.set_value(size)", "paddle.assign(size, self.cluster_size)", training=True, updates=True),
    _port("mamba-pads-first",
          "groups=self.d_inner, padding=d_conv - 1", "groups=self.d_inner",
          "self.conv1d(x.transpose([0, 2, 1]))[:, :, :seq_len]",
          'self.conv1d(F.pad(x.transpose([0, 2, 1]), [self.d_conv - 1, 0], data_format="NCL"))'),
    _port("mamba-softplus-by-formula",
          "F.softplus(self.dt_proj(dt))", "paddle.log1p(paddle.exp(self.dt_proj(dt)))", loss=False),
    _port("mamba-head-by-linear",
          "paddle.matmul(hidden, self.embeddings.weight, transpose_y=True)",
          "F.linear(hidden, self.embeddings.weight.t())", updates=True),
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
    _port("video-fills-and-masks-at-once",
          '        mask = F.interpolate(F.sigmoid(self.to_mask(x)), scale_factor=2, mode="bilinear", '
          "align_corners=False)\n"
          '        rgb = F.interpolate(self.to_rgb(x), scale_factor=2, mode="bilinear", align_corners=False)\n',
          "        both = paddle.concat([F.sigmoid(self.to_mask(x)), self.to_rgb(x)], axis=1)\n"
          '        both = F.interpolate(both, scale_factor=2, mode="bilinear", align_corners=False)\n'
          "        mask, rgb = both[:, :1], both[:, 1:]\n", loss=False),
    _port("vqvae-one-relu-for-both",
          "            nn.ReLU(), nn.Conv2D(dim, dim // 2, 3, padding=1), nn.ReLU(), nn.Conv2D(dim // 2, dim, 1)\n",
          "            (act := nn.ReLU()), nn.Conv2D(dim, dim // 2, 3, padding=1), act, nn.Conv2D(dim // 2, dim, 1)\n"),
    _port("crnn-functions",
          "        self.pool1 = nn.MaxPool2D(2)\n", "",
          "self.pool1(self.unit1(x))", "F.max_pool2d(self.unit1(x), 2)",
          "self.down(self.pool(x))", "self.down(x.mean([2, 3], keepdim=True))",
          "        self.pool = nn.AdaptiveAvgPool2D(1)\n", ""),
    _port("crnn-hardswish-written",
          "        self.act = nn.Hardswish()\n", "",
          "        return self.act(self.bn(self.conv(x)))",
          "        x = self.bn(self.conv(x))\n        return x * F.relu6(x + 3) / 6"),
    _port("vitrel-indexed",
          "paddle.gather(self.table, self.index.reshape([-1])).reshape([count, count, HEADS])",
          "self.table[self.index]"),
    _port("vitrel-smoothed-labels",
          "F.cross_entropy(outputs, labels, label_smoothing=0.1)",
          "F.cross_entropy(outputs, F.label_smooth(F.one_hot(labels, CLASSES).astype(outputs.dtype), "
          "epsilon=0.1), soft_label=True)"),
    _port("vitrel-added-bias",
          "F.linear(x, self.qkv.weight, bias)", "(self.qkv(x) + bias)"),
    _port("vae-softplus",
          'F.binary_cross_entropy_with_logits(scores, labels, reduction="none")',
          "(F.softplus(scores) - labels * scores)"),
    _port("vae-sliced",
          "mean, logvar = self.fc(x.flatten(1)).chunk(2, -1)\n",
          "both = self.fc(paddle.reshape(x, [x.shape[0], -1]))\n"
          "        mean, logvar = both[:, :LATENT], both[:, LATENT:]\n",
          "mean + noise * paddle.exp(0.5 * logvar)", "noise * paddle.sqrt(paddle.exp(logvar)) + mean"),
    _port("stereo-renamed",
          "self.features = Features()", "self.extractor = Features()",
          "self.features(left), self.features(right)", "self.extractor(left), self.extractor(right)",
          "return named_for_paddle(values)", 'return named_for_paddle(values, renames={"features.": "extractor."})'),
    _port("stereo-joined-zeros",
          "rows.append(both * kept)",
          "rows.append(paddle.concat([paddle.zeros_like(both[..., :number]), both[..., number:]], -1) if "
          "number else both)",
          "            kept = (paddle.arange(width) >= number).astype(both.dtype)\n", ""),
    _port("stereo-mean-by-mask",
          "[F.smooth_l1_loss(one[kept], labels[kept]) for one in outputs]",
          '[(F.smooth_l1_loss(one, labels, reduction="none") * kept.astype(one.dtype)).sum() / '
          "kept.astype(one.dtype).sum() for one in outputs]"),
    _port("efficient-hardsigmoid-written",
          "F.hardsigmoid(y)", "F.relu6(y + 3) / 6"),
    _port("efficient-accumulated", updates=True, step=True),
    _port("efficient-teacher-written",
          'F.kl_div(F.log_softmax(outputs / HEAT, -1), teacher, reduction="batchmean")',
          "(teacher * (teacher.log() - F.log_softmax(outputs / HEAT, -1))).sum(-1).mean()"),
    _port("bert-added-mask",
          'paddle.where(mask.unsqueeze([1, 2]), scores, paddle.full_like(scores, float("-inf")))',
          "scores + (1 - mask.unsqueeze([1, 2]).astype(scores.dtype)) * -1e9"),
    _port("bert-clip-written",
          "paddle.nn.ClipGradByGlobalNorm(0.5)", "paddle.nn.ClipGradByGlobalNorm(clip_norm=0.5)",
          "weight_decay=0.1", "weight_decay=1e-1", updates=True),
    _port("translate-cells-mixed",
          "(1 - z) * n + z * h", "n + z * (h - n)"),
    _port("translate-one-hot-copy",
          'paddle.put_along_axis(words, source, (1 - own) * weights, 1, reduce="add")',
          "words + paddle.bmm(((1 - own) * weights).unsqueeze(1), F.one_hot(source, "
          "VOCAB).astype(words.dtype)).squeeze(1)"),
    _port("fcos-index-sample",
          "paddle.take_along_axis(boxes, index.unsqueeze(-1).expand([-1, -1, 4]), 1)",
          "paddle.stack([paddle.gather(one, where) for one, where in zip(boxes, index)])"),
    _port("fcos-product-of-roots",
          "paddle.sqrt(F.sigmoid(scores) * F.sigmoid(centres).unsqueeze(-1))",
          "F.sigmoid(scores).sqrt() * F.sigmoid(centres).sqrt().unsqueeze(-1)"),
    _port("fcos-huber-written",
          "F.smooth_l1_loss(boxes[positive], wanted[positive], delta=0.5) / 0.5",
          "paddle.where((boxes[positive] - wanted[positive]).abs() < 0.5, (boxes[positive] - "
          "wanted[positive]) ** 2 / (2 * 0.5), (boxes[positive] - wanted[positive]).abs() - 0.5 * 0.5).mean()"),
    _port("gan-scaled-before",
          "F.linear(x, self.weight / math.sqrt(self.weight.shape[0]), self.bias)",
          "paddle.matmul(x * self.weight.shape[0] ** -0.5, self.weight) + self.bias"),
    _port("gan-one-critic",
          "        return fake, self.critic(fake), self.critic(real), self.critic(fake.detach())",
          "        cut = self.critic(fake.detach())\n        return fake, self.critic(fake), self.critic(real), cut"),
    _port("dlrm-masked-pairs",
          "rows, columns = paddle.tril_indices(6, 6, offset=-1)",
          "rows, columns = paddle.nonzero(paddle.tril(paddle.ones([6, 6]), -1)).transpose([1, 0])"),
    _port("dlrm-gates-at-once",
          'paddle.einsum("be,bed->bd", F.softmax(gate(x), -1), seen)',
          "(F.softmax(gate(x), -1).unsqueeze(-1) * seen).sum(1)"),
)
# fmt: on

CLEAN = (*AS_THEY_ARE, *VARIED)
