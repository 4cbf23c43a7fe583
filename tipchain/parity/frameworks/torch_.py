"""The torch side."""

from __future__ import annotations

import importlib.metadata
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from tipchain.conversion.layouts import only_in_torch
from tipchain.devices import Device
from tipchain.errors import MissingFrameworkError, WeightsError
from tipchain.imports import kept_import
from tipchain.parity.builders import check_batch
from tipchain.parity.frameworks.base import Array, Batch, Builder
from tipchain.parity.frameworks.randomness import Draws, switched_off
from tipchain.parity.frameworks.torch_randomness import drawing
from tipchain.parity.frameworks.torch_variances import RunningVariances
from tipchain.parity.optimizers import make_optimizer
from tipchain.torch_weights import read_torch_state


class TorchTrainer:
    """A torch optimizer and its scheduler; of several parameter groups one shows its rate."""

    def __init__(self, optimizer: Any, scheduler: Any, shown: int = 0) -> None:
        self.optimizer, self.scheduler, self.shown = optimizer, scheduler, shown

    def learning_rate(self) -> float:
        """Return the rate of the first parameter group that was built with the given one, else of the first."""
        return float(self.optimizer.param_groups[self.shown]["lr"])

    def step(self) -> None:
        """Update the parameters and clear their gradients."""
        self.optimizer.step()
        self.optimizer.zero_grad()

    def step_schedule(self) -> None:
        """Advance the scheduler, if there is one."""
        if self.scheduler is not None:
            self.scheduler.step()


class TorchFramework:
    """torch, imported by the constructor."""

    name = "torch"

    def __init__(self) -> None:
        try:
            with kept_import("torch"):
                import torch
        except ImportError as error:
            raise MissingFrameworkError(
                f"torch cannot be imported: {error}\n  install it (README, 'Frameworks'), "
                "or give its dumps with --reference"
            ) from error
        self.torch: Any = torch
        self.device: Any = torch.device("cpu")
        self._variances: RunningVariances | None = None

    def versions(self) -> dict[str, str]:
        """Return torch's version, with the CUDA version of the build if it has one."""
        cuda = self.torch.version.cuda
        return {"torch": importlib.metadata.version("torch"), **({"cuda": cuda} if cuda else {})}

    def configure(self, device: Device, seed: int, threads: int) -> str:
        """Choose device, seed and threads; TF32 off; deterministic kernels on a GPU."""
        torch = self.torch
        torch.set_num_threads(threads)
        if device.is_gpu:
            count = torch.cuda.device_count() if torch.cuda.is_available() else 0
            if device.index >= count:
                raise MissingFrameworkError(
                    f"torch {torch.__version__} has no usable {device}: it sees {count} GPUs\n"
                    "  expected: a CUDA build of torch and a visible GPU; or use --device cpu"
                )
            self.device = torch.device("cuda", device.index)
            torch.use_deterministic_algorithms(mode=True, warn_only=True)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = False
        self.seed(seed)
        return torch.cuda.get_device_name(self.device) if device.is_gpu else "cpu"

    def seed(self, seed: int) -> None:
        """Seed torch's, numpy's and Python's generators."""
        if self.torch.cuda.is_available():
            self.torch.manual_seed(seed)
        else:  # which is quick, where manual_seed keeps a traceback for each device there might be
            self.torch.default_generator.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002  (user code may draw from it)
        random.seed(seed)

    def build(self, builder: Builder, args: Mapping[str, Any]) -> Any:
        """Return the module on the chosen device."""
        return builder(**args).to(self.device)

    def load_weights(self, model: Any, path: Path) -> None:
        """Load a state dict with ``weights_only=True``; every key must fit."""
        state = read_torch_state(path)
        try:
            model.load_state_dict(state, strict=True)
        except RuntimeError as error:
            raise WeightsError("does not fit the torch model", file=path, found=str(error)) from error

    def set_training(self, model: Any, training: bool) -> None:
        """Switch train or eval mode; dropout-like modules stay in eval mode."""
        model.train(training)
        for module in model.modules():
            if "drop" in type(module).__name__.lower():
                module.eval()

    def wake_dropout(self, model: Any) -> None:
        """Switch torch's own dropout modules to train mode."""
        kinds = self.torch.nn.modules.dropout._DropoutNd  # noqa: SLF001
        for module in model.modules():
            if isinstance(module, kinds):
                module.train()

    @contextmanager
    def double_precision(self) -> Iterator[None]:
        """Let float64 be torch's default dtype for a while."""
        usual = self.torch.get_default_dtype()
        self.torch.set_default_dtype(self.torch.float64)
        try:
            yield
        finally:
            self.torch.set_default_dtype(usual)

    def widened(self, value: Any) -> Any:
        """Return a module or a tensor of floats in float64."""
        floats = isinstance(value, self.torch.nn.Module) or (
            self.is_tensor(value) and value.is_floating_point()
        )
        return value.double() if floats else value

    def randomness(self, draws: Draws | None) -> AbstractContextManager[None]:
        """Return a context in which random numbers are ``draws``; None switches dropout off."""
        return switched_off(self.torch.nn.functional) if draws is None else drawing(self.torch, draws)

    def inference(self) -> AbstractContextManager[Any]:
        """Return ``torch.no_grad()``."""
        context: AbstractContextManager[Any] = self.torch.no_grad()
        return context

    def tensor(self, array: Array) -> Any:
        """Return ``array`` as a tensor on the device."""
        return self.torch.from_numpy(np.array(array)).to(self.device)

    def leaf(self, array: Array) -> Any:
        """Return ``array`` as a tensor on the device that collects its gradient."""
        return self.tensor(array).requires_grad_()

    def array(self, tensor: Any) -> Array:
        """Return a copy of a tensor's values; bfloat16 becomes float32."""
        tensor = tensor.detach()
        if tensor.dtype == self.torch.bfloat16:
            tensor = tensor.float()
        return np.array(tensor.cpu().numpy())

    def is_tensor(self, value: Any) -> bool:
        """Tell whether ``value`` is a torch tensor."""
        return bool(self.torch.is_tensor(value))

    def concat(self, tensors: Sequence[Any]) -> Any:
        """Join tensors along axis 0."""
        return self.torch.cat(list(tensors))

    def trainer(self, model: Any, optimizer: Builder, learning_rate: float, args: Mapping[str, Any],
                scheduler: Builder | None, scheduler_args: Mapping[str, Any]) -> TorchTrainer:  # fmt: skip
        """Build the optimizer, then the scheduler over it."""
        built = make_optimizer(optimizer, model, learning_rate, args)
        plain = (number for number, group in enumerate(built.param_groups) if group["lr"] == learning_rate)
        shown = next(plain, 0)
        return TorchTrainer(built, scheduler(built, **scheduler_args) if scheduler else None, shown)

    def parameters(
        self, model: Any, names: Mapping[str, str], *, shared: bool = False
    ) -> Iterator[tuple[str, Array]]:
        """Yield every parameter that the port has too; ``shared``: perhaps torch's own memory."""
        for name, parameter in model.named_parameters():
            if not only_in_torch(name, names):
                yield name, self._values(parameter, shared=shared)

    def gradients(
        self, model: Any, names: Mapping[str, str], *, shared: bool = False
    ) -> Iterator[tuple[str, Array]]:
        """Yield the gradient of every parameter that has one and that the port has too; ``shared``: as with `parameters`."""
        for name, parameter in model.named_parameters():
            gradient = self.gradient(parameter)
            if gradient is not None and not only_in_torch(name, names):
                yield name, self._values(gradient, shared=shared)

    def _values(self, tensor: Any, *, shared: bool) -> Array:
        """Return a tensor's values: torch's own memory where that may be and numpy can hold it."""
        floats = tensor.dtype in (self.torch.float32, self.torch.float64)
        own = shared and floats and tensor.device.type == "cpu"
        values: Array = tensor.detach().numpy() if own else self.array(tensor)
        return values

    def gradient(self, parameter: Any) -> Any:
        """Return a parameter's gradient, dense; None where there is none."""
        found = parameter.grad
        return found.to_dense() if found is not None and found.is_sparse else found

    def buffers(self, model: Any, names: Mapping[str, str]) -> Iterator[tuple[str, Array]]:
        """Yield every persistent buffer but what the port does not have, such as ``num_batches_tracked``."""
        kept = set(model.state_dict(keep_vars=True))
        for name, buffer in model.named_buffers():
            if name in kept and not name.endswith("num_batches_tracked") and not only_in_torch(name, names):
                yield name, self.array(self._variances.biased(name, buffer) if self._variances else buffer)

    def watch_variances(self, model: Any) -> None:
        """From now on follow BatchNorm's running variances as Paddle defines them."""
        if self._variances is not None:
            self._variances.stop()
        self._variances = RunningVariances(self.torch, model)

    def shared_statistics(self, model: Any) -> AbstractContextManager[Any]:  # noqa: ARG002
        """Return a context in which the watched model has Paddle's running variances."""
        return nullcontext() if self._variances is None else self._variances.in_place()

    def batches(self, dataset: Any, indices: Sequence[Sequence[int]]) -> Iterator[Batch]:
        """Load the given samples with torch's DataLoader."""
        loader = self.torch.utils.data.DataLoader(dataset, batch_sampler=[list(batch) for batch in indices])
        for image, label, files in (check_batch(one, dataset) for one in loader):
            yield image.to(self.device), label.to(self.device), [str(file) for file in files]
