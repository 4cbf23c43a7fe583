from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from night_samples import item

from tipchain.errors import Outcome, UsageError
from tipchain.nightly.items import NightPlan, parse_shard, select, share

PLAN = NightPlan(
    name="suite",
    root="/",
    manifest="suite.yaml",
    sha256="",
    items=(
        item("alexnet"),
        item("alexnet", device="gpu", tags=("big",)),
        item("alexnet", kind="align"),
        item("mvf", mode="lite_train_lite_infer", tags=()),
    ),
)


def numbers(*patterns):
    return [PLAN.items.index(one) for one in select(PLAN, patterns).items]


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [
        ((), [0, 1, 2, 3]),
        (("alexnet[whole_infer;cpu]",), [0]),
        (("alexnet[*",), [0, 1]),
        (("tag:lite",), [0, 2]),
        (("mode:lite_*",), [3]),
        (("device:gpu",), [1]),
        (("kind:align", "device:gpu"), [1, 2]),
        (("!kind:align",), [0, 1, 3]),
        (("alexnet*", "!device:gpu"), [0, 2]),
    ],
)
def test_patterns(patterns, chosen):
    assert numbers(*patterns) == chosen


def test_a_pattern_that_matches_nothing_is_refused():
    with pytest.raises(UsageError, match="tag:light: matches none of the 4 items"):
        select(PLAN, ["tag:light"])
    with pytest.raises(UsageError, match=r"did you mean 'alexnet\[whole_infer;cpu\]'"):
        select(PLAN, ["!alexnet[whole_infer;cqu]"])


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "a/b", "-1/2", "1/2/3", ""])
def test_what_is_no_share(text):
    with pytest.raises(UsageError, match="is no shard"):
        parse_shard(text)


def plan_of(timeouts):
    items = (replace(item(f"m{number}"), timeout_s=timeout) for number, timeout in enumerate(timeouts))
    return NightPlan(name="", root="", manifest="", sha256="", items=tuple(items))


def shares(plan, count):
    return [[one.id for one in share(plan, i, count).items] for i in range(1, count + 1)]


def test_shares_take_about_as_long_as_each_other():
    plan = plan_of((100, 60, 50, 40, 30, 20))
    seconds = {one.id: one.timeout_s for one in plan.items}
    assert [sum(seconds[name] for name in one) for one in shares(plan, 2)] == [160, 140]


@given(st.integers(1, 7), st.lists(st.floats(0.1, 1e4), max_size=10))
def test_every_item_is_in_one_share_and_in_the_plans_order(parts, times):
    plan = plan_of(times)
    ids = [one.id for one in plan.items]
    found = shares(plan, parts)
    assert sorted(name for one in found for name in one) == sorted(ids)
    assert all([name for name in ids if name in one] == one for one in found)


def test_what_does_not_run_weighs_nothing():
    gone = {"settled": Outcome.SKIP, "reason": "gone"}
    items = (item("a"), item("b", **gone), item("c", **gone), item("d"))
    plan = NightPlan(name="", root="", manifest="", sha256="", items=items)
    ran = [[name for name in one if name[0] in "ad"] for one in shares(plan, 2)]
    assert [len(one) for one in ran] == [1, 1]
