"""What inference reads: a model's card, the images of a folder or the case's own samples."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tipchain.core.blame import serving
from tipchain.core.images import find_images, read_image
from tipchain.core.json_text import JsonObject
from tipchain.core.yaml_reader import load_yaml
from tipchain.errors import CaseError, InputError, UsageError
from tipchain.framework_types import Array, Dataset, Function, Nested
from tipchain.frameworks.builders import resolve
from tipchain.frameworks.paddle_export import STEM
from tipchain.parity.case import LABEL, Case, open_builder
from tipchain.parity.inputs import make_inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What ``inference.yml`` says beside an exported model.

    Attributes:
        case: id of the case it was exported from.
        inputs: name, shape (None: any) and dtype of each input, in order.
        class_names: by label.
        transform: builder of what makes the model's inputs of images, or of other samples; empty where there is none.
        paddle: version that exported it.
    """

    case: str
    inputs: Sequence[JsonObject]
    class_names: Sequence[str]
    transform: str
    paddle: str


def read_card(folder: Path) -> ModelCard:
    """Return what the exported model in ``folder`` says about itself.

    Raises:
        InputError: there is none, or it is damaged.
    """
    path = folder / f"{STEM}.yml"
    if not path.is_file():
        raise InputError("no exported model here", file=path, expected="a folder that the export wrote")
    try:
        return ModelCard(**load_yaml(path, InputError, "the card of an exported model").data)
    except TypeError as error:
        raise InputError("is damaged", file=path, found=error) from error


OWN = "build_inference_set"
"""Name of the optional builder beside a case's Paddle data set: ``(path, **data.args)`` -> `Dataset`."""
TRANSFORM = "build_transform"
"""Name of the other: ``(**data.args)`` -> a callable that makes the model's input of an RGB image."""


class Images:
    """Image files, each through the case's transform; their names are their paths."""

    def __init__(self, paths: Sequence[Path], transform: Function) -> None:
        self.paths, self.transform = paths, transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Array, int, str]:
        path = self.paths[index]
        return self.transform(read_image(path)), -1, str(path)


class FakeSamples:
    """The case's fake inputs, sample by sample, where there is no data set.

    Attributes:
        arrays: one for each of the model's inputs.
    """

    def __init__(self, case: Case) -> None:
        self.arrays = [array for name, array in make_inputs(case).items() if name != LABEL]
        if not self.arrays:
            raise CaseError("has no model input", file=case.path, key="inputs")

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: int) -> tuple[Nested, int, str]:
        parts = tuple(array[index] for array in self.arrays)
        return parts if len(parts) > 1 else parts[0], -1, f"fake input {index}"


def open_samples(case: Case, given: Path | None, data: Path) -> Dataset:
    """Return the samples of ``given``; without it, of the validation split of the data folder ``data``.

    Beside the case's Paddle data set there may stand ``build_inference_set``, which gets ``given`` or ``data``, for
    samples that are no image files, such as videos; or ``build_transform``, for image files. Without either it is the data
    set's own validation split that is inferred, and without a data set the case's fake inputs.

    Raises:
        UsageError: ``given`` cannot be read without one of the two.
        DataError: there is nothing to infer.
    """
    dataset, own = case.sides["paddle"].dataset, sample_spec(case)
    if own is not None:
        builder = resolve(own, case.root)
        with serving(stage="opening the samples"):
            built = builder(*((given or data,) if own.endswith(f":{OWN}") else ()), **case.data.args)
        samples: Dataset = built if own.endswith(f":{OWN}") else Images(find_images(given or data / "val"), built)
        return samples
    if given is not None and not (given / "val").is_dir():
        raise UsageError(
            f"{given}: who reads it?\n"
            f"  expected: a {OWN} or {TRANSFORM} beside the Paddle data set of the case, or a folder with val/"
        )
    if dataset is None:
        return FakeSamples(case)
    split: Dataset = open_builder(case, "paddle", "dataset")(given or data, "val", **case.data.args)
    return split


def sample_spec(case: Case) -> str | None:
    """Return ``module:callable`` of what makes the model's inputs for inference; None where the case has none of its own.

    Raises:
        CaseError: the module of the case's data set cannot be imported.
    """
    dataset = case.sides["paddle"].dataset
    if dataset is None:
        return None
    resolve(dataset, case.root)
    module = dataset.partition(":")[0]
    found = next((name for name in (OWN, TRANSFORM) if hasattr(sys.modules[module], name)), None)
    return None if found is None else f"{module}:{found}"
