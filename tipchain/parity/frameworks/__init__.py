"""The frameworks, each loaded when it is asked for."""

from __future__ import annotations

from tipchain.parity.frameworks.base import Framework


def load_framework(name: str, *, wide: bool = False) -> Framework:
    """Import the framework called ``"torch"`` or ``"paddle"``; torch also ``wide``, with all floats in float64.

    Raises:
        MissingFrameworkError: it cannot be imported.
    """
    if wide:
        from tipchain.parity.frameworks.torch_float64 import TorchFloat64

        return TorchFloat64()
    if name == "torch":
        from tipchain.parity.frameworks.torch_ import TorchFramework

        return TorchFramework()
    from tipchain.parity.frameworks.paddle_ import PaddleFramework

    return PaddleFramework()
