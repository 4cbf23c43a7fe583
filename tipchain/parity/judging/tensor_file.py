"""The large captures of a stage, in a safetensors file beside its dump."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tipchain.errors import RecordError
from tipchain.parity.judging.base import Dumps
from tipchain.parity.names import tensors_name


class TensorFile(Mapping[str, Any]):
    """The tensors of a safetensors file, loaded one at a time.

    Raises:
        RecordError: the file is missing or no complete safetensors file.
    """

    def __init__(self, path: Path) -> None:
        from safetensors import SafetensorError, safe_open

        self.path = path
        try:
            self._file: Any = safe_open(path, framework="numpy")
            self._names: dict[str, None] = dict.fromkeys(self._file.keys())  # type: ignore[no-untyped-call]
        except (SafetensorError, OSError) as error:
            raise RecordError("is no complete safetensors file", file=path, found=error) from error

    def __enter__(self) -> TensorFile:  # noqa: PYI034  (typing.Self is not in Python 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        del self._file

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._file.get_tensor(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names  # Mapping's own would load the tensor to find out

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def tensor_paths(dumps: Dumps) -> tuple[Path, Path]:
    """Return the safetensors files beside the two dumps, the reference's first; whether they exist is another matter."""
    return (
        dumps.reference_path.with_name(tensors_name(dumps.stage, "torch")),
        dumps.port_path.with_name(tensors_name(dumps.stage, "paddle")),
    )
