"""Calling a user's builder of an optimizer or a schedule, whatever it asks for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from tipchain.errors import UsageError

Builder = Callable[..., Any]
NAMES: Mapping[str, tuple[str, ...]] = {
    "parameters": ("parameters", "params", "parameter_list", "parameters_list", "param_list", "ps"),
    "model": ("model", "net", "network", "module", "layer"),
    "rate": ("learning_rate", "lr", "rate", "base_lr", "initial_lr", "init_lr"),
    "optimizer": ("optimizer", "optim", "opt"),
}
"""What a builder's parameters are called, by what they are given."""


def roles(builder: Builder) -> dict[str, inspect.Parameter]:
    """Return a builder's parameters by what their names ask for; those bound by ``functools.partial`` are left out."""
    found = {}
    for name, one in _parameters(builder).items():
        role = next((role for role, names in NAMES.items() if name in names), None)
        if role is not None and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
            found[role] = one
    return found


def call_builder(builder: Builder, offers: Mapping[str, Any], first: tuple[str, ...]) -> Any:
    """Call a builder with what it asks for.

    Args:
        builder: a function, a class or a partial of one.
        offers: what there is, by role (`NAMES`); callables are called for the value.
        first: roles that a parameter without a telling name may stand for, the likeliest first.

    Raises:
        UsageError: a required parameter that nothing is known for.
        Exception: whatever the builder raises.
    """
    unclear = [one for one in _parameters(builder).values() if _required(one) and _role(one) is None]
    named = {role: one for role, one in roles(builder).items() if role in offers}
    if not unclear:
        if not named and not _parameters(builder):
            return builder()
        return _call(builder, {one.name: role for role, one in named.items()}, offers)
    free = [role for role in first if role not in named and role in offers]
    if len(unclear) > 1 or not free:
        names = ", ".join(one.name for one in unclear)
        raise UsageError(f"builder {_name(builder)} asks for {names}: nothing to give it")
    chosen = {one.name: role for role, one in named.items()}
    for role in free[:-1]:
        with suppress(AttributeError, TypeError):  # a list of parameters is no model
            return _call(builder, {**chosen, unclear[0].name: role}, offers)
    return _call(builder, {**chosen, unclear[0].name: free[-1]}, offers)


def _call(builder: Builder, chosen: Mapping[str, str], offers: Mapping[str, Any]) -> Any:
    args, kwargs = [], {}
    for name, one in _parameters(builder).items():
        if name in chosen:
            value = offers[chosen[name]]
            if one.kind is one.POSITIONAL_ONLY:
                args.append(value)
            else:
                kwargs[name] = value
    return builder(*args, **kwargs)


def _parameters(builder: Builder) -> Mapping[str, inspect.Parameter]:
    """Return the parameters that can still be given: not those that a partial has bound by name."""
    bound = getattr(builder, "keywords", {}) if hasattr(builder, "func") else {}
    found = inspect.signature(builder).parameters
    return {
        name: one
        for name, one in found.items()
        if name not in bound and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    }


def _role(one: inspect.Parameter) -> str | None:
    return next((role for role, names in NAMES.items() if one.name in names), None)


def _required(one: inspect.Parameter) -> bool:
    return one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)


def _name(builder: Builder) -> str:
    return getattr(builder, "__qualname__", type(builder).__name__)
