"""Dropout that both frameworks do alike: not at all, or with masks from NumPy's generator.

The frameworks draw different masks from equal seeds. Inside `replaced` their functions for dropout, which their layers
call too, take masks from a common sequence, so that a wrong probability, a missing layer or another kind of dropout shows
in the losses. What draws random numbers otherwise (attention kernels and recurrent layers with a dropout of their own)
is not reached.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

PLAIN = "dropout"
BY_CHANNEL = ("dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout")
"""Functions that drop whole channels."""
SELU = ("alpha_dropout", "feature_alpha_dropout")
SATURATION = -1.7580993408473766
"""What SELU tends to for small values, -lambda * alpha (Klambauer et al. 2017, arXiv 1706.02515)."""


class Masks:
    """A sequence of masks: the n-th is the same whoever asks, given the seed, the shape and the probability.

    Args:
        seed: the seed, and numbers that tell one sequence of it from another.
        start: the number of the first mask.
    """

    def __init__(self, *seed: int, start: int = 0) -> None:
        self.seed, self.count = seed, start

    def next(self, shape: Sequence[int], probability: float) -> Array:
        """Return float32 ones where a value is kept, zeros where it is dropped."""
        generator = np.random.default_rng([*self.seed, self.count])
        self.count += 1
        drawn = generator.random(tuple(shape), dtype=np.float32)
        return np.asarray(drawn >= probability, dtype=np.float32)


@contextmanager
def replaced(functional: Any, tensor: Callable[[Array], Any], masks: Masks | None) -> Iterator[None]:
    """Replace a framework's dropout functions for a while.

    Args:
        functional: the module that holds them, ``torch.nn.functional`` or ``paddle.nn.functional``.
        tensor: makes a tensor of an array.
        masks: where masks come from; None switches dropout off.
    """
    names = [name for name in dict.fromkeys((PLAIN, *BY_CHANNEL, *SELU)) if hasattr(functional, name)]
    originals = {name: getattr(functional, name) for name in names}
    for name, original in originals.items():
        setattr(functional, name, _replacement(name, original, tensor, masks))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(functional, name, original)


@functools.cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def _replacement(
    name: str, original: Callable[..., Any], tensor: Callable[[Array], Any], masks: Masks | None
) -> Callable[..., Any]:
    signature = _signature(original)
    first = next(iter(signature.parameters))

    @functools.wraps(original)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        if not args and first not in kwargs:  # paddle also takes torch's name of the first argument
            args = (kwargs.pop("x" if "x" in kwargs else "input"),)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        probability = float(given["p"])
        if masks is None:
            given["training"] = False
        if masks is None or not given["training"] or probability == 0:
            return original(*bound.args, **bound.kwargs)
        values = given[first]
        mask = masks.next(_mask_shape(name, list(values.shape), given), probability)
        kind = str(values.dtype).rpartition(".")[2]
        mask = tensor(mask.astype(kind if kind in ("float16", "float64") else np.float32))
        if name in SELU:
            return _selu_dropped(values, mask, probability)
        scaled = probability < 1 and given.get("mode") != "downscale_in_infer"
        return values * (mask * (1 / (1 - probability)) if scaled else mask)

    return replacement


def _mask_shape(name: str, shape: list[int], given: Mapping[str, Any]) -> list[int]:
    """Return the shape of the mask: 1 along the axes whose values are dropped together."""
    axis = given.get("axis")
    if name in BY_CHANNEL and str(given.get("data_format", "")).endswith("C"):
        kept = [0, len(shape) - 1]
    elif name in BY_CHANNEL:
        single = {"dropout1d": 2, "dropout3d": 4}.get(name) == len(
            shape
        )  # one sample without the batch's axis
        kept = [0] if single else [0, 1]
    elif axis is None:
        return shape
    else:
        kept = [axis] if isinstance(axis, int) else list(axis)
    return [size if number in kept else 1 for number, size in enumerate(shape)]


def _selu_dropped(values: Any, mask: Any, probability: float) -> Any:
    """Return ``a (x m + s (1 - m)) + b``, which keeps mean and variance (Klambauer et al. 2017, section 3)."""
    kept = 1 - probability
    if kept == 0:
        return values * 0
    factor = (kept + SATURATION**2 * kept * probability) ** -0.5
    return factor * (values * mask + SATURATION * (1 - mask)) - factor * probability * SATURATION
