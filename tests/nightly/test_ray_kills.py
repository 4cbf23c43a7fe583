"""Nodes, workers, items and coordinators of a night on a cluster killed at random: each item ends once."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed")

from ray_cluster import RayCluster
from stub_nights import write_manifest

from tipchain.errors import Outcome
from tipchain.nightly.nights import nights_below, read_night

pytestmark = pytest.mark.nightly
ITEMS, NODES, KILLS, DUMP = 24, 3, 12, 9_000_000
SCRIPT = f"""\
echo begun >> "$1/$0.ran"; sleep 0.$(($0 % 7 + 2)); head -c {DUMP} /dev/zero > {{folder}}/dump; echo done >> "$1/$0.ran"
"""


class Killed:
    """A night that is killed, begun again, and looked at.

    Args:
        folder: for the project and what the items write down.
        seed: of all chances.
    """

    def __init__(self, folder, seed):
        self.chance = random.Random(seed)
        self.folder, self.project = folder, folder / "project"
        self.project.mkdir()
        commands = [
            {"id": f"i{number}", "argv": ["/bin/sh", "-c", SCRIPT, str(number), str(folder)]} for number in range(ITEMS)
        ]
        write_manifest(self.project, defaults={"timeout": "60s"}, commands=commands)
        self.cluster = RayCluster(NODES)
        self.kills = []
        self.records, self.counts, self.process = {}, {}, None

    def go_on(self):
        """Begin or resume the night; it has a session of its own, as a cron job does."""
        night = self.look()
        self.counts = {name: self.done(name) for name in self.records}
        argv = [sys.executable, "-m", "tipchain", "nightly", "resume" if night else "run", "suite.yaml"]
        argv += ["--executor", "ray"]
        env = {**os.environ, "RAY_ADDRESS": self.cluster.address}
        with (self.folder / "said").open("ab") as said:
            self.process = subprocess.Popen(
                argv, cwd=self.project, stdout=said, stderr=said, env=env, start_new_session=True
            )

    def look(self):
        """Return the night, None if it has not begun; what was recorded stays as it was and was not run again."""
        nights = nights_below(self.project / "tipchain-nights/suite")
        if not nights:
            return None
        (folder,) = nights
        night = read_night(folder)
        now = {record.id: record for record in night.records()}
        assert self.records.items() <= now.items(), "a record changed, or went"
        for name, count in self.counts.items():
            assert self.done(name) == count, f"{name} had ended and ran again"
        self.records = now
        return night

    def done(self, name):
        path = self.folder / f"{name.removesuffix('[cpu]').removeprefix('i')}.ran"
        return path.read_text().count("done") if path.is_file() else 0

    def kill(self):
        what = self.chance.choice(["node", "worker", "item", "coordinator"])
        words = {"worker": b"ray::i", "item": b".ran", "coordinator": b"tipchain\0nightly"}
        above = [self.process.pid] if what == "coordinator" else [one.pid for one in self.cluster.processes]
        if what == "node":
            self.cluster.kill(self.chance.randrange(1, NODES + 1))
            self.cluster.add()
        elif found := [one for pid in above for one in offspring(pid, words[what])]:
            with suppress(ProcessLookupError):
                os.kill(self.chance.choice(found), signal.SIGKILL)
        else:
            return
        self.kills.append(what)
        if what == "coordinator":
            self.process.wait(60)


def offspring(pid, word):
    """Return the processes from one down that have a word in their command line."""
    parents, words = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                parents[int(folder.name)] = int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1])
                words[int(folder.name)] = (folder / "cmdline").read_bytes()
    below = {pid}
    while more := {one for one, parent in parents.items() if parent in below} - below:
        below |= more
    return [one for one in below if word in words.get(one, b"")]


@pytest.mark.parametrize("seed", range(2))
def test_many_kills_on_a_cluster(tmp_path, seed):
    killed = Killed(tmp_path, seed)
    try:
        for _ in range(100):
            if killed.process is None or killed.process.poll() is not None:
                night = killed.look()
                if night and night.finished:
                    break
                killed.go_on()
                time.sleep(2.0)
            time.sleep(killed.chance.uniform(0.1, 1.0))
            if len(killed.kills) < KILLS:
                killed.kill()
            else:
                killed.process.wait(120)
    finally:
        killed.cluster.close()
    assert "Traceback" not in (tmp_path / "said").read_text()
    night = killed.look()
    assert night.finished
    assert set(killed.records) == {f"i{number}[cpu]" for number in range(ITEMS)}
    passed = [record for record in killed.records.values() if record.outcome is Outcome.PASS]
    assert all(killed.done(record.id) >= 1 for record in passed)
    assert {(night.folder / record.log).with_name("dump").stat().st_size for record in passed} == {DUMP}
    bad = [record.reason for record in killed.records.values() if record.outcome is not Outcome.PASS]
    assert all(reason.startswith(("killed by SIGKILL", "lost ")) for reason in bad), bad
    assert len(bad) <= killed.kills.count("item") + len(killed.kills) // 4
