"""Folders of nights: their names, and who holds one, when several processes begin at the same moment."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from stub_nights import begin, command

from tipchain.core import files as module
from tipchain.errors import UsageError
from tipchain.nightly.nights import hold, holder, named_night, nights_below

MANY = 16


def at_once(do):
    """Call ``do`` in many threads at the same moment; return what each returned, None for one that was refused."""
    barrier = threading.Barrier(MANY)

    def one(number):
        barrier.wait()
        try:
            return do(number)
        except UsageError:
            return None

    with ThreadPoolExecutor(MANY) as pool:
        return list(pool.map(one, range(MANY)))


def test_of_many_coordinators_that_come_at_once_one_holds_the_night(tmp_path):
    night, lock = begin(tmp_path, command("a"))
    for _ in range(20):
        os.close(lock)
        (lock,) = [one for one in at_once(lambda _: hold(night.folder)) if one is not None]
        assert holder(night.folder)
    os.close(lock)


def test_nights_that_begin_at_once_have_folders_of_their_own(tmp_path):
    found = at_once(lambda _: begin(tmp_path, command("a"))[0])
    assert len({night.folder for night in found}) == MANY
    assert len({night.token for night in found}) == MANY
    assert nights_below(tmp_path / "nights") == sorted((night.folder for night in found), reverse=True)


def test_names_sort_as_nights_began_though_the_clock_is_set_back(tmp_path, monkeypatch):
    times = [
        datetime.fromisoformat(one)
        for one in ("2026-10-25T02:59:59.999999", "2026-10-25T02:10:00", "2026-01-01T00:00:00")
    ]

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return times[0]

    monkeypatch.setattr(module, "datetime", Clock)
    (tmp_path / "nights" / "99999999-999999-00000").mkdir(parents=True)  # no time of a clock
    (tmp_path / "nights" / "notes").mkdir()
    began = []
    while times:
        night, lock = begin(tmp_path, command("a"))
        os.close(lock)
        assert named_night(tmp_path / "nights") == night
        assert night.started.startswith(f"{times[0]:%Y-%m-%dT%H:%M}")
        began.append(night.name)
        del times[0]
    assert began == ["20261025-025959-f423f", "20261025-030000-00000", "20261025-030000-00001"]
    times.append(datetime.fromisoformat("2026-10-25T03:00:01.000005"))
    assert begin(tmp_path, command("a"))[0].name == "20261025-030001-00005", "the clock is right again"
