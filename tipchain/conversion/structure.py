"""Match the layers of two models by kind, shapes and order of declaration, without their tensors.

Names decide where they agree. Where they do not, layers are matched by structure; what is not certain is not matched:

- A layer at the same place in both models, of the same kind and shapes, is matched by its name. Numbers are names
  only where a list or Sequential has the same numbers in both; else they are positions.
- What is left is matched below each layer that both models have: the shapes of each kind of layer that one side
  declares there must be those that the other declares, in the same order. Else only a layer that is the one of its
  kind and shapes on both sides is matched.
- A match by order must not cross another of the same kind and shapes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Shape = tuple[int, ...]
Signature = tuple[str, frozenset[tuple[str, Shape]]]


class Tensor(NamedTuple):
    """A tensor of a unit: torch's name in its layer (a single tensor has none), torch's shape, and what to call it."""

    leaf: str
    shape: Shape
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unit:
    """What is matched as a whole: the tensors of a layer, or one tensor of a user's own class.

    Attributes:
        path: its name in its own model.
        torch_path: its name in torch's, as far as names tell; of torch's, the same.
        kind: the kind of layer.
        tensors: its tensors.
        given: a name that the user gave decides about it.
        again: its tensors are those of an earlier unit, shared.
        odd: of torch's, tensors with another name than their kind's: the kind's by torch's.
    """

    path: str
    torch_path: str
    kind: str
    tensors: tuple[Tensor, ...]
    given: bool = False
    again: bool = False
    odd: tuple[tuple[str, str], ...] = ()

    @property
    def signature(self) -> Signature:
        """What two units that belong together have in common."""
        return self.kind, frozenset((one.leaf, one.shape) for one in self.tensors)


Pair = tuple[Unit, Unit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """What was matched, torch's first, and what could not be, listed for a reader."""

    pairs: tuple[Pair, ...]
    problems: tuple[str, ...]


@dataclass(slots=True)
class _Found:
    """What one group of units came to."""

    pairs: list[Pair] = field(default_factory=list)
    unclear: list[Pair] = field(default_factory=list)
    torch: list[Unit] = field(default_factory=list)
    paddle: list[Unit] = field(default_factory=list)


def match_by_structure(torch: Sequence[Unit], paddle: Sequence[Unit]) -> Structure:
    """Match the units of two models; both come in the order of their declaration."""
    places = _Places(torch, paddle)
    anchors = list(_anchors(torch, paddle, places))
    taken = {id(unit) for pair in anchors for unit in pair}
    groups: dict[str, tuple[list[Unit], list[Unit]]] = defaultdict(lambda: ([], []))
    for side, units in enumerate((torch, paddle)):
        for unit in units:
            if id(unit) not in taken and not unit.given:
                groups[places.group(unit)][side].append(unit)
    lost = [unit for unit in torch if unit.given and id(unit) not in taken]
    found = [_Found(torch=lost), *(_match_group(ours, theirs) for ours, theirs in groups.values())]
    order = {id(unit): number for units in (torch, paddle) for number, unit in enumerate(units)}
    matched = sorted((pair for one in found for pair in one.pairs), key=lambda pair: order[id(pair[0])])
    settled = [pair for pair in anchors if not pair[0].given]
    crossed = _crossed(matched, [*settled, *matched], order, places)
    problems = [*_list(found), *(_tell_crossing(pair, other) for pair, other in crossed)]
    return Structure(pairs=(*anchors, *matched), problems=tuple(problems))


class _Places:
    """Which names the two models have in common."""

    def __init__(self, torch: Sequence[Unit], paddle: Sequence[Unit]) -> None:
        numbers = [_numbers(units) for units in (torch, paddle)]
        self.loose = {
            path for path in numbers[0].keys() & numbers[1].keys() if numbers[0][path] != numbers[1][path]
        }
        above = [{path for unit in units for path in _above(unit.torch_path)} for units in (torch, paddle)]
        self.shared = above[0] & above[1]

    def named(self, path: str) -> bool:
        """Tell whether every number in ``path`` is a name."""
        return not any(above in self.loose and _child(path, above).isdigit() for above in _above(path))

    def group(self, unit: Unit) -> str:
        """Return the path of the deepest layer that both models have by name and that holds ``unit``."""
        held = ""
        for path in _above(unit.torch_path):
            if path not in self.shared or not self.named(path):
                break
            held = path
        return held


def _above(path: str) -> Iterator[str]:
    """Yield the paths of the layers that hold the one at ``path``, outermost first; the root's is empty."""
    parts = path.split(".")
    for stop in range(len(parts)):
        yield ".".join(parts[:stop])


def _child(path: str, above: str) -> str:
    """Return the name of the part of ``path`` just inside ``above``."""
    return path[len(above) + 1 if above else 0 :].partition(".")[0]


def _numbers(units: Sequence[Unit]) -> dict[str, set[str]]:
    """Return the numbers that stand for layers, by the path of the list that holds them."""
    found: dict[str, set[str]] = defaultdict(set)
    for unit in units:
        for above in _above(unit.torch_path):
            if (child := _child(unit.torch_path, above)).isdigit():
                found[above].add(child)
    return found


def _anchors(torch: Sequence[Unit], paddle: Sequence[Unit], places: _Places) -> Iterator[Pair]:
    """Yield the pairs that names decide."""
    ports: dict[tuple[str, bool], Unit] = {}
    for one in paddle:  # a layer and a tensor may have the same name
        ports.setdefault((one.torch_path, one.kind == "own"), one)
    for unit in torch:
        port = ports.get((unit.path, unit.kind == "own"))
        if port is not None and (
            unit.given or (unit.signature == port.signature and places.named(unit.path))
        ):
            yield unit, port


def _match_group(ours: Sequence[Unit], theirs: Sequence[Unit]) -> _Found:
    """Match what names left below one layer."""
    for keep in (ours, theirs), ([u for u in ours if not u.again], [u for u in theirs if not u.again]):
        kinds = [_by_kind(units) for units in keep]
        if [[u.signature for u in units] for units in kinds[0]] == [
            [u.signature for u in units] for units in kinds[1]
        ]:
            return _Found(
                pairs=[pair for both in zip(*kinds, strict=True) for pair in zip(*both, strict=True)]
            )
    found = _Found()
    classes: dict[Signature, tuple[list[Unit], list[Unit]]] = defaultdict(lambda: ([], []))
    for side, units in enumerate((ours, theirs)):
        for unit in units:
            if not unit.again:
                classes[unit.signature][side].append(unit)
    for alike in classes.values():
        if len(alike[0]) != len(alike[1]):
            found.torch += alike[0]
            found.paddle += alike[1]
        elif len(alike[0]) == 1:
            found.pairs.append((alike[0][0], alike[1][0]))
        else:
            found.unclear += zip(*alike, strict=True)
    return found


def _by_kind(units: Sequence[Unit]) -> list[list[Unit]]:
    """Return the units of each kind in the order of their declaration; kinds come by name."""
    kinds: dict[str, list[Unit]] = defaultdict(list)
    for unit in units:
        kinds[unit.kind].append(unit)
    return [kinds[kind] for kind in sorted(kinds)]


def _crossed(
    pairs: Sequence[Pair], others: Sequence[Pair], order: dict[int, int], places: _Places
) -> Iterator[tuple[Pair, Pair]]:
    """Yield each pair matched by order that crosses one of the same kind and shapes, with that one.

    Pairs below different layers that both models have by name may cross: such layers tell them apart.
    """
    alike: dict[Signature, list[tuple[str, Pair]]] = defaultdict(list)
    for pair in others:
        alike[pair[0].signature].append((places.group(pair[0]), pair))
    for pair in pairs:
        group = places.group(pair[0])
        first, second = order[id(pair[0])], order[id(pair[1])]
        for near, other in alike[pair[0].signature]:
            crosses = (first < order[id(other[0])]) != (second < order[id(other[1])])
            if crosses and other is not pair and _nested(group, near):
                yield pair, other
                break


def _nested(one: str, other: str) -> bool:
    """Tell whether of two paths one is the other's or lies below it."""
    short, long = sorted((one, other), key=len)
    return not short or short == long or long.startswith(f"{short}.")


def _list(found: Sequence[_Found]) -> list[str]:
    torch = [unit for one in found for unit in one.torch]
    paddle = [unit for one in found for unit in one.paddle]
    return [
        *(f"missing: {text}" for unit in paddle for text in _differing(unit, torch)),
        *(f"unknown: {text}" for unit in torch for text in _differing(unit, paddle)),
        *(
            f"ambiguous: {unit.path} may be {port.path}, but the two models declare their layers in different orders, "
            f"and others are alike: {_texts(unit)}"
            for one in found
            for unit, port in one.unclear
        ),
    ]


def _differing(unit: Unit, others: Sequence[Unit]) -> list[str]:
    """Return the unit's tensors, without those that the unit of its name in the other model has too."""
    same = {
        (one.leaf, one.shape)
        for other in others
        if (other.torch_path, other.kind) == (unit.torch_path, unit.kind)
        for one in other.tensors
    }
    return [one.text for one in unit.tensors if (one.leaf, one.shape) not in same]


def _texts(unit: Unit) -> str:
    return ", ".join(one.text for one in unit.tensors)


def _tell_crossing(pair: Pair, other: Pair) -> str:
    return (
        f"ambiguous: {pair[0].path} may be {pair[1].path} by its kind and shapes, but {other[0].path}, which is alike, "
        f"then is {other[1].path}, and the order differs: {_texts(pair[0])}"
    )
