"""Match the tensors of two models as trees: by content and names, and by order of declaration last.

A model is a tree of containers whose leaves are tensors. What belongs together must have the same shape and, where both
models have the framework's own layer, the same kind of layer. Below a pair of containers:

1. Containers with the same content (the same tensors, in whatever order) stay together. One whose content no container
   of the other side has is opened, the largest first, until what is left has the same content.
2. What is the only one of its content belongs to the only one of the other side.
3. Names tell alike ones apart, where they do so one to one: equal names, equal words or short forms of them (``q`` for
   ``query``), numbers by rank.
4. Order of declaration is the weakest evidence. It decides only where no name says otherwise, and where nothing that is
   known already was declared in another order around it; such pairs are marked.

What is not certain is not matched. Frameworks and values play no part here.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import accumulate
from math import prod
from operator import and_, mul
from typing import TypeVar

from tipchain.facts.settings import OWN_KIND, Shape
from tipchain.weights.sides import LayerTensors, TensorSlot, is_integer, join

Path = tuple[str, ...]
Key = Hashable
Item = TypeVar("Item")
Mark = TypeVar("Mark", bound=Hashable)


@dataclass(frozen=True, kw_only=True, eq=False)
class Leaf:
    """A tensor of either model, in torch's terms.

    Attributes:
        layer: the layer that holds it.
        slot: the tensor.
        again: whether an earlier leaf is the same tensor.
        scope: the name given by the user below which it is to be matched; "" is the model.
    """

    layer: LayerTensors
    slot: TensorSlot
    again: bool = False
    scope: str = ""

    @cached_property
    def path(self) -> Path:
        """Its name in torch's terms, as far as given names tell: the containers', then its own."""
        return tuple(join(self.layer.torch_path, self.slot.leaf).split("."))

    @cached_property
    def name(self) -> str:
        """Its name in its own model."""
        return join(self.layer.path, self.slot.leaf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Alike tensors, or containers of alike tensors, of which is not certain which is which.

    Attributes:
        expected: torch's names, in order of declaration.
        actual: Paddle's.
        why: the reason.
        leaves: of torch's.
    """

    expected: tuple[str, ...]
    actual: tuple[str, ...]
    why: str
    leaves: tuple[Leaf, ...]


@dataclass(slots=True)
class Structure:
    """The matched tensors, and those that could not be.

    Attributes:
        pairs: Paddle's tensors by torch's.
        by_order: names of tensors or containers, torch's and Paddle's, that order of declaration alone decided.
        doubts: what is not certain.
        unknown: torch's tensors without a counterpart.
        missing: Paddle's tensors without a counterpart.
    """

    pairs: dict[Leaf, Leaf] = field(default_factory=dict)
    by_order: list[tuple[str, str]] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    unknown: list[Leaf] = field(default_factory=list)
    missing: list[Leaf] = field(default_factory=list)


def match_by_structure(torch: Sequence[Leaf], paddle: Sequence[Leaf]) -> Structure:
    """Match the tensors of two models; both come in the order of their declaration."""
    structure = Structure()
    for scope in dict.fromkeys(leaf.scope for leaf in (*torch, *paddle)):
        torch_leaves, port_leaves = ([leaf for leaf in side if leaf.scope == scope] for side in (torch, paddle))
        by_name = {leaf.path: leaf for leaf in port_leaves}
        named = {
            leaf: partner
            for leaf in torch_leaves
            if (partner := by_name.get(leaf.path)) and not set(_likeness(leaf)).isdisjoint(_likeness(partner))
        }
        if len(named) == len(torch_leaves) == len(port_leaves):
            structure.pairs |= named
            continue
        keys = _keys(torch_leaves, port_leaves)
        one, other = (_forest([leaf for leaf in side if leaf in keys], keys) for side in (torch_leaves, port_leaves))
        _match_nodes(one, other, structure)
    structure.pairs = {leaf: structure.pairs[leaf] for leaf in torch if leaf in structure.pairs}
    settled = {*structure.pairs, *structure.pairs.values(), *(leaf for one in structure.doubts for leaf in one.leaves)}
    spoken = {name for doubt in structure.doubts for name in doubt.actual}
    structure.unknown = [leaf for leaf in torch if leaf not in settled and not leaf.again]
    structure.missing = [
        leaf
        for leaf in paddle
        if leaf not in settled
        and not leaf.again
        and not any(one in ("", leaf.name) or leaf.name.startswith(f"{one}.") for one in spoken)
    ]
    return structure


def packed_candidates(wholes: Sequence[Leaf], pieces: Sequence[Leaf]) -> list[tuple[Leaf, tuple[Leaf, ...], bool]]:
    """Return the tensors that may hold several of the other model's, in order.

    These are a query, a key and a value, or a key and a value. Nothing tells whether they stand one after the other or
    take turns by heads: this is for a message. The flag says that they are joined the other way round than torch's
    layers keep them.
    """
    groups: dict[tuple[Path, str], dict[str, Leaf]] = defaultdict(dict)
    for leaf in pieces:
        words = _words(leaf.path[-2:-1])[0]
        for letter in "qkv":
            if words and any(word[0] == letter for word in words):
                groups[leaf.path[:-2], leaf.path[-1]].setdefault(letter, leaf)
    open_ = [
        tuple(group[letter] for letter in letters)
        for letters in ("qkv", "kv")
        for group in groups.values()
        if group.keys() >= set(letters)
    ]
    candidates = []
    for leaf in wholes:
        for several in open_:
            first = several[0].slot.shape
            joined = (len(several) * first[0], *first[1:])
            if leaf.path[-1] == several[0].path[-1] and leaf.slot.shape in (joined, joined[::-1]):
                candidates.append((leaf, several, leaf.slot.shape != joined))
                open_ = [one for one in open_ if not set(one) & set(several)]
                break
    return candidates


def group_by(items: Iterable[Item], mark: Callable[[Item], Mark]) -> dict[Mark, list[Item]]:
    """Return items by what ``mark`` makes of them, in their order."""
    groups: dict[Mark, list[Item]] = defaultdict(list)
    for item in items:
        groups[mark(item)].append(item)
    return groups


def squeezed(shape: Shape) -> Shape:
    """Return a shape without the axes of 1."""
    return tuple(size for size in shape if size != 1)


def joins(shape: Shape, other: Shape) -> bool:
    """Tell whether neighbouring axes of one shape, joined, make the other; neither has axes of 1."""
    longer, shorter = sorted((shape, other), key=len, reverse=True)
    return prod(longer) == prod(shorter) and {*accumulate(shorter, mul)} <= {*accumulate(longer, mul)}


def _likeness(leaf: Leaf) -> tuple[Key, ...]:
    """Return the common properties of matching leaves at each of four levels, the strictest first.

    A user's own class on one side may be the framework's layer on the other; axes of 1 may differ. Where kinds differ,
    so may the order of a matrix's two axes, which is no evidence then. What both keep in classes of their own under one name may
    have axes joined.
    """
    flat = squeezed(leaf.slot.shape)
    either = tuple(sorted(flat)) if len(flat) == 2 else flat
    own, kind, integer = leaf.path[-1], leaf.layer.kind, is_integer(leaf.slot)
    exact = (kind, own, leaf.slot.shape, integer)
    return (
        exact,
        ("named", own, either, integer),
        ("shaped", either, integer, leaf.slot.kind),
        ("joined", own, prod(flat), integer) if kind == OWN_KIND else exact,
    )


def _keys(torch: Sequence[Leaf], paddle: Sequence[Leaf]) -> dict[Leaf, Key]:
    """Return each leaf's common properties with its candidates, at the level at which both models have as many.

    Tensors shared with an earlier layer are left out where only one of the models has such a layer.
    """
    keys: dict[Leaf, Key] = {}
    rest = [list(torch), list(paddle)]
    for shared in (True, False):
        rest = [[leaf for leaf in side if shared or not leaf.again] for side in rest]
        for level in range(4):
            torch_counts, port_counts = (Counter(_likeness(leaf)[level] for leaf in side) for side in rest)
            even = {key for key, count in torch_counts.items() if port_counts[key] == count}
            for side in rest:
                keys.update((leaf, key) for leaf in side if (key := _likeness(leaf)[level]) in even)
            rest = [[leaf for leaf in side if leaf not in keys] for side in rest]
    mine, its = ({_likeness(leaf)[0] for leaf in side} for side in rest)
    keys.update((leaf, key) for side in rest for leaf in side if (key := _likeness(leaf)[0]) in mine & its)
    return keys


@dataclass(slots=True, eq=False)
class _Node:
    """A container, or a leaf: its leaves in order of declaration, and how many of each key."""

    path: Path
    leaves: list[Leaf]
    children: list[_Node]
    content: frozenset[tuple[Key, int]]
    start: int

    @property
    def own_name(self) -> str:
        first = self.leaves[0]
        own = first.name.split(".")
        return ".".join(own[: len(own) - (len(first.path) - len(self.path))])


def _forest(leaves: Sequence[Leaf], keys: Mapping[Leaf, Key]) -> list[_Node]:
    """Return the trees that leaves make, in order of declaration."""
    order = {leaf: number for number, leaf in enumerate(leaves)}

    def grow(some: Sequence[Leaf], depth: int) -> list[_Node]:
        groups = group_by(some, lambda leaf: leaf if len(leaf.path) == depth + 1 else leaf.path[: depth + 1])
        return [
            _Node(
                path=group[0].path[: depth + 1],
                leaves=group,
                children=[] if isinstance(key, Leaf) else grow(group, depth + 1),
                content=frozenset(Counter(keys[leaf] for leaf in group).items()),
                start=order[group[0]],
            )
            for key, group in groups.items()
        ]

    return grow(leaves, 0)


def _match_nodes(torch: list[_Node], paddle: list[_Node], found: Structure) -> None:
    depths = []
    for side in (torch, paddle):
        depth = 0
        while len(side) == 1 and side[0].children:
            depth, side[:] = len(side[0].path), side[0].children
        depths.append(depth or (len(side[0].path) - 1 if side else 0))
    scope = _Scope(torch, paddle, depths)
    scope.decide()
    found.doubts += scope.doubts
    for one, other in scope.decided.items():
        if one in scope.by_order:
            found.by_order.append((one.own_name, other.own_name))
        if one.children or other.children:
            _match_nodes([one], [other], found)
        else:
            found.pairs[one.leaves[0]] = other.leaves[0]


class _Scope:
    """Two containers' nodes, opened as far as their contents differ."""

    def __init__(self, torch: list[_Node], paddle: list[_Node], depths: Sequence[int]) -> None:
        self.depths = depths
        self.sides = torch, paddle
        self.decided: dict[_Node, _Node] = {}  # Paddle's node by torch's
        self.by_order: set[_Node] = set()
        self.doubts: list[Doubt] = []

    def decide(self) -> None:
        """Decide about every class of nodes with the same content."""
        self._open()
        # Nodes of both sides by their content.
        classes: dict[Hashable, tuple[list[_Node], list[_Node]]] = defaultdict(lambda: ([], []))
        for number, side in enumerate(self.sides):
            for node in side:
                classes[node.content][number].append(node)
        pending = []
        for torch, paddle in classes.values():
            if len(torch) == len(paddle) == 1:
                self.decided[torch[0]] = paddle[0]
            elif torch and paddle:
                partners = self._by_names(torch, paddle)
                if partners is None:
                    self._doubt(torch, paddle, "equal names and numbers contradict each other")
                    continue
                self.decided |= partners
                taken = set(partners.values())
                pending.append(
                    ([node for node in torch if node not in partners], [node for node in paddle if node not in taken])
                )
        # Order of declaration decides, unless something that is known was declared in another order.
        for torch, paddle in sorted(pending, key=lambda part: len(part[0])):
            if len(torch) != len(paddle):
                continue  # some are unknown, or missing: which is not known either
            if len(torch) > 1 and self.doubts:
                self._doubt(torch, paddle, f"{self.doubts[0].expected[0]} beside it is uncertain, too")
                continue
            known = [(near, image) for near, image in self.decided.items() if near not in self.by_order]
            pairs = list(zip(torch, paddle, strict=True))
            other_order = (
                near
                for near, image in known
                if any((one.start < near.start) != (other.start < image.start) for one, other in pairs)
            )
            if (near := next(other_order, None)) is not None:
                self._doubt(torch, paddle, f"the two models declare it and {near.own_name} in different orders")
                continue
            self.decided |= dict(pairs)
            self.by_order.update(torch if len(torch) > 1 else ())

    def _open(self) -> None:
        """Open the largest containers whose contents differ in number."""
        while True:
            mine, its = (Counter(node.content for node in side) for side in self.sides)
            uneven = [
                node
                for side in self.sides
                for node in side
                if node.children and mine[node.content] != its[node.content]
            ]
            if not uneven:
                return
            most = max(len(node.leaves) for node in uneven)
            largest = {node for node in uneven if len(node.leaves) == most}
            for side in self.sides:
                side[:] = [inner for node in side for inner in (node.children if node in largest else [node])]

    def _doubt(self, torch: Sequence[_Node], paddle: Sequence[_Node], why: str) -> None:
        self.doubts.append(
            Doubt(
                expected=tuple(node.own_name for node in torch),
                actual=tuple(node.own_name for node in paddle),
                why=why,
                leaves=tuple(leaf for node in torch for leaf in node.leaves),
            )
        )

    def _by_names(self, torch: Sequence[_Node], paddle: Sequence[_Node]) -> dict[_Node, _Node] | None:
        """Return the pairs that names tell, None where they contradict each other."""
        labels, port_labels = (
            {node.path[depth:]: node for node in side} for side, depth in zip((torch, paddle), self.depths, strict=True)
        )
        if labels.keys() == port_labels.keys():
            return {node: port_labels[label] for label, node in labels.items()}
        # A number is a position in a list, which another layer in it shifts.
        equal = {
            node: port_labels[label]
            for label, node in labels.items()
            if label in port_labels and not any(part.isdigit() for part in label)
        }
        # The words in their names, and the ranks of the numbers, put nodes together one to one.
        groups, port_groups = (group_by(side, lambda label: tuple(_words(label)[0])) for side in (labels, port_labels))
        words: dict[_Node, _Node] = {}
        for one, other in _alike_words(groups, port_groups):
            ranks, port_ranks = (
                {_words(label)[1]: label for label in group} for group in (groups[one], port_groups[other])
            )
            if len(ranks) == len(groups[one]) == len(port_ranks) == len(port_groups[other]):
                pairs = zip(sorted(ranks), sorted(port_ranks), strict=True)
                words.update((labels[ranks[mine]], port_labels[port_ranks[its]]) for mine, its in pairs)
        partners = {**words, **equal}
        contradict = any(words.get(one, other) is not other for one, other in equal.items())
        return None if contradict or len(set(partners.values())) < len(partners) else partners


_PIECES = re.compile(r"\d+|[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def _words(label: Path) -> tuple[list[str], tuple[int, ...]]:
    pieces = [piece for segment in label for piece in _PIECES.findall(segment)]
    return (
        sorted(piece.lower() for piece in pieces if not piece.isdigit()),
        tuple(int(piece) for piece in pieces if piece.isdigit()),
    )


def _alike_words(
    torch: Collection[tuple[str, ...]], paddle: Collection[tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield the words of names that belong together: equal ones, else those that are each other's most alike."""
    if len(torch) == len(paddle) == 1:
        yield from zip(torch, paddle, strict=True)
        return
    same = [words for words in torch if words in paddle]
    yield from ((words, words) for words in same)
    telling, port_telling = (  # the words of a name that not all names of its side have
        {words: Counter(words) - reduce(and_, map(Counter, side)) for words in side if words not in same}
        for side in (torch, paddle)
    )
    scores = {
        (one, other): _likeness_of_words(words, port_words)
        for one, words in telling.items()
        for other, port_words in port_telling.items()
    }
    best: dict[tuple[int, tuple[str, ...]], list[float]] = defaultdict(list)
    for pair, score in scores.items():
        for side in (0, 1):
            best[side, pair[side]].append(score)
    tops = {key: max(found) if found.count(max(found)) == 1 else None for key, found in best.items()}
    for (one, other), score in scores.items():
        if score and tops[0, one] == tops[1, other] == score:
            yield one, other


def _likeness_of_words(words: Counter[str], port_words: Counter[str]) -> float:
    """Return how many words two names have in common; a short form (``attn`` of ``attention``) counts half.

    Of single letters those of "Attention Is All You Need" do; others are as often mere marks: ``norm_a``, ``norm_b``.
    """
    equal = words & port_words
    rest, port_rest = (list((side - equal).elements()) for side in (words, port_words))
    short = 0
    for word in rest:
        for other in port_rest:
            abbreviation, whole = sorted((word, other), key=len)
            letters = iter(whole)
            alone = len(abbreviation) == 1 and abbreviation not in "qkvo"
            if not alone and abbreviation[0] == whole[0] and all(letter in letters for letter in abbreviation):
                port_rest.remove(other)
                short += 1
                break
    return equal.total() + short / 2
