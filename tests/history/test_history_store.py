"""The history in an SQLite file: what goes in, once; several writers; older and newer tables."""

import json
import math
import sqlite3
from contextlib import closing

import pytest
import sqlalchemy as sa
from history_samples import (
    ERROR,
    FAIL,
    PASS,
    history_in,
    item,
    judged,
    night,
    night_folder,
    night_sample,
    report,
    write_twice_at_once,
)
from night_samples import ended_night
from night_samples import item as planned

from tipchain.core.files import project_above
from tipchain.errors import HistoryError, RecordError, UsageError
from tipchain.history.entries import find_entry, items_of, list_entries
from tipchain.history.ingest import read_source
from tipchain.history.schema import Base, TablesVersion
from tipchain.history.store import History, place_of


def rows(history: History) -> dict[str, int]:
    with history.reading() as connection:
        return {
            name: connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            for name, table in Base.metadata.tables.items()
        }


def test_all_of_a_report_goes_in_with_where_it_was_made_and_of_which_commit(history, tmp_path):
    where = {"commit": "4b72afe", "machine": "far", "processor": "Example CPU", "cores": 16, "gpus": ["H200"]}
    file = tmp_path / "report.json"
    file.write_text(json.dumps({**report(), "where": {**where, "driver": "570"}}))
    source = read_source(file)
    assert history.add(source.entry, source.items()) == 1
    with history.reading() as connection:
        entry = find_entry(connection, "20260101-000000-abcde")
        (only,) = items_of(connection, entry).values()
        (command,), verdicts = only.commands, only.verdicts
    assert (entry.kind, entry.title) == ("run", "demo.txt[lite_train_lite_infer]")
    assert (entry.commit, entry.machine) == ("4b72afe", "far")
    assert entry.machine_class == "processor Example CPU, cores 16, gpus H200"
    assert entry.environment.items() >= {"torch": "2.13.0", "paddle": "3.3.1", "driver": "570"}.items()
    assert (only.id, only.outcome, only.seconds, only.peak_memory_mb) == (entry.title, FAIL, 12.5, 321.0)
    assert (command.id, command.argv, command.seconds) == ("train[norm]", ["python", "a b.py"], 9.0)
    assert command.figures["loss"] == 0.5
    assert math.isnan(command.figures["top1"])
    # A subject that stands there twice is two verdicts; what a database refuses in texts is replaced.
    assert [(one.outcome, one.subject, one.reason) for one in verdicts] == [
        (PASS, "forward/logits", "fine\ufffd"),
        (FAIL, "forward/logits#2", "again"),
    ]


def test_all_of_a_night_goes_in(history, tmp_path):
    folder = night_folder(tmp_path, {"a[lite;cpu]": PASS, "b[lite;cpu]": ERROR})
    source = read_source(folder)
    assert history.add(source.entry, source.items()) == 2
    with history.reading() as connection:
        (entry,) = list_entries(connection)
        items = items_of(connection, entry)
    assert (entry.kind, entry.name, entry.title, entry.commit) == ("night", folder.name, "suite", "4b72afe")
    assert (entry.machine, entry.machine_class) == ("host", "processor Example CPU, cores 16, gpus H200, H200")
    assert entry.environment["versions.torch"] == "2.13.0"
    assert (entry.finished, entry.seconds, entry.counts) == (True, 77.0, {PASS: 1, ERROR: 1})
    assert list(items) == ["a[lite;cpu]", "b[lite;cpu]"]
    assert items["b[lite;cpu]"].reason == "went wrong"
    assert items["a[lite;cpu]"].environment == {"torch": "2.13.0", "paddle": "3.3.1"}


@pytest.mark.parametrize("what", ["night", "report"])
def test_adding_twice_adds_nothing(history, tmp_path, what):
    path = night_folder(tmp_path, {"a": PASS, "b": FAIL})
    if what == "report":
        path = tmp_path / "report.json"
        path.write_text(json.dumps(report()))
    source = read_source(path)
    history.add(source.entry, source.items())
    before = rows(history)
    again = history_in(tmp_path).add(source.entry, source.items())
    assert (again, rows(history)) == (0, before)


def test_a_night_that_goes_on_is_completed(history, tmp_path):
    sample = night_sample(tmp_path, {"a": PASS}, left=["b"])
    source = read_source(sample.folder)
    history.add(source.entry, source.items())
    with history.reading() as connection:
        (entry,) = list_entries(connection)
    assert (entry.finished, entry.counts) == (False, {PASS: 1})
    sample.end(planned("b", id="b"), FAIL)
    sample.finish(token="another night's")
    assert not read_source(sample.folder).entry.finished
    sample.finish()
    source = read_source(sample.folder)
    assert history.add(source.entry, source.items()) == 1
    with history.reading() as connection:
        (entry,) = list_entries(connection)
    assert (entry.finished, entry.counts) == (True, {PASS: 1, FAIL: 1})


def test_an_item_whose_report_is_gone_goes_in_and_says_so(history, tmp_path):
    folder = night_folder(tmp_path, {"a": FAIL})
    next(folder.glob("items/*/attempt-1/report.json")).write_text("{")
    source = read_source(folder)
    history.add(source.entry, source.items())
    with history.reading() as connection:
        (only,) = items_of(connection, find_entry(connection, "latest")).values()
    assert only.reason.startswith("went wrong; its report cannot be read: is not JSON")


@pytest.mark.parametrize("text", ['{"format": 99}', "[]", "{"])
def test_what_is_no_night_is_refused(tmp_path, text):
    (tmp_path / "night.json").write_text(text)
    with pytest.raises(RecordError, match=r"night\.json"):
        read_source(tmp_path)


def test_names(history):
    for number in range(3):
        history.add(night(number), [item("a")])
    history.add(night(1, title="other"), [item("a")])
    with history.reading() as connection:
        assert find_entry(connection, "latest").name == "suite-002"
        assert find_entry(connection, "latest~2").name == "suite-000"
        assert find_entry(connection, "suite-001~1").name == "suite-000"
        assert find_entry(connection, "latest", title="other").name == "other-001"
        assert find_entry(connection, "oth").name == "other-001"
        with pytest.raises(UsageError, match="names several"):
            find_entry(connection, "suite-00")
        with pytest.raises(UsageError, match="did you mean 'suite-001'"):
            find_entry(connection, "suit-001")
        with pytest.raises(UsageError, match="has 2 of suite before suite-002"):
            find_entry(connection, "latest~3")


def test_several_processes_make_the_file_and_add_at_once(tmp_path):
    write_twice_at_once(place_of(tmp_path, str(tmp_path / "history.sqlite")))
    counts = rows(history_in(tmp_path))
    assert (counts["entries"], counts["item_runs"]) == (2 + 2, 2 * 4 + 2)
    assert (counts["verdicts"], counts["command_runs"]) == (2 * 4 * 9, 2)


def test_a_writer_that_was_killed_left_whole_items(history, tmp_path):
    def items():
        yield judged("a", {"x": PASS})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        history.add(night(0), items())
    with history.reading() as connection:
        (entry,) = list_entries(connection)
    assert (entry.finished, entry.counts) == (False, {PASS: 1})
    added = history.add(night(0), [judged("a", {"x": PASS}), judged("b", {"x": PASS})])
    assert (added, rows(history)["verdicts"]) == (1, 2)


def test_a_report_and_a_night_say_which_kind_of_chain_their_items_are(tmp_path):
    file = tmp_path / "report.json"
    file.write_text(json.dumps({**report(), "chain": "paddle2onnx"}))
    assert [one.chain for one in read_source(file).items()] == ["paddle2onnx"]
    ran = [planned("vgg"), planned("phone", chain="lite")]
    sample = ended_night(tmp_path / "suite", 0, ran, root=tmp_path)
    assert [one.chain for one in read_source(sample.folder).items()] == ["", "lite"]


def test_tables_of_another_version_are_refused(history):
    with history.engine.begin() as connection:
        connection.execute(sa.update(TablesVersion).values(version=99))
    with pytest.raises(
        HistoryError, match="written by another version of tipchain\n  found: tables of version 99\n  exp"
    ):
        History(history.place)


def test_somebody_elses_database_is_refused(tmp_path):
    with closing(sqlite3.connect(tmp_path / "theirs.sqlite")) as connection:
        connection.execute("CREATE TABLE entries (id INTEGER)")
    with pytest.raises(HistoryError, match="not a history's"):
        History(place_of(tmp_path, str(tmp_path / "theirs.sqlite")))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://me:s3cret@host/x", "kind mysql"),
        ("postgresql://me:s3cret@host:port/x", "cannot be read"),
        ("://", "cannot be read"),
        ("sqlite://", "needs a file"),
        ("sqlite://me:s3cret@/:memory:", "needs a file|cannot be read"),
        ("postgresql:me:s3cret@host/x", "has no ://"),
        ("me:s3cret@host/x", "has no ://"),
        ("host=db user=me password=s3cret", "has no ://"),
    ],
)
def test_a_url_that_cannot_be_used(tmp_path, url, said):
    with pytest.raises(UsageError, match=said) as caught:
        place_of(tmp_path, url)
    assert "s3cret" not in str(caught.value)


def test_passwords_in_a_urls_query_are_shown_nowhere(tmp_path):
    url = "postgresql://host/x?user=me&password=s3%2Fcret&sslpassword=0ther&sslmode=require"
    place = place_of(tmp_path, url)
    assert str(place) == "postgresql+psycopg://host/x"
    said = place.without_secrets("login of me, s3/cret, s3%2Fcret, 0ther, failed at host")
    assert said == "login of me, ***, ***, ***, failed at host"
    assert place.url.query["password"] == "s3/cret"


def test_places(tmp_path, monkeypatch):
    assert place_of(tmp_path).file == tmp_path / ".tipchain" / "history.sqlite"
    monkeypatch.setenv("TIPCHAIN_DATABASE", "postgres://me:s3cret@host/x")
    place = place_of(tmp_path)
    assert str(place) == "postgresql+psycopg://me:***@host/x"
    assert "s3cret" not in repr(place)
    assert place.without_secrets("login s3cret failed") == "login *** failed"
    (tmp_path / "test_tipc").mkdir()
    assert project_above(tmp_path / "test_tipc" / "configs") == tmp_path
