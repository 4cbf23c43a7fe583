"""What each line of a parameter file means and what becomes of it, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from tipchain.chain.params import HEADER, NOTHING, ParamFile, Slot, split_words
from tipchain.chain.plan import Command, Plan
from tipchain.chain.slots import ALIGNMENT_SECTION, PROGRAMS, Slots, layout_sections, meaning
from tipchain.chain.suites import ArgumentItem, Suite
from tipchain.errors import ParamsError
from tipchain.modes import Mode

Plans = Mapping[Mode, Plan]
STEPS = {"train": "training", "eval": "evaluation", "export": "export", "infer": "inference"}
LISTS = {"gpu_list", "trainer", "infer_model", "infer_export", "infer_quant"}
NAMES = {"model_name", "python", "train_model_name", "inference_dir"}
LONGEST_WORD = 60
MOST_VALUES = 4
MOST_IDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a file.

    Attributes:
        number: 1-based.
        text: the line.
        role: what the engine calls it, "" for a header or a comment.
        meaning: what it is for.
        use: what becomes of it, "" where there is nothing to say.
    """

    number: int
    text: str
    role: str
    meaning: str
    use: str


def explain(file: ParamFile, suite: Suite, slots: Slots, plans: Plans) -> tuple[Line, ...]:
    """Return the lines of ``file`` with what they are for and what ``plans`` make of them."""
    by_line = {slot.line: slot for slot in slots.values()}
    ours = {ALIGNMENT_SECTION, *(name for one in layout_sections(suite, file) for name in one.names)}
    section = ""
    lines = []
    for number, text in enumerate(file.lines, 1):
        header = HEADER.fullmatch(text.strip())
        section = header[1] if header else section
        slot = by_line.get(number)
        if slot is not None:
            use = _use(slot, suite, plans)
            lines.append(Line(number=number, text=text, role=slot.role, meaning=meaning(slot.role), use=use))
        elif text.strip() and (header or section in ours):
            what = _beside(text, section, ours, is_header=header is not None)
            lines.append(Line(number=number, text=text, role="", meaning=what, use=""))
    return tuple(lines)


def explain_kind(file: ParamFile, slots: Slots, meanings: Mapping[str, str], plan: Plan | None) -> tuple[Line, ...]:
    """Return the lines of a file of another kind of chain, with what they are for and which commands get them."""
    by_line = {slot.line: slot for slot in slots.values()}
    lines = []
    for number, text in enumerate(file.lines, 1):
        slot = by_line.get(number)
        if slot is not None:
            said = meanings.get(slot.role) or meaning(slot.role)
            use = _kind_use(slot, plan) if plan else ""
            lines.append(Line(number=number, text=text, role=slot.role, meaning=said, use=use))
        elif HEADER.fullmatch(text.strip()):
            lines.append(Line(number=number, text=text, role="", meaning="section", use=""))
    return tuple(lines)


def _kind_use(slot: Slot, plan: Plan) -> str:
    """Return which commands of a plan a line's key or value is in."""
    if slot.absent and slot.role not in NAMES:
        return "left out"
    key, value = _words(slot.key, slot), _words(slot.value, slot)
    ids = [
        one.id
        for one in plan.commands
        if (key and any(_flags(one.argv, key))) or (value and slot.role not in NAMES and _has(one.argv, value))
    ]
    more = f" and {len(ids) - MOST_IDS} more" if len(ids) > MOST_IDS else ""
    return f"in {', '.join(ids[:MOST_IDS])}{more}" if ids else ""


def _beside(text: str, section: str, ours: Collection[str], *, is_header: bool) -> str:
    """Return what a line is that no slot has."""
    bare = text.strip()
    if is_header:
        return "section" if section in ours else "section of another driver, which chains do not read"
    if bare.startswith("#"):
        return "a comment; the original counts it as a line" if bare.strip("#") else "separator"
    if section == ALIGNMENT_SECTION:
        return "what to align with the reference, before the chain"
    return "for another driver, not read here"


def _use(slot: Slot, suite: Suite, plans: Plans) -> str:
    if slot.role in suite.unread:
        return f"{suite.title} never reads it"
    if PROGRAMS.fullmatch(slot.role):
        return _program_use(slot, plans)
    if slot.role in LISTS:
        return _list_use(slot)
    return "" if slot.role in NAMES else _argument_use(slot, suite, plans)


def _argument_use(slot: Slot, suite: Suite, plans: Plans) -> str:
    if slot.key in NOTHING:
        return f"the key is {slot.key or 'empty'}, so it is left out"
    steps = _steps(slot.role, suite)
    passed = "; ".join(_passed(slot, steps, plans))
    if not passed and slot.absent:
        return f"{slot.value or 'empty'}, so it is left out"
    return passed or "in no command of these modes"


def _program_use(slot: Slot, plans: Plans) -> str:
    if slot.absent:
        return "null: there is none"
    words = _words(slot.value, slot)
    ids = list(dict.fromkeys(one.id for one in _commands(plans) if words and _has(one.argv, words)))
    more = f" and {len(ids) - MOST_IDS} more" if len(ids) > MOST_IDS else ""
    return f"run as {', '.join(ids[:MOST_IDS])}{more}" if ids else "in no command of these modes"


def _list_use(slot: Slot) -> str:
    if slot.absent:
        return slot.value or "empty"
    return f"{len(slot.values)} entries" if len(slot.values) > 1 else ""


def _steps(role: str, suite: Suite) -> tuple[str, ...]:
    """Return the steps whose arguments a role may be among."""
    infer = suite.infer
    found = {
        "train": suite.train.arguments,
        "eval": suite.eval.arguments,
        "export": tuple(chain(suite.whole.export, *(step.arguments for step in suite.export))),
        "infer": tuple(chain.from_iterable(rule.arguments for rule in infer.rules.values())),
    }
    also = {
        "infer": {
            "device",
            "model_dir",
            "infer_data",
            *(axis for rule in infer.rules.values() for axis in rule.fixed_axes),
        }
    }
    return tuple(
        step
        for step, items in found.items()
        if role in {name for item in items for name in _item_roles(item)} | also.get(step, set())
    )


def _item_roles(item: ArgumentItem) -> Iterable[str]:
    return filter(None, (item.role, item.flag, item.key))


def _passed(slot: Slot, steps: Sequence[str], plans: Plans) -> Iterator[str]:
    """Yield how the plans pass a slot to each step, as ``training: `-o Global.epochs=2` in lite_...``."""
    key = _words(slot.key, slot)
    if not key:
        return
    for step in steps:
        found: dict[str, list[str]] = {}
        there = []
        for mode, plan in plans.items():
            commands = [one for one in plan.commands if one.step == step]
            there += [mode.value] if commands else []
            texts = (_in_run(text, plan) for one in commands for text in _flags(one.argv, key))
            for text in dict.fromkeys(texts):
                found.setdefault(text, []).append(mode.value)
        if found:
            yield f"{STEPS[step]} gets {_listed(found, there)}"


def _listed(found: Mapping[str, Sequence[str]], modes: Sequence[str]) -> str:
    shown = [
        f"`{_short(text)}`" + ("" if len(own) == len(modes) else f" in {'|'.join(own)}")
        for text, own in list(found.items())[:MOST_VALUES]
    ]
    more = len(found) - MOST_VALUES
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _in_run(text: str, plan: Plan) -> str:
    """Return ``text`` with the name of the run's folder shortened, which has the mode in it."""
    head, there, tail = text.partition(plan.run)
    return f"{head.rpartition('=')[0]}=RUN{tail}" if there and "=" in head else text.replace(plan.run, "RUN")


def _short(text: str) -> str:
    if len(text) <= LONGEST_WORD:
        return text
    half = LONGEST_WORD // 2
    return f"{text[:half]}...{text[-half:]}"


def _flags(argv: Sequence[str], key: Sequence[str]) -> Iterator[str]:
    """Yield each place of ``argv`` that has ``key=value`` or ``key value``."""
    for index in range(len(argv) - len(key) + 1):
        *head, last = argv[index : index + len(key)]
        if list(key[:-1]) != head:
            continue
        if last.startswith(f"{key[-1]}="):
            yield " ".join((*head, last))
        elif last == key[-1]:
            yield " ".join(argv[index : index + len(key) + 1])


def _has(argv: Sequence[str], words: Sequence[str]) -> bool:
    size = len(words)
    return any(tuple(argv[start : start + size]) == tuple(words) for start in range(len(argv) - size + 1))


def _commands(plans: Plans) -> Iterator[Command]:
    return chain.from_iterable(plan.commands for plan in plans.values())


def _words(text: str, slot: Slot) -> tuple[str, ...]:
    try:
        return split_words(text, slot, pipes=True)
    except ParamsError:
        return (text,)
