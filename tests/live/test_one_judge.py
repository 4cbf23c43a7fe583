"""One judge for a case: the live models decide, recorded numbers show it, a user's tolerance accepts."""

from __future__ import annotations

import json
import sys

import both_frameworks  # noqa: F401
import pytest
from tiny_project import TinyProject, make_tiny_project

from tipchain.errors import ExitCode

pytestmark = pytest.mark.frameworks

TORCH_FORWARD = "self.head(self.dropout(torch.relu(self.square(hidden))))"
FORWARD = "self.head(self.dropout(nn.functional.relu(self.square(hidden))))"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    made = make_tiny_project(tmp_path_factory.mktemp("tiny"))
    text = made.case.read_text()
    stages = next(line for line in text.splitlines() if line.startswith("stages:"))
    made.case.write_text(text.replace(stages, "stages: [forward]"))
    return made


@pytest.fixture
def edit(project):
    before = {path: path.read_text() for path in (*project.root.glob("tiny_*.py"), project.case)}

    def change(torch=TORCH_FORWARD, paddle=FORWARD, case=""):
        for path, text in before.items():
            new = text.replace(TORCH_FORWARD, torch).replace(FORWARD, paddle)
            path.write_text(f"{new}\n{case}\n" if path == project.case else new)

    yield change
    for path, text in before.items():
        path.write_text(text)


def report_of(project: TinyProject) -> dict:
    runs = sorted((project.root / "out" / "runs").iterdir(), key=lambda one: one.stat().st_mtime)
    (report,) = (runs[-1] / "log_reprod").glob("alignment*.json")
    return json.loads(report.read_text())


def headline(done):
    return " ".join(done.stdout.split("\n\n")[0].split())


LITTLE = FORWARD.replace("hidden)", "hidden * 1.000001)")


def test_a_difference_within_the_default_tolerance_fails(project, edit):
    edit(paddle=LITTLE)
    done = project.align(locate=True, every=False)
    assert done.returncode == ExitCode.FAILED
    assert headline(done).startswith("NOT the same model: ")
    assert "diff check passed" in (project.latest() / "forward_diff.log").read_text(), "the log shows the tolerance"
    assert report_of(project)["diagnoses"][0]["place"]["file"] == "tiny_paddle.py"


TOLERANCE = 'tolerances: {forward: {logits: {threshold: 1.0e-5, reason: "measured"}}}'


def test_a_users_tolerance_accepts_its_own_stage_and_is_named(project, edit):
    edit(paddle=LITTLE, case=TOLERANCE)
    done = project.align("--junit", project.root / "junit.xml", locate=True, every=False)
    assert done.returncode == ExitCode.PASSED, done.stdout
    assert headline(done).startswith("accepted: ")
    assert "(your tolerance mean <= 1e-05 on logits: measured)" in headline(done)
    assert "no other inputs and no other mode were compared" in headline(done)
    assert "equals its reference" not in done.stdout
    accepted = [one["subject"] for one in report_of(project)["verdicts"] if one.get("accepted")]
    assert accepted == ["forward/layers"]
    assert "accepted: " in (project.root / "junit.xml").read_text()
    located = project.run([sys.executable, "-m", "tipchain", "locate", str(project.case)])
    assert located.returncode == ExitCode.FAILED
    assert "note: differences that the case accepts count here" in located.stdout


def test_a_check_of_the_live_models_can_be_known_to_deviate(project, edit):
    cut = FORWARD.replace("hidden)", "hidden.detach())")
    edit(paddle=cut, case=TOLERANCE)
    assert project.align(locate=True, every=False).returncode == ExitCode.FAILED, "logits say nothing of gradients"
    edit(paddle=cut, case='known_deviations: [{subject: backward/gradients, reason: "the trunk is frozen"}]')
    done = project.align(locate=True, every=False)
    assert done.returncode == ExitCode.PASSED, done.stdout
    assert "(known deviation of backward/gradients: the trunk is frozen)" in headline(done)
    edit(case='known_deviations: [{subject: backward/gradients, reason: "the trunk is frozen"}]')
    assert project.align(locate=True, every=False).returncode == ExitCode.FAILED, "it stopped deviating"


@pytest.mark.parametrize(
    ("forward", "outcome", "words"),
    [
        (FORWARD, ExitCode.PASSED, "the rest agrees"),
        (FORWARD.replace("self.dropout", ""), ExitCode.FAILED, "`dropout` is never called"),
        (FORWARD.replace("hidden)", "hidden.detach())"), ExitCode.FAILED, "detach"),
    ],
)
def test_an_accepted_setting_is_put_right_before_the_rest_is_judged(project, edit, forward, outcome, words):
    """A fault that its stage's numbers cannot show is not accepted with it."""
    edit(paddle=forward, case=TOLERANCE.replace("logits", "'*'").replace("1.0e-5", "1.0e-3"))
    port = project.root / "tiny_paddle.py"
    text = port.read_text()
    assert "nn.BatchNorm2D(8)" in text
    port.write_text(text.replace("nn.BatchNorm2D(8)", "nn.BatchNorm2D(8, epsilon=2e-5)"))
    done = project.align(locate=True, every=False)
    assert done.returncode == outcome, done.stdout
    assert words in done.stdout, done.stdout


def test_rounding_reaches_as_far_as_the_references_own_shows(project, edit):
    """A net of many layers, calibrated on few samples, makes its rounding as much larger as this sine does."""
    edit(f"torch.sin(4e3 * {TORCH_FORWARD})", f"paddle.sin(4e3 * {FORWARD})")
    done = project.align(every=False)
    assert done.returncode == ExitCode.PASSED, done.stdout
    (verdict,) = [one for one in report_of(project)["verdicts"] if one["subject"] == "forward/logits"]
    assert verdict["reason"].startswith("rounding, equal in float64: ")
    assert verdict["diff"]["max_abs"] > 2**-10, "more than rounding makes of one sum"
    edit(f"torch.sin(4e3 * {TORCH_FORWARD})", f"paddle.sin(4.000001e3 * {FORWARD})")
    assert project.align(every=False).returncode == ExitCode.FAILED


def test_random_numbers_that_cannot_be_made_the_same_are_inconclusive(project, edit):
    edit(
        TORCH_FORWARD.replace("hidden)", "hidden + torch.poisson(torch.ones_like(hidden)))"),
        FORWARD.replace("hidden)", "hidden + paddle.poisson(paddle.ones_like(hidden)))"),
    )
    done = project.align(every=False)
    assert done.returncode == ExitCode.NOTHING_CHECKED, done.stdout
    assert headline(done).startswith("equal where compared; not compared: ")
    assert report_of(project)["uncompared"]


def test_what_does_not_fit_is_another_model(project, edit):
    edit()
    project.edit("tiny_paddle.py", "nn.Linear(128, num_classes)", "nn.Linear(128, num_classes + 1)")
    done = project.align(locate=True, every=False)
    assert done.returncode == ExitCode.FAILED
    assert headline(done).startswith("NOT the same model: ")
    assert "[11, 128]" in headline(done)
    assert "[10, 128]" in headline(done)
    assert report_of(project)["diagnoses"][0]["place"]["file"] == "tiny_paddle.py"


def test_blocks_too_few_are_named(project, edit):
    edit(TORCH_FORWARD.replace("hidden)", "self.blocks(hidden))"), FORWARD.replace("hidden)", "self.blocks(hidden))"))
    for name, count in (("torch", 3), ("paddle", 2)):
        layer = "self.head = nn.Linear(128, num_classes)"
        blocks = f"self.blocks = nn.Sequential(*[nn.Linear(128, 128) for _ in range({count})])"
        project.edit(f"tiny_{name}.py", layer, f"{layer}\n        {blocks}")
    done = project.align(locate=True, every=False)
    assert done.returncode == ExitCode.FAILED
    assert "`blocks` has no counterpart of `blocks.2` (Linear, 2 parameters), which the reference" in headline(done)


def test_an_output_too_few_is_another_model(project, edit):
    edit(f"({TORCH_FORWARD}, hidden)", FORWARD)
    project.edit("case.yaml", "outputs: [logits]", "outputs: [logits, hidden]")
    done = project.align(locate=True, every=False)
    assert done.returncode == ExitCode.FAILED
    assert headline(done).startswith("NOT the same model: forward/layers: the port does not return hidden")
