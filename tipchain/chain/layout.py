"""Where a file does not fit its suite's layout: which line is missing, too many or mistyped.

The drivers count lines, so what is wrong on one line shows on another. Here each change of one line that would make
the section fit is tried; of those the ones count in which the values look like what their lines are for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from tipchain.chain.fixes import Finding
from tipchain.chain.params import Param, ParamFile
from tipchain.chain.roles import looks_like, meaning, sounds_like
from tipchain.chain.slots import (
    Lines,
    Section,
    Slots,
    check_headers,
    checked_slots,
    layout_sections,
    section_slots,
    wanted,
)
from tipchain.chain.suites import SlotRule
from tipchain.errors import InputError, ParamsError, did_you_mean

CODE = "sections"
# Stands for a line that is not there; it fits every rule but an optional one.
_MISSING = Param(section="", key="", value="", line=0)
Pairs = Sequence[tuple[SlotRule, Param]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """A change of one line after which a section fits.

    Attributes:
        kind: ``rename`` (another key), ``insert`` or ``delete``.
        place: index among the section's lines.
        rule: what the renamed or inserted line is for; None for a deleted one.
        oddities: number of values that look out of place afterwards.
        pairs: the rules and lines afterwards.
    """

    kind: str
    place: int
    rule: SlotRule | None
    oddities: int
    pairs: Pairs


def read_slots(file: ParamFile, suite: Lines) -> Slots:
    """Return the slots of ``file`` by role.

    Raises:
        ParamsError: a section or line is missing, added, mistyped or out of place; names the line that is, where the
            lines around it tell.
    """
    slots, findings = read_layout(file, suite)
    if slots is not None and not findings:
        return slots
    first = findings[0]
    try:
        checked_slots(file, suite)
    except ParamsError as error:
        if first.message.startswith(error.message):
            raise  # the same, in parts
    raise ParamsError(first.message, file=first.file, line=first.line)


def read_layout(file: ParamFile, suite: Lines) -> tuple[Slots | None, tuple[Finding, ...]]:
    """Return the slots of ``file`` and what does not fit; None for slots that cannot be told.

    A mistyped key is taken for the right one, so that the rest of the file can be looked at.
    """
    slots, first = None, None
    try:
        slots = checked_slots(file, suite)
    except ParamsError as error:
        first = error
    sections = layout_sections(suite, file)
    try:
        check_headers(file, sections)
    except ParamsError as error:
        return None, (refusal(error, CODE),)
    findings, renamed, plain = [], file, True
    for number, section in enumerate(sections[: len(file.headers)]):
        finding, change = _examine(file, section, number)
        findings += [finding] if finding else []
        if change is not None and change.kind == "rename":
            renamed = _renamed(renamed, file.section(file.headers[number][0])[change.place], change)
        elif finding:
            plain = False
    if not findings:
        return slots, () if first is None else (refusal(first, CODE),)
    return checked_slots(renamed, suite) if plain else None, tuple(findings)


def distance(file: ParamFile, suite: Lines) -> int:
    """Return how far ``file`` is from the layout of ``suite``: 0 if it fits, small if one line of it is wrong."""
    sections = layout_sections(suite, file)
    try:
        check_headers(file, sections)
    except ParamsError:
        return len(file.lines) + 1
    total = 0
    for number, section in enumerate(sections[: len(file.headers)]):
        header, params = file.headers[number][0], file.section(file.headers[number][0])
        try:
            section_slots(file, section, header)
        except ParamsError:
            odd = [change.oddities for change in _changes(section, params)]
            total += 1 + min(odd, default=len(params))
    return total


def refusal(error: InputError, code: str) -> Finding:
    """Return an error as a finding."""
    parts = [error.message]
    if error.hint:
        parts.append(error.hint)
    elif error.expected is not None:
        parts.append(f"expected {error.expected}")
    if error.found is not None and not error.key and str(error.found) not in error.message:
        parts.append(f"found {error.found}")
    return Finding(
        code=code, severity="error", file=str(error.file), line=error.line or 0, key=error.key or "",
        message="; ".join(parts),
    )  # fmt: skip


def _renamed(file: ParamFile, param: Param, change: _Change) -> ParamFile:
    keys = change.rule.keys if change.rule else ()
    key = next((key for key in keys if "*" not in key), param.key)
    params = tuple(replace(one, key=key) if one is param else one for one in file.params)
    return replace(file, params=params)


def _examine(file: ParamFile, section: Section, number: int) -> tuple[Finding | None, _Change | None]:
    """Return what is wrong with a section, and the one change that would mend it if it is plain."""
    header, start = file.headers[number]
    params = file.section(header)
    try:
        section_slots(file, section, header)
    except ParamsError as caught:
        error, changes = caught, _best(list(_changes(section, params)))
    else:
        changes = _shifts(section, params)
        if not changes:
            return None, None
        error = ParamsError(f"section [{header}] has {len(params)} lines, expected {len(params) + 1}")
    if not changes:
        return refusal(error, CODE), None
    end = next((line for _, line in file.headers[number + 1 :]), len(file.lines) + 1)
    message, line = _said(changes, params, (start, end), error)
    finding = Finding(code=CODE, severity="error", file=file.path, line=line, key="", message=message)
    return finding, changes[0] if len(changes) == 1 else None


def _shifts(section: Section, params: Sequence[Param]) -> Sequence[_Change]:
    """Return where a line is missing in a section that fits only because its last lines may be absent.

    That is so where with one more line fewer values look out of place.
    """
    last = tuple(takewhile(lambda rule: rule.kind == "optional", reversed(section.rules)))
    pairs = _fitted(section.rules, params)
    if pairs is None or {rule for rule, _ in pairs}.issuperset(last):
        return ()
    odd = sum(_odd(section, rule, param) for rule, param in pairs)
    return _best([one for one in _changes(section, params) if one.kind == "insert" and one.oddities < odd])


def _fitted(rules: Sequence[SlotRule], params: Sequence[Param]) -> Pairs | None:
    """Return which line is for which rule, or None where they do not fit."""
    pairs, index = [], 0
    for rule in rules:
        param = params[index] if index < len(params) else None
        fits = param is not None and (
            rule.allows(param.key) if param is not _MISSING else rule.kind == "slot"
        )
        if rule.kind == "optional" and not fits:
            continue
        if param is None or not fits:
            return None
        pairs.append((rule, param))
        index += 1
    return pairs if index == len(params) else None


def _changes(section: Section, params: Sequence[Param]) -> Iterator[_Change]:
    """Yield each change of one line after which the section fits."""
    if len(params) > len(section.rules) + 1:
        return  # a line is for one rule at most: no one change is enough
    for kind, last in (("rename", 0), ("insert", 1), ("delete", 0)):
        for place in range(len(params) + last):
            new = {"rename": [_MISSING], "insert": [_MISSING], "delete": []}[kind]
            rest = params[place:] if kind == "insert" else params[place + 1 :]
            pairs = _fitted(section.rules, (*params[:place], *new, *rest))
            if pairs is None:
                continue
            rule = next((rule for rule, param in pairs if param is _MISSING), None)
            if kind == "rename" and rule is not None:
                pairs = [
                    (rule, params[place]) if param is _MISSING else (rule, param) for rule, param in pairs
                ]
            odd = sum(_odd(section, rule, param) for rule, param in pairs if param is not _MISSING)
            yield _Change(kind=kind, place=place, rule=rule, oddities=odd, pairs=pairs)


def _odd(section: Section, rule: SlotRule, param: Param) -> bool:
    """Return whether a line looks as if it stood for something else than ``rule``."""
    elsewhere = not rule.keys and any(param.key in other.keys for other in section.rules)
    named = elsewhere and param.key not in ("", "null")
    return named or not (looks_like(rule.role, param.value) and sounds_like(rule.role, param.key))


def _best(changes: Sequence[_Change]) -> Sequence[_Change]:
    """Return the changes of one kind that leave the fewest values out of place; () where they lie apart."""
    if not changes:
        return ()
    fewest = min(change.oddities for change in changes)
    kind = next(change.kind for change in changes if change.oddities == fewest)
    best = [change for change in changes if change.kind == kind and change.oddities == fewest]
    places = [change.place for change in best]
    return best if places == list(range(places[0], places[-1] + 1)) else ()


def _said(
    changes: Sequence[_Change], params: Sequence[Param], bounds: tuple[int, int], error: ParamsError
) -> tuple[str, int]:
    """Return the message on a section that one change would mend, and its line."""
    first, last = changes[0], changes[-1]
    if first.kind == "rename":
        return _mistyped(first, params[first.place]), params[first.place].line
    if first.kind == "delete":
        one, other = params[first.place], params[last.place]
        if one is other:
            return f"line {one.line} is one too many: `{one.key}:{one.value}`", one.line
        return f"one of the lines {one.line} to {other.line} is too many", one.line
    before = params[first.place - 1].line if first.place else bounds[0]
    after = params[last.place].line if last.place < len(params) else bounds[1]
    seen = error.message.partition(";")[0].partition(": expected")[0]
    where = f"line {error.line}: " if seen.startswith("expected") and error.line != after else ""
    return f"{where}{seen}: a line is missing {_between(before, after)}{_what(changes)}", after


def _between(before: int, after: int) -> str:
    return f"between lines {before} and {after}" if after - before > 1 else f"after line {before}"


def _mistyped(change: _Change, param: Param) -> str:
    keys = [] if change.rule is None else [key for key in change.rule.keys if "*" not in key]
    hint = did_you_mean(param.key, keys)
    wanted_key = "" if change.rule is None else wanted(change.rule)
    return f"expected {wanted_key}, found `{param.key}:`" + (f"; {hint}" if hint else "")


def _what(changes: Sequence[_Change]) -> str:
    """Return what the missing line would be for."""
    rules = list(dict.fromkeys(change.rule for change in changes if change.rule is not None))
    if len(rules) > 2:
        return ""
    each = [f"{wanted(rule)}, {meaning(rule.role)}" if rule.keys else meaning(rule.role) for rule in rules]
    return f" ({'; or '.join(each)})"
