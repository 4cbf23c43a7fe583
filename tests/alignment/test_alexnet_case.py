"""AlexNet's shipped case has every stage there is."""

from pathlib import Path

from tipchain.modes import STAGES
from tipchain.parity.case import load_case


def test_shipped_case_loads():
    case = load_case(Path(__file__).resolve().parents[2] / "configs/alexnet.yaml")
    assert case.stages == STAGES
    assert case.model_args == {"num_classes": 10}
    assert case.scheduler_args["step_size"] < case.backward.iterations
