"""From the name of a parameter file, with lines changed from the command line, to its plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tipchain.chain.build import build_spec, legacy_spec
from tipchain.chain.detect import checkout, detect_suite
from tipchain.chain.emitter import DEVICE_KINDS
from tipchain.chain.expand import expand
from tipchain.chain.fixes import ALL
from tipchain.chain.kinds import Told, tell_kind
from tipchain.chain.params import CONTROL, NOTHING, Param, ParamFile, Slot, parse_params, read_text, split_lines
from tipchain.chain.plan import Options, Plan, with_notes
from tipchain.chain.profiles import get_suite
from tipchain.chain.slots import legacy_slots, read_slots
from tipchain.devices import Device, parse_device
from tipchain.errors import ParamsError, UsageError, did_you_mean
from tipchain.modes import Mode

# Lines of a parameter file changed from the command line: ``--set KEY=VALUE`` and ``--device``.
#
# The text is changed before anything is read of it, so that a plan, a legacy plan and a run of a changed file are those
# of a file that was edited by hand. Each change is a note of the plan.


ON_CPU: Mapping[str, str] = {"True": "False", "gpu": "cpu"}
"""What a device's line has for the CPU, by what it has for a GPU."""
Change = tuple[int, str, str]
"""A line's number, its new value, and what asked for it."""


def set_changes(file: ParamFile, settings: Sequence[str]) -> tuple[Change, ...]:
    """Return what ``--set`` changes in ``file``.

    A setting is ``KEY=VALUE``; where several lines have the key, ``SECTION:KEY=VALUE`` or ``LINE:KEY=VALUE``. Keys may
    have a ``=`` of their own: the longest key that fits counts.

    Raises:
        UsageError: no line or several have the key, a value cannot stand in a line, or a line is changed twice.
    """
    changes: dict[int, Change] = {}
    for text in settings:
        param, value = _named(file, text)
        if CONTROL.search(value):
            raise UsageError(f"--set {text!r}: a control character cannot stand in {file.path}")
        if param.line in changes:
            raise UsageError(f"--set {text!r}: changes {file.where(param)}, as {changes[param.line][2]} does")
        changes[param.line] = (param.line, value, f"--set {text!r}")
    return tuple(changes.values())


def _named(file: ParamFile, text: str) -> tuple[Param, str]:
    """Return the line that a setting names, and the value."""
    found: list[tuple[int, Param]] = []
    for param in file.params:
        names = (param.key, f"{param.section}:{param.key}", f"{param.line}:{param.key}")
        found += [(len(name), param) for name in names if text.startswith(f"{name}=")]
    longest = max((length for length, _ in found), default=0)
    params = [param for length, param in found if length == longest]
    if len(params) == 1:
        return params[0], text[longest + 1 :]
    name = text[:longest] if params else text.partition("=")[0]
    if not params:
        hint = did_you_mean(name, [param.key for param in file.params])
        expected = "" if "=" in text else "; expected KEY=VALUE"
        raise UsageError(
            f"--set {text!r}: no line of {file.path} has the key {name!r}{expected}" + (f", {hint}" if hint else "")
        )
    ways = [f"    line {one.line}: --set '{one.line}:{one.key}={text[longest + 1 :]}'" for one in params]
    raise UsageError("\n".join([f"--set {text!r}: {len(params)} lines of {file.path} have the key {name!r}", *ways]))


def device_changes(slots: Mapping[str, Slot], name: str) -> Iterator[Change]:
    """Yield what ``--device`` changes: the list of GPUs, the device's line, and on the CPU the devices to infer on.

    ``gpu`` without a number leaves the GPUs of a file that names some.

    Raises:
        UsageError: there is no such device.
    """
    device, reason = parse_device(name), f"--device {name}"
    gpus, use_gpu, infer = slots["gpu_list"], slots.get("use_gpu"), slots["device"]
    if name == "gpu" and gpus.values != ("-1",):
        return
    yield gpus.line, str(device.index) if device.is_gpu else "-1", reason
    if use_gpu is not None and not use_gpu.absent and use_gpu.key not in NOTHING:
        words = [_word(value, device) for value in use_gpu.values]
        yield use_gpu.line, words[0], reason
    if not device.is_gpu and not infer.absent and infer.key not in NOTHING:
        kept = [value for value in infer.values if DEVICE_KINDS.get(value) == "cpu"]
        yield infer.line, kept[0] if kept else _word(infer.values[0], device), reason


def _word(value: str, device: Device) -> str:
    """Return what a device's line has for ``device`` where it has ``value``."""
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


# From the name of a parameter file to its plan.


def load_plan(
    path: Path,
    mode: Mode | None,
    *,
    chain: str | None = None,
    suite: str | None = None,
    legacy: bool = False,
    lenient: bool = False,
    options: Options | None = None,
    fixes: frozenset[str] = ALL,
) -> Plan:
    """Return the plan of the parameter file at ``path``.

    Args:
        path: the file.
        mode: the mode; None for the only one of the file's kind.
        chain: the kind of chain; told from the file and the mode where it is None.
        suite: the profile's name or file; told from the file and its checkout where it is None.
        legacy: the original driver's commands, defects included.
        lenient: let unknown trainers and mistyped booleans pass with a note.
        options: what the command line adds.
        fixes: the fixes in force; all but for tests.

    Raises:
        ParamsError: the file cannot be read or does not fit the suite.
        ProfileError: the suite's profile is wrong.
        UsageError: unknown kind, suite or device, a mode that the kind does not have, or a setting that names no line.
    """
    options = _rooted(options or Options())
    text, notes = read_text(path), tuple[str, ...]()
    file = _parsed(text, path, legacy=legacy)
    if options.settings:
        text, notes = changed_text(text, set_changes(file, options.settings))
        file = _parsed(text, path, legacy=legacy)
    told = tell_kind(file, mode, chain)
    mode = told.mode(mode, str(path))
    if told.kind.module:
        from tipchain.chain.kinds.base import Request, planner

        return with_notes(
            planner(told.kind).plan(
                Request(
                    text=text,
                    file=file,
                    mode=mode,
                    root=checkout(path),
                    suite=suite,
                    legacy=legacy,
                    lenient=lenient,
                    options=options,
                    fixes=fixes,
                )
            ),
            *notes,
        )
    chosen = get_suite(suite) if suite else detect_suite(file, legacy=legacy, root=checkout(path))
    if options.device is not None:
        slots = legacy_slots(text, str(path), chosen) if legacy else read_slots(file, chosen)
        text, more = changed_text(text, tuple(device_changes(slots, options.device)))
        file, notes = _parsed(text, path, legacy=legacy), (*notes, *more)
    if legacy:
        return with_notes(expand(legacy_spec(text, str(path), chosen, mode), str(path), options), *notes)
    spec = build_spec(file, chosen, mode, lenient=lenient, text=text, fixes=fixes)
    if options.device and options.gpu_id is None and (device := parse_device(options.device)).is_gpu:
        options = replace(options, gpu_id=None if mode.trains else str(device.index))
    plan = with_notes(expand(spec, str(path), options), *notes)
    if options.gpu_id and mode.trains:
        plan = with_notes(plan, f"--gpu-id counts without training only; {mode.value} takes its devices from gpu_list")
    return plan


def _rooted(options: Options) -> Options:
    return options if options.root != "." else replace(options, root=str(Path.cwd()))


def _parsed(text: str, path: Path, *, legacy: bool) -> ParamFile:
    """Return the parsed text, which need not be well formed for the original drivers."""
    try:
        return parse_params(text, str(path))
    except ParamsError:
        if not legacy:
            raise
        return _forgiving(text, str(path))


def _forgiving(text: str, path: str) -> ParamFile:
    """Parse the lines from the first header on; the original drivers take any text."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith("=")), len(lines))
    try:
        return parse_params("\n".join(["" for _ in lines[:start]] + lines[start:]), path)
    except ParamsError:
        return ParamFile(path=path, lines=(), headers=(), params=())


def file_kind(path: Path, mode: Mode | None = None, chain: str | None = None) -> Told:
    """Return which kind of chain the file at ``path`` is, and why; a text that is no parameter file is `TRAIN_INFER`'s.

    Raises:
        ParamsError: it cannot be read.
        UsageError: no kind is called ``chain``.
    """
    return tell_kind(_parsed(read_text(path), path, legacy=True), mode, chain)


def nothing_planned(plan: Plan) -> str:
    """Return why a plan without commands has none."""
    reasons = "".join(f"\n  {note}" for note in plan.notes)
    return f"{plan.params}: nothing to run in mode {plan.mode.value}" + reasons
