"""From the lines of a file to slots: which line means what.

Two ways. ``checked_slots`` holds the file against the suite's layout, by section headers, known keys and the
number of lines; a shifted file is refused. ``legacy_slots`` counts lines as the original drivers do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tipchain.chain.kinds import owner
from tipchain.chain.params import Param, ParamFile, split_lines
from tipchain.chain.suites import SlotRule
from tipchain.chain.words import Slot
from tipchain.errors import ParamsError, did_you_mean
from tipchain.stage_table import SCRIPTS, STAGES

Slots = Mapping[str, Slot]
ALIGNMENT_SECTION = "alignment_params"
ALIGNMENT_KEYS = ("alignment", "steps")
TO_STATIC_SECTION = "to_static_train_benchmark_params"
ALIKE = 0.8
"""From what ratio of difflib's the name of a section is taken for a mistyped one; other drivers' are none of ours."""


class Lines(Protocol):
    """How a driver reads lines: a `Suite`, or the `Layout` of another kind of chain."""

    @property
    def layout(self) -> tuple[SlotRule, ...]:
        """The lines."""

    @property
    def reads(self) -> int | None:
        """Physical lines that the original reads, None for all."""

    @property
    def rest(self) -> bool:
        """Whether a value is all after the first ``:`` in the original too."""

    @property
    def unread(self) -> frozenset[str]:
        """Roles that the original never reads."""

    @property
    def to_static(self) -> bool:
        """Whether the original looks up the line below the header of `TO_STATIC_SECTION`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section of a layout; ``names`` are its header's, ``title`` the first of them."""

    names: tuple[str, ...]
    rules: tuple[SlotRule, ...]

    @property
    def title(self) -> str:
        """What the section is called."""
        return self.names[0]


def layout_sections(suite: Lines, file: ParamFile) -> tuple[Section, ...]:
    """Return the sections that ``file`` should have; one that may be missing joins the one before it."""
    sections: list[tuple[tuple[str, ...], list[SlotRule]]] = []
    for rule in suite.layout:
        if rule.kind == "header" or (
            rule.kind == "optional header" and _has_header(file, len(sections), rule)
        ):
            sections.append((rule.keys, []))
        elif rule.kind in ("slot", "optional"):
            sections[-1][1].append(rule)
    return tuple(Section(names=names, rules=tuple(rules)) for names, rules in sections)


def _has_header(file: ParamFile, index: int, rule: SlotRule) -> bool:
    return index < len(file.headers) and file.headers[index][0] in rule.keys


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
            slots.update(section_slots(file, section, file.headers[number][0]))
        else:
            slots.update(
                (rule.role, _absent(file, rule.role)) for rule in section.rules if rule.kind == "slot"
            )
    if suite.to_static:
        slots.update(_to_static_slot(file))
    return slots


def _is_mistyped(section: str) -> bool:
    from difflib import get_close_matches

    return bool(get_close_matches(section, [ALIGNMENT_SECTION], cutoff=ALIKE))


def _to_static_slot(file: ParamFile) -> Iterable[tuple[str, Slot]]:
    params = file.section(TO_STATIC_SECTION)
    return [("to_static", _slot(file, "to_static", params[0]))] if params else []


def check_headers(file: ParamFile, sections: tuple[Section, ...]) -> None:
    """Refuse headers that are missing, out of place or mistyped.

    Raises:
        ParamsError: they are.
    """
    for index, section in enumerate(sections):
        name = section.title
        if index >= len(file.headers):
            if ends_after_evaluation(file, sections):
                break
            raise ParamsError(
                f"the section [{name}] is missing", file=file.path, line=max(len(file.lines), 1),
                expected=f"===...{name}...===",
            )  # fmt: skip
        found, line = file.headers[index]
        if found not in section.names:
            hint = did_you_mean(found, section.names)
            hint = _other_driver(found) or hint
            raise ParamsError(
                f"expected the section [{name}]", file=file.path, line=line, found=f"[{found}]", hint=hint
            )
    read = {name for name, _ in file.headers[: len(sections)]}
    for found, line in file.headers[len(sections) :]:
        if found in read:
            raise ParamsError(f"the section [{found}] stands twice", file=file.path, line=line)
        if found == ALIGNMENT_SECTION:
            read.add(found)
        elif _is_mistyped(found):
            hint = f"did you mean {ALIGNMENT_SECTION!r}?"
            raise ParamsError(f"unknown section [{found}]", file=file.path, line=line, hint=hint)


def _other_driver(section: str) -> str:
    """Return which driver's files begin with a section, as a hint; "" for none of the others."""
    kind = owner(section)
    return f"this is a file for {kind.driver}: --chain {kind.name}" if kind else ""


def ends_after_evaluation(file: ParamFile, sections: Sequence[Section]) -> bool:
    """Return whether ``file`` has the sections up to that of the evaluation and none more: it only trains."""
    last = sections[len(file.headers) - 1 : len(file.headers)]
    return bool(last) and last != sections[-1:] and any(rule.role == "eval" for rule in last[0].rules)


def section_slots(file: ParamFile, section: Section, header: str) -> Sequence[tuple[str, Slot]]:
    """Return the slots of one section by role.

    Raises:
        ParamsError: a line is missing, added or out of place.
    """
    params = list(file.section(header))
    index = 0
    pairs: list[tuple[SlotRule, Param]] = []
    for place, rule in enumerate(section.rules):
        param = params[index] if index < len(params) else None
        if rule.kind == "optional" and (param is None or not rule.allows(param.key)):
            continue
        if param is None:
            missing = sum(one.kind == "slot" for one in section.rules[place:])
            raise _too_short(file, header, rule, len(params), missing)
        if not rule.allows(param.key):
            raise ParamsError(
                f"expected {wanted(rule)}, found `{param.key}:`; is a line missing or added above?",
                file=file.path,
                line=param.line,
                hint=did_you_mean(param.key, [key for key in rule.keys if "*" not in key]),
            )
        pairs.append((rule, param))
        index += 1
    if index < len(params):
        extra = params[index]
        raise ParamsError(
            f"section [{header}] has {len(params)} lines, expected {index}; is a line added above?",
            file=file.path,
            line=extra.line,
            found=f"{extra.key}:{extra.value}",
        )
    return [(rule.role, _slot(file, rule.role, param)) for rule, param in pairs]


def wanted(rule: SlotRule) -> str:
    """Return what may stand as key on the line for ``rule``, for messages."""
    named = [key for key in rule.keys if key != "null"] or rule.keys
    return " or ".join(f"`{key}:`" for key in named) if named else f"the line for {rule.role}"


def _too_short(file: ParamFile, header: str, rule: SlotRule, count: int, missing: int) -> ParamsError:
    following = [line for name, line in file.headers if name != header]
    start = next(line for name, line in file.headers if name == header)
    end = next((line for line in following if line > start), len(file.lines) + 1)
    return ParamsError(
        f"section [{header}] has {count} lines, expected {count + missing}: "
        f"expected {wanted(rule)}, found its end; is a line missing above?",
        file=file.path,
        line=max(end - 1, 1),
    )


def _absent(file: ParamFile, role: str) -> Slot:
    """Return the slot of a line that ``file`` does not have."""
    return Slot(role=role, key="null", value="null", file=file.path, line=0)


def _slot(file: ParamFile, role: str, param: Param) -> Slot:
    return Slot(role=role, key=param.key, value=param.value.strip(), file=file.path, line=param.line)


def cut_slots(slots: Slots, suite: Lines) -> Slots:
    """Return ``slots`` with keys and values as the original driver cuts them; what it never reads stays whole."""
    return {role: slot if role in suite.unread else _cut(slot, suite) for role, slot in slots.items()}


def legacy_slots(text: str, path: str, suite: Lines, *, whole: bool = False) -> Slots:
    """Return the slots as the original drivers count them.

    They drop empty lines, look no key up, and cut values at the second ``:``; some read the first lines only.

    Args:
        text: the file's text.
        path: its name, for messages.
        suite: the profile.
        whole: leave values whole; what is left of the originals' reading is the counting.
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
    return slots if whole else cut_slots(slots, suite)


def has_word(line: str, word: str) -> bool:
    """Return whether a word stands in a line, as ``grep -w`` sees it."""
    return re.search(rf"(?<!\w){word}(?!\w)", line) is not None


def _legacy_slot(role: str, line: str, number: int, path: str, suite: Lines) -> Slot:
    key, colon, rest = line.partition(":")
    value = line if suite.rest and not colon else rest
    return Slot(role=role, key=key, value=value, file=path, line=number)


def _cut(slot: Slot, suite: Lines) -> Slot:
    value = _echoed(slot.value if suite.rest else slot.value.partition(":")[0])
    key = _echoed(slot.key)
    return slot if (key, value) == (slot.key, slot.value) else replace(slot, key=key, value=value)


def _echoed(text: str) -> str:
    """Return what bash's ``echo`` prints of ``text``: its own options are eaten."""
    return "" if text.startswith("-") and re.fullmatch(r"-[neE]+", text) else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """What a file's ``alignment_params`` asks for: the case file, and numbers of scripts or names of stages."""

    case: str
    steps: tuple[str, ...]


def alignment_params(file: ParamFile) -> Alignment | None:
    """Return the file's alignment section, or None where there is none or its case is ``null``.

    Raises:
        ParamsError: an unknown, repeated or missing key, an empty case, an unknown step.
    """
    header = next((line for name, line in file.headers if name == ALIGNMENT_SECTION), None)
    if header is None:
        return None
    found: dict[str, Param] = {}
    for param in file.section(ALIGNMENT_SECTION):
        if param.key not in ALIGNMENT_KEYS or param.key in found:
            raise ParamsError(
                "stands twice" if param.key in found else f"unknown key in [{ALIGNMENT_SECTION}]",
                file=file.path, line=param.line, key=param.key, expected=", ".join(ALIGNMENT_KEYS),
                hint=did_you_mean(param.key, ALIGNMENT_KEYS),
            )  # fmt: skip
        found[param.key] = param
    for key in ALIGNMENT_KEYS:
        if key not in found or not found[key].value.strip():
            raise ParamsError(
                f"[{ALIGNMENT_SECTION}] needs `{key}:`", file=file.path,
                line=found[key].line if key in found else header,
            )  # fmt: skip
    steps = _slot(file, "steps", found["steps"])
    for step in steps.values:
        if step not in SCRIPTS and step not in STAGES:
            raise steps.error(
                f"unknown step {step!r}",
                expected="|".join((*SCRIPTS, *STAGES)),
                hint=did_you_mean(step, STAGES),
            )
    case = _slot(file, "alignment", found["alignment"])
    return None if case.absent else Alignment(case=case.value, steps=tuple(dict.fromkeys(steps.values)))
