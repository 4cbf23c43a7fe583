"""The second zoo's pairs: models, inputs, losses, optimizers, schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import paddle
import torch

from zoo import pairs
from zoo.held_out import fields_paddle, fields_torch, streams_paddle, streams_torch, tokens_paddle, tokens_torch
from zoo.pairs import Family

Make = Callable[[np.random.Generator], dict[str, Any]]


def _normal(*shape: int) -> Make:
    return lambda random: {"args": random.standard_normal(shape, dtype=np.float32)}


def _words(words: int, *shape: int, name: str = "tokens") -> Make:
    return lambda random: {name: random.integers(1, words, shape)}


def _two_texts(words: int) -> Make:
    def make(random: np.random.Generator) -> dict[str, Any]:
        source, target = random.integers(1, words, (3, 7)), random.integers(1, words, (3, 7))
        source[0, 5:] = 0
        source[2, 4:] = 0
        target[1, 6:] = 0
        return {"source": source, "target": target}

    return make


def _table(random: np.random.Generator) -> dict[str, Any]:
    categories = np.stack([random.integers(0, n, 6) for n in (5, 7, 4)], 1)
    return {"categories": categories, "numbers": random.exponential(3.0, (6, 3)).astype(np.float32)}


def _noises(random: np.random.Generator) -> dict[str, Any]:
    draw = lambda *shape: random.standard_normal(shape, dtype=np.float32)  # noqa: E731
    return {"z": draw(3, 8), "noise1": draw(3, 1, 4, 4), "noise2": draw(3, 1, 8, 8)}


def _family(name: str, modules: tuple[Any, Any], inputs: Make, classes: int = 0, **options: Any) -> Family:
    ours, theirs = modules
    return Family(
        reference=lambda: getattr(ours, name)(**options),
        port=lambda: getattr(theirs, name)(**options),
        inputs=inputs,
        classes=classes,
    )


TOKENS = (tokens_torch, tokens_paddle)
FIELDS = (fields_torch, fields_paddle)
STREAMS = (streams_torch, streams_paddle)
SECOND: Mapping[str, Family] = {
    "vit": _family("VisionTransformer", TOKENS, _normal(3, 3, 16, 16), 7),
    "swin": _family("Swin", TOKENS, _normal(2, 3, 16, 16), 5),
    "gpt": _family("Gpt", TOKENS, _words(31, 2, 9)),
    "gpt-dropout": _family("Gpt", TOKENS, _words(31, 2, 9), dropout=0.2),
    "encdec": _family("Translator", TOKENS, _two_texts(23)),
    "mixer": _family("Mixer", TOKENS, _normal(3, 3, 16, 16), 5),
    "convnext": _family("ConvNext", FIELDS, _normal(2, 3, 16, 16), 5),
    "linknet": _family("LinkNet", FIELDS, _normal(2, 1, 16, 16)),
    "detector": _family("Detector", FIELDS, _normal(2, 3, 32, 32)),
    "shuffle": _family("ShuffleNet", FIELDS, _normal(4, 3, 16, 16), 5),
    "dense": _family("DenseNet", FIELDS, _normal(4, 3, 16, 16), 5),
    "tsm": _family("ShiftNet", FIELDS, _normal(2, 3, 8, 16, 16), 6),
    "edsr": _family("SuperResolution", FIELDS, lambda random: {"args": random.random((2, 3, 8, 8), np.float32)}),
    "style": _family("Generator", FIELDS, _noises),
    "points": _family("PointNet", FIELDS, _normal(4, 20, 3), 5),
    "captioner": _family("Captioner", STREAMS, _two_texts(19)),
    "crf": _family(
        "Tagger",
        STREAMS,
        lambda random: {"words": random.integers(0, 25, (3, 6)), "tags": random.integers(0, 4, (3, 6))},
    ),
    "tcn": _family("Tcn", STREAMS, _normal(3, 14, 3), 4),
    "fm": _family("DeepFm", STREAMS, _table),
    "tied": _family("TiedAutoencoder", STREAMS, _normal(5, 20)),
}


def build(name: str, seed: int = 0, *, training: bool = False) -> pairs.Pair:
    """Return a pair of the second zoo, with equal weights."""
    return pairs.build(SECOND[name], seed, training=training)


def _ce(**options: Any) -> Callable[..., Any]:
    return torch.nn.CrossEntropyLoss(**options)


def _paddle_ce(**options: Any) -> Callable[..., Any]:
    return lambda output, labels: paddle.nn.functional.cross_entropy(output, labels, **options)


def _smoothed(epsilon: float) -> Callable[..., Any]:
    def loss(output: Any, labels: Any) -> Any:
        classes = output.shape[-1]
        soft = paddle.nn.functional.label_smooth(
            paddle.nn.functional.one_hot(labels, classes).astype(output.dtype), epsilon=epsilon
        )
        return paddle.nn.functional.cross_entropy(output, soft, soft_label=True)

    return loss


WEIGHTS = (0.5, 2.0, 1.0, 1.5, 0.7)


def _weighted_ours(output: Any, labels: Any) -> Any:
    return torch.nn.functional.cross_entropy(output, labels, torch.tensor(WEIGHTS, dtype=output.dtype))


def _weighted(output: Any, labels: Any) -> Any:
    return paddle.nn.functional.cross_entropy(output, labels, weight=paddle.to_tensor(WEIGHTS, dtype=output.dtype))


def _focal_ours(output: Any, labels: Any) -> Any:
    ce = torch.nn.functional.cross_entropy(output, labels, reduction="none")
    return ((1 - torch.exp(-ce)) ** 2 * ce).mean()


def _focal(gamma: float) -> Callable[..., Any]:
    def loss(output: Any, labels: Any) -> Any:
        ce = paddle.nn.functional.cross_entropy(output, labels, reduction="none")
        return ((1 - paddle.exp(-ce)) ** gamma * ce).mean()

    return loss


SECOND_LOSSES: Mapping[str, tuple[Any, Any]] = {
    "ce": (_ce(), _paddle_ce()),
    "ce sum": (_ce(), _paddle_ce(reduction="sum")),
    "smooth right": (_ce(label_smoothing=0.1), _smoothed(0.1)),
    "smooth forgotten": (_ce(label_smoothing=0.1), _paddle_ce()),
    "smooth more": (_ce(label_smoothing=0.1), _smoothed(0.2)),
    "ignore right": (_ce(ignore_index=2), _paddle_ce(ignore_index=2)),
    "ignore forgotten": (_ce(ignore_index=2), _paddle_ce()),
    "weights right": (_weighted_ours, _weighted),
    "weights forgotten": (_weighted_ours, _paddle_ce()),
    "softmax before": (_ce(), lambda output, labels: _paddle_ce()(paddle.nn.functional.softmax(output), labels)),
    "focal right": (_focal_ours, _focal(2)),
    "focal gamma": (_focal_ours, _focal(1)),
}


def _torch_groups(model_parameters: Any) -> list[dict[str, Any]]:
    tensors = list(model_parameters)
    return [
        {"params": [one for one in tensors if one.ndim > 1], "weight_decay": 0.05},
        {"params": [one for one in tensors if one.ndim <= 1], "weight_decay": 0.0},
    ]


def _adamw_groups(parameters: Any, rate: Any = 1e-2) -> Any:
    tensors = list(parameters)
    plain = {one.name for one in tensors if one.ndim <= 1}
    return paddle.optimizer.AdamW(
        rate, parameters=tensors, weight_decay=0.05, apply_decay_param_fun=lambda name: name not in plain
    )


def _torch(kind: str, **options: Any) -> Callable[..., Any]:
    return lambda parameters: getattr(torch.optim, kind)(parameters, **options)


def _paddle(kind: str, **options: Any) -> Callable[..., Any]:
    return lambda parameters, rate=1e-2: getattr(paddle.optimizer, kind)(rate, parameters=parameters, **options)


_SGD = _torch("SGD", lr=1e-2, momentum=0.9, weight_decay=1e-3)
_ADAM = _torch("Adam", lr=1e-2, betas=(0.9, 0.99), eps=1e-6)
_ADAMW = lambda parameters: torch.optim.AdamW(_torch_groups(parameters), lr=1e-2)  # noqa: E731
_RMS = _torch("RMSprop", lr=1e-2, alpha=0.9, eps=1e-6, momentum=0.5)
SECOND_OPTIMIZERS: Mapping[str, tuple[Any, Any]] = {
    "sgd right": (_SGD, _paddle("Momentum", momentum=0.9, weight_decay=1e-3)),
    "sgd nesterov": (_SGD, _paddle("Momentum", momentum=0.9, weight_decay=1e-3, use_nesterov=True)),
    "sgd no decay": (_SGD, _paddle("Momentum", momentum=0.9)),
    "sgd clipped": (
        _SGD,
        _paddle("Momentum", momentum=0.9, weight_decay=1e-3, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.05)),
    ),
    "adam right": (_ADAM, _paddle("Adam", beta1=0.9, beta2=0.99, epsilon=1e-6)),
    "adam defaults": (_ADAM, _paddle("Adam", epsilon=1e-6)),
    "adam epsilon": (_ADAM, _paddle("Adam", beta1=0.9, beta2=0.99, epsilon=1e-3)),
    "adamw right": (_ADAMW, _adamw_groups),
    "adamw decays biases": (_ADAMW, _paddle("AdamW", weight_decay=0.05)),
    "adamw coupled": (
        _torch("AdamW", lr=1e-2, weight_decay=0.05),
        _paddle("Adam", weight_decay=paddle.regularizer.L2Decay(0.05)),
    ),
    "rms epsilon": (_RMS, _paddle("RMSProp", rho=0.9, epsilon=1e-6, momentum=0.5)),
    "rate tenfold": (
        _SGD,
        lambda parameters, rate=0.1: _paddle("Momentum", momentum=0.9, weight_decay=1e-3)(parameters, 0.1),
    ),
}


def _cosine(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20, eta_min=1e-4)


def _steps(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)


def _linear(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 4)


def _poly(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.PolynomialLR(optimizer, 10, 0.9)


_lr = paddle.optimizer.lr
SECOND_SCHEDULERS: Mapping[str, tuple[Any, Any]] = {
    "cosine right": (_cosine, lambda: _lr.CosineAnnealingDecay(1e-2, 20, eta_min=1e-4)),
    "cosine minimum": (_cosine, lambda: _lr.CosineAnnealingDecay(1e-2, 20)),
    "steps right": (_steps, lambda: _lr.StepDecay(1e-2, 2, 0.5)),
    "steps default gamma": (_steps, lambda: _lr.StepDecay(1e-2, 2)),
    "steps per epoch": (_steps, lambda: _lr.StepDecay(1e-2, 200, 0.5)),
    "warm-up right": (_linear, lambda: _lr.LinearWarmup(1e-2, 4, 1e-3, 1e-2)),
    "warm-up from zero": (_linear, lambda: _lr.LinearWarmup(1e-2, 4, 0.0, 1e-2)),
    "polynomial right": (_poly, lambda: _lr.PolynomialDecay(1e-2, 10, end_lr=0.0, power=0.9)),
    "polynomial power": (_poly, lambda: _lr.PolynomialDecay(1e-2, 10, end_lr=0.0)),
}
