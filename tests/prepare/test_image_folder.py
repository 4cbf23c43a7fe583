from __future__ import annotations

import pytest

from tipchain.errors import DataError
from tipchain.prepare.data import check_image_folder


@pytest.fixture
def folder(tmp_path):
    for split in ("train", "val"):
        for name in ("dog", "cat"):
            (tmp_path / split / name).mkdir(parents=True)
            (tmp_path / split / name / "1.JPEG").write_bytes(b"")
    return tmp_path


def test_classes_are_sorted(folder):
    (folder / "train/.cache").mkdir()
    assert check_image_folder(folder) == ("cat", "dog")


def test_a_missing_folder(tmp_path):
    with pytest.raises(DataError, match="no such data folder"):
        check_image_folder(tmp_path / "nowhere")


def test_a_missing_split(folder):
    (folder / "val").rename(folder / "validation")
    with pytest.raises(DataError, match="val: is missing"):
        check_image_folder(folder)


def test_a_split_without_classes(tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(DataError, match="train: has no class folders"):
        check_image_folder(tmp_path)


def test_different_classes(folder):
    (folder / "train/bird").mkdir()
    (folder / "val/cat").rename(folder / "val/fish")
    with pytest.raises(DataError, match="train only: bird, cat; val only: fish"):
        check_image_folder(folder)


def test_a_class_without_an_image(folder):
    (folder / "val/cat/1.JPEG").rename(folder / "val/cat/1.txt")
    with pytest.raises(DataError, match="val/cat: has no image"):
        check_image_folder(folder)
