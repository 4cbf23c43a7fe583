"""Step 1 of the guide, the network: its outputs."""

from __future__ import annotations

from tipchain.parity.frameworks.base import flatten_outputs
from tipchain.parity.stages.bench import Bench, Recording


def record(bench: Bench) -> Recording:
    """Outputs on the fake input, in eval mode."""
    model = bench.eval_model()
    with bench.framework.inference():
        output = model(*bench.fake_inputs())
    named = flatten_outputs(bench.framework, output, bench.case.outputs)
    return Recording(arrays={key: bench.framework.array(value) for key, value in named.items()})
