"""Look at parameter files without running anything: what is wrong, what is useless, what differs from the original.

Every mode that the suite has is planned; what is found in all of them is said once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tipchain.chain.build import SpecReader
from tipchain.chain.detect import checkout, detect_suite, fits, marks_in_checkout, marks_in_file
from tipchain.chain.expand import expand
from tipchain.chain.explain import Line, explain, explain_kind
from tipchain.chain.fixes import SEVERITIES, Finding
from tipchain.chain.kinds import KINDS, TRAIN_INFER, Told, tell_kind
from tipchain.chain.kinds.base import Planner, Request, planner
from tipchain.chain.kinds.lines import choose_layout, only_section
from tipchain.chain.layout import read_layout, refusal
from tipchain.chain.lint_paths import Disk, missing_paths
from tipchain.chain.lint_values import useless_values
from tipchain.chain.params import ParamFile, parse_params, read_params, read_text
from tipchain.chain.plan import Options, Plan
from tipchain.chain.profiles import OWN, all_suites, get_suite
from tipchain.chain.roles import PROGRAMS
from tipchain.chain.slots import (
    ALIGNMENT_SECTION,
    Alignment,
    Slots,
    alignment_params,
    legacy_slots,
)
from tipchain.chain.suites import Suite
from tipchain.chain.words import NOTHING, shell_operator
from tipchain.errors import ParamsError
from tipchain.modes import CHAIN_MODES, Mode

PATTERN = "*train*infer_python*.txt"
OTHER_SECTIONS = frozenset(
    mark.section for kind in KINDS.values() for mark in kind.marks if kind.name != TRAIN_INFER
) - {"train_params"}
"""Sections that the files of other kinds begin with, whatever they are called."""
MAX_REFUSED = 100
"""Lines that cannot be read are told one by one up to here: a file of another kind has thousands."""
# What a line is taken for once it was refused, so that the rest of the file can be looked at.
HARMLESS: Mapping[str, str] = {
    "model_name": "model",
    "python": "python",
    "gpu_list": "-1",
    "train_model_name": "model",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A finding and where it holds.

    Attributes:
        finding: the finding.
        modes: the modes that have it; () for all that were looked at.
    """

    finding: Finding
    modes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Linted:
    """What was found in one file.

    Attributes:
        file: the file.
        readable: whether it could be read at all.
        suite: the profile's name, "" where none was looked for.
        chain: the kind of chain.
        title: whose driver the profile is of.
        reason: why it was taken for that suite.
        modes: the modes that were looked at.
        found: the findings, by line.
        lines: what each line means, () unless asked for.
    """

    file: str
    readable: bool = True
    suite: str = ""
    chain: str = TRAIN_INFER
    title: str = ""
    reason: str = ""
    modes: tuple[str, ...] = ()
    found: tuple[Found, ...] = ()
    lines: tuple[Line, ...] = ()

    def count(self, severity: str) -> int:
        """Return the number of findings of a severity."""
        return sum(one.finding.severity == severity for one in self.found)


def named_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield ``paths``; of a folder the parameter files below it, without those of drivers that tipchain does not run."""
    for path in paths:
        if path.is_dir():
            yield from (one for one in sorted(path.rglob("*.txt")) if _is_of_a_chain(one))
        else:
            yield path


def _is_of_a_chain(path: Path) -> bool:
    """Tell by its name and its first section whether a file is one of a chain's; one that cannot be read is by its name."""
    usual = path.match(PATTERN)
    try:
        headers = read_params(path).headers
    except ParamsError:
        return usual  # it is looked at, and refused
    first = headers[0][0] if headers else ""
    return usual or first in OTHER_SECTIONS


def lint_file(
    path: Path, *, suite: str | None = None, modes: Sequence[Mode] = CHAIN_MODES, explained: bool = False,
    disk: Disk | None = None, chain: str | None = None,
) -> Linted:  # fmt: skip
    """Return what is to be said about the file at ``path``.

    Args:
        path: the file.
        suite: the profile's name or file; told from the file and its checkout where it is None.
        modes: the modes to look at; klquant_whole_infer only where the suite has it. A file of another kind of chain
            is looked at in that kind's.
        explained: say what each line means, too.
        disk: what is on the disk; to look at each path once for many files.
        chain: the kind of chain; told from the file, and the mode where there is one, if it is None.

    Raises:
        ProfileError: the suite's profile is wrong.
        UsageError: unknown kind or suite.
    """
    try:
        text = read_text(path)
    except ParamsError as error:
        return Linted(file=str(path), readable=False, found=(Found(finding=refusal(error, "unreadable")),))
    file, refused = _parsed(text, str(path))
    if "\r\n" in text:
        refused.append(
            _remark(file, "lines end with CR LF; the original takes the CR for part of each value")
        )
    root = checkout(path)
    told = tell_kind(file, modes[0] if len(modes) == 1 else None, chain)
    if told.kind.module:
        return _lint_kind(text, file, told, root, suite, refused, explained=explained)
    chosen = get_suite(suite) if suite else detect_suite(file, root=root)
    reason = "named by --suite" if suite else _reason(file, chosen, root)
    modes = tuple(mode for mode in modes if mode is not Mode.KLQUANT_WHOLE_INFER or chosen.klquant)
    slots, layout = read_layout(file, chosen)
    found = [*refused, *layout]
    if layout and (others := _fitting(file)):
        found.append(_remark(file, f"the file fits the layout of {others}", "sections"))
    linted = Linted(
        file=str(path), suite=chosen.name, title=chosen.title, reason=reason,
        modes=tuple(mode.value for mode in modes),
    )  # fmt: skip
    if slots is None:
        return replace(linted, found=_sorted(Found(finding=one) for one in found))
    plans, per_mode = _planned(text, file, slots, chosen, modes)
    found += useless_values(slots, chosen, plans)
    found += missing_paths(slots, chosen, root, disk or Disk())
    together = [*(Found(finding=one) for one in found), *_merged(per_mode)]
    lines = explain(file, chosen, slots, plans) if explained else ()
    return replace(linted, found=_sorted(together), lines=lines)


def _lint_kind(
    text: str, file: ParamFile, told: Told, root: Path | None, suite: str | None, refused: Sequence[Finding],
    *, explained: bool,
) -> Linted:  # fmt: skip
    """Return what is to be said about a file of another kind of chain, in that kind's modes."""
    kind, module = told.kind, planner(told.kind)
    options = Options(root=str(Path.cwd()))
    requests = [
        Request(text=text, file=file, mode=mode, root=root, suite=suite, lenient=True, options=options)
        for mode in kind.modes
    ]
    own = only_section(file, kind.section)
    layout = choose_layout(replace(requests[0], file=own), module.LAYOUTS)
    slots, found = read_layout(own, layout)
    linted = Linted(
        file=file.path, suite=layout.suite, chain=kind.name, title=kind.title, reason=told.reason,
        modes=tuple(mode.value for mode in kind.modes),
    )  # fmt: skip
    if slots is None:
        return replace(linted, found=_sorted(Found(finding=one) for one in (*refused, *found)))
    plans = [_kind_plan(module, request) for request in requests]
    per_mode = {request.mode: findings for request, (_, findings) in zip(requests, plans, strict=True)}
    plan = next((one for one, _ in plans if one), None)
    together = [*(Found(finding=one) for one in (*refused, *found)), *_merged(per_mode)]
    lines = explain_kind(own, slots, module.MEANINGS, plan) if explained else ()
    return replace(linted, found=_sorted(together), lines=lines)


def _kind_plan(module: Planner, request: Request) -> tuple[Plan | None, Sequence[Finding]]:
    try:
        plan = module.plan(request)
    except ParamsError as error:
        return None, [refusal(error, "value")]
    return plan, plan.findings


# The file and its suite


def _parsed(text: str, path: str) -> tuple[ParamFile, list[Finding]]:
    """Return ``text`` parsed, and the lines that cannot be; they are taken for what they resemble."""
    found: list[Finding] = []
    more = 0

    def refuse(error: ParamsError) -> None:
        nonlocal more
        if len(found) < MAX_REFUSED:
            found.append(refusal(error, "text"))
        else:
            more += 1

    file = parse_params(text, path, refuse)
    if more:
        message = f"{more} more lines that cannot be read"
        found.append(Finding(code="text", severity="error", file=path, line=0, key="", message=message))
    return file, found


def _reason(file: ParamFile, suite: Suite, root: Path | None) -> str:
    """Return why ``file`` was taken for one of ``suite``."""
    if root is not None and (root / OWN).is_file():
        return f"the checkout has a profile of its own, {root / OWN}"
    if any(name == ALIGNMENT_SECTION for name, _ in file.headers):
        return f"only {suite.name}'s files have a section [{ALIGNMENT_SECTION}]"
    reasons = [f"its lines fit the layout of {suite.name}" if fits(file, suite) else "no layout fits"]
    if marks := marks_in_file(file, suite):
        reasons.append("it has " + ", ".join(marks))
    if marks := marks_in_checkout(suite, root):
        reasons.append("its checkout has " + ", ".join(marks))
    if len(reasons) == 1:
        reasons.append("it bears no suite's marks")
    return "; ".join(reasons)


def _fitting(file: ParamFile) -> str:
    return ", ".join(suite.name for suite in all_suites() if fits(file, suite))


def _remark(file: ParamFile, message: str, code: str = "text") -> Finding:
    return Finding(code=code, severity="info", file=file.path, line=0, key="", message=message)


# The modes


def _planned(
    text: str, file: ParamFile, slots: Slots, suite: Suite, modes: Sequence[Mode]
) -> tuple[Mapping[Mode, Plan], Mapping[Mode, Sequence[Finding]]]:
    """Return the plan of each mode that can be made, and what was found on the way."""
    original = legacy_slots(text, file.path, suite)
    alignment, refused = _alignment(file)
    compared = _compared(slots, original, suite)
    plans: dict[Mode, Plan] = {}
    found: dict[Mode, list[Finding]] = {mode: list(refused) for mode in modes}
    for mode in modes:
        plan, findings = _mode_plan(slots, original, suite, mode, alignment, compared)
        found[mode] += findings
        if plan is not None:
            plans[mode] = plan
    return plans, found


def _compared(slots: Slots, original: Slots, suite: Suite) -> list[Finding]:
    """Return what the original driver would read otherwise, in whatever mode."""
    reader = SpecReader(slots, suite, CHAIN_MODES[0], collect=True)
    reader.compare(original)
    return reader.findings


def _alignment(file: ParamFile) -> tuple[Alignment | None, list[Finding]]:
    try:
        return alignment_params(file), []
    except ParamsError as error:
        return None, [refusal(error, "alignment")]


def _mode_plan(
    slots: Slots,
    original: Slots,
    suite: Suite,
    mode: Mode,
    alignment: Alignment | None,
    compared: list[Finding],
) -> tuple[Plan | None, list[Finding]]:
    """Return a mode's plan and findings; lines that are refused become findings and are taken for harmless."""
    found: list[Finding] = []
    for _ in range(2 * len(slots)):
        reader = SpecReader(slots, suite, mode, collect=True)
        reader.findings += compared
        try:
            spec = reader.spec(alignment)
            plan = expand(spec, next(iter(slots.values())).file, Options(root=str(Path.cwd())))
        except ParamsError as error:
            operator = shell_operator(str(error.found or ""))
            found += [*reader.findings, refusal(error, "no-shell" if operator else "value")]
            slots, before = _without(slots, error), slots
            if slots == before:
                return None, found
            compared = _compared(slots, original, suite)
        else:
            return plan, [*found, *plan.findings]
    return None, found


def _without(slots: Slots, error: ParamsError) -> Slots:
    """Return ``slots`` with the line that ``error`` names taken for a harmless one."""
    changed = dict(slots)
    for role, slot in slots.items():
        if slot.line == error.line and slot.line:
            harmless = "program.py" if PROGRAMS.fullmatch(role) else HARMLESS.get(role, "null")
            again = slot.value == harmless and slot.key not in NOTHING
            changed[role] = replace(slot, value=harmless, key="null" if again else slot.key)
    return changed


def _merged(per_mode: Mapping[Mode, Sequence[Finding]]) -> Iterator[Found]:
    """Yield each finding once, with the modes that have it unless all do."""
    modes: dict[Finding, list[str]] = {}
    for mode, findings in per_mode.items():
        for finding in dict.fromkeys(findings):
            modes.setdefault(finding, []).append(mode.value)
    for finding, own in modes.items():
        yield Found(finding=finding, modes=() if len(own) == len(per_mode) else tuple(own))


def _sorted(found: Iterable[Found]) -> tuple[Found, ...]:
    """Return findings by line, those of the whole file last, each once."""

    def place(one: Found) -> tuple[int, int, str, str]:
        finding = one.finding
        rank = SEVERITIES.index(finding.severity)
        return (finding.line or 10**9, rank, finding.code, finding.message)

    return tuple(sorted(dict.fromkeys(found), key=place))
