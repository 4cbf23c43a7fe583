"""The text of a TIPC parameter file: sections of ``key:value`` lines, and values as words without a shell."""

from __future__ import annotations

import codecs
import re
import shlex
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePath
from typing import NamedTuple

from tipchain.errors import ParamsError

# Nothing here knows what a line is for; that is the layout's business (``slots``). A value is everything
# after the first ``:``; a line without one is a key with an empty value. Blank lines, comment lines (``#`` first), CRLF, a byte order mark and a missing final
# newline are harmless. No text of a file ever reaches a shell.


HEADER = re.compile(r"=+\s*([A-Za-z0-9_]+(?:[ \t]+[A-Za-z0-9_]+)*)\s*=+\s*")
HEADERLESS: Mapping[str, str] = {"*lite_arm*": "lite_params", "*infer_cpp*": "cpp_program_params"}
"""The section of lines without a header, by the file's name: two of the suites' drivers have such files."""
MAX_BYTES = 1_000_000
"""Of a parameter file: the largest of 2,675 public ones has 3,130. Parsing 100 MB takes minutes."""
FOUND = 60
"""Bytes of a line that are shown of a file that is not text."""
CONFLICT = re.compile(r"(<{7}|>{7}|\|{7})( |$)|={7}$")
FULL_WIDTH_COLON, FULL_WIDTH_BAR = "\uff1a", "\uff5c"
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Param(NamedTuple):
    """One ``key:value`` line below a section's header; keys are not unique in a file. The value is as it stands."""

    section: str
    key: str
    value: str
    line: int


class ParamFile(NamedTuple):
    """A parsed parameter file; ``headers`` are the names of its sections in order, each with its line."""

    path: str
    lines: tuple[str, ...]
    headers: tuple[tuple[str, int], ...]
    params: tuple[Param, ...]

    def section(self, name: str) -> tuple[Param, ...]:
        """Return the lines of the section called ``name``."""
        return tuple(param for param in self.params if param.section == name)


def read_text(path: Path) -> str:
    """Return the text of the parameter file at ``path``.

    Raises:
        ParamsError: it cannot be read, is not UTF-8, or is larger than any parameter file.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        above = next((folder for folder in path.parents if folder.is_dir()), None)
        like = next(above.rglob(path.name), None) if above and isinstance(error, FileNotFoundError) else None
        hint = f"there is {like}" if like else None
        raise ParamsError(f"cannot be read: {reason}", file=str(path).replace("\0", "\\0"), hint=hint) from error
    if len(data) > MAX_BYTES:
        raise ParamsError("is too large for a parameter file", file=path, expected=f"at most {MAX_BYTES:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        start, cause = error.start, error
    number = data.count(b"\n", 0, start) + 1
    line = data.split(b"\n", number)[number - 1].rstrip(b"\r")
    key, colon, _ = line.partition(b":")
    likely = "UTF-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "GB18030"
    try:
        data.decode(likely)
        hint = f"if it is {likely}, convert it: iconv -f {likely} -t UTF-8"
    except UnicodeDecodeError:
        hint = None
    raise ParamsError(
        "is not UTF-8 text",
        file=path,
        line=number,
        key=key.decode() if colon and key.isascii() and b"\0" not in key else None,
        found=f"byte {start}, in {repr(line[:FOUND])[1:]}",
        expected="UTF-8",
        hint=hint,
    ) from cause


def split_lines(text: str) -> tuple[str, ...]:
    """Return the lines of ``text`` without their ends (LF or CRLF) and without a byte order mark."""
    lines = text.removeprefix("\ufeff").split("\n")
    if lines[-1] == "":
        lines.pop()
    return tuple(line.rstrip("\r") for line in lines)


def parse_params(text: str, path: str = "<text>", refuse: Callable[[ParamsError], None] | None = None) -> ParamFile:
    """Parse the ``text`` of a parameter file.

    ``refuse`` is told of every line that cannot be one, which is then read as far as it goes; without it the first raises.

    Raises:
        ParamsError: a line before the first header, a control character, a conflict's marker, a full-width colon.
    """
    lines = split_lines(text)
    headers: list[tuple[str, int]] = []
    params: list[Param] = []
    name = PurePath(path).name
    own = next((section for pattern, section in HEADERLESS.items() if fnmatchcase(name, pattern)), "")

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
        if CONFLICT.match(bare):
            wrong("a marker of a merge conflict: two versions of these lines stand in the file", number, bare[:FOUND])
            continue
        if FULL_WIDTH_COLON in bare.partition(":")[0]:
            wrong(
                "a full-width colon stands after the key", number, bare[:FOUND], f"`:` in place of `{FULL_WIDTH_COLON}`"
            )
            plain = plain.replace(FULL_WIDTH_COLON, ":", 1)
        if header := HEADER.fullmatch(bare):
            headers.append(("_".join(header[1].split()), number))
            continue
        headers += [(own, 0)] if own and not headers else []
        if not headers:
            wrong("a line before the first section header", number, plain, "===...train_params...===")
            continue
        key, _, value = plain.partition(":")
        params.append(Param(section=headers[-1][0], key=key.strip(), value=value, line=number))
    return ParamFile(path=path, lines=lines, headers=tuple(headers), params=tuple(params))


def read_params(path: Path) -> ParamFile:
    """Read and parse the parameter file at ``path``.

    Raises:
        ParamsError: it cannot be read or is not a parameter file.
    """
    return parse_params(read_text(path), str(path))


Words = tuple[str, ...]
NOTHING = ("", "null")
# What makes splitting more than cutting at blanks; most values have none of it.
_SPECIAL = re.compile(r"""[^\x20-\x7e]|["'\\`();<>|&]""")


class Slot(NamedTuple):
    """A line of a parameter file in its place; its line is 0 where the file does not have it."""

    role: str
    key: str
    value: str
    file: str
    line: int

    @property
    def absent(self) -> bool:
        """Whether the value is empty or ``null``; a blank makes it something else, to the originals at least."""
        return self.value in NOTHING

    @property
    def values(self) -> tuple[str, ...]:
        """The value split at ``|``: no element for an empty value, a ``|`` at the end adds none."""
        return _elements(self.value)

    def checked_values(self) -> tuple[str, ...]:
        """Return `values`.

        Raises:
            ParamsError: a full-width bar stands in the list, which made one value of two.
        """
        if FULL_WIDTH_BAR in self.value:
            raise self.error(
                f"a full-width {FULL_WIDTH_BAR!r} stands in the list and separates nothing", expected="'|'"
            )
        return self.values

    def error(self, message: str, *, expected: object = None, hint: str | None = None) -> ParamsError:
        """Return an error that names this line."""
        return ParamsError(
            message, file=self.file, line=self.line, key=self.key, found=self.value, expected=expected, hint=hint
        )


@lru_cache(maxsize=4096)
def _elements(value: str) -> tuple[str, ...]:
    if not value.strip():
        return ()
    parts = value.split("|")
    return tuple(part.strip() for part in (parts[:-1] if not parts[-1].strip() else parts))


def check_folder_name(slot: Slot, name: str) -> None:
    """Refuse a name that would leave its folder or be taken for an option.

    Raises:
        ParamsError: it would.
    """
    if not re.fullmatch(r"[A-Za-z0-9_+.,=@-]+", name) or name in (".", "..") or name.startswith("-"):
        raise slot.error(f"{name!r} cannot be a folder's name", expected="letters, digits and any of _+.,=@-")


def plain_list(value: str) -> tuple[str, ...]:
    """Return a list as bash splits it at ``|``: nothing is trimmed, an empty value has no element."""
    parts = value.split("|")
    return tuple(parts[:-1] if parts[-1] == "" else parts)


def split_words(text: str, slot: Slot, *, pipes: bool = False) -> Words:
    """Split ``text`` like POSIX words: blanks separate, quotes and backslashes protect.

    What a shell would have acted on is refused rather than handed on as an argument, because no author
    means it literally; put single quotes around it where one does. With ``pipes`` each ``|`` is a blank, as for the
    original drivers' unquoted ``eval``.

    Raises:
        ParamsError: an unbalanced quote, or an unquoted ``;``, ``|``, ``&``, ``<``, ``>``, ``(``, ``)``,
            backtick or ``$(``.
    """
    if pipes:
        text = text.replace("|", " ")
    if not _SPECIAL.search(text):
        return tuple(text.split())
    if operator := shell_operator(text):
        raise slot.error(
            f"{operator!r} would be acted on by a shell; tipchain runs programs without one",
            hint="put single quotes around it if it is meant literally",
        )
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise slot.error(f"cannot be split into words: {str(error).lower()}") from error


def shell_operator(text: str) -> str:
    """Return the first thing in ``text`` that a shell would act on, "" if there is none."""
    quote, index = "", 0
    while index < len(text):
        character = text[index]
        if character == "\\" and quote != "'":
            index += 2
            continue
        if quote != "'" and (character == "`" or text.startswith("$(", index)):
            return character if character == "`" else "$("
        if not quote and character in "();<>|&":
            return character
        if not quote and character in "'\"":
            quote = character
        elif character == quote:
            quote = ""
        index += 1
    return ""


def flag(
    slot: Slot,
    value: str | None = None,
    *,
    raw: bool = False,
    literal: bool = False,
    join: str = "=",
    pipes: bool | None = None,
    legacy: bool = False,
) -> Words:
    """Return ``key=value`` as words, or nothing if the key or the value is absent.

    Args:
        slot: gives the key, and the value unless ``value`` is given.
        value: the value instead of the slot's.
        literal: ``value`` is our own and stays one word, whatever is in it.
        raw: write it even if it is ``null``, as some original drivers do.
        join: what stands between key and value.
        pipes: as in `split_words`; None for what the originals do with ``legacy``.
        legacy: as the originals do: what they take for absent is left out, and a given value is split into words too.
    """
    text = slot.value if value is None else value
    absent = (
        slot.key == "null" or text in ("null", "", " ") if legacy else slot.key in NOTHING or text.strip() in NOTHING
    )
    if absent and not raw:
        return ()
    if not literal or legacy or join != "=":
        return split_words(f"{slot.key}{join}{text}", slot, pipes=legacy if pipes is None else pipes)
    *before, last = split_words(slot.key, slot) or ("",)
    return (*before, f"{last}={text}")
