"""Layers that hold others: which belong together, by the matched layers inside them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from tipchain.parity.preflight.kinds import kind_of
from tipchain.parity.preflight.kinds_sequence import INNER
from tipchain.parity.preflight.table import Pair


def container_pairs(
    reference: Mapping[str, object], port: Mapping[str, object], matched: Iterable[tuple[str, str]]
) -> Iterator[Pair]:
    """Yield pairs of layers that hold the same matched layers, where that leaves no doubt.

    The frameworks' own containers have nothing to compare, but for the layers of a Transformer.

    Args:
        reference: torch's modules by path.
        port: Paddle's layers by path.
        matched: paths of layers that belong together, torch's first.
    """
    known = list(matched)
    held = _held(pair[0] for pair in known), _held(pair[1] for pair in known)
    for inside, ours in held[0].items():
        theirs = held[1].get(inside, [])
        for path, other in _aligned(ours, theirs, reference, port):
            pair = Pair(path, reference[path], other, port[other])
            if _tells(pair):
                yield pair


def _held(paths: Iterable[str]) -> dict[frozenset[int], list[str]]:
    """Return the layers above some paths, outermost first, by the numbers of the paths below them."""
    below: dict[str, set[int]] = defaultdict(set)
    for number, path in enumerate(paths):
        parts = path.split(".")
        for stop in range(len(parts) if path else 0):
            below[".".join(parts[:stop])].add(number)
    found: dict[frozenset[int], list[str]] = defaultdict(list)
    for path in sorted(below, key=lambda one: (one.count(".") + bool(one), one)):
        found[frozenset(below[path])].append(path)
    return found


def _aligned(
    ours: list[str], theirs: list[str], reference: Mapping[str, object], port: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    ours, theirs = [one for one in ours if one in reference], [one for one in theirs if one in port]
    if len(ours) == len(theirs):
        yield from zip(ours, theirs, strict=True)
        return
    for path in ours:
        name = type(reference[path]).__name__.lower()
        same = [one for one in theirs if one == path] or [
            one for one in theirs if type(port[one]).__name__.lower() == name
        ]
        if len(same) == 1:
            yield path, same[0]


def _tells(pair: Pair) -> bool:
    """Tell whether two containers can be compared: both are a user's own, or both layers of a Transformer."""
    kinds = kind_of(pair.reference, 0), kind_of(pair.port, 1)
    if kinds[0] is not None or kinds[1] is not None:
        return kinds[0] is kinds[1] and kinds[0] is not None and kinds[0].name in INNER
    return not any(
        type(layer).__module__.startswith(("torch.nn.", "paddle.nn."))
        for layer in (pair.reference, pair.port)
    )
