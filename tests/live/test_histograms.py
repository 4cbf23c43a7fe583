"""Histograms of differences, and a report that is read back from its JSON."""

from math import inf, nan

import numpy as np
import pytest
from alignment_samples import verdict

from tipchain.errors import Outcome, RecordError
from tipchain.explain.findings import Diagnosis, difference
from tipchain.explain.locate.verdicts import Closeness
from tipchain.live.report import MOST, PER_DECADE, AlignmentReport, Histogram, count


def begins(one: Histogram) -> list[float]:
    """Return where each bin that holds something begins."""
    return [10 ** ((one.first + place) / PER_DECADE) for place, number in enumerate(one.counts) if number]


def test_differences_are_counted_by_their_size():
    expected = np.zeros(7)
    one = count("output", expected, np.array([0, 0, 1e-6, -2e-6, 3e-1, nan, inf]))
    assert (one.size, one.same, one.odd, one.every) == (7, 2, 2, 1)
    assert sum(one.counts) == 3
    for begin, value in zip(begins(one), (1e-6, 2e-6, 3e-1), strict=True):
        assert begin <= value * (1 + 1e-9) < begin * 10 ** (1 / PER_DECADE) * (1 + 1e-6)


def test_numbers_of_a_kind_that_cannot_be_subtracted_are_counted_too():
    flags = np.array([True, False, True])
    assert sum(count("mask", flags, ~flags).counts) == 3
    bytes_ = np.array([0, 255], np.uint8)
    assert begins(count("image", bytes_, bytes_[::-1]))[0] <= 255
    waves = np.array([3 + 4j, 1, 1], np.complex64)
    assert [count("spectrum", waves, one).same for one in (waves, waves.real.copy(), waves.conj())] == [3, 2, 2]
    assert begins(count("spectrum", waves, np.array([0, 1, 1], np.float32)))[0] <= 5


def test_tiny_differences_share_a_bin_and_a_large_tensor_is_sampled():
    one = count("output", np.zeros(3 * MOST), np.full(3 * MOST, 1e-300))
    assert (one.every, one.size, len(one.counts)) == (3, MOST, 1)


def report() -> AlignmentReport:
    return AlignmentReport(
        stages={"forward": Outcome.FAIL, "train": Outcome.SKIP}, reasons={"forward": "bn differs"},
        layers=[verdict("bn"), verdict("bn", inherited=inf, own=None, ratio=None, closeness=Closeness.NOT_COMPARABLE)],
        first_divergence=verdict("bn", closeness=Closeness.DIFFERS),
        findings=[difference("e", ("NaN", "Infinity"), "m", "f")],
        diagnoses=[Diagnosis(code="e", port_path="bn", message="m", evidence="v", explained=0.5, fix="f"),
                   Diagnosis(code="u", port_path="bn", message="m", evidence="v", fix="f")],
        unmatched={"port": ["relu (ReLU)"]}, numbers={"output 0": inf}, curves={"train/port": [1.0, -inf]},
        histograms=[count("output", np.zeros(2), np.array([0, 1e-3]))], versions={"torch": "2"}, command="tipchain.align()", notes=["copied"],
    )  # fmt: skip


def test_a_report_is_the_same_after_json():
    text = report().to_json()
    again = AlignmentReport.from_json(text)
    assert again == report()
    assert again.findings[0].reference == "NaN"
    assert "note: copied" in str(again).splitlines()
    assert again.to_json() == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"stages": {"forward": "GOOD"}, "layers": [], "first_divergence": null}',
        '{"stages": {}, "layers": [], "first_divergence": null, "numbers": {"x": "much"}}',
        '{"stages": {}, "first_divergence": null, "layers": [], "origin": 3}',
        "[" * 100_000,
        "[]",
    ],
)
def test_another_file_is_refused(text):
    with pytest.raises(RecordError, match="is no report of an alignment"):
        AlignmentReport.from_json(text)


def test_the_first_divergence_and_the_outputs_have_histograms():
    torch = pytest.importorskip("torch")
    paddle = pytest.importorskip("paddle")
    import tipchain

    reference = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    port = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.ReLU(), paddle.nn.Linear(4, 2))
    tipchain.copy_weights(reference, port)
    port[0].bias.set_value(port[0].bias + 0.25)
    found = tipchain.align(reference, port, {"args": np.ones((5, 3), np.float32)}, causes=False)
    layer, output = found.histograms
    assert (layer.what, layer.size, layer.same) == ("output 0 of 0", 20, 0)
    assert begins(layer)[0] <= 0.25 < begins(layer)[0] * 10 ** (1 / PER_DECADE)
    assert output.what.endswith("of the model")
    assert "iterations=5, training=False, seed=0)" in found.command
    assert AlignmentReport.from_json(found.to_json()) == found
