"""The schedules in Paddle: ``paddle.optimizer.lr``'s own.

https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/optimizer/lr/LRScheduler_en.html
"""

from __future__ import annotations

from paddle.optimizer import lr

from tipchain.facts.schedules import SCHEDULES
from tipchain.framework_types import Setting
from tipchain.pairs.settings import alike, read_scheduler_settings


def build_scheduler(
    optimizer: None,  # noqa: ARG001  (Paddle's schedules stand before the optimizer)
    learning_rate: float,
    *,
    name: str,
    **arguments: Setting,
) -> lr.LRScheduler:
    """Return the schedule; the arguments are those of ``tipchain.pairs.torch_schedulers.build_scheduler``.

    Raises:
        CaseError: an argument that cannot be.
    """
    settings = read_scheduler_settings(name=name, **arguments)
    rate, args = float(learning_rate), settings.options
    match settings.name:
        case "constant":
            main = lr.LambdaDecay(rate, lambda _: 1.0)
        case "step" | "multistep" | "exponential" | "cosine":
            kind, shared = alike(settings)
            main = getattr(lr, SCHEDULES[kind][0])(rate, **shared)
        case "polynomial":
            main = lr.PolynomialDecay(
                rate, args["total_steps"], end_lr=args["end_rate"], power=args["power"], cycle=args["cycle"]
            )
        case _:
            main = lr.OneCycleLR(
                rate,
                args["total_steps"],
                divide_factor=args["div_factor"],
                phase_pct=float(args["pct_start"]),
                # torch divides the first rate, Paddle takes the last one itself.
                end_learning_rate=rate / args["div_factor"] / args["final_div_factor"],
                anneal_strategy=args["anneal_strategy"],
                three_phase=args["three_phase"],
            )
    if not settings.warmup_steps:
        return main
    first = float(main())
    return lr.LinearWarmup(main, settings.warmup_steps, start_lr=settings.warmup_start * first, end_lr=first)
