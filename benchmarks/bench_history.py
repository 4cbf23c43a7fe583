"""The history with 1,000,000 verdict rows on SQLite: adding nights, comparing two, listing.

    python benchmarks/bench_history.py [--nights N] [--items N] [--verdicts N] [--runs N]

Synthetic nights, added through the same code as real ones: every item has as many verdicts as asked for, with
their statistics, and four commands with figures. Every hundredth item fails in the last night. Two shapes are measured:
many nights of a usual size, and two nights that hold all rows between them. Each comparison is a fresh process;
the exit code is 1 if the median of one takes more than 2 s.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from timing import describe_machine, middle, plain_environment, run_program

from tipchain.errors import Outcome
from tipchain.history.schema import CommandFacts, Entry, ItemFacts
from tipchain.history.store import History, place_of

GOAL_S = 2.0
SHAPES = {"many nights": (50, 100, 200), "two nights": (2, 250, 2000)}


def night(number: int, last: bool) -> Entry:
    """Return a night, a day after the one before."""
    name = f"20260101-0000{number:02d}-00000" if number < 60 else f"20260101-{number:06d}-00000"
    return Entry(
        key=f"night {number}",
        kind="night",
        name=name,
        title="suite",
        began=86400.0 * number,
        started="2026-01-01T00:00:00+00:00",
        machine="host",
        machine_class="16 cores",
        environment={"torch": "2.13.0" if last else "2.12.0"},
        commit=f"{number:07x}",
    )


def items(count: int, verdicts: int, number: int, last: bool) -> Iterator[ItemFacts]:
    """Yield a night's items; in the last night every hundredth fails."""
    for at in range(count):
        fails = last and at % 100 == 0
        outcome = Outcome.FAIL if fails else Outcome.PASS
        yield ItemFacts(
            id=f"model{at}:align[lite_train_lite_infer;cpu]",
            attempt=1,
            outcome=outcome,
            seconds=100.0 + (number + at) % 7,
            machine="host",
            machine_class="16 cores",
            judged=[verdict(subject, fails and subject == 0) for subject in range(verdicts)],
            commands=[command(step, number) for step in ("train", "eval", "export", "infer")],
        )


def verdict(subject: int, fails: bool) -> dict[str, object]:
    """Return a verdict."""
    return {
        "subject": f"backward/features.{subject}.weight",
        "outcome": Outcome.FAIL if fails else Outcome.PASS,
        "reason": "max 1e-07 · allowed max <= 1e-05",
    }


def command(step: str, number: int) -> CommandFacts:
    """Return a command with four figures."""
    figures = {"loss": 1.0, "top1": 0.9, "avg_ips": 100.0 + number % 3, "batch_cost_s": 0.1}
    return CommandFacts(
        id=f"{step}[norm_train]",
        step=step,
        argv=["python", f"{step}.py"],
        outcome=Outcome.PASS,
        seconds=20.0,
        figures=figures,
    )


def measure(shape: tuple[int, int, int], runs: int) -> float:
    """Fill a history of a shape, print what things take, and return the median of the comparisons."""
    nights, count, verdicts = shape
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "history.sqlite"
        history = History(place_of(Path(folder), str(file)))
        start = time.perf_counter()
        for number in range(nights):
            last = number == nights - 1
            history.add(night(number, last), items(count, verdicts, number, last))
        filled = time.perf_counter() - start
        rows = nights * count * verdicts
        size = sum(one.stat().st_size for one in Path(folder).iterdir()) / 2**20
        print(
            f"{rows:,} verdicts in {nights} nights of {count} items: added in {filled:.1f} s "
            f"({filled / rows * 1e6:.0f} us a verdict), {size:.0f} MiB"
        )
        found = 0.0
        for words in (["diff"], ["list"]):
            took = [_call([*words, "--database", str(file)], Path(folder)) for _ in range(runs)]
            print(f"  tipchain history {' '.join(words):<26} {middle(took):.2f} s")
            found = found or middle(took)
    return found


def _call(words: list[str], folder: Path) -> float:
    argv = [sys.executable, "-m", "tipchain", "history", *words]
    return run_program(argv, plain_environment(), folder / "output.log").wall


def main() -> int:
    """Measure and print; 1 if the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, help="nights, instead of the two shapes")
    parser.add_argument("--items", type=int, default=100, help="items of a night (100)")
    parser.add_argument("--verdicts", type=int, default=200, help="verdicts of an item (200)")
    parser.add_argument("--runs", type=int, default=5, help="processes per figure (5)")
    args = parser.parse_args()
    print(describe_machine())
    own = {"as asked": (args.nights, args.items, args.verdicts)}
    shapes = own if args.nights else SHAPES
    took = max(measure(shape, args.runs) for shape in shapes.values())
    print(f"comparing two nights: {took:.2f} s, the goal is {GOAL_S:g} s")
    return 0 if took <= GOAL_S else 1


if __name__ == "__main__":
    raise SystemExit(main())
