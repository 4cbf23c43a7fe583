"""How long `tipchain --version` and `tipchain plan` take, whole processes, beside Python doing nothing.

Byte code is kept in a folder of its own that the first, unmeasured round fills, as an installation has it.

    python benchmarks/bench_startup.py [--runs 30] [--params FILE] [--mode MODE]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

from timing import Usage, describe_machine, in_turns, middle, plain_environment, run_program, tipchain_command

ROOT = Path(__file__).resolve().parents[1]
PARAMS = ROOT / "test_tipc" / "configs" / "alexnet" / "train_infer_python.txt"
GOAL_S = 0.15


def measure(runs: int, params: Path, mode: str) -> dict[str, list[Usage]]:
    tipchain = tipchain_command()
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "tipchain --version": [*tipchain, "--version"],
        "tipchain plan": [*tipchain, "plan", str(params), mode],
    }
    with tempfile.TemporaryDirectory(prefix="bench_startup.") as folder:
        env = {**plain_environment(), "PYTHONPYCACHEPREFIX": folder}
        log = Path(folder) / "output.txt"
        return in_turns(
            {name: partial(run_program, argv, env, log) for name, argv in commands.items()}, runs, warm=2
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=30, help="measurements of each (default 30)")
    parser.add_argument(
        "--params", type=Path, default=PARAMS, help="parameter file to plan (default AlexNet's)"
    )
    parser.add_argument("--mode", default="lite_train_lite_infer", help="mode to plan")
    args = parser.parse_args()
    print(f"{describe_machine()}; medians of {args.runs} runs each, taking turns")
    results = measure(args.runs, args.params, args.mode)
    print(f"  {'':<20}{'median s':>10}{'fastest':>9}{'slowest':>9}{'goal s':>8}")
    missed = False
    for name, usages in results.items():
        walls = [usage.wall for usage in usages]
        goal = f"{GOAL_S:.2f}" if name.startswith("tipchain") else ""
        missed |= bool(goal) and middle(walls) > GOAL_S
        print(f"  {name:<20}{middle(walls):>10.3f}{min(walls):>9.3f}{max(walls):>9.3f}{goal:>8}")
    print("goal missed" if missed else "goals met")
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
