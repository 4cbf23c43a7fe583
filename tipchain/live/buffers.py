"""What one call leaves in the buffers of both models: moving averages, counters, codebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tipchain.errors import WeightsError
from tipchain.explain.findings import Diagnosis
from tipchain.explain.locate.differences import relative
from tipchain.explain.locate.locate import Located
from tipchain.explain.locate.runs import ModelInputs, TracedRun, bind, buffers_of, call_model
from tipchain.explain.locate.sides import LiveSide, Sides
from tipchain.explain.locate.verdicts import Closeness, LayerVerdict
from tipchain.framework_types import Array
from tipchain.numbers.tolerance import SAME_SINGLE, TINY
from tipchain.weights.matching import match_models


@dataclass(frozen=True, slots=True)
class _Called:
    """The buffers of one model before and after a call, by torch's names and in torch's layout."""

    before: Mapping[str, Array]
    after: Mapping[str, Array]

    def moved(self, name: str) -> bool:
        """Tell whether the call changed a buffer."""
        return not np.array_equal(self.before[name], self.after[name])

    def renamed(self, names: Mapping[str, str]) -> _Called:
        """Return it under other names."""
        before, after = (
            {names.get(name, name): one for name, one in held.items()} for held in (self.before, self.after)
        )
        return _Called(before, after)


def check_buffers(
    sides: Sides,
    models: tuple[object, object],
    inputs: ModelInputs,
    names: Mapping[str, str],
    located: Located,
    limit: float,
) -> tuple[list[LayerVerdict], list[Diagnosis]]:
    """Call both models once and compare the buffers that the call changes; those of the frameworks' norms are left out.

    Args:
        sides: torch's and Paddle's.
        models: float64 copies, which are changed.
        inputs: what they are called with.
        names: Paddle's name by torch's where names and structure cannot tell.
        located: what the models' runs told; its random numbers are drawn again.
        limit: the relative difference in float64 up to which buffers are the same.

    Returns:
        A verdict about each layer with a buffer that differs, and a cause for each.
    """
    match = _names(models, names)
    ours = _called(sides.reference, models[0], inputs, located.reference, match)
    theirs = _called(sides.port, models[1], inputs, located.port, match)
    theirs = theirs.renamed(_by_values(ours, theirs, located, limit))
    paths = {pair.reference.path: pair.port.path for pair in located.matching.pairs}
    layers = [dict(side.layers(model)) for side, model in zip(sides, models, strict=True)]
    verdicts: dict[str, LayerVerdict] = {}
    causes: list[Diagnosis] = []
    both = [name for name in ours.after if name in theirs.after]
    off = {name: apart for name in both if (apart := _apart(ours, theirs, name, limit)) is not None}
    whys = {name: _why(name, ours, theirs, [one for one in both if one not in off]) for name in off}
    # What has a name is told first, then what only one side moves, then what is declared first.
    for name in sorted(off, key=lambda one: (not whys[one][0], ours.moved(one) == theirs.moved(one))):
        apart = off[name]
        path, _, leaf = name.rpartition(".")
        port = match.get(path, paths.get(path, path))
        if port in verdicts:
            continue
        told = f"after one call its buffer `{leaf}` differs: relative {apart:.3g} in float64"
        if ours.moved(name) != theirs.moved(name):
            stays = (
                "one call changes its buffer `{}`, the reference's stays"
                if theirs.moved(name)
                else "one call leaves its buffer `{}` as it is, the reference's changes"
            )
            told = stays.format(leaf)
        layer = layers[1].get(port)
        shown = f"`{port}`" if port else "the model"
        verdicts[port] = LayerVerdict(
            reference_path=path,
            port_path=port,
            reference_type=type(layers[0].get(path)).__name__,
            port_type=type(layer).__name__,
            turn=0,
            direction="forward",
            inherited=0.0,
            own=apart,
            ratio=None,
            closeness=Closeness.DIFFERS,
            method="float64",
            reason=told,
        )
        mode = "train" if getattr(layer, "training", False) else "eval"
        why, code = whys[name][1], whys[name][0] or "buffer-update"
        causes.append(
            Diagnosis(
                code=code,
                port_path=port,
                message=f"{shown}: {told}{f': {why}' if why else ''}; both are in {mode} mode",
                evidence="the outputs of this call agree; those of later calls need not",
                fix=f"update `{leaf}` of {shown} in {mode} mode as the reference does",
            )
        )
    return list(verdicts.values()), causes


def _apart(ours: _Called, theirs: _Called, name: str, limit: float) -> float | None:
    """Return how far a buffer is apart that a call changed; None if it is the same, or was another one before."""
    one, other = ours.after[name], theirs.after[name]
    if one.shape != other.shape or not (ours.moved(name) or theirs.moved(name)):
        return None
    if relative(ours.before[name], theirs.before[name]) > limit:
        return None  # the preflight tells that
    apart = relative(one, other)
    return None if apart <= limit else apart


def _why(name: str, ours: _Called, theirs: _Called, agreeing: Sequence[str]) -> tuple[str, str]:
    """Return the slug and words of why a buffer is left otherwise; empty where it does not show.

    Args:
        name: torch's name.
        ours: the reference's buffers.
        theirs: the port's, by the same names.
        agreeing: names of those that are left alike.
    """
    if not (ours.moved(name) and theirs.moved(name)):
        return "", ""
    layer = name.rpartition(".")[0]
    twin = next(
        (
            one
            for one in theirs.after
            if one != name
            and one in ours.after
            and one.rpartition(".")[0] == layer
            and theirs.moved(one)
            and np.array_equal(theirs.after[one], theirs.after[name])
            and not np.array_equal(ours.after[one], ours.after[name])
        ),
        None,
    )
    if twin is not None:
        return (
            "shared-buffer",
            f"it is always equal to `{twin.rpartition('.')[2]}`: both names are one tensor, a copy (`clone`) is missing",
        )
    steps = [held.after[name] - ours.before[name] for held in (ours, theirs)]
    factor = float((steps[0] * steps[1]).sum() / max(float((steps[0] ** 2).sum()), TINY))
    if factor and relative(steps[1], factor * steps[0]) <= SAME_SINGLE:
        return "buffer-momentum", (
            f"it moves {factor:.6g} times as far as the reference's: its decay (momentum) is another one, or is taken for its complement"
        )
    beside = [one.rpartition(".")[2] for one in agreeing if one.rpartition(".")[0] == layer and theirs.moved(one)]
    if beside:
        return (
            "",
            f"{', '.join(f'`{one}`' for one in beside)}, which the call changes too, {'agrees' if len(beside) == 1 else 'agree'}: what is made of them differs (a division, its smoothing or epsilon)",
        )
    return "", ""


def _by_values(ours: _Called, theirs: _Called, located: Located, limit: float) -> dict[str, str]:
    """Return torch's names by the port's of buffers that names do not pair: those of paired layers that start with equal values.

    Of several that start equal, those belong together that end closest, so that no order of theirs is held against the port.
    """
    found: dict[str, str] = {}
    for pair in located.matching.pairs:
        own = [
            [name for name in held.after if name not in other.after and name.rpartition(".")[0] == path]
            for held, other, path in ((ours, theirs, pair.reference.path), (theirs, ours, pair.port.path))
        ]
        ends = sorted(
            (relative(ours.after[one], theirs.after[other]), one, other)
            for one in own[0]
            for other in own[1]
            if ours.before[one].shape == theirs.before[other].shape
            and relative(ours.before[one], theirs.before[other]) <= limit
        )
        for _, one, other in ends:
            if other not in found and one not in found.values():
                found[other] = one
    return found


def _called(side: LiveSide, model: object, inputs: ModelInputs, run: TracedRun, match: Mapping[str, str]) -> _Called:
    before = _held(side, model, match)
    with side.precision(double=True), side.randomness(run.draws.again()), side.recording(gradient=False):
        call_model(side, model, bind(model, inputs), double=True)
    return _Called(before, _held(side, model, match))


def _held(side: LiveSide, model: object, match: Mapping[str, str]) -> dict[str, Array]:
    """Return copies of a model's own buffers by torch's names: saved ones as the weights are matched, others as they are."""
    own = buffers_of(side, model)
    saved = {name: np.array(one) for name, one in side.framework.buffers(model, match)}
    ported = {match.get(name, name) for name in saved} if side.name != "torch" else set(saved)
    known = {name: one for name, one in saved.items() if name in own or match.get(name, name) in own}
    return {**{name: one for name, one in own.items() if name not in ported}, **known}


def _names(models: tuple[object, object], names: Mapping[str, str]) -> Mapping[str, str]:
    """Return Paddle's names by torch's as the weights are matched, but for what order of declaration alone tells.

    Where the weights cannot be matched, they are the names that were given.
    """
    try:
        match = match_models(*models, names)
    except WeightsError:
        return names
    ordered = {ours for ours, _ in match.by_order}
    return {ours: theirs for ours, theirs in match.names.items() if ours not in ordered}
