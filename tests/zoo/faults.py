"""Faults as ports have them: each planted into one pair that is equal otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from paddle import nn

from zoo.odd_layers import Cast, Cropped, Detached, EpsilonOutside, OtherAxes, Scaled, Unbiased
from zoo.pairs import EVAL, TRAIN, Fault, Plant, code, frozen, instead, setting, swapped, weight, wrapped

Array = np.ndarray[Any, Any]
OTHER_WEIGHT = ("weight", "parameter", "parameters", "parameter-value", "wrong-weight", "other-weight", "other-weights")
PERMUTED = ("permuted-weight", "transposed-weight")
ACTIVATION = ("other-activation", "activation", "different-activation", "wrong-activation")
NO_ACTIVATION = ("missing-activation",)
EXTRA_ACTIVATION = ("extra-activation", "softmax-twice")
EXPONENT = ("scale-factor", "scale")
RESIDUAL = ("residual", "shortcut", "missing-shortcut", "missing-residual", "residual-scale", "residual-order")
ORDER = ("concat-order", "permuted-channels", "permuted-input", "permuted-output")
KINDS = ("setting", "parting")
CUT = ("stop-gradient", "detached", "gradient-cut", "cut-gradient", "missing-gradient", "trainable")


def _fault(
    name: str, family: str, where: str | Sequence[str], codes: Sequence[str], *plants: Plant, mode: str = EVAL
) -> Fault:
    """Return a fault of a layer, or of the code of a container."""
    paths = (where,) if isinstance(where, str) else tuple(where)
    return Fault(id=name, family=family, where=paths, codes=tuple(codes), plant=plants, mode=mode)


def _add(index: tuple[int, ...], by: float) -> Callable[[Array], Array]:
    def change(array: Array) -> Array:
        array[index] += by
        return array

    return change


def _axes(*order: int) -> Callable[[Array], Array]:
    return lambda array: array.transpose(order)


def _rolled(axis: int) -> Callable[[Array], Array]:
    return lambda array: np.roll(array, 1, axis)


def _parts(count: int, *order: int) -> Callable[[Array], Array]:
    """Return a function that puts equal parts of the first axis into another order."""
    return lambda array: np.concatenate([np.split(array, count)[number] for number in order])


def _columns(count: int, *order: int) -> Callable[[Array], Array]:
    return lambda array: np.concatenate([np.split(array, count, -1)[number] for number in order], -1)


def _zeros(array: Array) -> Array:
    return np.zeros_like(array)


def _flipped(*axes: int) -> Callable[[Array], Array]:
    return lambda array: np.flip(array, axes)


PLAIN = (
    _fault("bn-epsilon-first", "plain", "bn1", ("epsilon",), setting("bn1", {"_epsilon": 1e-3})),
    _fault("bn-epsilon-slightly", "plain", "bn2", ("epsilon",), setting("bn2", {"_epsilon": 1.2e-5})),
    _fault("bn-epsilon-train", "plain", "bn2", ("epsilon",), setting("bn2", {"_epsilon": 1e-4}), mode=TRAIN),
    _fault("bn-momentum-eval", "plain", "bn1", ("momentum",), setting("bn1", {"_momentum": 0.1})),
    _fault("bn-momentum-train", "plain", "bn2", ("momentum",), setting("bn2", {"_momentum": 0.99}), mode=TRAIN),
    _fault("bn-mean-not-loaded", "plain", "bn2", ("running-statistics", "buffer", *OTHER_WEIGHT), weight("bn2._mean", _zeros)),
    _fault("bn-in-train-mode", "plain", "bn2", ("batch-norm-mode", "train-mode", "training-flag", "training", "mode", "use-global-stats"), setting("bn2", {"_use_global_stats": False})),
    _fault("bn-frozen-in-training", "plain", "bn1", ("batch-norm-mode", "eval-mode", "training-flag", "training", "mode", "use-global-stats"), setting("bn1", {"_use_global_stats": True}), mode=TRAIN),
    _fault("linear-transposed-square", "plain", "fc1", ("transposed-weight",), weight("fc1.weight", _axes(1, 0))),
    _fault("linear-rows-permuted", "plain", "fc2", PERMUTED, weight("fc2.weight", _rolled(1))),
    _fault("kernel-transposed", "plain", "conv2", PERMUTED, weight("conv2.weight", _axes(0, 1, 3, 2))),
    _fault("kernel-flipped", "plain", "conv1", ("flipped-weight", *PERMUTED), weight("conv1.weight", _flipped(2, 3))),
    _fault("kernel-in-out", "plain", "conv3", PERMUTED, weight("conv3.weight", _axes(1, 0, 2, 3))),
    _fault("one-weight-first", "plain", "conv1", OTHER_WEIGHT, weight("conv1.weight", _add((2, 1, 0, 2), 0.01))),
    _fault("one-weight-last", "plain", "fc2", OTHER_WEIGHT, weight("fc2.weight", _add((7, 3), -0.002))),
    _fault("bias-zero-first", "plain", "conv1", ("missing-bias",), instead("conv1", lambda: nn.Conv2D(3, 8, 3, padding=1, bias_attr=False))),
    _fault("bias-zero-last", "plain", "fc2", ("missing-bias", *OTHER_WEIGHT), weight("fc2.bias", _zeros)),
    _fault("padding-side", "plain", "conv2", ("padding", "padding-side"), instead("conv2", lambda: nn.Conv2D(8, 12, 5, stride=2, padding=[1, 3, 1, 3], bias_attr=False))),
    _fault("padding-mode", "plain", "conv1", ("padding-mode",), instead("conv1", lambda: nn.Conv2D(3, 8, 3, padding=1, padding_mode="reflect"))),
    _fault("stride-and-crop", "plain", "conv2", ("stride",), instead("conv2", lambda: Cropped(8, 12, 5, stride=2, padding=2, bias_attr=False))),
    _fault("pool-exclusive", "plain", "pool2", ("exclusive",), instead("pool2", lambda: nn.AvgPool2D(3, 1, 1, exclusive=False))),
    _fault("average-for-max", "plain", "pool1", ("pooling", "wrong-pooling", "pool-type", "other-pooling", "layer-type", "other-layer"), instead("pool1", lambda: nn.AvgPool2D(3, 2, 1))),
    _fault("max-for-average", "plain", "pool2", ("pooling", "wrong-pooling", "pool-type", "other-pooling", "layer-type", "other-layer"), instead("pool2", lambda: nn.MaxPool2D(3, 1, 1))),
    _fault("leaky-slope", "plain", "act2", ("negative-slope", "slope"), instead("act2", lambda: nn.LeakyReLU(0.01))),
    _fault("gelu-for-leaky", "plain", "act2", ACTIVATION, instead("act2", nn.GELU)),
    _fault("identity-for-leaky", "plain", "act2", (*NO_ACTIVATION, *ACTIVATION), instead("act2", nn.Identity)),
    _fault("elu-scaled", "plain", "", EXPONENT, code("", "scaled elu")),
    _fault("no-last-activation", "plain", "", NO_ACTIVATION, code("", "no last activation")),
    _fault("softmax-at-the-end", "plain", "", EXTRA_ACTIVATION, code("", "softmax at the end")),
    _fault("flattened-channels-last", "plain", "", (*ORDER, "layout", "axes", "axis-order", "flatten-order"), code("", "channels last")),
    _fault("dropout-p-eval", "plain", "dropout", ("dropout-p",), setting("dropout", {"p": 0.5})),
    _fault("dropout-p-train", "plain", "dropout", ("dropout-p",), setting("dropout", {"p": 0.5}), mode=TRAIN),
    _fault("dropout-mode-eval", "plain", "dropout", ("dropout-mode", "dropout-scaling", "dropout"), setting("dropout", {"mode": "downscale_in_infer"})),
    _fault("dropout-mode-train", "plain", "dropout", ("dropout-mode", "dropout-scaling", "dropout"), setting("dropout", {"mode": "downscale_in_infer"}), mode=TRAIN),
    _fault("dropout-missing-train", "plain", "dropout", ("missing-dropout", "dropout-p"), instead("dropout", nn.Identity), mode=TRAIN),
    _fault("weight-frozen", "plain", "conv2", CUT, frozen("conv2.weight")),
    _fault("layer-detached", "plain", ("conv3", "conv3.layer"), CUT, wrapped("conv3", Detached)),
    _fault("bf16-input", "plain", ("conv2", "conv2.layer"), ("bf16", "bfloat16", "lower-precision", "precision"), wrapped("conv2", lambda layer: Cast(layer, "bfloat16"))),
    _fault("fp16-input", "plain", ("fc1", "fc1.layer"), ("fp16", "float16", "lower-precision", "precision"), wrapped("fc1", lambda layer: Cast(layer, "float16"))),
    _fault("result-scaled", "plain", ("conv3", "conv3.layer"), EXPONENT, wrapped("conv3", lambda layer: Scaled(layer, 1.001))),
)  # fmt: skip

RESIDUAL_FAULTS = (
    *(
        _fault(
            f"{fault.replace(' ', '-')}-{block}",
            "residual",
            f"blocks.{block}",
            codes,
            code(f"blocks.{block}", fault),
        )
        for fault, block, codes in (
            ("no shortcut", 0, RESIDUAL),
            ("no shortcut", 5, RESIDUAL),
            ("shortcut after activation", 1, RESIDUAL),
            ("shortcut half", 3, (*RESIDUAL, *EXPONENT)),
            ("shortcut twice", 5, (*RESIDUAL, *EXPONENT)),
            ("shortcut detached", 1, CUT),
            ("branch detached", 4, CUT),
            ("no last activation", 2, NO_ACTIVATION),
        )
    ),
    _fault("no-first-activation-3", "residual", ("blocks.3", "blocks.3.relu"), NO_ACTIVATION, code("blocks.3", "no first activation")),
    _fault("no-shortcut-train", "residual", "blocks.1", RESIDUAL, code("blocks.1", "no shortcut"), mode=TRAIN),
    _fault("block-left-out", "residual", ("", "blocks.3"), ("missing-layer", "missing-layers", "missing-gate"), code("", "block left out")),
    _fault("max-for-mean", "residual", "", ("pooling", "wrong-pooling", "other-pooling", "pool-type"), code("", "max for mean")),
    _fault("downsample-statistics", "residual", "blocks.2.downsample.1", ("running-statistics", "buffer", *OTHER_WEIGHT), weight("blocks.2.downsample.1._variance", lambda array: array * 1.5)),
    _fault("stem-epsilon", "residual", "stem.1", ("epsilon",), setting("stem.1", {"_epsilon": 1e-3})),
    _fault("last-block-epsilon", "residual", "blocks.5.bn2", ("epsilon",), setting("blocks.5.bn2", {"_epsilon": 1e-3})),
    _fault("convolutions-swapped", "residual", ("blocks.1.conv1", "blocks.1.conv2"), ("swapped-layers", "swapped-weights", *OTHER_WEIGHT), swapped("blocks.1.conv1", "blocks.1.conv2")),
    _fault("norms-swapped", "residual", ("blocks.5.bn1", "blocks.5.bn2"), ("swapped-layers", "swapped-weights", *OTHER_WEIGHT), swapped("blocks.5.bn1", "blocks.5.bn2")),
    _fault("dilated", "residual", "blocks.1.conv2", ("dilation",), instead("blocks.1.conv2", lambda: nn.Conv2D(8, 8, 3, padding=2, dilation=2, bias_attr=False))),
    _fault("classifier-weight", "residual", "classifier", OTHER_WEIGHT, weight("classifier.weight", _add((3, 3), 0.01))),
    _fault("two-faults", "residual", "blocks.1.bn1", ("epsilon",), setting("blocks.1.bn1", {"_epsilon": 1e-3}), weight("blocks.4.conv2.weight", _add((1, 1, 1, 1), 0.5))),
)  # fmt: skip

_MOBILE_NORMS = ("bn", *(f"stages.{stage}.bn{number}" for stage in range(4) for number in (1, 2, 3)))
MOBILE = (
    _fault("all-epsilons", "mobile", "bn", ("epsilon",), *(setting(path, {"_epsilon": 1e-5}) for path in _MOBILE_NORMS)),
    _fault("all-momenta", "mobile", _MOBILE_NORMS, ("momentum",), *(setting(path, {"_momentum": 0.01}) for path in _MOBILE_NORMS)),
    _fault("epsilon-in-the-middle", "mobile", "stages.1.bn2", ("epsilon",), setting("stages.1.bn2", {"_epsilon": 1e-5})),
    _fault("epsilon-at-the-end", "mobile", "stages.3.bn3", ("epsilon",), setting("stages.3.bn3", {"_epsilon": 1e-5})),
    _fault("sigmoid-for-hardsigmoid", "mobile", "stages.0.se", ACTIVATION, code("stages.0.se", "sigmoid")),
    _fault("hardsigmoid-slope", "mobile", "stages.2.se", ("slope", "hardsigmoid-slope", *ACTIVATION), code("stages.2.se", "other slope")),
    _fault("gate-added", "mobile", "stages.2.se", ("other-operation", "added-gate"), code("stages.2.se", "added")),
    _fault("swish-for-hardswish", "mobile", "stages.2.act", ACTIVATION, instead("stages.2.act", nn.Swish)),
    _fault("relu-for-hardswish-last", "mobile", "act", ACTIVATION, instead("act", nn.ReLU)),
    _fault("no-depthwise-activation", "mobile", ("stages.1", "stages.1.act"), NO_ACTIVATION, code("stages.1", "no activation")),
    _fault("no-inverted-shortcut", "mobile", "stages.3", RESIDUAL, code("stages.3", "no shortcut")),
    _fault("depthwise-kernel", "mobile", "stages.2.depthwise", PERMUTED, weight("stages.2.depthwise.weight", _axes(0, 1, 3, 2))),
    _fault("excitation-bias", "mobile", "stages.0.se.fc2", ("missing-bias", *OTHER_WEIGHT), weight("stages.0.se.fc2.bias", _zeros)),
    _fault("squeeze-missing", "mobile", ("stages.2.se", "stages.2"), ("missing-layer", "missing-layers", "missing-gate"), instead("stages.2.se", nn.Identity)),
    _fault("mobile-dropout-train", "mobile", "drop", ("dropout-p",), setting("drop", {"p": 0.5}), mode=TRAIN),
    _fault("mobile-epsilon-train", "mobile", "stages.1.bn2", ("epsilon",), setting("stages.1.bn2", {"_epsilon": 1e-5}), mode=TRAIN),
)  # fmt: skip

BRANCHES = (
    _fault("ceil-mode", "branches", "pool", ("ceil-mode",), instead("pool", lambda: nn.MaxPool2D(2, 2, ceil_mode=False))),
    _fault("dense-order", "branches", "dense1", ORDER, code("dense1", "order")),
    _fault("activation-before-norm", "branches", "dense2", ("activation-order", "norm-order"), code("dense2", "activation before norm")),
    _fault("inception-order", "branches", "mixed1", ORDER, code("mixed1", "order")),
    _fault("inception-order-last", "branches", "mixed2", ORDER, code("mixed2", "order")),
    _fault("inception-exclusive", "branches", "mixed1", ("exclusive",), code("mixed1", "exclusive")),
    _fault("branches-swapped", "branches", ("mixed2.three", "mixed2.four"), ("swapped-layers", "swapped-weights", *OTHER_WEIGHT), swapped("mixed2.three", "mixed2.four")),
)  # fmt: skip

UNET = (
    _fault("align-corners", "unet", "up1", ("align-corners",), setting("up1", {"align_corners": True})),
    _fault("nearest", "unet", "up1", ("interpolation-mode",), instead("up1", lambda: nn.Upsample(scale_factor=2, mode="nearest"))),
    _fault("bicubic", "unet", "up1", ("interpolation-mode",), instead("up1", lambda: nn.Upsample(scale_factor=2, mode="bicubic"))),
    _fault("align-mode", "unet", "up1", ("align-mode", "align-corners"), setting("up1", {"align_mode": 1})),
    _fault("transposed-kernel", "unet", "up2", PERMUTED, weight("up2.weight", _axes(1, 0, 2, 3))),
    _fault("groups-of-norm", "unet", "down1.norm1", ("groups", "num-groups"), setting("down1.norm1", {"_num_groups": 3})),
    _fault("group-norm-epsilon", "unet", "left1.norm1", ("epsilon",), setting("left1.norm1", {"_epsilon": 1e-3})),
    _fault("instance-norm-epsilon", "unet", "middle.norm2", ("epsilon",), setting("middle.norm2", {"_epsilon": 1e-3})),
    _fault("relu-for-silu", "unet", "left1.act1", ACTIVATION, instead("left1.act1", nn.ReLU)),
    _fault("skip-changed", "unet", "", EXTRA_ACTIVATION, code("", "skip changed")),
    _fault("skip-order", "unet", "", ORDER, code("", "order")),
)  # fmt: skip

OUTPUTS = (
    _fault("missing-sigmoid", "outputs", "", NO_ACTIVATION, code("", "no sigmoid")),
    _fault("softmax-axis", "outputs", ("softmax", ""), ("softmax-axis",), setting("softmax", {"_axis": -1})),
    _fault("other-norm", "outputs", "", ("norm-order", "norm-p"), code("", "other norm")),
    _fault("layer-norm-epsilon", "outputs", "norm", ("epsilon",), setting("norm", {"_epsilon": 1e-12})),
    _fault(
        "box-bias",
        "outputs",
        "boxes",
        ("missing-bias",),
        instead("boxes", lambda: nn.Conv2D(8, 8, 3, 1, 1, bias_attr=False)),
    ),
    _fault("boxes-detached", "outputs", ("boxes", "boxes.layer"), CUT, wrapped("boxes", Detached)),
)

VIDEO = (
    _fault(
        "max-over-time",
        "clip",
        "",
        ("pooling", "wrong-pooling", "other-pooling", "pool-type"),
        code("", "max over time"),
    ),
    _fault("time-flipped", "clip", "conv2", ("flipped-weight", *PERMUTED), weight("conv2.weight", _flipped(2))),
    _fault("clip-epsilon", "clip", "bn2", ("epsilon",), setting("bn2", {"_epsilon": 1e-3})),
    _fault("clip-epsilon-train", "clip", "bn1", ("epsilon",), setting("bn1", {"_epsilon": 1e-3}), mode=TRAIN),
    _fault("clip-dropout-p", "clip", "drop", ("dropout-p",), setting("drop", {"p": 0.2})),
    _fault("shift-reversed", "frames", "", ("time-order", "shift", "shift-direction"), code("", "shift reversed")),
    _fault("one-shift", "frames", "", ("missing-layer", "missing-step", "missing-operation"), code("", "one shift")),
    _fault("frames-beside-samples", "frames", "", (*ORDER, "axes", "reshape"), code("", "frames beside samples")),
    _fault("frames-no-shortcut", "frames", "block1", RESIDUAL, code("block1", "no shortcut")),
    _fault("frames-momentum", "frames", "stem.1", ("momentum",), setting("stem.1", {"_momentum": 0.1}), mode=TRAIN),
)

OTHERS = (
    _fault("no-half", "autoencoder", "", EXPONENT, code("", "no half")),
    _fault("prelu-one-weight", "autoencoder", "encoder.3", OTHER_WEIGHT, weight("encoder.3._weight", lambda array: np.full_like(array, array.mean()))),
    _fault("decoder-kernel", "autoencoder", "deconv2", PERMUTED, weight("deconv2.weight", _axes(0, 1, 3, 2))),
    _fault("heads-of-latent-swapped", "autoencoder", ("mean", "log_variance"), ("swapped-layers", "swapped-weights", *OTHER_WEIGHT), swapped("mean", "log_variance")),
    _fault("right-detached", "siamese", "", CUT, code("", "right detached")),
    _fault("sides-swapped", "siamese", "", ("swapped-inputs", "swapped-arguments", "permuted-input"), code("", "sides swapped")),
    _fault("bilinear-sides", "siamese", "score", PERMUTED, weight("score.weight", _axes(0, 2, 1))),
    _fault("shared-weight", "siamese", "conv2", OTHER_WEIGHT, weight("conv2.weight", _add((1, 1, 1, 1), 0.01))),
    _fault("deep-epsilon-first", "deep", "norms.0", ("epsilon",), setting("norms.0", {"_epsilon": 1e-6})),
    _fault("deep-epsilon-middle", "deep", "norms.12", ("epsilon",), setting("norms.12", {"_epsilon": 1e-6})),
    _fault("deep-epsilon-last", "deep", "norms.23", ("epsilon",), setting("norms.23", {"_epsilon": 1e-12})),
    _fault("deep-transposed", "deep", "lins.12", ("transposed-weight",), weight("lins.12.weight", _axes(1, 0))),
    _fault("deep-one-weight", "deep", "lins.20", OTHER_WEIGHT, weight("lins.20.weight", _add((5, 5), 1e-3))),
    _fault("deep-epsilon-outside", "deep", "norms.6", ("epsilon", "epsilon-outside"), instead("norms.6", lambda: EpsilonOutside(16))),
    _fault("deep-unbiased-variance", "deep", "norms.18", ("unbiased-variance", "unbiased", "variance"), instead("norms.18", lambda: Unbiased(16))),
)  # fmt: skip

_GELU = ("gelu", "gelu-form", "approximate", "gelu-approximate")
TEXT = (
    _fault("qk-weights-swapped", "transformer", ("layers.1.attn.q_proj", "layers.1.attn.k_proj", "layers.1.attn"), ("swapped-qkv", "swapped-layers", "swapped-weights", "qkv-order"), swapped("layers.1.attn.q_proj", "layers.1.attn.k_proj")),
    _fault("kv-weights-swapped", "transformer", ("layers.0.attn.k_proj", "layers.0.attn.v_proj", "layers.0.attn"), ("swapped-qkv", "swapped-layers", "swapped-weights", "qkv-order"), swapped("layers.0.attn.k_proj", "layers.0.attn.v_proj")),
    _fault("qk-swapped-in-code", "transformer", "layers.2.attn", ("swapped-qkv", "qkv-order"), code("layers.2.attn", "q and k swapped")),
    _fault("attention-not-scaled", "transformer", "layers.0.attn", ("scale-factor", "attention-scale", "temperature"), code("layers.0.attn", "no scale")),
    _fault("attention-scale-of-all", "transformer", "layers.1.attn", ("scale-factor", "attention-scale", "temperature"), code("layers.1.attn", "scale of all heads")),
    _fault("attention-softmax-axis", "transformer", "layers.1.attn", ("softmax-axis",), code("layers.1.attn", "softmax axis")),
    _fault("attention-no-mask", "transformer", "layers.0.attn", ("mask", "missing-mask", "attention-mask"), code("layers.0.attn", "no mask")),
    _fault("heads-inside", "transformer", "layers.2.attn", ("head-order", "heads", "reshape", "axis-order"), code("layers.2.attn", "heads inside")),
    _fault("value-transposed", "transformer", "layers.1.attn.v_proj", ("transposed-weight",), weight("layers.1.attn.v_proj.weight", _axes(1, 0))),
    _fault("embedding-not-scaled", "transformer", "", EXPONENT, code("", "embedding not scaled")),
    _fault("positions-from-1", "transformer", "", ("shift", "positions", "off-by-one", "position-offset"), code("", "positions from 1")),
    _fault("padding-pooled", "transformer", "", ("mask", "missing-mask"), code("", "padding pooled")),
    _fault("text-epsilon", "transformer", "layers.1.norm2", ("epsilon",), setting("layers.1.norm2", {"_epsilon": 1e-5})),
    _fault("text-epsilon-last", "transformer", "norm", ("epsilon",), setting("norm", {"_epsilon": 1e-12})),
    _fault("gelu-tanh", "transformer", "layers.0.act", _GELU, instead("layers.0.act", lambda: nn.GELU(approximate=True))),
    _fault("relu-for-gelu", "transformer", "layers.2.act", ACTIVATION, instead("layers.2.act", nn.ReLU)),
    _fault("norm-before-for-after", "postnorm", "layers.1", ("norm-order", "pre-norm", "norm-first"), code("layers.1", "other norm order")),
    _fault("norm-after-for-before", "transformer", "layers.2", ("norm-order", "post-norm", "norm-first"), code("layers.2", "other norm order")),
    _fault("shortcut-from-norm", "transformer", "layers.0", (*RESIDUAL, "norm-order"), code("layers.0", "shortcut from norm")),
    _fault("layer-norm-axes", "transformer", "layers.1.norm1", ("layer-norm-axes", "norm-axes", "axes"), instead("layers.1.norm1", lambda: OtherAxes(16, epsilon=1e-6))),
    _fault("padding-idx", "transformer", "tok", ("padding-idx",), instead("tok", lambda: nn.Embedding(40, 16))),
    _fault("attention-dropout-train", "dropout", "layers.1.attn.drop", ("dropout-p",), setting("layers.1.attn.drop", {"p": 0.2}), mode=TRAIN),
    _fault("layer-dropout-eval", "dropout", "layers.2.drop", ("dropout-p",), setting("layers.2.drop", {"p": 0.0})),
    _fault("sees-the-next", "language", ("", "h.0.attn"), ("mask", "attention-mask", "causal-mask"), code("", "sees the next")),
    _fault("fused-heads-outermost", "language", "h.1.attn", ("head-order", "heads", "reshape", "qkv-order", "swapped-qkv"), code("h.1.attn", "heads outermost")),
    _fault("fused-qk-swapped", "language", "h.2.attn", ("swapped-qkv", "qkv-order"), code("h.2.attn", "q and k swapped")),
    _fault("fused-parts-permuted", "language", "h.0.attn.qkv", ("swapped-qkv", "qkv-order", *PERMUTED), weight("h.0.attn.qkv.weight", _columns(3, 1, 0, 2)), weight("h.0.attn.qkv.bias", _parts(3, 1, 0, 2))),
    _fault("fused-no-mask", "language", "h.0.attn", ("mask", "missing-mask", "attention-mask", "causal-mask"), code("h.0.attn", "no mask")),
    _fault("columns-first", "vision", "", (*ORDER, "axes", "axis-order", "layout", "flatten-order"), code("", "columns first")),
    _fault("token-last", "vision", "", ORDER, code("", "token last")),
    _fault("token-without-position", "vision", "", ("missing-term", "missing-parameter"), code("", "token without position")),
    _fault("mean-of-tokens", "vision", "", ("pooling", "wrong-pooling", "other-pooling"), code("", "mean of tokens")),
    _fault("positions-not-loaded", "vision", "", ("scaled-weight", *OTHER_WEIGHT), weight("pos_embed", lambda array: array * 0.1)),
    _fault("patches-transposed", "vision", "patch_embed", PERMUTED, weight("patch_embed.weight", _axes(0, 1, 3, 2))),
    _fault("vision-gelu-tanh", "vision", "blocks.2.act", _GELU, instead("blocks.2.act", lambda: nn.GELU(approximate=True))),
    _fault("vision-epsilon", "vision", "blocks.0.norm1", ("epsilon",), setting("blocks.0.norm1", {"_epsilon": 1e-5})),
    _fault("builtin-activation", "builtin", ("encoder.layers.0", "encoder.layers.0.activation"), ACTIVATION, instead("encoder.layers.0", lambda: nn.TransformerEncoderLayer(16, 2, 24, 0.0, activation="relu"))),
    _fault("builtin-norm-order", "builtin", "encoder.layers.1", ("norm-order", "norm-first", "pre-norm"), setting("encoder.layers.1", {"normalize_before": True})),
    _fault("builtin-heads", "builtin", "encoder.layers.1.self_attn", ("num-heads",), setting("encoder.layers.1.self_attn", {"num_heads": 4, "head_dim": 4})),
    _fault("builtin-value", "builtin", "encoder.layers.0.self_attn", ("transposed-weight",), weight("encoder.layers.0.self_attn.v_proj.weight", _axes(1, 0))),
    _fault("builtin-dropout", "builtin", ("encoder.layers.0.dropout1", "encoder.layers.0"), ("dropout-p",), setting("encoder.layers.0.dropout1", {"p": 0.1})),
)  # fmt: skip

_GATES = ("gate-order", "permuted-weight")
RECURRENT = (
    _fault("lstm-gate-order", "lstm", "net", _GATES, *(weight(f"net.{name}_l0", _parts(4, 0, 2, 1, 3)) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh") )),
    _fault("lstm-gate-order-last", "lstm", "net", _GATES, *(weight(f"net.{name}_l1", _parts(4, 3, 1, 2, 0)) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh") )),
    _fault("lstm-no-hidden-bias", "lstm", "net", ("missing-bias", *OTHER_WEIGHT), weight("net.bias_hh_l0", _zeros), weight("net.bias_hh_l1", _zeros)),
    _fault("lstm-hidden-transposed", "lstm", "net", PERMUTED, weight("net.weight_hh_l1", lambda array: np.concatenate([part.T for part in np.split(array, 4)]))),
    _fault("lstm-first-word", "lstm", "", ("wrong-index", "time-order"), code("", "first word")),
    _fault("lstm-other-activation", "lstm", "", ACTIVATION, code("", "other activation")),
    _fault("lstm-dropout-train", "lstm", "drop", ("dropout-p",), setting("drop", {"p": 0.5}), mode=TRAIN),
    _fault("gru-gate-order", "gru", "net", _GATES, *(weight(f"net.{name}_l0", _parts(3, 1, 0, 2)) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh") )),
    _fault("gru-embedding-row", "gru", "words", ("permuted-weight", *OTHER_WEIGHT), weight("words.weight", lambda array: np.roll(array, 1, 0))),
    _fault("bilstm-directions", "bilstm", "net", ("flipped-weight", "permuted-weight"), weight("net.weight_ih_l0", _flipped(0))),
    _fault("translator-no-state", "translator", "", ("initial-state", "missing-state", "wrong-input"), code("", "no state")),
    _fault("translator-softmax-axis", "translator", "", ("softmax-axis",), code("", "softmax axis")),
    _fault("translator-order", "translator", "", ORDER, code("", "order")),
    _fault("translator-gates", "translator", "write", _GATES, *(weight(f"write.{name}_l0", _parts(3, 1, 0, 2)) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh") )),
    _fault("translator-embeddings-swapped", "translator", ("words_in", "words_out"), ("swapped-layers", "swapped-weights", *OTHER_WEIGHT), swapped("words_in", "words_out")),
)  # fmt: skip


def _loss(name: str, family: str, loss: str, codes: Sequence[str]) -> Fault:
    return Fault(id=f"loss-{name}", family=family, where=("loss",), codes=tuple(codes), loss=loss, part="loss")


def _update(name: str, optimizer: str, says: str, family: str = "plain") -> Fault:
    return Fault(
        id=f"optimizer-{name}",
        family=family,
        where=("optimizer",),
        codes=KINDS,
        says=says,
        optimizer=optimizer,
        part="optimizer",
        mode=TRAIN if family in ("plain", "residual") else EVAL,
    )


def _schedule(name: str, scheduler: str, says: str) -> Fault:
    return Fault(
        id=f"scheduler-{name}",
        family="plain",
        where=("scheduler",),
        codes=KINDS,
        says=says,
        scheduler=scheduler,
        part="scheduler",
    )


TRAINING = (
    _loss("softmax-twice", "plain", "softmax twice", ("extra-activation",)),
    _loss("sum", "residual", "sum", ("reduction", "mean-sum", "sum")),
    _loss("class-mean", "vision", "class mean", ("reduction", "batch-mean", "mean-sum", "scale-factor", "extra-term")),
    _loss("smoothing", "transformer", "smoothing", ("label-smoothing",)),
    _loss("class-weights", "plain", "class weights", ("class-weights", "extra-step")),
    _loss("ignored", "lstm", "ignored", ("ignore-index",)),
    _loss("log2", "clip", "log2", ("scale-factor",)),
    _loss("no-divergence", "autoencoder", "no divergence", ("missing-term",)),
    _loss("detached", "plain", "detached", CUT),
    _update("rate", "rate", "`learning_rate`", "deep"),
    _update("momentum", "momentum", "`momentum`"),
    _update("nesterov", "nesterov", "`use_nesterov`", "deep"),
    _update("dampening", "dampening", "`dampening`", "deep"),
    _update("no-decay", "no decay", "`weight_decay`", "vision"),
    _update("decay-not-on-bias", "decay not on bias", "`weight_decay`", "deep"),
    _update("adam-epsilon", "adam epsilon", "`epsilon`", "transformer"),
    _update("beta2", "beta2", "`beta2`", "lstm"),
    _update("coupled", "coupled", "`weight_decay`", "transformer"),
    _update("clip-value", "clip value", "gradients are clipped by `ClipGradByValue", "lstm"),
    _update("clip-each", "clip each", "gradients are clipped by `ClipGradByNorm", "deep"),
    _update("rmsprop-centered", "rmsprop centered", "`centered`", "deep"),
    _schedule("gamma", "gamma", "`gamma`"),
    _schedule("step", "step", "`step_size`"),
    _schedule("cosine-period", "cosine period", "`T_max`"),
    _schedule("warmup-start", "warmup start", "LinearWarmup("),
    _schedule("missing", "missing", "`step_size`"),
)

FAULTS: tuple[Fault, ...] = (
    *PLAIN,
    *RESIDUAL_FAULTS,
    *MOBILE,
    *BRANCHES,
    *UNET,
    *OUTPUTS,
    *VIDEO,
    *OTHERS,
    *TEXT,
    *RECURRENT,
    *TRAINING,
)
