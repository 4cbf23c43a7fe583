"""A real Ray cluster of several nodes on this machine, in a process of its own that is told over its input.

As a program: ``python ray_cluster.py NODES`` prints its address, then reads ``kill I``, ``add RESOURCES``, and ``head``, which kills the head.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

CPUS = 1
LEAST_MEMORY = 100 << 20
FAST = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 2,
    "gcs_rpc_server_reconnect_timeout_s": 3,  # a minute otherwise, of the nodes as of the driver
}


class RayCluster:
    """A cluster that is told what to do; closed by its end.

    Args:
        nodes: how many nodes besides the head, which runs nothing.
        resources: what each node has besides its CPU.
    """

    def __init__(self, nodes: int, resources: dict[str, float] | None = None) -> None:
        self.environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(nodes), json.dumps(resources or {})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self.environment,
            start_new_session=True,
        )
        self.address = self._answer()

    def _answer(self) -> str:
        line = self.process.stdout.readline().strip()
        assert line, f"the cluster's process ended, exit code {self.process.wait()}"
        return line

    def tell(self, word: str) -> None:
        """Say something and wait until it is done."""
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        self._answer()

    def close(self) -> None:
        """End the cluster."""
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()


def serve(nodes: int, resources: dict[str, float]) -> None:
    """Run a cluster until the input ends."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": LEAST_MEMORY, "_system_config": FAST}
    head["include_log_monitor"] = False  # as of the other nodes; the driver asks for no logs
    cluster = Cluster(initialize_head=True, head_node_args=head)

    def add(more=None):
        has = {**resources, **(more or {})}
        return cluster.add_node(wait=False, num_cpus=CPUS, resources=has, object_store_memory=LEAST_MEMORY)

    living = [add() for _ in range(nodes)]
    cluster.wait_for_nodes()
    say(cluster.address)
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "kill":
            cluster.remove_node(living.pop(int(rest)), allow_graceful=False)
        elif word == "add":
            living.append(add(json.loads(rest or "{}")))
            cluster.wait_for_nodes()
        elif word == "head":
            cluster.head_node.kill_gcs_server()
        say("done")
    if cluster.head_node.all_processes.get("gcs_server"):
        cluster.shutdown()
    else:  # nothing is left that would end in order
        for node in (*living, cluster.head_node):
            cluster.remove_node(node, allow_graceful=False)


def say(text: str) -> None:
    """Answer on the output, which Ray's own prints do not go to."""
    ANSWERS.write(f"{text}\n")
    ANSWERS.flush()


if __name__ == "__main__":
    ANSWERS = os.fdopen(os.dup(1), "w")
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 1)
    serve(int(sys.argv[1]), json.loads(sys.argv[2]))
