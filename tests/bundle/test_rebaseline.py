"""``tipchain rebaseline``: what it accepts, refuses, records, and leaves where it was."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bundle_samples import STAGES, tipchain
from tiny_project import make_tiny_project

from tipchain.bundle import making
from tipchain.bundle.evidence import describe_folder
from tipchain.bundle.making import kept_weights
from tipchain.bundle.manifest import damages, moves_of, open_bundle, read_manifest, write_manifest
from tipchain.cli import main
from tipchain.core.files import files_below, sha256_of
from tipchain.errors import BundleError
from tipchain.numbers.dumps import load_record, save_record
from tipchain.parity.case import load_case

USER = "[user]\n\tname = A Person\n\temail = person@example.org\n"


@pytest.fixture
def person(tmp_path, monkeypatch):
    """A git user."""
    (tmp_path / "gitconfig").write_text(USER)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))


def changed(bundle: Path, to: Path, file: str = "", change=None, **fields: object) -> Path:
    """Copy a bundle with an array of one dump, and fields of its manifest, changed."""
    shutil.copytree(bundle, to)
    if file:
        record = load_record(to / file)
        arrays = {name: change(np.array(array)) for name, array in record.arrays.items()}
        save_record(to / file, arrays, meta=record.meta or None)
        (to / "statistics.json").write_text(json.dumps(describe_folder(to / "dumps")))
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
    return main(["rebaseline", str(copied.bundle), *map(str, args)])


def log(copied) -> list[dict]:
    path = copied.bundle.parent / "baselines.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.usefixtures("person")
def test_rounding_moves_it_and_everything_is_told(copied, tmp_path, capsys):
    new = changed(copied.bundle, tmp_path / "new", "dumps/forward_torch.npy", nudge)
    old_content, new_content = (read_manifest(one).content for one in (copied.bundle, new))
    assert rebaseline(copied, "--with", new, "--why", "torch was updated") == 0
    assert open_bundle(copied.bundle).content == new_content
    assert new.is_dir(), "the new one stays where it was"
    (move,) = log(copied)
    assert move["item"] == "bundle"
    assert move["who"] == "A Person <person@example.org>"
    assert move["why"] == "torch was updated"
    assert move["forced"] is False
    assert (move["old"]["content"], move["new"]["content"]) == (old_content, new_content)
    assert {"case", "sources", "versions", "tipchain"} <= move["old"].keys()
    evidence = {one["stage"]: one for one in move["evidence"]}
    assert (evidence["forward"]["how"], evidence["loss"]["how"]) == ("float64", "identical")
    assert evidence["forward"]["figures"]["new error"] > 0
    said = capsys.readouterr().out
    assert "ok  forward  rounding: float64 agrees" in said
    assert "moved on this evidence" in said
    assert not [path.name for path in copied.bundle.parent.iterdir() if path.name.startswith(".bundle.0")]
    assert main(["bundle", "show", str(copied.bundle)]) == 0
    assert "by A Person <person@example.org>: torch was updated" in capsys.readouterr().out


@pytest.mark.usefixtures("person")
def test_a_changed_model_is_refused_unless_forced_which_is_recorded(copied, tmp_path, capsys):
    new = changed(copied.bundle, tmp_path / "new", "truth/forward_torch.npy", scale)
    new = changed(new, tmp_path / "newer", "dumps/forward_torch.npy", scale)
    before = read_manifest(copied.bundle).content
    assert rebaseline(copied, "--with", new, "--why", "we hope", "--json", tmp_path / "no.json") == 1
    said = capsys.readouterr().out
    assert "NO  forward  float64 differs: logits" in said
    assert "not moved; the evidence does not say rounding" in said
    assert open_bundle(copied.bundle).content == before
    assert log(copied) == []
    document = json.loads((tmp_path / "no.json").read_text())
    assert (document["moved"], document["forced"]) == (False, False)
    assert rebaseline(copied, "--with", new, "--why", "the model is another", "--force") == 0
    (move,) = log(copied)
    assert move["forced"] is True
    assert [one["stage"] for one in move["evidence"] if not one["accepted"]] == ["forward"]
    assert open_bundle(copied.bundle).content == read_manifest(new).content
    assert "by force, without evidence" in capsys.readouterr().out


def test_lines_are_only_added(copied, tmp_path):
    old = shutil.copytree(copied.bundle, tmp_path / "old")
    new = changed(copied.bundle, tmp_path / "new", "dumps/forward_torch.npy", nudge)
    assert rebaseline(copied, "--with", new, "--why", "one") == 0
    first = (copied.bundle.parent / "baselines.jsonl").read_bytes()
    with (copied.bundle.parent / "baselines.jsonl").open("ab") as file:
        file.write(b'{"item": "bundle", "wh\n')  # a line of which a kill left half
    assert rebaseline(copied, "--with", old, "--why", "two", "--force") == 0
    assert (copied.bundle.parent / "baselines.jsonl").read_bytes().startswith(first)
    assert [move["why"] for move in moves_of(copied.bundle)] == ["one", "two"]
    assert [move["forced"] for move in moves_of(copied.bundle)] == [False, False], "there was evidence"


def test_what_is_as_it_was_is_not_moved(copied, tmp_path, capsys):
    same = changed(copied.bundle, tmp_path / "same", created="2000-01-01T00:00:00+0000", commit="other")
    assert rebaseline(copied, "--with", same, "--why", "again") == 0
    assert "nothing to move" in capsys.readouterr().out
    assert log(copied) == []
    assert open_bundle(copied.bundle).created != "2000-01-01T00:00:00+0000"


WRONG = {
    "no reason": ((), "--why"),
    "an empty reason": (("--why", "  "), "--why is empty"),
    "a seed": (("--why", "w", "--seed", "1"), "--seed: a bundle keeps the seed"),
    "no new bundle": (("--why", "w", "--with", "nowhere"), "no such bundle"),
    "no case": (("--why", "w", "--case", "nowhere.yaml"), "no such case file"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_use(copied, capsys, what):
    args, words = WRONG[what]
    assert rebaseline(copied, *args) == 2
    assert words in capsys.readouterr().err
    assert log(copied) == []


@pytest.mark.parametrize(
    ("fields", "words"), [({"mode": "whole_infer"}, "of another mode"), ({"reseed": 2}, "of another seed")]
)
def test_a_bundle_of_something_else_never_takes_its_place(copied, tmp_path, capsys, fields, words):
    new = changed(copied.bundle, tmp_path / "new", **fields)
    assert rebaseline(copied, "--with", new, "--why", "w", "--force") == 2
    assert words in capsys.readouterr().err
    (new / "case.yaml").write_text("")
    assert rebaseline(copied, "--with", new, "--why", "w", "--force") == 2
    assert "changed: case.yaml" in capsys.readouterr().err


def test_what_is_no_reference_is_said(copied, tmp_path, capsys):
    (tmp_path / "envelope.json").write_text("{}")
    assert main(["rebaseline", str(tmp_path / "envelope.json"), "--why", "w"]) == 2
    assert "envelopes below test_tipc/data are made anew by themselves" in capsys.readouterr().err
    assert main(["rebaseline", str(copied.project.case), "--why", "w"]) == 2
    assert "test_tipc/bundles/tiny/lite_train_lite_infer" in capsys.readouterr().err


def test_a_case_stands_for_its_bundle(copied, tmp_path):
    new = changed(copied.bundle, tmp_path / "new", "dumps/forward_torch.npy", nudge)
    usual = copied.project.root / "test_tipc" / "bundles" / "tiny" / "lite_train_lite_infer"
    usual.parent.mkdir(parents=True)
    shutil.move(copied.bundle, usual)
    assert main(["rebaseline", str(copied.project.case), "--why", "w", "--with", str(new)]) == 0
    assert [move["why"] for move in moves_of(usual)] == ["w"]


def test_one_at_a_time(copied, tmp_path, capsys):
    from filelock import FileLock

    new = changed(copied.bundle, tmp_path / "new", "dumps/forward_torch.npy", nudge)
    with FileLock(copied.bundle.parent / ".bundle.lock"):
        assert rebaseline(copied, "--with", new, "--why", "w") == 2
    assert "is being moved by another process" in capsys.readouterr().err
    assert log(copied) == []


@pytest.mark.usefixtures("person")
def test_who_waited_for_another_move_compares_with_what_that_left(copied, tmp_path, monkeypatch, capsys):
    from tipchain.commands import rebaseline as command

    new = changed(copied.bundle, tmp_path / "new", "dumps/forward_torch.npy", nudge)
    locked = command._locked

    def after_another(place):
        monkeypatch.setattr(command, "_locked", locked)
        assert rebaseline(copied, "--with", new, "--why", "the first") == 0
        return locked(place)

    monkeypatch.setattr(command, "_locked", after_another)
    assert rebaseline(copied, "--with", new, "--why", "the second") == 0
    assert "nothing to move" in capsys.readouterr().out
    assert [line["why"] for line in log(copied)] == ["the first"]


def test_a_move_that_fails_is_told_and_the_old_one_stays(copied, tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise OSError(28, "No space left on device")

    before = read_manifest(copied.bundle).content
    new = changed(copied.bundle, tmp_path / "new", "dumps/forward_torch.npy", nudge)
    monkeypatch.setattr(making, "replace_folder", fail)
    assert rebaseline(copied, "--with", new, "--why", "w") == 1
    assert "No space left on device" in capsys.readouterr().err
    assert open_bundle(copied.bundle).content == before
    assert [move.get("undone", False) for move in log(copied)] == [False, True]


def test_a_reference_that_no_move_put_there_is_said(copied, tmp_path, capsys):
    """Somebody copied it there by hand, or a kill came between the line and the move."""
    old = shutil.copytree(copied.bundle, tmp_path / "old")
    new = changed(copied.bundle, tmp_path / "new", "dumps/forward_torch.npy", nudge)
    assert rebaseline(copied, "--with", new, "--why", "w") == 0
    assert main(["bundle", "verify", str(copied.bundle)]) == 0
    shutil.rmtree(copied.bundle)
    shutil.copytree(old, copied.bundle)
    assert main(["bundle", "verify", str(copied.bundle)]) == 1
    assert "was put there without rebaseline, or a move was cut short" in capsys.readouterr().err
    assert rebaseline(copied, "--with", old, "--why", "w") == 1
    assert rebaseline(copied, "--with", old, "--why", "back again", "--force") == 0
    assert main(["bundle", "verify", str(copied.bundle)]) == 0
    assert [move["forced"] for move in log(copied)] == [False, True]


def test_a_move_that_was_taken_back_does_not_count(copied, tmp_path, monkeypatch):
    new = changed(copied.bundle, tmp_path / "new", "dumps/forward_torch.npy", nudge)
    newer = changed(new, tmp_path / "newer", "dumps/loss_torch.npy", nudge)
    assert rebaseline(copied, "--with", new, "--why", "w") == 0
    monkeypatch.setattr(making, "replace_folder", lambda *_: (_ for _ in ()).throw(OSError(5, "I/O error")))
    assert rebaseline(copied, "--with", newer, "--why", "w") == 1
    assert main(["bundle", "verify", str(copied.bundle)]) == 0, "it is where the move before left it"


@pytest.mark.parametrize("exchange", [True, False])
def test_folders_change_places(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(making, "_exchange", lambda *_: False)
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "who").write_text(name)
    making.replace_folder(tmp_path / "old", tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old" / "who").read_text() == "new"
    with pytest.raises(OSError, match="gone"):
        making.replace_folder(tmp_path / "old", tmp_path / "gone")
    assert (tmp_path / "old" / "who").read_text() == "new", "it stays"


def test_weights_are_kept_where_the_case_makes_them_as_before(copied):
    manifest = read_manifest(copied.bundle)
    kept = kept_weights(copied.bundle, manifest, load_case(copied.project.case)).weights[""]
    assert kept.digest == manifest.weights[""].digest
    for side in ("torch", "paddle"):
        assert sha256_of(kept.paths[side]) == kept.sha256[side]
    copied.project.edit("case.yaml", "{init: kaiming, seed: 0,", "{init: kaiming, seed: 1,")
    assert not kept_weights(copied.bundle, manifest, load_case(copied.project.case)).weights


def test_a_damaged_reference_is_not_compared_with(copied, capsys):
    (copied.bundle / "dumps" / "loss_torch.npy").unlink()
    with pytest.raises(BundleError):
        open_bundle(copied.bundle)
    assert rebaseline(copied, "--why", "w", "--force") == 2
    assert "missing: dumps/loss_torch.npy" in capsys.readouterr().err


@pytest.mark.nightly
def test_a_reference_that_is_made_anew(tmp_path):
    project = make_tiny_project(tmp_path / "project")
    done = tipchain(project, "bundle", "make", project.case, "--only", f"{STAGES},backward,train")
    assert done.returncode == 0, done.stderr
    bundle = project.root / "test_tipc" / "bundles" / "tiny" / "lite_train_lite_infer"
    square = "self.square(hidden)"
    written_out = "(hidden.unsqueeze(1) * self.square.weight).sum(-1) + self.square.bias"
    project.edit("tiny_torch.py", square, written_out)
    done = project.align("--reference", bundle, "--only", "forward")
    assert done.returncode == 2
    assert "another version of the torch side" in done.stderr
    done = tipchain(project, "rebaseline", bundle, "--why", "a matrix product written out")
    assert done.returncode == 0, done.stdout + done.stderr
    how = {one["stage"]: one["how"] for one in moves_of(bundle)[0]["evidence"]}
    assert how == {
        "forward": "float64",
        "loss": "float64",
        "backward": "float64",
        "train": "float64",
        "weights": "identical",
    }
    assert project.align("--reference", bundle).returncode == 0
    project.edit("tiny_torch.py", "nn.BatchNorm2d(8)", "nn.BatchNorm2d(8, eps=1.01e-5)")
    done = tipchain(project, "rebaseline", bundle, "--why", "a little more")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NO  forward   float64 differs" in done.stdout
    assert len(moves_of(bundle)) == 1
    assert damages(bundle, read_manifest(bundle)) == []


def test_statistics_that_do_not_follow_from_the_dumps_are_refused(copied, tmp_path, capsys):
    new = changed(copied.bundle, tmp_path / "new", "dumps/forward_torch.npy", nudge)
    told = json.loads((new / "statistics.json").read_text())
    name = next(iter(told["forward_torch.npy"]))
    for wrong in ({"mean": 0.5}, {"max": None}, {"rms": "large"}):
        forged = {**told["forward_torch.npy"], name: {**told["forward_torch.npy"][name], **wrong}}
        (new / "statistics.json").write_text(json.dumps({**told, "forward_torch.npy": forged}))
        sealed = changed(new, tmp_path / f"sealed-{next(iter(wrong))}")
        for words in ((), ("--force",)):
            assert rebaseline(copied, "--with", sealed, "--why", "no reason", *words) == 2
            assert f"statistics.json is not what follows from {name}" in capsys.readouterr().err
        assert main(["bundle", "verify", str(sealed)]) == 1
    assert log(copied) == []


def test_other_weights_under_the_same_digest_are_others(copied, tmp_path, capsys):
    new = tmp_path / "new"
    shutil.copytree(copied.bundle, new)
    (weights,) = read_manifest(new).weights.values()
    with (new / weights.torch).open("ab") as file:
        file.write(b" ")
    new = changed(new, tmp_path / "sealed")
    assert rebaseline(copied, "--with", new, "--why", "no reason") == 1
    assert "torch's weights are others" in capsys.readouterr().out
    assert log(copied) == []
