"""Both doors of an alignment, `tipchain.align` and `tipchain align CASE`: what each says of a pair.

``python -m zoo.doors`` writes `verdicts.json`.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from zoo.as_case import write_case
from zoo.entries import entries
from zoo.judged import align

TREE = Path(__file__).resolve().parents[2]
TESTS = TREE / "tests"
PYTHON_LIMIT_S, CLI_LIMIT_S = 300, 900
SAID = ("outcome", "failing", "layer", "line", "code")
KEPT = ("outcome", "layer")
"""The fields that both doors must agree on."""
STEPS = {"schedule": "lr"}
"""What the command line calls a step of Python's."""
OUTCOMES = {0: "passed", 1: "failed", 2: "refused", 4: "nothing compared"}


def through_python(key: str) -> dict[str, Any]:
    """Return what Python's door says of an entry."""
    report = align(entries()[key].build())
    document = json.loads(report.to_json())
    first = document["first_divergence"] or {}
    return _said(int(report.exit_code), document["stages"], document["diagnoses"], first.get("port_path"))


def through_cli(key: str, folder: Path) -> dict[str, Any]:
    """Return what the command line says of a case of the same pair; ``left_out`` is why a case cannot express it."""
    import forking

    if left_out := forked(partial(write_case, key, folder), PYTHON_LIMIT_S):
        return left_out
    words = [sys.executable, "-m", "tipchain", "align", "case.yaml", "--json", "said.json", "-q", "--out", "out"]
    done = subprocess.run(
        [*words, "--prepare"],
        cwd=folder,
        env=forking.environment(TESTS, TREE) | {"TIPCHAIN_FORKED_RECORDERS": "torch,paddle"},
        capture_output=True,
        text=True,
        timeout=CLI_LIMIT_S,
        check=False,
    )
    if not (folder / "said.json").is_file():
        message = (done.stderr + done.stdout).strip()[-1500:]
        return {"outcome": OUTCOMES.get(done.returncode, "raised"), "message": message}
    return _recorded(json.loads((folder / "said.json").read_text(encoding="utf-8")), done.returncode)


def _recorded(document: Mapping[str, Any], code: int) -> dict[str, Any]:
    stages: dict[str, str] = {}
    live = {one["subject"].partition("/")[0] for one in document["verdicts"] if _is_live(one["subject"])}
    for one in document["verdicts"]:
        if one["subject"].partition("/")[0] in live and not _is_live(one["subject"]):
            continue  # the live models judge that stage
        stage = "train" if one["subject"] == "backward/updates" else one["subject"].partition("/")[0]
        order = ("SKIP", "PASS", "ERROR", "FAIL")
        if order.index(one["outcome"]) > order.index(stages.get(stage, "SKIP")):
            stages[stage] = one["outcome"]
        stages.setdefault(stage, "SKIP")
    return _said(code, stages, document.get("diagnoses") or (), None)


def _is_live(subject: str) -> bool:
    return subject.partition("/")[2] in ("construction", "layers", "function", "gradients", "updates")


def _said(code: int, stages: Mapping[str, str], causes: Sequence[Any], divergence: str | None) -> dict[str, Any]:
    cause = causes[0] if causes else {}
    steps = {STEPS.get(name, name): outcome for name, outcome in stages.items()}
    return {
        "outcome": OUTCOMES.get(code, "raised"),
        "failing": [name for name, outcome in steps.items() if outcome in ("FAIL", "ERROR")],
        "layer": cause.get("port_path", divergence),
        "line": _line(cause.get("place")),
        "code": cause.get("code"),
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


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return what differs between the records of two doors, in words; a step counts where both have it."""
    found = []
    for name in SAID:
        left, right = one.get(name), other.get(name)
        if name == "failing":
            both = set(one.get("steps") or ()) & set(other.get("steps") or ())
            left, right = (sorted(both & set(said or ())) for said in (left, right))
        own_builders = any("tests/zoo/as_case.py" in str(said) for said in (left, right))  # the case's own
        if left != right and not own_builders:
            found.append(f"{name}: {left} | {right}")
    return found


def main() -> None:
    """Write what is expected: of each entry what Python's door says now, each in a fork of this process."""
    import tipchain
    from zoo import planting

    _ = tipchain.align, planting.folder()  # before the first fork
    said = {key: forked(partial(through_python, key), PYTHON_LIMIT_S) for key in sorted(entries())}
    rows = ",\n".join(f"{json.dumps(key)}: {json.dumps([one[name] for name in KEPT])}" for key, one in said.items())
    (TESTS / "zoo" / "verdicts.json").write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
