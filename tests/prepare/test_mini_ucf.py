"""The videos of moving digits: layout, what tells the classes apart, groups, and the archive beside the folder."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tipchain.errors import DataError, UsageError
from tipchain.modes import data_folder
from tipchain.prepare import data
from tipchain.prepare.data import check_data, prepare_data

CLASSES = ["Clockwise", "CounterClockwise", "Down", "Left", "Right", "Up"]


@pytest.fixture(scope="module", autouse=True)
def _few():
    """Two groups with a video of each class instead of five: making the lite videos takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "GROUPS", {**data.GROUPS, "lite": {"val": (1,), "train": (8,)}})
        patch.setattr(data, "CLIPS", {**data.CLIPS, "lite": {"val": 1, "train": 1}})
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made")
    prepare_data(root, "lite", "mini_ucf")
    return root


def folder_of(root: Path) -> Path:
    return root / "test_tipc/data/mini_ucf"


def test_the_layout_is_ucfs(made):
    folder = folder_of(made)
    check_data(folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "manifest.json",
        "mini_ucf_train_split_1_rawframes.txt",
        "mini_ucf_val_split_1_rawframes.txt",
        "rawframes",
    ]
    assert sorted(path.name for path in (folder / "rawframes").iterdir()) == CLASSES
    videos = 0
    for split, count in (("train", 6), ("val", 6)):
        lines = (folder / f"mini_ucf_{split}_split_1_rawframes.txt").read_text().splitlines()
        assert len(lines) == count
        for line in lines:
            match = re.fullmatch(r"(\w+)/v_(\w+)_g(\d\d)_c(\d\d) (\d+) (\d)", line)
            assert match[1] == match[2] == CLASSES[int(match[6])]
            frames = sorted((folder / "rawframes" / line.split()[0]).iterdir())
            assert [frame.name for frame in frames] == [
                f"img_{number:05d}.jpg" for number in range(1, int(match[5]) + 1)
            ]
            assert 16 <= len(frames) <= 24
            videos += 1
    assert videos == len(list((folder / "rawframes").glob("*/*")))
    with Image.open(frames[0]) as image:
        assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (64, 64))
    recipe = json.loads((folder / "manifest.json").read_text())["recipe"]
    assert (recipe["train"], recipe["val"], recipe["classes"]) == (6, 6, CLASSES)


def test_every_class_starts_from_the_same_picture_and_ends_elsewhere(made):
    frames = folder_of(made) / "rawframes"
    for group in ("g01_c01", "g08_c01"):
        firsts = {(frames / name / f"v_{name}_{group}/img_00001.jpg").read_bytes() for name in CLASSES}
        middles = {(frames / name / f"v_{name}_{group}/img_00008.jpg").read_bytes() for name in CLASSES}
        assert (len(firsts), len(middles)) == (1, 6)
    assert data.start_of(8, 1, 1797) != data.start_of(8, 2, 1797), "the videos of a group differ"


@pytest.mark.parametrize("kind", ["lite", "whole"])
def test_no_group_and_no_scan_is_in_both_splits(kind):
    clips = data.choose_clips(kind)
    assert len({clip.name for clip in clips}) == len(clips)
    groups = {split: {clip.group for clip in clips if clip.split == split} for split in ("train", "val")}
    scans = {split: {data.start_of(one, 1, 1797).scan for one in numbers} for split, numbers in groups.items()}
    assert not groups["train"] & groups["val"]
    assert not scans["train"] & scans["val"]
    assert all(len(scans[split]) == len(groups[split]) for split in groups)


def test_the_whole_data_are_split_as_ucf_101_and_hold_the_lite_ones():
    whole, lite = data.choose_clips("whole"), data.choose_clips("lite")
    assert {clip.group for clip in whole if clip.split == "val"} == set(range(1, 8))
    assert {clip.group for clip in whole if clip.split == "train"} == set(range(8, 26))
    assert [sum(clip.split == split for clip in whole) for split in ("train", "val")] == [432, 168]
    assert set(lite) < set(whole)


def test_motions_go_where_their_names_say():
    start = data.start_of(3, 1, 1797)
    signs = {"Down": (0, 1), "Left": (-1, 0), "Right": (1, 0), "Up": (0, -1)}
    for name, offset in data.MOTIONS.items():
        assert offset(start, 0.0) == (0.0, 0.0)
        if name in signs:
            assert tuple(np.sign(offset(start, 0.3))) == signs[name]
            continue
        angles = [
            math.atan2(y + start.radius * math.sin(start.angle), x + start.radius * math.cos(start.angle))
            for x, y in (offset(start, part) for part in np.linspace(0, 0.5, 9))
        ]
        turned = np.diff(np.unwrap(angles))
        assert (turned > 0).all() if name == "Clockwise" else (turned < 0).all(), "y points downwards"


def test_a_digit_that_leaves_the_picture_comes_in_again():
    start, digit = data.start_of(1, 1, 1797), np.ones((24, 24), np.float32)
    black = np.zeros((64, 64, 3), np.uint8)
    whole = np.asarray(data.draw_frame(black, digit, start, (10, 20)))
    assert (whole[20:44, 10:34] == start.colour).all()
    assert whole.any(axis=2).sum() == 24 * 24
    wrapped = np.asarray(data.draw_frame(black, digit, start, (10 - 64 + 40, 20 + 128 + 30)))
    np.testing.assert_array_equal(wrapped, np.roll(whole, (30, 40), axis=(0, 1)))


def test_folders_of_data_sets_and_what_is_not_made_here(tmp_path):
    assert str(data_folder("lite", "mini_ucf")) == "test_tipc/data/mini_ucf"
    assert str(data_folder("whole", "mini_ucf")) == "test_tipc/data/whole_ucf"
    assert str(data_folder("whole")) == "test_tipc/data/whole_data"
    with pytest.raises(DataError, match=r"mvf/train_infer_python\.txt whole_train_whole_infer"):
        check_data(tmp_path / "whole_ucf")
    with pytest.raises(UsageError, match="'own' is not made here, only digits, mini_ucf"):
        prepare_data(tmp_path, "lite", "own")
