"""Paddle Inference on an exported model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from tipchain.devices import Device
from tipchain.errors import InputError
from tipchain.paddle_tools.program import ProgramError

Array = npt.NDArray[Any]
STEM = "inference"
PROGRAMS = (f"{STEM}.json", f"{STEM}.pdmodel")
"""How Paddle 3 and Paddle 2 call the program."""
GPU_POOL_MB = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What ``inference.yml`` says beside an exported model.

    Attributes:
        case: id of the case it was exported from.
        inputs: name, shape (None: any) and dtype of each input, in order.
        class_names: by label.
        transform: builder of the transform that images go through.
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


class Predictor:
    """An exported model, loaded by Paddle Inference.

    Args:
        folder: holds the program and ``inference.pdiparams``.
        device: where it runs.
        mkldnn: whether oneDNN kernels are used on the CPU.
        threads: of the CPU's math library.
        half: float16 on a GPU.

    Raises:
        InputError: files are missing.
        ProgramError: Paddle Inference cannot load them.
    """

    def __init__(
        self, folder: Path, *, device: Device, mkldnn: bool = False, threads: int = 1, half: bool = False
    ) -> None:
        from paddle import inference

        program = next((folder / name for name in PROGRAMS if (folder / name).is_file()), None)
        weights = folder / f"{STEM}.pdiparams"
        if program is None or not weights.is_file():
            raise InputError(
                "no exported model here", file=folder, expected=f"{PROGRAMS[0]} and {weights.name}"
            )
        config = inference.Config(str(program), str(weights))
        config.disable_glog_info()  # enable_memory_optim() is left out: Paddle 3.3 then refuses every program
        config.set_cpu_math_library_num_threads(threads)
        if device.is_gpu:
            precision = inference.PrecisionType.Half if half else inference.PrecisionType.Float32
            config.enable_use_gpu(GPU_POOL_MB, device.index, precision)
        elif mkldnn:
            config.enable_mkldnn()
        else:
            config.disable_mkldnn()
        try:
            self._engine = inference.create_predictor(config)
        except (RuntimeError, ValueError, OSError) as error:
            reason = str(error).strip().splitlines()[-1]
            raise ProgramError(f"{folder}: Paddle Inference cannot load the model: {reason}") from error

    def __call__(self, *inputs: Array) -> list[Array]:
        """Return the outputs for one batch."""
        for name, array in zip(self._engine.get_input_names(), inputs, strict=True):
            self._engine.get_input_handle(name).copy_from_cpu(np.ascontiguousarray(array))
        self._engine.run()
        return [
            self._engine.get_output_handle(name).copy_to_cpu() for name in self._engine.get_output_names()
        ]
