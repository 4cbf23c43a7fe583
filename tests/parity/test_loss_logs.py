import re

import numpy as np
import pytest

from tipchain.parity.envelope import Losses, main, read_losses

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


@pytest.fixture
def code(tmp_path):
    """Return a function that holds losses against `CURVE`, and gives the exit code."""

    def run(port, runs=(), factor=10.0):
        logs = [tmp_path / str(number) for number in range(2 + len(runs))]
        for path, values in zip(logs, (CURVE, port, *runs), strict=True):
            path.write_text(printed(values))
        first, other, *rest = map(str, logs)
        return main([first, other, "--losses", PATTERN, "--factor", str(factor), "--runs", *rest])

    return run


def test_one_unit_of_the_last_digit_is_no_difference(code):
    assert code(CURVE + 1e-5) == 0
    assert code(CURVE + 9e-5, factor=1.0) == 1


def test_what_rounding_makes_of_the_reference_is_allowed(code):
    drift = 1e-4 * np.arange(8)
    assert code(CURVE + 5 * drift, [CURVE - drift]) == 0
    assert code(CURVE + 5 * drift, [CURVE - drift], 3.0) == 1


def test_exit_codes(tmp_path, capsys):
    names = {"left": CURVE, "same": CURVE, "far": CURVE + 0.01, "short": CURVE[:3]}
    for name, values in names.items():
        (tmp_path / name).write_text(printed(values))
    (tmp_path / "empty").write_text("nothing\n")

    def compared(port, *more):
        return main([str(tmp_path / "left"), str(tmp_path / port), "--losses", PATTERN, *more])

    assert compared("same", "--runs", str(tmp_path / "same")) == 0
    assert "losses passed: all 8 steps" in capsys.readouterr().out
    assert compared("far", "--runs", str(tmp_path / "same")) == 1
    told = capsys.readouterr().out
    assert "losses failed: step 1 has" in told
    assert float(re.search(r"^difference_ratio: (\S+) ", told, re.MULTILINE)[1]) > 1
    assert compared("short") == 2
    assert compared("empty") == 2
    assert compared("none") == 2
    assert compared("short", "--first", "3") == 0
