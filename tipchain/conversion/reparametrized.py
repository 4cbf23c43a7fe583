"""Weight and spectral normalization: what the two frameworks call and how they shape the tensors of each.

Sources: ``torch/nn/utils/parametrizations.py`` (names since torch 2.0) and ``weight_norm.py`` (older names, which
Paddle has too), ``paddle/nn/utils/weight_norm_hook.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_ORIGINALS = {"original0": "g", "original1": "v", "original": "orig", "0._u": "u", "0._v": "v"}
_PARAMETRIZED = re.compile(rf"parametrizations\.(\w+)\.({'|'.join(map(re.escape, _ORIGINALS))})")


def paddle_leaf(torch_leaf: str) -> str:
    """Return the older name, which Paddle has: ``weight_g`` for ``parametrizations.weight.original0``."""
    found = _PARAMETRIZED.fullmatch(torch_leaf)
    return torch_leaf if found is None else f"{found[1]}_{_ORIGINALS[found[2]]}"


def magnitude_dim(shape: Sequence[int], *, transposed: bool) -> int | None:
    """Return the ``dim`` of Paddle's weight_norm whose magnitude has a shape in torch's layout: -1 for one number for all.

    A weight with one row and column has every ``dim``: then it is the first.
    """
    kept = [axis for axis, size in enumerate(shape) if size > 1] or [0]
    if len(kept) > 1:
        return None
    return -1 if not shape else len(shape) - 1 - kept[0] if transposed else kept[0]


def magnitude_shape(layer: Any, leaf: str, size: int, *, transposed: bool) -> tuple[int, ...] | None:
    """Return torch's shape of a weight-normalized layer's magnitude ``weight_g``; None of any other tensor.

    torch keeps as many axes as the weight has, Paddle one, of ``size`` numbers.
    """
    from paddle.nn.utils.weight_norm_hook import WeightNorm

    for hook in layer._forward_pre_hooks.values():  # noqa: SLF001
        if isinstance(hook, WeightNorm) and leaf == f"{hook.name}_g":
            axes = len(getattr(layer, f"{hook.name}_v").shape)
            if hook.dim < 0:
                return ()
            kept = axes - 1 - hook.dim if transposed else hook.dim
            return tuple(size if axis == kept else 1 for axis in range(axes))
    return None
