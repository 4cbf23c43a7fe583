"""The tiny case with both of its sides in this process, prepared once for all files of this folder."""

import sys

import pytest
from in_process import BothSides, open_both_sides
from tiny_project import make_tiny_project

LOSSES = """
loss:
  variants:
    smoothed: {label_smoothing: 0.1}
    weighted: {weight: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}
    ignoring: {ignore_index: 255}
    soft: {soft_label: true}
"""


@pytest.fixture(scope="session")
def both_sides(tmp_path_factory) -> BothSides:
    """The tiny case, its losses the ones that need no code, with variants."""
    pytest.importorskip("torch")
    pytest.importorskip("paddle")
    project = make_tiny_project(tmp_path_factory.mktemp("both_sides"))
    for side in ("torch", "paddle"):
        project.edit("case.yaml", f"tiny_{side}:build_loss", f"tipchain.pairs.{side}_losses:build_loss")
    project.case.write_text(project.case.read_text() + LOSSES)
    return open_both_sides(project, ("forward", "data", "metric", "loss"))


@pytest.fixture(scope="module")
def sides(request, both_sides):
    """Both sides, and what torch recorded of the stage that the test module names."""
    return both_sides, both_sides.record(request.module.STAGE, "torch")


@pytest.fixture
def port(both_sides):
    """The port's module, whose functions a test may replace."""
    both_sides.paddle.builder("dataset")
    return sys.modules["tiny_paddle"]


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """A case of the builders that tipchain brings along."""
    from updates_bench import pairs_case

    return pairs_case(tmp_path_factory.mktemp("pairs"))
