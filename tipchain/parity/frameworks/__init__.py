"""The frameworks, each loaded when it is asked for."""

from __future__ import annotations

from tipchain.parity.frameworks.base import Framework


def load_framework(name: str) -> Framework:
    """Import the framework called ``"torch"`` or ``"paddle"``.

    Raises:
        MissingFrameworkError: it cannot be imported.
    """
    if name == "torch":
        from tipchain.parity.frameworks.torch_ import TorchFramework

        return TorchFramework()
    from tipchain.parity.frameworks.paddle_ import PaddleFramework

    return PaddleFramework()
