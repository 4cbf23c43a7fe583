"""Nights reach the history whole and once, whatever was killed, went away, or is full."""

import os
import resource
import shutil
import sys

import pytest
import sqlalchemy as sa
from history_samples import FAIL, PASS, night_folder
from programs import completed

from tipchain.history.entries import list_entries
from tipchain.history.ingest import LOOKED_AT, keep_night, read_source
from tipchain.history.schema import ItemFacts, VerdictFacts
from tipchain.history.store import History, place_of
from tipchain.nightly.nights import hold


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.delenv("TIPCHAIN_DATABASE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "suite.yaml").write_text("commands: [{id: a, argv: [sh, -c, 'exit 0']}]")
    return tmp_path


def make(project, outcome=PASS):
    """Make a finished night where those of suite.yaml are, as a killed coordinator leaves it."""
    made = night_folder(project, {"a": outcome}, reports=False)
    (project / "tipchain-nights").mkdir(exist_ok=True)
    place = project / "tipchain-nights" / "suite" / made.name
    place.parent.mkdir(exist_ok=True)
    return shutil.move(made, place)


def names(project) -> list[str]:
    with History(place_of(project)).reading() as connection:
        return [one.name for one in list_entries(connection)][::-1]


def test_the_next_night_hands_on_what_was_missed_once(project):
    missed, last = make(project, FAIL), make(project)
    (told,) = keep_night(last)
    assert names(project) == [missed.name, last.name]
    assert f"{missed.name}, which had finished before, is in" in told
    assert keep_night(last) == []
    assert (project / ".tipchain/.gitignore").read_text() == "*\n"


def test_only_nights_after_the_last_that_the_history_has_are_added(project):
    folders = [make(project) for _ in range(4)]
    nights = sorted(folders)
    source = read_source(nights[1])
    History(place_of(project)).add(source.entry, source.items())
    keep_night(nights[3])
    assert sorted(names(project)) == [one.name for one in nights[1:]]


def test_many_nights_that_no_history_has_are_not_all_added(project):
    folders = [make(project) for _ in range(LOOKED_AT + 2)]
    keep_night(folders[-1])
    assert sorted(names(project)) == sorted(one.name for one in folders)[2:]


def test_what_goes_on_or_has_not_finished_is_left_alone(project):
    going, open_, last = make(project), make(project), make(project)
    (open_ / "finished.json").unlink()
    lock = hold(going)
    assert keep_night(last) == []
    os.close(lock)
    assert names(project) == [last.name]


def test_a_database_that_is_down_gets_it_with_the_next_night(project):
    folder = make(project)
    down = "postgresql://me:s3cret@127.0.0.1:1/none"
    (told,) = keep_night(folder, down)
    assert "s3cret" not in told
    assert f"the night is in {folder}" in told
    (told,) = keep_night(make(project))
    assert f"{folder.name}, which had finished before, is in " in told
    assert keep_night(folder) == []


def test_a_night_that_cannot_be_read_is_told(project):
    folder = make(project)
    (folder / "night.json").write_text("{}")
    (told,) = keep_night(make(project))
    assert "a finished night cannot be handed on" in told


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

    full = completed(argv, cwd=tmp_path, preexec_fn=no_larger_files)
    assert full.returncode == 2
    assert "cannot be used" in full.stderr
    done = completed(argv, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert names(tmp_path) == [folder.name]
