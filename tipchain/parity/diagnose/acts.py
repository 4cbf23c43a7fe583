"""What can stand in the place of a call: another function, the same one and more, its arguments changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tipchain.parity.diagnose.program import Act

Unary = Callable[[Any], Any]


def then(change: Unary) -> Act:
    """Return what changes the result of a call."""
    return lambda original, args, kwargs: change(original(*args, **kwargs))


def then_first(change: Unary) -> Act:
    """Return what changes the result of a call, or the first of its results."""

    def act(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = original(*args, **kwargs)
        many = isinstance(result, tuple | list)
        return type(result)([change(result[0]), *result[1:]]) if many else change(result)

    return act


def instead(change: Unary) -> Act:
    """Return what does something else with the first argument."""
    return lambda _original, args, _kwargs: change(args[0])


def argument(number: int) -> Act:
    """Return what gives back one of the arguments."""
    return lambda _original, args, _kwargs: args[number]


def on_input(change: Unary) -> Act:
    """Return what changes the first argument of a call."""
    return lambda original, args, kwargs: original(change(args[0]), *args[1:], **kwargs)


def with_argument(number: int, value: Any, name: str = "") -> Act:
    """Return a call with another value for one argument, by its position or else by its name."""

    def act(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if number < len(args):
            return original(*args[:number], value, *args[number + 1 :], **kwargs)
        return original(*args, **{**kwargs, name: value})

    return act


def with_arguments(values: Mapping[int | str, Any]) -> Act:
    """Return a call with other values for some arguments, by position or name."""

    def act(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        changed = [values.get(number, one) for number, one in enumerate(args)]
        named = {name: one for name, one in values.items() if isinstance(name, str)}
        return original(*changed, **{**kwargs, **named})

    return act


def exchanged(one: int, other: int) -> Act:
    """Return a call with two of its arguments in each other's place."""

    def act(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        changed = list(args)
        changed[one], changed[other] = changed[other], changed[one]
        return original(*changed, **kwargs)

    return act


def of_both(function: Callable[[Any, Any], Any]) -> Act:
    """Return what does something else with the first two arguments."""
    return lambda _original, args, _kwargs: function(args[0], args[1])


def called_as(function: Callable[..., Any], *, most: int | None = None, without: Sequence[str] = (), **more: Any) -> Act:  # fmt: skip
    """Return another function called with the same arguments, at most the first ``most``, and some changed."""

    def act(_original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kept = {name: value for name, value in kwargs.items() if name not in without}
        return function(*args[:most], **{**kept, **more})

    return act


def constant(result: Any) -> Act:
    """Return what gives back a known result."""
    return lambda _original, _args, _kwargs: result


def in_order(order: Sequence[int], name: str = "x") -> Act:
    """Return a call whose list of tensors is in another order."""

    def act(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = args[0] if args else kwargs[name]
        turned = [given[number] for number in order]
        return original(turned, *args[1:], **kwargs) if args else original(**{**kwargs, name: turned})

    return act


def with_tensor(args: Sequence[Any], old: int, new: Any) -> Act:
    """Return a call with another tensor in the places of one, also in lists among the arguments.

    Args:
        args: the arguments as they were.
        old: the identity of the tensor there.
        new: what stands in its place.
    """
    return with_tensors(args, {old: new})


def with_tensors(args: Sequence[Any], changes: Mapping[int, Any]) -> Act:
    """Return a call with other tensors in the places of some, as `with_tensor` does, by the identities of these."""
    places = [
        (number, None, changes[id(one)]) if id(one) in changes else (number, place, changes[id(each)])
        for number, one in enumerate(args)
        for place, each in enumerate(one if isinstance(one, list | tuple) else [one])
        if id(each) in changes
    ]

    def act(original: Any, given: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        changed = list(given)
        for number, place, new in places:
            if place is None:
                changed[number] = new
            else:
                changed[number] = [*changed[number][:place], new, *changed[number][place + 1 :]]
        return original(*changed, **kwargs)

    return act


def passed_through(taker: int, place: int, maker: int) -> dict[int, Act]:
    """Return a call's result with the gradient of a tensor that an earlier call, or the same one, is given.

    Args:
        taker: the number of the call that is given the tensor.
        place: which of its arguments it is.
        maker: the number of the call that makes the result.
    """
    seen: list[Any] = []

    def take(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        seen[:] = [args[place]]
        return original(*args, **kwargs)

    def give(result: Any) -> Any:
        kept = seen[0].reshape(result.shape)
        return kept + (result - kept).detach()

    def both(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return give(take(original, args, kwargs))

    return {taker: both} if taker == maker else {taker: take, maker: then_first(give)}
