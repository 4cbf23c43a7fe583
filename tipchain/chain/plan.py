"""Commands and plans: the commands of a chain in order, the selected ones of a plan, and how they ended."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tipchain.chain.kinds import TRAIN_INFER
from tipchain.chain.suites import LintFinding
from tipchain.errors import Outcome, UsageError, suggestion
from tipchain.modes import DataFolders, Mode

# In the default mode everything of a run stands below ``<out>/runs/<run>``, so no run overwrites another's files;
# the names that the suite is used to become links to the latest run (``Plan.latest``). In a plan that is only
# shown the run is called ``RUN``.


PLACEHOLDER = "RUN"
LITE_TIMEOUT_S = 3600.0
"""Limit for a command that trains and infers on lite data."""


class Artifact(NamedTuple):
    """A file that a command must have left when it exits 0; files of earlier runs do not count.

    Attributes:
        what: ``checkpoint``, ``program``, ``weights`` or ``result line``, for messages.
        files: glob patterns relative to where the plan was made, or absolute; one match of one of them will do.
        in_log: whether it is looked for in the command's own log instead.
        line: regular expression that a line of the log must match; "" for the usual result lines.
        reads: whether its lines are results of an inference, which are read.
        given: the data that the inference was given, "" where that is not known.
    """

    what: str
    files: tuple[str, ...] = ()
    in_log: bool = False
    line: str = ""
    reads: bool = False
    given: str = ""


class Find(NamedTuple):
    """A text in a command's words whose final form is known only when the command starts.

    Attributes:
        text: what stands in the words of the plan.
        files: glob patterns like those of `Artifact`; the first with a match gives the text, its newest match
            where there are several.
        anywhere: whether the file may lie outside of the run's folder. The newest match of all patterns counts then,
            its name alone where the text is a name alone, and the text stays as it is where nothing is there.
    """

    text: str
    files: tuple[str, ...]
    anywhere: bool = False


SUFFIXES = (".pdparams", ".pdopt", ".pdema", ".pdmodel", ".pdiparams", ".json", ".yaml", ".yml", ".txt")
"""Endings that a `Find`'s text has of its own; one without any is a prefix, as ``paddle.load``'s callers like it."""


class Speed(NamedTuple):
    """How a training's speed is read from its log: the mean of the lines that tell one.

    Attributes:
        warm_up: lines that are left out at the start.
        each_epoch: lines that are left out at the start of each epoch, before those.
        unit: of the number where the log itself names none, as ``images/s``.
    """

    warm_up: int
    unit: str
    each_epoch: int = 0


class Command(NamedTuple):
    """One program call.

    Attributes:
        id: stable and readable, unique in its plan, as ``train[norm_train;gpus=-1]``.
        step: ``align``, ``train``, ``eval``, ``export`` or ``infer``.
        argv: program and arguments; never a shell string.
        env: environment variables that the plan sets; others are left alone.
        cwd: folder to run in, relative to where the plan was made.
        log: file for standard output and error, relative likewise; None for the terminal (legacy only).
        needs: ids of the commands that must have passed.
        skip: the reason why it cannot run, known before; "" if it can.
        leg: commands of one leg run one after the other, in the plan's order; legs may run at once.
        gpus: ids of the GPUs that it takes; with ``on_gpu`` and none named, it takes whichever there are.
        launched: whether it starts worker processes with ``paddle.distributed.launch``.
        finds: texts in ``argv`` that are settled when it starts.
        links: (name, target) pairs of symbolic links to make before it starts where the target exists.
        speed: the reading of its speed; None where it is not run for that.
        wrapper: words that the original driver starts it with, in legacy plans; ``plan`` shows them.
    """

    id: str
    step: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = {}
    cwd: str = "."
    log: str | None = None
    timeout_s: float | None = None
    needs: tuple[str, ...] = ()
    on_gpu: bool = False
    skip: str = ""
    leg: str = ""
    gpus: tuple[str, ...] = ()
    launched: bool = False
    leaves: tuple[Artifact, ...] = ()
    finds: tuple[Find, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    speed: Speed | None = None
    wrapper: tuple[str, ...] = ()

    @property
    def script(self) -> str:
        """The script that Python runs, "" for a module of Python's own."""
        module = self.argv[1:2] == ("-m",) and not self.launched
        return "" if module else next((word for word in self.argv[1:] if word.endswith(".py")), "")


class Plan(NamedTuple):
    """The commands of a parameter file in one mode.

    Attributes:
        params: the file as the user named it.
        status: end of a line in results_python.log, a ``str.format`` template.
        out: folder of the mode's output.
        run: folder of the run below it; equal to ``out`` in legacy plans.
        latest: names below ``out`` that shall point to files of the run, as (name, path below ``run``).
        chain: the kind of chain, a name of `tipchain.chain.kinds.KINDS`.
        results_log: name of the suite's log of status lines, below ``out``.
        results_head: line that the suite writes there at the start of a run, "" for none.
        redirected: steps whose status lines show the redirection to the log.
        findings: all remarks about the file; the notes are the more important ones.
        data: the data folders, relative to where the plan was made; None for the mode's own.
    """

    params: str
    mode: Mode
    suite: str
    model: str
    status: str
    out: str
    run: str
    commands: tuple[Command, ...] = ()
    latest: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    chain: str = TRAIN_INFER
    results_log: str = "results_python.log"
    results_head: str = ""
    redirected: frozenset[str] = frozenset()
    findings: tuple[LintFinding, ...] = ()
    data: DataFolders | None = None


class Options(NamedTuple):
    """Additions of the command line to a parameter file.

    Attributes:
        run: name of the run's folder.
        timeout_s: limit for every command; None for the mode's own limits, infinity for none.
        gpu_id: CUDA_VISIBLE_DEVICES in whole_infer.
        argument: the driver's third word where it names no GPU, as benchmark_train's ``dynamic_bs8_fp32_DP_N1C1``.
        warm_up: lines of speed that are left out at the start of a benchmark's log; None for the suite's number.
        device: device of the alignment and the chain instead of gpu_list's; the CPU for inference, too.
        settings: lines to change, as ``KEY=VALUE``.
        root: absolute folder that the plan is made in, for suites that name it in their commands.
        workdir: folder for the output instead of ``test_tipc/output``; "" for that.
    """

    run: str = PLACEHOLDER
    python: str | None = None
    timeout_s: float | None = None
    root: str = "."
    workdir: str = ""
    gpu_id: str | None = None
    argument: str | None = None
    warm_up: int | None = None
    device: str | None = None
    settings: tuple[str, ...] = ()
    data: DataFolders | None = None


def default_timeout(mode: Mode) -> float | None:
    """Return the limit in seconds for a command of ``mode`` where the user names none; None for no limit.

    The whole data may take days; a command on lite data that takes an hour hangs.
    """
    return None if "whole" in mode.value else LITE_TIMEOUT_S


def plan_json(plan: Plan) -> dict[str, object]:
    """Return the plan as DESIGN's JSON: the same text for the same file, mode and options."""
    return {
        "params": plan.params,
        "mode": plan.mode.value,
        "suite": plan.suite,
        "chain": plan.chain,
        "commands": [command_json(command) for command in plan.commands],
        "notes": list(plan.notes),
    }


ALWAYS = ("argv", "env", "cwd", "log", "timeout_s", "needs", "on_gpu")
"""Keys that the JSON of every command has; the rest is there only where it has a value."""


def command_json(command: Command) -> dict[str, object]:
    """Return one command as JSON; rare keys only where they have a value."""
    from tipchain.core.json_text import as_json

    limit = None if command.timeout_s == float("inf") else command.timeout_s
    data = as_json(command._replace(timeout_s=limit, wrapper=()))
    data["finds"] = [{name: value for name, value in one.items() if value} for one in data["finds"]]
    return {name: value for name, value in data.items() if value or name in ALWAYS}


def with_notes(plan: Plan, *notes: str) -> Plan:
    """Return ``plan`` with more notes."""
    return plan._replace(notes=(*plan.notes, *notes))


STEPS = ("align", "train", "eval", "export", "infer", "other")
SHOWN_IDS = 12


def select(plan: Plan, only: Sequence[str] = (), skip: Sequence[str] = ()) -> Plan:
    """Return ``plan`` with the commands that ``only`` names and all that they need, without those of ``skip``.

    A pattern is a step's name or an id, in which ``*`` and ``?`` stand for anything and for any one character;
    brackets mean themselves. What needs a command that is left out by ``skip`` stays, to be skipped with that
    reason.

    Raises:
        UsageError: a pattern names nothing.
    """
    if not only and not skip:
        return plan
    wanted = set(_matching(plan, only, "--only")) if only else {one.id for one in plan.commands}
    for command in reversed(plan.commands):  # what a command needs stands before it
        wanted |= set(command.needs) if command.id in wanted else set()
    dropped = _matching(plan, skip, "--skip")
    kept = []
    for command in plan.commands:
        lost = [need for need in command.needs if need in dropped]
        skip = command.skip or (f"{', '.join(lost)} is left out (--skip)" if lost else "")
        needs = tuple(need for need in command.needs if need not in lost)
        kept += [command._replace(needs=needs, skip=skip)] if command.id in wanted - dropped else []
    note = f"{len(kept)} of {len(plan.commands)} commands are selected"
    return with_notes(plan._replace(commands=tuple(kept)), note)


def matches(pattern: str, command: Command) -> bool:
    """Return whether ``pattern`` names ``command``, by its step or by its id."""
    if pattern in STEPS:
        return command.step == pattern
    words = {"*": ".*", "?": "."}
    text = "".join(words.get(letter, re.escape(letter)) for letter in pattern)
    return re.fullmatch(text, command.id, re.DOTALL) is not None


def _matching(plan: Plan, patterns: Sequence[str], option: str) -> frozenset[str]:
    found: set[str] = set()
    for pattern in patterns:
        ids = {command.id for command in plan.commands if matches(pattern, command)}
        if not ids:
            named = [command.id for command in plan.commands]
            shown = [f"    {name}" for name in named[:SHOWN_IDS]]
            more = len(named) - len(shown)
            shown += [f"    and {more} more; tipchain plan shows them"] if more else []
            close = suggestion(pattern, [*dict.fromkeys(command.step for command in plan.commands), *named])
            head = (
                f"{option} {pattern!r} names no command of {plan.params} in mode {plan.mode.value}{close}\n"
                f"  expected: a step ({', '.join(STEPS)}) or an id, in which * and ? may stand for others:"
            )
            raise UsageError("\n".join([head, *shown]))
        found |= ids
    return frozenset(found)


class Result(NamedTuple):
    """How one command ended.

    Attributes:
        command: the command, with the environment variables that it was given besides the parent's.
        reason: one sentence; "" for a PASS.
        signal: name of the signal that ended it, "" for none.
        started: local time as ISO 8601, "" if it did not start.
        peak_memory_mb: largest resident size of the command or of a process it waited for, in MiB.
        log: its log, relative to the run's folder.
        figures: numbers found in the log, by name: ``avg_ips``, ``loss``, ``top1``, ``inference_ms``, ...
        missing: the artifacts that it should have left and did not, as text.
        reused: whether an earlier attempt of the run had passed it, so that it was not run again.
    """

    command: Command
    outcome: Outcome
    reason: str = ""
    exit_code: int | None = None
    signal: str = ""
    started: str = ""
    seconds: float = 0.0
    peak_memory_mb: float = 0.0
    log: str = ""
    tail: tuple[str, ...] = ()
    figures: Mapping[str, float] = {}
    missing: tuple[str, ...] = ()
    reused: bool = False


# Results as JSON values, for reports and for a run's journal; `tipchain.core.json_text.parse_as` reads them.


def result_json(result: Result) -> dict[str, object]:
    """Return ``result`` as JSON values."""
    from tipchain.core.json_text import as_json

    own = {name: as_json(value) for name, value in result._asdict().items() if name != "command"}
    return {"command": command_json(result.command), **own}
