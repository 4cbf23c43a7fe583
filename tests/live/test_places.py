"""Which line of the user's code a cause is about."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest
from both_frameworks import paddle, torch
from live_nets import loaded

from tipchain.explain.findings import CodeEdit, Diagnosis, SourceLine
from tipchain.frameworks.live_models import PaddleSide, Sides, TorchSide
from tipchain.live.places import place_callable, place_layers, place_pieces

SOURCE = """\
import paddle
from paddle import nn


class Block(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2D(width, width, 3)
        norm: nn.Layer = nn.BatchNorm2D(width)
        self.norm: nn.Layer = norm
        self.down = None
        if width:
            self.down = nn.ReLU()

    def forward(self, x):
        return self.norm(self.conv(x))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            ("conv", nn.Conv2D(3, 4, 1)),
            ("act", nn.ReLU()),
        )
        self.neck = nn.Sequential(
            nn.ReLU(),
            nn.GELU(),
        )
        self.blocks = nn.LayerList([Block(4) for _ in range(2)])
        self.add_sublayer("head", nn.Linear(4, 2))
        features = nn.Sequential()

        def add(number, norm):
            features.add_sublayer(f"conv{number}", nn.Conv2D(4, 4, 1))
            if norm:
                features.add_sublayer(f"norm{number}", nn.BatchNorm2D(4))

        add(0, False)
        add(1, True)
        self.features = features
        tail = [nn.Sigmoid()]
        for _ in range(2):
            tail.append(nn.Tanh())
            tail += [nn.Conv2D(4, 4, 1)]
        tail.append(nn.Conv2D(4, 4, 3))
        self.tail = nn.Sequential(*tail)
        self.more = nn.LayerList([Block(2)])
        for width in (4, 8):
            self.more.append(Block(width))
        self.last = Block(1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def build_loss():
    return nn.CrossEntropyLoss()


def build_optimizer(parameters, weight_decay=1e-4):
    return paddle.optimizer.Momentum(
        0.1,
        parameters=parameters,
        weight_decay=0.01,
    )
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory):
    return loaded(tmp_path_factory.mktemp("placed") / "placed_net.py", SOURCE)


def cause(path: str, **more: object) -> Diagnosis:
    given = {"code": "c", "message": "wrong", "evidence": "", "explained": 1.0, "fix": "right", **more}
    return Diagnosis(port_path=path, **given)


def place(net, path: str, **more: object) -> Diagnosis:
    reference = torch.nn.Sequential(torch.nn.Linear(1, 1))
    return place_layers([cause(path, **more)], Sides(TorchSide(), PaddleSide()), (reference, net.Net()), ())[0]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("blocks.1.conv", "self.conv = nn.Conv2D(width, width, 3)"),
        ("blocks.1.norm", "self.norm: nn.Layer = norm"),
        ("blocks.1", "self.blocks = nn.LayerList([Block(4) for _ in range(2)])"),
        ("stem.act", '("act", nn.ReLU()),'),
        ("head", 'self.add_sublayer("head", nn.Linear(4, 2))'),
        ("tail.0", "tail = [nn.Sigmoid()]"),
        ("more.0", "self.more = nn.LayerList([Block(2)])"),
        ("more.2", "self.more.append(Block(width))"),
        ("tail.4", "self.tail = nn.Sequential(*tail)"),  # it may be either of two
        ("", "class Net(nn.Layer):"),
    ],
)
def test_a_layers_line_is_the_one_that_makes_it(net, path, code):
    found = place(net, path).place
    assert found.code == code
    assert Path(found.file).read_text().splitlines()[found.line - 1].strip() == code


@pytest.mark.parametrize(
    ("right", "code"),
    [
        (["blocks.0.conv"], "self.last = Block(1)"),
        (["blocks.0.norm"], "self.conv = nn.Conv2D(width, width, 3)"),  # of those that ran none is right
    ],
)
def test_what_a_right_layer_of_the_class_makes_too_is_told_where_the_wrong_one_is_constructed(net, right, code):
    reference = torch.nn.Sequential(torch.nn.Linear(1, 1))
    wrong, other = cause("last.conv", code="argument", name="stride"), cause("more.0.conv", code="parting")
    sides = Sides(TorchSide(), PaddleSide())
    placed, _ = place_layers([wrong, other], sides, (reference, net.Net()), {*right, "last.conv", "more.0.conv"})
    assert placed.place.code == code


def test_a_line_that_is_known_comes_first(net):
    known = SourceLine.at(net.__file__, 13)
    assert place(net, "blocks.0", place=known).place is known
    assert place(net, "nowhere").place is None


def test_pieces_are_placed_at_their_builders_unless_a_line_is_known(net):
    loss = cause("loss")
    placed = place_pieces([loss, cause("a")], {"loss": (functools.partial(net.build_loss), net.build_loss)})
    assert [str(one.place).rpartition("/")[2] for one in placed] == ["placed_net.py:60", "None"]
    assert placed[0].reference_place == placed[0].place
    assert place_callable(paddle.nn.CrossEntropyLoss()) is None


def test_the_line_of_an_argument_that_is_to_be_passed_is_meant(net):
    decay = CodeEdit(kind="pass", call="", arguments=(("weight_decay", "0.0001"),))
    wrong = cause("optimizer", name="weight_decay", edit=decay)
    (placed,) = place_pieces([wrong], {"optimizer": (net.build_optimizer, net.build_optimizer)})
    assert placed.place.code == "weight_decay=0.01,"
    assert placed.corrected == "weight_decay=0.0001,"
    (other,) = place_pieces([cause("optimizer", name="epsilon")], {"optimizer": (None, net.build_optimizer)})
    assert other.place.code == "return paddle.optimizer.Momentum("
    assert not other.corrected


def test_the_layer_beside_which_a_container_lacks_a_call_is_meant(net):
    behind = CodeEdit(kind="after", call="1", written="relu")
    assert place(net, "neck", edit=behind).place.code == "nn.GELU(),"
    before = CodeEdit(kind="before", call="neck", written="relu")
    assert place(net, "neck", edit=before).place.code == "self.neck = nn.Sequential("


def test_the_references_line_is_the_known_one_or_that_alone_calls_the_function(net):
    sides, port = Sides(PaddleSide(), PaddleSide()), net.Net()
    here, there = SourceLine.at(net.__file__, 51), SourceLine.at(net.__file__, 16)
    missing = cause("", place=here, edit=CodeEdit(kind="after", call="block", written="relu"))
    (placed,) = place_layers([missing], sides, (port, port), ())
    assert placed.reference_place.code == "x = block(x)"
    (placed,) = place_layers([replace(missing, reference_place=there)], sides, (port, port), ())
    assert placed.reference_place is there
    (placed,) = place_layers([replace(missing, name="gone", edit=None)], sides, (port, port), ())
    assert placed.reference_place.code == "def forward(self, x):"
