"""Faults around models: losses, optimizers, schedules, transforms of data, metrics."""

from __future__ import annotations

from typing import Any

from zoo.fourth.planting import FourthFault

MEAN = r"mean|averag|\bsum\b|reduction|normali|divi|count"
IGNORED = r"ignor|\bpad|255|mask|\bvalid"
DECAY = r"weight.?decay|decoupl|adamw|regulari|\bl2\b"
BY_ONE = r"\bone (step|update|epoch|iteration)|by one|offset|shift|\blate|earl|\bstart|\+ ?1\b|first"
CUT = r"truncat|\bfirst|\blast|head|tail|\bside|\bleft|\bright|\bend"
LEVELS = r"mean|\bstd|scal|range|normali|\bdivi"


def _fault(part: str, kind: str, name: str, says: Any, *edits: tuple[str, str], **how: Any) -> FourthFault:
    return FourthFault.of(part, kind, name, "", says, *edits, **how)


def _loss(*fields: Any, **how: Any) -> FourthFault:
    return _fault("loss", *fields, **how)


def _optimizer(*fields: Any, **how: Any) -> FourthFault:
    return _fault("optimizer", *fields, **how)


def _scheduler(*fields: Any, **how: Any) -> FourthFault:
    return _fault("scheduler", *fields, **how)


def _data(*fields: Any, **how: Any) -> FourthFault:
    return _fault("data", *fields, **how)


def _metric(*fields: Any, **how: Any) -> FourthFault:
    return _fault("metric", *fields, **how)


LOSSES = (
    _loss("order", "retina-focal-alpha", r"alpha|0\.25|0\.75|positive|negative", ("(0.25 * onehot + 0.75 * (1 - onehot))", "(0.75 * onehot + 0.25 * (1 - onehot))")),
    _loss("formula", "retina-focal-mean", MEAN, ("(entropy * weight * valid).sum() / count", "(entropy * weight * valid).mean()")),
    _loss(
        "default", "retina-huber", r"beta|delta|huber|smooth|1/9",
        ("    gap = (deltas[positive] - targets[positive]).abs()\n", ""),
        ("paddle.where(gap < 1 / 9, 4.5 * gap * gap, gap - 1 / 18).sum()", 'F.smooth_l1_loss(deltas[positive], targets[positive], delta=1 / 9, reduction="sum")'),
    ),
    _loss("left out", "retina-ignored", IGNORED + r"|-1", ("valid = (classes >= 0)", "valid = (classes >= -1)")),
    _loss("default", "deeplab-softmax-axis", r"\baxis|\bdim", ("F.softmax(outputs, axis=1)", "F.softmax(outputs)")),
    _loss("left out", "deeplab-class-weights", r"weight", (", weight=weight, ignore_index", ", ignore_index")),
    _loss("formula", "deeplab-mean-of-all", MEAN + "|denominator", ("ignore_index=IGNORED, axis=1)", 'ignore_index=IGNORED, axis=1, reduction="none").mean()')),
    _loss("default", "crnn-softmax-given", r"softmax|probab|logit", ("logits = outputs.transpose", "logits = F.softmax(outputs, -1).transpose")),
    _loss("formula", "crnn-mean-of-sums", r"length|" + MEAN, ('reduction="mean")', 'reduction="none").mean()')),
    _loss("setting", "crnn-norm-by-times", r"norm_by_times|times|\btime\b|gradient|length", ('reduction="mean")', 'reduction="mean", norm_by_times=True)')),
    _loss("formula", "tts-log-duration", r"\blog|\+ ?1|offset|log1p|plus", (".astype(guess.dtype) + 1.0)", ".astype(guess.dtype))")),
    _loss("left out", "tts-all-frames", IGNORED + r"|length|frames|select", ("kept = (paddle.arange(FRAMES).unsqueeze(0) < durations.sum(1, keepdim=True)).unsqueeze(-1).expand_as(mel)", 'kept = paddle.ones_like(mel).astype("bool")')),
    _loss("formula", "pix2pix-vanilla", r"mse|square|entropy|\bbce", ("F.mse_loss(verdict,", "F.binary_cross_entropy_with_logits(verdict,")),
    _loss("left out", "din-pos-weight", r"pos_weight|weight|positive", (", pos_weight=weight", "")),
    _loss("setting", "din-sum", MEAN, ("pos_weight=weight)", 'pos_weight=weight, reduction="sum")')),
    _loss("left out", "diffusion-ratio-clip", r"clip|clamp|\bmin\b|max|bound", ("ratio.clip(max=5.0) / ratio", "5.0 / ratio")),
    _loss(
        "formula", "vitrel-smoothing-others", r"smooth|soft|classes",
        ("F.cross_entropy(outputs, labels, label_smoothing=0.1)", "F.cross_entropy(outputs, (F.one_hot(labels, CLASSES) * 0.9 + (1 - F.one_hot(labels, CLASSES)) * 0.1 / (CLASSES - 1)).astype(outputs.dtype), soft_label=True)"),
    ),
    _loss("left out", "retention-no-shift", r"shift|offset|\bnext\b|\bone\b|:-1|1:|position", ("outputs[:, :-1]", "outputs"), ("labels[:, 1:].reshape([-1])\n", "labels.reshape([-1])\n")),
    _loss("left out", "retention-pads-count", IGNORED, (", ignore_index=PADDED", "")),
    _loss("setting", "vae-divergence-mean", MEAN + r"|\baxis", ("logvar.exp()).sum(1)", "logvar.exp()).mean(1)")),
    _loss("formula", "arcface-inverted", r"condition|where|threshold|>|<|compar|invert|swap|branch", ("cosine > math.cos(", "cosine <= math.cos(")),
    _loss("left out", "arcface-square-distance", r"sqrt|root|squared", (".clip(min=1e-12).sqrt()", ".clip(min=1e-12)")),
    _loss("left out", "stereo-far-pixels", IGNORED + r"|\bmax|range|select|<", ("paddle.logical_and(labels > 0, labels < 2 * SHIFTS)\n    values", "labels > 0\n    values")),
)  # fmt: skip

OPTIMIZERS = (
    _optimizer("left out", "retina-decay", DECAY, (", weight_decay=1e-2", "")),
    _optimizer("default", "crnn-adamw", DECAY, ("paddle.optimizer.Adam(", "paddle.optimizer.AdamW(")),
    _optimizer("setting", "tts-clip", r"clip", ("epsilon=1e-9, parameters", "epsilon=1e-9, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0), parameters")),
    _optimizer("default", "pix2pix-beta1", r"beta_?1|betas|0\.5", ("beta1=0.5, ", "")),
    _optimizer("default", "din-accumulator", r"initial|accumul", (", initial_accumulator_value=0.1", "")),
    _optimizer("default", "diffusion-decay-default", DECAY, ("weight_decay=0.1, ", "")),
    _optimizer(
        "left out", "vitrel-all-decayed", DECAY + r"|group",
        ('parameters=[{"params": decayed, "weight_decay": 0.5}, {"params": kept, "weight_decay": 0.0}]', "parameters=decayed + kept, weight_decay=0.5"),
    ),
    _optimizer("formula", "retention-l2", DECAY, ("paddle.optimizer.AdamW(", "paddle.optimizer.Adam(")),
    _optimizer("setting", "arcface-rate-of-head", r"learning.?rate|\blr|group|multipl", ('"learning_rate": 10.0', '"learning_rate": 0.1')),
    _optimizer("left out", "arcface-nesterov", r"nesterov", ("        use_nesterov=True,\n", "")),
)  # fmt: skip

SCHEDULERS = (
    _scheduler("setting", "retina-milestones", r"milestone", ("milestones=[1, 3]", "milestones=[3, 5]")),
    _scheduler("default", "deeplab-power", r"power", (", power=0.9", "")),
    _scheduler("default", "deeplab-end", r"end_lr|\bend|minim|eta", ("end_lr=0.0, ", "")),
    _scheduler(
        "formula",
        "tts-noam",
        BY_ONE + "|noam",
        ("paddle.optimizer.lr.LambdaDecay(1.0, factor)", "paddle.optimizer.lr.NoamDecay(WIDTH, 4, learning_rate=0.05)"),
    ),
    _scheduler("left out", "vitrel-minimum", r"eta_min|minim|\bend", (", eta_min=1e-5", "")),
    _scheduler("default", "vae-gamma", r"gamma", (", gamma=0.5", "")),
)

DATA = (
    _data("order", "retina-rgb", r"::-1\]", ('image.astype("float32")[..., ::-1]', 'image.astype("float32")')),
    _data("setting", "deeplab-label-padding", r"\bpad|fill|255|label", ("constant_values=IGNORED", "constant_values=0")),
    _data("order", "deeplab-pad-first", r"\bpad|fill", ("(0, 0)), constant_values=0.0)", "(0, 0)), constant_values=-1.0)")),
    _data("formula", "crnn-floor", r"width|\bsize|resiz|ceil|round|floor", ("math.ceil(8 * width / height)", "int(8 * width / height)")),
    _data("setting", "pix2pix-crop", r"crop|offset|shift", ("crop((2, 2, 18, 18))", "crop((0, 0, 16, 16))")),
    _data("setting", "pix2pix-range", r"return image / 255\.0", ("image / 127.5 - 1.0", "image / 255.0")),
    _data("order", "din-oldest", CUT, ('row["history"][-5:]', 'row["history"][:5]')),
    _data("left out", "diffusion-flip", r"image\[:, ::-1\]", ("image = image[:, ::-1] * ", "image = image * ")),
    _data("setting", "vitrel-bilinear", r"bicubic|bilinear|interpol|resampl", ("Image.BICUBIC", "Image.BILINEAR")),
    _data(
        "setting", "vitrel-inception-mean", LEVELS,
        ("np.array([0.485, 0.456, 0.406], ", "np.array([0.5, 0.5, 0.5], "), ("np.array([0.229, 0.224, 0.225], ", "np.array([0.5, 0.5, 0.5], "),
    ),
    _data("left out", "retention-no-start", r"special|\bbos|\bstart|prepend|first|begin|missing token", ("tokens = [1, *kept]", "tokens = [*kept]")),
    _data("formula", "vae-threshold", r"threshold|>=|0\.5|equal|compar|binar", ("image >= 0.5", "image > 128 / 255")),
    _data("setting", "arcface-half-range", LEVELS + r"|12[78]", ("/ 128.0", "/ 127.5")),
    _data("left out", "stereo-disparity-unit", r"256|scal|factor|divi", ('disparity.astype("float32") / 256', 'disparity.astype("float32")')),
)  # fmt: skip

METRICS = (
    _metric("left out", "deeplab-counts-ignored", IGNORED + "|label", ("kept = labels != IGNORED", "kept = labels >= 0")),
    _metric("formula", "deeplab-recall", r"union|iou|intersection|recall|per.class|denominator|false positive", ("((guess == one) | (labels == one)).sum()", "(labels == one).sum()")),
    _metric("left out", "crnn-repeats", r"number - 1\]", (" if one and (number == 0 or one != row[number - 1])]", " if one]")),
    _metric("default", "din-threshold", r"threshold|sigmoid|logit|0\.5", ("(p > 0.5)", "(scores > 0.5)")),
    _metric("copied line", "vitrel-top-five", r"top|\bk\b|\b5\b", ("order[:, :5]", "order[:, :1]")),
    _metric("order", "retention-perplexity", r"\bexp|mean|averag", ("np.exp(gained[kept].mean())", "np.exp(gained[kept]).mean()")),
    _metric("left out", "arcface-finds-itself", r"itself|self\b|diagonal|query|exclu|identical", ("    np.fill_diagonal(similar, -np.inf)\n", "")),
    _metric("left out", "stereo-outliers", r"0\.4|relative|threshold|either|both|&|\bor\b", ("(gap > 1) & (gap > 0.4 * labels[kept])", "gap > 1")),
)  # fmt: skip

AROUND = (*LOSSES, *OPTIMIZERS, *SCHEDULERS, *DATA, *METRICS)
