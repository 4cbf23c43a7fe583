# ruff: noqa: SLF001  (both frameworks keep what a cycle is made of in private attributes)
"""What two learning-rate schedules are made with, where both frameworks have the type.

Sources: ``torch/optim/lr_scheduler.py``; ``paddle/optimizer/lr.py``,
https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/optimizer/lr/LRScheduler_en.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tipchain.parity.findings import Finding
from tipchain.parity.preflight.table import plain, same, tidy

Get = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """An argument of a schedule.

    Attributes:
        code: the slug of a finding.
        names: torch's and Paddle's.
        get: read it from either.
    """

    code: str
    names: tuple[str, str]
    get: tuple[Get, Get]


def _argument(
    code: str, torch: str, paddle: str = "", ours: Get | None = None, theirs: Get | None = None
) -> Argument:
    names = torch, paddle or torch
    return Argument(
        code=code,
        names=names,
        get=(ours or (lambda one: getattr(one, names[0])), theirs or (lambda one: getattr(one, names[1]))),
    )


def _milestones(schedule: Any) -> tuple[int, ...]:
    """Return the milestones; torch keeps a Counter of them."""
    held = schedule.milestones
    return tuple(sorted(held.elements() if hasattr(held, "elements") else held))


def _group(schedule: Any, key: str) -> Any:
    """Return what torch's OneCycleLR keeps in the optimizer."""
    return schedule.optimizer.param_groups[0][key]


def _one_cycle() -> tuple[Argument, ...]:
    return (
        _argument("total-steps", "total_steps"),
        _argument("max-rate", "max_lr", "max_learning_rate", lambda one: _group(one, "max_lr"),
                  lambda one: one._lr_config[1]),
        _argument("first-rate", "div_factor", "divide_factor",
                  lambda one: _group(one, "max_lr") / _group(one, "initial_lr"),
                  lambda one: one._lr_config[1] / one._lr_config[0]),
        _argument("last-rate", "min_lr", "end_learning_rate", lambda one: _group(one, "min_lr"),
                  lambda one: one._lr_config[-1]),
        _argument("rising-share", "pct_start", "phase_pct",
                  lambda one: (one._schedule_phases[0]["end_step"] + 1) / one.total_steps,
                  lambda one: (one._step_config[1] + 1) / one.total_steps),
        _argument("phases", "three_phase", "", lambda one: len(one._schedule_phases) == 3,
                  lambda one: len(one._lr_config) == 4),
        _argument("annealing", "anneal_strategy", "", lambda one: one._anneal_func_type,
                  lambda one: "cos" if "cos" in one.anneal_func.__name__ else "linear"),
    )  # fmt: skip


def _cyclic() -> tuple[Argument, ...]:
    return (
        _argument("max-rate", "max_lr", "max_learning_rate", lambda one: _only(one.max_lrs), lambda one: one.max_lr),
        _argument("rising-steps", "step_size_up", "", lambda one: one.total_size * one.step_ratio,
                  lambda one: one.cycle_size * one.step_up_pct),
        _argument("falling-steps", "step_size_down", "", lambda one: one.total_size * (1 - one.step_ratio),
                  lambda one: one.cycle_size * (1 - one.step_up_pct)),
        _argument("mode", "mode"),
        _argument("gamma", "gamma", "exp_gamma", theirs=lambda one: one.gamma),
    )  # fmt: skip


GAMMA = _argument("gamma", "gamma")
END = _argument("end-rate", "eta_min")
BASE = _argument(
    "base-rate", "base_lrs", "learning_rate", lambda one: _only(one.base_lrs), lambda one: one.base_lr
)
LAST = _argument("last-epoch", "last_epoch")
TWINS: dict[str, tuple[str, tuple[Argument, ...]]] = {
    "StepLR": ("StepDecay", (BASE, _argument("step-size", "step_size"), GAMMA, LAST)),
    "MultiStepLR": ("MultiStepDecay", (BASE, _argument("milestones", "milestones", "", _milestones, _milestones), GAMMA, LAST)),
    "ExponentialLR": ("ExponentialDecay", (BASE, GAMMA, LAST)),
    "CosineAnnealingLR": ("CosineAnnealingDecay", (BASE, _argument("period", "T_max"), END, LAST)),
    "CosineAnnealingWarmRestarts": (
        "CosineAnnealingWarmRestarts",
        (BASE, _argument("period", "T_0"), _argument("period-factor", "T_mult"), END, LAST),
    ),
    "PolynomialLR": (
        "PolynomialDecay",
        (BASE, _argument("total-steps", "total_iters", "decay_steps"), _argument("power", "power"),
         _argument("end-rate", "end_lr", "", lambda _: 0.0), _argument("cycle", "cycle", "", lambda _: False), LAST),
    ),
    "LinearLR": (
        "LinearLR",
        (BASE, _argument("start-factor", "start_factor"), _argument("end-factor", "end_factor"),
         _argument("total-steps", "total_iters", "total_steps"), LAST),
    ),
    "LambdaLR": ("LambdaDecay", (BASE, LAST)),
    "MultiplicativeLR": ("MultiplicativeDecay", (BASE, LAST)),
    "OneCycleLR": ("OneCycleLR", (*_one_cycle(), LAST)),
    "CyclicLR": ("CyclicLR", (BASE, *_cyclic(), LAST)),
    "ReduceLROnPlateau": (
        "ReduceOnPlateau",
        (*(_argument(name.replace("_", "-"), name)
           for name in ("mode", "factor", "patience", "threshold", "threshold_mode", "cooldown")),
         _argument("end-rate", "min_lrs", "min_lr", lambda one: _only(one.min_lrs)), _argument("epsilon", "eps", "epsilon")),
    ),
}  # fmt: skip
"""Paddle's class and the arguments by torch's class."""


def check_schedulers(torch_scheduler: Any, paddle_scheduler: Any) -> list[Finding]:
    """Compare the arguments of two schedules of types that are each other's; of others nothing is said.

    A warm-up is compared as torch's ``SequentialLR`` of two with Paddle's ``LinearWarmup``: its length, its first rate
    (where it is a ``LinearLR``), and what follows it. The rates themselves are compared elsewhere.

    Args:
        torch_scheduler: a ``torch.optim.lr_scheduler.LRScheduler``.
        paddle_scheduler: a ``paddle.optimizer.lr.LRScheduler``.
    """
    names = type(torch_scheduler).__name__, type(paddle_scheduler).__name__
    if names == ("SequentialLR", "LinearWarmup"):
        return list(_warmups(torch_scheduler, paddle_scheduler))
    return list(_compare(torch_scheduler, paddle_scheduler, whole=True))


def _compare(ours: Any, theirs: Any, *, whole: bool) -> Iterator[Finding]:
    """Yield what differs; of a schedule behind a warm-up (not ``whole``) where it stands counts for nothing."""
    twin, arguments = TWINS.get(type(ours).__name__, ("", ()))
    if type(theirs).__name__ != twin:
        return
    for one in arguments:
        if one is LAST and not whole:
            continue
        values = [_read(get, schedule) for get, schedule in zip(one.get, (ours, theirs), strict=True)]
        if None not in values and not same(*values):
            yield _finding(one.code, *one.names, *values)


def _read(get: Get, schedule: Any) -> Any:
    try:
        return plain(get(schedule))
    except (AttributeError, KeyError, IndexError):  # another version of the framework keeps it otherwise
        return None


def _only(values: Any) -> Any:
    """Return the value that all groups share, else None: rates by group are compared with the optimizer."""
    kept = {plain(one) for one in values}
    return kept.pop() if len(kept) == 1 else None


def _finding(code: str, ours: str, theirs: str, expected: Any, actual: Any) -> Finding:
    reference, port = f"{ours}={tidy(expected)!r}", f"{theirs}={tidy(actual)!r}"
    wanted = list(expected) if isinstance(expected, tuple) else tidy(expected)
    return Finding(
        code=code, kind="scheduler", reference_path="", port_path="", reference=reference, port=port,
        message=f"the port's schedule has {port} where torch's has {reference}",
        fix=f"pass `{theirs}={wanted!r}` to the scheduler",
    )  # fmt: skip


def _warmups(ours: Any, theirs: Any) -> Iterator[Finding]:
    schedules, ends = getattr(ours, "_schedulers", []), getattr(ours, "_milestones", [])
    if len(schedules) != 2 or len(ends) != 1:
        return
    warmup, main = schedules
    if not same(ends[0], theirs.warmup_steps):
        yield _finding("warmup-steps", "milestones", "warmup_steps", ends[0], theirs.warmup_steps)
    base = _read(BASE.get[0], warmup)
    if type(warmup).__name__ == "LinearLR" and base is not None:
        reached = warmup.start_factor + (warmup.end_factor - warmup.start_factor) * min(
            1.0, ends[0] / warmup.total_iters
        )
        for code, name, expected, actual in (
            ("warmup-start", "start_lr", base * warmup.start_factor, theirs.start_lr),
            ("warmup-end", "end_lr", base * reached, theirs.end_lr),
        ):
            if not same(expected, actual):
                yield _finding(
                    code, "start_factor" if code == "warmup-start" else "end_factor", name, expected, actual
                )
    yield from _compare(main, theirs.learning_rate, whole=False)
