"""Is a live Paddle layer the same model as a live torch module: `tipchain.align`."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path

from tipchain import __version__
from tipchain.core.files import commit
from tipchain.core.machine import collect, installed_versions
from tipchain.core.progress import Pace, Progress
from tipchain.errors import Outcome, UsageError
from tipchain.explain.causes.data import check_data
from tipchain.explain.causes.losses import check_loss as check_losses
from tipchain.explain.causes.metrics import check_metrics as check_meters
from tipchain.explain.causes.optimizers import check_optimizers
from tipchain.explain.causes.schedules import check_schedulers
from tipchain.explain.causes.tensors import replaced, rounded_tables
from tipchain.explain.findings import PieceCheck
from tipchain.explain.locate.by_gradients import settled_names
from tipchain.explain.locate.locate import Located, bytes_of
from tipchain.explain.locate.matching import LayerPair, pair_layers
from tipchain.explain.locate.other_runs import in_mode
from tipchain.explain.locate.rerun import as_float
from tipchain.explain.locate.runs import ARGS, read_inputs
from tipchain.explain.locate.trace import Store, put_back
from tipchain.explain.preflight.parameters import MANY, NOT_COPIED, Tensors, two_initializations
from tipchain.framework_types import Function, Loss, Options
from tipchain.frameworks.live_models import PaddleSide, Sides, TorchSide
from tipchain.frameworks.randomness import Draws
from tipchain.live.causes import explain, grave, with_stage
from tipchain.live.construction import check_construction
from tipchain.live.layers import (
    Pairs,
    differs_in_double_alone,
    judge_layers,
    locate_in_time,
    without_double,
    without_losses,
)
from tipchain.live.other_calls import judge_other_calls
from tipchain.live.partings import loop_causes
from tipchain.live.places import place_layers, place_pieces
from tipchain.live.predictions import check_predictions
from tipchain.live.report import AlignmentReport, LiveResults
from tipchain.live.request import (
    DATA_STAGES,
    METRIC_STAGE,
    MODES,
    PREDICT,
    RANDOM,
    STAGES,
    STEP,
    LiveRequest,
    Predict,
    Step,
    as_inputs,
    check_models,
)
from tipchain.live.training import Recipe, compare
from tipchain.weights.given_names import check_names, with_ignored

Builder = Function


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
    if within is not None and not within > 0:
        raise UsageError(f"within is {within}, expected seconds above 0")
    sides = Sides(TorchSide(), PaddleSide())
    check_models(reference, port)
    check_names(names or {}, reference, port)
    given = as_inputs(inputs)
    bound = replace(read_inputs(given), outputs=outputs if isinstance(outputs, tuple) else (outputs, outputs))
    known = with_ignored(names or {}, ignore, reference, port)
    asked = LiveRequest(
        sides=sides,
        models=(reference, port),
        inputs=bound,
        raw=given if isinstance(inputs, Mapping | str | Path) else given[ARGS],
        others=tuple(read_inputs(as_inputs(one)) for one in other_inputs),
        loss=loss,
        optimizers=optimizers,
        schedulers=schedulers,
        clips=clip if isinstance(clip, tuple | list) else (clip, None),
        step=step,
        iterations=iterations,
        training=training,
        modes=tuple(modes) or (MODES[training],),
        only=stages,
        names=settled_names(sides, (reference, port), bound, known),
        seed=seed,
        causes=causes,
        equal_nan=equal_nan,
        data=data if isinstance(data, Mapping) else {} if data is None else {DATA_STAGES[0]: data},
        samples=samples,
        metrics=metrics,
        predict=predict,
    )
    results = LiveResults(pace=Pace(within, progress), asked=asked.stages)
    for name, pair in asked.data.items():
        results.take(name, check_data(sides, pair, samples=samples, seed=seed, path=name))
    with closing(Store()) as store, replaced(rounded_tables(sides, reference, port)):
        _compare(asked, results, store)
    report, first = results.report, results.first
    built = next((one for one in grave(report.findings) if one.name != NOT_COPIED), None)
    if first is None and built is not None:  # the first layer that is built otherwise
        fault = asked.fault(built.reference_path, built.port_path, built.message)
        first = replace(fault, direction="construction")
    ran = {one.port_path for one in report.layers}
    told = [with_stage(one, report) for one in sorted(report.diagnoses, key=lambda one: not one.is_known)]
    ours, theirs = (f"{one.__module__}.{one.__qualname__}" for one in map(type, asked.models))
    when, at = datetime.now().astimezone().isoformat(sep=" ", timespec="minutes"), _commit(Path.cwd())
    return replace(
        report,
        stages={name: report.stages[name] for name in STAGES if name in report.stages},
        first_divergence=first,
        diagnoses=place_pieces(place_layers(told, asked.sides, asked.models, ran), asked.pieces),
        versions={"python": platform.python_version(), "tipchain": __version__, **installed_versions()},
        command=asked.call,
        origin={"reference": ours, "port": theirs, "date": when, "commit": at},
        reach=results.reach,
    )


def _compare(asked: LiveRequest, results: LiveResults, store: Store) -> None:
    """Go through the stages; one that raises is an ERROR, and the others go on without it."""
    pairs: list[LayerPair] = []
    tensors: Tensors | None = None
    located: Located | None = None
    with results.erring("forward"):
        pairs = pair_layers(*asked.models, asked.names)
        tensors = Tensors(*asked.models, pairs, asked.names)
        strange = two_initializations(tensors)
        if strange is not None and strange.compared >= MANY:  # then nothing else is worth comparing
            finding = strange.finding
            results.report.findings[:] = [finding]
            cause = replace(finding, evidence="parameters whose elements are all equal were not counted")
            reason = f"{finding.message}; nothing else was compared"
            results.take("preflight", PieceCheck(outcome=Outcome.FAIL, reason=reason, diagnoses=(cause,)))
            return
        located = locate_in_time(asked, results, store, pairs) if "forward" in asked.wanted else None
    layers = None if located is None or differs_in_double_alone(asked, results, located) else located
    results.run("preflight", check_construction, asked, results, pairs, tensors, layers, store)
    of_loss = None if located is None else results.run("loss", check_loss, asked, located)
    if layers is not None and layers.reference.loss is not None and not (results.passed("loss") or results.pace.over):
        layers = without_losses(asked, results, store, pairs, layers)
    other_draws = None
    if layers is not None:
        judge_layers(asked, results, layers, store)
        other_draws = judge_other_calls(asked, results, layers)
    results.run(METRIC_STAGE, check_metrics, asked, layers)
    results.run(PREDICT, check_predictions, asked)
    results.run("optimizer", check_optimizers, asked)
    results.run("schedule", check_schedulers, asked)
    if layers is not None:
        excused = of_loss is not None and of_loss.excused
        results.run("train", check_training, asked, results, pairs, layers, other_draws, excused)
    results.run(STEP, check_steps, asked, results, pairs, layers)
    if asked.causes:
        with in_mode(asked.sides, asked.models, training=asked.training):
            explain(asked, results, layers, store)


_commit = cache(commit)  # as it was when first asked, which is nearer to the code that is loaded than what is there now


# The stages around the models: loss, metric, deployment code, optimizers, schedules and training.


def check_loss(asked: LiveRequest, located: Located) -> PieceCheck:
    """Compare the losses of both models' outputs."""
    outputs, others = (put_back(run.structure, run.outputs) for run in (located.reference, located.port))
    values = located.reference.values
    attached = any(one.gradient is not None for one in values)
    detached = {number for number, one in enumerate(values) if attached and one.gradient is None}
    losses, labels = asked.pieces["loss"], asked.inputs.labels
    how: Options = {"port_outputs": others, "equal_nan": asked.equal_nan, "detached": detached}
    return check_losses(asked.sides, losses, outputs, labels, asked.seed, **how)


def check_metrics(asked: LiveRequest, located: Located | None) -> PieceCheck:
    """Compare the metrics of the reference's outputs."""
    run = None if located is None else located.reference
    outputs = None if run is None else put_back(run.structure, [as_float(one, double=False) for one in run.outputs])
    labels = asked.inputs.labels
    given = (None, None) if outputs is None or labels is None else (outputs, labels)
    return check_meters(asked.sides, asked.pieces["metric"], *given)


def check_training(
    asked: LiveRequest, results: LiveResults, pairs: Pairs, located: Located, other_draws: Draws | None, excused: bool
) -> PieceCheck:
    """Train both models with their losses, in each mode; see `compare` for ``excused``.

    Where no other stage tells a cause, the first quantity that parts is looked for. ``other_draws`` are the port's of a run
    in the other mode, None where the models do not agree in it.
    """
    if not located.comparable or not located.exact:
        which = f"{without_double(located)} does not run in float64, in which trainings are compared"
        return PieceCheck(outcome=Outcome.SKIP, reason=which if located.comparable else RANDOM)
    tied = next((one.reason for one in located.verdicts if one.tied), None)
    if tied is not None:
        return PieceCheck(outcome=Outcome.SKIP, reason=f"the trainings differ after one update: {tied}")
    same = results.passed("forward", "loss")
    alone = results.agrees and results.passed("loss", "optimizer", "schedule") and not results.pace.over
    check = PieceCheck(outcome=Outcome.PASS, reason="")
    for mode in asked.modes:
        collect(bytes_of(asked.models[0]))  # what was built for the optimizers alone
        how, draws = "", located.port.draws
        if mode != MODES[asked.training]:
            how = f"in {mode} mode: "
            if other_draws is None:
                reason = f"{how}not trained: the models were not compared in it"
                return replace(check, outcome=Outcome.SKIP, reason=reason)
            draws = other_draws
        recipe = Recipe(asked=asked, pairs=pairs, draws=draws, training=mode == "train")
        done, step = compare(recipe, same=same, excused=excused)
        reason = "; ".join(filter(None, (check.reason, f"{how}{done.reason}")))
        found = loop_causes(recipe, step) if step is not None and asked.causes and alone else ()
        check = replace(done, reason=reason, curves={**check.curves, **done.curves}, diagnoses=found)
        if done.outcome is not Outcome.PASS:
            break
    return check


def check_steps(asked: LiveRequest, results: LiveResults, pairs: Pairs, located: Located | None) -> PieceCheck:
    """Train both models by the user's own steps."""
    if located is not None and not located.comparable:
        results.leave_out(f"the training steps are {RANDOM}")
        return PieceCheck(outcome=Outcome.SKIP, reason=RANDOM)
    same = results.report.stages.get("forward") is Outcome.PASS
    draws = Draws(asked.seed) if located is None else located.port.draws
    recipe = Recipe(asked=asked, pairs=pairs, draws=draws, training=asked.training, steps=asked.step)
    done, step = compare(recipe, same=same)
    return done if step is None or not asked.causes else replace(done, diagnoses=loop_causes(recipe, step))
