"""Which of a plan's commands to run: ``--only`` and ``--skip``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from tipchain.chain.plan import Command, Plan, with_notes
from tipchain.errors import UsageError, did_you_mean

STEPS = ("align", "train", "eval", "export", "infer", "other")
SHOWN_IDS = 12


def select(plan: Plan, only: Sequence[str] = (), skip: Sequence[str] = ()) -> Plan:
    """Return ``plan`` with the commands that ``only`` names and all that they need, without those of ``skip``.

    A pattern is a step's name or an id, in which ``*`` and ``?`` stand for anything and for any one character;
    brackets mean themselves. What needs a command that is left out by ``skip`` stays, to be skipped with that
    reason.

    Raises:
        UsageError: a pattern names nothing.
    """
    if not only and not skip:
        return plan
    wanted = _closure(plan.commands, _matching(plan, only, "--only")) if only else _ids(plan.commands)
    dropped = _matching(plan, skip, "--skip")
    kept = tuple(
        _without(command, dropped)
        for command in plan.commands
        if command.id in wanted and command.id not in dropped
    )
    note = f"{len(kept)} of {len(plan.commands)} commands are selected"
    return with_notes(replace(plan, commands=kept), note)


def matches(pattern: str, command: Command) -> bool:
    """Return whether ``pattern`` names ``command``, by its step or by its id."""
    if pattern in STEPS:
        return command.step == pattern
    words = {"*": ".*", "?": "."}
    text = "".join(words.get(letter, re.escape(letter)) for letter in pattern)
    return re.fullmatch(text, command.id, re.DOTALL) is not None


def _ids(commands: Sequence[Command]) -> frozenset[str]:
    return frozenset(command.id for command in commands)


def _matching(plan: Plan, patterns: Sequence[str], option: str) -> frozenset[str]:
    found: set[str] = set()
    for pattern in patterns:
        ids = {command.id for command in plan.commands if matches(pattern, command)}
        if not ids:
            raise UsageError(_nothing(plan, pattern, option))
        found |= ids
    return frozenset(found)


def _nothing(plan: Plan, pattern: str, option: str) -> str:
    ids = [command.id for command in plan.commands]
    hint = did_you_mean(pattern, [*dict.fromkeys(command.step for command in plan.commands), *ids])
    shown = [f"    {name}" for name in ids[:SHOWN_IDS]]
    more = len(ids) - len(shown)
    shown += [f"    and {more} more; tipchain plan shows them"] if more else []
    return "\n".join(
        [
            f"{option} {pattern!r} names no command of {plan.params} in mode {plan.mode.value}"
            + (f", {hint}" if hint else ""),
            f"  expected: a step ({', '.join(STEPS)}) or an id, in which * and ? may stand for others:",
            *shown,
        ]
    )


def _closure(commands: Sequence[Command], ids: frozenset[str]) -> frozenset[str]:
    """Return ``ids`` and all that they need, and what that needs."""
    needs = {command.id: command.needs for command in commands}
    found: set[str] = set()
    left = list(ids)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += needs.get(name, ())
    return frozenset(found)


def _without(command: Command, dropped: frozenset[str]) -> Command:
    """Return ``command`` as it is when the commands in ``dropped`` are left out: skipped if it needs one."""
    lost = [need for need in command.needs if need in dropped]
    if not lost:
        return command
    left = tuple(need for need in command.needs if need not in dropped)
    return replace(command, needs=left, skip=command.skip or f"{', '.join(lost)} is left out (--skip)")
