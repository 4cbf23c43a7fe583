"""Inputs and losses of public pairs: small, the same every time."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from port_recipes import Losses

WORDS = 99
"""Tokens in the vocabulary of a tiny language model."""


def first(output: Any) -> Any:
    """Return the first tensor of what a model returned: itself, or the first of a tuple, a dict, an output object."""
    if isinstance(output, Mapping):
        return first(next(iter(output.values())))
    if isinstance(output, list | tuple):
        return first(output[0])
    return output


def replace_forward(layer: Any, forward: Callable[..., Any]) -> None:
    """Give one layer another forward, a function of the layer and its inputs; copies of the layer have it as well."""
    layer.forward = types.MethodType(forward, layer)


def images(size: int, count: int = 2, classes: int = 10) -> Callable[[], dict[str, Any]]:
    """Return a builder of square images, and a class for each."""

    def build() -> dict[str, Any]:
        import numpy as np

        rng = np.random.default_rng(0)
        return {
            "args": rng.standard_normal((count, 3, size, size)).astype(np.float32),
            "labels": rng.integers(0, classes, count),
        }

    return build


def words(*names: str, length: int = 12, labels: tuple[int, ...] = (2, 12, 32)) -> Callable[[], dict[str, Any]]:
    """Return a builder of tokens by argument; ``attention_mask`` hides the end of the second sample.

    Labels are numbers of the given shape, or tokens where the shape is ``()``.
    """

    def build() -> dict[str, Any]:
        import numpy as np

        rng = np.random.default_rng(0)
        fed: dict[str, Any] = {}
        for name in names:
            if name.endswith("attention_mask"):
                fed[name] = np.ones((2, length), np.int64)
                fed[name][1, -4:] = 0
            elif name == "token_type_ids":
                fed[name] = np.repeat([[0] * (length // 2) + [1] * (length - length // 2)], 2, 0)
            elif name == "bbox":
                corners = np.sort(rng.integers(0, 100, (2, length, 2, 2)), axis=2)
                fed[name] = corners.reshape(2, length, 4)
            elif name == "pixel_values":
                fed[name] = rng.standard_normal((2, 3, 32, 32)).astype(np.float32)
            else:
                fed[name] = rng.integers(5, WORDS, (2, length))
        fed["labels"] = (
            rng.standard_normal(labels).astype(np.float32) if labels else rng.integers(5, WORDS, (2, length))
        )
        return fed

    return build


def cross_entropies() -> Losses:
    """Return the cross entropies of a classifier, or of tokens."""
    import paddle
    import torch

    def torch_loss(output: Any, labels: Any) -> Any:
        logits = first(output)
        return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))

    def paddle_loss(output: Any, labels: Any) -> Any:
        logits = first(output)
        return paddle.nn.functional.cross_entropy(logits.reshape([-1, logits.shape[-1]]), labels.reshape([-1]))

    return torch_loss, paddle_loss


def squares() -> Losses:
    """Return the mean squared error of the first output."""
    import paddle
    import torch

    return (
        lambda output, labels: torch.nn.functional.mse_loss(first(output), labels),
        lambda output, labels: paddle.nn.functional.mse_loss(first(output), labels),
    )
