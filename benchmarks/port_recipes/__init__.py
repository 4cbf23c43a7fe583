"""Public models that exist twice, in PyTorch and in PaddlePaddle: how each pair is imported and configured.

No code of theirs is here: the packages are installed into an environment of their own (`real_ports.py --make-env`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Losses = tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A real difference between a public port and its reference, and how to take it away in memory.

    Attributes:
        message: what is different, in one line.
        remove: given the reference and the port, changes them so that the difference is gone.
        shows: the modes in which it can show: ``"eval"``, ``"training"``.
    """

    message: str
    remove: Callable[[Any, Any], None]
    shows: tuple[str, ...] = ("eval", "training")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A public model in both frameworks.

    Attributes:
        name: what the table calls it.
        packages: the reference's and the port's package.
        build: returns the reference and the port, untrained.
        inputs: returns arrays for `tipchain.align`, ``labels`` among them.
        losses: torch's and Paddle's ``(output, labels) -> scalar``.
        truth: given the built reference and port, torch's name by Paddle's for every tensor that the port's own package
            says how to convert; None where it does not say.
        hints: at most five lines for ``names=``, used only where the weights are refused without.
        ignore: likewise for ``ignore=``; both together have five lines at most.
        differences: what is really different.
        raises: the modes in which the port itself raises, so that an ERROR is right.
        corresponds: whether the port has the reference's parameters at all; if not, refusing the weights is right.
    """

    name: str
    packages: tuple[str, str]
    build: Callable[[], tuple[Any, Any]]
    inputs: Callable[[], dict[str, Any]]
    losses: Callable[[], Losses]
    truth: Callable[[Any, Any], Mapping[str, str]] | None = None
    hints: Mapping[str, str] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    raises: tuple[str, ...] = ()
    corresponds: bool = True


def pairs(which: str) -> dict[str, Pair]:
    """Return the pairs of a list, ``work`` or ``check``, by name.

    Raises:
        KeyError: there is no such list.
    """
    from port_recipes import paddleclas, paddlenlp, paddlevision

    return {
        one.name: one
        for module in (paddlenlp, paddlevision, paddleclas)
        for one in {"work": module.WORK, "check": module.CHECK}[which]
    }


def get_pair(name: str) -> Pair:
    """Return one pair of either list.

    Raises:
        KeyError: there is none of that name.
    """
    return {**pairs("check"), **pairs("work")}[name]
