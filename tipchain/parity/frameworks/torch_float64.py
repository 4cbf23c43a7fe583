"""The torch side in float64: what a case's stages would give if nothing were rounded to float32.

The model is built while float64 is the default, so that tables it computes are of that precision too; weights and data
are the case's own, widened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tipchain.parity.envelope import ULPS
from tipchain.parity.frameworks.base import Array, Batch, Builder
from tipchain.parity.frameworks.torch_ import TorchFramework

SHIFT = ULPS * 2.0**-29
"""How far apart shifted weights start, in float32's units in the last place: `ULPS` of float64's."""


class TorchFloat64(TorchFramework):
    """torch with all floats in float64.

    Attributes:
        shift: which of the perturbations the weights take when they are loaded; None for none.
    """

    shift: int | None = None

    def build(self, builder: Builder, args: Mapping[str, Any]) -> Any:
        """Return the module on the chosen device, in float64."""
        with self.double_precision():
            return super().build(builder, args).double()

    def load_weights(self, model: Any, path: Path) -> None:
        """Load a state dict, and move its values a few of float64's units where `shift` says so."""
        from tipchain.parity.frameworks.torch_perturbation import perturb

        super().load_weights(model, path)
        if self.shift is not None:
            perturb(model, SHIFT, self.shift)

    def tensor(self, array: Array) -> Any:
        """Return ``array`` as a tensor on the device, floats in float64."""
        return self.widened(super().tensor(array))

    def batches(self, dataset: Any, indices: Sequence[Sequence[int]]) -> Iterator[Batch]:
        """Load the given samples with torch's DataLoader, floats in float64."""
        for image, label, files in super().batches(dataset, indices):
            yield self.widened(image), self.widened(label), files
