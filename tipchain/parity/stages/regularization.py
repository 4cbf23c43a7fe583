"""Step 7 of the guide, regularization: what weight decay adds to the updates."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tipchain.parity.frameworks.base import Array
from tipchain.parity.frameworks.updates import Updates
from tipchain.parity.stages.bench import Bench, Recording
from tipchain.parity.stages.updating import build_subject, draw, open_variant, sample, scaled, variants

GRADIENTS = (0.0, 1e-4, 1e-2, 1.0)
"""Sizes of the gradients. Without any, decay alone moves the parameters; optimizers that divide by the gradient's size
show how large a decay is only beside a gradient of about its own size, and decay before clipping only beside a large one."""
UPDATES = 2
"""Updates with each size: the second shows whether decay goes through what the optimizer carries over."""


def record(bench: Bench) -> Recording:
    """How far the parameters move, from values of size 1 and, with the same gradients, from zero, where nothing decays.

    The dump has ``start/NAME`` and ``gradient/NAME`` (of size 1), then ``moved/NAME`` and ``free/NAME``: shape
    ``[sizes, updates, elements]``, float64; those of a variant as ``moved/VARIANT/NAME``. Before each update the
    parameters are set back to where they started.
    """
    settings = bench.case.updates
    arrays: dict[str, Array] = {}
    for prefix, args in variants(bench).items():
        model = build_subject(bench)
        shapes = open_variant(bench, model, prefix, args, settings.decay_learning_rate).shapes()
        start = draw(shapes, settings.seed, UPDATES)
        gradients = [draw(shapes, settings.seed, number) for number in range(UPDATES)]
        for name in shapes:
            arrays[f"start/{name}"] = sample(start[name]).reshape(-1)
            arrays[f"gradient/{name}"] = np.stack([sample(one[name]).reshape(-1) for one in gradients])
        for kind, values in (("moved", start), ("free", scaled(start, 0.0))):
            rows: dict[str, list[Array]] = {name: [] for name in shapes}
            for size in GRADIENTS:
                updates = open_variant(bench, model, prefix, args, settings.decay_learning_rate)
                for name, moved in _movements(updates, values, gradients, size).items():
                    rows[name].append(moved)
            arrays |= {f"{kind}/{prefix}{name}": np.stack(row) for name, row in rows.items()}
    return Recording(
        arrays=arrays, details={"learning_rate": settings.decay_learning_rate, "sizes": GRADIENTS}
    )


def _movements(
    updates: Updates, start: Mapping[str, Array], gradients: list[dict[str, Array]], size: float
) -> dict[str, Array]:
    """Return how far each parameter moves from ``start`` in each update: shape ``[updates, elements]``."""
    moved: dict[str, list[Array]] = {name: [] for name in start}
    for one in gradients:
        updates.assign(start)
        updates.step(scaled(one, size))
        for name, value in updates.values():
            # The difference of two float32 is exact in float64.
            difference = sample(value).astype(np.float64) - sample(start[name])
            moved[name].append(difference.reshape(-1))
    return {name: np.stack(rows) for name, rows in moved.items()}
