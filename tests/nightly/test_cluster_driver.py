"""What Ray's driver makes of what Ray raises; without a cluster."""

from __future__ import annotations

import socket

import pytest

pytest.importorskip("ray", reason="Ray is not installed")

from ray import exceptions
from stub_nights import begin, command, work_of

from tipchain.nightly.cluster import driver
from tipchain.nightly.cluster.driver import RayDriver, _Task
from tipchain.nightly.cluster.node import AttemptPiece, Begun, ClusterTrouble
from tipchain.nightly.executor import Ended


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Return what tells what a driver says and ends where a stream raises or returns something."""

    def tell(result, *, cancelled=False, begun=True):
        night, lock = begin(tmp_path, command("a"))
        lock.release()
        work = work_of(night, command("a"))
        work.make_folder()
        said, ended = [], []
        monkeypatch.setattr(driver.ray, "get", lambda found: found)
        monkeypatch.setattr(driver.ray, "cancel", lambda stream, force: ended.append(force))
        one = RayDriver.__new__(RayDriver)
        one._say = said.append
        task = _Task(work, (answer() for answer in [lambda: raise_or_return(result)]))
        task.cancelled = cancelled
        task.begun = Begun(id=work.item.id, machine="box", address="10.0.0.7") if begun else None
        one._tasks = {work.item.id: task}
        one._take(task)
        return said, ended, one._tasks

    return tell


def raise_or_return(result):
    if isinstance(result, Exception):
        raise result
    return result


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (exceptions.WorkerCrashedError(), "Ray's worker on box (10.0.0.7) ended unexpectedly"),
        (exceptions.NodeDiedError("x"), "box (10.0.0.7) is gone"),
        (exceptions.OutOfMemoryError("x"), "Ray ended it on box (10.0.0.7), which ran out of memory"),
        (exceptions.RaySystemError("x"), "on box (10.0.0.7): RaySystemError: System error: x"),
    ],
)
def test_what_is_no_items_fault_is_lost_and_goes_on_nowhere(told, error, lost):
    (ended,), forced, tasks = told(error)
    assert isinstance(ended, Ended)
    assert (ended.lost, ended.failure, ended.interrupted) == (lost, "", False)
    assert forced == [True]
    assert tasks == {}
    (ended,), _, _ = told(error, cancelled=True)
    assert (ended.lost, ended.interrupted) == ("", True)


def test_without_its_own_node_the_driver_loses_no_items(told):
    """Each would be lost as often as it may be within seconds, and the whole night settled."""
    said, _, tasks = told(exceptions.LocalRayletDiedError(), begun=False)
    trouble, ended = said
    expected = f"the Ray node of {socket.gethostname()}, by which items are placed, is gone"
    assert trouble == ClusterTrouble(reason=expected)
    assert (ended.interrupted, ended.lost) == (True, "")
    assert tasks == {}


def test_a_node_that_can_run_nothing_settles_no_item(told):
    trouble, ended = told("tipchain is not installed on box")[0]
    assert trouble == ClusterTrouble(reason="tipchain is not installed on box")
    assert ended.interrupted


@pytest.mark.parametrize("number", driver.DISK)
def test_a_full_disk_settles_no_item(told, monkeypatch, number):
    def put(folder, piece):
        raise OSError(number, "it is so", str(folder / piece.name))

    monkeypatch.setattr(driver, "put", put)
    (trouble, ended), forced, _ = told(AttemptPiece(name="dump", data=b"x"))
    assert trouble.reason.endswith("attempt-1/dump: it is so")
    assert (ended.interrupted, forced) == (True, [True])


def test_what_an_item_named_badly_is_its_own_fault(told):
    (ended,), forced, _ = told(AttemptPiece(name="../out", data=b"x"))
    assert ended.failure.startswith("what it left cannot be written: ValueError: ../out")
    assert (ended.interrupted, forced) == (False, [True])
