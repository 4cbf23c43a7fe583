"""Mistakes of ports, each in one place: how the line reads, where it stands, and what a first diagnosis must say.

``where`` and ``words`` were written down before tipchain saw any of these. A word counts where a word of the
diagnosis begins with it, one with an exclamation mark only as a whole; the layer's path does not count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from zoo.third.planting import Edits, ThirdPair, pair

NET = "."
"""The net itself, in the lists below; its path is empty."""
PARTS = ("layer", "loss", "optimizer", "scheduler", "data", "metric")
CUT = "detach|stop_gradient|no_grad|no gradient|gradient is cut|gradient stops|does not flow|flows no|not reach|zero gradient"
NUMBERS = re.compile(
    r"(max\w*|mean|average)\s+(abs\w*\s+|rel\w*\s+)?(error|difference|deviation|distance|gap)"
)
"""How far off a layer is tells nothing of why."""


@dataclass(frozen=True, kw_only=True)
class ThirdFault:
    """One mistake.

    Args:
        id: the family and a name.
        family: one of `planting.FAMILIES`.
        part: what it is in: a layer, or what the nets are trained and judged with.
        where: the port's paths that are right; for another part than a layer no layer may be blamed.
        words: of which the first diagnosis must have one.
        edits: the lines of the port that read otherwise.
        how: whether in train mode, with a loss and so on, as `planting.pair` takes it.
        built: whether only what was built tells, not what is computed.
    """

    id: str
    family: str
    part: str
    where: tuple[str, ...]
    words: tuple[str, ...]
    edits: Edits
    how: dict[str, Any] = field(default_factory=dict)
    built: bool = False

    def is_named(self, cause: Any) -> bool:
        """Tell whether a diagnosis says what is wrong."""
        if cause is None:
            return False
        text = f"{cause.code} {cause.message} {getattr(cause, 'fix', None) or ''}".lower()
        path = (getattr(cause, "port_path", None) or "").lower()
        if len(path) > 1:
            text = text.replace(path, " ")
        text = NUMBERS.sub(" ", text)
        return any(re.search(_pattern(word), text) for word in self.words)


def _pattern(word: str) -> str:
    whole = "(?![a-z0-9])" if word.endswith("!") else ""
    return rf"(?<![a-z0-9]){re.escape(word.removesuffix('!'))}{whole}"


def planted(fault: ThirdFault, *, double: bool = False) -> ThirdPair:
    """Return the pair whose port has the fault."""
    return pair(fault.family, port_edits=fault.edits, double=double, strict=False, **fault.how)


def _fault(
    part: str, name: str, where: str, words: str, texts: tuple[str, ...], built: bool, how: Any
) -> ThirdFault:
    return ThirdFault(
        id=name,
        family=name.split("-", maxsplit=1)[0],
        part=part,
        where=tuple("" if one == NET else one for one in where.split()),
        words=tuple(words.split("|")),
        edits=tuple(zip(texts[::2], texts[1::2], strict=True)),
        how=how,
        built=built,
    )


def layer(name: str, where: str, words: str, *texts: str, built: bool = False, **how: Any) -> ThirdFault:
    """Return a fault of a layer: each text is replaced by the one after it."""
    return _fault("layer", name, where, words, texts, built, {"loss": False} | how)


def other(part: str, name: str, words: str, *texts: str, **how: Any) -> ThirdFault:
    """Return a fault of what nets are trained and judged with."""
    needs = {
        "loss": {},
        "optimizer": {"updates": True},
        "scheduler": {"updates": True},
        "data": {"data": True},
        "metric": {"metrics": True},
    }[part]
    return _fault(part, name, part, words, texts, False, needs | how)


# fmt: off
UNET = (
    layer("unet-up-corners", "up3", "align_corners|corners",
          "align_corners=True", "align_corners=False"),
    layer("unet-up-nearest", "up3", "nearest|bilinear",
          'mode="bilinear", align_corners=True', 'mode="nearest"'),
    layer("unet-up-slope", "up3.act", "slope|negative_slope|0.01",
          "nn.LeakyReLU(0.2)", "nn.LeakyReLU()"),
    layer("unet-up-momentum", "up3.bn up2.bn", "momentum",
          "nn.BatchNorm2D(out_ch, momentum=0.99)", "nn.BatchNorm2D(out_ch, momentum=0.01)", training=True),
    layer("unet-up-has-bias", "up3.conv up2.conv", "bias",
          "nn.Conv2D(in_ch, out_ch, 3, padding=1, bias_attr=False)", "nn.Conv2D(in_ch, out_ch, 3, padding=1)", built=True),
    layer("unet-gate-relu-before-sum", "gate3", "relu|activation",
          "F.relu(self.w_g(gate) + self.w_x(skip))", "F.relu(self.w_g(gate)) + F.relu(self.w_x(skip))"),
    layer("unet-gate-on-itself", "gate3", "argument|operand|wrong tensor|instead of|skip|multipl",
          "return skip * coefficient", "return gate * coefficient"),
    layer("unet-gate-softmax", "gate3", "softmax|sigmoid",
          "F.sigmoid(self.psi(mixed))", "F.softmax(self.psi(mixed), axis=1)"),
    layer("unet-net-concat-order", NET, "order|concat|swap|exchang",
          "[self.gate3(x, s2), x]", "[x, self.gate3(x, s2)]"),
    layer("unet-net-skip-not-gated", NET, "gate3|unused|not used|never|not called|skip",
          "[self.gate3(x, s2), x]", "[s2, x]"),
    layer("unet-pool-average", "pool", "avg|average|maxpool|max pool|mean of",
          "nn.MaxPool2D(2, 2)", "nn.AvgPool2D(2, 2)"),
    layer("unet-block-no-last-relu", "down1", "relu|activation",
          "return F.relu(self.bn2(self.conv2(x)))", "return self.bn2(self.conv2(x))"),
    layer("unet-block-epsilon", "down1.bn2", "eps",
          "self.bn2 = nn.BatchNorm2D(out_ch)", "self.bn2 = nn.BatchNorm2D(out_ch, epsilon=1e-3)"),
)

WAVENET = (
    layer("wavenet-conv-pads-right", "first", "pad|causal|left|right|shift",
          "[self.pad, 0]", "[0, self.pad]"),
    layer("wavenet-block-halves-swapped", "blocks.0", "swap|order|exchang|halves",
          "filt, gate = paddle.split", "gate, filt = paddle.split"),
    layer("wavenet-block-no-scale", "blocks.0", "scale|sqrt|factor|multipl|0.7",
          "(x + self.conv_res(z)) * math.sqrt(0.5)", "x + self.conv_res(z)"),
    layer("wavenet-block-skip-of-input", "blocks.0", "conv_skip|argument|instead of|wrong tensor|gated",
          "self.conv_skip(z)", "self.conv_skip(x)"),
    layer("wavenet-block-no-tanh", "blocks.0", "tanh",
          "paddle.tanh(filt)", "filt"),
    layer("wavenet-dilation-grows-by-one", "blocks.2.dilated.conv blocks.2.dilated", "dilation",
          "cond_channels, 2**i)", "cond_channels, i + 1)"),
    layer("wavenet-net-condition-tiled", NET, "tile|repeat|interleav|order",
          "features.repeat_interleave(self.hop_length, axis=2)", "paddle.tile(features, [1, 1, self.hop_length])"),
    layer("wavenet-net-not-companded", NET, "log1p|log!|logarithm|compand|mu-law|mu law",
          "paddle.log1p(mu * paddle.abs(audio)) / math.log1p(mu)", "paddle.abs(audio)"),
    layer("wavenet-net-rounds-down", NET, "round|0.5|floor|trunc",
          "* mu + 0.5)", "* mu)"),
    layer("wavenet-net-mean-of-skips", NET, "scale|sqrt|factor|mean|divid|average",
          "/ math.sqrt(len(self.blocks))", "/ len(self.blocks)"),
    layer("wavenet-net-first-skip-lost", NET, "first of|first skip|missing|left out|lacks|not added|summand|term|unused|not used|slice",
          "paddle.add_n(skips)", "paddle.add_n(skips[1:])"),
)

GRAPH = (
    layer("graph-gcn-no-loops", "gcn", "self|loop|edges|arange|missing|fewer",
          "paddle.concat([edge_index[0], loop])", "edge_index[0]",
          "paddle.concat([edge_index[1], loop])", "edge_index[1]"),
    layer("graph-gcn-degree-of-sources", "gcn", "row|col|source|direction|index|degree",
          "deg, col.unsqueeze(-1)", "deg, row.unsqueeze(-1)"),
    layer("graph-gcn-overwrites", "gcn", "overwrit|accumulat|add|sum|duplicate|scatter",
          "paddle.index_add(paddle.zeros_like(h), col, 0, msg)", "paddle.scatter(paddle.zeros_like(h), col, msg)"),
    layer("graph-gcn-mean", "gcn", "rsqrt|sqrt|degree|normaliz|power",
          "deg.gather(row).rsqrt() * deg.gather(col).rsqrt()", "1.0 / deg.gather(col)"),
    layer("graph-gat-slope", "gat", "slope|0.01",
          "alpha, negative_slope=0.2", "alpha"),
    layer("graph-gat-softmax-over-all", "gat", "softmax|normaliz|per node|segment|denominator|sum",
          "paddle.gather(denom, dst)", "denom.sum(0)"),
    layer("graph-gat-head-layout", "gat", "reshape|head|layout|axis|axes|transpos|order|view",
          "reshape([num_nodes, self.num_heads, -1])", "reshape([num_nodes, -1, self.num_heads]).transpose([0, 2, 1])"),
    layer("graph-gat-weights-detached", "gat", CUT,
          "* alpha.unsqueeze(-1)", "* alpha.detach().unsqueeze(-1)"),
    layer("graph-net-gru-without-state", NET, "state|hidden|initial",
          "self.gru(F.elu(self.gat(h, edge_index)), h)", "self.gru(F.elu(self.gat(h, edge_index)), paddle.zeros_like(h))"),
    layer("graph-net-sum", NET, "sum|mean|average|divid|count",
          "segment_mean(", "segment_sum("),
    layer("graph-net-relu", NET, "elu|relu|activation",
          "F.elu(self.bn(", "F.relu(self.bn("),
)

POINTNET = (
    layer("pointnet-tnet-no-identity", "input_transform", "identity|eye|diagonal",
          "reshape([-1, self.k, self.k]) + identity", "reshape([-1, self.k, self.k])"),
    layer("pointnet-tnet-mean", "input_transform", "max|mean|average",
          "paddle.max(self.mlp(x), axis=2)", "paddle.mean(self.mlp(x), axis=2)"),
    layer("pointnet-tnet-transposed", "input_transform", "transpos|axes|perm",
          "reshape([-1, self.k, self.k]) +", "reshape([-1, self.k, self.k]).transpose([0, 2, 1]) +"),
    layer("pointnet-tnet-no-last-relu", "input_transform.fc.2 input_transform.fc", "relu|identity|activation",
          "nn.BatchNorm1D(12), nn.ReLU(), nn.Linear", "nn.BatchNorm1D(12), nn.Identity(), nn.Linear"),
    layer("pointnet-tnet-momentum", "input_transform.mlp.1 feature_transform.mlp.1", "momentum",
          "nn.BatchNorm1D(8),", "nn.BatchNorm1D(8, momentum=0.1),", training=True),
    layer("pointnet-net-matrix-not-transposed", NET, "transpos|order",
          "paddle.matmul(trans.transpose([0, 2, 1]), pc)", "paddle.matmul(trans, pc)"),
    layer("pointnet-net-radius-of-batch", NET, "axis|batch|per sample|reduc|max",
          "sqrt((pc**2).sum(axis=1)).max(axis=1)", "sqrt((pc**2).sum(axis=1)).max()",
          "radius.unsqueeze([1, 2])", "radius"),
    layer("pointnet-net-relu-before-pool", NET, "relu|activation",
          "self.bn2(self.conv2(x)).max", "F.relu(self.bn2(self.conv2(x))).max"),
    layer("pointnet-net-drops-after-norm", NET, "order|dropout|before|after|bn3",
          "self.bn3(self.dropout(self.fc1(x)))", "self.dropout(self.bn3(self.fc1(x)))", training=True),
    layer("pointnet-net-softmax", NET, "log_softmax|log softmax|logsoftmax|logarithm|log!",
          "return F.log_softmax", "return F.softmax"),
    layer("pointnet-dropout-keeps", "dropout", "p!|probab|rate|0.7|0.3",
          "nn.Dropout(0.3)", "nn.Dropout(0.7)", training=True),
    layer("pointnet-dropout-mode", "dropout", "mode=|downscale|upscale|scale",
          "nn.Dropout(0.3)", 'nn.Dropout(0.3, mode="downscale_in_infer")', training=True),
    layer("pointnet-statistics-not-loaded", "input_transform.mlp.1", "running|_mean|_variance|statistic|buffer",
          'parts[-1] == "num_batches_tracked"', 'parts[-1] in {"num_batches_tracked", "running_mean", "running_var"}'),
)

NERF = (
    layer("nerf-encoder-no-pi", "mlp.encode_xyz", "pi!|3.14|frequenc|factor|scale",
          "(2.0**i * math.pi)", "2.0**i"),
    layer("nerf-encoder-sines-first", "mlp.encode_xyz", "order|permut|interleav|concat",
          "outputs += [paddle.sin(scaled), paddle.cos(scaled)]",
          "outputs = [*outputs[: i + 1], paddle.sin(scaled), *outputs[i + 1 :], paddle.cos(scaled)]"),
    layer("nerf-encoder-cosine-first", "mlp.encode_xyz", "order|swap|exchang|permut|sin|cos",
          "[paddle.sin(scaled), paddle.cos(scaled)]", "[paddle.cos(scaled), paddle.sin(scaled)]"),
    layer("nerf-mlp-skip-order", "mlp", "order|swap|exchang|concat",
          "paddle.concat([encoded, h], axis=-1)", "paddle.concat([h, encoded], axis=-1)"),
    layer("nerf-mlp-softplus-beta", "mlp", "beta",
          "self.sigma_head(h) - 1.0, beta=2.0", "self.sigma_head(h) - 1.0"),
    layer("nerf-mlp-relu-density", "mlp", "relu|softplus|activation",
          "F.softplus(self.sigma_head(h) - 1.0, beta=2.0)", "F.relu(self.sigma_head(h) - 1.0)"),
    layer("nerf-mlp-density-not-shifted", "mlp", "shift|offset|constant|subtract|1.0|- 1|add",
          "self.sigma_head(h) - 1.0", "self.sigma_head(h)"),
    layer("nerf-net-views-not-normalized", NET, "norm|unit|length|divid",
          "viewdirs = rays_d / paddle.linalg.norm(rays_d, axis=-1, keepdim=True)", "viewdirs = rays_d"),
    layer("nerf-net-distances-not-scaled", NET, "norm|length|multipl|factor|scale",
          "dists.unsqueeze(0) * paddle.linalg.norm(rays_d, axis=-1, keepdim=True)", "dists.unsqueeze(0)"),
    layer("nerf-net-passed-too-early", NET, "shift|off by one|slice|cumprod|cumulat|exclusive|inclusive",
          "paddle.cumprod(survival, dim=-1)[:, :-1]", "paddle.cumprod(survival, dim=-1)[:, 1:]"),
    layer("nerf-net-end-excluded", NET, "linspace|endpoint|end point|arange|spacing|step",
          "paddle.linspace(0, 1, self.n_samples, dtype=rays_o.dtype)",
          "paddle.arange(self.n_samples).astype(rays_o.dtype) / self.n_samples"),
    layer("nerf-net-no-background", NET, "background|white|1.0 -|1 -|opacity|add|complement",
          "rgb_map = rgb_map + (1.0 - acc_map)", "rgb_map = rgb_map * 1.0"),
    layer("nerf-net-depth-of-seen", NET, "divid|normaliz|quotient|weights|acc",
          "paddle.sum(weights * z_vals, axis=1)", "paddle.sum(weights * z_vals, axis=1) / paddle.sum(weights, axis=1)"),
)

VQVAE = (
    layer("vqvae-book-distance-factor", "quantizer", "factor|2 *|scale|coefficient|twice",
          "- 2 * paddle.matmul(flat", "- paddle.matmul(flat"),
    layer("vqvae-book-not-straight-through", "quantizer", "straight|" + CUT,
          "        z_q = z + (z_q - z).detach()\n", ""),
    layer("vqvae-book-commitment-detached", "quantizer", CUT,
          "F.mse_loss(z, z_q.detach())", "F.mse_loss(z.detach(), z_q)"),
    layer("vqvae-book-decay-swapped", "quantizer", "decay|momentum|exchang|swap|0.1|moving",
          "size = self.cluster_size * self.decay + onehot.sum(axis=0) * (1 - self.decay)",
          "size = self.cluster_size * (1 - self.decay) + onehot.sum(axis=0) * self.decay", training=True),
    layer("vqvae-book-learns-in-eval", "quantizer", "training|train mode|eval|in place|updates|overwrit",
          "        if self.training:\n            self.update(flat.detach(), onehot)\n", "        self.update(flat.detach(), onehot)\n"),
    layer("vqvae-book-not-smoothed", "quantizer", "smooth|eps|laplace",
          "average / smoothed.unsqueeze(1)", "average / size.unsqueeze(1)", training=True),
    layer("vqvae-book-shared-buffer", "quantizer", "alias|share|same tensor|clone|copy|one tensor|same buffer",
          '"embed_avg", embedding.clone()', '"embed_avg", embedding', training=True),
    layer("vqvae-book-bits", "quantizer", "log|base",
          "paddle.log(avg_probs", "paddle.log2(avg_probs"),
    layer("vqvae-net-axes", NET, "transpos|axes|axis|perm",
          "z.transpose([0, 2, 3, 1])", "z.transpose([0, 3, 2, 1])"),
    layer("vqvae-norm-epsilon", "decoder.3", "eps",
          "nn.GroupNorm(3, dim, epsilon=1e-6)", "nn.GroupNorm(3, dim, epsilon=1e-4)"),
    layer("vqvae-norm-groups", "decoder.3", "group",
          "nn.GroupNorm(3, dim,", "nn.GroupNorm(4, dim,"),
    layer("vqvae-res-in-place", "encoder.3", "in place|inplace|in-place|alias|relu|activation",
          "return x + self.block(x)", "return F.relu_(x) + self.block(x)"),
    layer("vqvae-up-not-padded", "decoder.7", "output_padding|output padding",
          "stride=2, padding=1, output_padding=1", "stride=2, padding=1"),
    layer("vqvae-end-sigmoid", "decoder.8", "tanh|sigmoid",
          "nn.Tanh()", "nn.Sigmoid()"),
)

MAMBA = (
    layer("mamba-mixer-halves-swapped", "blocks.0.mixer", "swap|order|exchang|halves",
          "x, gate = self.in_proj", "gate, x = self.in_proj"),
    layer("mamba-mixer-sees-ahead", "blocks.0.mixer", "slice|shift|causal|offset|crop",
          "[:, :, :seq_len]", "[:, :, -seq_len:]"),
    layer("mamba-mixer-no-silu", "blocks.0.mixer", "silu|swish|activation",
          "x = F.silu(x).transpose([0, 2, 1])", "x = x.transpose([0, 2, 1])"),
    layer("mamba-mixer-grows", "blocks.0.mixer", "sign!|negat|minus",
          "a = -paddle.exp(self.A_log)", "a = paddle.exp(self.A_log)"),
    layer("mamba-mixer-b-for-c", "blocks.0.mixer", "swap|order|exchang",
          "dt, b, c = paddle.split", "dt, c, b = paddle.split"),
    layer("mamba-mixer-relu-step", "blocks.0.mixer", "relu|softplus|activation",
          "F.softplus(self.dt_proj(dt))", "F.relu(self.dt_proj(dt))"),
    layer("mamba-mixer-no-skip", "blocks.0.mixer", "mixer.d|parameter d|unused|not used|no gradient|skip|never",
          "paddle.stack(outputs, axis=1) + x * self.D", "paddle.stack(outputs, axis=1)"),
    layer("mamba-mixer-gives-before-update", "blocks.0.mixer", "order|before|after|shift|off by one|previous|late",
          "            state = state * decay + step * b[:, i].unsqueeze(1) * x[:, i].unsqueeze(-1)\n"
          "            outputs.append(paddle.matmul(state, c[:, i].unsqueeze(-1)).squeeze(-1))\n",
          "            outputs.append(paddle.matmul(state, c[:, i].unsqueeze(-1)).squeeze(-1))\n"
          "            state = state * decay + step * b[:, i].unsqueeze(1) * x[:, i].unsqueeze(-1)\n"),
    layer("mamba-mixer-state-detached", "blocks.0.mixer blocks.1.mixer", CUT,
          "state = state * decay", "state = state.detach() * decay"),
    layer("mamba-mixer-half-precision", "blocks.0.mixer", "float16|precision|cast|dtype|half|round",
          "self.out_proj(y * F.silu(gate))", 'self.out_proj((y * F.silu(gate)).astype("float16").astype(y.dtype))'),
    layer("mamba-norm-epsilon", "blocks.0.norm", "eps",
          "epsilon=1e-5", "epsilon=1e-3"),
    layer("mamba-norm-variance", "blocks.0.norm", "var|center|centre|mean|subtract|square",
          "paddle.mean(paddle.square(x), axis=-1, keepdim=True)", "paddle.var(x, axis=-1, unbiased=False, keepdim=True)"),
    layer("mamba-block-residual-of-norm", "blocks.0", "residual|skip|order|shortcut|normed|normalized",
          "        residual = hidden\n        hidden = self.mixer(self.norm(hidden))\n",
          "        hidden = self.norm(hidden)\n        residual = hidden\n        hidden = self.mixer(hidden)\n"),
    layer("mamba-net-no-scale", NET, "scale|sqrt|factor|multipl",
          "self.embeddings(input_ids) * self.embed_scale", "self.embeddings(input_ids)"),
    layer("mamba-embedding-padding", "embeddings", "padding",
          "nn.Embedding(vocab_size, hidden_size)", "nn.Embedding(vocab_size, hidden_size, padding_idx=0)"),
)

LLAMA = (
    layer("llama-rope-pairs", "layers.0.self_attn", "rope|rotary|interleav|rotat|pairs|half|halves|even|slice|chunk",
          "    x1, x2 = paddle.chunk(x, 2, axis=-1)\n    return paddle.concat([-x2, x1], axis=-1)",
          "    return paddle.stack([-x[..., 1::2], x[..., ::2]], axis=-1).flatten(-2)"),
    layer("llama-rope-sign", "layers.0.self_attn", "sign!|negat|minus|rotat",
          "paddle.concat([-x2, x1], axis=-1)", "paddle.concat([x2, -x1], axis=-1)"),
    layer("llama-rope-base", "layers.0.self_attn", "base|theta|1000|frequenc|constant",
          "rope_base=10000.0", "rope_base=1000.0"),
    layer("llama-rope-queries-only", "layers.0.self_attn", "key|rotat|rope|rotary|position|cos",
          "        key = key * cos + rotate_half(key) * sin\n", ""),
    layer("llama-attention-heads-tiled", "layers.0.self_attn", "repeat|tile|interleav|order|expand|group",
          "x.unsqueeze(3).expand([batch, length, kv_heads, n_rep, head_dim])",
          "x.unsqueeze(2).expand([batch, length, n_rep, kv_heads, head_dim])"),
    layer("llama-attention-no-scale", "layers.0.self_attn", "scale|sqrt|head_dim|factor|divid",
          "query.transpose([0, 2, 1, 3]) / math.sqrt(self.head_dim)", "query.transpose([0, 2, 1, 3])"),
    layer("llama-attention-softmax-axis", "layers.0.self_attn", "axis|dim",
          "F.softmax(weights, axis=-1)", "F.softmax(weights, axis=-2)"),
    layer("llama-attention-heads-not-merged", "layers.0.self_attn", "transpos|reshape|layout|head|axis|axes|perm",
          "paddle.matmul(weights, value).transpose([0, 2, 1, 3])", "paddle.matmul(weights, value)"),
    layer("llama-attention-output-not-transposed", "layers.0.self_attn.o_proj", "transpos",
          'if "_proj" in name or', 'if ("_proj" in name and "o_proj" not in name) or'),
    layer("llama-mlp-gate-and-up", "layers.0.mlp", "swap|exchang|gate|up_proj|order|argument|activation",
          "F.silu(self.gate_proj(x)) * self.up_proj(x)", "self.gate_proj(x) * F.silu(self.up_proj(x))"),
    layer("llama-mlp-weights-exchanged", "layers.0.mlp.gate_proj layers.0.mlp.up_proj",
          "swap|exchang|each other|up_proj|weights of|holds",
          '("feed_forward.w1.", "mlp.gate_proj.")', '("feed_forward.w1.", "mlp.up_proj.")',
          '("feed_forward.w3.", "mlp.up_proj.")', '("feed_forward.w3.", "mlp.gate_proj.")'),
    layer("llama-mlp-gelu", "layers.0.mlp", "gelu|silu|swish|activation",
          "F.silu(self.gate_proj(x))", "F.gelu(self.gate_proj(x))"),
    layer("llama-norm-epsilon", "layers.0.input_layernorm", "eps",
          "eps=1e-6", "eps=1e-5"),
    layer("llama-block-residual-of-norm", "layers.0", "residual|skip|order|shortcut|normed|normalized",
          "        residual = hidden_states\n        hidden_states = self.mlp(self.post_attention_layernorm(hidden_states))\n",
          "        residual = self.post_attention_layernorm(hidden_states)\n        hidden_states = self.mlp(residual)\n"),
    layer("llama-net-padding-seen", NET, "mask|padding",
          'paddle.logical_and(causal, attention_mask.astype("bool").unsqueeze([1, 2]))', "causal"),
    layer("llama-net-not-causal", NET, "mask|causal|tril|triangle",
          'causal = paddle.tril(paddle.ones([length, length], dtype="bool"))',
          'causal = paddle.ones([length, length], dtype="bool")'),
    layer("llama-net-no-last-norm", NET, "norm|unused|not used|never",
          "        hidden_states = self.norm(hidden_states)\n", ""),
)

TWOTOWER = (
    layer("twotower-text-gelu", "text_encoder.blocks.0", "gelu|1.702|activation|sigmoid",
          "h = h * F.sigmoid(1.702 * h)", "h = F.gelu(h)"),
    layer("twotower-text-qkv-layout", "text_encoder.blocks.0.attn", "order|layout|reshape|head|axis|axes|transpos|interleav",
          "reshape([b, n, 3, self.num_heads, self.head_dim]).transpose([2, 0, 3, 1, 4])",
          "reshape([b, n, self.num_heads, 3, self.head_dim]).transpose([3, 0, 2, 1, 4])"),
    layer("twotower-text-not-causal", "text_encoder.blocks.0.attn", "mask|causal",
          "F.softmax(attn + mask, axis=-1)", "F.softmax(attn, axis=-1)"),
    layer("twotower-text-mask-off-by-one", "text_encoder.blocks.0.attn", "diagonal|mask|off by one|causal",
          "dtype=x.dtype), diagonal=1)", "dtype=x.dtype))"),
    layer("twotower-text-norm-epsilon", "text_encoder.blocks.0.norm1", "eps",
          "self.norm1 = nn.LayerNorm(embed_dim)", "self.norm1 = nn.LayerNorm(embed_dim, epsilon=1e-3)"),
    layer("twotower-text-no-position", "text_encoder", "position|unused|not used|never|add",
          "self.token_embedding(text) + self.positional_embedding[: text.shape[1]]", "self.token_embedding(text)"),
    layer("twotower-text-last-token", "text_encoder", "argmax|last|token|pool|position|index|first|end",
          "text.argmax(axis=-1)", "paddle.full_like(text[:, 0], x.shape[1] - 1)"),
    layer("twotower-resampler-media-only", "image_encoder.resampler", "concat|latents|norm_latents|media|queries",
          "self.to_kv(paddle.concat([x, y], axis=1))", "self.to_kv(x)"),
    layer("twotower-resampler-scale", "image_encoder.resampler", "scale|factor|sqrt|head_dim|divid",
          "* (self.head_dim**-0.5)", "* ((self.num_heads * self.head_dim) ** -0.5)"),
    layer("twotower-resampler-one-norm", "image_encoder.resampler", "norm_media|norm_latents|instead|wrong layer|unused|not used",
          "y = self.norm_latents(latents)", "y = self.norm_media(latents)"),
    layer("twotower-resampler-no-residual", "image_encoder.resampler", "residual|skip|add|shortcut|sum",
          "return latents + self.ff(latents)", "return self.ff(latents)"),
    layer("twotower-resampler-gelu", "image_encoder.resampler.ff.2 image_encoder.resampler.ff", "approximate|tanh",
          "nn.GELU()", "nn.GELU(approximate=True)"),
    layer("twotower-image-norm-after-mean", "image_encoder", "order|mean!|before|after|swap",
          "self.norm_post(x).mean(axis=1)", "self.norm_post(x.mean(axis=1))"),
    layer("twotower-image-patch-layout", "image_encoder", "transpos|reshape|layout|order|flatten|axes|axis|perm",
          "self.patch_embed(image).flatten(2).transpose([0, 2, 1])",
          "self.patch_embed(image).reshape([image.shape[0], -1, self.norm_pre.weight.shape[0]])"),
    layer("twotower-net-scale-not-exponential", NET, "exp!|exponent",
          "paddle.exp(paddle.clip(self.logit_scale, max=math.log(100)))", "paddle.clip(self.logit_scale, max=math.log(100))"),
    layer("twotower-net-text-not-normalized", NET, "norm|unit|length|divid",
          "F.normalize(self.text_encoder(text), axis=-1)", "self.text_encoder(text)"),
    layer("twotower-net-same-logits-twice", NET, "transpos|.t()|order",
          "logits_per_text = logits_per_image.t()", "logits_per_text = logits_per_image + 0"),
    layer("twotower-net-scale-detached", NET, CUT,
          "max=math.log(100)))", "max=math.log(100))).detach()"),
)

ADAIN = (
    layer("adain-conv-zeros", "encoder.conv1.conv encoder.conv1", "padding_mode|reflect|zeros|padding mode",
          ', padding_mode="reflect"', ""),
    layer("adain-conv-replicate", "encoder.conv1.conv encoder.conv1", "padding_mode|reflect|replicate|edge|padding mode",
          'padding_mode="reflect"', 'padding_mode="replicate"'),
    layer("adain-net-biased", NET, "unbiased|biased|bessel|ddof|variance|correction|n - 1",
          "unbiased=True", "unbiased=False"),
    layer("adain-net-epsilon-outside", NET, "eps|outside|inside",
          "    var = flat.var(axis=2, unbiased=True) + eps\n    return mean, var.sqrt().reshape([n, c, 1, 1])",
          "    var = flat.var(axis=2, unbiased=True)\n    return mean, (var.sqrt() + eps).reshape([n, c, 1, 1])"),
    layer("adain-net-alpha", NET, "swap|alpha|order|exchang|1 -|complement",
          "t = alpha * t + (1 - alpha) * content_feat", "t = (1 - alpha) * t + alpha * content_feat"),
    layer("adain-net-style-and-content", NET, "swap|order|argument|exchang|operand",
          "self.adain(content_feat, style_feat)", "self.adain(style_feat, content_feat)"),
    layer("adain-net-style-detached", NET, CUT,
          "self.adain(content_feat, style_feat)", "self.adain(content_feat, style_feat.detach())"),
    layer("adain-res-epsilon", "decoder.resblock.norm1", "eps",
          "self.norm1 = nn.InstanceNorm2D(channels)", "self.norm1 = nn.InstanceNorm2D(channels, epsilon=1e-3)"),
    layer("adain-res-relu-after-sum", "decoder.resblock", "relu|activation",
          "return x + out", "return F.relu(x + out)"),
    layer("adain-decoder-bilinear", "decoder.upsample decoder", "bilinear|nearest",
          'mode="nearest"', 'mode="bilinear"'),
    layer("adain-decoder-shuffle-order", "decoder", "shuffle|layout|channel|order|transpos|reshape",
          "        x = self.shuffle(self.conv2(x))\n",
          "        n, c, h, w = (x := self.conv2(x)).shape\n"
          "        x = x.reshape([n, 2, 2, c // 4, h, w]).transpose([0, 3, 4, 1, 5, 2]).reshape([n, c // 4, 2 * h, 2 * w])\n"),
    layer("adain-decoder-middle", "decoder", "127|constant|offset|shift|add",
          "* 150 + 255.0 / 2", "* 150 + 255 // 2"),
    layer("adain-decoder-norm-plain", "decoder.norm", "affine|weight_attr|bias_attr|scale|learn",
          "self.norm = nn.InstanceNorm2D(base)", "self.norm = nn.InstanceNorm2D(base, weight_attr=False, bias_attr=False)"),
    layer("adain-decoder-one-slope", "decoder.prelu", "num_parameters|per channel|one slope|shape|single|slope",
          "nn.PReLU(base)", "nn.PReLU(1)"),
    layer("adain-encoder-pool-floor", "encoder.pool encoder", "ceil",
          "nn.MaxPool2D(2, ceil_mode=True)", "nn.MaxPool2D(2)"),
    layer("adain-encoder-no-relu", "encoder", "relu|activation",
          "x = F.relu(self.conv2(x))", "x = self.conv2(x)"),
)

VIDEO = (
    layer("video-cell-gate-order", "rnn.0", "order|swap|exchang",
          "cc_i, cc_f, cc_g, cc_o = paddle.split", "cc_i, cc_f, cc_o, cc_g = paddle.split"),
    layer("video-cell-no-forget-bias", "rnn.0", "1.0|forget|constant|offset|shift|add",
          "self.w_cf * c + 1.0", "self.w_cf * c"),
    layer("video-cell-peeps-at-old", "rnn.0", "c_next|cell|old|state|peep|updated|previous|new",
          "self.w_co * c_next", "self.w_co * c"),
    layer("video-cell-concat-order", "rnn.0", "order|concat|swap|exchang",
          "paddle.concat([x, h], axis=1)", "paddle.concat([h, x], axis=1)"),
    layer("video-cell-peepholes-exchanged", "rnn.0", "swap|exchang|w_cf|w_co|each other|holds",
          'weights[cell + "w_cf"], weights[cell + "w_co"] = value', 'weights[cell + "w_co"], weights[cell + "w_cf"] = value'),
    layer("video-net-states-exchanged", NET, "swap|order|exchang",
          "states[k] = (h, c)", "states[k] = (c, h)"),
    layer("video-net-forgets", NET, "state|reset|zero|carried|memory|initial",
          "cell(x, states[k])", "cell(x, (zeros, zeros))"),
    layer("video-net-truncated", NET + " rnn.0 rnn.1", CUT,
          "states[k] = (h, c)", "states[k] = (h.detach(), c.detach())"),
    layer("video-net-first-frame", NET, "frame|index|slice|first of|last of|[:, 0]|[:, -1]",
          "self.warp(frames[:, -1], flow)", "self.warp(frames[:, 0], flow)"),
    layer("video-net-sigmoid-late", NET, "order|sigmoid|before|after",
          'F.interpolate(F.sigmoid(self.to_mask(x)), scale_factor=2, mode="bilinear", align_corners=False)',
          'F.sigmoid(F.interpolate(self.to_mask(x), scale_factor=2, mode="bilinear", align_corners=False))'),
    layer("video-net-nearest", NET, "nearest|bilinear",
          'F.interpolate(self.to_rgb(x), scale_factor=2, mode="bilinear", align_corners=False)',
          "F.interpolate(self.to_rgb(x), scale_factor=2)"),
    layer("video-warp-corners", "warp", "align_corners|corners",
          'padding_mode="border", align_corners=True', 'padding_mode="border", align_corners=False'),
    layer("video-warp-zeros", "warp", "padding_mode|border|zeros|padding mode",
          ', padding_mode="border"', ""),
    layer("video-warp-width", "warp", "off by one|w - 1|factor|scale|size|divid|normaliz",
          "2.0 * x / (w - 1) - 1.0", "2.0 * x / w - 1.0"),
    layer("video-warp-axes", "warp", "swap|order|exchang|transpos|flip",
          "paddle.stack([x, y], axis=3)", "paddle.stack([y, x], axis=3)"),
    layer("video-warp-backwards", "warp", "sign!|minus|subtract|negat|add",
          "grid_x.unsqueeze(0) + flow[:, 0]", "grid_x.unsqueeze(0) - flow[:, 0]"),
    layer("video-gelu-exact", "act", "approximate|tanh",
          "nn.GELU(approximate=True)", "nn.GELU()"),
    layer("video-norm-groups", "gn", "group",
          "nn.GroupNorm(2, hidden)", "nn.GroupNorm(3, hidden)"),
    layer("video-dropout-of-elements", "dropout", "dropout2d|channel|map|axis|element",
          "nn.Dropout2D(0.2)", "nn.Dropout(0.2)", training=True),
)

MOE = (
    layer("moe-gate-not-renormalized", "layers.0.ffn", "normaliz|renormal|sum|divid",
          "        topk_prob = topk_prob / topk_prob.sum(axis=-1, keepdim=True)\n", ""),
    layer("moe-gate-one-expert", "layers.0.ffn", "top_k|top-k|topk|k=1|top 1|number of",
          "MoELayer(d_model, 12, 4, 2)", "MoELayer(d_model, 12, 4, 1)"),
    layer("moe-gate-has-bias", "layers.0.ffn.gate layers.1.ffn.gate", "bias",
          "nn.Linear(d_model, num_experts, bias_attr=False)", "nn.Linear(d_model, num_experts)", built=True),
    layer("moe-experts-weighted-inputs", "layers.0.ffn", "order|before|after|inside|weighted|scale|multipl",
          "combine[:, e : e + 1] * expert(tokens)", "expert(combine[:, e : e + 1] * tokens)"),
    layer("moe-experts-no-shared", "layers.0.ffn", "shared_expert|unused|not used|never|missing",
          "output = self.shared_expert(tokens)", "output = paddle.zeros_like(tokens)"),
    layer("moe-expert-not-squared",
          " ".join(f"layers.0.ffn.{one}" for one in ("shared_expert", *(f"experts.{i}" for i in range(4)))),
          "squar|power|relu|multipl|h * h",
          "self.fc2(h * h)", "self.fc2(h)"),
    layer("moe-aux-importance-detached", "layers.0.ffn layers.1.ffn", CUT,
          "importance = probs.mean(axis=0)", "importance = probs.detach().mean(axis=0)"),
    layer("moe-aux-z-not-squared", "layers.0.ffn", "squar|power",
          "paddle.logsumexp(logits, axis=-1).square().mean()", "paddle.logsumexp(logits, axis=-1).mean()"),
    layer("moe-aux-summed", NET, "mean|average|divid|factor|scale|sum",
          "aux_total / len(self.layers)", "aux_total"),
    layer("moe-block-no-layer-scale", "layers.0", "layer_scale|unused|not used|scale|factor|multipl|never",
          "return x + self.layer_scale * y, aux", "return x + y, aux"),
    layer("moe-block-wrong-norm", "layers.0", "ln1|ln2|instead|wrong layer|unused|not used",
          "self.ffn(self.ln2(x))", "self.ffn(self.ln1(x))"),
    layer("moe-net-mask-off-by-one", NET, "mask|off by one|length|<=|less|compar",
          ".unsqueeze(0) < lengths", ".unsqueeze(0) <= lengths"),
    layer("moe-net-not-masked", NET, "mask|length|padding|where|outside",
          "F.softmax(score, axis=1)", "F.softmax(paddle.matmul(h, self.pool_query), axis=1)"),
    layer("moe-net-softmax-over-batch", NET, "axis|dim",
          "F.softmax(score, axis=1)", "F.softmax(score, axis=0)"),
    layer("moe-head-norm-of-rows", "classifier", "weight_norm|weight norm|dim|axis|weight_g",
          'name="weight", dim=1)', 'name="weight", dim=0)'),
)

CONFORMER = (
    layer("conformer-front-emphasis", "frontend", "0.97|0.95|constant|coefficient|factor",
          "0.97 * wav", "0.95 * wav"),
    layer("conformer-front-symmetric-window", "frontend", "window|hann|periodic|symmetric",
          "np.cos(2 * np.pi * n / n_fft)", "np.cos(2 * np.pi * n / (n_fft - 1))"),
    layer("conformer-front-pads-zeros", "frontend", "reflect|constant|zeros|padding mode|pad mode",
          'mode="reflect", ', ""),
    layer("conformer-front-magnitude", "frontend", "sqrt|power|magnitude|square|root",
          "power = real.square() + imag.square()", "power = paddle.sqrt(real.square() + imag.square())"),
    layer("conformer-front-floor-added", "frontend", "clip|clamp|eps|1e-0|floor|minimum|add",
          "paddle.log(paddle.clip(mel, min=1e-6))", "paddle.log(mel + 1e-2)"),
    layer("conformer-front-biased", "frontend", "unbiased|biased|bessel|ddof|correction|n - 1|variance",
          "logmel.std(axis=1, keepdim=True)", "logmel.std(axis=1, unbiased=False, keepdim=True)"),
    layer("conformer-front-mean-of-bands", "frontend", "axis|dim",
          "logmel.mean(axis=1, keepdim=True)", "logmel.mean(axis=2, keepdim=True)"),
    layer("conformer-front-no-gradient", "frontend", CUT,
          "    def forward(self, wav):\n        emphasized", "    @paddle.no_grad()\n    def forward(self, wav):\n        emphasized"),
    layer("conformer-net-flattened-otherwise", NET, "order|flatten|transpos|axis|axes|layout|channel|reshape|perm",
          "x.transpose([0, 2, 1, 3]).flatten(2)", "x.transpose([0, 2, 3, 1]).flatten(2)"),
    layer("conformer-block-whole-step", "encoder.0", "0.5|half|factor|scale|multipl",
          "x = x + 0.5 * self.ffn1(x)", "x = x + self.ffn1(x)"),
    layer("conformer-block-conv-first", "encoder.0", "order|swap|before|after|exchang",
          "        x = x + self.self_attn(x)\n        x = x + self.conv_module(x)\n",
          "        x = x + self.conv_module(x)\n        x = x + self.self_attn(x)\n"),
    layer("conformer-block-no-last-norm", "encoder.0", "norm|unused|not used|never",
          "return self.final_layer_norm(x)", "return x"),
    layer("conformer-conv-glu-halves", "encoder.0.conv_module", "glu|swap|order|halves|exchang|sigmoid",
          "x = F.glu(self.pointwise_conv1(x), axis=1)",
          "gate, x = paddle.chunk(self.pointwise_conv1(x), 2, axis=1)\n        x = x * F.sigmoid(gate)"),
    layer("conformer-conv-norm-epsilon", "encoder.0.conv_module.batch_norm", "eps",
          "nn.BatchNorm1D(dim, epsilon=1e-3, momentum=0.95)", "nn.BatchNorm1D(dim, momentum=0.95)"),
    layer("conformer-conv-norm-momentum", "encoder.0.conv_module.batch_norm encoder.1.conv_module.batch_norm", "momentum",
          "momentum=0.95)", "momentum=0.05)", training=True),
    layer("conformer-conv-no-swish", "encoder.0.conv_module", "swish|silu|activation",
          "F.swish(self.batch_norm(self.depthwise_conv(x)))", "self.batch_norm(self.depthwise_conv(x))"),
    layer("conformer-ffn-drops-most", "encoder.0.ffn1.dropout", "p!|probab|rate|0.9|0.1",
          "        self.dropout = nn.Dropout(0.1)\n        self.linear2", "        self.dropout = nn.Dropout(0.9)\n        self.linear2",
          training=True),
    layer("conformer-attention-mirrored", "encoder.0.self_attn", "sign!|transpos|order|negat|revers|swap|exchang|mirror|subtract",
          "position.unsqueeze(0) - position.unsqueeze(1)", "position.unsqueeze(1) - position.unsqueeze(0)"),
    layer("conformer-attention-bias-scaled", "encoder.0.self_attn", "order|scale|before|after|divid|sqrt|factor",
          " / math.sqrt(self.head_dim)", "",
          "F.softmax(scores + bias.unsqueeze(0), axis=-1)", "F.softmax((scores + bias.unsqueeze(0)) / math.sqrt(self.head_dim), axis=-1)"),
    layer("conformer-attention-near-only", "encoder.0.self_attn", "clip|clamp|max_distance|bound|limit|range",
          "paddle.clip(distance, -self.max_distance, self.max_distance)",
          "paddle.clip(distance, -self.max_distance + 1, self.max_distance - 1)"),
)

YOLO = (
    layer("yolo-conv-hardswish", "stem", "swish|silu|hardswish|activation|sigmoid",
          "return x * F.sigmoid(x)", "return F.hardswish(x)"),
    layer("yolo-conv-epsilon", "stem.bn", "eps",
          "            epsilon=1e-3,\n", ""),
    layer("yolo-conv-momentum", "stem.bn stage3.bn stage4.bn stage5.0.bn stage5.1.cv1.bn stage5.1.cv2.bn neck.td_p4.conv.bn "
          "neck.td_p3.conv.bn neck.bu_p4.conv.bn neck.bu_p5.conv.bn", "momentum",
          "momentum=0.97", "momentum=0.03", training=True),
    layer("yolo-fusion-epsilon", "neck.td_p4", "eps|0.001|0.0001|1e-0|constant",
          "epsilon=1e-4", "epsilon=1e-2"),
    layer("yolo-fusion-softmax", "neck.td_p4", "softmax|relu|normaliz",
          "        w = F.relu(self.w)\n        w = w / (paddle.sum(w) + self.epsilon)\n", "        w = F.softmax(self.w, axis=0)\n"),
    layer("yolo-fusion-weight-of-first", "neck.td_p4", "index|w[|off by one|loop|wrong weight|weights are used|shift",
          "out = out + w[i] * inputs[i]", "out = out + w[i - 1] * inputs[i]"),
    layer("yolo-neck-no-skip", "neck", "skip|argument|td4|instead of|twice|unused|operand|wrong tensor",
          "self.bu_p4([p4, td4,", "self.bu_p4([td4, td4,"),
    layer("yolo-neck-pool-kernel", "neck.down neck", "kernel|padding|pool",
          "nn.MaxPool2D(3, stride=2, padding=1)", "nn.MaxPool2D(2, stride=2, ceil_mode=True)"),
    layer("yolo-neck-bilinear", "neck", "bilinear|nearest",
          'F.interpolate(p5, size=p4.shape[2:], mode="nearest")', 'F.interpolate(p5, size=p4.shape[2:], mode="bilinear")'),
    layer("yolo-spp-parallel", "stage5.1", "chain|cascad|serial|repeat|kernel|receptive|window|applied to",
          "self.pool(outs[-1])", "self.pool(outs[0])"),
    layer("yolo-spp-reversed", "stage5.1", "order|concat|revers|swap",
          "paddle.concat(outs, axis=1)", "paddle.concat(outs[::-1], axis=1)"),
    layer("yolo-head-layout", "head", "reshape|layout|order|transpos|axis|axes|perm",
          "reshape([b, self.num_anchors, self.num_classes + 5, h, w])\n            pred = pred.transpose([0, 1, 3, 4, 2])",
          "reshape([b, self.num_classes + 5, self.num_anchors, h, w])\n            pred = pred.transpose([0, 2, 3, 4, 1])"),
    layer("yolo-head-grid-axes", "head", "swap|order|exchang|meshgrid|transpos",
          "paddle.stack([gx, gy], axis=-1)", "paddle.stack([gy, gx], axis=-1)"),
    layer("yolo-head-no-half", "head", "0.5|offset|constant|subtract|shift|add",
          "* 2.0 - 0.5 + self", "* 2.0 + self"),
    layer("yolo-head-exponential", "head", "exp!|exponent|sigmoid",
          "(F.sigmoid(pred[..., 2:4]) * 2.0) ** 2 * anchor", "paddle.exp(pred[..., 2:4]) * anchor"),
    layer("yolo-head-anchors-in-cells", "head", "stride|scale|factor|divid|multipl",
          "** 2 * anchor", "** 2 * anchor / self.strides[i]"),
    layer("yolo-head-strides", "head", "stride|scale|factor",
          "self.strides = [4, 8, 16]", "self.strides = [8, 16, 32]"),
    layer("yolo-head-anchors-not-loaded", "head", "anchors|buffer",
          "[[5, 6], [8, 14]]", "[[6, 5], [14, 8]]",
          'if key.endswith("num_batches_tracked")', 'if key.endswith(("num_batches_tracked", "anchors"))'),
    layer("yolo-head-objectness-squashed", "head", "sigmoid",
          "pred[..., 4:]], axis=-1)", "F.sigmoid(pred[..., 4:])], axis=-1)"),
)

TRAINED = (
    other("loss", "unet-loss-no-class-weights", "weight=|class weight|per class|class_weight|weighted|weighting|argument weight|`weight`",
          ", weight=paddle.to_tensor([0.4, 1.6], dtype=output.dtype)", ""),
    other("loss", "wavenet-loss-not-shifted", "shift|label|target|off by one|slice",
          "labels[:, 1:]", "labels[:, :-1]"),
    other("loss", "graph-loss-of-logits", "log_softmax|softmax|log!|normaliz",
          "F.nll_loss(F.log_softmax(output, axis=1), labels)", "F.nll_loss(output, labels)"),
    other("loss", "pointnet-loss-factor", "0.001|0.01|factor|coefficient|ten times|scale|constant",
          "0.01 * paddle.norm", "0.001 * paddle.norm"),
    other("loss", "nerf-loss-absolute", "l1|l2|mse|absolute|squar",
          "F.mse_loss(", "F.l1_loss("),
    other("loss", "vqvae-loss-no-variance", "0.3|factor|scale|divid|constant",
          " / 0.3", ""),
    other("loss", "mamba-loss-counts-padding", "ignore|padding|mean|reduction|divid|average|count",
          "* kept).sum() / kept.sum()", "* kept).mean()"),
    other("loss", "llama-loss-mean-of-all", "ignore|mean|average|valid|reduction|divid|count|-100",
          "token_loss.sum() / (target != -100).astype(token_loss.dtype).sum()", "token_loss.mean()"),
    other("loss", "twotower-loss-one-way", "text|second|half|symmetric|average|output 1|output[1]|other",
          "return (loss_i + loss_t) / 2", "return loss_i"),
    other("loss", "adain-loss-huber", "huber|delta|beta|factor|scale",
          ", is_huber=False", ""),
    other("loss", "adain-loss-gram-mean", "reduction|mean|sum",
          'reduction="sum"', 'reduction="mean"'),
    other("loss", "video-loss-constant", "eps|constant|1e-06|0.001|1e-3|1e-6",
          "1e-6", "1e-3"),
    other("loss", "moe-loss-modulator-detached", CUT,
          "paddle.pow(1 - paddle.exp(log_prob), 2)", "paddle.pow(1 - paddle.exp(log_prob), 2).detach()"),
    other("loss", "conformer-loss-not-smoothed", "smooth",
          " * 0.9 + 0.1 / num_classes", ""),
    other("loss", "yolo-loss-alpha-learns", CUT,
          "(v / (v - iou + 1 + eps)).detach()", "v / (v - iou + 1 + eps)"),
    other("optimizer", "unet-optimizer-no-nesterov", "nesterov",
          "weight_decay=1e-3, use_nesterov=True", "weight_decay=1e-3"),
    other("optimizer", "wavenet-optimizer-beta", "beta2|beta|0.98|0.999",
          "beta2=0.98, ", ""),
    other("optimizer", "wavenet-optimizer-clips", "clip",
          "epsilon=1e-6, parameters=parameters",
          "epsilon=1e-6, parameters=parameters, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.1)"),
    other("optimizer", "graph-optimizer-decoupled", "decoupled|adamw|l2|coupled",
          "paddle.optimizer.Adam(", "paddle.optimizer.AdamW("),
    other("optimizer", "pointnet-optimizer-default-decay", "weight_decay|weight decay|decay",
          ", weight_decay=0.05", ""),
    other("optimizer", "mamba-optimizer-decays-all", "apply_decay_param_fun|weight decay|weight_decay|decay",
          "        apply_decay_param_fun=lambda name: name in decayed,\n", ""),
    other("optimizer", "llama-optimizer-epsilon", "eps",
          "        epsilon=1e-5,\n", ""),
    other("optimizer", "twotower-optimizer-groups-exchanged", "weight_decay|weight decay|decay|group",
          '{"params": no_decay, "weight_decay": 0.0}, {"params": decay, "weight_decay": 0.2}',
          '{"params": no_decay, "weight_decay": 0.2}, {"params": decay, "weight_decay": 0.0}'),
    other("optimizer", "adain-optimizer-momentum", "momentum",
          "momentum=0.8", "momentum=0.9"),
    other("optimizer", "moe-optimizer-accumulator", "accumulator",
          ", initial_accumulator_value=0.1", ""),
    other("scheduler", "unet-scheduler-gamma", "gamma|factor|0.1|0.5",
          "milestones=[2, 4], gamma=0.5", "milestones=[2, 4]"),
    other("scheduler", "wavenet-scheduler-natural", "natural|exponential|gamma|factor",
          "lr.ExponentialDecay(learning_rate=2e-3, gamma=0.8)", "lr.NaturalExpDecay(learning_rate=2e-3, gamma=0.8)"),
    other("scheduler", "pointnet-scheduler-interval", "step_size|interval|period|every|milestone",
          "step_size=2", "step_size=3"),
    other("scheduler", "nerf-scheduler-staircase", "integer|floor|stair|jump|constant|10|every|interval",
          "0.1 ** (step / 10)", "0.1 ** (step // 2 / 5)"),
    other("scheduler", "mamba-scheduler-warm-from-nothing", "warm|off by one|shift|start|step earlier|step late|first",
          "return (step + 1) / 3", "return step / 3"),
    other("scheduler", "llama-scheduler-to-zero", "eta_min|minimum|lowest|ends at|end value|final",
          ", eta_min=3e-4", ""),
    other("scheduler", "video-scheduler-start", "start_factor|start factor|start|0.25|0.33|warm",
          "start_factor=0.25, ", ""),
    other("scheduler", "yolo-scheduler-power", "power",
          "end_lr=0.0, power=2.0", "end_lr=0.0"),
    other("data", "unet-data-pads-black", "pad|constant|fill|border",
          ", constant_values=0.5", ""),
    other("data", "unet-data-mean-of-bgr", "channel|bgr|rgb|order|normaliz|mean=|means",
          "mean = np.array([0.485, 0.456, 0.406]", "mean = np.array([0.406, 0.456, 0.485]"),
    other("data", "pointnet-data-axes", "order|axes|axis|permut|swap|channel|exchang|row",
          "order = [0, 2, 1]", "order = [0, 1, 2]"),
    other("data", "twotower-data-crop", "crop|round|offset|shift|pixel",
          "y0 = round((height - 16) / 2.0)", "y0 = (height - 16) // 2"),
    other("data", "twotower-data-rgb", "bgr|rgb|channel",
          "x0 : x0 + 16, ::-1]", "x0 : x0 + 16]"),
    other("data", "conformer-data-one-channel", "channel|mono|average|mean of|mean over",
          'wave.astype("float32").mean(axis=1)', 'wave.astype("float32")[:, 0]'),
    other("data", "yolo-data-not-centred", "pad|center|centre|offset|shift|corner|border",
          "top, left = (32 - new_h) // 2, (32 - new_w) // 2", "top, left = 0, 0"),
    other("data", "yolo-data-corners", "align_corners|corners|interpol|resiz",
          "align_corners=False, align_mode=0", "align_corners=True"),
    other("metric", "unet-metric-no-background", "class|background|averag",
          "for c in range(outputs.shape[1]):", "for c in range(1, outputs.shape[1]):"),
    other("metric", "llama-metric-counts-padding", "ignore|-100|mask|valid|padding|count",
          "-(picked * valid).sum() / valid.sum()", "-picked.mean()"),
    other("metric", "yolo-metric-no-union", "union|intersection|area|overlap|iou",
          "iou = inter / (area - inter)", "iou = inter / area"),
)

THIRD_FAULTS = (
    *UNET, *WAVENET, *GRAPH, *POINTNET, *NERF, *VQVAE, *MAMBA, *LLAMA, *TWOTOWER, *ADAIN, *VIDEO, *MOE, *CONFORMER,
    *YOLO, *TRAINED,
)
# fmt: on
