"""Names that a user gives: which layer or tensor of a torch model is which of its Paddle port."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

from tipchain.core.yaml_reader import load_yaml
from tipchain.errors import InputError, UsageError, suggestion
from tipchain.framework_types import Model
from tipchain.weights.sides import NOT_IN_PORT, NOT_IN_TORCH, Target, join, paddle_layers

FORM = "text on both sides, such as  backbone.fc: classifier.0  (numbers in quotes)"


@dataclass(frozen=True, slots=True, kw_only=True)
class NameMap:
    """The contents of a YAML file of names.

    Attributes:
        file: the file.
        names: Paddle's name by torch's, of layers or of tensors.
        lines: the 1-based line of each, by torch's name.
        ignore: layers or tensors of either model that the other one lacks.
    """

    file: Path
    names: Mapping[str, str]
    lines: Mapping[str, int]
    ignore: tuple[str, ...] = ()

    def check(self, reference: object, port: object) -> None:
        """Refuse names that the models do not have.

        Raises:
            InputError: of the first of them.
        """
        for one in unknown_names(self.names, reference, port):
            line = self.lines.get(str(one.key))
            raise InputError(one.message, file=self.file, line=line, key=one.key, expected=one.expected)


def read_names(path: Path) -> NameMap:
    """Return the mapping of names in a YAML file.

    Raises:
        InputError: it cannot be read, holds a name twice, or is no mapping of text to text.
    """
    reader = load_yaml(path, "a mapping of names")
    names = dict(reader.raw)
    ignore = names.pop("ignore", [])
    if not isinstance(ignore, list) or not all(isinstance(one, str) for one in ignore):
        expected = "a list of layers or tensors that one model lacks, such as  [pooler, head.aux]"
        raise reader.error("ignore", "is no list of names", found=repr(ignore), expected=expected)
    if isinstance(names.get("names"), dict) and len(names) == 1:
        names, reader = names["names"], reader.mapping("names")
    for key, value in names.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise reader.error(str(key), "is no name", found=repr(value), expected=FORM)
    return NameMap(
        file=path,
        names=dict(names),
        lines={key: line for key in names if (line := reader.line(key)) is not None},
        ignore=tuple(ignore),
    )


def pattern_of(name: str) -> re.Pattern[str]:
    """Return the pattern of a name with ``*`` for any name between dots."""
    return re.compile(r"([^.]+)".join(re.escape(part) for part in name.split("*")))


def expand_names(names: Mapping[str, str], reference: Model) -> dict[str, str]:
    """Return names with each ``*`` replaced by torch's names, first by first."""
    expanded: dict[str, str] = {}
    existing = list(with_layers(reference.state_dict())) if any("*" in key for key in names) else []
    for key, value in names.items():
        matches = [match for name in existing if (match := pattern_of(key).fullmatch(name))] if "*" in key else []
        if not matches:
            expanded[key] = value
        for match in matches:
            target = Target.parse(value)
            filled = tuple(
                reduce(lambda name, part: name.replace("*", part, 1), match.groups(), one) for one in target.names
            )
            expanded.setdefault(match[0], str(replace(target, names=filled)))
    return expanded


def with_ignored(names: Mapping[str, str], ignore: Collection[str], reference: Model, port: Model) -> dict[str, str]:
    """Return names, ``*`` replaced, with the layers or tensors to ignore that only one of the models has.

    Raises:
        UsageError: neither model has one of them.
    """
    expanded = expand_names(names, reference)
    existing = (with_layers(reference.state_dict()), _paddle_names(port)) if ignore else ({}, {})
    for one in ignore:
        reference_names, port_names = (
            [name for name in side if name and pattern_of(one).fullmatch(name)] for side in existing
        )
        if not reference_names and not port_names:
            near = suggestion(one, {**existing[0], **existing[1]})
            raise UsageError(
                f"ignore: neither model has {one!r}{near}\n  expected: a layer or tensor that one of them has"
            )
        expanded.update(dict.fromkeys(reference_names, NOT_IN_PORT))
        expanded.update((f"({name})", name) for name in port_names)
    return expanded


def check_names(names: Mapping[str, str], reference: object, port: object) -> None:
    """Refuse names that a model lacks, or under which only one model holds tensors.

    Raises:
        UsageError: of all of them, with the closest names that there are.
    """
    for key, value in names.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise UsageError(f"names: {key!r}: {value!r} is no name\n  expected: {FORM}")
    unknown = unknown_names(names, reference, port)
    if unknown:
        raise UsageError("\n".join(f"names: {one.key!r}: {one.message}\n  expected: {one.expected}" for one in unknown))


def unknown_names(names: Mapping[str, str], reference: Model, port: Model) -> list[InputError]:
    """Return the faults of names that lead from or to nothing, by torch's name as ``key``; ``"a + b"`` are two."""
    if not names:
        return []
    existing = with_layers(reference.state_dict()), _paddle_names(port)
    layers = dict(reference.named_modules()), dict(port.named_sublayers(include_self=True))
    unknown = []
    for key, value in expand_names(names, reference).items():
        both = layers[0].get(key), layers[1].get(value)
        bare = all(one is not None and not one.state_dict() for one in both)
        if bare or key.startswith(NOT_IN_TORCH) or value == NOT_IN_PORT:
            continue
        for side, name in ((0, key), *((1, one) for one in Target.parse(value).names)):
            if name not in existing[side]:
                model, near = ("torch", "Paddle")[side], suggestion(name, existing[side])
                message = f"the {model} model has no {name!r}{near}"
                if name in layers[side]:
                    message = f"{name!r} of the {model} model holds no tensors"
                expected = f"a tensor of the {model} model, or a layer that holds some where the other one's does"
                unknown.append(InputError(message, key=key, expected=expected))
    return unknown


def _paddle_names(model: Model) -> dict[str, None]:
    """Return the names of Paddle's layers and tensors, under torch's leaves too."""
    leaves = [join(layer.path, slot.leaf) for layer in paddle_layers(model) for slot in layer.slots]
    return with_layers([*model.state_dict(), *leaves])


def with_layers(tensors: Iterable[str]) -> dict[str, None]:
    """Return names of tensors after those of the layers above; "" is the model."""
    tensors = dict.fromkeys(tensors)
    above = (".".join(parts[:count]) for parts in (name.split(".") for name in tensors) for count in range(len(parts)))
    return dict.fromkeys([*above, *tensors])
