"""File names of the stages, and how users name stages."""

import pytest

from tipchain.errors import UsageError
from tipchain.modes import parse_stages


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
