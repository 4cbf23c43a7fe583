"""The entries of all lists: pairs whose port is wrong or right, and cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

TREE = Path(__file__).resolve().parents[2]
LISTS = ("zoo", "case_faults", "configs")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A pair of a list, or a case.

    Attributes:
        key: the list and the id.
        wrong: whether the port has a fault.
        build: makes the pair.
        case: makes the case in a folder and returns its file, where the list is one of cases.
    """

    key: str
    wrong: bool
    build: Callable[[], Any] | None = None
    case: Callable[[Path], Path] | None = None


@cache
def entries(name: str) -> dict[str, Entry]:
    """Return the entries of a list by key."""
    return {entry.key: entry for entry in (_pairs() if name == "zoo" else _cases(name))}


def _pairs() -> Iterator[Entry]:
    from zoo.clean import CLEAN
    from zoo.faults import FAULTS

    for wrong, planted in ((True, FAULTS), (False, CLEAN)):
        yield from (Entry(key=f"zoo/{one.id}", wrong=wrong, build=one.build) for one in planted)


def _cases(name: str) -> Iterator[Entry]:
    if name == "configs":
        for path in sorted((TREE / "configs").glob("*.yaml")):
            yield Entry(key=f"configs/{path.stem}", wrong=False, case=partial(lambda one, _: one, path))
        return
    from zoo.case_faults import CASE_FAULTS, make_pictures_project

    def make(fault: Any, folder: Path) -> Path:
        project = make_pictures_project(folder / "project")
        for file, edits in (("pictures_paddle.py", fault.edits), ("case.yaml", fault.case)):
            for old, new in edits:
                project.edit(file, old, new)
        return project.case

    for fault in (SimpleNamespace(id="right", edits=(), case=()), *CASE_FAULTS):
        yield Entry(key=f"case_faults/{fault.id}", wrong=fault.id != "right", case=partial(make, fault))
