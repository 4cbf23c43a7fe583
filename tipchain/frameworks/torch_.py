"""The torch side, in float32 and in float64."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tipchain.core.machine import kept_import
from tipchain.errors import MissingFrameworkError
from tipchain.framework_types import Array, Dataset, Hook, Model, Optimizer, Tensor
from tipchain.frameworks.base import (
    Batch,
    Builder,
    LoadedFramework,
    Trainer,
    check_batch,
    make_optimizer,
    widened_array,
)
from tipchain.frameworks.randomness import Draws, attributes, switched_off
from tipchain.modes import Device
from tipchain.numbers.compare import PIECE
from tipchain.weights.files import load_torch_weights
from tipchain.weights.sides import only_in_torch

# What torch draws at random, taken from a `Draws`: below its functions, where dropout and attention have become operators.


OWN = frozenset(
    f"aten::{name}"
    for name in (
        "multinomial poisson binomial cauchy_ geometric_ log_normal_ _standard_gamma "
        "_sample_dirichlet rrelu_with_noise rrelu_with_noise_"
    ).split()
)
"""Operators that draw and are left to torch."""
ATTENTION = {
    "aten::_scaled_dot_product_flash_attention": 3,
    "aten::_scaled_dot_product_efficient_attention": 5,
    "aten::_scaled_dot_product_cudnn_attention": 5,
}
"""Kernels that drop inside, by the place of the probability among their arguments."""


@cache
def dispatch_mode() -> Any:
    """Return the base class of modes that are given each of torch's operators."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class DispatchMode(TorchDispatchMode):  # type: ignore[misc]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """Tell torch.compile's machinery to leave this alone only where it is loaded: importing it takes over a second."""
            return "torch._dynamo" in sys.modules

    return DispatchMode


@cache
def _drawing(torch: ModuleType) -> Any:
    """Return the class of modes in which torch's operators take their random numbers from a `Draws`."""

    class Drawing(dispatch_mode()):  # type: ignore[misc]
        def __init__(self, draws: Draws) -> None:
            super().__init__()
            self.draws = draws

        def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> object:
            name, kwargs = func._schema.name, kwargs or {}  # noqa: SLF001
            if name == "aten::native_dropout":  # which a GPU has: the result and the mask
                values, rate, train = args
                if train is False or not 0 < rate < 1:
                    return func(values, rate, train)
                mask = torch.from_numpy(self.draws.kept(values.shape, rate)).to(values.device, torch.bool)
                return values * mask / (1 - rate), mask
            if name in OWN or (name in ATTENTION and _nth(args, kwargs, ATTENTION[name], "dropout_p", 0.0)):
                self.draws.own()
            result = func(*args, **kwargs)
            fill = FILLING.get(name)
            if fill is not None:
                numbers = fill(self.draws, result, args, kwargs)
                if not torch.is_tensor(numbers):
                    numbers = torch.from_numpy(np.ascontiguousarray(numbers)).to(result.device)
                result.copy_(numbers.reshape(result.shape))
            return result

    return Drawing


def _nth(args: Any, kwargs: Any, place: int, name: str, default: Any) -> Any:
    return args[place] if len(args) > place else kwargs.get(name, default)


def _bernoulli(draws: Draws, result: Any, args: Any, kwargs: Any) -> Any:
    """Return ones with a probability: given, or one for each element."""
    given = _nth(args, kwargs, 1, "p", None)
    if given is None:  # ``torch.bernoulli(probabilities)``
        given = args[0]
    if isinstance(given, float | int):
        return draws.kept(result.shape, 1.0 - given)
    odds = given.detach().cpu().double().numpy()
    return draws.uniform(result.shape) >= 1.0 - odds


def _uniform(draws: Draws, result: Any, args: Any, kwargs: Any) -> Any:
    low, high = _nth(args, kwargs, 1, "from", 0.0), _nth(args, kwargs, 2, "to", 1.0)
    return low + (high - low) * draws.uniform(result.shape).astype(np.float64)


def _normal_in_place(draws: Draws, result: Any, args: Any, kwargs: Any) -> Any:
    mean, std = _nth(args, kwargs, 1, "mean", 0.0), _nth(args, kwargs, 2, "std", 1.0)
    return mean + std * draws.normal(result.shape).astype(np.float64)


def _normal(draws: Draws, result: Any, args: Any, kwargs: Any) -> Any:
    mean, std = _nth(args, kwargs, 0, "mean", 0.0), _nth(args, kwargs, 1, "std", 1.0)
    return mean + std * result.new_tensor(draws.normal(result.shape))


def _integers(draws: Draws, result: Any, args: Any, _kwargs: Any) -> Any:
    """Return whole numbers: below the one that is given before the shape, or between two."""
    given = [one for one in args if isinstance(one, int)]
    low, high = (0, given[0]) if len(given) == 1 else given[:2]
    return low + np.floor(draws.uniform(result.shape).astype(np.float64) * (high - low))


FILLING: dict[str, Callable[[Draws, Any, Any, Any], Any]] = {
    "aten::bernoulli": _bernoulli,
    "aten::bernoulli_": lambda draws, result, args, kwargs: _bernoulli(
        draws, result, (None, _nth(args, kwargs, 1, "p", 0.5)), {}
    ),
    "aten::rand": lambda draws, result, *_: draws.uniform(result.shape),
    "aten::rand_like": lambda draws, result, *_: draws.uniform(result.shape),
    "aten::uniform_": _uniform,
    "aten::uniform": _uniform,
    "aten::randn": lambda draws, result, *_: draws.normal(result.shape),
    "aten::randn_like": lambda draws, result, *_: draws.normal(result.shape),
    "aten::normal_": _normal_in_place,
    "aten::normal": _normal,
    "aten::exponential_": lambda draws, result, args, kwargs: (
        -np.log(draws.uniform(result.shape).astype(np.float64)) / _nth(args, kwargs, 1, "lambd", 1.0)
    ),
    "aten::randint": _integers,
    "aten::randperm": lambda draws, result, *_: np.argsort(draws.uniform(result.shape), kind="stable"),
}
"""Operators whose results are filled anew, each with its filling."""


# torch's parameters under an optimizer, with gradients from outside.


class TorchUpdates:
    """A torch optimizer over the parameters of a module; ``clip`` is called before each update, as a training loop does."""

    def __init__(
        self,
        framework: TorchFramework,
        parameters: Mapping[str, Tensor],
        optimizer: Optimizer,
        clip: Callable[[], object] | None = None,
    ) -> None:
        self.framework, self.optimizer, self.clip = framework, optimizer, clip
        self.parameters = dict(parameters)
        self.first = [float(group["lr"]) for group in optimizer.param_groups]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter."""
        return {name: tuple(one.shape) for name, one in self.parameters.items()}

    def tensor(self, name: str) -> Tensor:
        """Return a parameter."""
        return self.parameters[name]

    def value(self, name: str) -> Array:
        """Return a copy of a parameter."""
        return self.framework.array(self.parameters[name])

    def assign(self, name: str, value: Array) -> None:
        """Set a parameter."""
        self.framework.assign(self.parameters[name], value)

    def add_gradient(self, name: str, gradient: Array) -> None:
        """Add to a parameter's gradient, as backward does; a frozen parameter gets none."""
        one = self.parameters[name]
        if one.requires_grad:
            given = self.framework.tensor(gradient).to(one.dtype)
            one.grad = given if one.grad is None else one.grad + given

    def step(self) -> None:
        """Update, then clear the gradients."""
        if self.clip is not None:
            self.clip()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def set_rate(self, factor: float) -> None:
        """Set each group's rate to ``factor`` times its own first one."""
        for group, rate in zip(self.optimizer.param_groups, self.first, strict=True):
            group["lr"] = rate * factor

    def rates(self) -> dict[str, float]:
        """Return the present rate of each parameter: its group's."""
        known = {id(one): float(group["lr"]) for group in self.optimizer.param_groups for one in group["params"]}
        return {name: known[id(one)] for name, one in self.parameters.items() if id(one) in known}

    def momentum(self) -> float:
        """Return the first group's momentum or beta1; OneCycleLR moves it unless told otherwise."""
        group = self.optimizer.param_groups[0]
        return float(group.get("momentum", group.get("betas", (0.0,))[0]))


# torch's running variances by Paddle's definition.


class RunningVariances:
    """Follows the running variances of a torch model's BatchNorm layers while it trains.

    torch adds the unbiased variance of a batch to ``running_var`` (``torch.nn.BatchNorm2d``, "Note"), Paddle the biased
    one. With n values per channel they differ by n/(n-1), so that a correct port would look wrong after training
    forwards. With the share f that a batch's variance has in the average (the momentum, or one over the number of
    batches where it is None) each forward makes ``(1 - f) v + f s`` of v; here it is followed with ``s (n-1)/n`` instead.
    """

    def __init__(self, torch: ModuleType, model: Model) -> None:
        batch_norm = torch.nn.modules.batchnorm._BatchNorm  # noqa: SLF001
        self._layers: dict[str, Any] = {
            f"{prefix}.running_var" if prefix else "running_var": layer
            for prefix, layer in model.named_modules()
            if isinstance(layer, batch_norm) and layer.running_var is not None
        }
        self._before = {name: layer.running_var.detach().double().clone() for name, layer in self._layers.items()}
        self._biased = dict(self._before)
        self._hooks: list[Hook] = []
        for name, layer in self._layers.items():
            self._hooks.append(layer.register_forward_pre_hook(partial(self._note, name)))
            self._hooks.append(layer.register_forward_hook(partial(self._follow, name)))

    def _note(self, name: str, layer: Model, _inputs: object) -> None:
        self._before[name] = layer.running_var.detach().double().clone()

    def _follow(self, name: str, layer: Model, inputs: Sequence[Any], _output: object) -> None:
        if not layer.training:
            return
        momentum, (images, *_) = layer.momentum, inputs
        share = 1 / float(layer.num_batches_tracked) if momentum is None else float(momentum)
        count = images.numel() // images.shape[1]
        added = layer.running_var.detach().double() - (1 - share) * self._before[name]
        self._biased[name] = (1 - share) * self._biased[name] + added * (max(count - 1, 0) / count)

    def biased(self, name: str, buffer: Any) -> Any:
        """Return a watched model's variance as Paddle would have it; any other buffer as it is."""
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


# Parameters of a torch model a little apart from what they are.


def perturb(model: Model, ulps: float, number: int) -> None:
    """Move each element of each parameter by ``ulps`` of float32, by a seeded coin; odd numbers mirror even ones."""
    import torch

    generator = np.random.default_rng(number // 2)
    distance = -ulps if number % 2 else ulps
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.is_floating_point():
                continue
            flat = parameter.detach().reshape(-1)
            for piece in flat.split(PIECE):  # what fits into a core's cache takes a twentieth of the time
                coins = torch.from_numpy(generator.integers(0, 2, len(piece), dtype=np.int8))
                steps = coins.to(piece.device, piece.dtype).mul_(2 * distance).sub_(distance)
                size = piece.abs().float()
                unit = torch.nextafter(size, torch.full_like(size, torch.inf)).sub_(size)
                piece.add_(steps.mul_(unit))
            if flat.data_ptr() != parameter.data_ptr():  # a layout that has no flat view
                parameter.copy_(flat.view_as(parameter))


# The torch side.


class Dynamo(ModuleType):
    """Stands for ``torch._dynamo`` until something compiles; the real module takes longer to import than torch itself.

    Every torch optimizer asks it to end a graph and to leave functions out of graphs: without a graph, both do nothing.
    Whoever asks for anything else gets the real module, which then takes this one's place.
    """

    def __init__(self, torch: Any) -> None:
        super().__init__("torch._dynamo")
        self._torch = torch

    def install(self) -> None:
        """Take the place of the module unless it is loaded."""
        if self.__name__ not in sys.modules:
            sys.modules[self.__name__] = self._torch._dynamo = self  # noqa: SLF001

    def graph_break(self, *args: Any, **kwargs: Any) -> None:
        """End the graph, which there is none of."""
        if sys.modules[self.__name__] is not self:
            self._real().graph_break(*args, **kwargs)

    def disable(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
        """Return a function that is left out of graphs, should there ever be one."""

        def call(*given: Any, **named: Any) -> Any:
            here = sys.modules[self.__name__] is self
            return (function if here else self._real().disable(function, *args, **kwargs))(*given, **named)

        return call

    def _real(self) -> Any:
        if sys.modules[self.__name__] is self:
            del sys.modules[self.__name__], self._torch._dynamo  # noqa: SLF001
        return importlib.import_module(self.__name__)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name != "__path__":  # whoever looks through all modules
            raise AttributeError(name)
        return getattr(self._real(), name)


class TorchFramework(LoadedFramework):
    """torch, imported by the constructor."""

    name = "torch"

    def __init__(self) -> None:
        try:
            with kept_import("torch"):
                import torch
        except ImportError as error:
            raise MissingFrameworkError(
                f"torch cannot be imported: {error}\n"
                "  install it: pip install torch; align may be given its dumps instead: --reference, or record Paddle's: --record paddle"
            ) from error
        self.torch = self.library = torch
        self._from_numpy = torch.from_numpy  # what a model calls may be widened
        self.device: Any = torch.device("cpu")
        self._variances: RunningVariances | None = None

    def versions(self) -> dict[str, str]:
        """Return torch's version, with the CUDA version of the build if it has one."""
        cuda = self.torch.version.cuda
        return {"torch": importlib.metadata.version("torch"), **({"cuda": cuda} if cuda else {})}

    def configure(self, device: Device, seed: int, threads: int) -> str:
        """Choose device, seed and threads; TF32 off; deterministic kernels on a GPU."""
        torch = self.torch
        Dynamo(torch).install()
        torch.set_num_threads(threads)
        if device.is_gpu:
            count = torch.cuda.device_count() if torch.cuda.is_available() else 0
            if device.number >= count:
                raise MissingFrameworkError(
                    f"torch {torch.__version__} has no usable {device}: it sees {count} GPUs\n"
                    "  expected: a CUDA build of torch and a visible GPU; or use --device cpu"
                )
            self.device = torch.device("cuda", device.number)
            torch.use_deterministic_algorithms(mode=True, warn_only=True)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = False
        self.seed(seed)
        return torch.cuda.get_device_name(self.device) if device.is_gpu else "cpu"

    def _seed_own(self, seed: int) -> None:
        if self.torch.cuda.is_available():
            self.torch.manual_seed(seed)
        else:  # which is quick, where manual_seed keeps a traceback for each device there might be
            self.torch.default_generator.manual_seed(seed)

    def build(self, builder: Builder, args: Mapping[str, object]) -> Any:
        """Return the module on the chosen device."""
        return builder(**args).to(self.device)

    def undrawn(self) -> AbstractContextManager[None]:
        """Return a context in which parameters are zero whose initial values would be drawn: that takes longer than loading others."""
        return attributes(
            self.torch.nn.Parameter, **dict.fromkeys(("uniform_", "normal_"), lambda one, *_, **__: one.zero_())
        )

    def load_weights(self, model: Model, path: Path) -> None:
        """Load a torch or ``.safetensors`` file; every key must fit."""
        load_torch_weights(model, path)

    def let_backward(self, model: Model) -> None:
        """Do nothing: torch runs a model backward in eval mode, too."""

    @contextmanager
    def widening(self, *, claims: bool) -> Iterator[None]:
        """Let code that asks torch for float32 get float64 for a while; ``claims``: tensors in float64 say that they are in float32.

        Backward is left alone: there a cast gives a tensor's gradient the precision of that tensor.
        """
        torch = self.torch

        def wider(original: Callable[..., Any]) -> Callable[..., Any]:
            def replacement(data: object, **kwargs: Any) -> object:
                asked = {"dtype": torch.float64} if kwargs.get("dtype") is torch.float32 else {}
                return original(widened_array(data), **{**kwargs, **asked})

            return replacement

        makers = {name: wider(getattr(torch, name)) for name in ("tensor", "as_tensor", "from_numpy")}
        with _widening(torch)(), _claiming(torch)() if claims else nullcontext(), attributes(torch, **makers):
            yield

    def widened(self, value: Any) -> Any:
        """Return a module or a tensor of floats in float64."""
        floats = isinstance(value, self.torch.nn.Module) or (self.is_tensor(value) and value.is_floating_point())
        return value.double() if floats else value

    def randomness(self, draws: Draws | None) -> AbstractContextManager[None]:
        """Return a context in which random numbers are ``draws``; None switches dropout off."""
        context: AbstractContextManager[None] = (
            switched_off(self.torch.nn.functional) if draws is None else _drawing(self.torch)(draws)
        )
        return context

    def tensor(self, array: Array, *, gradient: bool = False) -> Any:
        """Return ``array`` as a tensor on the device; ``gradient``: floats collect theirs."""
        made = self._from_numpy(np.array(array)).to(self.device)
        return made.requires_grad_() if gradient and made.is_floating_point() else made

    def assign(self, tensor: Tensor, values: Array) -> None:
        """Give a tensor other values of its shape, where it lies."""
        with self.torch.no_grad():
            tensor.copy_(self.tensor(values))

    def array(self, tensor: Tensor) -> Array:
        """Return a copy of a tensor's values; bfloat16 becomes float32, and a sparse tensor dense."""
        tensor = tensor.detach()
        if tensor.layout != self.torch.strided:
            tensor = tensor.to_dense()
        return np.array(self.view(tensor))

    def view(self, tensor: Tensor) -> Array:
        """Return a tensor's values, without copying them if they are on the CPU; bfloat16 becomes float32."""
        tensor = tensor.detach().cpu()
        values: Array = (tensor.float() if tensor.dtype == self.torch.bfloat16 else tensor).numpy()
        return values

    def trainer(
        self,
        model: object,
        optimizer: Builder,
        learning_rate: float,
        args: Mapping[str, object],
        scheduler: Builder | None,
        scheduler_args: Mapping[str, object],
    ) -> Trainer:
        """Build the optimizer, then the scheduler over it."""
        built = make_optimizer(optimizer, model, learning_rate, args)
        if type(built) is self.torch.optim.SGD:
            self._fuse(built)
        plain = (number for number, group in enumerate(built.param_groups) if group["lr"] == learning_rate)
        shown = next(plain, 0)  # of several groups the first that was built with the given rate, else the first
        schedule = scheduler(built, **scheduler_args) if scheduler else None
        return Trainer(built, schedule, lambda: built.param_groups[shown]["lr"], built.zero_grad)

    def _fuse(self, optimizer: Optimizer) -> None:
        """Let an SGD on a CPU update each parameter in one pass, where its builder leaves to torch how.

        Otherwise torch takes four passes and, with weight decay, a copy of each gradient. The values are the same bits but for a
        rounding in a parameter's last few.
        """
        floats = (self.torch.float32, self.torch.float64)
        open_ = [one for one in optimizer.param_groups if one["fused"] is None and one["foreach"] is None]

        def choose(*_: object) -> None:
            for group in open_:
                given = [(one, one.grad) for one in group["params"] if one.grad is not None]
                plain = all(a.device.type == "cpu" and a.dtype in floats and not b.is_sparse for a, b in given)
                group["fused"] = True if plain and not group["differentiable"] else None

        optimizer.register_step_pre_hook(choose)

    def updates(self, model: Model, optimizer: Optimizer, names: Mapping[str, str]) -> TorchUpdates:
        """Return the parameters that the port has too, under the optimizer."""
        shared = {name: one for name, one in model.named_parameters() if not only_in_torch(name, names)}
        return TorchUpdates(self, shared, optimizer)

    def any_precision(self) -> AbstractContextManager[None]:
        """Return a context that changes nothing."""
        return nullcontext()

    def parameters(
        self, model: Model, names: Mapping[str, str], *, shared: bool = False
    ) -> Iterator[tuple[str, Array]]:
        """Yield every parameter that the port has too; ``shared``: perhaps torch's own memory."""
        for name, parameter in model.named_parameters():
            if not only_in_torch(name, names):
                yield name, self.view(parameter) if shared else self.array(parameter)

    def gradients(self, model: Model, names: Mapping[str, str], *, shared: bool = False) -> Iterator[tuple[str, Array]]:
        """Yield the gradient of every parameter that has one and that the port has too; ``shared``: as with `parameters`."""
        for name, parameter in model.named_parameters():
            gradient = self.gradient(parameter)
            if gradient is not None and not only_in_torch(name, names):
                yield name, self.view(gradient) if shared else self.array(gradient)

    def gradient(self, parameter: Tensor) -> Any:
        """Return a parameter's gradient, dense; None where there is none."""
        found = parameter.grad
        return found.to_dense() if found is not None and found.is_sparse else found

    def buffers(self, model: Model, names: Mapping[str, str]) -> Iterator[tuple[str, Array]]:
        """Yield every persistent buffer but those that the port lacks, such as ``num_batches_tracked``."""
        kept = set(model.state_dict(keep_vars=True))
        for name, buffer in model.named_buffers():
            if name in kept and not name.endswith("num_batches_tracked") and not only_in_torch(name, names):
                yield name, self.array(self._variances.biased(name, buffer) if self._variances else buffer)

    def watch_variances(self, model: object) -> None:
        """From now on follow BatchNorm's running variances as Paddle defines them."""
        if self._variances is not None:
            self._variances.stop()
        self._variances = RunningVariances(self.torch, model)

    def shared_statistics(self, model: object) -> AbstractContextManager[object]:  # noqa: ARG002
        """Return a context in which the watched model has Paddle's running variances."""
        return nullcontext() if self._variances is None else self._variances.in_place()

    def batches(self, dataset: Dataset, indices: Sequence[Sequence[int]]) -> Iterator[Batch]:
        """Load the given samples with torch's DataLoader."""
        loader = self.torch.utils.data.DataLoader(dataset, batch_sampler=[list(batch) for batch in indices])
        for image, label, files in (check_batch(one, dataset) for one in loader):
            yield image.to(self.device), label.to(self.device), [str(file) for file in files]


# Floats that a widened model's code makes, in float64 as well.


@cache
def _widening(torch: ModuleType) -> Any:
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
