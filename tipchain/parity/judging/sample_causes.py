"""What makes two samples of a dump differ, in words; the hypotheses are those of `tipchain.parity.pieces.data_images`."""

from __future__ import annotations

from typing import Any

from tipchain.parity.pieces.data_images import explain_images, words_of

Array = Any


def explain_sample(expected: Array, actual: Array) -> str:
    """Return in words what differs between two samples, each cause named first; "" where nothing does.

    Args:
        expected: the reference's sample: an image (channels first or last), a clip of them, or any other array.
        actual: the port's.
    """
    said = []
    if expected.dtype != actual.dtype:
        said.append(f"dtype: {expected.dtype} expected, {actual.dtype} actual")
    if all(one.dtype.kind in "biuf" for one in (expected, actual)):
        said.append(words_of(explain_images([expected], [actual])))
    return "; ".join(filter(None, said))
