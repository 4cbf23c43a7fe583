"""Is a live Paddle layer the same model as a live torch module: `tipchain.align`."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, partial
from itertools import product
from math import inf
from pathlib import Path

from tipchain.core.blame import one_line
from tipchain.core.files import commit
from tipchain.core.machine import collect, keep_memory
from tipchain.core.progress import LATE, OutOfTime, Pace, Progress
from tipchain.errors import Outcome, UsageError
from tipchain.explain.causes.hypotheses import below
from tipchain.explain.causes.losses import check_loss
from tipchain.explain.causes.optimizer_builders import Clips, build_both, build_torch_schedule
from tipchain.explain.causes.optimizers import check_optimizers
from tipchain.explain.causes.schedules import check_schedulers
from tipchain.explain.causes.search import unsearched
from tipchain.explain.findings import PIECES, SIDE_NAMES, Diagnosis, PieceCheck
from tipchain.explain.locate.between_layers import GROWTH
from tipchain.explain.locate.differences import rms
from tipchain.explain.locate.distributions import distributed_otherwise
from tipchain.explain.locate.locate import Located, Locator, bytes_of, coarse_outputs
from tipchain.explain.locate.matching import CallPair, LayerPair, hands_on, pair_layers
from tipchain.explain.locate.other_runs import (
    Called,
    Refusal,
    UnlikeDraw,
    answers,
    call_both,
    explain_draws,
    in_mode,
    judge_draws,
    other_inputs,
    others,
    told_shapes,
    unlike_draws,
    without_zeros,
)
from tipchain.explain.locate.runs import ARGS, ModelInputs, as_float, few_of, read_inputs, samples_of
from tipchain.explain.locate.trace import Call, Store, put_back
from tipchain.explain.locate.verdicts import Closeness, LayerVerdict, reason_of
from tipchain.explain.preflight.construction import check as check_construction
from tipchain.explain.preflight.optimizers import level_epsilons
from tipchain.explain.preflight.parameters import MANY, Tensors, two_initializations
from tipchain.explain.preflight.trials import weigh
from tipchain.framework_types import Function, Loss, Model, Optimizer, Options, Schedule, Setting
from tipchain.frameworks.live_models import PaddleSide, Sides, TorchSide, name_alike
from tipchain.frameworks.randomness import Draws
from tipchain.live.arguments import as_inputs, check_models, check_outputs, check_pair
from tipchain.live.buffers import check_buffers
from tipchain.live.causes import (
    explain_layers,
    first_constructed,
    place_layers,
    place_pieces,
    placed,
    with_construction,
)
from tipchain.live.lockstep import compare
from tipchain.live.partings import loop_causes
from tipchain.live.predictions import PREDICT, Fed, Predict
from tipchain.live.report import AlignmentReport, count_all
from tipchain.live.training import STEP, Recipe, Step, laid_of
from tipchain.numbers.tolerance import ROUGH, SAME_SINGLE
from tipchain.weights.given_names import check_names, with_ignored

Builder = Function
STAGES = tuple(
    """
        data train_data preflight forward metric predict loss backward optimizer schedule train step
    """.split()
)
"""The stages in the order in which a report has them."""
RESTS_ON: Mapping[str, tuple[str, ...]] = {
    "loss": ("forward",),
    "metric": ("forward",),
    "backward": ("forward", "loss"),
    "train": ("forward", "loss", "backward"),
}
"""The stages that are compared with a stage, for it says nothing where they differ."""
MODES = ("eval", "train")
RANDOM = "random, not comparable: the models' random numbers cannot be made the same"
"""What is said of results that depend on them."""
EVAL = "in eval mode"
SHOWN_OUTPUTS = 4
"""Outputs that only one side has which a stage's reason names; all are in ``report.unmatched``."""


def align(
    reference: object,
    port: object,
    inputs: object,
    *,
    loss: tuple[Loss, Loss] | None = None,
    optimizers: tuple[Builder, Builder] | None = None,
    schedulers: tuple[Builder | None, Builder | None] | None = None,
    clip: Builder | tuple[Builder | None, Builder | None] | None = None,
    step: tuple[Step, Step] | None = None,
    iterations: int = 5,
    training: bool = False,
    modes: Sequence[str] = (),
    stages: Sequence[str] = (),
    other_inputs: Sequence[object] = (),
    outputs: object = None,
    equal_nan: bool = False,
    names: Mapping[str, str] | None = None,
    ignore: Sequence[str] = (),
    seed: int = 0,
    causes: bool = True,
    data: tuple[object, object] | Mapping[str, tuple[object, object]] | None = None,
    samples: Sequence[object] | None = None,
    metrics: tuple[object, object] | None = None,
    predict: tuple[Predict, Predict] | None = None,
    within: float | None = None,
    progress: Callable[[str], None] | Progress | None = None,
) -> AlignmentReport:
    """Compare a torch module with its Paddle port: construction, every layer forward and backward, then training.

    The weights are compared as they are; `tipchain.copy_weights` copies them first. If nearly all weights differ, the report
    says so and nothing else. Copies of the models run, so the models themselves never change.
    Each layer of the port gets the input of the reference's layer. That separates its own error from the error that it inherits.
    A run in float64 separates rounding from a fault. Random layers draw equal masks on both sides.

    Every pair is a tuple of torch's object and Paddle's object, in this order.

    Args:
        reference: a ``torch.nn.Module``.
        port: a ``paddle.nn.Layer``.
        inputs: the arguments of forward: one array or tensor; a tuple of them; a mapping by name of the argument, with
            positional ones under ``"args"``; or the path of a ``.npz`` file with such a mapping. ``"labels"`` in the mapping are
            the labels for the losses. An argument, or the labels, may be arrays in tuples, lists and mappings: for a forward of
            one such argument write ``([one, other],)``. Floats run in float64 and in float32.
        loss: a pair of functions ``(output, labels) -> scalar``. Without it, backward starts from random gradients.
        optimizers: a pair of builders ``(parameters)`` or ``(parameters, learning_rate)``. With ``loss``, the models are trained.
        schedulers: a pair of builders ``(optimizer)``; Paddle's may take no argument. None for one side: its learning rate is
            constant, or the builder of its optimizer makes the schedule.
        clip: the gradient clipping of the reference's training loop, a function of its parameters:
            ``lambda parameters: torch.nn.utils.clip_grad_norm_(parameters, 1.0)``. It is compared with Paddle's ``grad_clip=``.
            A pair, if the port's loop clips, too.
        step: a pair of training steps of the loops themselves: functions ``(model, optimizer, batch) -> loss``. A step that
            keeps a counter, a scaler or an average is a class (or a function) of ``(model, optimizer)`` that returns a callable of
            a batch; see ``docs/how-to/training.md``. It needs ``optimizers``.
        iterations: the number of updates (calls of ``step``) that are compared, at least 1.
        training: whether the models are in train mode (BatchNorm uses batches, dropout drops) or in eval mode.
        modes: the modes in which the models are trained, ``"eval"`` and ``"train"``. Default: the mode of ``training``.
        stages: the stages that are compared, and what they rest on: ``"loss"`` compares the network, too. The construction is
            compared in any case. Default: all stages that the arguments allow.
        other_inputs: further inputs of forward, each like ``inputs``, whose outputs are compared in eval mode.
        outputs: the outputs that are compared and given to losses and metrics: a name, an index, a list of them, or a function
            of the output. A tuple has one for each side. Default: all outputs of both models, matched by name, otherwise by
            position, shape and values.
        equal_nan: whether NaN at the same positions of both models' outputs, losses or gradients counts as equal. Default: it fails.
        names: torch's paths of layers or tensors, and Paddle's, where names, values and structure do not decide.
        ignore: layers or tensors of one model that do not exist in the other.
        seed: the seed of all random numbers.
        causes: whether to search for the cause of a difference.
        data: a pair of data that is compared sample by sample: iterables of samples or batches, data sets, loaders, or functions
            without arguments that return one. With ``samples`` it is a pair of transforms of one raw sample. A mapping holds such
            pairs for the stages ``"data"`` and ``"train_data"``.
        samples: raw samples for both transforms, for example uint8 images of shape ``[h, w, c]``.
        metrics: a pair of metrics: functions ``(outputs, labels)`` of numpy arrays (or tensors) that return a number or numbers
            by name, or objects with the methods of `paddle.metric.Metric` or of torchmetrics.
        predict: a pair of deployment code: functions ``(model, raw) -> result``, or ``(model)`` that returns a function of a raw
            sample. Both get ``samples``, or ``inputs`` without ``samples``.
        within: a time limit in seconds. After it no new comparison begins. The report has the results so far; a stage without a
            result is an ERROR.
        progress: a function that gets a line of text when a new part of the work begins, with an estimate of the remaining time.

    Returns:
        The report. A stage that could not be compared is an ERROR in it.

    Raises:
        UsageError: swapped or missing models; inputs that are not arrays; one function in place of a pair; ``iterations``
            below 1; unknown ``stages`` or ``modes``; ``names`` that the models lack; ``outputs`` that a model does not return.
        MissingFrameworkError: torch or paddle cannot be imported.
    """
    named = isinstance(inputs, Mapping | str | Path)
    inputs = as_inputs(inputs)
    given, fed = read_inputs(inputs), Fed.of(data, samples, metrics, predict)
    if within is not None and not within > 0:
        raise UsageError(f"within is {within}, expected seconds above 0")
    if iterations < 1:
        raise UsageError(f"iterations is {iterations}, expected at least 1")
    for name, words, known in (("stages", stages, STAGES), ("modes", modes, MODES)):
        if wrong := [word for word in words if word not in known]:
            raise UsageError(f"{name} has {wrong[0]!r}\n  expected: {', '.join(known)}")
    sides = Sides(TorchSide(), PaddleSide())
    check_models(reference, port)
    check_pair("loss", loss)
    check_pair("optimizers", optimizers)
    check_pair("schedulers", schedulers, lacking=True)
    check_pair("step", step)
    for name, value in (("step", step), ("clip", clip), ("schedulers", schedulers)):
        if value is not None and optimizers is None:
            raise UsageError(f"{name} was given without optimizers\n  expected: optimizers=(torch's builder, Paddle's)")
    clips = clip if isinstance(clip, tuple | list) or clip is None else (clip, None)
    check_pair("clip", clips, lacking=True)
    check_names(names or {}, reference, port)
    given = replace(given, outputs=outputs if isinstance(outputs, tuple) else (outputs, outputs))
    check_outputs(given.outputs)
    work = _Alignment(
        sides=sides,
        models=(reference, port),
        inputs=given,
        loss=loss,
        optimizers=optimizers,
        schedulers=schedulers,
        clips=clips or (None, None),
        step=step,
        iterations=iterations,
        training=training,
        modes=tuple(modes) or (MODES[training],),
        wanted=frozenset(stages or STAGES).union(*(RESTS_ON.get(one, ()) for one in stages)),
        others=tuple(read_inputs(as_inputs(one)) for one in other_inputs),
        names=with_ignored(names or {}, ignore, reference, port),
        seed=seed,
        causes=causes,
        equal_nan=equal_nan,
        fed=fed,
        raw=inputs if named else inputs[ARGS],
        pace=Pace(within, progress),
    )
    store = Store()
    try:
        work.check_data()
        work.run(store)
    finally:
        store.close()
    return work.report()


@dataclass(slots=True, kw_only=True)
class _Alignment:
    """One alignment: what it was asked, and what it has found so far."""

    sides: Sides
    models: tuple[Model, Model]
    inputs: ModelInputs
    loss: tuple[Loss, Loss] | None
    optimizers: tuple[Builder, Builder] | None
    schedulers: tuple[Builder | None, Builder | None] | None
    clips: Clips
    step: tuple[Step, Step] | None
    iterations: int
    training: bool
    modes: tuple[str, ...]
    wanted: frozenset[str]
    others: tuple[ModelInputs, ...]
    names: dict[str, str]
    seed: int
    causes: bool
    equal_nan: bool
    fed: Fed
    raw: object
    pace: Pace = field(default_factory=Pace)
    found: AlignmentReport = field(default_factory=lambda: AlignmentReport(stages={}))
    first: LayerVerdict | None = None
    tensors: Tensors | None = None
    of_runs: list[LayerVerdict] = field(default_factory=list)
    other_draws: tuple[Draws, Draws] | None = None
    excused: bool = False

    def check_data(self) -> None:
        """Compare the data, which needs no model."""
        for name, check in self.fed.check_data(self.sides, self.seed):
            self._take(name, check)

    def run(self, store: Store) -> None:
        """Go through the stages; one that raises is an ERROR, and the others go on without it."""
        pairs: list[LayerPair] = []
        located: Located | None = None
        with self._erring("forward"):
            pairs = pair_layers(*self.models, self.names)
            if self._are_strangers(pairs):
                return
            try:
                located = self._locate(store, pairs) if "forward" in self.wanted else None
            except OutOfTime as error:
                apart = error.apart
                differ = apart is not None and not apart <= SAME_SINGLE
                told = f"the outputs differ, relative {apart:.3g}; the layers were {LATE}" if differ else LATE
                self._end("forward", Outcome.FAIL if differ else Outcome.ERROR, told)
        located = None if located is None else self._without_double_alone(located)
        self._stage("preflight", self._check_construction, pairs, located, store)
        if located is not None and self.loss is not None and "loss" in self.wanted:
            self._stage("loss", self._check_loss, located, self.loss)
            if self.found.stages["loss"] is not Outcome.PASS and located.losses and not self.pace.over:
                located = self._without_losses(store, pairs, located)
        if located is not None:
            self.found.layers[:] = located.verdicts
            self.first = located.first or located.elsewhere
            self.found.histograms[:] = count_all(located, store, located.first)
            self._judge_forward(located)
            self._judge_backward(located)
            if (
                self.found.stages["forward"] is Outcome.PASS
                and located.exact
                and located.comparable
                and located.changed
            ):
                draws = located.reference.draws, located.port.draws
                self._judge_buffers(located, self.inputs, draws, training=self.training)
            if self._agrees() and not located.comparable and _untold(located, "forward", some_left=True):
                how = "in train mode" if self.training else EVAL
                unlike = unlike_draws(located, self.models)
                self._judge_draws(located, unlike, how, self.inputs, training=self.training)
            elif self._agrees():
                self._judge_other_mode(located)
            if self._agrees() and located.exact:
                with self._erring("forward"):
                    self._judge_single(located)
            if self._agrees() and not self.training and not located.port.draws.made:
                self._judge_given_inputs()
                self._judge_other_inputs(located)
        if self.fed.metrics is not None and "metric" in self.wanted:
            self._stage("metric", self._check_metrics, located)
        if self.fed.predict is not None and PREDICT in self.wanted:
            self._stage(PREDICT, self._check_predictions)
        if self.optimizers is not None:
            self._run_training(self.optimizers, pairs, located)
        if self.causes:
            # Of eval mode the trace decides: causes are tried in the modes that the user's models have.
            with in_mode(self.sides, self.models, training=True) if self.training else nullcontext():
                self._explain(located, store)

    def _explain(self, located: Located | None, store: Store) -> None:
        """Look for what makes layers differ; what construction tells stands beside it."""
        if located is not None:
            drawn: list[Diagnosis] = []
            draws = located.reference.draws.made or located.port.draws.made
            if draws and self.found.stages["forward"] is Outcome.FAIL:
                unlike = unlike_draws(located, self.models)
                alone = [one for one in unlike if None in (one.reference, one.port)]
                rates = [one for one in unlike if one.has_other_rate]
                drawn = explain_draws(located, rates if self.training else alone, training=self.training)
            of_layers, places = explain_layers(
                located,
                [
                    *([] if located.elsewhere is None else [located.elsewhere]),
                    *(one for one in self.found.layers if one not in self.of_runs),  # their causes are told already
                ],
                self.found.findings,
                self.sides,
                self.models,
                store,
                self.seed,
                self.pace,
            )
            told = {one.port_path: one.code for one in of_layers if one.is_known}
            if self.training:  # one rate is told by its call; where several differ no change of one call explains all
                drawn = [one for one in drawn if told.get(one.port_path, "parting") == "parting"]
            drawn = [one for one in drawn if one.code != "missing-call" or one.port_path not in told]
            known = [one for one in of_layers if not drawn or (one.is_known and one.name != "dropout-p")]
            if self.training:
                known = [one for one in known if one.port_path not in {draw.port_path for draw in drawn}]
            self.found.diagnoses[:] = [*drawn, *known, *self.found.diagnoses]
            self.first = placed(self.first, places, located, self.models)
        self.found.diagnoses[:] = with_construction(self.found.diagnoses, self.found.findings)

    def _are_strangers(self, pairs: list[LayerPair]) -> bool:
        """Tell whether the weights are two initializations; then that is the verdict, and nothing else is compared."""
        self.tensors = Tensors(*self.models, pairs, self.names)
        strange = two_initializations(self.tensors)
        if strange is None or strange.compared < MANY:
            return False
        finding = strange.finding
        self.found.findings[:] = [finding]
        self._end("preflight", Outcome.FAIL, f"{finding.message}; nothing else was compared")
        cause = Diagnosis(
            code="parameter",
            name=finding.code,
            port_path="",
            message=finding.message,
            evidence="parameters whose elements are all equal were not counted",
            fix=finding.fix,
        )
        self.found.diagnoses.append(cause)
        return True

    def _run_training(
        self, optimizers: tuple[Builder, Builder], pairs: list[LayerPair], located: Located | None
    ) -> None:
        if "optimizer" in self.wanted:
            self._stage("optimizer", self._check_optimizers, optimizers)
        if self.schedulers is not None and "schedule" in self.wanted:
            self._stage("schedule", self._check_schedulers, optimizers, self.schedulers)
        if self.loss is not None and located is not None and "train" in self.wanted:
            self._stage("train", self._train, pairs, located, self.loss)
        if self.step is not None and STEP in self.wanted:
            self._stage(STEP, self._check_steps, pairs, located, self.step)

    def _locate(self, store: Store, pairs: list[LayerPair], *, losses: bool = True) -> Located:
        """Run both models and compare their layers; backward starts from the losses, if there are some that run."""
        locator = Locator(
            self.sides,
            store,
            seed=self.seed,
            backward="backward" in self.wanted,
            training=self.training,
            pace=self.pace,
            equal_nan=self.equal_nan,
        )
        if losses and self.loss is not None and locator.backward:
            try:
                return locator.locate(*self.models, self.inputs, self.loss, self.names, pairs)
            except OutOfTime:
                raise
            except Exception:  # noqa: BLE001  (the stage of the loss tells what is wrong with it)
                store.forget()
        return locator.locate(*self.models, self.inputs, names=self.names, pairs=pairs)

    def _without_losses(self, store: Store, pairs: list[LayerPair], located: Located) -> Located | None:
        """Return what is found without the losses, which differ: another loss is no fault of the layers.

        Where there is no time for that, what was found forward is kept, and None is returned.
        """
        self._judge_forward(located)
        self.found.layers[:] = [one for one in located.verdicts if one.direction == "forward"]
        self.first = next((one for one in self.found.layers if one.at_fault), None)
        try:
            return self._locate(store, pairs, losses=False)
        except OutOfTime:
            self._end("backward", Outcome.ERROR, LATE)
            self.found.diagnoses.extend([] if self.first is None else [unsearched(self.first)])
            return None

    def report(self) -> AlignmentReport:
        """Return what was found."""
        told = [self._staged(one) for one in sorted(self.found.diagnoses, key=lambda one: not one.is_known)]
        return replace(
            self.found,
            stages={name: self.found.stages[name] for name in STAGES if name in self.found.stages},
            first_divergence=self.first or first_constructed(self.found.findings, self.sides, self.models),
            diagnoses=place_pieces(place_layers(told, self.sides, self.models), self._pieces()),
            versions=versions(),
            command=self._call(),
            origin=self._origin(),
        )

    def _origin(self) -> dict[str, str]:
        classes = (type(one) for one in self.models)
        names = [f"{one.__module__}.{one.__qualname__}" for one in classes]
        when, at = datetime.now().astimezone().isoformat(sep=" ", timespec="minutes"), _commit(Path.cwd())
        return dict(zip(("reference", "port", "date", "commit"), (*names, when, at), strict=True))

    def _staged(self, cause: Diagnosis) -> Diagnosis:
        """Return a cause with the stage that it makes fail and the reference's layer, which the verdict on its layer has."""
        if cause.stage:
            return cause
        # A cause may be told of a layer within the one whose verdict says that it is at fault.
        around = [
            one for one in self.found.layers if one.at_fault and below(cause.port_path, one.port_path) is not None
        ]
        fault = max(around, key=lambda one: len(one.port_path), default=None) if cause.port_path not in PIECES else None
        if fault is not None:
            stage = "preflight" if fault.direction == "construction" else fault.direction
            return replace(cause, stage=stage, reference_path=fault.reference_path)
        built = next((one.reference_path for one in self.found.findings if one.port_path == cause.port_path), "")
        return replace(cause, stage="preflight", reference_path=built)

    def _pieces(self) -> dict[str, tuple[object, object]]:
        """Return what surrounds the models, by what causes call it."""
        given: Options = {
            "loss": self.loss,
            "optimizer": self.optimizers,
            "scheduler": self.schedulers,
            STEP: self.step,
            "metric": self.fed.metrics,
            PREDICT: self.fed.predict,
            **self.fed.data,
        }
        return {name: tuple(pair) for name, pair in given.items() if pair is not None}

    def _call(self) -> str:
        """Return the call as it was made; objects stand by their argument's name."""
        objects = {
            "loss": self.loss,
            "optimizers": self.optimizers,
            "schedulers": self.schedulers,
            "clip": any(self.clips),
            "step": self.step,
            "data": self.fed.data,
            "samples": self.fed.samples is not None,
            "metrics": self.fed.metrics,
            "predict": self.fed.predict,
            "names": self.names,
            "outputs": any(one is not None for one in self.inputs.outputs),
            "equal_nan": self.equal_nan,
        }
        told = [f"{name}={name}" for name, value in objects.items() if value]
        told += [f"{name}={getattr(self, name)}" for name in ("iterations", "training", "seed")]
        return f"tipchain.align(reference, port, inputs, {', '.join(told)})"

    def _end(self, stage: str, outcome: Outcome, reason: str) -> None:
        self.found.stages[stage], self.found.reasons[stage] = outcome, reason

    def _add(self, stage: str, told: str) -> None:
        """Add something to a stage's reason."""
        self.found.reasons[stage] += f"; {told}" if told else ""

    def _leave_out(self, told: str) -> None:
        """Note what could not be compared, and no other check covers."""
        if told not in self.found.uncompared:
            self.found.uncompared.append(told)

    def _asked(self) -> list[str]:
        """Return the stages that stand beside the layers' and were given what they need, in the order in which they run."""
        trained = self.optimizers is not None
        given = {
            "preflight": True,
            "loss": self.loss is not None,
            "metric": self.fed.metrics is not None,
            PREDICT: self.fed.predict is not None,
            "optimizer": trained,
            "schedule": trained and self.schedulers is not None,
            "train": trained and self.loss is not None,
            STEP: trained and self.step is not None,
        }
        return [stage for stage, there in given.items() if there and stage in {"preflight"} | self.wanted]

    def _stage(self, stage: str, work: Callable[..., None], *args: object) -> None:
        """Do the work of one stage; what it raises is its ERROR, and so is that the time is up."""
        asked = self._asked()
        self.pace.tell(
            f"stage {asked.index(stage) + 1} of {len(asked)}: {stage}" if len(asked) > 1 else f"stage {stage}"
        )
        if self.pace.over and stage != "preflight":
            self._end(stage, Outcome.ERROR, LATE)
            return
        with self._erring(stage):
            work(*args)

    @contextmanager
    def _erring(self, stage: str) -> Iterator[None]:
        """Make what is raised inside the stage's ERROR; wrong use stays what it is."""
        try:
            yield
        except UsageError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  (a user's model, loss or optimizer may raise anything)
            self._end(stage, Outcome.ERROR, one_line(error))

    def _judge_forward(self, located: Located) -> None:
        self.found.unmatched.update(
            {
                "reference": [tell_call(call) for call in located.matching.reference_only if not hands_on(call)],
                "port": [tell_call(call) for call in located.matching.port_only if not hands_on(call)],
            }
        )
        for link, apart in zip(located.links, located.outputs, strict=False):
            self.found.numbers[f"output {located.port.output_names[link.theirs]}"] = apart
        alone = [
            f"{name or 'the output'} ({side} only)"
            for side, names in zip(SIDE_NAMES, located.one_sided, strict=True)
            for name in names
        ]
        if alone:
            self.found.unmatched["outputs"] = alone
        forward = [one for one in located.verdicts if one.direction == "forward"]
        self.found.curves["depth/own"] = [one.own or 0.0 for one in forward]
        self.found.curves["depth/inherited"] = [one.inherited for one in forward]
        self._end("forward", *self._judge(located, forward, "forward"))

    def _judge_buffers(
        self, located: Located, inputs: ModelInputs, draws: tuple[Draws, Draws], *, training: bool
    ) -> None:
        """Judge what one call leaves in the buffers of both models, where it changes some."""
        with self._erring("forward"):
            copies = (self._copied(0, training=training), self._copied(1, training=training))
            pairs = located.matching.pairs
            verdicts, causes = check_buffers(self.sides, copies, inputs, self.names, pairs, draws, SAME_SINGLE)
            self.found.diagnoses.extend(causes)
            if verdicts:
                self._take_verdicts(verdicts)
                self._end("forward", *self._judge(located, verdicts, "forward"))

    def _take_verdicts(self, verdicts: Sequence[LayerVerdict]) -> None:
        """Add verdicts of a run of its own, whose causes are told already."""
        self.found.layers.extend(verdicts)
        self.of_runs.extend(verdicts)
        self.first = self.first or next((one for one in verdicts if one.at_fault), None)

    def _agrees(self) -> bool:
        """Tell whether the models agree in all that was compared."""
        stages = (self.found.stages.get(one) for one in ("preflight", "forward", "backward"))
        return all(one in (None, Outcome.PASS, Outcome.SKIP) for one in stages)

    def _judge_other_mode(self, located: Located) -> None:
        """Judge what the models do in train mode, or in eval mode if they ran in train mode."""
        training, mode = (False, "eval") if self.training else (True, "train")
        with self._erring("forward"):
            if self.pace.over:
                self._add("forward", f"{mode} mode was not compared: {LATE}")
                return
            self.pace.tell(f"running both models in {mode} mode")
            few = few_of(self.inputs)
            batches = (self.inputs,) if few is None else (few, self.inputs)
            for given, double in product(batches, (True, False)[not located.exact :]):
                told = call_both(self.sides, self.models, given, self.seed, training=training, double=double)
                if isinstance(told, Called):
                    break
            if isinstance(told, Refusal) and told.fault:
                why = f"in {mode} mode the port raises, the reference does not: {told.told}"
                self._fail_model(why, _called(located, told.path))
            elif isinstance(told, Refusal):
                who = "the port does not run in it" if told.by_port else "the reference does not run in it"
                self._add("forward", f"{mode} mode was not compared: {who}: {told.told}")
            elif told.apart is None or not told.apart <= max(SAME_SINGLE, located.noise):
                self._locate_again(given, f"in {mode} mode", training=training)
            else:
                self.other_draws = told.draws
                if told.changed and double:
                    self._judge_buffers(located, given, told.draws, training=training)

    def _judge_single(self, located: Located) -> None:
        """Judge both in float32, as their users run them: a layer may raise there alone, or compute with fewer bits."""
        if self.pace.over:
            self._add("forward", f"float32 was not compared: {LATE}")
            return
        told = call_both(self.sides, self.models, self.inputs, self.seed, training=self.training, double=False)
        if isinstance(told, Refusal):
            why = f"in float32 the port raises, the reference does not: {told.told}"
            if told.by_port:
                self._fail_model(why, _called(located, told.path)) if told.fault else self._add("forward", why)
            return
        coarse = [] if located.port.draws.made else coarse_outputs(located, *told.made)
        if coarse:
            self._locate_again(self.inputs, "in float32", training=self.training, single=True)
        if coarse and self._agrees():
            self._add(
                "forward", f"in float32 {reason_of(Closeness.LOWER_PRECISION, coarse[0])}, of code between layers"
            )

    def _judge_given_inputs(self) -> None:
        """Judge what the models do with the other inputs that were given."""
        for given in self.others if self._agrees() else ():
            with self._erring("forward"):
                self.pace.tell("running both models with the other inputs")
                told = self._call_with(given)
                if isinstance(told, Refusal):
                    who, why = "port" if told.by_port else "reference", f"with inputs of shape {told_shapes(given)}"
                    self._end(
                        "forward",
                        Outcome.FAIL if told.by_port else Outcome.ERROR,
                        f"{why} the {who} raises: {told.told}",
                    )
                elif told.differs:
                    self._judge_with(given, alike=True)

    def _judge_other_inputs(self, located: Located) -> None:
        """Judge what the models do with a batch of another size, with images or sequences of other sizes, and when called again.

        One run has all that. What differs is judged in float64.
        """
        alike = [one.shape for one in located.reference.outputs] == [one.shape for one in located.port.outputs]
        if self.pace.over:
            self._add("forward", "other inputs were not compared: out of time")
            return
        first = [one.shape for one in self.inputs.arrays()[:1]]
        last = any(
            call.type == "Conv1d" and [one.shape for one in call.inputs[:1]] == first
            for call in located.reference.trace.calls
        )
        with self._erring("forward"), keep_memory():
            self.pace.tell("running both models with inputs of other sizes")
            told, raised, refused = None, "", ""
            for given in other_inputs(self.inputs, (last,)):
                told = self._call_with(given, others(given))
                if isinstance(told, Called):
                    refused = ""
                    if told.differs:
                        self._judge_with(given, alike=alike)
                    break
                shapes, counts = told_shapes(given), (samples_of(self.inputs) or 0, samples_of(given) or 0)
                if told.by_port:
                    why = f"the port raises with inputs of shape {shapes}, the reference does not: {told.told}"
                    # The reference may take such inputs and mean nothing by it, or the port say by itself that it does not.
                    if told.fault and answers(located.reference.outputs, told.made, counts):
                        self._fail_model(why, _called(located, told.path))
                        return
                    raised = raised or why
                elif not refused:
                    refused = f"other inputs were not compared: the reference raises with those of shape {shapes}: {told.told}"
            if told is None:
                refused = "other inputs were not compared: the inputs have no common first axis"
            self._add("forward", raised or refused)

    def _judge_with(self, inputs: ModelInputs, *, alike: bool) -> None:
        """Judge what differs with inputs of other sizes, or in the second of two calls; ``alike``: the outputs' shapes were the same."""
        alone, how = self._call_with(inputs), f"with inputs of shape {told_shapes(inputs)}"
        if isinstance(alone, Refusal):
            return
        filled = without_zeros(inputs, self.inputs)
        if filled is not None and alone.differs:
            other = self._call_with(filled)
            if isinstance(other, Called) and not other.differs:
                how = "with the id 0 in the input"
        if not alone.differs:
            self._fail_model(
                "called a second time, with other values, it gives other outputs: the port keeps something between calls"
            )
            return
        self._locate_again(inputs, how, training=False)
        ours, theirs = ([list(shape) for shape in one] for one in alone.shapes)
        if alike and ours != theirs and self._agrees():
            self._fail_model(f"{how}: its outputs have other shapes: expected {ours}, actual {theirs}")

    def _call_with(self, inputs: ModelInputs, before: ModelInputs | None = None) -> Called | Refusal:
        return call_both(self.sides, self.models, inputs, self.seed, training=False, double=False, before=before)

    def _fail_model(self, reason: str, place: CallPair | None = None) -> None:
        """Judge the whole model to be at fault, or a layer."""
        reference, port = (type(one).__name__ for one in self.models)
        if place is not None:
            reference, port = place.reference.type, place.port.type
        verdict = LayerVerdict(
            reference_path="" if place is None else place.reference.path,
            port_path="" if place is None else place.port.path,
            reference_type=reference,
            port_type=port,
            direction="forward",
            closeness=Closeness.DIFFERS,
            reason=reason,
        )
        self._take_verdicts([verdict])
        self._end("forward", Outcome.FAIL, f"{verdict.port_path or 'the model'} ({port}): {reason}")

    def _locate_again(self, inputs: ModelInputs, how: str, *, training: bool, single: bool = False) -> None:
        """Find the layer that does something else in another mode, with other inputs, or in float32, and why."""
        with closing(Store()) as store, in_mode(self.sides, self.models, training=training):
            locator = Locator(
                self.sides,
                store,
                seed=self.seed,
                training=training,
                backward=False,
                pace=self.pace,
                equal_nan=self.equal_nan,
                single=single,
            )
            found = locator.locate(*self.models, inputs, names=self.names)
            outcome, reason = self._judge(found, [*found.verdicts], "forward")
            unlike = unlike_draws(found, self.models)
            if outcome is Outcome.PASS:
                if not self._judge_draws(found, unlike, how, inputs, training=training) and any(found.one_sided):
                    self._add("forward", f"{how}: {_tell_one_sided(found)}")
                return
            wrong = [one for one in found.verdicts if one.at_fault]
            causes, places = explain_draws(found, unlike, training=training), dict[str, str]()
            if self.causes and not causes:
                causes, places = explain_layers(found, wrong, (), self.sides, self.models, store, self.seed, self.pace)
            first = placed(found.first, places, found, self.models)
            told = [first if one is found.first and first is not None else one for one in wrong]
            self._end("forward", outcome, f"{how}: {reason}")
            self._take_of(told, causes, how)

    def _judge_draws(
        self, located: Located, unlike: Sequence[UnlikeDraw], how: str, inputs: ModelInputs, *, training: bool
    ) -> bool:
        """Judge random numbers that cannot be made the same: what cannot amount to the same, or is distributed otherwise, fails."""
        if located.comparable:
            return False
        verdicts = judge_draws(unlike, self.models)
        if not verdicts and _untold(located, "forward", some_left=True):
            shown = distributed_otherwise(self.sides, self.models, inputs, self.seed, self.pace, training=training)
            verdicts = judge_draws(unlike, self.models, shown) if shown else []
            if shown and not verdicts:
                self._fail_model(f"{how}: {shown}")
                return True
        if not verdicts:
            self._leave_out(f"{how} the results are {RANDOM}")
            return False
        _, reason = self._judge(located, verdicts, "forward")
        self._end("forward", Outcome.FAIL, f"{how}: {reason}")
        self._take_of(verdicts, explain_draws(located, unlike, training=how != EVAL), how)
        return True

    def _take_of(self, verdicts: Sequence[LayerVerdict], causes: Sequence[Diagnosis], how: str) -> None:
        """Add what another run told."""
        self._take_verdicts([replace(one, reason=f"{how}: {one.reason}") for one in verdicts])
        self.found.diagnoses.extend(replace(one, message=f"{how}: {one.message}") for one in causes)

    def _without_double_alone(self, located: Located) -> Located | None:
        """Return what was found, or None where only float64 shows that the outputs differ: then the stages on it have ended.

        A large constant (a mask's -1e9) swallows in float32 what is added to it, and keeps it in float64: another function.
        """
        apart = max(located.outputs, default=0.0)
        if not ROUGH < apart < inf or located.first is None or not located.comparable or self.pace.over:
            return located
        told = call_both(self.sides, self.models, self.inputs, self.seed, training=self.training, double=False)
        if not isinstance(told, Called) or told.apart is None or not told.apart <= SAME_SINGLE:
            return located
        why = f"the outputs differ in float64 alone, relative {apart:.3g}; in float32 they are {told.apart:.3g} apart"
        self._end("forward", Outcome.PASS, f"{why}: layers, other inputs and the other mode were not compared")
        for stage in self.wanted & {"backward", "train"}:
            self._end(stage, Outcome.SKIP, f"not compared in float64: {why}")
        if self.loss is not None and "loss" in self.wanted:
            self._stage("loss", self._check_loss, located, self.loss)
        return None

    def _judge_backward(self, located: Located) -> None:
        if "backward" not in self.wanted:
            return
        backward = [one for one in located.verdicts if one.direction == "backward"]
        if not backward and not (located.alike and located.learns) and not located.late:
            self._end("backward", Outcome.SKIP, "nothing in the models takes a gradient")
            return
        self._end("backward", *self._judge(located, backward, "backward"))

    def _judge(self, located: Located, verdicts: list[LayerVerdict], direction: str) -> tuple[Outcome, str]:
        faults = [one for one in verdicts if one.at_fault]
        compared = [one for one in verdicts if one.closeness is not Closeness.NOT_COMPARABLE]
        left = len({one.port_path for one in verdicts} - {one.port_path for one in compared})
        rest = f"; {left} not comparable" if left else ""
        late = f"; {_tell_late(located)}" if located.late else ""
        method = (
            ""
            if located.exact
            else f"; {_without_double(located)} does not run in float64: what does not by itself is judged in float32"
        )
        if faults:
            first = faults[0]
            others = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
            return (
                Outcome.FAIL,
                f"{first.port_path or 'the model'} ({first.port_type}): {first.reason}{others}{method}{late}",
            )
        if direction == "forward" and not any(rms(one) for one in located.reference.outputs):
            return Outcome.ERROR, "proves nothing: the reference's outputs are all zero"
        if located.late:
            return _out_of_time(located, direction)
        if not compared and not located.alike:
            return Outcome.ERROR, f"nothing was compared: no layer of one model was found in the other{rest}"
        untold = _untold(located, direction, some_left=bool(left))
        if untold and located.comparable:
            return Outcome.FAIL, f"{untold}, and no layer was found to be the cause{rest}"
        if direction == "backward":
            rest += "".join(sorted({f"; {one.reason}" for one in verdicts if one.tied}))
        if direction == "forward" and any(located.one_sided):
            rest += f"; {_tell_one_sided(located)}"
        if direction == "forward" and located.untried:
            rest += f"; code between the layers was not tried with large values: {located.untried}"
        what = "outputs" if direction == "forward" else "gradients of all parameters"
        alike = f"no layer could be compared by itself; the models' {what} agree in float64"
        told = f"{len(compared)} layers are as close as rounding allows" if compared else alike
        return Outcome.PASS, f"{told}{rest}{method}"

    def _check_construction(self, pairs: list[LayerPair], located: Located | None, store: Store) -> None:
        """Compare what can be compared without running anything."""
        found = () if located is None else located.matching.pairs
        folded = {pair.port.path for pair in found if pair.folded}
        calls = [pair for pair in found if not pair.folded]
        tensors = None if folded else self.tensors
        pairs = [pair for pair in pairs if pair.port not in folded]  # other weights, and a bias, on purpose
        built: tuple[Optimizer, Optimizer] | None = None
        schedules: tuple[Schedule, Schedule] | None = None
        models = self.models
        if self.optimizers is not None:
            with suppress(Exception):  # the stage of the optimizers tells what is wrong with them
                both = zip(self.sides, self.models, strict=True)
                copies = tuple(side.copied(one, double=False) for side, one in both)
                name_alike(self.models[1], copies[1])  # optimizers of Paddle write to parameters
                ours, theirs = self._build(copies)
                built = ours[0], theirs[0]
                schedules = None if None in (ours[1], theirs[1]) else (ours[1], theirs[1])
                models, tensors = copies, None
        self.found.findings[:] = check_construction(
            *models, pairs, calls, optimizers=built, schedulers=schedules, names=self.names, tensors=tensors
        )
        if located is None and any(one.kind in ("argument", "parameter", "flag") for one in self.found.findings):
            with suppress(Exception):  # a difference that is not weighed counts
                located = self._locate(store, pairs, losses=False)
        if located is not None:
            self.found.findings[:] = weigh(
                self.found.findings, located, self.sides, self.models, store, self.seed, self.pace
            )
        grave = [one.message for one in self.found.findings if not one.harmless]
        if located is not None and located.elsewhere is not None:
            code = located.elsewhere
            grave.append(f"{code.port_path or 'the model'} ({code.port_type}): {code.reason}")
        if grave:
            others = f", and {len(grave) - 1} more" if len(grave) > 1 else ""
            self._end("preflight", Outcome.FAIL, f"{grave[0]}{others}")
        elif not pairs and not calls:
            self._end("preflight", Outcome.SKIP, "no layer of one model was found in the other")
        else:
            count = len({pair.port for pair in pairs} | {pair.port.path for pair in calls})
            self._end("preflight", Outcome.PASS, f"{count} layers are built alike")

    def _take(self, stage: str, check: PieceCheck) -> None:
        self._end(stage, check.outcome, check.reason)
        self.found.numbers.update(check.numbers)
        self.found.curves.update(check.curves)
        self.found.diagnoses.extend(replace(one, stage=stage) for one in check.diagnoses)
        if check.left_out:
            self.found.unmatched["parameters"] = list(check.left_out)

    def _check_loss(self, located: Located, losses: tuple[Loss, Loss]) -> None:
        outputs, others = (put_back(run.structure, run.outputs) for run in (located.reference, located.port))
        values = located.reference.values
        attached = any(one.gradient is not None for one in values)
        detached = {number for number, one in enumerate(values) if attached and one.gradient is None}
        found = check_loss(
            self.sides,
            losses,
            outputs,
            self.inputs.labels,
            self.seed,
            port_outputs=others,
            equal_nan=self.equal_nan,
            detached=detached,
        )
        self.excused = found.excused
        self._take("loss", found)

    def _check_metrics(self, located: Located | None) -> None:
        run = None if located is None else located.reference
        outputs = None if run is None else put_back(run.structure, [as_float(one, double=False) for one in run.outputs])
        self._take("metric", self.fed.check_metrics(self.sides, outputs, self.inputs.labels))

    def _check_predictions(self) -> None:
        self._take(
            PREDICT, self.fed.check_predictions(self.sides, self.models, self.raw, self.seed, causes=self.causes)
        )

    def _check_optimizers(self, builders: tuple[Builder, Builder]) -> None:
        found = check_optimizers(
            self.sides,
            *self.models,
            builders,
            self.iterations,
            self.names,
            self.seed,
            self.schedulers,
            clips=self.clips,
        )
        self._take("optimizer", found)

    def _check_schedulers(
        self, builders: tuple[Builder, Builder], schedulers: tuple[Builder | None, Builder | None]
    ) -> None:
        found = check_schedulers(self.sides, *self.models, builders, schedulers, self.iterations, self.names)
        self._take("schedule", found)

    def _train(self, pairs: list[LayerPair], located: Located, losses: tuple[Loss, Loss]) -> None:
        if not located.comparable or not located.exact:
            which = f"{_without_double(located)} does not run in float64, in which trainings are compared"
            self._end("train", Outcome.SKIP, which if located.comparable else RANDOM)
            return
        tied = next((one.reason for one in located.verdicts if one.tied), None)
        if tied is not None:
            self._end("train", Outcome.SKIP, f"the trainings differ after one update: {tied}")
            return
        same = all(self.found.stages.get(one) in (Outcome.PASS, None) for one in ("forward", "loss"))
        reasons: list[str] = []
        for mode in self.modes:
            collect(bytes_of(self.models[0]))  # what was built for the optimizers alone
            how, draws = "", located.port.draws
            if mode != MODES[self.training]:
                how = f"in {mode} mode: "
                if self.other_draws is None:
                    self._end("train", Outcome.SKIP, f"{how}not trained: the models were not compared in it")
                    return
                draws = self.other_draws[1]
            recipe = self._recipe(pairs, draws, mode == "train", losses=losses, clips=self.clips)
            done = compare(recipe, same=same, excused=self.excused, equal_nan=self.equal_nan)
            self._take_curves("train", done.curves)
            reasons.append(f"{how}{done.reason}")
            self._end("train", done.outcome, "; ".join(reasons))
            if done.outcome is not Outcome.PASS:
                return

    def _check_steps(self, pairs: list[LayerPair], located: Located | None, steps: tuple[Step, Step]) -> None:
        if located is not None and not located.comparable:
            self._end(STEP, Outcome.SKIP, RANDOM)
            self._leave_out(f"the training steps are {RANDOM}")
            return
        draws = Draws(self.seed) if located is None else located.port.draws
        recipe = self._recipe(pairs, draws, self.training, steps=steps)
        same = self.found.stages.get("forward") is Outcome.PASS
        done = compare(recipe, same=same, equal_nan=self.equal_nan)
        self._take_curves(STEP, done.curves)
        self._end(STEP, done.outcome, done.reason)
        if done.outcome is Outcome.FAIL and self.causes and done.step is not None:
            self.found.diagnoses.extend(replace(one, stage=STEP) for one in loop_causes(recipe, done.step))

    def _take_curves(self, stage: str, curves: Mapping[str, list[float]]) -> None:
        self.found.curves.update({name if "/" in name else f"{stage}/{name}": curve for name, curve in curves.items()})

    def _recipe(self, pairs: list[LayerPair], draws: Draws, training: bool, **given: Setting) -> Recipe:
        recipe = Recipe(
            sides=self.sides,
            copied=partial(self._copied, training=training),
            inputs=self.inputs,
            build=self._build,
            pairs=pairs,
            names=self.names,
            iterations=self.iterations,
            seed=self.seed,
            draws=draws,
            **given,
        )
        return replace(recipe, laid=laid_of(recipe, self.models))

    def _copied(self, number: int, *, training: bool | None = None) -> object:
        """Return a fresh float64 copy of a model; the rules of optimizers may read the names of parameters."""
        made = self.sides[number].copied(
            self.models[number], double=True, training=self.training if training is None else training
        )
        if number:
            name_alike(self.models[1], made)
        return made

    def _build(self, models: tuple[object, object]) -> tuple[tuple[object, object], tuple[object, object]]:
        if self.optimizers is None:
            raise ValueError("no optimizers were given")
        ours, theirs, schedule = build_both(self.sides, self.optimizers, models, self.schedulers)
        level_epsilons(ours, theirs)
        if schedule is not None:
            theirs.set_lr_scheduler(schedule)
        if self.schedulers is None:
            return (ours, None), (theirs, None)
        return (ours, build_torch_schedule(self.schedulers[0], ours)), (theirs, schedule)


def _tell_one_sided(located: Located) -> str:
    """Return which outputs were not judged, since the other side has none like them."""
    told = [
        f"only the {side} returns {', '.join(names[:SHOWN_OUTPUTS])}{' and others' if len(names) > SHOWN_OUTPUTS else ''}"
        for side, names in zip(SIDE_NAMES, located.one_sided, strict=True)
        if names
    ]
    return ", ".join(told)


def _called(located: Located, path: str) -> CallPair | None:
    """Return the calls of a layer of the port's, or of the innermost around it that has a counterpart; None for the model's own."""
    calls = {one.port.path: one for one in reversed((*located.matching.containers, *located.matching.pairs))}
    while path and path not in calls:
        path = path.rpartition(".")[0]
    return calls.get(path) if path else None


def _tell_late(located: Located) -> str:
    return f"{located.late} of {len(located.matching.pairs)} layers were {LATE}"


def _out_of_time(located: Located, direction: str) -> tuple[Outcome, str]:
    """Return the outcome where time was up before all layers were compared: outputs that differ are known all the same."""
    seen = direction == "forward" and located.comparable
    untold = _untold(located, direction, some_left=True) if seen else ""
    return (Outcome.FAIL, f"{untold}; {_tell_late(located)}") if untold else (Outcome.ERROR, _tell_late(located))


def _untold(located: Located, direction: str, *, some_left: bool) -> str:
    """Return what differs between the models as a whole though no layer does; empty where nothing does."""
    apart = max(located.outputs, default=0.0)
    if direction == "forward":
        return "" if apart <= max(SAME_SINGLE, located.noise) else f"the outputs differ, relative {apart:.3g}"
    if any(one.tied for one in located.verdicts):
        return ""
    if not some_left or not located.exact or located.gradients <= max(SAME_SINGLE, GROWTH * apart):
        return ""
    return f"the parameters' gradients differ, relative {located.gradients:.3g}"


def _without_double(located: Located) -> str:
    return "the port" if located.doubles[0] else "the reference"


def tell_call(call: Call) -> str:
    """Return what a report calls a layer."""
    return f"{call.path or 'the model itself'} ({call.type})"


_commit = cache(commit)  # as it was when first asked, which is nearer to the code that is loaded than what is there now


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that were at work."""
    found = {"python": platform.python_version()}
    for name in ("tipchain", "numpy", "torch", "paddlepaddle", "paddlepaddle-gpu"):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
