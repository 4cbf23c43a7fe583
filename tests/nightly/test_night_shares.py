"""Shares of one night: which nights they are, what they come to together, and cuts that leave something out."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from night_samples import ENVIRONMENT, NightSample, item, share_of_night

from tipchain.cli import main
from tipchain.core.json_text import as_json, parse_as
from tipchain.errors import Outcome, UsageError
from tipchain.nightly.items import NightPlan, ShardPart, gather, missing, night_id, share
from tipchain.nightly.nights import (
    FINISHED,
    begin_night,
    find_nights,
    last_failed,
    read_night,
    read_results,
    read_summary,
    write_document,
)
from tipchain.nightly.timeline import read_timelines, wholes_of

ITEMS = [item(name) for name in "abcd"]
A, B, C, D = (one.id for one in ITEMS)
CUT = {A: 1, B: 2, C: 1, D: 3}
OTHER_CUT = {A: 1, B: 2, C: 2, D: 3}
PART = ShardPart(share=1, of=3, title="suite", manifest="0", commit="c", night="7")


def groups(*parts: ShardPart | None):
    found = gather(enumerate(parts), lambda one: one[1])
    return [[one[0] for one in group] for group in found]


def test_shares_under_an_id_are_one_night_whatever_they_ran():
    first, second = PART, replace(PART, share=2)
    assert groups(replace(PART, share=3), first, second) == [[1, 2, 0]]
    assert groups(first, replace(second, commit="d", manifest="1")) == [[0, 1]]
    for other in ({"night": "8"}, {"of": 4}, {"title": "x"}):
        assert groups(first, replace(second, **other)) == [[0], [1]], "of something else"
    assert groups(first, second, first) == [[2, 1]], "the later of a share counts"
    assert groups(None, None, first) == [[0], [1], [2]], "what is no share stays alone"


def test_the_id_is_the_users_or_the_services():
    with pytest.raises(UsageError, match="TIPCHAIN_NIGHT_ID, the same for all"):
        night_id({})
    assert night_id({"CI_PIPELINE_ID": "7"}) == "CI_PIPELINE_ID=7"
    assert night_id({"GITHUB_RUN_ID": "7", "TIPCHAIN_NIGHT_ID": "mine"}) == "mine"


def plan_of(root, items=ITEMS):
    return NightPlan(name="suite", root=str(root), manifest="suite.yaml", sha256="ab", items=tuple(items))


def test_a_share_says_which_night_it_is_of_and_how_that_was_cut(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_RUN_ID", "7")
    one = share(plan_of(tmp_path), 2, 3)
    night, lock = begin_night(one, tmp_path / "nights", options={"shard": "2/3"}, environment={"commit": "c"})
    os.close(lock)
    part = read_night(night.folder).part
    assert part == ShardPart(
        share=2, of=3, title="suite", manifest="ab", commit="c", night="GITHUB_RUN_ID=7", cut=one.cut.digest, total=4
    )
    whole, lock = begin_night(plan_of(tmp_path), tmp_path / "nights", options={}, environment={})
    os.close(lock)
    assert read_night(whole.folder).part is None
    assert dict(whole.options) == {}


def test_a_share_is_read_back_and_a_broken_cut_is_refused(tmp_path):
    one = share(plan_of(tmp_path), 1, 2)
    document = json.loads(json.dumps(as_json(one)))
    assert parse_as(NightPlan, document) == one
    document["cut"]["shares"].pop()
    with pytest.raises(ValueError, match="a cut of 4 items has 3 shares"):
        parse_as(NightPlan, document)


def test_the_cut_is_the_same_whatever_can_run_on_a_machine(tmp_path):
    gone = [replace(one, settled=Outcome.SKIP, reason="no data") if one.id == A else one for one in ITEMS]
    cuts = {share(plan_of(tmp_path, items), 1, 2).cut.digest for items in (ITEMS, gone)}
    assert len(cuts) == 1


@pytest.mark.parametrize(
    "wrong", [{"items": {A: ["PASS", math.inf]}}, {"seconds": math.nan}, {"counts": {"PASS": "2"}}]
)
def test_a_finished_nights_numbers_are_numbers(tmp_path, wrong):
    whole = {"items": {A: ["PASS", 5.0]}, "of a later version": 1}
    write_document(tmp_path / FINISHED, whole)
    assert read_summary(tmp_path).items == {A: (Outcome.PASS, 5.0)}
    write_document(tmp_path / FINISHED, {**whole, **wrong})
    assert read_summary(tmp_path) is None


def make(tmp_path, day=0, cuts=(CUT, CUT, CUT), **more):
    return [
        share_of_night(tmp_path / "suite", day, at, ITEMS, cut, of=len(cuts), **more)
        for at, cut in enumerate(cuts, 1)
        if cut
    ]


def test_shares_are_one_column_and_links_lead_to_each(tmp_path):
    NightSample(tmp_path / "suite", 0, ITEMS).finish()
    parts = make(tmp_path, 1, outcomes={B: Outcome.FAIL})
    (line,), problems = read_timelines(find_nights(tmp_path), 5, tmp_path)
    assert (problems, len(line.columns)) == ([], 2)
    column = line.columns[1]
    results = column.results
    assert dict(results.counts) == {Outcome.PASS: 3, Outcome.FAIL: 1}
    assert (results.finished, results.notes, results.wrong) == (True, (), ())
    assert [one.id for one in results.plan.items] == [A, B, C, D]
    for row in line.rows:
        url = f"{unquote(column.href)}/items/{row.slug}/{unquote(row.cells[1].log)}"
        log = Path(os.path.normpath(tmp_path / url))  # as a browser does, by name
        assert log.is_file()
        assert [one for one in parts if log.is_relative_to(one.folder)] == [parts[CUT[row.item.id] - 1]]
    assert {row.item.id: row.changed for row in line.rows} == {
        A: "ERROR -> PASS",
        B: "ERROR -> FAIL",
        C: "ERROR -> PASS",
        D: "ERROR -> PASS",
    }


def test_as_many_whole_nights_as_were_asked_for(tmp_path):
    for day in range(4):
        make(tmp_path, day)
    (line,), _ = read_timelines(find_nights(tmp_path), 2, tmp_path)
    assert [len(one.results.plan.items) for one in line.columns] == [4, 4]


def test_what_another_share_has_is_not_gone_and_what_no_share_has_is(tmp_path):
    old = item("old")
    NightSample(tmp_path / "suite", 0, [*ITEMS, old]).finish()
    make(tmp_path, 1)
    (line,), _ = read_timelines(find_nights(tmp_path), 5, tmp_path)
    assert [row.item.id for row in line.rows if row.changed == "gone"] == [old.id]


def test_a_share_that_is_missing_is_told_and_the_night_is_not_finished(tmp_path):
    make(tmp_path, 0)
    make(tmp_path, 1, cuts=(CUT, {}, CUT))
    (line,), _ = read_timelines(find_nights(tmp_path), 5, tmp_path)
    results = line.columns[1].results
    assert results.notes == ("shares that are not here: 2/3",)
    assert (results.finished, results.wrong) == (False, ())
    assert [row.changed for row in line.rows] == [""] * 4


def test_shares_without_an_item_are_not_missed(tmp_path):
    two = plan_of(tmp_path, ITEMS[:2])
    cuts = [share(two, number, 4) for number in range(1, 5)]
    assert [len(one.items) for one in cuts] == [1, 1, 0, 0]
    parts = [replace(PART, of=4, share=number, total=2) for number in (1, 2)]
    assert missing(parts) == ""
    assert missing(parts[1:]) == "1/4"


def test_shares_that_were_cut_differently_are_found_out(tmp_path, capsys):
    make(tmp_path, cuts=(OTHER_CUT, CUT, CUT))
    page = tmp_path / "page.html"
    assert main(["nightly", "dashboard", str(tmp_path), "--html", str(page)]) == 1
    told = capsys.readouterr().err
    for text in ("shares 1/3 and 2/3 were cut differently", f"1 items of the plan are in no share: {C}"):
        assert text in told
        assert text in page.read_text()
    assert "<title>cut wrongly, Nightly: suite</title>" in page.read_text()


def test_what_is_in_two_shares_is_told(tmp_path):
    make(tmp_path, cuts=(CUT, OTHER_CUT, CUT))
    (whole,) = wholes_of(map(read_results, find_nights(tmp_path)))
    assert whole.wrong == ("shares 1/3 and 2/3 were cut differently", f"1 items are in several shares: {C}")
    assert whole.part_with(ITEMS[2]).night.part.share == 2


def test_shares_of_different_commits_under_one_id_are_told(tmp_path):
    for number in (1, 2):
        share_of_night(
            tmp_path / "suite",
            0,
            number,
            ITEMS,
            {A: 1, B: 2},
            night="7",
            environment={**ENVIRONMENT, "commit": f"c{number}"},
        )
    (whole,) = wholes_of(map(read_results, find_nights(tmp_path)))
    assert whole.notes == ("shares ran different commits: c1, c2",)


def test_the_last_failed_are_those_of_all_shares(tmp_path):
    make(tmp_path, 0, outcomes={A: Outcome.FAIL})
    make(tmp_path, 1, outcomes={B: Outcome.FAIL, D: Outcome.ERROR})
    assert last_failed(tmp_path / "suite") == {B, D}


def test_a_share_that_ran_again_counts_once_and_is_told(tmp_path):
    first, *_ = [
        share_of_night(tmp_path, 0, number, ITEMS, CUT, hours=hours) for hours, number in enumerate((1, 1, 2, 3))
    ]
    (whole,) = wholes_of(read_results(folder) for folder in find_nights(tmp_path))
    assert whole.notes == (f"1/3: ran again, so {first.folder.name} does not count",)
    assert len(whole.shares) == 3
