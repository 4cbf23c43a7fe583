"""The frameworks, each loaded when it is asked for."""

from __future__ import annotations

from tipchain.frameworks.base import Framework


def load_framework(name: str, *, wide: bool = False) -> Framework:
    """Import the framework called ``"torch"`` or ``"paddle"``; torch also ``wide``, with all floats in float64.

    Raises:
        MissingFrameworkError: it cannot be imported.
    """
    if wide:
        from tipchain.frameworks.torch_ import TorchFloat64

        return TorchFloat64()
    if name == "torch":
        from tipchain.frameworks.torch_ import TorchFramework

        return TorchFramework()
    from tipchain.frameworks.paddle_ import PaddleFramework

    return PaddleFramework()
