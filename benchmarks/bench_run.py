"""What `tipchain run` adds to the programs it runs, and what several jobs gain.

Overhead: a chain of many stub commands, each of which ends at once, against the same program started from Python as
often, taking turns; and the largest memory of the tipchain process with few and with many commands.
Jobs: a chain of two independent legs whose programs wait, with one job and with two.

    python benchmarks/bench_run.py [--commands 1000] [--runs 3] [--wait 0.5]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

from timing import describe_machine, in_turns, middle, plain_environment, tipchain_command

GOAL_OVERHEAD_MS = 15.0
GOAL_SPEEDUP = 1.8
GOAL_GROWTH_MB = 10.0
MODE = "whole_infer"
PARAMS = """\
===========================train_params===========================
model_name:stub
python:python
gpu_list:-1
null:null
null:null
null:null
null:null
null:null
null:null
train_model_name:null
null:null
null:null
##
trainer:norm_train
norm_train:null
pact_train:null
fpgm_train:null
distill_train:null
null:null
null:null
##
===========================eval_params===========================
eval:null
null:null
##
===========================infer_params===========================
null:null
null:null
norm_export:null
quant_export:null
fpgm_export:null
distill_export:null
export1:null
export2:null
##
infer_model:{models}
infer_export:{exports}
infer_quant:{quants}
inference:infer.py
--use-gpu:False
null:null
--threads:{threads}
--bs:1
null:null
null:null
--model:null
--image:./images
null:null
null:null
null:null
"""


def write_params(folder: Path, threads: int, models: int = 1) -> Path:
    """Write a parameter file with ``threads`` inferences of each of ``models``; return it."""
    lists = {name: "|".join([word] * models) for name, word in (("exports", "null"), ("quants", "False"))}
    text = PARAMS.format(
        models="|".join(f"./model{number}" for number in range(models)),
        threads="|".join(map(str, range(1, threads + 1))),
        **lists,
    )
    path = folder / f"stub_{threads}_{models}.txt"
    path.write_text(text)
    return path


def write_stub(folder: Path, body: str) -> Path:
    """Write a program that prints a result after ``body``; return it."""
    path = folder / f"stub{abs(hash(body))}"
    path.write_text(f"#!/bin/sh\n{body}\necho class: 1\n")
    path.chmod(0o755)
    return path


def run_chain(folder: Path, params: Path, stub: Path, *options: str) -> tuple[float, float]:
    """Run a chain; return its seconds and the largest memory of the tipchain process in MiB.

    Raises:
        RuntimeError: it did not pass.
    """
    argv = [*tipchain_command(), "run", str(params), MODE, "--python", str(stub), *options]
    begin = time.perf_counter()
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env=plain_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # Of this process alone: what it has waited for is counted apart.
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(argv)}: exit code {process.returncode}")
    return wall, usage.ru_maxrss / 1024


def bare(folder: Path, stub: Path, count: int) -> tuple[float, float]:
    """Start the stub ``count`` times, its output to a file each; return the seconds."""
    begin = time.perf_counter()
    for number in range(count):
        with (folder / f"bare{number}.log").open("wb") as log:
            subprocess.run([stub, "infer.py", f"--threads={number}"], stdout=log, stderr=log, check=True)
    return time.perf_counter() - begin, 0.0


def overhead(folder: Path, count: int, runs: int) -> bool:
    """Measure what a command costs beyond its program; return whether the goals are met."""
    stub = write_stub(folder, ":")
    few, many = write_params(folder, max(count // 10, 1)), write_params(folder, count)
    results = in_turns(
        {
            "bare": partial(bare, folder, stub, count),
            "few": partial(run_chain, folder, few, stub),
            "many": partial(run_chain, folder, many, stub),
        },
        runs,
        warm=0,
    )
    walls = {name: middle(wall for wall, _ in found) for name, found in results.items()}
    memory = {name: middle(rss for _, rss in found) for name, found in results.items()}
    # The difference of the two chains leaves out what a run costs once.
    more = count - max(count // 10, 1)
    each = (walls["many"] - walls["few"]) / more - walls["bare"] / count
    growth = memory["many"] - memory["few"]
    print(f"  bare program          {walls['bare'] / count * 1e3:8.2f} ms")
    print(f"  a command more        {each * 1e3:8.2f} ms   goal at most {GOAL_OVERHEAD_MS:.0f} ms")
    print(f"  memory, {max(count // 10, 1):>5} commands{memory['few']:8.1f} MiB")
    print(f"  memory, {count:>5} commands{memory['many']:8.1f} MiB  goal at most {GOAL_GROWTH_MB:.0f} more")
    return each * 1e3 <= GOAL_OVERHEAD_MS and growth <= GOAL_GROWTH_MB


def jobs(folder: Path, wait: float, runs: int) -> bool:
    """Measure two legs on one slot and on two; return whether the goal is met."""
    stub = write_stub(folder, f"sleep {wait}")
    params = write_params(folder, 4, models=2)
    results = in_turns(
        {"1": partial(run_chain, folder, params, stub), "2": partial(run_chain, folder, params, stub, "--jobs", "2")},
        runs,
        warm=0,
    )
    one, two = (middle(wall for wall, _ in results[name]) for name in ("1", "2"))
    print(f"  2 legs, 1 job         {one:8.2f} s")
    print(f"  2 legs, 2 jobs        {two:8.2f} s")
    print(f"  times as fast         {one / two:8.2f}      goal at least {GOAL_SPEEDUP}")
    return one / two >= GOAL_SPEEDUP


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commands", type=int, default=1000, help="stub commands of a chain (default 1000)")
    parser.add_argument("--runs", type=int, default=3, help="measurements of each (default 3)")
    parser.add_argument("--wait", type=float, default=0.5, help="seconds that a waiting stub waits (default 0.5)")
    args = parser.parse_args()
    print(f"{describe_machine()}; medians of {args.runs} runs each, taking turns")
    with tempfile.TemporaryDirectory(prefix="bench_run.") as name:
        folder = Path(name)
        met = [overhead(folder, args.commands, args.runs), jobs(folder, args.wait, args.runs)]
    print("goals met" if all(met) else "goal missed")
    return int(not all(met))


if __name__ == "__main__":
    raise SystemExit(main())
