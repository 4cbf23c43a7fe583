"""From manifests to items: globs, ids, calls, needs, what does not run and why."""

import sys
from pathlib import Path

import pytest
from chain_samples import TEMPLATE, kind_sample

from tipchain.core.json_text import as_json, parse_as
from tipchain.errors import InputError, Outcome
from tipchain.nightly.executor import Work
from tipchain.nightly.expand import expand
from tipchain.nightly.items import Needs, NightPlan
from tipchain.nightly.manifest import load_manifest, missing_data

LITE = "lite_train_lite_infer"
PTQ = kind_sample("ptq_infer_python", "paddleseg")


def plan_of(folder, text, **options):
    (folder / "test_tipc").mkdir(exist_ok=True)
    path = folder / "suite.yaml"
    path.write_text(text)
    return expand(load_manifest(path), **options)


def params(folder, name, text=TEMPLATE):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_globs_name_each_file_once_without_what_is_excluded(tmp_path):
    for name in ("c/b/t.txt", "c/a/t.txt", "c/broken/t.txt"):
        params(tmp_path, name)
    plan = plan_of(tmp_path, "chains: [{params: ['c/*/t.txt', 'c/a/t.txt'], exclude: ['c/br*'], modes: [whole_infer]}]")
    assert [item.source for item in plan.items] == ["c/a/t.txt", "c/b/t.txt"]
    assert not any(item.reason for item in plan.items)


@pytest.mark.parametrize(
    ("glob", "said"),
    [
        ("d/*.txt", "names no file"),
        ("../*.txt", "leads out"),
        ("/etc/*.txt", "leads out"),
        ("**x/*.txt", "is no glob"),
        (".", "is no glob"),
    ],
)
def test_globs_that_name_nothing_here(tmp_path, glob, said):
    with pytest.raises(InputError, match=said) as caught:
        plan_of(tmp_path, f"chains:\n  - params: ['{glob}']\n    modes: [whole_infer]")
    assert caught.value.line == 2


@pytest.mark.parametrize("name", ["a\nb", "esc\x1b[31m", "bad\udcff", "turned\u202e"])
def test_a_file_that_no_item_can_be_called_after_is_named(tmp_path, name):
    params(tmp_path, "c/a/t.txt")
    params(tmp_path, f"c/{name}/t.txt")
    text = "chains: [{params: ['c/*/t.txt'], modes: [whole_infer]"
    with pytest.raises(InputError) as error:
        plan_of(tmp_path, text + "}]")
    said = str(error.value)
    assert "suite.yaml:1: names a file that no item can be called after" in said
    assert f"found: {f'c/{name}/t.txt'!a}" in said
    assert "`exclude`" in said
    plan = plan_of(tmp_path, text + ", exclude: ['c/[!a]*/*', 'c/a?*/*']}]")
    assert [item.source for item in plan.items] == ["c/a/t.txt"]


def test_ids_are_readable_and_in_the_manifests_order(tmp_path):
    params(tmp_path, "configs/alexnet/train_infer_python.txt")
    (tmp_path / "alexnet.yaml").touch()
    text = f"""\
chains: [{{params: 'configs/*/*.txt', modes: [{LITE}, whole_infer], devices: [cpu, gpu]}}]
cases: [{{case: alexnet.yaml, modes: [{LITE}]}}]
commands: [{{id: smoke, argv: [x], repeats: 3}}]
"""
    items = plan_of(tmp_path, text).items
    assert [item.id for item in items] == [
        "alexnet[lite_train_lite_infer;cpu]",
        "alexnet[lite_train_lite_infer;gpu]",
        "alexnet[whole_infer;cpu]",
        "alexnet[whole_infer;gpu]",
        "alexnet:align[lite_train_lite_infer;cpu]",
        "smoke[cpu]",
        "smoke[cpu]#2",
        "smoke[cpu]#3",
    ]
    assert [item.repeat for item in items[-3:]] == [1, 2, 3]


def test_files_of_one_folder_are_told_apart_in_every_entry(tmp_path):
    for name in ("a/one.txt", "a/two.txt", "b/one.txt"):
        params(tmp_path, name)
    entries = ", ".join(f"{{params: {name}, modes: [whole_infer]}}" for name in ("a/one.txt", "a/two.txt", "b/one.txt"))
    plan = plan_of(tmp_path, f"chains: [{entries}]")
    assert [item.id for item in plan.items] == [f"{name}[whole_infer;cpu]" for name in ("a/one", "a/two", "b")]


def test_two_items_of_one_name_are_an_error_that_names_both(tmp_path):
    params(tmp_path, "x/alexnet/t.txt")
    params(tmp_path, "y/alexnet/t.txt")
    text = "chains:\n- {params: x/*/t.txt, modes: [whole_infer]}\n- {params: y/*/t.txt, modes: [whole_infer]}\n"
    with pytest.raises(InputError) as caught:
        plan_of(tmp_path, text)
    said = str(caught.value)
    assert "suite.yaml:3: two items are called alexnet[whole_infer;cpu]" in said
    assert "chains.0 (line 2), x/alexnet/t.txt; chains.1 (line 3), y/alexnet/t.txt" in said


def test_calls(tmp_path):
    params(tmp_path, "m/t.txt")
    (tmp_path / "m.yaml").touch()
    text = f"""\
data: {{imagenet: {{path: /data/imagenet}}}}
chains:
- {{params: m/t.txt, modes: [{LITE}], suite: PaddleSeg, options: [--lenient], data: {{{LITE}: imagenet}}, devices: [cpu, gpu],
   gpus: 2, cpus: 3, memory: 9MiB, resources: {{a: 1}}, prepare: true}}
cases: [{{case: m.yaml, modes: [{LITE}], stages: [forward, loss]}}]
commands: [{{id: c, argv: [x, '{{mode}}-{{device}}', '{{report}}'], modes: [{LITE}], data: imagenet}}]
"""
    cpu, gpu, align, own = plan_of(tmp_path, text).items
    run = ("{python}", "-m", "tipchain", "run", "m/t.txt", "lite_train_lite_infer", "--json", "{report}", "--html", "{folder}/report.html",
           "--out", "{folder}/work", "--suite", "PaddleSeg")  # fmt: skip
    data = ("--prepare", "--data-path", "/data/imagenet", "--lenient")
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


def test_missing_data_are_a_skip_or_an_error_after_a_files_own_problem(tmp_path):
    params(tmp_path, "a/t.txt")
    params(tmp_path, "b/t.txt", "no colon")
    text = "data: {d: {path: gone}}\n"
    text += f"chains: [{{params: '*/t.txt', modes: [{LITE}, whole_infer], data: {{whole_infer: d}}}}]"
    for require, outcome in ((False, Outcome.SKIP), (True, Outcome.ERROR)):
        lite, whole, *wrong = plan_of(tmp_path, text, require_data=require).items
        assert (lite.settled, lite.reason) == (Outcome.PASS, "")
        assert (whole.settled, whole.reason) == (outcome, f"data 'd': {tmp_path}/gone is not there")
        assert [item.settled for item in wrong] == [Outcome.ERROR] * 2
        assert all(item.reason.startswith("b/t.txt:1: ") for item in wrong)


def test_a_plan_comes_back_from_json_with_the_kinds_of_its_chains(tmp_path):
    for name in "abc":
        params(tmp_path, f"test_tipc/configs/{name}_ptq_infer_python.txt", PTQ)
    (tmp_path / "test_tipc/prepare.sh").touch()
    text = "chains: [{params: 'test_tipc/configs/*ptq*.txt', suite: paddleseg, modes: [whole_infer], tags: [x], env: {A: b}}]"
    plan = plan_of(tmp_path, text)
    assert {item.chain for item in plan.items} == {"ptq_infer_python"}
    assert not any(item.reason for item in plan.items)
    params(tmp_path, "test_tipc/configs/a_ptq_infer_python.txt", PTQ.replace("--batch_num:1\n", ""))
    plan = plan_of(tmp_path, text)
    (wrong,) = [item for item in plan.items if item.settled is Outcome.ERROR]
    assert "batch_num" in wrong.reason
    assert parse_as(NightPlan, as_json(plan)) == plan


def test_options_and_suites_count_when_files_are_looked_at(tmp_path):
    params(tmp_path, "typo/t.txt", TEMPLATE.replace("trainer:norm_train", "trainer:nrom_train"))
    text = "chains: [{params: '*/t.txt', modes: [lite_train_lite_infer]%s}]"
    (item,) = plan_of(tmp_path, text % ", options: ['--lenient']").items
    assert item.reason == ""
    (item,) = plan_of(tmp_path, text % ", suite: PaddleClass").items
    assert "did you mean" in item.reason


def test_wrong_cases_are_errors_of_their_items(tmp_path):
    (tmp_path / "bad.yaml").write_text("id: x\n")
    side = "{model: 'a:b'}"
    (tmp_path / "good.yaml").write_text(
        f"id: good\nsides: {{torch: {side}, paddle: {side}}}\nstages: [forward]\n"
        "inputs: {x: {shape: [1, 2], dtype: float32}}\n"
    )
    plan = plan_of(tmp_path, "cases: [{case: ['bad.yaml', 'good.yaml'], modes: [whole_infer], stages: [forward]}]")
    bad, good = plan.items
    assert bad.settled is Outcome.ERROR
    assert "bad.yaml" in bad.reason
    assert good.reason == ""
    (item,) = plan_of(tmp_path, "cases: [{case: good.yaml, modes: [whole_infer], stages: [forward, lr]}]").items
    assert item.reason == "good.yaml: the case has no stage lr"


def make(folder, *names):
    for name in names:
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


@pytest.mark.parametrize(
    ("holds", "names", "lacking"),
    [
        (("train/*/", "val/*/"), ["train/a/", "val/a/"], ""),
        (("*_list.txt", "train"), ["val_list.txt", "train/"], ""),
        (("*_list.txt", "train"), ["train/"], "*_list.txt"),
        (("*",), [], "*"),
    ],
)
def test_what_a_folder_must_hold(tmp_path, holds, names, lacking):
    make(tmp_path, *names)
    assert missing_data(tmp_path, holds) == (f"{tmp_path}/{lacking} is not there" if lacking else "")
