"""From the name of a parameter file to its plan."""

from __future__ import annotations

from pathlib import Path

from tipchain.chain.build import build_spec, legacy_spec
from tipchain.chain.expand import expand
from tipchain.chain.params import parse_params, read_text
from tipchain.chain.plan import Options, Plan, with_notes
from tipchain.chain.slots import detect_suite
from tipchain.chain.suites import get_suite
from tipchain.modes import Mode


def load_plan(
    path: Path,
    mode: Mode,
    *,
    suite: str | None = None,
    legacy: bool = False,
    lenient: bool = False,
    options: Options | None = None,
) -> Plan:
    """Return the plan of the parameter file at ``path``.

    Args:
        path: the file.
        mode: the mode.
        suite: the profile's name; told from the file where it is None.
        legacy: the original driver's commands, defects included.
        lenient: let unknown trainers and mistyped booleans pass with a note.
        options: what the command line adds.

    Raises:
        ParamsError: the file cannot be read or does not fit the suite.
        UsageError: unknown suite.
    """
    text = read_text(path)
    chosen = get_suite(suite) if suite else None
    if legacy:
        spec = legacy_spec(text, str(path), chosen or detect_suite(parse_params(text, str(path))), mode)
        return expand(spec, str(path), options)
    file = parse_params(text, str(path))
    plan = expand(build_spec(file, chosen or detect_suite(file), mode, lenient=lenient), str(path), options)
    if options and options.gpu_id and mode.trains:
        plan = with_notes(
            plan, f"--gpu-id counts in whole_infer only; {mode.value} takes its devices from gpu_list"
        )
    return plan


def nothing_planned(plan: Plan) -> str:
    """Return why a plan without commands has none."""
    reasons = "".join(f"\n  {note}" for note in plan.notes)
    return f"{plan.params}: nothing to run in mode {plan.mode.value}" + reasons
