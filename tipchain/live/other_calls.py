"""Both models' results in another mode, with other inputs, in float32, and when called again; and their buffers after a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import product
from math import isfinite

import numpy as np

from tipchain.core.machine import keep_memory
from tipchain.core.progress import LATE
from tipchain.errors import Outcome, WeightsError
from tipchain.explain.findings import Diagnosis, of_piece
from tipchain.explain.locate.differences import relative
from tipchain.explain.locate.locate import Located, single_outputs
from tipchain.explain.locate.matching import CallPair
from tipchain.explain.locate.other_runs import (
    Called,
    DrawComparer,
    Refusal,
    answers,
    call_seeded,
    distributed_otherwise,
    explain_draws,
    in_mode,
    judge_draws,
    other_inputs,
    others,
    told_shapes,
    without_zeros,
)
from tipchain.explain.locate.rerun import buffers_of
from tipchain.explain.locate.runs import ModelInputs, few_of, samples_of
from tipchain.explain.locate.trace import Store
from tipchain.explain.locate.verdicts import SINGLE_LIMIT, Closeness, LayerVerdict, classify, reason_of
from tipchain.framework_types import Array
from tipchain.frameworks.live_models import LiveSide
from tipchain.frameworks.randomness import Draws
from tipchain.live.causes import explain_layers, placed
from tipchain.live.layers import judge, tell_one_sided, untold
from tipchain.live.places import place_written
from tipchain.live.report import BLUNT, LiveResults
from tipchain.live.request import MODES, RANDOM, LiveRequest
from tipchain.numbers.tolerance import ROUGH, SAME_SINGLE
from tipchain.weights.matching import match_models


def judge_other_calls(asked: LiveRequest, results: LiveResults, located: Located) -> Draws | None:
    """Judge the models' other calls while they agree; return the port's draws in the other mode, if they agree in it."""
    return _OtherCalls(asked=asked, results=results, located=located).judge()


@dataclass(frozen=True, slots=True, kw_only=True)
class _OtherCalls:
    asked: LiveRequest
    results: LiveResults
    located: Located

    def judge(self) -> Draws | None:
        asked, results, located, draws = self.asked, self.results, self.located, None
        changed = located.reference.changed or located.port.changed
        if results.passed("forward") and located.exact and located.comparable and changed:
            made = located.reference.draws, located.port.draws
            self._judge_buffers(asked.inputs, made, training=asked.training)
        if results.agrees and not located.comparable and untold(located, "forward", some_left=True):
            self._judge_unlike(located, f"in {MODES[asked.training]} mode", asked.inputs, training=asked.training)
        elif results.agrees:
            draws = self._judge_other_mode()
        if results.agrees and located.exact:
            with results.erring("forward"):
                self._judge_single()
        if results.agrees and not asked.training and not located.port.draws.made:
            for given in asked.others if results.agrees else ():
                with results.erring("forward"):
                    results.pace.tell("running both models with the other inputs")
                    told = asked.call_both(given, training=False, double=False)
                    if isinstance(told, Refusal):
                        who, how = "port" if told.by_port else "reference", f"with inputs of shape {told_shapes(given)}"
                        outcome = Outcome.FAIL if told.by_port else Outcome.ERROR
                        results.end("forward", outcome, f"{how} the {who} raises: {told.told}")
                    elif told.differs:
                        self._judge_with(given)
            self._judge_other_inputs()
        return draws

    def _judge_buffers(
        self, inputs: ModelInputs, draws: tuple[Draws, Draws], *, training: bool, double: bool = True
    ) -> None:
        with self.results.erring("forward"):
            pairs = self.located.matching.pairs
            verdicts, causes = _check_buffers(self.asked, inputs, pairs, draws, training=training, double=double)
            self.results.report.diagnoses.extend(causes)
            if verdicts:
                self.results.take_verdicts(verdicts)
                self.results.end("forward", *judge(self.located, verdicts, "forward"))

    def _judge_other_mode(self) -> Draws | None:
        asked, results, located = self.asked, self.results, self.located
        training, mode = (False, "eval") if asked.training else (True, "train")
        with results.erring("forward"):
            if results.pace.over:
                results.add("forward", f"{mode} mode was not compared: {LATE}")
                return None
            results.pace.tell(f"running both models in {mode} mode")
            few = few_of(asked.inputs)
            batches = (asked.inputs,) if few is None else (few, asked.inputs)
            for given, double in product(batches, (True, False)[not located.exact :]):
                told = asked.call_both(given, training=training, double=double)
                if isinstance(told, Called):
                    break
            if isinstance(told, Refusal) and told.fault:
                self._fail(f"in {mode} mode the port raises, the reference does not: {told.told}", told.path)
            elif isinstance(told, Refusal):
                who = "the port does not run in it" if told.by_port else "the reference does not run in it"
                results.add("forward", f"{mode} mode was not compared: {who}: {told.told}")
            elif told.apart is None or not told.apart <= max(SAME_SINGLE, located.noise):
                self._locate_again(given, f"in {mode} mode", training=training)
            else:
                if told.changed:
                    self._judge_buffers(given, told.draws, training=training, double=double)
                return told.draws[1]
        return None

    def _judge_single(self) -> None:
        """Judge both in float32, as their users run them: a layer may raise there alone, or compute with fewer bits."""
        asked, results = self.asked, self.results
        if results.pace.over:
            results.add("forward", f"float32 was not compared: {LATE}")
            return
        told = asked.call_both(asked.inputs, training=asked.training, double=False)
        if isinstance(told, Refusal):
            why = f"in float32 the port raises, the reference does not: {told.told}"
            if told.fault:
                self._fail(why, told.path)
            elif told.by_port:
                results.add("forward", why)
            return
        if self.located.port.draws.made:
            return
        measured = single_outputs(self.located, *told.made)
        errors = [one.reference or 0.0 for one in measured]
        if errors and isfinite(max(errors)):  # of the output that rounds least: a wild one excuses no other
            results.reach = min(SINGLE_LIMIT * min(errors), BLUNT)
        coarse = [one for one in measured if classify([one])[0] is Closeness.LOWER_PRECISION]
        if coarse:
            self._locate_again(asked.inputs, "in float32", training=asked.training, single=True)
        if coarse and results.agrees:
            reason = reason_of(Closeness.LOWER_PRECISION, coarse[0])
            results.add("forward", f"in float32 {reason}, of code between layers")

    def _judge_other_inputs(self) -> None:
        """Judge the models with another batch, with images or sequences resized, and called again.

        One run has all that. What differs is judged in float64.
        """
        asked, results, reference = self.asked, self.results, self.located.reference
        if results.pace.over:
            results.add("forward", "other inputs were not compared: out of time")
            return
        first = [one.shape for one in asked.inputs.arrays()[:1]]
        convolutions = (call.inputs[:1] for call in reference.trace.calls if call.type == "Conv1d")
        last = any([one.shape for one in given] == first for given in convolutions)
        with results.erring("forward"), keep_memory():
            results.pace.tell("running both models with inputs of other sizes")
            told, raised, refused = None, "", ""
            for given in other_inputs(asked.inputs, last=last):
                told = asked.call_both(given, training=False, double=False, before=others(given))
                if isinstance(told, Called):
                    refused = ""
                    if told.differs:
                        self._judge_with(given)
                    break
                shapes, counts = told_shapes(given), (samples_of(asked.inputs) or 0, samples_of(given) or 0)
                if told.by_port:
                    why = f"the port raises with inputs of shape {shapes}, the reference does not: {told.told}"
                    # The reference may take such inputs and mean nothing by it, or the port say by itself that it does not.
                    if told.fault and answers(reference.outputs, told.made, counts):
                        self._fail(why, told.path)
                        return
                    raised = raised or why
                elif not refused:
                    refused = f"other inputs were not compared: the reference raises with those of shape {shapes}: {told.told}"
            if told is None:
                refused = "other inputs were not compared: the inputs have no common first axis"
            results.add("forward", raised or refused)

    def _judge_with(self, inputs: ModelInputs) -> None:
        """Judge differences with other sizes or in a second call."""
        alone = self.asked.call_both(inputs, training=False, double=False)
        if isinstance(alone, Refusal):
            return
        if not alone.differs:
            told = "called a second time, with other values, it gives other outputs: the port keeps something between calls"
            self._fail(told)
            return
        how, filled = f"with inputs of shape {told_shapes(inputs)}", without_zeros(inputs, self.asked.inputs)
        if filled is not None:
            other = self.asked.call_both(filled, training=False, double=False)
            if isinstance(other, Called) and not other.differs:
                how = "with the id 0 in the input"
        self._locate_again(inputs, how, training=False)
        ours, theirs = ([list(each.shape) for each in one] for one in alone.made)
        reference, port = self.located.reference, self.located.port
        alike = [one.shape for one in reference.outputs] == [one.shape for one in port.outputs]
        if alike and ours != theirs and self.results.agrees:
            self._fail(f"{how}: its outputs have other shapes: expected {ours}, actual {theirs}")

    def _fail(self, reason: str, path: str = "") -> None:
        """Judge the whole model to be at fault, or the layer at a path of the port's, or the innermost around it with a counterpart."""
        known = (*self.located.matching.containers, *self.located.matching.pairs)
        calls = {one.port.path: one.reference.path for one in reversed(known)}
        while path and path not in calls:
            path = path.rpartition(".")[0]
        verdict = self.asked.fault(calls[path] if path else "", path, reason)
        self.results.take_verdicts([verdict])
        told = f"{verdict.port_path or 'the model'} ({verdict.port_type}): {reason}"
        self.results.end("forward", Outcome.FAIL, told)

    def _locate_again(self, inputs: ModelInputs, how: str, *, training: bool, single: bool = False) -> None:
        """Find the layer that does something else in another mode, with other inputs, or in float32, and why."""
        asked, results = self.asked, self.results
        with closing(Store()) as store, in_mode(asked.sides, asked.models, training=training):
            locator = asked.locator(store, results.pace, training=training, backward=False, single=single)
            found = locator.locate(*asked.models, inputs, names=asked.names)
            outcome, reason = judge(found, [*found.verdicts], "forward")
            if outcome is Outcome.PASS:
                differs = self._judge_unlike(found, how, inputs, training=training)
                if not differs and any(found.one_sided):
                    results.add("forward", f"{how}: {tell_one_sided(found)}")
                return
            wrong = [one for one in found.verdicts if one.at_fault]
            unlike = DrawComparer(found, asked.models).unlike()
            causes, places = explain_draws(found, unlike, training=training), dict[str, str]()
            if asked.causes and not causes:
                causes, places = explain_layers(asked, found, wrong, (), store, results.pace)
            first = placed(asked, found.first, places, found)
            told = [first if one is found.first and first is not None else one for one in wrong]
            results.end("forward", outcome, f"{how}: {reason}")
            results.take_run(told, causes, how)

    def _judge_unlike(self, located: Located, how: str, inputs: ModelInputs, *, training: bool) -> bool:
        """Judge random numbers that cannot be made equal: those of other distributions fail."""
        if located.comparable:
            return False
        asked, results = self.asked, self.results
        unlike = DrawComparer(located, asked.models).unlike()
        verdicts = judge_draws(unlike, asked.fault)
        if not verdicts and untold(located, "forward", some_left=True):
            shown = distributed_otherwise(
                asked.sides, asked.models, inputs, asked.seed, results.pace, training=training
            )
            verdicts = judge_draws(unlike, asked.fault, shown) if shown else []
            if shown and not verdicts:
                self._fail(f"{how}: {shown}")
                return True
        if not verdicts:
            results.leave_out(f"{how} the results are {RANDOM}")
            return False
        _, reason = judge(located, verdicts, "forward")
        results.end("forward", Outcome.FAIL, f"{how}: {reason}")
        results.take_run(verdicts, explain_draws(located, unlike, training=training), how)
        return True


# One call's changes of both models' buffers: moving averages, counters, codebooks.


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


def _check_buffers(
    asked: LiveRequest, inputs: ModelInputs, pairs: Sequence[CallPair], draws: Sequence[Draws], **how: bool
) -> tuple[list[LayerVerdict], list[Diagnosis]]:
    """Call both models once and return a verdict and a cause for each layer of which the call leaves a buffer otherwise.

    The random numbers of a run are drawn again; buffers of the frameworks' norms are left out. ``how``: the mode, and whether they
    run in float64.
    """
    sides, double = asked.sides, how["double"]
    limit = SAME_SINGLE if double else ROUGH
    model, port_model = models = [asked.copied(number, **how) for number in (0, 1)]
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
        message = f"{shown}: {told}; both are in {mode} mode, and of {before} the port makes {port_after}, the reference {after}"
        fix = f"update `{port_leaf}` of {shown}{at} in {mode} mode as the reference does"
        cause = of_piece(port, "buffer", message, "the outputs of this call agree; those of later calls need not", fix)
        causes.append(replace(cause, place=line, reference_place=place_written(layers.get(path), leaf)))
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
