"""A Paddle model as an exported program: saving it, and running it in Paddle Inference.

Source: https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/jit/save_en.html and
https://www.paddlepaddle.org.cn/inference/api_reference/python_api_doc/Config_index.html
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tipchain.core.blame import message_of
from tipchain.errors import InputError, TipchainError, UsageError
from tipchain.framework_types import Array, Model, Tensor
from tipchain.modes import Device

STEM = "inference"
PROGRAMS = (f"{STEM}.json", f"{STEM}.pdmodel")
"""How Paddle 3 and Paddle 2 call the program."""
GPU_POOL_MB = 500
"""GPU memory that the inference engine takes at first, in MB."""


class EngineError(TipchainError):
    """An inference engine cannot load or run an exported model, though the files are there."""

    exit_code = 1


def save_program(model: Model, inputs: Mapping[str, tuple[Sequence[int], str]], folder: Path) -> None:
    """Save a ``paddle.nn.Layer`` as a program of any batch size, in the mode (train, eval) that it is in.

    Args:
        model: the layer; it is as before afterwards.
        inputs: what its ``forward`` takes, in order: shapes, whose first number becomes the batch size, and NumPy's names
            of the dtypes.
        folder: gets ``inference.json`` (``.pdmodel`` from Paddle 2) and ``inference.pdiparams``.
    """
    import paddle

    specs = [paddle.static.InputSpec([None, *shape[1:]], dtype, name) for name, (shape, dtype) in inputs.items()]
    static = paddle.jit.to_static(model, input_spec=specs, full_graph=True)
    try:
        with warnings.catch_warnings():
            # It warns of the order that `output_tensors` follows.
            warnings.filterwarnings("ignore", message="Found 'dict' in given outputs")
            paddle.jit.save(static, str(folder / STEM))
    finally:
        # to_static changes the model itself; who compares it with the program must run the plain one.
        if hasattr(model.forward, "rollback"):
            model.forward.rollback()


def output_tensors(output: object) -> list[Tensor]:
    """Return a model's output tensors in the order of the exported program's: flattened, dicts by sorted keys."""
    import paddle

    return [one for one in paddle.utils.flatten(output) if paddle.is_tensor(one)]


def program_files(folder: Path) -> tuple[Path, Path]:
    """Return the program and the parameters in ``folder``.

    Raises:
        InputError: one of them is missing.
    """
    program = next((folder / name for name in PROGRAMS if (folder / name).is_file()), None)
    weights = folder / f"{STEM}.pdiparams"
    if program is None or not weights.is_file():
        raise InputError("no exported model here", file=folder, expected=f"{PROGRAMS[0]} and {weights.name}")
    return program, weights


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
        EngineError: Paddle Inference cannot load them.
    """

    def __init__(
        self, folder: Path, *, device: Device, mkldnn: bool = False, threads: int = 1, half: bool = False
    ) -> None:
        from paddle import inference

        program, weights = program_files(folder)
        config = inference.Config(str(program), str(weights))
        config.disable_glog_info()  # enable_memory_optim() is left out: Paddle 3.3 then refuses every program
        config.set_cpu_math_library_num_threads(threads)
        if device.is_gpu:
            precision = inference.PrecisionType.Half if half else inference.PrecisionType.Float32
            config.enable_use_gpu(GPU_POOL_MB, device.number, precision)
        elif mkldnn:
            config.enable_mkldnn()
        else:
            config.disable_mkldnn()
        try:
            self._engine = inference.create_predictor(config)
        except (RuntimeError, ValueError, OSError) as error:
            raise EngineError(
                f"{folder}: Paddle Inference cannot load the model: {message_of(error) or type(error).__name__}"
            ) from error

    def __call__(self, *inputs: Array) -> list[Array]:
        """Return the outputs for one batch, the inputs given in order."""
        return self.run(dict(zip(self._engine.get_input_names(), inputs, strict=True)))

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return the outputs for one batch; an input that the program does not use is passed over.

        Raises:
            UsageError: the program wants an input that is not given.
            EngineError: Paddle Inference cannot run the program on these inputs.
        """
        for name in self._engine.get_input_names():
            if name not in inputs:
                raise UsageError(f"the exported program wants {name!r}; given: {', '.join(inputs)}")
            self._engine.get_input_handle(name).copy_from_cpu(np.ascontiguousarray(inputs[name]))
        try:
            self._engine.run()
        except (RuntimeError, ValueError, OSError) as error:
            raise EngineError(
                f"Paddle Inference cannot run the model: {message_of(error) or type(error).__name__}"
            ) from error
        return [self._engine.get_output_handle(name).copy_to_cpu() for name in self._engine.get_output_names()]
