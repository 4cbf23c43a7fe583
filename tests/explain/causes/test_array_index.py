"""Arrays that are found by what they hold: whole, turned, or in parts."""

import numpy as np
import pytest

from tipchain.explain.causes.array_index import ArrayIndex

GENERATOR = np.random.default_rng(0)
BOXES = GENERATOR.standard_normal((7, 4))
SIGNAL = GENERATOR.standard_normal((3, 5)) + 1j * GENERATOR.standard_normal((3, 5))
SQUARE = GENERATOR.standard_normal((4, 4))
COVARIANCE = GENERATOR.standard_normal((6, 2, 2))
INDEX = ArrayIndex({0: BOXES, 1: SIGNAL, 2: SQUARE, 3: COVARIANCE, 4: np.zeros((5, 2))}, 1e-9)


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (BOXES.T, (0,)),
        (BOXES[:, None], (0,)),
        (SQUARE.T, (2,)),
        (SQUARE.T[None], (2,)),
        (BOXES + 1, ()),
        (BOXES[:0], ()),
    ],
)
def test_an_array_is_found_in_any_layout(array, found):
    assert INDEX.find(array) == found


def test_a_square_that_is_turned_is_not_the_same():
    assert not INDEX.same(SQUARE, SQUARE.T)


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (BOXES[:, 2], {0}),
        (SIGNAL.imag, {1}),
        (SIGNAL.real.T, {1}),
        (-BOXES.T, {0}),
        (-SIGNAL, {1}),
        (COVARIANCE[:, 1, 0], {3}),
        (np.stack([BOXES[:, 1], BOXES[:, 3]]), {0}),
        (np.stack([SIGNAL.real, SIGNAL.imag], -1), {1}),
        (BOXES[:, 2] + 1, set()),
        (np.stack([BOXES[:, 1], BOXES[:, 1] + 1]), set()),
        (np.zeros(5), set()),
    ],
)
def test_what_is_a_part_or_put_together_of_parts_or_of_the_other_sign_is_akin(array, found):
    assert INDEX.akin(array) == found


def test_of_what_is_picked_only_parts_of_complex_numbers_are_akin():
    assert INDEX.akin(BOXES[:, 2], picked=lambda: True) == set()
    assert INDEX.akin(SIGNAL.real, picked=lambda: True) == {1}
