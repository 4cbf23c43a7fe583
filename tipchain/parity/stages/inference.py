"""Inference: one exported program, in Paddle Inference and in onnxruntime, held against the port."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tipchain.core.json_text import Json, JsonObject
from tipchain.framework_types import Array, Model
from tipchain.frameworks.base import flatten_outputs
from tipchain.frameworks.paddle_export import EngineError, Predictor, output_tensors, save_program
from tipchain.modes import parse_device
from tipchain.numbers.tolerance import Tolerance
from tipchain.numbers.verdicts import Verdict, compare
from tipchain.outcome import Outcome
from tipchain.parity.case import LABEL
from tipchain.parity.onnx_engine import HOW_TO_INSTALL, EngineEnd, OnnxProcess, missing_packages
from tipchain.parity.stages import judging
from tipchain.parity.stages.bench import Bench, Recording, fake_batch
from tipchain.parity.stages.judging import Dumps, Judged, Rules, details

# Inference: one exported program, in Paddle Inference and in onnxruntime, held against the training engine.
#
# Keys are ``<engine>/<output>@batch=<n>`` with the engines ``paddle_inference`` and ``onnx``; the reference's dump has
# the training engine's outputs under the same keys.


PADDLE, ONNX = "paddle_inference", "onnx"
Batches = Mapping[str, Mapping[str, Array]]
"""Inputs by name, by the batch's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the training engine makes of the batches.

    Attributes:
        outputs: by batch, the outputs in the exported program's order.
        names: of these outputs.
        repeats: whether the same batch gave the same outputs when it ran once more.
    """

    outputs: Mapping[str, Sequence[Array]]
    names: Sequence[str]
    repeats: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What an engine made of them: `EngineEnd`, or why it was left out."""

    ended: EngineEnd = field(default_factory=EngineEnd)
    skipped: str = ""

    def facts(self) -> dict[str, Json]:
        """Return what the dump's JSON says about it."""
        return {"skipped": self.skipped, "errors": self.ended.errors, "versions": self.ended.versions}


def record(bench: Bench) -> Recording:
    """Outputs of both engines as the port's dump, those of the eager model in eval mode as the reference's."""
    settings, model = bench.case.inference, bench.eval_model()
    batches = {f"batch={size}": _inputs(bench, size) for size in settings.batch_sizes}
    expected = _run_model(bench, model, batches)
    with tempfile.TemporaryDirectory(prefix="inference.", dir=bench.folder) as name:
        folder = Path(name)
        save_program(model, [spec for spec in bench.case.inputs.values() if spec.name != LABEL], folder=folder)
        engines = _run_engines(bench, folder, batches)
    return _recording(expected, engines)


def _inputs(bench: Bench, size: int) -> dict[str, Array]:
    return {name: array for name, array in fake_batch(bench.case, size).items() if name != LABEL}


def _run_model(bench: Bench, model: object, batches: Batches) -> Expected:
    outputs: dict[str, list[Array]] = {}
    names: list[str] = []
    for batch, inputs in batches.items():
        names, outputs[batch] = _eager(bench, model, inputs)
    first = next(iter(batches))
    _, again = _eager(bench, model, batches[first])
    repeats = all(np.array_equal(one, other, equal_nan=True) for one, other in zip(outputs[first], again, strict=True))
    return Expected(outputs=outputs, names=names, repeats=repeats)


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


def _run_engines(bench: Bench, folder: Path, batches: Batches) -> dict[str, Engine]:
    if not bench.case.inference.onnx:
        return {PADDLE: _run_paddle_inference(bench, folder, batches)}
    missing = missing_packages()
    if missing:
        reason = f"{' and '.join(missing)} not installed: {HOW_TO_INSTALL}"
        return {PADDLE: _run_paddle_inference(bench, folder, batches), ONNX: Engine(skipped=reason)}
    log = bench.folder / "inference_onnx.log"
    with OnnxProcess(folder, opset=bench.case.inference.opset, batches=batches, log=log) as process:
        engines = {PADDLE: _run_paddle_inference(bench, folder, batches)}
        return {**engines, ONNX: Engine(ended=process.result())}


def _run_paddle_inference(bench: Bench, folder: Path, batches: Batches) -> Engine:
    device = parse_device(getattr(bench.framework, "place", "cpu"))
    versions = bench.framework.versions()
    try:
        predictor = Predictor(folder, device=device, threads=int(os.environ.get("OMP_NUM_THREADS", "1")))
    except EngineError as error:
        return Engine(ended=EngineEnd(errors={"": str(error)}, versions=versions))
    outputs: dict[str, Sequence[Array]] = {}
    errors: dict[str, str] = {}
    for batch, inputs in batches.items():
        try:
            outputs[batch] = predictor.run(inputs)
        except EngineError as error:  # noqa: PERF203  (the other batches still count)
            errors[batch] = str(error)
    return Engine(ended=EngineEnd(outputs=outputs, errors=errors, versions=versions))


def _recording(expected: Expected, engines: Mapping[str, Engine]) -> Recording:
    """Put each engine's outputs beside the training engine's; what an engine could not run has no key."""
    arrays: dict[str, Array] = {}
    reference: dict[str, Array] = {}
    for name, engine in engines.items():
        for batch, outputs in engine.ended.outputs.items():
            keys = [f"{name}/{output}@{batch}" for output in expected.names]
            extra = [f"{name}/output {number}@{batch}" for number in range(len(keys), len(outputs))]
            reference |= dict(zip(keys, expected.outputs[batch], strict=True))
            arrays |= dict(zip([*keys, *extra], outputs, strict=False))
    facts = {"engines": {name: engine.facts() for name, engine in engines.items()}}
    return Recording(arrays=arrays, reference=reference, details={**facts, "repeats": expected.repeats})


# Judge inference: every output of each engine, and what kept an engine from giving one.


NOTHING = "nothing was compared: no arrays"


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare the outputs of both engines with the training engine's; an engine left out is a SKIP with the reason."""
    facts = details(dumps.port)
    engines: JsonObject = facts.get("engines") or {}
    missing = tuple(verdict for name, engine in engines.items() for verdict in _missing(dumps, name, engine))
    if not dumps.port.arrays and not dumps.reference.arrays and missing:
        return Judged(verdicts=missing)
    judged = judging.judge_arrays(dumps, rules)
    verdicts = tuple(_explained(dumps, judged, verdict, facts) for verdict in judged.verdicts)
    return replace(judged, verdicts=verdicts + missing, notes=tuple(_notes(engines)))


def _missing(dumps: Dumps, name: str, engine: JsonObject) -> Iterator[Verdict]:
    """Yield a verdict for everything that an engine did not give."""
    subject = f"{dumps.stage}/{name}"
    if engine.get("skipped"):
        yield Verdict(outcome=Outcome.SKIP, subject=subject, reason=engine["skipped"])
        return
    for batch, message in engine.get("errors", {}).items():
        place = f"{subject}@{batch}" if batch else subject
        yield Verdict(outcome=Outcome.ERROR, subject=place, reason=f"{message}{_other_batches(dumps, name, batch)}")
    if not engine.get("errors") and not any(key.startswith(f"{name}/") for key in dumps.port.arrays):
        yield Verdict(outcome=Outcome.ERROR, subject=subject, reason=f"{NOTHING} of this engine")


def _other_batches(dumps: Dumps, name: str, batch: str) -> str:
    ran = {key.rpartition("@")[2] for key in dumps.port.arrays if key.startswith(f"{name}/")}
    if not batch or not ran:
        return ""
    return f"; it runs at {', '.join(sorted(ran))}: the program is not of any batch size"


def _explained(dumps: Dumps, judged: Judged, verdict: Verdict, facts: Mapping[str, object]) -> Verdict:
    """Add to a failure what the other outputs tell about its cause."""
    if verdict.outcome is not Outcome.FAIL or verdict.diff is None:
        return verdict
    key = verdict.subject.partition("/")[2]
    engine, _, output = key.partition("/")
    name = output.rpartition("@")[0]
    if facts.get("repeats") is False:
        hint = "the training engine itself gives other values when it runs twice: a layer is random in eval mode"
    elif equal := _passing_batches(judged, f"{dumps.stage}/{engine}/{name}@"):
        hint = f"equal at {', '.join(equal)}: what the program computes depends on the batch size"
    elif other := _agreeing_engine(dumps, key, judged.tolerances[verdict.subject]):
        hint = (
            f"{other} gives the same as {engine}: the export differs from the model "
            "(a layer exported in train mode, or code that takes another path while it is traced)"
        )
    else:
        return verdict
    return replace(verdict, reason=f"{verdict.reason}; {hint}")


def _passing_batches(judged: Judged, prefix: str) -> list[str]:
    return [
        verdict.subject.removeprefix(prefix)
        for verdict in judged.verdicts
        if verdict.subject.startswith(prefix) and verdict.outcome is Outcome.PASS
    ]


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


def _notes(engines: JsonObject) -> Iterator[str]:
    for name, engine in engines.items():
        versions = ", ".join(f"{package} {version}" for package, version in engine.get("versions", {}).items())
        if versions:
            yield f"{name}: {versions}"
