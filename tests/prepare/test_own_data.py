"""Data of the user's own: what is checked, and how the case says which they are."""

import shutil

import pytest
from chain_samples import DEMO_ALIGNMENT, DEMO_CASE, DEMO_HEAD
from video_samples import write_ucf

from tipchain.cli import main
from tipchain.errors import DataError
from tipchain.prepare.data import check_image_folder, check_own_data


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_ucf(tmp_path_factory.mktemp("ucf"))


@pytest.fixture
def ucf(made, tmp_path):
    return shutil.copytree(made, tmp_path / "ucf")


@pytest.fixture
def prepare(tmp_path, monkeypatch):
    """Run ``tipchain prepare --data-only`` on a case with the given last lines."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "test_tipc").mkdir()
    (tmp_path / "test_tipc/p.txt").write_text(DEMO_HEAD + DEMO_ALIGNMENT)
    monkeypatch.chdir(tmp_path)

    def run(lines, *options):
        (tmp_path / "configs/demo.yaml").write_text(DEMO_CASE + lines)
        return main(["prepare", "test_tipc/p.txt", "lite_train_lite_infer", "--data-only", *options])

    return run


def test_class_folders_are_no_videos_and_videos_no_class_folders(ucf, tmp_path):
    for split in ("train", "val"):
        (tmp_path / split / "cat").mkdir(parents=True)
        (tmp_path / split / "cat/1.jpg").write_bytes(b"")
    assert check_own_data(tmp_path, "digits") == ("cat",)
    with pytest.raises(DataError, match="has no split file"):
        check_own_data(tmp_path, "mini_ucf")
    with pytest.raises(DataError, match="train: is missing"):
        check_own_data(ucf, "digits")


def test_a_missing_frame_is_named(ucf):
    (ucf / "rawframes/ApplyLipstick/v_ApplyLipstick_g08_c02/img_00001.jpg").unlink()
    with pytest.raises(DataError, match=r"g08_c02/img_00001.jpg: is missing\n  found: 6\n"):
        check_own_data(ucf, "mini_ucf")


def test_a_missing_video_and_one_in_both_splits(ucf):
    shutil.rmtree(ucf / "rawframes/YoYo/v_YoYo_g01_c01")
    with pytest.raises(DataError, match="found: no such folder"):
        check_own_data(ucf, "mini_ucf")
    with (ucf / "ucf101_val_split_1_rawframes.txt").open("a") as file:
        file.write("YoYo/v_YoYo_g08_c01 8 1\n")
    with pytest.raises(DataError, match="in both splits\n  found: v_YoYo_g08_c01"):
        check_own_data(ucf, "mini_ucf")


def test_data_of_any_layout_only_have_to_be_there(tmp_path):
    assert check_own_data(tmp_path, "own") == ()
    for data_set in ("own", "mini_ucf", "digits"):
        with pytest.raises(DataError, match="no such data folder"):
            check_own_data(tmp_path / "nowhere", data_set)


def test_the_data_set_of_the_case_decides_what_is_checked(prepare, ucf, capsys):
    videos = "data: {set: mini_ucf}\n"
    assert prepare(videos, "--data-path", str(ucf)) == 0
    assert "ready, 2 classes" in capsys.readouterr().out
    assert prepare("", "--data-path", str(ucf)) == 2
    assert "train: is missing" in capsys.readouterr().err
    assert prepare("data: {set: own}\n", "--data-path", str(ucf)) == 0
    assert prepare(videos + "model_args: {num_classes: 2}\n", "--data-path", str(ucf)) == 0
    assert prepare(videos + "model_args: {num_classes: 1}\n", "--data-path", str(ucf)) == 2
    assert "more classes than the model\n  found: 2\n  expected: at most 1" in capsys.readouterr().err


def test_a_case_that_brings_its_own_data(prepare, tmp_path, capsys):
    assert prepare("data: {set: own}\n") == 2
    assert "brings its own data, and they are not there" in capsys.readouterr().err
    (tmp_path / "test_tipc/data/own_data").mkdir(parents=True)
    assert prepare("data: {set: own}\n") == 0
    assert capsys.readouterr().out.strip().endswith("own_data: ready")


def test_a_data_set_that_is_not_known(prepare, capsys):
    assert prepare("data: {set: mini_ufc}\n") == 2
    assert "did you mean 'mini_ucf'?" in capsys.readouterr().err


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
