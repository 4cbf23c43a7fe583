"""The data stage: the first sample that differs is named with what differs, and the first transform that does so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from in_process import failed

from tipchain.errors import UsageError
from tipchain.numbers.dumps import Record
from tipchain.parity.stages import judge_dumps
from tipchain.parity.stages.judging import Dumps, Rules

STAGE = "data"
NAMES = [f"val/{number // 2}/{number}.png" for number in range(20)]
RANDOM = np.random.default_rng(11)
IMAGES = RANDOM.standard_normal((20, 3, 8, 9)).astype(np.float32)
LABELS = np.arange(20) // 2


def record(images=IMAGES, labels=LABELS, files=NAMES, size=4, **facts) -> Record:
    """Return a dump of batches of ``size``."""
    arrays = {"length": np.array([len(images)])}
    for number, start in enumerate(range(0, len(images), size)):
        arrays[f"dataloader_{number}"] = np.asarray(images[start : start + size])
        arrays[f"label_{number}"] = np.asarray(labels[start : start + size])
    meta = {"details": {"files": list(files), "batches_kept": 5, "batches_in_all": 5, **facts}}
    return Record(side="", meta=meta, arrays=arrays)


def judge(port: Record, reference: Record | None = None):
    dumps = Dumps(stage="data", reference=reference or record(), port=port, reference_path=Path(), port_path=Path())
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
    "pixels of another": (lambda: record(IMAGES[[0, 1, 5, *range(3, 20)]]), "first at sample 2 (val/1/2.png): order: the port has the pixels of the reference's sample 5 (val/2/5.png) here"),
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


def traced(change=lambda arrays: None, names=("raw", "resize", "normalize"), **facts) -> Record:
    arrays = {f"transform_{n}/{name}": IMAGES[n] * (1 + k) for n in range(2) for k, name in enumerate(names)}
    change(arrays)
    whole = record(transforms=list(names), **facts)
    return Record(side="", meta=whole.meta, arrays={**whole.arrays, **arrays})


def spoil(key, value):
    return lambda arrays: arrays.update({key: value})


@pytest.mark.parametrize(
    ("port", "words"),
    [
        (lambda: traced(spoil("transform_0/resize", IMAGES[0][..., :4])), "sample 0 (val/0/0.png) first differs after 'resize': shapes differ"),
        (lambda: traced(spoil("transform_0/raw", IMAGES[0][::-1])), "sample 0 (val/0/0.png) differs as it is read, before any transform: not close"),
        (lambda: traced(names=("raw", "crop", "normalize")), "the sides name different transforms: raw, resize, normalize expected, raw, crop, normalize actual"),
        (record, "only the reference names a builder `transforms`"),
        (lambda: traced(transforms_gap="sample 0 differs by up to 3"), "the port's named transforms do not give what its data set gives"),
    ],
)  # fmt: skip
def test_the_first_transform_that_differs_is_named(port, words):
    assert words in failed(judge(port(), traced()))["data/transforms"]


def test_equal_transforms_pass():
    judged = judge(traced(), traced())
    assert failed(judged) == {}
    assert "equal after each: raw, resize, normalize" in [verdict.reason for verdict in judged.verdicts]


@pytest.mark.frameworks
def test_a_faithful_port_gives_the_same_samples_and_steps(sides):
    both, reference = sides
    judged = both.judge("data", reference)
    assert failed(judged) == {}
    assert list(reference.arrays)[-6:] == [
        f"transform_{n}/{name}" for n in range(2) for name in ("raw", "resize", "normalize")
    ]
    assert reference.arrays["transform_0/raw"].dtype == np.uint8
    assert [verdict.subject for verdict in judged.verdicts][-3:] == ["data/samples", "data/transforms", "data/files"]


@pytest.mark.frameworks
def test_faults_of_the_ports_transforms_are_named(sides, port, monkeypatch):
    both, reference = sides
    resize, normalize = port.resize, port.normalize

    monkeypatch.setattr(port, "normalize", lambda image: normalize(image) * np.float32(255))
    found = failed(both.judge("data", reference))
    assert "first at sample 0 (val/0/" in found["data/samples"]
    assert "first differs after 'normalize': not close" in found["data/transforms"]

    monkeypatch.setattr(port, "normalize", normalize)
    monkeypatch.setattr(port, "resize", lambda image: resize(image.transpose(0)))  # PIL's FLIP_LEFT_RIGHT
    found = failed(both.judge("data", reference))
    assert "first differs after 'resize': not close" in found["data/transforms"]


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("built", "words"),
    [
        (lambda load: [load], r"expected: `\(load, \[\(name, transform\), ...\]\)`"),
        (lambda load: (load, []), "gave the steps"),
        (lambda load: (load, [("raw", np.asarray)]), "different names without '/'"),
        (lambda load: (load, [("words", str)]), "after 'words' a sample is a str"),
    ],
)
def test_transforms_that_cannot_be_recorded_are_refused(sides, port, monkeypatch, built, words):
    both, _ = sides
    load, _ = port.build_transforms(both.paddle.eval_data, "val")
    monkeypatch.setattr(port, "build_transforms", lambda root, split: built(load))
    with pytest.raises(UsageError, match=words):
        both.record("data", "paddle")


@pytest.mark.frameworks
def test_transforms_that_end_elsewhere_than_the_data_set_are_an_error(sides, port, monkeypatch):
    both, reference = sides
    load, steps = port.build_transforms(both.paddle.eval_data, "val")
    monkeypatch.setattr(port, "build_transforms", lambda root, split: (load, steps[:1]))
    assert "do not give what its data set gives" in failed(both.judge("data", reference))["data/transforms"]
