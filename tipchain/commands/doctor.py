"""``tipchain doctor``: installed packages, missing ones, and how to get them."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec

from tipchain import __version__
from tipchain.commands.options import add_json, add_options, show
from tipchain.core.json_text import parse_json
from tipchain.core.language import many, say, table, terminal_width
from tipchain.core.machine import DISTRIBUTIONS, THREAD_VARIABLES, core_count, needed_packages, signal_name
from tipchain.errors import BAD, ExitCode, Outcome

PYTHONS = ((3, 10), (3, 13))
ALIGNING, CASES = "align, locate and run", "the shipped cases"
"""The parts that need the frameworks, and those that need the packages of the shipped cases."""
SET_UP = "bash prepare.sh PARAMS MODE --env-only"
SET_UP_BRINGS = ("tipchain", "tipchain[cases]", "tipchain[onnx]")
"""The extras that the set-up installs besides the frameworks (``tools/environment.sh``)."""

TORCH_PROBE = """
import json, torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
print(json.dumps({
    "version": torch.__version__,
    "build": f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU",
    "devices": ["cpu"] + [f"gpu:{i} {torch.cuda.get_device_name(i)}" for i in range(count)],
    "threads": torch.get_num_threads(),
    "checked": float(torch.nn.Linear(2, 1)(torch.ones(1, 2)).isfinite().all()),
}))
"""
PADDLE_PROBE = """
import json, paddle
cuda = paddle.is_compiled_with_cuda()
count = paddle.device.cuda.device_count() if cuda else 0
print(json.dumps({
    "version": paddle.__version__,
    "build": f"CUDA {paddle.version.cuda()}" if cuda else "CPU",
    "devices": ["cpu"] + [f"gpu:{i} {paddle.device.cuda.get_device_name(i)}" for i in range(count)],
    "threads": None,
    "checked": float(paddle.isfinite(paddle.nn.Linear(2, 1)(paddle.ones([1, 2]))).all()),
}))
"""
PROBES = {"torch": TORCH_PROBE, "paddle": PADDLE_PROBE}
WITHOUT = "diff, report, lint and plan"
"""The commands of a plain installation."""
WORDS = {Outcome.PASS: "ok", Outcome.FAIL: "BROKEN", Outcome.ERROR: "BROKEN", Outcome.SKIP: "-"}


@dataclass(frozen=True, slots=True)
class DoctorLine:
    """One line of the doctor's report.

    Attributes:
        subject: what was looked at.
        outcome: PASS: there. FAIL: missing or unusable. SKIP: not there and not needed.
        detail: version, build, devices; or what is wrong.
        remedy: how to get what is missing.
        needed_for: what cannot be done without what is not there; "" where nothing needs it.
    """

    subject: str
    outcome: Outcome
    detail: str
    remedy: str = ""
    needed_for: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_json(parser, "the findings")
    add_options(parser, strict="what is not there is a failure, too")


def run(args: argparse.Namespace) -> int:
    """Examine, print, and return 1 if something is broken; missing packages count with ``--strict`` alone."""
    with ThreadPoolExecutor() as pool:
        frameworks = pool.map(check_framework, PROBES)
        findings = [check_python(), *check_packages(), check_threads(), *frameworks]
    fit, lacking = not any(one.outcome in BAD for one in findings), missing(findings)
    rows = [{**asdict(finding), "outcome": finding.outcome.value} for finding in findings]
    document = {"tipchain": __version__, "ready": fit and not lacking, "findings": rows}
    show(args.json, lambda: document, partial(render, findings))
    return ExitCode.FAILED if not fit or (args.strict and lacking) else ExitCode.PASSED


def missing(findings: Sequence[DoctorLine]) -> dict[str, list[str]]:
    """Return the missing packages by the part that needs them."""
    found: dict[str, list[str]] = {}
    for finding in findings:
        if finding.needed_for and finding.outcome is not Outcome.PASS:
            found.setdefault(finding.needed_for, []).append(finding.subject)
    return found


def render(findings: Sequence[DoctorLine]) -> str:
    """Return the report as text, one line per finding and one per remedy."""
    rows = []
    for finding in findings:
        rows.append((say(WORDS[finding.outcome]), say(finding.subject), say(finding.detail)))
        rows += [("", "", f"-> {say(finding.remedy)}")] if finding.remedy else []
    return "\n".join([f"tipchain {__version__}", *table(rows, terminal_width()), *map(say, _end(findings))])


def _end(findings: Sequence[DoctorLine]) -> list[str]:
    if any(one.outcome in BAD for one in findings):
        return [f"not ready: see the lines marked {WORDS[Outcome.FAIL]}"]
    lacking = missing(findings)
    if not lacking:
        return ["ready for align and run"]
    needs = [f"{what} need {', '.join(subjects)}" for what, subjects in lacking.items()]
    if ALIGNING not in lacking:
        return ["ready for align and run of your own cases", *needs]
    alone = [name for name in PROBES if name not in lacking[ALIGNING]]
    sides = [f"align --record {name} records that side, to compare elsewhere" for name in alone]
    return [f"ready for {WITHOUT}", *sides, *needs]


# What this machine offers: Python, packages, frameworks and their devices, threads.
#
# Each framework is probed in a process of its own, so that one that crashes or hangs is a finding like any other.


def check_python() -> DoctorLine:
    """Look at the Python that runs this."""
    low, high = PYTHONS
    supported = low <= sys.version_info[:2] <= high
    wanted = f"{low[0]}.{low[1]} to {high[0]}.{high[1]}"
    return DoctorLine(
        "python",
        Outcome.PASS if supported else Outcome.FAIL,
        f"{platform.python_version()} {sys.executable}",
        remedy="" if supported else f"tipchain is tested with Python {wanted}; give one with --python",
    )


def check_packages() -> list[DoctorLine]:
    """Look at the packages that the engine and the shipped cases need; none is imported."""
    from importlib.metadata import distributions

    found = []
    for name, extra in needed_packages().items():
        if there := next(iter(distributions(name=name)), None):
            found.append(DoctorLine(there.metadata["Name"], Outcome.PASS, there.version))
            continue
        remedy = f'pip install "{extra}"' + (f", or {SET_UP}" if extra in SET_UP_BRINGS else "")
        line = _absent(name, remedy, CASES if extra == "tipchain[cases]" else "")
        found.append(replace(line, outcome=Outcome.FAIL) if extra == "tipchain" else line)
    return found


def check_threads() -> DoctorLine:
    """Say how many threads computations may use: results differ by rounding between counts."""
    allowed = core_count()
    usable = f"{allowed} of {os.cpu_count()} cores usable"
    settings = (f"{name}={value}" for name in THREAD_VARIABLES if (value := os.environ.get(name)) is not None)
    return DoctorLine("threads", Outcome.PASS, ", ".join([usable, *settings]))


def check_framework(name: str, timeout_s: float = 120.0) -> DoctorLine:
    """Import ``"torch"`` or ``"paddle"`` in another process and run one layer there.

    One that is not installed is no failure: much works without it.
    """
    remedy = f'pip install {DISTRIBUTIONS[name][0]} (or "tipchain[cpu]"), or {SET_UP}'
    if find_spec(name) is None:
        return _absent(name, remedy, ALIGNING)
    unusable = partial(DoctorLine, name, Outcome.FAIL, remedy=remedy)
    try:
        done = subprocess.run(
            (sys.executable, "-c", PROBES[name]),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return unusable(f"did not answer within {timeout_s:g} s")
    facts = None
    with suppress(ValueError, IndexError):  # frameworks print lines of their own now and then; the answer is the last
        facts = parse_json([line for line in done.stdout.splitlines() if line.startswith("{")][-1])
    if done.returncode or facts is None:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        silent = f"gave no answer, exit code {done.returncode}"
        crashed = f"crashed: {signal_name(-done.returncode)}" if done.returncode < 0 else ""
        return unusable(crashed or (lines or [silent])[-1])
    threads = f", {many(facts['threads'], 'thread')}" if facts["threads"] else ""
    detail = f"{facts['version']}, {facts['build']} build{threads}, devices: {', '.join(facts['devices'])}"
    if not facts["checked"]:
        return unusable(f"{detail}; a Linear layer does not give finite numbers")
    return DoctorLine(name, Outcome.PASS, detail)


def _absent(name: str, remedy: str, needed_for: str) -> DoctorLine:
    return DoctorLine(name, Outcome.SKIP, "not installed", remedy=remedy, needed_for=needed_for)
