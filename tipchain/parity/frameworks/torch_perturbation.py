"""Parameters of a torch model a little apart from what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def perturb(model: Any, ulps: float, number: int) -> None:
    """Move every element of every parameter by ``ulps`` units in the last place, up or down by a seeded coin.

    Args:
        model: the module, changed in place.
        ulps: the distance, in float32's units whatever the parameters are kept in; float64 knows parts of them.
        number: which of the perturbations; every odd one is the mirror image of the one before.
    """
    generator = np.random.default_rng(number // 2)
    distance = -ulps if number % 2 else ulps
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.is_floating_point():
                continue
            coins = generator.integers(0, 2, tuple(parameter.shape), dtype=np.int8)
            signs = torch.from_numpy(2 * np.asarray(coins) - 1).to(parameter.device, parameter.dtype)
            size = parameter.abs().float()
            unit = torch.nextafter(size, torch.full_like(size, torch.inf)) - size
            parameter.add_(distance * signs * unit.to(parameter.dtype))
