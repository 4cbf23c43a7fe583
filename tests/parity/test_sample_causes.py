"""Each cause that makes two samples differ, planted and named."""

from __future__ import annotations

import numpy as np
import pytest

from tipchain.parity.stages.data import explain_sample

RANDOM = np.random.default_rng(3)
PIXELS = RANDOM.uniform(0, 255, (3, 20, 24)).astype(np.float32)
SQUARE = RANDOM.uniform(0, 255, (3, 20, 20)).astype(np.float32)
CLIP = RANDOM.standard_normal((4, 3, 8, 10)).astype(np.float32)
FLAT = RANDOM.standard_normal(40).astype(np.float32)
MEAN, STD = (np.array(values, np.float32).reshape(3, 1, 1) for values in ((123.7, 116.3, 103.5), (58.4, 57.1, 57.4)))
NORMAL = (PIXELS - MEAN) / STD
HWC = PIXELS.transpose(1, 2, 0)

CASES = {
    "nothing": (NORMAL, NORMAL * (1 + 1e-7), ""),
    "dtype": (NORMAL, NORMAL.astype(np.float64), "dtype: float32 expected, float64 actual"),
    "reversed channels": (NORMAL, NORMAL[::-1], "channel order: reversed (RGB against BGR), axis 0"),
    "reversed channels last": (HWC, HWC[..., ::-1], "channel order: reversed (RGB against BGR), axis 2"),
    "reversed channels of a clip": (CLIP, CLIP[:, ::-1], "channel order: reversed (RGB against BGR), axis 1"),
    "permuted channels": (NORMAL, NORMAL[[1, 2, 0]], "channel order: in the order (1, 2, 0)"),
    "reversed before normalization": (NORMAL, (PIXELS[::-1] - MEAN) / STD, "channel order: reversed (RGB against BGR), axis 0"),
    "channels last": (NORMAL, NORMAL.transpose(1, 2, 0), "layout: (3, 20, 24) expected, (20, 24, 3) actual: HWC in place of CHW"),
    "channels first": (HWC, PIXELS, "layout: (20, 24, 3) expected, (3, 20, 24) actual: CHW in place of HWC"),
    "channels last of a clip": (CLIP, CLIP.transpose(0, 2, 3, 1), ": HWC in place of CHW"),
    "channels and frames exchanged": (CLIP, CLIP.transpose(1, 0, 2, 3), "layout: (4, 3, 8, 10) expected, (3, 4, 8, 10) actual: axes in the order (1, 0, 2, 3)"),
    "layout and scale": (PIXELS, HWC / 255, "HWC in place of CHW; scale: a 255th"),
    "height and width": (SQUARE, SQUARE.transpose(0, 2, 1), "layout: axes in the order (0, 2, 1) (height and width exchanged)"),
    "an axis more": (NORMAL, NORMAL[None], "layout: (3, 20, 24) expected, (1, 3, 20, 24) actual: an axis of size 1"),
    "size": (NORMAL, NORMAL[:, :16], "size: (3, 20, 24) expected, (3, 16, 24) actual"),
    "fewer channels": (NORMAL, NORMAL[:1], "another number of channels"),
    "number of axes": (CLIP, CLIP.mean(axis=0), "another number of axes"),
    "not divided": (PIXELS / 255, PIXELS, "scale: 255 times the reference's: is a division by 255 missing?"),
    "divided twice": (PIXELS / 255, PIXELS / 255**2, "scale: a 255th of the reference's"),
    "bytes": (PIXELS.astype(np.uint8) / np.float32(255), PIXELS.astype(np.uint8), "dtype: float32 expected, uint8 actual; scale: 255 times"),
    "another scale": (NORMAL, 1.5 * NORMAL, "scale: 1.5 times the reference's"),
    "another mean": (NORMAL, (PIXELS - MEAN - 1) / STD, "mean: actual = channel 0: 1 * expected -0.01712"),
    "another std": (NORMAL, (PIXELS - MEAN) / (STD * [[[1]], [[1]], [[2]]]), "mean/std: actual = channel 0: 1 * expected"),
    "not normalized": (NORMAL, PIXELS, "mean/std: actual = channel 0: 58.4 * expected +123.7"),
    "the same mean for all": (PIXELS / 255, PIXELS / 255 * 2 - 1, "mean/std: actual = 2 * expected -1"),
    "mirrored": (NORMAL, NORMAL[..., ::-1], "values: mirrored left to right"),
    "upside down": (NORMAL, NORMAL[:, ::-1], "values: mirrored upside down"),
    "another crop": (PIXELS[:, 2:18, 2:18], PIXELS[:, 1:17, 4:20], "size: the same picture, 1 px down, 2 px to the left"),
    "smoothed": (NORMAL, 0.9 * NORMAL + 0.1 * np.roll(NORMAL, 1, 2), "is it the interpolation or the decoding?"),
    "another picture": (NORMAL, RANDOM.standard_normal(NORMAL.shape), "another picture"),
    "one pixel": (NORMAL, np.where(np.arange(24) == 7, NORMAL + (np.arange(20) == 5)[:, None], NORMAL), "3 of 1440 differ"),
    "constant": (NORMAL, np.zeros_like(NORMAL), "values: the same everywhere"),
    "nan": (NORMAL, np.where(NORMAL > 1, np.nan, NORMAL), "values: 0 NaN expected"),
    "a row of numbers": (FLAT, 255 * FLAT, "scale: 255 times"),
    "a single number": (np.array(1.0), np.array(2.0), "values: 1 of 1 differ"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_causes_are_named(case):
    expected, actual, words = CASES[case]
    actual = np.asarray(actual).astype(expected.dtype) if case not in ("dtype", "bytes") else actual
    said = explain_sample(expected, actual)
    assert words in said if words else said == ""


@pytest.mark.parametrize("share", [1e-3, 1.0, 1e3])
def test_small_and_large_differences_have_the_same_cause(share):
    assert explain_sample(NORMAL, (NORMAL * (1 + 0.01 * share)).astype(np.float32)).startswith("scale: ")


def test_what_holds_no_numbers_is_left_alone():
    assert explain_sample(np.array(["a"]), np.array(["b"])) == ""
