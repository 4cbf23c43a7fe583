"""What nights cost: planning thousands of items, and what `tipchain nightly` adds to the programs it runs.

Planning: 10,000 items of parameter files in several modes, devices and repeats, in a fresh process each time.
Overhead: stub commands that end at once, through the local executor on two slots, against the same program started on
two slots by two threads, taking turns; and the coordinator's largest memory with few items and with many.
Showing: the live table of a night of 10,000 items that end at once; the longest time between two drawings.
Dashboard: the page of 500 items and 30 nights, its size, and the time from asking a headless Chromium for it to its
load event, an empty page's taken off (only where a Chromium is installed).
Ray: items that wait 5 s on clusters of 1, 2, 4 and 8 simulated nodes of this machine, one at a time on each; the time
from when every node has ended its first item to the end of all, against what as many waits in a row would take.

    python benchmarks/nightly.py [--items 2000] [--runs 3] [--only planning|local|shown|dashboard|ray]
"""

from __future__ import annotations

import argparse
import io
import itertools
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

from tipchain.nightly.coordinator import Coordinator
from tipchain.nightly.executor import Ended, RunningItem, Work
from tipchain.nightly.items import Item, NightPlan
from tipchain.nightly.night_report import NightView
from tipchain.nightly.nights import begin_night

GOAL_PLAN_S = 2.0
GOAL_OVERHEAD_MS = 15.0
GOAL_GROWTH_MB = 10.0
SLOTS = 2
PROGRAM = "/bin/true"
GOAL_GAP_S = 1.0
GOAL_LINEAR = 0.9
NODES = (1, 2, 4, 8)
WAIT_S, WAITS = 5, 5
SHOWN = 10_000
PAGE = (500, 30)
GOAL_PAGE_MB, GOAL_OPEN_S = 1.5, 1.0
FILES, MODES, DEVICES, REPEATS = 250, 4, 2, 5
PARAMS = Path(__file__).resolve().parents[1] / "test_tipc/configs/alexnet/train_infer_python.txt"
PLAN = """\
import sys, time
from pathlib import Path
begin = time.perf_counter()
from tipchain.nightly.expand import expand
from tipchain.nightly.manifest import load_manifest
manifest = load_manifest(Path(sys.argv[1]))
plan = expand(manifest)
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
        [sys.executable, "-c", PLAN, str(manifest)], env=plain_environment(), capture_output=True, text=True, check=True
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
        {
            "bare": partial(bare, folder, count),
            "few": partial(night, folder, few),
            "many": partial(night, folder, count),
        },
        runs,
        warm=0,
    )
    walls = {name: middle(wall for wall, _ in found) for name, found in results.items()}
    memory = {name: middle(rss for _, rss in found) for name, found in results.items()}
    # The whole night, what it costs once included.
    each = (walls["many"] - walls["bare"]) / count
    growth = memory["many"] - memory["few"]
    print(f"  bare program on {SLOTS} slots            {walls['bare'] / count * 1e3:6.2f} ms")
    print(f"  an item's more                     {each * 1e3:6.2f} ms  goal at most {GOAL_OVERHEAD_MS:.0f} ms")
    print(f"  memory, {few:>5} items               {memory['few']:6.1f} MiB")
    print(f"  memory, {count:>5} items               {memory['many']:6.1f} MiB goal at most {GOAL_GROWTH_MB:.0f} more")
    return each * 1e3 <= GOAL_OVERHEAD_MS and growth <= GOAL_GROWTH_MB


class AtOnce:
    """An executor whose items end at once, eight at a time."""

    name, slots, trouble = "at once", 8, ""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def impossible(self, _item: Item) -> str:
        return ""

    def start(self, work: Work) -> str:
        if len(self.works) >= self.slots:
            return "room"
        work.make_folder()
        self.works.append(work)
        return ""

    def wait(self, _timeout_s: float) -> list[Ended]:
        works, self.works = self.works, []
        return [Ended(id=one.item.id, attempt=one.attempt, exit_code=0, seconds=0.01) for one in works]

    def running(self) -> list[RunningItem]:
        return [RunningItem(id=one.item.id, seconds=0.01) for one in self.works]

    def stop(self) -> None:
        self.works.clear()

    def close(self) -> None:
        self.works.clear()


class Screen(io.StringIO):
    """A terminal that remembers when it was drawn on, and not what."""

    def __init__(self) -> None:
        super().__init__()
        self.times = [time.perf_counter()]

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.times.append(time.perf_counter())
        return len(text)


def show_night(folder: Path) -> tuple[float, float]:
    """Run a night whose items end at once, with the live table; return its longest pause and its seconds."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    items = tuple(
        Item(
            id=f"net{number}[cpu]",
            kind="command",
            subject=f"net{number}",
            source="",
            mode="",
            device="cpu",
            repeat=1,
            tags=(),
            argv=("true",),
            cwd=".",
            timeout_s=60.0,
        )
        for number in range(SHOWN)
    )
    plan = NightPlan(name="suite", root=str(folder), manifest="suite.yaml", sha256="", items=items)
    night, lock = begin_night(plan, folder / "nights", options={}, environment={})
    screen = Screen()
    begin = time.perf_counter()
    coordinator = Coordinator(night, AtOnce(), NightView(screen, SHOWN))
    coordinator.run()
    seconds = time.perf_counter() - begin
    os.close(lock)
    if coordinator.left or coordinator.problem:
        raise RuntimeError(f"{coordinator.left} items left: {coordinator.problem}")
    times = [*screen.times, begin + seconds]
    return max(after - before for before, after in itertools.pairwise(times)), seconds


def shown(folder: Path, runs: int) -> bool:
    """Measure the longest pause of the live table; return whether the goal is met."""
    found = in_turns({"shown": partial(show_night, folder)}, runs, warm=0)["shown"]
    gap = max(gap for gap, _ in found)
    print(
        f"  {SHOWN} items shown in {middle(seconds for _, seconds in found):6.1f} s, longest pause {gap:6.2f} s   "
        f"goal at most {GOAL_GAP_S:.0f} s"
    )
    return gap <= GOAL_GAP_S


CLUSTER = """\
import sys
from ray.cluster_utils import Cluster
head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 100 << 20}
cluster = Cluster(initialize_head=True, head_node_args=head)
for _ in range(int(sys.argv[1])):
    cluster.add_node(wait=False, num_cpus=1, object_store_memory=100 << 20)
cluster.wait_for_nodes()
print("at", cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


def ray_night(folder: Path, nodes: int) -> float:
    """Run waiting items on a cluster of so many nodes; return which part of linear that is.

    Raises:
        RuntimeError: the cluster did not start, or the night did not pass.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "test_tipc").mkdir(parents=True)
    manifest = folder / "waits.yaml"
    count = nodes * (1 + WAITS)
    manifest.write_text(f"commands: [{{id: wait, argv: [sleep, '{WAIT_S}'], repeats: {count}}}]\n")
    environment = {**plain_environment(), "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    cluster = subprocess.Popen(
        [sys.executable, "-c", CLUSTER, str(nodes)],
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert cluster.stdin is not None
    assert cluster.stdout is not None
    try:
        address = next((line.split()[1] for line in cluster.stdout if line.startswith("at ")), None)
        if address is None:
            raise RuntimeError(f"the cluster did not start: exit code {cluster.wait()}")
        argv = [*tipchain_command(), "nightly", "run", str(manifest), "--executor", "ray", "--address", address]
        subprocess.run(argv, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
    finally:
        cluster.stdin.close()
        cluster.wait()
    ends = sorted(path.stat().st_mtime for path in folder.glob("tipchain-nights/*/*/items/*/ended.json"))
    if len(ends) != count:
        raise RuntimeError(f"{len(ends)} of {count} items ended")
    return WAIT_S * WAITS / (ends[-1] - ends[nodes - 1])


def on_ray(folder: Path, runs: int) -> bool:
    """Measure how nights grow with the nodes of a cluster; return whether the goal is met."""
    found = in_turns({str(nodes): partial(ray_night, folder, nodes) for nodes in NODES}, runs, warm=0)
    linear = {nodes: middle(values) for nodes, values in found.items()}
    for nodes, part in linear.items():
        print(f"  Ray, {nodes} nodes, items of {WAIT_S} s      {part:6.3f} of linear  goal at least {GOAL_LINEAR}")
    return min(linear.values()) >= GOAL_LINEAR


def dashboard(folder: Path, runs: int) -> bool:
    """Measure the dashboard's size and how long a browser takes to open it; return whether the goals are met."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    import chromium
    from dashboard_samples import many_nights, page_of

    folder.mkdir()
    text = page_of(many_nights(folder / "nights", *PAGE), folder)
    full, empty = folder / "full.html", folder / "empty.html"
    full.write_text(text)
    empty.write_text("<!DOCTYPE html><title>empty</title>")
    size = len(text.encode()) / 1e6
    print(f"  dashboard of {PAGE[0]} items, {PAGE[1]} nights    {size:6.2f} MB  goal at most {GOAL_PAGE_MB}")
    browser = chromium.find()
    if browser is None:
        print("  no Chromium is installed: nothing is opened")
        return size <= GOAL_PAGE_MB
    page = chromium.Page(browser, folder / "profile")

    def opened(path: Path) -> float:
        begin = time.perf_counter()
        page.open(path)
        return time.perf_counter() - begin

    found = in_turns({"full": partial(opened, full), "empty": partial(opened, empty)}, runs)
    page.close()
    seconds = middle(found["full"]) - middle(found["empty"])
    print(f"  opened in headless Chromium       {seconds:6.2f} s   goal at most {GOAL_OPEN_S}")
    return size <= GOAL_PAGE_MB and seconds <= GOAL_OPEN_S


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=2000, help="stub items of a night (default 2000)")
    parser.add_argument("--runs", type=int, default=3, help="measurements of each (default 3)")
    parser.add_argument("--only", choices=("planning", "local", "shown", "dashboard", "ray"), help="one part alone")
    args = parser.parse_args()
    print(f"{describe_machine()}; medians of {args.runs} runs each, taking turns")
    with tempfile.TemporaryDirectory(prefix="bench_nightly.") as name:
        parts = {
            "planning": partial(planning, Path(name) / "suite", args.runs),
            "local": partial(local, Path(name), args.items, args.runs),
            "shown": partial(shown, Path(name) / "shown", args.runs),
            "dashboard": partial(dashboard, Path(name) / "dashboard", args.runs),
            "ray": partial(on_ray, Path(name) / "ray", args.runs),
        }
        (Path(name) / "suite").mkdir()
        met = [part() for which, part in parts.items() if args.only in (None, which)]
    print("goals met" if all(met) else "goal missed")
    return int(not all(met))


if __name__ == "__main__":
    raise SystemExit(main())
