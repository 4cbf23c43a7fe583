"""Causes of losses and metrics by name."""

from __future__ import annotations

from functools import partial

import numpy as np

from tipchain.errors import Outcome
from tipchain.explain.causes.metrics import check_metrics

RANDOM = np.random.default_rng(11)
X = (2 * RANDOM.standard_normal((14, 5))).astype(np.float32)
BITS = RANDOM.integers(0, 2, (14, 5)).astype(np.float32)


def test_classes_may_stand_last_where_each_word_has_a_label(pieces):
    words = RANDOM.standard_normal((4, 20, 7)).astype(np.float32)
    labels = RANDOM.integers(0, 7, (4, 20))
    labels[:, 15:] = -100

    def surprise(outputs, labels, *, counts_padding):
        outputs = np.asarray(outputs, np.float64)
        shifted = outputs - np.log(np.exp(outputs).sum(-1, keepdims=True))
        known = labels != -100
        found = np.take_along_axis(shifted, np.where(known, labels, 0)[..., None], -1)[..., 0]
        return float(-found.mean() if counts_padding else -(found * known).sum() / known.sum())

    metrics = tuple(partial(surprise, counts_padding=one) for one in (False, True))
    found = check_metrics(pieces.sides, metrics, words, labels)
    assert found.outcome is Outcome.FAIL, found.reason
    assert found.diagnoses
