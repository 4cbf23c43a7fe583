"""Which tensor of a torch model is which of its Paddle port: by name, then by structure, else by hand."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from importlib import import_module
from os import PathLike

import numpy as np

from tipchain.core.language import WIDTH, in_rows
from tipchain.errors import InputError, WeightsError
from tipchain.facts.layers import STATISTICS
from tipchain.facts.settings import OWN_KIND, is_fixed
from tipchain.framework_types import Model
from tipchain.weights.given_names import pattern_of, unknown_names, with_ignored, with_layers
from tipchain.weights.sides import (
    NOT_IN_PORT,
    NOT_IN_TORCH,
    UNSUPPORTED,
    LayerTensors,
    Target,
    TensorSlot,
    dtype_name,
    is_integer,
    join,
    only_in_torch,
    paddle_layers,
    torch_layers,
    without,
)
from tipchain.weights.structure import Leaf, Structure, group_by, joins, match_by_structure, packed_candidates, squeezed

LINES = 30
"""Lines of a refusal: they fit on a screen beside the command."""
_NUMBER = re.compile(r"(?<![\w/-])\d+(?![\w/-])")


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
        self._shown = list(self.problems) if in_full else []
        if not in_full:  # the first of each kind, and how many more there are
            for kind, (head, *others) in group_by(self.problems, lambda text: text.partition(": ")[0]).items():
                self._shown += [head, f"… and {len(others)} more that are {kind}"] if others else [head]
        first = _rows(self._shown)
        hint = None
        if self.skeleton:
            room = len(self.skeleton) if in_full else max(LINES - len(first) - 4, 1)
            shown = self.skeleton[:room]
            more = [f"    # and {len(self.skeleton) - room} more"] if len(self.skeleton) > room else []
            hint = "\n".join(["say which is which (--names, a case's weights:, names= and ignore=):", *shown, *more])
        super().__init__("does not fit the model", file=file, found="\n".join(["", *first]), hint=hint)

    def in_language(self, said: Callable[[str], str]) -> str:
        """Return the refusal with each problem said whole."""
        found = "\n".join(["", *_rows(map(said, self._shown))])
        return str(InputError(self.message, file=self.file, found=found, hint=self.hint))

    def at(
        self, file: str | PathLike[str] | None, problems: Iterable[str] = (), *, in_full: bool = False
    ) -> UnmatchedError:
        """Return the same refusal of a file, other problems first; ``in_full``: whatever lines that takes."""
        return UnmatchedError([*problems, *self.problems], self.skeleton, file=file, in_full=in_full)


def kind_text(kind: str) -> str:
    """Return a kind of layer in a message's words."""
    return "a class of its own" if kind == OWN_KIND else kind


def _unlike(structure: Structure) -> Structure:
    """Pair unmatched tensors of equal name, kind and shape, where others are at fault."""
    twins = {(leaf.path, leaf.layer.kind, leaf.slot.shape): leaf for leaf in structure.missing}
    keys = ((leaf, (leaf.path, leaf.layer.kind, leaf.slot.shape)) for leaf in structure.unknown)
    alike = {leaf: twins[key] for leaf, key in keys if key in twins}
    unknown = [leaf for leaf in structure.unknown if leaf not in alike]
    missing = [leaf for leaf in structure.missing if leaf not in alike.values()]
    if not (unknown or missing or structure.doubts):
        return structure
    return replace(structure, pairs=structure.pairs | alike, unknown=unknown, missing=missing)


def _text(leaf: Leaf) -> str:
    name = " + ".join(part.names[0] for part in leaf.slot.parts) or leaf.slot.name
    return f"{name} {list(leaf.slot.shape)} {leaf.slot.dtype} ({kind_text(leaf.layer.kind)})"


def _problems(found: Structure) -> Iterator[str]:
    twins = {(leaf.path, leaf.layer.kind): leaf for leaf in found.missing}
    reshaped = {leaf: twins[key] for leaf in found.unknown if (key := (leaf.path, leaf.layer.kind)) in twins}
    for leaf, twin in reshaped.items():
        yield f"shape: {_text(leaf)} is {list(twin.slot.shape)} in the port, in torch's layout"
    yield from (f"only in the port: {_text(leaf)}" for leaf in found.missing if leaf not in reshaped.values())
    yield from (f"only in torch: {_text(leaf)}" for leaf in found.unknown if leaf not in reshaped)
    for doubt in found.doubts:
        partners = ", ".join(doubt.actual[:3]) + (", …" if len(doubt.actual) > 3 else "")
        for name in doubt.expected:
            yield f"ambiguous: {name} may be {partners}: {doubt.why}"


def _rows(problems: Iterable[str]) -> list[str]:
    return [line for text in problems for line in in_rows(text, WIDTH, "    ", "      ")]


def _skeleton(found: Structure, likely: Mapping[str, tuple[str, ...]], every: Iterable[str]) -> Iterator[str]:
    """Yield YAML that settles the open tensors by order or by shape; ``every`` tensor's name stands for a layer that is kept."""
    entries = dict(likely)  # the port's names by torch's, the likeliest first
    for doubt in found.doubts:
        for name, port in zip(doubt.expected, doubt.actual, strict=False):
            entries[name] = (port, *(one for one in doubt.actual if one != port))
    opened, port_opened = ({_layer(leaf) for leaf in leaves} for leaves in (found.unknown, found.missing))
    layers = [(_layer(one), _layer(other)) for one, other in found.pairs.items()]
    alone = {leaf.name for leaf in (*found.unknown, *found.missing)}
    torch_layers = _whole_layers(found.unknown, {one for one, other in layers if other not in port_opened})
    free = _whole_layers(found.missing, {other for one, other in layers if one not in opened})
    lone = []
    for name, shapes in torch_layers.items():
        candidates = [port for port, other in free.items() if other == shapes]
        if candidates:
            entries[name] = tuple(candidates)
            del free[candidates[0]]
        else:
            lone.append(name)
    if entries:
        yield "  names:"
        for pattern, members in _patterns((name, ports[0]) for name, ports in entries.items()).items():
            others = entries[members[0]][1:]
            note = f"  # or {', '.join(others)}" if others and len(members) == 1 else "  # or another" if others else ""
            line = f"    {_yaml(pattern[0])}: {_yaml(pattern[1])}"
            if len(line) > WIDTH:
                yield f"    {_yaml(pattern[0])}:"
                *before, line = in_rows(_yaml(pattern[1]), WIDTH, " " * 6, " " * 8)
                yield from before
            yield line + note if len(line + note) <= WIDTH else line
    kept = {*every, *entries, *(ports[0] for ports in entries.values())} - {*lone, *free} - alone
    ignored = list(_ignored([*lone, *free], with_layers(kept)))
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
        several = shorts[short] > 1 and re.search(r"\w", short)
        patterns[short if several and not any(map(pattern_of(short).fullmatch, kept)) else name] = None
    yield from patterns


def _yaml(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_(][^:#]*", name) else f'"{name}"'


def _whole_layers(leaves: Iterable[Leaf], divided: Container[str]) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Return the layers of some leaves, or single tensors where others of a layer are matched, with their shapes."""
    shapes: dict[str, tuple[tuple[int, ...], ...]] = {}
    for leaf in leaves:
        layer, kind, flat = _layer(leaf), leaf.layer.kind, squeezed(leaf.slot.shape)
        name = leaf.name if kind == OWN_KIND or layer in divided else layer or leaf.name
        shape = tuple(sorted(flat)) if len(flat) == 2 else leaf.slot.shape if kind in KERNEL_KINDS else flat
        shapes[name] = (*shapes.get(name, ()), shape)
    return shapes


def _layer(leaf: Leaf) -> str:
    return leaf.name.rpartition(".")[0]


def _pattern(name: str) -> tuple[str, tuple[str, ...]]:
    return _NUMBER.sub("*", name), tuple(_NUMBER.findall(name))


def _patterns(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], list[str]]:
    """Return pairs of names by the numbers they share, and torch's names."""

    def shared(pair: tuple[str, str]) -> tuple[str, str]:
        (one, numbers), (other, others) = map(_pattern, pair)
        repeated = numbers and others and others == numbers * (len(others) // len(numbers))
        return (one, other) if repeated or numbers == others else pair

    groups = group_by(pairs, shared)
    return {key if len(members) > 1 else members[0]: [name for name, _ in members] for key, members in groups.items()}


def _applied(model: Model, path: str, leaf: str, side: int) -> str | None:
    """Return the order of axes in which a copy of a layer multiplies by its square matrix, else None."""
    layer = dict(model.named_sublayers(include_self=True) if side else model.named_modules()).get(path)
    if layer is None or list(layer.children()):
        return None  # what holds other layers is no matrix of its own
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
    ways = {"out, in": given @ matrix.T + bias, "in, out": given @ matrix + bias}
    fits = [  # equal but for rounding; another layout of random numbers is off by their size
        way for way, one in ways.items() if result.shape == one.shape and np.allclose(result, one, rtol=1e-3, atol=1e-3)
    ]
    return fits[0] if len(fits) == 1 else None


NEUTRAL = {"weight": 1.0, "scale": 1.0, "bias": 0.0}
"""Values of a norm's parameter without effect."""
MATRIX_KINDS = frozenset({"Linear", "Conv", "MultiheadAttention"})
"""Kinds whose matrices are ``[out, in]`` in torch's layout."""
KERNEL_KINDS = frozenset({"Conv", "ConvTranspose"})
"""Kinds whose tensors have axes of space, in an order that the layer decides: 1x7 is no 7x1."""


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
        pairs = {"matched by structure": self.by_structure, "matched by order of declaration alone": self.by_order}
        lines = [
            *(
                f"{how}: {one or '(the model)'} -> {other or '(the model)'}"
                for how, some in pairs.items()
                for one, other in some
            ),
            *(f"assumed: {text}" for text in self.assumed),
            *(f"kept: {name}: only the port has it" for name in self.kept),
            *(f"left behind: {name}: the port has none" for name in self.left),
        ]
        alike = group_by(lines, lambda line: _NUMBER.sub("*", line)).values()  # but for numbers
        return "\n".join(f"{first} (and {len(more)} more like it)" if more else first for first, *more in alike)


def match_models(
    torch_model: Model,
    paddle_model: Model,
    names: Mapping[str, str] | None = None,
    ignore: Iterable[str] = (),
    calls: Sequence[Mapping[str, int]] = ({}, {}),
) -> Match:
    """Match the tensors of a torch model with those of its Paddle port.

    Given names are not questioned: what is below a layer is matched below its partner. ``*`` stands for any name
    between dots; for the right side see `Target`. ``calls`` are
    the numbers of the layers' first calls in a run of each, by path: their order then stands for that of declaration.

    Raises:
        UnmatchedError: something could not be matched; all of it is listed, of both models.
    """
    return _Matching(torch_model, paddle_model, names or {}, ignore, calls).match()


class _Matching:
    """One pair of models on the way to a match; ``given``: the pairs of tensors that the user names."""

    def __init__(
        self,
        torch_model: Model,
        paddle_model: Model,
        names: Mapping[str, str],
        ignore: Iterable[str],
        calls: Sequence[Mapping[str, int]],
    ) -> None:
        self.models = torch_model, paddle_model
        self.names = with_ignored(names, tuple(ignore), torch_model, paddle_model)
        bad = [f"names: {one.key}: {one.message}" for one in unknown_names(self.names, torch_model, paddle_model)]
        state, seen = paddle_model.state_dict(), dict[str, str]()
        for old, new in self.names.items():
            target = Target.parse(new)
            for one in target.names if not old.startswith(NOT_IN_TORCH) and new != NOT_IN_PORT else ():
                if target.turned and one in state and sum(size != 1 for size in state[one].shape) > 2:
                    bad.append(f"names: {old} goes to {new}, and {one} {list(state[one].shape)} is no matrix")
                if one in seen:
                    bad.append(f"names: {seen[one]} and {old} both go to {one}")
                seen[one] = old
        refuse(bad)
        torch, paddle = matchable_layers(torch_model, paddle_model, self.names)
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
        tensors = torch_model.state_dict(keep_vars=True)
        self.ties = {name: first.setdefault(id(tensor), name) for name, tensor in tensors.items()}
        self.torch, self.port = torch_leaves(torch, self.names, self.ties), paddle_leaves(paddle, self.names)
        self.torch.sort(key=lambda leaf: calls[0].get(leaf.layer.path, len(calls[0])))  # those never called come last
        self.port.sort(key=lambda leaf: calls[1].get(leaf.layer.path, len(calls[1])))
        every = (slot.name for layer in torch_layers(torch_model) for slot in layer.slots)
        self.left = [name for name in every if only_in_torch(name, self.names)]
        ignored = [target for name, target in self.names.items() if name.startswith(NOT_IN_TORCH)]
        self.kept = [name for name in paddle_model.state_dict() if _scope(name, ignored)]
        self.zeros = tuple(slot for layer in paddle for slot in layer.slots if slot.fixed)
        self.assumed: list[str] = []
        given = {leaf.slot.name: leaf for leaf in self.port if leaf.slot.name in self.names}
        self.given = {leaf: given[leaf.slot.name] for leaf in self.torch if leaf.slot.name in given}

    def match(self) -> Match:
        taken = {*self.given, *self.given.values()}
        found = match_by_structure(
            [leaf for leaf in self.torch if leaf not in taken], [leaf for leaf in self.port if leaf not in taken]
        )
        # What is a constant of one side is left alone: buffers of the port's, norms' frozen 1 and 0, integers of torch's own classes.
        constant = [
            leaf
            for leaf in found.missing
            if (leaf.slot.kind == "buffer" and leaf.path[-1] not in STATISTICS)
            or (
                leaf.slot.leaf in NEUTRAL
                and all(is_fixed(one.tensor, NEUTRAL[leaf.slot.leaf]) for one in leaf.slot.parts)
            )
        ]
        self.kept += map(own_name, constant)
        found.missing = [leaf for leaf in found.missing if leaf not in constant]
        buffers = [one for one in found.unknown if one.layer.kind == OWN_KIND and one.slot.kind == "buffer"]
        constant = [leaf for leaf in buffers if is_integer(leaf.slot)]
        self.left += [leaf.slot.name for leaf in constant]
        found.unknown = [leaf for leaf in found.unknown if leaf not in constant]
        targets: dict[Leaf, Target] = {}
        problems: list[str] = []
        likely: dict[str, tuple[str, ...]] = {}
        pairs = self.given | found.pairs
        for leaf, other in pairs.items():
            layout = self._layout(leaf, other)
            if not isinstance(layout, str):
                targets[leaf] = layout
            elif not (leaf.again and other.again):  # of those, the first layers decide
                problems.append(layout)
                if len(set(squeezed(leaf.slot.shape))) == 1:
                    plain = Target(names=(own_name(other),))
                    likely[leaf.slot.name] = str(plain), str(replace(plain, turned=True))
        if problems or found.doubts or found.unknown or found.missing:
            raise self._refusal(problems, found, taken, likely)
        pairs = {leaf: other for leaf, other in pairs.items() if leaf in targets}
        names, moved = self._resolve(pairs, targets)
        slots = {
            leaf.slot.name: replace(targets[leaf].apply(pairs[leaf].slot), name=leaf.slot.name)
            for leaf in self.torch
            if leaf in pairs
        }
        first = {self.ties.get(name, name): name for name in reversed(slots)}
        others = [leaf.slot.name for leaf in self.torch if leaf.slot.name not in slots]
        return Match(
            slots=slots,
            tied={name: first[self.ties[name]] for name in others if self.ties.get(name) in first},
            zeros=self.zeros,
            names={**names, **{f"({one})": one for one in self.kept}, **dict.fromkeys(self.left, NOT_IN_PORT)},
            by_structure=moved,
            by_order=tuple(found.by_order),
            kept=tuple(self.kept),
            left=tuple(self.left),
            assumed=tuple(self.assumed),
        )

    def _refusal(
        self, problems: Sequence[str], found: Structure, taken: AbstractSet[Leaf], likely: dict[str, tuple[str, ...]]
    ) -> UnmatchedError:
        rest, packed = found, packed_candidates(found.unknown, found.missing)
        matrices = [leaf for leaf in found.missing if len(leaf.slot.shape) > 1]  # a bias goes with its matrix
        kept = packed_candidates(matrices, found.unknown)
        if packed or kept:
            taken = taken | {leaf for one, pieces, _ in packed for leaf in (one, *pieces)}
            port_holding = {one.path[:-1] for one, _, _ in kept}
            holding = {leaf.path[:-1] for _, pieces, _ in kept for leaf in pieces}
            rest = match_by_structure(
                [leaf for leaf in self.torch if leaf not in taken and leaf.path[:-1] not in holding],
                [leaf for leaf in self.port if leaf not in taken and leaf.path[:-1] not in port_holding],
            )
        for one, pieces, turned in packed:
            likely[one.slot.name] = (str(Target(names=tuple(map(own_name, pieces)), turned=turned)),)
        holders = [
            f"packed: {one.layer.path} seems to hold {', '.join(piece.layer.path for piece in pieces)} in one, "
            f"which names cannot say: keep them apart in the port, or joined in the reference"
            for one, pieces, _ in kept
        ]
        skeleton = _skeleton(_unlike(rest), likely, [leaf.name for leaf in (*self.torch, *self.port)])
        return UnmatchedError([*problems, *holders, *_problems(_unlike(rest if kept else found))], skeleton)

    def _resolve(
        self, pairs: Mapping[Leaf, Leaf], targets: Mapping[Leaf, Target]
    ) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
        """Return names of all pairs, whole layers where possible, and those that differ."""
        resolved: dict[str, str] = dict(self.names)
        moved = []
        for path, own in group_by(pairs, lambda leaf: leaf.layer.path).items():
            layers = {pairs[leaf].layer.path: pairs[leaf].layer for leaf in own}
            layer = next(iter(layers.values()))
            whole = len(layers) == 1 and len(own) == sum(not slot.fixed for slot in layer.slots)
            if whole and all(leaf.slot.leaf == pairs[leaf].slot.leaf and targets[leaf].plain for leaf in own):
                resolved[path] = layer.path
                names = {leaf.slot.name: leaf.slot.leaf for leaf in own}
                resolved |= {name: join(layer.path, one) for name, one in names.items() if name != join(path, one)}
                if path != layer.torch_path and any(leaf not in self.given for leaf in own):
                    moved.append((path, layer.path))
                continue
            for leaf in own:
                mine, its, target = leaf.slot, pairs[leaf].slot, targets[leaf]
                name = target
                if mine.name in self.names:
                    given = Target.parse(self.names[mine.name])
                    name = replace(given, turned=given.turned != target.turned, shape=target.shape or given.shape)
                elif len(its.parts) > 1:
                    name = Target(names=tuple(part.names[0] for part in its.parts))
                resolved[mine.name] = str(name)
                if leaf not in self.given and (mine.name != its.name or not target.plain):
                    moved.append((mine.name, str(target)))
        whole_walk = {layer.path for layer in paddle_layers(self.models[1], self.names)}
        if not moved and whole_walk.issuperset(leaf.layer.path for leaf in self.port):
            # Names alone tell, and no packed layer was opened.
            resolved = {old: new for old, new in resolved.items() if old != new or old in self.names}
        return resolved, tuple(moved)

    def _layout(self, leaf: Leaf, other_leaf: Leaf) -> Target | str:
        """Return how the port keeps a tensor of torch's, or why that is open."""
        layer, slot, port, its = leaf.layer, leaf.slot, other_leaf.layer, other_leaf.slot
        plain, given = Target(names=(own_name(other_leaf),)), leaf in self.given
        if slot.shape == its.shape and (len(its.parts) > 1 or given or layer.kind == port.kind != OWN_KIND):
            return plain
        flat, other = squeezed(slot.shape), squeezed(its.shape)
        kinds = {layer.kind, port.kind} - {OWN_KIND}
        matrix = len(flat) == 2 and OWN_KIND in (layer.kind, port.kind) and kinds <= MATRIX_KINDS
        turned: bool | None = flat != other
        short, long = sorted((slot.shape, its.shape), key=len)
        sizes = iter(long)  # of which the shorter shape is a part, unless axes of space are others
        across = bool(kinds & KERNEL_KINDS) and not turned and not all(size in sizes for size in short)
        mixed = len(kinds) > 1 and not kinds <= MATRIX_KINDS
        if not kinds and len(flat) != len(other) and len(its.parts) == 1:
            ways = [one for one in (False, True) if joins(flat, other[::-1] if one else other)]
            turned = next((one for one in ways if not one or len(other) == 2), None)
            if turned is not None:
                how = "transposed, and with its axes joined" if turned else "with its axes joined"
                self.assumed.append(
                    f"{slot.name} {list(slot.shape)} is {list(its.shape)} in the port: taken as the same {how}"
                )
        elif not mixed and (len(its.parts) > 1 or across or (turned and not (matrix and flat == other[::-1]))):
            turned = None
        elif matrix and flat == flat[::-1] and not given:
            turned = self._turned(leaf, other_leaf)
            if turned is None:
                return (
                    f"layout: {slot.name} {list(slot.shape)} belongs to {kind_text(layer.kind)} in torch and to "
                    f"{kind_text(port.kind)} in the port; it is square, so its shape does not show whether it must be transposed"
                )
        if turned is None:
            return f"shape: {slot.name} is {list(slot.shape)}, {plain} {list(its.shape)} in torch's layout"
        if turned and len(other) != 2:
            return f"layout: {slot.name} {list(slot.shape)} would be {plain} {list(its.shape)} transposed"
        if mixed:
            return f"layout: {slot.name} belongs to {layer.kind} in torch, {plain} to {port.kind} in the port"
        stored = its.shape[::-1] if turned else its.shape
        return replace(plain, turned=bool(turned), shape=None if slot.shape == stored else slot.shape)

    def _turned(self, leaf: Leaf, other: Leaf) -> bool | None:
        """Tell whether one square matrix is the other's transpose, None if unknown.

        What both models keep in classes of their own and do not apply as a layer is taken to be kept alike.
        """
        slot, both = leaf.slot, ((leaf.layer, leaf.slot.name), (other.layer, other.slot.parts[0].names[0]))
        ways = [
            "out, in" if one.kind != OWN_KIND else _applied(self.models[side], one.path, name.rpartition(".")[2], side)
            for side, (one, name) in enumerate(both)
        ]
        if None not in ways:
            return ways[0] != ways[1]
        if leaf.layer.kind == other.layer.kind == OWN_KIND:
            self.assumed.append(
                f"{slot.name} {list(slot.shape)} is square, and of a class of its own in both models: taken as it is"
            )
            return False
        return None


def matchable_layers(
    torch_model: Model, paddle_model: Model, names: Mapping[str, str], opened: frozenset[str] = frozenset()
) -> tuple[list[LayerTensors], list[LayerTensors]]:
    """Return both models' layers in one another's terms, without ignored ones; ``opened``: further packed layers."""
    torch, port = torch_layers(torch_model), paddle_layers(paddle_model, names, opened)
    kinds, at = {layer.kind for layer in torch}, {(layer.path, layer.kind) for layer in torch}
    single = frozenset(
        layer.path
        for layer in port
        if layer.inner
        and (layer.torch_path, layer.kind) not in at
        and (layer.kind not in kinds or any(one.path.startswith(f"{layer.torch_path}.") for one in torch))
    )
    if single:  # packed layers of Paddle for which torch has single layers
        port = paddle_layers(paddle_model, names, opened | single)
    return (
        without(torch, lambda slot: only_in_torch(slot.name, names)),
        without(port, lambda slot: slot.name.startswith(NOT_IN_TORCH)),
    )


def refuse(problems: Sequence[str]) -> None:
    """Raise one error with all problems, if there are any."""
    if problems:
        raise UnmatchedError(problems)


def torch_leaves(
    layers: Iterable[LayerTensors], names: Mapping[str, str], ties: Mapping[str, str] | None = None
) -> list[Leaf]:
    """Return the tensors of a torch model; ``ties``: the first name of the same tensor by torch's name."""
    first = ties or {}
    return [
        Leaf(layer=layer, slot=one, again=first.get(one.name, one.name) != one.name, scope=_scope(one.name, names))
        for layer in layers
        for one in layer.slots
    ]


def paddle_leaves(layers: Iterable[LayerTensors], names: Mapping[str, str]) -> list[Leaf]:
    """Return the tensors of a Paddle model, without constant zeros."""
    targets = {target.names[0]: old for old, new in names.items() if len((target := Target.parse(new)).names) == 1}
    return [
        Leaf(layer=layer, slot=slot, again=slot.again, scope=targets.get(_scope(layer.path, targets), ""))
        for layer in layers
        for slot in layer.slots
        if not slot.fixed
    ]


def _scope(path: str, names: Iterable[str]) -> str:
    """Return the innermost layer at or above ``path``; "" is the model."""
    return max((one for one in names if path == one or path.startswith(f"{one}.")), key=len, default="")


def own_name(leaf: Leaf) -> str:
    """Return the port's name of a tensor below its layer."""
    names, path = leaf.slot.parts[0].names, leaf.layer.path
    return next((name for name in names if not path or name.startswith(f"{path}.")), names[0])
