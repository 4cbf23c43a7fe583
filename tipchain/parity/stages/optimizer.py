"""Step 5 of the guide, the optimizer: its updates, from equal gradients."""

from __future__ import annotations

from itertools import cycle, islice

import numpy as np

from tipchain.parity.frameworks.base import Array
from tipchain.parity.stages.bench import Bench, Recording
from tipchain.parity.stages.updating import build_subject, draw, open_variant, sample, scaled, variants

GRADIENTS = (1e-6, 1e-3, 1.0, 30.0, 0.1)
"""Sizes of the gradients, update by update. The first is so small that epsilon counts, the fourth so large that any usual
clipping acts, the last so small that what the optimizer carries over decides."""
RATES = (1.0, 0.5, 2.0, 1.0, 0.1)
"""Shares of the learning rate: formulas that have the rate inside the momentum differ from those that have it outside."""


def record(bench: Bench) -> Recording:
    """The parameters after each update, as ``NAME_i``; of a variant as ``VARIANT/NAME_i``.

    Before each update they are set back to zero, while the optimizer goes on: so an update is exact, none hides in the
    rounding of a parameter, and no decay moves anything, for that is the regularization stage's.
    """
    settings = bench.case.updates
    sizes = list(islice(zip(cycle(GRADIENTS), cycle(RATES), strict=False), settings.iterations))
    arrays: dict[str, Array] = {}
    for prefix, args in variants(bench).items():
        updates = open_variant(bench, build_subject(bench), prefix, args, settings.learning_rate)
        shapes = updates.shapes()
        zeros = {name: np.zeros(shape, dtype=np.float32) for name, shape in shapes.items()}
        for number, (size, rate) in enumerate(sizes):
            updates.assign(zeros)
            updates.set_rate(rate)
            updates.step(scaled(draw(shapes, settings.seed, number), size))
            arrays |= {f"{prefix}{name}_{number}": sample(value) for name, value in updates.values()}
    return Recording(arrays=arrays, details={"sizes": [size for size, _ in sizes]})
