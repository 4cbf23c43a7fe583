"""Arrays of a trace: in memory up to a limit, beyond it memory-mapped, in a file without a name."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
LIMIT = 2**30
"""Bytes that a store keeps in memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """An array that a `Store` holds.

    Attributes:
        shape: its shape.
        dtype: its dtype.
        kept: the array, or None if it is in the file.
        offset: where it begins there, in bytes.
        twin: what this is held as, since it is so close to it; None if it is held by itself.
        apart: how far it is from its twin, relative RMS.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    kept: Array | None
    offset: int
    twin: Stored | None = None
    apart: float = 0.0


class Store:
    """Arrays in the order they come, those beyond ``limit`` bytes in an unnamed temporary file.

    The file is gone with the process, however that ends.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit, self.held, self.written = limit, 0, 0
        self._file: Any = None

    def close(self) -> None:
        """Give up the arrays."""
        if self._file is not None:
            self._file.close()

    def put_as(self, twin: Stored, apart: float) -> Stored:
        """Take an array that is ``apart`` from one that is held already, without holding it a second time."""
        return replace(twin, twin=twin.twin or twin, apart=apart + twin.apart)

    def put(self, array: Array) -> Stored:
        """Take an array, which must not change afterwards.

        Raises:
            OSError: the disk that holds temporary files is full.
        """
        if not array.nbytes or self.held + array.nbytes <= self.limit:
            self.held += array.nbytes
            return Stored(array.shape, array.dtype, array, 0)
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="tipchain-trace-")  # noqa: SIM115  (closed by close)
        offset = self.written
        self._file.seek(offset)
        np.ascontiguousarray(array).tofile(self._file)
        self.written += array.nbytes
        return Stored(array.shape, array.dtype, None, offset)

    def get(self, stored: Stored) -> Array:
        """Return an array; it must not be written to."""
        if stored.kept is not None:
            return stored.kept
        self._file.flush()
        return np.memmap(self._file, stored.dtype, "r", stored.offset, stored.shape)
