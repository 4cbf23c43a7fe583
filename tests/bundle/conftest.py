"""A bundle of the tiny case, made once, for all files of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from bundle_samples import STAGES, Made, tipchain
from tiny_project import make_tiny_project


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Made:
    """The tiny case with a bundle of some stages, float64 included; the prepared weights are put away."""
    pytest.importorskip("torch")
    pytest.importorskip("paddle")
    project = make_tiny_project(tmp_path_factory.mktemp("bundled"))
    done = tipchain(project, "bundle", "make", project.case, "--out", "bundle", "--stages", STAGES)
    assert done.returncode == 0, done.stderr
    weights = project.root / "test_tipc" / "data" / "weights"
    weights.rename(weights.with_name("weights.prepared"))
    return Made(project=project, output=done.stdout)


@pytest.fixture
def copied(made, tmp_path) -> Made:
    """A copy of the project for one test."""
    return made.copy(tmp_path / "project")


@pytest.fixture(scope="session")
def without_torch(tmp_path_factory) -> dict[str, str]:
    """An environment in which importing torch raises, in every process."""
    folder = tmp_path_factory.mktemp("no_torch")
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text('raise ImportError("torch is not to be imported here")\n')
    repository = Path(__file__).resolve().parents[2]
    return {"PYTHONPATH": f"{folder}:{repository}"}
