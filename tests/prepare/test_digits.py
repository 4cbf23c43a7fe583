from __future__ import annotations

from collections import Counter

import pytest

from tipchain.prepare.data import choose_images, encode_png, load_scans, split_whole


@pytest.fixture(scope="module")
def digits():
    return load_scans()


def test_the_whole_data_is_every_digit_once_and_stratified(digits):
    _, labels = digits
    splits = split_whole(labels)
    assert (len(splits["train"]), len(splits["val"])) == (1437, 360)
    assert sorted([*splits["train"], *splits["val"]]) == list(range(1797))
    whole = Counter(labels)
    for label, count in Counter(labels[number] for number in splits["val"]).items():
        assert abs(count - whole[label] * 360 / 1797) < 1


def test_the_lite_data_is_balanced(digits):
    _, labels = digits
    images = choose_images("lite", labels)
    for split in ("train", "val"):
        chosen = [image for image in images if image.path.startswith(split)]
        assert Counter(image.label for image in chosen) == dict.fromkeys(range(10), 2)


def test_lite_training_images_are_never_evaluated_on_in_any_mode(digits):
    _, labels = digits
    lite, whole = choose_images("lite", labels), choose_images("whole", labels)
    assert {image.path for image in lite} <= {image.path for image in whole}


def test_the_choice_is_the_same_on_every_machine(digits):
    _, labels = digits
    images = choose_images("lite", labels)
    assert [image.number for image in images[:6]] == [831, 1745, 726, 1688, 860, 1499]


def test_a_png_holds_the_scans_values(digits, tmp_path):
    import numpy as np
    from PIL import Image

    scans, _ = digits
    (tmp_path / "a.png").write_bytes(encode_png(scans[7]))
    with Image.open(tmp_path / "a.png") as image:
        assert (image.size, image.mode) == ((8, 8), "L")
        pixels = np.asarray(image)
    assert np.array_equal(np.rint(pixels / 255 * 16), scans[7])
    assert encode_png(scans[7]) == (tmp_path / "a.png").read_bytes()
