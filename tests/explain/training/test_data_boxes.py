"""What makes the boxes of two sides differ is named: format, order, mirroring, unit."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("paddle")

from tipchain.errors import Outcome  # noqa: E402
from tipchain.explain.causes.data import check_data  # noqa: E402
from tipchain.frameworks.live_models import PaddleSide, Sides, TorchSide  # noqa: E402

pytestmark = pytest.mark.frameworks
RANDOM = np.random.default_rng(0)
CORNERS = [RANDOM.random((count, 2)) * 6 for count in (3, 1, 4, 2)]
BOXES = [np.concatenate([one, one + 1 + 5 * RANDOM.random(one.shape)], 1).astype(np.float32) for one in CORNERS]
IMAGES = RANDOM.random((4, 3, 12, 16)).astype(np.float32)
SIZES = np.array([16, 12, 16, 12], np.float32)


def mirrored(box):
    return np.stack([16 - box[:, 2], box[:, 1], 16 - box[:, 0], box[:, 3]], -1)


def centred(box):
    return np.concatenate([(box[:, :2] + box[:, 2:]) / 2, box[:, 2:] - box[:, :2]], -1)


FAULTS = {
    "format": (lambda box: box, lambda box: np.concatenate([box[:, :2], box[:, 2:] - box[:, :2]], -1), "layout", "x1, y1, width, height"),
    "format of both": (centred, lambda box: box[:, [1, 0, 3, 2]], "layout", "the port's are y1, x1, y2, x2, the reference's centre x"),
    "not mirrored": (mirrored, lambda box: box, "flip", "mirrored left to right"),
    "upside down": (lambda box: box, lambda box: np.stack([box[:, 0], 12 - box[:, 3], box[:, 2], 12 - box[:, 1]], -1), "flip", "upside down"),
    "pixels": (lambda box: box / SIZES, lambda box: box, "scale", "in pixels"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_with_boxes_is_named(name):
    ours, theirs, code, words = FAULTS[name]
    sources = [[(image, change(box)) for image, box in zip(IMAGES, BOXES, strict=True)] for change in (ours, theirs)]
    found = check_data(Sides(TorchSide(), PaddleSide()), tuple(sources))
    assert found.outcome is Outcome.FAIL
    (cause,) = found.diagnoses
    assert cause.code == code
    assert words in cause.message


def test_boxes_of_some_samples_that_nothing_explains_are_unknown():
    other = [(image, RANDOM.random(box.shape).astype(np.float32)) for image, box in zip(IMAGES, BOXES, strict=True)]
    found = check_data(Sides(TorchSide(), PaddleSide()), (list(zip(IMAGES, BOXES, strict=True)), other))
    assert [one.code for one in found.diagnoses] == ["unknown"]
