"""How cost grows: `align` over parameters, `locate` over depth, `diff` over bytes, nights over items, the history over verdicts; each with the limit it is held against.

Each point is a fresh process (with what it started), measured in processor seconds, which other programs on the machine
change less than the clock's. What is compared takes turns; figures are medians. The exponent is the slope between the two
largest sizes, on logarithmic axes: below, what a process costs at all hides it.

    align    `tipchain.align` of three wide layers, after importing; limit: a plain forward and backward of both models
    locate   `tipchain.align` of so many layers, each with an activation, the last of which is another, with its cause, after
             importing; limit: a plain forward and backward of both models
    diff     `tipchain diff` of two dumps in 100 arrays; limit: reading both (numpy.max of every array)
    nights   `tipchain nightly run` of stub items on two slots; limit: the bare program, as often
    history  adding two nights and comparing them; limit: the same number of rows of four columns into an empty SQLite table

    python benchmarks/growth.py [--only align|locate|diff|nights|history] [--points N] [--runs 3] [--pictures DIR]

With all points `align` takes 5 GB of memory, `diff` 16 GB of temporary disk, `history` some gigabytes, and each several minutes; fewer points leave the
largest out. ``--pictures`` writes a plot of each, ``growth_NAME.svg``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from math import ceil, floor, log, log10
from pathlib import Path

import numpy as np
from bench_history import items, night
from timing import describe_machine, in_turns, middle, plain_environment, run_program, tipchain_command

from tipchain.history.store import History, place_of
from tipchain.numbers.dumps import save_record

POINTS: Mapping[str, tuple[int, ...]] = {
    "align": (1, 3, 10, 30, 100),
    "locate": (10, 20, 50, 100, 200),
    "diff": (1, 8, 64, 512, 2048, 8192),
    "nights": (10, 100, 1000, 10_000),
    "history": (10_000, 100_000, 1_000_000, 10_000_000),
}
UNITS = {"align": "M parameters", "locate": "layers", "diff": "MB a side", "nights": "items", "history": "verdicts"}
LIMITS = {
    "align": "two plain runs",
    "locate": "two plain runs",
    "diff": "reading both dumps",
    "nights": "the bare program",
    "history": "rows into bare SQLite",
}
ARRAYS, VERDICTS, WIDE = 100, 200, 256
ALIGN = """
import resource, sys, numpy as np, torch, paddle, tipchain
way, wide, depth, fault = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "fault"
torch.set_num_threads(1)
def layers(nn):
    last = nn.GELU if fault and nn is paddle.nn else nn.ReLU
    kinds = [one for number in range(depth) for one in (nn.Linear(wide, wide), (last if number == depth - 1 else nn.ReLU)())]
    return nn.Sequential(*kinds)
reference, port = layers(torch.nn), layers(paddle.nn)
for layer in reference[::2]:
    torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")  # so that gradients stay what they are over depth
tipchain.copy_weights(reference, port)
rows = np.random.default_rng(0).standard_normal((8, wide), dtype="f4")
def seconds():
    return sum(sum(resource.getrusage(one)[:2]) for one in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
start = seconds()
if way == "limit":
    reference(torch.from_numpy(rows)).sum().backward()
    port(paddle.to_tensor(rows)).sum().backward()
else:
    found = tipchain.align(reference, port, {"args": rows}, iterations=1)
    assert found.passed is not fault
    assert not fault or found.diagnoses[0].port_path == str(2 * depth - 1), found.diagnoses[0]
print(seconds() - start)
"""
READ = """
import sys, numpy as np
from tipchain.numbers.dumps import load_record
for path in sys.argv[1:]:
    for array in load_record(path).arrays.values():
        np.max(array)
"""
BARE = """
import subprocess, sys
for _ in range(int(sys.argv[1])):
    subprocess.run(["/bin/true"], check=True)
"""
ROWS = """
import sqlite3, sys
place = sqlite3.connect(sys.argv[1])
place.execute("create table v (item integer, subject integer, outcome text, value real)")
place.executemany("insert into v values (?, ?, 'PASS', 1e-7)", ((n // 200, n % 200) for n in range(int(sys.argv[2]))))
place.commit()
"""
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 620, 300, 60, 45, 20, 150


def processor_seconds(*commands: Sequence[str], folder: Path) -> float:
    """Run programs one after the other; return their processor seconds."""
    return sum(run_program(one, plain_environment(), folder / "output.txt").cpu for one in commands)


def align(size: int, folder: Path) -> dict[str, Callable[[], float]]:
    """Return what aligns two models of so many million parameters, and what runs both plainly."""
    return live(round((size * 1e6 / 3) ** 0.5), 3, "none", folder)


def locate(depth: int, folder: Path) -> dict[str, Callable[[], float]]:
    """Return what finds the last activation of so many layers to be another, and what runs both models plainly."""
    return live(WIDE, depth, "fault", folder)


def live(wide: int, depth: int, fault: str, folder: Path) -> dict[str, Callable[[], float]]:
    """Return what aligns two models of ``depth`` layers of ``wide`` units in a process of its own, and what runs both plainly."""

    def measured(way: str) -> float:
        env, log = {**plain_environment(), "OMP_NUM_THREADS": "1"}, folder / "output.txt"
        run_program([sys.executable, "-c", ALIGN, way, str(wide), str(depth), fault], env, log)
        return float(log.read_text().splitlines()[-1])

    return {way: partial(measured, way) for way in ("tipchain", "limit")}


def diff(size: int, folder: Path) -> dict[str, Callable[[], float]]:
    """Return what compares dumps of so many MB, and what reads them."""
    weight = np.random.default_rng(0).standard_normal(size * 250_000 // ARRAYS, dtype="f4")
    sides = []
    for side, noise in (("reference", 0.0), ("port", 1e-7)):
        values = weight + np.float32(noise)  # one array under many names: the files are large, and memory is not
        sides.append(str(save_record(folder / side, {f"layer{n}/weight": values for n in range(ARRAYS)})))
    return {
        "tipchain": partial(processor_seconds, [*tipchain_command(), "diff", *sides], folder=folder),
        "limit": partial(processor_seconds, [sys.executable, "-c", READ, *sides], folder=folder),
    }


def nights(count: int, folder: Path) -> dict[str, Callable[[], float]]:
    """Return what runs a night of so many stub items, and what runs the programs alone."""
    (folder / "test_tipc").mkdir()
    manifest = folder / "stubs.yaml"
    manifest.write_text(f"commands: [{{id: stub, argv: [/bin/true], repeats: {count}}}]\n")
    run = [*tipchain_command(), "nightly", "run", str(manifest), "--jobs", "2", "--out", str(folder / "nights")]
    return {
        "tipchain": partial(processor_seconds, run, folder=folder),
        "limit": partial(processor_seconds, [sys.executable, "-c", BARE, str(count)], folder=folder),
    }


def history(rows: int, folder: Path) -> dict[str, Callable[[], float]]:
    """Return what adds two nights with so many verdicts between them and compares them, and what adds bare rows."""
    add = [sys.executable, __file__, "--add", str(rows), str(folder)]
    compare = [*tipchain_command(), "history", "compare", "latest~1..latest"]
    compare += ["--database", str(folder / "history.sqlite")]
    bare = [sys.executable, "-c", ROWS, str(folder / "bare.sqlite"), str(rows)]

    def anew(*commands: Sequence[str]) -> float:
        for old in folder.glob("*.sqlite*"):
            old.unlink()
        return processor_seconds(*commands, folder=folder)

    return {"tipchain": partial(anew, add, compare), "limit": partial(anew, bare)}


def add_nights(rows: int, folder: Path) -> None:
    """Add two nights with so many verdicts between them to a new history."""
    kept = History(place_of(folder, str(folder / "history.sqlite")))
    for number in range(2):
        kept.add(night(number, number == 1), items(rows // 2 // VERDICTS, VERDICTS, number, number == 1))


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return how cost grows at the end: the slope between the two largest sizes, on logarithmic axes."""
    return log(seconds[-1] / seconds[-2]) / log(sizes[-1] / sizes[-2])


def plot(name: str, sizes: Sequence[int], found: Mapping[str, Sequence[float]]) -> str:
    """Return a plot of processor seconds over sizes, both axes logarithmic, as SVG."""
    values = [one for seconds in found.values() for one in seconds]
    (left, right), (low, high) = ((floor(log10(min(one))), ceil(log10(max(one)))) for one in (sizes, values))

    def x(one: float) -> float:
        return LEFT + (log10(one) - left) / (right - left) * (WIDTH - LEFT - RIGHT)

    def y(one: float) -> float:
        return HEIGHT - BOTTOM - (log10(one) - low) / (high - low) * (HEIGHT - BOTTOM - TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for power in range(left, right + 1):
        at = x(10.0**power)
        parts.append(f'<path d="M{at:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        parts.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{10**power:,}</text>')
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    for kind, color in (("tipchain", "#0b5cad"), ("limit", "#b35900")):
        seconds = found[kind]
        line = "L".join(f"{x(size):.1f} {y(one):.1f}" for size, one in zip(sizes, seconds, strict=True))
        parts.append(f'<path d="M{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{x(size):.1f}" cy="{y(one):.1f}" r="3.5" fill="{color}"/>'
            for size, one in zip(sizes, seconds, strict=True)
        ]
        words = (kind if kind == "tipchain" else LIMITS[name], f"exponent {exponent(sizes, seconds):.2f}")
        parts += [
            f'<text x="{WIDTH - RIGHT + 8}" y="{y(seconds[-1]) + 4 + 14 * row + (24 if kind == "limit" else -8):.1f}" '
            f'fill="{color}">{escape(one)}</text>'
            for row, one in enumerate(words)
        ]
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{UNITS[name]}</text>')
    parts.append(f'<text x="{LEFT}" y="{TOP - 6}">processor seconds</text></svg>')
    return "\n".join(parts) + "\n"


def grow(name: str, sizes: Sequence[int], runs: int) -> dict[str, list[float]]:
    """Measure at each size, print a line of each, and return the seconds."""
    make = {"align": align, "locate": locate, "diff": diff, "nights": nights, "history": history}[name]
    found: dict[str, list[float]] = {"tipchain": [], "limit": []}
    print(f"{name}: processor seconds; the limit is {LIMITS[name]}")
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="growth.") as folder:
            took = in_turns(make(size, Path(folder)), runs, warm=0)
        for kind, seconds in took.items():
            found[kind].append(middle(seconds))
        ours, limit = found["tipchain"][-1], found["limit"][-1]
        print(
            f"  {size:>12,} {UNITS[name]:<10}{ours:>9.2f}   limit {limit:>8.2f}   {ours / limit:>5.1f} times",
            flush=True,
        )
    print("  exponents: " + ", ".join(f"{kind} {exponent(sizes, seconds):.2f}" for kind, seconds in found.items()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=tuple(POINTS), help="one of them alone")
    parser.add_argument("--points", type=int, default=99, help="of each, the smallest, 2 or more (default all)")
    parser.add_argument("--runs", type=int, default=3, help="measurements of each (default 3)")
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="where plots go")
    args = parser.parse_args()
    print(describe_machine())
    for name in [args.only] if args.only else POINTS:
        sizes = POINTS[name][: args.points]
        found = grow(name, sizes, args.runs)
        if args.pictures:
            (args.pictures / f"growth_{name}.svg").write_text(plot(name, sizes, found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--add"]:
        add_nights(int(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
