"""``align --reference``: torch is not imported, the verdicts are the usual ones, what does not fit is refused."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from bundle_samples import STAGES

from tipchain.cli import main

LIVE = ("preflight/construction", "forward/layers", "loss/function", "backward/gradients", "backward/updates")


def verdicts(path: Path) -> list[dict]:
    return [one for one in json.loads(path.read_text())["verdicts"] if one["subject"] not in LIVE]


def test_verdicts_without_torch_are_those_with_it(copied, without_torch):
    project = copied.project
    found = project.run([sys.executable, "-c", "import torch"], env=without_torch)
    assert "torch is not to be imported here" in found.stderr, "the environment must be without torch"
    done = project.align("--reference", "bundle", "--json", "a.json", env=without_torch)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (project.root / "tipchain-output" / "data" / "weights").exists(), "the bundle's weights were used"
    done = project.align("--only", STAGES, "--json", "b.json", out="usual")
    assert done.returncode == 0, done.stdout + done.stderr
    assert verdicts(project.root / "a.json") == verdicts(project.root / "b.json")
    notes = json.loads((project.root / "a.json").read_text())["notes"]
    assert any(note.startswith("reference: bundle bundle, torch ") for note in notes)
    assert any(note.startswith("not checked, for the bundle has no such stage: data, metric") for note in notes)
    assert "# reference: bundle bundle, torch " in (project.root / "out" / "alignment.log").read_text()


def test_a_wrong_port_fails_and_where_is_not_looked_for(copied, without_torch):
    project = copied.project
    project.edit("tiny_paddle.py", "nn.BatchNorm2D(8)", "nn.BatchNorm2D(8, epsilon=1e-2)")
    wanted = ("--reference", "bundle", "--only", "forward", "--json", "report.json")
    done = project.align(*wanted, env=without_torch, locate=True)
    assert done.returncode == 1
    assert "FAIL" in done.stdout
    told = json.loads((project.root / "report.json").read_text())["undiagnosed"]
    assert told.startswith("not looked for: it takes the live torch model")


REFUSED = {
    "a changed file": (
        lambda root: (root / "bundle/dumps/forward_torch.npy").write_bytes(b"other"),
        ("is damaged", "changed: dumps/forward_torch.npy: found sha256", "expected"),
    ),
    "a missing file": (
        lambda root: (root / "bundle/weights/case.pdparams").unlink(),
        ("missing: weights/case.pdparams",),
    ),
    "a file of nobody's": (
        lambda root: (root / "bundle/dumps/data_torch.npy").write_bytes(b""),
        ("not of the bundle: dumps/data_torch.npy",),
    ),
    "a link out of it": (
        lambda root: relink(root / "bundle/dumps/loss_torch.npy", root / "elsewhere.npy"),
        ("missing: dumps/loss_torch.npy",),
    ),
    "another case file": (
        lambda root: append(root / "case.yaml", "# a remark\n"),
        ("was made from another version of the case", "case.yaml", "found: sha256", "expected:"),
    ),
    "another torch side": (
        lambda root: append(root / "tiny_torch.py", "# a remark\n"),
        ("was made from another version of the torch side", "tiny_torch.py: ", "rebaseline"),
    ),
    "a newer format": (
        lambda root: set_manifest(root, format=99, tipchain="9.9"),
        ("has another format", "found: 99, of tipchain 9.9", "expected: 1"),
    ),
    "a changed manifest": (lambda root: set_manifest(root, threads=77), ("was changed", "content")),
    "a path out of it": (
        lambda root: set_manifest(root, inputs={"": "../inputs.npy"}),
        ("is damaged", "'../inputs.npy' is no path in the bundle"),
    ),
    "no manifest": (lambda root: (root / "bundle/manifest.json").unlink(), ("is no bundle", "no manifest.json")),
    "the output folder of a recording": (
        lambda root: (root / "bundle").rename(root / "b") and (root / "bundle/log_reprod").mkdir(parents=True),
        ("is no bundle", "its dumps are in ", "/bundle/log_reprod"),
    ),
    "half a manifest": (
        lambda root: (root / "bundle/manifest.json").write_text('{"kind"'),
        ("manifest.json: cannot be read",),
    ),
    "no bundle": (
        lambda root: shutil.rmtree(root / "bundle"),
        ("no such file or folder: ", "expected: a bundle, or dumps"),
    ),
}


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def relink(path: Path, target: Path) -> None:
    path.rename(target)
    path.symlink_to(target)


def set_manifest(root: Path, **values: object) -> None:
    path = root / "bundle" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def align(project, capsys, *args: str) -> tuple[int, str]:
    """Run ``tipchain align`` in this process, which only refuses: no framework is loaded."""
    out = str(project.root / "out")
    code = main(["align", str(project.case), "--reference", str(project.root / "bundle"), "--out", out, *args])
    return code, capsys.readouterr().err


@pytest.mark.parametrize("what", REFUSED)
def test_a_bundle_that_does_not_fit_is_refused(copied, capsys, what):
    change, words = REFUSED[what]
    change(copied.project.root)
    code, said = align(copied.project, capsys)
    assert code == 2
    assert said.startswith("error: ")
    assert said.count("error: ") == 1
    for word in words:
        assert word in said
    assert not (copied.project.root / "out").exists(), "nothing was begun"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--only", "forward,data"), ("lacks a stage", "found: forward, loss", "expected: data")),
        (("--mode", "whole_infer"), ("is of another mode", "lite_train_lite_infer", "whole_infer")),
        (("--seed", "3"), ("is of another seed", "found: --seed 0", "expected: --seed 3")),
        (("--record", "paddle"), ("--reference and --record exclude each other",)),
    ],
)
def test_a_request_that_it_cannot_serve_is_refused(made, capsys, args, words):
    code, said = align(made.project, capsys, *args)
    assert code == 2
    for word in words:
        assert word in said
