"""Chains by kind, in nights and on their page."""

from __future__ import annotations

import pytest
from night_samples import NightSample, item

from tipchain.nightly.dashboard import render
from tipchain.nightly.expand import expand
from tipchain.nightly.kinds_table import kind_rows
from tipchain.nightly.manifest import load_manifest
from tipchain.nightly.nights import item_json, parse_item
from tipchain.nightly.project import DiskProject
from tipchain.nightly.results import find_nights
from tipchain.nightly.timeline import read_timelines
from tipchain.outcome import Outcome

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
    manifest.write_text(
        "chains: [{params: ['test_tipc/configs/*ptq*.txt'], suite: paddleseg, modes: [whole_infer]}]"
    )
    loaded = load_manifest(manifest)
    plan = expand(loaded, DiskProject(loaded))
    assert {one.chain for one in plan.items} == {"ptq_infer_python"}
    assert not any(one.reason for one in plan.items)
    (first, *_) = plan.items
    assert parse_item(item_json(first)) == first
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
    assert "1: adb is not &lt;here&gt;" in page


def test_nights_without_kinds_have_no_such_part(tmp_path):
    one = item("alexnet")
    night = NightSample(tmp_path / "nights", 0, [one])
    night.end(one)
    night.finish()
    assert "Kinds of chains" not in render([line_of(tmp_path / "nights")])
