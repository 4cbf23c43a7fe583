"""A database that is down, or goes away in the middle: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import resource
import subprocess
import sys

import sqlalchemy as sa
from history_samples import FAIL, PASS, night_folder

from tipchain.history.entries import list_entries
from tipchain.history.ingest import keep_night
from tipchain.history.schema import ItemFacts, VerdictFacts
from tipchain.history.store import History, place_of


def names(root) -> list[str]:
    with History(place_of(root)).reading() as connection:
        return sorted(one.name for one in list_entries(connection))


def test_a_database_that_goes_away_in_the_middle(tmp_path, monkeypatch):
    folder = night_folder(tmp_path, {"a": PASS, "b": FAIL, "c": PASS})
    add = History._add
    calls = []

    def fails_once(self, row, there):
        calls.extend([row] if isinstance(row, ItemFacts) else [])
        if len(calls) == 2:
            calls.append(None)
            raise sa.exc.OperationalError("INSERT", {}, Exception("server closed the connection"))
        return add(self, row, there)

    monkeypatch.setattr(History, "_add", fails_once)
    (told,) = keep_night(folder)
    assert "server closed the connection" in told
    assert len(names(tmp_path)) == 1  # one item is in it, and the night is marked as not finished
    assert keep_night(folder) == []
    with History(place_of(tmp_path)).reading() as connection:
        (entry,) = list_entries(connection)
        count = connection.execute(sa.select(sa.func.count()).select_from(VerdictFacts)).scalar_one()
    assert (entry.finished, entry.counts, count) == (True, {PASS: 2, FAIL: 1}, 6)


def test_a_full_disk_loses_nothing(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    folder = night_folder(tmp_path, {"a": PASS, "b": FAIL})
    argv = [sys.executable, "-m", "tipchain", "history", "add", folder]

    def no_larger_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))

    full = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, preexec_fn=no_larger_files)
    assert full.returncode == 2
    assert "cannot be used" in full.stderr
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert names(tmp_path) == [folder.name]
