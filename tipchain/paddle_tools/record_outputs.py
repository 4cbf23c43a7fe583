"""Run an inference program as it stands, and keep its predictors' inputs and outputs.

    python record_outputs.py OUT.npz PROGRAM [ARGUMENT ...]

The program runs in this process, as ``python PROGRAM ...`` would run it. ``OUT.npz`` gets, call by call, the SHA-256 of
what went into Paddle Inference, and the arrays that came out, as long as they take less than `LIMIT_BYTES` together. The suite's interpreter runs this file, which therefore needs nothing but numpy and paddle.
"""

from __future__ import annotations

import hashlib
import os
import runpy
import sys
from pathlib import Path

import numpy as np

LIMIT_BYTES = 256 * 2**20
"""Outputs are kept up to here; later ones are only counted."""


class Tape:
    """Inputs and outputs of predictors, in order."""

    def __init__(self) -> None:
        self.inputs: list[str] = []
        self.outputs: list[np.ndarray] = []
        self.held = self.dropped = 0

    def took(self, array: object) -> None:
        """Note an input."""
        value = np.ascontiguousarray(array)
        head = f"{value.dtype.str}{value.shape}".encode()
        self.inputs.append(hashlib.sha256(head + value.tobytes()).hexdigest())

    def gave(self, array: object) -> None:
        """Keep an output."""
        value = np.array(array)
        byte = np.iinfo(np.uint8)
        if value.dtype.kind in "iu" and value.size and value.min() >= byte.min and value.max() <= byte.max:
            value = value.astype(np.uint8)
        if self.held + value.nbytes > LIMIT_BYTES:
            self.dropped += 1
            return
        self.held += value.nbytes
        self.outputs.append(value)

    def listen(self) -> None:
        """Have Paddle's tensors and predictors tell this tape."""
        import paddle.inference

        tensor, predictor = paddle.inference.Tensor, paddle.inference.Predictor
        fill, fetch, run = tensor.copy_from_cpu, tensor.copy_to_cpu, predictor.run

        def copy_from_cpu(handle: object, data: object) -> object:
            self.took(data)
            return fill(handle, data)

        def copy_to_cpu(handle: object) -> object:
            found = fetch(handle)
            self.gave(found)
            return found

        def run_predictor(own: object, *tensors: list[object]) -> object:
            for one in tensors[0] if tensors else ():
                self.took(one)
            found = run(own, *tensors)
            for one in found if tensors and isinstance(found, list) else ():
                self.gave(one)
            return found

        tensor.copy_from_cpu, tensor.copy_to_cpu, predictor.run = copy_from_cpu, copy_to_cpu, run_predictor

    def save(self, path: Path) -> None:
        """Write the tape; a half-written one is never seen."""
        beside = path.with_name(f".{os.getpid()}.{path.name}")
        arrays = {f"output_{number:06d}": value for number, value in enumerate(self.outputs)}
        arrays |= {"inputs": np.array(self.inputs), "dropped": np.array(self.dropped)}
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(beside, **arrays)  # type: ignore[arg-type]  # numpy's stub takes a name for one of its own
        beside.replace(path)


def main() -> None:
    """Run the program of the command line, and exit as it does."""
    out, program = Path(sys.argv[1]).absolute(), sys.argv[2:]
    tape = Tape()
    tape.listen()
    sys.argv = program
    sys.path[0] = str(Path(program[0]).absolute().parent)
    try:
        runpy.run_path(program[0], run_name="__main__")
    finally:
        tape.save(out)
    kept = f"{len(tape.inputs)} inputs, {len(tape.outputs)} outputs"
    print(f"recorded: {kept}" + (f", {tape.dropped} left out" if tape.dropped else ""))


if __name__ == "__main__":
    main()
