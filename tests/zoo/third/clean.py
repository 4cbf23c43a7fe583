"""Pairs that are equal: all families in eval and train mode, and ports that compute the same in another way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from zoo.third.planting import FAMILIES, Edits, ThirdPair, pair

WITH_DATA = ("unet", "pointnet", "twotower", "conformer", "yolo")
WITH_METRICS = ("unet", "pointnet", "nerf", "llama", "twotower", "conformer", "yolo")


@dataclass(frozen=True, kw_only=True)
class ThirdClean:
    """One equal pair: what reads otherwise in either file, and how it is compared."""

    id: str
    family: str
    port_edits: Edits = ()
    reference_edits: Edits = ()
    how: dict[str, Any] = field(default_factory=dict)

    def build(self, *, double: bool = False) -> ThirdPair:
        """Return the pair."""
        return pair(
            self.family, reference_edits=self.reference_edits, port_edits=self.port_edits, double=double, **self.how
        )


def _same(name: str, *texts: str, reference: tuple[str, ...] = (), **how: Any) -> ThirdClean:
    return ThirdClean(
        id=name,
        family=name.split("-", maxsplit=1)[0],
        port_edits=tuple(zip(texts[::2], texts[1::2], strict=True)),
        reference_edits=tuple(zip(reference[::2], reference[1::2], strict=True)),
        how={"loss": False} | how,
    )


AS_THEY_ARE = (
    *(_same(f"{family}-eval", data=family in WITH_DATA) for family in FAMILIES),
    *(_same(f"{family}-train", training=True, loss=True, updates=True) for family in FAMILIES),
    *(_same(f"{family}-metric", loss=True, metrics=True) for family in WITH_METRICS),
)

# fmt: off
OTHERWISE = (
    _same("unet-up-to-a-size",
          "F.interpolate(x, scale_factor=2,", "F.interpolate(x, size=[2 * x.shape[2], 2 * x.shape[3]],"),
    _same("unet-sigmoid-by-formula",
          "F.sigmoid(self.psi(mixed))", "1 / (1 + paddle.exp(-self.psi(mixed)))", loss=True),
    _same("unet-pools-by-function",
          reference=("self.enc2(self.pool(x1))", "self.enc2(F.max_pool2d(x1, 2))",
                     "self.enc3(self.pool(x2))", "self.enc3(F.max_pool2d(x2, 2))",
                     "        self.pool = nn.MaxPool2d(2, stride=2)\n", ""), training=True),
    _same("wavenet-pads-and-cuts",
          "kernel_size, dilation=dilation)", "kernel_size, dilation=dilation, padding=(kernel_size - 1) * dilation)",
          '        x = F.pad(x, [self.pad, 0], data_format="NCL")\n        return self.conv(x)',
          "        return self.conv(x)[:, :, : x.shape[2]]", loss=True),
    _same("wavenet-embeds-by-one-hot",
          "self.embedding(self.encode(audio))",
          "paddle.matmul(F.one_hot(self.encode(audio), self.classes).astype(audio.dtype), self.embedding.weight)"),
    _same("wavenet-running-sum",
          "        skips = []\n", "        total = 0.0\n", "            skips.append(skip)\n", "            total = skip + total\n",
          "paddle.add_n(skips)", "total", training=True, loss=True, updates=True),
    _same("graph-scatters-by-matrix",
          "paddle.index_add(paddle.zeros_like(h), col, 0, msg)",
          "paddle.matmul(F.one_hot(col, num_nodes).astype(x.dtype), msg, transpose_x=True)", loss=True),
    _same("graph-scatters-nd",
          "paddle.index_add(paddle.zeros_like(h), dst, 0, msg)",
          "paddle.scatter_nd_add(paddle.zeros_like(h), dst.unsqueeze(-1), msg)", training=True),
    _same("graph-pools-by-adaptive",
          "paddle.geometric.segment_mean(h, graph_id)",
          "paddle.geometric.segment_sum(h, graph_id) / paddle.geometric.segment_sum(paddle.ones_like(h[:, :1]), graph_id)"),
    _same("pointnet-pools-adaptively",
          "paddle.max(self.mlp(x), axis=2)", "F.adaptive_max_pool1d(self.mlp(x), 1).squeeze(-1)", loss=True),
    _same("pointnet-turns-rows",
          "paddle.matmul(trans.transpose([0, 2, 1]), pc)",
          "paddle.einsum('bji,bjn->bin', trans, pc)", training=True),
    _same("nerf-encodes-at-once",
          "        outputs = [x]\n        for i in range(self.num_freqs):\n            scaled = x * (2.0**i * math.pi)\n"
          "            outputs += [paddle.sin(scaled), paddle.cos(scaled)]\n        return paddle.concat(outputs, axis=-1)",
          "        bands = paddle.to_tensor([2.0**i * math.pi for i in range(self.num_freqs)], dtype=x.dtype)\n"
          "        scaled = x.unsqueeze(-2) * bands.unsqueeze(-1)\n"
          "        both = paddle.stack([scaled.sin(), scaled.cos()], axis=-2)\n"
          "        return paddle.concat([x, both.flatten(-3)], axis=-1)"),
    _same("nerf-passes-by-logarithm",
          "paddle.cumprod(survival, dim=-1)", "paddle.exp(paddle.cumsum(paddle.log(survival), axis=-1))", loss=True),
    _same("nerf-gives-weights-too",
          "return rgb_map, depth_map, acc_map", "return rgb_map, depth_map, acc_map, weights",
          "rgb, _, acc = output", "rgb, _, acc = output[:3]", loss=True),
    _same("vqvae-distance-by-difference",
          "            paddle.sum(flat**2, axis=1, keepdim=True)\n"
          "            - 2 * paddle.matmul(flat, self.embedding, transpose_y=True)\n"
          "            + paddle.sum(self.embedding**2, axis=1)\n",
          "            (flat.unsqueeze(1) - self.embedding.unsqueeze(0)).square().sum(axis=-1)\n", loss=True),
    _same("vqvae-looks-up-by-one-hot",
          "paddle.gather(self.embedding, indices)", "paddle.matmul(onehot, self.embedding)", training=True),
    _same("vqvae-straight-through-otherwise",
          "z_q = z + (z_q - z).detach()", "z_q = z - (z - z_q).detach()", loss=True),
    _same("vqvae-copies-buffers-in-place",
          "self.cluster_size.set_value(size)", "paddle.assign(size, self.cluster_size)", training=True, loss=True, updates=True),
    _same("mamba-pads-first",
          "groups=self.d_inner, padding=d_conv - 1", "groups=self.d_inner",
          "self.conv1d(x.transpose([0, 2, 1]))[:, :, :seq_len]",
          'self.conv1d(F.pad(x.transpose([0, 2, 1]), [self.d_conv - 1, 0], data_format="NCL"))', loss=True),
    _same("mamba-softplus-by-formula",
          "F.softplus(self.dt_proj(dt))", "paddle.log1p(paddle.exp(self.dt_proj(dt)))"),
    _same("mamba-norm-by-rsqrt-of-sum",
          "        variance = paddle.mean(paddle.square(x), axis=-1, keepdim=True)\n"
          "        return self.weight * (x * paddle.rsqrt(variance + self.epsilon))",
          "        total = (x * x).sum(axis=-1, keepdim=True)\n"
          "        return x / paddle.sqrt(total / x.shape[-1] + self.epsilon) * self.weight", training=True),
    _same("mamba-head-by-linear",
          "paddle.matmul(hidden, self.embeddings.weight, transpose_y=True)",
          "F.linear(hidden, self.embeddings.weight.t())", loss=True, updates=True),
    _same("llama-attends-by-function",
          "        query = query.transpose([0, 2, 1, 3]) / math.sqrt(self.head_dim)\n"
          "        key = key.transpose([0, 2, 3, 1])\n        value = value.transpose([0, 2, 1, 3])\n"
          "        weights = paddle.matmul(query, key) + attention_mask\n        weights = F.softmax(weights, axis=-1)\n"
          "        context = paddle.matmul(weights, value).transpose([0, 2, 1, 3])\n",
          "        context = F.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask)\n"),
    _same("llama-repeats-keys",
          "    x = x.unsqueeze(3).expand([batch, length, kv_heads, n_rep, head_dim])\n"
          "    return x.reshape([batch, length, kv_heads * n_rep, head_dim])",
          "    return x.repeat_interleave(n_rep, axis=2)", loss=True),
    _same("llama-rotates-pairs",
          "    x1, x2 = paddle.chunk(x, 2, axis=-1)\n    return paddle.concat([-x2, x1], axis=-1)",
          "    return paddle.stack([-x[..., 1::2], x[..., ::2]], axis=-1).flatten(-2)",
          "np.concatenate([freqs, freqs], axis=-1)", "np.repeat(freqs, 2, axis=-1)",
          "        weights[name] = value.T",
          '        if "q_proj" in name or "k_proj" in name:\n'
          "            value = value.reshape([-1, 2, 2, 16]).transpose([0, 2, 1, 3]).reshape([-1, 16])\n"
          "        weights[name] = value.T"),
    _same("llama-one-matrix-for-gate-and-up",
          "        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias_attr=False)\n"
          "        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias_attr=False)\n",
          "        self.gate_up = nn.Linear(hidden_size, 2 * intermediate_size, bias_attr=False)\n",
          "        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))",
          "        gate, up = self.gate_up(x).chunk(2, axis=-1)\n        return self.down_proj(F.silu(gate) * up)",
          "    return weights\n\n\ndef loss",
          '    for name in [one for one in weights if "gate_proj" in one]:\n'
          '        both = [weights.pop(name), weights.pop(name.replace("gate_proj", "up_proj"))]\n'
          '        weights[name.replace("gate_proj", "gate_up")] = np.concatenate(both, axis=1)\n'
          "    return weights\n\n\ndef loss", loss=True),
    _same("twotower-three-matrices",
          "        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)\n",
          "        self.q = nn.Linear(embed_dim, embed_dim)\n        self.k = nn.Linear(embed_dim, embed_dim)\n"
          "        self.v = nn.Linear(embed_dim, embed_dim)\n",
          "        qkv = self.qkv(x).reshape([b, n, 3, self.num_heads, self.head_dim]).transpose([2, 0, 3, 1, 4])\n"
          "        q, k, v = qkv[0], qkv[1], qkv[2]\n",
          "        q, k, v = (\n"
          "            one(x).reshape([b, n, self.num_heads, self.head_dim]).transpose([0, 2, 1, 3])\n"
          "            for one in (self.q, self.k, self.v)\n        )\n",
          "    return weights\n\n\ndef loss",
          '    for name in [one for one in weights if ".qkv." in one]:\n'
          "        parts = np.split(weights.pop(name), 3, axis=-1)\n"
          '        for short, part in zip("qkv", parts, strict=True):\n'
          '            weights[name.replace("qkv", short)] = part\n    return weights\n\n\ndef loss', loss=True),
    _same("twotower-keys-in-another-order",
          "paddle.concat([x, y], axis=1)", "paddle.concat([y, x], axis=1)", loss=True),
    _same("twotower-picks-by-index",
          "        eot = F.one_hot(text.argmax(axis=-1), x.shape[1]).astype(x.dtype)\n"
          "        pooled = paddle.matmul(eot.unsqueeze(1), x).squeeze(1)\n",
          "        rows = paddle.arange(text.shape[0])\n"
          "        pooled = paddle.gather_nd(x, paddle.stack([rows, text.argmax(axis=-1)], axis=-1))\n"),
    _same("twotower-gelu-by-formula",
          "            nn.GELU(),\n", "            ErfGelu(),\n",
          "class PerceiverResampler(nn.Layer):",
          "class ErfGelu(nn.Layer):\n    def forward(self, x):\n"
          "        return x * 0.5 * (1.0 + paddle.erf(x / math.sqrt(2.0)))\n\n\nclass PerceiverResampler(nn.Layer):", loss=True),
    _same("adain-pads-by-layer",
          '        self.conv = nn.Conv2D(in_channels, out_channels, kernel_size, stride, padding=padding, padding_mode="reflect")\n',
          '        self.pad = nn.Pad2D([padding] * 4, mode="reflect")\n'
          "        self.conv = nn.Conv2D(in_channels, out_channels, kernel_size, stride)\n",
          "return self.conv(x)\n\n\nclass ResidualBlock", "return self.conv(self.pad(x))\n\n\nclass ResidualBlock", loss=True),
    _same("adain-statistics-by-axes",
          "    flat = feat.reshape([n, c, -1])\n    mean = flat.mean(axis=2).reshape([n, c, 1, 1])\n"
          "    var = flat.var(axis=2, unbiased=True) + eps\n",
          "    mean = feat.mean(axis=[2, 3], keepdim=True)\n"
          "    count = feat.shape[2] * feat.shape[3]\n"
          "    var = (feat - mean).square().sum(axis=[2, 3]) / (count - 1) + eps\n"),
    _same("adain-repeats-pixels",
          "x = self.upsample(self.resblock(x))",
          "x = self.resblock(x).repeat_interleave(2, axis=2).repeat_interleave(2, axis=3)", training=True),
    _same("adain-prelu-by-formula",
          "x = self.prelu(self.norm(self.conv1(x)))",
          "x = self.norm(self.conv1(x))\n        x = F.relu(x) - self.prelu._weight.reshape([1, -1, 1, 1]) * F.relu(-x)"),
    _same("video-one-peephole",
          "        self.w_ci = self.create_parameter([hidden, size, size])\n"
          "        self.w_cf = self.create_parameter([hidden, size, size])\n"
          "        self.w_co = self.create_parameter([hidden, size, size])\n",
          "        self.peephole = self.create_parameter([3, hidden, size, size])\n",
          "self.w_ci * c", "self.peephole[0] * c", "self.w_cf * c", "self.peephole[1] * c",
          "self.w_co * c_next", "self.peephole[2] * c_next",
          '            weights[cell + "w_ci"], weights[cell + "w_cf"], weights[cell + "w_co"] = value\n',
          '            weights[cell + "peephole"] = value\n', loss=True, training=True, updates=True),
    _same("video-two-convolutions",
          "        self.conv = nn.Conv2D(in_channels + hidden, 4 * hidden, 3, padding=1)\n",
          "        self.conv_x = nn.Conv2D(in_channels, 4 * hidden, 3, padding=1)\n"
          "        self.conv_h = nn.Conv2D(hidden, 4 * hidden, 3, padding=1, bias_attr=False)\n",
          "self.conv(paddle.concat([x, h], axis=1))", "self.conv_x(x) + self.conv_h(h)",
          '        if name.endswith(".peep"):\n',
          '        if name.endswith(".conv.weight"):\n'
          '            weights[name.replace(".conv.", ".conv_x.")] = value[:, :6]\n'
          '            weights[name.replace(".conv.", ".conv_h.")] = value[:, 6:]\n'
          '        elif name.endswith(".conv.bias"):\n'
          '            weights[name.replace(".conv.", ".conv_x.")] = value\n'
          '        elif name.endswith(".peep"):\n', loss=True),
    _same("video-grid-kept",
          "        grid_y, grid_x = paddle.meshgrid(paddle.arange(h, dtype=img.dtype), paddle.arange(w, dtype=img.dtype))\n",
          '        if getattr(self, "grid", None) is None or self.grid[0].dtype != img.dtype:\n'
          "            self.grid = paddle.meshgrid(paddle.arange(h, dtype=img.dtype), paddle.arange(w, dtype=img.dtype))\n"
          "        grid_y, grid_x = self.grid\n", loss=True),
    _same("video-fills-and-masks-at-once",
          '        mask = F.interpolate(F.sigmoid(self.to_mask(x)), scale_factor=2, mode="bilinear", align_corners=False)\n'
          '        rgb = F.interpolate(self.to_rgb(x), scale_factor=2, mode="bilinear", align_corners=False)\n',
          "        both = paddle.concat([F.sigmoid(self.to_mask(x)), self.to_rgb(x)], axis=1)\n"
          '        both = F.interpolate(both, scale_factor=2, mode="bilinear", align_corners=False)\n'
          "        mask, rgb = both[:, :1], both[:, 1:]\n"),
    _same("moe-softmax-of-the-chosen",
          "        topk_prob, topk_idx = paddle.topk(probs, self.top_k, axis=-1)\n"
          "        topk_prob = topk_prob / topk_prob.sum(axis=-1, keepdim=True)\n",
          "        topk_logit, topk_idx = paddle.topk(logits, self.top_k, axis=-1)\n"
          "        topk_prob = F.softmax(topk_logit, axis=-1)\n", loss=True),
    _same("moe-dispatches",
          "            output = output + combine[:, e : e + 1] * expert(tokens)\n",
          "            chosen = paddle.nonzero(combine[:, e])[:, 0]\n"
          "            part = combine[:, e : e + 1].gather(chosen) * expert(tokens.gather(chosen))\n"
          "            output = paddle.scatter_nd_add(output, chosen.unsqueeze(-1), part)\n", loss=True),
    _same("moe-pools-by-matrix",
          "paddle.sum(attention.unsqueeze(-1) * h, axis=1)", "paddle.bmm(attention.unsqueeze(1), h).squeeze(1)", training=True),
    _same("conformer-smooths-by-function",
          "F.one_hot(labels, num_classes).astype(output.dtype) * 0.9 + 0.1 / num_classes",
          "F.label_smooth(F.one_hot(labels, num_classes).astype(output.dtype), epsilon=0.1)", loss=True),
    _same("conformer-glu-by-halves",
          "x = F.glu(self.pointwise_conv1(x), axis=1)",
          "x, gate = self.pointwise_conv1(x).chunk(2, axis=1)\n        x = x * F.sigmoid(gate)", training=True),
    _same("conformer-frames-by-unfold",
          "        frames = paddle.stack(\n"
          "            [wav[:, i * self.hop_length : i * self.hop_length + self.n_fft] for i in range(num_frames)], axis=1\n"
          "        )\n",
          "        index = paddle.arange(num_frames).unsqueeze(1) * self.hop_length + paddle.arange(self.n_fft)\n"
          "        frames = paddle.gather(wav, index.flatten(), axis=1).reshape([-1, num_frames, self.n_fft])\n", loss=True),
    _same("conformer-attends-by-function",
          "        scores = paddle.matmul(q, k, transpose_y=True) / math.sqrt(self.head_dim)\n"
          "        attn = F.softmax(scores + bias.unsqueeze(0), axis=-1)\n"
          "        out = paddle.matmul(attn, v).transpose([0, 2, 1, 3]).reshape([batch, time, dim])\n",
          "        q, k, v = (one.transpose([0, 2, 1, 3]) for one in (q, k, v))\n"
          "        mask = bias.unsqueeze(0).expand([batch, -1, -1, -1])\n"
          "        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).reshape([batch, time, dim])\n"),
    _same("yolo-angle-of-the-other-side",
          "paddle.atan(w2 / h2) - paddle.atan(w1 / h1)", "paddle.atan(h2 / w2) - paddle.atan(h1 / w1)", loss=True),
    _same("yolo-pools-side-by-side",
          "        for _ in range(3):\n            outs.append(self.pool(outs[-1]))\n",
          "        outs += [F.max_pool2d(outs[0], size, stride=1, padding=size // 2) for size in (3, 5, 7)]\n"),
    _same("yolo-fuses-a-stack",
          "        out = w[0] * inputs[0]\n        for i in range(1, len(inputs)):\n            out = out + w[i] * inputs[i]\n",
          "        out = (paddle.stack(inputs, axis=-1) * w).sum(axis=-1)\n", loss=True),
    _same("yolo-splits-the-head",
          "            xy = (F.sigmoid(pred[..., 0:2]) * 2.0 - 0.5 + self.make_grid(h, w, pred.dtype)) * self.strides[i]\n"
          "            wh = (F.sigmoid(pred[..., 2:4]) * 2.0) ** 2 * anchor\n"
          "            out = paddle.concat([xy, wh, pred[..., 4:]], axis=-1)\n",
          "            xy, wh, rest = paddle.split(pred, [2, 2, self.num_classes + 1], axis=-1)\n"
          "            xy = (2.0 * F.sigmoid(xy) + (self.make_grid(h, w, pred.dtype) - 0.5)) * self.strides[i]\n"
          "            wh = 4.0 * F.sigmoid(wh).square() * anchor\n"
          "            out = paddle.concat([xy, wh, rest], axis=-1)\n", training=True),
    _same("vqvae-one-relu-for-both",
          "            nn.ReLU(), nn.Conv2D(dim, dim // 2, 3, padding=1), nn.ReLU(), nn.Conv2D(dim // 2, dim, 1)\n",
          "            (act := nn.ReLU()), nn.Conv2D(dim, dim // 2, 3, padding=1), act, nn.Conv2D(dim // 2, dim, 1)\n", loss=True),
    _same("yolo-channels-last-inside",
          "groups=groups, bias_attr=False\n", 'groups=groups, bias_attr=False, data_format="NHWC"\n',
          "            momentum=0.97,\n", '            momentum=0.97,\n            data_format="NHWC",\n',
          "        x = self.bn(self.conv(x))\n        return x * F.sigmoid(x)",
          "        x = self.bn(self.conv(x.transpose([0, 2, 3, 1])))\n        return F.silu(x).transpose([0, 3, 1, 2])", loss=True),
    _same("twotower-norm-by-function",
          "x = self.norm_pre(x)", "x = F.layer_norm(x, x.shape[-1:], self.norm_pre.weight, self.norm_pre.bias, 1e-5)", loss=True),
    _same("nerf-reference-gives-weights-too",
          reference=("(weights * t).sum(1), seen", "(weights * t).sum(1), seen, weights",
                     "colour, _, seen = output", "colour, _, seen = output[:3]"), loss=True),
    _same("llama-keeps-its-angles",
          "        freqs = np.outer(np.arange(length), self.inv_freq)\n"
          "        emb = np.concatenate([freqs, freqs], axis=-1)[None, :, None, :]\n"
          "        return paddle.to_tensor(np.cos(emb), dtype=dtype), paddle.to_tensor(np.sin(emb), dtype=dtype)\n",
          '        if not hasattr(self, "cos") or self.cos.shape[1] < length or self.cos.dtype != dtype:\n'
          "            freqs = np.outer(np.arange(2 * length), self.inv_freq)\n"
          "            emb = np.concatenate([freqs, freqs], axis=-1)[None, :, None, :]\n"
          '            self.register_buffer("cos", paddle.to_tensor(np.cos(emb), dtype=dtype), persistable=False)\n'
          '            self.register_buffer("sin", paddle.to_tensor(np.sin(emb), dtype=dtype), persistable=False)\n'
          "        return self.cos[:, :length], self.sin[:, :length]\n", loss=True, updates=True),
    _same("unet-activations-as-layers",
          "        self.bn2 = nn.BatchNorm2D(out_ch)\n", "        self.bn2 = nn.BatchNorm2D(out_ch)\n        self.relu = nn.ReLU()\n",
          "        x = F.relu(self.bn1(self.conv1(x)))\n        return F.relu(self.bn2(self.conv2(x)))",
          "        x = self.relu(self.bn1(self.conv1(x)))\n        return self.relu(self.bn2(self.conv2(x)))",
          training=True, loss=True, updates=True),
    _same("yolo-one-pool-for-each",
          "        self.down = nn.MaxPool2D(3, stride=2, padding=1)\n",
          "        self.down3 = nn.MaxPool2D(3, stride=2, padding=1)\n        self.down4 = nn.MaxPool2D(3, stride=2, padding=1)\n",
          "self.down(out3)", "self.down3(out3)", "self.down(out4)", "self.down4(out4)"),
)
# fmt: on

THIRD_CLEAN = (*AS_THEY_ARE, *OTHERWISE)
