"""What of a project's folder Ray sends to its nodes, looked through before Ray does.

Ray follows links, to data sets elsewhere, to pipes, and in circles; it reads everything and writes it into an archive
before it finds that it is too much.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pathspec import GitIgnoreSpec

from tipchain.errors import UsageError

MIB = 1 << 20
LIMIT = int(os.environ.get("RAY_max_grpc_message_size", 512 * MIB))  # noqa: SIM112 - Ray's
"""Bytes that Ray takes, at most; it does not compress them."""
IGNORED_NO_MORE = "RAY_RUNTIME_ENV_IGNORE_GITIGNORE"
"""Set to 1, Ray sends what a ``.gitignore`` names."""
LARGEST = 3
_Rule = Callable[[str], bool]


@dataclass(slots=True)
class Shipment:
    """What is sent.

    Attributes:
        left_out: what cannot be sent, as patterns of a ``.gitignore``.
        sizes: bytes below each entry of the root.
    """

    left_out: list[str] = field(default_factory=list)
    sizes: Counter[str] = field(default_factory=Counter)

    def check(self) -> None:
        """Refuse what Ray would not take.

        Raises:
            UsageError: it is too much.
        """
        if (total := sum(self.sizes.values())) >= LIMIT:
            largest = ", ".join(f"{name} {size / MIB:,.0f}" for name, size in self.sizes.most_common(LARGEST))
            raise UsageError(
                f"--ship: the project has {total / MIB:,.0f} MiB, Ray sends {LIMIT / MIB:,.0f} MiB at most\n"
                f"  largest, in MiB: {largest}\n  hint: what a .rayignore or .gitignore names is not sent"
            )


def survey(root: Path, left_out: Sequence[str]) -> Shipment:
    """Look through a project's folder.

    Args:
        root: the folder.
        left_out: patterns, as of a ``.gitignore`` at the root, of what is not sent.

    Raises:
        OSError: a folder cannot be read.
    """
    found = Shipment()
    _look(root, (root.resolve(),), root, [_rule(root, left_out)], found)
    return found


def _look(root: Path, above: tuple[Path, ...], folder: Path, rules: list[_Rule], found: Shipment) -> None:
    """Look through a folder that is sent; ``above`` are it and all above it, without links."""
    rules = [*rules, *_own_rules(folder)]
    with os.scandir(folder) as entries:
        for entry in entries:
            path = folder / entry.name
            if any(rule(str(path)) for rule in rules):
                continue
            below, kind = path.relative_to(root), _kind(path)
            if stat.S_ISREG(kind):
                found.sizes[below.parts[0]] += path.stat().st_size
                continue
            place = path.resolve() if entry.is_symlink() else above[-1] / entry.name
            if stat.S_ISDIR(kind) and place.is_relative_to(above[0]) and place not in above:
                _look(root, (*above, place), path, rules, found)
            elif kind:
                found.left_out.append(_pattern(below))


def _kind(path: Path) -> int:
    """Return what a path leads to; 0: nowhere, which Ray leaves out by itself."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0


def _own_rules(folder: Path) -> Iterator[_Rule]:
    names = (".rayignore",) if os.environ.get(IGNORED_NO_MORE) == "1" else (".gitignore", ".rayignore")
    for name in names:
        path = folder / name
        if path.is_file():
            yield _rule(folder, path.read_text(encoding="utf-8", errors="surrogateescape").splitlines())


def _rule(folder: Path, patterns: Sequence[str]) -> _Rule:
    """Return what tells whether a path below a folder is named by patterns, as Ray reads them."""
    spec, start = GitIgnoreSpec.from_lines(patterns), len(f"{folder}/".replace("//", "/"))
    return lambda path: spec.match_file(path[start:])


def _pattern(below: Path) -> str:
    """Return the pattern of one path and nothing else."""
    return "/" + "".join(f"\\{one}" if one in "\\*?[]! " else one for one in below.as_posix())
