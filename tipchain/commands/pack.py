"""``tipchain case pack``: put a case's acceptance files, with logs, configuration and versions, into one archive.

Source: the reproduction guide, sections 2.2.3 (ten dumps, five logs) and 3 (what to submit after each step).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.commands.options import add_mode, add_options
from tipchain.core.files import commit, replacing_path, sha256_of, writing
from tipchain.core.language import say
from tipchain.errors import BAD, DataError, ExitCode, Outcome, RecordError, worst
from tipchain.modes import LATEST, PREFLIGHT, Mode, dump_name, log_name, parse_mode

if TYPE_CHECKING:
    from tipchain.parity.case import Case

ACCEPTANCE = ("forward", "metric", "loss", "backward", "train")
"""The guide's five acceptance points."""
SPELLINGS = ("log", "acceptance")
Entries = dict[str, Path]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("case", type=Path, metavar="CASE", help="the case's YAML file")
    add_mode(parser)
    parser.add_argument(
        "--from", dest="runs", type=Path, metavar="DIR", help="where the runs are (default: where align leaves them)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="archive to write (default CASE_MODE.zip in that folder)"
    )
    parser.add_argument(
        "--spelling",
        choices=SPELLINGS,
        default="log",
        help="how files are spelt: forward_torch.npy and forward_diff.log (log, the default), or forward_pytorch.npy "
        "and forward_diff_log.txt (acceptance)",
    )
    add_options(parser, "root")


def run(args: argparse.Namespace) -> int:
    """Check the submission, write the archive, and return the exit code.

    Raises:
        OutputError: the archive cannot be written.
    """
    from tipchain.commands.align import from_root
    from tipchain.parity.align import out_folder, read_verdicts
    from tipchain.parity.case import load_case
    from tipchain.parity.stages.judging import Rules, judge_stage

    mode, case = parse_mode(args.mode), load_case(from_root(args.case))
    out = out_folder(args.runs, case, mode)
    latest = out / LATEST
    if not any(latest.glob("*")):
        raise DataError(
            "there are no dumps", file=latest, hint=f"run `tipchain align {args.case} --mode {mode.value}` first"
        )
    # A stage of the five that the case leaves out is not applicable; any other must be there and pass.
    states, verdicts = {}, read_verdicts(out)
    problems = [
        f"{verdicts[stage].value} {stage}: the models differ in the latest run"
        for stage in (PREFLIGHT, *case.stages)
        if verdicts.get(stage) in BAD
    ]
    for stage in dict.fromkeys((*ACCEPTANCE, *case.stages)):
        if stage not in case.stages:
            states[stage] = "not applicable"
            continue
        judged = judge_stage(stage, latest, Rules.of(case))
        outcome = worst(verdict.outcome for verdict in judged.verdicts)
        if outcome not in (Outcome.PASS, Outcome.SKIP):
            bad = next(verdict for verdict in judged.verdicts if verdict.outcome is outcome)
            problems.append(f"{outcome.value} {bad.subject}: {bad.reason}")
        elif outcome is Outcome.SKIP and stage in ACCEPTANCE:
            problems.append(f"SKIP {stage}: nothing was compared: {judged.verdicts[0].reason}")
        else:
            problems += _outdated(case, mode, stage, latest)
        states[stage] = outcome.value
    if all(stage not in case.stages for stage in ACCEPTANCE):
        problems.append(f"{case.path}: has none of the acceptance points: {', '.join(ACCEPTANCE)}")
    if problems:
        print(say(f"{case.id}: nothing was packed"), file=sys.stderr)
        for problem in problems:
            print(say(f"  {problem}"), file=sys.stderr)
        print(say(f"  hint: tipchain align {args.case} --mode {mode.value} makes them"), file=sys.stderr)
        return ExitCode.FAILED
    entries = _entries(case, out, states, args.spelling)
    manifest = _manifest(case, mode, latest, states, entries)
    archive = args.out or out / f"{case.id}_{mode.value}.zip"
    # Whole or not at all; everything in it stands in one folder.
    with (
        writing(archive),
        replacing_path(archive) as beside,
        zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as file,
    ):
        for name, entry in entries.items():
            file.writestr(f"{case.id}_{mode.value}/{name}", entry.read_bytes())
        file.writestr(f"{case.id}_{mode.value}/manifest.json", manifest)
    for stage, state in states.items():
        print(say(f"{state:<15} {stage}"))
    print(say(f"wrote {archive}: {len(entries) + 1} files"))
    return ExitCode.PASSED


def _outdated(case: Case, mode: Mode, stage: str, latest: Path) -> list[str]:
    """Return how a stage's diff log tells of another comparison, and the case's changes since its dumps."""
    from tipchain.numbers.dumps import load_record
    from tipchain.numbers.verdicts import PASSED
    from tipchain.parity.weights import dated

    log = latest / log_name(stage)
    problems = []
    if not log.is_file():
        problems.append(f"missing {log}")
    elif not (last := (log.read_text().splitlines() or [""])[-1]).endswith(PASSED):
        problems.append(f"{log} ends with {last!r}, not with {PASSED!r}")
    recorded = load_record(latest / dump_name(stage, "paddle")).meta.get("inputs")
    words = {"settings": "settings", "fake": "fake inputs"}
    other = [words[name] for name in (dated(case, mode, stage, recorded) if isinstance(recorded, dict) else [])]
    made_with = (f"{stage}: the dumps were made with other {one} than {case.path.name} has now" for one in other)
    return [*problems, *made_with]


def _entries(case: Case, out: Path, states: Mapping[str, str], spelling: str) -> Entries:
    from tipchain.numbers.dumps import meta_path
    from tipchain.parity.case import BUILDERS

    entries: Entries = {}
    for stage in (stage for stage, state in states.items() if state != "not applicable"):
        log = log_name(stage)
        files = {log.replace("_diff.log", "_diff_log.txt") if spelling == "acceptance" else log: out / LATEST / log}
        for path in (out / LATEST / dump_name(stage, side) for side in ("torch", "paddle")):
            name = path.name.replace("_torch.npy", "_pytorch.npy") if spelling == "acceptance" else path.name
            files[name] = path
            files |= {meta_path(Path(name)).name: meta_path(path)} if meta_path(path).is_file() else {}
        entries |= {f"log_reprod/{name}": path for name, path in files.items()}
    for name in ("alignment.log", "results_python.log"):
        if (out / name).is_file():
            entries[f"logs/{name}"] = out / name
    entries |= _chain_files(case, out)
    entries[f"configs/{case.path.name}"] = case.path
    for side in case.sides.values():
        for spec in filter(None, (getattr(side, name) for name in BUILDERS)):
            path = Path(*spec.partition(":")[0].split(".")).with_suffix(".py")
            if (case.root / path).is_file():
                entries[f"code/{path.as_posix()}"] = case.root / path
    return entries


def _chain_files(case: Case, out: Path) -> Entries:
    """Return the logs and the report of the latest chain that was run to its end, and its parameter file."""
    from tipchain.report.model import FILE_NAME, load_report

    for run in sorted((out / "runs").glob("*/"), reverse=True):
        report = run / FILE_NAME
        if not report.is_file():
            continue
        files: Entries = {f"logs/chain/{path.name}": path for path in sorted(run.glob("*.log"))}
        files[f"logs/chain/{FILE_NAME}"] = report
        try:
            params = case.root / load_report(report).title
        except RecordError:
            return files  # the report is submitted as it is
        return files | ({f"configs/{params.name}": params} if params.is_file() else {})
    return {}


def _manifest(case: Case, mode: Mode, latest: Path, states: Mapping[str, str], entries: Entries) -> str:
    from tipchain import __version__
    from tipchain.core.machine import installed_versions
    from tipchain.numbers.dumps import load_record

    dumps: dict[str, object] = {}
    for stage, state in states.items():
        if state == "not applicable":
            continue
        for side in ("torch", "paddle"):
            name = dump_name(stage, side)
            meta = load_record(latest / name).meta
            dumps[name] = {key: meta.get(key) for key in ("versions", "device", "commit", "created", "inputs")}
    found = {
        "case": case.id,
        "mode": mode.value,
        "stages": dict(states),
        "tipchain": __version__,
        "versions": installed_versions(),
        "commit": commit(case.root),
        "packed": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "dumps": dumps,
        "sha256": {name: sha256_of(entry) for name, entry in entries.items()},
    }
    return json.dumps(found, indent=1) + "\n"
