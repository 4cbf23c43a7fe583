"""The verdict on the layers of both models, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tipchain.core.blame import one_line
from tipchain.core.progress import LATE, OutOfTime, Pace
from tipchain.errors import Outcome, UsageError
from tipchain.explain.causes.search import unsearched
from tipchain.explain.findings import SIDE_NAMES
from tipchain.explain.locate.between_layers import GROWTH
from tipchain.explain.locate.differences import rms
from tipchain.explain.locate.locate import Located
from tipchain.explain.locate.matching import LayerPair, hands_on
from tipchain.explain.locate.other_runs import Called
from tipchain.explain.locate.trace import Store
from tipchain.explain.locate.verdicts import Closeness, LayerVerdict
from tipchain.live.report import LiveResults, count_all
from tipchain.live.request import LiveRequest
from tipchain.numbers.tolerance import ROUGH, SAME_SINGLE

Pairs = Sequence[LayerPair]
SHOWN_OUTPUTS = 4
"""Outputs that only one side has which a stage's reason names; all are in ``report.unmatched``."""


def locate_in_time(asked: LiveRequest, results: LiveResults, store: Store, pairs: Pairs) -> Located | None:
    """Run both models and compare their layers, forward alone where backward raises; None where there is no time."""
    try:
        return locate(asked, results.pace, store, pairs)
    except UsageError:
        raise
    except OutOfTime as error:
        apart = error.apart
        differ = apart is not None and not apart <= SAME_SINGLE
        told = f"the outputs differ, relative {apart:.3g}; the layers were {LATE}" if differ else LATE
        results.end("forward", Outcome.FAIL if differ else Outcome.ERROR, told)
        return None
    except Exception as error:  # whatever a user's model raises
        if "backward" not in asked.wanted:
            raise
        store.forget()
        located = locate(asked, results.pace, store, pairs, backward=False)
        results.end("backward", Outcome.ERROR, one_line(error))
        return located


def locate(
    asked: LiveRequest, pace: Pace, store: Store, pairs: Pairs, *, losses: bool = True, backward: bool = True
) -> Located:
    """Run both models and compare their layers; backward starts from the losses, if there are some that run."""
    wanted = backward and "backward" in asked.wanted
    locator = asked.locator(store, pace, backward=wanted, training=asked.training)
    if losses and asked.loss is not None and locator.backward:
        try:
            return locator.locate(*asked.models, asked.inputs, asked.loss, asked.names, pairs)
        except OutOfTime:
            raise
        except Exception:  # noqa: BLE001  (the stage of the loss tells what is wrong with it)
            store.forget()
    return locator.locate(*asked.models, asked.inputs, names=asked.names, pairs=pairs)


def without_losses(
    asked: LiveRequest, results: LiveResults, store: Store, pairs: Pairs, located: Located
) -> Located | None:
    """Return the findings without the losses, which differ: another loss is no layer's fault.

    Where there is no time for that, what was found forward is kept, and None is returned.
    """
    judge_forward(results, located)
    results.report.layers[:] = [one for one in located.verdicts if one.direction == "forward"]
    results.first = next((one for one in results.report.layers if one.at_fault), None)
    try:
        return locate(asked, results.pace, store, pairs, losses=False)
    except OutOfTime:
        results.end("backward", Outcome.ERROR, LATE)
        results.report.diagnoses.extend([] if results.first is None else [unsearched(results.first)])
        return None


def differs_in_double_alone(asked: LiveRequest, results: LiveResults, located: Located) -> bool:
    """Tell whether only float64 shows that the outputs differ: then the stages on layers have ended.

    A large constant (a mask's -1e9) swallows in float32 what is added to it, and keeps it in float64: another function.
    """
    apart = max(located.outputs, default=0.0)
    if not ROUGH < apart < inf or located.first is None or not located.comparable or results.pace.over:
        return False
    told = asked.call_both(asked.inputs, training=asked.training, double=False)
    if not isinstance(told, Called) or told.apart is None or not told.apart <= SAME_SINGLE:
        return False
    why = f"the outputs differ in float64 alone, relative {apart:.3g}; in float32 they are {told.apart:.3g} apart"
    results.end("forward", Outcome.PASS, f"{why}: layers, other inputs and the other mode were not compared")
    for stage in asked.wanted & {"backward", "train"}:
        results.end(stage, Outcome.SKIP, f"not compared in float64: {why}")
    return True


def judge_layers(asked: LiveRequest, results: LiveResults, located: Located, store: Store) -> None:
    """Judge all layers, forward and backward."""
    results.report.layers[:] = located.verdicts
    results.first = located.first or located.elsewhere
    results.report.histograms[:] = count_all(located, store, located.first)
    judge_forward(results, located)
    if "backward" not in asked.wanted or results.report.stages.get("backward") is Outcome.ERROR:  # it raised
        return
    backward = [one for one in located.verdicts if one.direction == "backward"]
    if backward or (located.alike and located.learns) or located.late:
        results.end("backward", *judge(located, backward, "backward"))
    else:
        why = "no layer could be compared by itself" if located.learns else "nothing in the models takes a gradient"
        results.end("backward", Outcome.SKIP, why)


def judge_forward(results: LiveResults, located: Located) -> None:
    """Judge the layers forward, and note those without a counterpart."""
    for side, calls in zip(SIDE_NAMES, (located.matching.reference_only, located.matching.port_only), strict=True):
        told = [f"{call.path or 'the model itself'} ({call.type})" for call in calls if not hands_on(call)]
        results.report.unmatched[side] = told
    for link, apart in zip(located.links, located.outputs, strict=False):
        results.report.numbers[f"output {located.port.output_names[link.theirs]}"] = apart
    ends = zip(SIDE_NAMES, located.one_sided, strict=True)
    alone = [f"{name or 'the output'} ({side} only)" for side, names in ends for name in names]
    if alone:
        results.report.unmatched["outputs"] = alone
    forward = [one for one in located.verdicts if one.direction == "forward"]
    results.report.curves["depth/own"] = [one.own or 0.0 for one in forward]
    results.report.curves["depth/inherited"] = [one.inherited for one in forward]
    results.end("forward", *judge(located, forward, "forward"))


def judge(located: Located, verdicts: Sequence[LayerVerdict], direction: str) -> tuple[Outcome, str]:
    """Return the outcome of verdicts of one direction, with its reason."""
    faults = [one for one in verdicts if one.at_fault]
    compared = [one for one in verdicts if one.closeness is not Closeness.NOT_COMPARABLE]
    left = len({one.port_path for one in verdicts} - {one.port_path for one in compared})
    rest = f"; {left} not comparable" if left else ""
    some = f"{located.late} of {len(located.matching.pairs)} layers were {LATE}"
    late, method = f"; {some}" if located.late else "", ""
    if not located.exact:
        method = f"; {without_double(located)} does not run in float64: what does not by itself is judged in float32"
    if faults:
        first = faults[0]
        others = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
        told = f"{first.port_path or 'the model'} ({first.port_type}): {first.reason}"
        return Outcome.FAIL, f"{told}{others}{method}{late}"
    if direction == "forward" and not any(rms(one) for one in located.reference.outputs):
        return Outcome.ERROR, "proves nothing: the reference's outputs are all zero"
    if located.late:  # outputs that differ are known all the same
        seen = direction == "forward" and located.comparable
        apart = untold(located, direction, some_left=True) if seen else ""
        return (Outcome.FAIL, f"{apart}{late}") if apart else (Outcome.ERROR, some)
    if not compared and not located.alike:
        reasons = (f"{one.port_path}: {one.reason}" for one in verdicts)
        why = next(reasons, "no layer of one model was found in the other")
        known = located.outputs and located.comparable
        outside = f"; the outputs are {max(located.outputs):.3g} apart" if known else ""
        return Outcome.ERROR, f"nothing was compared: {why}{outside}"
    apart = untold(located, direction, some_left=bool(left))
    if apart and located.comparable:
        return Outcome.FAIL, f"{apart}, and no layer was found to be the cause{rest}"
    if direction == "backward":
        rest += "".join(sorted({f"; {one.reason}" for one in verdicts if one.tied}))
    if direction == "forward" and any(located.one_sided):
        rest += f"; {tell_one_sided(located)}"
    if direction == "forward" and located.untried:
        rest += f"; code between the layers was not tried with large values: {located.untried}"
    what = "outputs" if direction == "forward" else "gradients of all parameters"
    alike = f"no layer could be compared by itself; the models' {what} agree in float64"
    told = f"{len(compared)} layers are as close as rounding allows" if compared else alike
    return Outcome.PASS, f"{told}{rest}{method}"


def tell_one_sided(located: Located) -> str:
    """Return which outputs were not judged, since the other side has none like them."""
    told = [
        f"only the {side} returns {', '.join(names[:SHOWN_OUTPUTS])}{' and others' if len(names) > SHOWN_OUTPUTS else ''}"
        for side, names in zip(SIDE_NAMES, located.one_sided, strict=True)
        if names
    ]
    return ", ".join(told)


def untold(located: Located, direction: str, *, some_left: bool) -> str:
    """Return the whole models' difference where no layer differs; empty where there is none."""
    apart = max(located.outputs, default=0.0)
    if direction == "forward":
        return "" if apart <= max(SAME_SINGLE, located.noise) else f"the outputs differ, relative {apart:.3g}"
    if any(one.tied for one in located.verdicts):
        return ""
    if not some_left or not located.exact or located.gradients <= max(SAME_SINGLE, GROWTH * apart):
        return ""
    return f"the parameters' gradients differ, relative {located.gradients:.3g}"


def without_double(located: Located) -> str:
    """Return which side does not run in float64."""
    return "the port" if located.doubles[0] else "the reference"
