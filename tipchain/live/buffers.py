"""One call's changes of both models' buffers: moving averages, counters, codebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from tipchain.errors import WeightsError
from tipchain.explain.findings import Diagnosis
from tipchain.explain.locate.differences import relative
from tipchain.explain.locate.matching import CallPair
from tipchain.explain.locate.other_runs import call_seeded
from tipchain.explain.locate.rerun import buffers_of
from tipchain.explain.locate.runs import ModelInputs
from tipchain.explain.locate.verdicts import LayerVerdict
from tipchain.framework_types import Array
from tipchain.frameworks.live_models import LiveSide
from tipchain.frameworks.randomness import Draws
from tipchain.live.places import place_written
from tipchain.live.request import LiveRequest
from tipchain.numbers.tolerance import ROUGH, SAME_SINGLE
from tipchain.weights.matching import match_models

SHOWN = 4
"""Elements of a buffer that a message shows."""


@dataclass(frozen=True, slots=True)
class _Called:
    """The buffers of one model before and after a call, by torch's names and in torch's layout."""

    before: Mapping[str, Array]
    after: Mapping[str, Array]

    def moved(self, name: str) -> bool:
        """Tell whether the call changed a buffer."""
        return not np.array_equal(self.before[name], self.after[name])


def check_buffers(
    asked: LiveRequest,
    inputs: ModelInputs,
    pairs: Sequence[CallPair],
    draws: tuple[Draws, Draws],
    *,
    training: bool,
    double: bool = True,
) -> tuple[list[LayerVerdict], list[Diagnosis]]:
    """Call both models once and return a verdict and a cause for each layer of which the call leaves a buffer otherwise.

    The random numbers of a run are drawn again; buffers of the frameworks' norms are left out. What does not run in ``double``
    runs in float32.
    """
    sides, limit = asked.sides, SAME_SINGLE if double else ROUGH
    model, port_model = models = [asked.copied(number, training=training, double=double) for number in (0, 1)]
    match: Mapping[str, str] = asked.names
    with suppress(WeightsError):  # else as they are matched, without pairs by order of declaration alone
        matched = match_models(model, port_model, asked.names)
        ordered = {ours for ours, _ in matched.by_order}
        match = {ours: theirs for ours, theirs in matched.names.items() if ours not in ordered}
    called = []
    for side, one, drawn in zip(sides, models, draws, strict=True):
        held = _own_buffers(side, one, match)
        call_seeded(side, one, inputs, drawn.again(), seed=asked.seed, double=double)
        called.append(_Called(held, _own_buffers(side, one, match)))
    ours, theirs = called
    renamed = _by_values(ours, theirs, pairs, limit)
    states = theirs.before, theirs.after
    theirs = _Called(*({renamed.get(name, name): one for name, one in held.items()} for held in states))
    ported = {own: port for port, own in renamed.items()}
    paths = {pair.reference.path: pair.port.path for pair in pairs}
    layers, port_layers = dict(sides.reference.layers(model)), dict(sides.port.layers(port_model))
    verdicts: dict[str, LayerVerdict] = {}
    causes: list[Diagnosis] = []
    off: dict[str, float] = {}
    for name in (one for one in ours.after if one in theirs.after and (ours.moved(one) or theirs.moved(one))):
        expected, actual = ours.after[name], theirs.after[name]
        # What was another one before the preflight tells.
        same = expected.shape == actual.shape and relative(ours.before[name], theirs.before[name]) <= limit
        if same and not (apart := relative(expected, actual)) <= limit:
            off[name] = apart
    # What only one side moves is told first, then what is declared first.
    for name in sorted(off, key=lambda one: ours.moved(one) == theirs.moved(one)):
        apart = off[name]
        path, _, leaf = name.rpartition(".")
        holder, _, port_leaf = ported.get(name, match.get(name, name)).rpartition(".")
        port = match.get(path, paths.get(path, holder if holder in port_layers else path))
        if port in verdicts:
            continue
        told = f"after one call its buffer `{leaf}` differs: relative {apart:.3g}"
        if theirs.moved(name) and not ours.moved(name):
            told = f"one call changes its buffer `{leaf}`, the reference's stays"
        elif ours.moved(name) and not theirs.moved(name):
            told = f"one call leaves its buffer `{leaf}` as it is, the reference's changes"
        layer = port_layers.get(port)
        shown = f"`{port}`" if port else "the model"
        verdicts[port] = asked.fault(path, port, told, apart)
        line = place_written(layer, port_leaf)
        at = f" at {line.short} (`{line.code}`)" if line else ""
        mode = "train" if getattr(layers.get(path), "training", False) else "eval"
        few = (one[name].reshape(-1)[:SHOWN] * 1.0 for one in (ours.before, ours.after, theirs.after))
        before, after, port_after = (", ".join(f"{value:.6g}" for value in some) for some in few)
        causes.append(
            Diagnosis(
                code="buffer",
                port_path=port,
                message=f"{shown}: {told}; both are in {mode} mode, and of {before} the port makes {port_after}, the reference {after}",
                evidence="the outputs of this call agree; those of later calls need not",
                fix=f"update `{port_leaf}` of {shown}{at} in {mode} mode as the reference does",
                place=line,
                reference_place=place_written(layers.get(path), leaf),
            )
        )
    return list(verdicts.values()), causes


def _by_values(ours: _Called, theirs: _Called, pairs: Sequence[CallPair], limit: float) -> dict[str, str]:
    """Return torch's names by the port's of buffers that names do not pair: those of paired layers that start with equal values.

    Of several that start equal, those belong together that end closest, so that no order of theirs is held against the port.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        own, port_own = (
            [name for name in held.after if name not in other.after and name.rpartition(".")[0] == path]
            for held, other, path in ((ours, theirs, pair.reference.path), (theirs, ours, pair.port.path))
        )
        both = [(one, two) for one in own for two in port_own if ours.before[one].shape == theirs.before[two].shape]
        alike = [two for two in both if relative(ours.before[two[0]], theirs.before[two[1]]) <= limit]
        for _, one, other in sorted((relative(ours.after[one], theirs.after[two]), one, two) for one, two in alike):
            if other not in found and one not in found.values():
                found[other] = one
    return found


def _own_buffers(side: LiveSide, model: object, match: Mapping[str, str]) -> dict[str, Array]:
    """Return copies of a model's own buffers by torch's names: saved ones as the weights are matched, others as they are."""
    own = buffers_of(side, model)
    saved = {name: np.array(one) for name, one in side.framework.buffers(model, match)}
    ported = {match.get(name, name) for name in saved} if side.name != "torch" else set(saved)
    known = {name: one for name, one in saved.items() if name in own or match.get(name, name) in own}
    return {**{name: one for name, one in own.items() if name not in ported}, **known}
