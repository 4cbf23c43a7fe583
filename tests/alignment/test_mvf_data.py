"""MVFNet's two sides read the same clips: frames, transforms, labels, training's choice of frames, inference's videos."""

import shutil

import numpy as np
import pytest
from chain_samples import ROOT
from PIL import Image
from video_samples import write_ucf, write_video

from tipchain.core.images import read_split
from tipchain.errors import DataError

pytestmark = pytest.mark.frameworks
ARGS = {"num_segments": 3, "size": 16, "short_side": 20}


@pytest.fixture(scope="module")
def sides(frameworks):
    from alignment.mvf import paddle_side, torch_side

    return torch_side, paddle_side


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_ucf(tmp_path_factory.mktemp("ucf"), lists="annotations", frames=17)


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "ucf")


def clip_of(dataset, index):
    """Return a sample's clip as an array, whichever side it is from."""
    clip = dataset[index][0]
    return clip if isinstance(clip, np.ndarray) else clip.numpy()


def chosen(sides, frames, segments, places=None):
    """Return the numbers of frames that both sides choose, which must be equal."""
    torch_side, paddle_side = sides
    reference = torch_side.segment_frames(frames, segments, places)
    port = paddle_side.sample_segments(frames, np.array(places if places is not None else [0.5] * segments))
    assert reference == port
    return reference


def test_the_middle_of_each_segment_at_test(sides):
    assert chosen(sides, 16, 4) == [3, 7, 11, 15]
    assert chosen(sides, 8, 8) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert chosen(sides, 10, 4) == [2, 4, 7, 9]
    assert chosen(sides, 3, 8) == [1, 1, 1, 2, 2, 3, 3, 3], "a short video repeats frames"
    assert chosen(sides, 1, 4) == [1, 1, 1, 1]


def test_a_place_within_each_segment_for_training(sides):
    assert chosen(sides, 16, 4, [0.0, 0.99, 0.5, 0.25]) == [1, 8, 11, 14]
    random = np.random.default_rng(0)
    for frames in (1, 5, 16, 23, 180):
        for _ in range(20):
            numbers = chosen(sides, frames, 8, random.random(8).tolist())
            assert numbers == sorted(numbers)
            assert 1 <= numbers[0] <= numbers[-1] <= frames
            segments = [(number - 1) * 8 / frames for number in numbers]
            assert all(index - 8 / frames < at < index + 1 for index, at in enumerate(segments))
    almost = [float(np.nextafter(1.0, 0.0))] * 8
    assert chosen(sides, 20, 8, almost)[-1] == 20, "rounding may not lead past the last frame"


@pytest.mark.parametrize("split", ["train", "val"])
def test_data_sets_agree(sides, folder, split):
    reference, port = (side.build_dataset(folder, split, **ARGS) for side in sides)
    assert len(reference) == len(port) == {"train": 6, "val": 2}[split]
    assert port.classes == ("ApplyLipstick", "YoYo")
    for index in range(len(reference)):
        (clip, label, name), (clip2, label2, name2) = reference[index], port[index]
        assert (label, name) == (label2, name2)
        assert (folder / name).is_dir()
        assert clip2.shape == tuple(clip.shape) == (3, 3, 16, 16)
        assert clip2.dtype == np.float32
        np.testing.assert_allclose(clip2, clip.numpy(), atol=1e-6)


def test_a_clip_holds_the_frames_it_should(sides, folder):
    """The upper half of frame n is 4 n bright, the same before and after resizing and cropping."""
    for side in sides:
        clip = clip_of(side.build_dataset(folder, "val", **ARGS), 1)  # 18 frames: 4, 10 and 16
        brightness = clip[:, 0, 0, 0] * 0.229 * 255 + 0.485 * 255
        assert brightness == pytest.approx([4 * 4, 4 * 10, 4 * 16], abs=2)


@pytest.mark.parametrize("size", [(40, 30), (20, 20)])
def test_transforms_agree(sides, size):
    torch_side, paddle_side = sides
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    expected = torch_side.transform_frame(image, 16, 20).numpy()
    actual = paddle_side.build_transform(size=16, short_side=20)(image)
    assert actual.shape == expected.shape == (3, 16, 16)
    assert np.abs(expected - actual).max() <= 1e-6


def test_training_takes_other_frames_in_every_epoch_and_the_same_ones_again(sides, folder):
    seen = []
    for side in sides:
        dataset, other = (side.build_dataset(folder, "train", **ARGS, seed=seed) for seed in (0, 1))
        for epoch in (0, 1, 0):
            dataset.set_epoch(epoch)
            seen.append(clip_of(dataset, 2))
        assert not np.array_equal(clip_of(other, 2), clip_of(dataset, 2))
        val = side.build_dataset(folder, "val", **ARGS)
        before = clip_of(val, 0)
        val.set_epoch(5)
        np.testing.assert_array_equal(clip_of(val, 0), before)
    for index, same in ((2, 0), (3, 0), (4, 1), (5, 0)):
        np.testing.assert_allclose(seen[index], seen[same], atol=1e-6)
    assert np.abs(seen[1] - seen[0]).max() > 0.01


def test_what_cannot_be_read_is_named_by_both(sides, folder):
    video = folder / "rawframes/ApplyLipstick/v_ApplyLipstick_g01_c01"
    (video / "img_00009.jpg").write_bytes(b"no image")
    for side in sides:
        with pytest.raises(DataError, match=r"img_00009\.jpg: cannot be read as an image"):
            side.build_dataset(folder, "val", **ARGS)[0]
    (folder / "annotations/ucf101_val_split_1_rawframes.txt").write_text("A/v_A 1\n")
    for side in sides:
        with pytest.raises(DataError, match=r"rawframes\.txt:1: is no video\n  found: A/v_A 1"):
            side.build_dataset(folder, "val", **ARGS)
        with pytest.raises(DataError, match="has no split file"):
            side.build_dataset(folder / "rawframes", "train", **ARGS)
    shutil.copy(folder / "annotations/ucf101_train_split_1_rawframes.txt", folder / "my_train_split_1_rawframes.txt")
    for side in sides:
        with pytest.raises(DataError, match="has several split files"):
            side.build_dataset(folder, "train", **ARGS)


def test_videos_for_inference(sides, folder, tmp_path):
    _, paddle_side = sides
    val = paddle_side.build_dataset(folder, "val", **ARGS)
    whole = paddle_side.build_inference_set(folder, **ARGS)
    assert [whole[index][2] for index in range(len(whole))] == [val[index][2] for index in range(len(val))]
    np.testing.assert_array_equal(whole[1][0], val[1][0])
    write_video(tmp_path / "mine/holiday", 5)
    clips = paddle_side.build_inference_set(tmp_path / "mine", **ARGS)
    assert [(clips[0][0].shape, clips[0][2])] == [((3, 3, 16, 16), "holiday")]
    alone = paddle_side.build_inference_set(tmp_path / "mine/holiday", **ARGS)
    np.testing.assert_array_equal(alone[0][0], clips[0][0])


def test_the_shipped_videos_fit_the_shipped_case(sides, tmp_path, monkeypatch):
    from tipchain.parity.case import load_case
    from tipchain.prepare import data
    from tipchain.prepare.data import prepare_data

    monkeypatch.setattr(data, "GROUPS", {**data.GROUPS, "lite": {"val": (1,), "train": (8,)}})
    case = load_case(ROOT / "configs/mvf.yaml")
    data = prepare_data(tmp_path, "lite", case.data.set)
    for side in sides:
        dataset = side.build_dataset(data, "val", **case.data.args)
        shapes = {tuple(dataset[index][0].shape) for index in range(len(dataset))}
        assert shapes == {case.inputs["clip"].shape[1:]}
        assert sorted(dataset[index][1] for index in range(len(dataset))) == list(range(6))
    assert len(dataset.classes) == case.model_args["num_classes"]


def test_what_is_inferred(sides, made, tmp_path):
    find_videos = sides[1].find_videos
    assert find_videos(made) == read_split(made, "val")
    one = find_videos(made / "rawframes/YoYo/v_YoYo_g09_c01")
    assert [(video.folder.name, video.frames, video.label) for video in one] == [("v_YoYo_g09_c01", 18, -1)]
    several = find_videos(made / "rawframes/YoYo")
    assert [video.folder.name[-7:] for video in several] == ["g01_c01", "g08_c01", "g08_c02", "g09_c01"]
    write_video(tmp_path / "a/video with a name", 2)
    assert [video.folder.name for video in find_videos(tmp_path)] == ["video with a name"]
    with pytest.raises(DataError, match="no such folder"):
        find_videos(tmp_path / "nowhere")
    (tmp_path / "a/video with a name/img_00001.jpg").rename(tmp_path / "first.jpg")
    with pytest.raises(DataError, match="has no video"):
        find_videos(tmp_path)
