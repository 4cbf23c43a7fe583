"""The command line that asks for what a process of live models was asked for."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any


def command_line(asked: Mapping[str, Any]) -> str:
    """Return the ``tipchain`` command of a request (see `tipchain.live.worker`), as a shell takes it."""
    options = asked.get("options", {})
    return shlex.join(["tipchain", "locate", *_arguments(asked), *_options(asked, options)])


def _arguments(asked: Mapping[str, Any]) -> Iterator[str]:
    if asked.get("case"):
        yield from (asked["case"], "--mode", asked["mode"])
        return
    for name in ("reference", "port", "inputs"):
        yield from (f"--{name}", asked[name])
    for name in ("loss", "optimizers", "schedulers", "clip", "step", "data", "metrics", "predict"):
        if asked.get(name):
            yield from (f"--{name}", *asked[name])
    if asked.get("outputs"):
        yield from ("--outputs", *asked["outputs"])
    if asked.get("samples"):
        yield from ("--samples", asked["samples"])


def _options(asked: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[str]:
    if asked.get("names"):
        yield from ("--names", asked["names"])
    if not options.get("causes", True):
        yield "--no-causes"
    if not asked.get("copy_weights", True):
        yield "--no-copy-weights"
    if options.get("training"):
        yield "--training"
    if "iterations" in options:
        yield from ("--iterations", str(options["iterations"]))
    seed = asked.get("reseed", 0) if asked.get("case") else options.get("seed", 0)
    if seed:
        yield from ("--seed", str(seed))
