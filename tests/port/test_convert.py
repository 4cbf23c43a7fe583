"""Sources of torch as paconvert writes them: each by itself, and what it leaves open."""

import pytest

pytest.importorskip("paconvert")
pytest.importorskip("paddle")

from tipchain.errors import UsageError
from tipchain.port.convert import convert

SPLIT = "import torch\n\ndef parts(x):\n    return x.split(2, dim=1), torch.adjoint(x)\n"


def test_nothing_of_one_module_gets_into_another():
    alone = convert({"a.py": SPLIT})["a.py"]
    again = convert({"b.py": "def other(x):\n    return x.float()\n", "a.py": SPLIT})
    assert again["a.py"] == alone
    assert "setattr" not in again["b.py"].source
    with pytest.raises(UsageError, match=r"c\.py: paconvert raised SyntaxError"):
        convert({"c.py": "def broken(:\n"})


def test_a_line_that_has_paddles_name_now_is_not_left_open():
    source = (
        "import torch\n\nknown = hasattr(torch.nn.functional, 'silu')\nroot = torch.serialization.safe_globals([])\n"
    )
    made = convert({"net.py": source})["net.py"]
    assert "hasattr(paddle.nn.functional, " in made.source
    assert [line for _, line in made.left_open] == ["root = torch.serialization.safe_globals([])"]
    assert made.source.splitlines()[made.left_open[0][0] - 1] == "root = torch.serialization.safe_globals([])"
