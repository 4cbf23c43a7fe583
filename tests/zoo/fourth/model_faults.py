"""Faults inside of models: settings of layers, code between them, what they hold, what training does."""

from __future__ import annotations

from typing import Any

from zoo.fourth.planting import FourthFault

EPSILON = r"\beps"
ORDER = r"\border|swap|exchang|revers|permut"
AXES = r"transpos|permut|\baxis|\baxes|\border|layout|reshape|\bview"
DROPOUT = r"dropout"
RATE = r"probab|\bp\b|\brate"
SCALE = r"\bscal|factor|multipl|\bdivi|sqrt|\*\*|\bratio|\btimes\b"
RELU = r"relu"
STOPPED = (
    r"detach|stop_gradient|no_grad|stops?\b|\bcut|frozen|trainable|not learned|gradient (does not|flows|passes|reach)"
)
MISSING_DETACH = r"detach|stop_gradient|no_grad|stops?\b|\bcut|gradient.*(flow|pass|reach)|(flow|pass|reach).*gradient"


def _layer(*fields: Any, **how: Any) -> FourthFault:
    return FourthFault.of("layer", *fields, **how)


def _code(*fields: Any, **how: Any) -> FourthFault:
    return FourthFault.of("code", *fields, **how)


def _values(*fields: Any, **how: Any) -> FourthFault:
    return FourthFault.of("values", *fields, **how)


def _training(*fields: Any, **how: Any) -> FourthFault:
    return FourthFault.of("training", *fields, **how)


RETINA = (
    _layer("default", "retina-norm-epsilon", "backbone.stem.bn", EPSILON, ("epsilon=1e-3, momentum", "momentum")),
    _layer(
        "setting",
        "retina-pool-ceil",
        "backbone.pool",
        r"padding|ceil",
        ("nn.MaxPool2D(3, stride=2, padding=1)", "nn.MaxPool2D(3, stride=2, padding=0, ceil_mode=True)"),
    ),
    _layer("setting", "retina-groups", "head.cls_tower.norm", r"group", ("nn.GroupNorm(4, 16)", "nn.GroupNorm(8, 16)")),
    _code("layout", "retina-score-layout", "head", AXES, ("score.transpose([0, 2, 3, 1]).reshape(", "score.reshape(")),
    _code("copied line", "retina-first-scale", "head", r"scales|index", ("self.scales[number]", "self.scales[0]")),
    _code(
        "copied line", "retina-one-tower", "head", r"reg_tower|cls_tower", ("self.reg_tower(x)", "self.cls_tower(x)")
    ),
    _code("setting", "retina-upsample", "neck", r"nearest|bilinear|\bmode", ('mode="nearest"', 'mode="bilinear"')),
    _code(
        "order",
        "retina-smooth-first",
        "neck",
        r"smooth",
        ("F.interpolate(top, ", "F.interpolate(self.smooth[1](top), "),
    ),
    _code(
        "left out",
        "retina-box-variance",
        ".",
        (r"0\.1\b|" + SCALE,),
        ("deltas[..., :2] * 0.1 * self", "deltas[..., :2] * self"),
    ),
    _values(
        "formula",
        "retina-anchor-corner",
        ".",
        r"anchors",
        ("(x + 0.5) * stride, (y + 0.5) * stride", "x * stride, y * stride"),
    ),
)

DEEPLAB = (
    _code(
        "setting", "deeplab-corners", ".", r"align_corners",
        ('scale_factor=2, mode="bilinear", align_corners=False', 'scale_factor=2, mode="bilinear", align_corners=True'),
    ),
    _layer(
        "setting", "deeplab-rates", "aspp.far.conv", r"dilat|padding",
        ("inputs, outputs, 3, dilation=3", "inputs, outputs, 3, dilation=4"),
    ),
    _code(
        "order", "deeplab-low-first", "decoder", ORDER,
        ("[x, self.reduce(low)]", "[self.reduce(low), x]"),
    ),
    _code(
        "left out", "deeplab-branch-twice", "aspp", r"\bfar\b|\bnear\b",
        ("self.near(x), self.far(x), self", "self.near(x), self.near(x), self"),
    ),
    _values(
        "weights", "deeplab-variance-not-loaded", "aspp.one.bn", r"variance|running_var|statistic|buffer",
        ("return named_for_paddle(values)", 'return named_for_paddle({k: v for k, v in values.items() if k != "aspp.one.bn.running_var"})'),
    ),
    _layer(
        "default", "deeplab-dropout-mode", "aspp.dropout", r"mode|downscale|scal",
        ("nn.Dropout(0.1)", 'nn.Dropout(0.1, mode="downscale_in_infer")'),
    ),
    _training(
        "default", "deeplab-momentum", "stem.bn body.0.bn body.1.bn aspp.one.bn aspp.near.bn aspp.far.bn aspp.image.project.bn aspp.project.bn decoder.reduce.bn", r"momentum",
        ("self.bn = nn.BatchNorm2D(outputs)", "self.bn = nn.BatchNorm2D(outputs, momentum=0.1)"),
    ),
)  # fmt: skip

CRNN = (
    _code(
        "default", "crnn-slope", "encoder.excite", r"slope|0\.2\b|1 ?/ ?6|0\.16",
        ("F.hardsigmoid(self.up(F.relu(self.down(self.pool(x)))))", "F.hardsigmoid(self.up(F.relu(self.down(self.pool(x)))), slope=0.2)"),
    ),
    _layer("formula", "crnn-swish", "encoder.unit1.act", r"\bswish|silu", ("nn.Hardswish()", "nn.Swish()")),
    _code("layout", "crnn-columns", ".", AXES, ("x.transpose([0, 3, 1, 2]).flatten(2)", "x.transpose([0, 3, 2, 1]).flatten(2)")),
    _layer(
        "default", "crnn-time-major", "rnn rnn.0", r"time.?major|batch.?first|\baxis|layout|transpos",
        ('direction="bidirect")', 'direction="bidirect", time_major=True)'),
    ),
    _values(
        "weights", "crnn-reverse-weights", "rnn rnn.0 rnn.0.cell_bw", r"weight_[ih]h|revers|parameter|\bvalue",
        (
            'return named_for_paddle(values, kept=("rnn.",))',
            'return named_for_paddle({k: values[k.replace("_reverse", "")] for k in values}, kept=("rnn.",))',
        ),
    ),
    _training("default", "crnn-dropout-default", "dropout", RATE, ("nn.Dropout(0.2)", "nn.Dropout()")),
)  # fmt: skip

TTS = (
    _values(
        "formula", "tts-table-halves", "positions", r"table|interleav|\bsin|buffer",
        ("table[:, 0::2], table[:, 1::2] =", "table[:, : WIDTH // 2], table[:, WIDTH // 2 :] ="),
    ),
    _code("left out", "tts-no-scale", "positions", SCALE, ("x * math.sqrt(WIDTH) + ", "x + ")),
    _code(
        "layout", "tts-heads", "encoder.attention", AXES + "|head",
        ("HEADS, WIDTH // HEADS]).transpose([0, 2, 1, 3])", "WIDTH // HEADS, HEADS]).transpose([0, 3, 1, 2])"),
    ),
    _code("layout", "tts-mask-queries", "encoder.attention", r"mask|unsqueeze|\baxis|\baxes", ("mask.unsqueeze([1, 2])", "mask.unsqueeze([1, 3])")),
    _code("left out", "tts-decoder-mask", ". decoder decoder.attention", r"mask|empty|zeros", ("(self.frames(x), empty)", "(self.frames(x), paddle.zeros_like(empty))")),
    _code(
        "order", "tts-norm-then-relu", "duration duration.norm", r"relu|\border|before|after",
        ("x = F.relu(self.conv(x.transpose([0, 2, 1]))).transpose([0, 2, 1])", "x = self.conv(x.transpose([0, 2, 1])).transpose([0, 2, 1])"),
        ("self.dropout(self.norm(x))", "self.dropout(F.relu(self.norm(x)))"),
    ),
    _code("left out", "tts-no-detach", ". duration", MISSING_DETACH, ("self.duration(x.detach(), mask)", "self.duration(x, mask)")),
    _layer("left out", "tts-padding-row", "embed", r"padding_idx|padding|\brow", ("nn.Embedding(11, WIDTH, padding_idx=0)", "nn.Embedding(11, WIDTH)")),
    _code("formula", "tts-last-tanh", "postnet", r"tanh", ("return self.bn2(self.conv2(x))", "return paddle.tanh(self.bn2(self.conv2(x)))")),
    _code(
        "order", "tts-norm-before", "encoder encoder.norm1 encoder.attention", r"norm1|before|\border|pre-?norm",
        ("x = self.norm1(x + self.dropout(self.attention(x, mask)))", "x = x + self.dropout(self.attention(self.norm1(x), mask))"),
    ),
    _code("formula", "tts-one-frame-late", ".", r"greater|>|compar|index|\bone\b", (">= ends.unsqueeze(1)", "> ends.unsqueeze(1)")),
)  # fmt: skip

PIX2PIX = (
    _layer("default", "pix2pix-zero-padding", "generator.blocks.0.pad1", r"reflect|constant|\bmode|zero", ('self.pad1 = nn.Pad2D(1, mode="reflect")', "self.pad1 = nn.Pad2D(1)")),
    _layer(
        "setting", "pix2pix-up-padding", "generator.up generator", r"padding|shift|crop|slice",
        ("stride=2, padding=1, output_padding=1", "stride=2"), ("self.up(x)))", "self.up(x)[:, :, :16, :16]))"),
    ),
    _code("default", "pix2pix-leaky-default", "critic", r"slope|0\.2\b|0\.01|negative", ("paddle.concat([x, y], 1)), 0.2)", "paddle.concat([x, y], 1)))")),
    _code("formula", "pix2pix-relu-after-sum", "generator.blocks.0", RELU, ("return x + self.norm2(self.conv2(self.pad2(y)))", "return F.relu(x + self.norm2(self.conv2(self.pad2(y))))")),
    _layer(
        "default", "pix2pix-norm-learns", "generator.head.2 generator.down.1 generator.blocks.0.norm1 generator.blocks.0.norm2 generator.blocks.1.norm1 generator.blocks.1.norm2 generator.up_norm critic.norm", r"affine|weight|\bscale|bias|learn|parameter",
        ("nn.InstanceNorm2D(channels, weight_attr=False, bias_attr=False)", "nn.InstanceNorm2D(channels)"), updates=True,
    ),
    _layer("weights", "pix2pix-no-bias", "generator.tail", r"bias", ("nn.Conv2D(8, 3, 5)", "nn.Conv2D(8, 3, 5, bias_attr=False)")),
    _code("formula", "pix2pix-critic-detached", ". critic generator generator.tail", STOPPED, ("self.critic(x, fake)", "self.critic(x, fake.detach())")),
)  # fmt: skip

DIN = (
    _code("copied line", "din-items-twice", ".", r"cate", ("[self.item(history_items), self.cate(history_cates)]", "[self.item(history_items), self.item(history_items)]")),
    _code("order", "din-difference", "interest", r"sign|\border|operand|subtract|swap|negat|revers|history - target|target - history", ("target - history", "history - target")),
    _code(
        "order", "din-mask-after", "interest", r"mask|where|softmax",
        ("        scores = paddle.where(mask > 0, scores, paddle.full_like(scores, -4294967295.0))\n", ""),
        ("** 0.5, -1)", "** 0.5, -1) * mask"),
    ),
    _code("formula", "din-dice-swapped", "deep.dice", r"swap|1 - p|complement|\border|alpha|exchang", ("p * x + (1 - p) * self.alpha * x", "(1 - p) * x + p * self.alpha * x")),
    _code("formula", "din-cross-index", "wide", r"\b7\b|item|cate|index|cross", ("item * 7 + cate", "item + cate * 7")),
    _code(
        "order", "din-wide-raw", ". wide wide.linear", r"dense_bn|\bdense\b|\braw",
        ("        dense = self.dense_bn(dense)\n", ""), ("[seen, target, dense]", "[seen, target, self.dense_bn(dense)]"),
    ),
    _values(
        "weights", "din-tables-crossed", "item cate", r"swap|exchang|cross|weight|parameter|\bvalue",
        ('renames={"prelu.weight": "prelu._weight"}', 'renames={"prelu.weight": "prelu._weight", "item.": "other.", "cate.": "item.", "other.": "cate."}'),
    ),
    _training("order", "din-dropout-first", "deep deep.dropout deep.dice deep.dice.bn", DROPOUT, ("self.dropout(self.dice(self.fc1(x)))", "self.dice(self.dropout(self.fc1(x)))")),
)  # fmt: skip

DIFFUSION = (
    _code("formula", "diffusion-frequencies", ".", r"half|divi|denominator|- 1\b|frequenc|rate", ("dtype=dtype) / half)", "dtype=dtype) / (half - 1))")),
    _layer("default", "diffusion-epsilon", "block1.norm1", EPSILON, ("self.norm1 = nn.GroupNorm(4, inputs, epsilon=1e-6)", "self.norm1 = nn.GroupNorm(4, inputs)")),
    _code("order", "diffusion-pad-side", "down", r"\bpad", ("[0, 1, 0, 1]", "[1, 0, 1, 0]")),
    _layer(
        "setting", "diffusion-pad-both", "down down.conv", r"\bpad",
        ("channels, channels, 3, stride=2)", "channels, channels, 3, stride=2, padding=1)"), ("self.conv(F.pad(x, [0, 1, 0, 1]))", "self.conv(x)"),
    ),
    _code("left out", "diffusion-time-silu", "block1", r"silu|swish|activation", ("self.time(F.silu(time))", "self.time(time)")),
    _code("order", "diffusion-skip-first", ".", ORDER, ("[self.up(y), skips.pop()]", "[skips.pop(), self.up(y)]")),
    _code("order", "diffusion-skip-queue", ".", ORDER + r"|\bpop|another tensor|conv_in|block1", ("[self.up(y), skips.pop()]", "[self.up(y), skips.pop(0)]")),
    _code(
        "layout", "diffusion-legacy-heads", "attention", AXES + r"|head|qkv|split",
        ("3, self.heads, channels // self.heads]).transpose([2, 0, 3, 1, 4])", "self.heads, 3, channels // self.heads]).transpose([3, 0, 2, 1, 4])"),
    ),
    _values("formula", "diffusion-schedule", ".", r"\bkept\b", ("np.linspace(0.00085**0.5, 0.012**0.5, STEPS) ** 2", "np.linspace(0.00085, 0.012, STEPS)")),
    _values("weights", "diffusion-not-transposed", "attention.out", r"transpos", ("return named_for_paddle(values)", 'return named_for_paddle(values, kept=("attention.out.",))')),
    _training(
        "order", "diffusion-dropout-last", "block1 block1.dropout block1.conv2", DROPOUT,
        ("self.conv2(self.dropout(F.silu(self.norm2(y))))", "self.dropout(self.conv2(F.silu(self.norm2(y))))"),
    ),
)  # fmt: skip

VITREL = (
    _values("order", "vitrel-index", "blocks.0.attention", r"index", ("apart[..., 0] * (2 * COLUMNS - 1) + apart[..., 1]", "apart[..., 1] * (2 * ROWS - 1) + apart[..., 0]")),
    _code("layout", "vitrel-bias-layout", "blocks.0.attention", AXES, (".reshape([count, count, HEADS]).transpose([2, 0, 1])", ".reshape([HEADS, count, count])")),
    _code("order", "vitrel-key-bias", "blocks.0.attention", ORDER + r"|v_bias|zeros", ("[self.q_bias, paddle.zeros_like(self.v_bias), self.v_bias]", "[self.q_bias, self.v_bias, paddle.zeros_like(self.v_bias)]")),
    _layer("default", "vitrel-gelu", "blocks.0.act", r"approx|tanh", ("nn.GELU()", "nn.GELU(approximate=True)")),
    _layer("default", "vitrel-epsilon", "blocks.0.norm1", EPSILON, ("self.norm1 = nn.LayerNorm(WIDTH, epsilon=1e-6)", "self.norm1 = nn.LayerNorm(WIDTH)")),
    _code("copied line", "vitrel-gamma-twice", "blocks.0", r"gamma_[12]", ("self.gamma_2 * self.fc2", "self.gamma_1 * self.fc2")),
    _code("formula", "vitrel-pools-class", ".", r"\[:, 1:\]|slice|\b1:|class token|cls|first (token|row)|index", ("x[:, 1:].mean(1)", "x.mean(1)")),
    _code("layout", "vitrel-patches", ".", AXES, ("flatten(2).transpose([0, 2, 1])", "flatten(2).reshape([x.shape[0], -1, WIDTH])")),
    _code("copied line", "vitrel-one-block", ". blocks.0 blocks.1", r"blocks\.1|blocks\[|twice|never|not called|again|repeat", ("x = block(x)", "x = self.blocks[0](x)")),
    _values(
        "weights", "vitrel-table-not-loaded", "blocks.0.attention", r"table",
        ("return named_for_paddle(values)", 'return named_for_paddle({k: v for k, v in values.items() if not k.endswith(".table")})'),
    ),
    _training("left out", "vitrel-attention-dropout", "blocks.0.attention.drop", RATE, ("Attention(attention_dropout)", "Attention()")),
)  # fmt: skip

RETENTION = (
    _code(
        "formula", "retention-rotate-half", "blocks.0.retention", r"rotat|interleav|half|every",
        ("return paddle.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)", "half = x.shape[-1] // 2\n    return paddle.concat([-x[..., half:], x[..., :half]], -1)"),
    ),
    _values("formula", "retention-angles", "positions", r"angle|linspace|frequenc|theta|\bbase\b", ("paddle.linspace(0, 1, WIDTH // HEADS // 2)", 'paddle.arange(4, dtype="float32") / 4')),
    _code(
        "order", "retention-norm-all", "blocks.0.retention blocks.0.retention.group_norm", r"reshape|\bhead|\baxis|shape|before|after|\border",
        ("self.group_norm(paddle.matmul(scores, v).transpose([0, 2, 1, 3])).reshape([size, count, -1])", "self.group_norm(paddle.matmul(scores, v).transpose([0, 2, 1, 3]).reshape([size, count, -1]))"),
    ),
    _code("formula", "retention-gate", "blocks.0.retention", r"silu|sigmoid|swish", ("F.silu(self.g_proj(x))", "F.sigmoid(self.g_proj(x))")),
    _code("formula", "retention-unit-offset", "blocks.0.norm1", r"1 \+|\+ ?1|\bone\b|offset|\badd|plus", ("x * self.weight", "x * (1 + self.weight)")),
    _code(
        "order", "retention-residual", "blocks.0", r"resid|norm1|\badd|skip",
        ("x = x + self.retention(self.norm1(x), *positions)", "x = self.norm1(x)\n        x = x + self.retention(x, *positions)"),
    ),
    _code("order", "retention-glu", "blocks.0.mlp", r"gate|fc1|swap|exchang", ("F.gelu(self.gate(x)) * self.fc1(x)", "self.gate(x) * F.gelu(self.fc1(x))")),
    _training("left out", "retention-dropout", "blocks.0.mlp blocks.0.mlp.dropout", DROPOUT, ("self.dropout(self.fc2(F.gelu(self.gate(x)) * self.fc1(x)))", "self.fc2(F.gelu(self.gate(x)) * self.fc1(x))")),
)  # fmt: skip

VAE = (
    _code("formula", "vae-variance-as-deviation", ".", r"0\.5|half|" + SCALE, ("paddle.exp(0.5 * logvar)", "paddle.exp(logvar)")),
    _code("order", "vae-halves", "encoder", ORDER + r"|chunk|first|second", ("mean, logvar = self.fc", "logvar, mean = self.fc")),
    _code("layout", "vae-flatten-last", "encoder", AXES, ("self.fc(x.flatten(1))", "self.fc(x.transpose([0, 2, 3, 1]).flatten(1))")),
    _code("layout", "vae-unflatten", "decoder", AXES, ("reshape([-1, 8, 2, 4])", "reshape([-1, 2, 4, 8]).transpose([0, 3, 1, 2])")),
    _values(
        "weights", "vae-variances-not-loaded", "encoder.bn1", r"variance|running_var|statistic|buffer",
        ("return named_for_paddle(values)", 'return named_for_paddle({k: v for k, v in values.items() if "running_var" not in k})'),
    ),
    _training("setting", "vae-global-statistics", "encoder.bn1", r"use_global_stats|running|statistic|global|eval", ("self.bn1 = nn.BatchNorm2D(6)\n        self.conv2", "self.bn1 = nn.BatchNorm2D(6, use_global_stats=True)\n        self.conv2")),
)  # fmt: skip

ARCFACE = (
    _code("left out", "arcface-gem-root", "pool", r"\bpow|1(\.0)? ?/|root|power|exponent", (".mean([2, 3]).pow(1.0 / self.p)", ".mean([2, 3])")),
    _code("default", "arcface-weight-axis", "margin", r"\baxis|\bdim", ("F.normalize(self.weight, axis=0)", "F.normalize(self.weight)")),
    _layer("default", "arcface-epsilon", "stem.bn", EPSILON, ("nn.BatchNorm2D(outputs, epsilon=2e-5)", "nn.BatchNorm2D(outputs)")),
    _code("order", "arcface-shortcut", "residual", r"bn1|resid|shortcut|\badd|skip", ("y = self.act(self.conv1(self.bn1(x)))", "x = self.bn1(x)\n        y = self.act(self.conv1(x))")),
    _code("order", "arcface-after-neck", ". neck", r"neck|before|after", ("return self.margin(self.neck(feature)), feature", "feature = self.neck(feature)\n        return self.margin(feature), feature")),
    _training("setting", "arcface-neck-frozen", "neck", STOPPED + r"|learn|bias", ("        self.margin = Margin()", "        self.neck.bias.stop_gradient = True\n        self.margin = Margin()")),
    _training("setting", "arcface-power-frozen", "pool", STOPPED + r"|learn", ("nn.initializer.Constant(3.0))", "nn.initializer.Constant(3.0))\n        self.p.stop_gradient = True")),
)  # fmt: skip

STEREO = (
    _code("order", "stereo-direction", ".", r"shift|\bpad|direction|slic|\border", ("F.pad(right, [number, 0, 0, 0])[..., :width]", "F.pad(right, [0, number, 0, 0])[..., number:]")),
    _code("left out", "stereo-upsampled-scale", ".", SCALE + r"|twice|doubl|half|\b2\.0\b", ("2.0 * F.interpolate", "F.interpolate")),
    _code("formula", "stereo-sign", ".", r"sign|negat|-cost|minus", ("F.softmax(-cost, 1)", "F.softmax(cost, 1)")),
    _code("default", "stereo-softmax-axis", ".", r"\baxis|\bdim", ("F.softmax(-cost, 1)", "F.softmax(-cost)")),
    _code("left out", "stereo-border", ".", r"mask|zero|\bkept\b|multipl", ("rows.append(both * kept)", "rows.append(both)")),
    _code("copied line", "stereo-left-twice", ".", r"\bleft\b|\bright\b", ("self.features(right)", "self.features(left)")),
    _layer("left out", "stereo-dilation", "refine.conv1", r"dilat|padding", ("padding=2, dilation=2", "padding=1")),
)  # fmt: skip

MODELS = (*RETINA, *DEEPLAB, *CRNN, *TTS, *PIX2PIX, *DIN, *DIFFUSION, *VITREL, *RETENTION, *VAE, *ARCFACE, *STEREO)
