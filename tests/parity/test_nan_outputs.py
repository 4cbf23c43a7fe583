"""Models that put out NaN on both sides pass no stage that runs them."""

import pytest
from tiny_project import make_tiny_project

pytestmark = pytest.mark.frameworks


def test_nan_on_both_sides_passes_no_stage(tmp_path):
    project = make_tiny_project(tmp_path)
    for side in ("torch", "paddle"):
        head = "return self.head("
        project.edit(f"tiny_{side}.py", head, head.replace("self", "float('nan') * self"))
    stages = ("forward", "metric", "loss", "backward", "train")
    done = project.align("--only", ",".join(stages))
    assert done.returncode == 1, done.stderr
    for stage in stages:
        assert f"FAIL     {stage}/" in done.stdout
    assert "the torch model put out 200 NaN" in done.stdout
