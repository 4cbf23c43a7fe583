"""Two optimizers, compared by the updates they make of equal gradients from equal parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.errors import TipchainError
from tipchain.outcome import Outcome
from tipchain.parity.locate.differences import rms
from tipchain.parity.locate.sides import LiveSide
from tipchain.parity.pieces.builders import Builder
from tipchain.parity.pieces.check import PieceCheck, failed_to_run
from tipchain.parity.pieces.formulas import Course
from tipchain.parity.pieces.opening import Clips, Opened, open_both
from tipchain.parity.pieces.optimizer_causes import causes
from tipchain.parity.pieces.settings import groups_of
from tipchain.parity.pieces.trained import Trained
from tipchain.parity.rounding import ROUGH, SAME_SINGLE, UNIT

Array = npt.NDArray[Any]
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
class _Watched:
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
    """What became of all updates."""

    opened: Opened
    watched: Mapping[str, _Watched]
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
    sides: tuple[LiveSide, LiveSide], reference: Any, port: Any, builders: tuple[Builder, Builder],
    iterations: int = 5, names: Mapping[str, str] | None = None, seed: int = 0,
    schedulers: tuple[Builder | None, Builder | None] | None = None, gradients: Mapping[str, Array] | None = None,
    clips: Clips = (None, None),
) -> PieceCheck:  # fmt: skip
    """Compare every update that two optimizers make of the same gradients, from the same parameters, in float64.

    Models are copied, neither is changed; of large parameters only some elements are updated, as long as those agree
    (see `tipchain.parity.pieces.shrinking`). Builders are called with what their parameters' names ask for: a list of
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
            with suppress(
                Exception
            ):  # an optimizer that keeps tensors of the parameters' sizes from the start
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
) -> tuple[dict[str, _Watched], list[float]]:
    """Step both sides with equal gradients, and keep how far their updates are apart."""
    norms: list[float] = []
    values = {name: opened.sides[0].values(name) for name in opened.names}
    watched = {}
    for name, value in values.items():
        chosen = slice(None, None, max(1, value.size // KEPT))
        watched[name] = _Watched(value.reshape(-1)[chosen].copy(), chosen)
    before = (values, dict(values))
    scales = _scales(before[0], gradients)
    for step in range(count):
        total = 0.0
        for name, given in _gradients(before[0], scales, seed, step, gradients):
            kept = watched[name]
            kept.gradients.append(given.reshape(-1)[kept.chosen].copy())
            kept.norms.append(float(np.linalg.norm(given)))
            total += kept.norms[-1] ** 2
            for side in opened.sides:
                side.add_gradient(name, given)
        norms.append(total**0.5)
        for side in opened.sides:
            side.multiply_rate(SHARES[step % len(SHARES)])
            side.step()
        for name, kept in watched.items():
            _compare(name, kept, step, opened.sides, before, double=double)
    return watched, norms


def _scales(values: Mapping[str, Array], gradients: Mapping[str, Array]) -> dict[str, float]:
    """Return the size of each parameter's gradients: its own size, or of zeros the usual one."""
    sizes = {name: float(np.sqrt(np.mean(one**2))) if one.size else 0.0 for name, one in values.items()}
    usual = float(np.median([one for one in sizes.values() if one > 0] or [1.0]))
    given = {name: float(np.sqrt(np.mean(np.square(one)))) for name, one in gradients.items() if np.size(one)}
    return {name: given.get(name) or (size if size > 0 else usual) for name, size in sizes.items()}


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


def _compare(
    name: str, kept: _Watched, step: int, sides: tuple[Trained, Trained], before: Sequence[dict[str, Array]],
    *, double: bool,
) -> None:  # fmt: skip
    updates = []
    for number, side in enumerate(sides):
        value = side.values(name)
        updates.append(value - before[number][name])
        before[number][name] = value
        kept.updates[number].append(updates[-1].reshape(-1)[kept.chosen].copy())
    sizes = [rms(one) for one in (*updates, updates[1] - updates[0])]
    noise = (ROUNDING if double else SAME_SINGLE) * max(
        float(np.max(np.abs(one[name]), initial=0.0)) for one in before
    )
    kept.moved = kept.moved or max(sizes[:2]) > noise
    finite = all(np.isfinite(one) for one in sizes)
    apart = sizes[2] / max(sizes[:2]) if finite and sizes[2] > noise else 0.0 if finite else np.inf
    if apart > _limit(double=double) and kept.step < 0:
        kept.step = step
    kept.worst = max(kept.worst, float(apart))


def _limit(*, double: bool) -> float:
    return APART if double else ROUGH


def _judge(ran: _Ran) -> PieceCheck:
    opened, watched, norms, failing = ran.opened, ran.watched, ran.norms, ran.failing
    numbers = {
        "parameters": float(len(watched)), "parameters_apart": float(len(failing)), "updates": float(len(norms)),
        "largest_update_difference": max(kept.worst for kept in watched.values()),
    }  # fmt: skip
    curves = {
        side: [float(np.mean([np.sqrt(np.mean(kept.updates[number][step] ** 2)) for kept in watched.values()]))
               for step in range(len(norms))]
        for number, side in enumerate(("reference_update", "port_update"))
    }  # fmt: skip
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
    courses = _courses(watched, norms, groups_of(opened.sides[1], watched))
    step = watched[first].step
    sizes = [float(np.sqrt(np.mean(side[step] ** 2))) for side in watched[first].updates]
    reason = (
        f"{len(failing)} of {len(watched)} parameters are updated otherwise; first {first} at update {step + 1}: "
        f"expected a step of size {sizes[0]:.6g}, actual {sizes[1]:.6g}, apart by {watched[first].worst:.1e} of it{left}"
    )
    return PieceCheck(
        outcome=Outcome.FAIL, reason=reason, diagnoses=causes(courses, set(failing), opened.sides), **common
    )


def _courses(
    watched: Mapping[str, _Watched], norms: Sequence[float], groups: Mapping[str, int]
) -> list[Course]:
    shares = np.array([SHARES[step % len(SHARES)] for step in range(len(norms))])
    squares = {number: np.zeros(len(norms)) for number in groups.values()}
    for name, kept in watched.items():
        squares[groups[name]] += np.square(kept.norms)
    return [
        Course(
            name=name, start=kept.start, gradients=np.array(kept.gradients), norms=np.array(kept.norms),
            global_norms=np.array(norms), group_norms=np.sqrt(squares[groups[name]]), shares=shares,
            reference=np.array(kept.updates[0]), port=np.array(kept.updates[1]),
        )
        for name, kept in watched.items()
    ]  # fmt: skip
