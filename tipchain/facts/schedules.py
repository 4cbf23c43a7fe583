# ruff: noqa: SLF001  (both frameworks keep what a cycle is made of in private attributes)
"""The table of learning-rate schedules: torch's classes, Paddle's, and readers of Paddle's arguments from both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tipchain.framework_types import Options, Schedule, Setting

# Sources: ``torch/optim/lr_scheduler.py``; ``paddle/optimizer/lr.py``,
# https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/optimizer/lr/LRScheduler_en.html


ScheduleReader = Callable[[Schedule], Setting]
Readers = str | tuple[str | ScheduleReader, str | ScheduleReader]
"""An attribute of both frameworks' schedules, or the readers of torch's and Paddle's."""


def _single(name: str) -> ScheduleReader:
    """Return a reader of the value that all groups share, None where they differ."""

    def read(schedule: Schedule) -> Setting:
        values = getattr(schedule, name)
        return values[0] if len(set(values)) == 1 else None

    return read


def _group(key: str) -> ScheduleReader:
    return lambda schedule: schedule.optimizer.param_groups[0][key]


def _milestones(schedule: Schedule) -> Setting:
    kept = schedule.milestones
    return sorted(kept.elements() if isinstance(kept, Counter) else kept)


def _warm_rate(warmed: Schedule, step: int) -> Setting:
    """Return the rate that a warm-up of torch's has at a step, None where that cannot be read."""
    warmup, base = warmed._schedulers[0], _single("base_lrs")(warmed._schedulers[0])
    if base is not None and hasattr(warmup, "lr_lambdas"):
        return base * warmup.lr_lambdas[0](step)
    share = warmup.start_factor + (warmup.end_factor - warmup.start_factor) * min(1.0, step / warmup.total_iters)
    return None if base is None else base * share


REQUIRED = object()
"""In place of the default of an argument that has none."""


@dataclass(frozen=True, slots=True)
class ScheduleKind:
    """Schedules of one formula: a row of the table.

    Attributes:
        paddle: Paddle's class.
        arguments: Paddle's, with their readers.
        named: a case's name of it, "" where cases have none.
        options: a case's arguments of it, with torch's defaults or `REQUIRED`.
        spelled: Paddle's names of those that are called otherwise.
    """

    paddle: str
    arguments: Mapping[str, Readers]
    named: str = ""
    options: Options = field(default_factory=dict)
    spelled: Mapping[str, str] = field(default_factory=dict)


BASE: Mapping[str, Readers] = {"learning_rate": (_single("base_lrs"), "base_lr")}
LAST: Mapping[str, Readers] = {"last_epoch": (lambda one: one.last_epoch - 1, lambda one: one.last_epoch - 1)}


def _of(*names: str, **others: Readers) -> Mapping[str, Readers]:
    """Return the readers of Paddle's arguments, which both keep under their names but for ``others``."""
    return {**BASE, **{name: others.get(name, name) for name in names}, **LAST}


LAMBDA = _of("lr_lambda", lr_lambda=(_single("lr_lambdas"), "lr_lambda"))
SCHEDULES: Mapping[str, ScheduleKind] = {
    "LambdaLR": ScheduleKind("LambdaDecay", LAMBDA, named="constant"),
    "StepLR": ScheduleKind(
        "StepDecay", _of("step_size", "gamma"), named="step", options={"step_size": REQUIRED, "gamma": 0.1}
    ),
    "MultiStepLR": ScheduleKind(
        "MultiStepDecay",
        _of("milestones", "gamma", milestones=(_milestones, "milestones")),
        named="multistep",
        options={"milestones": REQUIRED, "gamma": 0.1},
    ),
    "ExponentialLR": ScheduleKind("ExponentialDecay", _of("gamma"), named="exponential", options={"gamma": REQUIRED}),
    "CosineAnnealingLR": ScheduleKind(
        "CosineAnnealingDecay",
        _of("T_max", "eta_min"),
        named="cosine",
        options={"total_steps": REQUIRED, "end_rate": 0.0},
        spelled={"total_steps": "T_max", "end_rate": "eta_min"},
    ),
    "CosineAnnealingWarmRestarts": ScheduleKind("CosineAnnealingWarmRestarts", _of("T_0", "T_mult", "eta_min")),
    "PolynomialLR": ScheduleKind(
        "PolynomialDecay",
        _of(
            "decay_steps",
            "end_lr",
            "power",
            "cycle",
            decay_steps=("total_iters", "decay_steps"),
            end_lr=(lambda _: 0.0, "end_lr"),
            cycle=(lambda _: False, "cycle"),
        ),
        named="polynomial",
        options={"total_steps": REQUIRED, "power": 1.0, "end_rate": 0.0, "cycle": False},
        spelled={"total_steps": "decay_steps", "end_rate": "end_lr"},
    ),
    "LinearLR": ScheduleKind(
        "LinearLR", _of("total_steps", "start_factor", "end_factor", total_steps=("total_iters", "total_steps"))
    ),
    "MultiplicativeLR": ScheduleKind("MultiplicativeDecay", LAMBDA),
    "OneCycleLR": ScheduleKind(
        "OneCycleLR",
        {
            "max_learning_rate": (_group("max_lr"), lambda one: one._lr_config[1]),
            "total_steps": "total_steps",
            "divide_factor": (
                lambda one: _group("max_lr")(one) / _group("initial_lr")(one),
                lambda one: one._lr_config[1] / one._lr_config[0],
            ),
            "end_learning_rate": (_group("min_lr"), lambda one: one._lr_config[-1]),
            "phase_pct": (
                lambda one: (one._schedule_phases[0]["end_step"] + 1) / one.total_steps,
                lambda one: (one._step_config[1] + 1) / one.total_steps,
            ),
            "three_phase": (lambda one: len(one._schedule_phases) == 3, lambda one: len(one._lr_config) == 4),
            "anneal_strategy": (
                "_anneal_func_type",
                lambda one: "cos" if "cos" in one.anneal_func.__name__ else "linear",
            ),
            **LAST,
        },
        named="onecycle",
        options={
            "total_steps": REQUIRED,
            "pct_start": 0.3,
            "div_factor": 25.0,
            "final_div_factor": 1e4,
            "anneal_strategy": "cos",
            "three_phase": False,
        },
        spelled={"pct_start": "phase_pct", "div_factor": "divide_factor"},
    ),
    "CyclicLR": ScheduleKind(
        "CyclicLR",
        {
            "base_learning_rate": (_single("base_lrs"), "base_lr"),
            "max_learning_rate": (_single("max_lrs"), "max_lr"),
            "step_size_up": (
                lambda one: round(one.total_size * one.step_ratio),
                lambda one: round(one.cycle_size * one.step_up_pct),
            ),
            "step_size_down": (
                lambda one: round(one.total_size * (1 - one.step_ratio)),
                lambda one: round(one.cycle_size * (1 - one.step_up_pct)),
            ),
            "mode": "mode",
            "exp_gamma": "gamma",
            **LAST,
        },
    ),
    "ReduceLROnPlateau": ScheduleKind(
        "ReduceOnPlateau",
        {
            "learning_rate": (_group("lr"), "base_lr"),
            **{name: name for name in "mode factor patience threshold threshold_mode cooldown".split()},
            "min_lr": (_single("min_lrs"), "min_lr"),
            "epsilon": ("eps", "epsilon"),
        },
    ),
    "SequentialLR": ScheduleKind(
        "LinearWarmup",
        {
            "learning_rate": (lambda one: one._schedulers[1], "learning_rate"),
            "warmup_steps": (lambda one: one._milestones[0], "warmup_steps"),
            "start_lr": (lambda one: _warm_rate(one, 0), "start_lr"),
            "end_lr": (lambda one: _warm_rate(one, one._milestones[0]), "end_lr"),
        },
    ),
}
"""The rows by torch's classes; a ``SequentialLR`` of two is a warm-up and its successor."""
TORCH_CLASSES = {row.named: name for name, row in SCHEDULES.items() if row.named}
"""Torch's classes by the names that cases have for them."""
