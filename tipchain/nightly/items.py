"""The items of a night: one process call each, with what it needs and what it is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tipchain.outcome import Outcome

Kind = Literal["chain", "align", "command"]
REPORT, LOG, FOLDER, PYTHON = "{report}", "{log}", "{folder}", "{python}"
"""Texts in an item's call that stand for paths: of its attempt the JSON report, the log of its output and the folder;
and the interpreter that tipchain runs in there."""


CLUSTERS_OWN = ("CPU", "GPU", "memory", "object_store_memory")
"""Resources of a cluster's node that Ray has names of its own for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What an item takes of a machine while it runs.

    Attributes:
        cpus: slots; an item that wants more than a machine has runs alone on it.
        gpus: GPUs, leased.
        memory_mb: MiB; 0: not known.
        resources: what else it takes of a cluster's node, names and amounts, sorted; this machine pays no heed to it.
    """

    cpus: int = 1
    gpus: int = 0
    memory_mb: int = 0
    resources: tuple[tuple[str, float], ...] = ()


def kind_of_room(needs: Needs) -> tuple[str, ...]:
    """Return the names of what is rare of what an item needs: who needs others need not wait behind it."""
    return (*(["GPU"] if needs.gpus else []), *(name for name, _ in needs.resources))


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing to run in a night.

    Attributes:
        id: ``alexnet[lite_train_lite_infer;cpu]``, with ``#2`` behind it for a repeat; unique in a plan.
        kind: a chain (``tipchain run``), a case (``tipchain align``), or any other command with tipchain's exit codes.
        subject: the model's or case's name, the same for every mode and device.
        source: the parameter file or case, below the root.
        mode: the TIPC mode; "" for a command without one.
        device: ``"cpu"`` or ``"gpu"``.
        repeat: from 1.
        tags: words it can be selected by.
        argv: the call; `REPORT`, `LOG`, `FOLDER` and `PYTHON` stand for paths, in the middle of a word too.
        cwd: the folder it runs in, below the root; ``"."`` is the root.
        env: variables that are set for it.
        timeout_s: seconds it may take.
        needs: what it takes of a machine.
        settled: the outcome of what cannot run here (data that is missing), and PASS of what can.
        reason: why it is settled; "" if it is not.
        chain: the kind of chain (`tipchain.chain.kinds`); "" for what is none, and in nights of earlier tipchains.
    """

    id: str
    kind: Kind
    subject: str
    source: str
    mode: str
    device: Literal["cpu", "gpu"]
    repeat: int
    tags: tuple[str, ...]
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float
    needs: Needs = field(default_factory=Needs)
    settled: Outcome = Outcome.PASS
    reason: str = ""
    chain: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightPlan:
    """What a manifest comes to.

    Attributes:
        name: the manifest's.
        root: the absolute path that items' paths are relative to.
        manifest: the manifest's path.
        sha256: of the manifest's bytes.
        items: in the order in which they are started.
    """

    name: str
    root: str
    manifest: str
    sha256: str
    items: tuple[Item, ...]
