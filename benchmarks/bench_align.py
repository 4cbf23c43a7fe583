"""Several stages by one `tipchain align` against separate scripts that do one stage each.

Five of the guide's steps, against five scripts as guides have them, which import both frameworks each
(`usual_scripts.py`): both do the same on the same weights, inputs, images and batches. The scripts compare with
reprod_log 1.0.1; `tipchain align` compares more (gradients, parameters, buffers, an envelope of losses). With
`--every-stage` all stages that the case has, against a `tipchain align --only ...` for each of them: the same checks.
A second run takes torch's side from the first, for nothing that it rests on has changed; the scripts run both again.
Every process is fresh, the two take turns, and no thread settings are made. Weights and data are made before the
first measurement.

The limit is what both sides calculate alone, side by side, in the environment of the recording processes (`plain_side.py`).

    python benchmarks/bench_align.py [--case FILE ...] [--runs 3] [--every-stage]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from timing import Usage, describe_machine, in_turns, middle, plain_environment, run_program, tipchain_command

from tipchain.modes import Mode
from tipchain.numbers.dumps import save_record
from tipchain.parity.case import SIDES, load_case
from tipchain.parity.inputs import make_inputs
from tipchain.parity.recorder import model_environment
from tipchain.parity.weights import data_roots, prepare_weights

ROOT = Path(__file__).resolve().parents[1]
CASES = (ROOT / "configs" / "alexnet.yaml", ROOT / "tests" / "cases" / "tiny" / "tiny.yaml")
SCRIPTS = ("forward", "data", "metric", "loss", "train")
STAGES = ("forward", "data", "metric", "loss", "backward", "train")
"""What the five scripts do."""
MODE = Mode.LITE_TRAIN_LITE_INFER
APART, TOGETHER, AGAIN, LIMIT = "separate scripts", "tipchain align", "... a second time", "both sides alone"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
GOALS = {TOGETHER: 0.33, AGAIN: 0.2}


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
        "backward": {
            "iterations": case.backward.iterations,
            "learning_rate": case.backward.learning_rate,
            "dtype": case.backward.dtype,
        },
        "train": {
            "batch_size": case.train.batch_size,
            "learning_rate": case.train.learning_rate,
            "epochs": case.epochs(MODE),
        },
        "seed": case.seed,
        "out": str(folder),
    }
    path = folder / "settings.json"
    path.write_text(json.dumps(settings, indent=1))
    return path


def run_align(case: Path, folder: Path, env: dict[str, str], stages: Sequence[str], *, fresh: bool = True) -> Whole:
    """Run `tipchain align` with some stages; a part is done when the program prints its stage.

    Unless ``fresh``, torch's side is of an earlier run: of the round before, or of the one that fills caches.
    """
    out, parts, start = folder / "align", {}, time.perf_counter()

    def on_line(line: str) -> None:
        if line.startswith("== "):
            parts[line[3:].strip()] = time.perf_counter() - start

    argv = [*tipchain_command(), "align", str(case), "--mode", MODE.value, "--out", str(out)]
    argv += ["--only", ",".join(stages), "-v", *(["--fresh"] if fresh else [])]  # -v prints each stage
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


def run_plain(settings: Path, folder: Path, env: dict[str, str]) -> Whole:
    """Run both sides' calculations side by side, each on a core of its own, as an alignment does."""
    script, env = str(Path(__file__).with_name("plain_side.py")), {**model_environment(), **env, **ONE_THREAD}
    start = time.perf_counter()
    with ThreadPoolExecutor() as pool:
        argvs = {side: [sys.executable, script, side, str(settings)] for side in SIDES}
        usages = [*pool.map(lambda one: run_program(argvs[one], env, folder / f"plain_{one}.log"), SIDES)]
    whole = Usage(wall=time.perf_counter() - start, cpu=sum(one.cpu for one in usages))
    return Whole(usage=whole, parts={side: one.wall for side, one in zip(SIDES, usages, strict=True)})


def run_each(case: Path, folder: Path, env: dict[str, str], stages: Sequence[str]) -> Whole:
    """Run a `tipchain align` for each stage, one after another."""
    ones = {stage: run_align(case, folder, env, (stage,)).usage for stage in stages}
    whole = Usage(wall=sum(one.wall for one in ones.values()), cpu=sum(one.cpu for one in ones.values()))
    return Whole(usage=whole, parts={stage: one.wall for stage, one in ones.items()})


def measure(case: Path, runs: int, *, every_stage: bool) -> dict[str, list[Whole]]:
    env = plain_environment()
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), env.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory(prefix="bench_align.") as name:
        folder = Path(name)
        settings = write_settings(case, folder)
        stages = load_case(case).stages if every_stage else STAGES
        apart = (
            partial(run_each, case, folder, env, stages) if every_stage else partial(run_scripts, settings, folder, env)
        )
        together = partial(run_align, case, folder, env, stages)
        ways = {APART: apart, TOGETHER: together, AGAIN: partial(together, fresh=False)}
        return in_turns(ways if every_stage else {**ways, LIMIT: partial(run_plain, settings, folder, env)}, runs)


def report(case: Path, results: dict[str, list[Whole]], runs: int) -> bool:
    """Print one case's table and tell whether the goals are met."""
    base = {part: middle(getattr(whole.usage, part) for whole in results[APART]) for part in ("wall", "cpu")}
    print(f"\n{os.path.relpath(case, ROOT)}; medians of {runs} runs each, taking turns")
    print(f"  {'':<20}{'seconds':>9}{'ratio':>8}{'fastest':>9}{'slowest':>9}{'CPU s':>8}{'ratio':>8}")
    for name, wholes in results.items():
        walls, cpu = [whole.usage.wall for whole in wholes], middle(whole.usage.cpu for whole in wholes)
        print(
            f"  {name:<20}{middle(walls):>9.1f}{middle(walls) / base['wall']:>8.2f}"
            f"{min(walls):>9.1f}{max(walls):>9.1f}{cpu:>8.1f}{cpu / base['cpu']:>8.2f}"
        )
    for name, wholes in results.items():
        words = {APART: "each script", LIMIT: "each side"}.get(name, "stage done at")
        parts = ", ".join(f"{part} {middle(whole.parts[part] for whole in wholes):.1f}" for part in wholes[0].parts)
        print(f"  {name}, {words}, s: {parts}")
    met = {
        name: middle(whole.usage.wall for whole in results[name]) <= goal * base["wall"] for name, goal in GOALS.items()
    }
    for name, goal in GOALS.items():
        print(f"  goal, {name}: ratio at most {goal}: {'met' if met[name] else 'missed'}")
    return all(met.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="measurements of each (default 3)")
    parser.add_argument(
        "--case", type=Path, action="append", metavar="FILE", help="case file; may be repeated (default: AlexNet, tiny)"
    )
    parser.add_argument("--every-stage", action="store_true", help="all stages, against a command for each of them")
    args = parser.parse_args()
    print(describe_machine())
    met = [
        report(case, measure(case.resolve(), args.runs, every_stage=args.every_stage), args.runs)
        for case in args.case or CASES
    ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    raise SystemExit(main())
