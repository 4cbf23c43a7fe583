"""The case's ``inputs``: what both sides are fed where no data are wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tipchain.parity.case_types import DTYPES, LABEL, InputSpec
from tipchain.stage_table import INFO
from tipchain.yaml_lines import Reader

FLOATS = ("normal", "probabilities")


def read_inputs(reader: Reader, stages: Sequence[str]) -> Mapping[str, InputSpec]:
    """Read the mapping ``inputs``, which ``stages`` rest on.

    Raises:
        CaseError: no shape or an impossible one, both ``shape`` and ``shapes``, counts of shapes that do not fit
            together, or an input that a stage needs and the case does not name.
    """
    inputs = reader.mapping("inputs", default={})
    assert inputs is not None
    result = {name: _read_one(inputs, name) for name in inputs.data}
    _check_counts(inputs, result)
    needs = [stage for stage in stages if "fake" in INFO[stage].uses]
    if needs and not [name for name in result if name != LABEL]:
        raise reader.error("inputs", f"has no model input; the {needs[0]} stage needs one",
                           expected="e.g. image: {shape: ...}")  # fmt: skip
    if LABEL not in result and any("loss" in INFO[stage].builders for stage in needs):
        batch = next(iter(result.values())).shape[0]
        raise reader.error(
            "inputs", "has no 'label'", expected=f"label: {{shape: [{batch}], dtype: int64, high: 10}}",
            hint="high is the number of classes",
        )  # fmt: skip
    return MappingProxyType(result)


def _read_one(inputs: Reader, name: str) -> InputSpec:
    one = inputs.mapping(name)
    assert one is not None
    shapes = _shapes(one)
    dtype = one.choice("dtype", DTYPES, default="float32")
    values = one.choice("values", FLOATS, default="normal")
    if values != "normal" and not dtype.startswith("float"):
        raise one.error(
            "values", "needs a float dtype", found=f"{values} of {dtype}", expected="dtype: float32"
        )
    low, high = one.integer("low", 0), one.integer("high", 2, least=1)
    if high <= low:
        raise one.error("high", "is not above low", found=high, expected=f"> {low}")
    spec = InputSpec(
        name=name, shape=shapes[0], shapes=shapes, dtype=dtype, seed=one.integer("seed", 0), low=low, high=high,
        values=values,
    )  # fmt: skip
    one.done()
    return spec


def _shapes(one: Reader) -> tuple[tuple[int, ...], ...]:
    """Return the shapes that an input is tried with, from ``shape`` or ``shapes``."""
    if "shapes" not in one.data:
        return (_shape(one, "shape", one.items("shape")),)
    found = one.items("shapes")
    if "shape" in one.data:
        raise one.error(
            "shape", "stands beside shapes", expected="one of them; the first of shapes is the usual one"
        )
    if not found:
        raise one.error("shapes", "is empty", expected="e.g. [[4, 3, 224, 224], [1, 3, 256, 256]]")
    shapes = tuple(_shape(one, "shapes", shape) for shape in found)
    if len(set(shapes)) < len(shapes):
        raise one.error("shapes", "names a shape twice", found=found, expected="different shapes")
    return shapes


def _shape(one: Reader, key: str, found: Any) -> tuple[int, ...]:
    good = isinstance(found, list) and all(
        isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in found
    )
    if not good or not found:
        raise one.error(
            key, "is not a shape", found=found, expected="whole numbers > 0, such as [4, 3, 224, 224]"
        )
    return tuple(found)


def _check_counts(inputs: Reader, specs: Mapping[str, InputSpec]) -> None:
    """Refuse inputs whose i-th shapes cannot go together."""
    several = {name: len(spec.shapes) for name, spec in specs.items() if len(spec.shapes) > 1}
    if LABEL in several:
        raise inputs.error(
            f"{LABEL}.shapes", "is not for labels", expected="shape; only forward tries several shapes"
        )
    for name, count in several.items():
        first = next(iter(several))
        if count != several[first]:
            raise inputs.error(f"{name}.shapes", f"does not go with {first}'s", found=f"{count} shapes",
                               expected=f"{several[first]}, as {first} has, or one")  # fmt: skip
