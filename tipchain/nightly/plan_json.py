"""Plans of nights as JSON values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tipchain.nightly.items import Item, Needs, NightPlan
from tipchain.nightly.shares import Cut, SharePlan
from tipchain.outcome import Outcome


def plan_json(plan: NightPlan) -> dict[str, Any]:
    """Return ``plan`` as JSON values."""
    cut = {"cut": {"ids": plan.cut.ids, "shares": plan.cut.shares}} if isinstance(plan, SharePlan) else {}
    return {
        **cut,
        "name": plan.name,
        "root": plan.root,
        "manifest": plan.manifest,
        "sha256": plan.sha256,
        "items": [item_json(item) for item in plan.items],
    }


def item_json(item: Item) -> dict[str, Any]:
    """Return ``item`` as JSON values."""
    needs = item.needs
    return {
        "id": item.id,
        "kind": item.kind,
        "subject": item.subject,
        "source": item.source,
        "mode": item.mode,
        "device": item.device,
        "repeat": item.repeat,
        "tags": list(item.tags),
        "argv": list(item.argv),
        "cwd": item.cwd,
        "env": dict(item.env),
        "timeout_s": item.timeout_s,
        "needs": {
            "cpus": needs.cpus,
            "gpus": needs.gpus,
            "memory_mb": needs.memory_mb,
            "resources": dict(needs.resources),
        },
        "settled": item.settled.name,
        "reason": item.reason,
    }


def parse_plan(data: Mapping[str, Any]) -> NightPlan:
    """Return the plan of JSON values.

    Raises:
        KeyError, TypeError, ValueError: they are none.
    """
    rest = {key: str(data[key]) for key in ("name", "root", "manifest", "sha256")}
    items = tuple(parse_item(item) for item in data["items"])
    if "cut" not in data:
        return NightPlan(**rest, items=items)
    ids, shares = tuple(map(str, data["cut"]["ids"])), tuple(map(int, data["cut"]["shares"]))
    if len(ids) != len(shares):
        raise ValueError(f"a cut of {len(ids)} items has {len(shares)} shares")
    return SharePlan(**rest, items=items, cut=Cut(ids=ids, shares=shares))


def parse_item(data: Mapping[str, Any]) -> Item:
    """Return the item of JSON values.

    Raises:
        KeyError, TypeError, ValueError: they are none.
    """
    needs = dict(data["needs"])
    resources = tuple(sorted(needs.pop("resources", {}).items()))
    return Item(
        **{
            **data,
            "tags": tuple(data["tags"]),
            "argv": tuple(data["argv"]),
            "needs": Needs(**needs, resources=resources),
            "settled": Outcome[data["settled"]],
        }
    )
