"""The torch side in float64: what a case's stages would give if nothing were rounded to float32.

The model is built while float64 is the default, so that tables it computes are of that precision too; weights and data
are the case's own, widened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tipchain.framework_types import Array, Dataset
from tipchain.frameworks.base import Batch, Builder
from tipchain.frameworks.torch_ import TorchFramework, dispatch_mode
from tipchain.numbers.rounding import ULPS

SHIFT = ULPS * 2.0**-29
"""How far apart shifted weights start, in float32's units in the last place: `ULPS` of float64's."""


class TorchFloat64(TorchFramework):
    """torch with all floats in float64.

    Attributes:
        shift: which of the perturbations the weights take when they are loaded; None for none.
    """

    shift: int | None = None

    def build(self, builder: Builder, args: Mapping[str, object]) -> Any:
        """Return the module on the chosen device, in float64."""
        with self.double_precision():
            return super().build(builder, args).double()

    def load_weights(self, model: object, path: Path) -> None:
        """Load a state dict, and move its values a few of float64's units where `shift` says so."""
        from tipchain.frameworks.torch_ import perturb

        super().load_weights(model, path)
        if self.shift is not None:
            perturb(model, SHIFT, self.shift)

    def tensor(self, array: Array) -> Any:
        """Return ``array`` as a tensor on the device, floats in float64."""
        return self.widened(super().tensor(array))

    def batches(self, dataset: Dataset, indices: Sequence[Sequence[int]]) -> Iterator[Batch]:
        """Load the given samples with torch's DataLoader, floats in float64."""
        for image, label, files in super().batches(dataset, indices):
            yield self.widened(image), self.widened(label), files


@contextmanager
def widening(torch: ModuleType, *, claims: bool = False) -> Iterator[None]:
    """Let what asks torch for float32 get float64 for a while: a cast to float32 does nothing to a model in float32.

    Backward is left alone: there a cast gives a tensor's gradient the precision of that tensor.

    Args:
        torch: the module.
        claims: tensors in float64 say that they are in float32, for models that insist on it.
    """
    with _mode(torch)(), _claiming(torch)() if claims else nullcontext():
        yield


@cache
def _mode(torch: ModuleType) -> Any:
    wider = {torch.float32: torch.float64, torch.complex64: torch.complex128}

    class Widening(dispatch_mode()):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> object:
            asked = wider.get(kwargs.get("dtype")) if kwargs else None
            if asked is None or torch._C._current_autograd_node() is not None:  # noqa: SLF001
                return func(*args, **(kwargs or {}))
            return func(*args, **{**kwargs, "dtype": asked})

    return Widening


@cache
def _claiming(torch: ModuleType) -> Any:
    from torch.overrides import TorchFunctionMode

    narrower = {torch.float64: torch.float32, torch.complex128: torch.complex64}
    asks_dtype = torch.Tensor.dtype.__get__

    class Claiming(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
            given = func(*args, **(kwargs or {}))
            return narrower.get(given, given) if func == asks_dtype else given

    return Claiming
