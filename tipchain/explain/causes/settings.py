"""Settings of layers as causes, and what Paddle's kernels do otherwise than torch's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import ModuleType

from tipchain.explain.causes.hypotheses import Hypothesis, below, class_of, place_of, same_setting, together
from tipchain.explain.causes.piece import Piece
from tipchain.explain.causes.program import LAYER, Op, instead, then
from tipchain.explain.findings import CONSTRUCTED, Finding
from tipchain.explain.preflight.kinds import kind_of, named_kind
from tipchain.explain.preflight.table import UNTOLD, Trait, ntuple, same, tidy
from tipchain.framework_types import Model, Tensor
from tipchain.frameworks.randomness import attributes
from tipchain.numbers.tolerance import LOGIT_FLOOR


def by_findings(piece: Piece, ops: Sequence[Op], findings: Sequence[Finding]) -> Iterator[Hypothesis]:
    """Yield each layer of the piece that is constructed otherwise, with the reference's settings; then all of them."""
    layers, port_layers = dict(piece.sides.reference.layers(piece.reference)), dict(piece.sides.port.layers(piece.port))
    tried: list[Hypothesis] = []
    for finding in findings:
        ours, theirs = below(finding.reference_path, piece.ours.path), below(finding.port_path, piece.theirs.path)
        if finding.kind not in ("argument", "flag") or ours not in layers or theirs not in port_layers:
            continue
        reference, layer = layers[ours], port_layers[theirs]
        calls = [op for op in ops if op.name == LAYER and op.path == theirs]
        try:
            found = list(_applied(finding, reference, layer, calls, piece))
        except (AttributeError, TypeError, ValueError):  # a user's own class keeps its settings in another way
            continue
        tried += [replace(one, fix=finding.fix, evidence=CONSTRUCTED, place=theirs, confirmed=True) for one in found]
    yield from tried
    if len(tried) > 1:
        yield replace(together(tried), evidence=CONSTRUCTED)


def _applied(
    finding: Finding, reference: Model, layer: Model, calls: Sequence[Op], piece: Piece
) -> Iterator[Hypothesis]:
    """Yield the port's layer with the setting that a finding is about."""
    if finding.code == "mode":
        wanted, present = ("train", "eval") if reference.training else ("eval", "train")
        yield Hypothesis(
            code="setting",
            name="mode",
            message=f"it is in {present} mode, the reference is in {wanted} mode",
            fix=finding.fix,
            within=partial(attributes, layer, training=reference.training),
        )
        return
    ours, theirs = kind_of(reference, 0), named_kind(layer)
    if finding.code == "layer-type" and ours is not None:
        made = getattr(piece.paddle.nn, ours.classes[1][0])()
        for trait in ours.properties:
            for value in _reference_values(made, reference, trait):
                setattr(made, _attribute(made, trait), value)
        yield Hypothesis(
            code="structure",
            name=finding.code,
            message=f"it is a `{class_of(layer)}`, the reference's a `{type(reference).__name__}`",
            fix=finding.fix,
            acts={op.number: instead(made) for op in calls},
        )
        return
    if hasattr(layer, "_kernel_size") and class_of(layer).startswith("Conv"):
        yield from _convolved(finding, reference, layer, piece)
        return
    for trait in theirs.properties if theirs is not None else ():
        attribute = _attribute(layer, trait)
        if trait.code != finding.code or not attribute:
            continue
        for value in _reference_values(layer, reference, trait):
            present, changes = getattr(layer, attribute), {attribute: value}
            if attribute == "num_heads":
                changes["head_dim"] = layer.embed_dim // value
            if not same_setting(value, present):
                yield Hypothesis(
                    code="argument",
                    name=trait.code,
                    message=f"its `{trait.argument}` is {present!r}, the reference's {value!r}",
                    fix=finding.fix,
                    within=partial(attributes, layer, **changes),
                )


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


def _convolved(finding: Finding, reference: Model, layer: Model, piece: Piece) -> Iterator[Hypothesis]:
    """Yield a convolution with one of the reference's arguments."""
    known, dims = named_kind(layer), len(layer._kernel_size)  # noqa: SLF001
    names = ("stride", "padding", "dilation", "groups", "padding_mode")
    present = {name: getattr(layer, f"_{name}") for name in names}
    if "Transpose" in class_of(layer):
        present = {**present, "output_padding": layer.output_padding}
        del present["padding_mode"]
    for trait in known.properties if known is not None else ():
        name = trait.argument
        if trait.code != finding.code or name not in present:
            continue
        for value in _reference_values(layer, reference, trait):
            wanted = value if isinstance(value, int | str) else list(ntuple(value, dims))
            made = getattr(piece.paddle.nn, class_of(layer))(
                layer._in_channels,  # noqa: SLF001
                layer._out_channels,  # noqa: SLF001
                list(layer._kernel_size),  # noqa: SLF001
                data_format=layer._data_format,  # noqa: SLF001
                bias_attr=False,
                **{**present, name: wanted},
            )
            both = [(key, vars(layer).get(key), vars(made).get(key)) for key in CONVOLUTION]
            yield Hypothesis(
                code="argument",
                name=finding.code,
                message=f"its `{name}` is {present[name]!r}, the reference's {tidy(value)!r}",
                fix=finding.fix,
                within=partial(attributes, layer, **{key: new for key, old, new in both if old != new}),
            )


# What Paddle computes otherwise.


def by_floor(piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield `log_softmax` as torch computes it, where Paddle's stops at `LOGIT_FLOOR` below the largest."""
    for op in ops:
        kind = type(op.layer).__name__ if op.name == LAYER else op.name
        given = piece.floats(op.args[:1])
        if kind.lower().replace("_", "") != "logsoftmax" or not given:
            continue
        axis = op.kwargs.get("axis", op.args[1] if len(op.args) > 1 else getattr(op.layer, "_axis", -1))
        axis = -1 if axis is None else axis
        if float((given[0].max(axis=axis) - given[0].min(axis=axis)).max()) <= LOGIT_FLOOR:
            continue
        exact = f"x - paddle.logsumexp(x, axis={axis}, keepdim=True)"
        yield Hypothesis(
            code="function",
            name=kind,
            acts={op.number: instead(partial(_log_softmax, piece.paddle, axis))},
            confirmed=True,
            message=f"Paddle's `{kind}`{place_of(op, piece)} takes inputs more than {LOGIT_FLOOR:g} below the largest for "
            f"{LOGIT_FLOOR:g} below, torch's takes them as they are",
            fix=f"write `{exact}` for `{kind}`{place_of(op, piece)}",
            place=op.path if op.name == LAYER else None,
        )


def by_ignored(piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield a mean cross entropy without what it ignores: Paddle's divides by all labels where `ignore_index` is negative (3.3.1)."""
    for op in ops:
        kind = type(op.layer).__name__ if op.name == LAYER else op.name
        if kind.lower().replace("_", "").removesuffix("loss") != "crossentropy":
            continue
        usual = {"label": None, "weight": None, "ignore_index": -100, "reduction": "mean"}
        order = ("input", "label") if op.name == LAYER else ("input", *usual)
        given = {**usual, **op.kwargs, **dict(zip(order, op.args, strict=False))}
        if op.name == LAYER:
            given |= {name: getattr(op.layer, name) for name in ("weight", "ignore_index", "reduction")}
        labels, ignored = given["label"], given["ignore_index"]
        if given["reduction"] != "mean" or given["weight"] is not None or ignored >= 0 or labels.is_floating_point():
            continue
        kept = int((labels != ignored).sum())
        if not 0 < kept < labels.size:
            continue
        where = place_of(op, piece)
        yield Hypothesis(
            code="argument",
            name="ignore_index",
            acts={op.number: then(partial(_scaled, labels.size / kept))},
            confirmed=True,
            message=f"Paddle's `{kind}`{where} divides by all {labels.size} labels where `ignore_index` is negative, "
            f"torch's by the {kept} that are not {ignored}",
            fix=f"sum in `{kind}`{where} with `reduction='sum'`, and divide by the number of labels that are not {ignored}",
            place=op.path if op.name == LAYER else None,
        )


def _scaled(factor: float, x: Tensor) -> Tensor:
    return x * factor


def _log_softmax(paddle: ModuleType, axis: int, x: Tensor) -> Tensor:
    return x - paddle.logsumexp(x, axis=axis, keepdim=True)
