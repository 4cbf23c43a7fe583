"""Torch weight files, read without running what is in them, and written; tensors as arrays and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.errors import WeightsError, did_you_mean, first_line
from tipchain.runs import replacing_path

Array = npt.NDArray[Any]
WEIGHTS_HINT = "bash prepare.sh PARAMS MODE makes the weights of a case"
SAFETENSORS = ".safetensors"


def refuse_other_layout(path: Path, layout: str) -> None:
    """Refuse a ``.safetensors`` file that says it holds the other framework's layout (``"pt"`` or ``"pd"``).

    Raises:
        WeightsError: it does.
    """
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        found = (file.metadata() or {}).get("format")
    if found in ("pt", "pd") and found != layout:
        names = {"pt": "torch's", "pd": "Paddle's"}
        raise WeightsError(
            "holds the other framework's weights", file=path, found=f"{names[found]} (format: {found})",
            expected=names[layout], hint="tipchain convert-weights makes one from the other",
        )  # fmt: skip


def read_torch_state(path: Path) -> dict[str, Any]:
    """Return the state dict of a torch or ``.safetensors`` file, on the CPU.

    Raises:
        WeightsError: missing, truncated, foreign, or holding more than tensors; nothing in it is run.
    """
    import torch

    if not path.is_file():
        raise WeightsError("no such weight file", file=path, hint=WEIGHTS_HINT)
    try:
        if path.suffix == SAFETENSORS:
            from safetensors.torch import load_file

            refuse_other_layout(path, "pt")
            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except WeightsError:
        raise
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


def torch_misfits(torch_model: Any, state: Mapping[str, Any]) -> list[str]:
    """Say how ``state`` differs from the torch model's own state dict."""
    wanted = torch_model.state_dict()
    found = [f"missing: {key} {list(wanted[key].shape)}" for key in wanted if key not in state]
    for key, tensor in state.items():
        if key not in wanted:
            hint = did_you_mean(key, wanted)
            found.append(f"unknown: {key}" + (f", {hint}" if hint else ""))
        elif tensor.shape != wanted[key].shape:
            found.append(
                f"shape: {key} is {list(tensor.shape)}, the torch model has {list(wanted[key].shape)}"
            )
        elif tensor.dtype != wanted[key].dtype:
            found.append(f"dtype: {key} is {tensor.dtype}, the torch model has {wanted[key].dtype}")
    return found


def array_of(tensor: Any) -> Array:
    """Return a torch tensor's values as an array; bfloat16, which numpy does not have, as its bits (uint16).

    Raises:
        WeightsError: a dtype that Paddle's files do not have.
    """
    import torch

    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        bits: Array = tensor.contiguous().view(torch.int16).numpy().view(np.uint16)
        return bits
    try:
        array: Array = tensor.resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError) as error:  # float8, quantized, sparse
        raise WeightsError("this kind of tensor cannot be converted", found=f"{tensor.dtype}") from error
    return np.asarray(array, order="C")


def tensor_of(array: Array, dtype: str) -> Any:
    """Return the torch tensor of ``array``, the inverse of `array_of`; ``dtype`` is such as ``"bfloat16"``."""
    import torch

    array = np.array(array, order="C")
    if dtype == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def write_torch_file(model: Any, state: Mapping[str, Any], path: Path) -> None:
    """Write ``state`` for the torch model, and verify the file by loading it.

    The file is written beside ``path`` and renamed once every tensor in it has been found equal: a ``.safetensors``
    file if ``path`` is called so, else what ``torch.save`` writes.

    Raises:
        WeightsError: it cannot be written, or does not come back as it was; ``path`` is then untouched.
    """
    import torch

    whole = model.state_dict()  # with the versions of the layers, which torch keeps beside the tensors
    for name in whole:
        whole[name] = state[name].detach().clone().contiguous()
    try:
        with replacing_path(path) as beside:
            if path.suffix == SAFETENSORS:
                from safetensors.torch import save_file

                save_file(dict(whole), beside, metadata={"format": "pt"})
            else:
                torch.save(whole, beside)
            written = read_torch_state(beside)
            wrong = [
                name
                for name, tensor in whole.items()
                if name not in written or array_of(written[name]).tobytes() != array_of(tensor).tobytes()
            ] + torch_misfits(model, written)
            if wrong:
                raise WeightsError("differs from what was written", file=path, found=", ".join(wrong))
    except OSError as error:
        raise WeightsError("cannot be written", file=path, found=error.strerror or error) from error
