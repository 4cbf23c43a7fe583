"""The data and weights that a plan's commands name and nothing in the plan makes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tipchain.chain.plan import Command, Plan

INPUT = re.compile(r"data|imag|img|video|input|file|label|anno|list|weight|pretrain|model", re.IGNORECASE)
MODEL = re.compile(r"weight|pretrain|model", re.IGNORECASE)
OUTPUT = re.compile(r"save|output|out_|result|log|export", re.IGNORECASE)
NO_INPUT = re.compile(r"config|name|class_path|script", re.IGNORECASE)
ENDING = re.compile(
    r"\.(?:jpe?g|png|bmp|npy|npz|nii(?:\.gz)?|mp4|avi|wav|txt|list|csv|tsv|json|pkl|pdparams|pdmodel|pdiparams|pdema)$",
    re.IGNORECASE,
)
NO_PATH = re.compile(r"""://|[\[\]{}()'",;*?<>|$]|^\s*$""")
CONFIG = (".yml", ".yaml")
PROGRAM = (".py", ".sh", *CONFIG)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPath:
    """A path that a command reads.

    Attributes:
        path: relative to the checkout, or absolute.
        key: the argument that names it, as ``--image_dir`` or ``Global.infer_imgs``.
        command: id of the first command that does.
    """

    path: str
    key: str
    command: str

    def fault(self, root: Path) -> str:
        """Return what is wrong with it below ``root``: missing or empty; "" for nothing."""
        place = root / self.path
        found = [place] if place.exists() else []
        if not found and MODEL.search(
            self.key
        ):  # Paddle adds the ending itself: model.pdparams, model.pdmodel
            found = [path for path in place.parent.glob("*") if path.name.startswith(f"{place.name}.pd")]
        if not found:
            return "is a link to nothing" if place.is_symlink() else "is missing"
        if any(_holds_something(path) for path in found):
            return ""
        return "is an empty folder" if found[0].is_dir() else "is an empty file"


def _holds_something(path: Path) -> bool:
    if not path.is_dir():
        return path.stat().st_size > 0
    files = (Path(folder, name) for folder, _, names in os.walk(path, followlinks=True) for name in names)
    return any(file.exists() and file.stat().st_size > 0 for file in files)


def named_paths(plan: Plan) -> tuple[NamedPath, ...]:
    """Return the local paths of data, images and weights in the words of ``plan``, each once, in order.

    What stands in an argument called after data or a model counts; not URLs, configurations, and what the chain
    itself writes.
    """
    found: dict[str, NamedPath] = {}
    made = {_normal(".", path) for path in (plan.out, plan.run)}
    for command in plan.commands:
        pairs = list(_arguments(command.argv))
        for key, value in pairs:
            path = _place(command, value)
            if _is_input(key, value) and not _below(path, made):
                found.setdefault(path, NamedPath(path=path, key=key, command=command.id))
        made |= {_normal(command.cwd, value) for key, value in pairs if OUTPUT.search(key)}
        made |= set(_folders_left(command))
    return tuple(found.values())


def _arguments(argv: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of ``key=value`` words and of ``--key value`` words."""
    flag = ""
    for word in argv:
        key, equals, value = word.partition("=")
        if equals:
            yield key, value
        elif flag and not word.startswith("-"):
            yield flag, word
        flag = word if word.startswith("-") and not equals else ""


def _is_input(key: str, value: str) -> bool:
    if not INPUT.search(key) or OUTPUT.search(key) or NO_INPUT.search(key) or NO_PATH.search(value):
        return False
    return ("/" in value.rstrip("/") or bool(ENDING.search(value))) and not value.endswith(PROGRAM)


def _place(command: Command, value: str) -> str:
    """Return where a value points to.

    One that leads out of the checkout, ``../../../data`` beside ``models/rank/net/config.yaml``, is relative to the
    configuration's folder, if it stays inside from there.
    """
    path = _normal(command.cwd, value)
    if not path.startswith("../"):
        return path
    configs = (_normal(command.cwd, word) for word in command.argv if word.endswith(CONFIG))
    nearer = (_normal(os.path.dirname(config), value) for config in configs)  # noqa: PTH120 - a word
    return next((one for one in nearer if not one.startswith("../")), path)


def _normal(cwd: str, path: str) -> str:
    return os.path.normpath(PurePosixPath(cwd, path))


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders if folder != ".")


def _folders_left(command: Command) -> Iterator[str]:
    """Yield the folders that hold what ``command`` must leave."""
    for artifact in command.leaves:
        for pattern in artifact.files:
            fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
            yield os.path.normpath(fixed.rpartition("/")[0] or ".")
