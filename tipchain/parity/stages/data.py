"""Step 2 of the guide, evaluation data: what the loader gives, and what the named transforms make of it."""

from __future__ import annotations

import numpy as np

from tipchain.parity.frameworks.base import Array
from tipchain.parity.stages.bench import Bench, Recording, in_order
from tipchain.parity.stages.transforms import trace_transforms


def record(bench: Bench) -> Recording:
    """Length, images, labels and file names of the evaluation loader; then the first samples after each transform."""
    dataset, settings = bench.dataset("val"), bench.case.data
    indices = in_order(len(dataset), settings.batch_size)
    kept = indices[: settings.max_batches]
    arrays: dict[str, Array] = {"length": np.array([len(dataset)], dtype=np.int64)}
    files: list[str] = []
    first: list[Array] = []
    for number, (image, label, names) in enumerate(bench.framework.batches(dataset, kept)):
        images = bench.framework.array(image)
        arrays[f"dataloader_{number}"] = images
        arrays[f"label_{number}"] = bench.framework.array(label)
        files.extend(names)
        first.extend(images[: settings.transform_samples - len(first)])
    traced, facts = trace_transforms(bench, first)
    details = {"files": files, "batches_kept": len(kept), "batches_in_all": len(indices), **facts}
    return Recording(arrays={**arrays, **traced}, details=details)
