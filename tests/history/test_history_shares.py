"""Nights that were run in shares are one night of the history."""

import os
from dataclasses import replace

from history_samples import FAIL, PASS, fill, item, judged, night, plan

from tipchain.cli import main
from tipchain.history.changes import changes
from tipchain.history.entries import find_entry, items_of, list_entries
from tipchain.history.ingest import read_source
from tipchain.history.render import changes_text, entry_json, head_lines, list_text
from tipchain.nightly.items import ShardPart, share
from tipchain.nightly.nights import begin_night

PART = ShardPart(share=1, of=2, title="suite", manifest="0", commit="c", cut="x", night="1")


def shared(number: int, share: int, **more: str):
    """Return a share of the night of a day."""
    entry = night(number, part=replace(PART, share=share, night=str(number), **more))
    return replace(
        entry,
        key=f"{entry.key} {share}",
        name=f"{entry.name}-{share}",
        began=entry.began + share,
        seconds=50.0,
        machine=f"host{share}",
    )


def two_nights(history, after=(PASS, PASS), shares=(1, 2), **more: str) -> None:
    fill(history, [(shared(0, 1), [judged("a", {"x": PASS})]), (shared(0, 2), [judged("b", {"x": PASS})])])
    names, outcomes = ("a", "b"), dict(zip(("a", "b"), after, strict=True))
    for one in shares:
        name = names[one - 1]
        history.add(shared(1, one, **(more if one == 2 else {})), [judged(name, {"x": outcomes[name]}, outcomes[name])])


def changed(history, root):
    with history.reading() as connection:
        before, latest = find_entry(connection, "latest~1"), find_entry(connection, "latest")
        return changes(connection, before, latest, root=root)


def told(history, root):
    return changes_text(changed(history, root)).splitlines()


def test_shares_are_one_entry_with_the_items_of_all(history):
    two_nights(history)
    with history.reading() as connection:
        found = list_entries(connection)
        items = items_of(connection, found[0])
        assert find_entry(connection, "suite-001-2").rows == find_entry(connection, "suite-001-1").rows == found[0].rows
        assert find_entry(connection, "suite-001").rows == found[0].rows, "the beginning of all of its names"
        assert find_entry(connection, "latest~1").rows == found[1].rows
    assert [(one.name, one.counts, one.finished, one.machine) for one in found] == [
        (f"suite-00{day}-1", {PASS: 2}, True, "host1, host2") for day in (1, 0)
    ]
    assert (found[0].seconds, found[0].missing, found[0].wrong) == (51.0, "", "")
    assert list(items) == ["a", "b"]
    assert "in 2 shares: suite" in list_text(found)
    assert "shares:   1/2 suite-001-1 on host1, 2/2 suite-001-2 on host2" in head_lines(found[0])
    document = entry_json(found[0])
    assert [(one["share"], one["name"]) for one in document["shares"]] == [
        ("1/2", "suite-001-1"),
        ("2/2", "suite-001-2"),
    ]


def test_what_flips_in_any_share_is_told_and_what_another_share_has_is_not_gone(history, tmp_path):
    two_nights(history, after=(PASS, FAIL))
    assert told(history, tmp_path) == [
        "suite: suite-001-1 against suite-000-1, 24.0 hours before",
        "PASS -> FAIL  b: x PASS -> FAIL",
    ]


def test_a_share_that_is_missing_is_said_and_its_items_are_not_gone(history, tmp_path):
    two_nights(history, shares=(1,))
    lines = told(history, tmp_path)
    assert "suite-001-1: shares that are not in the history: 2/2" in lines
    assert not any("gone" in line for line in lines)


def test_what_no_share_has_is_gone(history, tmp_path):
    history.add(night(0), [item("a"), item("b"), item("c")])
    fill(history, [(shared(1, 1), [item("a")]), (shared(1, 2), [item("b")])])
    assert changed(history, tmp_path).gone == ("c",)


def test_an_item_that_ran_in_two_shares_counts_as_the_later(history):
    fill(history, [(shared(0, 1), [judged("a", {"x": PASS})]), (shared(0, 2), [judged("a", {"x": FAIL}, FAIL)])])
    fill(history, [(shared(1, 1), [judged("a", {"x": PASS})]), (shared(1, 2), [judged("b", {"x": PASS})])])
    found = changed(history, history.place.file.parent)
    assert [(one.item, one.before, one.after) for one in found.flips] == [("a", FAIL, PASS)]
    assert (found.new_verdicts, found.gone_verdicts) == ({}, {})


def test_shares_that_were_cut_differently_are_said_and_the_exit_code_is_1(history, tmp_path, capsys):
    two_nights(history, cut="y")
    where = ("--database", str(history.place.file), "--root", str(tmp_path))
    assert main(["history", "diff", *where]) == 1
    told = capsys.readouterr().out
    assert "suite-001-1: shares 1/2 and 2/2 were cut differently" in told
    assert main(["history", "diff", "latest~1", *where]) == 0
    assert main(["history", "show", "latest", *where]) == 0
    assert "wrong:    shares 1/2 and 2/2 were cut differently" in capsys.readouterr().out


def test_a_nights_folder_says_which_share_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("TIPCHAIN_NIGHT_ID", "7")

    one = share(plan(tmp_path, ["a", "b"]), 1, 2)
    made, lock = begin_night(one, tmp_path / "nights", options={"shard": "1/2"}, environment={"commit": "c"})
    os.close(lock)
    entry = read_source(made.folder).entry
    assert entry.part is not None
    assert (str(entry.part), entry.part.commit, entry.part.cut) == ("1/2", "c", one.cut.digest)
