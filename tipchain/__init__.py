"""tipchain: is a PaddlePaddle port the same model as its PyTorch reference, and does its chain run?

Importing this package loads neither numpy, torch nor paddle; the names below are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tipchain.live.align import align
    from tipchain.live.report import AlignmentReport
    from tipchain.live.sources import copy_weights
    from tipchain.numbers.dumps import load_record, save_record
    from tipchain.numbers.tolerance import Tolerance
    from tipchain.numbers.verdicts import compare

__version__ = "1.0.0"
__all__ = [
    "AlignmentReport",
    "Tolerance",
    "__version__",
    "align",
    "compare",
    "copy_weights",
    "load_record",
    "save_record",
]

_HOMES = {
    "AlignmentReport": "tipchain.live.report",
    "align": "tipchain.live.align",
    "copy_weights": "tipchain.live.sources",
    "Tolerance": "tipchain.numbers.tolerance",
    "compare": "tipchain.numbers.verdicts",
    "load_record": "tipchain.numbers.dumps",
    "save_record": "tipchain.numbers.dumps",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
