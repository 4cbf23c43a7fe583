"""From the name of a parameter file to its plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tipchain.chain.build import build_spec, legacy_spec
from tipchain.chain.changes import changed_text, device_changes, set_changes
from tipchain.chain.detect import checkout, detect_suite
from tipchain.chain.expand import expand
from tipchain.chain.fixes import ALL
from tipchain.chain.layout import read_slots
from tipchain.chain.params import ParamFile, parse_params, read_text
from tipchain.chain.plan import Options, Plan, with_notes
from tipchain.chain.profiles import get_suite
from tipchain.chain.slots import legacy_slots
from tipchain.chain.suites import Suite
from tipchain.devices import parse_device
from tipchain.errors import ParamsError
from tipchain.modes import Mode


def load_plan(
    path: Path,
    mode: Mode,
    *,
    suite: str | None = None,
    legacy: bool = False,
    lenient: bool = False,
    options: Options | None = None,
    fixes: frozenset[str] = ALL,
) -> Plan:
    """Return the plan of the parameter file at ``path``.

    Args:
        path: the file.
        mode: the mode.
        suite: the profile's name or file; told from the file and its checkout where it is None.
        legacy: the original driver's commands, defects included.
        lenient: let unknown trainers and mistyped booleans pass with a note.
        options: what the command line adds.
        fixes: the fixes in force; all but for tests.

    Raises:
        ParamsError: the file cannot be read or does not fit the suite.
        ProfileError: the suite's profile is wrong.
        UsageError: unknown suite or device, or a setting that names no line.
    """
    options = _rooted(options or Options())
    text, notes = _changed(read_text(path), path, suite, options, legacy=legacy)
    if legacy:
        chosen = _chosen(text, path, suite, legacy=True)
        return with_notes(expand(legacy_spec(text, str(path), chosen, mode), str(path), options), *notes)
    file = parse_params(text, str(path))
    spec = build_spec(file, _chosen(text, path, suite), mode, lenient=lenient, text=text, fixes=fixes)
    if options.device and options.gpu_id is None and (device := parse_device(options.device)).is_gpu:
        options = replace(options, gpu_id=None if mode.trains else str(device.index))
    plan = with_notes(expand(spec, str(path), options), *notes)
    if options.gpu_id and mode.trains:
        plan = with_notes(
            plan, f"--gpu-id counts without training only; {mode.value} takes its devices from gpu_list"
        )
    return plan


def _changed(
    text: str, path: Path, suite: str | None, options: Options, *, legacy: bool
) -> tuple[str, tuple[str, ...]]:
    """Return ``text`` as ``--set`` and ``--device`` change it, with a note on each changed line."""
    text, notes = changed_text(text, set_changes(_parsed(text, path, legacy=legacy), options.settings))
    if options.device is None:
        return text, notes
    chosen = _chosen(text, path, suite, legacy=legacy)
    slots = (
        legacy_slots(text, str(path), chosen)
        if legacy
        else read_slots(_parsed(text, path, legacy=False), chosen)
    )
    text, more = changed_text(text, tuple(device_changes(slots, options.device)))
    return text, (*notes, *more)


def _rooted(options: Options) -> Options:
    return options if options.root != "." else replace(options, root=str(Path.cwd()))


def _chosen(text: str, path: Path, suite: str | None, *, legacy: bool = False) -> Suite:
    """Return the suite that is named, else the one that the file is told to be of."""
    if suite:
        return get_suite(suite)
    return detect_suite(_parsed(text, path, legacy=legacy), legacy=legacy, root=checkout(path))


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


def nothing_planned(plan: Plan) -> str:
    """Return why a plan without commands has none."""
    reasons = "".join(f"\n  {note}" for note in plan.notes)
    return f"{plan.params}: nothing to run in mode {plan.mode.value}" + reasons
