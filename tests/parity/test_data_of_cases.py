"""What the data of a case are known by, and the folders that a plan is given for them."""

import pytest
from video_samples import write_ucf

from tipchain.commands.plan import case_folders
from tipchain.errors import DataError
from tipchain.modes import Mode
from tipchain.parity.inputs import data_digest


def test_videos_are_known_by_their_lists_and_frames(tmp_path):
    folder = write_ucf(tmp_path)
    before = data_digest(folder, "mini_ucf")
    (folder / "manifest.json").write_text("not read by the data set")
    assert data_digest(folder, "mini_ucf") == before
    frame = folder / "rawframes/YoYo/v_YoYo_g08_c01/img_00004.jpg"
    content = frame.read_bytes()
    frame.write_bytes(content[:-1] + b"x")
    assert data_digest(folder, "mini_ucf") != before
    frame.write_bytes(content)
    assert data_digest(folder, "mini_ucf") == before
    path = folder / "ucf101_train_split_1_rawframes.txt"
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    assert data_digest(folder, "mini_ucf") != before
    frame.unlink()
    with pytest.raises(DataError, match=r"img_00004\.jpg: cannot be read"):
        data_digest(folder, "mini_ucf")


def test_data_of_any_layout_are_known_by_all_files(tmp_path):
    with pytest.raises(DataError, match="has no files"):
        data_digest(tmp_path, "own")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/points.bin").write_bytes(b"1")
    before = data_digest(tmp_path, "own")
    (tmp_path / "deep/points.bin").write_bytes(b"2")
    assert data_digest(tmp_path, "own") != before
    with pytest.raises(DataError, match="has no images"):
        data_digest(tmp_path, "digits")


@pytest.mark.parametrize(
    ("text", "mode", "folders"),
    [
        ("id: x\n", Mode.LITE_TRAIN_WHOLE_INFER, ("lite_data", "whole_data")),
        ("data: {set: mini_ucf}\n", Mode.LITE_TRAIN_LITE_INFER, ("mini_ucf", "mini_ucf")),
        ("data: {set: mini_ucf}\n", Mode.LITE_TRAIN_WHOLE_INFER, ("mini_ucf", "whole_ucf")),
        ("data: {set: mini_ucf}\n", Mode.WHOLE_INFER, ("whole_ucf", "whole_ucf")),
        (
            "data: {set: mini_ucf}\nmodes: {lite_train_lite_infer: {data: whole}}\n",
            *(Mode.LITE_TRAIN_LITE_INFER, ("whole_ucf", "whole_ucf")),
        ),
        ("data: {set: own}\n", Mode.WHOLE_TRAIN_WHOLE_INFER, ("own_data", "own_data")),
        # What is wrong is said by the alignment; the chain runs all the same.
        ("data: {set: [1]}\nmodes: 3\n", Mode.LITE_TRAIN_LITE_INFER, ("lite_data", "lite_data")),
        ("data: mini_ucf\n", Mode.LITE_TRAIN_LITE_INFER, ("lite_data", "lite_data")),
        (": : no yaml [", Mode.LITE_TRAIN_LITE_INFER, ("lite_data", "lite_data")),
    ],
)
def test_the_folders_of_a_case(tmp_path, text, mode, folders):
    case = tmp_path / "case.yaml"
    case.write_text(text)
    found = case_folders(case, mode)
    assert (found.of("train"), found.of("eval")) == tuple(f"test_tipc/data/{name}" for name in folders)
    assert found.of("align") == found.of("infer") == found.other
