"""Values of JSON as dataclasses and named tuples, and back."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from tipchain.core.json_text import Number, as_json, parse_as
from tipchain.errors import Outcome


class Part(NamedTuple):
    name: str
    numbers: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Whole:
    outcome: Outcome
    shares: Mapping[str, float] = field(default_factory=dict)
    size: float = 0.0


class Several(NamedTuple):
    value: Number | None


PARTS = [{"name": "a", "numbers": [1, 0.5]}, {"name": "b"}]


def test_named_tuples_and_lists_are_read_as_dataclasses_are():
    found = parse_as(Whole, {"outcome": "PASS", "shares": {"x": 1}})
    assert found == Whole(outcome=Outcome.PASS, shares={"x": 1.0})
    assert parse_as(Whole, json.loads(json.dumps(as_json(found)))) == found
    assert parse_as(list[Part], PARTS) == [Part("a", (1, 0.5)), Part("b")]


@pytest.mark.parametrize("value", [None, True, 3, 0.5, math.inf, 1 - 2j])
def test_of_several_types_the_first_that_fits_is_taken(value):
    written = as_json(value)
    found = parse_as(Several, {"value": written}, lenient=True).value
    assert (found, type(found)) == (value, type(value))
    with pytest.raises(ValueError, match="malformed"):
        parse_as(Several, {"value": "soon"}, lenient=True)


def test_numbers_that_json_has_not_come_back():
    whole = Whole(outcome=Outcome.FAIL, shares={"x": math.inf, "y": -math.inf}, size=math.nan)
    again = parse_as(Whole, json.loads(json.dumps(as_json(whole), allow_nan=False)), lenient=True)
    assert again.shares == whole.shares
    assert math.isnan(again.size)
    assert repr(parse_as(Whole, {"outcome": "PASS", "size": 3}, lenient=True).size) == "3.0"


@pytest.mark.parametrize(
    ("document", "strictly", "leniently"),
    [
        ({"outcome": "PASS", "size": "NaN"}, "size: Expected `float`, got `str`", ""),
        ({"outcome": "PASS", "size": 10**400}, "size: Number out of range", "size: Number out of range"),
        ({"outcome": "PASS", "shares": {"x": "soon"}}, r"shares\[...\]: Expected `float`", "shares"),
        ({"shares": {}}, "Object missing required field `outcome`", "`outcome`"),
    ],
)
def test_what_is_something_else_is_named(document, strictly, leniently):
    with pytest.raises(ValueError, match=strictly):
        parse_as(Whole, document)
    if not leniently:
        assert parse_as(Whole, document, lenient=True).outcome is Outcome.PASS
        return
    with pytest.raises(ValueError, match=leniently):
        parse_as(Whole, document, lenient=True)
