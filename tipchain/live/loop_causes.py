"""Why two training loops part: the port's is run again with one thing put right, and what it then leaves is looked at.

What is put right is done to what every loop calls, the optimizer's ``step`` and the clearing of gradients, so that the
user's code stays as it is. What a loop averages (EMA) is told by arithmetic from what it leaves after each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tipchain.explain.findings import Diagnosis
from tipchain.explain.locate.differences import distance, rms
from tipchain.framework_types import Array, Function, Nested, Tensor
from tipchain.live.loops import STEP, Loop, Loops, paired
from tipchain.numbers.rounding import EXPLAINED, NOISE, ROUGH, SAME_DOUBLE, SAME_SINGLE, TINY

CLEARING = ("zero_grad", "clear_grad", "clear_gradients")
"""How optimizers and models are told to forget their gradients."""
UNSCALE = "call scaler.unscale_(optimizer) before clipping, and scaler.step(optimizer) after it"


@dataclass(slots=True, kw_only=True)
class _Update:
    """One update: the step in which it was, the backward passes until then, the gradients' norms, the learning rate."""

    step: int
    backwards: int
    norms: dict[str, float]
    rate: float

    @property
    def norm(self) -> float:
        return float(np.sqrt(sum(value**2 for value in self.norms.values())))


@dataclass(slots=True)
class _Watched:
    """A loop whose updates are watched, and changed by what is tried.

    Attributes:
        loop: the loop.
        before: called before each update with its number, as ``before(watched, number)``; False: the update is left out.
        clears: the loop's own clearing of gradients counts; else they are cleared after each update, and only there.
    """

    loop: Loop
    before: Callable[[_Watched, int], bool] | None = None
    clears: bool = True
    updates: list[_Update] = field(default_factory=list)
    cleared: int = 0
    backwards: int = 0
    now: int = 0
    states: list[dict[str, dict[str, Array]]] = field(default_factory=list)
    losses: list[dict[str, Array]] = field(default_factory=list)

    def run(self, count: int) -> _Watched:
        """Run so many steps, and keep what each leaves."""
        self._wrap()
        self.states.append(self._state())
        for number in range(count):
            self.now = number
            self.loop.step(number)
            self.states.append(self._state())
            self.losses.append(self.loop.losses)
        return self

    def _state(self) -> dict[str, dict[str, Array]]:
        return {"model": self.loop.state(), **self.loop.extras()}

    def gradients(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the parameters that have gradients."""
        for name, one in self.loop.side.parameters(self.loop.model):
            if one.grad is not None:
                yield name, one

    def multiply(self, factor: float) -> None:
        """Multiply all gradients."""
        with self.loop.side.recording(gradient=False):
            for _, one in self.gradients():
                one.grad = one.grad * factor

    def norm(self) -> float:
        """Return the norm of all gradients together."""
        return float(
            np.sqrt(sum(float(np.square(self.loop.side.array(one.grad)).sum()) for _, one in self.gradients()))
        )

    def _wrap(self) -> None:
        optimizer, model = self.loop.optimizer, self.loop.model
        own = optimizer.step

        def step(*args: Nested, **kwargs: Nested) -> Nested:
            side = self.loop.side
            norms = {name: float(np.linalg.norm(side.array(one.grad))) for name, one in self.gradients()}
            self.updates.append(
                _Update(step=self.now, backwards=self.backwards, norms=norms, rate=side.learning_rate(optimizer))
            )
            if self.before is not None and not self.before(self, len(self.updates) - 1):
                return None
            found = own(*args, **kwargs)
            for _, one in self.gradients() if not self.clears else ():
                one.grad = None
            return found

        def clearing(usual: Function) -> Function:
            def cleared(*args: Nested, **kwargs: Nested) -> Nested:
                self.cleared += 1
                return usual(*args, **kwargs) if self.clears else None

            return cleared

        optimizer.step = step
        for holder in (optimizer, model):
            for name in CLEARING:
                if hasattr(holder, name):
                    object.__setattr__(holder, name, clearing(getattr(holder, name)))
        first = next(iter(self.loop.side.parameters(model)), None)
        if first is not None:
            first[1].register_hook(self._count)

    def _count(self, _: object) -> None:
        self.backwards += 1


def loop_causes(loops: Loops, step: int) -> tuple[Diagnosis, ...]:
    """Return what makes two loops part after ``step``; one of code ``unknown`` where nothing that is tried does."""
    count = max(step + 1, min(loops.recipe.iterations, step + 3))
    one, other = loops.open()
    ours, theirs = _Watched(one).run(count), _Watched(other).run(count)
    if not (ours.updates and theirs.updates) and count < loops.recipe.iterations:  # accumulation goes on for longer
        count = loops.recipe.iterations
        one, other = loops.open()
        ours, theirs = _Watched(one).run(count), _Watched(other).run(count)
    found = [*_averages(ours, theirs), *_tried(loops, ours, theirs, count)]
    if not found:
        found = [*_seen(ours, theirs)]
    return tuple(found[:1]) or (_unknown(ours, theirs),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Treatment:
    """Something put right in the port's loop."""

    code: str
    message: str
    fix: str
    before: Callable[[_Watched, int], bool] | None = None
    clears: bool = True


def _tried(loops: Loops, ours: _Watched, theirs: _Watched, count: int) -> Iterator[Diagnosis]:
    """Yield the treatment with which the port's loop comes closest to what the reference's leaves, if it comes close."""
    # What is put right are updates: where they differ, a loss that is returned otherwise beside them says nothing of it.
    only = "model" if _left(ours, theirs, only="model") > SAME_SINGLE else ""
    off = _left(ours, theirs, only)
    best: tuple[float, _Treatment | None] = (0.0, None)
    for one in _treatments(ours, theirs):
        _, loop = loops.open()
        try:
            made = _Watched(loop, before=one.before, clears=one.clears).run(count)
        except Exception:  # noqa: BLE001, S112  (the user's loop does not stand it: the hypothesis does not apply)
            continue
        share = 1 - _left(ours, made, only) / off if off else 0.0
        best = max(best, (share, one), key=lambda pair: round(pair[0], 6))
    share, found = best
    if found is not None and share >= EXPLAINED:
        evidence = (
            f"the port's loop was run with this corrected: {share:.2%} of the difference is gone after {count} steps"
        )
        yield Diagnosis(
            code=found.code, port_path=STEP, message=found.message, evidence=evidence, explained=share, fix=found.fix
        )


def _treatments(ours: _Watched, theirs: _Watched) -> Iterator[_Treatment]:
    backwards = max((one.updates[0].backwards for one in (ours, theirs) if one.updates), default=0)
    yield _Treatment(
        code="zero-grad",
        clears=False,
        message=_clearing(ours, theirs),
        fix="call optimizer.clear_grad() after each optimizer.step(), and only there",
    )
    steps = [[one.step for one in side.updates] for side in (ours, theirs)]
    if steps[0] != steps[1] and steps[0]:
        wanted = set(steps[0])
        yield _Treatment(
            code="accumulation-steps",
            message=_often(steps, len(ours.losses)),
            clears=False,
            fix="update after as many batches as the reference does",
            before=lambda watched, _: watched.now in wanted,
        )
    ratio = _ratio(ours, theirs, 0)
    if ratio is not None and abs(ratio - 1) > SAME_SINGLE:
        code, message, fix = _scaled(ratio, backwards, theirs)
        yield _Treatment(before=_multiplying(lambda _: 1 / ratio), code=code, message=message, fix=fix)
    limits = [_limit(side) for side in (ours, theirs)]
    if limits[0] is not None and ratio is not None:
        yield _Treatment(
            code="gradient-clipping",
            before=_clipping(limits[0]),
            message=f"the reference clips gradients to a norm of {limits[0]:.6g}; the port's updates get other gradients",
            fix=f"clip as the reference does: paddle.nn.utils.clip_grad_norm_(parameters, {limits[0]:.6g}), or grad_clip=",
        )
    if [one.rate for one in ours.updates] != [one.rate for one in theirs.updates] and ours.updates and theirs.updates:
        at = next(
            (n for n, (a, b) in enumerate(zip(ours.updates, theirs.updates, strict=False)) if a.rate != b.rate), 0
        )
        rates = [one.rate for one in ours.updates]
        yield _Treatment(
            code="learning-rate",
            before=_at_rate(rates),
            message=f"at update {at} the port's learning rate is {theirs.updates[at].rate:.6g}, the reference's {ours.updates[at].rate:.6g}",
            fix="step the schedule where the reference steps it",
        )


def _scaled(ratio: float, backwards: int, theirs: _Watched) -> tuple[str, str, str]:
    """Return the slug of a constant ratio of gradients, what to say of it, and what to do about it."""
    scale = _scale_of(theirs.loop)
    for times in (ratio, 1 / ratio):
        if backwards > 1 and abs(times / backwards - 1) < SAME_SINGLE:
            more = times == ratio
            words = "are not divided by" if more else "are divided once more by"
            return (
                "accumulation-scale",
                f"the port's gradients {words} the {backwards} batches of an update: {ratio:.6g} times the reference's",
                f"{'divide' if more else 'do not divide'} the port's loss by {backwards} before backward()",
            )
    if scale is not None and abs(ratio / scale - 1) < SAME_SINGLE:
        words = (
            f"the port's gradients are {ratio:.6g} times the reference's, the scaler's factor: they are not unscaled"
        )
        return "loss-scaling", words, UNSCALE
    if scale is not None and abs(ratio * scale - 1) < SAME_SINGLE:
        words = f"the port's gradients are one over {scale:.6g} of the reference's, the scaler's factor"
        return "clip-order", f"{words}: they are clipped before they are unscaled", UNSCALE
    words = f"the port's gradients are {ratio:.6g} times the reference's at each update"
    return "gradient-scale", words, f"multiply the port's loss by {1 / ratio:.6g} before backward()"


def _clearing(ours: _Watched, theirs: _Watched) -> str:
    told = []
    for who, one in (("the port", theirs), ("the reference", ours)):
        much = "never clears" if not one.cleared else f"clears {one.cleared} times in {len(one.losses)} steps"
        told.append(f"{who} {much}")
    return f"gradients are cleared at other steps, so that they add up: {told[0]}, {told[1]}, {len(ours.updates)} updates expected"


def _often(steps: Sequence[Sequence[int]], count: int) -> str:
    told = [
        f"{len(one)} times in {count} steps (after step {', '.join(map(str, one[:3]))}{', …' if len(one) > 3 else ''})"
        for one in steps
    ]
    return f"the port updates {told[1]}, the reference {told[0]}"


def _ratio(ours: _Watched, theirs: _Watched, number: int) -> float | None:
    """Return by which factor the norms of an update's gradients differ, None where there is none."""
    if min(len(ours.updates), len(theirs.updates)) <= number:
        return None
    sides = [one.updates[number].norm for one in (ours, theirs)]
    return sides[1] / sides[0] if all(sides) else None


def _limit(watched: _Watched) -> float | None:
    """Return the norm that an update's gradients never exceed, where two at least have just that one."""
    norms = [one.norm for one in watched.updates]
    top = max(norms, default=0.0)
    reached = [one for one in norms if abs(one - top) <= ROUGH * top]  # a clip adds 1e-6 to the norm that it divides by
    return float(f"{top:.5g}") if top and len(reached) > 1 else None


def _multiplying(factor: Callable[[int], float]) -> Callable[[_Watched, int], bool]:
    def before(watched: _Watched, number: int) -> bool:
        watched.multiply(factor(number))
        return True

    return before


def _clipping(limit: float) -> Callable[[_Watched, int], bool]:
    def before(watched: _Watched, _: int) -> bool:
        norm = watched.norm()
        if norm > limit:
            watched.multiply(limit / (norm + 1e-6))  # as torch.nn.utils.clip_grad_norm_ does
        return True

    return before


def _at_rate(rates: Sequence[float]) -> Callable[[_Watched, int], bool]:
    def before(watched: _Watched, number: int) -> bool:
        optimizer = watched.loop.optimizer
        if number < len(rates):
            optimizer._learning_rate = rates[number]  # noqa: SLF001  (set_lr refuses where there is a schedule)
        return True

    return before


def _scale_of(loop: Loop) -> float | None:
    """Return the scale of a gradient scaler that a loop keeps, None without one."""
    for value in vars(loop.kept).values() if hasattr(loop.kept, "__dict__") else ():
        if type(value).__name__.endswith(("GradScaler", "AmpScaler")):
            getter = getattr(value, "get_scale", None) or getattr(value, "get_init_loss_scaling", None)
            return None if getter is None else float(getter())
    return None


def _left(ours: _Watched, theirs: _Watched, only: str = "") -> float:
    """Return how far two runs are apart, relative: tensors against how far they moved, losses against their size."""
    worst = [0.0]
    for one, other in zip(ours.states, theirs.states, strict=False):
        for what, match in paired(one, other).items():
            if only and what != only:
                continue
            moved = max(
                (
                    distance(ours.states[0][what][name], value)
                    for name, value in one[what].items()
                    if name in ours.states[0].get(what, {})
                ),
                default=0.0,
            )
            for name, value in one[what].items():
                two = other[match].get(name)
                if two is not None and two.shape == value.shape:
                    worst.append(distance(value, two) / (moved + NOISE * rms(value) + TINY))
    for one_loss, other_loss in zip(ours.losses, theirs.losses, strict=False) if not only else ():
        for name, value in one_loss.items():
            if name in other_loss and other_loss[name].shape == value.shape and rms(value):
                worst.append(distance(value, other_loss[name]) / rms(value))
    return float(np.sqrt(np.sum(np.square(np.minimum(worst, 1e6)))))


def _averages(ours: _Watched, theirs: _Watched) -> Iterator[Diagnosis]:
    """Yield how the averages that two loops keep differ, where the models themselves agree."""
    if _left(ours, theirs, only="model") > SAME_SINGLE:
        return
    for what, other in paired(ours.states[-1], theirs.states[-1]).items():
        if what == "model":
            continue
        sides = [(ours, what), (theirs, other)]
        tracks = [_track(watched, name) for watched, name in sides]
        if None in tracks or not tracks[0] or not tracks[1]:
            continue
        (one, two) = (_recognize(*track) for track in tracks if track is not None)
        apart = max((distance(a, b) for a, b in zip(tracks[0][0], tracks[1][0], strict=True)), default=0.0)
        if one is None or two is None or not apart:
            continue
        left = max(distance(a, b) for a, b in zip(_average(*tracks[0], two), tracks[1][0], strict=True))
        share = max(0.0, 1 - left / apart)
        if share < EXPLAINED:
            continue
        evidence = f"the reference's average with the port's rule is the port's: {share:.2%} of the difference is gone"
        words = _average_words(what, one, two)
        yield Diagnosis(
            code=words["code"],
            port_path=STEP,
            message=words["message"],
            evidence=evidence,
            explained=share,
            fix=words["fix"],
        )


def _track(watched: _Watched, what: str) -> tuple[list[Array], list[Array]] | None:
    """Return an average after each step, and what it is an average of, as vectors; None of what is none."""
    names = [name for name in watched.states[0].get(what, {}) if _of_model(watched, name) is not None]
    names = [name for name in names if watched.states[0][what][name].dtype.kind == "f"]
    if not names:
        return None
    kept, given = [], []
    for state in watched.states:
        if what not in state or any(name not in state[what] for name in names):
            return None
        kept.append(np.concatenate([state[what][name].reshape(-1) for name in names]).astype(np.float64))
        given.append(
            np.concatenate([state["model"][str(_of_model(watched, name))].reshape(-1) for name in names]).astype(
                np.float64
            )
        )
    return (kept, given) if all(one.shape == two.shape for one, two in zip(kept, given, strict=True)) else None


def _of_model(watched: _Watched, name: str) -> str | None:
    """Return the name of the model's tensor that an average's is of."""
    model = watched.states[0]["model"]
    if name in model:
        return name
    path, _, leaf = name.rpartition(".")
    return f"{path}:{leaf}" if f"{path}:{leaf}" in model else None


@dataclass(frozen=True, slots=True)
class _Rule:
    """How an average moves: its decay at each step (NaN: not to be told), whether it takes the parameters before the update."""

    decays: tuple[float, ...]
    early: bool


def _recognize(kept: Sequence[Array], given: Sequence[Array]) -> _Rule | None:
    """Return the rule by which an average follows what it is of, None where it follows no such rule."""
    for early in (False, True):
        decays = []
        for step in range(1, len(kept)):
            target = given[step - 1] if early else given[step]
            gap, move = target - kept[step - 1], kept[step] - kept[step - 1]
            size = float(gap @ gap)
            told = size > NOISE**2 * float(target @ target)  # else it is where it would move to
            share = float(move @ gap) / size if told else 0.0
            if float(np.linalg.norm(move - share * gap)) > SAME_SINGLE * max(
                float(np.linalg.norm(move)), SAME_DOUBLE * float(np.linalg.norm(target))
            ):
                break
            decays.append(1 - share if told else float("nan"))
        else:
            if any(np.any(one != two) for one, two in zip(given, kept, strict=True)):
                return _Rule(tuple(decays), early)
    return None


def _average(kept: Sequence[Array], given: Sequence[Array], rule: _Rule) -> list[Array]:
    found = [kept[0]]
    for step, decay in enumerate(rule.decays, 1):
        target = given[step - 1] if rule.early else given[step]
        found.append(found[-1] if np.isnan(decay) else decay * found[-1] + (1 - decay) * target)
    return found


def _average_words(what: str, ours: _Rule, theirs: _Rule) -> dict[str, str]:
    shown = [_shown(one.decays) for one in (ours, theirs)]
    pairs = [pair for pair in zip(ours.decays, theirs.decays, strict=True) if not np.isnan(pair).any()]
    if ours.early != theirs.early and all(abs(a - b) < SAME_SINGLE for a, b in pairs):
        who = ("after", "before") if theirs.early else ("before", "after")
        return {
            "code": "ema-order",
            "message": f"the port's average ({what}) takes the parameters {who[1]} the update, the reference's {who[0]} it",
            "fix": f"update the average {who[0]} optimizer.step()",
        }
    if all(abs(one - 1) < SAME_SINGLE for one in theirs.decays if not np.isnan(one)):
        return {
            "code": "ema-missing",
            "message": f"the port's average ({what}) never moves, the reference's has a decay of {shown[0]}",
            "fix": "update the average at each step",
        }
    words = f"the port's average ({what}) has a decay of {shown[1]}, the reference's of {shown[0]}"
    if all(abs(one) < SAME_SINGLE for one in theirs.decays if not np.isnan(one)):
        words += ": it is the parameters themselves, no copy of them or a decay of 0"
    return {"code": "ema-decay", "message": words, "fix": f"give the port's average a decay of {shown[0]}"}


def _shown(decays: Sequence[float]) -> str:
    values = [f"{one:.6g}" for one in decays if abs(one - 1) > SAME_SINGLE]  # of the steps in which it moves
    return (
        "1"
        if not values
        else values[0]
        if len(set(values)) == 1
        else ", ".join(values[:3]) + (", …" if len(values) > 3 else "")
    )


def _seen(ours: _Watched, theirs: _Watched) -> Iterator[Diagnosis]:
    """Yield what is seen to differ in how often both loops update, where no treatment has put it right."""
    steps = [[one.step for one in side.updates] for side in (ours, theirs)]
    if steps[0] != steps[1]:
        yield Diagnosis(
            code="accumulation-steps",
            port_path=STEP,
            message=_often(steps, len(ours.losses)),
            evidence="updates were counted",
            explained=None,
            fix="update after as many batches as the reference does",
        )
        return
    for name, value in ours.losses[0].items():
        other = theirs.losses[0].get(name)
        if other is None or other.size != 1 or not float(value.sum()):
            continue
        factor = float(other.sum()) / float(value.sum())
        same = not [
            one
            for one in zip(ours.states[-1]["model"].values(), theirs.states[-1]["model"].values(), strict=False)
            if one[0].shape == one[1].shape and distance(*one) > SAME_SINGLE * rms(one[0])
        ]
        if same and abs(factor - 1) > SAME_SINGLE:
            yield Diagnosis(
                code="returned-loss",
                port_path=STEP,
                explained=None,
                evidence="the models agree after the step",
                message=f"the loss that the port's step returns is {factor:.6g} times the reference's, its updates are the reference's",
                fix="return the loss that the reference returns: before, or after, it is divided",
            )
            return


def _unknown(ours: _Watched, theirs: _Watched) -> Diagnosis:
    counts = [
        f"{len(one.updates)} updates, {one.backwards} backward passes, gradients cleared {one.cleared} times"
        for one in (ours, theirs)
    ]
    return Diagnosis(
        code="unknown",
        port_path=STEP,
        message="the training steps differ, the cause is unknown",
        evidence=f"in {len(ours.losses)} steps: reference {counts[0]}; port {counts[1]}",
        explained=None,
        fix="compare the two steps line by line: what is cleared, divided, clipped, updated and averaged, in which order",
    )
