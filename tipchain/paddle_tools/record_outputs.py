"""Run an inference program as it stands, and keep what its predictors take and give.

    python record_outputs.py OUT.npz PROGRAM [ARGUMENT ...]

The program runs in this process, as ``python PROGRAM ...`` would run it. ``OUT.npz`` gets, call by call, the SHA-256 of
what went into Paddle Inference, the images that were read for it, and the arrays that came out, as long as they take less
than `LIMIT_BYTES` together. The suite's interpreter runs this file, which therefore needs nothing but numpy and paddle.
"""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np

LIMIT_BYTES = 256 * 2**20
"""Outputs are kept up to here; what follows is only counted."""
IMAGES = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


class Tape:
    """What predictors took and gave, in order."""

    def __init__(self) -> None:
        self.inputs: list[str] = []
        self.outputs: list[np.ndarray] = []
        self.held = self.dropped = 0
        self.runs: list[list[str]] = []  # the images of each run
        self.run_of: list[int] = []  # by output
        self._read: list[str] = []
        self._taken: list[str] = []
        self._images_of: dict[tuple[str, ...], list[str]] = {}
        self._cv2 = False

    def took(self, array: object) -> None:
        """Note an input."""
        value = np.ascontiguousarray(array)
        head = f"{value.dtype.str}{value.shape}".encode()
        self.inputs.append(hashlib.sha256(head + value.tobytes()).hexdigest())
        self._taken.append(self.inputs[-1])

    def ran(self) -> None:
        """Note that a predictor runs, on the images read since the last time, or on the same input once more."""
        key = tuple(self._taken)
        self._images_of.setdefault(key, self._read)
        self.runs.append(self._read or self._images_of[key])
        self._read, self._taken = [], []

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
        self.run_of.append(len(self.runs) - 1)

    def read(self, path: object) -> None:
        """Note an image that is read."""
        if isinstance(path, str | os.PathLike) and str(path).lower().endswith(IMAGES):
            self._read.append(os.path.realpath(path))

    def hear(self, event: str, arguments: tuple[object, ...]) -> None:
        """Note what Python opens to read; OpenCV opens files by itself, and is asked from when it is there."""
        if event != "open":
            return
        mode = arguments[1]
        if mode is None or (isinstance(mode, str) and mode.startswith("r")):
            self.read(arguments[0])
        cv2: Any = sys.modules.get("cv2")
        if not self._cv2 and cv2 is not None and hasattr(cv2, "imread"):
            self._cv2, imread = True, cv2.imread

            def noted_imread(filename: object, *more: object, **named: object) -> object:
                self.read(filename)
                return imread(filename, *more, **named)

            cv2.imread = noted_imread

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
            self.ran()
            found = run(own, *tensors)
            for one in found if tensors and isinstance(found, list) else ():
                self.gave(one)
            return found

        tensor.copy_from_cpu, tensor.copy_to_cpu, predictor.run = copy_from_cpu, copy_to_cpu, run_predictor
        sys.addaudithook(self.hear)

    def save(self, path: Path) -> None:
        """Write what was kept; one that is half-written is never seen."""
        beside = path.with_name(f".{os.getpid()}.{path.name}")
        arrays = {f"output_{number:06d}": value for number, value in enumerate(self.outputs)}
        arrays |= {"inputs": np.array(self.inputs), "dropped": np.array(self.dropped)}
        arrays |= {"images": np.array([json.dumps(one) for one in self.runs]), "run_of": np.array(self.run_of)}
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(beside, **arrays)  # type: ignore[arg-type]  # numpy's stub takes a name for one of its own
        beside.replace(path)


def main() -> None:
    """Run the program of the command line; what it exits with is what this exits with."""
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
