"""Plans of nights as JSON values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tipchain.json_text import parse_as
from tipchain.nightly.items import Item, NightPlan
from tipchain.nightly.shares import Cut, SharePlan


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
        **({"chain": item.chain} if item.chain else {}),
    }


def parse_plan(data: Mapping[str, Any]) -> NightPlan:
    """Return the plan of JSON values.

    Raises:
        KeyError, TypeError, ValueError: they are none.
    """
    plan = {**data, "items": [{**one, "needs": _needs(one["needs"])} for one in data["items"]]}
    if "cut" not in data:
        return parse_as(NightPlan, plan, "plan")
    cut = parse_as(Cut, data["cut"], "plan.cut")
    if len(cut.ids) != len(cut.shares):
        raise ValueError(f"a cut of {len(cut.ids)} items has {len(cut.shares)} shares")
    return parse_as(SharePlan, plan, "plan")


def _needs(data: object) -> dict[str, Any]:
    resources = data.get("resources", {}) if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(resources, dict):
        raise TypeError("what an item needs is no object with names")
    return {**data, "resources": sorted(map(list, resources.items()))}


def parse_item(data: Mapping[str, Any]) -> Item:
    """Return the item of JSON values.

    Raises:
        KeyError, TypeError, ValueError: they are none.
    """
    return parse_as(Item, {**data, "needs": _needs(data["needs"])}, "item")
