"""Why a layer is at fault: causes are tried on a copy of it until one explains the error."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import inf

import numpy as np

from tipchain.core.language import listed
from tipchain.core.progress import Pace
from tipchain.explain.causes.apart import Divergence, show
from tipchain.explain.causes.computed import where_computed
from tipchain.explain.causes.edits import (
    alike,
    by_substitution,
    cut_gradients,
    idle_layers,
    missing_calls,
    other_layers,
)
from tipchain.explain.causes.hypotheses import (
    NO_LINES,
    Hypothesis,
    Lines,
    Trial,
    Trials,
    below,
    called,
    holder_of,
    lower_precision,
    place_of,
)
from tipchain.explain.causes.lines import at_line, codes_of, only_return, opposite, reads_alike, reads_otherwise
from tipchain.explain.causes.mutations import completed, harmless, mutations, search
from tipchain.explain.causes.piece import Piece, PieceSide
from tipchain.explain.causes.program import LAYER, Act, Op, has_own_backward
from tipchain.explain.causes.settings import by_findings, by_meaning
from tipchain.explain.causes.tensors import by_constants, by_tensors
from tipchain.explain.causes.walk import Parting, acts_of
from tipchain.explain.findings import Diagnosis, SourceLine, shown_path, source_of
from tipchain.explain.locate.between_layers import enlarge, holds
from tipchain.explain.locate.locate import Located
from tipchain.explain.locate.matching import CallPair, Comparer, LayoutStep, common_path
from tipchain.explain.locate.rerun import steps_after
from tipchain.explain.locate.trace import Store
from tipchain.explain.locate.verdicts import FINE, Closeness, LayerVerdict, frameworks_own
from tipchain.facts.layers import CONTAINERS
from tipchain.facts.packed import spell_out
from tipchain.framework_types import Model
from tipchain.frameworks.live_models import LiveSide, Sides
from tipchain.numbers.tolerance import EXPLAINED, NOISE, SAME_DOUBLE, SAME_SINGLE
from tipchain.weights.sides import join

# From a verdict to the piece that is diagnosed: both layers, and what they are given.


def pieces(
    located: Located,
    verdict: LayerVerdict,
    sides: Sides,
    store: Store,
    models: tuple[object, object],
    seed: int,
    *,
    double: bool = True,
) -> Iterator[Piece]:
    """Yield the piece that a verdict is about, then those around it; none where the calls cannot be told."""
    compare = Comparer(store, (*located.reference.values, *located.port.values))
    for pair in _pairs(located, verdict, compare):
        calls = pair.reference, pair.port
        kinds = [[one.dtype.kind for one in call.inputs] for call in calls]
        links = [one for one in compare.inputs(pair) if kinds[0][one.ours] == kinds[1][one.theirs]]
        if frameworks_own(pair.port.layer) and len(links) < len(pair.port.inputs) and pair.port.parent is not None:
            continue  # what gives it another tensor, such as a mask, stands around it
        expected = tuple(store.get(one.stored) for one in pair.reference.inputs)
        by_number = {link.theirs: link.layout.apply(expected[link.ours]) for link in links}
        actual = tuple(by_number.get(number, store.get(one.stored)) for number, one in enumerate(pair.port.inputs))
        wide = double and (located.exact or not any(call.children for call in calls))
        backward = verdict.direction == "backward"
        then = ((), ()) if backward else pair.then  # parameters go by their names within the piece
        ours, theirs = (
            PieceSide(
                path=_around(call.path, steps),
                call=call,
                layer=_followed(side, dict(side.layers(model)), call.path, steps, factors, double=wide),
                inputs=inputs,
            )
            for side, model, call, inputs, steps, factors in zip(
                sides, models, calls, (expected, actual), then, located.enlarged, strict=True
            )
        )
        inside = [one for one in _inside(located.matching.pairs, pair) if not one[-1].whole]
        own = _frameworks(theirs.layer, sides.port)
        unsure = {
            one.port_path
            for one in located.verdicts
            if one.at_fault or backward or below(one.port_path, pair.port.path) not in own
            if one.closeness not in FINE and (backward or one.direction == "forward")
        }
        judged = frozenset(path for path, _, one in inside if one.port.path not in unsure)
        # A layer of the port's that stands for several of the reference's, such as one activation for all, has no partner.
        others = defaultdict[str, set[str]](set)
        for path, other, _ in inside:
            others[path] |= {other} - {""}
        idle = _idle(located, pair)
        wrong = [(one.port.number, path) for path, _, one in inside if SAME_SINGLE < compare.inputs_apart(one) < inf]
        receiver = min(wrong)[1] if wrong and compare.inputs_apart(pair) <= SAME_SINGLE else ""
        whole = judged | {path for path, one in sides.port.layers(theirs.layer) if path in own and [*one.children()]}
        yield Piece(
            sides=sides,
            ours=ours,
            theirs=theirs,
            backward=backward,
            seed=seed,
            atomic=judged | own,
            judged=judged,
            reference_judged=frozenset({*(other for path, other, _ in inside if path in whole), *idle.values()} - {""}),
            receiver=receiver,
            cleared=_cleared(located, pair, compare),
            idle=idle,
            partners={path: one.pop() for path, one in others.items() if len(one) == 1},
            ends=tuple((link.ours, link.theirs) for link in compare.outputs(pair)) or None,
            links=tuple((link.ours, link.theirs) for link in links if link.layout.permutes),
            double=wide,
        )


def _around(path: str, steps: Sequence[LayoutStep]) -> str:
    """Return a layer's path, or that of its container with the layers called after it."""
    paths = [path, *(step.name for step in steps if not step.function)]
    return common_path(one.rpartition(".")[0] for one in paths) if steps else path


def _followed(
    side: LiveSide,
    layers: Mapping[str, Model],
    path: str,
    steps: Sequence[LayoutStep],
    factors: Mapping[str, float],
    *,
    double: bool,
) -> Model:
    """Return an enlarged copy of a layer, with the layers and functions called after it."""
    own = {one: side.copied(layers[one], double=double) for one in (path, *(s.name for s in steps if not s.function))}
    if side.name == "torch":
        spell_out(own[path])
    for name, layer in side.layers(own[path]) if factors else ():
        if join(path, name) in factors:
            enlarge(side, layer, factors[join(path, name)])
    if not steps:
        return own[path]
    around = _around(path, steps)
    after = steps_after(side, steps, own.__getitem__)
    return side.in_turn({below(one, around) or "": layer for one, layer in own.items()}, own[path], after)


def _pairs(located: Located, verdict: LayerVerdict, compare: Comparer) -> Iterator[CallPair]:
    """Yield the calls that the verdict is about, then the ones around them that belong together.

    The code between layers that made a wrong tensor may be a layer on one side: then the port's container is held
    against what it is paired with, or against the one layer that it is wrapped around.
    """
    known = (*located.joint, *located.matching.pairs, *located.matching.containers)
    trace = located.port.trace
    call = next((one for one in trace.calls if one.path == verdict.port_path and one.turn == verdict.turn), None)
    paths = verdict.reference_path, verdict.port_path
    while call is not None:
        same = [pair for pair in known if pair.port.number == call.number]
        inside = [
            pair
            for pair in located.matching.pairs
            if not pair.whole and holds(trace, call, pair.port) and below(pair.port.path, call.path)
        ]
        if same:
            yield min(same, key=lambda pair: (pair.reference.path, pair.port.path) != paths)
        elif len(inside) == 1:
            wrapped = CallPair(reference=inside[0].reference, port=call)
            yield from [wrapped] if compare.stands_for(wrapped) else []
        elif not call.path:  # both models, however little of them belongs together
            whole = (one for one in located.reference.trace.calls if not one.path and one.turn == call.turn)
            yield from (CallPair(reference=one, port=call) for one in whole)
        call = None if call.parent is None else trace.calls[call.parent]


def _inside(pairs: Iterable[CallPair], around: CallPair) -> Iterator[tuple[str, str, CallPair]]:
    """Yield the pairs inside another of the port's, with both paths within it; the reference's is empty where it is not inside."""
    for one in pairs:
        if path := below(one.port.path, around.port.path):
            yield path, below(one.reference.path, around.reference.path) or "", one


def _cleared(located: Located, around: CallPair, compare: Comparer) -> frozenset[str]:
    """Return the port's containers inside a call whose results are right, or that are given something else already."""
    inside: dict[str, bool] = {}
    for path, _, one in _inside(located.matching.containers, around):
        right = compare.outputs_apart(one) <= SAME_DOUBLE or SAME_DOUBLE < compare.inputs_apart(one) < inf
        inside[path] = inside.get(path, True) and right
    return frozenset(path for path, known in inside.items() if known)


def _idle(located: Located, around: CallPair) -> dict[str, str]:
    """Return the port's layers within a call that are never called, with the reference's that are: the outermost.

    A container of layers none of which is called stands for all of them, where the reference has such a container, too.
    """
    called, port_called = ({call.path for call in run.trace.calls} for run in (located.reference, located.port))
    found: dict[str, str] = {}
    for pair in located.layers:
        ours, theirs = pair.reference, pair.port
        if theirs in port_called or ours not in called:
            continue
        while "." in theirs and "." in ours:
            holder, port_holder = ours.rpartition(".")[0], theirs.rpartition(".")[0]
            if port_holder in port_called or holder not in called:
                break
            ours, theirs = holder, port_holder
        one, other = below(ours, around.reference.path), below(theirs, around.port.path)
        if one and other:
            found[other] = one
    return found


def _frameworks(layer: Model, side: LiveSide) -> frozenset[str]:
    """Return Paddle's own layers, whose code is nobody's to change: none with a user's inside, and the piece itself only without any."""

    def is_paddles(kind: type[Model]) -> bool:
        bases = {one.__name__ for one in kind.__mro__ if one.__module__.startswith("paddle.nn.")}
        return kind.forward.__module__.partition(".")[0] == "paddle" and bool(bases - {"Layer", *CONTAINERS})

    layers = list(side.layers(layer))
    users = [path for path, one in layers if not is_paddles(type(one)) and type(one).__name__ not in CONTAINERS]
    return frozenset(
        path
        for path, one in layers
        if is_paddles(type(one)) and (path or not [*one.children()])
        if not any(below(user, path) is not None for user in users)
    )


BLANK = re.compile(r"(?:: the reference has|:)? (?:``|\(``\))")
"""How sentences quote a line that is not known: layers that are called by a container stand on no line of the user's."""
TOLD = 3
"""Causes that are named at most: one, and in its evidence those that would explain as much."""


def diagnose(
    located: Located,
    verdict: LayerVerdict,
    sides: Sides,
    store: Store,
    *,
    models: tuple[object, object],
    seed: int = 0,
    findings: Sequence[Diagnosis] = (),
    like: Sequence[Diagnosis] = (),
    pace: Pace | None = None,
    inside: Collection[str] | None = None,
    only_like: bool = False,
) -> tuple[Diagnosis, ...]:
    """Return the causes of a layer's or container's fault, one per place of code.

    A copy of the port's layer is run in float64 on what the reference's was given, each time with one thing changed. A
    cause is told where it takes away at least 99 % of the error: the best and simplest; where none does, it is
    ``"unknown"``. Differences of construction are tried first, then what was the cause of layers of the same type.

    Args:
        located: what the locator returned.
        verdict: one of its verdicts that is at fault.
        sides: torch's and Paddle's.
        store: the store that the locator was given, still open.
        models: the user's torch module and Paddle layer, which are not changed.
        seed: the seed that the locator was given.
        findings: differences of construction, of any layers.
        like: causes of other layers of this type.
        pace: how long it may take.
        inside: where the code is wrong at several places, the layers in it whose faults have causes of their own.
        only_like: whether nothing is tried but construction and ``like``.
    """
    if verdict.closeness is Closeness.LOWER_PRECISION:
        return (lower_precision(verdict),)
    if verdict.nan and not verdict.own:
        return (_unknown(verdict, "NaN at the same positions on both sides", None),)
    refused: Exception | None = None
    for double in (True, False):  # code of the port's may run in float32 alone
        try:
            for piece in pieces(located, verdict, sides, store, models, seed, double=double):
                if found := _diagnose(piece, verdict, models, findings, like, pace, inside, only_like):
                    return tuple(found)
            break
        except Exception as error:  # noqa: BLE001  (a user's layer may refuse to run apart from its model, in any way)
            refused = refused or error
    else:
        return (_unknown(verdict, f"it cannot be run by itself: {type(refused).__name__}: {refused}", None),)
    return (_unknown(verdict, "its calls could not be found in both models, or show no error by themselves", None),)


def _diagnose(
    piece: Piece,
    verdict: LayerVerdict,
    models: tuple[object, object],
    findings: Sequence[Diagnosis],
    like: Sequence[Diagnosis],
    pace: Pace | None,
    inside: Collection[str] | None,
    only_like: bool,
) -> list[Diagnosis]:
    """Return the causes of a piece's error; none if it runs alone without one, or has none of those that are to be tried."""
    with piece.open():
        trials = Trials(piece, pace)
        if trials.before <= NOISE:
            return []
        trials.run(by_findings(piece, trials.base.ops, findings))
        if not trials.settled() and piece.backward:
            trials.run(harmless(trials, cut_gradients(piece, trials.base.ops, trials.base.outputs)))
            trials.run(other_layers(piece, trials.walk))
        if inside is not None and not piece.backward and (told := _told_by_places(piece, trials, models, inside)):
            return told
        if not trials.settled():
            # The causes of other layers of the same type are few among all that could be tried.
            wanted = {said_alike(one.message, one.port_path) for one in like}

            def is_known(one: Hypothesis) -> bool:
                return said_alike(f"{piece.shown}: {one.said}", piece.theirs.path) in wanted

            trials.run(filter(is_known, chain.from_iterable(_groups(piece, trials, models) if wanted else ())))
            if wanted and not (trials.settled() or piece.backward) and trials.base.ops and piece.record:
                op, step = Divergence(trials.walk).first(proved=False)
                ready = (one for one in mutations(piece, trials.walk, op) if isinstance(one, Hypothesis))
                trials.run(completed(one, trials.walk, step) for one in filter(is_known, ready))
            trials.reserve = ()
        if only_like and not trials.settled():
            return []
        for group in () if trials.settled() else _groups(piece, trials, models):
            trials.run(group)
            if trials.settled():
                break
        else:
            trials.trials += _searched(trials, proved=bool(trials.reserve))
            if not trials.settled():
                trials.run(trials.reserve)
        found = trials.found()
        if not found and trials.pace.over:
            return [unsearched(verdict)]
        return [_told(found, trials, models) if found else _untold(verdict, piece, trials)]


def _told_by_places(
    piece: Piece, trials: Trials, models: tuple[Model, Model], inside: Collection[str]
) -> list[Diagnosis]:
    """Return the cause at each place of a code that must be the reference's, the others being so; nothing for fewer than two."""
    walk = trials.walk
    if not needed(trials, trials.mends) or len(groups := alike(walk.partings)) < 2:
        return []
    if whole := _searched(trials, proved=True):
        return [_told(whole, trials, models)]
    partings, causes = walk.partings, list[Diagnosis]()
    for group in groups:
        op = group[0].op
        if op.name == LAYER or join(piece.theirs.path, op.holder) in inside:
            continue
        before = acts_of([one for one in partings if one.op.number < op.number], piece.sides.port.assign)
        walk.partings = group

        def mends(
            one: Hypothesis, group: Sequence[Parting] = group, before: Mapping[int, Act] = before
        ) -> Trial | None:
            trial = trials.makes(replace(one, acts={**before, **one.acts}), group)
            return None if trial is None else replace(trial, hypothesis=one)

        found = next(filter(None, map(mends, missing_calls(piece, walk))), None)
        shown = (Trial(hypothesis=one, explained=1.0, whole=True, left=0.0) for one in by_substitution(piece, walk))
        trial = next(chain([found] if found else _searched(trials, proved=True, mends=mends), shown), None)
        if trial is not None:
            holder = common_path(each.holder for each in trials.base.ops if each.number in trial.hypothesis.acts)
            placed = replace(trial.hypothesis, place=trial.hypothesis.place or holder)
            causes.append(_told([replace(trial, hypothesis=placed)], trials, models))
    return causes


def _searched(
    trials: Trials, *, proved: bool, mends: Callable[[Hypothesis], Trial | None] | None = None
) -> list[Trial]:
    """Return the edit that mends the port's results, or as it is told, if one is found."""
    piece = trials.piece
    if (piece.backward and not piece.loss) or not (trials.base.ops and piece.record):
        return []
    if piece.paddle.device.get_device() != "cpu":  # a copy of this process has no other device
        return []
    apart = Divergence(trials.walk)
    op, step = apart.first(proved=proved)
    here, _ = apart.statements(op, step)
    trial = search(trials, op, step, here, proved=proved, mends=mends or trials.mends)
    return [] if trial is None else [trial]


def diagnose_loss(piece: Piece) -> Diagnosis | None:
    """Explain why the code of two losses differs, or show where they part.

    With gradients, causes that explain both value and gradients are tried, and None is returned where none does. Without, the
    place where the two programs part is told: the tensors of the reference's that stand in for the port's have no gradients.
    """
    with piece.open():
        trials = Trials(piece)
        ops = trials.base.ops
        if piece.backward:
            if trials.before <= NOISE:
                return None
            cuts = harmless(trials, cut_gradients(piece, ops, trials.base.outputs))
            trials.run(chain(by_meaning(piece, ops), cuts))
            if not trials.settled():
                trials.run(missing_calls(piece, trials.walk))
            if not trials.settled():
                trials.trials += _searched(trials, proved=False)
            found = trials.found()
            return _told(found, trials) if found else None
        shown = show(piece, trials.walk)
        if trials.before > NOISE:
            trials.run(needed(trials, trials.explains))
        found = trials.found()
        if not found:
            return shown
        cause = _told(found, trials)
        return replace(cause, evidence=f"{cause.evidence}; {shown.message}")


def needed(trials: Trials, explains: Callable[[Hypothesis], object]) -> list[Hypothesis]:
    """Return the port with the reference's tensors where the two part, at the places alone that the error comes from.

    Code may be written otherwise and come to the same in the end, as a softmax does whatever is subtracted before. The last
    places are given up first: what stands behind a wrong one can make up for it, where that changes the results at all.
    """
    piece, walk = trials.piece, trials.walk
    whole = list(by_substitution(piece, walk))
    if not whole or not explains(whole[0]):
        return []
    groups = alike(walk.partings)
    for group in reversed(groups if len(groups) > 1 else ()):
        kept = walk.partings
        walk.partings = [one for one in kept if one not in group]
        rests = any(walk.rests(later.key, one.key, wrong=True) for later in walk.partings for one in group)
        hidden = rests and not all(one.alike for one in group) and trials.moves(group)
        if hidden or not walk.partings or not all(map(explains, by_substitution(piece, walk))):
            walk.partings = kept
    return list(by_substitution(piece, walk))


def unsearched(verdict: LayerVerdict) -> Diagnosis:
    """Return the diagnosis of a fault whose causes there was no time to try."""
    left = _unknown(verdict, verdict.reason, None)
    shown = shown_path(verdict.port_path)
    return replace(left, message=f"{shown}: cause not searched: out of time")


def said_alike(message: str, path: str) -> str:
    """Return a message without the path that it is about: that of another layer of the same type says the same."""
    return re.sub(rf"(?<![\w.]){re.escape(path)}(?!\w)", "", message) if path else message


def _groups(piece: Piece, trials: Trials, models: tuple[Model, Model]) -> Iterator[Iterable[Hypothesis]]:
    ops = trials.base.ops
    held = models[0].state_dict().items()
    state = {name: one.detach().numpy() for name, one in held if one.is_floating_point()}
    yield by_tensors(piece, state)
    yield by_meaning(piece, ops)
    if not piece.backward:
        yield idle_layers(piece, trials.walk)
        yield by_constants(piece, trials.walk)
        yield missing_calls(piece, trials.walk)
        if len(ops) > 1 or any(op.name != LAYER for op in ops):  # the result of one layer is that of the piece
            trials.reserve = needed(trials, trials.explains)


def _told(found: Sequence[Trial], trials: Trials, models: tuple[Model, Model] | None = None) -> Diagnosis:
    trial, piece = found[0], trials.piece
    one = trial.hypothesis
    numbers = (
        f"relative error {trials.before:.3g} before, {trial.left:.3g} with this changed; {piece.runs} runs in float64"
    )
    others = ", ".join(dict.fromkeys(f"{other.hypothesis.code} `{other.hypothesis.name}`" for other in found[1:TOLD]))
    beside = f"{others} would explain as much" if others else ""
    fix, line = _fix(one, piece)
    lines, fix = one.lines._replace(port=line), BLANK.sub("", fix)
    computed, values = (NO_LINES, "") if one.constants is None else where_computed(piece, models, one.constants)
    if computed.port is not None:
        lines = Lines(computed.port, computed.reference or lines.reference)
        fix += f"; the value is computed at {computed.port.short} (`{computed.port.code}`)"
    unlike = None if computed.port is not None else _unlike_opposite(lines, trials)
    if unlike is not None:
        here, there = unlike
        lines = Lines(here, there)
        fix += f"; {here.short} (`{here.code}`) reads otherwise than {there.short} (`{there.code}`) of the reference"
    holder = one.place
    if holder is None:
        holder = holder_of((op for op in trials.base.ops if op.number in one.acts), piece)
    place = join(piece.theirs.path, holder)
    return Diagnosis(
        code=one.code,
        name=one.name,
        port_path=place,
        message=BLANK.sub("", f"{shown_path(place)}: {one.said}"),
        evidence="; ".join(part for part in (values, one.evidence, numbers, beside) if part),
        explained=min(trial.explained, 1.0),
        fix=fix,
        place=lines.port,
        reference_place=lines.reference,
        edit=None if unlike else one.code_edit,
    )


def _unlike_opposite(lines: Lines, trials: Trials) -> tuple[SourceLine, SourceLine] | None:
    """Return the statement that reads otherwise where the one told reads as its counterpart: opposite the reference's, or a caller's.

    None where the one told reads otherwise itself, or all read alike.
    """
    calls: tuple[Sequence[Op], Sequence[Op]] = trials.base.ops, trials.piece.record
    ops, steps = (codes_of(frame for call in each for frame in call.frames) for each in calls)
    here, there = (None if one is None else at_line(one.file, one.line) for one in lines)
    if here is None or not reads_alike(here, steps):
        return None
    against = None if there is None else reads_otherwise(there, ops)
    leading = next((op.frames for op in trials.base.ops if here.place in [one.place for one in op.frames]), ())
    for caller in leading[[one.place for one in leading].index(here.place) + 1 :] if leading else ():
        called = opposite(caller, steps)
        if against is None and called is not None and called[1] and called[0].reading != caller.reading:
            against, there = caller, called[0]
    if against is None and trials.walk.only_unlike is not None:
        against, there = trials.walk.only_unlike
    port, reference = (one and one.source for one in (against, there))
    return (port, reference) if port is not None and reference is not None else None


def _fix(one: Hypothesis, piece: Piece) -> tuple[str, SourceLine | None]:
    """Return the fix and its line, those of the layer's forward where no other is told."""
    forward = source_of(type(piece.port).forward)
    told = one.lines.port is not None or piece.atomic & {""} or piece.loss or one.code == "buffer"
    if told or forward is None or type(piece.port).__module__.partition(".")[0] == "paddle":
        return one.fix, one.lines.port
    line = only_return(type(piece.port).forward) if one.edit is not None else None
    if line is not None:
        return f"{one.fix} at {line.short}: `{line.code}`", line
    return f"{one.fix} (forward at {forward.short})", forward


def _untold(verdict: LayerVerdict, piece: Piece, trials: Trials) -> Diagnosis:
    """Return both statements at which the programs part, for no edit mends the error."""
    best = max(trials.trials, key=lambda one: one.explained, default=None)
    tried = f"{len(trials.trials)} edits were tried in {piece.runs} runs, {trials.failed} could not be run"
    own = [f"{called(op)}{place_of(op, piece)}" for op in trials.base.ops if has_own_backward(op)]
    if piece.backward and own:
        tried += f"; its results agree, and {listed(own, TOLD)} has a backward of its own, which may be wrong"
    if best is not None and best.explained:
        tried += f"; the best ({best.hypothesis.said}) explains {best.explained:.1%}, less than {EXPLAINED:.0%}"
    share = None if best is None else best.explained
    if verdict.nan or not trials.base.ops or not piece.record:
        return _unknown(verdict, tried, share)
    shown = show(piece, trials.walk)
    lines = shown.place, shown.reference_place
    place, reference_place = _unlike_opposite(Lines(*lines), trials) or lines
    evidence = f"{verdict.reason}; {tried}"
    return replace(shown, evidence=evidence, explained=share, place=place, reference_place=reference_place)


def _unknown(verdict: LayerVerdict, evidence: str, share: float | None) -> Diagnosis:
    shown = shown_path(verdict.port_path)
    fix = f"compare the code of {shown} with the reference's"
    if verdict.nan:
        fix = f"look at what {shown} is given: a logarithm, root or division of what is 0 or negative, a softmax of nothing but -inf"
    elif verdict.reference_path:
        fix = f"compare the code of {shown} with the reference's `{verdict.reference_path}`"
    return Diagnosis(
        code="nan" if verdict.nan else "parting",
        port_path=verdict.port_path,
        message=f"{shown}: {verdict.reason}",
        evidence=evidence,
        explained=None if share is None or not np.isfinite(share) else share,
        fix=fix,
    )
