"""What prepared weights and recorded data are known by."""

from __future__ import annotations

from tipchain.parity.weights import data_digest


def test_data_are_known_by_content(tmp_path):
    image = tmp_path / "train" / "0" / "a.png"
    image.parent.mkdir(parents=True)
    image.write_bytes(b"abc")
    before = data_digest(tmp_path)
    image.write_bytes(b"abd")
    assert data_digest(tmp_path) != before, "the same size, another image"
