"""The stages around the models: loss, metric, deployment code, optimizers, schedules and training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tipchain.core.machine import collect
from tipchain.errors import Outcome
from tipchain.explain.causes.losses import check_loss as check_losses
from tipchain.explain.causes.metrics import check_metrics as check_meters
from tipchain.explain.findings import PieceCheck
from tipchain.explain.locate.locate import Located, bytes_of
from tipchain.explain.locate.matching import LayerPair
from tipchain.explain.locate.rerun import as_float
from tipchain.explain.locate.trace import put_back
from tipchain.frameworks.randomness import Draws
from tipchain.live.layers import without_double
from tipchain.live.lockstep import compare
from tipchain.live.partings import loop_causes
from tipchain.live.report import LiveResults
from tipchain.live.request import MODES, RANDOM, LiveRequest
from tipchain.live.training import Recipe


def check_loss(asked: LiveRequest, located: Located) -> PieceCheck:
    """Compare the losses of both models' outputs."""
    outputs, others = (put_back(run.structure, run.outputs) for run in (located.reference, located.port))
    values = located.reference.values
    attached = any(one.gradient is not None for one in values)
    detached = {number for number, one in enumerate(values) if attached and one.gradient is None}
    return check_losses(
        asked.sides,
        asked.pieces["loss"],
        outputs,
        asked.inputs.labels,
        asked.seed,
        port_outputs=others,
        equal_nan=asked.equal_nan,
        detached=detached,
    )


def check_metrics(asked: LiveRequest, located: Located | None) -> PieceCheck:
    """Compare the metrics of the reference's outputs."""
    run = None if located is None else located.reference
    outputs = None if run is None else put_back(run.structure, [as_float(one, double=False) for one in run.outputs])
    labels = asked.inputs.labels
    given = (None, None) if outputs is None or labels is None else (outputs, labels)
    return check_meters(asked.sides, asked.pieces["metric"], *given)


def check_training(
    asked: LiveRequest,
    results: LiveResults,
    pairs: Sequence[LayerPair],
    located: Located,
    other_draws: tuple[Draws, Draws] | None,
    excused: bool,
) -> PieceCheck:
    """Train both models with their losses, in each mode; see `compare` for ``excused``.

    Where no other stage tells a cause, the first quantity that parts is looked for. ``other_draws`` are those of a run in
    the other mode, None where the models do not agree in it.
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
            draws = other_draws[1]
        recipe = Recipe(asked=asked, pairs=pairs, draws=draws, training=mode == "train")
        done, step = compare(recipe, same=same, excused=excused)
        reason = "; ".join(filter(None, (check.reason, f"{how}{done.reason}")))
        found = loop_causes(recipe, step) if step is not None and asked.causes and alone else ()
        check = replace(done, reason=reason, curves={**check.curves, **done.curves}, diagnoses=found)
        if done.outcome is not Outcome.PASS:
            break
    return check


def check_steps(
    asked: LiveRequest, results: LiveResults, pairs: Sequence[LayerPair], located: Located | None
) -> PieceCheck:
    """Train both models by the user's own steps."""
    if located is not None and not located.comparable:
        results.leave_out(f"the training steps are {RANDOM}")
        return PieceCheck(outcome=Outcome.SKIP, reason=RANDOM)
    same = results.report.stages.get("forward") is Outcome.PASS
    draws = Draws(asked.seed) if located is None else located.port.draws
    recipe = Recipe(asked=asked, pairs=pairs, draws=draws, training=asked.training, steps=asked.step)
    done, step = compare(recipe, same=same)
    return done if step is None or not asked.causes else replace(done, diagnoses=loop_causes(recipe, step))
