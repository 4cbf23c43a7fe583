"""Both doors of an alignment, `tipchain.align` and `tipchain align CASE`: what each says of the lists, recorded and compared.

    python -m zoo.doors record python|cli FILE [--lists zoo,case_faults] [--ids zoo/unet]
    python -m zoo.doors compare BEFORE AFTER
    python -m zoo.doors doors PYTHON CLI
    python -m zoo.doors verdicts PYTHON

A record is one line of JSON. `record` goes on where FILE ends.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from zoo.as_case import write_case
from zoo.entries import LISTS, TREE, Entry, entries
from zoo.judged import align

TESTS = TREE / "tests"
PYTHON, CLI = "python", "cli"
LIMIT_S = {PYTHON: 300, CLI: 900}
SAID = ("outcome", "failing", "layer", "line", "code")
KEPT = ("outcome", "layer")
"""The fields that both doors must agree on."""
STEPS = {"schedule": "lr"}
"""What the command line calls a step of Python's."""
OUTCOMES = {0: "passed", 1: "failed", 2: "refused", 4: "nothing compared"}


# The first door: `tipchain.align`, and `tipchain locate` for a case.


def through_python(entry: Entry, folder: Path) -> dict[str, Any]:
    """Return what Python's door says of an entry."""
    if entry.case is not None:
        return _run("locate", entry.case(folder), folder, _live)
    report = align(entry.build())
    return _live(json.loads(report.to_json()), int(report.exit_code))


def _live(document: Mapping[str, Any], code: int) -> dict[str, Any]:
    first = document["first_divergence"] or {}
    return _said(code, document["stages"], document["reasons"], document["diagnoses"], first.get("port_path"))


# The second door: a case of the same pair, and `tipchain align`.


def through_cli(entry: Entry, folder: Path) -> dict[str, Any]:
    """Return what the command line says of an entry; ``left_out`` is why a case cannot express it."""
    if entry.case is not None:
        return _run("align", entry.case(folder), folder, _recorded)
    made = forked(partial(write_case, entry.key, folder), LIMIT_S[PYTHON])
    return made or _run("align", folder / "case.yaml", folder, _recorded)


def _run(command: str, case: Path, folder: Path, read: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    import forking

    words = [sys.executable, "-m", "tipchain", command, case, "--json", folder / "said.json", "-q"]
    words += ["--out", folder / "out", "--prepare"] if command == "align" else []
    done = subprocess.run(
        [*map(str, words)],
        cwd=case.parent if case.parent != TREE / "configs" else TREE,
        env=forking.environment(TESTS, TREE) | {"TIPCHAIN_FORKED_RECORDERS": "torch,paddle"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S[CLI],
        check=False,
    )
    if not (folder / "said.json").is_file():
        message = (done.stderr + done.stdout).strip()[-1500:]
        return {"outcome": OUTCOMES.get(done.returncode, "raised"), "exit": done.returncode, "message": message}
    return read(json.loads((folder / "said.json").read_text(encoding="utf-8")), done.returncode)


def _recorded(document: Mapping[str, Any], code: int) -> dict[str, Any]:
    stages: dict[str, str] = {}
    reasons: dict[str, str] = {}
    live = {one["subject"].partition("/")[0] for one in document["verdicts"] if _is_live(one["subject"])}
    for one in document["verdicts"]:
        if one["subject"].partition("/")[0] in live and not _is_live(one["subject"]):
            continue  # the live models judge that stage
        stage = "train" if one["subject"] == "backward/updates" else one["subject"].partition("/")[0]
        order = ("SKIP", "PASS", "ERROR", "FAIL")
        if order.index(one["outcome"]) > order.index(stages.get(stage, "SKIP")):
            stages[stage], reasons[stage] = one["outcome"], one["reason"]
        stages.setdefault(stage, "SKIP")
    return _said(code, stages, reasons, document.get("diagnoses") or (), None)


def _is_live(subject: str) -> bool:
    return subject.partition("/")[2] in ("construction", "layers", "function", "gradients", "updates")


def _said(
    code: int, stages: Mapping[str, str], reasons: Mapping[str, str], causes: Sequence[Any], divergence: str | None
) -> dict[str, Any]:
    cause = causes[0] if causes else {}
    steps = {STEPS.get(name, name): outcome for name, outcome in stages.items()}
    return {
        "outcome": OUTCOMES.get(code, "raised"),
        "exit": code,
        "failing": [name for name, outcome in steps.items() if outcome in ("FAIL", "ERROR")],
        "layer": cause.get("port_path", divergence),
        "line": _line(cause.get("place")),
        "reference_line": _line(cause.get("reference_place")),
        "code": cause.get("code"),
        "message": cause.get("message"),
        "divergence": divergence,
        "reason": next((reasons.get(name) for name, outcome in stages.items() if outcome in ("FAIL", "ERROR")), None),
        "steps": steps,
    }


def _line(place: Mapping[str, Any] | None) -> str | None:
    """Return a line of code, its file seen from the tree; files of nets with edits have no folder."""
    if place is None:
        return None
    file = Path(place["file"])
    if file.is_absolute():
        file = file.relative_to(TREE) if file.is_relative_to(TREE) else Path(file.name)
    return f"{re.sub(r'_[0-9a-f]{10}(?=[.]py$)', '', str(file))}:{place['line']}"


# Recording: each entry in a process of its own, forked from this one, which has imported the frameworks.


def forked(work: Callable[[], dict[str, Any]], limit_s: float) -> dict[str, Any]:
    """Return what a fork of this process makes, or that it raised or was not done in time."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, work))
    process.start()
    sender.close()
    try:
        return (
            receiver.recv() if receiver.poll(limit_s) else {"outcome": "raised", "message": f"not done in {limit_s} s"}
        )
    except EOFError:
        return {"outcome": "raised", "message": "the process died"}
    finally:
        process.kill()
        process.join()


def _send(sender: Any, work: Callable[[], dict[str, Any]]) -> None:
    warnings.simplefilter("ignore")
    try:
        sender.send(work())
    except Exception as error:  # noqa: BLE001  (an entry that raises is a result)
        sender.send({"outcome": "raised", "message": f"{type(error).__name__}: {error}"[-1500:]})


def through(door: str, entry: Entry) -> dict[str, Any]:
    """Return the record of an entry."""
    start = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="doors-"))
    try:
        if door == PYTHON and entry.case is None:
            found = forked(partial(through_python, entry, folder), LIMIT_S[PYTHON])
        else:
            found = (through_python if door == PYTHON else through_cli)(entry, folder)
    except subprocess.TimeoutExpired as error:
        found = {"outcome": "raised", "message": f"not done in {error.timeout} s"}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    name, _, key = entry.key.partition("/")
    seconds = round(time.monotonic() - start, 1)
    return {"list": name, "id": key, "door": door, "wrong": entry.wrong, **found, "seconds": seconds}


def record(door: str, file: Path, chosen: Sequence[Entry]) -> None:
    """Add the records that the file lacks."""
    for name in ("torch", "paddle", "tipchain"):  # before the first fork
        _ = getattr(importlib.import_module(name), "align", None)
    from zoo import planting

    planting.folder()  # that of all forks
    known = read(file)
    for number, entry in enumerate(chosen, 1):
        if entry.key not in known:
            known[entry.key] = through(door, entry)
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(known[entry.key], ensure_ascii=False) + "\n")
        line = {name: value for name, value in known[entry.key].items() if name in (*SAID, "left_out", "seconds")}
        print(f"{number}/{len(chosen)}  {entry.key}  {line}", flush=True)


# Comparing.


def read(file: Path) -> dict[str, dict[str, Any]]:
    """Return the records of a file by list and id."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return {f"{one['list']}/{one['id']}": one for one in map(json.loads, lines)}


def differences(one: Mapping[str, Any], other: Mapping[str, Any], *, doors: bool = False) -> list[str]:
    """Return what differs between two records, in words.

    Args:
        one: a record.
        other: the other.
        doors: they are of two doors: a step counts where both have it.
    """
    found = []
    for name in SAID:
        left, right = one.get(name), other.get(name)
        if name == "failing":
            both = set(one.get("steps") or ()) & set(other.get("steps") or ())
            left, right = ([step for step in said or () if not doors or step in both] for said in (left, right))
            left, right = sorted(left), sorted(right)
        builders = doors and any("tests/zoo/as_case.py" in str(said) for said in (left, right))  # the case's own
        if left != right and not builders:
            found.append(f"{name}: {left} | {right}")
    return found


def compare(left: Path, right: Path, *, doors: bool) -> int:
    """Print the entries whose records differ; return 1 if some do."""
    ours, theirs = read(left), read(right)
    both = [key for key in ours if key in theirs and "left_out" not in {**ours[key], **theirs[key]}]
    alone = len(set(ours) ^ set(theirs))
    other = {key: found for key in both if (found := differences(ours[key], theirs[key], doors=doors))}
    for key, found in other.items():
        print(f"{key} ({'wrong' if ours[key]['wrong'] else 'right'})", *found, sep="\n    ")
    counts = {name: sum(any(line.startswith(name) for line in one) for one in other.values()) for name in SAID}
    print(f"{len(both)} entries in both, {alone} in one alone, {len(other)} differ: {counts}")
    return int(bool(other))


def main() -> int:
    """Record, or compare what was recorded."""
    parser = argparse.ArgumentParser(prog="python -m zoo.doors", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    recorder = commands.add_parser("record")
    recorder.add_argument("door", choices=(PYTHON, CLI))
    recorder.add_argument("file", type=Path)
    recorder.add_argument("--lists", default=",".join(LISTS))
    recorder.add_argument("--ids", nargs="+", default=[], help="beginnings of LIST/ID")
    for name in ("compare", "doors"):
        comparer = commands.add_parser(name)
        comparer.add_argument("left", type=Path)
        comparer.add_argument("right", type=Path)
    commands.add_parser("verdicts").add_argument("file", type=Path)
    args = parser.parse_args()
    if args.command == "record":
        listed = [entry for name in args.lists.split(",") for entry in entries(name).values()]
        record(args.door, args.file, [one for one in listed if one.key.startswith(tuple(args.ids) or "")])
    elif args.command == "verdicts":
        said = {key: [one.get(name) for name in KEPT] for key, one in read(args.file).items()}
        rows = ",\n".join(f"{json.dumps(key)}: {json.dumps(said[key])}" for key in sorted(said))
        (TESTS / "zoo" / "verdicts.json").write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")
    else:
        return compare(args.left, args.right, doors=args.command == "doors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
