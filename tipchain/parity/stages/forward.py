"""Step 1 of the guide, the network: its outputs."""

from __future__ import annotations

from tipchain.framework_types import Array, Model, Tensor
from tipchain.frameworks.base import flatten_outputs
from tipchain.parity.stages.bench import Bench, Recording
from tipchain.parity.stages.judging import judge

__all__ = ["judge", "record"]


def record(bench: Bench) -> Recording:
    """All outputs on the fake inputs, in eval mode; then those on inputs of every other shape, as ``name@SHAPE``."""
    model = bench.eval_model()
    arrays = _outputs(bench, model, bench.fake_inputs(), "")
    for suffix, inputs in bench.inputs_of_other_shapes().items():
        arrays |= _outputs(bench, model, inputs, suffix)
    return Recording(arrays=arrays)


def _outputs(bench: Bench, model: Model, inputs: list[Tensor], suffix: str) -> dict[str, Array]:
    with bench.framework.inference():
        output = model(*inputs)
    named = flatten_outputs(bench.framework, output, bench.case.outputs)
    return {f"{name}{suffix}": bench.framework.array(value) for name, value in named.items()}
