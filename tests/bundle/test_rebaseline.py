"""``tipchain bundle rebaseline``: what it shows, asks, records, and leaves where it was."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from programs import full_disk

from tipchain.bundle import moving
from tipchain.bundle.manifest import Move, open_bundle, read_manifest, write_manifest
from tipchain.bundle.moving import NEW, work_folder
from tipchain.cli import main
from tipchain.core.files import files_below, sha256_of
from tipchain.errors import InputError
from tipchain.numbers.dumps import load_record, save_record


def changed(bundle: Path, to: Path, file: str = "", change=None, **fields: object) -> Path:
    """Copy a bundle with an array of one dump, and fields of its manifest, changed."""
    shutil.copytree(bundle, to)
    if file:
        record = load_record(to / file)
        arrays = {name: change(np.array(array)) for name, array in record.arrays.items()}
        save_record(to / file, arrays, meta=record.meta or None)
    manifest = read_manifest(bundle)
    names = [name for name in files_below(to) if name != "manifest.json"]
    files = {name: sha256_of(to / name) for name in names}
    write_manifest(to, replace(manifest, files=files, **fields))
    return to


def nudge(array):
    return np.nextafter(array, array.dtype.type(9)) if array.dtype.kind == "f" else array


def scale(array):
    return array * (1 + 1e-6) if array.dtype.kind == "f" else array


def rebaseline(copied, *args: object) -> int:
    return main(["bundle", "rebaseline", str(copied.bundle), *map(str, args)])


def moves(copied) -> list[Move]:
    return list(open_bundle(copied.bundle).moves)


def test_before_and_after_are_shown_and_the_reason_is_recorded(copied, tmp_path, monkeypatch, capsys):
    (tmp_path / "gitconfig").write_text("[user]\n\tname = A Person\n\temail = person@example.org\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    new = changed(
        copied.bundle, tmp_path / "new", "dumps/forward_torch.npy", scale, versions={"torch": "9.9"}, commit="abc"
    )
    old_content, new_content = (read_manifest(one).content for one in (copied.bundle, new))
    assert rebaseline(copied, new, "--why", "torch was updated") == 0
    assert open_bundle(copied.bundle).content == new_content
    assert new.is_dir(), "the new one stays where it was"
    (move,) = moves(copied)
    assert (move.who, move.why) == ("A Person <person@example.org>", "torch was updated")
    assert move.before == old_content
    said = capsys.readouterr().out
    assert re.search(r"torch +\S+ -> 9\.9\n", said)
    assert re.search(r"commit +\S+ -> abc\n", said)
    assert re.search(r"forward +\d+ of \d+ arrays moved, \S+ by up to \S+e-0\d of \d", said)
    assert re.search(r"loss +\d+ arrays? as before\n", said)
    assert not list(copied.bundle.parent.glob(".bundle.tipchain-*"))
    assert main(["bundle", "show", str(copied.bundle)]) == 0
    assert "by A Person <person@example.org>: torch was updated" in capsys.readouterr().out


def test_moves_are_only_added(copied, tmp_path):
    old = shutil.copytree(copied.bundle, tmp_path / "old")
    new = changed(copied.bundle, tmp_path / "new", "dumps/forward_torch.npy", nudge)
    assert rebaseline(copied, new, "--why", "one") == 0
    assert rebaseline(copied, old, "--why", "two") == 0
    assert [move.why for move in moves(copied)] == ["one", "two"]
    assert read_manifest(copied.bundle).content == read_manifest(old).content


def test_what_is_as_it_was_is_not_moved(copied, tmp_path, capsys):
    same = changed(copied.bundle, tmp_path / "same", created="2000-01-01T00:00:00+0000", commit="other")
    assert rebaseline(copied, same, "--why", "again") == 0
    assert "nothing to move" in capsys.readouterr().out
    assert moves(copied) == []
    assert open_bundle(copied.bundle).created != "2000-01-01T00:00:00+0000"


def test_nothing_moves_without_a_reason(copied, tmp_path, capsys):
    new = changed(copied.bundle, tmp_path / "new", "dumps/forward_torch.npy", nudge)
    for args in ((new,), (new, "--why", "  ")):
        assert rebaseline(copied, *args) == 2
        assert "not moved, without a reason" in capsys.readouterr().err
    assert rebaseline(copied, "nowhere", "--why", "w") == 2
    assert "no such bundle" in capsys.readouterr().err
    assert moves(copied) == []


@pytest.mark.parametrize(
    ("fields", "words"), [({"mode": "whole_infer"}, "of another mode"), ({"reseed": 2}, "of another seed")]
)
def test_a_bundle_of_something_else_never_takes_its_place(copied, tmp_path, capsys, fields, words):
    new = changed(copied.bundle, tmp_path / "new", **fields)
    assert rebaseline(copied, new, "--why", "w") == 2
    assert words in capsys.readouterr().err
    (new / "case.yaml").write_text("")
    assert rebaseline(copied, new, "--why", "w") == 2
    assert "changed: case.yaml" in capsys.readouterr().err


def test_one_at_a_time(copied, tmp_path, capsys):
    from filelock import FileLock

    new = changed(copied.bundle, tmp_path / "new", "dumps/forward_torch.npy", nudge)
    with FileLock(copied.bundle.parent / ".bundle.lock"):
        assert rebaseline(copied, new, "--why", "w") == 2
    assert "is being moved by another process" in capsys.readouterr().err
    assert moves(copied) == []


def test_a_damaged_reference_is_not_compared_with(copied, tmp_path, capsys):
    new = shutil.copytree(copied.bundle, tmp_path / "new")
    (copied.bundle / "dumps" / "loss_torch.npy").unlink()
    with pytest.raises(InputError):
        open_bundle(copied.bundle)
    assert rebaseline(copied, new, "--why", "w") == 2
    assert "missing: dumps/loss_torch.npy" in capsys.readouterr().err


def test_a_move_that_fails_leaves_the_old_one(copied, tmp_path, monkeypatch, capsys):
    before = read_manifest(copied.bundle).content
    new = changed(copied.bundle, tmp_path / "new", "dumps/forward_torch.npy", nudge)
    monkeypatch.setattr(moving, "replace_bundle", full_disk)
    assert rebaseline(copied, new, "--why", "w") == 1
    assert "No space left on device" in capsys.readouterr().err
    assert open_bundle(copied.bundle).content == before
    assert moves(copied) == []


@pytest.mark.parametrize("exchange", [True, False])
def test_folders_change_places(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(moving, "_exchange", lambda *_: False)
    place = tmp_path / "place"
    place.mkdir()
    (place / "who").write_text("old")
    with work_folder(place) as work:
        (work / NEW / "who").write_text("new")
        moving.replace_bundle(place, work)
    assert list(tmp_path.iterdir()) == [place]
    assert (place / "who").read_text() == "new"
    with work_folder(place) as work:
        (work / NEW).rmdir()
        with pytest.raises(OSError, match="bundle"):
            moving.replace_bundle(place, work)
    assert (place / "who").read_text() == "new", "it stays"
