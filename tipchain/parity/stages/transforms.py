"""What each named transform of a side makes of the first samples.

The optional builder is ``build_transforms(root, split, **data args) -> (load, steps)``: ``load(index)`` reads a
sample of the data set as it is before any transform, ``steps`` are pairs of a name and a callable, in the order in
which the data set applies them. Results may be arrays, tensors, PIL images, or lists of these (frames).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tipchain.errors import UsageError
from tipchain.parity.frameworks.base import Array, Framework
from tipchain.parity.stages.bench import Bench

RAW = "raw"
"""The name of what ``load`` gives."""
Step = tuple[str, Callable[[Any], Any]]


def trace_transforms(bench: Bench, images: Sequence[Array]) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return ``transform_<sample>/<name>`` for the first samples, and facts for judging.

    Args:
        bench: the side.
        images: what the data set gives for these samples, in order; the last transform must give the same.

    Raises:
        UsageError: the builder gives something else, or a transform gives no array of numbers.
    """
    builder = bench.optional_builder("transforms")
    if builder is None:
        return {}, {}
    load, steps = _checked(builder(bench.eval_data, "val", **bench.case.data.args))
    arrays: dict[str, Array] = {}
    gap = ""
    for number, image in enumerate(images):
        value = load(number)
        arrays[f"transform_{number}/{RAW}"] = _as_array(bench.framework, value, RAW)
        for name, step in steps:
            value = step(value)
            arrays[f"transform_{number}/{name}"] = _as_array(bench.framework, value, name)
        last = arrays[f"transform_{number}/{steps[-1][0]}"]
        gap = gap or _gap(number, image, last)
    return arrays, {"transforms": [RAW, *(name for name, _ in steps)], "transforms_gap": gap}


def _checked(found: Any) -> tuple[Callable[[int], Any], list[Step]]:
    expected = "expected: (load, [(name, transform), ...])"
    if not isinstance(found, tuple) or len(found) != 2 or not callable(found[0]):
        raise UsageError(f"build_transforms gave {found!r:.80}\n  {expected}")
    steps = list(found[1])
    if not steps or not all(isinstance(one, tuple) and len(one) == 2 and callable(one[1]) for one in steps):
        raise UsageError(f"build_transforms gave the steps {steps!r:.80}\n  {expected}")
    names = [RAW, *(str(name) for name, _ in steps)]
    if len(set(names)) < len(names) or any("/" in name or not name.strip() for name in names):
        raise UsageError(f"build_transforms named its steps {', '.join(names[1:])}\n  expected: different names without '/', none of them {RAW!r}")  # fmt: skip
    return found[0], steps


def _as_array(framework: Framework, value: Any, name: str) -> Array:
    """Return a sample as an array of its own: a later transform may change it in place."""
    if framework.is_tensor(value):
        return framework.array(value)
    if isinstance(value, list | tuple):
        parts = [_as_array(framework, one, name) for one in value]
        if len({part.shape for part in parts}) == 1:
            return np.stack(parts)
        raise UsageError(f"after {name!r} a sample is {len(parts)} arrays of different shapes")
    array = np.array(value)
    if array.dtype.kind not in "biuf":
        raise UsageError(f"after {name!r} a sample is a {type(value).__name__}, not an array of numbers")
    return array


def _gap(number: int, image: Array, last: Array) -> str:
    """Say how the last transform's result differs from what the data set gives, or ""."""
    if image.shape != last.shape:
        return f"sample {number} has shape {image.shape}, the last transform gives {last.shape}"
    if np.allclose(image, last, rtol=1e-5, atol=1e-6, equal_nan=True):
        return ""
    largest = float(np.nanmax(np.abs(image.astype(np.float64) - last)))
    return f"sample {number} differs by up to {largest:.3g}"
