"""HTML that cannot hold what was not escaped: text is, and only what was made here is not."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from math import inf, isfinite, isnan
from typing import Any

VOID = {"br", "meta", "link", "input", "hr"}


class Markup(str):
    """HTML that is safe to put into a document as it is."""

    __slots__ = ()


def markup(*parts: str | Iterable[str] | None) -> Markup:
    """Return parts one after the other: `Markup` as it is, any other text escaped, None left out."""
    found: list[str] = []
    for part in parts:
        if isinstance(part, Markup):
            found.append(part)
        elif isinstance(part, str):
            found.append(escape(part.encode(errors="backslashreplace").decode()))
        elif part is not None:
            found.append(markup(*part))
    return Markup("".join(found))


def element(name: str, /, *parts: str | Iterable[str] | None, **attributes: Any) -> Markup:
    """Return an element.

    Args:
        name: of the element.
        parts: what is inside, as for `markup`.
        attributes: ``_`` becomes ``-``, one at the end goes; None and False leave the attribute out, True leaves its
            value out.
    """
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{name}{given}>" if name in VOID else f"<{name}{given}>{markup(*parts)}</{name}>")


def _attribute(key: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{markup(str(value))}"'


def prose(text: str) -> Markup:
    """Return a sentence, what stands between backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick that nothing ends
        return markup(text)
    return markup(element("code", part) if place % 2 else part for place, part in enumerate(parts))


def path(text: str) -> Markup:
    """Return a layer's path, which may be broken after a dot."""
    first, *rest = text.split(".")
    return markup(first, (markup(".", Markup("<wbr>"), part) for part in rest))


def table(heads: Iterable[str], rows: Iterable[Iterable[str]], **attributes: Any) -> Markup:
    """Return a table whose rows begin with a heading of their own; it scrolls where it is too wide."""
    head = element("tr", [element("th", one, scope="col") for one in heads])
    body = [
        element("tr", [element("td" if place else "th", cell, scope=None if place else "row")
                       for place, cell in enumerate(row)])
        for row in rows
    ]  # fmt: skip
    inside = element("table", element("thead", head), element("tbody", body), **attributes)
    return element("div", inside, class_="wide")


def number(value: float | None) -> str:
    """Return an error as text."""
    if value is None:
        return "\u2013"
    if isnan(value):
        return "NaN"
    if value in (inf, -inf):
        return "∞" if value > 0 else "-∞"
    return "0" if not value else f"{value:.1e}"


def exactly(value: float) -> str:
    """Return a value as text, with as many digits as tell losses apart."""
    return number(value) if not isfinite(value) else f"{value:.9g}"


def many(count: int, one: str, several: str | None = None) -> str:
    """Return a number with its noun."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"
