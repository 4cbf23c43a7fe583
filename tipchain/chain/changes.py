"""Lines of a parameter file changed from the command line: ``--set KEY=VALUE`` and ``--device``.

The text is changed before anything is read of it, so that a plan, a legacy plan and a run of a changed file are those
of a file that was edited by hand. Each change is a note of the plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tipchain.chain.inferring import DEVICE_KINDS
from tipchain.chain.params import CONTROL, Param, ParamFile, split_lines
from tipchain.chain.words import NOTHING, Slot
from tipchain.devices import Device, parse_device
from tipchain.errors import UsageError, did_you_mean

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
            f"--set {text!r}: no line of {file.path} has the key {name!r}{expected}"
            + (f", {hint}" if hint else "")
        )
    ways = [f"    line {one.line}: --set '{one.line}:{one.key}={text[longest + 1 :]}'" for one in params]
    raise UsageError(
        "\n".join([f"--set {text!r}: {len(params)} lines of {file.path} have the key {name!r}", *ways])
    )


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
