"""Step 2 of the guide, evaluation data: what the loader gives."""

from __future__ import annotations

import numpy as np

from tipchain.parity.frameworks.base import Array
from tipchain.parity.stages.bench import Bench, Recording, in_order


def record(bench: Bench) -> Recording:
    """Length, images, labels and file names of the evaluation loader."""
    dataset, settings = bench.dataset("val"), bench.case.data
    indices = in_order(len(dataset), settings.batch_size)
    kept = indices[: settings.max_batches]
    arrays: dict[str, Array] = {"length": np.array([len(dataset)], dtype=np.int64)}
    files: list[str] = []
    for number, (image, label, names) in enumerate(bench.framework.batches(dataset, kept)):
        arrays[f"dataloader_{number}"] = bench.framework.array(image)
        arrays[f"label_{number}"] = bench.framework.array(label)
        files.extend(names)
    return Recording(
        arrays=arrays, details={"files": files, "batches_kept": len(kept), "batches_in_all": len(indices)}
    )
