"""What prepared weights and recorded data are known by."""

from __future__ import annotations

from pathlib import Path

import pytest

from tipchain.parity import weights
from tipchain.parity.weights import data_digest

ROOT = Path(__file__).resolve().parents[2]


def test_data_are_known_by_content(tmp_path):
    image = tmp_path / "train" / "0" / "a.png"
    image.parent.mkdir(parents=True)
    image.write_bytes(b"abc")
    before = data_digest(tmp_path)
    image.write_bytes(b"abd")
    assert data_digest(tmp_path) != before, "the same size, another image"


@pytest.mark.parametrize("file", ["weights/sides.py", "weights/files.py", "weights/matching.py"])
def test_a_change_of_the_conversion_makes_paddles_weights_stale(tmp_path, monkeypatch, file):
    from tipchain.parity.case import load_case

    case = load_case(ROOT / "tests/cases/tiny/tiny.yaml")
    image = tmp_path / "train" / "0" / "a.png"
    image.parent.mkdir(parents=True)
    image.write_bytes(b"abc")
    before = weights.recipe_of(case, tmp_path)
    real = weights.sha256_of
    monkeypatch.setattr(weights, "sha256_of", lambda path: "other" if path.as_posix().endswith(file) else real(path))
    after = weights.recipe_of(case, tmp_path)
    assert after["paddle"] != before["paddle"]
    assert after["torch"] == before["torch"], "the torch file stays"


@pytest.mark.frameworks
def test_digest_of_bfloat16_weights():
    torch = pytest.importorskip("torch")
    one = {"a": torch.tensor([1.0, 2.0], dtype=torch.bfloat16)}
    assert weights.state_digest(one) == weights.state_digest({"a": one["a"].clone()})
    assert weights.state_digest(one) != weights.state_digest({"a": one["a"] * 2})
    assert weights.state_digest(one) != weights.state_digest({"a": one["a"].float()})
