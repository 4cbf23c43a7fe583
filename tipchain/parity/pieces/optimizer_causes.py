"""Why two optimizers update parameters differently, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from tipchain.parity.findings import Diagnosis
from tipchain.parity.judging.optimizer import common_factor
from tipchain.parity.pieces.formulas import Course, Formula, simulate
from tipchain.parity.pieces.knobs import Cause, distance, explain, identify
from tipchain.parity.pieces.optimizer_words import CLIPS, CODES, fix_of, message_of
from tipchain.parity.pieces.settings import paddle_formula, torch_formula
from tipchain.parity.pieces.trained import Trained
from tipchain.parity.rounding import EXPLAINED, ROUGH

OPTIMIZER = "optimizer"
FORMULA = ("place", "rate_inside", "first")
"""Knobs that a framework's own formula fixes: no argument sets them."""
SAID = frozenset(
    (
        "lr",
        "decay",
        "momentum",
        "nesterov",
        "beta1",
        "beta2",
        "epsilon",
        "amsgrad",
        "centered",
        "clip",
        "limit",
    )
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
class _Told:
    """A knob with both values, and where it was found."""

    knob: str
    expected: Any
    actual: Any
    form: str


def causes(
    courses: Sequence[Course], failing: set[str], sides: tuple[Trained, Trained]
) -> tuple[Diagnosis, ...]:
    """Return what explains the parameters that are updated differently, the cause of most of them first.

    Args:
        courses: of all parameters.
        failing: names of those whose updates differ.
        sides: the reference's parameters and optimizer, and the port's.
    """
    found: dict[str, Cause] = {}
    known: list[Mapping[str, Any]] = []
    missed = 0
    for course in _spread([one for one in courses if one.name in failing]):
        if missed >= GIVE_UP:
            break
        reference = _reference(course, sides[0], [cause.reference for cause in found.values()])
        cause = None
        if reference is not None:
            cause = explain(course, reference, paddle_formula(sides[1], course.name), known)
        if cause is None or cause.explained < EXPLAINED:
            missed += 1
            continue
        found[course.name] = cause
        if cause.change not in known:
            known.append(cause.change)
    if not found:
        return (_unknown(courses, failing),)
    told = _grouped(found)
    by_name = {course.name: course for course in courses}
    # First what an argument of the port sets, then what takes away most by itself, then what is about most parameters.
    ordered = sorted(
        told,
        key=lambda one: (
            one.knob in FORMULA, -round(_explained(one, told[one], found, by_name), 3), -len(told[one]),
        ),
    )  # fmt: skip
    return tuple(_diagnosis(one, told[one], found, courses, failing, sides) for one in ordered)


def _spread(courses: Sequence[Course]) -> list[Course]:
    """Return some of the courses: of every number of elements a few."""
    if len(courses) <= LOOKED_AT:
        return list(courses)
    return [courses[round(at)] for at in np.linspace(0, len(courses) - 1, LOOKED_AT)]


def _reference(course: Course, side: Trained, known: Sequence[Formula]) -> Formula | None:
    said = torch_formula(side, course.name)
    starts = [said] if said is not None else [*dict.fromkeys(known), *STARTS]
    return identify(course, course.reference, starts)


def _grouped(found: Mapping[str, Cause]) -> dict[_Told, list[str]]:
    """Return the parameters of each knob that differs."""
    told: dict[_Told, list[str]] = {}
    for name, cause in found.items():
        knobs = ["algorithm"] if cause.reference.algorithm != cause.port.algorithm else _knobs(cause)
        for knob in knobs:
            one = _Told(
                knob=knob,
                expected=_value(cause.reference, knob),
                actual=_value(cause.port, knob),
                form=cause.port.form,
            )
            told.setdefault(one, []).append(name)
    return told


def _knobs(cause: Cause) -> list[str]:
    """Return the knobs that really differ; a clip and its limit are one, as a decay that one side lacks and its form."""
    differ = [
        item.name for item in fields(Formula)
        if item.name in cause.change and getattr(cause.reference, item.name) != getattr(cause.port, item.name)
    ]  # fmt: skip
    if "clip" in differ and "limit" in differ:
        differ.remove("limit")
    if "decay" in differ and "form" in differ and not (cause.reference.decay and cause.port.decay):
        differ.remove("form")
    return differ


def _value(formula: Formula, knob: str) -> Any:
    if knob in ("clip", "limit"):
        return f"{CLIPS[formula.clip]}{f', limit {formula.limit:.6g}' if formula.clip else ''}"
    value = getattr(formula, knob)
    return value if not isinstance(value, float) else float(f"{value:.5g}")


def _diagnosis(
    told: _Told, names: list[str], found: Mapping[str, Cause], courses: Sequence[Course], failing: set[str],
    sides: tuple[Trained, Trained],
) -> Diagnosis:  # fmt: skip
    by_name = {course.name: course for course in courses}
    alone = _explained(told, names, found, by_name)
    together = min(found[name].explained for name in names)
    where = _where(names, found, courses, failing, sides)
    evidence = (
        f"the {_formula_name(found[names[0]].reference)} formula of the reference reproduces its updates; "
    )
    if together - alone > ROUGH:
        evidence += (
            f"with this setting alone {alone:.1%} of the difference is gone, with all that differ {together:.2%}, "
            f"in {len(names)} parameters"
        )
    else:
        evidence += f"with the port's value of this setting {alone:.2%} of the difference is gone, in {len(names)} parameters"
    effect = max(distance(by_name[name].reference, by_name[name].port, (by_name[name].reference, by_name[name].port))
                 for name in names)  # fmt: skip
    return Diagnosis(
        code=CODES[told.knob], port_path=OPTIMIZER, message=f"{message_of(told.knob, told.expected, told.actual, told.form)}{where}",
        evidence=f"{evidence}; updates are apart by up to {effect:.2g} of their size", explained=together,
        fix=_fix(told.knob, found[names[0]].reference, paddle_formula(sides[1], names[0])),
    )  # fmt: skip


def _fix(knob: str, reference: Formula, said: Formula | None) -> str:
    """Return what to write in the port; of a knob that its optimizer has as the reference already, where to look."""
    knobs = ("clip", "limit") if knob in ("clip", "limit") else (knob,)
    if (
        knob in SAID
        and said is not None
        and all(getattr(said, one) == getattr(reference, one) for one in knobs)
    ):
        return (
            f"the port's optimizer says that it has this {knob} already: look at what its step() makes of it"
        )
    return fix_of(knob, reference)


def _explained(
    told: _Told, names: Sequence[str], found: Mapping[str, Cause], courses: Mapping[str, Course]
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


def _where(
    names: list[str], found: Mapping[str, Cause], courses: Sequence[Course], failing: set[str],
    sides: tuple[Trained, Trained],
) -> str:  # fmt: skip
    """Say which parameters a knob is about, where it is not all."""
    rest = [course.name for course in courses if course.name not in failing]
    others = [name for name in found if name not in names]
    if not rest and not others:
        return ""
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    vectors = all(len(sides[0].tensor(name).shape) <= 1 for name in names)
    return f", for {'biases and normalization parameters' if vectors else 'some parameters'} only ({shown})"


def _formula_name(formula: Formula) -> str:
    return (
        "AdamW"
        if formula.algorithm == "adam" and formula.form == "decoupled" and formula.decay
        else formula.algorithm
    )


def _unknown(courses: Sequence[Course], failing: set[str]) -> Diagnosis:
    course = next(one for one in courses if one.name in failing)
    step = int(np.argmax(np.abs(course.port - course.reference).max(axis=1) > 0))
    factor = common_factor(course.reference[step], course.port[step])
    words = (
        ""
        if factor is None
        else f"; its first update that differs is {factor:.6g} times the reference's everywhere"
    )
    return Diagnosis(
        code="unknown", port_path=OPTIMIZER, message=f"the optimizers differ, the cause is unknown{words}",
        evidence="no setting of SGD, Adam, RMSProp, Adagrad, Adadelta or Adamax, changed alone or with another, explains "
        f"99 % of the difference ({course.name})",
        explained=None, fix="compare the two optimizers' arguments and formulas",
    )  # fmt: skip
