"""What is said of mistakes in the parts of a case beside its model: the stage that fails, and no other is blamed."""

import json
import shutil
import sys

import both_frameworks  # noqa: F401
import pytest
from tiny_project import TinyProject

from tipchain.explain.causes.data import check_data
from tipchain.frameworks.live_models import PaddleSide, Sides, TorchSide
from tipchain.live.sources import feed_case
from tipchain.modes import STAGES
from zoo.case_faults import CASE_FAULTS, PICTURES, make_pictures_project

pytestmark = pytest.mark.frameworks
SIDES = {"edits": PICTURES / "pictures_paddle.py", "case": PICTURES / "pictures.yaml"}


def test_the_list_is_what_it_is_said_to_be():
    assert len({fault.id for fault in CASE_FAULTS}) == len(CASE_FAULTS) >= 50
    assert {fault.stage for fault in CASE_FAULTS} == {*STAGES} - {"inference"}
    for fault in CASE_FAULTS:
        for kind, file in SIDES.items():
            assert all(file.read_text().count(old) == 1 for old, _ in getattr(fault, kind)), fault.id


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return make_pictures_project(tmp_path_factory.mktemp("pictures"))


def test_a_cases_data_set_may_be_a_list(tmp_path, monkeypatch):
    for name in ("pictures_torch", "pictures_paddle"):  # of another project
        monkeypatch.delitem(sys.modules, name, raising=False)
    port = make_pictures_project(tmp_path)
    for file in ("pictures_torch.py", "pictures_paddle.py"):
        port.edit(file, "    return Folder(split)\n", "    return list(Folder(split))\n")
    port.edit("pictures_paddle.py", "(pixels - MEAN) / STD", "(pixels * 255 - MEAN) / STD / 255")
    data = feed_case(port.case, "lite_train_lite_infer", only=("data",))["data"]["data"]
    (found,) = check_data(Sides(TorchSide(), PaddleSide()), data).diagnoses
    assert (
        "the port's `return np.ascontiguousarray((pixels * 255 - MEAN) / STD / 255)` (pictures_paddle.py:"
        in found.message
    )
    assert " of pixels [" in found.message
    assert "(pictures_torch.py:" in found.message


@pytest.mark.nightly
def test_the_port_without_a_mistake_passes(project):
    done = project.align(timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("fault", CASE_FAULTS, ids=lambda one: one.id)
def test_a_mistake_fails_the_stage_that_it_belongs_to(project, tmp_path, fault):
    root = tmp_path / "project"
    shutil.copytree(project.root, root, ignore=shutil.ignore_patterns("out", "__pycache__"))
    port = TinyProject(root)
    for old, new in fault.edits:
        port.edit("pictures_paddle.py", old, new)
    for old, new in fault.case:
        port.edit("case.yaml", old, new)
    done = port.align(locate=True, every=False, timeout=600)
    assert done.returncode == 1, done.stdout + done.stderr
    (report,) = (root / "out" / "runs").rglob("alignment*.json")
    checks = json.loads(report.read_text())["verdicts"]
    failed = {one["subject"].partition("/")[0] for one in checks if one["outcome"] in ("FAIL", "ERROR")}
    assert fault.stage in failed
    assert failed <= {fault.stage, *fault.also}, failed
    said = " ".join(done.stdout.split())
    assert all(one in said for one in fault.words), said
