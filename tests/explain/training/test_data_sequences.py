"""Which frames and tokens two sides take, how crops are rounded, and pixels that were mixed up or cut."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tipchain.explain.causes.data import check_data
from tipchain.outcome import Outcome

RANDOM = np.random.default_rng(5)
VIDEOS = [RANDOM.integers(0, 256, (frames, 10, 12, 3)).astype(np.uint8) for frames in (23, 31, 40)]


def segments(total, count, middle=True):
    mean = total / count
    return [int((mean / 2 if middle else 0) + mean * at) for at in range(count)]


def dense(total, count, stride, late=0):
    begin = max(0, total - count * stride) // 2 + late
    return [min(begin + stride * at, total - 1) for at in range(count)]


def clip(video, take, layout=(0, 3, 1, 2)):
    frames = video[take(len(video))][:, 1:9, 2:10] / 255 - 0.4
    return frames.transpose(layout).astype(np.float32)


@pytest.mark.parametrize("layout", [(0, 3, 1, 2), (3, 0, 1, 2), (0, 1, 2, 3)])
def test_frames_that_are_taken_are_told_with_their_rule(pieces, layout):
    ours = partial(clip, take=lambda total: segments(total, 8), layout=layout)
    theirs = partial(clip, take=lambda total: segments(total, 8, middle=False), layout=layout)
    found = check_data(pieces.sides, (ours, theirs), samples=VIDEOS)
    assert found.outcome is Outcome.FAIL
    first = found.diagnoses[0]
    assert first.code == "frame-sampling"
    assert "the reference takes [1, 4, 7, 10, 12, 15, 18, 21]" in first.message
    assert "the middle of each of as many segments" in first.message
    assert "the beginning of each segment" in first.message


def test_dense_frames_with_another_stride_and_offset(pieces):
    ours = partial(clip, take=lambda total: dense(total, 8, 2))
    for other in (partial(dense, count=8, stride=3), partial(dense, count=8, stride=2, late=1)):
        found = check_data(pieces.sides, (ours, partial(clip, take=other)), samples=VIDEOS)
        assert found.diagnoses[0].code == "frame-sampling"
        assert "every 2nd in the middle" in found.diagnoses[0].fix


class Clips:
    """A data set of clips; a plain list of such arrays is one of batches."""

    def __init__(self, clips):
        self.clips = clips

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, number):
        return self.clips[number]


def test_finished_clips_show_a_later_begin_and_a_reverse_order(pieces):
    ours = [clip(video, lambda total: dense(total, 8, 1)) for video in VIDEOS]
    later = [clip(video, lambda total: dense(total, 8, 1, late=2)) for video in VIDEOS]
    found = check_data(pieces.sides, (Clips(ours), Clips(later)))
    assert found.diagnoses[0].code == "frame-sampling"
    assert "begins +2 frames" in found.diagnoses[0].message
    found = check_data(pieces.sides, (Clips(ours), Clips([one[::-1] for one in ours])))
    assert "reverse order" in found.diagnoses[0].message


TEXTS = [RANDOM.integers(200, 900, length) for length in (5, 9, 18, 14, 26, 3)]


def tokens(text, most=16, side="right", pad="right", fill=0, special=True, shift=0, fixed=True):
    room = most - 2 * special
    kept = (text[:room] if side == "right" else text[max(0, len(text) - room) :]) + shift
    kept = np.concatenate([[101], kept, [102]]) if special else kept
    blank = np.full(most - len(kept) if fixed else 0, fill)
    return np.concatenate([kept, blank] if pad == "right" else [blank, kept]).astype(np.int64)


@pytest.mark.parametrize(
    ("change", "code", "fix"),
    [
        ({"side": "left"}, "truncation-side", "truncation_side='right'"),
        ({"pad": "left"}, "padding-side", "padding_side='right'"),
        ({"fill": 1}, "padding-value", "pad with 0"),
        ({"most": 12}, "max-length", "max_length=16"),
        ({"most": 20}, "max-length", "max_length=16"),
        ({"special": False, "most": 14}, "special-tokens", "add_special_tokens=True"),
        ({"shift": 4}, "token-shift", "with the same offset"),
    ],
)
def test_tokens_taken_otherwise_are_named(pieces, change, code, fix):
    ours, theirs = ([tokens(text, **given) for text in TEXTS] for given in ({}, change))
    found = check_data(pieces.sides, (ours, theirs))
    assert found.outcome is Outcome.FAIL
    assert (found.diagnoses[0].code, fix in found.diagnoses[0].fix) == (code, True), found.diagnoses
    both = [[tokens(text, fixed=False, **given) for text in TEXTS] for given in ({}, change)]
    if code in ("truncation-side", "max-length"):
        assert check_data(pieces.sides, tuple(both)).diagnoses[0].code == code


def test_other_words_are_no_known_cause(pieces):
    ours = [tokens(text) for text in TEXTS]
    found = check_data(pieces.sides, (ours, [tokens(RANDOM.permutation(text)) for text in TEXTS]))
    assert found.outcome is Outcome.FAIL
    assert found.diagnoses[0].explained is None


def scene(high, wide, seed):
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:high, :wide]
    image = 120 + 50 * np.sin(x / (3 + seed % 3))[..., None] * np.array([1, 0.5, -0.7]) + 30 * np.cos(y / 5)[..., None]
    for _ in range(9):
        top, left = random.integers(0, high - 8), random.integers(0, wide - 8)
        image[top : top + 12, left : left + 9] += random.normal(0, 45, 3)
    return (image + random.normal(0, 4, image.shape)).clip(0, 255).astype(np.uint8)


MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
RAWS = [scene(*size, seed) for seed, size in enumerate([(71, 93), (64, 81), (90, 70), (83, 62), (59, 77), (88, 61)])]


def resized(raw, short=51, crop=40, halves=round, kernel="bilinear", rounds=False):
    from PIL import Image

    high, wide = raw.shape[:2]
    long = short * max(high, wide) / min(high, wide) + (0.5 if rounds else 0.0)
    shape = (short, int(long)) if high <= wide else (int(long), short)
    image = np.asarray(Image.fromarray(raw).resize(shape[::-1], getattr(Image.Resampling, kernel.upper())))
    top, left = (int(halves((length - crop) / 2)) for length in shape)
    return ((image[top : top + crop, left : left + crop] / 255 - MEAN) / STD).transpose(2, 0, 1).astype(np.float32)


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ({"kernel": "nearest"}, ["interpolation"]),
        ({"short": 54}, ["resize-size"]),
        ({"rounds": True}, ["resize-size"]),
        ({"kernel": "bicubic", "halves": np.floor}, ["interpolation", "crop-offset"]),
    ],
)
def test_a_crop_that_rounds_halves_to_even_hides_no_fault_of_resizing(pieces, change, codes):
    pytest.importorskip("PIL")
    found = check_data(pieces.sides, (resized, partial(resized, **change)), samples=RAWS)
    assert [one.code for one in found.diagnoses] == codes, found.diagnoses
    assert "halves rounded to even" in found.diagnoses[0].evidence


PIXELS = [raw[:40, :32] for raw in RAWS]


def finished(change=lambda pixels: pixels, reshape=False, late=False):
    made = []
    for raw in PIXELS:
        pixels = change(raw * 0.83 + 11.337) / 255
        if reshape and late:
            made.append(((pixels - MEAN) / STD).reshape(3, 40, 32))
        elif reshape:
            made.append((pixels.reshape(3, 40, 32) - MEAN[:, None, None]) / STD[:, None, None])
        else:
            made.append(((pixels - MEAN) / STD).transpose(2, 0, 1))
    return [one.astype(np.float32) for one in made]


@pytest.mark.parametrize("late", [False, True])
def test_axes_that_were_reshaped_are_a_fault_of_layout(pieces, late):
    found = check_data(pieces.sides, (finished(), finished(reshape=True, late=late)))
    assert found.diagnoses[0].code == "layout"
    assert "reshaped" in found.diagnoses[0].message
    assert found.diagnoses[0].explained > 0.99


def test_pixels_that_were_cut_where_the_reference_rounds_or_does_neither(pieces):
    cut, rounded = finished(np.trunc), finished(np.rint)
    found = check_data(pieces.sides, (rounded, cut))
    assert found.diagnoses[0].code == "rounding"
    assert "the port cuts to whole levels, the reference rounds" in found.diagnoses[0].message
    found = check_data(pieces.sides, (finished(), cut))
    assert found.diagnoses[0].code == "rounding"
    assert "the port cuts pixels to whole grey levels" in found.diagnoses[0].message
    assert found.diagnoses[0].explained > 0.99


def test_pixels_that_were_cut_are_told_where_many_lie_just_below_a_level(pieces):
    pixels = [
        (raw.astype(float) + 1 - np.where(RANDOM.random(raw.shape) < 0.2, 4e-4, 0.4)).astype(np.float32)
        for raw in PIXELS
    ]
    ours, theirs = (
        [(((change(one) / np.float32(255) - MEAN) / STD).transpose(2, 0, 1)).astype(np.float32) for one in pixels]
        for change in (lambda one: one, np.trunc)
    )
    found = check_data(pieces.sides, (ours, theirs))
    assert "the port cuts pixels to whole grey levels" in found.diagnoses[0].message


def test_a_token_that_is_lacking_at_the_end_of_cut_texts_too(pieces):
    ours = [tokens(text) for text in TEXTS]
    theirs = []
    for text in TEXTS:
        kept = np.concatenate([[101], text[:15]])
        theirs.append(np.concatenate([kept, np.zeros(16 - len(kept), np.int64)]))
    found = check_data(pieces.sides, (ours, theirs))
    assert found.diagnoses[0].code == "special-tokens"
    assert "at the end 102" in found.diagnoses[0].message


def test_a_function_of_values_and_a_mask_upside_down(pieces):
    levels = [RANDOM.gamma(2.0, size=(1, 20, 31)).astype(np.float32) for _ in range(5)]
    found = check_data(pieces.sides, ([np.log(one + 1e-3) for one in levels], levels))
    assert found.diagnoses[0].code == "value-function"
    assert "does not take the logarithm" in found.diagnoses[0].message
    masks = [(tokens(text) > 0).astype(np.int64) for text in TEXTS]
    found = check_data(pieces.sides, (masks, [1 - one for one in masks]))
    assert found.diagnoses[0].code == "inverted"


def test_arrays_of_one_axis_and_another_length_differ_in_size():
    from tipchain.explain.causes.data_images import explain_images

    (cause,) = explain_images([np.arange(10.0)], [np.arange(9.0)])
    assert (cause.code, cause.fix) == ("size", "cut or pad the port's samples to the reference's 10 values")
