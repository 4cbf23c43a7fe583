"""Two optimizers, compared by the updates they make of equal gradients; and the setting that makes them differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from tipchain.core.language import listed
from tipchain.errors import Outcome
from tipchain.explain.causes.optimizer_builders import Opened, TrainingPair, open_both
from tipchain.explain.findings import Diagnosis, PieceCheck, at_source, failed_to_run, source_of
from tipchain.explain.locate.differences import rms
from tipchain.explain.preflight.optimizers import (
    SHOWN,
    Treatments,
    build,
    compare,
    keep,
    level_epsilons,
    read_paddle,
    read_torch,
)
from tipchain.explain.preflight.schedules import OPTIMIZER, Path, explaining
from tipchain.facts.optimizers import BY_NAME
from tipchain.framework_types import Array
from tipchain.frameworks.paddle_ import parameter_groups
from tipchain.numbers.compare import common_factor
from tipchain.numbers.tolerance import EXPLAINED, ROUGH, SAME_SINGLE, UNIT

# The port's optimizer built again with the reference's settings.


def _rebuild(opened: Opened, settings: Treatments, paths: Sequence[Path]) -> None:
    """Build the port's optimizer again with the reference's values of some settings."""
    port = opened.port
    treatments = [
        (part.tensor, actual.following(expected, paths))
        for name, expected, actual in settings.matched
        for part in port.slots[name].parts
    ]
    port.optimizer = build(port.framework.paddle, port.optimizer, treatments)
    level_epsilons(opened.reference.optimizer, port.optimizer)
    port.hold_rate(float(port.optimizer.get_lr()))


def _lend(opened: Opened) -> None:
    """Give the port's optimizer the gradients that the reference's is left with once it has clipped them, and clip no more."""
    ours, port = opened.reference, opened.port
    lent: dict[str, Array] = {}

    def take(*_: object) -> None:
        held = ((name, ours.tensor(name).grad) for name in opened.names)
        lent.update((name, ours.framework.array(gradient)) for name, gradient in held if gradient is not None)

    ours.optimizer.register_step_post_hook(take)
    keep(port.optimizer, "grad_clip", None)
    port.clip = lambda: port.give(lent)


def _clippings(opened: Opened) -> list[list[object]]:
    """Return what clips each side's gradients, as far as it is known."""
    ours, theirs = opened.sides
    hooks = getattr(ours.optimizer, "_optimizer_step_pre_hooks", {}).values()
    loops = [getattr(one.clip, "args", (None,))[0] for one in opened.sides]
    kinds = [group.get("grad_clip") for group, _ in parameter_groups(theirs.optimizer)]
    kinds.append(getattr(theirs.optimizer, "_grad_clip", None))
    own = type(ours.optimizer) if not hooks and not type(ours.optimizer).__module__.startswith("torch.") else None
    both = ([*hooks, loops[0], own], [*kinds, loops[1]])
    return [[one for one in side if one is not None] for side in both]


def _clip_words(clip: object) -> str:
    kind = type(clip)
    if kind.__module__.startswith("paddle"):
        return f"`{kind.__name__}({getattr(clip, 'clip_norm', getattr(clip, 'max', ''))})`"
    return f"`{getattr(clip, '__qualname__', kind.__name__)}`{at_source(clip)}"


def causes(ran: _Ran) -> tuple[Diagnosis, ...]:
    """Return the settings with which the port's updates are the reference's; else both first updates that part."""
    settings = ran.settings
    shown = _shown(ran)
    if settings is None:
        return (shown,)
    aside = {*settings.port_alone, *settings.reference_alone}

    def explained(paths: Sequence[Path], *, lend: bool = False) -> float:
        def change(opened: Opened) -> None:
            if paths:
                _rebuild(opened, settings, paths)
            if lend:
                _lend(opened)

        try:
            others = ran.again(change).watched
        except Exception:  # noqa: BLE001  (an optimizer that takes no such value explains nothing)
            return 0.0
        left = [np.sqrt(others[name].total / ran.watched[name].total) for name in ran.failing if name not in aside]
        return max(0.0, 1 - float(max(left, default=1.0)))

    alone = [_updated_by_one(names, of_port=True) for names in [settings.port_alone] if names]
    alone += [_updated_by_one(names, of_port=False) for names in [settings.reference_alone] if names]
    if not set(ran.failing) - aside:
        return tuple(alone)
    found, count, share = explaining(settings.found, explained)
    if count:
        proof = f"with the reference's value {share:.2%} of the difference is gone; {shown.message}"
        return (*alone, *(one.diagnosed(proof, share) for one in found[:count]))
    share = explained(list(dict.fromkeys(one.path for one in found)), lend=True)
    clipping = _clippings(ran.opened)
    clips = [listed(list(dict.fromkeys(map(_clip_words, side))), SHOWN) for side in clipping]
    if share >= EXPLAINED:
        proof = f"with the gradients that the reference's update uses {share:.2%} of the difference is gone"
        shown = replace(shown, evidence=f"{proof}; {shown.evidence}")
        message = (
            f"the port's gradients are clipped by {clips[1] or 'nothing'}, the reference's by {clips[0] or 'nothing'}"
        )
        fix = "clip the port's gradients as the reference's are: `grad_clip=` of its optimizer, or `clip=` of its loop"
        if any(clips):
            evidence = f"{proof}; {shown.message}"
            lines = [next(filter(None, map(source_of, side)), None) for side in clipping]
            told = replace(shown, code="setting", name="grad_clip", message=message, fix=fix, explained=share)
            alone.append(replace(told, evidence=evidence, place=lines[1], reference_place=lines[0]))
    return (*alone, *(one.diagnosed(f"{shown.message}; {shown.evidence}") for one in found)) or (shown,)


def _updated_by_one(names: Sequence[str], *, of_port: bool) -> Diagnosis:
    shown = listed(list(dict.fromkeys(names)), SHOWN)
    message = f"the reference alone updates {shown}, the port does not"
    fix = f"give {shown} to the optimizer, with stop_gradient=False"
    if of_port:
        message = f"the port alone updates {shown}, the reference does not"
        fix = f"leave {shown} out of the optimizer"
    evidence = "both optimizers' parameters, `requires_grad` and `stop_gradient`"
    return Diagnosis(code="setting", port_path=OPTIMIZER, message=message, evidence=evidence, fix=fix)


def _shown(ran: _Ran) -> Diagnosis:
    """Show the first update that parts: inputs, both results, and both optimizers' settings."""
    name = min(ran.failing, key=lambda one: ran.watched[one].step)
    kept, (ours, theirs) = ran.watched[name], ran.opened.sides
    expected, actual = (side[kept.step] for side in kept.updates)
    factor = common_factor(expected, actual)
    words = "" if factor is None else f"; the port's is {factor:.6g} times the reference's everywhere"
    read = read_torch(ours.optimizer), read_paddle(theirs.optimizer)
    classes, kinds = [], []
    for side, treatments in zip(ran.opened.sides, read, strict=True):
        optimizer = type(side.optimizer)
        own = "" if optimizer.__module__.startswith(("torch.", "paddle.")) else at_source(optimizer)
        treatment = next((one for tensor, one in treatments if tensor is side.tensor(name)), None)
        options = {} if treatment is None else dict(treatment.arguments)
        told = {"decay": options.pop("weight_decay", ()) or 0, **options} if options else {}
        arguments = ", ".join(f"{key}={value}" for key, value in told.items() if key != "learning_rate")
        classes.append(f"{optimizer.__name__}({arguments}){own}")
        kinds.append("" if treatment is None else treatment.kind)
    where = f"{optimizer.__name__}{own}"
    differs = BY_NAME[kinds[1]].differs if kinds[1] and kinds[0] == kinds[1] else ""
    note = f"; {differs}" if differs else ""
    return Diagnosis(
        code="parting",
        port_path=OPTIMIZER,
        message=f"{name} parts at update {kept.step + 1}: of the gradient {_glimpse(kept.gradients[kept.step])} the reference "
        f"makes the step {_glimpse(expected)}, the port {_glimpse(actual)}{words}",
        evidence=f"the reference's is {classes[0]}; the port's is {classes[1]}{note}",
        fix=f"compare the step() of {where} with the reference's",
        place=source_of(optimizer) if own else None,
    )


def _glimpse(array: Array) -> str:
    more = ", …" if array.size > SHOWN else ""
    return f"[{', '.join(f'{one:.6g}' for one in array[:SHOWN])}{more}]"


# Updates of equal gradients, one after the other.


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
MOST_APART = 1e3
"""Relative difference of an update that counts at most."""
KEPT = 512
"""Elements of a parameter whose course is kept for finding causes."""


DRAWN = 1 << 16
"""Random numbers that are drawn for one gradient; a larger one repeats them."""


@dataclass(slots=True)
class _ParameterCourse:
    chosen: slice
    gradients: list[Array] = field(default_factory=list)
    updates: tuple[list[Array], list[Array]] = field(default_factory=lambda: ([], []))
    total: float = 0.0
    worst: float = 0.0
    step: int = -1
    moved: bool = False


@dataclass(frozen=True, slots=True)
class _Ran:
    """Updates of both optimizers; ``again`` runs both once more, with something done to them first."""

    opened: Opened
    watched: Mapping[str, _ParameterCourse]
    updates: int
    double: bool
    settings: Treatments | None
    again: Callable[[Callable[[Opened], object]], _Ran]

    @property
    def failing(self) -> list[str]:
        """The parameters whose updates are apart."""
        return [name for name, kept in self.watched.items() if kept.worst > (APART if self.double else ROUGH)]

    @property
    def moved(self) -> bool:
        """Whether any update moved anything."""
        return any(kept.moved for kept in self.watched.values())


def check_optimizers(pair: TrainingPair) -> PieceCheck:
    """Compare every update that two optimizers make of the same gradients, from the same parameters, in float64.

    There are at least eight updates, five of a model of which more than four million elements are updated. Of large
    parameters only some elements are updated, as long as those agree (`shrink`). With schedules, or where Paddle's optimizer
    holds one, both sides have the reference's rate: `check_schedulers` compares what becomes of it.

    Returns:
        FAIL with both updates of the first that differs; ERROR where a builder or a step raises, no parameter could be
        matched, or no update moves anything; ``left_out`` lists parameters that could not be matched.
    """

    def run(change: Callable[[Opened], object] | None = None, *, double: bool = True, whole: bool = True) -> _Ran:
        opened = open_both(pair, double=double, whole=whole)
        opened.level()
        settings = None
        if change is not None:
            change(opened)
        else:
            ours, theirs = opened.sides
            tensors = ((name, ours.tensor(name), theirs.tensor(name)) for name in opened.names)
            with suppress(Exception):  # an optimizer of the user's may say nothing about itself
                settings = compare(ours.optimizer, theirs.optimizer, tensors)
        updates = max(pair.iterations, len(SIZES) if opened.elements <= LARGE else FEW)
        watched = _run(opened, updates, pair.seed, double=double)
        return _Ran(opened, watched, updates, double, settings, partial(run, double=double, whole=whole))

    try:
        with suppress(Exception):  # an optimizer that keeps tensors of the parameters' sizes from the start
            ran = run(whole=False)
            if ran.opened.whole or (ran.moved and not ran.failing):
                return _judge(ran)
        with suppress(RuntimeError, NotImplementedError, ValueError):  # a kernel that takes no float64
            return _judge(run())
        return _judge(run(double=False))
    except (Exception, SystemExit) as error:  # noqa: BLE001  (user code)
        return failed_to_run("building or stepping the optimizers", error)


def _run(opened: Opened, count: int, seed: int, *, double: bool) -> dict[str, _ParameterCourse]:
    """Step both sides with equal gradients, and keep how far their updates are apart."""
    values = {name: opened.reference.value(name) for name in opened.names}
    watched = {}
    for name, value in values.items():
        chosen = slice(None, None, max(1, value.size // KEPT))
        watched[name] = _ParameterCourse(chosen)
    before = (values, dict(values))
    # Gradients are of their parameter's size, of zeros of the usual one.
    sizes = {name: float(np.sqrt(np.mean(one**2))) if one.size else 0.0 for name, one in values.items()}
    usual = float(np.median([one for one in sizes.values() if one > 0] or [1.0]))
    scales = {name: size if size > 0 else usual for name, size in sizes.items()}
    for step in range(count):
        for number, (name, kept) in enumerate(watched.items()):
            generator = np.random.default_rng([seed, step, number])
            drawn = generator.standard_normal(min(values[name].size, DRAWN))
            given = np.resize(drawn * (SIZES[step % len(SIZES)] * scales[name]), values[name].shape)
            kept.gradients.append(given.reshape(-1)[kept.chosen].copy())
            for side in opened.sides:
                side.add_gradient(name, given)
        for side in opened.sides:
            if not opened.port.keeps_rate:
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
            if share > (APART if double else ROUGH) and kept.step < 0:
                kept.step = step
            kept.worst, kept.total = max(kept.worst, float(share)), kept.total + min(float(share), MOST_APART) ** 2
    return watched


def _judge(ran: _Ran) -> PieceCheck:
    opened, watched, failing = ran.opened, ran.watched, ran.failing
    numbers = {
        "parameters": float(len(watched)),
        "parameters_apart": float(len(failing)),
        "updates": float(ran.updates),
        "largest_update_difference": max(kept.worst for kept in watched.values()),
    }
    curves = {
        side: [
            float(np.mean([np.sqrt(np.mean(kept.updates[number][step] ** 2)) for kept in watched.values()]))
            for step in range(ran.updates)
        ]
        for number, side in enumerate(("reference_update", "port_update"))
    }
    check = PieceCheck(outcome=Outcome.FAIL, reason="", numbers=numbers, curves=curves, left_out=opened.left_out)
    left = f"; {len(opened.left_out)} parameters could not be matched" if opened.left_out else ""
    hidden = [] if failing or ran.settings is None else ran.settings.found
    if hidden:
        told = tuple(one.diagnosed(f"{ran.updates} updates of equal gradients agree all the same") for one in hidden)
        return replace(check, reason=hidden[0].message, diagnoses=told)
    if not ran.moved:
        reason = f"proves nothing: no update moves any parameter, on either side{left}"
        return replace(check, outcome=Outcome.ERROR, reason=reason)
    if not failing:
        given = f"; {opened.note}" if opened.note else ""
        given += "" if ran.double else "; in float32, for one side does not run in float64"
        reason = (
            f"{ran.updates} updates of {len(watched)} parameters agree to {numbers['largest_update_difference']:.1e} of "
            f"their size{given}{left}"
        )
        return replace(check, outcome=Outcome.PASS, reason=reason)
    first = min(failing, key=lambda name: watched[name].step)
    step = watched[first].step
    expected, actual = (float(np.sqrt(np.mean(side[step] ** 2))) for side in watched[first].updates)
    reason = (
        f"{len(failing)} of {len(watched)} parameters are updated otherwise; first {first} at update {step + 1}: "
        f"expected a step of size {expected:.6g}, actual {actual:.6g}, apart by {watched[first].worst:.1e} of it{left}"
    )
    return replace(check, reason=reason, diagnoses=causes(ran))
