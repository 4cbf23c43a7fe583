"""What inference reads: the images of a folder, or what the case's own Paddle module makes of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from tipchain.errors import CaseError
from tipchain.images import find_images, read_image
from tipchain.paddle_export import Array
from tipchain.parity.case import Case, resolve

OWN = "build_inference_set"
"""Name of the optional builder beside a case's Paddle data set: ``(path, **data.args)`` -> `Samples`."""


class Samples(Protocol):
    """Samples in order, as a data set gives them: (the model's input, label, name); the label is not looked at."""

    def __len__(self) -> int:
        """Return how many there are."""

    def __getitem__(self, index: int) -> Any:
        """Return one of them.

        Raises:
            DataError: it cannot be read.
        """


class Images:
    """Image files, each through the case's transform; their names are their paths."""

    def __init__(self, paths: Sequence[Path], transform: Any) -> None:
        self.paths, self.transform = paths, transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Array, int, str]:
        path = self.paths[index]
        return self.transform(read_image(path)), -1, str(path)


def open_samples(case: Case, given: Path | None, data: Path) -> Samples:
    """Return the samples of ``given``; without it, of the validation split of the data folder ``data``.

    The module of the case's Paddle data set may have a ``build_inference_set`` for samples that are no image files,
    such as videos: it gets ``given`` or ``data``. Else it has a ``build_transform`` for images.

    Raises:
        CaseError: the module has neither.
        DataError: there is nothing to infer.
    """
    spec = sample_spec(case)
    builder = resolve(spec, case.root)
    if spec.endswith(f":{OWN}"):
        samples: Samples = builder(given or data, **case.data.args)
        return samples
    return Images(find_images(given or data / "val"), builder(**case.data.args))


def sample_spec(case: Case) -> str:
    """Return ``module:callable`` of what makes the model's inputs for inference.

    Raises:
        CaseError: the case names no data set, or its module cannot be imported.
    """
    dataset = case.sides["paddle"].dataset
    if dataset is None:
        raise CaseError(
            "is missing", file=case.path, key="sides.paddle.dataset", expected="'module:callable'"
        )
    resolve(dataset, case.root)
    module = dataset.partition(":")[0]
    return f"{module}:{OWN if hasattr(sys.modules[module], OWN) else 'build_transform'}"
