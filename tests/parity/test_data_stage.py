"""The data stage: the first sample that differs is named with what differs."""

import numpy as np
import pytest
from in_process import failed

from tipchain.numbers.dumps import Record
from tipchain.parity.stages import judge_dumps
from tipchain.parity.stages.judging import Dumps, Rules

STAGE = "data"
NAMES = [f"val/{number // 2}/{number}.png" for number in range(20)]
RANDOM = np.random.default_rng(11)
IMAGES = RANDOM.standard_normal((20, 3, 8, 9)).astype(np.float32)
LABELS = np.arange(20) // 2


def record(images=IMAGES, labels=LABELS, files=NAMES, size=4, **facts) -> Record:
    arrays = {"length": np.array([len(images)])}
    for number, start in enumerate(range(0, len(images), size)):
        arrays[f"dataloader_{number}"] = np.asarray(images[start : start + size])
        arrays[f"label_{number}"] = np.asarray(labels[start : start + size])
    meta = {"details": {"files": list(files), "batches_kept": 5, "batches_in_all": 5, **facts}}
    return Record(side="", meta=meta, arrays=arrays)


def judge(port: Record, reference: Record | None = None):
    dumps = Dumps(stage="data", reference=reference or record(), port=port)
    return judge_dumps(dumps, Rules(own={}))


def first(port: Record, reference: Record | None = None) -> str:
    return failed(judge(port, reference)).get("data/samples", "")


def changed(number, image):
    images = IMAGES.copy()
    images[number:] = image
    return images


def test_equal_samples_pass_as_one():
    judged = judge(record())
    assert failed(judged) == {}
    assert "20 samples equal in file, label, dtype, shape and values" in [v.reason for v in judged.verdicts]


FIRST_OF = {
    "channels": (lambda: record(changed(6, IMAGES[6:, ::-1])), "first at sample 6 (val/3/6.png): not close"),
    "layout": (lambda: record(IMAGES.transpose(0, 2, 3, 1)), "first at sample 0 (val/0/0.png): shapes differ: expected (3, 8, 9), actual (8, 9, 3)"),
    "dtype": (lambda: record(IMAGES.astype(np.float64)), "dtype: float32 expected, float64 actual"),
    "label": (lambda: record(labels=np.where(np.arange(20) == 7, 9, LABELS)), "first at sample 7 (val/3/7.png): label: expected 3, actual 9"),
    "reversed order": (lambda: record(IMAGES[::-1], LABELS[::-1], NAMES[::-1]), "first at sample 0 (val/0/0.png): order: the port has the reference's sample 19 (val/9/19.png) here"),
    "another file": (lambda: record(files=[*NAMES[:5], "val/2/new.png", *NAMES[6:]]), "first at sample 5 (val/2/5.png): file: expected val/2/5.png, actual val/2/new.png"),
    "fewer": (lambda: record(IMAGES[:16], LABELS[:16], NAMES[:16]), "the first 16 are equal, but there are 20 expected, 16 actual"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FIRST_OF)
def test_the_first_sample_that_differs_is_named_with_what_differs(fault):
    port, words = FIRST_OF[fault]
    assert words in first(port())


def test_a_batch_that_passes_on_average_does_not_hide_its_sample():
    images = IMAGES.copy()
    images[5] += 3e-6
    judged = failed(judge(record(images)))
    assert set(judged) == {"data/samples"}
    assert judged["data/samples"].startswith("first at sample 5 (val/2/5.png): ")


def test_labels_of_another_integer_type_are_remarked():
    judged = judge(record(labels=LABELS.astype(np.int32)))
    assert failed(judged) == {}
    assert "labels are int64 expected, int32 actual" in judged.notes


@pytest.mark.frameworks
def test_a_faithful_port_gives_the_same_samples_and_a_fault_is_seen_at_the_first(sides, port, monkeypatch):
    both, reference = sides
    judged = both.judge("data", reference)
    assert failed(judged) == {}
    assert [verdict.subject for verdict in judged.verdicts][-2:] == ["data/samples", "data/files"]

    normalize = port.normalize
    monkeypatch.setattr(port, "normalize", lambda image: normalize(image) * np.float32(255))
    assert "first at sample 0 (val/0/" in failed(both.judge("data", reference))["data/samples"]
