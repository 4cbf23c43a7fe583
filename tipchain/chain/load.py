"""From the name of a parameter file to its plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tipchain.chain.build import build_spec, legacy_spec
from tipchain.chain.changes import changed_text, device_changes, set_changes
from tipchain.chain.detect import checkout, detect_suite
from tipchain.chain.expand import expand
from tipchain.chain.fixes import ALL
from tipchain.chain.kinds import Told, tell_kind
from tipchain.chain.layout import read_slots
from tipchain.chain.params import ParamFile, parse_params, read_text
from tipchain.chain.plan import Options, Plan, with_notes
from tipchain.chain.profiles import get_suite
from tipchain.chain.slots import legacy_slots
from tipchain.devices import parse_device
from tipchain.errors import ParamsError
from tipchain.modes import Mode


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
        plan = with_notes(
            plan, f"--gpu-id counts without training only; {mode.value} takes its devices from gpu_list"
        )
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
