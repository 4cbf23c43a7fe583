"""Step 6 of the guide, the learning rate: its whole curve."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tipchain.errors import Outcome
from tipchain.framework_types import Array
from tipchain.numbers.compare import largest
from tipchain.numbers.tolerance import SAME_DOUBLE
from tipchain.numbers.verdicts import Verdict, compare
from tipchain.parity.stages.bench import Bench, Recording
from tipchain.parity.stages.judging import Dumps, Judged, Rules, details
from tipchain.parity.stages.optimizer import build_subject, names

MOMENTUM = "momentum"


def record(bench: Bench) -> Recording:
    """The rate of each step as ``lr``, shape ``[steps]``, float64; the schedule is stepped between them.

    ``lr/NAME`` is the curve of a parameter whose rate is not that one, ``momentum`` that of the momentum, where a
    schedule moves it.
    """
    case, model = bench.case, build_subject(bench)
    rate = case.train.learning_rate if case.lr.learning_rate is None else case.lr.learning_rate
    trainer = bench.trainer(model, rate)
    updates = bench.framework.updates(model, trainer.optimizer, names(bench))
    curve: list[float] = []
    momenta: list[float] = []
    own: dict[str, list[float]] = {}
    for number in range(case.lr.steps):
        curve.append(trainer.learning_rate())
        for name, value in updates.rates().items():
            own.setdefault(name, []).append(value)
        momenta.append(updates.momentum())
        if number + 1 < case.lr.steps:
            trainer.step()
            if bench.steps_schedule(number + 1):
                trainer.step_schedule()
    arrays: dict[str, Array] = {"lr": np.array(curve)}
    arrays |= {f"lr/{name}": np.array(values) for name, values in own.items() if values != curve}
    if len(set(momenta)) > 1:
        arrays[MOMENTUM] = np.array(momenta)
    return Recording(
        arrays=arrays, details={"per": "iteration" if "iteration" in case.train.schedule_per.values() else "epoch"}
    )


# Judge the learning rate's curve, and say where one parts.


CURVE = "lr"


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare the curve, then those of parameters with rates of their own, and the momentum's where one moves."""
    reference, port = dict(dumps.reference.arrays), dict(dumps.port.arrays)
    if CURVE in reference and CURVE in port:
        # Who has no curve of its own follows the common one.
        for here, other in ((reference, port), (port, reference)):
            here |= {key: here[CURVE] for key in other if key.startswith(f"{CURVE}/") and key not in here}
    tolerances = rules.for_arrays(dumps.stage, {**port, **reference})
    for key, curve in reference.items():
        rule = tolerances[key]
        if rule.rtol is not None:
            tolerances[key] = replace(rule, atol=(rule.atol or 0.0) + SAME_DOUBLE * largest(curve))

    def explained(verdict: Verdict) -> Verdict:
        """Return the verdict with the known facts of curves."""
        key = verdict.subject
        if key == MOMENTUM and verdict.diff is None:
            where = "reference" if key in reference else "port"
            reason = f"the {where}'s schedule moves the momentum too (OneCycleLR's cycle_momentum does), the other side's does not"
            return replace(verdict, reason=reason)
        if verdict.diff is None or not verdict.diff.size or not np.isfinite(port[key]).all():
            return verdict
        expected, actual, rule = reference[key], port[key], tolerances[key]
        if expected.ndim != 1:
            reason = f"no curve, one rate per step: shape {expected.shape}"
            return replace(verdict, outcome=Outcome.FAIL, reason=reason)
        if verdict.outcome is Outcome.FAIL:
            rtol, atol = (rule.rtol, rule.atol) if rule.threshold is None else (0.0, rule.threshold)
            allowed = (atol or 0.0) + (rtol or 0.0) * np.abs(expected)
            apart = np.flatnonzero(~(np.abs(np.subtract(actual, expected)) <= allowed)).tolist()
            if not apart:
                return verdict  # of another kind of dtype
            first, last = apart[0], apart[-1]
            words = [f"first differs at step {first}: expected {expected[first]:.9g}, actual {actual[first]:.9g}"]
            if last + 1 < len(expected):
                words.append(f"equal from step {last + 1} on")
            return replace(verdict, reason=" · ".join([*words, verdict.reason]))
        if key == CURVE and np.ptp(expected) == 0:
            reason = (
                f"proves nothing: the reference's rate is {expected[0]:.9g} at each of {len(expected)} steps; "
                "raise  lr: {steps: ...}  until the schedule moves it"
            )
            return replace(verdict, outcome=Outcome.ERROR, reason=reason)
        if key == CURVE and verdict.outcome is Outcome.PASS:
            per = details(dumps.reference).get("per", "step")
            return replace(verdict, reason=f"{len(expected)} rates, one per {per} · {verdict.reason}")
        return verdict

    verdicts = [explained(one) for one in compare(reference, port, tolerances)]
    return Judged(verdicts=verdicts, tolerances=tolerances)
