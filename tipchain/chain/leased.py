"""A plan on the GPUs that were leased for it: the numbers in its file then count those, as CUDA counts visible devices.

Whoever starts ``tipchain run`` on some GPUs of a machine, as a night does, names them in `VARIABLE`. GPU 0 of the
parameter file is then the first of them, whatever number it has on the machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace

from tipchain.chain.emitter import VISIBLE
from tipchain.chain.plan import Command, Plan

VARIABLE = "TIPCHAIN_GPUS"
_NUMBERS = re.compile(r"\d+(?:,\d+)*")
_WORD = re.compile(r"(?P<option>--(?:gpus|devices|selected_gpus)=)(?P<numbers>\d+(?:,\d+)*)")


def leased_gpus() -> tuple[str, ...]:
    """Return the GPUs that were leased for this process, () where nobody says so."""
    return tuple(filter(None, os.environ.get(VARIABLE, "").split(",")))


def on_gpus(plan: Plan, gpus: Sequence[str]) -> Plan:
    """Return ``plan`` with the GPUs of its commands counted among ``gpus``; their ids stay.

    A number that is none of those becomes a name that no GPU has, so that the command is said not to run.
    """
    if not gpus:
        return plan
    return replace(plan, commands=tuple(_moved(command, gpus) for command in plan.commands))


def _moved(command: Command, gpus: Sequence[str]) -> Command:
    env = dict(command.env)
    if _NUMBERS.fullmatch(env.get(VISIBLE, "")):
        env[VISIBLE] = _named(env[VISIBLE], gpus)
    return replace(
        command,
        env=env,
        gpus=tuple(_name(number, gpus) for number in command.gpus),
        argv=_words(command.argv, gpus) if command.launched else command.argv,
    )


def _words(argv: Sequence[str], gpus: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a launching call; what stands after the program to launch is the program's own."""
    end = next((index for index, word in enumerate(argv) if word.endswith(".py")), len(argv))
    launcher = [
        match["option"] + _named(match["numbers"], gpus) if (match := _WORD.fullmatch(word)) else word
        for word in argv[:end]
    ]
    return (*launcher, *argv[end:])


def _named(numbers: str, gpus: Sequence[str]) -> str:
    return ",".join(_name(number, gpus) for number in numbers.split(","))


def _name(number: str, gpus: Sequence[str]) -> str:
    if number.isdecimal() and int(number) < len(gpus):
        return gpus[int(number)]
    return f"{number} (of {len(gpus)} leased)"
