"""Step 4 of the guide, the loss: its value, and its gradient with respect to the outputs."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

import numpy as np

from tipchain.errors import Outcome
from tipchain.framework_types import Array, Nested, Options
from tipchain.frameworks.base import flatten_outputs, map_nested, scalar
from tipchain.numbers.verdicts import compare
from tipchain.parity.case import LABEL
from tipchain.parity.inputs import make_loss_label
from tipchain.parity.stages import judging
from tipchain.parity.stages.bench import Bench, Recording
from tipchain.parity.stages.judging import Dumps, Judged, Rules, scaled


def record(bench: Bench) -> Recording:
    """``loss`` and ``gradient/<output>`` on the fake inputs and label, in eval mode; then those of every variant.

    The gradient stops at the model's outputs, so that no layer of the model takes part in it. Of a variant all keys
    begin with ``<variant>/``.
    """
    output = bench.eval_output()
    arrays: dict[str, Array] = {}
    for variant, args in bench.case.loss.all().items():
        found = _run(bench, output, args)
        arrays |= {f"{variant}/{key}" if variant else key: value for key, value in found.items()}
    return Recording(arrays=arrays)


def _run(bench: Bench, output: Nested, args: Options) -> dict[str, Array]:
    framework = bench.framework

    def leaf(value: object) -> Nested:
        array = framework.array(value) if framework.is_tensor(value) else None
        return value if array is None or array.dtype.kind != "f" else framework.tensor(array, gradient=True)

    leaves = map_nested(leaf, output)
    named = flatten_outputs(framework, leaves, bench.case.outputs)
    shape = framework.array(next(iter(named.values()))).shape
    seed = bench.case.inputs[LABEL].seed
    label = framework.tensor(make_loss_label(bench.inputs[LABEL], args, shape, seed))
    loss = bench.builder("loss")(**args)(leaves, label)
    loss.backward()
    gradients = {
        f"gradient/{name}": framework.array(tensor.grad) for name, tensor in named.items() if tensor.grad is not None
    }
    return {"loss": scalar(framework.array(loss)), **gradients}


# Judge the loss: values as other arrays, gradients by their own size.


GRADIENT = "gradient/"


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare values and gradients of the case's loss and of every variant."""
    gradients = dumps.with_keys(lambda key: f"/{GRADIENT}" in f"/{key}")
    values = dumps.with_keys(lambda key: f"/{GRADIENT}" not in f"/{key}")
    return judging.judge_arrays(values, rules) + _judge_gradients(gradients, rules) + judging.judge_details(dumps)


def _judge_gradients(dumps: Dumps, rules: Rules) -> Judged:
    """Allow every gradient a share of the largest RMS among those of the same loss."""
    expected, actual = dumps.reference.arrays, dumps.port.arrays
    if not expected and not actual:
        return Judged()
    # The largest finite RMS among the gradients of each variant, whose name is what stands before them.
    scales: dict[str, float] = {key.partition(GRADIENT)[0]: 0.0 for key in {**actual, **expected}}
    for key, array in expected.items():
        rms = float(np.sqrt(np.mean(np.square(array, dtype=np.float64)))) if array.size else 0.0
        if isfinite(rms):
            scales[key.partition(GRADIENT)[0]] = max(rms, scales[key.partition(GRADIENT)[0]])
    tolerances = {
        key: scaled(rules.for_arrays("loss", {key: array})[key], scales[key.partition(GRADIENT)[0]], array)
        for key, array in {**actual, **expected}.items()
    }
    verdicts = compare(expected, actual, tolerances)
    for number, verdict in enumerate(verdicts):
        if verdict.outcome is Outcome.PASS and not scales[verdict.subject.partition(GRADIENT)[0]] > 0:
            reason = "proves nothing: the reference's loss has a gradient of zero"
            verdicts[number] = replace(verdict, outcome=Outcome.ERROR, reason=reason)
    return Judged(verdicts=verdicts, tolerances=tolerances)
