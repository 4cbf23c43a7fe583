import re

import pytest
from chain_samples import ROOT

from tipchain.core.quantities import duration, parse_mebibytes, parse_seconds
from tipchain.errors import InputError
from tipchain.nightly.expand import expand
from tipchain.nightly.manifest import load_manifest

WHOLE = """\
name: suite
defaults: {timeout: 30m, memory: 1GiB, tags: [all], env: {A: 1, B: x}, resources: {fast: 1, big: 2}}
data:
  imagenet: {path: /data/imagenet, holds: [train/*/, val/*/]}
  own: {path: mine}
chains:
  - params: ["configs/*.txt", other.txt]
    exclude: ["*/broken.txt"]
    modes: [lite_train_lite_infer, whole_infer]
    devices: [cpu, gpu]
    repeats: 2
    tags: [lite]
    timeout: 90s
    data: {whole_infer: imagenet}
    suite: PaddleClas
    options: ["--lenient"]
    cpus: 2
    gpus: 4
    memory: 4GiB
    resources: {big: 0.5}
    prepare: true
    env: {B: true}
cases:
  - case: "configs/*.yaml"
    modes: [lite_train_lite_infer]
    stages: [forward, loss]
commands:
  - id: smoke
    argv: [python, smoke.py]
    data: own
"""


def write(folder, text):
    (folder / "test_tipc").mkdir(exist_ok=True)
    path = folder / "suite.yaml"
    path.write_text(text)
    return path


def test_everything_is_read(tmp_path):
    manifest = load_manifest(write(tmp_path, WHOLE))
    assert (manifest.name, manifest.root) == ("suite", tmp_path)
    chain, case, command = manifest.entries
    assert chain.files == (("configs/*.txt", 7), ("other.txt", 7))
    assert (chain.common.timeout_s, chain.common.memory_mb, chain.common.cpus, chain.common.gpus) == (90.0, 4096, 2, 4)
    assert chain.common.env == {"A": "1", "B": "true"}
    assert chain.prepare
    assert chain.common.resources == {"big": 0.5, "fast": 1.0}
    assert chain.common.tags == ("lite",)
    assert [mode.value for mode in chain.modes] == ["lite_train_lite_infer", "whole_infer"]
    assert (chain.suite, chain.options, chain.data) == ("PaddleClas", ("--lenient",), {"whole_infer": "imagenet"})
    assert (case.stages, case.common.timeout_s, case.common.tags) == (("forward", "loss"), 1800.0, ("all",))
    assert (command.id, command.argv, command.modes) == ("smoke", ("python", "smoke.py"), ())
    assert manifest.data["own"].path == tmp_path / "mine"
    assert [one.holds for one in manifest.data.values()] == [("train/*/", "val/*/"), ("*",)]


def test_the_manifest_of_the_documents_is_one(tmp_path):
    text = (ROOT / "docs/how-to/nightly.md").read_text()
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(load_manifest(write(tmp_path, block)).entries) == 3


def test_nothing_is_wrong_with_the_projects_own_manifest():
    manifest = load_manifest(ROOT / "test_tipc/nightly_all.yaml")
    plan = expand(manifest)
    assert {item.subject for item in plan.items} == {"alexnet", "mobilenet_v3", "mvf"}
    assert not [item.reason for item in plan.items if item.reason]


def test_names_have_defaults(tmp_path):
    manifest = load_manifest(write(tmp_path, "commands: [{id: a, argv: [x]}]"))
    assert manifest.name == "suite"
    common = manifest.entries[0].common
    assert (common.timeout_s, common.cpus, common.memory_mb, common.repeats) == (7200.0, 1, 0, 1)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("chains: []", None, "names nothing to run"),
        ("commands:\n  - {id: a, argv: [x], timout: 3s}", 2, "did you mean 'timeout'"),
        ("commands:\n  - id: a\n    argv: x y", 3, "no shell reads it"),
        ("commands:\n  - {id: a, argv: [x]}\ndefaults: {timeout: soon}", 3, "90s, 30m or 2h"),
        ("commands:\n  - {id: a, argv: [x]}\ndefaults: {memory: 4}", 3, "512MiB or 4GiB"),
        ("commands:\n  - {id: a, argv: [x]}\ndefaults: {resources: {GPU: 1}}", 3, "have keys of their own"),
        ("commands:\n  - {id: a, argv: [x], prepare: true}", 2, "prepare"),
        ("commands:\n  - {id: a, argv: [x]}\ndefaults: {repeats: 0}", 3, "is too small"),
        ("commands:\n  - {id: a, argv: [x]}\ndefaults: {devices: [cqu]}", 3, "did you mean 'cpu'"),
        ("commands:\n  - {id: a, argv: [x]}\ndefaults: {env: {a-b: 1}}", 3, "not a variable's name"),
        ("chains:\n  - params: a.txt", 2, "is missing"),
        ("chains:\n  - {params: a, modes: [whole_infer], data: x}", 2, "is not known"),
        ("data: {x: {path: y, holds: ../z}}\ncommands: [{id: a, argv: [x]}]", 1, "leads out of the folder"),
        ("name: a/b\ncommands: [{id: a, argv: [x]}]", 1, "is not a word"),
        ("root: nowhere\ncommands: [{id: a, argv: [x]}]", 1, "no such folder"),
        ("a: [", None, "is not YAML"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, text, line, said):
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_manifest(path)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line}: " if line else f"{path}:")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1.5h", 5400), ("1d", 86400), (12, 12), ("2h 07m", 7620), ("1d 2h 3m 4s", 93784)],
)
def test_times(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "h", "-3s", "3 weeks", "0s", 0, True, "1e3s", "inf", "30m 2h", "1.5h 30m", "2h30", "400d", 1e9, "0h 0m"],
)
def test_what_is_no_time(text):
    with pytest.raises(ValueError, match="90s"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("text", "mebibytes"), [("4GiB", 4096), ("512MiB", 512), ("1.5 GiB", 1536), ("1MB", 1), ("2GB", 1908)]
)
def test_sizes(text, mebibytes):
    assert parse_mebibytes(text) == mebibytes


@pytest.mark.parametrize("text", ["4", 4, "4G", "-1GiB", "0MiB"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="4GiB"):
        parse_mebibytes(text)


def test_durations_for_people():
    told = {-1: "0.0s", 0.04: "0.0s", 59.9: "59.9s", 59.96: "1m 00s", 185: "3m 05s", 7620: "2h 07m"}
    assert {seconds: duration(seconds) for seconds in told} == told
