"""Data and metrics of `tipchain.align` and of the command line."""

import json

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import copy_and_align
from tiny_project import make_tiny_project

from tipchain.cli import main
from tipchain.errors import Outcome, UsageError
from tipchain.live.report import AlignmentReport

pytestmark = pytest.mark.frameworks
RANDOM = np.random.default_rng(0)
IMAGES, LABELS = RANDOM.random((9, 3, 8, 8)).astype(np.float32), RANDOM.integers(0, 4, 9)
INPUTS = {"args": RANDOM.random((9, 6)).astype(np.float32), "labels": RANDOM.integers(0, 4, 9)}
DATA = list(zip(IMAGES, LABELS, strict=True))


def accuracy(outputs, labels):
    return float((outputs.argmax(1) == labels).mean())


def align(**given):
    reference, port = torch.nn.Linear(6, 4), paddle.nn.Linear(6, 4)
    return copy_and_align(reference, port, INPUTS, **given)


def test_equal_data_and_metrics_pass():
    report = align(data=(DATA, lambda: iter(DATA)), metrics=(accuracy, paddle.metric.Accuracy()))
    assert report.passed, str(report)
    assert list(report.stages) == ["data", "preflight", "forward", "metric", "backward"]


def test_a_metric_of_the_ports_that_takes_one_batch_alone_is_told_to():
    report = align(metrics=(accuracy, lambda outputs, labels: accuracy(outputs.reshape([9, 4]), labels)))
    assert report.stages["metric"] is Outcome.PASS, str(report)
    assert "; the port's metric raises for outputs made to tell, the reference's does not: " in report.reasons["metric"]


def test_causes_of_data_and_metrics_are_in_every_form_of_the_report(tmp_path):
    port = [(image[::-1], label) for image, label in DATA]
    report = align(data=(DATA, port), metrics=(accuracy, paddle.metric.Accuracy(topk=(2,))))
    assert {name: report.stages[name] for name in ("data", "metric")} == dict.fromkeys(("data", "metric"), Outcome.FAIL)
    assert [(one.code, one.port_path) for one in report.diagnoses] == [("parting", "data"), ("parting", "metric")]
    assert report.first_divergence is None
    assert "all 9 samples, first 0, 0: 128 of 192 values, most at [0, 7, 3]: expected 0.05" in str(report)
    read = AlignmentReport.from_json(report.to_json())
    assert read.stages == report.stages
    assert read.diagnoses == report.diagnoses
    report.to_html(tmp_path / "why.html")
    text = (tmp_path / "why.html").read_text()
    assert "all 9 samples, first 0, 0: 128 of 192 values" in text
    assert "the port Accuracy" in text


def test_a_raw_sample_may_be_an_image_and_its_mask():
    generator = np.random.default_rng(0)
    samples = [(generator.random((3, 20, 24)).astype(np.float32), generator.integers(0, 3, (20, 24))) for _ in range(3)]

    def padded(fill):
        def transform(sample):
            image, mask = sample
            return np.pad(image, ((0, 0), (2, 2), (2, 2))), np.pad(mask, 2, constant_values=fill)

        return transform

    report = align(data=(padded(255), padded(0)), samples=samples)
    assert report.stages["data"] is Outcome.FAIL
    assert report.diagnoses
    assert align(data=(padded(255), padded(255)), samples=samples).passed


def test_training_data_is_a_stage_of_its_own():
    report = align(data={"data": (DATA, DATA), "train_data": (DATA, DATA[:-1])})
    assert report.stages["data"] is Outcome.PASS
    assert [(one.code, one.port_path) for one in report.diagnoses] == [("parting", "train_data")]
    assert "sample 8 of the reference's 9 missing in the port" in report.diagnoses[0].message


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"data": DATA[0][0]}, "expected: a pair"),
        ({"data": {"val": (DATA, DATA)}}, "'val' is no stage"),
        ({"samples": [1]}, "samples were given without data"),
    ],
)
def test_what_is_no_pair_is_refused(given, words):
    with pytest.raises(UsageError, match=words):
        align(**given)


SIDES = """
import numpy as np

def reference():
    import torch
    torch.manual_seed(0)
    return torch.nn.Linear(4, 3)

def port():
    import paddle
    import tipchain
    made = paddle.nn.Linear(4, 3)
    tipchain.copy_weights(reference(), made)
    return made

def right(raw):
    return raw / 255.0

def wrong(raw):
    return raw[..., ::-1] / 255.0

def accuracy(outputs, labels):
    return float((outputs.argmax(1) == labels).mean())

def percent(outputs, labels):
    return 100 * accuracy(outputs, labels)
"""


def test_the_command_line_names_data_metrics_and_samples(tmp_path, monkeypatch, forked, capfd):
    (tmp_path / "pair_sides.py").write_text(SIDES)
    random = np.random.default_rng(0)
    np.savez(tmp_path / "inputs.npz", args=random.random((5, 4)).astype(np.float32), labels=random.integers(0, 3, 5))
    np.savez(tmp_path / "raw.npz", samples=random.integers(0, 256, (3, 8, 9, 3)).astype(np.uint8))
    monkeypatch.chdir(tmp_path)
    options = ["--reference", "pair_sides:reference", "--port", "pair_sides:port", "--inputs", "inputs.npz"]
    options += ["--data", "pair_sides:right", "pair_sides:wrong", "--samples", "raw.npz"]
    options += ["--metrics", "pair_sides:accuracy", "pair_sides:percent"]
    assert main(["locate", *options, "--json", "why.json", "--html", "why.html"]) == 1
    document = json.loads((tmp_path / "why.json").read_text())
    data, metric = document["diagnoses"]
    assert "the port's `return raw[..., ::-1] / 255.0` (pair_sides.py:20) makes" in data["message"]
    assert data["place"]["code"] == "return raw[..., ::-1] / 255.0"
    assert "the port's `return 100 * accuracy(outputs, labels)` (pair_sides.py:26) makes" in metric["message"]
    for part in ("--data pair_sides:right pair_sides:wrong", "--samples raw.npz", "--metrics pair_sides:accuracy"):
        assert part in document["command"]
    assert "return raw[..., ::-1] / 255.0" in (tmp_path / "why.html").read_text()
    capfd.readouterr()
    assert main(["locate", *options[:6], "--samples", "raw.npz"]) == 2
    assert "--samples goes with --data" in capfd.readouterr().err
    assert main(["locate", "case.yaml", "--data", "a:b", "c:d"]) == 2
    assert "a case names its own data" in capfd.readouterr().err


def test_a_failed_data_stage_of_a_case_says_why(tmp_path):
    project = make_tiny_project(tmp_path)
    project.edit("tiny_paddle.py", "Image.Resampling.BILINEAR", "Image.Resampling.NEAREST")
    done = project.align("--only", "data", "--json", "why.json", locate=True, every=False)
    assert done.returncode == 1
    assert done.stdout.startswith("NOT the same data: ")
    assert len(done.stdout.splitlines()) <= 30
    assert "train_data" not in done.stdout, "that stage was not run, let alone failed"
    (cause,) = json.loads((project.root / "why.json").read_text())["diagnoses"]
    assert (cause["code"], cause["stage"], cause["place"]["file"]) == ("argument", "data", "tiny_paddle.py")
    assert (
        "`resample` is NEAREST, the reference's BILINEAR; the port reads it in `resize` in `return image.resize((16, 16)"
        in cause["message"]
    )
