"""How a stage trains: which samples in which order, when the schedule is stepped; no framework is needed."""

from types import SimpleNamespace

import numpy as np
import pytest

from tipchain.parity.stages import train


class Framework:
    """Loads numbers, and remembers what it was asked for."""

    name = "torch"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def batches(self, dataset, wanted):
        self.asked.append(f"load {len(wanted)}")
        yield from wanted

    def array(self, value):
        return np.asarray(value)


class Trainer:
    def __init__(self, asked) -> None:
        self.asked = asked

    def step(self) -> None:
        self.asked.append("step")

    def step_schedule(self) -> None:
        self.asked.append("schedule")


class Loss(float):
    def backward(self) -> None:
        """Do nothing: there is no model."""


@pytest.fixture
def bench():
    framework = Framework()
    case = SimpleNamespace(
        train=SimpleNamespace(batch_size=3, learning_rate=0.1, schedule_per={"torch": "epoch", "paddle": "epoch"})
    )
    return SimpleNamespace(
        framework=framework,
        case=case,
        builder=lambda _: lambda: lambda output, label: Loss(output - label),
        trainer=lambda model, rate: Trainer(framework.asked),
    )


def test_every_epoch_has_an_order_of_its_own_and_the_last_may_be_cut(bench):
    dataset = list(range(7))
    batches = list(train.shuffled_batches(bench, dataset, (5,), 8))
    assert train.steps_per_epoch(bench, dataset) == 3
    assert bench.framework.asked == ["load 3", "load 3", "load 2"], "no more is loaded than is trained on"
    epochs = [[number for batch in batches[start : start + 3] for number in batch] for start in (0, 3)]
    assert [sorted(epoch) for epoch in epochs] == [dataset, dataset]
    assert epochs[0] != epochs[1]
    assert batches == list(train.shuffled_batches(bench, dataset, (5,), 8))
    assert batches != list(train.shuffled_batches(bench, dataset, (5, 1), 8))


def test_a_data_set_that_changes_with_the_epoch_is_told(bench):
    class Jittered(list):
        def set_epoch(self, epoch):
            bench.framework.asked.append(f"epoch {epoch}")

    list(train.shuffled_batches(bench, Jittered(range(6)), (0,), 4))
    assert bench.framework.asked == ["epoch 0", "load 2", "epoch 1", "load 2"]


@pytest.mark.parametrize(("per", "schedules"), [("epoch", [4]), ("iteration", [1, 3, 5, 7])])
def test_the_schedule_is_stepped_as_the_case_says(bench, per, schedules):
    bench.case.train.schedule_per = {bench.framework.name: per}
    losses = list(train.train(bench, lambda image: image, [(3.0, 1.0)] * 4, per_epoch=4))
    assert losses == [2.0] * 4
    found = [number for number, word in enumerate(bench.framework.asked) if word == "schedule"]
    assert found == schedules
