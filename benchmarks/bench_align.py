"""All stages by one `tipchain align` against five separate scripts that each import both frameworks.

Both do the same stages on the same weights, inputs, images and batches. The scripts (`usual_scripts.py`) compare
with reprod_log 1.0.1; `tipchain align` compares gradients, parameters and buffers as well. Every process is fresh,
the two take turns, and no thread settings are made. Weights and data are made before the first measurement.

    python benchmarks/bench_align.py [--case FILE ...] [--runs 3]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from timing import Usage, describe_machine, in_turns, middle, plain_environment, run_program, tipchain_command

from tipchain.modes import Mode
from tipchain.parity.case import load_case
from tipchain.parity.fake_inputs import make_inputs
from tipchain.parity.record import save_record
from tipchain.parity.weights import data_roots, prepare_weights

ROOT = Path(__file__).resolve().parents[1]
CASES = (ROOT / "configs" / "alexnet.yaml", ROOT / "tests" / "cases" / "tiny" / "tiny.yaml")
SCRIPTS = ("forward", "data", "metric", "loss", "train")
MODE = Mode.LITE_TRAIN_LITE_INFER
GOAL = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """One way through all stages: what it took in all, and when each part of it was done."""

    usage: Usage
    parts: dict[str, float] = field(default_factory=dict)


def write_settings(case_path: Path, folder: Path) -> Path:
    """Prepare weights, inputs and data, and write down for the scripts what the case says."""
    case = load_case(case_path)
    weights = prepare_weights(case, MODE)
    train_data, val_data = data_roots(case, MODE, None)
    inputs = folder / "fake_data.npy"
    save_record(inputs, make_inputs(case))
    settings = {
        "sides": {name: asdict(side) for name, side in case.sides.items()},
        "model_args": dict(case.model_args),
        "weights": {side: str(path.resolve()) for side, path in weights.paths.items()},
        "inputs": str(inputs),
        "train_data": str(train_data),
        "val_data": str(val_data),
        "batch_size": case.data.batch_size,
        "max_batches": case.data.max_batches,
        "optimizer": dict(case.optimizer_args),
        "scheduler": dict(case.scheduler_args),
        "backward": {"iterations": case.backward.iterations, "learning_rate": case.backward.learning_rate},
        "train": {"batch_size": case.train.batch_size, "learning_rate": case.train.learning_rate,
                  "epochs": case.epochs(MODE)},
        "seed": case.seed,
        "out": str(folder),
    }  # fmt: skip
    path = folder / "settings.json"
    path.write_text(json.dumps(settings, indent=1))
    return path


def run_align(case: Path, folder: Path, env: dict[str, str]) -> Whole:
    """Run `tipchain align`; a part is done when the program prints its stage."""
    out, parts, start = folder / "align", {}, time.perf_counter()

    def on_line(line: str) -> None:
        if line.startswith("== "):
            parts[line[3:].strip()] = time.perf_counter() - start

    argv = [*tipchain_command(), "align", str(case), "--mode", MODE.value, "--out", str(out)]
    usage = run_program(argv, env, folder / "align.log", on_line)
    shutil.rmtree(out)
    return Whole(usage=usage, parts=parts)


def run_scripts(settings: Path, folder: Path, env: dict[str, str]) -> Whole:
    """Run the five scripts one after another, as the guides say."""
    script, parts, usages = str(Path(__file__).with_name("usual_scripts.py")), {}, []
    for stage in SCRIPTS:
        argv = [sys.executable, script, stage, str(settings)]
        usages.append(run_program(argv, env, folder / f"{stage}.log"))
        parts[stage] = usages[-1].wall
    whole = Usage(wall=sum(one.wall for one in usages), cpu=sum(one.cpu for one in usages))
    return Whole(usage=whole, parts=parts)


def measure(case: Path, runs: int) -> dict[str, list[Whole]]:
    env = plain_environment()
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), env.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory(prefix="bench_align.") as name:
        folder = Path(name)
        settings = write_settings(case, folder)
        return in_turns(
            {
                "five usual scripts": partial(run_scripts, settings, folder, env),
                "tipchain align": partial(run_align, case, folder, env),
            },
            runs,
        )


def report(case: Path, results: dict[str, list[Whole]], runs: int) -> bool:
    """Print one case's table and tell whether the goal is met."""
    base = middle(whole.usage.wall for whole in results["five usual scripts"])
    print(f"\n{os.path.relpath(case, ROOT)}; medians of {runs} runs each, taking turns")
    print(f"  {'':<20}{'seconds':>9}{'ratio':>8}{'fastest':>9}{'slowest':>9}{'CPU s':>8}")
    for name, wholes in results.items():
        walls, cpu = [whole.usage.wall for whole in wholes], middle(whole.usage.cpu for whole in wholes)
        print(
            f"  {name:<20}{middle(walls):>9.1f}{middle(walls) / base:>8.2f}"
            f"{min(walls):>9.1f}{max(walls):>9.1f}{cpu:>8.1f}"
        )
    for name, wholes in results.items():
        words = "each script" if name.startswith("five") else "stage done at"
        parts = ", ".join(
            f"{part} {middle(whole.parts[part] for whole in wholes):.1f}" for part in wholes[0].parts
        )
        print(f"  {name}, {words}, s: {parts}")
    ratio = middle(whole.usage.wall for whole in results["tipchain align"]) / base
    print(f"  goal: ratio at most {GOAL}: {'met' if ratio <= GOAL else 'missed'}")
    return ratio <= GOAL


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3, help="measurements of each (default 3)")
    parser.add_argument(
        "--case",
        type=Path,
        action="append",
        metavar="FILE",
        help="case file; may be repeated (default: AlexNet, tiny)",
    )
    args = parser.parse_args()
    print(describe_machine())
    met = [report(case, measure(case.resolve(), args.runs), args.runs) for case in args.case or CASES]
    return 0 if all(met) else 1


if __name__ == "__main__":
    raise SystemExit(main())
