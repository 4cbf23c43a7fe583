"""Step 1 of the guide, the network: its outputs in eval mode, for the fake inputs of every shape that the case names."""

from __future__ import annotations

from tipchain.framework_types import Array, Nested
from tipchain.frameworks.base import flatten_outputs
from tipchain.frameworks.randomness import Draws
from tipchain.parity.stages.bench import Bench, Recording
from tipchain.parity.stages.judging import judge
from tipchain.weights.structure import group_by

__all__ = ["judge", "record"]


def record(bench: Bench) -> Recording:
    """All outputs on the fake inputs, in eval mode; then those on inputs of every other shape, as ``name@SHAPE``."""
    arrays = _outputs(bench, bench.eval_output(), "")
    others = group_by(bench.other_inputs, lambda path: path.rpartition("/")[0])
    if others:
        model = bench.eval_model()
        with bench.framework.inference(), bench.framework.randomness(Draws(bench.case.seed)):
            for suffix, paths in others.items():
                inputs = [bench.framework.tensor(bench.other_inputs[path]) for path in paths]
                arrays |= _outputs(bench, model(*inputs), suffix)
    return Recording(arrays=arrays)


def _outputs(bench: Bench, output: Nested, suffix: str) -> dict[str, Array]:
    named = flatten_outputs(bench.framework, output, bench.case.outputs)
    return {f"{name}{suffix}": bench.framework.array(value) for name, value in named.items()}
