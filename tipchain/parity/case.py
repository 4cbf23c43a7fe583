"""An alignment case: a YAML file that names the two sides, their weights, inputs, stages and tolerances."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tipchain.errors import CaseError, UsageError, did_you_mean
from tipchain.modes import Mode
from tipchain.parity.defaults import is_looser, tolerance_for
from tipchain.parity.tolerance import METHODS, Tolerance
from tipchain.parity.yaml_lines import LinedYaml, load_yaml

STAGES = ("forward", "data", "metric", "loss", "backward", "train")
SIDES = ("torch", "paddle")
BUILDERS = ("model", "loss", "optimizer", "scheduler", "dataset", "metric")
NEEDED_BUILDERS: Mapping[str, tuple[str, ...]] = {
    "forward": ("model",),
    "data": ("dataset",),
    "metric": ("model", "dataset", "metric"),
    "loss": ("model", "loss"),
    "backward": ("model", "loss", "optimizer"),
    "train": ("model", "loss", "optimizer", "dataset", "metric"),
}
DTYPES = ("float32", "float64", "float16", "int64", "int32", "uint8", "bool")
Args = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One framework's builders, each ``"module:callable"`` or None."""

    model: str
    loss: str | None = None
    optimizer: str | None = None
    scheduler: str | None = None
    dataset: str | None = None
    metric: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One fake input: standard normal for floats, uniform integers in ``[low, high)`` otherwise."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    seed: int = 0
    low: int = 0
    high: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsSpec:
    """Where weights come from: a seeded initialization, or a torch file.

    Attributes:
        init: ``"kaiming"``, or None where ``torch`` names a file.
        seed: seed of the initialization.
        fit_head: whether the last Linear is fitted (ridge) on the training data.
        torch: a torch weight file, or None.
        names: Paddle's name of a parameter or buffer by torch's, where they differ.
    """

    init: str | None = "kaiming"
    seed: int = 0
    fit_head: bool = False
    torch: Path | None = None
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardSettings:
    """The backward stage: ``inputs`` is ``"fake"`` or ``"train_loader"``."""

    iterations: int = 5
    learning_rate: float = 1e-4
    training: bool = False
    inputs: str = "fake"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """The training stage, and the defaults of ``tools/train.py``.

    Attributes:
        epochs: epochs where the mode names none.
        batch_size: samples per step and device.
        learning_rate: initial learning rate.
        schedule_per: ``"epoch"`` or ``"iteration"``: when the scheduler is stepped.
        benchmark: published metric values; None where torch's own run is the benchmark.
    """

    epochs: int = 1
    batch_size: int = 4
    learning_rate: float = 1e-4
    schedule_per: str = "epoch"
    benchmark: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    """Evaluation loader: samples per batch, and how many batches the data stage keeps at most."""

    batch_size: int = 4
    max_batches: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeSettings:
    """What a mode changes: the data (``lite``, ``whole``) and the number of epochs."""

    data: str | None = None
    epochs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDeviation:
    """A tensor known to differ; fails when it stops deviating."""

    subject: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An alignment case, checked.

    Attributes:
        id: name; also the folder below ``test_tipc/output``.
        path: the YAML file.
        root: the project's root, where paths and imports start.
        digest: SHA-256 of the YAML file.
        sides: builders of ``"torch"`` and ``"paddle"``.
        outputs: names of the model's outputs, in order.
        tolerances: by stage, then by key; keys may be fnmatch patterns.
    """

    id: str
    path: Path
    root: Path
    digest: str
    sides: Mapping[str, Side]
    model_args: Args
    weights: WeightsSpec
    inputs: Mapping[str, InputSpec]
    outputs: tuple[str, ...]
    stages: tuple[str, ...]
    backward: BackwardSettings
    train: TrainSettings
    data: DataSettings
    optimizer_args: Args
    scheduler_args: Args
    tolerances: Mapping[str, Mapping[str, Tolerance]]
    modes: Mapping[str, ModeSettings]
    known_deviations: tuple[KnownDeviation, ...]
    seed: int

    def mode_settings(self, mode: Mode) -> ModeSettings:
        """Return what the case says about ``mode``."""
        return self.modes.get(mode.value, ModeSettings())

    def train_data(self, mode: Mode) -> str:
        """Return ``"lite"`` or ``"whole"``: the training data of ``mode``."""
        return self.mode_settings(mode).data or mode.train_data

    def eval_data(self, mode: Mode) -> str:
        """Return ``"lite"`` or ``"whole"``: the evaluation data of ``mode``."""
        return self.mode_settings(mode).data or mode.eval_data

    def epochs(self, mode: Mode) -> int:
        """Return the number of training epochs of ``mode``."""
        return self.mode_settings(mode).epochs or self.train.epochs


def load_case(path: str | Path) -> Case:
    """Read and check the case in ``path``.

    Raises:
        CaseError: unreadable, not YAML, an unknown or missing key, or a value of the wrong kind; the
            message names file, line, key, what was found and what was expected.
    """
    file = Path(path)
    if not file.is_file():
        raise CaseError("no such case file", file=file, expected="a YAML file such as configs/alexnet.yaml")
    document = load_yaml(file)
    reader = _Reader(file, document, (), document.data)
    return _case(reader, file)


def find_root(path: Path) -> Path:
    """Return the nearest folder above ``path`` with a pyproject.toml or a test_tipc, else its own folder."""
    start = path.resolve().parent
    for folder in (start, *start.parents):
        if (folder / "pyproject.toml").is_file() or (folder / "test_tipc").is_dir():
            return folder
    return start


def resolve(spec: str, root: Path) -> Callable[..., Any]:
    """Import and return the callable that ``"module:callable"`` names, with ``root`` on the import path.

    Raises:
        CaseError: the module cannot be found, has no such name, or the name is not callable.
    """
    module_name, _, name = spec.partition(":")
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            raise CaseError(
                f"cannot import {module_name!r}", key=spec, hint=f"imports start at {root}"
            ) from error
        raise
    if not hasattr(module, name):
        public = [known for known in vars(module) if not known.startswith("_")]
        raise CaseError(f"{module_name} has no {name!r}", key=spec, hint=did_you_mean(name, public))
    builder = getattr(module, name)
    if not callable(builder):
        raise CaseError("is not callable", key=spec, found=type(builder).__name__)
    result: Callable[..., Any] = builder
    return result


def source_file(spec: str, root: Path) -> Path | None:
    """Return the file that holds ``"module:callable"`` without importing the module itself, or None."""
    module_name = spec.partition(":")[0]
    for base in (root.joinpath(*module_name.split(".")),):
        for candidate in (base.with_suffix(".py"), base / "__init__.py"):
            if candidate.is_file():
                return candidate
    try:
        found = importlib.util.find_spec(module_name)
    except (ImportError, ValueError):
        return None
    return Path(found.origin) if found is not None and found.origin else None


class _Reader:
    """Checked access to one mapping of the document; remembers which keys were asked for."""

    def __init__(
        self, file: Path, document: LinedYaml, path: tuple[str, ...], data: Mapping[str, Any]
    ) -> None:
        self.file, self.document, self.path, self.data = file, document, path, data
        self.asked: list[str] = []

    def error(self, key: str | None, message: str, *, found: object = None, expected: object = None,
              hint: str | None = None) -> CaseError:  # fmt: skip
        path = self.path if key is None else (*self.path, key)
        return CaseError(
            message, file=self.file, line=self.document.line(path), key=".".join(path), found=found,
            expected=expected, hint=hint,
        )  # fmt: skip

    def value(self, key: str, kinds: type | tuple[type, ...], expected: str, *, default: Any = ...) -> Any:
        self.asked.append(key)
        if key not in self.data or (self.data[key] is None and default is not ...):
            if default is ...:
                raise self.error(key, "is missing", expected=expected)
            return default
        found = self.data[key]
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        if not isinstance(found, kinds) or (isinstance(found, bool) and bool not in kinds):
            raise self.error(key, "has the wrong kind of value", found=repr(found), expected=expected)
        return found

    def text(self, key: str, **default: Any) -> Any:
        return self.value(key, str, "a text", **default)

    def flag(self, key: str, default: bool) -> bool:
        return bool(self.value(key, bool, "true or false", default=default))

    def integer(self, key: str, default: int, *, least: int = 0) -> int:
        found = self.value(key, int, f"a whole number >= {least}", default=default)
        if found < least:
            raise self.error(key, "is too small", found=found, expected=f"a whole number >= {least}")
        return int(found)

    def positive(self, key: str, default: float) -> float:
        found = float(self.value(key, (int, float), "a number > 0", default=default))
        if not found > 0:
            raise self.error(key, "is not positive", found=found, expected="a number > 0")
        return found

    def choice(self, key: str, choices: Sequence[str], **default: Any) -> Any:
        found = self.text(key, **default)
        if found is not None and found not in choices:
            raise self.error(
                key,
                "is not known",
                found=found,
                expected=", ".join(choices),
                hint=did_you_mean(found, choices),
            )
        return found

    def mapping(self, key: str, **default: Any) -> _Reader | None:
        found = self.value(key, dict, "a mapping", **default)
        if found is None:
            return None
        return _Reader(self.file, self.document, (*self.path, key), {str(k): v for k, v in found.items()})

    def args(self, key: str) -> Args:
        found = self.value(key, dict, "a mapping of arguments", default={})
        return MappingProxyType({str(k): v for k, v in found.items()})

    def items(self, key: str, **default: Any) -> Sequence[Any]:
        found: Sequence[Any] = self.value(key, list, "a list", **default)
        return found

    def done(self, *more: str) -> None:
        """Refuse keys that nothing asked for."""
        known = [*self.asked, *more]
        for key in self.data:
            if key not in known:
                raise self.error(
                    key, "is not a known key", expected=", ".join(known), hint=did_you_mean(key, known)
                )


def _case(reader: _Reader, file: Path) -> Case:
    root = find_root(file)
    stages = _stages(reader)
    case = Case(
        id=_case_id(reader),
        path=file,
        root=root,
        digest=hashlib.sha256(file.read_bytes()).hexdigest(),
        sides=_sides(reader, stages),
        model_args=reader.args("model_args"),
        weights=_weights(reader, root),
        inputs=_inputs(reader, stages),
        outputs=_outputs(reader),
        stages=stages,
        backward=_backward(reader),
        train=_train(reader),
        data=_data(reader),
        optimizer_args=reader.args("optimizer"),
        scheduler_args=reader.args("scheduler"),
        tolerances=_tolerances(reader),
        modes=_modes(reader),
        known_deviations=_deviations(reader),
        seed=reader.integer("seed", 0),
    )
    reader.done()
    return case


def _case_id(reader: _Reader) -> str:
    name: str = reader.text("id")
    if not name or name.startswith(".") or any(sign in name for sign in "/\\\0 \n"):
        raise reader.error(
            "id", "cannot be a folder's name", found=repr(name), expected="a name such as alexnet"
        )
    return name


def _stages(reader: _Reader) -> tuple[str, ...]:
    found = reader.items("stages", default=list(STAGES))
    for number, stage in enumerate(found):
        if stage not in STAGES:
            raise CaseError(
                "is not a known stage", file=reader.file, key="stages", found=stage, expected=", ".join(STAGES),
                line=reader.document.line(("stages", str(number))), hint=did_you_mean(str(stage), STAGES),
            )  # fmt: skip
    if not found:
        raise reader.error("stages", "is empty", expected=f"some of {', '.join(STAGES)}")
    return tuple(stage for stage in STAGES if stage in found)


def _sides(reader: _Reader, stages: Sequence[str]) -> Mapping[str, Side]:
    sides = reader.mapping("sides")
    assert sides is not None
    result = {}
    for name in SIDES:
        side = sides.mapping(name)
        assert side is not None
        builders = {key: side.text(key, default=None) for key in BUILDERS}
        for key, spec in builders.items():
            if spec is not None and not all(
                part.strip() for part in (spec.partition(":")[0], spec.partition(":")[2])
            ):
                raise side.error(key, "is not a builder", found=repr(spec), expected="'module:callable'")
        for stage in stages:
            for key in NEEDED_BUILDERS[stage]:
                if builders[key] is None:
                    raise side.error(
                        key, f"is missing; the {stage} stage needs it", expected="'module:callable'"
                    )
        side.done()
        result[name] = Side(**builders)
    sides.done()
    return MappingProxyType(result)


def _weights(reader: _Reader, root: Path) -> WeightsSpec:
    weights = reader.mapping("weights", default=None)
    if weights is None:
        return WeightsSpec()
    torch = weights.text("torch", default=None)
    init = weights.choice("init", ("kaiming",), default=None if torch else "kaiming")
    if torch and init:
        raise weights.error("init", "cannot stand beside 'torch'", expected="either init or torch")
    spec = WeightsSpec(
        init=init,
        seed=weights.integer("seed", 0),
        fit_head=weights.flag("fit_head", default=False),
        torch=root / torch if torch else None,
        names={str(k): str(v) for k, v in weights.args("names").items()},
    )
    weights.done()
    return spec


def _inputs(reader: _Reader, stages: Sequence[str]) -> Mapping[str, InputSpec]:
    inputs = reader.mapping("inputs", default={})
    assert inputs is not None
    result = {}
    for name in inputs.data:
        one = inputs.mapping(name)
        assert one is not None
        shape = one.items("shape")
        if not shape or not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in shape):
            raise one.error(
                "shape", "is not a shape", found=shape, expected="whole numbers > 0, such as [4, 3, 224, 224]"
            )
        dtype = one.choice("dtype", DTYPES, default="float32")
        low, high = one.integer("low", 0), one.integer("high", 2, least=1)
        if high <= low:
            raise one.error("high", "is not above low", found=high, expected=f"> {low}")
        result[name] = InputSpec(
            name=name, shape=tuple(shape), dtype=dtype, seed=one.integer("seed", 0), low=low, high=high
        )
        one.done()
    needs = [stage for stage in stages if stage in ("forward", "loss", "backward")]
    if needs and not [name for name in result if name != "label"]:
        raise reader.error(
            "inputs",
            f"has no model input; the {needs[0]} stage needs one",
            expected="e.g. image: {shape: ...}",
        )
    if "label" not in result and {"loss", "backward"} & set(stages):
        raise reader.error("inputs", "has no 'label'", expected="label: {shape: [4], dtype: int64, high: 10}")
    return MappingProxyType(result)


def _outputs(reader: _Reader) -> tuple[str, ...]:
    found = reader.items("outputs", default=["logits"])
    if not found or not all(isinstance(name, str) for name in found) or len(set(found)) != len(found):
        raise reader.error(
            "outputs", "is not a list of different names", found=found, expected="e.g. [logits]"
        )
    return tuple(found)


def _backward(reader: _Reader) -> BackwardSettings:
    backward = reader.mapping("backward", default={})
    assert backward is not None
    settings = BackwardSettings(
        iterations=backward.integer("iterations", 5, least=2),
        learning_rate=backward.positive("learning_rate", 1e-4),
        training=backward.flag("training", default=False),
        inputs=backward.choice("inputs", ("fake", "train_loader"), default="fake"),
    )
    backward.done()
    return settings


def _train(reader: _Reader) -> TrainSettings:
    train = reader.mapping("train", default={})
    assert train is not None
    benchmark = train.mapping("benchmark", default=None)
    published = None
    if benchmark is not None:
        published = {key: float(benchmark.value(key, (int, float), "a number")) for key in benchmark.data}
        if not published:
            raise train.error(
                "benchmark", "is empty", expected="metric values in percent, e.g. {acc_top1: 56.5}"
            )
    settings = TrainSettings(
        epochs=train.integer("epochs", 1, least=1),
        batch_size=train.integer("batch_size", 4, least=1),
        learning_rate=train.positive("learning_rate", 1e-4),
        schedule_per=train.choice("schedule_per", ("epoch", "iteration"), default="epoch"),
        benchmark=published,
    )
    train.done()
    return settings


def _data(reader: _Reader) -> DataSettings:
    data = reader.mapping("data", default={})
    assert data is not None
    settings = DataSettings(
        batch_size=data.integer("batch_size", 4, least=1),
        max_batches=data.integer("max_batches", 100, least=1),
    )
    data.done()
    return settings


def _tolerances(reader: _Reader) -> Mapping[str, Mapping[str, Tolerance]]:
    stages = reader.mapping("tolerances", default={})
    assert stages is not None
    result: dict[str, Mapping[str, Tolerance]] = {}
    for stage in stages.data:
        if stage not in STAGES:
            raise stages.error(
                stage, "is not a known stage", expected=", ".join(STAGES), hint=did_you_mean(stage, STAGES)
            )
        keys = stages.mapping(stage)
        assert keys is not None
        result[stage] = {key: _tolerance(keys, stage, key) for key in keys.data}
    return MappingProxyType(result)


def _tolerance(keys: _Reader, stage: str, key: str) -> Tolerance:
    one = keys.mapping(key)
    assert one is not None
    numbers = {
        name: one.value(name, (int, float), "a number >= 0", default=None)
        for name in ("threshold", "rtol", "atol")
    }
    method = one.choice("method", METHODS, default="mean")
    equal_nan, reason = one.flag("equal_nan", default=False), one.text("reason", default="")
    one.done()
    try:
        tolerance = Tolerance(method=method, equal_nan=equal_nan, reason=reason, **numbers)
    except UsageError as error:
        raise keys.error(key, str(error), expected="method and threshold, or rtol and atol") from error
    default = tolerance_for(stage, key, {})
    if is_looser(tolerance, default) and not reason.strip():
        raise keys.error(
            key, "is looser than the default and gives no reason", expected="reason: what was measured"
        )
    return tolerance


def _modes(reader: _Reader) -> Mapping[str, ModeSettings]:
    modes = reader.mapping("modes", default={})
    assert modes is not None
    known = [mode.value for mode in Mode]
    result = {}
    for name in modes.data:
        if name not in known:
            raise modes.error(
                name, "is not a known mode", expected=", ".join(known), hint=did_you_mean(name, known)
            )
        one = modes.mapping(name)
        assert one is not None
        epochs = one.value("epochs", int, "a whole number >= 1", default=None)
        if epochs is not None and epochs < 1:
            raise one.error("epochs", "is too small", found=epochs, expected="a whole number >= 1")
        result[name] = ModeSettings(data=one.choice("data", ("lite", "whole"), default=None), epochs=epochs)
        one.done()
    return MappingProxyType(result)


def _deviations(reader: _Reader) -> tuple[KnownDeviation, ...]:
    result = []
    for number, found in enumerate(reader.items("known_deviations", default=[])):
        path = ("known_deviations", str(number))
        if not isinstance(found, dict):
            raise CaseError("is not a deviation", file=reader.file, line=reader.document.line(path), key=".".join(path),
                            found=found, expected="{subject: forward/logits, reason: ...}")  # fmt: skip
        one = _Reader(reader.file, reader.document, path, found)
        result.append(KnownDeviation(subject=one.text("subject"), reason=one.text("reason")))
        one.done()
        if not result[-1].reason.strip():
            raise one.error("reason", "is empty", expected="why this deviation is accepted")
    return tuple(result)
