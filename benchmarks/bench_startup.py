"""How long `tipchain --version`, `plan` and `lint` take, whole processes, beside Python doing nothing.

Byte code is kept in a folder of its own that the first, unmeasured round fills, as an installation has it.

    python benchmarks/bench_startup.py [--runs 30] [--params FILE] [--mode MODE] [--lint FOLDER]
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
CORPUS = ROOT.parent / "shared/tipc_corpus/configs/PaddleClas"
GOALS_S = {"tipchain --version": 0.05, "tipchain plan": 0.08, "tipchain lint": 0.8}
"""Of `lint`: for PaddleClas's 205 parameter files."""


def measure(runs: int, params: Path, mode: str, folder_of_files: Path) -> dict[str, list[Usage]]:
    tipchain = tipchain_command()
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "tipchain --version": [*tipchain, "--version"],
        "tipchain plan": [*tipchain, "plan", str(params), mode],
    }
    if folder_of_files.is_dir():
        commands["tipchain lint"] = [*tipchain, "lint", str(folder_of_files)]
    with tempfile.TemporaryDirectory(prefix="bench_startup.") as folder:
        env = {**plain_environment(), "PYTHONPYCACHEPREFIX": folder}
        log = Path(folder) / "output.txt"
        return in_turns({name: partial(run_program, argv, env, log) for name, argv in commands.items()}, runs, warm=2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30, help="measurements of each (default 30)")
    parser.add_argument("--params", type=Path, default=PARAMS, help="parameter file to plan (default AlexNet's)")
    parser.add_argument("--mode", default="lite_train_lite_infer", help="mode to plan")
    parser.add_argument("--lint", type=Path, default=CORPUS, help="folder of parameter files to lint, if it is there")
    args = parser.parse_args()
    print(f"{describe_machine()}; medians of {args.runs} runs each, taking turns")
    results = measure(args.runs, args.params, args.mode, args.lint)
    print(f"  {'':<20}{'median s':>10}{'fastest':>9}{'slowest':>9}{'CPU s':>8}{'goal s':>8}")
    missed = False
    for name, usages in results.items():
        walls = [usage.wall for usage in usages]
        goal, cpu = GOALS_S.get(name), middle(usage.cpu for usage in usages)
        missed |= goal is not None and middle(walls) > goal
        print(f"  {name:<20}{middle(walls):>10.3f}{min(walls):>9.3f}{max(walls):>9.3f}{cpu:>8.3f}{goal or '':>8}")
    print("goal missed" if missed else "goals met")
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
