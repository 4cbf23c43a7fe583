"""What torch draws at random, taken from a `Draws`: below its functions, where dropout and attention have become operators."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from tipchain.parity.frameworks.randomness import Draws

OWN = frozenset(
    f"aten::{name}" for name in (
        "multinomial", "poisson", "binomial", "cauchy_", "geometric_", "log_normal_", "_standard_gamma", "_sample_dirichlet",
        "rrelu_with_noise", "rrelu_with_noise_",
    )
)  # fmt: skip
"""Operators that draw and are left to torch."""
ATTENTION = {
    "aten::_scaled_dot_product_flash_attention": 3,
    "aten::_scaled_dot_product_efficient_attention": 5,
    "aten::_scaled_dot_product_cudnn_attention": 5,
}
"""Kernels that drop inside, by the place of the probability among their arguments."""


@contextmanager
def drawing(torch: Any, draws: Draws) -> Iterator[None]:
    """Let torch's operators take their random numbers from ``draws`` for a while."""
    with _mode(torch)(draws):
        yield


@cache
def dispatch_mode() -> Any:
    """Return the base class of modes that are given each of torch's operators."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class DispatchMode(TorchDispatchMode):  # type: ignore[misc]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """Tell torch.compile's machinery to leave this alone only where it is loaded: importing it takes over a second."""
            return "torch._dynamo" in sys.modules

    return DispatchMode


@cache
def _mode(torch: Any) -> Any:
    class Drawing(dispatch_mode()):  # type: ignore[misc]
        def __init__(self, draws: Draws) -> None:
            super().__init__()
            self.draws = draws

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name, kwargs = func._schema.name, kwargs or {}  # noqa: SLF001
            if name == "aten::native_dropout":
                return _dropout(torch, func, self.draws, *args)
            if name in OWN or (name in ATTENTION and _nth(args, kwargs, ATTENTION[name], "dropout_p", 0.0)):
                self.draws.own()
            result = func(*args, **kwargs)
            fill = FILLING.get(name)
            if fill is not None:
                numbers = fill(self.draws, result, args, kwargs)
                if not torch.is_tensor(numbers):
                    numbers = torch.from_numpy(np.ascontiguousarray(numbers)).to(result.device)
                result.copy_(numbers.reshape(result.shape))
            return result

    return Drawing


def _dropout(torch: Any, func: Any, draws: Draws, values: Any, rate: float, train: Any) -> Any:
    """Return what `native_dropout`, which a GPU has, does: the result and the mask."""
    if train is False or not 0 < rate < 1:
        return func(values, rate, train)
    mask = torch.from_numpy(draws.kept(values.shape, rate)).to(values.device, torch.bool)
    return values * mask / (1 - rate), mask


def _nth(args: Any, kwargs: Any, place: int, name: str, default: Any) -> Any:
    return args[place] if len(args) > place else kwargs.get(name, default)


def _bernoulli(draws: Draws, result: Any, args: Any, kwargs: Any) -> Any:
    """Return ones with a probability: given, or one for each element."""
    given = _nth(args, kwargs, 1, "p", None)
    if given is None:  # ``torch.bernoulli(probabilities)``
        given = args[0]
    if isinstance(given, float | int):
        return draws.kept(result.shape, 1.0 - given)
    odds = given.detach().cpu().double().numpy()
    return draws.uniform(result.shape) >= 1.0 - odds


def _bernoulli_in_place(draws: Draws, result: Any, args: Any, kwargs: Any) -> Any:
    given = _nth(args, kwargs, 1, "p", 0.5)
    return _bernoulli(draws, result, (None, given), {})


def _uniform(draws: Draws, result: Any, args: Any, kwargs: Any) -> Any:
    low, high = _nth(args, kwargs, 1, "from", 0.0), _nth(args, kwargs, 2, "to", 1.0)
    return low + (high - low) * draws.uniform(result.shape).astype(np.float64)


def _between(draws: Draws, result: Any, _args: Any, _kwargs: Any) -> Any:
    return draws.uniform(result.shape)


def _standard(draws: Draws, result: Any, _args: Any, _kwargs: Any) -> Any:
    return draws.normal(result.shape)


def _normal_in_place(draws: Draws, result: Any, args: Any, kwargs: Any) -> Any:
    mean, std = _nth(args, kwargs, 1, "mean", 0.0), _nth(args, kwargs, 2, "std", 1.0)
    return mean + std * draws.normal(result.shape).astype(np.float64)


def _normal(draws: Draws, result: Any, args: Any, kwargs: Any) -> Any:
    mean, std = _nth(args, kwargs, 0, "mean", 0.0), _nth(args, kwargs, 1, "std", 1.0)
    made = result.new_tensor(draws.normal(result.shape))
    return mean + std * made


def _exponential(draws: Draws, result: Any, args: Any, kwargs: Any) -> Any:
    return -np.log(draws.uniform(result.shape).astype(np.float64)) / _nth(args, kwargs, 1, "lambd", 1.0)


def _integers(draws: Draws, result: Any, args: Any, _kwargs: Any) -> Any:
    """Return whole numbers: below the one that is given before the shape, or between two."""
    given = [one for one in args if isinstance(one, int)]
    low, high = (0, given[0]) if len(given) == 1 else given[:2]
    return low + np.floor(draws.uniform(result.shape).astype(np.float64) * (high - low))


def _order(draws: Draws, result: Any, _args: Any, _kwargs: Any) -> Any:
    return np.argsort(draws.uniform(result.shape), kind="stable")


FILLING: dict[str, Callable[[Draws, Any, Any, Any], Any]] = {
    "aten::bernoulli": _bernoulli,
    "aten::bernoulli_": _bernoulli_in_place,
    "aten::rand": _between,
    "aten::rand_like": _between,
    "aten::uniform_": _uniform,
    "aten::uniform": _uniform,
    "aten::randn": _standard,
    "aten::randn_like": _standard,
    "aten::normal_": _normal_in_place,
    "aten::normal": _normal,
    "aten::exponential_": _exponential,
    "aten::randint": _integers,
    "aten::randperm": _order,
}
"""Operators whose results are filled anew, and with what."""
