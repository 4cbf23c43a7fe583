"""Move files aside instead of deleting them while a suite's script runs, and back if asked for.

The script gets an ``rm`` that does not delete what is older than its start, or holds something that is: it moves that
aside, beside its place, and writes it down. So the script finds what it expects, a place that is free. With
``--keep-data`` everything is moved back afterwards; what the script made in such a place is moved beside it. After a run
that was killed the next one moves it back: the list is in the checkout.

Older is what was last changed before: the time of change (ctime) cannot be set, so unpacking an archive does not make
its files look old. This file is also the ``rm`` itself and must run alone, with nothing of tipchain imported.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

LIST = "kept.jsonl"
MARK = ".started"
TICK_S = 0.01
"""Times of files advance in steps of some milliseconds."""
LONGEST_WAIT_S = 3.0


def start_keeping(logs: Path, programs: Path) -> None:
    """Put an ``rm`` into the folder ``programs`` that keeps the present files; its list goes to ``logs``."""
    mark = logs / MARK
    mark.touch()
    began = mark.stat().st_ctime_ns
    limit = time.monotonic() + LONGEST_WAIT_S
    while mark.stat().st_ctime_ns == began and time.monotonic() < limit:
        time.sleep(TICK_S)
        mark.touch()
    mark.unlink()
    real = shutil.which("rm") or "/bin/rm"
    words = (sys.executable, "-I", "-S", __file__, str(logs), str(began), real)
    rm = programs / "rm"
    rm.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    rm.chmod(0o755)


def left_aside(logs: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the files moved aside, each place with where it is now, and forget the list."""
    for place, aside in _moved(logs):
        if os.path.lexists(aside):
            yield place, aside
    (logs / LIST).unlink(missing_ok=True)


def _moved(logs: Path) -> list[tuple[Path, Path]]:
    try:
        lines = (logs / LIST).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [(Path(place), Path(aside)) for place, aside in map(json.loads, lines)]


def put_back(logs: Path) -> Iterator[tuple[Path, Path | None]]:
    """Move back the files moved aside; yield each place, and where the script's own file is now, None for none.

    Raises:
        OSError: something cannot be moved; it stays in the list.
    """
    list_, entries = logs / LIST, _moved(logs)
    while entries:
        place, aside = entries[-1]
        if os.path.lexists(aside):
            beside = None
            if os.path.lexists(place):
                first = place.with_name(f"{place.name}.from-script")
                equal = place.is_symlink() and first.is_symlink() and place.readlink() == first.readlink()
                beside = first if equal else _free(first)
                place.replace(beside)
            place.parent.mkdir(parents=True, exist_ok=True)
            aside.rename(place)
            yield place, beside
        entries.pop()
        left = list_.with_name(f"{LIST}.new")
        left.write_text("".join(map(_line, entries)), encoding="utf-8")
        left.replace(list_)
    list_.unlink(missing_ok=True)


def _line(entry: tuple[Path, Path]) -> str:
    return f"{json.dumps([str(path) for path in entry])}\n"


def _free(name: Path) -> Path:
    return next(
        one
        for number in count(1)
        if not os.path.lexists(one := name if number == 1 else name.with_name(f"{name.name}.{number}"))
    )


def rm(logs: Path, began_ns: int, real: str, words: list[str]) -> int:
    """Move aside the operands that are older; hand the others to the program ``real`` and return its exit status."""
    at = words.index("--") if "--" in words else len(words)
    options = [word for word in words[:at] if word.startswith("-")]
    operands = [word for word in words[:at] if not word.startswith("-")] + words[at + 1 :]
    rest, status = [], 0
    for operand in operands:
        place = Path(os.path.abspath(operand))  # noqa: PTH100 - a link itself is deleted, not what it points to
        try:
            if place == logs or place in logs.parents or _holds_older(place, began_ns):
                _move_aside(place, logs)
            else:
                rest.append(operand)
        except OSError as error:
            sys.stderr.write(f"rm: cannot move {operand!r} aside: {error.strerror}\n")
            status = 1
    if operands and not rest:
        return status
    return subprocess.run([real, *options, "--", *rest], check=False).returncode or status


def _holds_older(place: Path, began_ns: int) -> bool:
    if not os.path.lexists(place):
        return False
    if place.lstat().st_ctime_ns <= began_ns:
        return True
    below = os.walk(place) if not place.is_symlink() else ()
    return any(
        Path(folder, name).lstat().st_ctime_ns <= began_ns
        for folder, folders, files in below
        for name in (*folders, *files)
    )


def _move_aside(place: Path, logs: Path) -> None:
    if place == logs or place in logs.parents:
        raise OSError(0, "the list of what is moved aside is in it")
    aside = _free(place.with_name(f".{place.name}.kept"))
    with (logs / LIST).open("a", encoding="utf-8") as file:
        file.write(_line((place, aside)))
        file.flush()
        os.fsync(file.fileno())
    place.rename(aside)


if __name__ == "__main__":
    sys.exit(rm(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]))
