"""Nights that had finished when their coordinator was killed reach the history all the same, once."""

from __future__ import annotations

import os
import shutil

import pytest
from history_samples import FAIL, PASS, night_folder

from tipchain.history.entries import list_entries
from tipchain.history.ingest import LOOKED_AT, keep_night, read_source
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
