"""How a match of two models is told to a reader, and how a refusal is: what is wrong first, and names that can be pasted."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.errors import WeightsError, did_you_mean
from tipchain.language import in_rows
from tipchain.layer_types import OWN_KIND
from tipchain.weights.structure import Leaf, Structure, squeezed

if TYPE_CHECKING:
    from tipchain.weights.matching import Match

WIDTH = 80
"""Columns of a refusal, as a terminal has them."""
LINES = 30
"""Lines of a refusal: what fits on a screen beside the command."""
_NUMBER = re.compile(r"(?<![\w/-])\d+(?![\w/-])")
SHOWN = 8
"""Lines of a refusal that say what is wrong; one a kind of problem, and there are fewer kinds."""


class UnmatchedError(WeightsError):
    """Two models that do not belong together.

    Attributes:
        problems: all that is wrong, one line each.
        skeleton: a start for ``names:`` and ``ignore:``, lines of YAML with candidates.
    """

    def __init__(
        self,
        problems: Sequence[str],
        file: Path | None = None,
        structure: Structure | None = None,
        skeleton: Sequence[str] = (),
        likely: Mapping[str, tuple[str, tuple[str, ...]]] | None = None,
        in_full: bool = False,
    ) -> None:
        structure = None if structure is None else _unlike(structure)
        found = [] if structure is None else list(_problems(structure))
        self.problems = (*problems, *found)
        self.skeleton = tuple(skeleton) if structure is None else tuple(_skeleton(structure, likely or {}))
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

    def at(self, file: Path) -> UnmatchedError:
        """Return the same refusal, of a file."""
        return UnmatchedError(self.problems, file, skeleton=self.skeleton)

    def in_full(self) -> UnmatchedError:
        """Return the same refusal with all that is wrong, whatever lines that takes."""
        file = None if self.file is None else Path(self.file)
        return UnmatchedError(self.problems, file, skeleton=self.skeleton, in_full=True)

    def after(self, problems: Sequence[str]) -> UnmatchedError:
        """Return the same refusal with other problems before its own."""
        return UnmatchedError([*problems, *self.problems], skeleton=self.skeleton)


def kind_text(kind: str) -> str:
    """Return what a message calls a kind of layer."""
    return "a class of its own" if kind == OWN_KIND else kind


def near_hint(name: str, names: Sequence[str]) -> str:
    """Return a hint at a name that is close, of a tensor or of a layer."""
    layers = {one.rpartition(".")[0] for one in names}
    hint = did_you_mean(name, (*names, *sorted(layers - {""})))
    return f", {hint}" if hint else ""


def _unlike(found: Structure) -> Structure:
    """Return what could not be matched, less tensors that have equal names, kinds and shapes on both sides.

    They are left over where their container has something that the other one lacks, and are no fault of theirs.
    """
    ours, theirs = ({(one.path, one.kind, one.shape) for one in side} for side in (found.unknown, found.missing))
    both = ours & theirs
    left = [
        [one for one in side if (one.path, one.kind, one.shape) not in both] for side in (found.unknown, found.missing)
    ]
    return replace(found, unknown=left[0], missing=left[1]) if any(left) or found.doubts else found


def _problems(found: Structure) -> Iterator[str]:
    """Yield what is wrong, what is certainly so before what may be a consequence."""
    twins = {(leaf.path, leaf.kind): leaf for leaf in found.missing}
    reshaped = {leaf: twins[key] for leaf in found.unknown if (key := (leaf.path, leaf.kind)) in twins}
    for leaf, twin in reshaped.items():
        yield f"shape: {leaf.text} is {list(twin.shape)} in the port, in torch's layout"
    yield from (f"missing: {leaf.text}" for leaf in found.missing if leaf not in reshaped.values())
    yield from (f"unknown: {leaf.text}" for leaf in found.unknown if leaf not in reshaped)
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


def _skeleton(found: Structure, likely: Mapping[str, tuple[str, tuple[str, ...]]]) -> Iterator[str]:
    """Yield YAML that settles what is open, as good as can be told: what order says, what has the same shape."""
    entries: dict[str, tuple[str, tuple[str, ...]]] = dict(likely)
    for doubt in found.doubts:
        for name, port in zip(doubt.expected, doubt.actual, strict=False):
            entries[name] = port, tuple(one for one in doubt.actual if one != port)
    opened = [{_layer(leaf) for leaf in leaves} for leaves in (found.unknown, found.missing)]
    layers = [(_layer(pair.expected), _layer(pair.actual)) for pair in found.pairs]
    ours = _whole_layers(found.unknown, {one for one, other in layers if other not in opened[1]})
    theirs = _whole_layers(found.missing, {other for one, other in layers if one not in opened[0]})
    free = dict(theirs)
    alone = []
    for name, shapes in ours.items():
        candidates = [port for port, other in free.items() if other == shapes]
        if candidates:
            entries[name] = candidates[0], tuple(candidates[1:])
            del free[candidates[0]]
        else:
            alone.append(name)
    ignored = [*alone, *free]
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
    if ignored:
        yield "  ignore:"
        shorts = {name: _pattern(name)[0] for name in ignored}
        counts = Counter(shorts.values())
        shown = (short if counts[short] > 1 and re.search(r"\w", short) else name for name, short in shorts.items())
        yield from (f"    - {_yaml(name)}" for name in dict.fromkeys(shown))


def _yaml(name: str) -> str:
    """Return a name as YAML reads it as text."""
    return name if re.fullmatch(r"[A-Za-z_(][^:#]*", name) else f'"{name}"'


def _whole_layers(leaves: Iterable[Leaf], divided: Container[str]) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Return the layers that some leaves are of, with the shapes of the leaves.

    A tensor of a user's own class is one; so is one of a layer that is ``divided``: others of it have been matched.
    """
    found: dict[str, tuple[tuple[int, ...], ...]] = {}
    for leaf in leaves:
        layer = _layer(leaf)
        name = leaf.name if leaf.kind == OWN_KIND or layer in divided else layer or leaf.name
        flat = squeezed(leaf.shape)
        shape = tuple(sorted(flat)) if len(flat) == 2 else flat
        found[name] = (*found.get(name, ()), shape)
    return found


def _layer(leaf: Leaf) -> str:
    return leaf.name.rpartition(".")[0]


def _pattern(name: str) -> tuple[str, tuple[str, ...]]:
    """Return a name with ``*`` for the numbers that stand for layers, and these."""
    return _NUMBER.sub("*", name), tuple(_NUMBER.findall(name))


def _patterns(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], list[str]]:
    """Return pairs of names, those that differ in the same numbers as one; and torch's names of each."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, port in pairs:
        (one, numbers), (other, others) = _pattern(name), _pattern(port)
        repeated = numbers and others and others == numbers * (len(others) // len(numbers))
        key = (one, other) if repeated or numbers == others else (name, port)
        found.setdefault(key, []).append(name)
    return {
        (key if len(names) > 1 else (names[0], _filled(key[1], _pattern(names[0])[1]))): names
        for key, names in found.items()
    }


def _filled(pattern: str, numbers: Sequence[str]) -> str:
    left = itertools.cycle(numbers)
    return re.sub(r"\*", lambda _: next(left), pattern) if numbers else pattern


def describe_match(match: Match) -> list[str]:
    """Return what was decided without names, what was taken for granted, and what was left alone, one line each."""
    return [
        *_counted("matched by structure", match.by_structure),
        *_counted("matched by order of declaration alone", match.by_order),
        *(f"assumed: {text}" for text in _alike(match.assumed)),
        *(f"kept: {text}: only the port has it" for text in _grouped(match.kept)),
        *(f"left behind: {text}: the port has none" for text in _grouped(match.left)),
    ]


def _counted(what: str, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return a line for each pair, or for all that differ in numbers alone."""
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for one, other in pairs:
        groups.setdefault((_pattern(one)[0], _pattern(other)[0]), []).append((one, other))
    lines = []
    for key, members in groups.items():
        same = all(_pattern(one)[1] == _pattern(other)[1] for one, other in members)
        one, other = key if same and len(members) > 1 else members[0]
        more = (
            ""
            if len(members) == 1
            else f" ({len(members)} times)"
            if same
            else f" (and {len(members) - 1} more like it)"
        )
        lines.append(f"{what}: {one or '(the model)'} -> {other or '(the model)'}{more}")
    return lines


def _alike(sentences: Iterable[str]) -> Iterator[str]:
    """Yield sentences that begin with a name, those once that differ in the numbers of the name alone."""
    groups: dict[tuple[str, str], list[str]] = {}
    for text in sentences:
        name, _, rest = text.partition(" ")
        groups.setdefault((_pattern(name)[0], rest), []).append(text)
    for (name, rest), members in groups.items():
        yield members[0] if len(members) == 1 else f"{name} {rest} ({len(members)} times)"


def _grouped(names: Iterable[str]) -> list[str]:
    counts = Counter(_pattern(name)[0] for name in names)
    firsts = {_pattern(name)[0]: name for name in reversed(list(names))}
    return [f"{one} ({count} times)" if count > 1 else firsts[one] for one, count in counts.items()]
