"""Reading the lists that were worked out by hand.

A list's file is YAML: ``let`` names texts, ``lists`` holds the commands of modes. ``{NAME}`` in a text stands for
the named one, ``{MODE}`` for the mode and ``{ROOT}`` for the folder that the plan is made in. A command is a line
``STEP CVD=... cwd=... log=...`` (what is left out is not set, ``.`` for cwd) and below it, indented, its words as
a shell reads them.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import yaml

NAMED = re.compile(r"\{([A-Z0-9_]+)\}")
HEAD = {"CVD": "cuda_visible_devices", "cwd": "cwd", "log": "log"}


def read_lists(path: Path):
    """Return the expected commands by mode.

    Raises:
        ValueError: the file says something twice, or nothing for a name or a line.
    """
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    found = {}
    for entry in data["lists"]:
        for mode, own in entry["modes"].items():
            if mode in found:
                raise ValueError(f"{path}: two lists for {mode}")
            names = (data.get("let") or {}) | (own or {}) | {"MODE": mode, "ROOT": "{ROOT}"}
            found[mode] = read_commands(entry["commands"], names, f"{path}: {mode}")
    return found


def read_commands(text, names, where):
    """Return the commands of a list's text."""
    commands: list[dict] = []
    for line in filled(text, names, where).splitlines():
        if not line.strip():
            continue
        if not line.startswith(" "):
            commands.append(_head(line, where))
        elif commands:
            commands[-1]["argv"] += shlex.split(line)
        else:
            raise ValueError(f"{where}: words without a command: {line}")
    return commands


def filled(text, names, where):
    """Return ``text`` with names replaced, also those in replaced texts."""

    def value(match):
        name = match[1]
        if name not in names:
            raise ValueError(f"{where}: nothing is called {name}")
        return match[0] if name == "ROOT" else str(names[name])

    for _ in range(8):
        before, text = text, NAMED.sub(value, text)
        if text == before:
            return text
    raise ValueError(f"{where}: names that name each other")


def _head(line, where):
    step, *rest = line.split()
    command = {"step": step, "cwd": ".", "cuda_visible_devices": None, "log": None, "argv": []}
    for word in rest:
        name, equals, value = word.partition("=")
        if name not in HEAD or not equals:
            raise ValueError(f"{where}: {word!r} in {line!r}")
        command[HEAD[name]] = value
    return command
