"""From the lines of a file to slots: which line means what.

Two ways. ``checked_slots`` holds the file against the suite's layout, by section headers, known keys and the
number of lines; a shifted file is refused. ``legacy_slots`` counts lines as the original drivers do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tipchain.chain.params import Param, ParamFile, split_lines
from tipchain.chain.suites import FOREIGN, SUITES, SlotRule, Suite
from tipchain.chain.words import Slot
from tipchain.errors import ParamsError, did_you_mean

Slots = Mapping[str, Slot]
ALIGNMENT_SECTION = "alignment_params"
ALIGNMENT_KEYS = ("alignment", "steps")
# Sections that other TIPC drivers read; they may follow the chain's and mean nothing here.
OTHER_SECTIONS = (
    "train_benchmark_params",
    "infer_benchmark_params",
    "to_static_train_benchmark_params",
    "disable_train_benchmark",
    "disable_to_static_train_benchmark",
    "static_train_benchmark_params",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section of a layout."""

    name: str
    rules: tuple[SlotRule, ...]

    @property
    def size(self) -> int:
        """Number of lines it must have."""
        return sum(rule.kind == "slot" for rule in self.rules)


def layout_sections(suite: Suite) -> tuple[Section, ...]:
    """Return the sections of the suite's layout."""
    sections: list[tuple[str, list[SlotRule]]] = []
    for rule in suite.layout:
        if rule.kind == "header":
            sections.append((rule.role, []))
        elif rule.kind != "separator":
            sections[-1][1].append(rule)
    return tuple(Section(name=name, rules=tuple(rules)) for name, rules in sections)


def foreign_suite(file: ParamFile) -> str | None:
    """Return the unsupported suite whose marks the file bears, or None."""
    seen = {param.key for param in file.params} | {f"={name}" for name, _ in file.headers}
    return next((suite for suite, marks in FOREIGN.items() if seen & set(marks)), None)


def detect_suite(file: ParamFile) -> Suite:
    """Return ``tipchain`` for a 51-slot file and ``tutorial`` for one of the tutorial's.

    Raises:
        ParamsError: the file is of a suite that is not supported.
    """
    if foreign := foreign_suite(file):
        raise ParamsError(
            f"looks like a parameter file of the suite {foreign}, which is not supported",
            file=file.path,
            expected=f"a file for one of: {', '.join(SUITES)}",
        )
    keys = {param.key for param in file.params}
    only_51 = {"pact_train", "fpgm_train", "distill_train", "infer_quant", "quant_export", "fpgm_export"}
    return SUITES["tipchain" if len(keys & only_51) > 1 or not file.params else "tutorial"]


def checked_slots(file: ParamFile, suite: Suite) -> Slots:
    """Return the slots of ``file`` by role.

    Raises:
        ParamsError: a section or line is missing, added or out of place, with file and line.
    """
    if foreign := foreign_suite(file):
        raise ParamsError(
            f"looks like a parameter file of the suite {foreign}, not of {suite.name}",
            file=file.path,
            expected=f"a file for one of: {', '.join(SUITES)}",
        )
    sections = layout_sections(suite)
    _check_headers(file, [section.name for section in sections])
    slots: dict[str, Slot] = {}
    for section in sections:
        slots.update(_section_slots(file, section))
    return slots


def _check_headers(file: ParamFile, expected: list[str]) -> None:
    for index, name in enumerate(expected):
        if index >= len(file.headers):
            raise ParamsError(
                f"the section [{name}] is missing", file=file.path, line=max(len(file.lines), 1),
                expected=f"===...{name}...===",
            )  # fmt: skip
        found, line = file.headers[index]
        if found != name:
            hint = did_you_mean(found, [name])
            raise ParamsError(
                f"expected the section [{name}]", file=file.path, line=line, found=f"[{found}]", hint=hint
            )
    trailing = file.headers[len(expected) :]
    known = (ALIGNMENT_SECTION, *OTHER_SECTIONS)
    seen: set[str] = set(expected)
    for found, line in trailing:
        if found not in known or found in seen:
            message = f"the section [{found}] stands twice" if found in seen else f"unknown section [{found}]"
            raise ParamsError(message, file=file.path, line=line, hint=did_you_mean(found, known))
        seen.add(found)


def _section_slots(file: ParamFile, section: Section) -> Iterable[tuple[str, Slot]]:
    params = list(file.section(section.name))
    index = 0
    for rule in section.rules:
        param = params[index] if index < len(params) else None
        if rule.kind == "optional" and (param is None or param.key != rule.key):
            continue
        if param is None:
            raise _too_short(file, section, rule, len(params))
        if rule.key and param.key != rule.key:
            raise ParamsError(
                f"expected `{rule.key}:`, found `{param.key}:`; is a line missing or added above?",
                file=file.path,
                line=param.line,
                hint=did_you_mean(param.key, [rule.key]),
            )
        yield rule.role, _slot(file, rule.role, param)
        index += 1
    if index < len(params):
        extra = params[index]
        raise ParamsError(
            f"section [{section.name}] has {len(params)} lines, expected {index}; is a line added above?",
            file=file.path,
            line=extra.line,
            found=f"{extra.key}:{extra.value}",
        )


def _too_short(file: ParamFile, section: Section, rule: SlotRule, count: int) -> ParamsError:
    following = [line for name, line in file.headers if name != section.name]
    start = next(line for name, line in file.headers if name == section.name)
    end = next((line for line in following if line > start), len(file.lines) + 1)
    wanted = f"`{rule.key}:`" if rule.key else f"the line for {rule.role}"
    return ParamsError(
        f"section [{section.name}] has {count} lines, expected {section.size}: "
        f"expected {wanted}, found its end; is a line missing above?",
        file=file.path,
        line=max(end - 1, 1),
    )


def _slot(file: ParamFile, role: str, param: Param) -> Slot:
    return Slot(role=role, key=param.key, value=param.value.strip(), file=file.path, line=param.line)


def legacy_slots(text: str, path: str, suite: Suite) -> Slots:
    """Return the slots as the original drivers count them.

    They read the first lines only, drop empty ones, look no key up, and cut values at the second ``:``.
    """
    lines = [line for line in split_lines(text)[: suite.line_limit] if line]
    slots = {}
    for index, rule in enumerate(suite.layout):
        if rule.kind not in ("slot", "optional"):
            continue
        line = lines[index] if index < len(lines) else ""
        parts = line.split(":")
        value = parts[1] if len(parts) > 1 else ""
        slots[rule.role] = Slot(role=rule.role, key=parts[0], value=value, file=path, line=index + 1)
    return slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """What a file's ``alignment_params`` asks for: the case file and the numbers of the scripts."""

    case: str
    steps: tuple[str, ...]


SCRIPTS: Mapping[str, str] = {
    "01": "01_test_forward.py",
    "02": "02_test_data.py",
    "03": "03_test_metric.py",
    "04": "04_test_loss.py",
    "05": "05_test_train.py",
}


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
        if step not in SCRIPTS:
            raise steps.error(f"unknown step {step!r}", expected="|".join(SCRIPTS))
    case = _slot(file, "alignment", found["alignment"])
    return None if case.absent else Alignment(case=case.value, steps=tuple(dict.fromkeys(steps.values)))
