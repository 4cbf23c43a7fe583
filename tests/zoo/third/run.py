"""Judge what `tipchain.align` says of a zoo: `python -m zoo.third.run [--list third] [--jobs 1] [--json FILE] [--ids ...]`.

Each item runs in a process of its own making, under a time limit; a worker that goes over it is ended and replaced.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import queue
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from zoo.third.planting import ThirdPair

LIMIT_S = 180
START_S = 120
ROOTS = {"", ".", "(root)", "root", "(model)", "model"}
GOALS = ("caught", "layer", "cause")


@dataclass(frozen=True, kw_only=True)
class FaultList:
    """Faults and equal pairs, and how they are told apart in the table."""

    faults: Sequence[Any]
    clean: Sequence[Any]
    families: Sequence[str]
    parts: Sequence[str]
    placed: Sequence[str]
    """The parts of which a layer is to be named."""
    planted: Callable[[Any], ThirdPair]


def read_list(name: str) -> FaultList:
    """Return a list by its name: `third`, `fourth`, `fifth`."""
    faults, clean, planting = (
        importlib.import_module(f"zoo.{name}.{part}") for part in ("faults", "clean", "planting")
    )
    return FaultList(
        faults=getattr(faults, f"{name.upper()}_FAULTS"),
        clean=getattr(clean, f"{name.upper()}_CLEAN"),
        families=planting.FAMILIES,
        parts=faults.PARTS,
        placed=getattr(faults, "PLACED", ("layer",)),
        planted=faults.planted,
    )


def align_third(pair: ThirdPair) -> Any:
    """Return the report of a pair."""
    import tipchain

    return tipchain.align(
        pair.reference,
        pair.port,
        pair.inputs,
        loss=pair.loss,
        optimizers=pair.optimizers,
        schedulers=pair.schedulers,
        training=pair.training,
        data=pair.data,
        samples=pair.samples,
        metrics=pair.metrics,
        clip=pair.clip,
        step=pair.step,
    )


def judge_fault(fault: Any, of: str = "third") -> dict[str, Any]:
    """Return what is right about what is said of a fault of a list: that it was caught, its layer, its cause."""
    listed = read_list(of)
    pair = listed.planted(fault)
    report = align_third(pair)
    first = report.first_divergence
    cause = report.diagnoses[0] if report.diagnoses else None
    if fault.part in listed.placed:
        said = first if first is not None else cause
        place = None if said is None else said.port_path
        roots = ROOTS | {type(pair.port).__name__, type(pair.port).__name__.lower()}
        is_place = ("" if place in roots else place) in fault.where
    else:
        place = None if first is None else first.port_path
        is_place = first is None
    return {
        "caught": not report.passed,
        "layer": not report.passed and is_place,
        "cause": fault.is_named(cause),
        "place": place,
        "code": None if cause is None else str(cause.code),
        "message": None if cause is None else str(cause.message),
        "fix": None if cause is None else str(cause.fix),
        "stages": _stages(report),
    }


def judge_clean(pair: Any) -> dict[str, Any]:
    """Return whether an equal pair raised an alarm, and where."""
    report = align_third(pair.build())
    blamed = [one.port_path for one in report.layers if one.at_fault]
    stages = _stages(report)
    return {
        "passed": bool(report.passed) and not blamed and set(stages.values()) <= {"PASS", "SKIP"},
        "error": "ERROR" in stages.values(),
        "place": blamed[0] if blamed else None,
        "message": str(report.diagnoses[0].message) if report.diagnoses else None,
        "stages": stages,
    }


def _stages(report: Any) -> dict[str, str]:
    return {str(name): str(outcome.value) for name, outcome in report.stages.items()}


def judge(name: str, of: str = "third") -> dict[str, Any]:
    """Judge one item of a list; what raises is told as an error."""
    start = time.monotonic()
    try:
        listed = read_list(of)
        faults = {fault.id: fault for fault in listed.faults}
        if name in faults:
            result = judge_fault(faults[name], of)
        else:
            result = judge_clean({one.id: one for one in listed.clean}[name])
    except Exception:  # noqa: BLE001  (an item that raises is a result of the list)
        result = {"raised": traceback.format_exc()}
    return result | {"seconds": round(time.monotonic() - start, 2)}


def _serve(connection: Connection, of: str) -> None:
    warnings.simplefilter("ignore")
    connection.send("ready")
    while (name := connection.recv()) is not None:
        connection.send(judge(name, of))


class Worker:
    """A process that judges one item after the other, and is replaced when it takes too long or dies."""

    def __init__(self, limit_s: float, of: str = "third") -> None:
        self.limit_s = limit_s
        self.of = of
        self._process: Any = None
        self._connection: Any = None

    def judge(self, name: str) -> dict[str, Any]:
        """Judge one item within the limit."""
        if self._process is None:
            self._start()
        self._connection.send(name)
        if self._connection.poll(self.limit_s):
            try:
                return self._connection.recv()
            except EOFError:
                self.close(kill=True)
                return {"raised": "the process died"}
        self.close(kill=True)
        return {"raised": f"not done after {self.limit_s:g} s", "seconds": self.limit_s}

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self.of), daemon=True)
        self._process.start()
        theirs.close()
        if not self._connection.poll(START_S):
            raise RuntimeError(f"no worker after {START_S} s")
        self._connection.recv()

    def close(self, *, kill: bool = False) -> None:
        """End the process."""
        if self._process is None:
            return
        if kill:
            self._process.kill()
        else:
            self._connection.send(None)
        self._process.join()
        self._process = None


def run(
    names: Sequence[str], *, of: str = "third", jobs: int = 1, limit_s: float = LIMIT_S
) -> dict[str, dict[str, Any]]:
    """Judge all items of a list, ``jobs`` at a time, and say each as it is done."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        waiting.put(name)
    results: dict[str, dict[str, Any]] = {}

    def work() -> None:
        worker = Worker(limit_s, of)
        while True:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                break
            results[name] = worker.judge(name)
            print(f"{len(results):4d}/{len(names)}  {line(name, results[name])}", file=sys.stderr, flush=True)
        worker.close()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {name: results[name] for name in names}


def line(name: str, result: Mapping[str, Any]) -> str:
    """Return what an item's result is on one line."""
    seconds = f"{result.get('seconds', 0):6.1f} s"
    if "raised" in result:
        return f"{seconds}  RAISED  {name}: {result['raised'].strip().splitlines()[-1]}"
    if "passed" in result:
        return f"{seconds}  {'passes' if result['passed'] else 'ALARM '}  {name}"
    marks = "".join(goal[0].upper() if result[goal] else "-" for goal in ("caught", "layer")) + (
        "W" if result["cause"] else "-"
    )
    return f"{seconds}  {marks}  {name}"


def summary(results: Mapping[str, Mapping[str, Any]], of: str = "third") -> str:
    """Return the table: by family, by part, altogether, and the equal pairs."""
    listed = read_list(of)
    faults = [fault for fault in listed.faults if fault.id in results]
    rows = [f"{'faults':<14}{'number':>8}{'caught':>14}{'layer':>14}{'cause':>14}{'raised':>8}"]
    layers = [fault for fault in faults if fault.part in listed.placed]
    groups = [(family, [one for one in layers if one.family == family]) for family in listed.families]
    groups += [(part, [one for one in faults if one.part == part]) for part in listed.parts]
    groups += [("all", faults)]
    for title, group in groups:
        if group:
            rows.append(_row(title, [results[one.id] for one in group]))
    clean = [results[one.id] for one in listed.clean if one.id in results]
    if clean:
        raised = sum("raised" in one for one in clean)
        alarms = sum("raised" not in one and not one["passed"] for one in clean)
        rows += ["", f"equal pairs: {len(clean)}, alarms: {alarms}, raised: {raised}"]
    missed = [name for name, one in results.items() if not one.get("cause", one.get("passed", False))]
    rows += ["", "not as it should be:", *(f"  {line(name, results[name])}" for name in missed)] if missed else []
    return "\n".join(rows)


def _row(title: str, group: Sequence[Mapping[str, Any]]) -> str:
    counts = [sum(bool(one.get(goal)) for one in group) for goal in GOALS]
    shares = "".join(f"{count:>7} {count / len(group):>5.0%} " for count in counts)
    return f"{title:<14}{len(group):>8}{shares}{sum('raised' in one for one in group):>8}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for and print the table."""
    parser = argparse.ArgumentParser(prog="python -m zoo.third.run", description=__doc__)
    parser.add_argument("--list", default="third", choices=("third", "fourth", "fifth"), help="which zoo")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--json", type=Path, help="where the results are written")
    parser.add_argument("--ids", nargs="+", default=[], help="items, or beginnings of their ids")
    parser.add_argument("--only", choices=("faults", "clean"), help="half of the list")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for one item")
    options = parser.parse_args(arguments)
    listed = read_list(options.list)
    names = [one.id for one in listed.faults] if options.only != "clean" else []
    names += [one.id for one in listed.clean] if options.only != "faults" else []
    if options.ids:
        names = [name for name in names if name.startswith(tuple(options.ids))]
    if not names:
        parser.error("no item is called so")
    results = run(names, of=options.list, jobs=options.jobs, limit_s=options.limit)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    print(summary(results, options.list))
    return 0


if __name__ == "__main__":
    sys.exit(main())
