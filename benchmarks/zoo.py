"""What `tipchain.align` finds: ports with one known fault each, and pairs that are equal.

The pairs are those of `tests/zoo`. For each fault: whether it was caught, whether the guilty layer was named exactly, and
whether the cause stood first; for each equal pair: whether it passed, and how many layers were called faulty. Beside it,
on the same pairs, the rule of reprod_log: mean absolute difference of outputs and losses of both models in float32, at most
1e-6. With `--padiff FOLDER`, PaDiff 0.2.0 too, strict with an absolute tolerance of 1e-4; the folder is what
`pip install --no-deps --target FOLDER padiff==0.2.0` makes.

    OMP_NUM_THREADS=1 python benchmarks/zoo.py [--only NAME ...] [--part faults|clean] [--json FILE] [--padiff FOLDER]
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import inspect
import io
import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from timing import describe_machine, middle

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from zoo.judged import align, place  # noqa: E402

from tipchain.explain.locate.runs import as_float, bind, read_inputs, run_model  # noqa: E402
from tipchain.explain.locate.trace import Store  # noqa: E402
from tipchain.frameworks.live_models import PaddleSide, Sides, TorchSide  # noqa: E402
from tipchain.frameworks.randomness import Draws  # noqa: E402

THRESHOLD = 1e-6
"""reprod_log's default, for the mean absolute difference."""
STEPS = 5
Case = tuple[str, str, Callable[[], Any], Any]
"""A pair's name, its list, what makes it, and its fault."""
GOALS = {"caught": 1.0, "layer": 0.95, "cause": 0.88}
FAULTS, CLEAN = "faults", "clean"


@dataclass(slots=True, kw_only=True)
class Result:
    """What came of one pair.

    Attributes:
        id: its name.
        part: of which list it is.
        faulty: a fault was planted.
        passed: the report's verdict; None where it raised.
        place: the layer it names, by the port's path; None where it names none.
        cause: the code of the first diagnosis.
        layer: the place is right; None of a clean pair.
        first: the cause is right; None of a clean pair.
        alarms: layers that were called faulty.
        layers: layers that were judged, forward and backward.
        seconds: what the call took.
        reprod_log: its rule passed the pair; None where it could not be applied.
        padiff: PaDiff passed it; None where it raised or was not asked for.
        note: what to know about it.
    """

    id: str
    part: str
    faulty: bool = False
    passed: bool | None = None
    place: str | None = None
    cause: str | None = None
    layer: bool | None = None
    first: bool | None = None
    alarms: int = 0
    layers: int = 0
    seconds: float = 0.0
    reprod_log: bool | None = None
    padiff: bool | None = None
    note: str = ""
    expected: dict[str, Any] = field(default_factory=dict)


def judge(result: Result, make: Callable[[], Any], fault: Any | None) -> Any:
    """Fill in what `tipchain.align` says; return the pair as it is made anew."""
    pair = make()
    start = time.perf_counter()
    try:
        report = align(pair)
    except Exception as error:  # noqa: BLE001  (whatever it is, it is this case's result)
        result.note = f"raised {type(error).__name__}: {error}".splitlines()[0]
        return make()
    result.seconds = time.perf_counter() - start
    cause = report.diagnoses[0] if report.diagnoses else None
    result.passed = report.passed
    result.layers = len(report.layers)
    result.alarms = sum(one.at_fault for one in report.layers)
    result.cause = None if cause is None else cause.code
    result.place = place(report)
    if fault is not None:
        result.layer = not report.passed and result.place in fault.where
        result.first = not report.passed and fault.is_named(cause)
        result.expected = {"where": fault.where, "says": fault.says}
    wrong = {
        name: report.reasons.get(name, "")
        for name, outcome in report.stages.items()
        if outcome.value in ("FAIL", "ERROR")
    }
    if fault is None or any("ERROR" in str(report.stages[name].value) for name in wrong):
        result.note = "; ".join(f"{report.stages[name].value} {name}: {reason}" for name, reason in wrong.items())[:400]
    return make()


def reprod_log_passes(pair: Any) -> bool:
    """Tell whether outputs and losses of both models in float32 differ by at most 1e-6 on average."""
    sides = Sides(TorchSide(), PaddleSide())
    given = read_inputs(pair.inputs)
    losses = pair.loss or (None, None)
    store = Store()
    try:
        runs = [
            run_model(side, model, given, store, double=False, loss=loss, seed=0, draws=Draws(0), backward=False)
            for side, model, loss in zip(sides, (pair.reference, pair.port), losses, strict=True)
        ]
    finally:
        store.close()
    if len(runs[0].outputs) != len(runs[1].outputs):
        return False
    for one, other in zip(*(run.outputs for run in runs), strict=True):
        if one.shape != other.shape or not np.abs(one - other).mean() <= THRESHOLD:
            return False
    if pair.loss is None:
        return True
    if pair.optimizers is None:
        return abs(runs[0].loss - runs[1].loss) <= THRESHOLD
    trained = [_losses(side, pair, number) for number, side in enumerate(sides)]
    return float(np.abs(np.subtract(*trained)).mean()) <= THRESHOLD


def _losses(side: Any, pair: Any, number: int) -> list[float]:
    """Return the losses of some steps in float32."""
    model = (pair.reference, pair.port)[number]
    given = bind(model, read_inputs(pair.inputs))
    schedule: Any = None
    if number == 0:
        optimizer = pair.optimizers[0](model.parameters())
        if pair.schedulers is not None:
            schedule = pair.schedulers[0](optimizer)
    else:
        schedule = pair.schedulers[1]() if pair.schedulers is not None else None
        rate = () if schedule is None else (schedule,)
        optimizer = pair.optimizers[1](model.parameters(), *rate)
    found = []
    for step in range(STEPS):
        side.seed(step)
        with side.randomness(Draws(step)):
            args = [side.tensor(as_float(one, double=False), gradient=False) for one in given.args]
            kwargs = {
                name: side.tensor(as_float(one, double=False), gradient=False) for name, one in given.kwargs.items()
            }
            arrays = given.labels if isinstance(given.labels, tuple) else (given.labels,)
            labels = tuple(side.tensor(as_float(one, double=False), gradient=False) for one in arrays)
            loss = pair.loss[number](model(*args, **kwargs), labels if arrays is given.labels else labels[0])
            loss.backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
        optimizer.zero_grad() if number == 0 else optimizer.clear_grad()
        found.append(float(loss))
    return found


class Padiff:
    """PaDiff 0.2.0 from a folder."""

    def __init__(self, folder: Path) -> None:
        sys.path.append(str(folder))
        with contextlib.redirect_stdout(io.StringIO()):
            import padiff
        self._auto_diff = padiff.auto_diff

    def passes(self, pair: Any) -> bool:
        """Tell whether it calls the pair equal."""
        options = {"atol": 1e-4, "rtol": 0.0, "compare_mode": "strict"}
        given = [
            _named(model, side, read_inputs(pair.inputs))
            for model, side in ((pair.port, PaddleSide()), (pair.reference, TorchSide()))
        ]
        extra = {}
        if pair.loss is not None:
            labels = [side.tensor(pair.inputs["labels"], gradient=False) for side in (PaddleSide(), TorchSide())]
            ours, theirs = pair.loss
            extra["loss_fn"] = (lambda output: theirs(output, labels[0]), lambda output: ours(output, labels[1]))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return bool(self._auto_diff(pair.port, pair.reference, given, auto_weights=False, options=options, **extra))


def _named(model: Any, side: Any, inputs: Any) -> dict[str, Any]:
    """Return a model's inputs by the names of its forward's arguments."""
    bound = bind(model, inputs)
    names = [name for name in inspect.signature(model.forward).parameters if name not in bound.kwargs]
    arrays = {**dict(zip(names, bound.args, strict=False)), **bound.kwargs}
    return {name: side.tensor(as_float(one, double=False), gradient=False) for name, one in arrays.items()}


def run_case(case: Case) -> Result:
    """Return what comes of one pair."""
    name, part, make, fault = case
    result = Result(id=name, part=part, faulty=fault is not None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pair = judge(result, make, fault)
        try:
            result.reprod_log = reprod_log_passes(pair)
        except Exception as error:  # noqa: BLE001
            result.note += f" [reprod_log's rule: {type(error).__name__}]"
    gc.collect()
    return result


def run_padiff(padiff: Padiff, case: Case, result: Result) -> None:
    """Fill in what PaDiff says of one pair."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result.padiff = padiff.passes(case[2]())
        except (Exception, SystemExit) as error:  # noqa: BLE001
            result.note += f" [PaDiff: {type(error).__name__}: {' '.join(str(error).split())[:80]}]"


def cases(parts: list[str]) -> Iterator[Case]:
    """Yield the pairs of some lists: name, list, what makes it, and its fault."""
    from zoo.clean import CLEAN as EQUAL
    from zoo.faults import FAULTS as PLANTED

    if FAULTS in parts:
        yield from ((fault.id, FAULTS, fault.build, fault) for fault in PLANTED)
    if CLEAN in parts:
        yield from ((equal.id, CLEAN, equal.build, None) for equal in EQUAL)


def line(result: Result) -> str:
    """Return one pair's line."""
    if result.faulty:
        marks = "".join(
            "+" if good else "-" for good in (result.passed is False, bool(result.layer), bool(result.first))
        )
        told = f"{marks}  {result.place!r}: {result.cause}"
        if not (result.layer and result.first):
            told += f"  (expected {' or '.join(map(repr, result.expected.get('where', ())))}: {result.expected.get('says', '?')})"
    else:
        told = "passed" if result.passed else f"ALARM {result.place!r}: {result.cause}; {result.alarms} layers"
    others = {True: "passes", False: "fails", None: "-"}
    return f"{result.id:<32}{result.seconds:>6.2f} s  reprod_log {others[result.reprod_log]:<7}{told}{'  ' + result.note if result.note else ''}"


def summary(results: list[Result], *, padiff: bool) -> tuple[Mapping[str, Any], bool]:
    """Return the figures of all pairs, and whether the goals are met."""
    faulty = [one for one in results if one.faulty]
    clean = [one for one in results if not one.faulty]
    figures: dict[str, Any] = {"faults": len(faulty), "clean pairs": len(clean)}
    met = True
    if faulty:
        shares = {
            "caught": sum(one.passed is False for one in faulty) / len(faulty),
            "layer": sum(bool(one.layer) for one in faulty) / len(faulty),
            "cause": sum(bool(one.first) for one in faulty) / len(faulty),
        }
        figures |= shares
        met = all(shares[name] >= goal for name, goal in GOALS.items())
    if clean:
        alarms = [one for one in clean if not one.passed]
        figures["false alarms"] = [one.id for one in alarms]
        figures["clean layers"] = sum(one.layers for one in clean)
        figures["clean layers called faulty"] = sum(one.alarms for one in clean)
        met = met and not alarms and not figures["clean layers called faulty"]
    if results:
        figures["seconds a case"] = middle(one.seconds for one in results)
    for name, on in (("reprod_log", True), ("padiff", padiff)):
        if on:
            figures[name] = {
                "caught": sum(getattr(one, name) is False for one in faulty),
                "false alarms": sum(getattr(one, name) is False for one in clean),
                "raised": sum(getattr(one, name) is None for one in results),
            }
    return figures, met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="pairs whose names contain one of these")
    parser.add_argument("--part", action="append", choices=(FAULTS, CLEAN), help="default: both")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every result there")
    parser.add_argument("--padiff", type=Path, metavar="FOLDER", help="where PaDiff 0.2.0 is installed")
    args = parser.parse_args()
    print(describe_machine())
    chosen = [
        case
        for case in cases(args.part or [FAULTS, CLEAN])
        if not args.only or any(part in case[0] for part in args.only)
    ]
    results = []
    for case in chosen:
        try:
            results.append(run_case(case))
        except Exception:  # noqa: BLE001  (a pair that cannot be built is told, and the rest goes on)
            results.append(
                Result(
                    id=case[0],
                    part=case[1],
                    faulty=case[3] is not None,
                    note=traceback.format_exc(limit=-1).splitlines()[-1],
                )
            )
        print(line(results[-1]), flush=True)
    if args.padiff is not None:  # last: what it changes in both frameworks stays changed
        padiff = Padiff(args.padiff)
        for case, result in zip(chosen, results, strict=True):
            run_padiff(padiff, case, result)
            told = {True: "passes", False: "fails", None: f"raised{result.note}"}[result.padiff]
            print(f"{result.id:<32} PaDiff {told}", flush=True)
    figures, met = summary(results, padiff=args.padiff is not None)
    for name, value in figures.items():
        print(f"{name:<28}{value:.1%}" if name in GOALS else f"{name:<28}{value}")
    print(f"goals: {'met' if met else 'missed'}")
    if args.json is not None:
        args.json.write_text(json.dumps({"summary": figures, "cases": [asdict(one) for one in results]}, indent=1))
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
