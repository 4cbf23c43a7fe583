"""Loss curves against an envelope, and the file that keeps its runs; no framework is needed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tipchain.parity.envelope import KEPT, EnvelopeCache, compare_curves

REFERENCE = np.array([2.0, 1.9, 1.8, 1.7])
RUNS = REFERENCE + np.array([[0, 1e-6, -4e-6, 2e-6], [1e-7, -2e-6, 1e-6, 3e-6]])


def test_a_close_port_stays_and_one_that_leaves_is_told_from_its_first_step():
    near = compare_curves(REFERENCE, REFERENCE + np.array([0, 3e-6, -8e-6, 1e-5]), RUNS, 10)
    assert near.outside is None
    assert near.worst == 3
    far = compare_curves(REFERENCE, REFERENCE + np.array([0, 3e-6, 1e-4, 1e-2]), RUNS, 10)
    assert (far.outside, far.worst) == (2, 3)
    assert far.ratios[2] == pytest.approx(25, rel=1e-3)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_a_loss_that_is_no_number_has_left(odd):
    curve = compare_curves(REFERENCE, np.array([2.0, odd, 1.8, 1.7]), RUNS, 10)
    assert curve.outside == 1
    assert curve.ratios[1] == np.inf


@pytest.mark.parametrize("wide", [1.0, np.nan, np.inf])
def test_where_rounding_alone_reaches_far_nothing_is_told(wide):
    runs = RUNS.copy()
    runs[1, 2] += wide
    curve = compare_curves(REFERENCE, REFERENCE + np.array([0, 0, 0.5, 9.0]), runs, 10)
    assert curve.told == 2
    assert curve.outside is None
    assert compare_curves(REFERENCE, REFERENCE + np.array([0, 1e-3, 0, 0]), runs, 10).outside == 1


class Maker:
    """Makes runs, and counts how often it is asked."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def __call__(self, number):
        self.made.append(number)
        return RUNS[number].tolist()


@pytest.fixture
def cache(tmp_path):
    cache = EnvelopeCache(folder=tmp_path / "envelopes", key="k" * 64)
    assert np.array_equal(cache.runs(REFERENCE, 2, Maker()), RUNS)
    return cache


def remade(cache, reference=REFERENCE, count=2) -> bool:
    maker = Maker()
    found = cache.runs(np.asarray(reference), count, maker)
    assert np.array_equal(found, RUNS[:count])
    return bool(maker.made)


def test_runs_are_made_once(cache):
    assert not remade(cache)
    assert [path.name for path in cache.folder.iterdir()] == [cache.path.name], "nothing half-written is left"


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: json.dumps({**json.loads(text), "runs": [[1, 2], [3]]}),
        lambda text: json.dumps({**json.loads(text), "key": "of another case"}),
        lambda text: text.replace("1.9", "1.9000001", 1),
    ],
    ids=["cut", "ragged", "foreign", "other losses"],
)
def test_a_file_that_does_not_serve_is_made_anew(cache, damage):
    cache.path.write_text(damage(cache.path.read_text()))
    assert remade(cache)
    assert not remade(cache)


def test_old_files_of_a_case_go(cache):
    for number in range(2 * KEPT):
        other = EnvelopeCache(folder=cache.folder, key=f"{number:064}"[::-1])
        assert remade(other)
    assert len(list(cache.folder.iterdir())) == KEPT
    assert other.path.is_file()


def test_a_folder_that_cannot_be_written_costs_time_and_no_result(tmp_path, capsys):
    (tmp_path / "envelopes").write_text("a file where the folder should be")
    cache = EnvelopeCache(folder=tmp_path / "envelopes", key="k" * 64)
    assert remade(cache)
    assert remade(cache)
    assert "the envelope was not saved" in capsys.readouterr().err
