"""Two optimizers, compared by the updates they make of equal gradients; and why they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tipchain.core.language import listed
from tipchain.errors import Outcome, TipchainError
from tipchain.explain.causes.optimizer_builders import Builder, Clips, Opened, open_both
from tipchain.explain.causes.walk import glimpse
from tipchain.explain.findings import Diagnosis, Finding, PieceCheck, at_source, failed_to_run
from tipchain.explain.locate.differences import rms
from tipchain.explain.preflight.optimizers import (
    ABSENT,
    SETTINGS,
    Matched,
    UpdateTreatment,
    paddle_treatments,
    torch_treatments,
    updates_apart,
)
from tipchain.framework_types import Array, Optimizer, Tensor
from tipchain.frameworks.live_models import Sides
from tipchain.frameworks.paddle_ import PaddleUpdates, parameter_groups
from tipchain.numbers.compare import common_factor
from tipchain.numbers.tolerance import EXPLAINED, ROUGH, SAME_SINGLE, UNIT

# What both optimizers are made with, and the port's run again with the reference's settings.


OPTIMIZER = "optimizer"
FROZEN, RATE, CLIPPING = "frozen-parameters", "learning-rate", "gradient-clipping"
DECAYS = ("weight-decay", "decayed-parameters")
TAKEN = {one.code: one for traits in SETTINGS.values() for one in traits if one.code not in ABSENT}
"""Settings that Paddle's optimizers take, by code."""
NAMED = 4
"""Parameters that a message names."""


@dataclass(frozen=True, slots=True)
class _Settings:
    """What both optimizers do to the parameters of both, and how that differs.

    Attributes:
        matched: torch's name of a parameter with both treatments.
        findings: what differs.
        frozen: the parameters that one side alone trains: the port's, the reference's.
    """

    matched: Matched
    findings: list[Finding]
    frozen: tuple[list[str], list[str]]


def _settings_of(opened: Opened) -> _Settings:
    ours, theirs = opened.sides
    done = {id(one): treatment for one, treatment in torch_treatments(ours.optimizer)}
    port_done = {id(one): treatment for one, treatment in paddle_treatments(theirs.optimizer)}
    matched: Matched = []
    frozen: tuple[list[str], list[str]] = ([], [])
    for name in opened.names:
        one, other = ours.tensor(name), theirs.tensor(name)
        expected = done.get(id(one)) if one.requires_grad else None
        actual = None if other.stop_gradient else port_done.get(id(other))
        if expected is not None and actual is not None:
            matched.append((name, expected, actual))
        elif (expected is None) != (actual is None):
            frozen[actual is None].append(name)
    found = updates_apart(ours.optimizer, theirs.optimizer, matched)
    return _Settings(matched, [one for one in found if one.code != CLIPPING], frozen)


def _put_in(side: PaddleUpdates, matched: Matched, codes: Iterable[str]) -> None:
    """Give Paddle's optimizer the reference's values of some settings."""
    for code in codes:
        if code == RATE:
            _put_in_rates(side, matched)
        elif code in DECAYS:
            _put_in_decays(side, matched)
        else:
            _put_in_setting(side, matched, code)


def _put_in_rates(side: PaddleUpdates, matched: Matched) -> None:
    ratios = {name: ours.rate / theirs.rate for name, ours, theirs in matched if theirs.rate}
    if len({round(one, 9) for one in ratios.values()}) == 1:
        side.hold_rate(side.first * next(iter(ratios.values())))
        return
    for name, ratio in ratios.items():
        for part in side.slots[name].parts:
            own = part.tensor.optimize_attr["learning_rate"]
            part.tensor.optimize_attr = {"learning_rate": own * ratio}


def _put_in_decays(side: PaddleUpdates, matched: Matched) -> None:
    from paddle.regularizer import L1Decay, L2Decay

    optimizer, names = side.optimizer, set[str]()
    for name, ours, _ in matched:
        terms = dict(ours.decay)
        for part in side.slots[name].parts:
            if "decoupled" in terms:
                names.add(part.tensor.name)
            else:
                kind, size = (L1Decay, terms["l1"]) if "l1" in terms else (L2Decay, terms.get("l2", 0.0))
                part.tensor.regularizer = kind(size)
    decoupled = [size for _, ours, _ in matched for form, size in ours.decay if form == "decoupled"]
    if hasattr(optimizer, "_apply_decay_param_fun"):  # AdamW's
        optimizer._apply_decay_param_fun = names.__contains__  # noqa: SLF001
        _keep(optimizer, "weight_decay", max(decoupled, default=0.0))


def _put_in_setting(side: PaddleUpdates, matched: Matched, code: str) -> None:
    wanted = {id(part.tensor): ours.settings[code] for name, ours, _ in matched for part in side.slots[name].parts}
    for _, tensors in parameter_groups(side.optimizer):
        value = next((wanted[id(one)] for one in tensors if id(one) in wanted), None)
        if value is not None:
            _keep(side.optimizer, TAKEN[code].argument, value, tensors)


def _takes(optimizer: Optimizer, code: str) -> bool:
    """Tell whether a Paddle optimizer keeps a setting of its own."""
    argument = TAKEN[code].argument if code in TAKEN else ""
    return bool(argument) and (hasattr(optimizer, f"_{argument}") or hasattr(optimizer, argument))


def _keep(optimizer: Optimizer, argument: str, value: object, tensors: Sequence[Tensor] | None = None) -> None:
    """Set what a Paddle optimizer keeps of an argument, and its groups, or the one of some tensors."""
    for group in getattr(optimizer, "_param_groups", ()):
        if isinstance(group, dict) and (tensors is None or group["params"][0] is tensors[0]):
            group[argument] = value
    for name in (f"_{argument}", argument):
        if hasattr(optimizer, name):
            setattr(optimizer, name, value)
    getattr(optimizer, "_default_dict", {})[argument] = value


def _unclip(opened: Opened) -> str:
    """Take clipping out of both sides; return in words how both clip, empty where neither does."""
    ours, theirs = opened.sides
    hooks = getattr(ours.optimizer, "_optimizer_step_pre_hooks", {})
    clips = [getattr(one.clip, "args", (None,))[0] for one in opened.sides]
    kinds = [group.get("grad_clip") for group, _ in parameter_groups(theirs.optimizer)]
    kinds.append(getattr(theirs.optimizer, "_grad_clip", None))
    said = [_clip_words(one) for one in [*hooks.values(), clips[0]] if one is not None]
    port_said = list(dict.fromkeys(_clip_words(one) for one in [*kinds, clips[1]] if one is not None))
    if not said and not port_said:
        return ""
    hooks.clear()
    ours.clip = theirs.clip = None
    _keep(theirs.optimizer, "grad_clip", None)
    return (
        f"the port's gradients are clipped by {listed(port_said, NAMED) or 'nothing'}, the reference's by "
        f"{listed(said, NAMED) or 'nothing'}"
    )


def _clip_words(clip: object) -> str:
    kind = type(clip)
    if kind.__module__.startswith("paddle"):
        return f"`{kind.__name__}({getattr(clip, 'clip_norm', getattr(clip, 'max', ''))})`"
    return f"`{getattr(clip, '__qualname__', kind.__name__)}`{at_source(clip)}"


def causes(ran: _Ran, again: Callable[[Callable[[Opened], object]], _Ran]) -> tuple[Diagnosis, ...]:
    """Return the settings that explain why updates differ, else both first updates that do.

    Args:
        ran: both optimizers as they are.
        again: runs both once more, with something done to them first.
    """
    settings = ran.settings
    if settings is None:
        return (_shown(ran),)
    clipped: list[str] = []
    aside = {*settings.frozen[0], *settings.frozen[1]}

    def explained(codes: Sequence[str], *, unclip: bool = False) -> float:
        def change(opened: Opened) -> None:
            clipped[:] = [_unclip(opened)] if unclip else []
            port = opened.sides[1]
            assert isinstance(port, PaddleUpdates)
            _put_in(port, settings.matched, codes)

        try:
            return _gone(ran, again(change), aside)
        except Exception:  # noqa: BLE001  (an optimizer that takes no such value explains nothing)
            return 0.0

    codes = list(dict.fromkeys(one.code for one in settings.findings))
    _, port = ran.opened.sides
    taken = [one for one in codes if one in (RATE, *DECAYS) or _takes(port.optimizer, one)]
    rest = [one for one in settings.findings if one.code not in taken]
    share = explained(taken) if taken else 0.0
    unclipped = explained(taken, unclip=True) if share < EXPLAINED else 0.0
    told = _of_frozen(settings.frozen)
    if share < EXPLAINED and unclipped >= EXPLAINED and clipped[0]:
        told.append(_of_clipping(clipped[0], unclipped))
        share = unclipped
    if share < EXPLAINED and not rest and not told:
        return (_shown(ran),)
    alone = {code: explained([code]) if len(taken) > 1 else share for code in taken}
    whole = share if share >= EXPLAINED else None
    ordered = sorted((one for one in settings.findings if one.code in taken), key=lambda one: -alone[one.code])
    told += [_of_setting(one, whole, alone[one.code]) for one in ordered]
    return (*told, *(_of_setting(one, None, 0.0) for one in (rest if whole is None else ())))


def _gone(ran: _Ran, other: _Ran, aside: set[str]) -> float:
    """Return the share of the difference that is gone in another run, in the parameter where that is least."""
    shares = [
        1 - np.sqrt(other.watched[name].total / ran.watched[name].total) for name in ran.failing if name not in aside
    ]
    return max(0.0, float(min(shares, default=0.0)))


def _of_setting(finding: Finding, explained: float | None, alone: float) -> Diagnosis:
    evidence = f"reference {finding.reference}, port {finding.port}"
    if explained is not None:
        evidence += f"; with the reference's value put in {alone:.2%} of the difference is gone"
    return Diagnosis(
        code=finding.code,
        port_path=OPTIMIZER,
        message=finding.message,
        evidence=evidence,
        explained=explained,
        fix=finding.fix,
    )


def _of_clipping(words: str, explained: float) -> Diagnosis:
    return Diagnosis(
        code=CLIPPING,
        port_path=OPTIMIZER,
        message=words,
        evidence=f"with clipping taken out of both {explained:.2%} of the difference is gone",
        explained=explained,
        fix="clip the port's gradients as the reference's are: `grad_clip=` of its optimizer, or `clip=` of its loop",
    )


def _of_frozen(frozen: tuple[list[str], list[str]]) -> list[Diagnosis]:
    messages = (
        "the port trains what the reference has frozen, or does not give to its optimizer",
        "the port does not move what the reference trains",
    )
    return [
        Diagnosis(
            code=FROZEN,
            port_path=OPTIMIZER,
            message=f"{message}: {listed(names, NAMED)}",
            evidence="both optimizers' parameters, and their `requires_grad` and `stop_gradient`",
            fix="set stop_gradient of these parameters as the reference sets requires_grad, and hand the others to the optimizer",
        )
        for message, names in zip(messages, frozen, strict=True)
        if names
    ]


def _shown(ran: _Ran) -> Diagnosis:
    """Show the first update that parts: what goes in, what both make of it, and both optimizers with their settings."""
    name = min(ran.failing, key=lambda one: ran.watched[one].step)
    kept, (ours, theirs) = ran.watched[name], ran.opened.sides
    expected, actual = (side[kept.step] for side in kept.updates)
    factor = common_factor(expected, actual)
    words = "" if factor is None else f"; the port's is {factor:.6g} times the reference's everywhere"
    treatments = torch_treatments(ours.optimizer), paddle_treatments(theirs.optimizer)
    classes, places = [], []
    for side, every in zip(ran.opened.sides, treatments, strict=True):
        kind = type(side.optimizer)
        own = not kind.__module__.startswith(("torch.", "paddle."))
        places.append(at_source(kind) if own else "")
        said = next((one for tensor, one in every if tensor is side.tensor(name)), None)
        clip = getattr(side.optimizer, "_grad_clip", None)
        clipping = "" if clip is None else f", which clips by {_clip_words(clip)}"
        classes.append(f"{kind.__name__}({'' if said is None else _spelled(said)}){places[-1]}{clipping}")
    where = f"{kind.__name__}{places[1]}"
    return Diagnosis(
        code="unknown",
        port_path=OPTIMIZER,
        message=f"{name} parts at update {kept.step + 1}: of the gradient {glimpse(kept.gradients[kept.step])} the reference "
        f"makes the step {glimpse(expected)}, the port {glimpse(actual)}{words}",
        evidence=f"the reference's is {classes[0]}; the port's is {classes[1]}",
        fix=f"compare the step() of {where} with the reference's",
    )


def _spelled(treatment: UpdateTreatment) -> str:
    settings = {"decay": treatment.decay or 0, **treatment.settings}
    return ", ".join(f"{name}={value}" for name, value in settings.items())


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
    """What is kept of a parameter while it is updated."""

    chosen: slice
    gradients: list[Array] = field(default_factory=list)
    updates: tuple[list[Array], list[Array]] = field(default_factory=lambda: ([], []))
    total: float = 0.0
    worst: float = 0.0
    step: int = -1
    moved: bool = False


@dataclass(frozen=True, slots=True)
class _Ran:
    opened: Opened
    watched: Mapping[str, _ParameterCourse]
    updates: int
    double: bool
    settings: _Settings | None = None

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

    def run(*, double: bool, whole: bool, change: Callable[[Opened], object] | None = None) -> _Ran:
        opened = open_both(
            sides, (reference, port), builders, schedulers, names, double=double, whole=whole, clips=clips
        )
        settings = None
        if change is not None:
            change(opened)
        else:
            with suppress(Exception):  # an optimizer of the user's may say nothing about itself
                settings = _settings_of(opened)
        updates = max(iterations, len(SIZES) if opened.elements <= LARGE else FEW)
        watched = _run(opened, updates, seed, gradients or {}, double=double)
        return _Ran(opened, watched, updates, double, settings)

    def judge(ran: _Ran, *, whole: bool) -> PieceCheck:
        return _judge(ran, lambda change: run(double=ran.double, whole=whole, change=change))

    def attempt(*, double: bool) -> PieceCheck:
        return judge(run(double=double, whole=True), whole=True)

    try:
        if not gradients:
            with suppress(Exception):  # an optimizer that keeps tensors of the parameters' sizes from the start
                ran = run(double=True, whole=False)
                if ran.opened.whole or (ran.moved and not ran.failing):
                    return judge(ran, whole=False)
        with suppress(RuntimeError, NotImplementedError, ValueError):  # a kernel that takes no float64
            return attempt(double=True)
        return attempt(double=False)
    except TipchainError as error:
        return PieceCheck(outcome=Outcome.ERROR, reason=str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001  (user code)
        return failed_to_run("building or stepping the optimizers", error)


def _run(
    opened: Opened, count: int, seed: int, gradients: Mapping[str, Array], *, double: bool
) -> dict[str, _ParameterCourse]:
    """Step both sides with equal gradients, and keep how far their updates are apart."""
    reference, _ = opened.sides
    values = {name: reference.value(name) for name in opened.names}
    watched = {}
    for name, value in values.items():
        chosen = slice(None, None, max(1, value.size // KEPT))
        watched[name] = _ParameterCourse(chosen)
    before = (values, dict(values))
    # Gradients are of their parameter's size, of zeros of the usual one.
    sizes = {name: float(np.sqrt(np.mean(one**2))) if one.size else 0.0 for name, one in values.items()}
    usual = float(np.median([one for one in sizes.values() if one > 0] or [1.0]))
    known = {name: float(np.sqrt(np.mean(np.square(one)))) for name, one in gradients.items() if np.size(one)}
    scales = {name: known.get(name) or (size if size > 0 else usual) for name, size in sizes.items()}
    for step in range(count):
        for name, given in _gradients(values, scales, seed, step, gradients):
            kept = watched[name]
            kept.gradients.append(given.reshape(-1)[kept.chosen].copy())
            for side in opened.sides:
                side.add_gradient(name, given)
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
            kept.worst, kept.total = max(kept.worst, float(share)), kept.total + min(float(share), MOST_APART) ** 2
    return watched


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


def _judge(ran: _Ran, again: Callable[[Callable[[Opened], object]], _Ran]) -> PieceCheck:
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
    common: dict[str, Any] = {"numbers": numbers, "curves": curves, "left_out": opened.left_out}
    left = f"; {len(opened.left_out)} parameters could not be matched" if opened.left_out else ""
    if not ran.moved:
        reason = f"proves nothing: no update moves any parameter, on either side{left}"
        return PieceCheck(outcome=Outcome.ERROR, reason=reason, **common)
    if not failing:
        given = f"; {opened.rate_given}" if opened.rate_given else ""
        given += "" if ran.double else "; in float32, for one side does not run in float64"
        reason = (
            f"{ran.updates} updates of {len(watched)} parameters agree to {numbers['largest_update_difference']:.1e} of "
            f"their size{given}{left}"
        )
        return PieceCheck(outcome=Outcome.PASS, reason=reason, **common)
    first = min(failing, key=lambda name: watched[name].step)
    step = watched[first].step
    expected, actual = (float(np.sqrt(np.mean(side[step] ** 2))) for side in watched[first].updates)
    reason = (
        f"{len(failing)} of {len(watched)} parameters are updated otherwise; first {first} at update {step + 1}: "
        f"expected a step of size {expected:.6g}, actual {actual:.6g}, apart by {watched[first].worst:.1e} of it{left}"
    )
    return PieceCheck(outcome=Outcome.FAIL, reason=reason, diagnoses=causes(ran, again), **common)
