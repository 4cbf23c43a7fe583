"""Read YAML, remember the line of every key, and check the values."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import yaml

from tipchain.errors import InputError, closest, did_you_mean, first_line

if TYPE_CHECKING:
    from tipchain.core.json_text import Json
    from tipchain.framework_types import Options


_Safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is several times as fast


MAX_BYTES = 10_000_000
MAX_NODES = 150_000
"""Keys and values of one file, those that aliases mean counted: a manifest of 10,000 items has some 110,000, and 256 bytes can
mean billions. A larger file takes seconds and gigabytes."""
MAX_DEPTH = 100


class _Loader(_Safe):  # type: ignore[misc]
    """SafeLoader that reads ``1e-4`` as a number, and gives every error a line."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        """Return a node's value.

        Raises:
            ConstructorError: no such day, no number behind ``!!int``, a whole number of more than 64 bits, ...
        """
        try:
            constructed = super().construct_object(node, deep)
        except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
            kind, value = node.tag.rpartition(":")[2], reprlib.repr(node.value)
            reason = (
                f"{value} as {kind}: {first_line(error)}" if isinstance(error, ValueError) else f"{value} as {kind}"
            )
            raise yaml.constructor.ConstructorError(None, None, reason, node.start_mark) from error
        if type(constructed) is int and not -(2**63) <= constructed < 2**64:
            raise yaml.constructor.ConstructorError(None, None, "a whole number of more than 64 bits", node.start_mark)
        return constructed


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)[eE][-+]?\d+$"),
    list("-+0123456789."),
)

Path_ = tuple[str, ...]


def load_yaml(path: Path, what: str = "a case") -> Reader:
    """Return a reader of the mapping that ``path`` holds.

    Args:
        path: the file.
        what: what the file should be, for messages.

    Raises:
        InputError: the file cannot be read, is no YAML, holds a key twice, or is not a mapping.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError("cannot be read", file=path, found=problem, expected="a YAML file") from problem
    if len(content) > MAX_BYTES:
        raise InputError("is too large", file=path, found=f"more than {MAX_BYTES:,} bytes", expected=f"{what}, as YAML")
    try:
        # libyaml's composer calls itself for each bracket, and ends the process where there are 100,000.
        depth = count = 0
        for event in yaml.parse(text, _Safe):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            count += isinstance(event, yaml.NodeEvent)
            _check_extent(depth, count, path, event.start_mark)
        loader = _Loader(text)
        node = loader.get_single_node()
        lines: dict[Path_, int] = {}
        if node is not None:
            _collect(node, (), lines, path)
        data = None if node is None else loader.construct_document(node)
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        line = mark.line + 1 if mark is not None else None
        if isinstance(problem, yaml.reader.ReaderError):
            line = text.count("\n", 0, problem.position) + 1
        reason = getattr(problem, "problem", None) or first_line(problem)
        raise InputError("is not YAML", file=path, line=line, found=reason) from problem
    if not isinstance(data, dict):
        raise InputError(
            f"is not {what}",
            file=path,
            found="nothing" if data is None else type(data).__name__,
            expected="a mapping of keys",
        )
    return Reader(path, data, lines)


def _check_extent(depth: int, count: int, file: Path, mark: Json) -> None:
    if depth > MAX_DEPTH:
        raise InputError("is nested too deeply", file=file, line=mark.line + 1, expected=f"at most {MAX_DEPTH} levels")
    if count > MAX_NODES:
        expected = f"at most {MAX_NODES:,} keys and values"
        raise InputError("is too large", file=file, line=mark.line + 1, expected=expected)


def _collect(node: yaml.Node, path: Path_, lines: dict[Path_, int], file: Path) -> None:
    _check_extent(len(path), len(lines), file, node.start_mark)  # an alias may stand inside its own anchor
    parts: list[tuple[str, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        parts = [(str(key.value), key, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        parts = [(str(number), value, value) for number, value in enumerate(node.value)]
    for name, place, value in parts:
        here, line = (*path, name), place.start_mark.line + 1
        if here in lines:
            found = f"first on line {lines[here]}"
            raise InputError("stands twice", file=file, line=line, key=".".join(here), found=found)
        lines[here] = line
        _collect(value, here, lines, file)


_CHOICES = (Literal, Union, UnionType)
_WORDS: Mapping[type, str] = {
    bool: "true or false",
    str: "a text",
    int: "a whole number",
    float: "a number",
    dict: "a mapping",
    list: "a list",
    tuple: "a list",
}


def expected_of(kind: Json) -> str:
    """Describe a value's type."""
    kinds = get_args(kind)
    origin: Json = get_origin(kind)
    if origin is Annotated:
        limits = ((">=", kinds[1].ge), (">", kinds[1].gt), ("<=", kinds[1].le))
        text = " and ".join(f"{sign} {limit}" for sign, limit in limits if limit is not None)
        return kinds[1].description or f"{expected_of(kinds[0])} {text}"
    if origin is Literal:
        return ", ".join(kinds)
    if origin in _CHOICES:
        return " or ".join(dict.fromkeys(expected_of(one) for one in kinds if one is not NoneType))
    return _WORDS[origin or kind]


class Reader:
    """Checked access to one mapping of a YAML file; knows each key's 1-based line, and remembers which were asked for."""

    def __init__(self, file: Path, raw: Mapping[Json, Json], lines: Mapping[Path_, int], path: Path_ = ()) -> None:
        self.file, self.raw, self.lines, self.path = file, raw, lines, path
        self.data = {str(key): value for key, value in raw.items()}
        self.asked: dict[str, None] = {}

    def at(self, path: Path_, raw: Mapping[Json, Json], lines: Mapping[Path_, int] | None = None) -> Reader:
        """Return a reader of a mapping that stands at a path of the file."""
        return Reader(self.file, raw, self.lines if lines is None else lines, path)

    def line(self, *below: str) -> int | None:
        """Return the line of a path below this mapping, or of its nearest parent that has one."""
        path = (*self.path, *below)
        return next((self.lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.lines), None)

    def error(self, key: str | Path_ | None, message: str, **facts: Json) -> InputError:
        """Return an error that names file, line and key; ``facts`` are the further fields of an `InputError`."""
        below = (key,) if isinstance(key, str) else key or ()
        if facts.get("hint") is None and isinstance(key, str) and key not in self.data:
            meant = closest(key, tuple(one for one in self.data if one not in self.asked))
            facts["hint"] = None if meant is None else f"line {self.line(meant)} has {meant!r}"
        return InputError(message, file=self.file, line=self.line(*below), key=".".join((*self.path, *below)), **facts)

    def unknown(
        self, key: str | Path_, known: Collection[str], message: str = "is not known", found: object = None
    ) -> InputError:
        """Return the error of what was found, or else of the key itself, that is none of ``known``."""
        hint = did_you_mean(str(key if found is None else found), known)
        return self.error(key, message, found=found, expected=", ".join(known), hint=hint)

    def read(self, key: str, kind: Json, expected: str = "", *, default: Json = ...) -> Json:
        """Return ``key``'s value of a type, as msgspec checks it; without a default it is required.

        Args:
            key: of this mapping.
            kind: the type, limits of a number and all; a mapping's values may have one of their own.
            expected: the type in words; those of `expected_of` if empty.
            default: what an absent key and an empty one stand for.
        """
        self.asked[key] = None
        origin: Json = get_origin(kind)
        value: Json = self.data.get(key)
        kinds = get_args(kind) if origin in _CHOICES else (kind,)
        if key not in self.data or (value is None and default is not ...):
            if default is ...:
                raise self.error(key, "is missing", expected=expected or expected_of(kind))
            return default
        if value is False and "off" in kinds:
            return "off"  # YAML 1.1 takes it for false
        if type(value) in kinds or value in kinds:
            return value  # most files are read without msgspec
        import msgspec

        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            fact, _, place = str(error).partition(" - at `$")
        path = [key]
        for number in re.findall(r"\d+", place) if isinstance(value, list) else ():
            path, value = [*path, number], value[int(number)]
        if fact.startswith("Invalid enum value"):
            raise self.unknown(tuple(path), expected_of(kind).split(", "), found=value)
        limits = {"length": "is empty", ">": "is too small", "<": "is too large"}
        message = next((text for sign, text in limits.items() if sign in fact), "has the wrong kind of value")
        raise self.error(tuple(path), message, found=repr(value), expected=expected or expected_of(kind))

    def choice(self, key: str, choices: Sequence[str], **default: Json) -> Json:
        """Return one of ``choices``."""
        kind: Json = Literal
        return self.read(key, kind[tuple(choices)], **default)

    def mapping(self, key: str, expected: str = "", *, optional: bool = False) -> Reader:
        """Return a reader of the mapping ``key``; a missing optional one is empty."""
        mapping = self.read(key, dict, expected, default={} if optional else ...)
        return self.at((*self.path, key), mapping)

    def entries(self, key: str, expected: str, *, wrong: str) -> Iterator[Reader]:
        """Yield a reader of each mapping in the optional list ``key``; others are ``wrong``."""
        for number, found in enumerate(self.read(key, list, default=())):
            if not isinstance(found, dict):
                raise self.error((key, str(number)), wrong, found=repr(found), expected=expected)
            yield self.at((*self.path, key, str(number)), found)

    def args(self, key: str) -> Options:
        """Return a mapping of arguments, unchecked."""
        return MappingProxyType(self.mapping(key, "a mapping of arguments", optional=True).data)

    def done(self, known: Collection[str] = (), message: str = "is not a known key") -> None:
        """Refuse keys that are none of ``known``, else those that nothing asked for."""
        known = known or self.asked
        for key in self.data:
            if key not in known:
                raise self.unknown(key, known, message)
