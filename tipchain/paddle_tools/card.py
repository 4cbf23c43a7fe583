"""What an exported model says about itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tipchain.errors import InputError
from tipchain.paddle_export import STEM


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What ``inference.yml`` says beside an exported model.

    Attributes:
        case: id of the case it was exported from.
        inputs: name, shape (None: any) and dtype of each input, in order.
        class_names: by label.
        transform: builder of what makes the model's inputs of images, or of other samples.
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
    try:
        return ModelCard(**yaml.safe_load(path.read_text()))
    except OSError as error:
        raise InputError(
            "no exported model here", file=path, found=error.strerror,
            expected="a folder that tools/export_model.py wrote",
        ) from error  # fmt: skip
    except (TypeError, ValueError, yaml.YAMLError) as error:
        raise InputError("is damaged", file=path, found=error) from error
