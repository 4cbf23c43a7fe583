"""From manifests to items: ids, calls, needs, what does not run and why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tipchain.core.json_text import as_json, parse_as
from tipchain.errors import ManifestError, Outcome
from tipchain.modes import Mode
from tipchain.nightly.executor import Work
from tipchain.nightly.expand import expand
from tipchain.nightly.items import Needs, NightPlan
from tipchain.nightly.manifest import Common, DataFolder, ManifestEntry, NightManifest

LITE, WHOLE = Mode.LITE_TRAIN_LITE_INFER, Mode.WHOLE_TRAIN_WHOLE_INFER
IMAGENET = DataFolder(name="imagenet", path=Path("/data/imagenet"), holds=("train/*/",))


class Project:
    """A project that is not on the disk."""

    def __init__(self, files=None, problems=None, lacking=""):
        self.by_place, self.problems, self.missing = files or {}, problems or {}, lacking
        self.asked = []

    def files(self, entry):
        return self.by_place[entry.place]

    def problem(self, entry, file, mode):
        self.asked.append((file, mode))
        return self.problems.get(file, "")

    def chain(self, entry, file, mode):
        return "train_infer_python"

    def lacking(self, data):
        return self.missing


def entry(kind, number=0, **more):
    given = {} if kind == "command" else {"files": (("*", 1),), "modes": (LITE,)}
    common = more.pop("common", Common())
    return ManifestEntry(kind=kind, place=f"{kind}.{number}", line=number + 1, common=common, **{**given, **more})


def manifest(*entries):
    return NightManifest(
        path=Path("suite.yaml"),
        name="suite",
        root=Path("/root"),
        sha256="s",
        data={"imagenet": IMAGENET},
        entries=entries,
    )


def ids(plan):
    return [item.id for item in plan.items]


def test_ids_are_readable_and_in_the_manifests_order():
    chain = entry("chain", modes=(LITE, WHOLE), common=Common(devices=("cpu", "gpu")))
    case = entry("align")
    command = entry("command", id="smoke", argv=("x",), common=Common(repeats=3))
    files = {"chain.0": ["configs/alexnet/train_infer_python.txt"], "align.0": ["configs/alexnet.yaml"]}
    plan = expand(manifest(chain, case, command), Project(files))
    assert ids(plan) == [
        "alexnet[lite_train_lite_infer;cpu]",
        "alexnet[lite_train_lite_infer;gpu]",
        "alexnet[whole_train_whole_infer;cpu]",
        "alexnet[whole_train_whole_infer;gpu]",
        "alexnet:align[lite_train_lite_infer;cpu]",
        "smoke[cpu]",
        "smoke[cpu]#2",
        "smoke[cpu]#3",
    ]
    assert [item.repeat for item in plan.items[-3:]] == [1, 2, 3]


def test_files_of_one_folder_are_told_apart_in_every_entry():
    files = {"chain.0": ["a/one.txt"], "chain.1": ["a/two.txt"], "chain.2": ["b/one.txt"]}
    plan = expand(manifest(*(entry("chain", number) for number in range(3))), Project(files))
    mode = "[lite_train_lite_infer;cpu]"
    assert ids(plan) == [f"a/one{mode}", f"a/two{mode}", f"b{mode}"]


def test_two_items_of_one_name_are_an_error_that_names_both():
    files = {"chain.0": ["x/alexnet/t.txt"], "chain.1": ["y/alexnet/t.txt"]}
    with pytest.raises(ManifestError) as caught:
        expand(manifest(entry("chain"), entry("chain", 1)), Project(files))
    said = str(caught.value)
    assert "two items are called alexnet[lite_train_lite_infer;cpu]" in said
    assert "chain.0 (line 1), x/alexnet/t.txt; chain.1 (line 2), y/alexnet/t.txt" in said


@pytest.mark.parametrize("kind", ["chain", "align"])
def test_items_prepare_first_where_the_manifest_says_so(kind):
    files = {f"{kind}.0": ["m.yaml"]}
    for prepare in (False, True):
        (item,) = expand(manifest(entry(kind, prepare=prepare)), Project(files)).items
        assert ("--prepare" in item.argv) is prepare


def test_calls():
    common = Common(devices=("cpu", "gpu"), gpus=2, cpus=3, memory_mb=9, resources={"a": 1.0})
    chain = entry("chain", suite="PaddleSeg", options=("--lenient",), data={LITE.value: "imagenet"}, common=common)
    case = entry("align", stages=("forward", "loss"))
    command = entry("command", id="c", argv=("x", "{mode}-{device}", "{report}"), modes=(LITE,), data={"*": "imagenet"})
    files = {"chain.0": ["m/t.txt"], "align.0": ["m.yaml"]}
    cpu, gpu, align, own = expand(manifest(chain, case, command), Project(files)).items
    run = ("{python}", "-m", "tipchain", "run", "m/t.txt", "lite_train_lite_infer", "--json", "{report}", "--html", "{folder}/report.html",
           "--out", "{folder}/work", "--suite", "PaddleSeg")  # fmt: skip
    data = ("--data-path", "/data/imagenet", "--lenient")
    assert cpu.argv == (*run, "--device", "cpu", *data)
    assert gpu.argv == (*run, "--require-gpu", "--device", "gpu", *data)
    assert align.argv == (
        "{python}", "-m", "tipchain", "align", "m.yaml", "--mode", "lite_train_lite_infer", "--json", "{report}", "--html", "{folder}/report.html",
        "--out", "{folder}/work", "--only", "forward,loss", "--device", "cpu",
    )  # fmt: skip
    assert (cpu.needs, gpu.needs) == (
        Needs(cpus=3, memory_mb=9, resources={"a": 1.0}),
        Needs(cpus=3, gpus=2, memory_mb=9, resources={"a": 1.0}),
    )
    assert own.argv == ("x", "lite_train_lite_infer-cpu", "{report}")
    assert own.env == {"TIPCHAIN_MODE": "lite_train_lite_infer", "TIPCHAIN_DATA": "/data/imagenet"}
    work = Work(item=cpu, attempt=1, folder=Path("/n/a"), root=Path("/root"))
    assert work.argv()[:4] == (sys.executable, "-m", "tipchain", "run")
    assert work.argv("/py")[0] == "/py"
    assert "/n/a/work" in work.argv()
    assert "/n/a/report.json" in work.argv()
    assert work.wants_report


def test_missing_data_are_a_skip_or_an_error():
    chain = entry("chain", modes=(LITE, WHOLE), data={WHOLE.value: "imagenet"})
    project = Project({"chain.0": ["a/t.txt"]}, lacking="/data/imagenet is not there (expected: train/)")
    reason = "data 'imagenet': /data/imagenet is not there (expected: train/)"
    for require, outcome in ((False, Outcome.SKIP), (True, Outcome.ERROR)):
        lite, whole = expand(manifest(chain), project, require_data=require).items
        assert (lite.settled, lite.reason) == (Outcome.PASS, "")
        assert (whole.settled, whole.reason) == (outcome, reason)


def test_a_files_own_problem_comes_first_and_stops_nobody_else():
    chain = entry("chain", data={LITE.value: "imagenet"})
    project = Project({"chain.0": ["a/t.txt", "b/t.txt"]}, {"a/t.txt": "a/t.txt:3: no colon"}, "gone")
    first, second = expand(manifest(chain), project).items
    assert (first.settled, first.reason) == (Outcome.ERROR, "a/t.txt:3: no colon")
    assert second.settled is Outcome.SKIP


def test_each_mode_is_looked_at_once_for_all_devices_and_repeats():
    project = Project({"chain.0": ["a/t.txt"]})
    expand(manifest(entry("chain", common=Common(devices=("cpu", "gpu"), repeats=5))), project)
    assert project.asked == [("a/t.txt", LITE)]


def test_a_plan_comes_back_from_json():
    files = {"chain.0": ["a/t.txt"]}
    chain = entry("chain", common=Common(devices=("cpu", "gpu"), env={"A": "b"}, tags=("x",)))
    plan = expand(manifest(chain), Project(files, {"a/t.txt": "bad"}))
    assert parse_as(NightPlan, as_json(plan)) == plan
