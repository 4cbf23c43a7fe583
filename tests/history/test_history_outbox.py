"""A database that is down, or goes away in the middle: nothing is lost, and nothing is sent twice."""

from __future__ import annotations

import gzip
import json
import resource
import shutil
import subprocess
import sys

import pytest
import sqlalchemy as sa
from filelock import FileLock
from history_samples import FAIL, PASS, judged, night, night_folder, report, trained

from tipchain.core.json_text import as_json, parse_as
from tipchain.history import ingest, schema
from tipchain.history.entries import items_of, list_entries
from tipchain.history.ingest import keep_source, read_source, send_waiting
from tipchain.history.store import History, place_of


def keep_results(path, root):
    return keep_source(read_source(path), place_of(root))


def count_waiting(root):
    return len(ingest.waiting(place_of(root)))


def names(root) -> list[str]:
    with History(place_of(root)).reading() as connection:
        return sorted(one.name for one in list_entries(connection))


def break_database(root) -> None:
    file = place_of(root).file
    file.parent.mkdir(exist_ok=True)
    file.write_text("no database" * 100)


def mend_database(root) -> None:
    place_of(root).file.unlink()


def test_results_reach_the_database(tmp_path):
    folder = night_folder(tmp_path, {"a": PASS, "b": FAIL})
    first, second = keep_results(folder, tmp_path), keep_results(folder, tmp_path)
    assert (first.sent, first.new, first.message) == (True, 2, "")
    assert (second.sent, second.new) == (True, 0)
    assert (tmp_path / ".tipchain" / ".gitignore").read_text() == "*\n"
    assert names(tmp_path) == [folder.name]


def test_what_waits_is_sent_at_the_next_call_though_its_folder_is_gone(tmp_path):
    break_database(tmp_path)
    folder = night_folder(tmp_path, {"a": PASS, "b": FAIL})
    kept = keep_results(folder, tmp_path)
    assert (kept.sent, count_waiting(tmp_path)) == (False, 1)
    (file,) = ingest.waiting(place_of(tmp_path))
    assert "file is not a database" in kept.message
    assert f"kept in {file}, sent at the next call" in kept.message
    keep_results(folder, tmp_path)
    assert count_waiting(tmp_path) == 1  # the same night waits once
    shutil.rmtree(folder)
    assert not send_waiting(place_of(tmp_path)).sent

    mend_database(tmp_path)
    other = tmp_path / "report.json"
    other.write_text(json.dumps(report()))
    sent = keep_results(other, tmp_path)
    assert (sent.sent, count_waiting(tmp_path)) == (True, 0)
    assert f"{folder.name}, which waited, is in" in sent.message
    assert len(names(tmp_path)) == 2
    assert not file.exists()
    history = History(place_of(tmp_path))
    with history.reading() as connection:
        entry = next(one for one in list_entries(connection) if one.kind == "night")
        items = items_of(connection, entry)
    assert (entry.finished, entry.counts) == (True, {PASS: 1, FAIL: 1})
    assert items["a"].verdict_count == 2


def test_a_database_that_goes_away_in_the_middle(tmp_path, monkeypatch):
    folder = night_folder(tmp_path, {"a": PASS, "b": FAIL, "c": PASS})
    add = History._item
    calls = []

    def fails_once(self, *args):
        calls.append(args)
        if len(calls) == 2:
            raise sa.exc.OperationalError("INSERT", {}, Exception("server closed the connection"))
        return add(self, *args)

    monkeypatch.setattr(History, "_item", fails_once)
    kept = keep_results(folder, tmp_path)
    assert not kept.sent
    assert "server closed the connection" in kept.message
    assert len(names(tmp_path)) == 1  # one item is in it, and the night is marked as not finished
    sent = send_waiting(place_of(tmp_path))
    assert (sent.sent, sent.new) == (True, 2)
    with History(place_of(tmp_path)).reading() as connection:
        (entry,) = list_entries(connection)
        count = connection.execute(sa.select(sa.func.count()).select_from(schema.verdicts)).scalar_one()
    assert (entry.finished, entry.counts, count) == (True, {PASS: 2, FAIL: 1}, 6)


def test_where_nothing_can_be_kept_either_it_says_where_the_results_are(tmp_path):
    (tmp_path / ".tipchain").write_text("in the way")
    folder = night_folder(tmp_path, {"a": PASS})
    kept = keep_results(folder, tmp_path)
    assert not kept.sent
    assert "nor could the results be kept" in kept.message
    assert f"they are in {folder}; tipchain history add sends them later" in kept.message


def test_a_full_disk_loses_nothing(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    folder = night_folder(tmp_path, {"a": PASS, "b": FAIL})

    def add(limit: int) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "tipchain", "history", "add", folder]

        def no_larger_files() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

        return subprocess.run(
            argv, cwd=tmp_path, capture_output=True, text=True, check=False, preexec_fn=no_larger_files
        )

    full = add(20_000)
    assert full.returncode == 0
    assert "sent at the next call" in full.stderr
    assert count_waiting(tmp_path) == 1
    assert send_waiting(place_of(tmp_path)).new == 2
    assert names(tmp_path) == [folder.name]


def test_a_damaged_file_is_named_and_holds_up_no_other(tmp_path):
    break_database(tmp_path)
    for _ in range(2):
        keep_results(night_folder(tmp_path, {"a": PASS}), tmp_path)
    damaged, _ = ingest.waiting(place_of(tmp_path))
    damaged.write_bytes(damaged.read_bytes()[:-20])
    mend_database(tmp_path)
    sent = send_waiting(place_of(tmp_path))
    assert (sent.sent, count_waiting(tmp_path), sent.new) == (False, 1, 1)
    assert f"{damaged}: cannot be read" in sent.message
    assert ingest.waiting(place_of(tmp_path)) == [damaged]


def test_a_file_without_its_end_is_not_taken_for_whole(tmp_path):
    place = place_of(tmp_path)
    folder = night_folder(tmp_path, {"a": PASS, "b": PASS})
    path = ingest.keep(place, read_source(folder))
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(lines[:-2])))
    assert not send_waiting(place).sent
    assert count_waiting(tmp_path) == 1


def test_what_another_process_sends_is_left_to_it(tmp_path):
    place = place_of(tmp_path)
    ingest.keep(place, read_source(night_folder(tmp_path, {"a": PASS})))
    with FileLock(place.outbox / ".lock"):
        sent = ingest.send(History(place))
    assert count_waiting(tmp_path) == 1
    assert sent.message.endswith("still wait: another process is sending them")
    assert ingest.send(History(place)).sent
    assert count_waiting(tmp_path) == 0


def test_each_database_has_its_own_outbox(tmp_path):
    ingest.keep(place_of(tmp_path, "postgresql://me@127.0.0.1:1/x"), read_source(night_folder(tmp_path, {"a": PASS})))
    assert send_waiting(place_of(tmp_path)).new == 0
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "facts", [night(3, environment={"a": "b"}), judged("a", {"x": FAIL}), trained("b", {"loss": 0.5})]
)
def test_facts_are_the_same_after_json(facts):
    again = parse_as(type(facts), json.loads(json.dumps(as_json(facts))), lenient=True)
    assert repr(again) == repr(facts)  # NaN is not equal to itself


def test_a_file_of_an_earlier_tipchain_is_sent(tmp_path):
    """Of format 1 a machine was an object, and an item knew nothing of rows."""
    path = ingest.keep(place_of(tmp_path), read_source(night_folder(tmp_path, {"a": PASS, "b": FAIL})))
    lines = []
    for line in gzip.decompress(path.read_bytes()).splitlines()[:-1]:
        whole = json.loads(line)
        one = whole.get("entry", whole)
        one["machine"] = {"name": one["machine"], "machine_class": one.pop("machine_class")}
        for name in ("id", "counts", "shares") if "entry" in whole else ("row", "verdict_count"):
            del one[name]
        lines.append(json.dumps(whole | ({"format": 1} if "entry" in whole else {})))
    path.write_bytes(gzip.compress("\n".join([*lines, "end\n"]).encode()))
    assert send_waiting(place_of(tmp_path)).new == 2
    with History(place_of(tmp_path)).reading() as connection:
        (entry,) = list_entries(connection)
        items = items_of(connection, entry)
    assert (entry.machine, entry.machine_class) == ("host", "processor Example CPU, cores 16, gpus H200, H200")
    assert {(one.machine, one.machine_class) for one in items.values()} == {(entry.machine, entry.machine_class)}
