"""``tipchain case pack``: what is submitted is there, passes, and is the same in the archive; else nothing is packed."""

import hashlib
import json
import shutil
import zipfile

import numpy as np
import pytest

from tipchain.cli import main
from tipchain.modes import dump_name, log_name
from tipchain.numbers.dumps import save_record
from tipchain.report.model import RunReport, dump_report

CASE = """\
id: net
sides:
  torch: {model: "net.torch_side:build_model"}
  paddle: {model: "net.paddle_side:build_model"}
inputs: {image: {shape: [2, 3]}}
stages: [forward]
"""


@pytest.fixture
def project(tmp_path):
    """A forward-only case that has been aligned, and whose chain has been run."""
    (tmp_path / "test_tipc" / "configs").mkdir(parents=True)
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "torch_side.py").write_text("# the reference\n")
    (tmp_path / "net.yaml").write_text(CASE)
    out = tmp_path / "test_tipc" / "output" / "net" / "lite_train_lite_infer"
    for side in ("torch", "paddle"):
        meta = {"side": side, "stage": "forward", "versions": {side: "1"}, "device": "cpu", "commit": "abc"}
        save_record(out / "log_reprod" / dump_name("forward", side), {"logits": np.ones((2, 3))}, meta=meta)
    (out / "log_reprod" / log_name("forward")).write_text("[now] root INFO: diff check passed\n")
    (out / "alignment.log").write_text("# run\n")
    run = out / "runs" / "20260101-000000-00000"
    run.mkdir(parents=True)
    (run / "train.log").write_text("loss 1\n")
    (tmp_path / "params.txt").write_text("model_name:net\n")
    (run / "report.json").write_text(dump_report(RunReport(title="params.txt")))
    return tmp_path


def pack(project, *args):
    return main(["case", "pack", str(project / "net.yaml"), "--out", str(project / "net.zip"), *args])


def names(project):
    with zipfile.ZipFile(project / "net.zip") as file:
        assert file.testzip() is None
        return {name.removeprefix("net_lite_train_lite_infer/") for name in file.namelist()}


def test_dumps_logs_configuration_and_the_code_of_every_builder_are_packed(project, capsys):
    (project / "net" / "flips.py").write_text("# what the port draws\n")
    spec = '"net.torch_side:build_model", augmentation: "net.flips:build"'
    (project / "net.yaml").write_text(CASE.replace('"net.torch_side:build_model"', spec))
    assert pack(project) == 0
    assert names(project) == {
        "log_reprod/forward_torch.npy",
        "log_reprod/forward_torch.npy.json",
        "log_reprod/forward_paddle.npy",
        "log_reprod/forward_paddle.npy.json",
        "log_reprod/forward_diff.log",
        "logs/alignment.log",
        "logs/chain/train.log",
        "logs/chain/report.json",
        "configs/net.yaml",
        "configs/params.txt",
        "code/net/torch_side.py",
        "code/net/flips.py",
        "manifest.json",
    }
    with zipfile.ZipFile(project / "net.zip") as file:
        folder = "net_lite_train_lite_infer/"
        manifest = json.loads(file.read(f"{folder}manifest.json"))
        for name, digest in manifest["sha256"].items():
            assert hashlib.sha256(file.read(folder + name)).hexdigest() == digest
    assert manifest["stages"]["forward"] == "PASS"
    assert manifest["stages"]["train"] == "not applicable"
    assert manifest["dumps"]["forward_torch.npy"]["versions"] == {"torch": "1"}
    assert "not applicable  train" in capsys.readouterr().out


def test_the_guides_third_chapter_spells_the_files_otherwise(project):
    assert pack(project, "--spelling", "acceptance") == 0
    found = {name for name in names(project) if name.startswith("log_reprod/")}
    assert {"log_reprod/forward_pytorch.npy", "log_reprod/forward_diff_log.txt"} <= found
    assert not {"log_reprod/forward_torch.npy", "log_reprod/forward_diff.log"} & found


def refused(project, capsys, *words):
    assert pack(project) == 1
    said = capsys.readouterr().err
    assert all(word in said for word in words), said
    assert not (project / "net.zip").exists()


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("forward_paddle.npy", None, ["ERROR forward/dump", "forward_paddle.npy"]),
        ("forward_diff.log", None, ["missing", "forward_diff.log"]),
        (
            "forward_diff.log",
            "[now] root INFO: diff check failed\n",
            ["diff check failed", "not with 'diff check passed'"],
        ),
    ],
)
def test_a_file_that_is_missing_or_tells_of_a_failure_is_refused(project, capsys, file, text, words):
    path = next(project.rglob(file))
    path.unlink()
    if text:
        path.write_text(text)
    refused(project, capsys, *words)


def test_dumps_that_differ_are_refused_whatever_the_log_says(project, capsys):
    path = next(project.rglob("forward_paddle.npy"))
    meta = {"side": "paddle", "stage": "forward"}
    save_record(path, {"logits": np.full((2, 3), 1.5)}, meta=meta)
    refused(project, capsys, "FAIL forward/logits", "0.5")


def test_an_archive_that_was_there_survives_a_refusal(project, capsys):
    assert pack(project) == 0
    before = (project / "net.zip").read_bytes()
    next(project.rglob("forward_diff.log")).unlink()
    assert pack(project) == 1
    assert (project / "net.zip").read_bytes() == before


def test_dumps_of_a_case_that_has_changed_since_are_refused(project, capsys):
    for side in ("torch", "paddle"):
        meta = {"side": side, "stage": "forward", "inputs": {"fake": "of an earlier shape"}}
        save_record(next(project.rglob(dump_name("forward", side))), {"logits": np.ones((2, 3))}, meta=meta)
    refused(project, capsys, "forward: the dumps were made with other fake inputs than net.yaml has now")


def test_without_dumps_it_says_what_makes_them(project, capsys):
    shutil.rmtree(next(project.rglob("log_reprod")))
    assert pack(project) == 2
    assert "hint: run `tipchain align " in capsys.readouterr().err
