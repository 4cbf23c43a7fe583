"""Items know the kind of their chain."""

from __future__ import annotations

import pytest

from tipchain.core.json_text import as_json, parse_as
from tipchain.errors import Outcome
from tipchain.nightly.expand import DiskProject, expand
from tipchain.nightly.items import NightPlan
from tipchain.nightly.manifest import load_manifest

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
    assert parse_as(NightPlan, as_json(plan)) == plan
    broken = checkout / "test_tipc/configs/a_ptq_infer_python.txt"
    broken.write_text(PTQ.replace("--batch_num:1\n", ""))
    plan = expand(loaded, DiskProject(loaded))
    told = [one.reason for one in plan.items if one.settled is Outcome.ERROR]
    assert len(told) == 1
    assert "batch_num" in told[0]
