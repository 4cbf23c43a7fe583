"""What stages need before a side can be recorded: fake inputs, data folders, weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tipchain.blame import UsersError
from tipchain.errors import DataError, InputError
from tipchain.modes import Mode
from tipchain.numbers.dumps import flatten, load_record, save_record
from tipchain.parity.case import Case
from tipchain.parity.digests import WHERE, data_digest
from tipchain.parity.fake_inputs import arrays_digest, make_all_inputs
from tipchain.parity.recorder import StageNeeds
from tipchain.parity.weights import WeightFiles, data_roots, prepare_weights
from tipchain.stage_table import INFO

NO_SETTINGS = {
    *("id", "path", "root", "digest", "sides", "stages", "modes", "variant", "overrides"),  # whose case it is
    *("tolerances", "known_deviations"),  # how it is judged
    *("weights", "inputs", "outputs"),  # known by digests of their own
}
"""The fields of a case that do not say how its stages run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What was prepared.

    Attributes:
        digests: by stage, what its result depends on, by the names in its ``uses``.
        inputs: by stage, the dump of the fake inputs, where it needs one.
        weights: by stage, the weights, where it needs them and they could be had.
        names: by stage, Paddle's name by torch's, where the conversion of weights found some.
        failures: by stage, why it cannot run.
    """

    train_data: Path
    eval_data: Path
    digests: Mapping[str, Mapping[str, str]]
    inputs: Mapping[str, Path] = field(default_factory=dict)
    weights: Mapping[str, WeightFiles] = field(default_factory=dict)
    names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    def needs(self, stage: str, side: str) -> StageNeeds:
        """Return what ``side`` needs for ``stage``."""
        inputs, weights = self.inputs.get(stage), self.weights.get(stage)
        return StageNeeds(
            inputs=str(inputs.resolve()) if inputs else "",
            weights=str(weights.paths[side].resolve()) if weights else "",
            weights_sha256=weights.sha256.get(side, "") if weights else "",
            names=self.names.get(stage, {}),
            digests=self.digests[stage],
        )


def prepare(
    case: Case,
    mode: Mode,
    stages: Iterable[str],
    folder: Path,
    sides: tuple[str, ...],
    data_path: Path | None,
    given: GivenInputs | None = None,
) -> Prepared:
    """Prepare what ``stages`` need and ``given`` has not; what cannot be had is noted, so that other stages still run.

    Raises:
        MissingFrameworkError: weights must be made and a framework is absent.
    """
    work = _Work(case, mode, folder, sides, data_path, given or GivenInputs())
    for stage in stages:
        work.prepare(stage)
    return Prepared(
        train_data=work.train_data,
        eval_data=work.eval_data,
        digests=work.digests,
        inputs=work.inputs,
        weights=work.weights,
        names={stage: work.names(stage) for stage in work.digests},
        failures=work.failures,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenInputs:
    """What need not be prepared, for it comes from elsewhere.

    Attributes:
        inputs: the dump of the fake inputs, by the case's variant.
        weights: the weights, likewise.
    """

    inputs: Mapping[str, Path] = field(default_factory=dict)
    weights: Mapping[str, WeightFiles] = field(default_factory=dict)


class _Work:
    """Prepares stage by stage; what several need is made once."""

    def __init__(
        self, case: Case, mode: Mode, folder: Path, sides: tuple[str, ...], data_path: Path | None, given: GivenInputs
    ) -> None:
        self.case, self.mode, self.folder = case, mode, folder
        self.sides, self.data_path, self.given = sides, data_path, given
        self.train_data, self.eval_data = data_roots(case, mode, data_path)
        self.digests: dict[str, dict[str, str]] = {}
        self.inputs: dict[str, Path] = {}
        self.weights: dict[str, WeightFiles] = {}
        self.failures: dict[str, str] = {}
        self._made: dict[tuple[str, str], tuple[str, Path | WeightFiles | None] | InputError | UsersError] = {}

    def prepare(self, stage: str) -> None:
        """Prepare what ``stage`` uses."""
        case, digests, reasons = self.case.for_stage(stage), {}, []
        for name in INFO[stage].uses:
            key = (name, case.variant if name in ("fake", "weights", "settings") else "")
            if key not in self._made:
                try:
                    self._made[key] = self._make(name, case)
                except (InputError, UsersError) as error:
                    self._made[key] = error
            made = self._made[key]
            if isinstance(made, InputError | UsersError):
                reasons.append(str(made))
                continue
            digests[name] = made[0]
            if isinstance(made[1], Path):
                self.inputs[stage] = made[1]
            elif made[1] is not None:
                self.weights[stage] = made[1]
        self.digests[stage] = digests
        if reasons:
            self.failures[stage] = "\n".join(dict.fromkeys(reasons))

    def names(self, stage: str) -> Mapping[str, str]:
        """Return the names that converting weights found for the model of ``stage``, even if it uses no weights."""
        made = self._made.get(("weights", self.case.for_stage(stage).variant))
        return made[1].names if isinstance(made, tuple) and isinstance(made[1], WeightFiles) else {}

    def _make(self, name: str, case: Case) -> tuple[str, Path | WeightFiles | None]:
        """Return the digest of what a stage uses, with the file or files where there are some."""
        if name == "settings":
            return settings_digest(case, self.mode), None
        if name == "fake" and case.variant in self.given.inputs:
            known = self.given.inputs[case.variant]
            return arrays_digest(load_record(known).arrays), known
        if name == "fake":
            arrays = fake_arrays(case)
            path = self.folder / ("_".join(filter(None, ("fake_inputs", case.variant))) + ".npy")
            save_record(path, arrays)
            return arrays_digest(dict(flatten(arrays))), path
        if name == "weights":
            weights = self.given.weights.get(case.variant) or prepare_weights(
                case, self.mode, data_path=self.data_path, sides=self.sides
            )
            return weights.digest, weights
        folder = self.train_data if name == "train_data" else self.eval_data
        return _folder_digest(folder, case.data.set), None


def fake_arrays(case: Case) -> dict[str, Any]:
    """Return the fake inputs by name; those of further shapes are dicts of their own."""
    sets = make_all_inputs(case)
    return {**sets.pop(""), **sets}


def dated(case: Case, mode: Mode, stage: str, recorded: Mapping[str, str]) -> list[str]:
    """Return which of the digests that a dump carries the case has outgrown: ``"settings"``, ``"fake"``."""
    seen, found = case.for_stage(stage), []
    if "settings" in recorded and recorded["settings"] != settings_digest(seen, mode):
        found.append("settings")
    if "fake" in recorded and recorded["fake"] != arrays_digest(dict(flatten(fake_arrays(seen)))):
        found.append("fake")
    return found


def _folder_digest(folder: Path, data_set: str) -> str:
    try:
        return data_digest(folder, data_set)
    except DataError as error:
        if not folder.exists():
            raise DataError("no such data folder", file=folder, hint=WHERE) from error
        raise


def settings_digest(case: Case, mode: Mode) -> str:
    """Return a SHA-256 of all that the case says about how its stages run."""
    settings = {name: getattr(case, name) for name in case.__slots__ if name not in NO_SETTINGS}
    return hashlib.sha256(repr((settings, case.epochs(mode), case.seeds(mode))).encode()).hexdigest()
