"""One training twice, in dynamic mode and as a static graph, with equal seeds: the losses are held together step by step.

Each section of a file is a training of its own. The originals change the section with ``sed`` and run the whole driver of
``train_infer_python`` on it twice; so does this, through that driver's profile. They compare the losses with ``diff``, as
text, so the last printed digit decides. The default mode also runs the dynamic training from parameters a few units in
the last place away, and allows what rounding alone makes of that (`tipchain.parity.envelope`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tipchain.chain.build import AMP_ON_CPU, build_spec, legacy_spec
from tipchain.chain.expand import expand
from tipchain.chain.kinds.base import Layout, Request, choose_layout, suite_data
from tipchain.chain.load import changed_text, device_changes
from tipchain.chain.params import Slot, check_folder_name, parse_params, split_lines
from tipchain.chain.plan import Artifact, Command, Plan
from tipchain.chain.profiles import get_suite
from tipchain.chain.slots import legacy_slots, read_slots
from tipchain.chain.suites import LintFinding
from tipchain.errors import ParamsError
from tipchain.modes import Mode

NAME = "dy2static"
INNER = Mode.LITE_TRAIN_LITE_INFER
"""The mode in which the originals run the driver of ``train_infer_python``."""
RUNS, ULPS = 2, 16
"""Nudged trainings behind an envelope, each coin turned both ways, and how far apart they start."""
LINES = 22
"""Lines of a section that the originals hand on."""
HEADER = re.compile(r"=+\s*(\w+)\s*=+\s*")
NUMBER = r"([-+]?(?:\d+\.\d+(?:e[-+]?\d+)?|nan|inf))"
PACKAGE = Path(__file__).resolve().parents[2]
NUDGED = str(PACKAGE / "paddle_tools" / "nudged_training.py")
ENVELOPE = ("-m", "tipchain.parity.envelope")
CUSTOM = ("echo ", "sed ")
"""The beginnings of a section's last line that is the suite's own command."""
DETERMINISTIC = {"FLAGS_cudnn_deterministic": "True"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dy2staticRule:
    """How one suite's driver makes two trainings of a section.

    Attributes:
        layout: the lines of a section.
        both: words that the program gets in both trainings.
        static: words that it gets as a static graph; "" where another trainer does it.
        trainer: that trainer.
        line: text that a line with a loss has, and what of it, as the original's ``extract_loss.py`` is told.
        extract: the loss in it.
        first: how many losses are compared, None for all.
    """

    layout: Layout
    both: str = ""
    static: str = ""
    trainer: str = ""
    line: str
    extract: str
    first: int | None = None

    @property
    def losses(self) -> str:
        """The regular expression of a line with a loss."""
        before, _, after = self.extract.partition("{%f}")
        return rf"{re.escape(self.line)}.*?\b{re.escape(before)}{NUMBER}{re.escape(after)}"


RULES: Mapping[str, Dy2staticRule] = {suite: Dy2staticRule(**data) for suite, data in suite_data(NAME).items()}
LAYOUTS: Sequence[Layout] = tuple(rule.layout for rule in RULES.values())


class TrainingSection(NamedTuple):
    """One training of a file: its name, the line of its header, and its lines with that first."""

    name: str
    line: int
    lines: tuple[str, ...]


def sections(text: str) -> Iterator[TrainingSection]:
    """Yield the sections of a file, each with as many lines as the originals hand on."""
    lines = split_lines(text)
    for number, line in enumerate(lines):
        if found := HEADER.fullmatch(line.strip()):
            yield TrainingSection(found[1], number + 1, lines[number : number + LINES])


def plan(request: Request) -> Plan:
    """Return the plan of a file.

    Raises:
        ParamsError: a section does not fit its suite's layout, or a value is impossible.
        UsageError: the named suite has no such chains.
    """
    layout = choose_layout(request, LAYOUTS)
    rule, suite = RULES[layout.suite], get_suite(layout.suite)
    plans: list[Plan] = []
    commands: list[Command] = []
    findings: list[LintFinding] = []
    for section in sections(request.text):
        pair = [_half(request, rule, section, static=static) for static in (False, True)]
        plans += pair
        findings += pair[0].findings
        if request.legacy:
            commands += _legacy(pair, rule, section)
            continue
        why = _one_graph(rule, section)
        told = []
        if why:
            message = f"{why}; the original trains it twice in dynamic mode, and compares that"
            told.append((section.line, section.name, message))
        if (last := section.lines[-1]).startswith("sed "):
            message = (
                "the original runs this command first; tipchain runs no command of a file: run it before the chain"
            )
            told.append((section.line + len(section.lines) - 1, last.split()[0], message))
        findings += [LintFinding("to-static", "warning", request.file.path, *one) for one in told]
        commands += _default(pair, rule, section, why)
    if not plans:
        raise ParamsError("has no section of a training", file=request.file.path, expected="=== base_train ===")
    first, run = plans[0], request.options.run
    return first._replace(
        mode=request.mode,
        chain=NAME,
        suite=suite.name,
        params=request.file.path,
        run=first.run if request.legacy else first.run.partition(f"/runs/{run}/")[0] + f"/runs/{run}",
        commands=tuple(commands),
        latest=(),
        findings=tuple(dict.fromkeys(findings)),
        notes=tuple(dict.fromkeys(str(one) for one in findings if one.severity != "info")),
    )


def _one_graph(rule: Dy2staticRule, section: TrainingSection) -> str:
    there = not rule.trainer or any(line.startswith(f"{rule.trainer}:") for line in section.lines)
    return "" if there else f"[{section.name}] has no line {rule.trainer}: for the static graph"


def _half(request: Request, rule: Dy2staticRule, section: TrainingSection, *, static: bool) -> Plan:
    suite, path, options = get_suite(rule.layout.suite), request.file.path, request.options
    lines = [re.sub(r"gpu_list.*$", "gpu_list:0", line) for line in section.lines]
    more = f" {rule.both}" if rule.both else ""
    more += f" {rule.static}" if static and rule.static else ""
    if len(lines) > 15:
        lines[15] += more
        if static and rule.trainer and (request.legacy or not _one_graph(rule, section)):
            lines[14] = f"trainer:{rule.trainer}"
    if request.legacy:
        return expand(legacy_spec("\n".join(lines) + "\n", path, suite, INNER), path, options)
    text = "\n" * (section.line - 1) + "\n".join(section.lines)
    layout = Layout(suite=rule.layout.suite, text=rule.layout.text.replace("base_train|amp_train", section.name))
    own = read_slots(parse_params(text, path), layout)
    check_folder_name(own["model_name"], own["model_name"].value)
    known = [line for line in lines if line.strip() and not line.startswith(CUSTOM)]
    text = "\n" * (section.line - 1) + "\n".join(
        ["=train_params=", *known[1:], "=eval_params=", "eval:null", "null:null"]
    )
    if options.device is not None:
        slots = legacy_slots(text, path, suite)
        empty = Slot(role="device", key="null", value="null", file=path, line=0)
        text, _ = changed_text(text, tuple(device_changes({**slots, "device": empty}, options.device)))
    which = f"{section.name}-{'static' if static else 'dynamic'}"
    file = parse_params(text, path)
    spec = build_spec(file, suite, INNER, lenient=request.lenient)
    unused = ("null", "default", "nothing-planned")  # of evaluation, export and inference, which such a file lacks
    spec = spec._replace(findings=tuple(one for one in spec.findings if one.code not in unused))
    made = expand(spec, path, options._replace(run=f"{options.run}/{which}"))
    return made._replace(findings=spec.findings)


def _legacy(pair: Sequence[Plan], rule: Dy2staticRule, section: TrainingSection) -> Sequence[Command]:
    out, name, commands = pair[0].out, section.name, list[Command]()
    for half, which in zip(pair, ("dygraph", "dy2static"), strict=True):
        printed = f"{out}/{name}_python_train_infer_{which}_output.txt"
        commands += [one._replace(env={**DETERMINISTIC, **one.env}, log=one.log or printed) for one in half.commands]
    look = ("python", "test_tipc/extract_loss.py", "-v", rule.line, "-e", rule.extract)
    losses = [f"./{out}/{name}_{which}_loss.txt" for which in ("dygraph", "dy2static")]
    for which in ("static", "dynamic"):
        commands.append(Command(id=f"losses[{which}]", step="other", argv=look, env=DETERMINISTIC))
    log = f"{out}/{name}_diff_log.txt"
    return [*commands, Command(id="diff", step="compare", argv=("diff", "-w", *losses), env=DETERMINISTIC, log=log)]


def _default(pair: Sequence[Plan], rule: Dy2staticRule, section: TrainingSection, why: str) -> Sequence[Command]:
    run = pair[0].run.rpartition("/")[0]
    name = section.name
    trained = [next((one for one in half.commands if one.step == "train"), None) for half in pair]
    if None in trained:
        return []
    dynamic, static = (one for one in trained if one is not None)
    amp = name.startswith("amp") or "AMP.use_amp=True" in dynamic.argv
    skip = why or (AMP_ON_CPU if amp and not dynamic.on_gpu else dynamic.skip)
    losses = Artifact(what="losses", in_log=True, line=rule.losses)

    def training(command: Command, which: str, wrapper: tuple[str, ...] = ()) -> Command:
        head, rest = command.argv[:1], command.argv[1:]
        return command._replace(
            id=f"train[{name};{which}]",
            argv=(*head, *wrapper, *rest),
            env={**DETERMINISTIC, **command.env},
            log=f"{run}/train-{name}-{which.replace('=', '-')}.log",
            leaves=(losses,),
            leg=name,
            skip=skip,
            needs=(),
        )

    halves = [training(dynamic, "dynamic"), training(static, "static")]
    nudged = [training(dynamic, f"nudged={number}", (NUDGED, str(number), str(ULPS))) for number in range(RUNS)]
    logs = [str(one.log) for one in (*halves, *nudged)]
    limit = () if rule.first is None else ("--first", str(rule.first))
    compare = Command(
        id=f"compare[{name}]",
        step="compare",
        argv=(sys.executable, *ENVELOPE, *logs[:2], "--losses", rule.losses, *limit, "--runs", *logs[2:]),
        env={"PYTHONPATH": str(PACKAGE.parent)},
        log=f"{run}/compare-{name}.log",
        timeout_s=dynamic.timeout_s,
        needs=tuple(one.id for one in (*halves, *nudged)),
        leg=name,
    )
    return [*halves, *nudged, compare]
