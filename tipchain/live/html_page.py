"""A page of one file: no network, no other file, no script but its own."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from importlib.resources import files

from tipchain.live.html_markup import Markup, element, markup


def page(title: str, body: Iterable[Markup], *, style: str, script: str) -> str:
    """Return a page as HTML.

    It forbids itself, by its Content-Security-Policy (https://www.w3.org/TR/CSP3/), to load anything or to run any
    script but its own.
    """
    head = element(
        "head", element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", title), element("style", Markup(style)),
    )  # fmt: skip
    inside = element("body", element("main", markup(body)), element("script", Markup(script)))
    return f"<!DOCTYPE html>\n{element('html', head, inside, lang='en')}\n"


def asset(package: str, name: str) -> str:
    """Return the text of a style or script that lies beside a package's modules."""
    return (files(package) / name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    digest = b64encode(sha256(script.encode()).digest()).decode()
    rules = (
        "default-src 'none'", "img-src data:", "style-src 'unsafe-inline'", f"script-src 'sha256-{digest}'",
        "base-uri 'none'", "form-action 'none'",
    )  # fmt: skip
    return "; ".join(rules)
