"""What stages need before a side can be recorded: fake inputs, data folders, weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tipchain.errors import DataError, InputError
from tipchain.modes import Mode
from tipchain.parity.case import Case
from tipchain.parity.record import save_record
from tipchain.parity.recorder import USES
from tipchain.parity.weights import WeightFiles, data_digest, data_roots, prepare_weights

INPUTS_NAME = "fake_inputs.npy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What was prepared.

    Attributes:
        digests: what results depend on, by the names in `USES`.
        inputs: dump of the fake inputs, None where no stage needs it.
        weights: None where no stage needs them, or they could not be had.
        failures: why something could not be had, by the names in `USES`.
    """

    digests: Mapping[str, str]
    inputs: Path | None
    weights: WeightFiles | None
    train_data: Path
    eval_data: Path
    failures: Mapping[str, str] = field(default_factory=dict)

    def missing(self, stage: str) -> str | None:
        """Return why ``stage`` cannot run, or None."""
        reasons = dict.fromkeys(self.failures[name] for name in USES[stage] if name in self.failures)
        return "\n".join(reasons) or None


def prepare(
    case: Case,
    mode: Mode,
    stages: Iterable[str],
    folder: Path,
    sides: tuple[str, ...],
    data_path: Path | None,
) -> Prepared:
    """Prepare what ``stages`` need; what cannot be had is noted, so that other stages still run.

    Raises:
        MissingFrameworkError: weights must be made and a framework is absent.
    """
    uses = {name for stage in stages for name in USES[stage]}
    digests, failures = {"settings": _settings_digest(case, mode)}, {}
    if "fake" in uses:
        arrays = make_inputs(case)
        save_record(folder / INPUTS_NAME, arrays)
        digests["fake"] = _arrays_digest(arrays)
    train_data, eval_data = data_roots(case, mode, data_path)
    for name, data in (("train_data", train_data), ("eval_data", eval_data)):
        if name in uses:
            try:
                digests[name] = _folder_digest(data, mode)
            except InputError as error:
                failures[name] = str(error)
    weights = None
    if "weights" in uses:
        try:
            weights = prepare_weights(case, mode, data_path=data_path, sides=sides)
            digests["weights"] = weights.digest
        except InputError as error:
            failures["weights"] = str(error)
    return Prepared(
        digests=digests, inputs=folder / INPUTS_NAME if "fake" in uses else None, weights=weights,
        train_data=train_data, eval_data=eval_data, failures=failures,
    )  # fmt: skip


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the case's fake inputs: standard normal floats, uniform integers, from NumPy's seeded generator."""
    arrays: dict[str, Any] = {}
    for name, spec in case.inputs.items():
        generator = np.random.default_rng(spec.seed)
        if np.dtype(spec.dtype).kind == "f":
            arrays[name] = generator.standard_normal(spec.shape).astype(spec.dtype)
        else:
            arrays[name] = generator.integers(spec.low, spec.high, spec.shape).astype(spec.dtype)
    return arrays


def _folder_digest(folder: Path, mode: Mode) -> str:
    try:
        return data_digest(folder)
    except DataError as error:
        if not folder.exists():
            raise DataError(
                "no such data folder", file=folder, expected=f"the data of {mode.value}",
                hint=f"bash prepare.sh PARAMS {mode.value}, or --data-path with a folder of your own",
            ) from error  # fmt: skip
        raise


def _arrays_digest(arrays: Mapping[str, Any]) -> str:
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _settings_digest(case: Case, mode: Mode) -> str:
    settings = (
        case.backward,
        case.train,
        dict(case.optimizer_args),
        dict(case.scheduler_args),
        case.epochs(mode),
    )
    return hashlib.sha256(repr(settings).encode()).hexdigest()
