"""Step 10 of the guide, initial values: the parameters of freshly built models, over several seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from tipchain.parity.frameworks.base import Array
from tipchain.parity.stages.bench import Bench, Recording


def record(bench: Bench) -> Recording:
    """Some values of every parameter and buffer for every seed, and the range of all of them.

    ``value/NAME`` holds the values kept ``[seeds, n]``, at the same places in each model, and ``range/NAME`` the
    least, the largest and the mean of all values and their root mean square, float64 ``[seeds, 4]``. One model at a
    time is in memory, and a copy of one parameter.
    """
    settings, framework = bench.case.init, bench.framework
    values: dict[str, list[Array]] = {}
    ranges: dict[str, list[Array]] = {}
    shapes: dict[str, list[int]] = {}
    for number in range(settings.seeds):
        framework.seed(bench.case.seed + number)
        model = framework.build(bench.builder("model"), bench.case.model_args)
        for name, array in _tensors(bench, model):
            shapes[name] = list(array.shape)
            flat = array.reshape(-1)
            values.setdefault(name, []).append(flat[places(flat.size, settings.values)])
            ranges.setdefault(name, []).append(_range(flat))
        del model
    framework.seed(bench.case.seed)
    arrays = {f"value/{name}": np.stack(found) for name, found in values.items()}
    arrays |= {f"range/{name}": np.stack(found) for name, found in ranges.items()}
    details = {"shapes": shapes, "seeds": settings.seeds, "alpha": settings.alpha}
    return Recording(arrays=arrays, details=details)


def _tensors(bench: Bench, model: Any) -> Iterator[tuple[str, Array]]:
    names = bench.case.weights.names
    yield from chain(bench.framework.parameters(model, names), bench.framework.buffers(model, names))


def places(size: int, wanted: int) -> Array:
    """Return at most ``wanted`` different positions in ``[0, size)``, int64, spread evenly and always the same.

    They advance by a stride near the golden section of ``size`` that has no divisor in common with it, so that
    they are not all of one row or column.
    """
    if size <= wanted:
        return np.arange(size)
    stride = int(size * (math.sqrt(5) - 1) / 2)
    while math.gcd(stride, size) != 1:
        stride += 1
    # Python's integers: the product of two positions may be beyond 63 bits.
    return np.fromiter((number * stride % size for number in range(wanted)), dtype=np.int64, count=wanted)


def _range(flat: Array) -> Array:
    """Return least, largest, mean and root mean square, float64 ``[4]``; NaN where there are no values."""
    if not flat.size:
        return np.full(4, np.nan)
    floats = flat.astype(np.float32) if flat.dtype.kind in "biu" or flat.dtype.itemsize < 4 else flat
    square = float(np.dot(floats, floats)) / flat.size
    return np.array(
        [flat.min(), flat.max(), flat.mean(dtype=np.float64), math.sqrt(square)], dtype=np.float64
    )
