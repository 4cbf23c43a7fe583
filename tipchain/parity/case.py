"""An alignment case: its contents, and the YAML file that says it."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial, wraps
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, TypeVar

from msgspec import Meta

from tipchain.core.blame import UsersError, is_users, placed, serving
from tipchain.core.files import ROOT_VARIABLE, find_root, sha256_of
from tipchain.core.yaml_reader import Reader, load_yaml
from tipchain.errors import InputError, UsageError, did_you_mean
from tipchain.framework_types import Function, Nested
from tipchain.frameworks.base import checking, described, imports_start, resolve
from tipchain.modes import CHAIN_MODES, INFO, STAGES, Mode
from tipchain.numbers.tolerance import METHODS, Tolerance, is_looser, tolerance_for
from tipchain.parity.settings import (
    Args,
    BackwardSettings,
    Count,
    DataSettings,
    DistributedSettings,
    InferenceSettings,
    InitSettings,
    LossSettings,
    LrSettings,
    ModeSettings,
    Natural,
    TrainDataSettings,
    TrainSettings,
    UpdatesSettings,
    read_settings,
)

SIDES = ("torch", "paddle")
BUILDERS = ("model", "loss", "optimizer", "scheduler", "dataset", "metric", "loader", "augmentation")
DTYPES = ("float32", "float64", "float16", "int64", "int32", "uint8", "bool")
Seeded = TypeVar("Seeded", "Case", "Override")
LABEL = "label"
"""The input that goes to the loss instead of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One framework's builders, each ``"module:callable"`` or None.

    Attributes:
        model: called with ``model_args``; returns the module or layer.
        loss: called with ``loss.args``; returns a callable of output and label that returns a scalar.
        optimizer: called with the parameters, the learning rate and the case's ``optimizer``; returns an optimizer.
        scheduler: called with the optimizer and the case's ``scheduler``, Paddle's with None and ``learning_rate``;
            returns a schedule.
        dataset: called with the data folder, ``"train"`` or ``"val"`` and ``data.args``; returns a data set of (image,
            label, file name).
        metric: called without arguments; returns a callable of output and label that returns percentages by name, or an
            object with ``update`` and ``compute``.
        loader: called with the data set, the batch size, a seed and the epoch; returns the side's own training loader.
        augmentation: called with the data folder and a seed; returns the random augmentation whose draws are compared.
        compat: Paddle's builders are torch's source, which finds Paddle where it imports torch (``paddle.enable_compat``).
    """

    model: str
    loss: str | None = None
    optimizer: str | None = None
    scheduler: str | None = None
    dataset: str | None = None
    metric: str | None = None
    loader: str | None = None
    augmentation: str | None = None
    compat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One fake input: floats as ``values`` says, uniform integers in ``[low, high)`` otherwise.

    Attributes:
        name: the argument of the model's ``forward``; ``label`` goes to the loss.
        shape: the shape. Give this key or ``shapes``.
        shapes: several shapes. The forward stage tries all of them, the other stages use the first one.
        dtype: the type of the array.
        seed: seed of the random values. Default: the place among the inputs, from 0, so that no two have the same values.
        low: the smallest integer.
        high: the integers are smaller than this. For a label, it is the number of classes.
        values: ``"normal"`` (standard normal) or ``"probabilities"`` (positive, summing to 1 along the last axis).
    """

    name: str
    shape: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str = "float32"
    seed: int = 0
    low: int = 0
    high: int = 2
    values: str = "normal"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsSpec:
    """Where weights come from: a seeded initialization, or files.

    Attributes:
        init: the initialization, if ``torch`` names no file.
        seed: seed of the initialization.
        fit_head: whether the last Linear is fitted (ridge) on the training data.
        calibrate: the source of BatchNorm's running statistics: the training data, or the fake inputs.
        torch: a torch weight file.
        paddle: the port's own weight file, beside ``torch``. Without it, the port is given torch's weights, converted.
        names: names that differ: torch's name of a layer, a parameter or a buffer, and Paddle's.
        ignore: layers or tensors of one model that do not exist in the other.
    """

    init: str | None = "kaiming"
    seed: int = 0
    fit_head: bool = False
    calibrate: str = "train_data"
    torch: Path | None = None
    paddle: Path | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDeviation:
    """A tensor known to differ; fails when it stops deviating.

    Attributes:
        subject: ``STAGE/KEY``, such as ``forward/logits``.
        reason: why the deviation is accepted.
    """

    subject: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One stage's own inputs or model, other than the rest's: None keeps the case's own.

    Attributes:
        model_args: arguments of both model builders in this stage.
        weights: the weights of this stage.
        inputs: the fake inputs of this stage.
        outputs: the names of the model's outputs in this stage.
    """

    model_args: Args | None = None
    weights: WeightsSpec | None = None
    inputs: Mapping[str, InputSpec] | None = None
    outputs: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An alignment case, checked.

    Attributes:
        id: the name of the case, and of the folder of its runs.
        path: the YAML file.
        root: the project's root, relative to the file. Paths and imports start there. Without it, the nearest folder above with a
            ``pyproject.toml`` or a ``test_tipc``.
        digest: SHA-256 of the YAML file.
        sides: the builders of ``torch`` and ``paddle``.
        model_args: arguments of both model builders.
        weights: the source of the weights.
        inputs: the fake inputs, by the name of forward's argument, and ``label``.
        outputs: the names of the model's outputs, in order.
        stages: the stages of ``tipchain align``, among those whose builders exist.
        backward: settings of the stage ``backward``.
        train: settings of the stage ``train``, and defaults of ``tipchain case train``.
        data: the data set, and the evaluation loader.
        loss: arguments of both loss builders, and more variants for the stage ``loss``.
        optimizer_args: arguments of both optimizer builders.
        scheduler_args: arguments of both scheduler builders.
        tolerances: tolerances by stage, then by tensor. Names of tensors may be patterns with ``*`` and ``?``.
        modes: settings by TIPC mode.
        known_deviations: tensors that are known to differ. One that no longer differs is a FAIL.
        overrides: settings by stage.
        seed: the seed of everything random without a seed of its own.
        init: settings of the stage ``init``.
        inference: settings of the stage ``inference``.
        distributed: settings of the stage ``distributed``.
        training_data: settings of the stage ``train_data``.
        updates: settings of the stages ``optimizer`` and ``regularization``.
        lr: settings of the stage ``lr``.
        variant: the first stage that has the overrides which are applied, or "".
        reseed: what was added to the seeds that the file names.
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
    loss: LossSettings
    optimizer_args: Args
    scheduler_args: Args
    tolerances: Mapping[str, Mapping[str, Tolerance]]
    modes: Mapping[str, ModeSettings]
    known_deviations: tuple[KnownDeviation, ...]
    overrides: Mapping[str, Override]
    seed: int
    init: InitSettings = field(default_factory=InitSettings)
    inference: InferenceSettings = field(default_factory=InferenceSettings)
    distributed: DistributedSettings = field(default_factory=DistributedSettings)
    training_data: TrainDataSettings = field(default_factory=TrainDataSettings)
    updates: UpdatesSettings = field(default_factory=UpdatesSettings)
    lr: LrSettings = field(default_factory=LrSettings)
    variant: str = ""
    reseed: int = 0

    def for_stage(self, stage: str) -> Case:
        """Return the case as ``stage`` sees it: itself, or with overrides applied, the same one for all stages that have equal ones."""
        override = self.overrides.get(stage)
        if override is None or self.variant:
            return self
        named = {
            name: value
            for name in ("model_args", "weights", "inputs", "outputs")
            if (value := getattr(override, name)) is not None
        }
        first = next(one for one, other in self.overrides.items() if other == override)
        return replace(self, variant=first, **named)

    def mode_settings(self, mode: Mode) -> ModeSettings:
        """Return the case's settings of ``mode``."""
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

    def seeds(self, mode: Mode) -> int:
        """Return how many trainings a side from other seeds ``mode`` has; with a published benchmark there are none."""
        return 1 if self.train.benchmark else self.mode_settings(mode).seeds or self.train.seeds


def _reseeded(one: Seeded, by: int) -> Seeded:
    weights = one.weights and replace(one.weights, seed=one.weights.seed + by)
    inputs = one.inputs and {name: replace(spec, seed=spec.seed + by) for name, spec in one.inputs.items()}
    return replace(one, weights=weights, inputs=inputs)


# The case's ``inputs``: what both sides are fed where no data are wanted.


FLOATS = ("normal", "probabilities")
Shape = Annotated[tuple[Count, ...], Meta(min_length=1)]
SHAPE = "whole numbers > 0, such as [4, 3, 224, 224]"


def read_inputs(reader: Reader, stages: Sequence[str]) -> Mapping[str, InputSpec]:
    """Read the mapping ``inputs``, which ``stages`` rest on.

    Raises:
        InputError: no shape or an impossible one, both ``shape`` and ``shapes``, counts of shapes that do not fit
            together, or an input that a stage needs and the case does not name.
    """
    inputs = reader.mapping("inputs", optional=True)
    result = {name: _read_one(inputs, name) for name in inputs.data}
    # The i-th shapes of all inputs go together.
    several = {name: len(spec.shapes) for name, spec in result.items() if len(spec.shapes) > 1}
    if LABEL in several:
        raise inputs.error(f"{LABEL}.shapes", "is not for labels", expected="shape; only forward tries several shapes")
    for name, count in several.items():
        first = next(iter(several))
        if count != several[first]:
            raise inputs.error(
                f"{name}.shapes",
                f"does not go with {first}'s",
                found=f"{count} shapes",
                expected=f"{several[first]}, as {first} has, or one",
            )
    needs = [stage for stage in stages if "fake" in INFO[stage].uses]
    if needs and not [name for name in result if name != LABEL]:
        raise reader.error(
            "inputs", f"has no model input; the {needs[0]} stage needs one", expected="e.g. image: {shape: ...}"
        )
    if LABEL not in result and any("loss" in INFO[stage].builders for stage in needs):
        batch = next(iter(result.values())).shape[0]
        raise reader.error(
            "inputs",
            "has no 'label'",
            expected=f"label: {{shape: [{batch}], dtype: int64, high: 10}}",
            hint="high is the number of classes",
        )
    return MappingProxyType(result)


def _read_one(inputs: Reader, name: str) -> InputSpec:
    one = inputs.mapping(name)
    if "shapes" in one.data:
        shapes = one.read("shapes", list[Shape], "e.g. [[4, 3, 224, 224], [1, 3, 256, 256]]")
        if "shape" in one.data:
            expected = "one of them; the first of shapes is the usual one"
            raise one.error("shape", "stands beside shapes", expected=expected)
        if not shapes:
            raise one.error("shapes", "is empty", expected="e.g. [[4, 3, 224, 224], [1, 3, 256, 256]]")
        if len(set(shapes)) < len(shapes):
            raise one.error("shapes", "names a shape twice", found=[*map(list, shapes)], expected="different shapes")
    else:
        shapes = [one.read("shape", Shape, SHAPE)]
    dtype = one.choice("dtype", DTYPES, default="float32")
    values = one.choice("values", FLOATS, default="normal")
    if values != "normal" and not dtype.startswith("float"):
        raise one.error("values", "needs a float dtype", found=f"{values} of {dtype}", expected="dtype: float32")
    low, high = one.read("low", Natural, default=0), one.read("high", Count, default=2)
    if high <= low:
        raise one.error("high", "is not above low", found=high, expected=f"> {low}")
    spec = InputSpec(
        name=name,
        shape=shapes[0],
        shapes=tuple(shapes),
        dtype=dtype,
        seed=one.read("seed", Natural, default=list(inputs.data).index(name)),
        low=low,
        high=high,
        values=values,
    )
    one.done()
    return spec


def load_case(path: str | Path, reseed: int = 0) -> Case:
    """Read and check the case in ``path``.

    Args:
        path: the file.
        reseed: what to add to the seeds that it names.

    Raises:
        InputError: unreadable, not YAML, an unknown or missing key, or a value of the wrong kind; the
            message names file, line, key, what was found and what was expected.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(
            "no such case file",
            file=file,
            found="a folder" if file.is_dir() else None,
            expected="a YAML file such as configs/alexnet.yaml",
        )
    reader = load_yaml(file)
    # That of ``--root``, else ``root:``, seen from the file, else the found one.
    root, given = find_root(file), reader.read("root", str, default=None)
    if given is not None and not os.environ.get(ROOT_VARIABLE):
        root = (file.resolve().parent / given).resolve()
        if not root.is_dir():
            raise reader.error(
                "root", "is no folder", found=given, expected="the project's folder, seen from this file"
            )
    stages = _stages(reader)
    name: str = reader.read("id", str)
    if not name or name.startswith(".") or any(sign in name for sign in "/\\\0 \n"):
        raise reader.error("id", "cannot be a folder's name", found=repr(name), expected="a name such as alexnet")
    modes = reader.mapping("modes", optional=True)
    modes.done([mode.value for mode in CHAIN_MODES], "is not a known mode")
    case = Case(
        id=name,
        path=file,
        root=root,
        digest=sha256_of(file),
        sides=_sides(reader, stages),
        model_args=reader.args("model_args"),
        weights=_weights(reader, root),
        inputs=read_inputs(reader, stages),
        outputs=_names(reader, "outputs", ["logits"]),
        stages=stages,
        backward=read_settings(BackwardSettings, reader, "backward"),
        train=read_settings(TrainSettings, reader, "train"),
        data=read_settings(DataSettings, reader, "data"),
        loss=read_settings(LossSettings, reader, "loss"),
        init=read_settings(InitSettings, reader, "init"),
        inference=read_settings(InferenceSettings, reader, "inference"),
        distributed=read_settings(DistributedSettings, reader, "distributed"),
        training_data=read_settings(TrainDataSettings, reader, "train_data"),
        optimizer_args=reader.args("optimizer"),
        scheduler_args=reader.args("scheduler"),
        updates=read_settings(UpdatesSettings, reader, "updates"),
        lr=read_settings(LrSettings, reader, "lr"),
        tolerances=_tolerances(reader),
        modes=MappingProxyType({mode: read_settings(ModeSettings, modes, mode) for mode in modes.data}),
        known_deviations=_deviations(reader),
        overrides=_overrides(reader, stages, root),
        seed=reader.read("seed", Natural, default=0),
    )
    reader.done()
    if not reseed:
        return case
    overrides = {stage: _reseeded(one, reseed) for stage, one in case.overrides.items()}
    return replace(_reseeded(case, reseed), seed=case.seed + reseed, overrides=overrides, reseed=case.reseed + reseed)


def _stages(reader: Reader) -> tuple[str, ...]:
    # By default those whose builders one side has at least; init matters to who trains, it comes with an optimizer.
    sides = reader.data.get("sides")
    given = [sides.get(name) for name in SIDES] if isinstance(sides, dict) else []
    named = {"model"}.union(*(side for side in given if isinstance(side, dict)))
    unwanted = set() if "optimizer" in named else {"init"}
    found = reader.read(
        "stages",
        list,
        default=[name for name, info in INFO.items() if named.issuperset(info.builders) and name not in unwanted],
    )
    for number, stage in enumerate(found):
        if stage not in STAGES:
            raise reader.unknown(("stages", str(number)), STAGES, "is not a known stage", stage)
    if not found:
        raise reader.error("stages", "is empty", expected=f"some of {', '.join(STAGES)}")
    return tuple(stage for stage in STAGES if stage in found)


def _sides(reader: Reader, stages: Sequence[str]) -> Mapping[str, Side]:
    sides = reader.mapping("sides")
    result = {}
    for name in SIDES:
        side = sides.mapping(name)
        builders = {key: side.read(key, str, default=None) for key in BUILDERS}
        for key, spec in builders.items():
            if spec is not None and not all(part.strip() for part in (spec.partition(":")[0], spec.partition(":")[2])):
                raise side.error(key, "is not a builder", found=repr(spec), expected="'module:callable'")
        for stage in stages:
            for key in INFO[stage].builders:
                if builders[key] is None:
                    raise side.error(key, f"is missing; the {stage} stage needs it", expected="'module:callable'")
        compat = name == "paddle" and side.read("compat", bool, default=False)
        side.done()
        result[name] = Side(**builders, compat=compat)
    sides.done()
    return MappingProxyType(result)


def _weights(reader: Reader, root: Path) -> WeightsSpec:
    weights = reader.mapping("weights", optional=True)
    torch, paddle = (weights.read(side, str, default=None) for side in SIDES)
    init = weights.choice("init", ("kaiming",), default=None if torch else "kaiming")
    for side, file in (("torch", torch), ("paddle", paddle)):
        if file is not None and not file.strip():
            raise weights.error(side, "is empty", expected="a weight file")
    if paddle and not torch:
        raise weights.error("paddle", "stands without 'torch'", expected="the weight files of both sides")
    if torch and init:
        raise weights.error("init", "cannot stand beside 'torch'", expected="either init or torch")
    spec = WeightsSpec(
        init=init,
        seed=weights.read("seed", Natural, default=0),
        fit_head=weights.read("fit_head", bool, default=False),
        calibrate=weights.choice("calibrate", ("train_data", "inputs"), default="train_data"),
        torch=root / torch if torch else None,
        paddle=root / paddle if paddle else None,
        names={str(k): str(v) for k, v in weights.args("names").items()},
        ignore=_names(weights, "ignore", []),
    )
    weights.done()
    return spec


def _overrides(reader: Reader, stages: Sequence[str], root: Path) -> Mapping[str, Override]:
    by_stage = reader.mapping("overrides", optional=True)
    result = {}
    able = [stage for stage in stages if {"fake", "weights"} & set(INFO[stage].uses)]
    by_stage.done(able, "is not a stage of this case with a model")
    for stage in by_stage.data:
        one = by_stage.mapping(stage)
        result[stage] = Override(
            model_args=one.args("model_args") if "model_args" in one.data else None,
            weights=_weights(one, root) if "weights" in one.data else None,
            inputs=read_inputs(one, [stage]) if "inputs" in one.data else None,
            outputs=_names(one, "outputs", ["logits"]) if "outputs" in one.data else None,
        )
        one.done()
    return MappingProxyType(result)


def _names(reader: Reader, key: str, default: Sequence[str]) -> tuple[str, ...]:
    found = reader.read(key, list, default=list(default))
    if not all(isinstance(name, str) for name in found) or len(set(found)) < len(found) or (default and not found):
        expected = f"e.g. [{default[0] if default else 'pooler'}]"
        raise reader.error(key, "is not a list of different names", found=found, expected=expected)
    return tuple(found)


def _tolerances(reader: Reader) -> Mapping[str, Mapping[str, Tolerance]]:
    stages = reader.mapping("tolerances", optional=True)
    result: dict[str, Mapping[str, Tolerance]] = {}
    stages.done(STAGES, "is not a known stage")
    for stage in stages.data:
        keys = stages.mapping(stage)
        result[stage] = {key: _tolerance(keys, stage, key) for key in keys.data}
    return MappingProxyType(result)


def _tolerance(keys: Reader, stage: str, key: str) -> Tolerance:
    one = keys.mapping(key)
    numbers = {
        name: one.read(name, int | float, "a number >= 0", default=None) for name in ("threshold", "rtol", "atol")
    }
    method = one.choice("method", METHODS, default="mean")
    equal_nan, reason = one.read("equal_nan", bool, default=False), one.read("reason", str, default="")
    one.done()
    try:
        tolerance = Tolerance(method=method, equal_nan=equal_nan, reason=reason, **numbers)
    except UsageError as error:
        raise keys.error(key, str(error), expected="method and threshold, or rtol and atol") from error
    default = tolerance_for(stage, key, {})
    if is_looser(tolerance, default) and not reason.strip():
        raise keys.error(key, "is looser than the default and gives no reason", expected="reason: what was measured")
    return tolerance


def _deviations(reader: Reader) -> tuple[KnownDeviation, ...]:
    result = []
    for one in reader.entries("known_deviations", "{subject: forward/logits, reason: ...}", wrong="is not a deviation"):
        result.append(KnownDeviation(subject=one.read("subject", str), reason=one.read("reason", str)))
        one.done()
        stage, _, key = result[-1].subject.partition("/")
        if stage not in STAGES or not key:
            raise one.error(
                "subject",
                "is not a tensor of a stage",
                found=result[-1].subject,
                expected="STAGE/KEY, such as forward/logits",
                hint=did_you_mean(stage, STAGES),
            )
        if not result[-1].reason.strip():
            raise one.error("reason", "is empty", expected="why this deviation is accepted")
    return tuple(result)


# The builders that a case names: whether they can be there, and each opened.


OPTIONAL = ("scheduler", "loader", "augmentation")
"""Builders that no stage must have, and some use."""


def check_builders(case: Case, stages: Collection[str], sides: Collection[str]) -> None:
    """Refuse a case of which a builder cannot be there, before anything is prepared; nothing is imported.

    Raises:
        InputError: a module of the user's does not exist, or has no such name; one error names them all.
    """
    needed = {key for stage in stages for key in INFO[stage].builders} | set(OPTIONAL)
    wrong: dict[str, tuple[str, str, str | None]] = {}
    for side in sides:
        for key in BUILDERS:
            spec = getattr(case.sides[side], key)
            told = absent(spec, case.root) if spec is not None and key in needed else None
            if told is not None:
                wrong.setdefault(told[0], (side, key, told[1]))
    if not wrong:
        return
    (first, (side, key, hint)), *others = wrong.items()
    raise load_yaml(case.path).error(
        ("sides", side, key),
        first,
        found=getattr(case.sides[side], key),
        hint="\n  ".join(filter(None, (hint, *(f"and {other}" for other, _ in others)))),
    )


def absent(spec: str, root: Path) -> tuple[str, str | None] | None:
    """Return why ``"module:callable"`` cannot be there, and a hint; None where it may be."""
    module, _, name = spec.partition(":")
    parts = module.split(".")
    places: list[str] = [str(root), *sys.path]
    for number, part in enumerate(parts, 1):
        above = ".".join(parts[:number])
        found = PathFinder.find_spec(above if number == 1 else part, places)
        if found is None:
            # Only below the user's own folders is what is not on the disk certainly nowhere.
            if number == 1 and find_spec(part) is not None:
                return None
            own = number == 1 or all(is_users(f"{place}/x.py") for place in places)
            return (f"{above} does not exist", imports_start(root)) if own else None
        if number < len(parts):
            if found.submodule_search_locations is None:
                return f"{above} is no package, so it has no {parts[number]}", imports_start(root)
            places = list(found.submodule_search_locations)
    # A module of the user's may not define the name.
    file = "" if found is None or found.origin is None else found.origin
    if not file.endswith(".py") or not is_users(file):
        return None
    names = _names_in(file, Path(file).stat().st_mtime_ns)
    if names is None or name in names or "*" in names or "__getattr__" in names:
        return None
    return f"{module} has no {name!r}", did_you_mean(name, names)


@cache
def _names_in(file: str, changed: int) -> set[str] | None:  # noqa: ARG001
    """Return the names that a module may define, inside of conditions and the like too; None where it cannot be parsed."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None  # importing it says what is wrong
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def open_builder(case: Case, side: str, name: str, *, plain: bool = False) -> Function:
    """Return the builder ``name`` of a side of the case: its result is checked, its exceptions are of that side.

    The loss's comes with the case's arguments, and what the loss returns is checked, too.

    Args:
        case: the case.
        side: ``"torch"`` or ``"paddle"``.
        name: a key of the side.
        plain: the loss is wanted as it was written, since its code is looked at.

    Raises:
        InputError: the case has none, or it cannot be imported.
    """
    spec = getattr(case.sides[side], name)
    if spec is None:
        raise InputError("is missing", file=case.path, key=f"sides.{side}.{name}", expected="'module:callable'")
    with serving(side=side):
        found = resolve(spec, case.root, side, compat=case.sides[side].compat)
    bound = partial(found, **case.loss.args) if name == "loss" and case.loss.args else found
    build = checking(name, side, bound)
    if name != "loss" or plain:
        return build
    return wraps(build)(lambda *args, **settings: checked_loss(build(*args, **settings), side, found))


def checked_loss(loss: Function, side: str, builder: Function) -> Function:
    """Return a loss whose result is checked: a tensor of one element."""
    name = placed(loss) if ":" in placed(loss) else f"{placed(builder)}'s loss"

    def compute(*given: Nested) -> Nested:
        with serving(side=side, stage="the loss"):
            found = loss(*given)
            if not sys.modules[side].is_tensor(found):
                raise UsersError(f"{name} returned {described(found)}\n  expected: a tensor of one number")
            if found.numel() != 1:
                raise UsersError(
                    f"{name} returned a tensor of shape {list(found.shape)}\n  expected: a tensor of one number"
                )
            return found

    return compute
