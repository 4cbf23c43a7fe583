"""The methods of resizing against the libraries that they are named after."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")
pytest.importorskip("PIL")

from tipchain.explain.causes.data_pipeline import METHODS, Method, resize, resize_bytes  # noqa: E402

pytestmark = pytest.mark.frameworks
IMAGE = np.random.default_rng(0).integers(0, 256, (41, 53, 3)).astype(np.uint8)
SHAPES = ((16, 20), (30, 70), (82, 60))
TORCH = {
    **{
        f"{kernel}{aa}": (
            {"mode": kernel, "align_corners": False, "antialias": aa},
            Method(kernel=kernel, antialias=aa),
        )
        for kernel in ("bilinear", "bicubic")
        for aa in (False, True)
    },
    "bilinear corners": ({"mode": "bilinear", "align_corners": True}, Method(kernel="bilinear", grid="corners")),
    "bicubic corners": ({"mode": "bicubic", "align_corners": True}, Method(kernel="bicubic", grid="corners")),
    "nearest": ({"mode": "nearest"}, Method(kernel="nearest", grid="origin")),
    "nearest exact": ({"mode": "nearest-exact"}, Method(kernel="nearest")),
    "area": ({"mode": "area"}, Method(kernel="adaptive")),
}


def interpolate(module, image, **how):
    values = image.transpose(2, 0, 1)[None].astype(np.float64)
    made = module.nn.functional.interpolate((torch.tensor if module is torch else paddle.to_tensor)(values), **how)
    return made.numpy()[0].transpose(1, 2, 0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", TORCH)
def test_torch_resizes_so(name, shape):
    how, method = TORCH[name]
    np.testing.assert_allclose(resize(IMAGE, shape, method), interpolate(torch, IMAGE, size=shape, **how), atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("how", "method"),
    [
        ({"mode": "bilinear", "align_mode": 0}, Method(kernel="bilinear")),
        ({"mode": "bilinear", "align_mode": 1}, Method(kernel="bilinear", grid="origin")),
        ({"mode": "nearest"}, Method(kernel="nearest", grid="origin")),
    ],
)
def test_paddle_resizes_so(how, method, shape):
    np.testing.assert_allclose(
        resize(IMAGE, shape, method), interpolate(paddle, IMAGE, size=list(shape), **how), atol=0.01
    )


@pytest.mark.parametrize("method", [one for one in METHODS if one.pillow], ids=str)
def test_pillow_rounds_what_the_filter_gives(method):
    smooth = np.add.outer(np.arange(41), np.arange(53))[..., None].astype(np.uint8)  # nothing that bicubic overshoots
    made = resize_bytes(smooth, (16, 20), method)
    assert np.abs(made - resize(smooth, (16, 20), method)).max() <= 1.01


def test_some_rows_and_columns_are_those_of_the_whole():
    rows, columns = np.array([0, 7, 15]), np.array([3, 19])
    for method in METHODS:
        whole = resize(IMAGE, (16, 20), method)
        np.testing.assert_allclose(resize(IMAGE, (16, 20), method, rows, columns), whole[np.ix_(rows, columns)])
