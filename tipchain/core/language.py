"""The language, the color and the width of shown text, and text of others made fit to be shown."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TextIO

_SEQUENCES = (
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # ECMA-48: CSI, and OSC, DCS, SOS, PM, APC
)
_CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x9f"
# Unicode's bidirectional controls (UAX #9), line and paragraph separators, and tags: they change what is seen, or are not seen.
_UNSEEN = r"\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
# Patterns are compiled on first use: most commands show plain English, which needs none.
_REMOVED = f"{_SEQUENCES}|[{_CONTROLS}{_UNSEEN}]"
_ESCAPED = f"[{_CONTROLS}{_UNSEEN}\n\ud800-\udfff]"  # halves of characters, which no file or terminal takes


def clean(text: str) -> str:
    """Return ``text`` without characters that rewrite a terminal or disguise words.

    Escape sequences, control characters and bidirectional controls go; line ends and tabs stay.
    """
    return text if text.isprintable() else re.sub(_REMOVED, "", text)


def escaped(text: str) -> str:
    r"""Return ``text`` in one line, such characters spelled as Python spells them: ``\x1b``."""
    if text.isprintable():
        return text
    return re.sub(_ESCAPED, lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def escaped_lines(text: str) -> str:
    """Return ``text`` as `escaped` does, but keep its lines."""
    return "\n".join(escaped(line) for line in text.split("\n"))


# The language of what people read: English, as the code has it, or Chinese by the catalogue ``locale/zh.po``.
#
# Texts are made in English, and stored so: JSON, JUnit, logs and the history are the same whoever reads them. Where a text
# is shown, `say` puts it into the reader's language. A message of the catalogue is a sentence with named places,
# ``the chain passed: {number}``; `say` finds the message that a text is, and says what stands in its places likewise. So a report
# that is read again from its JSON is in the reader's language, too. Three kinds of places are told by their names: ``{n}``,
# ``{n2}``, … is a number, ``{cTEXT}`` a text that is never translated (code, a path), any other a text of its own.


VARIABLE = "TIPCHAIN_LANG"
"""``en`` or ``zh``: the value of ``--lang``, for this process and its children."""
LANGUAGES = ("en", "zh")
LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")
"""Variables that say the locale of messages; the first that is set counts. Source: POSIX, "Environment Variables"."""
PLACE = r"\{(\w+)\}"
MARKS = {"; ": "；", ": ": "：", " · ": " · ", ", ": "，"}
"""The marks between parts of a text, in English and in Chinese."""
CODE = r"`[^`]*`"
ENGLISH_WORD = r"(?<![\w/.-])[A-Za-z]?[a-z]+(?![\w/.-])"
OWN_LETTERS = 10
"""Letters of its own with which a message may have words in its places that nothing says: a choice."""
HAN = "[\u4e00-\u9fff]"
SENTENCE = r"(?<![\w/.-])[a-z]{2,}[:;]? (?=\S)"
EDGES = r"(?s)(?P<before>[ ,;:]*)(?P<text>.*?)(?: \((?P<place>[^\s()]+:\d+)\))?(?P<after>[ ,;:.]*)"
"""A text, with the line of code that may follow it, ``(my/port.py:8)``, and the marks around it."""


@contextmanager
def variable_set(name: str, value: str | None) -> Iterator[None]:
    """Set a variable of the environment, `VARIABLE` or `COLOR_VARIABLE`, in child processes too; None leaves it."""
    before = os.environ.get(name)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


def language() -> str:
    """Return ``"en"`` or ``"zh"``: the chosen language, else the locale's."""
    chosen = os.environ.get(VARIABLE)
    if chosen in LANGUAGES:
        return chosen
    locale = next((value for name in LOCALE if (value := os.environ.get(name))), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def say(text: str) -> str:
    """Return a text in the reader's language, line by line; unknown lines stay."""
    return text if language() == "en" else "\n".join(_read(line)[0] for line in text.split("\n"))


def template(message: str) -> str:
    """Return a message in the reader's language with its places open."""
    return message if language() == "en" else catalogue().get(message.rstrip("."), message)


@cache
def catalogue() -> Mapping[str, str]:
    """Return the Chinese catalogue."""
    import polib

    return {one.msgid: one.msgstr for one in polib.pofile(str(Path(__file__).parents[1] / "locale" / "zh.po"))}


@cache
def _patterns() -> Mapping[str, Sequence[tuple[int, str, Sequence[str]]]]:
    """Return messages with places by their rarest word, each with when it is tried and the texts between its places.

    A text that begins as a message does is that message, whatever follows; else the one with most words of its own is meant.
    """
    found = [one for one in catalogue() if re.search(PLACE, one)]
    found.sort(key=lambda one: (one.startswith("{"), -len(re.sub(PLACE, "", one))))
    words = [re.findall(r"(?<![\w{}])\w+(?![\w{}])", one) for one in found]  # those that no place touches
    counts = Counter(word for ones in words for word in ones)
    rarest = defaultdict(list)
    for number, (one, own) in enumerate(zip(found, words, strict=True)):
        rarest[min(own, key=counts.__getitem__, default="")].append((number, one, re.split(PLACE, one)[::2]))
    return rarest


@cache
def _pattern(message: str) -> re.Pattern[str]:
    parts = re.split(PLACE, message)
    pattern = "".join(
        f"(?P<{part}>{_kind(part, parts[place + 1])})" if place % 2 else re.escape(part)
        for place, part in enumerate(parts)
    )
    return re.compile(pattern, re.DOTALL)


def _kind(name: str, after: str = "") -> str:
    """Return the pattern of a place's text, in front of the text that follows it."""
    if re.fullmatch(r"n\d*", name):
        return r"[-+]?\d[\d.,]*(?:e[-+]?\d+)?"
    if not name.startswith("c"):
        return ".+?"
    # A list in code is not cut at its commas; of a text that ends with a mark, the message begins elsewhere.
    return r"(?:\[[^]`]*\]|[^`[])*?" + ("" if after.startswith("`") else "(?<![:;,])")


@lru_cache(maxsize=16384)
def _read(text: str) -> tuple[str, int]:
    """Return a text in Chinese, and how many words of it are left in English."""
    edges = re.fullmatch(EDGES, text)
    assert edges is not None  # every part of it may be empty
    inner = edges["text"]
    whole = catalogue().get(inner) or catalogue().get(inner[:1].lower() + inner[1:])
    found, left = (whole, 0) if whole else min(_readings(inner), key=lambda one: one[1], default=("", 0))
    if inner and not found:
        return text, len(re.findall(ENGLISH_WORD, re.sub(CODE, "", text)))
    before, after = edges["before"], re.sub(r"(?<!\.)\.(?!\.)", "。", edges["after"])
    after = re.sub("[:;,]$", lambda one: MARKS[f"{one[0]} "], after)
    for mark, other in MARKS.items():
        before, after = before.replace(mark, other), after.replace(mark, other)
    place = f"（{edges['place']}）" if edges["place"] else ""
    return f"{before.rstrip(' ') if found.startswith('（') else before}{found}{place}{after}", left


def _readings(text: str) -> Iterator[tuple[str, int]]:
    """Yield the possible readings of a text in Chinese: each message that it fits, and its parts, each said by itself."""
    known = _patterns()
    for _, message, own in sorted(one for word in {"", *re.findall(r"\w+", text)} for one in known.get(word, ())):
        # Its own words, looked for first, spare most messages' patterns.
        if not (text.startswith(own[0]) and text.endswith(own[-1]) and all(one in text for one in own)):
            continue
        match = _pattern(message).fullmatch(text)
        if match is not None and not _is_another(message, match):
            places = {  # names in code may be a list, but no sentence
                name: _read(value) if _kind(name) == ".+?" else (value, len(re.findall(SENTENCE, value)))
                for name, value in match.groupdict().items()
            }
            left = sum(left for _, left in places.values())
            if left and sum(map(len, own)) < OWN_LETTERS:
                continue  # so few words fit much that means something else
            parts = re.split(PLACE, catalogue()[message])
            text_said = parts[0]
            for name, words in zip(parts[1::2], parts[2::2], strict=True):
                text_said = _beside(_beside(text_said, places[name][0]), words)
            yield text_said, left
    for mark, other in MARKS.items():
        parts = re.split(rf"{re.escape(mark)}(?=[^`]*(?:`[^`]*`[^`]*)*\Z)", text)  # not within code
        if len(parts) == 1:
            continue
        if mark != ", ":
            # What follows a mark may be a message that has the same mark.
            parts = [parts[0], mark.join(parts[1:])]
        read = [_read(one) for one in parts]
        said = [one for one, _ in read]
        names = all(re.fullmatch(CODE, part) for part in parts)
        # What is no word stays: a number, a name, code, figures.
        kept = (other for one, other in zip(said, parts, strict=True) if one == other)
        whole = all(re.fullmatch(r"`[^`]*`|\S+|\S+=\S+( \S+=\S+)*", one) for one in kept)
        if names or (said != parts and (mark != ", " or whole)):
            yield other.join(said), sum(left for _, left in read)


def _is_another(message: str, match: re.Match[str]) -> bool:
    """Tell whether another message is meant: a place of code holds a sentence, or the first one several parts of a text."""
    outside = re.findall(PLACE, re.sub(CODE, "", message))
    if any(name.startswith("c") and len(re.findall(SENTENCE, match[name])) > 2 for name in outside):
        return True
    first = re.match(PLACE, message)
    if first is None or _kind(first[1]) != ".+?":
        return False
    text = re.sub(CODE, "", match[first[1]]).strip(" ;:")
    return "; " in text or ": " in text


def _beside(left: str, right: str) -> str:
    one, other = left.rstrip(" "), right.lstrip(" ")
    if not one or not other:
        return left + right
    chinese = bool(re.match(HAN, one[-1])), bool(re.match(HAN, other[0]))
    if all(chinese):
        return one + other
    latin = other[0] if chinese[0] else one[-1]
    return f"{one} {other}" if any(chinese) and re.match(r"[\w`-]", latin) else left + right


def listed(names: Sequence[str], most: int) -> str:
    """Return names in a sentence, the first few of many: ``a, b and 3 more``."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def many(count: int, one: str, several: str | None = None) -> str:
    """Return a number with its noun."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


# Layout in columns.


WIDTH = 80
"""Columns of a text where no terminal has others."""
UNIT = r"(?<=\d) (?=(?:%|ms|s|[KMGT]i?B|times)(?!\w))"
"""The blank between a number and its unit, which stay on one line."""
BESIDE_HAN = r"(?<=[^\s（])(?=[\u2e80-\uffef])(?![，。；：、）])|(?<=[\u2e80-\uffef])(?<!（)(?=[^\s，。；：、）])"
"""Where a line may end without a blank: beside a Chinese character, but never before a mark that ends something."""
NO_BREAK, BREAK = "\ufdd0", "\x1f"
"""Stand-ins for blanks: rich takes the first one for a letter, the second one for a blank without a width."""


def columns(text: str) -> int:
    """Return a text's width in columns: Chinese characters take two, accents and colors none."""
    text = clean(text) if "\x1b" in text else text
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def padded(text: str, width: int) -> str:
    """Return a text with blanks to at least so many columns."""
    return text + " " * (width - columns(text))


def aligned(text: str, width: int) -> str:
    """Return a text behind blanks that fill it up to so many columns."""
    return " " * (width - columns(text)) + text


def table(rows: Iterable[Sequence[str]], width: int | None = None) -> list[str]:
    """Return rows with their cells in columns; with a width, wrap the last cell."""
    rows, lines = list(rows), list[str]()
    widths = [max(map(columns, cells)) for cells in zip(*(row[:-1] for row in rows), strict=True)]
    for *cells, last in rows:
        head = "".join(f"{padded(cell, wide)}  " for cell, wide in zip(cells, widths, strict=True))
        lines += below(head, last.split("\n") if width is None else in_rows(last, width - columns(head)))
    return lines


def cut(text: str, width: int) -> str:
    """Return a text cut to at most so many columns, the cut marked."""
    if columns(text) <= width:
        return text
    from rich.cells import set_cell_size

    return f"{set_cell_size(text, width - 1).rstrip()}…"


def below(head: str, rows: Iterable[str]) -> list[str]:
    """Return lines behind a head, further ones below the first."""
    indent = " " * columns(head)
    return [f"{indent if number else head}{row}".rstrip() for number, row in enumerate(rows)]


def in_rows(text: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """Return a text in lines behind ``first``, whole; further ones stand behind ``rest``, else below the first.

    Paths and code are not broken, and a number stays with its unit.
    """
    if text.isascii() and text.isprintable() and len(first) + len(text) <= width:
        return [first + text.rstrip()]
    from rich._wrap import divide_line  # what a console wraps has words that are longer than a line broken

    rest = " " * columns(first) if rest is None else rest
    words = re.sub(UNIT, NO_BREAK, re.sub(BESIDE_HAN, BREAK, re.sub(r"\s", " ", text.expandtabs())))
    start = next(iter(divide_line(words, width - columns(first), fold=False)), len(words))
    ends = [start, *(start + at for at in divide_line(words[start:], width - columns(rest), fold=False)), None]
    rows = [words[:start], *(words[slice(*at)] for at in pairwise(ends))]
    rows = [row.replace(BREAK, "").replace(NO_BREAK, " ") for row in rows]
    return [f"{rest if number else first}{row}".rstrip() for number, row in enumerate(rows) if row or not number]


def fold(text: str, width: int) -> str:
    """Return a text folded to ``width`` columns, further lines two columns in.

    Words that are longer than a line (paths, code) are not broken.
    """
    rows: list[str] = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        rows += in_rows(line.lstrip(), width, indent, f"{indent}  ")
    return "\n".join(rows)


# The terminal: colors and width.


COLOR_VARIABLE = "TIPCHAIN_COLOR"
"""``always`` or ``never``: the value of ``--color``, for this process and its children."""


def paint(text: str, number: str, color: bool) -> str:
    """Return a text in the color that ANSI gives a number."""
    return f"\x1b[{number}m{text}\x1b[0m" if color else text


def use_color(stream: TextIO) -> bool:
    """Return whether ``stream`` is colored: as `COLOR_VARIABLE` says, else terminals without NO_COLOR."""
    chosen = os.environ.get(COLOR_VARIABLE)
    if chosen in ("always", "never"):
        return chosen == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> int:
    """Return the terminal's width, at least 60; 80 where there is none. ``COLUMNS`` comes first."""
    # As shutil.get_terminal_size, whose module loads every kind of archive.
    width = os.environ.get("COLUMNS", "")
    if width.isdecimal() and int(width):
        return max(int(width), 60)
    try:
        return max(os.get_terminal_size(sys.__stdout__.fileno()).columns or WIDTH, 60)  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):  # there is none
        return WIDTH
