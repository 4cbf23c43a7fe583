"""Settings of layers as causes, and differences of Paddle's kernels from torch's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from inspect import signature
from types import ModuleType

from tipchain.explain.causes.hypotheses import Hypothesis, below, class_of, lines_of, place_of, same_setting
from tipchain.explain.causes.piece import Piece
from tipchain.explain.causes.program import LAYER, Op
from tipchain.explain.findings import CONSTRUCTED, Diagnosis
from tipchain.facts.functions import OTHERWISE, OtherMeaning
from tipchain.facts.layers import kind_of, named_kind
from tipchain.facts.settings import UNTOLD, Trait, ntuple, same, tidy
from tipchain.framework_types import Function, Model, Nested, Options, Setting
from tipchain.frameworks.randomness import attributes


def by_findings(piece: Piece, ops: Sequence[Op], findings: Sequence[Diagnosis]) -> Iterator[Hypothesis]:
    """Yield each layer of the piece that is constructed otherwise, with the reference's settings."""
    layers, port_layers = dict(piece.sides.reference.layers(piece.reference)), dict(piece.sides.port.layers(piece.port))
    for finding in findings:
        ours, theirs = below(finding.reference_path, piece.ours.path), below(finding.port_path, piece.theirs.path)
        if finding.code == "parameter" or ours not in layers or theirs not in port_layers:
            continue
        reference, layer = layers[ours], port_layers[theirs]
        calls = [op for op in ops if op.name == LAYER and op.path == theirs]
        try:
            found = list(_applied(finding, reference, layer, calls, piece))
        except (AttributeError, TypeError, ValueError):  # a user's own class keeps its settings in another way
            continue
        told: Options = {"fix": finding.fix, "code_edit": finding.edit, "place": theirs}
        yield from (replace(one, evidence=CONSTRUCTED, confirmed=True, **told) for one in found)


def _applied(
    finding: Diagnosis, reference: Model, layer: Model, calls: Sequence[Op], piece: Piece
) -> Iterator[Hypothesis]:
    """Yield the port's layer with the setting that a finding is about."""
    if finding.name == "mode":
        wanted, present = ("train", "eval") if reference.training else ("eval", "train")
        yield Hypothesis(
            code="setting",
            name="mode",
            message=f"it is in {present} mode, the reference is in {wanted} mode",
            within=partial(attributes, layer, training=reference.training),
        )
        return
    ours = kind_of(reference, 0)
    if finding.name == "layer-type" and ours is not None:
        made = getattr(piece.paddle.nn, ours.classes[1][0])()
        for trait in ours.properties:
            for value in _reference_values(made, reference, trait):
                setattr(made, _attribute(made, trait), value)
        yield Hypothesis(
            code="structure",
            name=finding.name,
            message=f"it is a `{class_of(layer)}`, the reference's a `{type(reference).__name__}`",
            acts=dict.fromkeys((op.number for op in calls), lambda _original, args, _kwargs: made(args[0])),
        )
        return
    for argument, port_value, value, changes in reference_settings(finding.name, reference, layer, piece.paddle.nn):
        yield Hypothesis(
            code="argument",
            name=finding.name,
            message=f"its `{argument}` is {port_value!r}, the reference's {tidy(value)!r}",
            within=partial(attributes, layer, **changes),
        )


def reference_settings(
    code: str, reference: Model, layer: Model, nn: ModuleType
) -> Iterator[tuple[str, object, object, Options]]:
    """Yield a setting of Paddle's layer that is not the reference's: argument, both values, the attributes to change."""
    kind = named_kind(layer)
    for trait in kind.properties if kind is not None else ():
        attribute = _attribute(layer, trait)
        if trait.code != code or not attribute:
            continue
        for value in _reference_values(layer, reference, trait):
            present, changes = getattr(layer, attribute), _changes(layer, attribute, value, nn)
            if changes and not same_setting(value, present):
                yield trait.argument, present, value, changes


def _attribute(layer: Model, trait: Trait) -> str:
    return next((name for name in trait.attributes[1] if hasattr(layer, name)), "")


def _reference_values(layer: object, reference: object, trait: Trait) -> Iterator[object]:
    """Yield the reference's setting as Paddle writes it, where it is told and another one than the port's."""
    with suppress(AttributeError, TypeError, ValueError):  # a user's own class, or another kind of layer
        ours, theirs = (read(one, None) for read, one in zip(trait.readers, (reference, layer), strict=True))
        if UNTOLD not in (ours, theirs) and not same(ours, theirs, trait.slack):
            yield trait.write(ours)


CONVOLUTION = (
    "_stride _padding _updated_padding _padding_algorithm _dilation _groups _padding_mode output_padding "
    "_reversed_padding_repeated_twice"
).split()
"""Attributes that a convolution of Paddle's computes from its arguments."""


def _changes(layer: Model, attribute: str, value: Setting, nn: ModuleType) -> Options:
    """Return the attributes of a layer that change where one of them has another value."""
    if attribute == "num_heads":
        return {attribute: value, "head_dim": layer.embed_dim // value}
    kind, name = class_of(layer), attribute.removeprefix("_")
    if not kind.startswith("Conv"):
        return {attribute: value}
    own = ("output_padding", "output_padding") if "Transpose" in kind else ("padding_mode", "_padding_mode")
    places = {"stride": "_stride", "padding": "_padding", "dilation": "_dilation", "groups": "_groups", own[0]: own[1]}
    if name not in places:
        return {}
    kernel = list(layer._kernel_size)  # noqa: SLF001
    arguments = {one: getattr(layer, place) for one, place in places.items()}
    arguments[name] = value if isinstance(value, int | str) else list(ntuple(value, len(kernel)))
    channels, layout = (layer._in_channels, layer._out_channels), layer._data_format  # noqa: SLF001
    made = vars(getattr(nn, kind)(*channels, kernel, data_format=layout, bias_attr=False, **arguments))
    return {key: new for key in CONVOLUTION if (new := made.get(key)) != vars(layer).get(key)}


# What Paddle computes otherwise.


def by_meaning(piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Replace Paddle's calls by torch's meaning of the same name, all calls of a statement at once."""
    found: dict[tuple[str, str], list[tuple[Op, OtherMeaning, dict[str, Setting]]]] = {}
    for op in ops:
        kind = type(op.layer).__name__ if op.name == LAYER else op.name
        known = OTHERWISE.get(kind.lower().replace("_", "").removesuffix("loss"))
        if known is None:
            continue
        with suppress(AttributeError, KeyError, TypeError, ValueError):  # called in another way than the row says
            given = _given(op)
            if known.compute(piece.paddle, given, op.result) is not None:
                found.setdefault((kind, op.place), []).append((op, known, given))
    for (kind, _), several in found.items():
        op, known, given = several[0]
        where = place_of(op, piece)
        yield Hypothesis(
            code="argument" if known.argument else "function",
            name=known.argument or kind,
            calls=len(several),
            acts={one.number: partial(_as_torch, piece.paddle, known, one) for one, _, _ in several},
            confirmed=True,
            message=f"Paddle's `{kind}`{where} {known.words}",
            fix=f"write `{known.write.format(**given)}` for `{kind}`{where}",
            lines=lines_of(op),
            place=op.path if op.name == LAYER else None,
        )


def _given(op: Op, args: Sequence[Nested] | None = None, kwargs: Options | None = None) -> dict[str, Setting]:
    """Return a call's arguments by name, with defaults; of a layer its settings, too."""
    kept = {} if op.name != LAYER else {name.lstrip("_"): value for name, value in vars(op.layer).items()}
    bound = signature(op.layer.forward if op.name == LAYER else op.function).bind(
        *(args or op.args), **(kwargs or op.kwargs)
    )
    bound.apply_defaults()
    return {**kept, **bound.arguments}


def _as_torch(
    paddle: ModuleType, known: OtherMeaning, op: Op, original: Function, args: tuple[Nested, ...], kwargs: Options
) -> Nested:
    result = original(*args, **kwargs)
    made = known.compute(paddle, _given(op, args, kwargs), result)
    return result if made is None else made
