"""AlexNet's two sides do the same: schedule, optimizer, loss and forward."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.frameworks
PACKAGE = "alignment.alexnet"
ROOT = Path(__file__).resolve().parents[2]


def test_shipped_case_loads():
    from tipchain.modes import STAGES
    from tipchain.parity.case import load_case

    case = load_case(ROOT / "configs/alexnet.yaml")
    assert case.stages == STAGES, "AlexNet's case shows every stage there is"
    assert case.model_args == {"num_classes": 10}
    assert case.scheduler_args["step_size"] < case.backward.iterations
