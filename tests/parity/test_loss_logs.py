"""Losses of logs, held against each other."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tipchain.parity.envelope import Losses, NoLossesError, held, main, read_losses

PATTERN = r"loss: (\S+),"


def printed(values, digits=5):
    return "".join(f"step {step} loss: {value:.{digits}f}, lr: 0.1\n" for step, value in enumerate(values))


def losses(values, digits=5):
    return read_losses(printed(values, digits), PATTERN)


CURVE = np.linspace(2.0, 1.0, 8)


def test_the_last_digit_is_known():
    assert losses([1.25], 2) == Losses(values=pytest.approx([1.25]), unit=pytest.approx(0.01))
    assert read_losses("loss: 1.5e-3,", PATTERN).unit == pytest.approx(1e-4)
    assert read_losses("loss: nan,\nloss: 1.5,", PATTERN).unit == pytest.approx(0.1)


def test_one_unit_of_the_last_digit_is_no_difference():
    left = losses(CURVE)
    _, parts = held(left, losses(CURVE + 1e-5), [], 10.0)
    assert parts.max() <= 1
    _, parts = held(left, losses(CURVE + 9e-5), [], 1.0)
    assert parts.min() > 1


def test_what_rounding_makes_of_the_reference_is_allowed():
    drift = 1e-4 * np.arange(8)
    port = losses(CURVE + 5 * drift)
    assert held(losses(CURVE), port, [losses(CURVE - drift)], 10.0)[1].max() <= 1
    assert held(losses(CURVE), port, [losses(CURVE - drift)], 3.0)[1].max() > 1


@pytest.mark.parametrize("other", [losses(CURVE[:-1]), losses([*CURVE, 1.0])])
def test_another_number_of_losses_is_no_comparison(other):
    with pytest.raises(NoLossesError):
        held(losses(CURVE), other, [], 10.0)


def test_exit_codes(tmp_path, capsys):
    names = {"left": CURVE, "same": CURVE, "far": CURVE + 0.01, "short": CURVE[:3]}
    for name, values in names.items():
        (tmp_path / name).write_text(printed(values))
    (tmp_path / "empty").write_text("nothing\n")

    def code(port, *more):
        return main([str(tmp_path / "left"), str(tmp_path / port), "--losses", PATTERN, *more])

    assert code("same", "--runs", str(tmp_path / "same")) == 0
    assert "losses passed: all 8 steps" in capsys.readouterr().out
    assert code("far", "--runs", str(tmp_path / "same")) == 1
    told = capsys.readouterr().out
    assert "losses failed: step 1 has" in told
    assert float(re.search(r"^difference_ratio: (\S+) ", told, re.MULTILINE)[1]) > 1
    assert code("short") == 2
    assert code("empty") == 2
    assert code("none") == 2
    assert code("short", "--first", "3") == 0
