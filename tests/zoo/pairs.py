"""What a pair of models is made of, how both get equal weights, and ways to plant a fault."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import torch

from tipchain.weights.convert import to_paddle
from zoo import images_paddle, images_torch, sequences_paddle, sequences_torch

Plant = Callable[[Any], None]
"""Changes a port that has its weights."""
EVAL, TRAIN = "eval", "train"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A model of both frameworks, and something to call it with.

    Attributes:
        reference: builds torch's.
        port: builds Paddle's.
        inputs: arrays as `tipchain.align` takes them, made of a generator.
        classes: of the labels a loss is given; 0: the model is no classifier.
    """

    reference: Callable[[], Any]
    port: Callable[[], Any]
    inputs: Callable[[np.random.Generator], dict[str, Any]]
    classes: int = 0


@dataclass(slots=True, kw_only=True)
class Pair:
    """Two models and what they are compared with."""

    reference: Any
    port: Any
    inputs: dict[str, Any]
    training: bool = False
    loss: tuple[Any, Any] | None = None
    optimizers: tuple[Any, Any] | None = None
    schedulers: tuple[Any, Any] | None = None


def _images(channels: int, size: int, batch: int = 4) -> Callable[[np.random.Generator], dict[str, Any]]:
    return lambda random: {"args": _normal(random, batch, channels, size, size)}


def _tokens(words: int, length: int, batch: int = 3) -> Callable[[np.random.Generator], dict[str, Any]]:
    def make(random: np.random.Generator) -> dict[str, Any]:
        tokens = random.integers(1, words, (batch, length))
        tokens[0, length - 3 :] = 0  # padding
        return {"tokens": tokens}

    return make


def _normal(random: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return random.standard_normal(shape, dtype=np.float32)


def _both(name: str, inputs: Callable[..., Any], classes: int = 0, *, text: bool = False, **options: Any) -> Family:
    ours, theirs = (sequences_torch, sequences_paddle) if text else (images_torch, images_paddle)
    return Family(
        reference=lambda: getattr(ours, name)(**options),
        port=lambda: getattr(theirs, name)(**options),
        inputs=inputs,
        classes=classes,
    )


def _recurrent(kind: str, *, both_ways: bool = False) -> Family:
    return Family(
        reference=lambda: sequences_torch.Recurrent(kind, **({"bidirectional": True} if both_ways else {})),
        port=lambda: sequences_paddle.Recurrent(kind, **({"direction": "bidirect"} if both_ways else {})),
        inputs=_tokens(40, 9),
        classes=4,
    )


FAMILIES: Mapping[str, Family] = {
    "plain": _both("Plain", _images(3, 16), 10),
    "residual": _both("Residual", _images(3, 12), 10),
    "mobile": _both("Mobile", _images(3, 16), 10),
    "branches": _both("Branches", _images(3, 13, 2), 10),
    "unet": _both("UNet", _images(3, 12, 2)),
    "outputs": _both("Outputs", _images(3, 16, 3)),
    "clip": _both("Clip", lambda random: {"args": _normal(random, 4, 3, 8, 8, 8)}, 6),
    "frames": _both("Frames", lambda random: {"clip": _normal(random, 3, 4, 3, 12, 12)}, 6),
    "autoencoder": _both(
        "Autoencoder", lambda random: {"image": random.random((3, 1, 8, 8), np.float32), "noise": _normal(random, 3, 5)}
    ),
    "siamese": _both("Siamese", lambda random: {"args": (_normal(random, 4, 1, 8, 8), _normal(random, 4, 1, 8, 8))}),
    "deep": _both("Deep", lambda random: {"args": _normal(random, 5, 16)}, 4),
    "transformer": _both("Transformer", _tokens(40, 9), 5, text=True),
    "postnorm": _both("Transformer", _tokens(40, 9), 5, text=True, before=False),
    "dropout": _both("Transformer", _tokens(40, 9), 5, text=True, dropout=0.1),
    "language": _both("Language", _tokens(40, 9), text=True),
    "vision": _both("Vision", _images(3, 16, 3), 10, text=True),
    "lstm": _recurrent("LSTM"),
    "gru": _recurrent("GRU"),
    "bilstm": _recurrent("LSTM", both_ways=True),
    "translator": _both(
        "Translator",
        lambda random: {"source": random.integers(0, 30, (3, 7)), "target": random.integers(0, 30, (3, 5))},
        text=True,
    ),
    "builtin": _both("Builtin", lambda random: {"args": _normal(random, 3, 7, 6)}, text=True),
    "builtin-prenorm": _both("Builtin", lambda random: {"args": _normal(random, 3, 7, 6)}, text=True, norm_first=True),
}


def build(family: Family, seed: int = 0, *, training: bool = False) -> Pair:
    """Return a pair with equal weights: torch's initialization, and norms, biases and statistics that are not trivial."""
    torch.manual_seed(seed)
    paddle.seed(seed)
    reference, port = family.reference(), family.port()
    shake(reference, seed)
    copy_weights(reference, port)
    for model in (reference, port):
        model.train() if training else model.eval()
    random = np.random.default_rng(seed)
    inputs = family.inputs(random)
    if family.classes:
        first = next(iter(inputs.values()))
        samples = len(first[0] if isinstance(first, tuple) else first)
        inputs["labels"] = random.integers(0, family.classes, samples)
    return Pair(reference=reference, port=port, inputs=inputs, training=training)


def shake(reference: Any, seed: int) -> None:
    """Move all vectors of a torch model away from the 0 and 1 that they begin with."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in reference.state_dict().items():
            if not tensor.is_floating_point() or tensor.ndim > 1:
                continue
            noise = torch.randn(tensor.shape, generator=generator)
            if name.endswith("running_var"):
                tensor.copy_((0.3 * noise).exp() * 0.5)
            else:
                tensor.add_(0.2 * noise)


def copy_weights(reference: Any, port: Any) -> None:
    """Give the port the reference's weights; its `take` does that where it is there, `names` helps where not."""
    if hasattr(port, "take"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Paddle's, of what `take` has set by itself
            port.set_state_dict(port.take({name: tensor.numpy() for name, tensor in reference.state_dict().items()}))
        return
    names = getattr(port, "names", None)
    port.set_state_dict(to_paddle(reference, reference.state_dict(), port, names).state)


def layer_at(port: Any, path: str) -> Any:
    """Return a port's layer by its path."""
    return dict(port.named_sublayers(include_self=True))[path]


@dataclass(frozen=True, slots=True)
class code:  # noqa: N801
    """Plants a fault into the code of a layer's forward."""

    path: str
    fault: str

    def __call__(self, port: Any) -> None:
        layer = layer_at(port, self.path)
        assert layer.fault == "", "a layer of these nets"
        layer.fault = self.fault


@dataclass(frozen=True, slots=True)
class setting:  # noqa: N801
    """Sets attributes of a layer that it reads when it runs."""

    path: str
    values: Mapping[str, Any]

    def __call__(self, port: Any) -> None:
        layer = layer_at(port, self.path)
        for name, value in self.values.items():
            assert hasattr(layer, name), name
            setattr(layer, name, value)


@dataclass(frozen=True, slots=True)
class instead:  # noqa: N801
    """Puts another layer in the place of one; what parameters have the same names and shapes are kept."""

    path: str
    make: Callable[[], Any]

    def __call__(self, port: Any) -> None:
        old, new = layer_at(port, self.path), self.make()
        own, held = new.state_dict(), old.state_dict()
        same = [name for name in own if name in held and list(own[name].shape) == list(held[name].shape)]
        new.set_state_dict({name: (held if name in same else own)[name].numpy() for name in own})
        new.train() if old.training else new.eval()
        parent, _, name = self.path.rpartition(".")
        setattr(layer_at(port, parent), name, new)


@dataclass(frozen=True, slots=True)
class wrapped:  # noqa: N801
    """Puts a layer in the place of one that calls it and one more."""

    path: str
    make: Callable[[Any], Any]

    def __call__(self, port: Any) -> None:
        old = layer_at(port, self.path)
        new = self.make(old)
        new.train() if old.training else new.eval()
        parent, _, name = self.path.rpartition(".")
        setattr(layer_at(port, parent), name, new)


@dataclass(frozen=True, slots=True)
class weight:  # noqa: N801
    """Changes a parameter or buffer."""

    path: str
    change: Callable[[Any], Any]

    def __call__(self, port: Any) -> None:
        tensor = port.state_dict()[self.path]
        before = tensor.numpy()
        after = np.ascontiguousarray(self.change(before.copy()))
        assert after.shape == before.shape
        assert not np.array_equal(after, before), "the fault changes something"
        tensor.set_value(after.astype(before.dtype))


@dataclass(frozen=True, slots=True)
class swapped:  # noqa: N801
    """Gives two layers each other's parameters and buffers."""

    one: str
    other: str

    def __call__(self, port: Any) -> None:
        first, second = layer_at(port, self.one), layer_at(port, self.other)
        states = [{name: value.numpy() for name, value in one.state_dict().items()} for one in (first, second)]
        assert any(not np.array_equal(states[0][name], states[1][name]) for name in states[0])
        first.set_state_dict(states[1])
        second.set_state_dict(states[0])


@dataclass(frozen=True, slots=True)
class frozen:  # noqa: N801
    """Keeps gradients from a parameter."""

    path: str

    def __call__(self, port: Any) -> None:
        port.state_dict()[self.path].stop_gradient = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault in the port of one family.

    Attributes:
        id: a name.
        family: of `FAMILIES`.
        where: paths of the port that are right answers: the layer, or the container whose code it is; ``loss``,
            ``optimizer``, ``scheduler``.
        codes: slugs that name the cause.
        says: what the message must have.
        plant: changes the port.
        mode: ``"eval"`` or ``"train"``.
        loss: changed loss, by name.
        optimizer: pair of optimizers, by name.
        scheduler: pair of schedulers, by name.
        part: ``"layer"``, ``"loss"``, ``"optimizer"`` or ``"scheduler"``.
    """

    id: str
    family: str
    where: tuple[str, ...]
    codes: tuple[str, ...]
    says: str = ""
    plant: tuple[Plant, ...] = ()
    mode: str = EVAL
    loss: str = ""
    optimizer: str = ""
    scheduler: str = ""
    part: str = "layer"

    def is_named(self, diagnosis: Any) -> bool:
        """Tell whether a diagnosis names the cause."""
        return diagnosis is not None and diagnosis.code in self.codes and self.says in diagnosis.message


def planted(fault: Fault, seed: int = 0) -> Pair:
    """Return the pair of a fault, its port changed."""
    from zoo.training import LOSSES, OPTIMIZERS, SCHEDULERS

    pair = build(FAMILIES[fault.family], seed, training=fault.mode == TRAIN)
    for plant in fault.plant:
        plant(pair.port)
    if fault.part == "layer":
        return pair
    pair.loss = LOSSES[fault.loss]
    if fault.loss and "labels" not in pair.inputs:
        pair.inputs["labels"] = np.zeros(1, np.float32)
    if fault.part != "loss":
        pair.optimizers = OPTIMIZERS[fault.optimizer or "momentum right"]
    if fault.scheduler:
        pair.schedulers = SCHEDULERS[fault.scheduler]
    return pair
