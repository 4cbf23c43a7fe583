"""What Paddle draws at random, taken from a `Draws`: its functions find their operators in ``paddle._C_ops`` when they are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tipchain.parity.frameworks.randomness import Draws

OWN = ("multinomial", "poisson", "binomial", "standard_gamma", "dirichlet", "random_", "dropout_nd")
"""Operators that draw and are left to Paddle."""
ATTENTION = {"flash_attn": 5, "flash_attn_unpadded": 9, "memory_efficient_attention": 8}
"""Kernels of GPUs that drop inside, by the place of the probability among their arguments."""


@contextmanager
def drawing(paddle: Any, draws: Draws) -> Iterator[None]:
    """Let Paddle's operators take their random numbers from ``draws`` for a while."""
    operators = paddle._C_ops  # noqa: SLF001
    made = _Operators(paddle, draws)
    originals = {name: getattr(operators, name) for name in made.names if hasattr(operators, name)}
    for name, original in originals.items():
        setattr(operators, name, made.replacement(name, original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(operators, name, original)


@dataclass(frozen=True, slots=True)
class _Operators:
    """Operators with the names and arguments of Paddle's."""

    paddle: Any
    draws: Draws

    @property
    def names(self) -> list[str]:
        """Names of the operators that are replaced."""
        return [*OWN, *ATTENTION, *_REPLACED]

    def replacement(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what stands in place of an operator."""

        def replacement(*args: Any, **kwargs: Any) -> Any:
            made = _REPLACED.get(name)
            if made is not None:
                return made(self, original, *args, **kwargs)
            if name in OWN or (len(args) > ATTENTION[name] and args[ATTENTION[name]]):
                self.draws.own()
            return original(*args, **kwargs)

        return replacement

    def tensor(self, numbers: Any, dtype: Any) -> Any:
        """Return numbers as a tensor."""
        return self.paddle.to_tensor(np.ascontiguousarray(numbers)).astype(dtype)

    def filled(self, out: Any, numbers: Any, dtype: Any) -> Any:
        """Return numbers as a tensor: ``out``, if there is one."""
        made = self.tensor(numbers, dtype)
        return made if out is None else self.paddle.assign(made, out)


def _dropout(
    to: _Operators, original: Any, x: Any, seeds: Any, rate: Any, is_test: Any, mode: str, *more: Any
) -> Any:
    rate = float(rate)
    if is_test or rate == 0:
        return original(x, seeds, rate, is_test, mode, *more)
    if rate == 1:  # as torch, which draws nothing then
        return x * 0
    mask = to.tensor(to.draws.kept(x.shape, rate), x.dtype)
    return x * mask if mode.startswith("down") else x * (mask * (1 / (1 - rate)))


def _dropout_in_place(
    to: _Operators, original: Any, x: Any, seeds: Any, rate: Any, is_test: Any, mode: str, *more: Any
) -> Any:
    rate = float(rate)
    if is_test or rate == 0:
        return original(x, seeds, rate, is_test, mode, *more)
    mask = to.tensor(to.draws.kept(x.shape, rate), x.dtype) if rate < 1 else 0 * x.detach()
    return x.multiply_(mask if mode.startswith("down") or rate == 1 else mask * (1 / (1 - rate)))


def _dropout_and_add(
    to: _Operators, _original: Any, x: Any, y: Any, seeds: Any, rate: Any, is_test: Any, mode: str, *more: Any
) -> Any:
    functional = to.paddle.nn.functional
    del seeds, more
    return functional.dropout(x, float(rate), training=not is_test, mode=mode) + y, None


def _bernoulli(to: _Operators, _original: Any, x: Any, **_: Any) -> Any:
    odds = x.detach().numpy().astype(np.float64)
    single = odds.size and bool((odds == odds.flat[0]).all())
    if single:
        return to.tensor(to.draws.kept(x.shape, 1.0 - float(odds.flat[0])), x.dtype)
    return to.tensor(to.draws.uniform(x.shape) >= 1.0 - odds, x.dtype)


def _uniform(
    to: _Operators, _original: Any, shape: Any, dtype: Any, low: float, high: float, *_: Any, out: Any = None
) -> Any:
    return to.filled(out, low + (high - low) * to.draws.uniform(shape).astype(np.float64), dtype)


def _uniform_in_place(to: _Operators, _original: Any, x: Any, low: float, high: float, *_: Any) -> Any:
    return to.filled(x, low + (high - low) * to.draws.uniform(x.shape).astype(np.float64), x.dtype)


def _normal(
    to: _Operators, _original: Any, shape: Any, mean: float, std: float, seed: int, dtype: Any, *_: Any, out: Any = None
) -> Any:  # fmt: skip
    del seed
    return to.filled(out, mean + std * to.draws.normal(shape).astype(np.float64), dtype)


def _normal_in_place(to: _Operators, _original: Any, x: Any, mean: float, std: float, *_: Any) -> Any:
    return to.filled(x, mean + std * to.draws.normal(x.shape).astype(np.float64), x.dtype)


def _exponential(to: _Operators, _original: Any, x: Any, rate: float = 1.0) -> Any:
    return to.filled(x, -np.log(to.draws.uniform(x.shape).astype(np.float64)) / rate, x.dtype)


def _integers(
    to: _Operators, _original: Any, low: int, high: int, shape: Any, dtype: Any, *_: Any, **__: Any
) -> Any:
    return to.tensor(
        low + np.floor(to.draws.uniform(shape).astype(np.float64) * (high - low)), dtype or "int64"
    )


def _order(to: _Operators, _original: Any, n: int, dtype: Any, *_: Any, out: Any = None) -> Any:
    return to.filled(out, np.argsort(to.draws.uniform((n,)), kind="stable"), dtype)


def _leaky(to: _Operators, original: Any, x: Any, low: float, high: float, is_test: Any, *more: Any) -> Any:
    if not is_test:
        to.draws.own(x.shape)
    return original(x, low, high, is_test, *more)


_REPLACED: dict[str, Callable[..., Any]] = {
    "dropout": _dropout,
    "dropout_": _dropout_in_place,
    "fused_dropout_add": _dropout_and_add,
    "bernoulli": _bernoulli,
    "uniform": _uniform,
    "uniform_inplace_": _uniform_in_place,
    "gaussian": _normal,
    "gaussian_inplace_": _normal_in_place,
    "exponential_": _exponential,
    "randint": _integers,
    "randperm": _order,
    "rrelu": _leaky,
}
"""Operators that are replaced, and by what."""
