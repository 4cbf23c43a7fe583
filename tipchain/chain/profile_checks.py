"""What is wrong with a suite's profile although each of its keys can be read.

Names are looked up here: roles in the layout, variables where templates stand, fixes, steps; and the layout must have
what no chain can do without.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tipchain.chain.fixes import FIXES
from tipchain.chain.suites import Condition, Suite
from tipchain.chain.templates import VALUE, Place, fields, tested, variables
from tipchain.errors import ProfileError, did_you_mean

if TYPE_CHECKING:
    from tipchain.yaml_lines import LinedYaml

# Roles whose words the engine makes although a layout may lack their line.
ENGINE_ROLES = frozenset(("model", "data", "use_gpu", "autocast"))
NEEDED_ROLES = (
    *("model_name", "python", "gpu_list", "save", "train_model_name", "trainer", "train_norm", "eval"),
    *("infer_model", "inference", "device", "model_dir", "infer_data"),
)
STEPS = frozenset(("train", "eval", "export", "infer"))


class Seen:
    """What was read of a profile that can be checked only when all is read, each with its place.

    Args:
        path: the profile's file.
        document: its YAML.
    """

    def __init__(self, path: Path, document: LinedYaml) -> None:
        self.path, self.document = path, document
        self.templates: list[tuple[Place, str]] = []
        self.tested: list[tuple[Place, Condition]] = []
        self.named: list[tuple[Place, str]] = []

    def known(self, place: Place, what: str, name: str, known: Collection[str]) -> None:
        """Refuse a name that is none of ``known``.

        Raises:
            ProfileError: it is not.
        """
        if name not in known:
            raise self.fault(
                place, f"unknown {what}", found=name, expected=", ".join(sorted(known)),
                hint=did_you_mean(name, known),
            )  # fmt: skip

    def fault(self, place: Place, message: str, **more: Any) -> ProfileError:
        """Return an error that names the file, and the line and key of a place."""
        path = tuple(place)
        return ProfileError(
            message, file=self.path, line=self.document.line(path), key=".".join(path), **more
        )


def check_profile(suite: Suite, seen: Seen) -> None:
    """Check what was read.

    Raises:
        ProfileError: a name is unknown where it stands, or something needed is missing.
    """
    roles = suite.roles | ({"to_static"} if suite.to_static else frozenset())
    for place, role in seen.named:
        seen.known(place, "role", role, roles | ENGINE_ROLES)
    for place, role in _listed_roles(suite):
        seen.known(place, "role", role, roles)
    _check_needed(suite, seen)
    for place, template in seen.templates:
        _check_template(place, template, suite, seen, roles)
    for place, condition in seen.tested:
        _check_condition(place, condition, suite, seen, roles)
    _check_rest(suite, seen)


def _listed_roles(suite: Suite) -> Iterator[tuple[Place, str]]:
    """Yield the roles that stand in lists and tables, each with its place."""
    for key, names in (("mode_lists", suite.mode_lists), ("unread", suite.unread)):
        yield from (((key,), role) for role in sorted(names))
    for rule in suite.trainers:
        yield from ((("trainers", rule.kind), role) for role in (rule.key, *rule.command, rule.export))
    for name, role in (("data", suite.infer.data), ("data_else", suite.infer.data_else)):
        if role:
            yield ("infer", name), role
    for device, own in suite.infer.rules.items():
        yield from ((("infer", device, "axes"), role) for role in (*own.axes, *own.fixed_axes))
    yield from ((("infer", "raw"), role) for role in sorted(suite.infer.raw))
    yield from ((("whole", "kinds", name), role) for name, role in suite.whole.kinds.items())
    if suite.whole.style == "quantize":
        yield ("whole", "command"), suite.whole.command


def _check_needed(suite: Suite, seen: Seen) -> None:
    """Refuse a layout without what the engine reads of every file."""
    needed = set(NEEDED_ROLES)
    needed |= {"pretrained"} if suite.finetune == "norm" else set()
    needed |= {"infer_export"} if suite.whole.style == "models" else set()
    needed |= {rule.command[0] for rule in suite.trainers if rule.command[0] != "to_static"}
    needed |= {role for rule in suite.infer.rules.values() for role in (*rule.axes, *rule.fixed_axes)}
    always = {rule.role for rule in suite.layout if rule.kind == "slot"}
    for role in sorted(needed - always):
        kind = "may be missing" if role in suite.roles else "is missing"
        raise seen.fault(("layout",), f"the role {role!r} {kind}; no chain can do without it")
    if all(rule.kind != "norm" for rule in suite.trainers):
        raise seen.fault(("trainers",), "the trainer 'norm' is missing", expected="norm: {}")


def _check_template(place: Place, template: str, suite: Suite, seen: Seen, roles: frozenset[str]) -> None:
    if "{" not in template:
        return
    try:
        names = list(fields(template))
    except ValueError as error:
        raise seen.fault(place, f"is no template: {error}", found=template) from error
    allowed = variables(place, suite)
    for name in names:
        if not name.startswith(VALUE):
            seen.known(place, "variable", name, allowed)
        elif place[0] == "status":
            raise seen.fault(place, f"the value of a line, {{{name}}}, is not known there")
        else:
            seen.known(place, "role", name.removeprefix(VALUE).removesuffix("]"), roles)


def _check_condition(
    place: Place, condition: Condition, suite: Suite, seen: Seen, roles: frozenset[str]
) -> None:
    what, _, role = condition.name.partition(" ")
    if what in ("fixed", "unfixed"):
        for value in condition.values:
            seen.known(place, "fix", value, FIXES)
    elif role and what in ("key", "value"):
        seen.known(place, "role", role, roles)
    else:
        seen.known(place, "condition", condition.name, tested(place, suite))
    for value in condition.values if condition.operation == "matches" else ():
        _check_pattern(place, value, seen)


def _check_pattern(place: Place, text: str, seen: Seen) -> None:
    try:
        re.compile(text)
    except re.error as error:
        raise seen.fault(place, f"is no regular expression: {error}", found=text) from error


def _check_rest(suite: Suite, seen: Seen) -> None:
    if suite.whole.unset:
        seen.known(("whole", "unset"), "fix", suite.whole.unset, FIXES)
    for step in sorted(suite.redirected):
        seen.known(("redirected",), "step", step, STEPS)
    if "/" in suite.results_log or suite.results_log in ("", ".", ".."):
        raise seen.fault(("results_log",), "is no file's name", found=suite.results_log)
    _check_pattern(("result_line",), suite.result_line, seen)
