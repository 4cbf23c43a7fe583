"""``tipchain port``: from a torch file to a port that is proved."""

import json
import re
from importlib.metadata import PackageNotFoundError

import pytest

from tipchain.cli import main
from tipchain.core.files import ROOT_VARIABLE
from tipchain.errors import ExitCode

LAYERS = """
from functools import partial

from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        norm = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), norm(width), nn.ReLU())

    def forward(self, x):
        return x + self.body(x)


def never():
    import nowhere
    return nowhere
"""
NET = """
import torch

from .layers import Block


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block(3)
        self.head = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.block(x).mean((2, 3)))


def build():
    return Net()
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A project with the package ``my`` of torch's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(ROOT_VARIABLE, "")
    (tmp_path / "my").mkdir()
    for name, text in {"__init__": "", "layers": LAYERS, "net": NET}.items():
        (tmp_path / "my" / f"{name}.py").write_text(text)
    return tmp_path


PORT = ["port", "--torch", "my.net:build", "--input", "2,3,8,8"]


@pytest.mark.frameworks
@pytest.mark.usefixtures("forked")
def test_a_torch_file_becomes_a_port_that_is_proved(here, capsys):
    assert main([*PORT, "--fix", "--yes", "--json", "report.json", "--html", "page.html"]) == ExitCode.PASSED
    told = capsys.readouterr().out
    assert re.search(r"^my_paddle/layers.py +\d+/\d+ +0 +equal$", told, re.MULTILINE)
    assert "-        norm = partial(paddle.nn.BatchNorm2D, eps=0.001, momentum=0.01)" in told
    assert "equal to its reference: " in " ".join(told.split())
    layers = (here / "my_paddle" / "layers.py").read_text()
    assert "partial(paddle.nn.BatchNorm2D, epsilon=0.001, momentum=0.99)" in layers
    assert "nowhere" not in layers
    assert "eps=0.001" in (here / "my_paddle" / "layers.py.orig").read_text()
    assert (here / "my" / "layers.py").read_text() == LAYERS
    assert json.loads((here / "report.json").read_text())["exit_code"] == 0
    assert "equal to its reference" in (here / "page.html").read_text().lower()
    assert 'paddle: {model: "my_paddle.net:build"}' in (here / "net.yaml").read_text()


@pytest.mark.frameworks
@pytest.mark.usefixtures("forked")
def test_a_port_that_differs_is_told_with_its_edit(here, capsys):
    (here / "my" / "layers.py").write_text(LAYERS.replace("eps=0.001, ", ""))
    assert main(PORT) == ExitCode.FAILED
    told = " ".join(capsys.readouterr().out.split())
    port = (here / "my_paddle" / "layers.py").read_text().splitlines()
    line = next(number for number, text in enumerate(port, 1) if "norm(width)" in text)
    assert re.search(rf"my_paddle/layers.py +\d+/\d+ +0 +differs at line {line} ", told)
    assert f"edit of the first difference: my_paddle/layers.py:{line}: pass `momentum=0.99` to `block.body.1`" in told


@pytest.mark.frameworks
@pytest.mark.usefixtures("forked")
def test_a_source_runs_under_paddle_as_a_port_of_itself(here, capsys):
    """Two files of one package, each of which has torch on one side and Paddle on the other, in one process, too."""
    text = NET.replace("self.block(x)", "torch.cat([torch.relu(x), self.block(Twice()(x))], dim=1)[:, 3:]")
    (here / "my" / "net.py").write_text(text.replace("import torch", "import torch\nfrom kit import Twice", 1))
    (here / "kits").mkdir()
    (here / "kit.py").write_text(
        "from kits.twice import Twice\n"
    )  # another package, which only hands on what holds torch's
    kit = "from torch import nn\n\n\nclass Twice(nn.Module):\n    def forward(self, x):\n        return x * 2\n"
    (here / "kits" / "twice.py").write_text(kit)
    (here / "my" / "layers.py").write_text(
        LAYERS.replace("nn.BatchNorm2d, eps=0.001, momentum=0.01", "nn.GroupNorm, 1")
    )
    assert main([*PORT, "--compat"]) == ExitCode.PASSED
    assert "equal to its reference: model" in " ".join(capsys.readouterr().out.split())
    assert 'paddle: {model: "my.net:build", compat: true}' in (here / "net.yaml").read_text()
    assert not list(here.glob("*_paddle"))


@pytest.mark.frameworks
@pytest.mark.usefixtures("forked")
def test_what_paddles_compat_layer_lacks_is_told_with_its_line(here, capsys):
    assert main([*PORT, "--compat"]) == ExitCode.FAILED
    line = next(number for number, text in enumerate(LAYERS.splitlines(), 1) if "nn.BatchNorm2d" in text)
    told = " ".join(capsys.readouterr().out.split())
    assert f"my/layers.py:{line}: AttributeError: module 'paddle.nn' has no attribute 'BatchNorm2d'" in told
    assert "in: the port (Paddle), building the model" in told
    assert (here / "my" / "layers.py").read_text() == LAYERS


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--compat", "--out", "my_paddle"], "--compat writes no port"),
        (["--compat", "--fix", "--yes"], "--compat writes no port"),
        (["--out", "deep/my_paddle"], "where imports start"),
        (["--out", "my"], "the reference's own package"),
        (["--torch", "my.absent:build"], "my.absent does not exist"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(here, capsys, more, said):
    assert main([*PORT, *more]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
    assert {one.name for one in here.iterdir()} == {"my"}


def test_a_port_that_is_there_is_not_replaced(here, capsys):
    (here / "my_paddle").mkdir()
    assert main(PORT) == ExitCode.USAGE
    assert "my_paddle exists; --force replaces it" in capsys.readouterr().err


@pytest.mark.parametrize("found", ["", "3.3.1"])
def test_a_paconvert_that_does_not_fit_is_refused(here, capsys, monkeypatch, found):
    def version(name):
        if not found:
            raise PackageNotFoundError(name)
        return found

    monkeypatch.setattr("tipchain.port.convert.version", version)
    assert main(PORT) == ExitCode.USAGE
    assert 'pip install "tipchain[port]"' in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_fix_asks_a_person_or_is_told_yes(capsys):
    assert main([*PORT, "--fix"]) == ExitCode.USAGE
    assert "--yes" in capsys.readouterr().err
