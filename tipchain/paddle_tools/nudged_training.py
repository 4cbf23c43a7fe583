"""Run a training as it stands, but for parameters that start a few units in the last place away.

    python nudged_training.py NUMBER ULPS PROGRAM [ARGUMENT ...]

Just before the first optimizer step every element of every parameter moves by ULPS units in the last place, up or down by
a coin that NUMBER seeds; of two numbers ``2n`` and ``2n + 1`` each coin falls the other way. How far the losses of such
trainings drift apart is how far rounding alone takes them. The suite's interpreter runs this file, which needs nothing
but numpy and paddle.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np


def nudged(values: np.ndarray, ulps: int, coins: np.random.Generator, sign: int) -> np.ndarray:
    """Return ``values`` with each element ``ulps`` units in the last place away."""
    distance = sign * ulps * coins.choice([-1, 1], size=values.shape)
    return np.asarray(values + distance * np.spacing(np.abs(values)), dtype=values.dtype)


def nudge(parameters: Iterable[Any], number: int, ulps: int) -> None:
    """Move the float32 parameters of an optimizer."""
    coins, sign = np.random.default_rng(number // 2), -1 if number % 2 else 1
    for one in parameters:
        members = one["params"] if isinstance(one, dict) else [one]
        for parameter in members:
            values = parameter.numpy()
            if values.dtype == np.float32:
                parameter.set_value(nudged(values, ulps, coins, sign))


def optimizers(kind: type[object]) -> Iterator[type[Any]]:
    """Yield a class and all its subclasses."""
    yield kind
    for one in kind.__subclasses__():
        yield from optimizers(one)


def main() -> None:
    """Run the program of the command line."""
    number, ulps, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    # Have each of Paddle's optimizers move its parameters before its first step.
    import paddle

    done: set[int] = set()

    def wrapped(step: Callable[..., object]) -> Callable[..., object]:
        def first_nudged(own: paddle.optimizer.Optimizer, *args: object, **named: object) -> object:
            if id(own) not in done:
                done.add(id(own))
                nudge(list(own._parameter_list), number, ulps)  # noqa: SLF001  (there is no public name)
            return step(own, *args, **named)

        return first_nudged

    for kind in set(optimizers(paddle.optimizer.Optimizer)):
        for name in ("step", "minimize"):
            if name in vars(kind):
                setattr(kind, name, wrapped(vars(kind)[name]))
    sys.argv = program
    sys.path[0] = str(Path(program[0]).absolute().parent)
    runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()
