"""Values of a manifest's entries: lists of texts, choices, words, variables, times and sizes, each checked."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from tipchain.errors import ManifestError, did_you_mean
from tipchain.nightly.items import CLUSTERS_OWN
from tipchain.yaml_lines import Reader

WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
RESOURCES_EXPECTED = (
    "names of a cluster's resources with amounts, {imagenet: 1}; cpus, gpus and memory have keys of their own"
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def quantity(one: Reader, key: str, parse: Any, expected: str, default: float) -> Any:
    """Return the time or size of ``key``, as ``parse`` reads it."""
    found = one.value(key, (str, int, float), expected, default=None)
    if found is None:
        return default
    try:
        return parse(found)
    except ValueError:
        raise one.error(key, "cannot be read", found=repr(found), expected=expected) from None


def texts(one: Reader, key: str, expected: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return a list of texts; one text alone is a list of one."""
    found = one.value(key, (list, str), expected, default=... if default is None else default)
    found = [found] if isinstance(found, str) else found
    for number, text in enumerate(found):
        if not isinstance(text, str) or not text:
            path = (*one.path, key, str(number))
            raise ManifestError(
                "is not a text", file=one.file, line=one.document.line(path), key=".".join(path),
                found=repr(text), expected=expected,
            )  # fmt: skip
    return tuple(found)


def choices(
    one: Reader, key: str, choices: Sequence[Any], default: Sequence[Any] | None = None
) -> tuple[Any, ...]:
    """Return a list of some of ``choices``, each once."""
    found = texts(one, key, f"a list of {', '.join(choices)}", default)
    for text in found:
        if text not in choices:
            raise one.error(
                key, "is not known", found=text, expected=", ".join(choices), hint=did_you_mean(text, choices)
            )
    if not found:
        raise one.error(key, "is empty", expected=f"some of {', '.join(choices)}")
    return tuple(dict.fromkeys(found))


def words(one: Reader, key: str, default: Sequence[str]) -> tuple[str, ...]:
    """Return a list of words that can be selected by."""
    found = texts(one, key, "a list of words", default)
    for text in found:
        if not WORD.fullmatch(text):
            raise one.error(key, "is not a word", found=repr(text), expected="letters, digits, '.', '_', '-'")
    return tuple(dict.fromkeys(found))


def env(one: Reader) -> dict[str, str]:
    """Return the variables of ``env``, as texts."""
    found = one.value("env", dict, "a mapping of variables", default={})
    for name, value in found.items():
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise one.error("env", "is not a variable's name", found=repr(name), expected="NAME: value")
        if isinstance(value, (dict, list)) or value is None:
            raise one.error("env", f"{name} is not a text", found=repr(value), expected="NAME: value")
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in found.items()
    }


def resources(one: Reader) -> dict[str, float]:
    """Return the amounts of ``resources``, by name."""
    found = one.value("resources", dict, RESOURCES_EXPECTED, default={})
    for name, amount in found.items():
        if not isinstance(name, str) or not name or name in CLUSTERS_OWN:
            raise one.error(
                "resources", "is not a resource's name", found=repr(name), expected=RESOURCES_EXPECTED
            )
        if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not 0 < amount < math.inf:
            raise one.error(
                "resources", f"{name} is not an amount", found=repr(amount), expected=RESOURCES_EXPECTED
            )
    return {name: float(amount) for name, amount in found.items()}
