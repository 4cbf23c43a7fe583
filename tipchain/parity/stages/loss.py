"""Step 4 of the guide, the loss: its value, and its gradient with respect to the model's outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tipchain.parity.case_types import LABEL
from tipchain.parity.fake_inputs import make_loss_label
from tipchain.parity.frameworks.base import Array, flatten_outputs, map_outputs, scalar
from tipchain.parity.stages.bench import Bench, Recording


def record(bench: Bench) -> Recording:
    """``loss`` and ``gradient/<output>`` on the fake inputs and label, in eval mode; then those of every variant.

    The gradient stops at the model's outputs, so that no layer of the model takes part in it. Of a variant all keys
    begin with ``<variant>/``.
    """
    with bench.framework.inference():
        output = bench.eval_model()(*bench.fake_inputs())
    named = flatten_outputs(bench.framework, output, bench.case.outputs)
    values = {name: bench.framework.array(value) for name, value in named.items()}
    arrays: dict[str, Array] = {}
    for variant, args in bench.case.loss.all().items():
        found = _run(bench, output, args)
        arrays |= {f"{variant}/{key}" if variant else key: value for key, value in found.items()}
    return Recording(
        arrays=arrays, details={"outputs": {name: _facts(value) for name, value in values.items()}}
    )


def _run(bench: Bench, output: Any, args: Mapping[str, Any]) -> dict[str, Array]:
    """Return value and gradients of the loss that ``args`` build."""
    framework = bench.framework

    def leaf(value: Any) -> Any:
        array = framework.array(value) if framework.is_tensor(value) else None
        return value if array is None or array.dtype.kind != "f" else framework.leaf(array)

    leaves = map_outputs(leaf, output)
    named = flatten_outputs(framework, leaves, bench.case.outputs)
    shape = framework.array(next(iter(named.values()))).shape
    seed = bench.case.inputs[LABEL].seed
    label = framework.tensor(make_loss_label(bench.inputs[LABEL], args, shape, seed))
    loss = bench.builder("loss")(**args)(leaves, label)
    loss.backward()
    gradients = {
        f"gradient/{name}": framework.array(tensor.grad)
        for name, tensor in named.items()
        if tensor.grad is not None
    }
    return {"loss": scalar(framework.array(loss)), **gradients}


def _facts(values: Array) -> dict[str, float]:
    """Return what judging says about outputs when losses differ: their size, and how far apart they lie."""
    wide = values.astype(np.float64)
    if not wide.size:
        return {"rms": 0.0, "spread": 0.0}
    return {"rms": float(np.sqrt(np.mean(wide**2))), "spread": float(wide.max() - wide.min())}
