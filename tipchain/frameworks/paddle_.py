"""The Paddle side."""

from __future__ import annotations

import logging
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tipchain.core.machine import kept_import
from tipchain.errors import MissingFrameworkError
from tipchain.framework_types import Array, Dataset, Model, Nested, Optimizer, Options, Schedule, Tensor
from tipchain.frameworks.base import (
    Batch,
    Builder,
    LoadedFramework,
    Trainer,
    check_batch,
    make_optimizer,
    map_nested,
    rate_factor,
    widened_array,
)
from tipchain.frameworks.randomness import Draws, attributes, switched_off
from tipchain.modes import Device
from tipchain.weights.files import load_paddle_weights, view_of
from tipchain.weights.sides import TensorSlot, assemble, divide, dtype_name, stack, torch_view

# Paddle's batches, made to end where a sample cannot be read.
#
# Without worker processes Paddle's DataLoader reads in a thread of this one. An exception in the data set ends that
# thread, and whoever waits for the next batch waits for ever (Paddle 3.3). So no thread reads here.


LATE_S = 5.0
"""Seconds that the loader's thread may take to say why it ended."""


def load_batches(dataset: Dataset, indices: Iterable[Sequence[int]], *, num_workers: int = 0) -> Iterator[Nested]:
    """Yield the batches of ``dataset`` whose samples a batch sampler, or a list, names.

    Raises:
        Exception: whatever the data set raised, or putting its samples together did.
    """
    import paddle
    from paddle.io.dataloader.collate import default_collate_fn

    if num_workers:
        with _raised_in_threads() as raised:
            yield from paddle.io.DataLoader(dataset, batch_sampler=indices, return_list=True, num_workers=num_workers)
        if raised:
            raise raised[0]
        return
    for batch in indices:
        samples = default_collate_fn([dataset[index] for index in batch])
        yield map_nested(lambda one: paddle.to_tensor(one) if isinstance(one, np.ndarray) else one, samples)


@contextmanager
def _raised_in_threads() -> Iterator[list[BaseException]]:
    """Keep exceptions of the threads of Paddle's loader; of a worker's exception they alone have the traceback.

    The loader itself raises a SystemError then, which does not say why.
    """
    raised: list[BaseException] = []
    ended = threading.Event()
    usual = threading.excepthook

    def keep(args: threading.ExceptHookArgs) -> None:
        frames = traceback.walk_tb(args.exc_traceback)
        if any(frame.f_globals.get("__name__", "").startswith("paddle.io") for frame, _ in frames):
            raised.extend(filter(None, [args.exc_value]))
            ended.set()
        else:
            usual(args)

    threading.excepthook = keep
    try:
        yield raised
    except SystemError:
        if not ended.wait(LATE_S):
            raise
    finally:
        threading.excepthook = usual


# What Paddle draws at random, taken from a `Draws`: its functions find their operators in ``paddle._C_ops`` when they are called.


OWN = ("multinomial", "poisson", "binomial", "standard_gamma", "dirichlet", "random_", "dropout_nd")
"""Operators that draw and are left to Paddle."""
ATTENTION = {"flash_attn": 5, "flash_attn_unpadded": 9, "memory_efficient_attention": 8}
"""Kernels of GPUs that drop inside, by the place of the probability among their arguments."""


def drawing(paddle: ModuleType, draws: Draws) -> AbstractContextManager[None]:
    """Return a context in which Paddle's operators take their random numbers from ``draws``."""
    operators, made = paddle._C_ops, _Operators(paddle, draws)  # noqa: SLF001
    there = (name for name in (*OWN, *ATTENTION, *_REPLACED) if hasattr(operators, name))
    return attributes(operators, **{name: made.replacement(name, getattr(operators, name)) for name in there})


@dataclass(frozen=True, slots=True)
class _Operators:
    """Operators with the names and arguments of Paddle's."""

    paddle: Any
    draws: Draws

    def replacement(self, name: str, original: Callable[..., Any]) -> Callable[..., object]:
        if name in _REPLACED:
            return partial(_REPLACED[name], self, original)

        def replacement(*args: object, **kwargs: object) -> object:
            if name in OWN or (len(args) > ATTENTION[name] and args[ATTENTION[name]]):
                self.draws.own()
            return original(*args, **kwargs)

        return replacement

    def tensor(self, numbers: Any, dtype: Any) -> Any:
        return self.paddle.to_tensor(np.ascontiguousarray(numbers)).astype(dtype)

    def filled(self, out: Any, numbers: Any, dtype: Any) -> Any:
        """Return numbers as a tensor: ``out``, if there is one."""
        made = self.tensor(numbers, dtype)
        return made if out is None else self.paddle.assign(made, out)


def _dropout(
    to: _Operators,
    original: Any,
    x: Any,
    seeds: Any,
    rate: Any,
    is_test: Any,
    mode: str,
    *more: Any,
    in_place: bool = False,
) -> Any:
    rate = float(rate)
    if is_test or rate == 0:
        return original(x, seeds, rate, is_test, mode, *more)
    # As torch, which draws nothing for a rate of 1.
    mask = 0 * x.detach() if rate == 1 else to.tensor(to.draws.kept(x.shape, rate), x.dtype)
    factors = mask if rate == 1 or mode.startswith("down") else mask * (1 / (1 - rate))
    return x.multiply_(factors) if in_place else x * factors


def _dropout_and_add(
    to: _Operators, _original: Any, x: Any, y: Any, seeds: Any, rate: Any, is_test: Any, mode: str, *more: Any
) -> Any:
    functional = to.paddle.nn.functional
    del seeds, more
    return functional.dropout(x, float(rate), training=not is_test, mode=mode) + y, None


def _rnn(to: _Operators, original: Any, x: Any, states: Any, weights: Any, *given: Any) -> Any:
    """Compute `rnn` for ``x`` of shape ``[time, batch, size]``: layer by layer, with masks between the layers.

    The weights are those of all layers, two for each direction, and then the biases likewise.
    """
    lengths, kept, rate, bidirectional, size, hidden, layers, mode, seed, is_test, *more = given
    if is_test or not rate or layers == 1:
        return original(x, states, weights, *given)
    ways, ends = 1 + bidirectional, []
    for layer in range(layers):
        own = slice(2 * ways * layer, 2 * ways * (layer + 1)), slice(ways * layer, ways * (layer + 1))
        half = 2 * ways * layers
        held = [*weights[:half][own[0]], *weights[half:][own[0]]]
        first = [one[own[1]] for one in states]
        if layer:
            size = int(x.shape[-1])
            x = to.paddle.nn.functional.dropout(x, rate)
        x, reserve, last = original(
            x, first, held, lengths, kept, 0.0, bidirectional, size, hidden, 1, mode, seed, is_test, *more
        )
        ends.append(last)
    return x, reserve, [to.paddle.concat(each) for each in zip(*ends, strict=True)]


def _bernoulli(to: _Operators, _original: Any, x: Any, **_: Any) -> Any:
    odds = x.detach().numpy().astype(np.float64)
    if odds.size and bool((odds == odds.flat[0]).all()):
        return to.tensor(to.draws.kept(x.shape, 1.0 - float(odds.flat[0])), x.dtype)
    return to.tensor(to.draws.uniform(x.shape) >= 1.0 - odds, x.dtype)


def _uniform(
    to: _Operators, _original: Any, shape: Any, dtype: Any, low: float, high: float, *_: Any, out: Any = None
) -> Any:
    return to.filled(out, low + (high - low) * to.draws.uniform(shape).astype(np.float64), dtype)


def _normal(
    to: _Operators, _original: Any, shape: Any, mean: float, std: float, seed: int, dtype: Any, *_: Any, out: Any = None
) -> Any:
    del seed
    return to.filled(out, mean + std * to.draws.normal(shape).astype(np.float64), dtype)


def _integers(to: _Operators, _original: Any, low: int, high: int, shape: Any, dtype: Any, *_: Any, **__: Any) -> Any:
    return to.tensor(low + np.floor(to.draws.uniform(shape).astype(np.float64) * (high - low)), dtype or "int64")


def _leaky(to: _Operators, original: Any, x: Any, low: float, high: float, is_test: Any, *more: Any) -> Any:
    if not is_test:
        to.draws.own(x.shape)
    return original(x, low, high, is_test, *more)


_REPLACED: dict[str, Callable[..., Any]] = {
    "dropout": _dropout,
    "dropout_": partial(_dropout, in_place=True),
    "fused_dropout_add": _dropout_and_add,
    "rnn": _rnn,
    "bernoulli": _bernoulli,
    "uniform": _uniform,
    "uniform_inplace_": lambda to, original, x, low, high, *_: _uniform(
        to, original, x.shape, x.dtype, low, high, out=x
    ),
    "gaussian": _normal,
    "gaussian_inplace_": lambda to, original, x, mean, std, *_: _normal(
        to, original, x.shape, mean, std, 0, x.dtype, out=x
    ),
    "exponential_": lambda to, _, x, rate=1.0: to.filled(
        x, -np.log(to.draws.uniform(x.shape).astype(np.float64)) / rate, x.dtype
    ),
    "randint": _integers,
    "randperm": lambda to, _, n, dtype, *_more, out=None: to.filled(
        out, np.argsort(to.draws.uniform((n,)), kind="stable"), dtype
    ),
    "rrelu": _leaky,
}
"""Replaced operators, with their replacements."""


# Paddle's parameters under an optimizer, with gradients from outside.


class PaddleUpdates:
    """A Paddle optimizer over the parameters of a layer, by torch's names; ``clip`` is called before each update.

    Attributes:
        keeps_rate: it is of a user's own class that lets nobody ask for its rate or set it.
    """

    def __init__(
        self,
        framework: PaddleFramework,
        slots: Mapping[str, TensorSlot],
        optimizer: Optimizer,
        clip: Callable[[], object] | None = None,
    ) -> None:
        self.framework, self.slots, self.optimizer, self.clip = framework, slots, optimizer, clip
        self.keeps_rate = not (hasattr(optimizer, "get_lr") and hasattr(optimizer, "set_lr"))
        self.first = 0.0 if self.keeps_rate else float(optimizer.get_lr())
        self._share = 1.0
        self._schedule: Schedule = None

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter, as torch has it."""
        return {name: tuple(slot.shape) for name, slot in self.slots.items()}

    def tensor(self, name: str) -> Tensor:
        """Return the first part of a parameter."""
        return self.slots[name].parts[0].tensor

    def value(self, name: str) -> Array:
        """Return a copy of a parameter, in torch's layout."""
        return self.framework.whole(self.slots[name])

    def assign(self, name: str, value: Array) -> None:
        """Set a parameter."""
        slot = self.slots[name]
        for part, array in zip(slot.parts, divide(value, slot), strict=True):
            self.framework.assign(part.tensor, array)

    def add_gradient(self, name: str, gradient: Array) -> None:
        """Add to a parameter's gradient; a frozen one gets none."""
        slot = self.slots[name]
        for part, array in zip(slot.parts, divide(gradient, slot), strict=True):
            one = part.tensor
            if not one.stop_gradient:
                given = self.framework.tensor(array)
                given = given if given.dtype == one.dtype else given.astype(one.dtype)
                one.grad = given if one.grad is None else one.grad + given

    def give(self, gradients: Mapping[str, Array | None]) -> None:
        """Set some parameters' gradients, or take them away."""
        for name, gradient in gradients.items():
            for part in self.slots[name].parts:
                part.tensor.grad = None
            if gradient is not None:
                self.add_gradient(name, gradient)

    def step(self) -> None:
        """Update, then clear the gradients."""
        if self.clip is not None:
            self.clip()
        with self.framework.any_precision():
            self.optimizer.step()
        self.optimizer.clear_grad()

    def set_rate(self, factor: float) -> None:
        """Set the rate to ``factor`` times the first one; the parameters' multipliers stay."""
        if self._schedule is None:
            self.optimizer.set_lr(self.first * factor)
        else:
            self._share = factor
            self._schedule.step()

    def hold_rate(self, rate: float) -> None:
        """Replace the optimizer's schedule by one that stays at a rate."""
        self._schedule = self.framework.paddle.optimizer.lr.LambdaDecay(rate, lambda _: self._share)
        self.optimizer.set_lr_scheduler(self._schedule)

    def rates(self) -> dict[str, float]:
        """Return the present rate of each parameter: the optimizer's times the parameter's factor."""
        if self.keeps_rate:
            return {}
        rate, held = float(self.optimizer.get_lr()), {id(one) for one in held_parameters(self.optimizer)}
        known = (name for name in self.slots if not held or id(self.tensor(name)) in held)
        return {name: rate * self.factor(name) for name in known}

    def factor(self, name: str) -> float:
        """Return the factor of the learning rate that a parameter has."""
        return rate_factor(self.optimizer, self.tensor(name))

    def momentum(self) -> float:
        """Return 0: no schedule of Paddle's moves the momentum."""
        return 0.0


def held_parameters(optimizer: object) -> list[Tensor]:
    """Return the tensors that a Paddle optimizer updates."""
    return [one for _, tensors in parameter_groups(optimizer) for one in tensors]


def parameter_groups(optimizer: object) -> list[tuple[Options, list[Tensor]]]:
    """Return the settings and the tensors of a Paddle optimizer's groups; without groups one that has no settings."""
    held = getattr(optimizer, "_param_groups", None) or getattr(optimizer, "_parameter_list", None) or ()
    if all(isinstance(one, dict) for one in held):
        return [(group, list(group["params"])) for group in held]
    return [({}, list(held))]


def own_schedule(optimizer: object) -> Schedule:
    """Return the schedule that a Paddle optimizer was given as its learning rate, None where that is a number."""
    rate = getattr(optimizer, "_learning_rate", None)
    return None if isinstance(rate, int | float) else rate


class SparingTrainer(Trainer):
    """A trainer that leaves the same gradients as Paddle's own `clear_grad`, without the memory that takes.

    `clear_grad` fills each gradient with zeros, to which backward adds the next one: as much memory again, and three passes
    over it. Here the gradient goes; a parameter that gets no next one has zeros when the optimizer looks.
    """

    _cleared: Sequence[Tensor] = ()

    def step(self) -> None:
        """Update the parameters and clear their gradients."""
        from paddle import zeros_like

        for one in self._cleared:
            if one.grad is None:
                one.grad = zeros_like(one)
        self.optimizer.step()
        held = [one for one in held_parameters(self.optimizer) if not one.stop_gradient]
        self._cleared = [one for one in held if one.grad is not None and not one.grad.is_selected_rows()]
        for one in self._cleared:
            one.grad = None
        self._clear()  # what is left: sparse gradients


# The Paddle side.


TYPED = "cast cast_ full full_ full_like arange linspace logspace eye empty empty_like sum".split()
"""Operators that are told the precision of their result."""


class PaddleFramework(LoadedFramework):
    """paddle, imported by the constructor."""

    name = "paddle"

    def __init__(self) -> None:
        try:
            with kept_import("paddle"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # paddle's import warns about ccache
                import paddle
        except ImportError as error:
            raise MissingFrameworkError(
                f"paddle cannot be imported: {error}\n"
                "  install it: pip install paddlepaddle; align may be given its dumps instead: --port, or record torch's: --record torch"
            ) from error
        logging.getLogger("paddle").setLevel(logging.WARNING)
        self.paddle = self.library = paddle
        self._to_tensor = paddle.to_tensor  # what a model calls may be widened
        self.place = "cpu"

    def versions(self) -> dict[str, str]:
        """Return paddle's version, with the CUDA version of the build if it has one."""
        cuda = self.paddle.version.cuda()
        return {"paddle": self.paddle.__version__, **({"cuda": str(cuda)} if str(cuda) != "False" else {})}

    def configure(self, device: Device, seed: int, threads: int) -> str:  # noqa: ARG002  (OMP_NUM_THREADS rules)
        """Choose device and seed; TF32 off, deterministic kernels on a GPU."""
        paddle = self.paddle
        if device.is_gpu:
            built = paddle.is_compiled_with_cuda()
            count = paddle.device.cuda.device_count() if built else 0
            if device.number >= count:
                raise MissingFrameworkError(
                    f"paddle {paddle.__version__} has no usable {device}: "
                    + (f"it sees {count} GPUs" if built else "it is a CPU build")
                    + "\n  expected: a GPU build of Paddle (docs/how-to/gpu.md) and a visible GPU; or --device cpu"
                )
            self.place = f"gpu:{device.number}"
            paddle.set_flags({"FLAGS_cudnn_deterministic": True})
        paddle.set_device(self.place)
        self.seed(seed)
        return str(paddle.device.cuda.get_device_name(device.number)) if device.is_gpu else "cpu"

    def _seed_own(self, seed: int) -> None:
        self.paddle.seed(seed)

    def build(self, builder: Builder, args: Mapping[str, object]) -> Any:
        """Return the layer; it lives on the device that `configure` chose."""
        return builder(**args)

    def undrawn(self) -> AbstractContextManager[None]:
        """Return a context in which parameters are zero whose initial values would be drawn: that takes longer than loading others."""
        parameter = self.paddle.base.framework.EagerParamBase
        kinds = self.paddle.nn.initializer
        base, usual = kinds.initializer.Initializer, kinds.initializer.Initializer.__call__
        normal = kinds.normal.NormalInitializer, kinds.normal.TruncatedNormalInitializer
        drawn = *normal, kinds.uniform.UniformInitializer, kinds.xavier.XavierInitializer, kinds.kaiming.MSRAInitializer

        def initialize(initializer: object, tensor: object, block: object = None) -> object:
            spared = isinstance(initializer, drawn) and isinstance(tensor, parameter)
            return usual(kinds.Constant(0.0) if spared else initializer, tensor, block)

        return attributes(base, __call__=initialize)

    def load_weights(self, model: object, path: Path) -> None:
        """Load a ``.pdparams`` file; every key and shape must fit."""
        load_paddle_weights(model, path)

    def let_backward(self, model: Model) -> None:
        """Let a model be run backward in eval mode, which Paddle's recurrent layers cannot on a CPU.

        They are in train mode then, without dropout: there is no other difference.
        """
        for layer in model.sublayers(include_self=True):
            if isinstance(layer, self.paddle.nn.layer.rnn.RNNBase) and not layer.training:
                layer.training, layer.dropout = True, 0.0

    @contextmanager
    def widening(self, *, claims: bool) -> Iterator[None]:  # noqa: ARG002
        """Let code that asks Paddle for float32 get float64 for a while: a cast to float32 does nothing to a model in float32."""
        operators, single, double = self.paddle._C_ops, self.paddle.float32, self.paddle.float64  # noqa: SLF001

        def wider(original: Callable[..., Any]) -> Callable[..., Any]:
            def replacement(*args: object, **kwargs: object) -> object:
                args = tuple(double if isinstance(one, type(single)) and one == single else one for one in args)
                return original(*args, **kwargs)

            return replacement

        def to_tensor(data: object, dtype: object = None, *args: object, **kwargs: object) -> object:
            asked = double if str(dtype).endswith("float32") else dtype
            return self._to_tensor(widened_array(data), asked, *args, **kwargs)

        there = (name for name in TYPED if hasattr(operators, name))
        one_hot = operators.one_hot  # whose result is in float32 always
        with (
            attributes(operators, **{name: wider(getattr(operators, name)) for name in there}),
            attributes(operators, one_hot=lambda *args: one_hot(*args).astype(double)),
            attributes(self.paddle, to_tensor=to_tensor),
        ):
            yield

    def widened(self, value: Any) -> Any:
        """Return a layer or a tensor of floats in float64; a layer's whole numbers and flags stay, which `Layer.to` casts too.

        It ends with an error at those that hold nothing yet, as the state of an LSTM's dropout.
        """
        if isinstance(value, self.paddle.nn.Layer):
            kept = [
                (one._buffers, name, tensor)  # noqa: SLF001
                for one in value.sublayers(include_self=True)
                for name, tensor in one._buffers.items()  # noqa: SLF001
                if tensor is not None and not tensor.is_floating_point()
            ]
            for buffers, name, _ in kept:
                buffers[name] = None
            value.to(dtype="float64")
            for buffers, name, tensor in kept:
                buffers[name] = tensor
            return value
        floats = self.is_tensor(value) and self.paddle.is_floating_point(value)
        return value.astype("float64") if floats else value

    def randomness(self, draws: Draws | None) -> AbstractContextManager[None]:
        """Return a context in which random numbers are ``draws``; None switches dropout off."""
        return switched_off(self.paddle.nn.functional) if draws is None else drawing(self.paddle, draws)

    def watch_variances(self, model: object) -> None:
        """Do nothing: Paddle's running variances are the definition."""

    def shared_statistics(self, model: object) -> AbstractContextManager[object]:  # noqa: ARG002
        """Return a context that changes nothing."""
        return nullcontext()

    def tensor(self, array: Array, *, gradient: bool = False) -> Any:
        """Return ``array`` as a tensor on the device; ``gradient``: floats collect theirs."""
        floating = np.issubdtype(np.asarray(array).dtype, np.inexact)
        return self._to_tensor(array, place=self.place, stop_gradient=not (gradient and floating))

    def assign(self, tensor: Tensor, values: Array) -> None:
        """Give a tensor other values of its shape, where it lies."""
        narrow = tensor.dtype == self.paddle.bfloat16  # which numpy lacks
        values = np.asarray(values, dtype=np.float32 if narrow else dtype_name(tensor), order="C")
        tensor.set_value(self.tensor(values).astype(tensor.dtype) if narrow else values)

    def array(self, tensor: Tensor) -> Array:
        """Return a copy of a tensor's values; bfloat16 (uint16 in numpy) becomes float32."""
        tensor = tensor.detach()
        if tensor.dtype == self.paddle.bfloat16:
            tensor = tensor.astype("float32")
        values: Array = tensor.numpy()  # it copies, on the CPU too
        return values

    def view(self, tensor: Tensor) -> Array:
        """Return a tensor's values, without copying them if they are on the CPU; bfloat16 becomes float32."""
        return self.array(tensor) if tensor.dtype == self.paddle.bfloat16 else view_of(tensor)

    def trainer(
        self,
        model: object,
        optimizer: Builder,
        learning_rate: float,
        args: Mapping[str, object],
        scheduler: Builder | None,
        scheduler_args: Mapping[str, object],
    ) -> Trainer:
        """Build the scheduler, then the optimizer over it."""
        schedule = scheduler(None, learning_rate=learning_rate, **scheduler_args) if scheduler else None
        rate = learning_rate if schedule is None else schedule
        built = make_optimizer(optimizer, model, rate, args)
        usual = getattr(built.clear_grad, "__func__", None) is self.paddle.optimizer.Optimizer.clear_grad
        return (SparingTrainer if usual else Trainer)(built, schedule, built.get_lr, built.clear_grad)

    def updates(self, model: Model, optimizer: Optimizer, names: Mapping[str, str]) -> PaddleUpdates:
        """Return the parameters, by torch's names, under the optimizer."""
        return PaddleUpdates(self, {slot.name: slot for slot in self._slots(model, names, "parameter")}, optimizer)

    def any_precision(self) -> AbstractContextManager[None]:
        """Return a context in which Paddle's clipping by norm takes float64, which its kernel on a CPU does not."""
        paddle, clip = self.paddle, self.paddle.nn.clip
        usual = clip.clip_by_norm

        def clip_by_norm(x: Tensor, max_norm: float, name: str | None = None) -> object:
            if x.dtype == paddle.float32:
                return usual(x, max_norm, name)
            norm = paddle.linalg.norm(x)
            return x * (max_norm / paddle.maximum(norm, paddle.full_like(norm, max_norm)))

        return attributes(clip, clip_by_norm=clip_by_norm)

    def parameters(
        self, model: Model, names: Mapping[str, str], *, shared: bool = False
    ) -> Iterator[tuple[str, Array]]:
        """Yield every parameter under torch's name and in torch's layout; ``shared``: perhaps Paddle's own memory."""
        for slot in self._slots(model, names, "parameter"):
            yield slot.name, self.whole(slot, shared=shared)

    def gradients(self, model: Model, names: Mapping[str, str], *, shared: bool = False) -> Iterator[tuple[str, Array]]:
        """Yield the gradient of every parameter that has one; a piece of a packed parameter without one is zero.

        ``shared``: they may be Paddle's own memory, which later gradients are added to.
        """
        for slot in self._slots(model, names, "parameter"):
            found = [self.gradient(part.tensor) for part in slot.parts]
            if any(one is not None for one in found):
                pairs = zip(slot.parts, found, strict=True)
                dense = [self.paddle.zeros_like(part.tensor) if one is None else one for part, one in pairs]
                yield slot.name, self.whole(slot, dense, shared=shared)

    def gradient(self, parameter: Tensor) -> Any:
        """Return a parameter's gradient, dense; None where there is none."""
        found = parameter.grad
        if found is None or not found.is_selected_rows():
            return found
        dense = np.zeros(parameter.shape, found.numpy().dtype)
        np.add.at(dense, found.rows(), found.numpy())  # a row that was taken twice is listed twice
        return self.tensor(dense)

    def buffers(self, model: object, names: Mapping[str, str]) -> Iterator[tuple[str, Array]]:
        """Yield every persistent buffer."""
        for slot in self._slots(model, names, "buffer"):
            yield slot.name, self.whole(slot)

    def batches(self, dataset: Dataset, indices: Sequence[Sequence[int]]) -> Iterator[Batch]:
        """Load the given samples and put them together as Paddle's DataLoader does."""
        for image, label, files in (check_batch(one, dataset) for one in load_batches(dataset, indices)):
            yield image, label, [str(file) for file in files]

    def whole(self, slot: TensorSlot, given: Sequence[Any] | None = None, *, shared: bool = False) -> Array:
        """Return torch's array of a slot: of its parts, or of tensors of their layout; ``shared``: perhaps their own memory."""
        tensors = [part.tensor for part in slot.parts] if given is None else given
        if shared:
            return assemble([self.view(one) for one in tensors], slot)
        # Paddle's kernel transposes in half of the time that numpy.ascontiguousarray takes for it, and into new memory.
        pieces = [
            self.view(self.paddle.t(tensor.detach()).contiguous()) if part.transpose else self.array(tensor)
            for part, tensor in zip(slot.parts, tensors, strict=True)
        ]
        return stack(pieces, slot)

    def _slots(self, model: Model, names: Mapping[str, str], kind: str) -> Iterator[TensorSlot]:
        return (slot for slot in torch_view(model, names) if slot.kind == kind)
