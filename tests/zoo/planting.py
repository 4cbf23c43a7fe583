"""A pair of models from two files of `nets`, one of which may read otherwise in some lines."""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from zoo import ports

NETS = Path(__file__).parent / "nets"
FAMILIES = tuple(sorted(path.stem.removesuffix("_torch") for path in NETS.glob("*_torch.py")))
RECURRENT = ("crnn", "translate")
"""Families with a recurrent layer, whose gradients Paddle has in train mode alone."""
Edits = Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two models and what they are run and trained with, as `tipchain.align` takes them."""

    reference: Any
    port: Any
    inputs: Mapping[str, Any]
    loss: Any = None
    optimizers: Any = None
    schedulers: Any = None
    training: bool = False
    data: Any = None
    samples: Any = None
    metrics: Any = None
    clip: Any = None
    step: Any = None


class EditError(ValueError):
    """A line that is to be replaced is not in the file, or is there more often than once."""


@cache
def folder() -> Path:
    """Return the folder of the files with edits, which goes with the process."""
    made = Path(tempfile.mkdtemp(prefix="zoo-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def edited(source: str, edits: Edits) -> str:
    """Return the source with each of the edits made, whose old text must be there once."""
    for old, new in edits:
        if source.count(old) != 1:
            raise EditError(f"{source.count(old)} places read {old!r}")
        source = source.replace(old, new)
    return source


def source_of(name: str) -> str:
    """Return the text of a net; a port without a file has its reference's in Paddle's words."""
    path = NETS / f"{name}.py"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    family = name.removesuffix("_paddle")
    own = ports.OWN[family]
    return edited(ports.translated(source_of(f"{family}_torch"), family), tuple(zip(own[::2], own[1::2], strict=True)))


def load(name: str, edits: Edits = ()) -> ModuleType:
    """Import a net with the edits made."""
    source = edited(source_of(name), edits)
    title = f"zoo_{name}_{hashlib.sha256(source.encode()).hexdigest()[:10]}"
    if title in sys.modules:
        return sys.modules[title]
    path = folder() / f"{title}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(title, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[title] = module
    spec.loader.exec_module(module)
    return module


def stir(model: torch.nn.Module) -> None:
    """Give norms, biases and running statistics values that are not those of a fresh model."""
    draw = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim <= 1:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw))
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(0.2 * torch.randn(buffer.shape, generator=draw))
            elif name.endswith("running_var"):
                buffer.copy_(0.5 + torch.rand(buffer.shape, generator=draw))


def named_for_paddle(
    values: Mapping[str, np.ndarray], *, kept: Sequence[str] = (), renames: Mapping[str, str] | None = None
) -> dict[str, np.ndarray]:
    """Return a state of torch with the names and shapes of Paddle.

    Args:
        values: the state.
        kept: parts of the names of matrices that are not transposed (embeddings, recurrent weights).
        renames: parts of names, and what the port calls them.
    """
    named = {}
    for name, value in values.items():
        if name.endswith("num_batches_tracked"):
            continue
        turned = value.ndim == 2 and name.endswith("weight") and not any(part in name for part in kept)
        title = name
        for old, new in ({"running_mean": "_mean", "running_var": "_variance"} | dict(renames or {})).items():
            title = title.replace(old, new)
        named[title] = value.T if turned else value
    return named


def fill(port: Any, values: Mapping[str, np.ndarray], *, strict: bool) -> None:
    """Give a port its values; what it lacks, or holds in another shape, is an error where ``strict``."""
    holders = port.state_dict()
    for name, value in values.items():
        holder = holders.get(name)
        if holder is not None and tuple(holder.shape) == tuple(value.shape):
            holder.set_value(np.array(value, order="C"))
        elif strict:
            raise ValueError(f"{name}: {None if holder is None else holder.shape} in the port, {value.shape} to load")


def pair(
    family: str,
    *,
    reference_edits: Edits = (),
    port_edits: Edits = (),
    training: bool = False,
    loss: bool = True,
    updates: bool = False,
    data: bool = False,
    metrics: bool = False,
    step: bool = False,
    strict: bool = True,
) -> Pair:
    """Make a pair of a family.

    Args:
        family: one of `FAMILIES`.
        reference_edits: what reads otherwise in the reference's file.
        port_edits: what reads otherwise in the port's.
        training: whether it is compared in train mode; `RECURRENT` ones always are.
        loss: whether it has a loss.
        updates: whether it is trained: with optimizers, and with schedulers where the family has some.
        data: whether the samples and both transforms go along.
        metrics: whether both metrics go along.
        step: whether it is trained by the steps of the family.
        strict: whether the port must hold all that was converted.
    """
    theirs = load(f"{family}_torch", reference_edits)
    ours = load(f"{family}_paddle", port_edits)
    torch.manual_seed(11)
    reference = theirs.build()
    stir(reference)
    port = ours.build()
    state = {name: value.numpy().copy() for name, value in reference.state_dict().items()}
    fill(port, ours.convert(state), strict=strict)
    training = training or family in RECURRENT
    for model in (reference, port):
        model.train() if training else model.eval()
    scheduled = updates and hasattr(theirs, "scheduler")
    return Pair(
        reference=reference,
        port=port,
        inputs=theirs.batch(np.random.default_rng(5)),
        loss=(theirs.loss, ours.loss) if loss else None,
        optimizers=(theirs.optimizer, ours.optimizer) if updates else None,
        schedulers=(theirs.scheduler, ours.scheduler) if scheduled else None,
        training=training,
        data=(theirs.transform, ours.transform) if data else None,
        samples=theirs.samples() if data else None,
        metrics=(theirs.metric, ours.metric) if metrics else None,
        clip=getattr(theirs, "clip", None) if updates and not step else None,
        step=(theirs.Step, ours.Step) if step else None,
    )
