"""Constants that plain code computes: the statements with which both sides' code part, in a forward or in a constructor."""

import math

import numpy as np
import pytest
from both_frameworks import paddle, torch

import tipchain

pytestmark = pytest.mark.frameworks
ROWS = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
PLACES = 6


class Reference(torch.nn.Module):
    """Adds a table to what a layer makes."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, PLACES)
        at = torch.arange(PLACES)
        rates = 10000 ** (-at / PLACES)
        angles = at * rates
        self.register_buffer("table", angles.sin(), persistent=False)

    def forward(self, x):
        return self.layer(x) + self.table


def angles(places):
    return np.arange(places) / np.power(10000.0, np.arange(places) / places)


class Kept(paddle.nn.Layer):
    """Builds the table in the constructor, with cosines, of an argument that it keeps."""

    def __init__(self, places):
        super().__init__()
        self.places = places
        self.layer = paddle.nn.Linear(6, places)
        waves = np.cos(angles(places))
        self.register_buffer("table", paddle.to_tensor(waves.astype("float32")), persistable=False)

    def forward(self, x):
        return self.layer(x) + self.table


class Unknown(Kept):
    """Is constructed with an argument that it does not keep."""

    def __init__(self, count):
        super().__init__(count)


class Late(paddle.nn.Layer):
    """Builds the table in forward, with a wrong base, and hands it on through two functions."""

    def __init__(self):
        super().__init__()
        self.layer = paddle.nn.Linear(6, PLACES)

    def rates(self):
        at = np.arange(PLACES)
        return 1000.0 ** -(at / PLACES)

    def table(self):
        return np.sin(np.arange(PLACES) * self.rates())

    def forward(self, x):
        return self.layer(x) + paddle.to_tensor(self.table(), dtype=x.dtype)


class Within(torch.nn.Module):
    """Makes a window within a statement."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, PLACES)

    def forward(self, x):
        return self.layer(x) * torch.hann_window(PLACES, periodic=True).to(x.dtype)


def hann(count):
    turns = np.arange(count) / (count - 1)
    return 0.5 - 0.5 * np.cos(2 * math.pi * turns)


class Window(paddle.nn.Layer):
    """Keeps the symmetric window."""

    def __init__(self):
        super().__init__()
        self.layer = paddle.nn.Linear(6, PLACES)
        self.window = hann(PLACES)

    def forward(self, x):
        return self.layer(x) * paddle.to_tensor(self.window, dtype=x.dtype)


class Grid(torch.nn.Module):
    """Keeps a grid of columns and rows, each repeated along the other."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 2)
        columns = torch.linspace(0, 4, 5).expand(6, 5)
        rows = torch.arange(6).view(6, 1).expand(6, 5).float()
        self.grid = torch.stack([columns, rows], -1)

    def forward(self, x):
        return self.layer(x)[:, None, None] * self.grid.to(x.dtype)


class FlatGrid(paddle.nn.Layer):
    """Keeps it as a list of points; its columns end elsewhere."""

    def __init__(self):
        super().__init__()
        self.layer = paddle.nn.Linear(6, 2)
        down = np.arange(6.0)
        across = np.linspace(0, 5, 5)
        both = np.meshgrid(across, down)
        self.points = np.stack(both, axis=-1).reshape(1, -1, 2)

    def forward(self, x):
        made = self.layer(x).unsqueeze(1) * paddle.to_tensor(self.points, dtype=x.dtype)
        return made.reshape([-1, 6, 5, 2])


class Scaled(paddle.nn.Layer):
    """Multiplies by a number that the constructor computes of another size."""

    def __init__(self, width=6):
        super().__init__()
        self.layer = paddle.nn.Linear(width, PLACES)
        self.scale = (2 * width) ** -0.5

    def forward(self, x):
        return self.layer(x) * self.scale


class ScaledReference(torch.nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.layer = torch.nn.Linear(width, PLACES)
        self.factor = 1 / math.sqrt(width)

    def forward(self, x):
        return self.layer(x) * self.factor


def cause(reference, port):
    torch.manual_seed(0)
    tipchain.copy_weights(reference, port)
    report = tipchain.align(reference, port, ROWS)
    assert not report.passed
    return report.diagnoses[0]


@pytest.mark.parametrize(
    ("reference", "port", "code", "reference_code"),
    [
        pytest.param(
            Reference, lambda: Kept(PLACES), "waves = np.cos(angles(places))", "angles.sin()", id="constructor"
        ),
        pytest.param(Reference, Late, "return 1000.0", "rates = 10000", id="forward"),
        pytest.param(
            Within, Window, "return 0.5 - 0.5 * np.cos(2 * math.pi * turns)", "hann_window", id="within a statement"
        ),
        pytest.param(Grid, FlatGrid, "across = np.linspace(0, 5, 5)", "columns =", id="laid out otherwise"),
        pytest.param(ScaledReference, Scaled, "self.scale = (2 * width) ** -0.5", "self.factor =", id="number"),
        pytest.param(
            Reference, lambda: Unknown(PLACES), 'self.register_buffer("table"', '"table"', id="not made again"
        ),
    ],
)
def test_a_constant_is_told_where_its_code_parts(reference, port, code, reference_code):
    told = cause(reference(), port())
    assert told.explained > 0.99
    assert told.place.code.startswith(code)
    assert reference_code in told.reference_place.code


def test_the_values_of_both_statements_are_evidence():
    told = cause(Reference(), Kept(PLACES))
    assert "both codes part: the port's `waves = np.cos(angles(places))` (test_computed.py:" in told.evidence
    assert "the value is computed at test_computed.py:" in told.fix


def test_a_model_is_constructed_again_as_it_is_or_not_at_all():
    made = []

    class Counted(Kept):
        """Was changed since it was constructed."""

        def __init__(self, places):
            made.append(places)
            super().__init__(places)
            self.turns = len(made)

    told = cause(Reference(), Counted(PLACES))
    assert made == [PLACES, PLACES]  # with what it keeps: another one is made
    assert told.place.code.startswith('self.register_buffer("table"')
