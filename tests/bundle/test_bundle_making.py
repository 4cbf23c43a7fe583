"""``bundle make``, ``show`` and ``verify``, of manifests that somebody wrote by hand too."""

import hashlib
import json
from dataclasses import dataclass, field

import numpy as np
import pytest
from bundle_samples import STAGES, tipchain
from hostile.mutations import with_strange_values
from programs import full_disk

from tipchain.bundle import making
from tipchain.bundle.making import BundleFailedError, make_bundle
from tipchain.bundle.manifest import (
    MANIFEST,
    BundledWeights,
    BundleManifest,
    CaseIdentity,
    Move,
    damages,
    read_manifest,
)
from tipchain.bundle.manifest import write_manifest as write
from tipchain.cli import main
from tipchain.core.files import files_below
from tipchain.errors import Outcome, OutputError
from tipchain.modes import Mode, dump_name
from tipchain.numbers.dumps import load_record, save_record
from tipchain.numbers.verdicts import Verdict
from tipchain.parity.align import AlignRequest
from tipchain.parity.case import load_case
from tipchain.parity.stages.judging import Judged
from tipchain.parity.stages.tensors import save_tensors
from tipchain.parity.weights import Prepared


def test_it_is_portable_and_complete(made):
    manifest = read_manifest(made.bundle)
    assert manifest.stages == ("forward", "loss")
    assert damages(made.bundle, manifest) == []
    assert files_below(made.bundle) == sorted([*manifest.files, "manifest.json"])
    assert list(manifest.case.sources) == ["tiny_torch.py"], "the port's own files may change"
    for name in files_below(made.bundle):
        assert str(made.project.root).encode() not in (made.bundle / name).read_bytes(), name
    assert manifest.torch
    assert not [path for path in made.project.root.iterdir() if path.name.startswith(".bundle")]


@pytest.mark.nightly
def test_making_it_again_gives_the_same(copied):
    args = ("bundle", "make", copied.project.case, "--only", STAGES, "--out", "again")
    assert tipchain(copied.project, *args).returncode == 0
    old, new = (read_manifest(copied.project.root / name) for name in ("bundle", "again"))
    assert old.files == new.files
    assert old.content == new.content


def test_a_bundle_in_its_place_is_left_alone(copied):
    before = (copied.bundle / "manifest.json").read_bytes()
    done = tipchain(copied.project, "bundle", "make", copied.project.case, "--out", "bundle")
    assert done.returncode == 2
    assert "is there already" in done.stderr
    assert "rebaseline" in done.stderr
    assert (copied.bundle / "manifest.json").read_bytes() == before


@dataclass
class Recorder:
    """Stands for the processes that record: it leaves a dump of the forward stage, or says why it has none."""

    failure: str = ""
    details: dict = field(default_factory=dict)

    def align(self, request) -> list[Judged]:
        request.folder.mkdir()
        reason = self.failure
        outcome = Outcome.ERROR if reason else Outcome.SKIP
        if not reason:
            meta = {
                "side": "torch",
                "stage": "forward",
                "case": "/somewhere",
                "details": self.details,
                "created": "now",
            }
            path = request.folder / dump_name("forward", "torch")
            save_record(path, {"logits": np.ones(3)}, meta=meta)
            save_tensors(path.with_suffix(".safetensors"), {})
        verdict = Verdict(outcome=outcome, subject="forward/torch", reason=reason or "torch alone")
        return [Judged(stage="forward", verdicts=(verdict,))]


def make(made, tmp_path, monkeypatch, recorder: Recorder):
    case = load_case(made.project.case)
    monkeypatch.setattr(making, "align", recorder.align)
    monkeypatch.setattr(making, "prepare", lambda *_: Prepared(train_data=tmp_path, eval_data=tmp_path, digests={}))
    mode, folder = Mode.LITE_TRAIN_LITE_INFER, tmp_path / "new"
    return make_bundle(AlignRequest(case=case, mode=mode, stages=("forward",), folder=folder))


def test_a_stage_that_cannot_be_recorded_leaves_nothing(made, tmp_path, monkeypatch):
    with pytest.raises(BundleFailedError, match="nothing is left of it\n  forward: no luck today"):
        make(made, tmp_path, monkeypatch, Recorder(failure="no luck today"))
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_leaves_nothing(made, tmp_path, monkeypatch):
    monkeypatch.setattr(making, "write_manifest", full_disk)
    with pytest.raises(OutputError, match=r"the bundle cannot be written: .*No space left"):
        make(made, tmp_path, monkeypatch, Recorder())
    assert list(tmp_path.iterdir()) == []


def test_facts_of_one_machine_stay_there(made, tmp_path, monkeypatch):
    make(made, tmp_path, monkeypatch, Recorder())
    meta = load_record(tmp_path / "new" / "dumps" / "forward_torch.npy").meta
    assert meta["case"] == "case.yaml"
    assert "created" not in meta


def test_absolute_file_names_are_refused(made, tmp_path, monkeypatch):
    with pytest.raises(BundleFailedError, match="forward: names an absolute path"):
        make(made, tmp_path, monkeypatch, Recorder(details={"files": [str(made.project.case)]}))
    assert list(tmp_path.iterdir()) == []


def test_show_checks_every_file(copied, capsys):
    assert main(["bundle", "show", str(copied.bundle)]) == 0
    assert "forward, loss\n" in capsys.readouterr().out
    (copied.bundle / "inputs" / "case.npy").write_bytes(b"")
    assert main(["bundle", "show", str(copied.bundle)]) == 1
    assert "changed: inputs/case.npy" in capsys.readouterr().err
    assert main(["bundle", "show", str(copied.bundle.parent)]) == 2
    assert main(["bundle"]) == 2


@pytest.fixture
def bundle(tmp_path):
    weights = BundledWeights(file="weights/a", digest="0", names={"a": "b"})
    write(
        tmp_path,
        BundleManifest(
            tipchain="1",
            case=CaseIdentity(id="c", file="c.yaml", sha256="0", sources={"net.py": "0"}),
            mode="whole_infer",
            stages=("forward",),
            reseed=0,
            seed=1,
            device="cpu",
            threads=1,
            versions={"torch": "2"},
            inputs={"case": "inputs/case.npy"},
            weights={"case": weights},
            files={"case.yaml": "0"},
            created="2026-01-01",
            commit="abc",
            moves=(Move(when="2026-01-02", who="\u202egnorw", why="a\nmoved  by root\x1b[2J", before="0"),),
        ),
    )
    return tmp_path


def seal(folder, document):
    """Write a manifest with the hash of its content, as somebody who forges one would."""
    facts = {
        name: one
        for name, one in document.items()
        if name not in ("kind", "format", "content", "created", "commit", "moves")
    }
    content = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    (folder / MANIFEST).write_text(json.dumps({**document, "content": content}))


def test_no_resealed_manifest_ends_in_a_traceback(bundle, capsys):
    whole = json.loads((bundle / MANIFEST).read_text())
    tried = refused = 0
    for document in with_strange_values(whole):
        seal(bundle, document)
        assert main(["bundle", "show", str(bundle)]) in (0, 1, 2), document
        told = capsys.readouterr()
        assert "Traceback" not in told.err, document
        assert not {"\x1b", "\u202e"} & set(told.out + told.err), document
        tried += 1
        refused += "error: " in told.err
    assert refused > tried / 2 > 100


@pytest.mark.parametrize("text", ["", "null", "[" * 100_000, '{"a":' * 100_000, "{", "\x00", "9" * 5000])
def test_what_is_no_manifest_is_refused(bundle, capsys, text):
    (bundle / MANIFEST).write_text(text)
    assert main(["bundle", "show", str(bundle)]) == 2
    assert "Traceback" not in capsys.readouterr().err
