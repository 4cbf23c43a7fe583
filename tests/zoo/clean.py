"""Pairs that are equal, however differently their ports are built and whatever their numbers look like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import paddle
import torch
from paddle.vision import models

from zoo import sequences_paddle, sequences_torch, variants_paddle, variants_torch, vision_torch
from zoo.pairs import FAMILIES, Family, Pair, build, copy_weights, shake
from zoo.training import LOSSES, OPTIMIZERS, SCHEDULERS


def _scaled(family: str, factor: float) -> Pair:
    """Return a pair whose inputs are scaled."""
    pair = build(FAMILIES[family])
    scaled = {
        name: value * np.float32(factor) if isinstance(value, np.ndarray) and value.dtype == np.float32 else value
        for name, value in pair.inputs.items()
    }
    pair.inputs = scaled
    return pair


def _last_scaled(family: str, path: str, factor: float) -> Pair:
    """Return a pair with one weight of the reference's scaled, copied once more."""
    pair = build(FAMILIES[family])
    with torch.no_grad():
        pair.reference.get_parameter(path).mul_(factor)
    copy_weights(pair.reference, pair.port)
    return pair


def _twins(reference: Callable[[], Any], port: Callable[[], Any], size: int = 64, *, training: bool = False) -> Pair:
    """Return a model of `paddle.vision` and its twin; its statistics are those of its inputs."""
    random = np.random.default_rng(0)
    images = random.standard_normal((2, 3, size, size), dtype=np.float32)
    torch.manual_seed(0)
    paddle.seed(0)
    ours, theirs = reference(), port()
    _kaiming(ours)
    shake(ours, 0)
    ours.train()
    for layer in ours.modules():
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
            layer.momentum, layer.kept = 1.0, layer.momentum
    with torch.no_grad():
        ours(torch.from_numpy(random.standard_normal((8, 3, size, size), dtype=np.float32)))
    for layer in ours.modules():
        if hasattr(layer, "kept"):
            layer.momentum = layer.kept
            del layer.kept
    copy_weights(ours, theirs)
    for model in (ours, theirs):
        model.train() if training else model.eval()
    return Pair(reference=ours, port=theirs, inputs={"args": images}, training=training)


def _kaiming(model: Any) -> None:
    for layer in model.modules():
        if isinstance(layer, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")


def _squeezenet() -> Any:
    model = models.squeezenet1_1(num_classes=10)
    model._drop.mode = "upscale_in_train"  # what it has there is no torch's dropout
    return model


def _vgg() -> Any:
    from paddle.vision.models.vgg import cfgs, make_layers

    return models.VGG(make_layers(cfgs["A"]), num_classes=0, with_pool=False)


VISION: Mapping[str, Callable[[], Pair]] = {
    "resnet18": partial(
        _twins, lambda: vision_torch.ResNet(vision_torch.Basic, (2, 2, 2, 2)), lambda: models.resnet18(num_classes=10)
    ),
    "resnet18-train": partial(
        _twins,
        lambda: vision_torch.ResNet(vision_torch.Basic, (2, 2, 2, 2)),
        lambda: models.resnet18(num_classes=10),
        training=True,
    ),
    "resnet34": partial(
        _twins, lambda: vision_torch.ResNet(vision_torch.Basic, (3, 4, 6, 3)), lambda: models.resnet34(num_classes=10)
    ),
    "resnet50": partial(
        _twins,
        lambda: vision_torch.ResNet(vision_torch.Bottleneck, (3, 4, 6, 3)),
        lambda: models.resnet50(num_classes=10),
    ),
    "mobilenet_v1": partial(_twins, vision_torch.MobileNetV1, lambda: models.mobilenet_v1(scale=0.25, num_classes=10)),
    "mobilenet_v2": partial(_twins, vision_torch.MobileNetV2, lambda: models.mobilenet_v2(scale=0.5, num_classes=10)),
    "mobilenet_v3_small": partial(_twins, vision_torch.MobileNetV3, lambda: models.mobilenet_v3_small(num_classes=10)),
    "mobilenet_v3_small-train": partial(
        _twins, vision_torch.MobileNetV3, lambda: models.mobilenet_v3_small(num_classes=10), training=True
    ),
    "squeezenet": partial(_twins, vision_torch.SqueezeNet, _squeezenet),
    "shufflenet": partial(_twins, vision_torch.ShuffleNet, lambda: models.shufflenet_v2_x0_5(num_classes=10)),
    "densenet121": partial(_twins, vision_torch.DenseNet, lambda: models.densenet121(num_classes=10)),
    "vgg11": partial(_twins, vision_torch.VGG, _vgg, 32),
}


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return scikit-learn's digits as float32 images of shape (1797, 1, 8, 8) in 0 to 1, and their labels."""
    from tipchain.prepare.data import load_scans

    images, labels = load_scans()
    return (images[:, None] / 16).astype(np.float32), np.array(labels)


def _trained(
    reference: Any,
    port: Any,
    shape: tuple[int, ...],
    *,
    training: bool = False,
    steps: int = 60,
    see: Callable[[Any], Any] = lambda images: images,
) -> Pair:
    """Return a pair of classifiers of digits, trained in torch for some steps."""
    images, labels = digits()
    images = see(images).reshape(-1, *shape)
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(reference.parameters(), lr=3e-3)
    reference.train()
    for step in range(steps):
        chosen = slice(step % 28 * 64, step % 28 * 64 + 64)
        loss = torch.nn.functional.cross_entropy(
            reference(torch.from_numpy(images[chosen])), torch.from_numpy(labels[chosen])
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for parameter in reference.parameters():
        parameter.grad = None
    copy_weights(reference, port)
    for model in (reference, port):
        model.train() if training else model.eval()
    return Pair(
        reference=reference,
        port=port,
        inputs={"args": images[:16], "labels": labels[:16]},
        training=training,
        loss=LOSSES[""],
    )


def _trained_images(*, training: bool = False) -> Pair:
    torch.manual_seed(0)
    return _trained(variants_torch.Digits(), variants_paddle.Digits(), (1, 8, 8), training=training)


def _trained_rows() -> Pair:
    torch.manual_seed(0)
    return _trained(variants_torch.Rows(), variants_paddle.Rows(), (8, 8))


def _trained_attention() -> Pair:
    """Return a Transformer whose softmax is steep: gradients through it are ill-conditioned."""
    torch.manual_seed(0)
    return _trained(sequences_torch.Vision(), sequences_paddle.Vision(), (3, 16, 16), steps=300, see=_enlarged)


def _enlarged(images: Any) -> Any:
    """Return images of 16 x 16 pixels in three equal channels."""
    return images.repeat(2, 2).repeat(2, 3).repeat(3, 1)


def _learning(family: str, optimizer: str, scheduler: str = "", loss: str = "", *, training: bool = False) -> Pair:
    """Return a pair with equal losses, optimizers and schedulers."""
    pair = build(FAMILIES[family], training=training)
    pair.loss = LOSSES[loss]
    pair.optimizers = OPTIMIZERS[optimizer]
    pair.schedulers = SCHEDULERS[scheduler] if scheduler else None
    return pair


def _variant(name: str, inputs: Callable[[np.random.Generator], dict[str, Any]], *, training: bool = False) -> Pair:
    """Return a pair of variants; a port may say how it takes torch's weights."""
    family = Family(reference=getattr(variants_torch, name), port=getattr(variants_paddle, name), inputs=inputs)
    return build(family, training=training)


def _normal(*shape: int) -> Callable[[np.random.Generator], dict[str, Any]]:
    return lambda random: {"args": random.standard_normal(shape, dtype=np.float32)}


def _words(random: np.random.Generator) -> dict[str, Any]:
    return {"tokens": random.integers(1, 40, (3, 9))}


CLEAN: Mapping[str, Callable[[], Pair]] = {
    **{f"{name}-eval": partial(build, family) for name, family in FAMILIES.items()},
    **{f"{name}-train": partial(build, family, training=True) for name, family in FAMILIES.items()},
    "large-inputs": partial(_scaled, "plain", 1e4),
    "tiny-inputs": partial(_scaled, "residual", 1e-6),
    "tiny-clips": partial(_scaled, "clip", 1e-12),
    "large-logits": partial(_last_scaled, "residual", "fc.weight", 1e5),
    "tiny-logits": partial(_last_scaled, "mobile", "classifier.3.weight", 1e-7),
    "sharp-attention": partial(_last_scaled, "transformer", "layers.0.attn.q.weight", 30.0),
    "long-sums": partial(_variant, "Wide", _normal(3, 20000)),
    "very-deep": partial(_variant, "VeryDeep", _normal(4, 12)),
    "cancelling": partial(_variant, "Cancelling", _normal(16, 32)),
    "float32-inside": partial(_variant, "Casting", _normal(3, 6, 16)),
    "separate-for-fused": partial(_variant, "Fused", _normal(2, 7, 16)),
    "fused-for-separate": partial(_variant, "Separate", _normal(2, 7, 16)),
    "builtin-for-own": partial(_variant, "OwnAttention", _normal(2, 7, 16)),
    "own-for-builtin": partial(_variant, "BuiltinAttention", _normal(2, 7, 16)),
    "functions-for-layers": partial(_variant, "Functional", _normal(2, 3, 12, 12)),
    "layers-for-functions": partial(_variant, "Layers", _normal(2, 3, 12, 12)),
    "one-shared-activation": partial(_variant, "Shared", _normal(2, 3, 12, 12)),
    "linear-for-1x1": partial(_variant, "Pointwise", _normal(2, 6, 5, 5)),
    "channels-last": partial(_variant, "ChannelsLast", _normal(2, 8, 6, 6)),
    "weight-normalized": partial(_variant, "Normalized", _normal(3, 4, 20)),
    "recurrent-cells": partial(_variant, "Cells", _normal(3, 5, 6)),
    "gates-by-hand": partial(_variant, "Gated", _normal(4, 10)),
    "norms-that-activate": partial(_variant, "Activated", _normal(2, 3, 12, 12)),
    "tied-weights": partial(_variant, "Tied", _words),
    "unused-layers": partial(_variant, "Unused", _normal(3, 8)),
    "order-of-calls": partial(_variant, "Reordered", _normal(3, 8)),
    "in-place": partial(_variant, "InPlace", _normal(3, 4, 8, 8)),
    "frozen-on-both-sides": partial(_variant, "Frozen", _normal(3, 4, 8, 8)),
    "bias-before-norm-train": partial(_variant, "BiasBeforeNorm", _normal(6, 4, 8, 8), training=True),
    "conv1d-audio": partial(_variant, "Audio", _normal(2, 1, 400)),
    "named-tuple-output": partial(_variant, "Many", _normal(2, 3, 12, 12)),
    "dead-relu": partial(_variant, "Dead", _normal(3, 8)),
    "trained-digits": _trained_images,
    "trained-digits-train": partial(_trained_images, training=True),
    "trained-rows": _trained_rows,
    "trained-attention": _trained_attention,
    "learns-momentum": partial(_learning, "plain", "momentum right"),
    "learns-adam": partial(_learning, "deep", "adam right"),
    "learns-adamw": partial(_learning, "transformer", "adamw right"),
    "learns-with-decay": partial(_learning, "vision", "decay right"),
    "learns-nesterov": partial(_learning, "lstm", "nesterov right"),
    "learns-clipped": partial(_learning, "gru", "clip right"),
    "learns-in-train-mode": partial(_learning, "residual", "momentum right", training=True),
    "learns-by-steps": partial(_learning, "deep", "momentum right", "step right"),
    "learns-by-cosine": partial(_learning, "deep", "momentum right", "cosine right"),
    "learns-after-warm-up": partial(_learning, "deep", "momentum right", "warm right"),
    "learns-by-own-loss": partial(_learning, "deep", "momentum right", loss="from scratch"),
}
