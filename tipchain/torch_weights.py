"""Torch weight files, read without running what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tipchain.errors import WeightsError

WEIGHTS_HINT = "bash prepare.sh PARAMS MODE makes the weights of a case"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its class where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def read_torch_state(path: Path) -> dict[str, Any]:
    """Return the state dict of a torch or ``.safetensors`` file, on the CPU.

    Raises:
        WeightsError: missing, truncated, foreign, or holding more than tensors; nothing in it is run.
    """
    import torch

    if not path.is_file():
        raise WeightsError("no such weight file", file=path, hint=WEIGHTS_HINT)
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file raises of any kind
        raise WeightsError(
            "is no complete torch weight file", file=path, found=first_line(error),
            expected="tensors by name, written by torch.save(model.state_dict(), ...)",
        ) from error  # fmt: skip
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]
    if not isinstance(state, Mapping) or not all(torch.is_tensor(value) for value in state.values()):
        raise WeightsError(
            "holds no state dict", file=path, found=type(state).__name__, expected="tensors by name"
        )
    return dict(state)
