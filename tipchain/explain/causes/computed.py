"""Where the plain code that computes a constant parts from the reference's: in a layer's forward, or in its constructor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from tipchain.explain.causes.hypotheses import NO_LINES, Lines
from tipchain.explain.causes.piece import Piece
from tipchain.explain.causes.program import is_plain, signature_of
from tipchain.explain.causes.statements import CodeRun, explain_programs
from tipchain.explain.findings import SourceLine
from tipchain.explain.locate.rerun import drawn_again
from tipchain.framework_types import Array, Function, Model
from tipchain.frameworks.live_models import LiveSide
from tipchain.weights.sides import join

MOST_ELEMENTS = 1 << 27
"""Elements of the parameters of a layer that is constructed again: 512 MiB in float32."""


def where_computed(piece: Piece, models: tuple[Model, Model] | None, ends: tuple[Array, Array]) -> tuple[Lines, str]:
    """Return the statements with which both sides part on the way to a constant, and their values; no lines where nothing tells.

    Where the reference's code makes it within a statement, the port's statement that computes its own is returned.

    Args:
        piece: both layers, opened.
        models: both models, whose constructors are run once more; None: they are not.
        ends: the reference's constant and the port's, which differ.
    """
    ours, theirs = (_recorded(piece, number, models) for number in (0, 1))
    told = explain_programs((ours, theirs), ends, piece.theirs.path, "both codes part")
    if told is not None:
        return Lines(*map(_read, (told.place, told.reference_place))), told.message
    alone = theirs.computing(ends[1])
    return (NO_LINES, "") if alone is None else (Lines(_read(alone.place)), f"the port computes it in {alone}")


def _read(line: SourceLine | None) -> SourceLine | None:
    """Return a statement's line as it stands in its file."""
    return None if line is None else SourceLine.at(line.file, line.line)


def _recorded(piece: Piece, number: int, models: tuple[Model, Model] | None) -> CodeRun:
    """Construct a side's layer, run it, and return the record of its code."""
    side, layer = piece.sides[number], (piece.reference, piece.port)[number]
    program = None if models is None else _constructed(side, models[number], (piece.ours, piece.theirs)[number].path)
    program = CodeRun((side,)) if program is None or program.full else program
    draws = None if number else drawn_again(piece.ours.call, piece.seed)
    with suppress(Exception):  # code that cannot be watched runs otherwise; what was seen of it may tell
        piece.again(number, lambda *args, **kwargs: program.run(partial(layer, *args, **kwargs)), draws)
    return program


def _constructed(side: LiveSide, model: Model, path: str) -> CodeRun | None:
    """Record the constructor of a model, or of the outermost layer towards a path that can be made again as it is."""
    layers, around = dict(side.layers(model)), [""]
    for name in filter(None, path.split(".")):
        around.append(join(around[-1], name))
    for layer in (model, *(layers[one] for one in around[1:] if one in layers)):
        kind: Function = type(layer)
        sizes = sum(int(one.numel()) for _, one in side.parameters(layer))
        if kind.__module__.partition(".")[0] == side.name or sizes > MOST_ELEMENTS:
            continue
        for arguments in _arguments(layer):
            program = CodeRun((side,))
            try:
                with side.framework.undrawn():
                    made = program.run(partial(kind, **arguments))
                if _alike(side, layer, made):
                    return program
            except Exception:  # noqa: BLE001, S112  (a constructor that takes no such arguments)
                continue
    return None


def _arguments(layer: Model) -> Iterator[dict[str, object]]:
    """Yield arguments that a layer's constructor may have been given: those that the layer keeps by name, or its defaults."""
    parameters = signature_of(type(layer)).values()
    kept = {one.name: vars(layer)[one.name] for one in parameters if one.name in vars(layer)}
    variadic = (one.name for one in parameters if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD))
    needed = {one.name for one in parameters if one.default is one.empty} - {*variadic}
    if needed <= kept.keys():
        yield kept
        if kept.keys() > needed:
            yield {name: kept[name] for name in needed}


def _alike(side: LiveSide, layer: Model, made: Model) -> bool:
    """Tell whether two models have the same layers, with the same plain attributes and shapes of parameters."""
    both = [
        [
            (
                path,
                type(one),
                {name: value for name, value in vars(one).items() if name != "training" and _counts(value)},
            )
            for path, one in side.layers(model)
        ]
        for model in (layer, made)
    ]
    shapes = [[(name, tuple(one.shape)) for name, one in side.parameters(model)] for model in (layer, made)]
    return both[0] == both[1] and shapes[0] == shapes[1]


def _counts(value: object) -> bool:
    return is_plain(value) and not isinstance(value, str)
