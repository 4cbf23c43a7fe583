"""From the name of a parameter file to its plan: its suite, lines changed from the command line, its kind."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain as chained
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.chain.build import build_spec, legacy_spec
from tipchain.chain.emitter import DEVICE_KINDS
from tipchain.chain.expand import expand
from tipchain.chain.kinds import Told, tell_kind
from tipchain.chain.params import CONTROL, NOTHING, Param, ParamFile, Slot, parse_params, read_text, split_lines
from tipchain.chain.plan import Command, Options, Plan, with_notes
from tipchain.chain.profiles import OWN, all_suites, get_suite, read_profile, read_versions
from tipchain.chain.slots import (
    ALIGNMENT_SECTION,
    checked_slots,
    distance,
    ends_after_evaluation,
    layout_sections,
    legacy_slots,
    meaning,
    read_slots,
    stands_right,
)
from tipchain.chain.suites import Marks, Suite, script_words
from tipchain.errors import ParamsError, UsageError, suggestion
from tipchain.modes import Device, Mode, parse_device

if TYPE_CHECKING:
    from tipchain.chain.slots import Lines

FOLDER_WEIGHT = 4
# So many marks are no chance: a file that bears them is that suite's, though it fits another's layout.
SURE = 2
FOLDER = "test_tipc"


def checkout(params: Path) -> Path | None:
    """Return the folder that a parameter file belongs to: the one whose ``test_tipc/`` holds it.

    Links stay: a linked file belongs to where the link stands. If several folders of its path are called
    ``test_tipc``, the nearest that stands in a git repository's top folder or holds a ``prepare.sh`` counts; what a
    failed script leaves, as ``test_tipc/test_tipc``, is never asked for. For a file outside of any it is the nearest
    folder above with a ``test_tipc`` or a ``.git``, None if there is none.
    """
    above = Path(os.path.abspath(params)).parents  # noqa: PTH100
    holders = [folder.parent for folder in above if folder.name == FOLDER]
    sure = (one for one in holders if (one / ".git").exists() or (one / FOLDER / "prepare.sh").is_file())
    near = (one for one in above if (one / FOLDER).is_dir() or (one / ".git").exists())
    return next(sure, None) or next(iter(holders), None) or next(near, None)


def suite_of(file: ParamFile, name: str | None, *, root: Path | None, legacy: bool = False) -> Suite:
    """Return the suite of ``file``: the named one, else that of `detect_suite`; in the version of the checkout's driver."""
    suite = get_suite(name, driver_text(root)) if name else detect_suite(file, legacy=legacy, root=root)
    if legacy or not suite.version or fits(file, suite):
        return suite
    # A version that counts other lines than the file has is left out: a driver runs such a file, too.
    own = [index for index, one in enumerate(suite.versions) if one.title in suite.version]
    fewer = (read_versions(Path(suite.file), tuple(one for one in own if one != index)) for index in own)
    return next((one for one in fewer if fits(file, one)), suite)


def detect_suite(file: ParamFile, *, legacy: bool = False, root: Path | None = None) -> Suite:
    """Return the suite of ``file``.

    A profile of the checkout's own comes first, then the alignment section, which only ``tipchain``'s files have, then a
    suite that the text of the checkout's driver is the mark of. Else the layouts that the file fits are candidates; folders of the checkout, keys and programs decide among them. A file
    that fits none of those and bears several marks of a suite is that suite's, a shifted one as a rule. One that bears
    no suite's marks is ``tipchain``'s (in legacy plans ``template``'s) or the tutorial's, whichever it comes nearest to.

    Raises:
        InputError: the checkout's own profile is wrong.
    """
    if root is not None and (root / OWN).is_file():
        return read_profile(root / OWN, driver_text(root))
    if any(name == ALIGNMENT_SECTION for name, _ in file.headers):
        return get_suite("tipchain")  # no other suite has the section
    other = "tipchain" if legacy else "template"  # the two have one layout
    driver = driver_text(root)
    suites = all_suites(driver)
    if best := next((suite for suite in suites if is_driver_of(suite, driver) and has_headers(file, suite)), None):
        return best
    scores = {
        suite.name: len(marks_in_file(file, suite)) + FOLDER_WEIGHT * len(marks_in_checkout(suite, root))
        for suite in suites
    }
    # Sorted is stable: of equals the first by name, as the maximum would be.
    ranked = sorted(suites, key=lambda suite: -scores[suite.name])
    marked = [suite for suite in ranked if scores[suite.name] > 0]
    sure = (one for one in marked if len(marks_in_file(file, one)) >= SURE and has_headers(file, one))
    likely = chained((suite for suite in marked if fits(file, suite)), sure)
    if best := next(likely, None):
        return best
    unmarked = [suite for suite in ranked if suite.marks == Marks() and suite.name != other]
    if best := next((suite for suite in unmarked if fits(file, suite)), None):
        return best
    near = [suite for suite in (*marked, *unmarked) if has_headers(file, suite)]
    # Of equals the longest: what shows nothing of any layout may still become that of most files.
    return min(near or marked or unmarked, key=lambda suite: (distance(file, suite), -len(suite.layout)))


def fits(file: ParamFile, suite: Lines) -> bool:
    """Return whether ``file`` has the layout of ``suite``."""
    if not has_headers(file, suite):
        return False
    try:
        checked_slots(file, suite)
    except ParamsError:
        return False
    return True


def has_headers(file: ParamFile, suite: Lines) -> bool:
    """Return whether the file's sections are those of the suite's layout."""
    sections = layout_sections(suite, file)
    found = [name for name, _ in file.headers[: len(sections)]]
    whole = len(found) == len(sections) or ends_after_evaluation(file, sections)
    return whole and all(name in one.names for name, one in zip(found, sections, strict=False))


def marks_in_file(file: ParamFile, suite: Suite) -> tuple[str, ...]:
    """Return the marks of ``suite`` that the file bears, in words."""
    marks = suite.marks
    keys = {param.key for param in file.params} if marks.keys else set()
    words = [param.value.split(maxsplit=1) for param in file.params] if marks.values else []
    heads = {found[0] for found in words if found}
    return (
        *(f"the key {key}" for key in marks.keys if key in keys),
        *(f"the program {value}" for value in marks.values if value in heads),
        *(f"the section [{name}]" for name, _ in file.headers if name in marks.headers),
    )


def marks_in_checkout(suite: Suite, root: Path | None) -> tuple[str, ...]:
    """Return the marks of ``suite`` that the checkout bears, in words."""
    folders = () if root is None else suite.marks.folders
    # A file is held against the folders of all suites, and Path takes longer than the system does to look.
    return tuple(f"the folder {folder}" for folder in folders if os.path.isdir(f"{root}/{folder}"))  # noqa: PTH112


def is_driver_of(suite: Suite, driver: str) -> bool:
    """Return whether the text of a checkout's own driver has those that ``suite`` is recognised by."""
    return bool(suite.marks.driver) and all(text in driver for text in suite.marks.driver)


# What the checkout's own driver does otherwise than the suite's: is the driver another, or the file wrong?
#
# Who copies a driver edits it. The names that it gives to the lines it reads tell how many those are. Nothing of it is run.


DRIVER, FUNCTIONS = f"{FOLDER}/test_train_inference_python.sh", f"{FOLDER}/common_func.sh"
READ = re.compile(r"(\w+)=\$\(func_parser_\w+ \"\$\{lines\[(\d+)\]\}\"")
PROFILE_PAGE = "docs/reference/suites.md"
COMPARE = "tests/conformance/record_original.py in a clone of tipchain"
DESCRIBE = f"describe the driver in {OWN}, as {PROFILE_PAGE} says"


def driver_text(root: Path | None) -> str:
    """Return the text of the checkout's own driver and of the functions that it sources, "" where there is none."""
    return "\n".join(_scripts(root).values())


def _scripts(root: Path | None) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name in (DRIVER, FUNCTIONS) if root else ():
        with suppress(OSError, UnicodeDecodeError):
            found[name] = Path(root or "", name).read_text(encoding="utf-8")
    return found


@lru_cache(maxsize=64)
def fingerprint(text: str) -> str:
    """Return a script's fingerprint, whatever its comments and blanks."""
    return f"{zlib.crc32(script_words(text).encode()):08x}"


def driver_advice(suite: Suite, root: Path | None) -> str:
    """Return that the checkout's driver is none of the suite's that are known, and which is planned; "" if it is one, or runs tipchain."""
    scripts = _scripts(root) if suite.drivers else {}
    other = [name for name, text in scripts.items() if fingerprint(text) not in suite.drivers]
    if not other or "tipchain" in script_words(scripts.get(DRIVER, "tipchain")):
        return ""
    version = ", ".join(suite.version) or "the newest version"
    return (
        f"{other[0]} differs from every version of {suite.name} that is known, and the plan follows this one: {version}; "
        f"{COMPARE} shows whether the commands are the driver's"
    )


def layout_advice(text: str, file: ParamFile, suite: Suite, root: Path | None) -> str:
    """Return advice about ``file``, which does not fit the layout of ``suite``; "" in the suite's own checkouts."""
    if (root is not None and (root / OWN).is_file()) or marks_in_checkout(suite, root):
        return ""
    own = max((int(number) + 1 for _, number in READ.findall(driver_text(root))), default=0)
    known, needed = len(suite.layout), sum(rule.kind != "optional" for rule in suite.layout)
    if own and not needed <= own <= known:
        return f"{DRIVER} reads {own} lines, and {suite.name}, the nearest layout, has {known}; {DESCRIBE}"
    for role, slot in legacy_slots(text, file.path, suite, whole=True).items():
        rule = next((one for one in suite.layout if one.role == role), None)
        if slot.line and rule and not stands_right(rule, slot):
            return f"the driver counts lines and takes line {slot.line}, `{slot.key}:{slot.value}`, for this: {meaning(role)}"
    return ""


# Lines of a parameter file changed from the command line: ``--set KEY=VALUE`` and ``--device``.
#
# The text is changed before anything is read of it, so that a plan, a legacy plan and a run of a changed file are those
# of a file that was edited by hand. Each change is a note of the plan.


ON_CPU: Mapping[str, str] = {"True": "False", "gpu": "cpu"}
"""The value of a device's line on the CPU, by that on a GPU."""
Change = tuple[int, str, str]
"""A line's number, its new value, and the option that asked for it."""


def set_changes(file: ParamFile, settings: Sequence[str]) -> tuple[Change, ...]:
    """Return the changes of ``--set`` in ``file``.

    A setting is ``KEY=VALUE``; where several lines have the key, ``SECTION:KEY=VALUE`` or ``LINE:KEY=VALUE``. Keys may
    have a ``=`` of their own: the longest key that fits counts.

    Raises:
        UsageError: no line or several have the key, a value cannot stand in a line, or a line is changed twice.
    """
    changes: dict[int, Change] = {}
    for text in settings:
        found: list[tuple[int, Param]] = []
        for param in file.params:
            names = (param.key, f"{param.section}:{param.key}", f"{param.line}:{param.key}")
            found += [(len(name), param) for name in names if text.startswith(f"{name}=")]
        longest = max((length for length, _ in found), default=0)
        params = [param for length, param in found if length == longest]
        name = text[:longest] if params else text.partition("=")[0]
        if not params:
            expected = "" if "=" in text else "; expected KEY=VALUE"
            close = suggestion(name, [param.key for param in file.params])
            raise UsageError(f"--set {text!r}: no line of {file.path} has the key {name!r}{expected}{close}")
        param, value = params[0], text[longest + 1 :]
        if len(params) > 1:
            ways = [f"    line {one.line}: --set '{one.line}:{one.key}={value}'" for one in params]
            what = f"--set {text!r}: {len(params)} lines of {file.path} have the key {name!r}"
            raise UsageError("\n".join([what, *ways]))
        if CONTROL.search(value):
            raise UsageError(f"--set {text!r}: a control character cannot stand in {file.path}")
        if param.line in changes:
            raise UsageError(f"--set {text!r}: changes {file.path}:{param.line}, as {changes[param.line][2]} does")
        changes[param.line] = (param.line, value, f"--set {text!r}")
    return tuple(changes.values())


def device_changes(slots: Mapping[str, Slot], name: str) -> Iterator[Change]:
    """Yield the changes of ``--device``: the list of GPUs, the device's line, and on the CPU the devices to infer on.

    ``gpu`` without a number leaves the GPUs of a file that names some.

    Raises:
        UsageError: there is no such device.
    """
    device, reason = parse_device(name), f"--device {name}"
    gpus, use_gpu, infer = slots["gpu_list"], slots.get("use_gpu"), slots["device"]
    if name == "gpu" and gpus.values != ("-1",):
        return
    yield gpus.line, str(device.number) if device.is_gpu else "-1", reason
    if use_gpu is not None and not use_gpu.absent and use_gpu.key not in NOTHING:
        words = [_word(value, device) for value in use_gpu.values]
        yield use_gpu.line, words[0], reason
    if not device.is_gpu and not infer.absent and infer.key not in NOTHING:
        kept = [value for value in infer.values if DEVICE_KINDS.get(value) == "cpu"]
        yield infer.line, kept[0] if kept else _word(infer.values[0], device), reason


def _word(value: str, device: Device) -> str:
    words = {cpu: gpu for gpu, cpu in ON_CPU.items()} if device.is_gpu else ON_CPU
    return words.get(value, value)


def changed_text(text: str, changes: Sequence[Change]) -> tuple[str, tuple[str, ...]]:
    """Return ``text`` with the values of lines changed, and a note on each line that is another now."""
    lines, notes = list(split_lines(text)), []
    for number, value, reason in changes:
        if not number:
            continue  # the file has no such line
        before = lines[number - 1]
        key, _, old = before.partition(":")
        if old.strip() != value.strip():
            lines[number - 1] = f"{key}:{value}"
            shown = re.sub(r"\s+", " ", old.strip())
            notes.append(f"{reason}: line {number}, {key.strip()}, is {value!r} instead of {shown!r}")
    return "\n".join(lines) + "\n", tuple(notes)


def load_plan(
    path: Path,
    mode: Mode | None,
    *,
    chain: str | None = None,
    suite: str | None = None,
    legacy: bool = False,
    lenient: bool = False,
    options: Options | None = None,
) -> Plan:
    """Return the plan of the parameter file at ``path``; kind and suite are told from it and its checkout if None.

    Args:
        path: the file.
        mode: the mode; None for the only one of the file's kind.
        chain: the kind of chain.
        suite: the profile's name or file.
        legacy: the original driver's commands, defects included.
        lenient: let unknown trainers and mistyped booleans pass with a note.
        options: the additions of the command line.

    Raises:
        ParamsError: the file cannot be read or does not fit the suite.
        InputError: the suite's profile is wrong.
        UsageError: unknown kind, suite or device, a mode that the kind does not have, or a setting that names no line.
    """
    options = options or Options()
    options = options if options.root != "." else options._replace(root=str(Path.cwd()))
    text, notes = read_text(path), tuple[str, ...]()
    file = _parsed(text, path, legacy=legacy)
    if options.settings:
        text, notes = changed_text(text, set_changes(file, options.settings))
        file = _parsed(text, path, legacy=legacy)
    told = tell_kind(file, mode, chain)
    mode, root = told.mode(mode, str(path)), checkout(path)
    if told.kind.lacks:
        notes = (told.kind.refusal,)
        return Plan(str(path), mode, "none", model="", status="", out="", run="", chain=told.kind.name, notes=notes)
    if told.kind.module:
        from importlib import import_module

        from tipchain.chain.kinds.base import Request

        asked = {"mode": mode, "suite": suite, "legacy": legacy, "lenient": lenient, "options": options}
        request = Request(text=text, file=file, root=root, **asked)  # type: ignore[arg-type]
        return with_notes(import_module(told.kind.module).plan(request), *notes)
    chosen = suite_of(file, suite, root=root, legacy=legacy)
    driver = driver_advice(chosen, root)
    if options.device is not None:
        slots = legacy_slots(text, str(path), chosen) if legacy else read_slots(file, chosen)
        text, more = changed_text(text, tuple(device_changes(slots, options.device)))
        file, notes = _parsed(text, path, legacy=legacy), (*notes, *more)
    if legacy:
        plan = expand(legacy_spec(text, str(path), chosen, mode), str(path), options)
        return with_notes(plan, *notes, *filter(None, [driver]))
    if options.device and options.gpu_id is None and (device := parse_device(options.device)).is_gpu:
        options = options._replace(gpu_id=None if mode.trains else str(device.number))
    try:
        spec = build_spec(file, chosen, mode, lenient=lenient)
        plan = with_own_results(expand(spec, str(path), options), path, chosen, root, Path(options.root))
        plan = with_notes(plan, *notes)
    except ParamsError as error:
        advice = "" if suite or fits(file, chosen) else layout_advice(text, file, chosen, root)
        advice = advice or driver
        if not advice:
            raise
        own = {name: getattr(error, name) for name in ("line", "key", "found", "expected")}
        hint = f"{error.hint}\n  hint: {advice}" if error.hint else advice
        raise ParamsError(error.message, file=path, **own, hint=hint) from error
    if driver:
        plan = with_notes(plan, driver)
    if options.gpu_id and mode.trains:
        plan = with_notes(plan, f"--gpu-id counts without training only; {mode.value} takes its devices from gpu_list")
    return plan


RESULT_LINE = "result_line.txt"
"""Beside a parameter file: regular expressions of the lines with which its inference tells a result, one in each line."""


def with_own_results(plan: Plan, path: Path, suite: Suite, root: Path | None, start: Path) -> Plan:
    """Return the plan of the file at ``path``, whose inferences are judged by lines of their own programs.

    The profile's line is wanted of the program that it was verified with, which its text or its checkout tells. Of another
    one any result counts, and a note says so.

    Raises:
        ParamsError: what the file beside the parameter file holds is no regular expression.
    """
    named, line, notes, commands = path.parent / RESULT_LINE, None, list[str](), list[Command]()
    if named.is_file():
        patterns = read_text(named).splitlines()
        for number, pattern in enumerate(patterns, 1):
            try:
                re.compile(pattern)
            except re.error as error:  # noqa: PERF203 - the message names the line
                message = f"is no regular expression: {error}"
                raise ParamsError(message, file=named, line=number, found=pattern) from error
        line = "|".join(f"(?:{pattern})" for pattern in patterns if pattern.strip())
        notes.append(f"{named} says which lines of an inference hold a result")
    for command in plan.commands:
        own = line
        if own is None and any(one.reads and one.line for one in command.leaves):
            program = start / command.cwd / command.script
            text = program.read_text(encoding="utf-8", errors="replace") if program.is_file() else ""
            of_suite = (
                not suite.marks.folders or marks_in_checkout(suite, root) or is_driver_of(suite, driver_text(root))
            )
            if text and not (all(one in text for one in suite.result_program) if suite.result_program else of_suite):
                own = ""
                notes.append(
                    f"{command.script} is not the program that the profile {suite.name} was verified with: any line of its own that "
                    "holds a result counts, or a file that it writes"
                )
        leaves = tuple(one if own is None or not one.reads else one._replace(line=own) for one in command.leaves)
        commands.append(command._replace(leaves=leaves))
    return with_notes(plan._replace(commands=tuple(commands)), *dict.fromkeys(notes))


def _parsed(text: str, path: Path, *, legacy: bool) -> ParamFile:
    try:
        return parse_params(text, str(path))
    except ParamsError:
        if not legacy:
            raise
        # The original drivers take any text; it is read from the first header on.
        lines = text.splitlines()
        start = next((number for number, line in enumerate(lines) if line.startswith("=")), len(lines))
        return parse_params("\n".join(["" for _ in lines[:start]] + lines[start:]), str(path), refuse=lambda _: None)


def file_kind(path: Path, mode: Mode | None = None, chain: str | None = None) -> Told:
    """Return which kind of chain the file at ``path`` is, and why; a text that is no parameter file is `TRAIN_INFER`'s."""
    return tell_kind(_parsed(read_text(path), path, legacy=True), mode, chain)
