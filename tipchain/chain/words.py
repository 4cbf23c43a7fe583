"""Values of a parameter file as words of a command line, without a shell."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import lru_cache

from tipchain.errors import ParamsError

Words = tuple[str, ...]
NOTHING = ("", "null")
# What makes splitting more than cutting at blanks; most values have none of it.
_SPECIAL = re.compile(r"""[^\x20-\x7e]|["'\\`();<>|&]""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A line of a parameter file in its place.

    Attributes:
        role: what the engine calls it.
        key: text before the first ``:``.
        value: text after it, without blanks around it.
        file: the file's name, for messages.
        line: 1-based line there; 0 for a slot that the file does not have.
    """

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

    def error(self, message: str, *, expected: object = None, hint: str | None = None) -> ParamsError:
        """Return an error that names this line."""
        return ParamsError(
            message,
            file=self.file,
            line=self.line,
            key=self.key,
            found=self.value,
            expected=expected,
            hint=hint,
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
    means it literally; put single quotes around it where one does.

    Args:
        text: what to split.
        slot: the line that it is from, for messages.
        pipes: take each ``|`` for a blank, as the original drivers' unquoted ``eval`` does.

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
    fixes: frozenset[str] = frozenset({"null", "no-shell"}),
) -> Words:
    """Return ``key=value`` as words, or nothing if the key or the value is absent.

    Args:
        slot: gives the key, and the value unless ``value`` is given.
        value: the value instead of the slot's.
        literal: ``value`` is our own and stays one word, whatever is in it.
        raw: write it even if it is ``null``, as some original drivers do.
        join: what stands between key and value.
        pipes: as in `split_words`; None for what the originals do unless ``no-shell`` is fixed.
        fixes: without ``null`` only what the originals take for absent is left out; without ``no-shell`` a given
            value is split into words too.
    """
    text = slot.value if value is None else value
    if not raw and _is_absent(slot.key, text, strict="null" not in fixes):
        return ()
    if pipes is None:
        pipes = "no-shell" not in fixes
    if not literal or "no-shell" not in fixes or join != "=":
        return split_words(f"{slot.key}{join}{text}", slot, pipes=pipes)
    *before, last = split_words(slot.key, slot) or ("",)
    return (*before, f"{last}={text}")


def _is_absent(key: str, text: str, *, strict: bool) -> bool:
    """Return whether a parameter is left out; ``strict`` is what the original drivers do."""
    if strict:
        return key == "null" or text in ("null", "", " ")
    return key in NOTHING or text.strip() in NOTHING
