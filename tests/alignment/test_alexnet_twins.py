"""AlexNet's two sides do the same: schedule, optimizer, loss and forward."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.frameworks
PACKAGE = "alignment.alexnet"
ROOT = Path(__file__).resolve().parents[2]


def test_named_steps_agree_and_end_in_the_data_sets_images(sides, tmp_path):
    """The steps that the data stage compares one by one are those that the data sets really apply."""
    from PIL import Image

    _, _, *both = sides
    (tmp_path / "val" / "7").mkdir(parents=True)
    pixels = np.random.default_rng(5).integers(0, 256, (90, 60, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "val" / "7" / "a.png")
    results = []
    for side in both:
        load, steps = side.build_transforms(tmp_path, "val")
        values = [load(0)]
        for _, step in steps:
            values.append(step(values[-1]))
        np.testing.assert_array_equal(values[-1], side.build_dataset(tmp_path, "val")[0][0])
        results.append(([name for name, _ in steps], [np.asarray(value) for value in values]))
    assert results[0][0] == results[1][0] == ["resize", "crop", "normalize"]
    np.testing.assert_array_equal(results[0][1][0], pixels)
    for expected, actual in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_shipped_case_loads():
    from tipchain.modes import STAGES
    from tipchain.parity.case import load_case

    case = load_case(ROOT / "configs/alexnet.yaml")
    assert case.stages == STAGES, "AlexNet's case shows every stage there is"
    assert case.model_args == {"num_classes": 10}
    assert case.scheduler_args["step_size"] < case.backward.iterations
