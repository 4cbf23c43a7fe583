"""The process in which live models run: it may crash without taking the command with it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tipchain.errors import TipchainError
from tipchain.guard import guarded
from tipchain.imports import kept_import
from tipchain.outcome import ExitCode


def main(request: str) -> int:
    """Align what the JSON file ``request`` asks for, and write the report where it says.

    The file holds ``case``, ``mode``, ``reseed`` and ``data_path``, or ``reference``, ``port``, ``inputs``, ``loss``,
    ``optimizers``, ``schedulers``, ``clip``, ``outputs``, ``step``, ``data``, ``samples``, ``metrics`` and ``predict``; ``only``, the stages of data and metrics that are
    wanted of a case; ``names``, a YAML file of names; ``options`` for `tipchain.align`; ``certify``, the number of faults to plant, for
    `certify` instead; and ``report``, a JSON file, which has the text that is printed too.
    """
    asked = json.loads(Path(request).read_bytes())
    with kept_import("torch"):  # torch must be imported before paddle.
        import torch  # noqa: F401

    from tipchain.conversion.given_names import read_names
    from tipchain.live.align import align
    from tipchain.live.command import command_line
    from tipchain.live.feeding import feed_callables, feed_case
    from tipchain.live.sources import open_callables, open_case, read_outputs

    names = read_names(Path(asked["names"])) if asked.get("names") else None
    if asked.get("case"):
        data_path = Path(asked["data_path"]) if asked.get("data_path") else None
        given = open_case(
            Path(asked["case"]),
            asked["mode"],
            reseed=asked.get("reseed", 0),
            data_path=data_path,
            names=names,
        )
        if not asked.get("certify"):
            given |= feed_case(
                Path(asked["case"]), asked["mode"], reseed=asked.get("reseed", 0), data_path=data_path,
                only=asked.get("only"),
            )  # fmt: skip
    else:
        pairs: dict[str, Any] = {
            name: tuple(asked[name]) if asked.get(name) else None
            for name in ("loss", "optimizers", "schedulers", "clip", "step")
        }
        given = open_callables(asked["reference"], asked["port"], Path(asked["inputs"]), names=names, **pairs)
        given |= feed_callables(asked)
        if asked.get("outputs"):
            given["outputs"] = read_outputs(asked["outputs"])
    given.update(asked.get("options", {}))
    if asked.get("certify"):
        from tipchain.live.certify import certify

        found = certify(
            given.pop("reference"), given.pop("port"), given.pop("inputs"), most=asked["certify"], **given
        )
        text, code = str(found), int(found.exit_code)
        Path(asked["report"]).write_text(
            json.dumps({**found.to_document(), "text": text, "exit_code": code}, indent=1)
        )
        return ExitCode.PASSED
    with _progress(asked.get("progress")) as progress:
        report = align(
            given.pop("reference"), given.pop("port"), given.pop("inputs"), progress=progress, **given
        )
    document = json.loads(replace(report, command=command_line(asked)).to_json())
    document["text"] = str(report)
    document["exit_code"] = int(report.exit_code)
    Path(asked["report"]).write_text(json.dumps(document, indent=1))
    return ExitCode.PASSED


@contextmanager
def _progress(told: int | None) -> Iterator[Callable[[str], None] | None]:
    """Return what writes progress to the parent's standard error; its line is cleared from a terminal in the end."""
    if told is None:
        yield None
        return
    from tipchain.parity.pace import lines_to

    with os.fdopen(told, "w", closefd=False) as stream:
        yield lines_to(stream)
        if stream.isatty():
            stream.write("\r\x1b[K")


def _refusing(request: str) -> int:
    try:
        return main(request)
    except TipchainError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(guarded(_refusing, sys.argv[1]))
