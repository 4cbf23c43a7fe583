"""What all pages have: the verdict on top, sections with links to them, outcomes, what to change, how to see it again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tipchain.language import say
from tipchain.outcome import Outcome
from tipchain.report.html.page import Markup, element, markup, path, prose

Section = tuple[str, str, Markup]
"""A part of a page: its name in addresses, its title, what is inside."""


def banner(tone: str, word: str, words: str, *inside: Markup | None) -> Markup:
    """Return what everybody wants to know: the verdict, and below it where, why and what to change.

    Args:
        tone: ``pass``, ``fail``, or ``unknown`` where nothing is known to be wrong, nor to be right.
        word: of the verdict.
        words: what goes with it.
        inside: what stands below.
    """
    title = element("h1", element("strong", word), " ", prose(words))
    return element("header", title, *inside, class_=f"verdict {tone}", id="verdict")


def facts_line(facts: Mapping[str, str]) -> Markup:
    """Return what ran, when and at which commit, on one line; what is not known is left out."""
    told = [markup(f"{name} ", element("code", path(value))) for name, value in facts.items() if value]
    return element("p", [markup(" · " if at else "", one) for at, one in enumerate(told)], class_="note")


def sections(found: Iterable[Section]) -> list[Markup]:
    """Return the parts of a page, links to them first."""
    parts = list(found)
    links = [element("li", element("a", title, href=f"#{name}")) for name, title, _ in parts]
    return [
        element("nav", element("ul", links), aria_label="sections"),
        *(
            element(
                "section", element("h2", title, id=f"{name}-title"), inside, id=name, aria_labelledby=f"{name}-title"
            )
            for name, title, inside in parts
        ),
    ]


def outcome(ended: Outcome) -> Markup:
    """Return how something ended."""
    return element("span", ended.value, class_=f"outcome {ended.value.lower()}")


def notes(told: Iterable[str]) -> Markup:
    """Return what is to be known beside the verdict, such as what was left out."""
    return element("ul", [element("li", prose(one)) for one in told], class_="notes")


def fix(text: str, *, copied: bool = True) -> Markup:
    """Return what to change; the code in it, else all of it, can be copied."""
    parts = text.split("`")
    code = parts[1] if len(parts) % 2 and len(parts) > 1 else text
    return element(
        "p",
        element("b", "Fix: "),
        element("span", prose(text)),
        " ",
        _copy(code, f"copy {code}") if copied else None,
        class_="fix",
    )


def _copy(text: str, label: str) -> Markup:
    return element(
        "button",
        "copy",
        type="button",
        data_copy=text,
        data_done=say("copied"),
        data_failed=say("could not copy"),
        aria_label=label,
        hidden=True,
    )


def origin(command: str, facts: Mapping[str, str]) -> Markup:
    """Return how to see it all again, and what it rests on: versions, machine, commit."""
    call = (
        [element("pre", element("code", command), tabindex="0"), element("p", _copy(command, "copy the command"))]
        if command
        else []
    )
    listed = [element("div", element("dt", name), " ", element("dd", value)) for name, value in facts.items()]
    return markup(call, element("dl", listed, class_="versions") if listed else None)
