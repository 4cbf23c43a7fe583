"""Which variables a profile's templates and conditions may name, by the place where they stand."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence

from tipchain.chain.suites import Suite

ALWAYS = frozenset(("root", "model", "mode", "base", "epoch", "batch", "config"))
LEG = frozenset(
    ("trainer", "kind", "gpus", "autocast", "nodes", "nodes_n", "launched", "multi_host", "train")
)
MADE = frozenset(("save_name", "save", "inference_dir", "name"))
SOURCE = frozenset(("gpus", "kind", "inference_dir"))
INFERENCE = frozenset(("device", "quant", "folder", "results"))
WITHOUT_TRAINING = SOURCE | {"number", "model_file"}
STATUS = frozenset(("model", "command", "log"))
VALUE = "v["

Place = Sequence[str]


def fields(template: str) -> Iterator[str]:
    """Yield the variables of a template as they stand, ``v[role]`` for the value of a slot.

    Raises:
        ValueError: it is no template: a brace without its other, a format, an attribute.
    """
    for _, name, form, conversion in string.Formatter().parse(template):
        if name is None:
            continue
        bare = name.removeprefix(VALUE).removesuffix("]") if name.startswith(VALUE) else name
        if form or conversion or not bare.isidentifier():
            raise ValueError(f"{{{name}}} is no variable")
        yield name


def variables(place: Place, suite: Suite) -> frozenset[str]:
    """Return the variables that a template at ``place``, a path of keys, may name besides ``v[role]``."""
    top, own = place[0], frozenset(suite.vars)
    trained = ALWAYS | own | LEG | MADE | {"weights"}
    tops = {
        "out": frozenset(("root", "model", "mode")),
        "status": STATUS,
        "results_head": ALWAYS | own,
        "weights_else": ALWAYS | own | {"name"},
        "save": ALWAYS | own | LEG,
        "weights": ALWAYS | own | LEG | MADE,
        "launcher": trained | {"ips"},
    }
    if top == "vars":
        names = list(suite.vars)
        return ALWAYS | frozenset(names[: names.index(place[1])])
    if top == "infer" and place[1] != "folder":
        return _of_inference(place, suite, ALWAYS | own)
    if top == "whole":
        return ALWAYS | own | WITHOUT_TRAINING | ({"folder"} if place[1] != "folder" else frozenset())
    return tops.get(top, trained)


def _of_inference(place: Place, suite: Suite, always: frozenset[str]) -> frozenset[str]:
    rule = suite.infer.rules.get(place[1])
    axes = frozenset(rule.axes) if rule else frozenset[str]()
    if place[2:3] == ("skip",):
        return always | SOURCE | axes | {"quant"}
    return always | SOURCE | INFERENCE | axes


def tested(place: Place, suite: Suite) -> frozenset[str]:
    """Return the variables that a condition at ``place`` may test."""
    rule = suite.infer.rules.get(place[1]) if place[0] == "infer" else None
    more = frozenset(rule.fixed_axes) if rule else frozenset[str]()
    if place[0] in ("weights_there", "train", "eval", "export", "launcher"):
        more |= {"weights"}
    return variables(place, suite) | more
