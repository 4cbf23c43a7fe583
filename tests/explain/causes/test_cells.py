"""Cells that a port computes by hand, held against torch's, whose kernels compute all at once."""

import numpy as np
import pytest
from live_nets import model

import tipchain


def twice(side, cell):
    return model(side, lambda _: {"cell": cell}, lambda net, x, h: net.cell(net.cell(x, h) @ side.ones([6, 5]), h))


def port_of(paddle, fault):
    functional = paddle.nn.functional

    class Cell(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            shapes = {"weight_ih": [18, 5], "weight_hh": [18, 6], "bias_ih": [18], "bias_hh": [18]}
            for name, shape in shapes.items():
                setattr(self, name, self.create_parameter(shape))

        def forward(self, x, h):
            a = paddle.matmul(x, self.weight_ih, transpose_y=True) + self.bias_ih
            b = paddle.matmul(h, self.weight_hh, transpose_y=True) + self.bias_hh
            (xr, xz, xn), (hr, hz, hn) = paddle.chunk(a, 3, -1), paddle.chunk(b, 3, -1)
            reset, update = functional.sigmoid(xr + hr), functional.sigmoid(xz + hz)
            new = xn + (hn if fault == "reset" else reset * hn)
            return (1 - update) * functional.tanh(new) + update * h

    return twice(paddle, Cell())


@pytest.mark.parametrize(("fault", "code"), [("", ""), ("reset", "missing-call")])
def test_what_a_cell_by_hand_does_otherwise_is_named(live, fault, code):
    live.torch.manual_seed(0)
    reference, port = twice(live.torch, live.torch.nn.GRUCell(5, 6)), port_of(live.paddle, fault)
    tipchain.copy_weights(reference, port)
    generator = np.random.default_rng(0)
    inputs = [generator.standard_normal(shape).astype(np.float32) for shape in ((4, 5), (4, 6))]
    report = tipchain.align(reference, port, {"args": inputs})
    assert report.passed == (not fault), report
    if fault:
        assert report.diagnoses[0].code == code
        assert "test_cells.py" in report.diagnoses[0].message, "the line stands there"
