"""torch's running variances by Paddle's definition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class RunningVariances:
    """Follows the running variances of a torch model's BatchNorm layers while it trains.

    torch adds the unbiased variance of a batch to ``running_var`` (``torch.nn.BatchNorm2d``, "Note"), Paddle the biased
    one. With n values per channel they differ by n/(n-1), so that a correct port would look wrong after training
    forwards. With the share f that a batch's variance has in the average (the momentum, or one over the number of
    batches where it is None) each forward makes ``(1 - f) v + f s`` of v; here it is followed with ``s (n-1)/n`` instead.
    """

    def __init__(self, torch: Any, model: Any) -> None:
        self.torch = torch
        self._layers: dict[str, Any] = {}
        self._biased: dict[str, Any] = {}
        self._before: dict[str, Any] = {}
        self._hooks: list[Any] = []
        batch_norm = torch.nn.modules.batchnorm._BatchNorm  # noqa: SLF001
        for prefix, layer in model.named_modules():
            if isinstance(layer, batch_norm) and layer.running_var is not None:
                self._watch(f"{prefix}.running_var" if prefix else "running_var", layer)

    def _watch(self, name: str, layer: Any) -> None:
        def before(module: Any, inputs: Any) -> None:  # noqa: ARG001
            self._before[name] = module.running_var.detach().double().clone()

        def after(module: Any, inputs: Any, output: Any) -> None:  # noqa: ARG001
            if module.training:
                self._follow(name, module, inputs[0])

        self._layers[name] = layer
        self._biased[name] = layer.running_var.detach().double().clone()
        self._hooks += [layer.register_forward_pre_hook(before), layer.register_forward_hook(after)]

    def _follow(self, name: str, layer: Any, images: Any) -> None:
        momentum, before = layer.momentum, self._before[name]
        share = 1 / float(layer.num_batches_tracked) if momentum is None else float(momentum)
        count = images.numel() // images.shape[1]
        added = layer.running_var.detach().double() - (1 - share) * before
        self._biased[name] = (1 - share) * self._biased[name] + added * (max(count - 1, 0) / count)

    def biased(self, name: str, buffer: Any) -> Any:
        """Return ``buffer``, called ``name``, as Paddle would have it if it is a variance of the model watched.

        Another model's buffer of the same name is returned as it is.
        """
        if name not in self._layers or self._layers[name].running_var is not buffer:
            return buffer
        return self._biased[name].to(buffer.dtype)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the model itself have Paddle's variances for a while."""
        kept = {name: layer.running_var.detach().clone() for name, layer in self._layers.items()}
        for name, layer in self._layers.items():
            layer.running_var.copy_(self.biased(name, layer.running_var))
        try:
            yield
        finally:
            for name, layer in self._layers.items():
                layer.running_var.copy_(kept[name])

    def stop(self) -> None:
        """Take the hooks away."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
