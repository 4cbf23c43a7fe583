"""What a kind of layer is made with, and how both frameworks write it: the terms of the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any, Literal, NamedTuple

import numpy as np

from tipchain.parity.rounding import SAME_SINGLE

Framework = Literal["torch", "paddle"]
Shape = tuple[int, ...]


class Untold:
    """A setting that does not matter in this layer, or cannot be told."""


UNTOLD = Untold()


class Pair(NamedTuple):
    """Two layers that belong together.

    Attributes:
        reference_path: where torch's stands in its model.
        reference: the ``torch.nn.Module``.
        port_path: where Paddle's stands.
        port: the ``paddle.nn.Layer``.
        shapes: of the first tensor that each was called with, where that is known.
    """

    reference_path: str
    reference: Any
    port_path: str
    port: Any
    shapes: tuple[Shape, Shape] | None = None


Reader = Callable[[Any, Shape | None], Any]
"""Gives a layer's setting as torch means it, for an input of a shape (None: not known), or `UNTOLD`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One setting of a kind of layer.

    Attributes:
        code: the slug of a finding.
        arguments: what it is called in torch, and in Paddle.
        attributes: what the layers keep it as; the first that a layer has.
        readers: of both.
        write: gives Paddle's spelling of a value as torch means it.
        visible: it shows in the outputs; else only in training, or in what is kept for later.
        sized: it can be compared only where both were given tensors of the same sizes.
        axis: it is an axis, which can be compared only where both were given the same layout.
        slack: absolute difference of numbers that does not count.
        hint: what else there is to do where the arguments look alike.
        lacking: what to do where Paddle has no such argument.
        measured: whether it matters depends on the inputs, so that it is told and fails nothing by itself.
    """

    code: str
    arguments: tuple[str, str]
    attributes: tuple[tuple[str, ...], tuple[str, ...]]
    readers: tuple[Reader, Reader]
    write: Callable[[Any], Any]
    visible: bool = True
    sized: bool = False
    axis: bool = False
    slack: float = 0.0
    hint: str = ""
    lacking: str = ""
    measured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Layers of one function.

    Attributes:
        name: torch's name of it.
        classes: names of the classes in ``torch.nn`` and in ``paddle.nn``.
        properties: what they are made with.
    """

    name: str
    classes: tuple[tuple[str, ...], tuple[str, ...]]
    properties: tuple[Property, ...] = ()


def kind(
    name: str, paddle: str | Sequence[str] = "", *properties: Property, torch: Sequence[str] = ()
) -> Kind:
    """Return a kind; the classes are called as it is where no others are given."""
    theirs = (paddle,) if isinstance(paddle, str) else tuple(paddle)
    return Kind(
        name=name,
        classes=(tuple(torch) or (name,), tuple(one or name for one in theirs)),
        properties=properties,
    )


def prop(
    code: str, torch: str, paddle: str = "", *, kept: tuple[str, str] | None = None,
    read: Reader | None = None, read_paddle: Reader | None = None, write: Callable[[Any], Any] | None = None,
    visible: bool = True, sized: bool = False, axis: bool = False, slack: float = 0.0,
    hint: str = "", lacking: str = "",
    measured: bool = False,
) -> Property:  # fmt: skip
    """Return a property that is kept as it is given, under its own name or one with an underscore.

    Args:
        code: the slug.
        torch: torch's argument.
        paddle: Paddle's; as torch's if empty.
        kept: the attributes, where they are called otherwise.
        read: reads torch's layer, and Paddle's if ``read_paddle`` is None.
        read_paddle: reads Paddle's.
        write: gives Paddle's spelling.
        visible: see `Property`.
        sized: see `Property`.
        axis: see `Property`.
        slack: see `Property`.
        hint: see `Property`.
        lacking: see `Property`.
        measured: see `Property`.
    """
    arguments = torch, paddle or torch
    attributes = tuple(
        ((kept[side],) if kept and kept[side] else ()) + (name, f"_{name}")
        for side, name in enumerate(arguments)
    )
    readers = [read or _attribute(attributes[0]), read_paddle or read or _attribute(attributes[1])]
    return Property(
        code=code, arguments=arguments, attributes=(attributes[0], attributes[1]), readers=(readers[0], readers[1]),
        write=write or (lambda value: value), visible=visible, sized=sized, axis=axis,
        slack=slack, hint=hint, lacking=lacking, measured=measured,
    )  # fmt: skip


def held(layer: Any, *names: str) -> Any:
    """Return the first of these attributes that a layer has.

    Raises:
        AttributeError: it has none of them.
    """
    for name in names:
        if hasattr(layer, name):
            return getattr(layer, name)
    raise AttributeError(f"{type(layer).__name__} has none of {', '.join(names)}")


def _attribute(names: Sequence[str]) -> Reader:
    return lambda layer, _shape: plain(held(layer, *names))


def plain(value: Any) -> Any:
    """Return a setting as Python's own numbers, strings and tuples of them."""
    if isinstance(value, list | tuple):
        return tuple(plain(one) for one in value)
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(type(value), "numpy"):  # a tensor, of either framework
        return plain(np.asarray(value.detach().cpu().numpy()).tolist())
    return value


def same(one: Any, other: Any, slack: float = 0.0) -> bool:
    """Tell whether two settings are the same, numbers up to float32's precision."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(same(a, b, slack) for a, b in zip(one, other, strict=True))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return isclose(one, other, rel_tol=SAME_SINGLE, abs_tol=slack)
    return bool(one == other)


def tidy(value: Any) -> Any:
    """Return a number without the noise of a subtraction: 0.9 for ``1 - 0.1``."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, tuple):
        return tuple(tidy(one) for one in value)
    return value


def kinds_by_class(kinds: Sequence[Kind], side: Literal[0, 1]) -> Mapping[str, Kind]:
    """Return the kinds by the names of one framework's classes."""
    return {name: one for one in kinds for name in one.classes[side]}
