"""Which tokens two sides take, and how crops are rounded."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tipchain.errors import Outcome
from tipchain.explain.causes.data import check_data

RANDOM = np.random.default_rng(5)


TEXTS = [RANDOM.integers(200, 260, length) for length in (5, 9, 18, 14, 26, 3)]


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
    if code == "truncation-side":
        assert check_data(pieces.sides, tuple(both)).diagnoses[0].code == code


def test_padding_to_another_length_is_named(pieces):
    short = [text for text in TEXTS if len(text) <= 14]
    found = check_data(pieces.sides, tuple([tokens(text, most) for text in short] for most in (16, 20)))
    assert found.outcome is Outcome.FAIL
    assert (found.diagnoses[0].code, found.diagnoses[0].fix) == (
        "max-length",
        "pad as the reference does: to the same length",
    )


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


def test_a_token_that_is_lacking_at_the_end_of_cut_texts_too(pieces):
    ours = [tokens(text) for text in TEXTS]
    theirs = []
    for text in TEXTS:
        kept = np.concatenate([[101], text[:15]])
        theirs.append(np.concatenate([kept, np.zeros(16 - len(kept), np.int64)]))
    found = check_data(pieces.sides, (ours, theirs))
    assert found.diagnoses[0].code == "special-tokens"
    assert "at the end 102" in found.diagnoses[0].message


def test_a_mask_upside_down(pieces):
    masks = [(tokens(text) > 0).astype(np.int64) for text in TEXTS]
    found = check_data(pieces.sides, (masks, [1 - one for one in masks]))
    assert found.diagnoses[0].code == "inverted"


def test_arrays_of_one_axis_and_another_length_differ_in_size():
    from tipchain.explain.causes.data_images import explain_images

    (cause,) = explain_images([np.arange(10.0)], [np.arange(9.0)])
    assert (cause.code, cause.fix) == ("size", "cut or pad the port's samples to the reference's 10 values")
