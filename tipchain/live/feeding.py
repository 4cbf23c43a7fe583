"""Where the data and metrics beside live models come from: an alignment case, or names on the command line."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tipchain.errors import UsageError
from tipchain.live.data_metric import DATA_STAGES, METRIC_STAGE
from tipchain.modes import parse_mode
from tipchain.parity.builders import open_builder, resolve
from tipchain.parity.case import load_case
from tipchain.parity.case_types import SIDES
from tipchain.parity.dumps import read_npz
from tipchain.parity.pieces.metric_probes import OfTensors
from tipchain.parity.weights import data_roots
from tipchain.runs import root_of_callables

Arguments = dict[str, Any]


def feed_case(
    path: Path,
    mode: str,
    *,
    reseed: int = 0,
    data_path: Path | None = None,
    only: Collection[str] | None = None,
) -> Arguments:
    """Return ``data`` and ``metrics`` of `tipchain.align` for a case: those of the stages that it has and both sides build.

    Args:
        path: the case's YAML file.
        mode: the TIPC mode, which says what data is meant.
        reseed: added to the case's seeds.
        data_path: a data folder of the user's.
        only: the stages that are wanted; None for all.

    Raises:
        TipchainError: something is wrong with the case.
    """
    case = load_case(path, reseed)
    wanted = [
        one for one in (*DATA_STAGES, METRIC_STAGE) if one in case.stages and (only is None or one in only)
    ]
    sides = [case.sides[name] for name in SIDES]
    roots = data_roots(case, parse_mode(mode), data_path)
    found: Arguments = {"data": {}}
    for stage, split, root in ((DATA_STAGES[0], "val", roots[1]), (DATA_STAGES[1], "train", roots[0])):
        if stage in wanted and all(one.dataset for one in sides):
            made = (
                partial(open_builder(case, name, "dataset"), root, split, **case.data.args) for name in SIDES
            )
            found["data"][stage] = tuple(made)
    if METRIC_STAGE in wanted and all(one.metric for one in sides):
        found["metrics"] = tuple(OfTensors(open_builder(case, name, "metric")()) for name in SIDES)
    return found


def feed_callables(asked: Mapping[str, Any]) -> Arguments:
    """Return ``data``, ``samples``, ``metrics`` and ``predict`` of `tipchain.align` for what the command line names.

    Args:
        asked: ``data``, ``metrics`` and ``predict``, each two ``module:callable`` or nothing; ``samples``, a ``.npz`` file of raw samples,
            with which the data's callables are transforms (a class is made an object first).

    Raises:
        CaseError: a callable cannot be imported.
        UsageError: the file cannot be read, or is not wanted.
    """
    root = root_of_callables()
    found: Arguments = {}
    samples = read_samples(Path(asked["samples"])) if asked.get("samples") else None
    for name in ("data", "metrics", "predict"):
        if asked.get(name):
            pair: list[Any] = [resolve(spec, root) for spec in asked[name]]
            if name == "data" and samples is not None:
                pair = [one() if isinstance(one, type) else one for one in pair]
            found[name] = tuple(pair)
    if samples is not None:
        found["samples"] = samples
    return found


def read_samples(path: Path) -> list[Any]:
    """Return the arrays of a ``.npz`` file in its order; one of four axes or named ``samples`` holds many.

    Raises:
        RecordError: it cannot be read, or holds anything but arrays.
        UsageError: it holds none.
    """
    found: list[Any] = []
    for name, array in read_npz(path).items():
        found.extend(array if array.ndim and (array.ndim > 3 or name == "samples") else [array])
    if not found:
        raise UsageError(f"{path}: has no arrays\n  expected: raw samples")
    return found
