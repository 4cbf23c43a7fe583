"""A bundle of the tiny case, made once, for all files of this folder."""

import os
from pathlib import Path

import pytest
from bundle_samples import STAGES, Made, tipchain
from filelock import FileLock
from tiny_project import TinyProject, make_tiny_project


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Made:
    """The tiny case with a bundle of some stages, float64 included; the prepared weights are put away.

    Processes that share the tests share it, too.
    """
    pytest.importorskip("torch")
    pytest.importorskip("paddle")
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "bundled"
    with FileLock(root.with_suffix(".lock")):
        output = root / "output.txt"
        if not output.exists():
            project = make_tiny_project(root)
            done = tipchain(project, "bundle", "make", project.case, "--out", "bundle", "--only", STAGES)
            assert done.returncode == 0, done.stderr
            weights = root / "tipchain-output" / "data" / "weights"
            weights.rename(weights.with_name("weights.prepared"))
            output.write_text(done.stdout)
    return Made(project=TinyProject(root), output=output.read_text())


@pytest.fixture
def copied(made, tmp_path) -> Made:
    return made.copy(tmp_path / "project")


@pytest.fixture(scope="session")
def without_torch(tmp_path_factory) -> dict[str, str]:
    """An environment in which importing torch raises, in every process."""
    folder = tmp_path_factory.mktemp("no_torch")
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text('raise ImportError("torch is not to be imported here")\n')
    repository = Path(__file__).resolve().parents[2]
    return {"PYTHONPATH": f"{folder}:{repository}"}
