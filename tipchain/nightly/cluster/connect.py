"""A driver's connection to its cluster: how it is made, and which nodes there are."""

from __future__ import annotations

import os
import sys
import textwrap
import threading

import ray

from tipchain.errors import class_and_line
from tipchain.language import say
from tipchain.nightly.cluster.messages import ClusterNode, ClusterSettings
from tipchain.nightly.cluster.shipping import MIB, survey
from tipchain.nightly.items import CLUSTERS_OWN

NODES_S = 2.0
"""How often the cluster is asked for its nodes."""
END_S = 5.0
WIDTH = 78


def connect(settings: ClusterSettings) -> None:
    """Connect this process to the cluster, and send it the project's folder if it is to be shipped.

    Raises:
        UsageError: the folder is too large.
    """
    environment = None
    if settings.shipped:
        shipment = survey(settings.root, settings.left_out)
        shipment.check()
        left_out = [*settings.left_out, *shipment.left_out]
        # `ray job submit --working-dir` has sent a folder of its own: items run in the night's.
        os.environ.setdefault("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
        environment = {"working_dir": str(settings.root), "excludes": left_out}
    ray.init(
        address=settings.address,
        runtime_env=environment,
        log_to_driver=False,
        logging_level="ERROR",
        namespace="tipchain",
    )


def refusal(error: BaseException) -> str:
    """Return what Ray has against it, and what lies at the bottom of that, in lines of a terminal's width."""
    lines, cause = str(error).splitlines(), error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if cause is not error:
        lines += str(cause).strip().splitlines()[-1:]
    said = dict.fromkeys(" ".join(line.split()) for line in lines if line.strip())
    return "\n  ".join(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in said)


class NodeWatch(threading.Thread):
    """Asks the cluster for its nodes now and then; waits for a head that does not answer, and nobody else does."""

    def __init__(self) -> None:
        super().__init__(name="nodes", daemon=True)
        self.nodes = living_nodes()
        self._over = threading.Event()

    def run(self) -> None:
        """Look until told to end."""
        while not self._over.wait(NODES_S):
            self._look()

    def _look(self) -> None:
        try:
            self.nodes = living_nodes()
        except Exception as error:  # noqa: BLE001 - the head may come back; if not, Ray ends this process
            print(say(f"nodes: {class_and_line(error)}"), file=sys.stderr)

    def end(self) -> None:
        """Look no more: asked for nodes when it is shut down, Ray would begin anew."""
        self._over.set()
        self.join(END_S)


def living_nodes() -> tuple[ClusterNode, ...]:
    """Return the nodes of the cluster that live and can run something."""
    found = []
    for one in ray.nodes():
        has = one["Resources"]
        if one["Alive"] and has.get("CPU", 0.0) >= 1:
            found.append(
                ClusterNode(
                    cpus=has["CPU"],
                    gpus=has.get("GPU", 0.0),
                    memory_mb=has.get("memory", 0.0) / MIB,
                    resources=tuple(
                        sorted(
                            (name, amount)
                            for name, amount in has.items()
                            if name not in CLUSTERS_OWN and not name.startswith("node:__")
                        )
                    ),
                )
            )
    return tuple(sorted(found, key=repr))
