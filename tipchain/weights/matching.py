"""Which tensor of a torch model is which of its Paddle port: by name, then by structure, else by hand."""

from __future__ import annotations

import copy
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from importlib import import_module
from operator import attrgetter
from os import PathLike
from typing import Literal

import numpy as np

from tipchain.core.language import in_rows
from tipchain.errors import WeightsError
from tipchain.facts.layers import STATISTICS
from tipchain.facts.settings import OWN_KIND
from tipchain.framework_types import Array, Model
from tipchain.weights.given_names import unknown_names, with_ignored
from tipchain.weights.sides import (
    NOT_IN_PORT,
    NOT_IN_TORCH,
    UNSUPPORTED,
    LayerTensors,
    Target,
    TensorSlot,
    dtype_name,
    join,
    only_in_torch,
    paddle_layers,
    torch_layers,
)
from tipchain.weights.structure import (
    Leaf,
    LeafPair,
    Structure,
    joins,
    match_by_structure,
    packed_candidates,
    squeezed,
    widens,
)

# How a match of two models is told to a reader, and how a refusal is: what is wrong first, and names that can be pasted.


WIDTH = 80
"""Columns of a refusal, as a terminal has them."""
LINES = 30
"""Lines of a refusal: they fit on a screen beside the command."""
_NUMBER = re.compile(r"(?<![\w/-])\d+(?![\w/-])")
SHOWN = 8
"""Lines of a refusal that name faults; one a kind of problem, and there are fewer kinds."""


class UnmatchedError(WeightsError):
    """Two models that do not belong together.

    Attributes:
        problems: all that is wrong, one line each.
        skeleton: a start for ``names:`` and ``ignore:``, lines of YAML with candidates.
    """

    def __init__(
        self,
        problems: Sequence[str],
        skeleton: Iterable[str] = (),
        *,
        file: str | PathLike[str] | None = None,
        in_full: bool = False,
    ) -> None:
        self.problems, self.skeleton = tuple(problems), tuple(skeleton)
        self._shown = self.problems if in_full else tuple(_first_of_each(self.problems))
        first = _rows(self._shown)
        hint = None
        if self.skeleton:
            room = len(self.skeleton) if in_full else LINES - len(first) - 4
            shown = self.skeleton[:room]
            more = [f"    # and {len(self.skeleton) - room} more"] if len(self.skeleton) > room else []
            hint = "\n".join(["say which is which (--names, a case's weights:, names= and ignore=):", *shown, *more])
        super().__init__("does not fit the model", file=file, found="\n".join(["", *first]), hint=hint)

    def in_language(self, said: Callable[[str], str]) -> str:
        """Return the refusal with each problem said whole."""
        again = copy.copy(self)
        again.found = "\n".join(["", *_rows(map(said, self._shown))])
        return again._render()  # noqa: SLF001

    def at(
        self, file: str | PathLike[str] | None, problems: Iterable[str] = (), *, in_full: bool = False
    ) -> UnmatchedError:
        """Return the same refusal of a file, other problems first; ``in_full``: whatever lines that takes."""
        return UnmatchedError([*problems, *self.problems], self.skeleton, file=file, in_full=in_full)


def kind_text(kind: str) -> str:
    """Return a kind of layer in a message's words."""
    return "a class of its own" if kind == OWN_KIND else kind


def _unlike(structure: Structure) -> Structure:
    """Leave out unmatched tensors of equal name, kind and shape: their containers are at fault."""
    key, sides = attrgetter("path", "kind", "shape"), (structure.unknown, structure.missing)
    both = set(map(key, structure.unknown)) & set(map(key, structure.missing))
    unknown, missing = ([leaf for leaf in side if key(leaf) not in both] for side in sides)
    return replace(structure, unknown=unknown, missing=missing) if unknown or missing or structure.doubts else structure


def _problems(found: Structure) -> Iterator[str]:
    twins = {(leaf.path, leaf.kind): leaf for leaf in found.missing}
    reshaped = {leaf: twins[key] for leaf in found.unknown if (key := (leaf.path, leaf.kind)) in twins}
    for leaf, twin in reshaped.items():
        yield f"shape: {leaf.text} is {list(twin.shape)} in the port, in torch's layout"
    yield from (f"only in the port: {leaf.text}" for leaf in found.missing if leaf not in reshaped.values())
    yield from (f"only in torch: {leaf.text}" for leaf in found.unknown if leaf not in reshaped)
    for doubt in found.doubts:
        partners = ", ".join(doubt.actual[:3]) + (", …" if len(doubt.actual) > 3 else "")
        for name in doubt.expected:
            yield f"ambiguous: {name} may be {partners}: {doubt.why}"


def _first_of_each(problems: Sequence[str]) -> Iterator[str]:
    """Yield the first problem of each kind, and how many more there are."""
    counts = Counter(text.partition(": ")[0] for text in problems)
    seen: set[str] = set()
    for text in problems:
        kind = text.partition(": ")[0]
        if kind not in seen and len(seen) < SHOWN:
            seen.add(kind)
            yield text
            if counts[kind] > 1:
                yield f"… and {counts[kind] - 1} more that are {kind}"
    if len(counts) > len(seen):
        yield f"… and {sum(counts.values()) - sum(counts[kind] for kind in seen)} more problems"


def _rows(problems: Iterable[str]) -> list[str]:
    """Return lines that fit; a name that does not fit alone is left whole."""
    return [line for text in problems for line in in_rows(text, WIDTH, "    ", "      ")]


def _skeleton(
    whole: Structure, likely: Mapping[str, tuple[str, tuple[str, ...]]], every: Iterable[str]
) -> Iterator[str]:
    """Yield YAML that settles the open tensors by order or by shape; ``every`` tensor's name stands for a layer that is kept."""
    found = _unlike(whole)
    entries: dict[str, tuple[str, tuple[str, ...]]] = dict(likely)
    for doubt in found.doubts:
        for name, port in zip(doubt.expected, doubt.actual, strict=False):
            entries[name] = port, tuple(one for one in doubt.actual if one != port)
    opened, port_opened = ({_layer(leaf) for leaf in leaves} for leaves in (found.unknown, found.missing))
    layers = [(_layer(pair.expected), _layer(pair.actual)) for pair in found.pairs]
    alone = {leaf.name for leaf in (*found.unknown, *found.missing)}
    alike = {leaf.name for leaf in (*whole.unknown, *whole.missing)} - alone
    halves = {name.rpartition(".")[0] for name in alike}
    torch_layers = _whole_layers(found.unknown, {one for one, other in layers if other not in port_opened} | halves)
    port_layers = _whole_layers(found.missing, {other for one, other in layers if one not in opened} | halves)
    free = dict(port_layers)
    lone = []
    for name, shapes in torch_layers.items():
        candidates = [port for port, other in free.items() if other == shapes]
        if candidates:
            entries[name] = candidates[0], tuple(candidates[1:])
            del free[candidates[0]]
        else:
            lone.append(name)
    if entries:
        yield "  names:"
        for pattern, members in _patterns((name, port) for name, (port, _) in entries.items()).items():
            others = entries[members[0]][1]
            note = f"  # or {', '.join(others)}" if others and len(members) == 1 else "  # or another" if others else ""
            line = f"    {_yaml(pattern[0])}: {_yaml(pattern[1])}"
            if len(line) > WIDTH:
                yield f"    {_yaml(pattern[0])}:"
                *before, line = in_rows(_yaml(pattern[1]), WIDTH, " " * 6, " " * 8)
                yield from before
            yield line + note if len(line + note) <= WIDTH else line
    kept = {*every, *entries, *(port for port, _ in entries.values())} - {*lone, *free} - alone
    paths = [name.split(".") for name in kept]
    layers_kept = {".".join(path[:count]) for path in paths for count in range(1, len(path) + 1)}
    ignored = list(_ignored([*lone, *free], layers_kept))
    if ignored:
        yield "  ignore:"
        yield from (f"    - {_yaml(name)}" for name in ignored)


def _ignored(names: Iterable[str], kept: Collection[str]) -> Iterator[str]:
    """Yield names to ignore, the largest layers first, with ``*`` where it fits."""

    def whole(name: str) -> str:
        above = name.rpartition(".")[0]
        return name if not above or above in kept else whole(above)

    every = dict.fromkeys(map(whole, names))
    shorts = Counter(_pattern(name)[0] for name in every)
    patterns: dict[str, None] = {}
    for name in every:
        short = _pattern(name)[0]
        stands_for = re.compile(re.escape(short).replace(r"\*", r"[^.]+"))
        several = shorts[short] > 1 and re.search(r"\w", short)
        patterns[short if several and not any(map(stands_for.fullmatch, kept)) else name] = None
    yield from patterns


def _yaml(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_(][^:#]*", name) else f'"{name}"'


def _whole_layers(leaves: Iterable[Leaf], divided: Container[str]) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Return the layers of some leaves, or single tensors where others of a layer are matched, with their shapes."""
    shapes: dict[str, tuple[tuple[int, ...], ...]] = {}
    for leaf in leaves:
        layer = _layer(leaf)
        name = leaf.name if leaf.kind == OWN_KIND or layer in divided else layer or leaf.name
        flat = squeezed(leaf.shape)
        shape = tuple(sorted(flat)) if len(flat) == 2 else leaf.shape if leaf.kind in KERNEL_KINDS else flat
        shapes[name] = (*shapes.get(name, ()), shape)
    return shapes


def _layer(leaf: Leaf) -> str:
    return leaf.name.rpartition(".")[0]


def _pattern(name: str) -> tuple[str, tuple[str, ...]]:
    """Return a name with ``*`` for the numbers that stand for layers, and these."""
    return _NUMBER.sub("*", name), tuple(_NUMBER.findall(name))


def _patterns(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], list[str]]:
    """Return pairs of names by the numbers they share, and torch's names."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, port in pairs:
        (one, numbers), (other, others) = _pattern(name), _pattern(port)
        repeated = numbers and others and others == numbers * (len(others) // len(numbers))
        key = (one, other) if repeated or numbers == others else (name, port)
        groups.setdefault(key, []).append(name)
    return {
        (key if len(names) > 1 else (names[0], _filled(key[1], _pattern(names[0])[1]))): names
        for key, names in groups.items()
    }


def _filled(pattern: str, numbers: Sequence[str]) -> str:
    numbers_left = itertools.cycle(numbers)
    return re.sub(r"\*", lambda _: next(numbers_left), pattern) if numbers else pattern


def _counted(what: str, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return a line for each pair, or for all that differ in numbers alone."""
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for one, other in pairs:
        groups.setdefault((_pattern(one)[0], _pattern(other)[0]), []).append((one, other))
    lines = []
    for key, members in groups.items():
        same = all(_pattern(one)[1] == _pattern(other)[1] for one, other in members)
        one, other = key if same and len(members) > 1 else members[0]
        more = f" ({len(members)} times)" if same else f" (and {len(members) - 1} more like it)"
        line = f"{what}: {one or '(the model)'} -> {other or '(the model)'}"
        lines.append(line + (more if len(members) > 1 else ""))
    return lines


def _alike(sentences: Iterable[str]) -> Iterator[str]:
    """Yield sentences, once where only the numbers of their names differ."""
    groups: dict[tuple[str, str], list[str]] = {}
    for text in sentences:
        name = text.partition(" ")[0]
        groups.setdefault((_pattern(name)[0], text[len(name) :]), []).append(text)
    for (name, rest), members in groups.items():
        yield members[0] if len(members) == 1 else f"{name}{rest} ({len(members)} times)"


# Square matrices of users' own classes: which axis is the output is told by what the layer computes.


Way = Literal["out, in", "in, out"]


class OwnMatrices:
    """The square matrices of both models' own layers, and their use.

    Attributes:
        assumed: what could not be told, of matrices that both models keep in classes of their own.
    """

    def __init__(self, torch_model: Model, paddle_model: Model) -> None:
        self.models = torch_model, paddle_model
        self.assumed: list[str] = []

    def turned(self, torch: tuple[LayerTensors, TensorSlot], paddle: tuple[LayerTensors, TensorSlot]) -> bool | None:
        """Tell whether one square matrix is the other's transpose, None if unknown.

        What both models keep in classes of their own and do not apply as a layer is taken to be kept alike.
        """
        way, port_way = self._way(0, *torch), self._way(1, *paddle)
        if way is not None and port_way is not None:
            return way != port_way
        (layer, slot), (port_layer, _) = torch, paddle
        if layer.kind == port_layer.kind == OWN_KIND:
            self.assumed.append(
                f"{slot.name} {list(slot.shape)} is square, and of a class of its own in both models: taken as it is"
            )
            return False
        return None

    def joined(self, torch: TensorSlot, paddle: TensorSlot) -> bool | None:
        """Tell whether joined axes are transposed too, None where joining does not do."""
        flat, other = squeezed(torch.shape), squeezed(paddle.shape)
        ways = [turned for turned in (False, True) if joins(flat, other[::-1] if turned else other)]
        ways = [turned for turned in ways if not turned or len(other) == 2]
        if not ways:
            return None
        how = "transposed, and with its axes joined" if ways[0] else "with its axes joined"
        self.assumed.append(
            f"{torch.name} {list(torch.shape)} is {list(paddle.shape)} in the port: taken as the same {how}"
        )
        return ways[0]

    def _way(self, side: int, layer: LayerTensors, slot: TensorSlot) -> Way | None:
        if layer.kind != OWN_KIND:
            return "out, in"
        model = self.models[side]
        layers = dict(model.named_sublayers(include_self=True) if side else model.named_modules())
        found = layers.get(layer.path)
        if found is None or list(found.children()):
            return None  # what holds other layers is no matrix of its own
        name = slot.parts[0].names[0] if slot.parts else slot.name
        return _applied(found, name.rpartition(".")[2], side)


def _applied(layer: Model, leaf: str, side: int) -> Way | None:
    """Return how a layer's copy multiplies by its matrix, else None."""
    rng, framework = np.random.default_rng(0), import_module(("torch", "paddle")[side])
    tensor = framework.to_tensor if side else framework.from_numpy
    try:
        copied = copy.deepcopy(layer)
        values = {
            name: rng.standard_normal(tuple(one.shape)).astype(np.float32) for name, one in copied.named_parameters()
        }
        matrix = values[leaf]
        biases = [one for name, one in values.items() if one.ndim == 1 and name != leaf]
        if len(values) > 1 + len(biases) or len(biases) > 1:
            return None
        given = rng.standard_normal((3, matrix.shape[0])).astype(np.float32)
        with framework.no_grad():
            for name, one in copied.named_parameters():
                one.set_value(values[name].astype(dtype_name(one))) if side else one.copy_(tensor(values[name]))
            result = np.asarray(copied(tensor(given)).numpy())
    except Exception:  # noqa: BLE001  (a layer of the user's own may need anything, and may raise anything)
        return None
    bias = biases[0] if biases else np.float32(0)
    ways: dict[Way, Array] = {"out, in": given @ matrix.T + bias, "in, out": given @ matrix + bias}
    fits: list[Way] = [  # equal but for rounding; another layout of random numbers is off by their size
        way for way, one in ways.items() if result.shape == one.shape and np.allclose(result, one, rtol=1e-3, atol=1e-3)
    ]
    return fits[0] if len(fits) == 1 else None


# Which tensor of a torch model is which of its Paddle port: by name, then by structure, else listed.


MATRIX_KINDS = frozenset({"Linear", "Conv", "MultiheadAttention"})
"""Kinds whose matrices are ``[out, in]`` in torch's layout."""
KERNEL_KINDS = frozenset({"Conv", "ConvTranspose"})
"""Kinds whose tensors have axes of space, in an order that the layer decides: 1x7 is no 7x1."""
Held = dict[Leaf, tuple[LayerTensors, TensorSlot]]
"""The leaves of a model, each with its layer and its slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """How the tensors of two models belong together.

    Attributes:
        slots: where the Paddle model keeps each torch tensor, and in which layout, by torch's name.
        tied: torch tensors that Paddle does not keep once more: the name of the same tensor in ``slots``.
        zeros: Paddle's constant zeros that torch does not have.
        names: Paddle's name by torch's, with the layout, of all layers and tensors that `paddle_layers` must be told.
        by_structure: torch's and Paddle's names of what was matched although names differ.
        by_order: those of them that order of declaration alone told from others.
        kept: Paddle's names of what only the port has: constants, and what is ignored. It keeps its values.
        left: torch's names of what only torch has: constants, and what is ignored.
        assumed: what was taken for granted about layouts, one sentence each.
    """

    slots: Mapping[str, TensorSlot]
    tied: Mapping[str, str]
    zeros: tuple[TensorSlot, ...]
    names: Mapping[str, str]
    by_structure: tuple[tuple[str, str], ...] = ()
    by_order: tuple[tuple[str, str], ...] = ()
    kept: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(
            [
                *_counted("matched by structure", self.by_structure),
                *_counted("matched by order of declaration alone", self.by_order),
                *(f"assumed: {text}" for text in _alike(self.assumed)),
                *(f"kept: {text}: only the port has it" for text in _alike(self.kept)),
                *(f"left behind: {text}: the port has none" for text in _alike(self.left)),
            ]
        )


def match_models(
    torch_model: Model, paddle_model: Model, names: Mapping[str, str] | None = None, ignore: Iterable[str] = ()
) -> Match:
    """Match the tensors of a torch model with those of its Paddle port.

    Given names are not questioned: what is below a layer is matched below its partner. ``*`` stands for any name
    between dots; for the right side see `Target`.

    Raises:
        UnmatchedError: something could not be matched; all of it is listed, of both models.
    """
    return _Matching(torch_model, paddle_model, names or {}, tuple(ignore)).match()


@dataclass(slots=True)
class _Matching:
    """One pair of models on the way to a match."""

    torch_model: Model
    paddle_model: Model
    given: Mapping[str, str]
    ignore: tuple[str, ...]
    names: dict[str, str] = field(init=False)
    torch: list[LayerTensors] = field(init=False)
    left: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    again: set[str] = field(default_factory=set)

    def match(self) -> Match:
        """Return the match, by names alone if they leave nothing."""
        self.names = with_ignored(self.given, self.ignore, self.torch_model, self.paddle_model)
        layers = torch_layers(self.torch_model)
        refuse(_bad_names(self.names, self.torch_model, self.paddle_model))
        self.torch = _without_left(layers, self.names)
        here = {slot.name for layer in self.torch for slot in layer.slots}
        self.left = [slot.name for layer in layers for slot in layer.slots if slot.name not in here]
        ignored = [target for name, target in self.names.items() if name.startswith(NOT_IN_TORCH)]
        self.kept = [name for name in self.paddle_model.state_dict() if _is_below(name, ignored)]
        paddle = self._paddle(self.names)
        refuse(
            [
                f"not supported: {slot.parts[0].names[0]} belongs to a {layer.kind.removeprefix(UNSUPPORTED)}, "
                "and how torch would store it is not known"
                for layer in paddle
                if layer.kind.startswith(UNSUPPORTED)
                for slot in layer.slots
            ]
        )
        first: dict[int, str] = {}
        ties = {
            name: first.setdefault(id(tensor), name)
            for name, tensor in self.torch_model.state_dict(keep_vars=True).items()
        }
        named = _Named.of(self.torch, paddle, ties)
        if not named.left and all(self._is_settled(name, *one) for name, one in named.slots.items()):
            return self._result(named)
        opened = to_open(self.torch, paddle)
        if opened:
            paddle = self._paddle(self.names, opened)
        return self._by_structure(paddle, ties)

    def _paddle(self, names: Mapping[str, str], opened: frozenset[str] = frozenset()) -> list[LayerTensors]:
        """Return Paddle's layers without the tensors that only the port has."""
        layers = paddle_layers(self.paddle_model, {**names, **{f"({one})": one for one in self.kept}}, opened)
        return _without_kept(layers)

    def _is_settled(self, name: str, slot: TensorSlot, port_kind: str, kind: str, shape: tuple[int, ...]) -> bool:
        """Tell whether names settle the layout of a tensor."""
        flat = squeezed(shape)
        sure = name in self.names or kind == port_kind != OWN_KIND or len(set(flat)) != 1 or len(flat) != 2
        return slot.shape == shape and sure

    def _by_structure(self, paddle: Sequence[LayerTensors], ties: Mapping[str, str]) -> Match:
        reference, port = torch_leaves(self.torch, self.names, ties), paddle_leaves(paddle, self.names)
        given = {slot.name: leaf for leaf, (_, slot) in port.items() if slot.name in self.names}
        settled = [
            LeafPair(expected=leaf, actual=given[slot.name], evidence="given")
            for leaf, (_, slot) in reference.items()
            if slot.name in given
        ]
        taken = {leaf for pair in settled for leaf in (pair.expected, pair.actual)}
        structure = match_by_structure(
            [leaf for leaf in reference if leaf not in taken], [leaf for leaf in port if leaf not in taken]
        )
        # Leave alone what is a constant of one side: buffers of the port's, norms' frozen 1 and 0, integers of torch's own classes.
        constant = [
            leaf
            for leaf in structure.missing
            if (leaf.buffer and leaf.path[-1] not in STATISTICS) or _is_neutral(port[leaf][1])
        ]
        self.kept += [_own_name(*port[leaf]) for leaf in constant]
        structure.missing = [leaf for leaf in structure.missing if leaf not in constant]
        constant = [leaf for leaf in structure.unknown if leaf.kind == OWN_KIND and leaf.buffer and leaf.integer]
        self.left += [reference[leaf][1].name for leaf in constant]
        structure.unknown = [leaf for leaf in structure.unknown if leaf not in constant]
        layouts = OwnMatrices(self.torch_model, self.paddle_model)
        targets: dict[str, Target] = {}
        problems: list[str] = []
        likely: dict[str, tuple[str, tuple[str, ...]]] = {}
        for pair in (*settled, *structure.pairs):
            mine, its = reference[pair.expected], port[pair.actual]
            layout = _layout(mine, its, layouts, given=pair.evidence == "given")
            if isinstance(layout, str):
                if pair.expected.again and pair.actual.again:  # their first layers decide
                    self.again.add(mine[1].name)
                else:
                    problems.append(layout)
                    if len(set(squeezed(mine[1].shape))) == 1:
                        plain = Target(names=(_own_name(*its),))
                        likely[mine[1].name] = str(plain), (str(replace(plain, turned=True)),)
            else:
                targets[mine[1].name] = layout
        known = [pair for pair in structure.pairs if reference[pair.expected][1].name in targets]
        problems += _torn(known, reference, port)
        self.assumed += layouts.assumed
        if problems or structure.doubts or structure.unknown or structure.missing:
            raise self._refusal(problems, structure, reference, port, taken, likely)
        pairs = [pair for pair in (*settled, *structure.pairs) if reference[pair.expected][1].name in targets]
        resolved, moved = self._resolve(pairs, reference, port, targets)
        self.torch = without(self.torch, lambda slot: slot.name in self.left)
        named = _Named.of(self.torch, self._paddle(resolved), ties, self.again)
        refuse(named.left)
        self.names = resolved
        return self._result(named, moved, tuple(structure.by_order))

    def _refusal(
        self,
        problems: Sequence[str],
        found: Structure,
        torch: Held,
        paddle: Held,
        taken: AbstractSet[Leaf],
        likely: dict[str, tuple[str, tuple[str, ...]]],
    ) -> UnmatchedError:
        rest, packed = found, packed_candidates(found.unknown, found.missing)
        matrices = [leaf for leaf in found.missing if len(leaf.shape) > 1]  # a bias goes with its matrix
        kept = packed_candidates(matrices, found.unknown)
        if packed or kept:
            taken = taken | {leaf for one, pieces, _ in packed for leaf in (one, *pieces)}
            port_holding = {one.path[:-1] for one, _, _ in kept}
            holding = {leaf.path[:-1] for _, pieces, _ in kept for leaf in pieces}
            rest = match_by_structure(
                [leaf for leaf in torch if leaf not in taken and leaf.path[:-1] not in holding],
                [leaf for leaf in paddle if leaf not in taken and leaf.path[:-1] not in port_holding],
            )
        for one, pieces, turned in packed:
            names = tuple(_own_name(*paddle[piece]) for piece in pieces)
            likely[torch[one][1].name] = str(Target(names=names, turned=turned)), ()
        holders = [
            f"packed: {paddle[one][0].path} seems to hold {', '.join(torch[piece][0].path for piece in pieces)} in one, "
            f"which names cannot say: keep them apart in the port, or joined in the reference"
            for one, pieces, _ in kept
        ]
        skeleton = _skeleton(rest, likely, [leaf.name for leaf in (*torch, *paddle)])
        return UnmatchedError([*problems, *holders, *_problems(_unlike(rest if kept else found))], skeleton)

    def _resolve(
        self, pairs: Sequence[LeafPair], torch: Held, paddle: Held, targets: Mapping[str, Target]
    ) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
        """Return names of all pairs, whole layers where possible, and those that differ."""
        by_layer: dict[str, list[LeafPair]] = defaultdict(list)
        for pair in pairs:
            by_layer[torch[pair.expected][0].path].append(pair)
        resolved: dict[str, str] = dict(self.names)
        moved = []
        for path, own in by_layer.items():
            layers = {paddle[pair.actual][0].path: paddle[pair.actual][0] for pair in own}
            layer = next(iter(layers.values()))
            slots = [(torch[pair.expected][1], paddle[pair.actual][1]) for pair in own]
            whole = len(layers) == 1 and len(own) == sum(not slot.fixed for slot in layer.slots)
            if whole and all(mine.leaf == its.leaf and targets[mine.name].plain for mine, its in slots):
                resolved[path] = layer.path
                resolved.update(
                    (mine.name, join(layer.path, mine.leaf))
                    for mine, its in slots
                    if mine.name != join(path, mine.leaf)
                )
                if path != layer.torch_path and any(pair.evidence != "given" for pair in own):
                    moved.append((path, layer.path))
                continue
            for pair in own:
                mine, its = torch[pair.expected][1], paddle[pair.actual][1]
                target = targets[mine.name]
                if mine.name in self.names:
                    given = Target.parse(self.names[mine.name])
                    target = replace(given, turned=given.turned != target.turned, shape=target.shape or given.shape)
                elif len(its.parts) > 1:
                    target = Target(names=tuple(part.names[0] for part in its.parts))
                resolved[mine.name] = str(target)
                if pair.evidence != "given" and (mine.name != its.name or not targets[mine.name].plain):
                    moved.append((mine.name, str(targets[mine.name])))
        return resolved, tuple(moved)

    def _result(
        self, named: _Named, moved: tuple[tuple[str, str], ...] = (), by_order: tuple[tuple[str, str], ...] = ()
    ) -> Match:
        """Return the match that names make, now that they leave nothing."""
        slots = {name: slot for name, (slot, *_) in named.slots.items()}
        return Match(
            slots=slots,
            tied=named.tied,
            zeros=named.zeros,
            names={
                **self.names,
                **{name: slot.parts[0].names[0] for name, slot in slots.items() if slot.name != name},
                **{f"({one})": one for one in self.kept},
                **dict.fromkeys(self.left, NOT_IN_PORT),
            },
            by_structure=moved,
            by_order=by_order,
            kept=tuple(self.kept),
            left=tuple(self.left),
            assumed=tuple(self.assumed),
        )


def without(layers: Iterable[LayerTensors], drop: Callable[[TensorSlot], bool]) -> list[LayerTensors]:
    """Return layers without some of their tensors; those that lose all are left out."""
    kept = []
    for layer in layers:
        slots = tuple(slot for slot in layer.slots if not drop(slot))
        if slots:
            kept.append(layer if len(slots) == len(layer.slots) else replace(layer, slots=slots))
    return kept


def _without_left(layers: Sequence[LayerTensors], names: Mapping[str, str]) -> list[LayerTensors]:
    return without(layers, lambda slot: only_in_torch(slot.name, names))


def _without_kept(layers: Sequence[LayerTensors]) -> list[LayerTensors]:
    return without(layers, lambda slot: slot.name.startswith(NOT_IN_TORCH))


def matchable_layers(
    torch_model: Model, paddle_model: Model, names: Mapping[str, str], opened: frozenset[str] = frozenset()
) -> tuple[list[LayerTensors], list[LayerTensors]]:
    """Return both models' layers in one another's terms, without ignored ones; ``opened``: further packed layers."""
    torch, port = torch_layers(torch_model), paddle_layers(paddle_model, names, opened)
    also = to_open(torch, port)
    if also:
        port = paddle_layers(paddle_model, names, opened | also)
    return _without_left(torch, names), _without_kept(port)


def _is_below(name: str, paths: Iterable[str]) -> bool:
    return any(name == path or name.startswith(f"{path}.") for path in paths)


def refuse(problems: Sequence[str]) -> None:
    """Raise one error with all problems, if there are any."""
    if problems:
        raise UnmatchedError(problems)


def _bad_names(names: Mapping[str, str], torch_model: Model, paddle_model: Model) -> list[str]:
    found = [f"names: {one.key}: {one.message}{one.hint}" for one in unknown_names(names, torch_model, paddle_model)]
    state, seen = paddle_model.state_dict(), dict[str, str]()
    for old, new in names.items():
        target = Target.parse(new)
        for one in target.names if not old.startswith(NOT_IN_TORCH) and new != NOT_IN_PORT else ():
            if target.turned and one in state and sum(size != 1 for size in state[one].shape) > 2:
                found.append(f"names: {old} goes to {new}, and {one} {list(state[one].shape)} is no matrix")
            if one in seen:
                found.append(f"names: {seen[one]} and {old} both go to {one}")
            seen[one] = old
    return found


@dataclass(frozen=True, slots=True)
class _Named:
    """The tensors that names alone put together.

    Attributes:
        slots: Paddle's slot, both kinds and torch's shape by torch's name.
        tied: the name in ``slots`` of the same tensor, by torch's name.
        left: problems: the tensors that names leave unmatched, Paddle's first.
        zeros: constant zeros of Paddle's that torch does not have.
    """

    slots: Mapping[str, tuple[TensorSlot, str, str, tuple[int, ...]]]
    tied: Mapping[str, str]
    left: Sequence[str]
    zeros: tuple[TensorSlot, ...]

    @classmethod
    def of(
        cls,
        torch: Sequence[LayerTensors],
        paddle: Sequence[LayerTensors],
        ties: Mapping[str, str],
        without: Container[str] = (),
    ) -> _Named:
        """Put together the tensors of both models, but for those ``without``."""
        ours, theirs = ([(layer, slot) for layer in side for slot in layer.slots] for side in (torch, paddle))
        named = {slot.name: (slot, layer.kind) for layer, slot in reversed(theirs)}
        both = ((layer, slot, named.get(slot.name) or named.get(join(layer.path, slot.leaf))) for layer, slot in ours)
        slots = {
            slot.name: (*port, layer.kind, slot.shape)
            for layer, slot, port in both
            if port is not None and slot.name not in without
        }
        first = {ties.get(name, name): name for name in reversed(slots)}
        others = [slot.name for _, slot in ours if slot.name not in slots]
        tied = {name: first[ties[name]] for name in others if ties.get(name) in first}
        used = {id(slot) for slot, *_ in slots.values()}
        free = [(layer, slot) for layer, slot in theirs if id(slot) not in used]
        left = [f"only in the port: {tell(*one)}" for one in free if not one[1].fixed and not one[1].again]
        left += [f"only in torch: {tell(*one)}" for one in ours if one[1].name not in slots and one[1].name not in tied]
        return cls(slots, tied, left, tuple(slot for _, slot in free if slot.fixed))


def _is_neutral(slot: TensorSlot) -> bool:
    neutral = {"weight": 1.0, "scale": 1.0, "bias": 0.0}.get(slot.leaf)
    return neutral is not None and all(
        part.tensor.stop_gradient and bool((np.asarray(part.tensor.numpy()) == neutral).all()) for part in slot.parts
    )


def tell(layer: LayerTensors, slot: TensorSlot) -> str:
    """Return a tensor in a message's words: name, torch's shape, dtype, layer."""
    name = " + ".join(part.names[0] for part in slot.parts) or slot.name
    return f"{name} {list(slot.shape)} {slot.dtype} ({kind_text(layer.kind)})"


def to_open(torch: Sequence[LayerTensors], paddle: Sequence[LayerTensors]) -> frozenset[str]:
    """Return the paths of Paddle's packed layers for which torch has single layers."""
    kinds = {layer.kind for layer in torch}
    at = {(layer.path, layer.kind) for layer in torch}
    return frozenset(
        layer.path
        for layer in paddle
        if layer.inner
        and (layer.torch_path, layer.kind) not in at
        and (layer.kind not in kinds or any(one.path.startswith(f"{layer.torch_path}.") for one in torch))
    )


# Leaves


def torch_leaves(
    layers: Iterable[LayerTensors], names: Mapping[str, str], ties: Mapping[str, str] | None = None
) -> Held:
    """Return the leaves of a torch model; ``ties``: the first name of the same tensor by torch's name."""
    ties = ties or {}
    return {
        _leaf(
            layer.path, layer, slot, again=ties.get(slot.name, slot.name) != slot.name, scope=_scope(slot.name, names)
        ): (layer, slot)
        for layer in layers
        for slot in layer.slots
    }


def paddle_leaves(layers: Iterable[LayerTensors], names: Mapping[str, str]) -> Held:
    """Return a Paddle model's leaves with layer and slot, without constant zeros."""
    targets = {target.names[0]: old for old, new in names.items() if len((target := Target.parse(new)).names) == 1}
    return {
        _leaf(layer.torch_path, layer, slot, again=slot.again, scope=targets.get(_scope(layer.path, targets), "")): (
            layer,
            slot,
        )
        for layer in layers
        for slot in layer.slots
        if not slot.fixed
    }


def _leaf(torch_path: str, layer: LayerTensors, slot: TensorSlot, *, again: bool, scope: str) -> Leaf:
    path, own_path = (tuple(join(one, slot.leaf).split(".")) for one in (torch_path, layer.path))
    return Leaf(
        path=path,
        own_path=own_path,
        kind=layer.kind,
        shape=slot.shape,
        integer=slot.dtype.startswith(("int", "uint", "bool")),
        buffer=slot.kind == "buffer",
        again=again,
        scope=scope,
        text=tell(layer, slot),
    )


def _scope(path: str, names: Iterable[str]) -> str:
    """Return the innermost layer at or above ``path``; "" is the model."""
    return max((one for one in names if _is_below(path, (one,))), key=len, default="")


def _own_name(layer: LayerTensors, slot: TensorSlot) -> str:
    """Return the port's name of a tensor below its layer."""
    names = slot.parts[0].names
    return next((name for name in names if not layer.path or name.startswith(f"{layer.path}.")), names[0])


def _torn(pairs: Sequence[LeafPair], torch: Held, paddle: Held) -> Iterator[str]:
    """Name the layers that would exchange tensors between two of the port's layers."""
    images: dict[str, set[str]] = defaultdict(set)
    for pair in pairs:
        if not pair.expected.again and not pair.actual.again:
            images[torch[pair.expected][0].path].add(paddle[pair.actual][0].path)
    divided = {path: ports for path, ports in images.items() if len(ports) > 1}
    for path, ports in divided.items():
        for other, others in divided.items():
            if other != path and ports & others:
                yield f"ambiguous: {path} would be divided between {', '.join(sorted(ports))}, as {other} would"
                break


# Layouts


def _layout(
    torch: tuple[LayerTensors, TensorSlot], paddle: tuple[LayerTensors, TensorSlot], known: OwnMatrices, *, given: bool
) -> Target | str:
    """Return how the port keeps a tensor of torch's, or why that is open."""
    (layer, slot), (port, its) = torch, paddle
    plain = Target(names=(_own_name(port, its),))
    if slot.shape == its.shape and (len(its.parts) > 1 or given or layer.kind == port.kind != OWN_KIND):
        return plain
    flat, other = squeezed(slot.shape), squeezed(its.shape)
    kinds = {layer.kind, port.kind} - {OWN_KIND}
    matrix = len(flat) == 2 and OWN_KIND in (layer.kind, port.kind) and kinds <= MATRIX_KINDS
    turned: bool | None = flat != other
    across = bool(kinds & KERNEL_KINDS) and not turned and not widens(slot.shape, its.shape)
    problem = ""
    if len(kinds) > 1 and not kinds <= MATRIX_KINDS:
        problem = f"layout: {slot.name} belongs to {layer.kind} in torch, {plain} to {port.kind} in the port"
    elif not kinds and len(flat) != len(other) and len(its.parts) == 1:
        turned = known.joined(slot, its)
    elif len(its.parts) > 1 or across or (turned and not (matrix and flat == other[::-1])):
        turned = None
    elif matrix and flat == flat[::-1] and not given:
        turned = known.turned(torch, paddle)
        if turned is None:
            problem = (
                f"layout: {slot.name} {list(slot.shape)} belongs to {kind_text(layer.kind)} in torch and to "
                f"{kind_text(port.kind)} in the port; it is square, so its shape does not show whether it must be transposed"
            )
    if turned is None:
        problem = problem or f"shape: {slot.name} is {list(slot.shape)}, {plain} {list(its.shape)} in torch's layout"
    elif turned and len(other) != 2:
        problem = f"layout: {slot.name} {list(slot.shape)} would be {plain} {list(its.shape)} transposed"
    if problem:
        return problem
    stored = its.shape[::-1] if turned else its.shape
    return replace(plain, turned=bool(turned), shape=None if slot.shape == stored else slot.shape)
