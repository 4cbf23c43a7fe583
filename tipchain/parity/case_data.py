"""The data folders that a case means, read from its file alone: a plan needs no more of the case, and needs it soon."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tipchain.core.yaml_reader import load_yaml
from tipchain.errors import CaseError
from tipchain.modes import DATA_SETS, DIGITS, DataFolders, Mode, data_folders


def case_folders(case: Path, mode: Mode) -> DataFolders:
    """Return the data folders of the case in ``case`` in ``mode``, relative to the project's root.

    What is wrong with the file is not said here: its alignment says it, and the chain runs all the same, on the digits.
    """
    try:
        document = load_yaml(case).data
    except CaseError:
        return data_folders(mode)
    data_set = _mapping(document, "data").get("set", DIGITS)
    kind = _mapping(_mapping(document, "modes"), mode.value).get("data")
    return data_folders(
        mode, data_set if data_set in tuple(DATA_SETS) else DIGITS, kind if kind in ("lite", "whole") else None
    )


def _mapping(document: Mapping[str, object], key: str) -> Mapping[str, object]:
    found = document.get(key)
    return found if isinstance(found, dict) else {}
