"""What the stages optimizer, regularization and lr share: a model to update, and equal numbers on both sides."""

from __future__ import annotations

import gc
import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tipchain.errors import CaseError
from tipchain.parity.frameworks.base import Array
from tipchain.parity.frameworks.updates import Updates, updates_module
from tipchain.parity.settings.updates import MODEL
from tipchain.parity.stages.bench import Bench

MOST_ELEMENTS = 512
"""Elements of a parameter that are recorded; all are updated, and more would only repeat what these show."""

MOST_DRAWN = 100_003
"""Elements of a parameter that are drawn, a prime, so that rows of a matrix do not repeat in step."""


def build_subject(bench: Bench) -> Any:
    """Return what the optimizer is built over: the small model of layers, or the case's own."""
    if bench.case.updates.parameters == MODEL:
        return bench.framework.build(bench.builder("model"), bench.case.model_args)
    return bench.framework.build(updates_module(bench.framework).build_layers, {})


def names(bench: Bench) -> Mapping[str, str]:
    """Return Paddle's names by torch's for what `build_subject` returns."""
    return bench.case.weights.names if bench.case.updates.parameters == MODEL else {}


def variants(bench: Bench) -> dict[str, Mapping[str, Any]]:
    """Return the optimizer's arguments by prefix of the keys: the case's own under "", each variant under ``name/``."""
    named = {f"{name}/": args for name, args in bench.case.updates.variants.items()}
    return {"": bench.case.optimizer_args, **named}


def open_variant(bench: Bench, model: Any, prefix: str, args: Mapping[str, Any], rate: float) -> Updates:
    """Build an optimizer over ``model``; the model's state is as it was, the optimizer's is fresh.

    Raises:
        CaseError: the builder refuses its arguments.
    """
    case = bench.case
    if case.updates.parameters == MODEL:
        gc.collect()  # optimizers stand in cycles; the one before may hold several times the model
    module = updates_module(bench.framework)
    try:
        return module.open_updates(
            bench.framework, model, bench.builder("optimizer"), rate, args, names(bench)
        )
    except CaseError as error:
        key = error.key or "optimizer"
        if prefix:
            key = key.replace("optimizer", f"updates.variants.{prefix[:-1]}", 1)
        hints = [error.hint] if error.hint else []
        if case.updates.parameters != MODEL:
            hints.append("rules for the case's own parameters need  updates: {parameters: model}")
        raise CaseError(
            error.message, file=error.file or case.path, line=error.line, key=key, found=error.found,
            expected=error.expected, hint="; ".join(hints) or None,
        ) from error  # fmt: skip


def draw(shapes: Mapping[str, tuple[int, ...]], seed: int, number: int) -> dict[str, Array]:
    """Return standard normal float32 arrays that depend on nothing but name, shape, seed and number.

    More than `MOST_DRAWN` elements repeat themselves.
    """
    return {name: _drawn(shape, [seed, number, zlib.crc32(name.encode())]) for name, shape in shapes.items()}


def _drawn(shape: tuple[int, ...], seeds: list[int]) -> Array:
    drawn = np.random.default_rng(seeds).standard_normal(min(math.prod(shape), MOST_DRAWN), dtype=np.float32)
    return np.resize(drawn, shape)


def scaled(arrays: Mapping[str, Array], factor: float) -> dict[str, Array]:
    """Return every array times ``factor``."""
    return {name: array * np.float32(factor) for name, array in arrays.items()}


def sample(array: Array) -> Array:
    """Return the array itself, or `MOST_ELEMENTS` elements evenly spread over a larger one."""
    if array.size <= MOST_ELEMENTS:
        return array
    flat: Array = array.reshape(-1)
    return flat[np.linspace(0, array.size - 1, MOST_ELEMENTS).astype(np.int64)]
