"""Whether a layer has a bias, or scales what it normalizes: what is fixed at 0 or 1 is as good as absent."""

from __future__ import annotations

from typing import Any

import numpy as np

from tipchain.parity.preflight.table import UNTOLD, Property, Shape, prop


def is_trained(tensor: Any) -> bool:
    """Tell whether a parameter of either framework takes gradients."""
    if hasattr(tensor, "stop_gradient"):
        return not tensor.stop_gradient
    return bool(tensor.requires_grad)


def is_fixed(tensor: Any, value: float) -> bool:
    """Tell whether a parameter takes no gradients and is ``value`` everywhere."""
    if is_trained(tensor):
        return False
    return bool((np.asarray(tensor.detach().cpu().numpy()) == value).all())


def bias_property() -> Property:
    """Return the property of having a bias."""
    return prop("bias", "bias", "bias_attr", read=has_bias, write=write_presence)


def affine_properties(torch: str = "affine") -> tuple[Property, ...]:
    """Return the properties of a normalization that may scale and shift; ``torch`` is torch's argument."""
    return (
        prop("affine", torch, "weight_attr, bias_attr", read=has_weight, write=write_presence),
        prop("bias", "bias", "bias_attr", read=_has_own_bias, write=write_presence),
    )


def _has_own_bias(layer: Any, shape: Shape | None) -> Any:
    """Tell whether a normalization that scales also shifts."""
    return has_bias(layer, shape) if has_weight(layer, shape) else UNTOLD


def has_bias(layer: Any, _shape: Shape | None) -> bool:
    """Tell whether a layer adds a bias that is not fixed at 0."""
    bias = getattr(layer, "bias", None)
    return bias is not None and not is_fixed(bias, 0.0)


def has_weight(layer: Any, _shape: Shape | None) -> bool:
    """Tell whether a layer scales by a weight that is not fixed at 1."""
    weight = getattr(layer, "scale" if hasattr(layer, "scale") else "weight", None)
    return weight is not None and not is_fixed(weight, 1.0)


def write_presence(present: Any) -> Any:
    """Return what Paddle's ``*_attr`` must be: None makes a parameter, False makes none."""
    return None if (all(present) if isinstance(present, tuple) else present) else False
