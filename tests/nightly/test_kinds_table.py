"""Chains by kind, in nights and on their page."""

from __future__ import annotations

import re

import pytest
from night_samples import NightSample, item

from tipchain.errors import Outcome
from tipchain.nightly.dashboard import chain_name, kind_rows, render
from tipchain.nightly.expand import DiskProject, expand
from tipchain.nightly.manifest import load_manifest
from tipchain.nightly.nights import find_nights, parse_plan, plan_json
from tipchain.nightly.timeline import read_timelines

PTQ = """===========================ptq_params===========================
model_name:hrnet_KL
python:python3.7
##
--model_dir:models/hrnet
##
--config:configs/hrnet.yml
--batch_num:1
--batch_size:2
##
trainer:PTQ
PTQ:deploy/slim/quant/ptq.py
##
===========================infer_params===========================
inference:deploy/python/infer.py
--device:cpu|gpu
--batch_size:1
--config:quant_model/deploy.yaml
--image_path:demo.png
--benchmark:True
"""


def line_of(folder):
    (line,), _ = read_timelines(find_nights(folder), 30, folder / "page.html")
    return line


@pytest.fixture
def checkout(tmp_path):
    configs = tmp_path / "test_tipc/configs"
    configs.mkdir(parents=True)
    (tmp_path / "test_tipc/prepare.sh").write_text("")
    for name in ("a", "b", "c"):
        (configs / f"{name}_ptq_infer_python.txt").write_text(PTQ)
    return tmp_path


def test_an_item_knows_the_kind_of_its_chain(checkout):
    manifest = checkout / "suite.yaml"
    manifest.write_text("chains: [{params: ['test_tipc/configs/*ptq*.txt'], suite: paddleseg, modes: [whole_infer]}]")
    loaded = load_manifest(manifest)
    plan = expand(loaded, DiskProject(loaded))
    assert {one.chain for one in plan.items} == {"ptq_infer_python"}
    assert not any(one.reason for one in plan.items)
    assert parse_plan(plan_json(plan)) == plan
    broken = checkout / "test_tipc/configs/a_ptq_infer_python.txt"
    broken.write_text(PTQ.replace("--batch_num:1\n", ""))
    plan = expand(loaded, DiskProject(loaded))
    told = [one.reason for one in plan.items if one.settled is Outcome.ERROR]
    assert len(told) == 1
    assert "batch_num" in told[0]


def test_each_kinds_files_outcomes_and_reasons(checkout):
    ptq = [
        item(name, chain="ptq_infer_python", source=f"test_tipc/configs/{name}_ptq_infer_python.txt")
        for name in ("a", "b")
    ]
    again = item("a", mode="klquant_whole_infer", chain="ptq_infer_python", source=ptq[0].source)
    lite = item("phone", chain="lite", source="test_tipc/configs/phone_lite.txt")
    case = item("vgg", kind="align")
    night = NightSample(checkout / "nights", 0, [*ptq, again, lite, case], root=checkout)
    night.end(ptq[0])
    night.end(again, Outcome.FAIL, "the quantized model differs")
    night.end(ptq[1])
    night.end(lite, Outcome.SKIP, "adb is not <here>", log=None)
    night.end(case)
    night.finish()
    line = line_of(checkout / "nights")
    rows = {row.name: row for row in kind_rows(line)}
    assert list(rows) == ["ptq_infer_python", "lite"]
    assert (rows["ptq_infer_python"].there, rows["ptq_infer_python"].files) == (3, 2)
    assert rows["ptq_infer_python"].ended == {Outcome.FAIL: 1, Outcome.PASS: 1}
    assert rows["lite"].reasons == {"adb is not <here>": 1}
    page = render([line])
    assert "Kinds of chains of nights" in page
    assert "<li>1 of lite: adb is not &lt;here&gt;</li>" in page
    assert "The night covers 3 of 3 parameter files in the checkout: 1 PASS, 1 FAIL, 1 SKIP." in page


def test_each_chain_has_its_outcome_in_each_kind(tmp_path):
    configs = "test_tipc/configs/hrnet"
    ptq = item("q", chain="ptq_infer_python", source=f"{configs}/train_ptq_infer_python.txt")
    again = item("q", mode="other", chain="ptq_infer_python", source=ptq.source)
    lite = item("phone", chain="lite", source=f"{configs}/hrnet_model_linux_lite.txt")
    other = item("b", chain="lite", source="test_tipc/configs/vgg16_lite_arm_cpu_cpp.txt")
    night = NightSample(tmp_path / "nights", 0, [ptq, again, lite, other])
    night.end(ptq)
    night.end(again, Outcome.FAIL, "it <differs>")
    night.end(lite, Outcome.SKIP, "no phone")
    night.finish()
    page = render([line_of(tmp_path / "nights")])
    table = page.partition('aria-label="chains and kinds of nights')[2].partition("</table>")[0]
    rows = [re.sub("<[^>]*>", " ", row).split() for row in table.split("<tr>")[1:]]
    assert rows == [["chain", "ptq", "infer", "python", "lite"], ["hrnet", "✗", "–"], ["vgg16", "!"]]
    target = re.search(r'href="#([^"]*)" title="FAIL q\[other;cpu\]: it &lt;differs&gt;"', table)[1]
    assert f'id="{target}"' in page


def test_one_kind_alone_has_no_such_table(tmp_path):
    one = item("q", chain="lite", source="test_tipc/configs/a/lite.txt")
    night = NightSample(tmp_path / "nights", 0, [one])
    night.end(one)
    night.finish()
    page = render([line_of(tmp_path / "nights")])
    assert "Kinds of chains of nights" in page
    assert "chains and kinds of" not in page


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("test_tipc/configs/fastscnn/train_infer_python.txt", "fastscnn"),
        ("test_tipc/configs/PPLCNet/PPLCNet_x1_0_train_ptq_infer_python.txt", "PPLCNet_x1_0"),
        (
            "test_tipc/configs/PPLCNet/PPLCNet_x1_0_linux_gpu_normal_normal_serving_python_linux_gpu_cpu.txt",
            "PPLCNet_x1_0",
        ),
        (
            "test_tipc/configs/pphumanseg_lite/pphumanseg_lite_model_linux_gpu_normal_normal_infer_cpp.txt",
            "pphumanseg_lite",
        ),
        ("test_tipc/configs/PPLCNet/PPLCNet_x1_0_lite_arm_cpu_cpp.txt", "PPLCNet_x1_0"),
        ("configs/own.txt", "own"),
    ],
)
def test_files_of_several_kinds_are_one_chains(source, name):
    assert chain_name(source) == name


def test_nights_without_kinds_have_no_such_part(tmp_path):
    one = item("alexnet")
    night = NightSample(tmp_path / "nights", 0, [one])
    night.end(one)
    night.finish()
    assert "Kinds of chains" not in render([line_of(tmp_path / "nights")])
