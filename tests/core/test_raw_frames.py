import pytest
from video_samples import write_ucf

from tipchain.core.images import class_names, read_split, split_file
from tipchain.errors import DataError


def lists(folder, train="A/v_A_g08_c01 3 0\n", val="A/v_A_g01_c01 3 0\n"):
    for split, text in (("train", train), ("val", val)):
        (folder / f"mine_{split}_split_1_rawframes.txt").write_text(text)
    return folder


def test_a_split_in_its_files_order(tmp_path):
    made = write_ucf(tmp_path / "ucf", lists="annotations")
    videos = read_split(made, "train")
    assert [video.folder.name[-7:] for video in videos] == 2 * ["g08_c01", "g08_c02", "g09_c01"]
    assert [(video.frames, video.label) for video in videos] == 3 * [(7, 0)] + 3 * [(8, 1)]
    assert all(video.frame(video.frames).is_file() for video in videos)
    assert not videos[0].frame(videos[0].frames + 1).exists()
    assert class_names(made) == ("ApplyLipstick", "YoYo")


def test_class_names_without_class_folders_and_with_gaps(tmp_path):
    lists(tmp_path, train="v_Jump_Jack_g08_c01 3 0\nclip7 3 2\n", val="v_Jump_Jack_g01_c01 4 0\n")
    assert class_names(tmp_path) == ("Jump_Jack", "1", "clip7")
    lists(tmp_path, train="A/v_A_g08_c01 3 0\nB/v_B_g08_c01 3 0\n")
    with pytest.raises(DataError, match="label 0 stands for two classes\n  found: A and B"):
        class_names(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("A/v_A_g08_c01 3", "txt:2: is no video\n  found: A/v_A_g08_c01 3"),
        ("A/v_A_g08_c01 0 0", "txt:2: is no video"),
        ("A/v_A_g08_c01.avi 1", "txt:2: is no video"),
    ],
)
def test_a_line_of_another_form_is_named(tmp_path, line, message):
    lists(tmp_path, train=f"A/v_A_g08_c02 3 0\n{line}\n")
    with pytest.raises(DataError, match=message):
        read_split(tmp_path, "train")


def test_missing_several_empty_and_unreadable_split_files(tmp_path):
    with pytest.raises(DataError, match="there is no such data folder"):
        split_file(tmp_path / "nowhere", "val")
    with pytest.raises(DataError, match="has no split file"):
        split_file(tmp_path, "val")
    lists(tmp_path, val="\n \n")
    with pytest.raises(DataError, match="names no video"):
        read_split(tmp_path, "val")
    split_file(tmp_path, "val").write_bytes(b"\xff\xff")
    with pytest.raises(DataError, match="cannot be read"):
        read_split(tmp_path, "val")
    (tmp_path / "other_val_split_1_rawframes.txt").write_text("")
    with pytest.raises(DataError, match="has several split files"):
        split_file(tmp_path, "val")
