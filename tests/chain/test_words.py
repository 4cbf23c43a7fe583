"""Values as words, without a shell."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tipchain.chain.params import Slot, flag, split_words
from tipchain.errors import ParamsError


def slot(value="v", key="--k"):
    return Slot(role="role", key=key, value=value, file="f.txt", line=7)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a  b", ("a", "b")),
        ("--x='a b' \"c d\"", ("--x=a b", "c d")),
        ("a\\ b", ("a b",)),
        ("'$(touch x)'", ("$(touch x)",)),
        ("'a;b|c'", ("a;b|c",)),
        ("$HOME *.py {a,b} ~", ("$HOME", "*.py", "{a,b}", "~")),
        ("", ()),
    ],
)
def test_words(text, words):
    assert split_words(text, slot()) == words


SHELLS = ("a;b", "a $(b)", "`a`", '"$(a)"', "a|b", "a&", "a>b", "(a)", '"`a`"')


@pytest.mark.parametrize("text", [*SHELLS, "it's", 'a "b', "a\\"])
def test_what_a_shell_would_act_on_and_unbalanced_quotes_are_refused(text):
    why = ".* would be acted on by a shell" if text in SHELLS else "cannot be split"
    with pytest.raises(ParamsError, match=rf"f\.txt:7: --k: {why}"):
        split_words(text, slot())


@given(st.text(max_size=30))
def test_any_text_is_words_or_refused(text):
    with suppress(ParamsError):
        split_words(text, slot())


def test_flags():
    assert flag(slot("3")) == ("--k=3",)
    assert flag(slot("3", "-o Global.x")) == ("-o", "Global.x=3")
    assert flag(slot("null")) == flag(slot(" ")) == flag(slot("3", "null")) == ()
    assert flag(slot("null"), raw=True) == ("--k=null",)


@pytest.mark.parametrize(("value", "values"), [("a|b", ("a", "b")), ("", ()), ("a|", ("a",)), ("a||b", ("a", "", "b"))])
def test_lists(value, values):
    assert slot(value).values == values
