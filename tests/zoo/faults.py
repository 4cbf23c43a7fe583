"""Mistakes of ports: how a line reads, where it stands, and what a first diagnosis must say of it.

``where`` and ``says`` were written down from the edits, before tipchain saw any of these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from zoo.planting import Edits, Pair, pair

PLACED = ("model", "values", "training")
"""Parts of a model: settings and code of layers, what they hold, what training does."""
NEEDS = {
    "model": {},
    "values": {},
    "training": {"training": True},
    "loss": {},
    "optimizer": {"updates": True},
    "scheduler": {"updates": True},
    "step": {"updates": True, "step": True},
    "data": {"data": True},
    "metric": {"metrics": True},
}
"""What a pair is run with to show a fault of a part."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A port with one mistake.

    Attributes:
        id: the family, and what is wrong.
        part: one of `NEEDS`.
        where: the port's layers that may be named, "" is the model; of other parts than `PLACED` the part.
        says: a pattern that is in a cause which names it, in kind, name, message or fix.
        edits: what reads otherwise in the port.
        how: how the pair is run, beside what its part needs.
    """

    id: str
    part: str
    where: tuple[str, ...]
    says: str
    edits: Edits
    how: Mapping[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> str:
        """The net."""
        return self.id.partition("-")[0]

    def is_named(self, cause: Any) -> bool:
        """Tell whether a cause says what is wrong; paths of layers and names of files are no words."""
        if cause is None:
            return False
        text = " ".join(str(part or "") for part in (cause.code, cause.name, cause.message, cause.fix))
        text = re.sub(r"zoo_\w+\.py(:\d+)?", "", text.replace(f"`{cause.port_path}`", ""))
        return re.search(self.says, text, re.IGNORECASE) is not None

    def build(self) -> Pair:
        """Return the pair whose port has the fault."""
        return pair(self.family, port_edits=self.edits, strict=False, **NEEDS[self.part], **self.how)


def _layer(part: str, name: str, where: str, says: str, *texts: str, **how: Any) -> Fault:
    """Make a fault of a layer: each text is replaced by the one after it; a dot is the model."""
    paths = tuple("" if path == "." else path for path in where.split())
    edits = tuple(zip(texts[::2], texts[1::2], strict=True))
    return Fault(id=name, part=part, where=paths, says=says, edits=edits, how=how)


def _around(part: str, name: str, says: str, *texts: str, **how: Any) -> Fault:
    return _layer(part, name, part, says, *texts, **how)


_model, _values, _training = (partial(_layer, part) for part in PLACED)
_loss, _optimizer, _scheduler, _step, _data, _metric = (
    partial(_around, part) for part in ("loss", "optimizer", "scheduler", "step", "data", "metric")
)
CUT = r"detach|stop_gradient|no_grad|no gradient|gradient.*(\bcut|stops|flow|reach)|(flow|reach).*gradient|cut-gradient"
ORDER = r"\border|swap|exchang|revers|permut"
AXES = r"transpos|permut|\baxis|\baxes|\border|layout|reshape|flatten"

# fmt: off
MODEL = (
    _model("unet-up-nearest", "up3", r"\b(nearest|bilinear)",
          'mode="bilinear", align_corners=True', 'mode="nearest"'),
    _model("unet-up-has-bias", "up3.conv up2.conv", r"\bbias",
          "nn.Conv2D(in_ch, out_ch, 3, padding=1, bias_attr=False)", "nn.Conv2D(in_ch, out_ch, 3, padding=1)"),
    _model("unet-gate-on-itself", "gate3", r"operand|\bskip\b",
          "return skip * coefficient", "return gate * coefficient"),
    _model("unet-net-skip-not-gated", ".", "gate3|never|not called",
          "[self.gate3(x, s2), x]", "[s2, x]"),
    _model("unet-block-no-last-relu", "down1", r"\b(relu|activation)",
          "return F.relu(self.bn2(self.conv2(x)))", "return self.bn2(self.conv2(x))"),
    _model("wavenet-block-halves-swapped", "blocks.0", ORDER,
          "filt, gate = paddle.split", "gate, filt = paddle.split"),
    _model("wavenet-block-skip-of-input", "blocks.0", "conv_skip",
          "self.conv_skip(z)", "self.conv_skip(x)"),
    _model("wavenet-dilation-grows-by-one", "blocks.2.dilated.conv blocks.2.dilated", r"\bdilation",
          "cond_channels, 2**i)", "cond_channels, i + 1)"),
    _model("wavenet-net-rounds-down", ".", r"0\.5|round|floor|trunc",
          "* mu + 0.5)", "* mu)"),
    _model("wavenet-net-first-skip-lost", ".", r"skips\[1:\]|add_n|slice|missing",
          "paddle.add_n(skips)", "paddle.add_n(skips[1:])"),
    _model("graph-gcn-degree-of-sources", "gcn", r"\brow\b|\bcol\b",
          "deg, col.unsqueeze(-1)", "deg, row.unsqueeze(-1)"),
    _model("graph-gat-slope", "gat", r"\b(slope|0\.01)",
          "alpha, negative_slope=0.2", "alpha"),
    _model("graph-gat-head-layout", "gat", AXES,
          "reshape([num_nodes, self.num_heads, -1])", "reshape([num_nodes, -1, self.num_heads]).transpose([0, 2, 1])"),
    _model("graph-net-sum", ".", r"\bsum|\bmean|averag|\bdivid|\bcount",
          "segment_mean(", "segment_sum("),
    _model("pointnet-tnet-no-identity", "input_transform", "identity|eye",
          "reshape([-1, self.k, self.k]) + identity", "reshape([-1, self.k, self.k])"),
    _model("pointnet-tnet-transposed", "input_transform", r"\b(transpos|axes|perm)",
          "reshape([-1, self.k, self.k]) +", "reshape([-1, self.k, self.k]).transpose([0, 2, 1]) +"),
    _model("pointnet-net-radius-of-batch", ".", r"\b(axis|batch|per sample|reduc|max)",
          "sqrt((pc**2).sum(axis=1)).max(axis=1)", "sqrt((pc**2).sum(axis=1)).max()",
          "radius.unsqueeze([1, 2])", "radius"),
    _model("pointnet-net-softmax", ".", r"\b(log_softmax|log softmax|logsoftmax|logarithm|log\b)",
          "return F.log_softmax", "return F.softmax"),
    _model("vqvae-book-not-straight-through", "quantizer", CUT,
          "        z_q = z + (z_q - z).detach()\n", ""),
    _model("vqvae-book-bits", "quantizer", r"\b(log|base)",
          "paddle.log(avg_probs", "paddle.log2(avg_probs"),
    _model("vqvae-norm-epsilon", "decoder.3", r"\beps",
          "nn.GroupNorm(3, dim, epsilon=1e-6)", "nn.GroupNorm(3, dim, epsilon=1e-4)"),
    _model("vqvae-res-in-place", "encoder.3", r"\b(in place|inplace|in-place|alias|relu|activation)",
          "return x + self.block(x)", "return F.relu_(x) + self.block(x)"),
    _model("mamba-mixer-halves-swapped", "blocks.0.mixer", ORDER,
          "x, gate = self.in_proj", "gate, x = self.in_proj"),
    _model("mamba-mixer-no-silu", "blocks.0.mixer", r"\b(silu|swish|activation)",
          "x = F.silu(x).transpose([0, 2, 1])", "x = x.transpose([0, 2, 1])"),
    _model("mamba-mixer-relu-step", "blocks.0.mixer", r"\b(relu|softplus|activation)",
          "F.softplus(self.dt_proj(dt))", "F.relu(self.dt_proj(dt))"),
    _model("mamba-mixer-gives-before-update", "blocks.0.mixer", r"\border|before|after|shift|late\b",
          "            state = state * decay + step * b[:, i].unsqueeze(1) * x[:, i].unsqueeze(-1)\n"
          "            outputs.append(paddle.matmul(state, c[:, i].unsqueeze(-1)).squeeze(-1))\n",
          "            outputs.append(paddle.matmul(state, c[:, i].unsqueeze(-1)).squeeze(-1))\n"
          "            state = state * decay + step * b[:, i].unsqueeze(1) * x[:, i].unsqueeze(-1)\n"),
    _model("mamba-mixer-half-precision", "blocks.0.mixer", r"\b(float16|precision|cast|dtype|half|round)",
          "self.out_proj(y * F.silu(gate))", 'self.out_proj((y * F.silu(gate)).astype("float16").astype(y.dtype))'),
    _model("mamba-block-residual-of-norm", "blocks.0", r"\b(residual|skip|order|shortcut|normed|normalized)",
          "        residual = hidden\n        hidden = self.mixer(self.norm(hidden))\n",
          "        hidden = self.norm(hidden)\n        residual = hidden\n        hidden = self.mixer(hidden)\n"),
    _model("mamba-embedding-padding", "embeddings", r"\bpadding",
          "nn.Embedding(vocab_size, hidden_size)", "nn.Embedding(vocab_size, hidden_size, padding_idx=0)"),
    _model("video-cell-no-forget-bias", "rnn.0", r"1\.0|forget|constant|\badd",
          "self.w_cf * c + 1.0", "self.w_cf * c"),
    _model("video-net-forgets", ".", r"states\[k\]|\bzeros\b|state",
          "cell(x, states[k])", "cell(x, (zeros, zeros))"),
    _model("video-net-sigmoid-late", ".", r"\b(order|sigmoid|before|after)",
          'F.interpolate(F.sigmoid(self.to_mask(x)), scale_factor=2, mode="bilinear", align_corners=False)',
          'F.sigmoid(F.interpolate(self.to_mask(x), scale_factor=2, mode="bilinear", align_corners=False))'),
    _model("video-warp-corners", "warp", r"\b(align_corners|corners)",
          'padding_mode="border", align_corners=True', 'padding_mode="border", align_corners=False'),
    _model("video-warp-width", "warp", r"w - 1|\bdivi|off by one",
          "2.0 * x / (w - 1) - 1.0", "2.0 * x / w - 1.0"),
    _model("video-gelu-exact", "act", r"\b(approximate|tanh)",
          "nn.GELU(approximate=True)", "nn.GELU()"),
    _model("crnn-slope", "encoder.excite", r"slope|0\.2\b|1 ?/ ?6|0\.16",
          "F.hardsigmoid(self.up(F.relu(self.down(self.pool(x)))))",
          "F.hardsigmoid(self.up(F.relu(self.down(self.pool(x)))), slope=0.2)"),
    _model("crnn-columns", ".", AXES,
          "x.transpose([0, 3, 1, 2]).flatten(2)", "x.transpose([0, 3, 2, 1]).flatten(2)"),
    _model("vitrel-key-bias", "blocks.0.attention", "v_bias|order",
          "[self.q_bias, paddle.zeros_like(self.v_bias), self.v_bias]",
          "[self.q_bias, self.v_bias, paddle.zeros_like(self.v_bias)]"),
    _model("vitrel-epsilon", "blocks.0.norm1", r"\beps",
          "self.norm1 = nn.LayerNorm(WIDTH, epsilon=1e-6)", "self.norm1 = nn.LayerNorm(WIDTH)"),
    _model("vitrel-patches", ".", AXES,
          "flatten(2).transpose([0, 2, 1])", "flatten(2).reshape([x.shape[0], -1, WIDTH])"),
    _model("vae-variance-as-deviation", ".", r"0\.5|half|factor|scal",
          "paddle.exp(0.5 * logvar)", "paddle.exp(logvar)"),
    _model("vae-flatten-last", "encoder", AXES,
          "self.fc(x.flatten(1))", "self.fc(x.transpose([0, 2, 3, 1]).flatten(1))"),
    _model("stereo-upsampled-scale", ".", r"\b2\.0\b|scal|factor|multipl|twice|half",
          "2.0 * F.interpolate", "F.interpolate"),
    _model("stereo-softmax-axis", ".", r"\baxis|\bdim",
          "F.softmax(-cost, 1)", "F.softmax(-cost)"),
    _model("stereo-left-twice", ".", r"\bleft\b|\bright\b",
          "self.features(right)", "self.features(left)"),
    _model("efficient-exclusive", "blocks.1.shortcut", "exclusive|count_include_pad|padding",
          "padding=1, exclusive=False)", "padding=1)"),
    _model("efficient-pad-sides", "blocks.1", r"\bpad",
          "[0, 1, 0, 1] if", "[1, 0, 1, 0] if"),
    _model("efficient-sections", ".", r"split|section|chunk|\border|swap|exchang|revers|permut",
          "paddle.split(x, 8, axis=1)", "paddle.split(x, 2, axis=1)"),
    _model("bert-positions-count-pads", ".", r"mask|\bpad|position",
          'paddle.cumsum(mask.astype("int64"), 1) * mask.astype("int64")', 'paddle.cumsum(mask.astype("int64"), 1)'),
    _model("bert-average-with-pads", ".", r"mask|\bpad|mean|averag|divi|count",
          "kept.sum(1)", "x.shape[1]"),
    _model("translate-reset-first", "cell", r"\br \*|reset|before",
          "paddle.tanh(new + r * new_h)",
          "paddle.tanh(new + F.linear(r * h, self.hidden.weight[:, 2 * HIDDEN:], self.hidden.bias[2 * HIDDEN:]))"),
    _model("translate-directions", "encoder", ORDER,
          "paddle.concat([last[0], last[1]], -1)", "paddle.concat([last[1], last[0]], -1)"),
    _model("translate-mask-longer", ".", r"mask|\bpad|length|<",
          ".unsqueeze(0) < lengths", ".unsqueeze(0) <= lengths"),
    _model("fcos-align-mode", "pyramid", "align_mode|half.pixel|align",
          "align_corners=False)", "align_corners=False, align_mode=1)"),
    _model("fcos-centre-branch", "head head.centre", "tower|seen",
          "self.centre(tower)", "self.centre(seen)"),
    _model("fcos-first-sample", ".", "gather|take_along",
          "paddle.take_along_axis(boxes, index.unsqueeze(-1).expand([-1, -1, 4]), 1)",
          "paddle.gather(boxes.reshape([-1, 4]), index.flatten()).reshape([-1, BEST, 4])"),
    _model("gan-fan-out", "mapping.fc1", r"shape\[|sqrt|factor|scal",
          "math.sqrt(self.weight.shape[0])", "math.sqrt(self.weight.shape[1])"),
    _model("gan-depth-to-space", "generator", r"pixel_shuffle|transpos|reshape|\border",
          "F.pixel_shuffle(self.paint(activate(x)), 2)",
          "self.paint(activate(x)).reshape([-1, 2, 2, 3, 4, 4]).transpose([0, 3, 4, 1, 5, 2]).reshape([-1, 3, 8, 8])"),
    _model("dlrm-upper-pairs", ".", r"tri[lu]|\border",
          "paddle.tril_indices(6, 6, offset=-1)", "paddle.triu_indices(6, 6, offset=1)"),
    _model("dlrm-padding-index", "fields", "padding_idx",
          "nn.Embedding(sum(SIZES), WIDTH)", "nn.Embedding(sum(SIZES), WIDTH, padding_idx=0)"),
    _model("dlrm-absolute-ids", ".", r"\babs|negativ|\bsign|remainder|%|modul",
          "fields % self.sizes", "paddle.abs(fields) % self.sizes"),
)

VALUES = (
    _values("pointnet-statistics-not-loaded", "input_transform.mlp.1", r"\b(running|_mean|_variance|statistic|buffer)",
          'parts[-1] == "num_batches_tracked"', 'parts[-1] in {"num_batches_tracked", "running_mean", "running_var"}'),
    _values("video-cell-peepholes-exchanged", "rnn.0", r"\b(swap|exchang|w_cf|w_co|each other|holds)",
          'weights[cell + "w_cf"], weights[cell + "w_co"] = value',
          'weights[cell + "w_co"], weights[cell + "w_cf"] = value'),
    _values("crnn-reverse-weights", "rnn rnn.0 rnn.0.cell_bw", "weight_[ih]h|revers",
          'return named_for_paddle(values, kept=("rnn.",))',
          'return named_for_paddle({k: values[k.replace("_reverse", "")] for k in values}, kept=("rnn.",))'),
    _values("vitrel-index", "blocks.0.attention", "index",
          "apart[..., 0] * (2 * COLUMNS - 1) + apart[..., 1]", "apart[..., 1] * (2 * ROWS - 1) + apart[..., 0]"),
    _values("vitrel-table-not-loaded", "blocks.0.attention", "table",
          "return named_for_paddle(values)",
          'return named_for_paddle({k: v for k, v in values.items() if not k.endswith(".table")})'),
    _values("vae-variances-not-loaded", "encoder.bn1", "variance|running_var|statistic|buffer",
          "return named_for_paddle(values)",
          'return named_for_paddle({k: v for k, v in values.items() if "running_var" not in k})'),
    _values("bert-query-as-it-is", "layers.0.attention.query", "transpos",
          'return named_for_paddle(values, kept=("words.", "positions.", "kinds."))',
          'named = named_for_paddle(values, kept=("words.", "positions.", "kinds."))\n'
          '    name = "layers.0.attention.query.weight"\n    return named | {name: named[name].T}'),
)

TRAINING = (
    _training("unet-up-momentum", "up3.bn up2.bn", r"\bmomentum",
          "nn.BatchNorm2D(out_ch, momentum=0.99)", "nn.BatchNorm2D(out_ch, momentum=0.01)"),
    _training("pointnet-net-drops-after-norm", ".", r"\b(order|dropout|before|after|bn3)",
          "self.bn3(self.dropout(self.fc1(x)))", "self.dropout(self.bn3(self.fc1(x)))"),
    _training("pointnet-dropout-keeps", "dropout", r"\b(p\b|probab|rate|0\.7|0\.3)",
          "nn.Dropout(0.3)", "nn.Dropout(0.7)"),
    _training("pointnet-dropout-mode", "dropout", r"\b(mode=|downscale|upscale|scale)",
          "nn.Dropout(0.3)", 'nn.Dropout(0.3, mode="downscale_in_infer")'),
    _training("vqvae-book-not-smoothed", "quantizer", "smooth|epsilon|buffer `embed`",
          "average / smoothed.unsqueeze(1)", "average / size.unsqueeze(1)"),
    _training("vqvae-book-shared-buffer", "quantizer",
          r"\b(alias|share|same tensor|clone|copy|one tensor|same buffer|buffer `embed_avg)",
          '"embed_avg", embedding.clone()', '"embed_avg", embedding'),
    _training("video-dropout-of-elements", "dropout", r"\b(dropout2d|channel|map|axis|element)",
          "nn.Dropout2D(0.2)", "nn.Dropout(0.2)"),
    _training("vitrel-attention-dropout", "blocks.0.attention.drop", r"probab|\bp\b|\brate",
          "Attention(attention_dropout)", "Attention()"),
    _training("vae-global-statistics", "encoder.bn1", "use_global_stats|running|statistic|global|eval",
          "self.bn1 = nn.BatchNorm2D(6)\n        self.conv2",
          "self.bn1 = nn.BatchNorm2D(6, use_global_stats=True)\n        self.conv2"),
    _training("efficient-momentum", "bn", "momentum",
          "self.bn = nn.BatchNorm2D(8, epsilon=1e-3, momentum=0.99)",
          "self.bn = nn.BatchNorm2D(8, epsilon=1e-3, momentum=0.01)"),
    _training("bert-residual-dropout", "layers.0", "dropout",
          "self.norm2(x + self.dropout(y))", "self.norm2(x + y)"),
    _training("gan-average", "mapping", "average|momentum|decay|buffer",
          "w.mean(0) * 0.1 + self.average * 0.9", "w.mean(0) * 0.9 + self.average * 0.1"),
)

LOSS = (
    _loss("unet-loss-no-class-weights", r"\bweight\b",
          ", weight=paddle.to_tensor([0.4, 1.6], dtype=output.dtype)", ""),
    _loss("graph-loss-of-logits", r"\b(log_softmax|softmax|log\b|normaliz)",
          "F.nll_loss(F.log_softmax(output, axis=1), labels)", "F.nll_loss(output, labels)"),
    _loss("pointnet-loss-factor", r"\b(0\.001|0\.01|factor|coefficient|ten times|scale|constant)",
          "0.01 * paddle.norm", "0.001 * paddle.norm"),
    _loss("mamba-loss-counts-padding", r"\bmean\b|kept|\bsum\b|divi",
          "* kept).sum() / kept.sum()", "* kept).mean()"),
    _loss("video-loss-constant", r"\b(eps|constant|1e-06|0\.001|1e-3|1e-6)",
          "1e-6", "1e-3"),
    _loss("crnn-mean-of-sums", r"\bmean\b|reduction|length",
          'reduction="mean")', 'reduction="none").mean()'),
    _loss("crnn-norm-by-times", "norm_by_times",
          'reduction="mean")', 'reduction="mean", norm_by_times=True)'),
    _loss("vae-divergence-mean", r"\bmean\b|\bsum\b",
          "logvar.exp()).sum(1)", "logvar.exp()).mean(1)"),
    _loss("stereo-far-pixels", "SHIFTS|logical_and|mask|<",
          "paddle.logical_and(labels > 0, labels < 2 * SHIFTS)\n    values", "labels > 0\n    values"),
    _loss("efficient-weights-mean", r"reduction|\bmean\b|weight",
          "F.cross_entropy(outputs, classes, weight=weight)",
          'F.cross_entropy(outputs, classes, weight=weight, reduction="none").mean()'),
    _loss("bert-ignored-counted", r"averag|\bmean|\bdivi|\bcount|all (labels|samples)",
          'ignore_index=-100, reduction="sum")\n    masked = masked / (wanted != -100).astype(masked.dtype).sum()\n',
          "ignore_index=-100)\n"),
    _loss("fcos-delta", "delta|beta|smooth|huber|factor|times",
          "delta=0.5) / 0.5", "delta=0.5)"),
    _loss("fcos-alpha", r"0\.25|0\.75",
          "0.25 * onehot + 0.75 * (1 - onehot)", "0.75 * onehot + 0.25 * (1 - onehot)"),
    _loss("dlrm-logits", "sigmoid|logit",
          "click = F.binary_cross_entropy(outputs[0]", "click = F.binary_cross_entropy_with_logits(outputs[0]"),
)

OPTIMIZER = (
    _optimizer("unet-optimizer-no-nesterov", "nesterov",
          "weight_decay=1e-3, use_nesterov=True", "weight_decay=1e-3"),
    _optimizer("wavenet-optimizer-clips", r"\bclip",
          "epsilon=1e-6, parameters=parameters",
          "epsilon=1e-6, parameters=parameters, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.1)"),
    _optimizer("graph-optimizer-decoupled", r"\b(decoupled|adamw|l2|coupled)",
          "paddle.optimizer.Adam(", "paddle.optimizer.AdamW("),
    _optimizer("mamba-optimizer-decays-all", r"\b(apply_decay_param_fun|weight decay|weight_decay|decay)",
          "        apply_decay_param_fun=lambda name: name in decayed,\n", ""),
    _optimizer("vitrel-all-decayed", "weight.?decay",
          'parameters=[{"params": decayed, "weight_decay": 0.5}, {"params": kept, "weight_decay": 0.0}]',
          "parameters=decayed + kept, weight_decay=0.5"),
    _optimizer("bert-decays-norms", "decay",
          "        apply_decay_param_fun=lambda name: name in decayed,\n", ""),
    _optimizer("fcos-nesterov", "nesterov",
          ", use_nesterov=True", ""),
    _optimizer("fcos-bias-rate", "learning.?rate",
          '"learning_rate": 2.0', '"learning_rate": 0.02'),
    _optimizer("translate-l1", r"\bl1|sign|regulari",
          "weight_decay=0.02", "weight_decay=paddle.regularizer.L1Decay(0.02)"),
)

SCHEDULER = (
    _scheduler("unet-scheduler-gamma", r"\b(gamma|factor|0\.1|0\.5)",
          "milestones=[2, 4], gamma=0.5", "milestones=[2, 4]"),
    _scheduler("pointnet-scheduler-interval", r"\b(step_size|interval|period|every|milestone)",
          "step_size=2", "step_size=3"),
    _scheduler("video-scheduler-start", r"\b(start_factor|start factor|start|0\.25|0\.33|warm)",
          "start_factor=0.25, ", ""),
    _scheduler("vitrel-minimum", "eta_min|minim",
          ", eta_min=1e-5", ""),
    _scheduler("bert-warm-up-from-zero", r"warm|\+ 1|one step|first|start|step / WARM",
          "(step + 1) / WARM", "step / WARM"),
    _scheduler("translate-natural-decay", "natural|gamma|ExponentialDecay",
          "ExponentialDecay", "NaturalExpDecay"),
)

STEP = (
    _step("efficient-not-divided", r"divi|accumul|\bsum|mean|scal",
          "(value / 2).backward()", "value.backward()"),
    _step("gan-average-first", r"before|order|averag|optimizer\.step",
          "        self.optimizer.step()\n", "",
          "        return value\n", "        self.optimizer.step()\n        return value\n"),
)

DATA = (
    _data("unet-data-pads-black", r"\b(pad|constant|fill|border)",
          ", constant_values=0.5", ""),
    _data("pointnet-data-axes", r"order|\baxes|\baxis|permut|swap|column",
          "order = [0, 2, 1]", "order = [0, 1, 2]"),
    _data("vitrel-bilinear", "bicubic|bilinear|interpol|resampl",
          "Image.BICUBIC", "Image.BILINEAR"),
    _data("vae-threshold", r"threshold|>=|0\.5|equal|compar|binar",
          "image >= 0.5", "image > 128 / 255"),
    _data("efficient-statistics-order", "mean|std|normali",
          "mean = np.array([0.485, 0.456, 0.406]", "mean = np.array([0.406, 0.456, 0.485]",
          "std = np.array([0.229, 0.224, 0.225]", "std = np.array([0.225, 0.224, 0.229]"),
    _data("bert-cut-left", r"trunc|\bcut|left|first|last|front|begin|start|end",
          "tokens[: LENGTH - 2]", "tokens[-(LENGTH - 2) :]"),
    _data("dlrm-missing-mean", r"\bnan|missing|fill|mean",
          "np.where(np.isnan(numbers), 0, numbers)", "np.where(np.isnan(numbers), np.nanmean(numbers), numbers)"),
)

METRIC = (
    _metric("unet-metric-no-background", r"range\(.*outputs\.shape|background",
          "for c in range(outputs.shape[1]):", "for c in range(1, outputs.shape[1]):"),
    _metric("vitrel-top-five", r"top|\bk\b|\b5\b",
          "order[:, :5]", "order[:, :1]"),
    _metric("stereo-outliers", r"0\.4",
          "(gap > 1) & (gap > 0.4 * labels[kept])", "gap > 1"),
    _metric("efficient-top5", r":5\]|top.?5",
          ":3]", ":5]"),
    _metric("translate-perplexity-pads", r"\bpad|ignor|mask|chosen\[kept\]\.mean",
          "-chosen[kept].mean()", "-chosen.mean()"),
)

FAULTS = (*MODEL, *VALUES, *TRAINING, *LOSS, *OPTIMIZER, *SCHEDULER, *STEP, *DATA, *METRIC)
# fmt: on
