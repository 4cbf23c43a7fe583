"""Pairs of the second zoo that are equal: its families in both modes, and models built quite differently."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from zoo import pairs
from zoo.held_out import variants as v
from zoo.held_out.families import SECOND, SECOND_LOSSES, SECOND_OPTIMIZERS, SECOND_SCHEDULERS, build
from zoo.pairs import Family, Pair

TRAINABLE = (
    "vit",
    "gpt-dropout",
    "encdec",
    "convnext",
    "linknet",
    "detector",
    "shuffle",
    "dense",
    "tsm",
    "points",
    "captioner",
    "tcn",
    "fm",
    "tied",
)


def _args(*shape: int) -> Callable[[np.random.Generator], dict[str, Any]]:
    return lambda random: {"args": random.standard_normal(shape, dtype=np.float32)}


def _tokens(random: np.random.Generator) -> dict[str, Any]:
    return {"tokens": random.integers(0, 17, (3, 6))}


def _alike(reference: Any, port: Any, inputs: Any, *, training: bool = False) -> Pair:
    return pairs.build(Family(reference=reference, port=port, inputs=inputs), 3, training=training)


def _learning(optimizer: str, scheduler: str = "", loss: str = "ce", family: str = "shuffle") -> Pair:
    pair = build(family, training=True)
    pair.loss, pair.optimizers = SECOND_LOSSES[loss], SECOND_OPTIMIZERS[optimizer]
    pair.schedulers = SECOND_SCHEDULERS[scheduler] if scheduler else None
    return pair


_SERIES, _IMAGE = _args(3, 6, 8), _args(2, 3, 8, 8)
VARIANTS: Mapping[str, tuple[Any, Any, Any]] = {
    "kernel-attention": (v.StackTorch, lambda: v.StackPaddle(v.KernelAttention), _SERIES),
    "kernel-attention-causal": (lambda: v.StackTorch(True), lambda: v.StackPaddle(v.KernelAttention, True), _SERIES),
    "separate-by-einsum": (v.StackTorch, lambda: v.StackPaddle(v.SeparateAttention), _SERIES),
    "interleaved-qkv": (v.StackTorch, lambda: v.StackPaddle(v.InterleavedAttention), _SERIES),
    "built-in-attention": (v.BuiltInTorch, v.BuiltInPaddle, _SERIES),
    "unfolded-patches": (v.PatchesTorch, v.PatchesPaddle, _IMAGE),
    "gates-by-formula": (v.GatedTorch, v.GatedPaddle, _IMAGE),
    "norms-by-other-norms": (v.NormsTorch, v.NormsPaddle, _args(2, 3, 6, 6)),
    "lstm-by-cell": (v.ReaderTorch, v.ReaderPaddle, _tokens),
    "lstm-time-major": (v.ReaderTorch, v.TimeMajorPaddle, _tokens),
    "channels-last": (v.LastPlacesTorch, v.ChannelsLastPaddle, _IMAGE),
    "shuffle-by-reshape": (v.EnlargeTorch, v.EnlargePaddle, _args(2, 2, 5, 5)),
    "series-as-image": (v.SeriesTorch, v.SeriesPaddle, _args(3, 3, 10)),
    "layers-in-dictionary": (v.BranchesTorch, v.BranchesPaddle, _args(4, 6)),
    "no-layers-at-all": (v.WeightNormTorch, v.HooksPaddle, _args(2, 3, 7)),
    "encoder-by-hand": (v.EncoderTorch, v.EncoderPaddle, _SERIES),
    "encoder-by-hand-prenorm": (lambda: v.EncoderTorch(True), lambda: v.EncoderPaddle(True), _SERIES),
}
LEARNING: Mapping[str, Callable[[], Pair]] = {
    "learns-sgd": partial(_learning, "sgd right", "steps right"),
    "learns-adam-cosine": partial(_learning, "adam right", "cosine right", "smooth right"),
    "learns-adamw-groups": partial(_learning, "adamw right", "warm-up right", "weights right"),
    "learns-polynomial": partial(_learning, "sgd right", "polynomial right", "ignore right", "vit"),
    "learns-focal": partial(_learning, "adam right", "", "focal right", "convnext"),
}
SECOND_CLEAN: Mapping[str, Callable[[], Pair]] = {
    **{f"second-{name}-eval": partial(build, name) for name in SECOND},
    **{f"second-{name}-train": partial(build, name, training=True) for name in TRAINABLE},
    **{f"variant-{name}": partial(_alike, *made) for name, made in VARIANTS.items()},
    **{
        f"variant-{name}-train": partial(_alike, *VARIANTS[name], training=True)
        for name in ("gates-by-formula", "channels-last", "series-as-image", "encoder-by-hand-prenorm")
    },
    **LEARNING,
}
