"""Step 8 of the guide, backward: iterations on equal inputs, and where to look when they differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from math import isfinite

import numpy as np

from tipchain.core.machine import collect, release_memory
from tipchain.errors import Outcome, RecordError
from tipchain.explain.locate.runs import in_double
from tipchain.framework_types import Array, Loss, Model, Tensor
from tipchain.frameworks.base import scalar
from tipchain.frameworks.live_models import side_of
from tipchain.numbers.tolerance import SAME_SINGLE, Tolerance
from tipchain.numbers.verdicts import Verdict, compare
from tipchain.parity.case import LABEL, checked_loss, open_builder
from tipchain.parity.stages import judging
from tipchain.parity.stages.bench import BatchLog, Bench, Recording
from tipchain.parity.stages.judging import Dumps, Judged, Rules, judge_batches, root_mean_square, tensor_bound
from tipchain.parity.stages.tensors import TensorFile, as_recorded


def record(bench: Bench) -> Recording:
    """Losses and learning rates over n iterations, first gradients, last parameters and buffers."""
    settings, tensors = bench.case.backward, dict[str, Array]()
    log = BatchLog(kept=settings.iterations)
    model, criterion = _start(bench)
    arrays = _iterate(bench, model, criterion, tensors, log)
    del model, criterion  # before there is another
    if bench.framework.name == "torch" and bench.noise:
        tensors |= _gradient_noise(bench, tensors)
    details = {"mode": settings.mode, "dtype": settings.dtype, **(log.facts() if log.first else {})}
    return Recording(arrays=arrays, tensors=tensors, details=details)


def _iterate(bench: Bench, model: Model, criterion: Loss, tensors: dict[str, Array], log: BatchLog) -> dict[str, Array]:
    """Return losses and rates; gradients, parameters and buffers go to ``tensors``."""
    settings, framework, names = bench.case.backward, bench.framework, bench.case.weights.names
    if settings.mode == "train":
        framework.watch_variances(model)
    trainer = bench.trainer(model, settings.learning_rate)
    size = sum(one.nbytes for _, one in framework.parameters(model, names, shared=True))
    losses: dict[str, Array] = {}
    rates: dict[str, Array] = {}
    with _surroundings(bench):
        for number, (images, label) in enumerate(_inputs(bench, log)):
            rates[f"lr_{number}"] = np.array([trainer.learning_rate()])
            loss = criterion(model(*images), label)
            loss.backward()
            if number == 0:
                for name, value in framework.gradients(model, names, shared=True):
                    tensors[f"gradient/{name}"] = as_recorded(value)
            trainer.step()
            if number == 0:
                # The next gradients, aligned, may not fit where the first ones were, and those pages would stay.
                release_memory(size)
            if bench.steps_schedule(number + 1):
                trainer.step_schedule()
            losses[f"loss_{number}"] = scalar(framework.array(loss))
    del trainer, loss
    collect(size)  # an optimizer stands in cycles; what it had goes back, and the file lies in pages that were in use
    moves = framework.name == "torch"  # its model takes its first weights again, to say how far these are from them
    parameters = dict(framework.parameters(model, names, shared=not moves))
    for name, value in parameters.items():
        tensors[f"parameter/{name}"] = as_recorded(value)
    for name, value in framework.buffers(model, names):
        tensors[f"buffer/{name}"] = as_recorded(value)
    if moves:  # the root mean square of each update
        bench.restore(model)
        for name, before in framework.parameters(model, names, shared=True):
            update = root_mean_square(np.subtract(parameters[name], before))
            tensors[f"update_rms/{name}"] = np.array(update)
    return {**losses, **rates}


def _start(bench: Bench) -> tuple[Model, Loss]:
    model, name = bench.model(training=bench.case.backward.mode == "train"), bench.framework.name
    bench.framework.let_backward(model)
    if bench.case.backward.dtype != "float64":
        return model, bench.builder("loss")()
    build = open_builder(bench.case, name, "loss", plain=True)
    criterion = in_double(side_of(bench.framework), build())
    return bench.framework.widened(model), checked_loss(criterion, name, build)


def _gradient_noise(bench: Bench, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return by how much rounding moves each first gradient in ``tensors`` at most."""
    framework, names = bench.framework, bench.case.weights.names
    model, criterion = _start(bench)
    images, label = next(_inputs(bench, None))

    def gradients() -> dict[str, Array]:
        model.zero_grad()
        with _surroundings(bench):
            criterion(model(*images), label).backward()
        return dict(framework.gradients(model, names, shared=True))

    first = {name.removeprefix("gradient/"): array for name, array in tensors.items() if name.startswith("gradient/")}
    return {f"gradient_noise/{name}": far for name, far in bench.moved(model, gradients, first).items()}


@contextmanager
def _surroundings(bench: Bench) -> Iterator[None]:
    """Switch dropout off, and make float64 the default where the stage asks for it."""
    wide = bench.case.backward.dtype == "float64"
    with bench.framework.randomness(None), bench.framework.double_precision() if wide else nullcontext():
        yield


def _inputs(bench: Bench, log: BatchLog | None) -> Iterator[tuple[list[Tensor], Tensor]]:
    """Yield the inputs and the label of each iteration in the stage's precision; ``log`` hears of the samples."""
    settings, size = bench.case.backward, bench.case.train.batch_size
    widened = bench.framework.widened if settings.dtype == "float64" else lambda tensor: tensor
    if settings.inputs == "fake":
        for _ in range(settings.iterations):
            yield list(map(widened, bench.fake_inputs())), widened(bench.framework.tensor(bench.inputs[LABEL]))
        return
    dataset = bench.steady_dataset()[0]
    starts = range(0, settings.iterations * size, size)
    wanted = [[(start + number) % len(dataset) for number in range(size)] for start in starts]
    for image, label, files in bench.framework.batches(dataset, wanted):
        if log is not None:
            log.add(files, bench.framework.array(label))
        yield [widened(image)], widened(label)


# Judge backward: losses and rates, then the gradients, parameters and buffers in safetensors files.


NOISE_FACTOR = 3.0
"""How many times the reference's own movement a gradient may be away; measured: 1.03 where a ReLU's kink lies between the sides."""
BLUNT = 0.1
"""Where rounding moves a tensor by more than this share of the model's largest RMS, nothing can be told."""
ROUNDING = "the reference's own rounding"
STAGE = "backward"


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare losses and rates, then every gradient, parameter and buffer."""
    judged, paths = judging.judge_arrays(dumps, rules), dumps.tensors
    missing = ", ".join(str(path) for path in paths if not path.is_file())
    wrong = f"no such file: {missing}; gradients were not compared" if missing else ""
    try:
        if not missing:
            with TensorFile(paths[0]) as left, TensorFile(paths[1]) as right:
                tensors = compare_tensors(left, right, rules)
            hidden = "; `dtype: float64` may show more"
            verdicts = [
                replace(one, reason=one.reason + hidden) if one.outcome is Outcome.SKIP else one
                for one in tensors.verdicts
            ]
            judged += replace(tensors, verdicts=verdicts)
    except RecordError as error:
        wrong = str(error)
    if wrong:
        judged += Judged(verdicts=[Verdict(Outcome.ERROR, "tensors", wrong)])
    return judged + judge_batches(dumps)


def compare_tensors(
    left: Mapping[str, Array],
    right: Mapping[str, Array],
    rules: Rules,
    stage: str = STAGE,
    groups: Sequence[str] = ("gradient", "parameter", "buffer"),
) -> Judged:
    """Compare gradients, parameters and buffers.

    Args:
        left: the reference's tensors, with ``update_rms/NAME``; ``gradient_noise/NAME`` and ``noise/GROUP/NAME`` tell how far
            rounding moves a first gradient and a tensor.
        right: the port's.
        rules: the tolerances.
        stage: whose tolerances count.
        groups: the groups that are compared.
    """
    verdicts: list[Verdict] = []
    tolerances: dict[str, Tolerance] = {}
    notes: list[str] = []
    noise_scale = 0.0
    for group in groups:
        base = rules.group(group, stage)
        names, theirs = ([name for name in side if name.startswith(f"{group}/")] for side in (left, right))
        verdicts += judging.one_sided(dict.fromkeys(names), dict.fromkeys(theirs))
        scale, zeros = _scale(left, group, names)
        noise_scale = scale if group == "gradient" else noise_scale
        for name in names:
            if name not in right:
                continue
            strict = tensor_bound(group, base, scale, left[name])
            # By which share of the largest RMS rounding moves the tensor, or its gradient and with that its parameter.
            moved, size = left.get(f"gradient_noise/{name.partition('/')[2]}", 0.0), noise_scale
            if f"noise/{name}" in left:
                moved, size = left[f"noise/{name}"], scale
            noise = float(moved) / size if size > 0 and isfinite(moved) else 0.0
            verdict, bound = _judge_tensor(name, left[name], right[name], strict, noise, base, scale)
            if group == "parameter" and verdict.outcome is Outcome.FAIL and base.rtol is not None:
                verdict, bound = _without_lost(verdict, left, right, name, bound, scale)
            tolerances[name] = bound
            verdicts.append(verdict)
        if names and group != "buffer" and not scale > 0:
            what = "gradients are" if group == "gradient" else "parameters stay as they were: all updates are"
            reason = f"all {what} zero or NaN in the reference, so the comparison proves nothing"
            verdicts.append(Verdict(Outcome.ERROR, group, reason))
        rounded = [name for name in names if (known := tolerances.get(name)) and known.reason == ROUNDING]
        if rounded:
            notes.append(
                f"judged by the reference's own rounding, {len(rounded)} {group}s: {', '.join(name.partition('/')[2] for name in rounded)}"
            )
        if zeros and scale > 0:
            notes.append(f"zero by structure, {len(zeros)} {group}s: {', '.join(zeros)}")
    if not verdicts:
        verdicts.append(Verdict(Outcome.ERROR, "tensors", "no gradients were recorded"))
    return Judged(verdicts=verdicts, tolerances=tolerances, notes=notes)


def _scale(left: Mapping[str, Array], group: str, names: Iterable[str]) -> tuple[float, list[str]]:
    """Return the scale of a group's tensors, and which gradients are zero by structure.

    Gradients: the largest RMS gradient in the reference model. Parameters: the largest RMS update.
    """
    if group == "buffer":
        return 0.0, []
    kind = "update_rms" if group == "parameter" else group
    rms = {name: root_mean_square(left[f"{kind}/{name.partition('/')[2]}"]) for name in names}
    # What is NaN or infinite fails by itself; it measures nothing.
    scale = max(filter(isfinite, rms.values()), default=0.0)
    if group == "parameter":
        return scale, []
    return scale, [name.partition("/")[2] for name, value in rms.items() if value <= SAME_SINGLE * scale]


def _judge_tensor(
    name: str, expected: object, actual: object, strict: Tolerance, noise: float, base: Tolerance, scale: float
) -> tuple[Verdict, Tolerance]:
    """Return the verdict with the tolerance behind it: the usual one, or that plus the reach of rounding itself.

    Args:
        name: the tensor's, without the stage.
        expected: the reference's.
        actual: the port's.
        strict: the usual tolerance.
        noise: by which share of ``scale`` rounding moves the reference's own; 0 where that was not recorded.
        base: the rule behind the usual tolerance.
        scale: the model's largest RMS, 0 for none.
    """
    (verdict,) = compare({name: expected}, {name: actual}, strict)
    if verdict.outcome is not Outcome.FAIL or base.rtol is None or verdict.diff is None or not scale:
        return verdict, strict
    share = f"{verdict.diff.max_abs / scale:.2g} of the model's largest RMS, allowed {base.rtol:.2g}"
    more = (strict.threshold or 0.0) + NOISE_FACTOR * noise * scale
    bound = Tolerance(method="max", threshold=more, reason=ROUNDING)
    within = compare({name: expected}, {name: actual}, bound)[0] if noise else verdict
    if within.outcome is not Outcome.PASS:
        return replace(verdict, reason=f"{verdict.reason}; {share}"), strict
    reason = f"{share}; the reference's own moves by {noise:.2g} where its weights start a little apart"
    told = NOISE_FACTOR * noise <= BLUNT
    return excused(verdict, reason, told=told, share=within.share), bound


def excused(verdict: Verdict, reason: str, *, told: bool, share: float | None = None) -> Verdict:
    """Pass a difference that rounding alone makes; skip it where, as ``told`` says, others could not be told from it."""
    if told:
        return replace(verdict, outcome=Outcome.PASS, reason=reason, share=share)
    return replace(verdict, outcome=Outcome.SKIP, reason=f"rounding hides every difference: {reason}", share=None)


def _without_lost(
    verdict: Verdict, left: Mapping[str, Array], right: Mapping[str, Array], name: str, strict: Tolerance, scale: float
) -> tuple[Verdict, Tolerance]:
    """Return the verdict on a parameter, or that rounding hides the difference, with the tolerance behind it.

    An optimizer that divides by the size of gradients (Adam) takes whole steps where a gradient is rounding alone: a key's
    bias in attention, a bias before a norm. Where those go says nothing; the other elements are judged as ever.
    """
    gradient, noise = (f"{kind}/{name.partition('/')[2]}" for kind in ("gradient", "gradient_noise"))
    if gradient not in left or noise not in left or verdict.diff is None or not isfinite(verdict.diff.max_abs):
        return verdict, strict
    expected, actual = left[name], right[name]
    lost = np.abs(left[gradient]) <= NOISE_FACTOR * float(left[noise])
    if lost.shape != expected.shape or verdict.diff.max_abs > NOISE_FACTOR * scale:
        return verdict, strict
    rest = compare({name: expected[~lost]}, {name: actual[~lost]}, strict) if not lost.all() else ()
    if not lost.any() or any(one.outcome is not Outcome.PASS for one in rest):
        return verdict, strict
    reason = (
        f"rounding hides {lost.sum()} of {lost.size} elements: their gradients are no larger than rounding, "
        "and the optimizer moves them all the same"
    )
    bound = Tolerance(method="max", threshold=NOISE_FACTOR * scale, reason=ROUNDING)
    return replace(verdict, outcome=Outcome.SKIP, reason=reason, share=None), bound
