"""Which layer of a port is the first to do something else than the reference's."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, isfinite, prod
from typing import Literal

from tipchain.core.blame import one_line
from tipchain.core.machine import keep_memory
from tipchain.core.progress import LATE, OutOfTime, Pace
from tipchain.errors import UsageError
from tipchain.explain.locate.between_layers import ENLARGED, Enlarged
from tipchain.explain.locate.differences import Sketch, relative
from tipchain.explain.locate.gradients import large_weights
from tipchain.explain.locate.judging import PairJudge, rounded, same_numbers
from tipchain.explain.locate.matching import (
    CallPair,
    Comparer,
    LayerPair,
    Matching,
    TensorLink,
    match_calls,
    pair_layers,
    pair_packed,
)
from tipchain.explain.locate.rerun import BothModels, Corrections, Doubles, Models
from tipchain.explain.locate.runs import (
    LargeWeight,
    ModelInputs,
    Start,
    TracedRun,
    TracedRuns,
    drawn_between,
    few_of,
    random_start,
    run_model,
    samples_of,
)
from tipchain.explain.locate.trace import NotHeld, Store, Trace, TracedValue, Twins, each_call
from tipchain.explain.locate.verdicts import LayerVerdict, Measured, measure
from tipchain.framework_types import Array, Loss, Model, Options, Setting
from tipchain.frameworks.live_models import LiveSide, Sides
from tipchain.frameworks.randomness import Draws, partners_of
from tipchain.numbers.tolerance import ROUGH, SAME_SINGLE

Pair = tuple[Model, Model]
Losses = tuple[Loss | None, Loss | None]
WholeBatch = tuple[TracedRuns, tuple[float, ...], int | None]
"""Runs on all samples without their traces, how far outputs are apart, and the first call of the port that gives something else."""
BESIDE = 0.5
"""Bytes of tensors that are held whole, for each of both models' parameters: running the models takes several times that."""
MORE = 5
"""Runs of the port with known faults mended, to see others: each is one forward."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Located:
    """The findings about a pair of models.

    Attributes:
        matching: which call is which.
        verdicts: forward, in the order in which the port's calls ended; then backward, in the opposite order.
        first: the first that is at fault, or None.
        reference: the reference's run in float64.
        port: the port's.
        outputs: relative RMS differences of the models' outputs, in float64 where both run in it.
        links: which outputs belong together: what ``outputs`` begins with is about them.
        noise: how far outputs may be apart by what kernels compute in float32: in float64 too, or where a model runs in nothing else.
        gradients: the largest relative RMS difference of a parameter's gradients, in float64; inf where it is not known.
        alike: whether outputs and the gradients of all parameters agree in float64, but for constants in float32.
        doubles: whether each ran in float64.
        learns: whether the reference has parameters that take gradients.
        late: pairs of calls for which there was no time.
        layers: which layers with parameters belong together, whether they were called or not.
        later: by the id of a verdict about code, what a run told in which all that is wrong before gave the reference's tensors.
        again: the port's calls whose code is at fault and makes more than one tensor wrong, be it from the first one.
        joint: the pairs that were judged with what one side does next, an activation that the other's layer has inside.
        elsewhere: where all agrees, the verdict about code that does something else where layers give large values; else None.
        untried: why it is not known what code does where layers give large values; empty where it is, or all is not the same.
        enlarged: by what weights and biases are multiplied in these runs, by the path of the reference's layer, and of the port's.
    """

    matching: Matching
    verdicts: tuple[LayerVerdict, ...]
    first: LayerVerdict | None
    reference: TracedRun
    port: TracedRun
    outputs: tuple[float, ...]
    links: tuple[TensorLink, ...]
    noise: float
    gradients: float
    alike: bool
    doubles: tuple[bool, bool]
    learns: bool
    late: int = 0
    layers: tuple[LayerPair, ...] = ()
    later: Mapping[int, Located] = field(default_factory=dict)
    again: frozenset[str] = frozenset()
    joint: tuple[CallPair, ...] = ()
    elsewhere: LayerVerdict | None = None
    untried: str = ""
    enlarged: tuple[Mapping[str, float], Mapping[str, float]] = ({}, {})

    def shown(self, verdict: LayerVerdict) -> Located:
        """Return the runs that a verdict is about."""
        return self.later.get(id(verdict), self)

    def with_later(self, verdict: LayerVerdict, pair: CallPair | None, judge: PairJudge) -> Located:
        """Return this with one more verdict about code, before that about the pair which the code gives other tensors.

        Code that is at fault already has no second verdict: what it makes wrong later it may have made of that.
        """
        if any(one.at_fault and one.port_path == verdict.port_path for one in self.verdicts):
            return replace(self, again=self.again | {verdict.port_path})
        before = None if pair is None else pair.port.key
        behind = [one.direction == "backward" or (one.port_path, one.turn) == before for one in self.verdicts]
        place = [*behind, True].index(True)
        verdicts = (*self.verdicts[:place], verdict, *self.verdicts[place:])
        shown = replace(self, port=judge.runs.port, matching=judge.matching, verdicts=verdicts, later={})
        return replace(self, verdicts=verdicts, later={**self.later, id(verdict): shown})

    @property
    def one_sided(self) -> tuple[list[str], list[str]]:
        """The names of outputs that only the reference has, and of those that only the port has."""
        both = {link.ours for link in self.links}, {link.theirs for link in self.links}
        ours, theirs = ([*enumerate(run.output_names)] for run in (self.reference, self.port))
        return [name for n, name in ours if n not in both[0]], [name for n, name in theirs if n not in both[1]]

    @property
    def comparable(self) -> bool:
        """Whether both models were given the same random numbers."""
        return same_numbers(TracedRuns(self.reference, self.port))

    @property
    def exact(self) -> bool:
        """Whether both ran in float64."""
        return self.doubles[1]


@dataclass(slots=True)
class Locator:
    """Runs both models once in float64, and each pair of layers on the reference's input in float32.

    Attributes:
        sides: torch's and Paddle's.
        store: where tensors go.
        seed: of every random number.
        backward: whether gradients are compared too.
        training: the mode both are run in.
        pace: how long it may take.
        equal_nan: whether NaN at the same positions of both models' outputs, or gradients, is no fault.
        single: whether layers that agree in float64 are run in float32, too.
    """

    sides: Sides
    store: Store
    seed: int = 0
    backward: bool = True
    training: bool = False
    pace: Pace = field(default_factory=Pace)
    equal_nan: bool = False
    single: bool = False
    _models: Pair = field(init=False)
    _losses: Losses = field(init=False)
    _layers: Sequence[LayerPair] = field(init=False)
    _sketches: dict[int, Sketch] = field(init=False, default_factory=dict)
    _habits: tuple[bool, frozenset[int]] = field(init=False, default=(False, frozenset()))

    def locate(
        self,
        reference: object,
        port: object,
        inputs: ModelInputs,
        losses: Losses = (None, None),
        names: Mapping[str, str] | None = None,
        pairs: Sequence[LayerPair] | None = None,
    ) -> Located:
        """Compare two models layer by layer; neither is changed.

        Raises:
            OutOfTime: the time is up before any layer was compared.
            Exception: what a model raises in float32, or the reference in float64 with a loss.
        """
        known = pair_layers(reference, port, names) if pairs is None else pairs
        self._models, self._losses = (reference, port), losses
        self._layers = [*known, *pair_packed(reference, port, known)]
        self.store.samples = samples_of(inputs)
        self.store.room = max(self.store.room, int(BESIDE * sum(map(bytes_of, (reference, port)))))
        with keep_memory():
            found, whole = self._by_outlines(inputs)
            try:
                found = found or self._in_full(inputs, whole)
            except OutOfTime:
                raise OutOfTime(None if whole is None else max(whole[1], default=0.0)) from None
        return replace(found, layers=tuple(self._layers))

    def _by_outlines(self, inputs: ModelInputs) -> tuple[Located | None, WholeBatch | None]:
        """Compare the models by outlines of their tensors; None where whole ones are needed."""
        whole: WholeBatch | None = None
        with suppress(NotHeld):
            judge = self._judge(inputs)
            runs = TracedRuns(*(replace(run, trace=Trace(calls=()), values=()) for run in judge.runs))
            whole = runs, judge.outputs_apart(), judge.parting()
            cut = self.store.cut or any(run.projected for run in judge.runs)
            found = self._located(judge, judge.judge(hasty=cut), inputs)
            if found.first is None or not cut:
                return found, whole
        return None, whole

    def _in_full(self, inputs: ModelInputs, whole: WholeBatch | None) -> Located:
        """Compare the models with all tensors held: on some samples where they part as on all, else on all."""
        cut, self.store.samples = self.store.cut, None
        few = None if whole is None or not cut or self._trains() else few_of(inputs)
        if whole is not None and few is not None:
            runs, outputs, parting = whole
            with suppress(Exception):  # what is no batch of samples cannot be cut
                judge = self._judge_anew(few)
                if judge.parting() == parting:  # they part at the same call, or as little
                    found = self._located(judge, judge.judge(), few)
                    reference, port = (
                        replace(one, outputs=run.outputs, structure=run.structure, loss=run.loss)
                        for run, one in zip(runs, (found.reference, found.port), strict=True)
                    )
                    return replace(found, reference=reference, port=port, outputs=outputs)
        judge = self._judge_anew(inputs)
        return self._located(judge, judge.judge(), inputs)

    def _judge_anew(self, inputs: ModelInputs) -> PairJudge:
        self.store.forget()
        gc.collect()  # the copies of both models
        self._sketches.clear()
        return self._judge(inputs)

    def _judge(self, inputs: ModelInputs) -> PairJudge:
        """Return the judge of both; where they differ, perhaps with other random numbers.

        One side may keep where numbers are small, the other where they are large, if one makes masks by hand. What one draws in
        another shape may stand in another order: such a mask keeps all.
        """
        judge = self._run_and_match(inputs)
        drawn = judge.runs.port.draws
        for small, even in ((drawn.mixed(range(len(drawn.made))), frozenset[int]()), (False, drawn.unclear())):
            before, apart = self._habits, max(judge.outputs_apart(), default=0.0)
            habits = before[0] or small, before[1] | even
            if habits == before or apart <= ROUGH:
                continue
            self._habits = habits
            self._sketches.clear()
            other = self._run_and_match(inputs)
            if max(other.outputs_apart(), default=0.0) < apart:
                judge = other
            else:
                self._habits = before
        return judge

    def _run_and_match(self, inputs: ModelInputs) -> PairJudge:
        loss, _ = self._losses
        copies, runs, both = self._run_both(inputs)
        alone = [one for number, one in enumerate(runs.reference.values) if number not in both]
        if loss is None and both and any(one.gradient is not None for one in alone):
            # Backward must start from the same outputs on both sides, which is known only now.
            copies, runs, _ = self._run_both(inputs, both)
        return self._paired(copies, runs)

    def _paired(self, models: BothModels, runs: TracedRuns, noise: float = 0.0) -> PairJudge:
        return PairJudge(
            models=models,
            runs=runs,
            matching=match_calls(*runs.traces, self._layers, self._close),
            store=self.store,
            seed=self.seed,
            exact=models.port.double is not None,
            equal_nan=self.equal_nan,
            noise=noise,
            pace=self.pace,
            single=self.single,
        )

    def _located(self, judge: PairJudge, verdicts: tuple[LayerVerdict, ...], inputs: ModelInputs) -> Located:
        """Return a judge's findings; the layers are the user's from now on, not copies."""
        ours, theirs = judge.models
        found = Located(
            matching=judge.matching,
            verdicts=verdicts,
            first=next((one for one in verdicts if one.at_fault), None),
            reference=judge.runs.reference,
            port=judge.runs.port,
            outputs=judge.outputs_apart(),
            links=judge.outputs,
            doubles=(ours.double is not None, theirs.double is not None),
            learns=ours.double is not None and bool(ours.side.parameters(ours.double.whole)),
            late=judge.late,
            joint=tuple(judge.joint),
            noise=judge.noise if judge.exact else rounded(verdicts, "forward"),
            gradients=judge.gradients_apart,
            alike=judge.alike,
        )
        with suppress(Exception):  # a model may refuse what hooks hand it, and tensors may not be held
            for code in self._later(judge, verdicts, inputs):
                found = found.with_later(*code)
        samples = self.store.samples
        try:
            found = self._with_elsewhere(found, judge, inputs)
        except OutOfTime:
            found = replace(found, untried=LATE)
        except Exception as error:  # noqa: BLE001  (a model may refuse large values, or fewer samples)
            found = replace(found, untried=one_line(error))
        self.store.samples = samples
        shown = found.later.values()
        runs = (found.reference, *(one.reference for one in shown)), (found.port, *(one.port for one in shown))
        for side, model, several in zip(self.sides, self._models, runs, strict=True):
            users = dict(side.layers(model))
            for call in (call for run in several for call in run.trace.calls):
                call.layer = users.get(call.path, call.layer)
        return found

    def _later(
        self, judge: PairJudge, verdicts: Sequence[LayerVerdict], inputs: ModelInputs
    ) -> Iterator[tuple[LayerVerdict, CallPair | None, PairJudge]]:
        """Yield further faults of code between layers, the pairs with wrong tensors, and their judges.

        The port runs again in float64, with the reference's tensors wherever it is known to go wrong. So code behind that
        place is judged by what it makes of them. Of containers of one type the first is told.
        """
        wrong = [one for one in verdicts if one.at_fault and one.direction == "forward"]
        double = judge.models.port.double
        if not wrong or double is None or not same_numbers(judge.runs):
            return
        corrections, known = Corrections(self.sides.port, self.store), Twins(judge.runs.reference.trace, self.store)
        for pair in judge.wrong:
            corrections.at_exit(pair, judge.compare.outputs(pair))
        told, place, now = {type(double[one.port_path]): one.port_path for one in wrong}, -1, judge
        alike = judge.given_alike()  # what makes up for a layer's error is no fault once the layer is put right
        for _ in range(MORE):
            found = now.first_code()
            if found is None and now is not judge:
                return
            if found is not None:
                verdict, given = found
                if now is not judge and verdict.own == inf:  # of other shapes nothing is told
                    return
                path = told.setdefault(type(double[verdict.port_path]), verdict.port_path)
                if now is not judge and path == verdict.port_path and (given is None or given.port.number not in alike):
                    yield verdict, given, now
                if given is None or given.port.number <= place:
                    return
                place = given.port.number
                # Code with wrong tensors, and its results, is corrected in all containers of its type.
                holders, around = now.matching.containers, f"{verdict.port_path}."
                kinds = [type(one.port.layer) for one in holders if one.port.path == verdict.port_path]
                similar = [one for one in holders if one.port.parent is not None and type(one.port.layer) in kinds]
                for one in similar:
                    corrections.at_exit(one, now.compare.outputs(one))
                own = given.port.path
                inside = own.removeprefix(around) if verdict.port_path and own.startswith(around) else None
                paths = {own, *(f"{one.port.path}.{inside}" for one in similar if inside)}
                for other in (one for one in now.matching.pairs if one.port.path in paths):
                    corrections.at_entry(other, now.compare.inputs(other), now.runs.port.trace)
            if self.pace.over:
                return
            self.pace.tell("running the port in float64")
            with each_call(self.sides.port, double[""], corrections.enter, corrections.leave):
                draws = judge.runs.port.draws.again()
                run = self._run_model(self.sides.port, double[""], inputs, double=True, draws=draws, known=known)
            now = self._paired(judge.models, judge.runs._replace(port=run), now.noise)

    def _with_elsewhere(self, found: Located, judge: PairJudge, inputs: ModelInputs) -> Located:
        """Return the findings with the verdict about code that differs at layers' large values.

        Both models run once more, forward in float32. So code between the layers is judged by what it makes of numbers that
        these inputs do not show. What seems to differ is judged in float64, with all tensors held.
        """
        same = found.first is None and not found.late and judge.alike_outside
        if not same or self._trains() or any(run.draws.made for run in judge.runs) or not judge.has_code():
            return found
        few, pairs = few_of(inputs) or inputs, judge.agreeing()
        keys = {one.port.key for one in pairs}
        singles = BothModels(*(replace(one, double=None) for one in judge.models))
        # Where outlines did not do before, they do not here.
        for copies, samples in ((singles, self.store.samples and samples_of(few)), (judge.models, None)):
            if self.pace.over:
                raise OutOfTime(None)
            both, double = Enlarged(judge.models, pairs), copies is judge.models
            self.store.samples = samples
            try:
                traced: list[TracedRun] = []
                for number, one in enumerate(copies):
                    model, known = one.layer(""), Twins(traced[0].trace, self.store) if traced else None
                    given: Options = {"draws": Draws(self.seed), "flows": self.backward, "known": known}
                    with both.applied(number, model, known):
                        traced.append(self._run_model(one.side, model, few, double=one.double is not None, **given))
                runs = TracedRuns(*traced)
            except Exception:
                if double:
                    raise
                continue  # a model of other floats may not run in float32
            cut = both.cut_off(runs.port.trace)
            if cut is not None:
                return replace(found, verdicts=(*found.verdicts, told := judge.cuts_off(*cut)), first=told)
            now = self._paired(copies, runs, ROUGH)
            now.matching = replace(now.matching, pairs=tuple(one for one in now.matching.pairs if one.port.key in keys))
            code = now.first_code()
            # Float32 may have no numbers as large.
            nan = any(self.store.has_nan(one.stored) for one in runs.reference.values)
            if code is None and (double or (now.parting() is None and not nan)):
                break
            if code is None or not double:
                continue
            verdict, _ = code
            if verdict.own == inf:  # tensors of unlike shapes: the outputs decide
                verdict = next(iter(now.judge_outputs()), verdict)
            if not verdict.nan and isfinite(verdict.own or 0.0):
                reason = f"{verdict.reason} where layers give large values, of RMS {ENLARGED:g}: an input of such would show it"
                told = replace(verdict, direction="construction", reason=reason)
                reference, port = runs
                shown = replace(found, reference=reference, port=port, matching=now.matching, enlarged=both.factors)
                return replace(found, elsewhere=told, later={id(told): shown})
        return found

    def _trains(self) -> bool:
        """Tell whether a layer may be in train mode: samples then depend on the others."""
        both = zip(self.sides, self._models, strict=True)
        kept = (layer for side, model in both if not model.training for _, layer in side.layers(model))
        return self.training or any(layer.training for layer in kept)

    def _run_both(
        self, inputs: ModelInputs, only: Collection[int] | None = None
    ) -> tuple[BothModels, TracedRuns, set[int]]:
        """Run both; return also which outputs of the reference's the port has. Backward starts from ``only`` those."""
        start = partial(random_start, seed=self.seed, only=only)
        small, even = self._habits
        drawn = Draws(self.seed, small=small, even=even)
        large: tuple[Sequence[LargeWeight], Sequence[LargeWeight]] = (), ()
        if self.store.samples is not None:
            large = large_weights(self.sides, self._models, self._layers)
        ours, reference = self._run(0, inputs, drawn, start, large[0])
        if ours.double is not None:
            ours.double.lay_aside()
        both: set[int] = set()

        def likewise(values: Sequence[TracedValue], names: Sequence[str]) -> list[Array | None]:
            drawn = start(reference.values, reference.output_names)
            found: list[Array | None] = [None] * len(values)
            for link in Comparer(self.store).results(reference.values, values, reference.output_names, names):
                both.add(link.ours)
                given = drawn[link.ours]
                found[link.theirs] = None if given is None else link.layout.apply_gradient(given)
            return found

        known = Twins(reference.trace, self.store)
        double = ours.double is not None

        def run_port(partners: dict[int, int] | None = None) -> tuple[Models, TracedRun]:
            both.clear()
            draws = Draws(self.seed, follows=reference.draws, partners=partners, small=small, even=even)
            return self._run(1, inputs, draws, likewise, large[1], known=known, double=double)

        theirs, port = run_port()
        in_order = port.draws.in_order()
        if not port.draws.made or (in_order and _agree(reference, port)):
            return BothModels(ours, theirs), TracedRuns(reference, port), both
        partners = partners_of(drawn_between(reference, self._layers, 0), drawn_between(port, self._layers, 1))
        if in_order:  # numbers that fit may yet be another branch's, or of what the port does not do
            made = reference.draws.made
            left = [number for number in range(len(made)) if number not in set(partners.values())]
            for number, draw in enumerate(port.draws.made):  # each is the first of the reference's that it fits
                fitting = next((one for one in left if draw.fits(made[one])), None)
                if number not in partners and fitting is not None:
                    partners = {**partners, number: fitting}
                    left.remove(fitting)
        if partners != port.draws.partners:
            other = run_port(partners)
            if not in_order or _agree(reference, other[1]):
                theirs, port = other
        return BothModels(ours, theirs), TracedRuns(reference, port), both

    def _run(
        self,
        number: Literal[0, 1],
        inputs: ModelInputs,
        draws: Draws,
        start: Start,
        large: Sequence[LargeWeight],
        *,
        known: Twins | None = None,
        double: bool = True,
    ) -> tuple[Models, TracedRun]:
        """Run a copy of a model in float64, or in float32 if it does not run so or the reference does not."""
        side, model, loss = self.sides[number], self._models[number], self._losses[number]
        self.pace.tell(f"running the {'port' if number else 'reference'} in float64")
        given: Options = {"loss": loss, "backward": self.backward, "known": known, "start": start, "draws": draws}
        for way in side.ways if double else ():
            side.way = way
            made = side.copied(model, double=True, training=self.training)
            layers = Doubles(side, made, model)
            try:
                run = self._run_model(side, made, inputs, double=True, large=large, **given)
                return Models(side, model, self.training, layers), run
            except (NotHeld, OutOfTime, UsageError):
                raise
            except Exception:
                draws.rewind()
                if way == side.ways[-1] and not number and loss is not None:
                    raise  # it may be the loss that does not run so
        made = side.copied(model, double=False, training=self.training)
        return Models(side, model, self.training, None), self._run_model(side, made, inputs, double=False, **given)

    def _run_model(
        self, side: LiveSide, model: Model, inputs: ModelInputs, *, double: bool, **given: Setting
    ) -> TracedRun:
        return run_model(side, model, inputs, self.store, double=double, seed=self.seed, pace=self.pace, **given)

    def _close(self, one: TracedValue, other: TracedValue) -> bool:
        ours, theirs = one.stored, other.stored
        if theirs.twin is ours:
            return True
        if prod(ours.shape) != prod(theirs.shape):
            return False
        if ours.shape == theirs.shape and (ours.outline is not None or theirs.outline is not None):
            return self.store.projected(ours).relative(self.store.projected(theirs)) <= SAME_SINGLE
        return self._sketch(one).close(self._sketch(other), SAME_SINGLE)

    def _sketch(self, value: TracedValue) -> Sketch:
        stored = value.stored.twin or value.stored
        if id(stored) not in self._sketches:
            self._sketches[id(stored)] = Sketch(self.store.get(stored))
        return self._sketches[id(stored)]


def _agree(ours: TracedRun, theirs: TracedRun) -> bool:
    both = list(zip(ours.outputs, theirs.outputs, strict=False))
    return bool(both) and all(relative(one, other) <= SAME_SINGLE for one, other in both)


def single_outputs(located: Located, ours: Sequence[Array], theirs: Sequence[Array]) -> list[Measured]:
    """Return the errors of the outputs in float32, of both sides."""
    found = []
    for link, apart in zip(located.links, located.outputs, strict=False):
        truth, what = located.reference.outputs[link.ours], f"output {located.port.output_names[link.theirs]}"
        if truth.dtype.kind == "f":
            found.append(measure(what, truth, ours[link.ours], link.layout.back(theirs[link.theirs]), apart))
    return found


def bytes_of(model: Model) -> int:
    """Return how many bytes a model's parameters take."""
    return sum(prod(one.shape) * int(one.element_size()) for one in model.parameters())
