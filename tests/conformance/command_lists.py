"""Command lists as plain data: how recorded ones are read, what two are compared by, how a difference is shown."""

from __future__ import annotations

import json
import shlex
from itertools import zip_longest
from pathlib import Path

FIELDS = ("step", "cwd", "cuda_visible_devices", "log", "argv")
SHELL_VARIABLE = "CUDA_VISIBLE_DEVICES"
ROOT = "{ROOT}"
MODE = "{MODE}"


def read_recorded(path: Path):
    """Return what ``record_original`` has written: the commands by mode."""
    head, *lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    lists = {mode: [] for mode in head["modes"]}
    modes = []
    for line in lines:
        modes = line.get("modes", modes)
        for mode in modes if "argv" in line else ():
            found = {name: line.get(name) for name in FIELDS} | {"cwd": line.get("cwd", ".")}
            named = {name: text and text.replace(MODE, mode) for name, text in found.items()}
            lists[mode].append(named | {"argv": shlex.split(named["argv"])})
    return lists


def facts(command):
    """Return the compared facts of a command of a plan's JSON."""
    return {
        "step": command["step"],
        "cwd": command["cwd"],
        "cuda_visible_devices": command["env"].get(SHELL_VARIABLE),
        "log": command["log"],
        "argv": list(command["argv"]),
    }


def placed(commands, root: Path):
    """Return expected commands with ``{ROOT}`` in their words replaced by a folder."""
    return [command | {"argv": [word.replace(ROOT, str(root)) for word in command["argv"]]} for command in commands]


def difference(expected, actual) -> str:
    """Return the first difference of two lists of facts in words, "" for none."""
    for number, (want, got) in enumerate(zip_longest(expected, actual), start=1):
        if want is None or got is None:
            missing, there = ("expected", got) if want is None else ("got", want)
            return f"command {number}: {len(expected)} expected, {len(actual)} planned; not {missing}:\n{shown(there)}"
        wrong = [name for name in FIELDS if want[name] != got[name]]
        if wrong:
            both = f"expected\n{shown(want)}\nplanned\n{shown(got)}"
            return f"command {number} of {len(expected)}, {', '.join(wrong)}: {both}"
    return ""


def shown(command) -> str:
    """Return a command's facts as text for people."""
    return (
        f"  [{command['step']}] cwd={command['cwd']} {SHELL_VARIABLE}={command['cuda_visible_devices']} "
        f"log={command['log']}\n    {shlex.join(command['argv'])}"
    )
