"""The text of a TIPC parameter file: sections of ``key:value`` lines.

Nothing here knows what a line is for; that is the layout's business (``slots``). A value is everything
after the first ``:``; a line without one is a key with an empty value. Blank lines, comment lines (``#`` first), CRLF, a byte order mark and a missing final
newline are harmless. No text of a file ever reaches a shell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from tipchain.errors import ParamsError

HEADER = re.compile(r"=+\s*([A-Za-z0-9_]+)\s*=+\s*")
HEADERLESS: Mapping[str, str] = {"*lite_arm*": "lite_params", "*infer_cpp*": "cpp_program_params"}
"""What the lines of files without a header belong to, by the file's name: two of the suites' drivers have such files."""
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """One ``key:value`` line; keys are not unique in a file.

    Attributes:
        section: name in the header above the line, as ``train_params``.
        key: text before the first ``:``, without blanks around it.
        value: all text after it, as it stands.
        line: 1-based line in the file.
    """

    section: str
    key: str
    value: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamFile:
    """A parsed parameter file.

    Attributes:
        path: name of the file, for messages.
        lines: the lines without line ends and byte order mark.
        headers: section names in order, each with its line.
        params: the ``key:value`` lines in order.
    """

    path: str
    lines: tuple[str, ...]
    headers: tuple[tuple[str, int], ...]
    params: tuple[Param, ...]

    def where(self, param: Param) -> str:
        """Return ``file:line`` of ``param``."""
        return f"{self.path}:{param.line}"

    def section(self, name: str) -> tuple[Param, ...]:
        """Return the lines of the section called ``name``."""
        return tuple(param for param in self.params if param.section == name)


def read_text(path: Path) -> str:
    """Return the text of the parameter file at ``path``.

    Raises:
        ParamsError: it cannot be read or is not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ParamsError("is not UTF-8 text", file=path, found=f"byte {error.start}") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise ParamsError(f"cannot be read: {reason}", file=str(path).replace("\0", "\\0")) from error


def split_lines(text: str) -> tuple[str, ...]:
    """Return the lines of ``text`` without their ends (LF or CRLF) and without a byte order mark."""
    lines = text.removeprefix("\ufeff").split("\n")
    if lines[-1] == "":
        lines.pop()
    return tuple(line.rstrip("\r") for line in lines)


def parse_params(
    text: str, path: str = "<text>", refuse: Callable[[ParamsError], None] | None = None
) -> ParamFile:
    """Parse the ``text`` of a parameter file.

    Args:
        text: the whole file.
        path: for messages only.
        refuse: told of every line that cannot be one, which is then read as far as it goes; without it the first raises.

    Raises:
        ParamsError: a line before the first header, a control character.
    """
    lines = split_lines(text)
    headers: list[tuple[str, int]] = []
    params: list[Param] = []

    def wrong(message: str, number: int, found: str, expected: str | None = None) -> None:
        error = ParamsError(message, file=path, line=number, found=found, expected=expected)
        if refuse is None:
            raise error
        refuse(error)

    for number, line in enumerate(lines, 1):
        plain = line
        if CONTROL.search(line):
            wrong("a control character in the line", number, ascii(line))
            plain = "".join(one for one in line if one.isprintable() or one == "\t")
        bare = plain.strip()
        if not bare or bare.startswith("#"):
            continue
        if header := HEADER.fullmatch(bare):
            headers.append((header[1], number))
        elif not headers and not params and (own := _section_by_name(path)):
            headers.append((own, 0))
            params.append(_param(own, plain, number))
        elif not headers:
            wrong("a line before the first section header", number, plain, "===...train_params...===")
        else:
            params.append(_param(headers[-1][0], plain, number))
    return ParamFile(path=path, lines=lines, headers=tuple(headers), params=tuple(params))


def _param(section: str, line: str, number: int) -> Param:
    key, _, value = line.partition(":")
    return Param(section=section, key=key.strip(), value=value, line=number)


def _section_by_name(path: str) -> str:
    """Return the section of a file without headers, "" where its name says none."""
    name = PurePath(path).name
    return next((section for pattern, section in HEADERLESS.items() if fnmatchcase(name, pattern)), "")


def read_params(path: Path) -> ParamFile:
    """Read and parse the parameter file at ``path``.

    Raises:
        ParamsError: it cannot be read or is not a parameter file.
    """
    return parse_params(read_text(path), str(path))


def render_params(file: ParamFile) -> str:
    """Return text that parses to ``file``, comments and blank lines included."""
    return "".join(line + "\n" for line in file.lines)
