"""Commands and plans: what a chain would run, in order.

In the default mode everything of a run stands below ``<out>/runs/<run>``, so no run overwrites another's files;
the names that the suite is used to become links to the latest run (``Plan.latest``). In a plan that is only
shown the run is called ``RUN``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tipchain.modes import Mode

PLACEHOLDER = "RUN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One program call.

    Attributes:
        id: stable and readable, unique in its plan, as ``train[norm_train;gpus=-1]``.
        step: ``align``, ``train``, ``eval``, ``export`` or ``infer``.
        argv: program and arguments; never a shell string.
        env: environment variables that the plan sets; others are left alone.
        cwd: folder to run in, relative to where the plan was made.
        log: file for standard output and error, relative likewise; None for the terminal (legacy only).
        timeout_s: seconds until it is ended, None for no limit.
        needs: ids of the commands that must have passed.
        on_gpu: whether it needs a GPU.
        skip: why it cannot run, known before; "" if it can.
    """

    id: str
    step: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "."
    log: str | None = None
    timeout_s: float | None = None
    needs: tuple[str, ...] = ()
    on_gpu: bool = False
    skip: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The commands of a parameter file in one mode.

    Attributes:
        params: the file as the user named it.
        mode: the mode.
        suite: the profile's name.
        model: the model's name.
        status: end of a line in results_python.log, a ``str.format`` template.
        out: folder of the mode's output.
        run: folder of the run below it; equal to ``out`` in legacy plans.
        commands: the commands in order.
        latest: names below ``out`` that shall point to files of the run, as (name, path below ``run``).
        notes: what was left out and why.
    """

    params: str
    mode: Mode
    suite: str
    model: str
    status: str
    out: str
    run: str
    commands: tuple[Command, ...]
    latest: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line adds to a parameter file.

    Attributes:
        run: name of the run's folder.
        python: interpreter instead of the file's.
        timeout_s: limit for every command.
        gpu_id: CUDA_VISIBLE_DEVICES in whole_infer.
        device: device of the alignment instead of the first gpu_list entry's.
    """

    run: str = PLACEHOLDER
    python: str | None = None
    timeout_s: float | None = None
    gpu_id: str | None = None
    device: str | None = None


def plan_json(plan: Plan) -> dict[str, object]:
    """Return the plan as DESIGN's JSON: the same text for the same file, mode and options."""
    return {
        "params": plan.params,
        "mode": plan.mode.value,
        "suite": plan.suite,
        "commands": [command_json(command) for command in plan.commands],
        "notes": list(plan.notes),
    }


def command_json(command: Command) -> dict[str, object]:
    """Return one command as JSON."""
    data: dict[str, object] = {
        "id": command.id,
        "step": command.step,
        "argv": list(command.argv),
        "env": dict(command.env),
        "cwd": command.cwd,
        "log": command.log,
        "timeout_s": command.timeout_s,
        "needs": list(command.needs),
        "on_gpu": command.on_gpu,
    }
    return {**data, "skip": command.skip} if command.skip else data


def with_notes(plan: Plan, *notes: str) -> Plan:
    """Return ``plan`` with more notes."""
    return replace(plan, notes=(*plan.notes, *notes))
