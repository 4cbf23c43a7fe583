"""Sources of torch as paconvert, PaddlePaddle's own converter, writes them for Paddle."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from tipchain.errors import UsageError
from tipchain.explain.source_edits import PortFile
from tipchain.port.rewrites import named

FITTING = "3.2"
"""Releases of paconvert that write names which Paddle 3.3 has. 3.3.1 writes ``paddle.nn.Module``, which it has not."""
OPEN = ">>>>>>"
"""What paconvert writes before a line that it left open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedModule:
    """A module as paconvert wrote it.

    Attributes:
        source: the module for Paddle.
        uses: uses of torch's API in it.
        converted: those that were converted.
        left_open: numbers and texts of lines that were not.
    """

    source: str
    uses: int
    converted: int
    left_open: tuple[tuple[int, str], ...]


def check_paconvert() -> None:
    """Refuse to convert without a paconvert that fits.

    Raises:
        UsageError: it is not installed, or of a version whose names Paddle does not have.
    """
    expected = f'expected: pip install "tipchain[port]", which brings paconvert {FITTING}'
    try:
        found = version("paconvert")
    except PackageNotFoundError:
        raise UsageError(f"paconvert is not installed\n  {expected}") from None
    if not found.startswith(f"{FITTING}."):
        raise UsageError(f"paconvert {found} writes names that Paddle does not have\n  {expected}")


def convert(sources: Mapping[str, str]) -> dict[str, ConvertedModule]:
    """Convert modules, each by itself.

    Args:
        sources: of torch, by their paths.

    Raises:
        UsageError: paconvert raised.
    """
    return {path: _convert(path, source) for path, source in sources.items()}


def converts(name: str) -> bool:
    """Tell whether paconvert knows what Paddle calls a thing of a library other than torch."""
    from paconvert.global_var import GlobalManager

    return name in GlobalManager.API_MAPPING


def _convert(path: str, source: str) -> ConvertedModule:
    if not source.strip():
        return ConvertedModule(source=source, uses=0, converted=0, left_open=())
    from paconvert import utils
    from paconvert.converter import Converter

    with TemporaryDirectory(prefix="tipchain-port-") as folder:
        given, made = Path(folder, "given.py"), Path(folder, "made.py")
        given.write_text(source, encoding="utf-8")
        converter = Converter(log_dir="disable", log_level="ERROR")
        utils.Generator.ids.clear()  # these two are for all files: nothing of another one may be left in them
        helper = utils.UtilsFileHelper(str(made), logger=converter.logger)
        helper.fileName = str(made)
        helper.code_map.clear()
        try:
            converted, left = converter.run(str(given), str(made))
        except Exception as error:
            raise UsageError(f"{path}: paconvert raised {type(error).__name__}: {error}") from error
        text = made.read_text(encoding="utf-8")
    left_open = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.lstrip().startswith(OPEN)]
    written = "\n".join(line.replace(OPEN, "", 1) for line in text.splitlines()) + "\n"
    try:
        # Paddle's names for those of torch that paconvert left in it.
        port = PortFile(file=Path(path), text=written, tree=ast.parse(written))
        edit = named(port) if find_spec("paddle") is not None else None
        written = edit.after if edit is not None else written
    except SyntaxError as error:
        left_open.append((error.lineno or 1, error.text or ""))
    lines = written.splitlines()
    imported = len(lines) - len(text.splitlines())
    still = ((number + imported, line.replace(OPEN, "").strip()) for number, line in left_open)
    return ConvertedModule(
        source=written,
        uses=converted + left,
        converted=converted,
        left_open=tuple(one for one in still if one[1] == "".join(lines[one[0] - 1 : one[0]]).strip()),
    )


@cache  # every cause asks for the reference's files anew, and none of them changes
def as_paddle(file: Path) -> ast.Module | None:
    """Return the tree of a file of torch's as paconvert writes it; None where it cannot."""
    try:
        check_paconvert()
        return ast.parse(convert({str(file): file.read_text(encoding="utf-8")})[str(file)].source)
    except (UsageError, OSError, SyntaxError):
        return None
