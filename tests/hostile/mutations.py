"""Changes that turn an honest file into a hostile one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

MAX_BYTES = 1_000_000
NUMBERS = (
    0,
    1,
    127,
    128,
    255,
    256,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**53,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
TOKENS = (
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\t", b"\x1b[2J", "\u202e".encode(), b"'", b'"', b"{", b"}", b"[", b"]",
    b": ", b"- ", b"&a ", b"*a", b"<<: *a", b"!!int ", b"!!binary ", b"? ", b"|", b">", b"#", b"---\n", b"...", b"%YAML 9.9\n", b"null",
    b"true", b"nan", b"-inf", b"1e999", b"0x" + b"f" * 40, b"9" * 5000, b"-1", b"2024-13-45", b"../" * 20, b"/dev/zero",
    b"${HOME}", b"$(true)", b";true", b"`true`", b"||", b"=" * 30, b"lite_train_lite_infer=", b"(" * 500, b"[" * 5000,
    "\u4e2d\u6587".encode(),
)  # fmt: skip


STRANGE = (
    None,
    True,
    -1,
    10**30,
    float("nan"),
    "x\ud800\x1b[2J\u202e",
    [],
    {},
    [[1]],
    {"a": None},
    json.loads("[" * 900 + "]" * 900),
)
"""Values of JSON that nobody expects."""


def with_strange_values(document: Any) -> Iterator[Any]:
    """Yield copies of a document of JSON, each with something strange in one place."""
    parts = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for name, one in parts:
        for value in (*STRANGE, *with_strange_values(one)):
            copy = document.copy()
            copy[name] = value
            yield copy


def flip(content: bytes, generator: np.random.Generator) -> bytes:
    """Set a few bytes to any value."""
    made = bytearray(content)
    for at in generator.integers(0, max(len(made), 1), generator.integers(1, 6)):
        if made:
            made[at] = generator.integers(0, 256)
    return bytes(made)


def cut(content: bytes, generator: np.random.Generator) -> bytes:
    """Leave out a piece, often the end."""
    start, stop = sorted(generator.integers(0, len(content) + 1, 2).tolist())
    return content[:start] + (content[stop:] if generator.random() < 0.5 else b"")


def insert(content: bytes, generator: np.random.Generator) -> bytes:
    """Put in something that parsers stumble over."""
    at = int(generator.integers(0, len(content) + 1))
    return content[:at] + TOKENS[int(generator.integers(0, len(TOKENS)))] + content[at:]


def number(content: bytes, generator: np.random.Generator) -> bytes:
    """Write a number at the edge of what 1, 2, 4 or 8 bytes hold over what stands there."""
    width = int(generator.choice([1, 2, 4, 8]))
    value = int(generator.choice(np.array(NUMBERS, np.uint64))) % 256**width
    at = int(generator.integers(0, max(len(content) - width, 0) + 1))
    order = "little" if generator.random() < 0.7 else "big"
    return content[:at] + value.to_bytes(width, order) + content[at + width :]


def repeat(content: bytes, generator: np.random.Generator) -> bytes:
    """Say a piece again and again, up to the limit."""
    start = int(generator.integers(0, len(content) + 1))
    piece = content[start : start + int(generator.integers(1, 200))]
    times = int(generator.integers(2, 1 + max(2, (MAX_BYTES - len(content)) // max(len(piece), 1))))
    times = min(times, int(10 ** generator.uniform(0.4, 6)) + 1)
    return content[:start] + piece * times + content[start:]


def swap(content: bytes, generator: np.random.Generator) -> bytes:
    """Move a piece to another place."""
    start, stop, to = sorted(generator.integers(0, len(content) + 1, 3).tolist())
    return content[:start] + content[stop:to] + content[start:stop] + content[to:]


MUTATIONS: tuple[Callable[[bytes, np.random.Generator], bytes], ...] = (flip, cut, insert, number, repeat, swap)


def mutated(content: bytes, generator: np.random.Generator) -> bytes:
    """Return ``content`` after one to three changes, at most `MAX_BYTES` long."""
    for _ in range(int(generator.integers(1, 4))):
        content = MUTATIONS[int(generator.integers(0, len(MUTATIONS)))](content, generator)[:MAX_BYTES]
    return content
