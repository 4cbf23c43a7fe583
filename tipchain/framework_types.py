"""What annotations call objects of the frameworks.

torch's and Paddle's classes share no base, and neither has to be installed: for a type checker each name is `Any`.
"""

from __future__ import annotations

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
