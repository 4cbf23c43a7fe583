"""From the name of a parameter file to its plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tipchain.chain.build import build_spec, legacy_spec
from tipchain.chain.detect import checkout, detect_suite
from tipchain.chain.expand import expand
from tipchain.chain.fixes import ALL
from tipchain.chain.params import ParamFile, parse_params, read_text
from tipchain.chain.plan import Options, Plan, with_notes
from tipchain.chain.profiles import get_suite
from tipchain.chain.suites import Suite
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
        UsageError: unknown suite.
    """
    text = read_text(path)
    options = _rooted(options or Options())
    if legacy:
        chosen = get_suite(suite) if suite else _detected(text, path, legacy=True)
        return expand(legacy_spec(text, str(path), chosen, mode), str(path), options)
    file = parse_params(text, str(path))
    chosen = get_suite(suite) if suite else detect_suite(file, root=checkout(path))
    spec = build_spec(file, chosen, mode, lenient=lenient, text=text, fixes=fixes)
    plan = expand(spec, str(path), options)
    if options.gpu_id and mode.trains:
        plan = with_notes(
            plan, f"--gpu-id counts without training only; {mode.value} takes its devices from gpu_list"
        )
    return plan


def _rooted(options: Options) -> Options:
    return options if options.root != "." else replace(options, root=str(Path.cwd()))


def _detected(text: str, path: Path, *, legacy: bool) -> Suite:
    """Return the suite of a file that need not be well formed."""
    try:
        file = parse_params(text, str(path))
    except ParamsError:
        file = _forgiving(text, str(path))
    return detect_suite(file, legacy=legacy, root=checkout(path))


def _forgiving(text: str, path: str) -> ParamFile:
    """Parse the lines that can be parsed; the original drivers take any text."""
    lines = text.splitlines()
    kept = [line if ":" in line or line.startswith(("=", "#")) else "" for line in lines]
    try:
        return parse_params("\n".join(kept), path)
    except ParamsError:
        return ParamFile(path=path, lines=(), headers=(), params=())


def nothing_planned(plan: Plan) -> str:
    """Return why a plan without commands has none."""
    reasons = "".join(f"\n  {note}" for note in plan.notes)
    return f"{plan.params}: nothing to run in mode {plan.mode.value}" + reasons
