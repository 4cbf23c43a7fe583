"""Step 6 of the guide, the learning rate: its whole curve."""

from __future__ import annotations

import numpy as np

from tipchain.parity.frameworks.base import Array
from tipchain.parity.frameworks.updates import updates_module
from tipchain.parity.stages.bench import Bench, Recording
from tipchain.parity.stages.updating import build_subject, names

MOMENTUM = "momentum"


def record(bench: Bench) -> Recording:
    """The rate of each step as ``lr``, shape ``[steps]``, float64; the schedule is stepped between them.

    ``lr/NAME`` is the curve of a parameter whose rate is not that one, ``momentum`` that of the momentum, where a
    schedule moves it.
    """
    case, model = bench.case, build_subject(bench)
    rate = case.train.learning_rate if case.lr.learning_rate is None else case.lr.learning_rate
    trainer = bench.trainer(model, rate)
    module = updates_module(bench.framework)
    curve: list[float] = []
    momenta: list[float] = []
    own: dict[str, list[float]] = {}
    for number in range(case.lr.steps):
        curve.append(trainer.learning_rate())
        for name, value in module.parameter_rates(trainer, model, names(bench)).items():
            own.setdefault(name, []).append(value)
        momenta.append(module.momentum(trainer))
        if number + 1 < case.lr.steps:
            trainer.step()
            trainer.step_schedule()
    arrays: dict[str, Array] = {"lr": np.array(curve)}
    arrays |= {f"lr/{name}": np.array(values) for name, values in own.items() if values != curve}
    if len(set(momenta)) > 1:
        arrays[MOMENTUM] = np.array(momenta)
    return Recording(arrays=arrays, details={"per": case.train.schedule_per})
