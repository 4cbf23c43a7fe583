"""Whatever holds samples is read alike: arrays, lists, generators, data sets and loaders of both frameworks."""

import numpy as np
import pytest
from both_frameworks import paddle, torch

from tipchain.errors import Outcome
from tipchain.explain.causes.data import check_data
from tipchain.frameworks.live_models import PaddleSide, Sides, TorchSide

pytestmark = pytest.mark.frameworks
RANDOM = np.random.default_rng(0)
IMAGES, LABELS = RANDOM.random((30, 3, 8, 8)).astype(np.float32), RANDOM.integers(0, 4, 30)


class Images:
    """A data set; ``change`` is done to each image."""

    def __init__(self, change=lambda image: image, length=30):
        super().__init__()
        self.change, self.length = change, length

    def __len__(self):
        return self.length


class TorchImages(Images, torch.utils.data.Dataset):
    def __getitem__(self, index):
        return torch.tensor(self.change(IMAGES[index].copy())), int(LABELS[index])


class PaddleImages(Images, paddle.io.Dataset):
    def __getitem__(self, index):
        return self.change(IMAGES[index].copy()), LABELS[index : index + 1]


def torch_loader(data=None, **options):
    return torch.utils.data.DataLoader(data or TorchImages(), batch_size=8, **options)


def paddle_loader(data=None, **options):
    return paddle.io.DataLoader(data or PaddleImages(), **{"batch_size": 8, **options})


def flip(image):
    return image[..., ::-1].copy()


def sometimes(image):
    return flip(image) if np.random.rand() < 0.5 else image  # noqa: NPY002  (as transforms do)


@pytest.fixture(scope="module")
def sides():
    return Sides(TorchSide(), PaddleSide())


PAIRS = {
    "data sets": (TorchImages(), PaddleImages(), "30 samples are equal"),
    "a data set and a loader": (TorchImages(), paddle_loader(), "30 samples are equal"),
    "batches of another size": (torch_loader(), paddle_loader(batch_size=5), "batches of 8 expected, of 5 actual"),
    "shuffling loaders": (torch_loader(shuffle=True), paddle_loader(shuffle=True), "shuffled anew at every read"),
    "shuffling and dropping": (
        torch_loader(shuffle=True, drop_last=True),
        paddle_loader(shuffle=True, drop_last=True),
        "their data sets were compared",
    ),
    "what returns them": (lambda: iter([IMAGES[:8]]), lambda: [IMAGES[:8]], "8 samples are equal"),
    "mapping and tuple": ([{"x": IMAGES[0], "y": 1, "file": "a"}], [(IMAGES[0], 1)], "1 samples are equal"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_equal_sources_pass(sides, name):
    *pair, words = PAIRS[name]
    found = check_data(sides, tuple(pair))
    assert found.outcome is Outcome.PASS, found
    assert words in found.reason


FAULTS = {
    "drop last": (
        torch_loader(),
        paddle_loader(drop_last=True),
        "setting",
        "`drop_last` is True, the reference's False",
    ),
    "only the port shuffles": (torch_loader(), paddle_loader(shuffle=True), "setting", "order: only the port shuffles"),
    "only the port augments": (
        TorchImages(),
        PaddleImages(sometimes),
        "parting",
        "only the port gives something else at every read",
    ),
    "a fault behind shuffling": (
        torch_loader(shuffle=True),
        paddle_loader(PaddleImages(flip), shuffle=True),
        "parting",
        "`return image[..., ::-1].copy()` (test_data_sources.py:",
    ),
    "a longer list with other labels": (
        list(zip(IMAGES, LABELS, strict=True)),
        list(zip([*IMAGES, *IMAGES], np.arange(60) // 7, strict=True)),
        "parting",
        "order: samples: 30 expected, 60 actual",
    ),
    "fields": (
        list(zip(IMAGES, LABELS, strict=True)),
        list(IMAGES),
        "structure",
        "samples have other fields: 2 (0, 1) expected, 1 (one array) actual",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_with_a_source_is_named(sides, name):
    *pair, code, words = FAULTS[name]
    found = check_data(sides, tuple(pair))
    assert found.outcome is Outcome.FAIL
    assert found.diagnoses[0].code == code, found
    assert words in found.diagnoses[0].message, found


def test_sources_that_are_both_random_prove_nothing(sides):
    pair = (lambda: iter(np.random.rand(3, 4)), lambda: iter(np.random.rand(4, 4)[1:]))  # noqa: NPY002
    found = check_data(sides, pair)
    assert found.outcome is Outcome.SKIP


@pytest.mark.parametrize(
    ("port", "words"),
    [
        (3, "the port's is a int"),
        ([], "the port's data has no samples"),
        (PaddleImages(lambda _: 1 // 0), "test_data_sources.py:"),
    ],
)
def test_what_cannot_be_read_is_an_error(sides, port, words):
    found = check_data(sides, (TorchImages(), port))
    assert found.outcome is Outcome.ERROR
    assert words in found.reason
