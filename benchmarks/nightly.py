"""What nights cost: planning thousands of items, and what `tipchain nightly` adds to the programs it runs.

Planning: 10,000 items of parameter files in several modes, devices and repeats, in a fresh process each time.
Overhead: stub commands that end at once, through the local executor on two slots, against the same program started on
two slots by two threads, taking turns; and the coordinator's largest memory with few items and with many.

    python benchmarks/nightly.py [--items 2000] [--runs 3] [--only planning|local]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

from timing import describe_machine, in_turns, middle, plain_environment, tipchain_command

GOAL_PLAN_S = 2.0
GOAL_OVERHEAD_MS = 15.0
GOAL_GROWTH_MB = 10.0
SLOTS = 2
PROGRAM = "/bin/true"
FILES, MODES, DEVICES, REPEATS = 250, 4, 2, 5
PARAMS = Path(__file__).resolve().parents[1] / "test_tipc/configs/alexnet/train_infer_python.txt"
PLAN = """\
import sys, time
from pathlib import Path
begin = time.perf_counter()
from tipchain.nightly.expand import expand
from tipchain.nightly.manifest import load_manifest
from tipchain.nightly.project import DiskProject
manifest = load_manifest(Path(sys.argv[1]))
plan = expand(manifest, DiskProject(manifest))
print(len(plan.items), sum(bool(item.reason) for item in plan.items), time.perf_counter() - begin)
"""


def write_suite(folder: Path) -> Path:
    """Write a project with many parameter files, all different, and a manifest of 10,000 items; return it."""
    text = PARAMS.read_text()
    for number in range(FILES):
        path = folder / f"test_tipc/configs/net{number}/train_infer_python.txt"
        path.parent.mkdir(parents=True)
        path.write_text(text.replace("model_name:alexnet", f"model_name:net{number}"))
    manifest = folder / "suite.yaml"
    manifest.write_text(
        "chains:\n"
        "  - params: test_tipc/configs/*/train_infer_python.txt\n"
        "    modes: [lite_train_lite_infer, lite_train_whole_infer, whole_train_whole_infer, whole_infer]\n"
        f"    devices: [cpu, gpu]\n    repeats: {REPEATS}\n"
    )
    return manifest


def plan_once(manifest: Path) -> float:
    """Plan in a fresh process; return the seconds, imports of the parts included, Python's own start not.

    Raises:
        RuntimeError: there are not as many items as there should be, or some would not run.
    """
    done = subprocess.run(
        [sys.executable, "-c", PLAN, str(manifest)],
        env=plain_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    items, settled, seconds = done.stdout.split()
    if (int(items), int(settled)) != (FILES * MODES * DEVICES * REPEATS, 0):
        raise RuntimeError(f"{items} items, {settled} of them do not run")
    return float(seconds)


def show_once(manifest: Path) -> float:
    """Show the table of the plan; return the seconds of the whole command."""
    begin = time.perf_counter()
    argv = [*tipchain_command(), "nightly", "plan", str(manifest)]
    subprocess.run(argv, env=plain_environment(), stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def planning(folder: Path, runs: int) -> bool:
    """Measure planning; return whether the goal is met."""
    manifest = write_suite(folder)
    found = in_turns({"plan": partial(plan_once, manifest), "show": partial(show_once, manifest)}, runs)
    items = FILES * MODES * DEVICES * REPEATS
    seconds = middle(found["plan"])
    print(f"  {items} items of {FILES} files planned  {seconds:6.2f} s   goal at most {GOAL_PLAN_S:.0f} s")
    print(f"  and shown, the whole command       {middle(found['show']):6.2f} s")
    return seconds <= GOAL_PLAN_S


def bare(folder: Path, count: int) -> tuple[float, float]:
    """Start the program ``count`` times from two threads, its output to a file each; return the seconds."""
    numbers = iter(range(count))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            with (folder / f"bare{number}.log").open("wb") as log:
                subprocess.run([PROGRAM], stdout=log, stderr=log, check=True)

    threads = [threading.Thread(target=work) for _ in range(SLOTS)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin, 0.0


def night(folder: Path, count: int) -> tuple[float, float]:
    """Run a night of ``count`` items; return its seconds and the coordinator's largest memory in MiB.

    Raises:
        RuntimeError: it did not pass.
    """
    (folder / "test_tipc").mkdir(exist_ok=True)
    manifest = folder / f"stubs{count}.yaml"
    manifest.write_text(f"commands: [{{id: stub, argv: [{PROGRAM}], repeats: {count}}}]\n")
    argv = [*tipchain_command(), "nightly", "run", str(manifest), "--jobs", str(SLOTS)]
    begin = time.perf_counter()
    process = subprocess.Popen(
        argv, cwd=folder, env=plain_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    # Of this process alone: what it has waited for is counted apart.
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    shutil.rmtree(folder / "tipchain-nights", ignore_errors=True)
    if process.returncode:
        raise RuntimeError(f"{' '.join(argv)}: exit code {process.returncode}")
    return wall, usage.ru_maxrss / 1024


def local(folder: Path, count: int, runs: int) -> bool:
    """Measure what an item costs beyond its program; return whether the goals are met."""
    few = max(count // 10, 1)
    results = in_turns(
        {"bare": partial(bare, folder, count), "few": partial(night, folder, few), "many": partial(night, folder, count)},
        runs,
        warm=0,
    )  # fmt: skip
    walls = {name: middle(wall for wall, _ in found) for name, found in results.items()}
    memory = {name: middle(rss for _, rss in found) for name, found in results.items()}
    # The whole night, what it costs once included.
    each = (walls["many"] - walls["bare"]) / count
    growth = memory["many"] - memory["few"]
    print(f"  bare program on {SLOTS} slots            {walls['bare'] / count * 1e3:6.2f} ms")
    print(
        f"  an item's more                     {each * 1e3:6.2f} ms  goal at most {GOAL_OVERHEAD_MS:.0f} ms"
    )
    print(f"  memory, {few:>5} items               {memory['few']:6.1f} MiB")
    print(
        f"  memory, {count:>5} items               {memory['many']:6.1f} MiB goal at most {GOAL_GROWTH_MB:.0f} more"
    )
    return each * 1e3 <= GOAL_OVERHEAD_MS and growth <= GOAL_GROWTH_MB


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=2000, help="stub items of a night (default 2000)")
    parser.add_argument("--runs", type=int, default=3, help="measurements of each (default 3)")
    parser.add_argument("--only", choices=("planning", "local"), help="one part alone")
    args = parser.parse_args()
    print(f"{describe_machine()}; medians of {args.runs} runs each, taking turns")
    with tempfile.TemporaryDirectory(prefix="bench_nightly.") as name:
        parts = {
            "planning": partial(planning, Path(name) / "suite", args.runs),
            "local": partial(local, Path(name), args.items, args.runs),
        }
        (Path(name) / "suite").mkdir()
        met = [part() for which, part in parts.items() if args.only in (None, which)]
    print("goals met" if all(met) else "goal missed")
    return int(not all(met))


if __name__ == "__main__":
    raise SystemExit(main())
