"""How an optimizer's builder is called, and the factor of the rate that each parameter has in Paddle's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any


def make_optimizer(
    builder: Callable[..., Any], model: Any, learning_rate: Any, args: Mapping[str, Any]
) -> Any:
    """Return ``builder(model.parameters(), learning_rate, **args)``.

    A builder with a parameter called ``model`` gets the model too: rules for some of the parameters (no decay of biases,
    another rate for the head) need names or layer types.

    Args:
        builder: one side's ``build_optimizer``.
        model: the module or layer.
        learning_rate: a number, or Paddle's schedule.
        args: the case's ``optimizer:`` arguments.
    """
    asks = "model" in inspect.signature(builder).parameters
    return builder(model.parameters(), learning_rate, **args, **({"model": model} if asks else {}))


def rate_factor(optimizer: Any, parameter: Any) -> float:
    """Return the factor of the learning rate that a parameter has in a Paddle optimizer: its own, and AdamW's ``lr_ratio``."""
    own = float((getattr(parameter, "optimize_attr", None) or {}).get("learning_rate", 1.0))
    ratio = getattr(optimizer, "_lr_ratio", None)
    return own if ratio is None else own * float(ratio(parameter))
