"""What an exported model says about itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tipchain.errors import InputError
from tipchain.paddle_export import STEM
from tipchain.yaml_lines import load_yaml


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
    inputs: Sequence[Mapping[str, Any]]
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
