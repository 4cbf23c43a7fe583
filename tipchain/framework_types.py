"""Annotations' names of the frameworks' objects.

torch's and Paddle's classes share no base, and neither has to be installed: for a type checker most names are `Any`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy.typing as npt

Array: TypeAlias = "npt.NDArray[Any]"
"""A NumPy array of any dtype."""
Model: TypeAlias = Any
"""A ``torch.nn.Module`` or a ``paddle.nn.Layer``: a whole model, or a layer of one."""
Tensor: TypeAlias = Any
"""A ``torch.Tensor`` or a ``paddle.Tensor``."""
Optimizer: TypeAlias = Any
"""An optimizer of ``torch.optim`` or ``paddle.optimizer``."""
Schedule: TypeAlias = Any
"""A schedule of ``torch.optim.lr_scheduler`` or ``paddle.optimizer.lr``."""
Nested: TypeAlias = Any
"""The arguments and results of layers and functions: a tensor, a plain value, or tuples, lists and dicts of them."""
Function: TypeAlias = Callable[..., Nested]
"""A function of a framework, or its replacement."""
Setting: TypeAlias = Any
"""The value of one argument: a number, a flag, a text, or a sequence of such; its name says which."""
Options: TypeAlias = Mapping[str, Setting]
"""Arguments by name, as a class or a function of a framework takes them."""
Before: TypeAlias = Callable[[Model, tuple[Nested, ...], Options], None]
"""A function called with a layer and its arguments before it runs."""
After: TypeAlias = Callable[[Model, Nested], Nested]
"""A function called with a layer and its result; its own result takes that place."""
Loss: TypeAlias = Callable[..., Tensor]
"""A loss: outputs and labels to a tensor."""
Dataset: TypeAlias = Any
"""A data set of samples by number, with a length."""
Loader: TypeAlias = Any
"""A data loader, a data set, or another iterable of batches or samples."""
Metric: TypeAlias = Any
"""A metric: a function of outputs and labels, or an object that is updated with them batch by batch."""
Stateful: TypeAlias = Any
"""An object that can be saved and restored, by ``state_dict`` and ``load_state_dict``."""
Hook: TypeAlias = Any
"""A handle that takes a hook off again, by ``remove``."""
