"""An exported program in onnxruntime: converted by paddle2onnx, and run, in a process of its own.

paddle2onnx aborts the process that it runs in when it meets an operator that it cannot convert, and both libraries
print as they like. Run as ``python -m tipchain.parity.onnx_engine JOB.json``; what it is about to do and how it ended
stand in ``state.json`` beside the job, its outputs in ``outputs.npy``.

Source: https://github.com/PaddlePaddle/Paddle2ONNX and https://onnxruntime.ai/docs/api/python/api_summary.html
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from tipchain.core.files import atomic_write
from tipchain.core.json_text import Json
from tipchain.core.language import clean
from tipchain.core.machine import kept_import
from tipchain.framework_types import Array, Nested
from tipchain.frameworks.paddle_export import EngineError, program_files
from tipchain.numbers.dumps import load_record, save_record

PACKAGES = ("paddle2onnx", "onnxruntime")
HOW_TO_INSTALL = "pip install 'tipchain[onnx]' (paddle2onnx has wheels for Python 3.10 to 3.12)"
OWN_OPERATORS = ("data", "feed", "fetch")
OLD_NAMES = {
    "subtract": "elementwise_sub",
    "multiply": "elementwise_mul",
    "divide": "elementwise_div",
    "maximum": "elementwise_max",
    "minimum": "elementwise_min",
    "remainder": "elementwise_mod",
    "floor_divide": "elementwise_floordiv",
    "arange": "range",
    "nonzero": "where_index",
    "flatten": "flatten2",
}
"""What Paddle 2, and with it paddle2onnx, calls operators of Paddle 3 that are not alike to the eye."""
CONVERTING = "converting the program"
FAILED = re.compile(r"Failed to convert PaddlePaddle model: (.*)")
"""How paddle2onnx 2.1 prints why it converts nothing; mostly it ends the process then."""
NOT_CONVERTED = "paddle2onnx cannot convert the program"
LEFT_OUT = "`inference: {onnx: false}` in the case leaves ONNX out"
JOB, STATE, OUTPUTS, MODEL = "onnx.json", "state.json", "outputs.npy", "model.onnx"


def missing_packages() -> list[str]:
    """Return those of `PACKAGES` that are not installed."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEnd:
    """How it ended.

    Attributes:
        outputs: by batch, the outputs in the program's order.
        errors: by batch, why it could not be run; under ``""`` why none could be.
        versions: of paddle2onnx and onnxruntime, as far as it came.
    """

    outputs: Mapping[str, Sequence[Array]] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


class OnnxProcess:
    """A process that converts the program in ``folder`` and runs it on batches; it works while others do.

    Args:
        folder: holds the exported program, and gets the files of this process.
        opset: operator set to convert to.
        batches: inputs by name, by a batch's name.
        log: gets what the process prints.
    """

    def __init__(self, folder: Path, *, opset: int, batches: Mapping[str, Mapping[str, Array]], log: Path) -> None:
        self.folder, self.log = folder, log
        save_record(
            folder / "inputs.npy",
            {f"{batch}/{name}": array for batch, inputs in batches.items() for name, array in inputs.items()},
        )
        atomic_write(folder / JOB, json.dumps({"opset": opset, "batches": list(batches)}))
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tipchain.parity.onnx_engine", str(folder / JOB)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> OnnxProcess:  # noqa: PYI034  (typing.Self is not in Python 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def result(self) -> EngineEnd:
        """Wait for the process, and return how it ended."""
        code = self.process.wait()
        state: dict[str, Json] = {"doing": "starting", "versions": {}}
        if (self.folder / STATE).is_file():
            state = json.loads((self.folder / STATE).read_text())
        if code == 0 and "errors" in state:
            outputs: dict[str, list[Array]] = {}
            for key, array in load_record(self.folder / OUTPUTS).arrays.items() if state["outputs"] else ():
                outputs.setdefault(key.partition("/")[0], []).append(array)
            return EngineEnd(outputs=outputs, errors=state["errors"], versions=state["versions"])
        how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        printed = _printed_reason(self.log.read_text(errors="replace")) if state["doing"] == CONVERTING else ""
        reason = f"{NOT_CONVERTED}: {printed}" if printed else f"the process {how} while {state['doing']}"
        if state.get("unsupported"):
            reason += f"; paddle2onnx does not list: {', '.join(state['unsupported'])}"
        if state["doing"] == CONVERTING:
            reason += f"; {LEFT_OUT}"
        return EngineEnd(errors={"": f"{reason}; log: {self.log}"}, versions=state["versions"])


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


class _Progress:
    """What `STATE` says, rewritten with every step, for whoever is left when this process is gone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state: dict[str, Json] = {"versions": {}}

    def say(self, **facts: object) -> None:
        """Add facts to the state."""
        self.state.update(facts)
        atomic_write(self.path, json.dumps(self.state))


def work(folder: Path, opset: int, batches: Iterable[str]) -> None:
    """Convert the program in ``folder``, run it on every batch, and leave state and outputs there."""
    progress = _Progress(folder / STATE)
    progress.say(doing="importing paddle2onnx and onnxruntime")
    with kept_import("paddle"):  # which paddle2onnx imports
        import onnxruntime
        import paddle2onnx

    progress.say(
        doing=CONVERTING,
        versions={"paddle2onnx": str(paddle2onnx.__version__), "onnxruntime": str(onnxruntime.__version__)},
        unsupported=_without_converter(folder),
    )
    try:
        _convert(folder, opset)
        progress.say(doing="loading the ONNX model", unsupported=[])
        session = _session(folder / MODEL)
    except EngineError as error:
        progress.say(errors={"": str(error)}, outputs=0)
        return
    inputs = load_record(folder / "inputs.npy").arrays
    outputs: dict[str, Array] = {}
    errors: dict[str, str] = {}
    for batch in batches:
        progress.say(doing=f"running it on {batch}")
        try:
            ran = _run(
                session,
                {name.partition("/")[2]: array for name, array in inputs.items() if name.startswith(f"{batch}/")},
            )
            outputs |= {f"{batch}/{number}": array for number, array in enumerate(ran)}
        except EngineError as error:
            errors[batch] = str(error)
    if outputs:
        save_record(folder / OUTPUTS, outputs)
    progress.say(errors=errors, outputs=len(outputs))


def _convert(folder: Path, opset: int) -> None:
    """Write the ONNX model.

    Its own optimizers are left out: they fetch packages while they run, and hide their failures.
    """
    import paddle2onnx

    program, weights = program_files(folder)
    said = StringIO()
    try:
        with redirect_stdout(said):
            paddle2onnx.export(str(program), str(weights), str(folder / MODEL), opset_version=opset, optimize_tool="")
    except Exception as error:
        # It prints the reason and then stumbles over what it does not have.
        reason = _printed_reason(said.getvalue()) or _one_line(error)
        raise EngineError(f"{NOT_CONVERTED}: {reason}; {LEFT_OUT}") from error
    finally:
        print(said.getvalue(), flush=True)


def _printed_reason(printed: str) -> str:
    """Return why paddle2onnx converted nothing, as it printed that last; "" where it said nothing."""
    return next((found[1] for found in reversed(list(FAILED.finditer(clean(printed))))), "").strip()


def _session(model: Path) -> Nested:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # notes about unused initializers go nowhere
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    try:
        return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise EngineError(f"onnxruntime cannot load the ONNX model: {_one_line(error)}") from error


def _run(session: Nested, inputs: Mapping[str, Array]) -> Sequence[Array]:
    wanted = [one.name for one in session.get_inputs()]
    unknown = [name for name in wanted if name not in inputs]
    if unknown:
        raise EngineError(f"the ONNX model wants {unknown[0]!r}; given: {', '.join(inputs)}")
    try:
        outputs: Sequence[Array] = session.run(None, {name: inputs[name] for name in wanted})
    except Exception as error:  # onnxruntime raises classes of its own
        raise EngineError(f"onnxruntime cannot run it: {_one_line(error)}") from error
    return outputs


def _without_converter(folder: Path) -> list[str]:
    """Return the operators of the program that paddle2onnx does not list, for it does not name them itself."""
    from paddle2onnx.utils import get_all_supported_operators, get_all_supported_operators_pir

    program, _ = program_files(folder)
    if program.suffix != ".json":
        return []
    listed = {*get_all_supported_operators_pir(), *get_all_supported_operators(), *OWN_OPERATORS}
    found = _operators(json.loads(program.read_text())["program"])
    return [name for name in dict.fromkeys(found) if not is_listed(name, listed)]


def is_listed(name: str, listed: Iterable[str]) -> bool:
    """Tell whether an operator of Paddle 3 is among names of Paddle 2, such as matmul among matmul_v2."""
    name = OLD_NAMES.get(name.rstrip("_"), name.rstrip("_"))
    plain = name.replace("_", "")
    return any(
        name in one.split("_") or one.startswith(name) or one.replace("_", "").startswith(plain) for one in listed
    )


def _operators(tree: object) -> Iterable[str]:
    """Yield the names of Paddle's operators (dialect 1) in a serialized program, in order."""
    if isinstance(tree, dict):
        name = tree.get("#")
        if isinstance(name, str) and name.startswith("1.") and "I" in tree:
            yield name[2:]
        for value in tree.values():
            yield from _operators(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _operators(value)


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def main(argv: Sequence[str]) -> int:
    """Do the job in ``argv[0]``."""
    path = Path(argv[0])
    job = json.loads(path.read_text())
    work(path.parent, job["opset"], job["batches"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
