"""Pages of one file each: no network, no script but their own, and HTML that cannot hold what was not escaped."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from hashlib import sha256
from html import escape
from importlib.resources import files
from math import inf, isfinite, isnan
from typing import Any

from tipchain.foreign_text import clean
from tipchain.language import language, say

Part = str | Iterable[str | Iterable[str] | None] | None
"""What goes into an element: see `markup`."""
VOID = {"br", "meta", "link", "input", "hr"}
VERBATIM = {"code", "pre", "dd"}
"""What holds code, paths and values, in no language."""
SAID = {"aria-label", "placeholder", "title"}
"""Attributes that people read."""


class Markup(str):
    """HTML that is safe to put into a document as it is."""

    __slots__ = ()


def markup(*parts: Part) -> Markup:
    """Return parts one after the other: `Markup` as it is, None left out, any other text escaped, without control characters."""
    found: list[str] = []
    for part in parts:
        if isinstance(part, Markup):
            found.append(part)
        elif isinstance(part, str):
            found.append(_escaped(say(part)))
        elif part is not None:
            found.append(markup(*part))
    return Markup("".join(found))


def _escaped(text: str) -> Markup:
    return Markup(escape(clean(text).encode(errors="backslashreplace").decode()))


def _as_it_is(parts: Iterable[Part]) -> Iterator[Part]:
    for part in parts:
        if isinstance(part, Markup) or part is None:
            yield part
        elif isinstance(part, str):
            yield _escaped(part)
        else:
            yield from _as_it_is(part)


def element(name: str, /, *parts: Part, **attributes: Any) -> Markup:
    """Return an element.

    Args:
        name: of the element.
        parts: what is inside, as for `markup`.
        attributes: ``_`` becomes ``-``, one at the end goes; None and False leave the attribute out, True leaves its
            value out.
    """
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VERBATIM:
        parts = tuple(_as_it_is(parts))
    return Markup(f"<{name}{given}>" if name in VOID else f"<{name}{given}>{markup(*parts)}</{name}>")


def _attribute(key: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{markup(str(value)) if name in SAID else _escaped(str(value))}"'


def prose(text: str) -> Markup:
    """Return a sentence, what stands between backticks as code."""
    text = say(text)
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick that nothing ends
        return _escaped(text)
    return markup(element("code", part) if place % 2 else _escaped(part) for place, part in enumerate(parts))


def path(text: str) -> Markup:
    """Return a layer's path, which may be broken after a dot; the model itself has none, and words for it."""
    first, *rest = (say(text) if " " in text else text).split(".")
    return markup(_escaped(first), (markup(".", Markup("<wbr>"), _escaped(part)) for part in rest))


def table(heads: Iterable[str], rows: Iterable[Iterable[str]], **attributes: Any) -> Markup:
    """Return a table whose rows begin with a heading of their own; it scrolls where it is too wide."""
    head = element("tr", [element("th", one, scope="col") for one in heads])
    body = [
        element(
            "tr",
            [element("td" if place else "th", cell, scope=None if place else "row") for place, cell in enumerate(row)],
        )
        for row in rows
    ]
    inside = element("table", element("thead", head), element("tbody", body), **attributes)
    return element("div", inside, class_="wide")


def number(value: float | None) -> str:
    """Return an error as text; one that is not finite has no size that could be told."""
    if value is None:
        return "\u2013"
    if not isfinite(value):
        return "undefined"
    return "0" if not value else f"{value:.1e}"


def exactly(value: float) -> str:
    """Return a value as text, with as many digits as tell losses apart."""
    if isnan(value):
        return "NaN"
    if value in (inf, -inf):
        return "∞" if value > 0 else "-∞"
    return f"{value:.9g}"


def many(count: int, one: str, several: str | None = None) -> str:
    """Return a number with its noun."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def page(title: str, body: Iterable[Markup], *, style: str, script: str) -> str:
    """Return a page as HTML.

    It forbids itself, by its Content-Security-Policy (https://www.w3.org/TR/CSP3/), to load anything or to run any
    script but its own.
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", Markup(style)),
    )
    inside = element("body", element("main", markup(body)), element("script", Markup(script)))
    return f"<!DOCTYPE html>\n{element('html', head, inside, lang='zh-CN' if language() == 'zh' else 'en')}\n"


def asset(name: str, package: str = "tipchain.report.html") -> str:
    """Return the text of a style or script that lies beside a package's modules; all pages share those of this one."""
    return (files(package) / name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    digest = b64encode(sha256(script.encode()).digest()).decode()
    rules = (
        "default-src 'none'",
        "img-src data:",
        "style-src 'unsafe-inline'",
        f"script-src 'sha256-{digest}'",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)
