"""The two sides' data do the same: transforms, folders, accuracies; random crops have one distribution."""

import random

import numpy as np
import pytest
from PIL import Image

from tipchain.errors import DataError

pytestmark = pytest.mark.frameworks
SIZES = [(256, 224), (73, 64)]
"""Resize and crop of AlexNet and of MobileNetV3."""


@pytest.fixture(scope="module")
def sides(frameworks):
    from alignment.digits import paddle_data, torch_data

    return torch_data, paddle_data


@pytest.mark.parametrize(("resize", "crop"), SIZES)
@pytest.mark.parametrize("size", [(8, 8), (300, 201), (1, 40)])
def test_transforms_agree(sides, size, resize, crop):
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    expected, actual = (side.build_transform(resize, crop)(image) for side in sides)
    assert actual.shape == tuple(expected.shape) == (3, crop, crop)
    assert actual.dtype == np.float32
    np.testing.assert_array_equal(actual, expected.numpy())


def draw_boxes(transform, count=200):
    """Return left, right, top and bottom of ``count`` crops, as shares of the image, read off the pixels."""
    column = np.tile(np.arange(256, dtype=np.uint8), (256, 1))
    image = Image.fromarray(np.stack([column, column.T, column], axis=2))
    edges = []
    for _ in range(count):
        red, green, _ = np.asarray(transform(image))
        across, down = red.mean(axis=0) * 0.229 + 0.485, green.mean(axis=1) * 0.224 + 0.456
        edges.append([across[0], across[-1], down[0], down[-1]])
    return np.array(edges).T


def test_random_crops_have_the_asked_distribution_on_both_sides(sides, frameworks):
    """Areas are uniform in [0.6, 1], ratios log-uniform in [0.8, 1.25]; nothing is flipped."""
    torch, _ = frameworks
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  (Paddle draws from it)
    random.seed(0)
    areas, ratios = [], []
    for side in sides:
        left, right, top, bottom = draw_boxes(side.build_transform(256, 32, augment=True))
        assert (right > left).all()
        assert (bottom > top).all()
        areas.append(np.sort((right - left) * (bottom - top)))
        ratios.append(np.sort((right - left) / (bottom - top)))
        # The outermost pixels' centres lie half a pixel inside, which takes 6 % of the area.
        assert 0.54 <= areas[-1][0] <= 0.65
        assert areas[-1][-1] >= 0.9
        assert 0.77 <= ratios[-1][0] <= 0.84
        assert 1.19 <= ratios[-1][-1] <= 1.29
        assert np.std(left) > 0.02
        assert np.std(top) > 0.02
    for one, other in (areas, ratios):  # 200 draws each
        assert np.abs(np.quantile(one, [0.1, 0.5, 0.9]) - np.quantile(other, [0.1, 0.5, 0.9])).max() < 0.06


@pytest.fixture
def folder(tmp_path):
    for number, name in enumerate(["tench", "10", "9", "Zebra"]):
        for split in ("train", "val"):
            (tmp_path / split / name / "deep").mkdir(parents=True)
            Image.new("L", (9, 9), 50 * number).save(tmp_path / split / name / "b.PNG")
            Image.new("RGBA", (9, 9), "red").save(tmp_path / split / name / "deep" / "a.png")
            (tmp_path / split / name / "notes.txt").write_text("no image")
    return tmp_path


def open_both(sides, folder, split):
    return [side.ImageFolder(folder, split, side.build_transform(73, 64)) for side in sides]


def test_data_sets_agree(sides, folder):
    reference, port = open_both(sides, folder, "val")
    assert tuple(reference.classes) == tuple(port.classes) == ("10", "9", "Zebra", "tench")
    assert len(reference) == len(port) == 8
    assert {name for _, _, name in port} == {
        f"val/{name}/{file}" for name in reference.classes for file in ("b.PNG", "deep/a.png")
    }
    for (image, label, name), (image2, label2, name2) in zip(reference, port, strict=True):
        assert (label, name) == (label2, name2)
        np.testing.assert_array_equal(image2, image.numpy())


def test_missing_empty_and_damaged_data(sides, folder):
    (folder / "empty/x").mkdir(parents=True)
    (folder / "val/9/b.PNG").write_bytes(b"no image")
    for side in sides:
        transform = side.build_transform(73, 64)
        with pytest.raises(DataError, match=r"test: is missing"):
            side.ImageFolder(folder, "test", transform)
        with pytest.raises(DataError, match=r"empty: has no images in class folders"):
            side.ImageFolder(folder, "empty", transform)
        with pytest.raises(DataError, match=r"b\.PNG: cannot be read as an image"):
            list(side.ImageFolder(folder, "val", transform))


@pytest.mark.parametrize("model", ["alexnet", "mobilenet_v3"])
def test_only_training_images_are_cut_at_random_and_only_where_asked(frameworks, folder, model):
    from importlib import import_module

    size = {"alexnet": 224, "mobilenet_v3": 64}[model]
    rows = np.tile(np.arange(0, 225, 25, dtype=np.uint8)[:, None], (1, 9))
    for split in ("train", "val"):
        Image.fromarray(rows).save(folder / split / "9" / "b.PNG")
    for name in ("torch", "paddle"):
        side = import_module(f"alignment.{model}.{name}_side")
        number = next(n for n, (_, _, file) in enumerate(side.build_dataset(folder, "val")) if file == "val/9/b.PNG")
        for split, augment, changes in (("train", False, False), ("train", True, True), ("val", True, False)):
            dataset = side.build_dataset(folder, split, augment=augment)
            draws = [np.asarray(dataset[number][0]) for _ in range(4)]
            assert draws[0].shape == (3, size, size)
            assert (max(np.abs(one - draws[0]).max() for one in draws) > 0) == changes, (name, split, augment)
        plain = np.asarray(side.build_dataset(folder, "val")[number][0])
        image = Image.open(folder / "val/9/b.PNG").convert("RGB")
        np.testing.assert_array_equal(plain, np.asarray(side.build_transform()(image)))


@pytest.mark.parametrize("classes", [10, 3])
def test_accuracies_agree(sides, frameworks, classes):
    """Against their definitions; a class without samples has no part in the mean over classes."""
    torch, paddle = frameworks
    generator = np.random.default_rng(1)
    output = generator.normal(size=(40, classes)).astype(np.float32)
    label = generator.integers(1, classes, 40)
    output[np.arange(40), label] += 1.5
    ranks = (output > output[np.arange(40), label][:, None]).sum(axis=1)
    recalls = [np.mean(ranks[label == one] < 1) for one in range(1, classes)]
    expected = {
        "acc_top1": 100 * np.mean(ranks < 1),
        "acc_top5": 100 * np.mean(ranks < 5),
        "mean_class_accuracy": 100 * np.mean(recalls),
    }
    assert expected["mean_class_accuracy"] != pytest.approx(expected["acc_top1"])
    counts = [(np.sum((label == one) & (ranks < 1)), np.sum(label == one)) for one in range(classes)]
    for side, tensor in zip(sides, (torch.from_numpy, paddle.to_tensor), strict=True):
        assert side.measure_accuracy(tensor(output), tensor(label)) == pytest.approx(expected)
        right, samples = (np.asarray(one) for one in side.count_classes(tensor(output), tensor(label)))
        assert right.dtype == samples.dtype == np.int64
        assert list(zip(right, samples, strict=True)) == counts
