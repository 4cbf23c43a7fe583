"""Coordinators and items killed at any time: a night ends all the same, and nothing that had ended runs twice."""

import json
import os
import random
import signal
import time
from contextlib import suppress

import psutil
import pytest
from stub_nights import start, write_manifest

from tipchain.errors import Outcome
from tipchain.nightly.nights import nights_below, read_night

ITEMS = 24
SCRIPT = 'n=$0; echo begun >> "$n.ran"; sleep 0.0$((n % 7 + 1)); echo done >> "$n.ran"'


def begin(folder, *words):
    """Start the command line; it has a session of its own, as a cron job does."""
    return start(folder, *words, "suite.yaml", "--jobs", "2", start_new_session=True)


def ended(night):
    """Return the records of a night as text, by item; what is no record must not look like one."""
    return {
        record.id: json.dumps([record.attempt, record.outcome.name, record.started, record.seconds])
        for record in night.records()
    }


def runs(folder):
    """Return how often each item ran to its end."""
    counts = {}
    for number in range(ITEMS):
        path = folder / f"{number}.ran"
        counts[f"i{number}[cpu]"] = path.read_text().count("done") if path.is_file() else 0
    return counts


def children(pid):
    """Return the items' own processes of a coordinator: below it and their wardens."""
    found = []
    for one in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if one.cmdline()[:1] == ["/bin/sh"]:
                found.append(one.pid)
    return found


def kill_all_over(folder, kills, seed):
    """Begin a night and kill its coordinator, or an item, at random moments; end it; check what is left."""
    chance = random.Random(seed)
    commands = [{"id": f"i{number}", "argv": ["/bin/sh", "-c", SCRIPT, str(number)]} for number in range(ITEMS)]
    write_manifest(folder, defaults={"timeout": "20s"}, commands=commands)
    before, settled, item_kills = {}, {}, 0
    words = ("run",)
    for number in range(kills):
        process = begin(folder, *words)
        end = time.monotonic() + chance.uniform(0.05, 1.0)
        while time.monotonic() < end and process.poll() is None:
            time.sleep(0.01)
        if number % 2 and process.poll() is None and (found := children(process.pid)):
            item_kills += 1
            try:
                os.kill(chance.choice(found), signal.SIGKILL)
            except ProcessLookupError:
                item_kills -= 1
            time.sleep(chance.uniform(0, 0.2))
        process.kill()
        process.communicate()
        nights = nights_below(folder / "tipchain-nights/suite")
        words = ("resume",) if nights else ("run",)
        if nights:
            assert len(nights) == 1
            now = ended(read_night(nights[0]))
            assert before.items() <= now.items(), "a record changed, or went"
            before = now
            settled = {name: count for name, count in runs(folder).items() if name in now}
    process = begin(folder, *words)
    assert "Traceback" not in process.communicate(timeout=120)[0]
    (folder_of_night,) = nights_below(folder / "tipchain-nights/suite")
    night = read_night(folder_of_night)
    assert night.finished
    records = {record.id: record for record in night.records()}
    assert len(records) == ITEMS
    counts = runs(folder)
    for name, count in settled.items():
        assert counts[name] == count, f"{name} had ended and ran again"
    assert before.items() <= ended(night).items()
    killed = [record for record in records.values() if record.outcome is not Outcome.PASS]
    assert all(record.reason.startswith("killed by SIGKILL") for record in killed)
    assert len(killed) <= item_kills
    assert all(counts[name] >= 1 for name, record in records.items() if record.outcome is Outcome.PASS)


def test_kills(tmp_path):
    kill_all_over(tmp_path, 3, 1)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_many_kills(tmp_path, seed):
    kill_all_over(tmp_path, 20, seed)
