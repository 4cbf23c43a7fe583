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


@pytest.mark.parametrize(
    ("moves", "message"),
    [
        ({"val": "validation"}, "val: is missing"),
        ({"train/cat": "cat", "train/dog": "dog"}, "train: has no class folders"),
        ({"train/dog": "train/bird", "val/cat": "val/fish"}, "train only: bird, cat; val only: dog, fish"),
        ({"val/cat/1.JPEG": "val/cat/1.txt"}, "val/cat: has no image"),
    ],
)
def test_what_lacks_a_part_is_refused(folder, moves, message):
    for old, new in moves.items():
        (folder / old).rename(folder / new)
    with pytest.raises(DataError, match=message):
        check_image_folder(folder)
