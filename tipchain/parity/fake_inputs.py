"""Fake inputs: what both sides are fed where no data are wanted."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tipchain.parity.case_types import LABEL, Case, InputSpec


def make_inputs(case: Case, number: int = 0) -> dict[str, Any]:
    """Return the case's fake inputs: standard normal floats, uniform integers, from NumPy's seeded generator.

    Args:
        case: the case.
        number: which of the shapes to take, for inputs that have several; the label comes with the first alone.
    """
    arrays: dict[str, Any] = {}
    for name, spec in case.inputs.items():
        if name != LABEL or number == 0:
            arrays[name] = make_input(spec, number)
    return arrays


def make_all_inputs(case: Case) -> dict[str, dict[str, Any]]:
    """Return the fake inputs of every set of shapes: the usual ones under ``""``, others under what `suffix` says."""
    count = max((len(spec.shapes) for spec in case.inputs.values()), default=1)
    sets = {"": make_inputs(case)}
    return sets | {suffix(case, number): make_inputs(case, number) for number in range(1, count)}


def suffix(case: Case, number: int) -> str:
    """Return what tells the outputs of the ``number``-th shapes from others', such as ``@1x3x256x256``."""
    shapes = [spec.shapes[number] for spec in case.inputs.values() if len(spec.shapes) > 1]
    return "@" + ",".join("x".join(map(str, shape)) for shape in shapes)


def make_input(spec: InputSpec, number: int = 0) -> Any:
    """Return one fake input, of its first shape or of another."""
    shape = spec.shapes[number] if number < len(spec.shapes) else spec.shape
    # The first shape keeps the plain seed; the others must not repeat its values.
    generator = np.random.default_rng([spec.seed, number] if number else spec.seed)
    if np.dtype(spec.dtype).kind != "f":
        return generator.integers(spec.low, spec.high, shape).astype(spec.dtype)
    values = generator.standard_normal(shape)
    return (softmax(values) if spec.values == "probabilities" else values).astype(spec.dtype)


def softmax(values: Any, axis: int = -1) -> Any:
    """Return positive numbers that sum to 1 along ``axis``."""
    powers = np.exp(values - values.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def make_loss_label(label: Any, args: Mapping[str, Any], shape: tuple[int, ...], seed: int) -> Any:
    """Return the label that a loss built with ``args`` is tried on.

    It is the case's own, with two exceptions: for ``soft_label: true`` class numbers give way to seeded
    probabilities of the output's shape, float32, classes on axis 1; for an ``ignore_index`` every third class
    number, from the second on, becomes it, so that ignoring it can make a difference.

    Args:
        label: the case's label.
        args: arguments of ``build_loss``.
        shape: the shape of the model's first output.
        seed: the label's seed.
    """
    if args.get("soft_label") and label.dtype.kind != "f" and len(shape) > 1:
        values = np.random.default_rng([seed, 1]).standard_normal(shape)
        return softmax(values, axis=1).astype(np.float32)
    ignored = args.get("ignore_index")
    if isinstance(ignored, int) and label.dtype.kind in "iu":
        planted = label.copy().reshape(-1)
        planted[1::3] = ignored
        return planted.reshape(label.shape)
    return label


def arrays_digest(arrays: Mapping[str, Any]) -> str:
    """Return a SHA-256 of names, dtypes, shapes and values."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
