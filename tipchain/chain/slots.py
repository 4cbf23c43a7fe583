"""From the lines of a file to slots: the meaning and purpose of each line, and where it does not fit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tipchain.chain.kinds import KINDS, TRAIN_INFER, Mark
from tipchain.chain.params import NOTHING, Param, ParamFile, Slot, split_lines
from tipchain.chain.profiles import SHIPPED
from tipchain.chain.suites import LintFinding, SlotRule
from tipchain.errors import InputError, ParamsError, did_you_mean
from tipchain.modes import SCRIPTS, STAGES

# Two ways. ``checked_slots`` holds the file against the suite's layout, by section headers, known keys and the
# number of lines; a shifted file is refused. ``legacy_slots`` counts lines as the original drivers do.


Slots = Mapping[str, Slot]
ALIGNMENT_SECTION = "alignment_params"
ALIGNMENT_KEYS = ("alignment", "steps")
TO_STATIC_SECTION = "to_static_train_benchmark_params"
ALIKE = 0.8
"""From this ratio of difflib's on the name of a section is a mistyped one; other drivers' are none of ours."""


if TYPE_CHECKING:
    from tipchain.chain.kinds.base import Layout
    from tipchain.chain.suites import Suite

    Lines: TypeAlias = Suite | Layout
    """How a driver reads lines: a suite's, or another kind of chain's."""


class Section(NamedTuple):
    """One section of a layout; ``names`` are those that its header may have."""

    names: tuple[str, ...]
    rules: tuple[SlotRule, ...]


def layout_sections(suite: Lines, file: ParamFile) -> tuple[Section, ...]:
    """Return the sections that ``file`` should have; one that may be missing joins the one before it."""
    sections: list[tuple[tuple[str, ...], list[SlotRule]]] = []
    for rule in suite.layout:
        if rule.kind == "header" or (
            rule.kind == "optional header"
            and any(name in rule.keys for name, _ in file.headers[len(sections) : len(sections) + 1])
        ):
            sections.append((rule.keys, []))
        elif rule.kind in ("slot", "optional"):
            sections[-1][1].append(rule)
    return tuple(Section(names=names, rules=tuple(rules)) for names, rules in sections)


def checked_slots(file: ParamFile, suite: Lines) -> Slots:
    """Return the slots of ``file`` by role.

    Raises:
        ParamsError: a section or line is missing, added or out of place, with file and line.
    """
    sections = layout_sections(suite, file)
    check_headers(file, sections)
    slots: dict[str, Slot] = {}
    for number, section in enumerate(sections):
        if number < len(file.headers):
            slots.update(section_slots(file, sections, number))
        else:
            slots.update(
                (rule.role, Slot(role=rule.role, key="null", value="null", file=file.path, line=0))
                for rule in section.rules
                if rule.kind == "slot"
            )
    if suite.to_static:
        params = file.section(TO_STATIC_SECTION)
        slots.update([("to_static", _slot(file, "to_static", params[0]))] if params else [])
    return {**slots, **_lacking(slots, suite, file.path)}


OPTIONAL_DATA = SlotRule(kind="optional", role="infer_data")
"""The rule of a layout whose files need no line for the data of inference."""


def _lacking(slots: Slots, suite: Lines, path: str) -> Slots:
    norm = {"trainer": slots["train_norm"].key} if "trainer" in suite.lacks else {}
    roles = suite.lacks | (({"infer_data", "model_dir"} - slots.keys()) if OPTIONAL_DATA in suite.layout else set())
    return {role: Slot(role=role, key="null", value=norm.get(role, "null"), file=path, line=0) for role in roles}


def check_headers(file: ParamFile, sections: tuple[Section, ...]) -> None:
    """Refuse headers that are missing, out of place or mistyped.

    Raises:
        ParamsError: they are.
    """
    for index, section in enumerate(sections):
        name = section.names[0]
        if index >= len(file.headers):
            if ends_after_evaluation(file, sections):
                break
            raise ParamsError(
                f"the section [{name}] is missing",
                file=file.path,
                line=max(len(file.lines), 1),
                expected=f"===...{name}...===",
            )
        found, line = file.headers[index]
        if found not in section.names:
            hint = did_you_mean(found, section.names)
            kind = next((one for one in KINDS.values() if Mark(found) in one.marks and one.name != TRAIN_INFER), None)
            hint = (f"this is a file for {kind.driver}: --chain {kind.name}" if kind else "") or hint
            raise ParamsError(
                f"expected the section [{name}]", file=file.path, line=line, found=f"[{found}]", hint=hint
            )
    read = {name for name, _ in file.headers[: len(sections)]}
    for found, line in file.headers[len(sections) :]:
        if found in read:
            raise ParamsError(f"the section [{found}] stands twice", file=file.path, line=line)
        if found == ALIGNMENT_SECTION:
            read.add(found)
            continue
        from difflib import SequenceMatcher  # few files have a section that is nobody's

        if SequenceMatcher(None, ALIGNMENT_SECTION, found).ratio() >= ALIKE:
            hint = f"did you mean {ALIGNMENT_SECTION!r}?"
            raise ParamsError(f"unknown section [{found}]", file=file.path, line=line, hint=hint)


def ends_after_evaluation(file: ParamFile, sections: Sequence[Section]) -> bool:
    """Return whether ``file`` has the sections up to that of the evaluation and none more: it only trains."""
    last = sections[len(file.headers) - 1 : len(file.headers)]
    return bool(last) and last != sections[-1:] and any(rule.role == "eval" for rule in last[0].rules)


def section_slots(file: ParamFile, sections: Sequence[Section], number: int) -> Sequence[tuple[str, Slot]]:
    """Return the slots of one section by role; a line that nothing reads may have any key.

    Raises:
        ParamsError: a line is missing, added or out of place.
    """
    section, header = sections[number], file.headers[number][0]
    params = file.section(header)
    pairs, rule, param = _fit(section.rules, params)
    if rule or param:
        idle = _idle_pairs(file, sections, number)
        if idle is None:
            raise _misfit(file, section, header, pairs, rule, param)
        pairs = idle
    return [(rule.role, _slot(file, rule.role, param)) for rule, param in _by_name(section, pairs)]


def _by_name(section: Section, pairs: Pairs) -> Pairs:
    """Give the last line to the role of its key, where lines are missing whose arguments the program has."""
    (rule, param), own = pairs[-1], [one.value.split() for rule, one in pairs if rule.role == "inference"]
    if OPTIONAL_DATA not in section.rules or len(own[0]) < 2 or not _odd(section, rule, param):
        return pairs
    rules = [one for one in section.rules[section.rules.index(rule) :] if one.kind == "optional"]
    named = next((one for one in rules if re.search(roles("words").get(one.role, "^$"), param.key)), rule)
    return [*pairs[:-1], (named, param)]


def _misfit(
    file: ParamFile, section: Section, header: str, pairs: Pairs, rule: SlotRule | None, param: Param | None
) -> ParamsError:
    count, line, found, hint = len(file.section(header)), 0, None, None
    if rule and param:
        message, line = f"expected {wanted(rule)}, found `{param.key}:`; is a line missing or added above?", param.line
        hint = did_you_mean(param.key, [key for key in rule.keys if "*" not in key])
    elif param:
        message = f"section [{header}] has {count} lines, expected {len(pairs)}; is a line added above?"
        line, found = param.line, f"{param.key}:{param.value}"
    elif rule:
        missing = sum(one.kind == "slot" for one in section.rules[section.rules.index(rule) :])
        start = next(line for name, line in file.headers if name == header)
        line = max(next((line for _, line in file.headers if line > start), len(file.lines) + 1) - 1, 1)
        message = (
            f"section [{header}] has {count} lines, expected {count + missing}: "
            f"expected {wanted(rule)}, found its end; is a line missing above?"
        )
    return ParamsError(message, file=file.path, line=line, found=found, hint=hint)


def wanted(rule: SlotRule) -> str:
    """Return the possible keys on the line for ``rule``, for messages."""
    named = [key for key in rule.keys if key != "null"] or rule.keys
    return " or ".join(f"`{key}:`" for key in named) if named else f"the line for {rule.role}"


def _slot(file: ParamFile, role: str, param: Param) -> Slot:
    return Slot(role=role, key=param.key, value=param.value.strip(), file=file.path, line=param.line)


def legacy_slots(text: str, path: str, suite: Lines, *, whole: bool = False) -> Slots:
    """Return the slots as the original drivers count them.

    They drop empty lines, look no key up, and cut values at the second ``:``, which ``whole`` leaves out; some read the
    first lines only.
    """
    physical = split_lines(text)
    numbered = [(number, line) for number, line in enumerate(physical, 1) if line]
    if suite.reads is not None:
        numbered = [(number, line) for number, line in numbered if number <= suite.reads]
    slots = {}
    for index, rule in enumerate(suite.layout):
        if rule.role:
            number, line = numbered[index] if index < len(numbered) else (0, "")
            slots[rule.role] = _legacy_slot(rule.role, line, number, path, suite)
    if suite.to_static:
        header = next((n for n, line in enumerate(physical, 1) if has_word(line, TO_STATIC_SECTION)), 0)
        number, line = numbered[header] if header < len(numbered) else (0, "")
        slots["to_static"] = _legacy_slot("to_static", line, number, path, suite)
    slots |= _lacking(slots, suite, path)
    for role, slot in slots.items():
        if not whole and role not in suite.uncut:
            value = slot.value if suite.rest else slot.value.partition(":")[0]
            slots[role] = slot._replace(key=_echoed(slot.key), value=_echoed(value))
    return slots


def has_word(line: str, word: str) -> bool:
    """Return whether a word stands in a line, as ``grep -w`` sees it."""
    return re.search(rf"(?<!\w){word}(?!\w)", line) is not None


def _legacy_slot(role: str, line: str, number: int, path: str, suite: Lines) -> Slot:
    key, colon, rest = line.partition(":")
    value = line if suite.rest and not colon else rest
    return Slot(role=role, key=key, value=value, file=path, line=number)


def _echoed(text: str) -> str:
    return "" if text.startswith("-") and re.fullmatch(r"-[neE]+", text) else text


class AlignmentParams(NamedTuple):
    """The requests of a file's ``alignment_params``: the case file, and numbers of scripts or names of stages."""

    case: str
    steps: tuple[str, ...]


def own_section(file: ParamFile, name: str, keys: Sequence[str]) -> Mapping[str, Param]:
    """Return the lines of a section that no original reads, by key.

    Raises:
        ParamsError: an unknown or repeated key.
    """
    found: dict[str, Param] = {}
    for param in file.section(name):
        if param.key not in keys or param.key in found:
            raise ParamsError(
                "stands twice" if param.key in found else f"unknown key in [{name}]",
                file=file.path,
                line=param.line,
                key=param.key,
                expected=", ".join(keys),
                hint=did_you_mean(param.key, keys),
            )
        found[param.key] = param
    return found


def alignment_params(file: ParamFile) -> AlignmentParams | None:
    """Return the file's alignment section, or None where there is none or its case is ``null``.

    Raises:
        ParamsError: an unknown, repeated or missing key, an empty case, an unknown step.
    """
    header = next((line for name, line in file.headers if name == ALIGNMENT_SECTION), None)
    if header is None:
        return None
    found = own_section(file, ALIGNMENT_SECTION, ALIGNMENT_KEYS)
    for key in ALIGNMENT_KEYS:
        if key not in found or not found[key].value.strip():
            raise ParamsError(
                f"[{ALIGNMENT_SECTION}] needs `{key}:`",
                file=file.path,
                line=found[key].line if key in found else header,
            )
    steps = _slot(file, "steps", found["steps"])
    for step in steps.values:
        if step not in SCRIPTS and step not in STAGES:
            raise steps.error(
                f"unknown step {step!r}", expected="|".join((*SCRIPTS, *STAGES)), hint=did_you_mean(step, STAGES)
            )
    case = _slot(file, "alignment", found["alignment"])
    return None if case.absent else AlignmentParams(case=case.value, steps=tuple(dict.fromkeys(steps.values)))


PROGRAMS = re.compile(
    r"train_(norm|pact|fpgm|distill|x1|x2)|eval|export_(norm|pact|fpgm|distill|x1|x2|kl_quant)|inference"
)


@cache
def roles(table: str) -> Mapping[str, str]:
    """Return the facts of lines, by role: a kind's meanings, ``all`` kinds', or how values and keys look."""
    from tipchain.core.yaml_reader import load_yaml

    path = SHIPPED / "kinds/roles.yaml"
    found: Mapping[str, str] = load_yaml(path, "a kind's data").data.get(table, {})
    return found


@lru_cache(maxsize=4096)
def looks_like(role: str, value: str) -> bool:
    """Return whether ``value`` looks like one that ``role`` has; an empty one may stand anywhere."""
    if PROGRAMS.fullmatch(role):
        return value.strip() in ("", "null", "False") or ".py" in value or " " in value.strip()
    pattern = roles("looks").get(role)
    parts = value.strip().split("|") if value.strip() else ()
    return pattern is None or all(re.fullmatch(pattern, part.strip()) for part in parts if part.strip())


@lru_cache(maxsize=4096)
def sounds_like(role: str, key: str) -> bool:
    """Return whether ``key`` may name ``role``: a usual word for it, or no other kind of training or export."""
    if word := roles("words").get(role):
        return key in ("", "null") or re.search(word, key, re.IGNORECASE) is not None
    step, _, kind = role.partition("_")
    kinds = roles("trainers")
    if step not in ("train", "export") or kind not in (*kinds, "x1", "x2", "kl_quant"):
        return True
    named = next((name for name, pattern in kinds.items() if re.search(pattern, key)), None)
    return named in (None, kind) or (kind == "kl_quant" and named == "pact")


def stands_right(rule: SlotRule, slot: Slot) -> bool:
    """Return whether a line looks as if it stood for ``rule``, by its key and its value."""
    return rule.allows(slot.key) and looks_like(rule.role, slot.value) and sounds_like(rule.role, slot.key)


def meaning(role: str, kind: str = "all") -> str:
    """Return the purpose of ``role`` in a kind of chain; roles of users' own profiles are arguments."""
    found = roles(kind)
    return found.get(role) or roles("all").get(role, f"{role.replace('_', ' ')}, a line of the suite's own")


# The drivers count lines, so what is wrong on one line shows on another. Here each change of one line that would make
# the section fit is tried; of those the ones count in which the values look like what their lines are for.


CODE = "sections"
# Stands for a line that is not there; it fits every rule but an optional one.
_MISSING = Param(section="", key="", value="", line=0)
Pairs = Sequence[tuple[SlotRule, Param]]


class _Change(NamedTuple):
    """A ``rename``, ``insert`` or ``delete`` of one line of a section, which then fits.

    ``rule`` is that of the line, None for a deleted one; ``oddities`` of the values look out of place afterwards.
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
    errors = [one for one in findings if one.severity == "error"]
    if slots is not None and not errors:
        return slots
    first = errors[0]
    try:
        checked_slots(file, suite)
    except ParamsError as error:
        if first.message.startswith(error.message):
            raise  # the same, in parts
    raise ParamsError(first.message, file=first.file, line=first.line)


def read_layout(file: ParamFile, suite: Lines) -> tuple[Slots | None, tuple[LintFinding, ...]]:
    """Return the slots of ``file`` and the lines that do not fit; None for slots that cannot be told.

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
    for number in range(min(len(sections), len(file.headers))):
        finding, change = _examine(file, sections, number)
        findings += [finding] if finding else []
        if change is not None and change.kind == "rename":
            param = file.section(file.headers[number][0])[change.place]
            keys = change.rule.keys if change.rule else ()
            key = next((key for key in keys if "*" not in key), param.key)
            params = tuple(one._replace(key=key) if one is param else one for one in renamed.params)
            renamed = renamed._replace(params=params)
        elif finding:
            plain = plain and finding.severity != "error"
    if all(one.severity != "error" for one in findings):
        return slots, (*findings, *(() if first is None else (refusal(first, CODE),)))
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
        params = file.section(file.headers[number][0])
        try:
            section_slots(file, sections, number)
        except ParamsError:
            odd = [change.oddities for change in _changes(section, params)]
            total += 1 + min(odd, default=len(params))
    return total


def refusal(error: InputError, code: str) -> LintFinding:
    """Return an error as a finding."""
    parts = [error.message]
    if error.hint:
        parts.append(error.hint)
    elif error.expected is not None:
        parts.append(f"expected {error.expected}")
    if error.found is not None and not error.key and str(error.found) not in error.message:
        parts.append(f"found: {error.found}")
    return LintFinding(code, "error", str(error.file), error.line or 0, error.key or "", "; ".join(parts))


def _examine(file: ParamFile, sections: Sequence[Section], number: int) -> tuple[LintFinding | None, _Change | None]:
    section, (header, start) = sections[number], file.headers[number]
    params = file.section(header)
    severity = "error"
    try:
        section_slots(file, sections, number)
    except ParamsError as caught:
        error, changes = caught, _best(list(_changes(section, params)))
        changes = changes or _best(list(_changes(section, params, _idle_exports(file, sections))))
    else:
        pairs = () if _fitted(section.rules, params) else _idle_pairs(file, sections, number) or ()
        own = {param: param._replace(key=rule.keys[0]) for rule, param in pairs if not rule.allows(param.key)}
        changes = _shifts(section, [own.get(param, param) for param in params])
        fitted = _by_name(section, _fitted(section.rules, params) or pairs)
        odd = next(((rule, param) for rule, param in fitted if _odd(section, rule, param)), None)
        if not changes and odd and len(section.rules) - len(fitted) > 1 and OPTIONAL_DATA in section.rules:
            message = (
                f"section [{header}] has {len(params)} lines, and this one stands for another: {meaning(odd[0].role)}"
            )
            return refusal(ParamsError(message, file=file.path, line=odd[1].line, key=odd[1].key), CODE), None
        if not changes:
            return None, None
        error = ParamsError(f"section [{header}] has {len(params)} lines, expected {len(params) + 1}")
        severity = "info" if all(_infers_nothing(params[: change.place], change) for change in changes) else severity
    if not changes:
        return refusal(error, CODE), None
    end = next((line for _, line in file.headers[number + 1 :]), len(file.lines) + 1)
    message, line = _said(changes, params, (start, end), error)
    message += "; no line there is read, for the inference is null" if severity == "info" else ""
    finding = LintFinding(code=CODE, severity=severity, file=file.path, line=line, key="", message=message)
    return finding, changes[0] if len(changes) == 1 else None


def _shifts(section: Section, params: Sequence[Param]) -> Sequence[_Change]:
    """Return where a line is missing, with which fewer values look out of place; the section's last lines may be absent."""
    last = tuple(takewhile(lambda rule: rule.kind == "optional", reversed(section.rules)))
    pairs = _fitted(section.rules, params)
    if pairs is None or {rule for rule, _ in pairs}.issuperset(last):
        return ()
    odd = sum(_odd(section, rule, param) for rule, param in pairs)
    return _best([one for one in _changes(section, params) if one.kind == "insert" and one.oddities < odd])


def _infers_nothing(above: Sequence[Param], change: _Change) -> bool:
    programs = (param for rule, param in change.pairs if rule.role == "inference")
    return any(param in above and param.value.strip() in NOTHING for param in programs)


def _fit(
    rules: Sequence[SlotRule], params: Sequence[Param], idle: frozenset[str] | None = None
) -> tuple[Pairs, SlotRule | None, Param | None]:
    """Return which line is for which rule, and the first of both that do not fit; ``idle`` roles may have any key."""
    pairs: list[tuple[SlotRule, Param]] = []
    for rule in rules:
        param = params[len(pairs)] if len(pairs) < len(params) else None
        fits = param is not None and (rule.allows(param.key) if param is not _MISSING else rule.kind == "slot")
        if idle is not None and param is not None and rule.kind == "slot":
            fits = fits or param.value.strip() == "null" or rule.role in idle
        if rule.kind == "optional" and not fits:
            continue
        if param is None or not fits:
            return pairs, rule, param
        pairs.append((rule, param))
    return pairs, None, params[len(pairs)] if len(pairs) < len(params) else None


def _fitted(rules: Sequence[SlotRule], params: Sequence[Param], idle: frozenset[str] | None = None) -> Pairs | None:
    pairs, *wrong = _fit(rules, params, idle)
    return None if any(wrong) else pairs


def _idle_pairs(file: ParamFile, sections: Sequence[Section], number: int) -> Pairs | None:
    # Keys may be wrong on lines that nothing reads. A line missing or added, after which they are right and no more values
    # look out of place, is that instead.
    section, params = sections[number], file.section(file.headers[number][0])
    idle = _idle_exports(file, sections)
    pairs = _fitted(section.rules, params, idle)
    if pairs is None:
        return None
    wrong = [(rule, param) for rule, param in pairs if not rule.allows(param.key)]
    rest = [(rule, param) for rule, param in pairs if rule.allows(param.key)]
    names = {key for rule in section.rules for key in rule.keys if "*" not in key and key != "null"}
    if any(not rule.keys and param.key in names for rule, param in rest):
        return None  # what stands there is another line's
    odd = len(wrong) + sum(_odd(section, rule, param) for rule, param in rest)
    shifts = [one for one in _changes(section, params) if one.kind != "rename" and one.oddities <= odd]
    shifts += [one for one in _changes(section, params, idle) if one.kind != "rename" and one.oddities < odd]
    return None if shifts else pairs


def _idle_exports(file: ParamFile, sections: Sequence[Section]) -> frozenset[str]:
    for section, (header, _) in zip(sections, file.headers, strict=False):
        pairs = _fitted(section.rules, file.section(header), frozenset())
        if pairs and any(rule.role == "trainer" for rule, _ in pairs):
            kinds = (rule.role.removeprefix("train_") for rule, param in pairs if param.value.strip() == "null")
            return frozenset(f"export_{kind}" for kind in kinds)
    return frozenset()


def _changes(section: Section, params: Sequence[Param], idle: frozenset[str] | None = None) -> Iterator[_Change]:
    if len(params) > len(section.rules) + 1:
        return  # a line is for one rule at most: no one change is enough
    for kind, last in (("rename", 0), ("insert", 1), ("delete", 0)):
        for place in range(len(params) + last):
            new = {"rename": [_MISSING], "insert": [_MISSING], "delete": []}[kind]
            rest = params[place:] if kind == "insert" else params[place + 1 :]
            pairs = _fitted(section.rules, (*params[:place], *new, *rest), idle)
            if pairs is None:
                continue
            rule = next((rule for rule, param in pairs if param is _MISSING), None)
            if kind == "rename" and rule is not None:
                pairs = [(rule, params[place]) if param is _MISSING else (rule, param) for rule, param in pairs]
            there = [(rule, param) for rule, param in pairs if param is not _MISSING]
            odd = sum(
                _odd(section, rule, param) or (idle is not None and not rule.allows(param.key)) for rule, param in there
            )
            yield _Change(kind=kind, place=place, rule=rule, oddities=odd, pairs=pairs)


def _odd(section: Section, rule: SlotRule, param: Param) -> bool:
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
    first, last = changes[0], changes[-1]
    if first.kind == "rename":
        param = params[first.place]
        keys = [] if first.rule is None else [key for key in first.rule.keys if "*" not in key]
        hint = did_you_mean(param.key, keys)
        wanted_key = "" if first.rule is None else wanted(first.rule)
        return f"expected {wanted_key}, found `{param.key}:`" + (f"; {hint}" if hint else ""), param.line
    if first.kind == "delete":
        one, other = params[first.place], params[last.place]
        if one is other:
            return f"line {one.line} is one too many: `{one.key}:{one.value}`", one.line
        return f"one of the lines {one.line} to {other.line} is too many", one.line
    before = params[first.place - 1].line if first.place else bounds[0]
    after = params[last.place].line if last.place < len(params) else bounds[1]
    seen = error.message.partition(";")[0].partition(": expected")[0]
    where = f"line {error.line}: " if seen.startswith("expected") and error.line != after else ""
    place = f"between lines {before} and {after}" if after - before > 1 else f"after line {before}"
    rules = list(dict.fromkeys(change.rule for change in changes if change.rule is not None))
    each = [f"{wanted(rule)}, {meaning(rule.role)}" if rule.keys else meaning(rule.role) for rule in rules]
    return f"{where}{seen}: a line is missing {place}" + (f" ({'; or '.join(each)})" if len(rules) <= 2 else ""), after
