"""The exported model in Paddle Inference and onnxruntime, held against the training engine."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path

import numpy as np

from tipchain.core.files import atomic_write
from tipchain.core.json_text import Json, JsonObject
from tipchain.core.language import clean
from tipchain.core.machine import how_ended, kept_import, start_process
from tipchain.errors import Outcome
from tipchain.framework_types import Array, Model, Nested
from tipchain.frameworks.base import flatten_outputs
from tipchain.frameworks.paddle_export import EngineError, Predictor, output_tensors, program_files, save_program
from tipchain.modes import parse_device
from tipchain.numbers.dumps import load_record, save_record
from tipchain.numbers.tolerance import DEFAULTS, ROUGH, ULPS, Tolerance
from tipchain.numbers.verdicts import Verdict, compare
from tipchain.parity.case import LABEL
from tipchain.parity.envelope import FACTOR
from tipchain.parity.stages import judging
from tipchain.parity.stages.backward import NOISE_RUNS
from tipchain.parity.stages.bench import Bench, Recording, fake_batch
from tipchain.parity.stages.judging import Dumps, Judged, Rules, details

# An exported program in onnxruntime: converted by paddle2onnx, and run, in a process of its own.
#
# paddle2onnx aborts the process that it runs in when it meets an operator that it cannot convert, and both libraries
# print as they like. What it is about to do and how it ended stand in ``state.json`` beside the program, its outputs in
# ``outputs.npy``.
#
# Source: https://github.com/PaddlePaddle/Paddle2ONNX and https://onnxruntime.ai/docs/api/python/api_summary.html


PACKAGES = ("paddle2onnx", "onnxruntime")
HOW_TO_INSTALL = "pip install 'tipchain[onnx]' (paddle2onnx has wheels for Python 3.10 to 3.12)"
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
"""Names in Paddle 2, and with it paddle2onnx, of operators of Paddle 3 that are not alike to the eye."""
CONVERTING = "converting the program"
FAILED = re.compile(r"Failed to convert PaddlePaddle model: (.*)")
"""How paddle2onnx 2.1 prints why it converts nothing; mostly it ends the process then."""
NOT_CONVERTED = "paddle2onnx cannot convert the program"
LEFT_OUT = "`inference: {onnx: false}` in the case leaves ONNX out"
STATE, OUTPUTS, MODEL = "state.json", "outputs.npy", "model.onnx"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEnd:
    """How an engine ended.

    Attributes:
        outputs: by batch, the outputs in the program's order.
        errors: by batch, why it could not be run; under ``""`` why none could be.
        versions: of the engine's packages, as far as it came.
        skipped: why it was left out.
    """

    outputs: Mapping[str, Sequence[Array]] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    skipped: str = ""


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
        self.process = start_process(work, folder, opset, tuple(batches), log=log)

    def __enter__(self) -> OnnxProcess:  # noqa: PYI034  (typing.Self is not in Python 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.join()

    def result(self) -> EngineEnd:
        """Wait for the process, and return how it ended."""
        self.process.join()
        code = self.process.exitcode
        assert code is not None
        state: dict[str, Json] = {"doing": "starting", "versions": {}}
        if (self.folder / STATE).is_file():
            state = json.loads((self.folder / STATE).read_text())
        if code == 0 and "errors" in state:
            outputs: dict[str, list[Array]] = {}
            for key, array in load_record(self.folder / OUTPUTS).arrays.items() if state["outputs"] else ():
                outputs.setdefault(key.partition("/")[0], []).append(array)
            return EngineEnd(outputs=outputs, errors=state["errors"], versions=state["versions"])
        printed = _printed_reason(self.log.read_text(errors="replace")) if state["doing"] == CONVERTING else ""
        reason = f"{NOT_CONVERTED}: {printed}" if printed else f"the process {how_ended(code)} while {state['doing']}"
        if state.get("unsupported"):
            reason += f"; paddle2onnx does not list: {', '.join(state['unsupported'])}"
        if state["doing"] == CONVERTING:
            reason += f"; {LEFT_OUT}"
        return EngineEnd(errors={"": f"{reason}; log: {self.log}"}, versions=state["versions"])


def work(folder: Path, opset: int, batches: Iterable[str]) -> None:
    """Convert the program in ``folder``, run it on every batch, and leave state and outputs there."""
    state: dict[str, Json] = {"versions": {}}

    def say(**facts: object) -> None:
        """Rewrite the state in `STATE`, for whoever is left when this process is gone."""
        state.update(facts)
        atomic_write(folder / STATE, json.dumps(state))

    say(doing="importing paddle2onnx and onnxruntime")
    with kept_import("paddle"):  # which paddle2onnx imports
        import onnxruntime
        import paddle2onnx

    say(
        doing=CONVERTING,
        versions={"paddle2onnx": str(paddle2onnx.__version__), "onnxruntime": str(onnxruntime.__version__)},
        unsupported=_without_converter(folder),
    )
    try:
        _convert(folder, opset)
        say(doing="loading the ONNX model", unsupported=[])
        session = _session(folder / MODEL)
    except EngineError as error:
        say(errors={"": str(error)}, outputs=0)
        return
    inputs = load_record(folder / "inputs.npy").arrays
    outputs: dict[str, Array] = {}
    errors: dict[str, str] = {}
    for batch in batches:
        say(doing=f"running it on {batch}")
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
    say(errors=errors, outputs=len(outputs))


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
    listed = {*get_all_supported_operators_pir(), *get_all_supported_operators(), "data", "feed", "fetch"}
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


# Inference: one exported program, in Paddle Inference and in onnxruntime, held against the training engine.
#
# Keys are ``<engine>/<output>@batch=<n>`` with the engines ``paddle_inference`` and ``onnx``; the reference's dump has
# the training engine's outputs under the same keys.


PADDLE, ONNX = "paddle_inference", "onnx"
Batches = Mapping[str, Mapping[str, Array]]
"""Inputs by name, by the batch's name."""


def record(bench: Bench) -> Recording:
    """Outputs of both engines as the port's dump, those of the eager model in eval mode as the reference's."""
    settings, model = bench.case.inference, bench.eval_model()
    sizes = settings.batch_sizes
    batches = {f"batch={size}": {k: v for k, v in fake_batch(bench.case, size).items() if k != LABEL} for size in sizes}
    # What the training engine makes of the batches, in the exported program's order; the first is run twice.
    expected: dict[str, list[Array]] = {}
    names: list[str] = []
    for batch, inputs in batches.items():
        names, expected[batch] = _eager(bench, model, inputs)
    first = next(iter(batches))
    _, again = _eager(bench, model, batches[first])
    repeats = all(np.array_equal(one, other, equal_nan=True) for one, other in zip(expected[first], again, strict=True))
    with tempfile.TemporaryDirectory(prefix="inference.", dir=bench.folder) as name:
        folder = Path(name)
        save_program(model, [spec for spec in bench.case.inputs.values() if spec.name != LABEL], folder=folder)
        engines = _run_engines(bench, folder, batches)
    # What an engine could not run has no key.
    arrays: dict[str, Array] = {}
    reference: dict[str, Array] = {}
    for name, engine in engines.items():
        for batch, outputs in engine.outputs.items():
            keys = [f"{name}/{output}@{batch}" for output in names]
            extra = [f"{name}/output {number}@{batch}" for number in range(len(keys), len(outputs))]
            reference |= dict(zip(keys, expected[batch], strict=True))
            arrays |= dict(zip([*keys, *extra], outputs, strict=False))
    details: JsonObject = {
        "engines": {
            name: {"skipped": engine.skipped, "errors": engine.errors, "versions": engine.versions}
            for name, engine in engines.items()
        },
        "repeats": repeats,
        "moved": _moved(bench, model, batches, arrays, reference) if repeats else {},
    }
    return Recording(arrays=arrays, reference=reference, details=details)


def _eager(bench: Bench, model: Model, inputs: Mapping[str, Array]) -> tuple[list[str], list[Array]]:
    """Return names and values of the model's outputs, in the exported program's order."""
    framework = bench.framework
    with framework.inference():
        output = model(*(framework.tensor(array) for array in inputs.values()))
    named = flatten_outputs(framework, output, bench.case.outputs)
    names: dict[int, list[str]] = {}
    for name, tensor in named.items():
        names.setdefault(id(tensor), []).append(name)  # a tensor returned twice has two names
    ordered = output_tensors(output)
    return [names[id(tensor)].pop(0) for tensor in ordered], [framework.array(tensor) for tensor in ordered]


def _moved(
    bench: Bench, model: Model, batches: Batches, arrays: Mapping[str, Array], reference: Mapping[str, Array]
) -> dict[str, Json]:
    """Return how far weights that are a few units in the last place apart move the outputs that an engine gives otherwise."""
    compared = compare(reference, arrays, DEFAULTS["inference"])
    apart = [one.subject for one in compared if one.outcome is Outcome.FAIL and one.diff is not None and one.diff.size]
    moved = dict.fromkeys(apart, 0.0)
    of = {key: key.partition("/")[2].rpartition("@") for key in apart}
    for number in range(NOISE_RUNS) if apart else ():
        bench.nudge(model, number)
        bench.framework.set_training(model, training=False)
        runs = {batch: _eager(bench, model, batches[batch]) for _, _, batch in of.values()}
        for key, (output, _, batch) in of.items():
            names, outputs = runs[batch]
            far = outputs[names.index(output)].astype(np.float64) - reference[key]
            moved[key] = max(moved[key], float(np.abs(far).max()))
    return {**moved}


def _run_engines(bench: Bench, folder: Path, batches: Batches) -> dict[str, EngineEnd]:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing or not bench.case.inference.onnx:
        reason = f"{' and '.join(missing)} not installed: {HOW_TO_INSTALL}"
        left_out = {ONNX: EngineEnd(skipped=reason)} if bench.case.inference.onnx else {}
        return {PADDLE: _run_paddle_inference(bench, folder, batches), **left_out}
    log = bench.folder / "inference_onnx.log"
    with OnnxProcess(folder, opset=bench.case.inference.opset, batches=batches, log=log) as process:
        return {PADDLE: _run_paddle_inference(bench, folder, batches), ONNX: process.result()}


def _run_paddle_inference(bench: Bench, folder: Path, batches: Batches) -> EngineEnd:
    device = parse_device(getattr(bench.framework, "place", "cpu"))
    versions = bench.framework.versions()
    try:
        predictor = Predictor(folder, device=device, threads=int(os.environ.get("OMP_NUM_THREADS", "1")))
    except EngineError as error:
        return EngineEnd(errors={"": str(error)}, versions=versions)
    outputs: dict[str, Sequence[Array]] = {}
    errors: dict[str, str] = {}
    for batch, inputs in batches.items():
        try:
            outputs[batch] = predictor.run(inputs)
        except EngineError as error:  # noqa: PERF203  (the other batches still count)
            errors[batch] = str(error)
    return EngineEnd(outputs=outputs, errors=errors, versions=versions)


# Judge inference: every output of each engine, and what kept an engine from giving one.


STAGE = "inference"
NOTHING = "nothing was compared: no arrays"


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare the outputs of both engines with the training engine's; an engine left out is a SKIP with the reason."""
    facts = details(dumps.port)
    engines: JsonObject = facts.get("engines") or {}
    missing = [verdict for name, engine in engines.items() for verdict in _missing(dumps, name, engine)]
    if not dumps.port.arrays and not dumps.reference.arrays and missing:
        return Judged(verdicts=missing)
    judged = judging.judge_arrays(dumps, rules)
    rounded = [_rounded(verdict, rules, facts.get("moved", {})) for verdict in judged.verdicts]
    judged = replace(judged, verdicts=rounded)
    versions = {name: engine.get("versions", {}).items() for name, engine in engines.items()}
    return replace(
        judged,
        verdicts=[*(_explained(dumps, judged, verdict, facts) for verdict in rounded), *missing],
        notes=[f"{name}: {', '.join(map(' '.join, found))}" for name, found in versions.items() if found],
    )


def _rounded(verdict: Verdict, rules: Rules, moved: JsonObject) -> Verdict:
    """Return a pass for a failure by the default tolerance that rounding alone makes."""
    key = verdict.subject
    reach = moved.get(key)
    if verdict.outcome is not Outcome.FAIL or verdict.diff is None or reach is None or rules.asks(STAGE, key):
        return verdict
    most, allowed = verdict.diff.max_abs, min(FACTOR * reach, ROUGH * verdict.diff.expected_max_abs)
    if not most <= allowed:
        return verdict
    told = (
        f"max {most:.3g} · allowed {allowed:.3g}: weights {ULPS} units in the last place apart move it by {reach:.3g}"
    )
    return replace(verdict, outcome=Outcome.PASS, reason=told, share=most / allowed)


def _missing(dumps: Dumps, name: str, engine: JsonObject) -> Iterator[Verdict]:
    """Yield a verdict for everything that an engine did not give."""
    if engine.get("skipped"):
        yield Verdict(Outcome.SKIP, name, engine["skipped"])
        return
    ran = {key.rpartition("@")[2] for key in dumps.port.arrays if key.startswith(f"{name}/")}
    for batch, message in engine.get("errors", {}).items():
        others = f"; it runs at {', '.join(sorted(ran))}: the program is not of any batch size" if batch and ran else ""
        yield Verdict(Outcome.ERROR, f"{name}@{batch}" if batch else name, message + others)
    if not engine.get("errors") and not ran:
        yield Verdict(Outcome.ERROR, name, f"{NOTHING} of this engine")


def _explained(dumps: Dumps, judged: Judged, verdict: Verdict, facts: Mapping[str, object]) -> Verdict:
    """Add evidence of the other outputs to a failure's cause."""
    if verdict.outcome is not Outcome.FAIL or verdict.diff is None:
        return verdict
    engine, _, output = verdict.subject.partition("/")
    same = f"{engine}/{output.rpartition('@')[0]}@"
    passing = [one.subject for one in judged.verdicts if one.outcome is Outcome.PASS]
    if facts.get("repeats") is False:
        hint = "the training engine itself gives other values when it runs twice: a layer is random in eval mode"
    elif equal := [one.removeprefix(same) for one in passing if one.startswith(same)]:
        hint = f"equal at {', '.join(equal)}: what the program computes depends on the batch size"
    elif other := _agreeing_engine(dumps, verdict.subject, judged.tolerances[verdict.subject]):
        hint = (
            f"{other} gives the same as {engine}: the export differs from the model "
            "(a layer exported in train mode, or code that takes another path while it is traced)"
        )
    elif engine == ONNX and f"{PADDLE}/{output}" in passing:
        hint = (
            "paddle2onnx converts an operator to another one, for Paddle Inference gives the model's output; "
            "`inference: {onnx: false}` in the case leaves ONNX out"
        )
    else:
        return verdict
    return replace(verdict, reason=f"{hint}; {verdict.reason}")


def _agreeing_engine(dumps: Dumps, key: str, tolerance: Tolerance) -> str | None:
    """Return another engine whose output equals this one's."""
    engine, _, output = key.partition("/")
    for other, array in dumps.port.arrays.items():
        name, _, theirs = other.partition("/")
        if name != engine and theirs == output:
            (verdict,) = compare({key: array}, {key: dumps.port.arrays[key]}, tolerance)
            if verdict.outcome is Outcome.PASS:
                return name
    return None
