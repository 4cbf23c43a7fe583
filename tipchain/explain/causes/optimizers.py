"""Two optimizers, compared by the updates they make of equal gradients; and why they differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from tipchain.core.language import listed
from tipchain.errors import Outcome, TipchainError
from tipchain.explain.causes.optimizer_builders import Builder, Clips, Opened, open_both
from tipchain.explain.causes.update_formulas import (
    KNOBS,
    Course,
    Formula,
    KnobCause,
    distance,
    explain,
    identify,
    simulate,
)
from tipchain.explain.findings import Diagnosis, PieceCheck, failed_to_run
from tipchain.explain.locate.differences import rms
from tipchain.explain.preflight.optimizers import (
    UpdateTreatment,
    paddle_name,
    paddle_treatments,
    torch_name,
    torch_treatments,
)
from tipchain.framework_types import Array, Options, Setting, Tensor
from tipchain.frameworks import Updates
from tipchain.frameworks.live_models import Sides
from tipchain.frameworks.paddle_ import parameter_groups
from tipchain.numbers.compare import common_factor
from tipchain.numbers.tolerance import EXPLAINED, ROUGH, SAME_SINGLE, UNIT

# What an optimizer says about itself, as a formula for each parameter.


CLIP_KINDS = {"ClipGradByValue": "value", "ClipGradByNorm": "norm", "ClipGradByGlobalNorm": "global"}


def paddle_formula(trained: Updates, name: str) -> Formula | None:
    """Return what Paddle's optimizer says that it does to a parameter; None for one of an unknown kind."""
    optimizer, tensor = trained.optimizer, trained.tensor(name)
    kind = paddle_name(optimizer)
    said = _formula(kind, paddle_treatments(optimizer), tensor, frozen=tensor.stop_gradient)
    if said is None or said.frozen:
        return said
    groups = parameter_groups(optimizer)
    group = next((group for group, tensors in groups if any(one is tensor for one in tensors)), {})
    clip, limit = _clip(bool(group), group.get("grad_clip", optimizer._grad_clip))  # noqa: SLF001
    own = type(optimizer).__module__.startswith("paddle.optimizer")
    return replace(
        said,
        rate_inside=own and kind == "RMSProp",
        place="inside" if own and kind in ("RMSProp", "Adamax") else "outside",
        clip=clip,
        limit=limit,
    )


def _formula(
    kind: str | None, treatments: Iterable[tuple[object, UpdateTreatment]], tensor: Tensor, *, frozen: bool
) -> Formula | None:
    """Return what an optimizer of a common name does to a parameter, without what only Paddle's has."""
    algorithm = (kind or "").lower()
    if algorithm not in KNOBS:
        return None
    said = next((treatment for one, treatment in treatments if one is tensor), None)
    if said is None or frozen:
        return Formula(algorithm=algorithm, frozen=True)
    form, decay = said.decay[0] if said.decay else ("l2", 0.0)
    names = {code: name for name, code in CODES.items()} | {"rho": "beta2"}
    knobs = {names.get(code, code): value for code, value in said.settings.items()}
    known = {one.name for one in fields(Formula)}
    return Formula(
        algorithm=algorithm,
        lr=said.rate,
        decay=decay,
        form=form,
        **{k: v for k, v in knobs.items() if k in known and v is not None},
    )


def _clip(grouped: bool, clip: object) -> tuple[str, float]:
    kind = next((CLIP_KINDS[one.__name__] for one in type(clip).__mro__ if one.__name__ in CLIP_KINDS), "")
    if not kind:
        return "", 0.0
    limit = {"value": "max", "norm": "clip_norm", "global": "clip_norm"}[kind]
    # Paddle clips the gradients of each group by a global norm of their own.
    return "group" if grouped and kind == "global" else kind, float(getattr(clip, limit))


# Knobs of optimizers in words.


CODES: Mapping[str, str] = {
    "lr": "learning-rate",
    "decay": "weight-decay",
    "form": "weight-decay-form",
    "momentum": "momentum",
    "dampening": "dampening",
    "first": "momentum-start",
    "nesterov": "nesterov",
    "rate_inside": "rate-inside-momentum",
    "beta1": "beta1",
    "beta2": "beta2",
    "epsilon": "epsilon",
    "place": "epsilon-placement",
    "correction": "bias-correction",
    "amsgrad": "amsgrad",
    "centered": "centered",
    "initial": "initial-accumulator",
    "rate_decay": "learning-rate-decay",
    "kept": "accumulated-gradients",
    "scale": "gradient-scale",
    "maximize": "maximize",
    "clip": "gradient-clipping",
    "limit": "gradient-clipping",
    "frozen": "frozen-parameters",
    "algorithm": "optimizer-type",
}
PLACES = {
    "outside": "outside the root (sqrt(v) + eps)",
    "inside": "inside the root (sqrt(v + eps))",
    "unscaled": "beside the root of the uncorrected moment",
}
FORMS = {
    "l2": "coupled (L2, added to the gradient)",
    "l1": "L1 (its sign is added)",
    "decoupled": "decoupled (AdamW's)",
    "free": "decoupled and not multiplied by the learning rate",
}
CLIPS = {
    "": "no clipping",
    "value": "by value",
    "norm": "by each gradient's norm",
    "global": "by the global norm",
    "group": "by the global norm of each parameter group",
}


PLAIN: Mapping[str, str] = {
    "form": "the port's weight decay is {actual}, the reference's {expected}",
    "place": "the port adds epsilon {actual}, the reference {expected}",
    "clip": "the port's optimizer clips gradients: {actual}; the reference's: {expected}",
    "algorithm": "the port's updates are those of {actual}, the reference's of {expected}",
    "kept": "the port's gradients are cleared {actual}, the reference's {expected}: until then they add up",
    "scale": "the port's gradients are {actual:.6g} times those that it was given, the reference's {expected:.6g} times",
    "first": "the port's momentum starts as {actual}, the reference's as {expected}",
}
SWITCHES: Mapping[str, tuple[str, str]] = {
    "frozen": ("the port does not move what the reference trains", "the port trains what the reference has frozen"),
    "maximize": (
        "the port's steps go uphill, the reference's downhill",
        "the port's steps go downhill, the reference's uphill",
    ),
    "correction": (
        "the port corrects the moments' bias, the reference does not",
        "the port does not correct the moments' bias, the reference does",
    ),
    "rate_inside": (
        "the port multiplies the learning rate in before the momentum, the reference after it: they differ once the rate changes",
        "the port multiplies the learning rate in after the momentum, the reference before it: they differ once the rate changes",
    ),
}
"""What is said of a knob that the port has on, and off."""
START_WORDS = {"gradient": "the first gradient", "zero": "zero, to which the dampened gradient is added"}
FIXES: Mapping[str, str] = {
    "lr": "give the port's optimizer learning_rate={} (parameters' own factors included)",
    "decay": "pass weight_decay={} for these parameters",
    "form": "use AdamW for decoupled decay, Adam with weight_decay for coupled, L1Decay only where the reference has it",
    "nesterov": "pass use_nesterov={}",
    "place": "take torch's formula (tipchain.pairs.paddle_optimizers has it), or accept the difference knowingly",
    "algorithm": "use the optimizer of the reference: {}",
    "frozen": "set stop_gradient of these parameters as the reference sets requires_grad, and hand the others to the optimizer",
    "maximize": "let steps go the way that the reference's go",
    "scale": "divide (or multiply) the gradients and the loss as the reference does",
    "kept": "clear the gradients after each step, as the reference does",
    "correction": "correct the moments' bias as the reference does",
    "initial": "pass initial_accumulator_value={}",
    "beta2": "pass beta2={} (rho of RMSProp and Adadelta)",
    "rate_inside": "take torch's formula (tipchain.pairs.paddle_optimizers has it), or keep the rate constant",
}
NAMES = {"initial": "initial accumulator value", "rate_decay": "learning-rate decay"}


def message_of(knob: str, expected: Setting, actual: Setting, form: str) -> str:
    """Return a sentence about a knob with both values; ``form`` is the port's form of weight decay."""
    knob = "clip" if knob == "limit" else knob
    if knob in SWITCHES:
        return SWITCHES[knob][0 if actual else 1]
    if knob in PLAIN:
        tables: Mapping[str, Mapping[str, str]] = {"form": FORMS, "place": PLACES, "first": START_WORDS}
        table = tables.get(knob, {})
        told = (
            {0: "never", 1: "after each step"}.get(one, f"every {one} steps") if knob == "kept" else table.get(one, one)
            for one in (actual, expected)
        )
        return PLAIN[knob].format(**dict(zip(("actual", "expected"), told, strict=True)))
    if isinstance(actual, bool):
        return f"the port {'uses' if actual else 'does not use'} {knob}, the reference {'does' if expected else 'does not'}"
    if knob == "lr":
        factor = f", {actual / expected:.6g} times" if expected else ""
        return f"the port's learning rate is {actual:.6g}{factor} the reference's {expected:.6g}"
    if knob == "decay":
        kind = {"l1": " (L1)", "decoupled": " (decoupled)"}.get(form, "")
        return f"the port's weight decay is {actual:.6g}{kind}, the reference's {expected:.6g}"
    return f"the port's {NAMES.get(knob, knob)} is {actual:.6g}, the reference's {expected:.6g}"


CLIPPED: Mapping[str, str] = {
    "value": "pass grad_clip=paddle.nn.ClipGradByValue({:.6g})",
    "norm": "pass grad_clip=paddle.nn.ClipGradByNorm({:.6g})",
    "global": "pass grad_clip=paddle.nn.ClipGradByGlobalNorm({:.6g}), to an optimizer without parameter groups",
    "group": "pass grad_clip=paddle.nn.ClipGradByGlobalNorm({:.6g}) in each parameter group",
    "": "leave grad_clip out; if the reference clips in its training loop, tell it: clip=, for a case register_step_pre_hook in the builder",
}
"""What to write by the reference's clipping."""


# Why two optimizers update parameters differently, in words.


OPTIMIZER = "optimizer"
FORMULA = ("place", "rate_inside", "first")
"""Knobs that a framework's own formula fixes: no argument sets them."""
SAID = frozenset(
    ("lr", "decay", "momentum", "nesterov", "beta1", "beta2", "epsilon", "amsgrad", "centered", "clip", "limit")
)
"""Knobs that Paddle's optimizers keep as attributes."""
GIVE_UP = 3
"""Parameters without a cause after which no other is looked at."""
LOOKED_AT = 24
"""Parameters that causes are looked for in; the others are told by the causes found."""
STARTS = tuple(
    Formula(algorithm=name, beta2=0.99 if name in ("rmsprop", "adadelta") else 0.999, lr=lr)
    for name, lr in (
        ("sgd", 0.01),
        ("adam", 1e-3),
        ("rmsprop", 1e-2),
        ("adagrad", 1e-2),
        ("adamax", 2e-3),
        ("adadelta", 1.0),
    )
)
"""What an optimizer that says nothing about itself is tried to be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnobFound:
    """A knob with both values, and where it was found."""

    knob: str
    expected: object
    actual: object
    form: str


def causes(courses: Sequence[Course], failing: set[str], sides: tuple[Updates, Updates]) -> tuple[Diagnosis, ...]:
    """Return what explains the parameters that are updated differently, the cause of most of them first."""
    found: dict[str, KnobCause] = {}
    known: list[Options] = []
    missed, (ours, theirs) = 0, sides
    for course in _spread([one for one in courses if one.name in failing]):
        if missed >= GIVE_UP:
            break
        reference = _reference(course, ours, [cause.reference for cause in found.values()])
        cause = None
        if reference is not None:
            cause = explain(course, reference, paddle_formula(theirs, course.name), known)
        if cause is None or cause.explained < EXPLAINED:
            missed += 1
            continue
        found[course.name] = cause
        if cause.change not in known:
            known.append(cause.change)
    if not found:
        return (_unknown(courses, failing),)
    told: dict[_KnobFound, list[str]] = {}
    for name, cause in found.items():
        knobs = ["algorithm"] if cause.reference.algorithm != cause.port.algorithm else _knobs(cause)
        for knob in knobs:
            form = cause.port.form if knob == "decay" else ""  # of another knob what is decayed differs in nothing
            one = _KnobFound(
                knob=knob, expected=_value(cause.reference, knob), actual=_value(cause.port, knob), form=form
            )
            told.setdefault(one, []).append(name)
    by_name = {course.name: course for course in courses}
    # First what an argument of the port sets, then what takes away most by itself, then what is about most parameters.
    ordered = sorted(
        told,
        key=lambda one: (one.knob in FORMULA, -round(_explained(one, told[one], found, by_name), 3), -len(told[one])),
    )
    return tuple(_diagnosis(one, told[one], found, courses, failing, sides) for one in ordered)


def _spread(courses: Sequence[Course]) -> list[Course]:
    """Return some of the courses: of every number of elements a few."""
    if len(courses) <= LOOKED_AT:
        return list(courses)
    return [courses[round(at)] for at in np.linspace(0, len(courses) - 1, LOOKED_AT)]


def _reference(course: Course, side: Updates, known: Sequence[Formula]) -> Formula | None:
    frozen = not side.tensor(course.name).requires_grad
    said = _formula(
        torch_name(side.optimizer), torch_treatments(side.optimizer), side.tensor(course.name), frozen=frozen
    )
    starts = [said] if said is not None else [*dict.fromkeys(known), *STARTS]
    return identify(course, course.reference, starts)


def _knobs(cause: KnobCause) -> list[str]:
    """Return the knobs that really differ; a clip and its limit are one, as a decay that one side lacks and its form."""
    differ = [
        item.name
        for item in fields(Formula)
        if item.name in cause.change and getattr(cause.reference, item.name) != getattr(cause.port, item.name)
    ]
    if "clip" in differ and "limit" in differ:
        differ.remove("limit")
    if "decay" in differ and "form" in differ and not (cause.reference.decay and cause.port.decay):
        differ.remove("form")
    return differ


def _value(formula: Formula, knob: str) -> object:
    if knob in ("clip", "limit"):
        return f"{CLIPS[formula.clip]}{f', limit {formula.limit:.6g}' if formula.clip else ''}"
    value = getattr(formula, knob)
    return value if not isinstance(value, float) else float(f"{value:.5g}")


def _diagnosis(
    told: _KnobFound,
    names: list[str],
    found: Mapping[str, KnobCause],
    courses: Sequence[Course],
    failing: set[str],
    sides: tuple[Updates, Updates],
) -> Diagnosis:
    by_name, (_, port), name = {course.name: course for course in courses}, sides, names[0]
    alone = _explained(told, names, found, by_name)
    together = min(found[name].explained for name in names)
    where = ""
    if any(course.name not in failing for course in courses) or any(one not in names for one in found):
        vectors = all(len(sides[0].tensor(one).shape) <= 1 for one in names)
        where = (
            f", for {'biases and normalization parameters' if vectors else 'some parameters'} only ({listed(names, 4)})"
        )
    own = found[name].reference
    decoupled = own.algorithm == "adam" and own.form == "decoupled" and own.decay
    evidence = f"the {'AdamW' if decoupled else own.algorithm} formula of the reference reproduces its updates; "
    if together - alone > ROUGH:
        evidence += (
            f"with this setting alone {alone:.1%} of the difference is gone, with all that differ {together:.2%}, "
            f"in {len(names)} parameters"
        )
    else:
        evidence += (
            f"with the port's value of this setting {alone:.2%} of the difference is gone, in {len(names)} parameters"
        )
    effect = max(
        distance(by_name[name].reference, by_name[name].port, (by_name[name].reference, by_name[name].port))
        for name in names
    )
    return Diagnosis(
        code=CODES[told.knob],
        port_path=OPTIMIZER,
        message=f"{message_of(told.knob, told.expected, told.actual, told.form)}{where}",
        evidence=f"{evidence}; updates are apart by up to {effect:.2g} of their size",
        explained=together,
        fix=_fix(told.knob, own, paddle_formula(port, name)),
    )


def _fix(knob: str, reference: Formula, said: Formula | None) -> str:
    """Return what to write in the port; of a knob that its optimizer has as the reference already, where to look."""
    clips = knob in ("clip", "limit")
    same = said is not None and all(
        getattr(said, one) == getattr(reference, one) for one in (("clip", "limit") if clips else (knob,))
    )
    if knob in SAID and same:
        return f"the port's optimizer says that it has this {knob} already: look at what its step() makes of it"
    if clips:
        return CLIPPED[reference.clip].format(reference.limit)
    expected = getattr(reference, knob)
    shown = expected if not isinstance(expected, float) else float(f"{expected:.5g}")
    return FIXES.get(knob, f"pass {knob}={shown}").format(shown)


def _explained(
    told: _KnobFound, names: Sequence[str], found: Mapping[str, KnobCause], courses: Mapping[str, Course]
) -> float:
    """Return the share of the differences that one knob takes away by itself, in the parameter where that is least."""
    shares = []
    for name in names:
        cause, course = found[name], courses[name]
        if told.knob == "algorithm":
            formula = cause.port
        else:
            knobs = {"clip": ("clip", "limit"), "limit": ("clip", "limit"), "decay": ("decay", "form")}
            chosen = knobs.get(told.knob, (told.knob,))
            formula = replace(cause.reference, **{knob: getattr(cause.port, knob) for knob in chosen})
        like = course.reference, course.port
        apart = distance(*like, like)
        shares.append(max(0.0, 1 - distance(simulate(formula, course), course.port, like) / apart))
    return min(shares)


def _unknown(courses: Sequence[Course], failing: set[str]) -> Diagnosis:
    course = next(one for one in courses if one.name in failing)
    step = int(np.argmax(np.abs(course.port - course.reference).max(axis=1) > 0))
    factor = common_factor(course.reference[step], course.port[step])
    words = (
        "" if factor is None else f"; its first update that differs is {factor:.6g} times the reference's everywhere"
    )
    return Diagnosis(
        code="unknown",
        port_path=OPTIMIZER,
        message=f"the optimizers differ, the cause is unknown{words}",
        evidence="no setting of SGD, Adam, RMSProp, Adagrad, Adadelta or Adamax, changed alone or with another, explains "
        f"99 % of the difference ({course.name})",
        fix="compare the two optimizers' arguments and formulas",
    )


SIZES = (1e-6, 1e-3, 1.0, 30.0, 0.1, 1.0, 300.0, 1.0)
"""Sizes of the gradients, update by update: so small that epsilon counts, so large that any usual clipping acts."""
SHARES = (1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 2.0, 1.0)
"""Shares of the learning rate: formulas with the rate inside the momentum differ from those with it outside."""
APART = UNIT / 2 / (1 - 0.999)
"""Relative RMS difference of updates up to which they are one: Paddle keeps beta2 = 0.999 in float32, which is off by half a unit,
1 - beta2 by as much over 0.001, and the root of the bias correction by half of that."""
ROUNDING = 2.0**-48
"""Share of a parameter's largest value below which an update in float64 is rounding."""
LARGE = 4_000_000
"""Elements in all beyond which fewer updates are compared, for each takes a second."""
FEW = 5
"""Updates of which a model that large has as many compared: three before clipping and three settings could be told."""
KEPT = 512
"""Elements of a parameter whose course is kept for finding causes."""


DRAWN = 1 << 16
"""Random numbers that are drawn for one gradient; a larger one repeats them."""


@dataclass(slots=True)
class _ParameterCourse:
    """What is kept of a parameter while it is updated."""

    start: Array
    chosen: slice
    gradients: list[Array] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    updates: tuple[list[Array], list[Array]] = field(default_factory=lambda: ([], []))
    worst: float = 0.0
    step: int = -1
    moved: bool = False


@dataclass(frozen=True, slots=True)
class _Ran:
    opened: Opened
    watched: Mapping[str, _ParameterCourse]
    norms: Sequence[float]
    double: bool

    @property
    def failing(self) -> list[str]:
        """The parameters whose updates are apart."""
        return [name for name, kept in self.watched.items() if kept.worst > _limit(double=self.double)]

    @property
    def moved(self) -> bool:
        """Whether any update moved anything."""
        return any(kept.moved for kept in self.watched.values())


def check_optimizers(
    sides: Sides,
    reference: object,
    port: object,
    builders: tuple[Builder, Builder],
    iterations: int = 5,
    names: Mapping[str, str] | None = None,
    seed: int = 0,
    schedulers: tuple[Builder | None, Builder | None] | None = None,
    gradients: Mapping[str, Array] | None = None,
    clips: Clips = (None, None),
) -> PieceCheck:
    """Compare every update that two optimizers make of the same gradients, from the same parameters, in float64.

    Models are copied, neither is changed; of large parameters only some elements are updated, as long as those agree
    (see `tipchain.explain.causes.optimizer_builders`). Builders are called with what their parameters' names ask for: a list of
    parameters (or the first that has no telling name), ``model``, and a learning rate where they must have one. With
    schedules, or where Paddle's optimizer holds one, both sides have the reference's rate: `check_schedulers` compares
    what becomes of it. Clipping in a training loop is seen only where ``clips`` tell it.

    Args:
        sides: torch's and Paddle's.
        reference: a ``torch.nn.Module``.
        port: a ``paddle.nn.Layer``.
        builders: torch's and Paddle's optimizer.
        iterations: updates at least; never fewer than eight, or five of a model of which more than four million elements are updated.
        names: Paddle's name by torch's where names and structure cannot tell.
        seed: of the gradients.
        schedulers: the builders of schedules, where Paddle's optimizer is given one.
        gradients: gradients by torch's name, from which every other update is made; random ones without.
        clips: what each side's loop does to the gradients before an update, called as builders are.

    Returns:
        FAIL with both updates of the first that differs; ERROR where a builder or a step raises, no parameter could be
        matched, or no update moves anything; ``left_out`` lists parameters that could not be matched.
    """

    def run(*, double: bool, whole: bool) -> _Ran:
        opened = open_both(
            sides, (reference, port), builders, schedulers, names, double=double, whole=whole, clips=clips
        )
        least = len(SIZES) if opened.elements <= LARGE else FEW
        watched, norms = _run(opened, max(iterations, least), seed, gradients or {}, double=double)
        return _Ran(opened, watched, norms, double)

    def attempt(*, double: bool) -> PieceCheck:
        return _judge(run(double=double, whole=True))

    try:
        if not gradients:
            with suppress(Exception):  # an optimizer that keeps tensors of the parameters' sizes from the start
                ran = run(double=True, whole=False)
                if ran.opened.whole or (ran.moved and not ran.failing):
                    return _judge(ran)
        with suppress(RuntimeError, NotImplementedError, ValueError):  # a kernel that takes no float64
            return attempt(double=True)
        return attempt(double=False)
    except TipchainError as error:
        return PieceCheck(outcome=Outcome.ERROR, reason=str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001  (user code)
        return failed_to_run("building or stepping the optimizers", error)


def _run(
    opened: Opened, count: int, seed: int, gradients: Mapping[str, Array], *, double: bool
) -> tuple[dict[str, _ParameterCourse], list[float]]:
    """Step both sides with equal gradients, and keep how far their updates are apart."""
    norms: list[float] = []
    reference, _ = opened.sides
    values = {name: reference.value(name) for name in opened.names}
    watched = {}
    for name, value in values.items():
        chosen = slice(None, None, max(1, value.size // KEPT))
        watched[name] = _ParameterCourse(value.reshape(-1)[chosen].copy(), chosen)
    before = (values, dict(values))
    # Gradients are of their parameter's size, of zeros of the usual one.
    sizes = {name: float(np.sqrt(np.mean(one**2))) if one.size else 0.0 for name, one in values.items()}
    usual = float(np.median([one for one in sizes.values() if one > 0] or [1.0]))
    known = {name: float(np.sqrt(np.mean(np.square(one)))) for name, one in gradients.items() if np.size(one)}
    scales = {name: known.get(name) or (size if size > 0 else usual) for name, size in sizes.items()}
    for step in range(count):
        total = 0.0
        for name, given in _gradients(values, scales, seed, step, gradients):
            kept = watched[name]
            kept.gradients.append(given.reshape(-1)[kept.chosen].copy())
            kept.norms.append(float(np.linalg.norm(given)))
            total += kept.norms[-1] ** 2
            for side in opened.sides:
                side.add_gradient(name, given)
        norms.append(total**0.5)
        for side in opened.sides:
            side.set_rate(SHARES[step % len(SHARES)])
            side.step()
        for name, kept in watched.items():
            updates = []
            for number, side in enumerate(opened.sides):
                value = side.value(name)
                updates.append(value - before[number][name])
                before[number][name] = value
                kept.updates[number].append(updates[-1].reshape(-1)[kept.chosen].copy())
            apart = [rms(one) for one in (*updates, updates[1] - updates[0])]
            largest = max(float(np.max(np.abs(one[name]), initial=0.0)) for one in before)
            noise = (ROUNDING if double else SAME_SINGLE) * largest
            kept.moved = kept.moved or max(apart[:2]) > noise
            finite = all(np.isfinite(one) for one in apart)
            share = apart[2] / max(apart[:2]) if finite and apart[2] > noise else 0.0 if finite else np.inf
            if share > _limit(double=double) and kept.step < 0:
                kept.step = step
            kept.worst = max(kept.worst, float(share))
    return watched, norms


def _gradients(
    values: Mapping[str, Array], scales: Mapping[str, float], seed: int, step: int, given: Mapping[str, Array]
) -> Iterator[tuple[str, Array]]:
    size = SIZES[step % len(SIZES)]
    for number, (name, value) in enumerate(values.items()):
        if step % 2 and name in given and np.shape(given[name]) == value.shape:
            yield name, np.asarray(given[name], np.float64) * size
        else:
            generator = np.random.default_rng([seed, step, number])
            drawn = generator.standard_normal(min(value.size, DRAWN)) * (size * scales[name])
            yield name, np.resize(drawn, value.shape)


def _limit(*, double: bool) -> float:
    return APART if double else ROUGH


def _judge(ran: _Ran) -> PieceCheck:
    opened, watched, norms, failing = ran.opened, ran.watched, ran.norms, ran.failing
    numbers = {
        "parameters": float(len(watched)),
        "parameters_apart": float(len(failing)),
        "updates": float(len(norms)),
        "largest_update_difference": max(kept.worst for kept in watched.values()),
    }
    curves = {
        side: [
            float(np.mean([np.sqrt(np.mean(kept.updates[number][step] ** 2)) for kept in watched.values()]))
            for step in range(len(norms))
        ]
        for number, side in enumerate(("reference_update", "port_update"))
    }
    common: dict[str, Any] = {"numbers": numbers, "curves": curves, "left_out": opened.left_out}
    left = f"; {len(opened.left_out)} parameters could not be matched" if opened.left_out else ""
    if not ran.moved:
        reason = f"proves nothing: no update moves any parameter, on either side{left}"
        return PieceCheck(outcome=Outcome.ERROR, reason=reason, **common)
    if not failing:
        given = f"; {opened.rate_given}" if opened.rate_given else ""
        given += "" if ran.double else "; in float32, for one side does not run in float64"
        reason = (
            f"{len(norms)} updates of {len(watched)} parameters agree to {numbers['largest_update_difference']:.1e} of "
            f"their size{given}{left}"
        )
        return PieceCheck(outcome=Outcome.PASS, reason=reason, **common)
    first = min(failing, key=lambda name: watched[name].step)
    _, port = opened.sides
    groups = enumerate(parameter_groups(port.optimizer))
    group_of = {id(one): number for number, (_, tensors) in groups for one in tensors}
    courses = _courses(watched, norms, {name: group_of.get(id(port.tensor(name)), 0) for name in watched})
    step = watched[first].step
    expected, actual = (float(np.sqrt(np.mean(side[step] ** 2))) for side in watched[first].updates)
    reason = (
        f"{len(failing)} of {len(watched)} parameters are updated otherwise; first {first} at update {step + 1}: "
        f"expected a step of size {expected:.6g}, actual {actual:.6g}, apart by {watched[first].worst:.1e} of it{left}"
    )
    return PieceCheck(
        outcome=Outcome.FAIL, reason=reason, diagnoses=causes(courses, set(failing), opened.sides), **common
    )


def _courses(
    watched: Mapping[str, _ParameterCourse], norms: Sequence[float], groups: Mapping[str, int]
) -> list[Course]:
    shares = np.array([SHARES[step % len(SHARES)] for step in range(len(norms))])
    squares = {number: np.zeros(len(norms)) for number in groups.values()}
    for name, kept in watched.items():
        squares[groups[name]] += np.square(kept.norms)
    return [
        Course(
            name=name,
            start=kept.start,
            gradients=np.array(kept.gradients),
            norms=np.array(kept.norms),
            global_norms=np.array(norms),
            group_norms=np.sqrt(squares[groups[name]]),
            shares=shares,
            reference=np.array(kept.updates[0]),
            port=np.array(kept.updates[1]),
        )
        for name, kept in watched.items()
    ]
