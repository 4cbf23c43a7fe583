"""A faithful port passes whatever the seed: all stages of every shipped case, over ten seeds at night."""

import json
import shutil

import pytest
import yaml
from chain_samples import ROOT
from tiny_project import TinyProject, make_tiny_project

from tipchain.parity.case import load_case
from tipchain.prepare.data import prepare_data

pytestmark = pytest.mark.frameworks
CASES = sorted((ROOT / "configs").glob("*.yaml"))
SEEDS = range(10)


def alarms(project: TinyProject, seed: int) -> dict[str, str]:
    """Align a case with other seeds and return what did not pass, by subject."""
    report = project.root / "report.json"
    report.unlink(missing_ok=True)
    done = project.align("--seed", seed, "--json", report, out=f"out_{seed}", timeout=3000)
    assert report.is_file(), done.stdout + done.stderr
    verdicts = json.loads(report.read_text())["verdicts"]
    judged = {verdict["subject"].partition("/")[0] for verdict in verdicts}
    assert judged - {"preflight"} == set(load_case(project.case).stages), (
        "a stage that was left out would raise no alarm"
    )
    return {one["subject"]: one["reason"] for one in verdicts if one["outcome"] in ("FAIL", "ERROR")}


@pytest.mark.parametrize(
    "stages", ["[forward, loss, backward]", pytest.param("", marks=pytest.mark.nightly)], ids=["some", "all"]
)
def test_the_tiny_case_passes_with_another_seed(tmp_path, stages):
    project = make_tiny_project(tmp_path)
    project.edit("case.yaml", "learning_rate: 1.0e-4}", "learning_rate: 1.0e-4, mode: train}")
    if stages:
        listed = next(line for line in project.case.read_text().splitlines() if line.startswith("stages:"))
        project.edit("case.yaml", listed, f"stages: {stages}")
    assert alarms(project, 1) == {}


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """A project of its own, so that the weights of all seeds do not pile up in the repository."""
    root = tmp_path_factory.mktemp("shipped")
    (root / "pyproject.toml").touch()
    (root / "alignment").symlink_to(ROOT / "alignment")
    return root


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_shipped_case_passes_with_every_seed(shipped, path, seed):
    shutil.copy(path, shipped / "case.yaml")
    data_set = yaml.safe_load(path.read_text()).get("data", {}).get("set", "digits")
    prepare_data(shipped, "lite", data_set)
    project = TinyProject(shipped)
    try:
        assert alarms(project, seed) == {}
    finally:
        shutil.rmtree(shipped / f"out_{seed}", ignore_errors=True)
        shutil.rmtree(shipped / "test_tipc" / "data" / "weights", ignore_errors=True)
