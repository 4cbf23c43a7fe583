"""Nights: their folders, order, records, what is settled, resuming, retries, disks that cannot be written."""

import fcntl
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest
from stub_nights import Quiet, begin, command, local, run_night, work_of

from tipchain.core import files as module
from tipchain.errors import ExitCode, Outcome, RecordError, UsageError
from tipchain.nightly.coordinator import Coordinator
from tipchain.nightly.executor import Ended, RunningItem
from tipchain.nightly.items import Needs
from tipchain.nightly.nights import (
    ENDED,
    FINISHED,
    ItemRecord,
    hold,
    holder,
    item_folder,
    last_failed,
    named_night,
    nights_below,
    read_night,
    read_summary,
    usual_seconds,
    write_document,
    write_record,
)
from tipchain.report.model import RunReport, report_json


class Fake:
    """An executor that ends what it starts as it is told."""

    name = "fake"
    trouble = ""

    def __init__(self, endings=None, room=100, impossible=()):
        self.slots = room
        self.endings, self.room, self.never = endings or {}, room, impossible
        self.order, self.ended, self.active = [], [], {}

    def impossible(self, item):
        return "never here" if item.subject in self.never else ""

    def start(self, work):
        if len(self.active) >= self.room:
            return "a slot"
        work.make_folder()
        work.log.touch()
        self.order.append(work.item.subject)
        self.active[work.item.id] = work
        return ""

    def wait(self, timeout_s):
        found = []
        for name, work in list(self.active.items()):
            more = self.endings.get(work.item.subject, [{"exit_code": 0}])
            ending = more.pop(0) if len(more) > 1 else more[0]
            found.append(Ended(id=name, attempt=work.attempt, seconds=1.0, **ending))
            del self.active[name]
        return found

    def running(self):
        return [RunningItem(id=name, seconds=0.5) for name in self.active]

    def stop(self):
        pass

    def close(self):
        pass


def test_items_start_in_order_and_end_with_a_record_each(tmp_path):
    items = [command(name) for name in "abc"]
    executor = Fake({"b": [{"exit_code": 1}]}, room=1)
    night, result, view = run_night(tmp_path, *items, executor=executor)
    assert executor.order == ["a", "b", "c"]
    assert result.counts == {Outcome.PASS: 2, Outcome.FAIL: 1}
    assert (result.left, result.exit_code) == (0, ExitCode.FAILED)
    assert [record.outcome for record in night.records()] == [Outcome.PASS, Outcome.FAIL, Outcome.PASS]
    assert [record.executor for record in night.records()] == ["fake"] * 3
    assert view.ends == ["a[cpu]", "b[cpu]", "c[cpu]"]
    finished = json.loads((night.folder / FINISHED).read_text())
    assert finished["counts"] == {"PASS": 2, "FAIL": 1, "ERROR": 0, "SKIP": 0}
    assert finished["exit_code"] == 1
    assert finished["items"]["b[cpu]"] == ["FAIL", 1.0]


def test_exit_codes(tmp_path):
    skip = {"settled": Outcome.SKIP, "reason": "gone"}
    for number, (items, code) in enumerate(
        [
            ([command("a")], ExitCode.PASSED),
            ([command("a"), command("b", **skip)], ExitCode.PASSED),
            ([command("b", **skip)], ExitCode.NOTHING_CHECKED),
            ([command("a"), command("b", settled=Outcome.ERROR, reason="gone")], ExitCode.FAILED),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert run_night(folder, *items, executor=Fake())[1].exit_code is code


def test_what_is_settled_is_written_down_and_not_run(tmp_path):
    items = [command("a", settled=Outcome.SKIP, reason="data are gone"), command("b")]
    executor = Fake()
    night, _, _ = run_night(tmp_path, *items, executor=executor)
    assert executor.order == ["b"]
    record = night.record("a[cpu]")
    assert (record.outcome, record.reason, record.attempt, record.log) == (Outcome.SKIP, "data are gone", 0, "")


@pytest.mark.parametrize(("require", "outcome"), [(False, Outcome.SKIP), (True, Outcome.ERROR)])
def test_what_can_never_run_here(tmp_path, require, outcome):
    night, _, _ = run_night(tmp_path, command("a"), executor=Fake(impossible="a"), require_gpu=require)
    assert (night.record("a[cpu]").outcome, night.record("a[cpu]").reason) == (outcome, "never here")


@pytest.mark.parametrize("needs", [Needs(gpus=1), Needs(resources={"tpu": 1.0})])
def test_who_waits_for_something_rare_keeps_nobody_else_waiting(tmp_path, needs):
    class Taken(Fake):
        def start(self, work):
            return "more" if work.item.needs == needs and "b" not in self.order else super().start(work)

        def wait(self, timeout_s):
            self.waited, first = True, not hasattr(self, "waited")
            return [] if first else super().wait(timeout_s)

    executor = Taken()
    _, _, view = run_night(tmp_path, command("g", needs=needs), command("a"), command("b"), executor=executor)
    assert executor.order == ["a", "b", "g"]
    assert "more" in {state.waiting for state in view.states}


@pytest.mark.parametrize("keep", [True, False])
def test_dumps_of_what_passed_can_be_dropped(tmp_path, keep):
    leave = (
        'mkdir -p "$0/work/run"; for name in a.npy run/b.pdparams run/c.log d.json; do echo x > "$0/work/$name"; done; '
    )
    leave += 'ln -s /etc "$0/work/etc"; ln -s /etc/passwd "$0/work/e.log"; '
    items = [
        command(name, argv=("/bin/sh", "-c", f"{leave} exit {code}", "{folder}"))
        for name, code in (("good", 0), ("bad", 1))
    ]
    night, _, _ = run_night(tmp_path, *items, keep_dumps=keep)

    def left(name):
        folder = item_folder(night.folder, name) / "attempt-1"
        return sorted(path.name for path in folder.rglob("*") if path.is_file() or path.is_symlink())

    everything = ["a.npy", "b.pdparams", "c.log", "d.json", "e.log", "etc", "output.log"]
    assert left("bad[cpu]") == everything
    assert left("good[cpu]") == (everything if keep else ["c.log", "d.json", "etc", "output.log"])
    assert Path("/etc/passwd").exists()


def test_resuming_runs_what_has_not_ended_as_another_attempt(tmp_path):
    items = [command(name, f"echo {name} >> ran") for name in "abc"]
    night, lock = begin(tmp_path, *items)
    for name in "ab":
        work = work_of(night, items["abc".index(name)])
        work.make_folder()
        work.report.write_text(
            json.dumps({**report_json(RunReport()), "exit_code": 0})
        )  # of an attempt that was killed
    write_record(night.folder, ItemRecord(id="a[cpu]", attempt=1, outcome=Outcome.PASS), night.token)
    again = read_night(night.folder)
    assert again == night
    _, result, view = run_night(tmp_path, night=again)
    os.close(lock)
    assert sorted((tmp_path / "ran").read_text().split()) == ["b", "c"]
    assert view.starts == [("b[cpu]", 2), ("c[cpu]", 1)]
    assert [again.record(f"{name}[cpu]").attempt for name in "abc"] == [1, 2, 1]
    assert result.counts == {Outcome.PASS: 3}


def test_what_was_damaged_or_is_another_nights_runs_again(tmp_path):
    night, _ = begin(tmp_path, command("a", "echo x >> ran"), command("b", "echo x >> ran"))
    for name, token in (("a[cpu]", night.token), ("b[cpu]", "other")):
        item_folder(night.folder, name).mkdir(parents=True)
        write_record(night.folder, ItemRecord(id=name, attempt=1, outcome=Outcome.PASS), token)
    damaged = item_folder(night.folder, "a[cpu]") / ENDED
    damaged.write_text(damaged.read_text()[:-9])
    assert night.record("a[cpu]").outcome is Outcome.ERROR
    assert night.record("b[cpu]") is None
    run_night(tmp_path, night=night)
    assert (tmp_path / "ran").read_text() == "x\nx\n"
    assert [record.outcome for record in night.records()] == [Outcome.PASS] * 2


def test_looking_who_holds_a_night_hinders_nobody(tmp_path):
    night, lock = begin(tmp_path, command("a"))
    os.close(lock)
    with (night.folder / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert holder(night.folder) == ""


def test_a_night_that_was_killed_before_it_was_written_down_is_none(tmp_path):
    (tmp_path / "nights/20260101-000000-00000").mkdir(parents=True)
    assert nights_below(tmp_path / "nights") == []
    with pytest.raises(UsageError, match="no night is there yet"):
        named_night(tmp_path / "nights")
    night, _ = begin(tmp_path, command("a"))
    assert named_night(tmp_path / "nights") == night
    (night.folder / "night.json").write_text("{")
    with pytest.raises(RecordError, match="is not a night"):
        read_night(night.folder)


def test_what_earlier_nights_tell(tmp_path):
    for seconds in (1.0, 5.0, 2.0):
        night, _ = begin(tmp_path, command("a"), command("b"))
        document = {"items": {"a[cpu]": ["PASS", seconds], "b[cpu]": ["ERROR", 9.0]}}
        write_document(night.folder / FINISHED, document)
    nights = tmp_path / "nights"
    assert usual_seconds(nights) == {"a[cpu]": 2.0}
    assert last_failed(nights) == {"b[cpu]"}
    late, _ = begin(tmp_path, command("a"), command("b"))
    item_folder(late.folder, "a[cpu]").mkdir(parents=True)
    write_record(late.folder, ItemRecord(id="a[cpu]", attempt=1, outcome=Outcome.FAIL), late.token)
    assert last_failed(nights) == {"a[cpu]", "b[cpu]"}, "a night that goes on counts, and what it did not run as before"
    write_record(late.folder, ItemRecord(id="a[cpu]", attempt=1, outcome=Outcome.SKIP), late.token)
    assert last_failed(nights) == {"b[cpu]"}, "what could not run is as it was before"
    assert read_summary(late.folder) is None
    with pytest.raises(UsageError, match="no night"):
        last_failed(tmp_path / "none")


def test_a_sink_is_given_the_finished_night_and_may_fail(tmp_path):
    given = []

    def broken(folder):
        raise ConnectionError("the database is down")

    night, _, _ = run_night(tmp_path / "good", command("a"), executor=Fake(), sink=given.append)
    assert given == [night.folder]
    _, result, view = run_night(tmp_path / "bad", command("a"), executor=Fake(), sink=broken)
    assert result.exit_code is ExitCode.PASSED
    assert view.lines == ["the night was not handed on: ConnectionError: the database is down"]


def fail_to_write(monkeypatch, after, times=10**6):
    """Let the disk be full after so many records, for so many more."""
    count = [0]

    def write(night, record, token):
        count[0] += 1
        if after < count[0] <= after + times:
            raise OSError(28, "No space left on device", str(night))
        write_record(night, record, token)

    monkeypatch.setattr("tipchain.nightly.coordinator.write_record", write)


def test_a_full_disk_stops_the_night_and_keeps_what_was_got(tmp_path, monkeypatch):
    items = [command(f"i{number}", "echo x >> ran; sleep 0.05") for number in range(6)]
    fail_to_write(monkeypatch, 2)
    night, result, view = run_night(tmp_path, *items, executor=local(tmp_path, 1))
    assert result.problem == f"{night.folder}: No space left on device"
    assert (result.left, result.exit_code) == (4, ExitCode.FAILED)
    assert not night.finished
    assert any("i2[cpu] ended as PASS, which could not be written down" in line for line in view.lines)
    monkeypatch.undo()
    _, result, _ = run_night(tmp_path, night=night)
    assert (result.left, result.exit_code) == (0, ExitCode.PASSED)
    assert (tmp_path / "ran").read_text().count("x") == 7, "only what was not written down ran again"


def test_a_record_that_could_not_be_written_is_written_when_there_is_room_again(tmp_path, monkeypatch):
    items = [command(f"i{number}", "echo x >> ran; sleep 0.05") for number in range(3)]
    fail_to_write(monkeypatch, 0, 1)
    night, result, _ = run_night(tmp_path, *items, executor=local(tmp_path, 1))
    assert result.counts == {Outcome.PASS: 1}
    assert result.problem
    monkeypatch.undo()
    assert run_night(tmp_path, night=night)[1].left == 0
    assert (tmp_path / "ran").read_text().count("x") == 3


def test_an_item_that_fails_for_want_of_room_has_not_ended(tmp_path, monkeypatch):
    executor = Fake({"a": [{"failure": "cannot write its log: No space left on device"}]})
    full = OSError(28, "No space left on device", "probe")
    monkeypatch.setattr(Coordinator, "_unwritable", lambda self: full)
    night, result, _ = run_night(tmp_path, command("a"), executor=executor)
    assert (result.left, night.record("a[cpu]"), result.problem) == (1, None, "probe: No space left on device")


def test_the_time_that_is_left(tmp_path):
    items = [command(name) for name in "abcd"]
    night, _ = begin(tmp_path, *items)
    view = Quiet()
    usual = {"a[cpu]": 10.0, "b[cpu]": 20.0}
    executor = Fake(room=1)
    executor.slots = 2
    coordinator = Coordinator(night, executor, view, usual=usual)
    assert coordinator.state().left_s == pytest.approx((30 + 2 * 15) / 2), "the median stands for those not known"
    coordinator.run()
    # One second each. The first is no basis yet; then c and d are like what ran so far.
    assert view.states[0].left_s == pytest.approx((20 + 2 * 15) / 2)
    assert view.states[1].left_s == pytest.approx(2 * 1 / 2)
    assert view.states[-1].left_s == 0


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
    assert began == ["20261025-025959-f423f", "20261025-025959-f4240", "20261025-025959-f4241"]
    times.append(datetime.fromisoformat("2026-10-25T03:00:01.000005"))
    assert begin(tmp_path, command("a"))[0].name == "20261025-030001-00005", "the clock is right again"
