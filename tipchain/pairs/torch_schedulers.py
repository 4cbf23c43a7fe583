"""The schedules in torch: ``torch.optim.lr_scheduler``'s own; Polynomial with an end or cycles as a LambdaLR.

https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate
"""

from __future__ import annotations

import math

from torch.optim import Optimizer, lr_scheduler

from tipchain.errors import InputError
from tipchain.framework_types import Setting
from tipchain.pairs.settings import read_scheduler_settings


def build_scheduler(optimizer: Optimizer, *, name: str, **arguments: Setting) -> lr_scheduler.LRScheduler:
    """Return the schedule over ``optimizer``, built for the optimizer's rate.

    Args:
        optimizer: the optimizer; of OneCycle its rate is the largest one.
        name: which one.
        **arguments: those of `tipchain.pairs.settings.read_scheduler_settings`.

    Raises:
        InputError: an argument that cannot be; or an ``end_rate`` with several rates by group, which torch ends at one
            rate and Paddle at multiples of it.
    """
    settings = read_scheduler_settings(name=name, **arguments)
    rates = {group["lr"] for group in optimizer.param_groups}
    if settings.options.get("end_rate") and len(rates) > 1:
        raise InputError(
            "cannot stand beside learning-rate multipliers: torch ends all groups at it, Paddle at its multiples",
            key="scheduler.end_rate",
            found=settings.options["end_rate"],
            expected="0",
        )
    match settings.name:
        case "polynomial":
            main = _polynomial(optimizer, **settings.options)
        case "onecycle":
            peaks = [group["lr"] for group in optimizer.param_groups]
            main = lr_scheduler.OneCycleLR(optimizer, max_lr=peaks, cycle_momentum=False, **settings.options)
        case _:
            main = getattr(lr_scheduler, settings.torch_class)(optimizer, **settings.arguments)
    if not settings.warmup_steps:
        return main
    steps, start = settings.warmup_steps, settings.warmup_start
    # LinearLR, made for this, refuses to start at 0.
    warmup = lr_scheduler.LambdaLR(optimizer, lambda step: start + (1 - start) * min(step, steps) / steps)
    return lr_scheduler.SequentialLR(optimizer, [warmup, main], milestones=[steps])


def _polynomial(
    optimizer: Optimizer, total_steps: int, power: float, end_rate: float, cycle: bool
) -> lr_scheduler.LRScheduler:
    """Return torch's PolynomialLR; where it cannot (cycles, an end above 0), a LambdaLR."""
    if not end_rate and not cycle:
        return lr_scheduler.PolynomialLR(optimizer, total_iters=total_steps, power=power)
    end = end_rate / optimizer.param_groups[0]["lr"]

    def factor(step: int) -> float:
        length = total_steps * max(1, math.ceil(step / total_steps)) if cycle else total_steps
        share: float = (1 - min(step, length) / length) ** power
        return float((1 - end) * share + end)

    return lr_scheduler.LambdaLR(optimizer, factor)
