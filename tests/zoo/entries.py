"""The entries of all lists: pairs whose port is wrong or right, and cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

TREE = Path(__file__).resolve().parents[2]
ZOOS = ("zoo", "held_out", "third", "fourth", "fifth", "training_held_out")
LISTS = (*ZOOS, "data_faults", "case_faults", "configs")


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
    if name in ("case_faults", "configs"):
        return {one.key: one for one in _cases(name)}
    faults, clean = _pairs(name)
    made = {f"{name}/{key}": (True, build) for key, build in faults}
    made |= {f"{name}/{key}": (False, build) for key, build in clean}
    return {key: Entry(key=key, wrong=wrong, build=build) for key, (wrong, build) in made.items()}


def _pairs(name: str) -> tuple[Any, Any]:
    """Return ids and builders of the wrong pairs of a list, and of the right ones."""
    if name == "zoo":
        from zoo.clean import CLEAN, VISION
        from zoo.faults import FAULTS
        from zoo.pairs import planted

        return [(one.id, partial(planted, one)) for one in FAULTS], {**CLEAN, **VISION}.items()
    if name == "held_out":
        from zoo.held_out.clean import SECOND_CLEAN
        from zoo.held_out.faults import SECOND_FAULTS, planted_second

        return [(one.id, partial(planted_second, one)) for one in SECOND_FAULTS], SECOND_CLEAN.items()
    if name == "training_held_out":
        from zoo.training_held_out import EQUAL, HELD_OUT, planted

        return tuple([(key, partial(planted, one)) for key, one in group.items()] for group in (HELD_OUT, EQUAL))
    if name == "data_faults":
        from zoo.data_faults import CLEAN_DATA, CLEAN_METRICS, DATA_FAULTS, METRIC_FAULTS

        groups = (*DATA_FAULTS, *METRIC_FAULTS), (*CLEAN_DATA, *CLEAN_METRICS)
        return tuple([(one.id, partial(_around_a_linear, one)) for one in group] for group in groups)
    from zoo.third.run import read_list

    listed = read_list(name)
    return [(one.id, partial(listed.planted, one)) for one in listed.faults], [
        (one.id, one.build) for one in listed.clean
    ]


def _around_a_linear(planted: Any) -> Any:
    """Return data or metrics as a pair of equal models that returns the outputs to count."""
    import paddle
    import torch

    from zoo.data_faults import outputs_of
    from zoo.third.planting import ThirdPair

    outputs, labels = outputs_of(getattr(planted, "kind", "classes"))
    rows = outputs.reshape(len(outputs), -1)
    reference, port = torch.nn.Linear(rows.shape[1], rows.shape[1]), paddle.nn.Linear(rows.shape[1], rows.shape[1])
    with torch.no_grad():
        reference.weight.copy_(torch.eye(rows.shape[1]))
        reference.bias.zero_()
    port.set_state_dict({name: value.numpy() for name, value in reference.state_dict().items()})
    both = (planted.reference, planted.port)
    around = {"metrics": both} if hasattr(planted, "kind") else {"data": both, "samples": planted.samples}
    return ThirdPair(reference=reference.eval(), port=port, inputs={"args": rows, "labels": labels}, **around)


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
