"""What ``tipchain nightly run|resume`` run items on: this machine, or a Ray cluster."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tipchain.commands.history import add_night_arguments
from tipchain.commands.options import count
from tipchain.errors import UsageError

if TYPE_CHECKING:
    from tipchain.nightly.executor import Executor

LOCAL, RAY = "local", "ray"
ALWAYS, FAILED = "always", "failed"
OPTIONS = ("require_gpu", "keep_dumps", "jobs", "executor", "address", "ship")
"""What a night keeps of these arguments for `resume`."""


def add_execution_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what says where items run."""
    parser.add_argument(
        "--executor", choices=(LOCAL, RAY), help="this machine (default), or the nodes of a Ray cluster"
    )
    parser.add_argument(
        "--jobs",
        type=count("slots"),
        metavar="N",
        help="slots of this machine: so many items of one CPU at once (default: the cores)",
    )
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="of the Ray cluster's head (default: RAY_ADDRESS, else the cluster that runs on this machine)",
    )
    parser.add_argument(
        "--ship",
        action="store_true",
        default=None,
        help="send the project to the cluster's nodes, and what items leave back; else all see it under one path",
    )
    parser.add_argument(
        "--require-gpu",
        action="store_true",
        default=None,
        help="a GPU that is not there is an ERROR, not a SKIP",
    )
    parser.add_argument(
        "--keep-dumps",
        choices=(ALWAYS, FAILED),
        help="weights, tensors and exported models that items leave: of all (default), or of those only that did not pass",
    )
    add_night_arguments(parser)


def given_options(args: argparse.Namespace, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what the command line says of these arguments, and for the rest what a night kept of them.

    Raises:
        UsageError: some do not fit together.
    """
    before = before or {}
    chosen = args.executor or before.get("executor") or LOCAL
    own, other = (("jobs",), ("address", "ship")) if chosen == LOCAL else (("address", "ship"), ("jobs",))
    for name in other:
        if getattr(args, name):
            wanted = RAY if chosen == LOCAL else LOCAL
            raise UsageError(f"--{name} is for --executor {wanted}, not for {chosen}")
    found = {name: getattr(args, name) or before.get(name) for name in (*own, "require_gpu", "keep_dumps")}
    found["executor"] = chosen if chosen != LOCAL else None
    return {name: found[name] for name in OPTIONS if found.get(name)}


def open_executor(options: Mapping[str, Any], root: Path, nights: Path) -> Executor:
    """Return what runs items.

    Args:
        options: as `given_options` returns them.
        root: the project's folder.
        nights: the folder of its nights.

    Raises:
        UsageError: the cluster cannot be reached.
        MissingFrameworkError: Ray is not installed.
    """
    if options.get("executor") == RAY:
        from tipchain.chain.execute import has_own_python
        from tipchain.nightly.cluster.executor import RayExecutor, cluster_settings

        return RayExecutor(
            cluster_settings(
                options.get("address"),
                root,
                shipped=bool(options.get("ship")),
                nights=nights,
                own_python=has_own_python(root),
            )
        )
    from tipchain.nightly.local import LocalExecutor

    return LocalExecutor(options.get("jobs"))
