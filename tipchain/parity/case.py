"""An alignment case: a YAML file that names the two sides, their weights, inputs, stages and tolerances."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tipchain.errors import CaseError, UsageError, did_you_mean
from tipchain.modes import CHAIN_MODES
from tipchain.parity.builders import resolve
from tipchain.parity.case_settings import read_data
from tipchain.parity.case_types import (
    BUILDERS,
    SIDES,
    Case,
    KnownDeviation,
    ModeSettings,
    Override,
    Side,
    WeightsSpec,
)
from tipchain.parity.defaults import is_looser, tolerance_for
from tipchain.parity.settings import (
    backward,
    distributed,
    inference,
    init,
    loss,
    lr,
    train,
    train_data,
    updates,
)
from tipchain.parity.settings.inputs import read_inputs
from tipchain.parity.tolerance import METHODS, Tolerance
from tipchain.runs import ROOT_VARIABLE, find_root
from tipchain.stage_table import INFO, STAGES
from tipchain.yaml_lines import Reader, load_yaml

__all__ = ["SIDES", "STAGES", "Case", "Side", "load_case", "resolve"]


def load_case(path: str | Path, reseed: int = 0) -> Case:
    """Read and check the case in ``path``.

    Args:
        path: the file.
        reseed: what to add to the seeds that it names.

    Raises:
        CaseError: unreadable, not YAML, an unknown or missing key, or a value of the wrong kind; the
            message names file, line, key, what was found and what was expected.
    """
    file = Path(path)
    if not file.is_file():
        raise CaseError("no such case file", file=file, expected="a YAML file such as configs/alexnet.yaml")
    document = load_yaml(file)
    reader = Reader(file, document, (), document.data)
    return _case(reader, file).reseeded(reseed)


def _case(reader: Reader, file: Path) -> Case:
    root = _root(reader, file)
    stages = _stages(reader)
    case = Case(
        id=_case_id(reader),
        path=file,
        root=root,
        digest=hashlib.sha256(file.read_bytes()).hexdigest(),
        sides=_sides(reader, stages),
        model_args=reader.args("model_args"),
        weights=_weights(reader, root),
        inputs=read_inputs(reader, stages),
        outputs=_outputs(reader),
        stages=stages,
        backward=backward.read(reader),
        train=train.read(reader),
        data=read_data(reader),
        loss=loss.read(reader),
        init=init.read(reader),
        inference=inference.read(reader),
        distributed=distributed.read(reader),
        training_data=train_data.read(reader),
        optimizer_args=reader.args("optimizer"),
        scheduler_args=reader.args("scheduler"),
        updates=updates.read(reader),
        lr=lr.read(reader),
        tolerances=_tolerances(reader),
        modes=_modes(reader),
        known_deviations=_deviations(reader),
        overrides=_overrides(reader, stages, root),
        seed=reader.integer("seed", 0),
    )
    reader.done()
    return case


def _root(reader: Reader, file: Path) -> Path:
    """Return where paths and imports start: what ``--root`` says, else ``root:``, seen from the file, else what is found."""
    given = reader.text("root", default=None)
    if given is None or os.environ.get(ROOT_VARIABLE):
        return find_root(file)
    root: Path = (file.resolve().parent / given).resolve()
    if not root.is_dir():
        raise reader.error(
            "root", "is no folder", found=given, expected="the project's folder, seen from this file"
        )
    return root


def _case_id(reader: Reader) -> str:
    name: str = reader.text("id")
    if not name or name.startswith(".") or any(sign in name for sign in "/\\\0 \n"):
        raise reader.error(
            "id", "cannot be a folder's name", found=repr(name), expected="a name such as alexnet"
        )
    return name


def _stages(reader: Reader) -> tuple[str, ...]:
    found = reader.items("stages", default=_possible_stages(reader))
    for number, stage in enumerate(found):
        if stage not in STAGES:
            raise CaseError(
                "is not a known stage", file=reader.file, key="stages", found=stage, expected=", ".join(STAGES),
                line=reader.document.line(("stages", str(number))), hint=did_you_mean(str(stage), STAGES),
            )  # fmt: skip
    if not found:
        raise reader.error("stages", "is empty", expected=f"some of {', '.join(STAGES)}")
    return tuple(stage for stage in STAGES if stage in found)


def _possible_stages(reader: Reader) -> list[str]:
    """Return the stages whose builders at least one side has: where the other lacks one, that is said as an error.

    What the initial values are matters to who trains: the stage init comes with an optimizer.
    """
    sides = reader.data.get("sides")
    found = [sides.get(name) for name in SIDES] if isinstance(sides, dict) else []
    named = {"model"}.union(*(side for side in found if isinstance(side, dict)))
    unwanted = set() if "optimizer" in named else {"init"}
    return [name for name, info in INFO.items() if named.issuperset(info.builders) and name not in unwanted]


def _sides(reader: Reader, stages: Sequence[str]) -> Mapping[str, Side]:
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
            for key in INFO[stage].builders:
                if builders[key] is None:
                    raise side.error(
                        key, f"is missing; the {stage} stage needs it", expected="'module:callable'"
                    )
        side.done()
        result[name] = Side(**builders)
    sides.done()
    return MappingProxyType(result)


def _weights(reader: Reader, root: Path) -> WeightsSpec:
    weights = reader.mapping("weights", default=None)
    if weights is None:
        return WeightsSpec()
    torch = weights.text("torch", default=None)
    init = weights.choice("init", ("kaiming",), default=None if torch else "kaiming")
    if torch is not None and not torch.strip():
        raise weights.error("torch", "is empty", expected="a torch weight file")
    if torch and init:
        raise weights.error("init", "cannot stand beside 'torch'", expected="either init or torch")
    spec = WeightsSpec(
        init=init,
        seed=weights.integer("seed", 0),
        fit_head=weights.flag("fit_head", default=False),
        calibrate=weights.choice("calibrate", ("train_data", "inputs"), default="train_data"),
        torch=root / torch if torch else None,
        names={str(k): str(v) for k, v in weights.args("names").items()},
        ignore=_ignored(weights),
    )
    weights.done()
    return spec


def _overrides(reader: Reader, stages: Sequence[str], root: Path) -> Mapping[str, Override]:
    by_stage = reader.mapping("overrides", default={})
    assert by_stage is not None
    result = {}
    for stage in by_stage.data:
        if stage not in stages or not {"fake", "weights"} & set(INFO[stage].uses):
            able = [name for name in stages if {"fake", "weights"} & set(INFO[name].uses)]
            raise by_stage.error(
                stage, "is not a stage of this case with a model", expected=", ".join(able),
                hint=did_you_mean(stage, able),
            )  # fmt: skip
        one = by_stage.mapping(stage)
        assert one is not None
        result[stage] = Override(
            model_args=one.args("model_args") if "model_args" in one.data else None,
            weights=_weights(one, root) if "weights" in one.data else None,
            inputs=read_inputs(one, [stage]) if "inputs" in one.data else None,
            outputs=_outputs(one) if "outputs" in one.data else None,
        )
        one.done()
    return MappingProxyType(result)


def _ignored(reader: Reader) -> tuple[str, ...]:
    found = reader.items("ignore", default=[])
    if not all(isinstance(name, str) for name in found):
        raise reader.error("ignore", "is not a list of names", found=found, expected="e.g. [pooler]")
    return tuple(found)


def _outputs(reader: Reader) -> tuple[str, ...]:
    found = reader.items("outputs", default=["logits"])
    if not found or not all(isinstance(name, str) for name in found) or len(set(found)) != len(found):
        raise reader.error(
            "outputs", "is not a list of different names", found=found, expected="e.g. [logits]"
        )
    return tuple(found)


def _tolerances(reader: Reader) -> Mapping[str, Mapping[str, Tolerance]]:
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


def _tolerance(keys: Reader, stage: str, key: str) -> Tolerance:
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


def _modes(reader: Reader) -> Mapping[str, ModeSettings]:
    modes = reader.mapping("modes", default={})
    assert modes is not None
    known = [mode.value for mode in CHAIN_MODES]
    result = {}
    for name in modes.data:
        if name not in known:
            raise modes.error(
                name, "is not a known mode", expected=", ".join(known), hint=did_you_mean(name, known)
            )
        one = modes.mapping(name)
        assert one is not None
        counts = {key: _count(one, key) for key in ("epochs", "seeds")}
        result[name] = ModeSettings(data=one.choice("data", ("lite", "whole"), default=None), **counts)
        one.done()
    return MappingProxyType(result)


def _count(reader: Reader, key: str) -> int | None:
    found: int | None = reader.value(key, int, "a whole number >= 1", default=None)
    if found is not None and found < 1:
        raise reader.error(key, "is too small", found=found, expected="a whole number >= 1")
    return found


def _deviations(reader: Reader) -> tuple[KnownDeviation, ...]:
    result = []
    for number, found in enumerate(reader.items("known_deviations", default=[])):
        path = ("known_deviations", str(number))
        if not isinstance(found, dict):
            raise CaseError("is not a deviation", file=reader.file, line=reader.document.line(path), key=".".join(path),
                            found=found, expected="{subject: forward/logits, reason: ...}")  # fmt: skip
        one = Reader(reader.file, reader.document, path, found)
        result.append(KnownDeviation(subject=one.text("subject"), reason=one.text("reason")))
        one.done()
        stage, _, key = result[-1].subject.partition("/")
        if stage not in STAGES or not key:
            raise one.error("subject", "is not a tensor of a stage", found=result[-1].subject,
                            expected="STAGE/KEY, such as forward/logits", hint=did_you_mean(stage, STAGES))  # fmt: skip
        if not result[-1].reason.strip():
            raise one.error("reason", "is empty", expected="why this deviation is accepted")
    return tuple(result)
