"""File names of the stages, and how users name stages."""

from __future__ import annotations

import pytest

from tipchain.errors import UsageError
from tipchain.modes import dump_name, log_name, parse_stages


def test_names_are_those_of_the_reproduction_guide():
    stages = ("forward", "metric", "loss", "backward", "train")
    assert {dump_name(stage, side) for stage in stages for side in ("torch", "paddle")} == {
        "forward_torch.npy",
        "forward_paddle.npy",
        "metric_torch.npy",
        "metric_paddle.npy",
        "loss_torch.npy",
        "loss_paddle.npy",
        "bp_align_torch.npy",
        "bp_align_paddle.npy",
        "train_align_benchmark.npy",
        "train_align_paddle.npy",
    }
    assert {log_name(stage) for stage in stages} == {
        "forward_diff.log",
        "metric_diff.log",
        "loss_diff.log",
        "bp_align_diff.log",
        "train_align_diff.log",
    }


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("forward", ("forward",)),
        ("01|02", ("forward", "data")),
        ("5", ("backward", "train")),
        ("loss, 01", ("forward", "loss")),
        ("train,backward", ("backward", "train")),
    ],
)
def test_stages_by_name_or_number(text, stages):
    assert parse_stages(text) == stages


@pytest.mark.parametrize("text", ["", "06", "forwrad", "01,,02"])
def test_unknown_stages_are_refused(text):
    with pytest.raises(UsageError, match="unknown stage"):
        parse_stages(text)


def test_a_close_name_is_suggested():
    with pytest.raises(UsageError, match="did you mean 'forward'"):
        parse_stages("forwrad")
