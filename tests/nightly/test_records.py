"""Records of items: what an item may leave in their way, and what may stand in them."""

from __future__ import annotations

import pytest

from tipchain.nightly.records import ENDED, ItemRecord, item_folder, read_record, slug_of, write_record
from tipchain.outcome import Outcome


def record(**values):
    return ItemRecord(**{"id": "a[cpu]", "token": "t", "attempt": 1, "outcome": Outcome.PASS, **values})


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("exit 1: caf\xe9 \u65e5\u672c", "exit 1: caf\xe9 \u65e5\u672c"),
        ("\x1b[31mred\x1b[0m\x1b[2J end", "red end"),
        ("a\tb\r\nc\u2028d\xa0e\rf", "a b c d e f"),
        ("half \ud83d and \udcff, \x00 \x9b \u202e", "half and ,"),
    ],
)
def test_a_reason_is_one_line_that_can_be_shown_and_stored(tmp_path, reason, shown):
    one = record(reason=reason)
    assert one.reason == shown
    item_folder(tmp_path, one.id).mkdir(parents=True)
    write_record(tmp_path, one)
    assert read_record(tmp_path, one.id, "t") == one


def test_a_link_in_the_records_place_is_not_followed(tmp_path):
    folder, victim = item_folder(tmp_path, "a[cpu]"), tmp_path / "victim"
    folder.mkdir(parents=True)
    victim.write_text("mine")
    (folder / ENDED).symlink_to(victim)
    write_record(tmp_path, record())
    assert victim.read_text() == "mine"
    assert read_record(tmp_path, "a[cpu]", "t") == record()


def test_a_folder_in_the_records_place_stops_nothing(tmp_path):
    path = item_folder(tmp_path, "a[cpu]") / ENDED
    (path / "within").mkdir(parents=True)
    write_record(tmp_path, record())
    assert read_record(tmp_path, "a[cpu]", "t") == record()
    assert len(list(path.parent.glob(f"not-*-{ENDED}"))) == 1


def test_every_id_has_a_folder_of_its_own():
    ids = ["a", "A", "a b", "a/b", "gr\xf6\xdfe", "bad\udcff", "bad\udcfe", "x" * 500, "x" * 501, "..", ""]
    slugs = {slug_of(one) for one in ids}
    assert len(slugs) == len(ids)
    assert all(len(one) <= 120 and one.isascii() and "/" not in one for one in slugs)
