"""Compare two dumps: tipchain (what `tipchain diff` does) and its drop-in against reprod_log 1.0.1.

Each measurement is a fresh process, and the two tools take turns. Measured are load, compare and report (without
importing, which is given apart), and the anonymous memory that they need beyond what the imports left. CPU seconds say more than seconds where other programs run.

    python benchmarks/bench_diff.py [--size-mb 1000] [--arrays 100] [--tiny 10000] [--runs 5]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PEAK_EVERY_S = 0.002


def anonymous_kib(process: int) -> int:
    """Return the resident anonymous memory of a process and its children; mapped pages of files are not in it."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    total = sum(map(anonymous_kib, map(int, children)))
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return total + int(line.split()[1])
    return total  # it has ended


def processor_seconds() -> float:
    """Return what this process and its children have taken of all cores."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def use_tool(tool: str, reference: str, port: str, log: str):
    if tool == "read":
        import numpy as np

        from tipchain.numbers.dumps import load_record

        def read() -> None:
            for path in (reference, port):
                for array in load_record(path).arrays.values():
                    np.max(array)

        return read
    if tool == "tipchain":
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as the command does
        from tipchain.commands.diff import compare_on_cores
        from tipchain.numbers import verdicts  # noqa: F401  (what the command imports counts as import)
        from tipchain.numbers.dumps import load_record
        from tipchain.numbers.tolerance import Tolerance
        from tipchain.numbers.verdicts import write_diff_log

        def diff() -> None:
            tolerance = Tolerance(threshold=1e-6)
            sides = [load_record(path).arrays for path in (reference, port)]
            write_diff_log(log, compare_on_cores(*sides, tolerance), tolerance, stream=sys.stdout)

        return diff
    if tool == "reprod_log":
        from reprod_log import ReprodDiffHelper
    else:
        from tipchain.reprod_log import ReprodDiffHelper

    def compare() -> None:
        helper = ReprodDiffHelper()
        helper.compare_info(helper.load_info(reference), helper.load_info(port))
        helper.report(path=log)

    return compare


def measure_here(tool: str, reference: str, port: str, log: str) -> None:
    """Run one tool in this process and print a line of JSON to stderr; reports go to stdout."""
    start = time.perf_counter()
    function = use_tool(tool, reference, port, log)
    imported, before = time.perf_counter() - start, anonymous_kib(os.getpid())
    start, start_cpu = time.perf_counter(), processor_seconds()
    function()
    seconds, cpu = time.perf_counter() - start, processor_seconds() - start_cpu
    print(json.dumps({"import": imported, "seconds": seconds, "cpu": cpu, "before": before}), file=sys.stderr)


def measure(tool: str, folder: Path, name: str, *, memory: bool = False) -> dict[str, float]:
    sides = [str(folder / f"{name}_{side}.npy") for side in ("reference", "port")]
    command = [sys.executable, __file__, "--child", tool, *sides, str(folder / f"{tool}.txt")]
    with tempfile.TemporaryFile("w+") as file:  # reprod_log logs every array there, more than a pipe holds
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file)
        highest = 0
        while memory and process.poll() is None:  # sampling costs time, so time is measured in other runs
            with suppress(OSError):  # a child that has just ended
                highest = max(highest, anonymous_kib(process.pid))
            time.sleep(PEAK_EVERY_S)
        process.wait()
        file.seek(0)
        errors = file.read()
    if process.returncode:
        raise RuntimeError(errors)
    result = json.loads(errors.splitlines()[-1])
    return {**result, "mib": (highest - result["before"]) / 1024}


def make_dumps(folder: Path, name: str, arrays: int, elements: int) -> None:
    """Write two dumps with numpy.save, as reprod_log does, in a process that gives its memory back."""
    script = (
        "import sys, numpy as np\n"
        "folder, name, arrays, elements = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])\n"
        "for side, noise in (('reference', 0), ('port', 1e-7)):\n"
        "    rng = np.random.default_rng(0)\n"
        "    values = {f'layer{n}/weight': rng.standard_normal(elements, dtype='f4') for n in range(arrays)}\n"
        "    for value in values.values(): value += np.float32(noise)\n"
        "    np.save(f'{folder}/{name}_{side}.npy', values)\n"
    )
    subprocess.run([sys.executable, "-c", script, folder, name, str(arrays), str(elements)], check=True)


def report(title: str, folder: Path, name: str, tools: list[str], runs: int) -> None:
    results: dict[str, list[dict[str, float]]] = {tool: [] for tool in tools}
    memory: dict[str, list[float]] = {tool: [] for tool in tools}
    for run in range(runs + 1):
        for tool in tools:
            result = measure(tool, folder, name)
            if run:  # the first round only warms the page cache
                results[tool].append(result)
                if run <= 3:
                    memory[tool].append(measure(tool, folder, name, memory=True)["mib"])
    print(f"\n{title}; medians of {runs} runs each, taking turns")
    print(f"  {'':<22}{'seconds':>9}{'ratio':>8}{'CPU s':>9}{'ratio':>8}{'extra MiB':>11}{'ratio':>8}{'import s':>10}")
    base = statistics.median(r["seconds"] for r in results["tipchain"])
    base_cpu = statistics.median(r["cpu"] for r in results["tipchain"])
    base_mib = statistics.median(memory["tipchain"])
    for tool in tools:
        seconds = statistics.median(r["seconds"] for r in results[tool])
        cpu = statistics.median(r["cpu"] for r in results[tool])
        mib = statistics.median(memory[tool])
        imported = statistics.median(r["import"] for r in results[tool])
        name_of = {"read": "reading both arrays"}.get(tool, tool)
        print(
            f"  {name_of:<22}{seconds:>9.3f}{seconds / base:>8.2f}{cpu:>9.3f}{cpu / base_cpu:>8.2f}{mib:>11.1f}"
            f"{mib / max(base_mib, 0.1):>8.1f}{imported:>10.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=1000, help="size of a side (default 1000)")
    parser.add_argument("--arrays", type=int, default=100, help="arrays that it is split into (default 100)")
    parser.add_argument("--tiny", type=int, default=10_000, help="number of tiny arrays (default 10000)")
    parser.add_argument("--runs", type=int, default=5, help="measurements of each (default 5)")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    with tempfile.TemporaryDirectory(prefix="bench_diff.") as name:
        folder = Path(name)
        make_dumps(folder, "large", args.arrays, args.size_mb * 250_000 // args.arrays)
        title = f"{args.arrays} float32 arrays, {args.size_mb} MB a side"
        report(title, folder, "large", ["tipchain", "drop-in", "reprod_log", "read"], args.runs)
        make_dumps(folder, "tiny", args.tiny, 10)
        report(f"{args.tiny} arrays of 10 float32", folder, "tiny", ["tipchain", "drop-in", "reprod_log"], args.runs)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        measure_here(*sys.argv[2:])
    else:
        main()
