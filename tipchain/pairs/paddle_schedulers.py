"""The schedules in Paddle: ``paddle.optimizer.lr``'s own.

https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/optimizer/lr/LRScheduler_en.html
"""

from __future__ import annotations

from paddle.optimizer import lr

from tipchain.facts.schedules import SCHEDULES
from tipchain.framework_types import Setting
from tipchain.pairs.settings import read_scheduler_settings


def build_scheduler(
    optimizer: None,  # noqa: ARG001  (Paddle's schedules stand before the optimizer)
    learning_rate: float,
    *,
    name: str,
    **arguments: Setting,
) -> lr.LRScheduler:
    """Return the schedule; the arguments are those of ``tipchain.pairs.torch_schedulers.build_scheduler``.

    Raises:
        InputError: an argument that cannot be.
    """
    settings = read_scheduler_settings(name=name, **arguments)
    rate, given = float(learning_rate), dict(settings.arguments)
    if "final_div_factor" in given:  # torch divides the first rate by it, Paddle takes the last one itself
        given["end_learning_rate"] = rate / given["divide_factor"] / given.pop("final_div_factor")
    main = getattr(lr, SCHEDULES[settings.torch_class].paddle)(rate, **given)
    if not settings.warmup_steps:
        return main
    first = float(main())
    return lr.LinearWarmup(main, settings.warmup_steps, start_lr=settings.warmup_start * first, end_lr=first)
