"""Read YAML and remember the line of every key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tipchain.errors import CaseError


class _Loader(yaml.SafeLoader):
    """SafeLoader that also reads ``1e-4`` as a number, as YAML 1.2 does."""


_Loader.yaml_implicit_resolvers = {
    key: [(tag, pattern) for tag, pattern in pairs if tag != "tag:yaml.org,2002:float"]
    for key, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"""^(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?
        |[-+]?(?:[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)
        |\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?
        |[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$""",
        re.VERBOSE,
    ),
    list("-+0123456789."),
)

Path_ = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinedYaml:
    """A YAML document and the 1-based line of each key, by path."""

    data: Mapping[str, Any]
    lines: Mapping[Path_, int]

    def line(self, path: Path_) -> int | None:
        """Return the line of ``path``, or of its nearest parent that has one."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[:-1]
        return None


def load_yaml(path: Path) -> LinedYaml:
    """Return the mapping that ``path`` holds.

    Raises:
        CaseError: the file cannot be read, is no YAML, holds a key twice, or is not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise CaseError("cannot be read", file=path, found=error, expected="a YAML file") from error
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            lines: dict[Path_, int] = {}
            if node is not None:
                _collect(node, (), lines, path)
            data = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else None
        problem = getattr(error, "problem", None) or str(error)
        raise CaseError("is not YAML", file=path, line=line, found=problem) from error
    if not isinstance(data, dict):
        raise CaseError("is not a case", file=path, found=type(data).__name__, expected="a mapping of keys")
    return LinedYaml(data=data, lines=lines)


def _collect(node: yaml.Node, path: Path_, lines: dict[Path_, int], file: Path) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            line = key.start_mark.line + 1
            if here in lines:
                raise CaseError(
                    "stands twice",
                    file=file,
                    line=line,
                    key=".".join(here),
                    found=f"first on line {lines[here]}",
                )
            lines[here] = line
            _collect(value, here, lines, file)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            here = (*path, str(number))
            lines[here] = value.start_mark.line + 1
            _collect(value, here, lines, file)
