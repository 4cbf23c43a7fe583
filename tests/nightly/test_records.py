"""Records of items: what an item may leave in their way, and what may stand in them."""

import json
import os
from itertools import islice

import pytest
from hostile.mutations import with_strange_values
from night_samples import NightSample, item
from stub_nights import write_manifest

from tipchain.cli import main
from tipchain.core.json_text import as_json
from tipchain.errors import Outcome
from tipchain.nightly.items import NightPlan
from tipchain.nightly.nights import (
    ENDED,
    FINISHED,
    NIGHT,
    DamagedRecord,
    ItemRecord,
    Night,
    item_folder,
    read_document,
    slug_of,
    write_document,
    write_record,
)


def record(**values):
    return ItemRecord(**{"id": "a[cpu]", "attempt": 1, "outcome": Outcome.PASS, **values})


def read(folder):
    plan = NightPlan(name="suite", root="", manifest="", sha256="", items=())
    return Night(folder=folder, token="t", started="", plan=plan).record("a[cpu]")


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
    write_record(tmp_path, one, "t")
    assert read(tmp_path) == one


def test_a_link_in_the_records_place_is_not_followed(tmp_path):
    folder, victim = item_folder(tmp_path, "a[cpu]"), tmp_path / "victim"
    folder.mkdir(parents=True)
    victim.write_text("mine")
    (folder / ENDED).symlink_to(victim)
    write_record(tmp_path, record(), "t")
    assert victim.read_text() == "mine"
    assert read(tmp_path) == record()


def test_a_folder_in_the_records_place_stops_nothing(tmp_path):
    path = item_folder(tmp_path, "a[cpu]") / ENDED
    (path / "within").mkdir(parents=True)
    write_record(tmp_path, record(), "t")
    assert read(tmp_path) == record()
    assert len(list(path.parent.glob(f"not-*-{ENDED}"))) == 1


def test_every_id_has_a_folder_of_its_own():
    ids = ["a", "A", "a b", "a/b", "gr\xf6\xdfe", "bad\udcff", "bad\udcfe", "x" * 500, "x" * 501, "..", ""]
    slugs = {slug_of(one) for one in ids}
    assert len(slugs) == len(ids)
    assert all(len(one) <= 120 and one.isascii() and "/" not in one for one in slugs)


ITEM = item("net")


@pytest.fixture
def night(tmp_path):
    """A finished night with one item, which failed."""
    write_manifest(tmp_path, commands=[])
    made = NightSample(tmp_path / "nights", 0, [ITEM], root=tmp_path)
    made.end(ITEM, Outcome.FAIL, "exit 1: oh no")
    made.finish()
    return made


def status(night, *words):
    nights = night.folder.parent
    return main(["nightly", "status", str(nights.parent / "suite.yaml"), "--out", str(nights), *words])


def damaged(text):
    """Yield texts that are not what was written, the kinds of damage that disks, editors and programs do."""
    yield from ("", "null", "[]", "{}", "7", "\x00" * len(text), text[:-20], "[" * 100_000, '{"a":' * 100_000)
    yield text.replace('"FAIL"', '"PASS"')
    yield text.replace("oh no", "all well")
    yield text.replace('"seconds": 1.0', '"seconds": 2.0')
    yield "\udcff"


def test_a_damaged_record_is_an_error_whatever_it_was(night, capsys):
    file = night.ended_file(ITEM)
    whole = file.read_text()
    for text in damaged(whole):
        file.write_text(text, errors="surrogateescape")
        assert status(night) == 1, text[:80]
        assert "1 of 1 ended, 1 error" in capsys.readouterr().out
    file.write_text(whole)
    assert status(night) == 1
    assert "1 of 1 ended, 1 failed" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "gone"])
def test_what_stands_in_the_place_of_a_finished_items_record_is_an_error(night, capsys, kind):
    file = night.ended_file(ITEM)
    file.unlink()
    {
        "pipe": lambda: os.mkfifo(file),
        "folder": file.mkdir,
        "link": lambda: file.symlink_to("/dev/zero"),
        "gone": lambda: None,
    }[kind]()
    assert status(night) == 1
    assert "1 of 1 ended, 1 error" in capsys.readouterr().out


def test_a_record_leads_nowhere_else(tmp_path):
    folder = item_folder(tmp_path, "a[cpu]")
    folder.mkdir(parents=True)
    for path in ("/etc/passwd", "items/../../secret"):
        write_document(folder / ENDED, {**as_json(record()), "log": path, "token": "t"})
        assert isinstance(read(tmp_path), DamagedRecord)


@pytest.mark.parametrize("name", [NIGHT, ENDED, "running.json"])
def test_no_document_of_a_night_ends_in_a_traceback_even_with_a_right_checksum(night, capsys, name):
    if name == "running.json":
        running = {"id": ITEM.id, "seconds": 1.0, "line": "epoch 1"}
        document = {
            "total": 1,
            "counts": {"PASS": 1},
            "running": [running],
            "left_s": 1.0,
            "seconds": 2.0,
            "waiting": "a GPU",
        }
        file = night.folder / name
        (night.folder / FINISHED).unlink()
    else:
        file = night.folder / NIGHT if name == NIGHT else night.ended_file(ITEM)
        document = read_document(file)
    tried = 0
    for changed in islice(with_strange_values(document), 0, None, 5):
        if name == "running.json":
            file.write_text(json.dumps(changed))
        else:
            write_document(file, changed)
        assert status(night, *(("--json", "-") if tried % 2 else ())) in (0, 1, 2), changed
        told = capsys.readouterr()
        assert "Traceback" not in told.err, changed
        assert "\x1b[2J" not in told.out + told.err, changed
        tried += 1
    assert tried > 15
