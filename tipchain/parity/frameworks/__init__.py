"""The frameworks, each loaded when it is asked for."""

from __future__ import annotations

import warnings
from importlib import import_module

from tipchain.errors import MissingFrameworkError
from tipchain.imports import kept_import
from tipchain.parity.frameworks.base import Framework

OPTIONS = {"torch": "--reference", "paddle": "--port"}
"""What gives the dumps of a framework that is absent."""


def load_framework(name: str, *, wide: bool = False) -> Framework:
    """Import the framework called ``"torch"`` or ``"paddle"``; torch also ``wide``, with all floats in float64.

    Raises:
        MissingFrameworkError: it cannot be imported.
    """
    try:  # before the adapter, which imports it too
        with kept_import(name), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # paddle's import warns about ccache
            import_module(name)
    except ImportError as error:
        raise MissingFrameworkError(
            f"{name} cannot be imported: {error}\n  install it (README, 'Frameworks'), "
            f"or give its dumps with {OPTIONS[name]}"
        ) from error
    if wide:
        from tipchain.parity.frameworks.torch_float64 import TorchFloat64

        return TorchFloat64()
    if name == "torch":
        from tipchain.parity.frameworks.torch_ import TorchFramework

        return TorchFramework()
    from tipchain.parity.frameworks.paddle_ import PaddleFramework

    return PaddleFramework()
