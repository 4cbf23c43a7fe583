"""Look at parameter files without running anything: the meaning of each line, wrong lines and missing ones."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tipchain.chain.build import SpecReader, legacy_spec
from tipchain.chain.expand import expand
from tipchain.chain.kinds import KINDS, TRAIN_INFER, Told, tell_kind
from tipchain.chain.load import (
    DRIVER,
    checkout,
    driver_advice,
    driver_text,
    fits,
    is_driver_of,
    layout_advice,
    marks_in_checkout,
    marks_in_file,
    suite_of,
)
from tipchain.chain.params import (
    HEADER,
    NOTHING,
    ParamFile,
    Slot,
    Words,
    parse_params,
    read_params,
    read_text,
    shell_operator,
    split_words,
)
from tipchain.chain.plan import Command, Options, Plan
from tipchain.chain.profiles import OWN, all_suites
from tipchain.chain.slots import (
    ALIGNMENT_SECTION,
    PROGRAMS,
    AlignmentParams,
    Slots,
    alignment_params,
    layout_sections,
    meaning,
    read_layout,
    refusal,
)
from tipchain.chain.suites import SEVERITIES, LintFinding, Suite
from tipchain.core.language import listed, many
from tipchain.errors import ParamsError
from tipchain.modes import CHAIN_MODES, Mode

Plans = Mapping[Mode, Plan]
NAMES = {"model_name", "python", "train_model_name", "inference_dir"}
MOST_IDS = 2
NOT_READ = "for another driver, not read here"


class Line(NamedTuple):
    """One line of a file; its role is "" for a header or a comment, its use where there is nothing to say."""

    line: int
    text: str
    role: str
    meaning: str
    use: str


def explain(
    file: ParamFile, slots: Slots, plans: Iterable[Plan], ours: Collection[str], kind: str = "all"
) -> tuple[Line, ...]:
    """Return the lines of ``file`` with their meaning, and the commands that get them.

    ``ours`` are the sections whose lines are read.
    """
    by_line = {slot.line: slot for slot in slots.values()}
    commands = list({one.id: one for plan in plans for one in plan.commands}.values())
    section = ""
    lines = []
    for number, text in enumerate(file.lines, 1):
        header = HEADER.fullmatch(text.strip())
        section = header[1] if header else section
        slot = by_line.get(number)
        if slot is not None:
            lines.append(Line(number, text, slot.role, meaning(slot.role, kind), _use(slot, commands)))
        elif header:
            said = "section" if section in ours else "section of another driver, which chains do not read"
            lines.append(Line(number, text, "", said, ""))
        elif text.strip() and section in ours:
            comment = "a comment; the original counts it as a line" if text.strip().strip("#") else "separator"
            read = "what to align with the reference, before the chain" if section == ALIGNMENT_SECTION else NOT_READ
            lines.append(Line(number, text, "", comment if text.strip().startswith("#") else read, ""))
    return tuple(lines)


def _use(slot: Slot, commands: Sequence[Command]) -> str:
    if slot.absent and slot.role not in NAMES:
        return "left out"
    key, value = (" ".join(_words(slot, text, (text,))) for text in (slot.key, slot.value))
    texts = [key and f" {key}=", key and f" {key} ", value and slot.role not in NAMES and f" {value} "]
    ids = [
        one.id for one in commands if any(text in f" {' '.join(one.argv)} " for text in texts if text and text.strip())
    ]
    return f"in {listed(ids, MOST_IDS)}" if ids else ""


def _words(slot: Slot, text: str, otherwise: Words = ()) -> Words:
    try:
        return split_words(text, slot, pipes=True)
    except ParamsError:  # which is said where the value is read
        return otherwise


PATHS_CODE = "paths"
DIFFERS = "original"
"""Of commands that the original driver would run otherwise."""
UNKNOWN = "unknown"
"""Of findings about a file that is not looked at."""
_CONFIG = re.compile(r"(-c|--config|--config[_-]file|--config[_-]path|--cfg|--slim_config)(=(?P<value>.*))?")
_SCRIPT = re.compile(r"[^\s=]+\.(py|sh)")


def missing_paths(slots: Slots, suite: Suite, root: Path | None) -> Iterator[LintFinding]:
    """Yield the paths that programs of ``slots`` name and the checkout ``root`` lacks.

    Without sign that ``root`` is the suite's checkout, by its folders or by one of the programs, nothing is said.
    """
    python = slots["python"]
    words = _words(python, python.value)
    if words and words != ("null",) and not shutil.which(words[0]):
        message = f"{words[0]} cannot be started here; --python PATH names another interpreter"
        yield LintFinding.at(python, PATHS_CODE, message, "info")
    if root is None:
        return
    named = ((slot, path) for slot in slots.values() for path in _named(slot, suite))
    found = [(slot, path, os.path.exists(root / path)) for slot, path in named]  # noqa: PTH110 - False for names that no disk takes
    ours = any((root / folder).exists() for folder in suite.marks.folders)
    if not ours and (suite.marks.folders or not any(there for _, _, there in found)):
        return
    if suite.infer.cwd != "." and not (root / suite.infer.cwd).exists():
        yield LintFinding.at(slots["inference"], "cwd", f"the folder {suite.infer.cwd}, to infer in, is not in {root}")
        found = [one for one in found if one[0].role != "inference"]
    for slot, path, there in found:
        if not there:
            yield LintFinding.at(slot, PATHS_CODE, f"{path} is not in {root}")


def _named(slot: Slot, suite: Suite) -> Iterator[str]:
    if slot.role == "config" and not slot.absent:
        yield from dict.fromkeys(part.partition("=")[2] for part in slot.values if "=" in part)
    if slot.absent or not (PROGRAMS.fullmatch(slot.role) or slot.role == "infer_export"):
        return
    folder = suite.infer.cwd if slot.role == "inference" else "."
    for text in dict.fromkeys(slot.values if slot.role == "infer_export" else (slot.value,)):
        for path in _paths(_words(slot, text)):
            yield posixpath.normpath(posixpath.join(folder, path))


def _paths(words: Words) -> Iterator[str]:
    if words and _SCRIPT.fullmatch(words[0]):
        yield words[0]
    for index, word in enumerate(words):
        match = _CONFIG.fullmatch(word)
        if match is None:
            continue
        value = match["value"] if match["value"] is not None else "".join(words[index + 1 : index + 2])
        if value and not value.startswith("-") and not re.search(r"[*?{}=]|://", value):
            yield value


# Every mode that the suite has is planned; what is found in all of them is said once.


PATTERN = "*train*infer_python*.txt"
OTHER_SECTIONS = frozenset(
    mark.section for kind in KINDS.values() for mark in kind.marks if kind.name != TRAIN_INFER
) - {"train_params"}
"""Sections that the files of other kinds begin with, whatever they are called."""
MAX_REFUSED = 100
"""Lines that cannot be read are told one by one up to here: a file of another kind has thousands."""
# What a line is taken for once it was refused, so that the rest of the file can be looked at.
HARMLESS: Mapping[str, str] = {"model_name": "model", "python": "python", "gpu_list": "-1", "train_model_name": "model"}


class Found(NamedTuple):
    """A finding, and the modes that have it; () for all that were looked at."""

    finding: LintFinding
    modes: tuple[str, ...] = ()


class Linted(NamedTuple):
    """The findings of one file, by line, and its lines where they are explained."""

    file: str
    readable: bool = True
    suite: str = ""
    chain: str = TRAIN_INFER
    title: str = ""
    reason: str = ""
    modes: tuple[str, ...] = ()
    found: tuple[Found, ...] = ()
    lines: tuple[Line, ...] = ()

    def number_of(self, severity: str) -> int:
        """Return the number of findings of a severity."""
        return sum(one.finding.severity == severity for one in self.found)


def named_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield ``paths``; of a folder the parameter files below it, without those of drivers that tipchain does not run."""
    for path in paths:
        if path.is_dir():
            yield from (
                one for one in sorted(path.rglob("*.txt")) if one.match(PATTERN) or _section(one) in OTHER_SECTIONS
            )
        else:
            yield path


def _section(path: Path) -> str:
    with suppress(ParamsError):
        return next((name for name, _ in read_params(path).headers), "")
    return ""


def lint_file(
    path: Path,
    *,
    suite: str | None = None,
    modes: Sequence[Mode] = CHAIN_MODES,
    explained: bool = False,
    chain: str | None = None,
) -> Linted:
    """Return the findings about the file at ``path``, whose kind and suite are told from it where they are None.

    Args:
        path: the file.
        suite: the profile's name or file.
        modes: the modes to look at; klquant_whole_infer only where the suite has it. A file of another kind of chain
            is looked at in that kind's.
        explained: say what each line means, too.
        chain: the kind of chain.

    Raises:
        InputError: the suite's profile is wrong.
        UsageError: unknown kind or suite.
    """
    try:
        text = read_text(path)
    except ParamsError as error:
        return Linted(file=str(path), readable=False, found=(Found(finding=refusal(error, "unreadable")),))
    errors: list[ParamsError] = []
    file = parse_params(text, str(path), errors.append)
    refused = [refusal(error, "text") for error in errors[:MAX_REFUSED]]
    if more := len(errors) - len(refused):
        refused.append(LintFinding("text", "error", file.path, 0, "", f"{more} more lines that cannot be read"))
    if "\r\n" in text:
        refused.append(_remark(file, "lines end with CR LF; the original takes the CR for part of each value"))
    root = checkout(path)
    told = tell_kind(file, modes[0] if len(modes) == 1 else None, chain)
    if told.kind.lacks:
        unrun = Found(finding=_remark(file, told.kind.refusal, UNKNOWN))
        return Linted(file=file.path, chain=told.kind.name, title=told.kind.title, reason=told.reason, found=(unrun,))
    if told.kind.module:
        return _lint_kind(text, file, told, root, suite, refused, explained=explained)
    chosen = suite_of(file, suite, root=root)
    reason = "named by --suite" if suite else _reason(file, chosen, root)
    modes = tuple(mode for mode in modes if mode is not Mode.KLQUANT_WHOLE_INFER or chosen.klquant)
    slots, layout = read_layout(file, chosen)
    found = [*refused, *layout]
    refuses = any(one.severity == "error" for one in layout)
    if refuses and (others := ", ".join(suite.name for suite in all_suites() if fits(file, suite))):
        found.append(_remark(file, f"the file fits the layout of {others}", "sections"))
    elif layout and not suite and (advice := layout_advice(text, file, chosen, root)):
        found.append(_remark(file, advice, "sections"))
    if advice := driver_advice(chosen, root):
        found.append(LintFinding("sections", "warning", file.path, 0, "", advice))
    linted = Linted(
        file=str(path), suite=chosen.name, title=chosen.title, reason=reason, modes=tuple(mode.value for mode in modes)
    )
    if slots is None:
        return linted._replace(found=_sorted(found))
    plans, per_mode = _planned(text, file, slots, chosen, modes)
    found += missing_paths(slots, chosen, root)
    ours = {ALIGNMENT_SECTION, *(name for one in layout_sections(chosen, file) for name in one.names)}
    lines = explain(file, slots, plans.values(), ours) if explained else ()
    return linted._replace(found=_sorted(found, per_mode), lines=lines)


def _lint_kind(
    text: str,
    file: ParamFile,
    told: Told,
    root: Path | None,
    suite: str | None,
    refused: Sequence[LintFinding],
    *,
    explained: bool,
) -> Linted:
    from dataclasses import replace
    from importlib import import_module

    from tipchain.chain.kinds.base import Request, UnknownLayoutError, choose_layout, only_section

    kind, module = told.kind, import_module(told.kind.module)
    options = Options(root=str(Path.cwd()))
    requests = [
        Request(text=text, file=file, mode=mode, root=root, suite=suite, lenient=True, options=options)
        for mode in kind.modes
    ]
    own = only_section(file, kind.section)
    linted = Linted(file=file.path, chain=kind.name, title=kind.title, reason=told.reason)
    try:
        layout = choose_layout(replace(requests[0], file=own), module.LAYOUTS)
    except UnknownLayoutError as error:
        # The file may be right: nobody here knows.
        unread = LintFinding(UNKNOWN, "warning", file.path, 0, "", f"{error.message}: nothing in it was checked")
        return linted._replace(found=(Found(finding=unread),))
    slots, found = read_layout(own, layout)
    linted = linted._replace(suite=layout.suite, modes=tuple(mode.value for mode in kind.modes))
    if slots is None:
        return linted._replace(found=_sorted((*refused, *found)))
    planned, per_mode = list[Plan](), dict[Mode, Sequence[LintFinding]]()
    for request in requests:
        try:
            planned.append(module.plan(request))
            per_mode[request.mode] = planned[-1].findings
        except ParamsError as error:  # noqa: PERF203 - each mode has its own
            per_mode[request.mode] = [refusal(error, "value")]
    lines = explain(own, slots, planned, (), kind.name) if explained else ()
    return linted._replace(found=_sorted((*refused, *found), per_mode), lines=lines)


def _reason(file: ParamFile, suite: Suite, root: Path | None) -> str:
    if root is not None and (root / OWN).is_file():
        return f"the checkout has a profile of its own, {root / OWN}"
    if any(name == ALIGNMENT_SECTION for name, _ in file.headers):
        return f"only {suite.name}'s files have a section [{ALIGNMENT_SECTION}]"
    if is_driver_of(suite, driver_text(root)):
        return f"{DRIVER} of its checkout is the driver of {suite.name}"
    reasons = [f"its lines fit the layout of {suite.name}" if fits(file, suite) else "no layout fits"]
    if marks := marks_in_file(file, suite):
        reasons.append("it has " + ", ".join(marks))
    if marks := marks_in_checkout(suite, root):
        reasons.append("its checkout has " + ", ".join(marks))
    if suite.version:
        reasons.append("its driver is another version: " + ", ".join(suite.version))
    if len(reasons) == 1:
        reasons.append("it bears no suite's marks")
    return "; ".join(reasons)


def _remark(file: ParamFile, message: str, code: str = "text") -> LintFinding:
    return LintFinding(code, "info", file.path, 0, "", message)


def _planned(
    text: str, file: ParamFile, slots: Slots, suite: Suite, modes: Sequence[Mode]
) -> tuple[Mapping[Mode, Plan], Mapping[Mode, Sequence[LintFinding]]]:
    alignment, refused = None, list[LintFinding]()
    try:
        alignment = alignment_params(file)
    except ParamsError as error:
        refused.append(refusal(error, "alignment"))
    options = Options(root=str(Path.cwd()))
    plans: dict[Mode, Plan] = {}
    found: dict[Mode, list[LintFinding]] = {mode: list(refused) for mode in modes}
    for mode in modes:
        plan, findings = _mode_plan(slots, suite, mode, alignment, options)
        found[mode] += findings
        if plan is not None:
            plans[mode] = plan
            with suppress(ParamsError):  # words that a shell would split otherwise
                legacy = expand(legacy_spec(text, file.path, suite, mode), file.path, options)
                found[mode] += [
                    LintFinding(DIFFERS, "info", file.path, 0, "", one) for one in differences(plan, legacy)
                ]
    return plans, found


def differences(plan: Plan, legacy: Plan) -> Iterator[str]:
    """Yield the first command of each step in which the original's differs from a plan's; ``RUN`` is the run's folder."""
    steps: dict[str, tuple[list[str], list[str]]] = {}
    for index, one in enumerate((plan, legacy)):
        for command in one.commands:
            shown = " ".join((*(f"{name}={value}" for name, value in command.env.items()), *command.argv))
            steps.setdefault(command.step, ([], []))[index].append(
                shown.replace(f"{Path.cwd()}/", "").replace(one.run, "RUN")
            )
    for step, (ours, originals) in steps.items():
        if len(ours) != len(originals):
            yield f"{step}: {many(len(ours), 'command')} here, {len(originals)} in the original"
        other = [one for one in originals if one not in ours]
        here, there = next(zip((one for one in ours if one not in originals), other, strict=False), ("", ""))
        words = [word for word in here.split() if word not in there.split()]
        others = [word for word in there.split() if word not in here.split()]
        if here:
            yield f"{step}: {' '.join(words) or 'nothing'} stands here for {' '.join(others) or 'nothing'} in the original"


def _mode_plan(
    slots: Slots, suite: Suite, mode: Mode, alignment: AlignmentParams | None, options: Options
) -> tuple[Plan | None, list[LintFinding]]:
    found: list[LintFinding] = []
    for _ in range(2 * len(slots)):
        reader = SpecReader(slots, suite, mode, collect=True)
        try:
            spec = reader.spec(alignment)
            plan = expand(spec, next(iter(slots.values())).file, options)
        except ParamsError as error:
            operator = shell_operator(str(error.found or ""))
            found += [*reader.findings, refusal(error, "no-shell" if operator else "value")]
            # ``slots`` with the line that ``error`` names taken for a harmless one.
            changed = dict(slots)
            for role, slot in slots.items():
                if slot.line == error.line and slot.line:
                    harmless = "program.py" if PROGRAMS.fullmatch(role) else HARMLESS.get(role, "null")
                    again = slot.value == harmless and slot.key not in NOTHING
                    changed[role] = slot._replace(value=harmless, key="null" if again else slot.key)
            slots, before = changed, slots
            if slots == before:
                return None, found
        else:
            return plan, [*found, *plan.findings]
    return None, found


def _sorted(
    findings: Iterable[LintFinding], per_mode: Mapping[Mode, Sequence[LintFinding]] | None = None
) -> tuple[Found, ...]:
    modes: dict[LintFinding, list[str]] = {}
    for mode, own in (per_mode or {}).items():
        for finding in dict.fromkeys(own):
            modes.setdefault(finding, []).append(mode.value)
    found = [Found(finding=one) for one in findings]
    found += [Found(one, () if len(own) == len(per_mode or ()) else tuple(own)) for one, own in modes.items()]

    def place(one: Found) -> tuple[int, int, str, str]:
        finding = one.finding
        rank = SEVERITIES.index(finding.severity)
        return (finding.line or 10**9, rank, finding.code, finding.message)

    return tuple(sorted(dict.fromkeys(found), key=place))
