"""Which cluster is meant, and whether something listens there."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

from tipchain.errors import UsageError

CONNECT_S = 10.0


def cluster_address(given: str | None) -> str:
    """Return ``HOST:PORT`` of the cluster that is meant: what the user says, ``RAY_ADDRESS``, or one of this machine.

    Raises:
        UsageError: it is no address of a cluster, or nothing listens there; Ray itself would try for minutes.
    """
    for said, address in (("--address ", given), ("RAY_ADDRESS=", os.environ.get("RAY_ADDRESS"))):
        if address and address != "auto":
            _check(said + address, address)
            return address
    found = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray/ray_current_cluster"
    try:
        address = found.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        raise UsageError(
            "no Ray cluster runs on this machine\n  expected: --address HOST:PORT of one, or RAY_ADDRESS; "
            "`ray start --head` starts one"
        ) from None
    _check(f"{address}, which {found} names", address)
    return address


def _check(said: str, address: str) -> None:
    if "://" in address:
        whose = "Ray Client's" if address.startswith("ray://") else "dashboard's"
        raise UsageError(
            f"{said}: is a {whose} address\n  expected: HOST:PORT of the cluster's head, on one of its nodes\n"
            "  hint: `ray job submit` runs tipchain there"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"{said}: is no address of a Ray cluster\n  expected: HOST:PORT, as 10.0.0.1:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"{said}: no Ray cluster is there: {getattr(error, 'strerror', '') or error}"
        ) from None
