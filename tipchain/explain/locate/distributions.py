"""Whether two models whose random numbers cannot be made the same give outputs of one distribution."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

import numpy as np

from tipchain.core.progress import Pace
from tipchain.explain.locate.other_runs import call_seeded
from tipchain.explain.locate.runs import ModelInputs, few_of
from tipchain.explain.locate.trace import take_out
from tipchain.framework_types import Array, Model
from tipchain.frameworks.live_models import Sides
from tipchain.frameworks.randomness import Draws
from tipchain.numbers.tolerance import ROUGH
from tipchain.numbers.two_samples import compare_distribution

RUNS = 256
"""Runs of each model: two distributions whose cumulative functions are a quarter apart somewhere are told from each other."""
FEWEST = 32
"""Runs without which nothing is told."""
SECONDS = 10.0
"""Time that the runs may take."""
CHANCE = 1e-6
"""Probability of equal distributions to be told apart. A choice."""
PROJECTIONS = 4
"""Directions in which outputs are looked at, beside their mean and their size."""


def distributed_otherwise(
    sides: Sides, models: Sequence[Model], inputs: ModelInputs, seed: int, pace: Pace, *, training: bool
) -> str:
    """Return how the outputs of many runs show two distributions; empty where they do not show it, or too few runs were made.

    Both models draw numbers of their own in each run. The outputs' means, sizes and projections are compared by the
    two-sample test of Kolmogorov and Smirnov.

    Args:
        sides: torch's and Paddle's.
        models: both.
        inputs: what they are called with; few samples do.
        seed: of the numbers.
        pace: how long everything may take.
        training: the mode.
    """
    pace.tell("comparing distributions of random outputs")
    copies = [side.copied(model, double=False, training=training) for side, model in zip(sides, models, strict=True)]
    given, ends = few_of(inputs) or inputs, monotonic() + SECONDS
    made: tuple[list[list[Array]], list[list[Array]]] = ([], [])
    for run in range(RUNS):
        if pace.over or monotonic() > ends:
            break
        for number, (side, model) in enumerate(zip(sides, copies, strict=True)):
            draws = Draws(seed, number, run)
            try:
                output = call_seeded(side, model, given, draws, seed=seed + 2 * run + number)
            except Exception:  # noqa: BLE001  (a model may refuse fewer samples)
                return ""
            made[number].append([side.array(one) for one in take_out(output, side.is_tensor)[1]])
    ours, theirs = made
    shapes = {tuple((one.shape, one.dtype.kind) for one in run) for run in (*ours, *theirs)}
    if len(theirs) < FEWEST or len(shapes) > 1:  # how much comes out may be random, too
        return ""
    for place in range(len(ours[0])):
        both = [np.stack([run[place] for run in runs]).reshape(len(runs), -1) for runs in made]
        if not all(one.size and one.dtype.kind != "c" and np.isfinite(one).all() for one in both):
            continue
        both = [one.astype(np.float64) for one in both]
        middle = both[0].mean(axis=0)
        directions = np.random.default_rng([seed, 5]).standard_normal((middle.size, PROJECTIONS)) / middle.size**0.5
        found = [("the mean", [one.mean(axis=1) for one in both])]
        found += [("the spread", [np.sqrt(((one - middle) ** 2).mean(axis=1)) for one in both])]
        found += [("a projection", [(one - middle) @ axis for one in both]) for axis in directions.T]
        near = ROUGH * float(np.sqrt((both[0] ** 2).mean()))
        for what, (one, other) in found:
            # Where a mask drops all, both sides give one number, up to rounding.
            _, chance = compare_distribution(*(np.round(each / near) if near else each for each in (one, other)))
            if chance <= CHANCE:
                means = f"{one.mean():.4g} ± {one.std():.2g}, the port's {other.mean():.4g} ± {other.std():.2g}"
                return (
                    f"in {len(theirs)} runs {what} of output {place} is distributed otherwise: the reference's {means}"
                )
    return ""
