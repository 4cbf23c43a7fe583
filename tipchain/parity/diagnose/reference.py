"""What the reference's code calls while it runs: functions, their constants, and sketches of what they return."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tipchain.parity.locate.differences import Sketch
from tipchain.parity.locate.structures import take_out

MOST_ELEMENTS = 1 << 22
"""Elements of a tensor beyond which it is not looked at."""


class Watch:
    """A record of the calls that torch code makes; made by `over`."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.names: list[str] = []
        self.sketches: list[Sketch] = []
        self.constants: dict[str, tuple[Any, ...]] = defaultdict(tuple)
        self._live = True

    @classmethod
    @contextmanager
    def over(cls, module: Any) -> Iterator[Watch]:  # noqa: ARG003  (the whole of torch is watched)
        """Watch everything that torch is called for while the context is open."""
        import torch
        from torch.overrides import TorchFunctionMode

        watch = cls(torch)

        class Mode(TorchFunctionMode):  # type: ignore[misc]
            """Hands each call on, and tells the watch about it."""

            def __torch_function__(
                self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
            ) -> Any:  # fmt: skip
                del types
                result = func(*args, **(kwargs or {}))
                watch.take(func, args, kwargs or {}, result)
                return result

        with Mode():
            yield watch

    def end(self) -> None:
        """Take no further calls."""
        self._live = False

    def take(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        """Note a call and what it returned."""
        name = getattr(function, "__name__", "").strip("_")
        if not self._live or name in ("get", "set"):
            return
        self._live = False  # what is done here is not the model's
        try:
            self.names.append(name)
            self.constants[name] += tuple(
                one
                for one in (*args[1:], *kwargs.values())
                if isinstance(one, int | float | str | tuple | list)
            )
            for tensor in take_out(result, self.torch.is_tensor)[1]:
                if tensor.is_floating_point() and 0 < tensor.numel() <= MOST_ELEMENTS:
                    self.sketches.append(Sketch(tensor.detach().numpy()))
        finally:
            self._live = True
