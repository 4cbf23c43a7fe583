"""Fill in a profile's templates and argument lists: facts in, words out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tipchain.chain.slots import Slots
from tipchain.chain.suites import Choice, Condition, Item, Suite
from tipchain.chain.words import Slot, Words, flag, split_words

Facts = Mapping[str, str]


class _Values(dict[str, str]):
    """Values of slots for templates; a slot that the file lacks is empty."""

    def __missing__(self, role: str) -> str:
        return ""


@lru_cache(maxsize=4096)
def _template_words(text: str) -> Words:
    return tuple(shlex.split(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Filler:
    """What templates and conditions of one plan may refer to besides the facts of a command.

    Attributes:
        suite: the profile.
        slots: the file's slots.
        fixes: the fixes in force.
    """

    suite: Suite
    slots: Slots
    fixes: frozenset[str]

    def holds(self, conditions: Iterable[Condition], facts: Facts) -> bool:
        """Return whether all ``conditions`` hold."""
        return all(self._holds(condition, facts) for condition in conditions)

    def _holds(self, condition: Condition, facts: Facts) -> bool:
        name, values = condition.name, condition.values
        if name in ("fixed", "unfixed"):
            return any((value in self.fixes) == (name == "fixed") for value in values)
        found = self._fact(name, facts)
        if found is None:
            return condition.operation in ("not", "lacks")
        match condition.operation:
            case "is":
                return found in values
            case "not":
                return found not in values
            case "matches":
                return any(re.fullmatch(value, found) for value in values)
            case operation:
                return any(value in found for value in values) == (operation == "has")

    def _fact(self, name: str, facts: Facts) -> str | None:
        what, _, role = name.partition(" ")
        if role and what in ("key", "value"):
            slot = self.slots.get(role)
            return None if slot is None else slot.key if what == "key" else slot.value
        return facts.get(name)

    def fill(self, template: str, facts: Facts) -> str:
        """Return ``template`` with its variables replaced; what is put in is not looked at again."""
        if "{" not in template:
            return template
        values = _Values({role: slot.value for role, slot in self.slots.items()} if "v[" in template else {})
        names: dict[str, Any] = {**facts, "v": values}
        return template.format_map(names)

    def choose(self, choices: Sequence[Choice], facts: Facts) -> str:
        """Return the first of ``choices`` whose conditions hold, filled in; "" if none does."""
        for choice in choices:
            if self.holds(choice.when, facts):
                text = self.fill(choice.value, facts)
                return text.replace(*choice.replace, 1) if choice.replace else text
        return ""

    def words(self, items: Iterable[Item], facts: Facts, roles: Mapping[str, Words]) -> Words:
        """Return the words of an argument list; ``roles`` are those that the engine makes."""
        found: list[str] = []
        for item in items:
            if not item.when or self.holds(item.when, facts):
                found += self._item(item, facts, roles)
        return tuple(found)

    def _item(self, item: Item, facts: Facts, roles: Mapping[str, Words]) -> Words:
        if item.role:
            if item.role in roles:
                return roles[item.role]
            slot = self.slots.get(item.role)
            return flag(slot, pipes=self.pipes, fixes=self.fixes) if slot else ()
        if item.text:
            return tuple(found for word in _template_words(item.text) for found in self._text(word, facts))
        if item.key:
            slot = self.slots.get(item.key)
            return split_words(slot.key, slot) if slot and slot.key not in ("", "null") else ()
        return self._flag(item, facts)

    def _text(self, word: str, facts: Facts) -> Words:
        """Return a word of a template; a slot's value alone may be several words."""
        if word.startswith("{v[") and word.endswith("]}"):
            slot = self.slots.get(word[3:-2])
            return () if slot is None or slot.absent else split_words(slot.value, slot, pipes=self.pipes)
        text = self.fill(word, facts)
        as_it_stands = text == word or "no-shell" in self.fixes
        return (text,) if as_it_stands else split_words(text, self.slots["model_name"], pipes=self.pipes)

    @property
    def pipes(self) -> bool:
        """Whether a ``|`` is taken for a blank, as in the original."""
        return self.suite.pipes and "no-shell" not in self.fixes

    def _flag(self, item: Item, facts: Facts) -> Words:
        slot = self.slots.get(item.flag)
        if slot is None:
            return ()
        value = None if item.value is None else self.fill(item.value, facts)
        if item.value is not None and self.nothing_inside(item.value):
            return ()
        named = slot if item.keyed_by == "key" else Slot(
            role=slot.role, key=slot.value, value=slot.value, file=slot.file, line=slot.line
        )  # fmt: skip
        return flag(
            named,
            value,
            raw=item.raw,
            literal=value is not None,
            join=item.join,
            pipes=self.pipes,
            fixes=self.fixes,
        )

    def nothing_inside(self, template: str) -> bool:
        """Return whether a template that names a slot's value has none: a path made of null is no path."""
        if "null" not in self.fixes or "v[" not in template:
            return False
        role = template.partition("v[")[2].partition("]")[0]
        return role not in self.slots or self.slots[role].absent
