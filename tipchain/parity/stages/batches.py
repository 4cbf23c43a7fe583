"""Fake batches of another size than the case's."""

from __future__ import annotations

from dataclasses import replace

from tipchain.parity.case_types import LABEL, Case
from tipchain.parity.fake_inputs import make_inputs
from tipchain.parity.frameworks.base import Array


def fake_batch(case: Case, size: int) -> dict[str, Array]:
    """Return the case's fake inputs and label with ``size`` samples: the first dimension of each becomes that.

    The numbers are drawn as the case's own, so that a smaller batch is the beginning of a larger one.
    """
    specs = {
        name: replace(spec, shape=(size, *spec.shape[1:]), shapes=()) for name, spec in case.inputs.items()
    }
    return make_inputs(replace(case, inputs=specs))


def batch_size(case: Case) -> int:
    """Return the number of samples in the case's fake inputs."""
    return next(spec.shape[0] for name, spec in case.inputs.items() if name != LABEL)
