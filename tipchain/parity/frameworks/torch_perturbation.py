"""Parameters of a torch model a little apart from what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tipchain.parity.compare import PIECE


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
            flat = parameter.detach().reshape(-1)
            for piece in flat.split(PIECE):  # what fits into a core's cache takes a twentieth of the time
                coins = torch.from_numpy(generator.integers(0, 2, len(piece), dtype=np.int8))
                steps = coins.to(piece.device, piece.dtype).mul_(2 * distance).sub_(distance)
                size = piece.abs().float()
                unit = torch.nextafter(size, torch.full_like(size, torch.inf)).sub_(size)
                piece.add_(steps.mul_(unit))
            if flat.data_ptr() != parameter.data_ptr():  # a layout that has no flat view
                parameter.copy_(flat.view_as(parameter))
