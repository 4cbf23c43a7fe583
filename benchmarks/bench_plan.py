"""How long planning takes: every parameter file below a folder, in all four modes, in one process.

The original drivers cannot plan; their dry run (each program replaced by one that does nothing) is the peer. Where a
checkout of a suite is at hand, ``--driver`` times its own driver so, taking turns with tipchain on the same files.
Otherwise the peer is the recorded median of 0.154 s for a file in a mode, on two cores.

    python benchmarks/bench_plan.py [--corpus FOLDER] [--runs 5] [--driver CHECKOUT]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from timing import describe_machine, in_turns, middle

from tipchain.chain.load import load_plan
from tipchain.errors import TipchainError
from tipchain.modes import CHAIN_MODES, Mode

ROOT = Path(__file__).resolve().parents[1]
PLACES = (ROOT.parent / "shared/tipc_corpus/configs", ROOT / "tests/conformance/samples")
MODES = tuple(mode for mode in CHAIN_MODES if mode is not Mode.KLQUANT_WHOLE_INFER)
DRIVER = "test_tipc/test_train_inference_python.sh"
RECORDED_S = 0.154
GOAL_RATIO = 50.0
GOAL_S = 0.005


def plan_all(files: list[Path], modes: tuple[Mode, ...], spent: list[float] | None = None) -> float:
    """Plan each file in each mode; return the seconds, and add each plan's own to ``spent``."""
    begin = time.perf_counter()
    for file in files:
        for mode in modes:
            start = time.perf_counter()
            try:
                load_plan(file, mode, lenient=True)
            except TipchainError as error:
                print(f"  refused: {str(error).splitlines()[0]}", file=sys.stderr)
            if spent is not None:
                spent.append(time.perf_counter() - start)
    return time.perf_counter() - begin


def dry_run(checkout: Path, files: list[Path], idle: Path) -> float:
    """Run the checkout's own driver on each file in each mode with programs that do nothing; return the seconds."""
    env = {**os.environ, "PATH": f"{idle}:{os.environ['PATH']}"}
    begin = time.perf_counter()
    for file in files:
        for mode in MODES:
            argv = ["bash", DRIVER, str(file), mode.value]
            subprocess.run(argv, cwd=checkout, env=env, capture_output=True, check=False)
    return time.perf_counter() - begin


def idle_programs(folder: Path) -> Path:
    """Fill ``folder`` with the programs that drivers start, doing nothing; return it."""
    for name in ("python", "python3", "python3.7", "python3.10", "pip", "pip3.7", "sleep", "timeout", "wget"):
        program = folder / name
        program.write_text("#!/bin/sh\nexit 0\n")
        program.chmod(0o755)
    return folder


def compare(files: list[Path], checkout: Path | None, runs: int) -> tuple[list[float], float]:
    """Return tipchain's seconds for all files, and the peer's for one plan."""
    if checkout is None:
        return in_turns({"tipchain": partial(plan_all, files, MODES)}, runs)["tipchain"], RECORDED_S
    with tempfile.TemporaryDirectory(prefix="bench_plan.") as folder:
        idle = idle_programs(Path(folder))
        results = in_turns(
            {"tipchain": partial(plan_all, files, MODES), "driver": partial(dry_run, checkout, files, idle)}, runs
        )
    return results["tipchain"], middle(results["driver"]) / (len(files) * len(MODES))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = next(place for place in PLACES if place.is_dir())
    parser.add_argument("--corpus", type=Path, default=default, help=f"folder of parameter files ({default})")
    parser.add_argument("--runs", type=int, default=5, help="measurements (default 5)")
    parser.add_argument("--driver", type=Path, help="a suite's checkout; --corpus is then a folder in it")
    args = parser.parse_args()
    files = sorted(args.corpus.resolve().rglob("*.txt"))
    if not files:
        parser.error(f"no parameter file below {args.corpus}")
    print(f"{describe_machine()}; medians of {args.runs} runs, taking turns")
    plans = len(files) * len(MODES)
    totals, peer = compare(files, args.driver, args.runs)
    spent: list[float] = []
    plan_all(files, MODES, spent)
    first = min(plan_all([file], MODES[:1]) for file in files[:1] for _ in range(3))
    each, slowest = middle(totals) / plans, max(spent)
    told = "its own driver's dry run" if args.driver else "recorded, no driver at hand"
    print(f"  {len(files)} files in {len(MODES)} modes: {plans} plans in {middle(totals):.2f} s")
    print(f"  a plan                {each * 1e3:8.2f} ms   goal at most {GOAL_S * 1e3:.0f} ms")
    print(f"  the slowest plan      {slowest * 1e3:8.2f} ms")
    print(f"  one file by itself    {first * 1e3:8.2f} ms")
    print(f"  the original          {peer * 1e3:8.2f} ms   {told}")
    print(f"  times as fast         {peer / each:8.1f}      goal at least {GOAL_RATIO:.0f}")
    missed = each > GOAL_S or peer / each < GOAL_RATIO
    print("goal missed" if missed else "goals met")
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
