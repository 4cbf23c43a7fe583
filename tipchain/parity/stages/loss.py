"""Step 4 of the guide, the loss."""

from __future__ import annotations

from tipchain.parity.frameworks.base import scalar
from tipchain.parity.stages.bench import Bench, Recording


def record(bench: Bench) -> Recording:
    """Loss on the fake input and label, in eval mode."""
    model, criterion = bench.eval_model(), bench.builder("loss")()
    with bench.framework.inference():
        loss = criterion(model(*bench.fake_inputs()), bench.fake_label())
    return Recording(arrays={"loss": scalar(bench.framework.array(loss))})
