"""The layers of a report as a tree that opens and closes, each with its error and what it inherited."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tipchain.language import template
from tipchain.parity.locate.verdicts import ORDER, Closeness, LayerVerdict
from tipchain.report.html.page import Markup, element, many, markup, number, path

SLUGS = {one: one.value.replace(" ", "-") for one in Closeness}
SIGNS = {
    Closeness.BITWISE: "=",
    Closeness.ROUNDING: "≈",
    Closeness.NOT_COMPARABLE: "?",
    Closeness.LOWER_PRECISION: "!",
    Closeness.DIFFERS: "≠",
}
MEANINGS = {
    Closeness.BITWISE: "bitwise: the reference's own bits in float32",
    Closeness.ROUNDING: "rounding: as close as float32 allows",
    Closeness.LOWER_PRECISION: "lower precision: the same function, computed with fewer bits",
    Closeness.DIFFERS: "differs: another function",
    Closeness.NOT_COMPARABLE: "not comparable",
}
DIRECTIONS = ("forward", "backward")
FEW = 24
"""A tree with no more rows than this is open from the start."""


@dataclass(slots=True)
class Node:
    """A layer of the port, and those inside it.

    Attributes:
        name: what its row is called: the last part of its path, or several where nothing else is inside.
        path: its path in the port, empty for the model.
        verdicts: about its own calls.
        children: the layers inside, in the order in which they came.
    """

    name: str
    path: str
    verdicts: list[LayerVerdict] = field(default_factory=list)
    children: dict[str, Node] = field(default_factory=dict)

    def all(self) -> Iterator[LayerVerdict]:
        """Yield every verdict about this layer and those inside."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield from node.verdicts
            waiting += node.children.values()

    def rows(self) -> int:
        """Return how many rows the tree below has."""
        return len(self.children) + sum(one.rows() for one in self.children.values())


def grow(verdicts: Iterable[LayerVerdict]) -> Node:
    """Return the tree of the port's paths that verdicts name."""
    root = Node("the model", "")
    for verdict in verdicts:
        node = root
        for part in verdict.port_path.split(".") if verdict.port_path else ():
            inner = f"{node.path}.{part}" if node.path else part
            node = node.children.setdefault(part, Node(part, inner))
        node.verdicts.append(verdict)
    root.children = {name: _shortened(one) for name, one in root.children.items()}
    return root


def _shortened(node: Node) -> Node:
    """Let a layer that is nothing but the way to another one share its row."""
    node.children = {name: _shortened(one) for name, one in node.children.items()}
    if len(node.children) == 1 and not node.verdicts:
        inner = next(iter(node.children.values()))
        inner.name = f"{node.name}.{inner.name}"
        return inner
    return node


def layer_tree(verdicts: Sequence[LayerVerdict]) -> Markup:
    """Return the tree of the layers, with what narrows it down."""
    root = grow(verdicts)
    present = {one.closeness for one in verdicts}
    legend = [
        element("li", _sign(one), " ", MEANINGS[one]) for one in reversed(ORDER) if one in present
    ]  # fmt: skip
    heads = element(
        "div", element("span", "layer of the port"), element("span", "reference", class_="ref"),
        [element("span", element("b", one), element("span", "own"), element("span", "inherited"), class_="errors")
         for one in DIRECTIONS],
        class_="heads", aria_hidden="true",
    )  # fmt: skip
    return markup(
        element("ul", legend, class_="legend"), _controls(),
        element("div", heads, _row(root, 0, everything=root.rows() <= FEW), class_="tree", id="tree"),
    )  # fmt: skip


def _controls() -> Markup:
    """Return what narrows the tree down; a page without JavaScript does not show it."""
    only = element("label", element("input", type="checkbox", id="only-fault"), " only at fault")
    text = element(
        "label", element("span", "filter "),
        element("input", type="search", id="filter", placeholder="path or class", autocomplete="off", spellcheck="false"),
    )  # fmt: skip
    buttons = [
        element("button", words, type="button", id=name)
        for name, words in (("open-all", "open all"), ("close-all", "close all"))
    ]
    told = element("output", id="shown", role="status", data_text=template("{n} of {n2} layers"))
    return element("div", only, text, buttons, told, class_="controls", hidden=True)


def _row(node: Node, depth: int, *, everything: bool) -> Markup:
    """Return the row of a layer with all inside it; layers at fault, and what is around them, are open."""
    below = [one for inner in node.children.values() for one in inner.all()]
    faults = len({one.port_path for one in below if one.at_fault})
    own = [one for one in node.verdicts if one.direction in DIRECTIONS]
    types = list(dict.fromkeys(one.port_type for one in own))
    references = list(dict.fromkeys(one.reference_path or "the model" for one in own))
    name = element(
        "span", element("b", path(node.name)), element("i", types[0]) if types else None,
        element("em", f"{faults:,} at fault inside") if faults else None, class_="name",
    )  # fmt: skip
    shown = own or below
    summary = element(
        "summary", name, element("span", [path(one) for one in references[:1]], class_="ref"),
        [_errors(one, shown, rolled=not own) for one in DIRECTIONS],
        style=f"--depth:{depth}",
    )  # fmt: skip
    body = (
        element("div", [_told(one) for one in own], class_="told", style=f"--depth:{depth}") if own else None
    )
    at_fault = any(one.at_fault for one in own)
    return element(
        "details", summary, body, [_row(one, depth + 1, everything=everything) for one in node.children.values()],
        open=not depth or bool(faults) or (everything and bool(node.children)) or (at_fault and not node.children),
        class_="fault" if at_fault else None,
        data_find=" ".join(dict.fromkeys([node.path, *types, *references, *(one.reference_type for one in own)])).lower() if own else None,
    )  # fmt: skip


def _errors(direction: str, verdicts: Iterable[LayerVerdict], *, rolled: bool) -> Markup:
    """Return the cells of one direction: the worst of a layer's calls, or of the layers inside it (``rolled``)."""
    found = [one for one in verdicts if one.direction == direction]
    if not found:
        return element("span", class_="errors none")
    worst = max(found, key=lambda one: (ORDER.index(one.closeness), one.own or 0.0))
    inherited = max(one.inherited for one in found)
    return element(
        "span", element("b", direction), element("span", _sign(worst.closeness), " ", number(worst.own)),
        element("span", number(inherited), class_="inherited"),
        class_=f"errors {SLUGS[worst.closeness]}{' rolled' if rolled else ''}",
    )  # fmt: skip


def _sign(closeness: Closeness) -> Markup:
    return element(
        "span", SIGNS[closeness], class_=f"sign {SLUGS[closeness]}", role="img", aria_label=closeness.value
    )


def _told(one: LayerVerdict) -> Markup:
    """Return what one verdict says, in words."""
    call = f"{one.direction}, call {one.turn}" if one.turn else one.direction
    times = "" if one.ratio is None else f" ({one.ratio:.3g} times the reference's own float32 error)"
    method = "" if one.method == "float64" else "; held against float32, for the port does not run in float64"
    return element(
        "p", element("b", call), ": ", _sign(one.closeness), " ", one.closeness.value, ": ", one.reason,
        element("span", f"own {number(one.own)}{times}, inherited {number(one.inherited)}{method}", class_="numbers"),
        element(
            "span", "port ", element("code", path(one.port_path or "the model")), f" {one.port_type}, reference ",
            element("code", path(one.reference_path or "the model")), f" {one.reference_type}", class_="numbers",
        ),
    )  # fmt: skip


def count_layers(verdicts: Sequence[LayerVerdict]) -> str:
    """Return how many layers were compared, and how many of them are at fault, as text."""
    layers = {(one.port_path, one.reference_path) for one in verdicts}
    faults = {(one.port_path, one.reference_path) for one in verdicts if one.at_fault}
    return f"{many(len(layers), 'layer')} compared, {len(faults) or 'none'} at fault"
