"""Manifests that somebody wrote by hand and sealed: refused in a message, whatever stands in them."""

from __future__ import annotations

import hashlib
import json

import pytest

from tipchain.bundle.manifest import KIND, MANIFEST, BundledWeights, BundleManifest, CaseIdentity, Move, read_manifest
from tipchain.bundle.manifest import write_manifest as write
from tipchain.cli import main
from tipchain.errors import BundleError

NESTED = json.loads("[" * 900 + "]" * 900)
STRANGE = (None, True, 10**30, float("nan"), "\ud800\x1b[2J\u202e", [], {}, [[1]], {"a": None}, NESTED)


@pytest.fixture
def bundle(tmp_path):
    """A bundle with nothing but a manifest."""
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


def changed(document, above=()):
    """Yield the document with one value after the other replaced by others."""
    parts = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for name, one in list(parts):
        for value in (*STRANGE, *changed(one)):
            copy = dict(document) if isinstance(document, dict) else list(document)
            copy[name] = value
            yield copy


def test_no_resealed_manifest_ends_in_a_traceback(bundle, capsys):
    whole = json.loads((bundle / MANIFEST).read_text())
    tried = refused = 0
    for document in changed(whole):
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


def test_wrong_types_are_told_by_their_names(bundle):
    document = json.loads((bundle / MANIFEST).read_text())
    assert document["kind"] == KIND
    seal(bundle, {**document, "threads": "many"})
    with pytest.raises(BundleError, match="threads is no int"):
        read_manifest(bundle)
    seal(bundle, {**document, "weights": {"case": {**document["weights"]["case"], "names": {"a": 1}}}})
    with pytest.raises(BundleError, match=r"weights\.case\.names\.a is no str"):
        read_manifest(bundle)


def test_what_a_move_says_rewrites_no_terminal(bundle, capsys):
    main(["bundle", "show", str(bundle)])
    out = capsys.readouterr().out
    assert "2026-01-02 by \\u202egnorw: a\\nmoved  by root\\x1b[2J\n" in out
