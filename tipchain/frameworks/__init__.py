"""The frameworks, each loaded when it is asked for.

Both do the same in the same words: arrays cross this border as numpy arrays, in torch's layout and under torch's names.
"""

from __future__ import annotations

from tipchain.frameworks.paddle_ import PaddleFramework, PaddleUpdates
from tipchain.frameworks.torch_ import TorchFramework, TorchUpdates

Framework = TorchFramework | PaddleFramework
"""One framework, loaded by its constructor."""
Updates = TorchUpdates | PaddleUpdates
"""An optimizer and the parameters that it updates, under torch's names and in torch's layout; gradients come from outside."""


def load_framework(name: str) -> Framework:
    """Import the framework called ``"torch"`` or ``"paddle"``.

    Raises:
        MissingFrameworkError: it cannot be imported.
    """
    return TorchFramework() if name == "torch" else PaddleFramework()
