"""The exported model in Paddle Inference and onnxruntime, held against the training engine."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tipchain.core.json_text import Json, JsonObject
from tipchain.core.language import clean
from tipchain.core.machine import how_ended, kept_import, start_process
from tipchain.errors import Outcome
from tipchain.framework_types import Array, Model
from tipchain.frameworks.base import flatten_outputs
from tipchain.frameworks.paddle_export import EngineError, Predictor, output_tensors, program_files, save_program
from tipchain.modes import parse_device
from tipchain.numbers.tolerance import DEFAULTS, ROUGH, ULPS
from tipchain.numbers.verdicts import Verdict, compare
from tipchain.parity.case import LABEL
from tipchain.parity.envelope import FACTOR
from tipchain.parity.stages import judging
from tipchain.parity.stages.bench import Bench, Recording, fake_batch
from tipchain.parity.stages.judging import Dumps, Judged, Rules, details
from tipchain.weights.structure import group_by

# An exported program in onnxruntime, converted by paddle2onnx in a process of its own: where paddle2onnx meets an operator
# that it cannot convert, it ends the process that it runs in, and it prints as it likes.
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
FAILED = re.compile(r"Failed to convert PaddlePaddle model: (.*)")
"""How paddle2onnx 2.1 prints why it converts nothing; mostly it ends the process then."""
UNLISTED = "paddle2onnx does not list: "
"""The beginning of the line that names operators without a converter, for paddle2onnx does not name them itself."""
NOT_CONVERTED = "paddle2onnx cannot convert the program"
LEFT_OUT = "`inference: {onnx: false}` in the case leaves ONNX out"
MODEL = "model.onnx"


def convert(folder: Path, opset: int) -> None:
    """Write the ONNX model of the program in ``folder``.

    Its own optimizers are left out: they fetch packages while they run, and hide their failures.
    """
    with kept_import("paddle"):  # which paddle2onnx imports
        import paddle2onnx

    from paddle2onnx.utils import get_all_supported_operators, get_all_supported_operators_pir

    program, weights = program_files(folder)
    if program.suffix == ".json":
        listed = {*get_all_supported_operators_pir(), *get_all_supported_operators(), "data", "feed", "fetch"}
        found = dict.fromkeys(_operators(json.loads(program.read_text())["program"]))
        if unlisted := [name for name in found if not is_listed(name, listed)]:
            print(f"{UNLISTED}{', '.join(unlisted)}", flush=True)
    paddle2onnx.export(str(program), str(weights), str(folder / MODEL), opset_version=opset, optimize_tool="")


def _why_not_converted(code: int, log: Path) -> str:
    """Return why the process that converts ended with ``code``, from what it printed."""
    lines = clean(log.read_text(errors="replace")).splitlines()
    printed = [found[1].strip() for line in lines if (found := FAILED.search(line))]
    if not printed and code == 1:  # an exception
        printed = [line for line in lines if line.strip()]
    reason = f"{NOT_CONVERTED}: {printed[-1]}" if printed else f"the process {how_ended(code)} while converting it"
    unlisted = [line for line in lines if line.startswith(UNLISTED)]
    return "; ".join([reason, *unlisted, LEFT_OUT, f"log: {log}"])


Engine = Callable[[Mapping[str, Array]], Sequence[Array]]
"""A loaded program: inputs by name to outputs in its order. It raises an `EngineError` where it cannot be run on them."""


def load_onnx(model: Path) -> Engine:
    """Return an ONNX model, loaded by onnxruntime.

    Raises:
        EngineError: onnxruntime cannot load it.
    """
    try:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # notes about unused initializers go nowhere
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise EngineError(f"onnxruntime cannot load the ONNX model: {_one_line(error)}") from error
    wanted = [one.name for one in session.get_inputs()]

    def run(inputs: Mapping[str, Array]) -> Sequence[Array]:
        if unknown := [name for name in wanted if name not in inputs]:
            raise EngineError(f"the ONNX model wants {unknown[0]!r}; given: {', '.join(inputs)}")
        try:
            outputs: Sequence[Array] = session.run(None, {name: inputs[name] for name in wanted})
        except Exception as error:  # onnxruntime raises classes of its own
            raise EngineError(f"onnxruntime cannot run it: {_one_line(error)}") from error
        return outputs

    return run


def is_listed(name: str, listed: Iterable[str]) -> bool:
    """Tell whether an operator of Paddle 3 is among names of Paddle 2, such as matmul among matmul_v2."""
    name = OLD_NAMES.get(name.rstrip("_"), name.rstrip("_"))
    plain = name.replace("_", "")
    return any(
        name in one.split("_") or one.startswith(name) or one.replace("_", "").startswith(plain) for one in listed
    )


def _operators(tree: object) -> Iterable[str]:
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
EngineEnd = tuple[Mapping[str, Sequence[Array]], JsonObject]
"""An engine's outputs by batch, in the program's order; why it was left out, what kept it from batches ("": from all), versions."""


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
        given = {one.name: (one.shape, one.dtype) for one in bench.case.inputs.values() if one.name != LABEL}
        save_program(model, given, folder)
        engines = _run_engines(bench, folder, batches)
    # What an engine could not run has no key.
    arrays: dict[str, Array] = {}
    reference: dict[str, Array] = {}
    for name, (given_out, _) in engines.items():
        for batch, outputs in given_out.items():
            keys = [f"{name}/{output}@{batch}" for output in names]
            extra = [f"{name}/output {number}@{batch}" for number in range(len(keys), len(outputs))]
            reference |= dict(zip(keys, expected[batch], strict=True))
            arrays |= dict(zip([*keys, *extra], outputs, strict=False))
    details: JsonObject = {
        "engines": {name: facts for name, (_, facts) in engines.items()},
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
    names = group_by(named, lambda name: id(named[name]))  # a tensor returned twice has two names
    ordered = output_tensors(output)
    return [names[id(tensor)].pop(0) for tensor in ordered], [framework.array(tensor) for tensor in ordered]


def _moved(
    bench: Bench, model: Model, batches: Batches, arrays: Mapping[str, Array], reference: Mapping[str, Array]
) -> dict[str, Json]:
    """Return how far rounding moves the outputs that an engine gives otherwise."""
    compared = compare(reference, arrays, DEFAULTS["inference"])
    apart = [one.subject for one in compared if one.outcome is Outcome.FAIL and one.diff is not None and one.diff.size]
    of = {key: key.partition("/")[2].rpartition("@") for key in apart}

    def run() -> dict[str, Array]:
        bench.framework.set_training(model, training=False)
        runs = {batch: _eager(bench, model, batches[batch]) for _, _, batch in of.values()}
        return {key: dict(zip(*runs[batch], strict=True))[output] for key, (output, _, batch) in of.items()}

    moved = bench.moved(model, run, {key: reference[key] for key in apart}) if apart else {}
    return {key: float(far) for key, far in moved.items()}


def _run_engines(bench: Bench, folder: Path, batches: Batches) -> dict[str, EngineEnd]:
    threads, versions = int(os.environ.get("OMP_NUM_THREADS", "1")), bench.framework.versions()
    device = parse_device(getattr(bench.framework, "place", "cpu"))
    paddle = partial(_run_engine, lambda: Predictor(folder, device=device, threads=threads).run, batches, versions)
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing or not bench.case.inference.onnx:
        reason = f"{' and '.join(missing)} not installed: {HOW_TO_INSTALL}"
        skipped: EngineEnd = {}, {"skipped": reason, "errors": {}, "versions": {}}
        return {PADDLE: paddle(), **({ONNX: skipped} if bench.case.inference.onnx else {})}
    log, named = bench.folder / "inference_onnx.log", packages_distributions()
    packages = {name: version(named[name][0]) for name in PACKAGES if name in named}  # or another build, such as -gpu
    process = start_process(convert, folder, bench.case.inference.opset, log=log)

    def converted() -> Engine:
        process.join()
        if process.exitcode:
            raise EngineError(_why_not_converted(process.exitcode, log))
        return load_onnx(folder / MODEL)

    try:  # Paddle's while the other converts
        return {PADDLE: paddle(), ONNX: _run_engine(converted, batches, packages)}
    finally:
        process.kill()
        process.join()


def _run_engine(load: Callable[[], Engine], batches: Batches, versions: Mapping[str, str]) -> EngineEnd:
    outputs: dict[str, Sequence[Array]] = {}
    errors: dict[str, str] = {}
    try:
        engine = load()
    except EngineError as error:
        errors[""] = str(error)
    for batch, inputs in () if errors else batches.items():
        try:
            outputs[batch] = engine(inputs)
        except EngineError as error:  # noqa: PERF203  (the other batches still count)
            errors[batch] = str(error)
    return outputs, {"skipped": "", "errors": errors, "versions": versions}


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
    own, tolerance = dumps.port.arrays[verdict.subject], judged.tolerances[verdict.subject]
    if facts.get("repeats") is False:
        hint = "the training engine itself gives other values when it runs twice: a layer is random in eval mode"
    elif equal := [one.removeprefix(same) for one in passing if one.startswith(same)]:
        hint = f"equal at {', '.join(equal)}: what the program computes depends on the batch size"
    elif agreeing := [
        name
        for (name, _, theirs), array in ((key.partition("/"), array) for key, array in dumps.port.arrays.items())
        if name != engine and theirs == output and compare({"": array}, {"": own}, tolerance)[0].outcome is Outcome.PASS
    ]:
        hint = (
            f"{agreeing[0]} gives the same as {engine}: the export differs from the model "
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
