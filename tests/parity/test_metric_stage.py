"""The metric stage: its code alone on equal inputs, then the whole evaluation, and words for which of both differs."""

from types import SimpleNamespace

import numpy as np
import pytest
from in_process import failed
from stage_records import judge_arrays

from tipchain.core.blame import UsersError
from tipchain.parity.stages.bench import measure

STAGE = "metric"
NUMPY = SimpleNamespace(name="numpy", is_tensor=lambda value: isinstance(value, np.ndarray), concat=np.concatenate)


def top(output, label, k):
    """Return the share of samples whose class is among the ``k`` best, in percent."""
    output, label = output.numpy(), label.numpy()
    return 100 * ((output > output[np.arange(len(label)), label][:, None]).sum(axis=1) < k).mean()


class Batched:
    """A metric that is fed batch by batch; ``by_batch`` averages the batches' values, which is the classic mistake."""

    def __init__(self, metric, *, by_batch):
        self.metric, self.by_batch, self.seen = metric, by_batch, []

    def update(self, output, label):
        self.seen.append((output, label))

    def compute(self):
        import paddle

        if not self.by_batch:
            return self.metric(*(paddle.concat([one[n] for one in self.seen]) for n in (0, 1)))
        found = [self.metric(*one) for one in self.seen]
        return {key: np.mean([one[key] for one in found]) for key in found[0]}


@pytest.mark.frameworks
def test_a_faithful_port_agrees_in_code_and_evaluation(sides):
    both, reference = sides
    judged = both.judge("metric", reference)
    assert failed(judged) == {}
    keys = ["acc_top1", "acc_top5", "mean_class_accuracy"]
    assert list(reference.arrays) == [*keys, *(f"code/{key}" for key in keys)]
    code = {key: float(reference.arrays[f"code/{key}"][0]) for key in keys}
    assert len({round(value, 3) for value in code.values()}) == len(code), "the probe tells them apart"


@pytest.mark.frameworks
def test_a_metric_may_be_fed_batch_by_batch(sides, port, monkeypatch):
    both, reference = sides
    metric = port.build_metric()
    monkeypatch.setattr(port, "build_metric", lambda: Batched(metric, by_batch=False))
    assert failed(both.judge("metric", reference)) == {}


FAULTS = {
    "batch means": (lambda metric: Batched(metric, by_batch=True), {"code/acc_top1", "code/acc_top5"}),
    "no class means": (lambda metric: lambda output, label: {**metric(output, label), "mean_class_accuracy": top(output, label, 1)}, {"code/mean_class_accuracy"}),
}  # fmt: skip


@pytest.mark.frameworks
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_code_is_told_from_one_of_the_evaluation(sides, port, monkeypatch, fault):
    both, reference = sides
    change, keys = FAULTS[fault]
    metric = port.build_metric()
    monkeypatch.setattr(port, "build_metric", lambda: change(metric))
    found = failed(both.judge("metric", reference))
    assert {f"metric/{key}" for key in keys} <= set(found)
    assert any("on equal inputs " in reason for reason in found.values()), found


@pytest.mark.frameworks
def test_a_fault_of_the_evaluation_is_told_from_one_of_the_code(sides, port, monkeypatch):
    both, reference = sides
    original = port.Folder.__getitem__

    def shifted(self, index):
        image, label, file = original(self, index)
        return image, 3 if label == 2 else label, file

    monkeypatch.setattr(port.Folder, "__getitem__", shifted)
    found = failed(both.judge("metric", reference))
    assert "metric/acc_top1" in found
    assert not any(subject.startswith("metric/code/") for subject in found)
    assert "the metric's code gives the same on equal inputs, so the evaluation differs" in found["metric/acc_top1"]


def test_dumps_without_the_codes_own_numbers_are_judged_as_ever():
    found = judge_arrays("metric", {"acc_top1": [75]}, {"acc_top1": [70]})
    assert failed(found)["metric/acc_top1"].startswith("not close")
    assert "code" not in failed(found)["metric/acc_top1"]


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (lambda output, label: {}, "percentages by name"),
        (lambda output, label: {"acc": [1.0, 2.0]}, "'acc' is no single number"),
        (SimpleNamespace(accumulate=None), "an object with `update` and `compute`"),
    ],
)
def test_a_metric_that_gives_no_percentages_is_refused(metric, words):
    with pytest.raises(UsersError, match=words):
        measure(NUMPY, metric, [(np.ones((2, 2)), np.ones(2))])
