"""The inputs of both sides, and the marks of data and sources."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import sysconfig
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path

import numpy as np

from tipchain.core.blame import is_users
from tipchain.core.files import sha256_of
from tipchain.core.images import SPLITS, read_split, split_file
from tipchain.core.store import CODE, HASHED_BYTES, mark
from tipchain.errors import DataError
from tipchain.framework_types import Array, Options
from tipchain.modes import DIGITS, MINI_UCF, NONE
from tipchain.parity.case import LABEL, Case, InputSpec


def make_inputs(case: Case, number: int = 0) -> dict[str, Array]:
    """Return the case's fake inputs: standard normal floats, uniform integers, from NumPy's seeded generator.

    Args:
        case: the case.
        number: which of the shapes to take, for inputs that have several; the label comes with the first alone.
    """
    specs = case.inputs.items()
    return {name: make_input(spec, number) for name, spec in specs if name != LABEL or number == 0}


def make_all_inputs(case: Case) -> dict[str, dict[str, Array]]:
    """Return the fake inputs of every set of shapes: the usual ones under ``""``, others such as ``@1x3x256x256``."""
    count = max((len(spec.shapes) for spec in case.inputs.values()), default=1)
    sets = {"": make_inputs(case)}
    for number in range(1, count):
        shapes = [spec.shapes[number] for spec in case.inputs.values() if len(spec.shapes) > 1]
        sets["@" + ",".join("x".join(map(str, shape)) for shape in shapes)] = make_inputs(case, number)
    return sets


def make_input(spec: InputSpec, number: int = 0) -> Array:
    """Return one fake input, of its first shape or of another."""
    shape = spec.shapes[number] if number < len(spec.shapes) else spec.shape
    # The first shape keeps the plain seed; the others must not repeat its values.
    generator = np.random.default_rng([spec.seed, number] if number else spec.seed)
    if np.dtype(spec.dtype).kind != "f":
        return generator.integers(spec.low, spec.high, shape).astype(spec.dtype)
    values = generator.standard_normal(shape)
    made: Array = (softmax(values) if spec.values == "probabilities" else values).astype(spec.dtype)
    return made


def softmax(values: Array, axis: int = -1) -> Array:
    """Return positive numbers that sum to 1 along ``axis``."""
    powers: Array = np.exp(values - values.max(axis=axis, keepdims=True))
    powers /= powers.sum(axis=axis, keepdims=True)
    return powers


def make_loss_label(label: Array, args: Options, shape: tuple[int, ...], seed: int) -> Array:
    """Return the label that a loss built with ``args`` is tried on.

    It is the case's own, with two exceptions: for ``soft_label: true`` class numbers give way to seeded
    probabilities of the output's shape, float32, classes on axis 1; for an ``ignore_index`` every third class
    number, from the second on, becomes it, so that ignoring it can make a difference.

    Args:
        label: the case's label.
        args: arguments of ``build_loss``.
        shape: the shape of the model's first output.
        seed: the label's seed.
    """
    if args.get("soft_label") and label.dtype.kind != "f" and len(shape) > 1:
        values = np.random.default_rng([seed, 1]).standard_normal(shape)
        return softmax(values, axis=1).astype(np.float32)
    ignored = args.get("ignore_index")
    if isinstance(ignored, int) and label.dtype.kind in "iu":
        planted = label.copy().reshape(-1)
        planted[1::3] = ignored
        return planted.reshape(label.shape)
    return label


def arrays_digest(arrays: Mapping[str, Array]) -> str:
    """Return a SHA-256 of names, dtypes, shapes and values."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


# What the data of a case are known by: a digest of the files that its data set reads.


WHERE = (
    "`tipchain align CASE --prepare` makes the shipped data; --data-path DIR names your own; "
    "`data: {set: none}` in the case if its data sets need no folder"
)


def data_digest(folder: Path, data_set: str = DIGITS) -> str:
    """Return a SHA-256 of the files of a data set, by name and content.

    Of what comes after the first `HASHED_BYTES` only names and sizes count, and of videos nothing: reading ImageNet would
    take minutes, and so would naming all frames of UCF-101.

    Args:
        folder: the data folder.
        data_set: its layout: class folders, raw frames with split files, anything, or no folder.

    Raises:
        DataError: there is no such folder, it has no data, or a file cannot be read.
    """
    if data_set == NONE:
        return hashlib.sha256(NONE.encode()).hexdigest()  # the data sets' code makes them
    files: Iterable[Path]
    if data_set == MINI_UCF:
        videos = (video for split in SPLITS for video in read_split(folder, split))
        frames = (video.frame(number) for video in videos for number in range(1, video.frames + 1))
        files = chain((split_file(folder, split) for split in SPLITS), frames)
    else:
        named = [folder / "train", folder / "val"] if data_set == DIGITS else [folder]
        files = [path for one in named for path in sorted(one.rglob("*")) if path.is_file()]
        if not files:
            raise DataError(
                "has no images" if data_set == DIGITS else "has no files",
                file=folder,
                expected="train/<class>/ and val/<class>/ with images" if data_set == DIGITS else "data",
                hint=WHERE,
            )
    digest, left = hashlib.sha256(), HASHED_BYTES
    for path in files:
        try:
            size = path.stat().st_size
            digest.update(f"{path.relative_to(folder).as_posix()} {size}\n".encode())
            if left >= 0:
                digest.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError as error:
            raise DataError("cannot be read", file=path, found=error.strerror) from error
        left -= size
        if left < 0 and data_set == MINI_UCF:
            break
    return digest.hexdigest()


# The files that this process has imported and read, and what a file is known by.


CLOCK_S = 0.05
"""By so much a file's time may lag behind the clock."""
UNHEARD = frozenset({"av", "cv2", "h5py", "safetensors.torch", "torchaudio", "torchcodec"})
"""Modules whose compiled code opens files without a word to Python."""
HEARD = frozenset(
    {
        "PIL",
        "charset_normalizer",
        "msgspec",
        "numpy",
        "psutil",
        "safetensors",
        "scipy",
        "sklearn",
        "torch",
        "torchvision",
        "yaml",
    }
)
"""Packages with compiled code that Python hears of opening files, but where the user's code has `SILENT` words. Of others that is unknown."""
SILENT = re.compile(
    rb"\bjit\.load|\bjit import\b|\bsafetensors\b|\bsafe_open\b|\bfrom_file\b|\bload_library\b|\bctypes\b|\bcffi\b"
    rb"|\btorchvision\.io\b|\btorchvision import\b.*\bio\b|\bread_(?:image|video|file)\b|\bVideoReader\b"
)
"""Ways of the user's code into compiled code that opens files: TorchScript, safetensors, mapped storages, images and videos."""


def imported_sources(root: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of the user's that is imported, by its path as seen from ``root``."""
    files = (file for file in sorted(_imported()) if file.endswith(".py") and is_users(file))
    return {os.path.relpath(file, root): sha256_of(Path(file)) for file in files}


def _imported() -> set[str]:
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {file for file in files if file and file.startswith(os.sep)}  # a Path of each takes ten times as long


class Reading:
    """The files that this process reads from now on, as far as Python opens them."""

    def __init__(self, *, since: float, known: Container[str], apart: Iterable[Path]) -> None:
        """Begin to listen.

        Args:
            since: seconds since the epoch; what has changed later may have been read before or after.
            known: files that are known by digests of their own.
            apart: folders whose files do not count, for the run itself writes them.
        """
        self.since, self.known = since, known
        self.apart = *(f"{folder}{os.sep}" for folder in apart), "/proc/", "/sys/", "/dev/"
        self.opened: set[str] = set()
        self._marks: dict[str, str] = {}
        sys.addaudithook(self._note)

    def _note(self, event: str, args: tuple[object, ...]) -> None:
        if event != "open" or not isinstance(args[0], str | bytes | os.PathLike):
            return
        mode, flags = args[1:3]
        writes = isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        if not (bool(set(mode) & set("wax")) if isinstance(mode, str) else writes):
            self.opened.add(_absolute(os.fsdecode(args[0])))

    def marks(self) -> dict[str, str] | None:
        """Return the marks of all imported and opened files, and of the folders that modules come from.

        None: one has changed since the run began, so that nobody knows which of it was read; or files may have been
        opened that nobody heard of.
        """
        imported = _imported()
        if UNHEARD & sys.modules.keys() or any(map(_silent, imported)):
            return None
        library = f"{sysconfig.get_path('stdlib')}{os.sep}"
        for file in (imported | self.opened) - self._marks.keys():
            installed = not is_users(file)
            apart = file.startswith(self.apart) or file.endswith(".pyc")
            if apart or file in self.known or (file.startswith(library) and "-packages" not in file):
                continue
            with suppress(OSError):  # there is none
                status = Path(file).stat()
                if max(status.st_mtime, status.st_ctime) >= self.since - CLOCK_S:
                    return None
            self._marks[file] = mark(file, "time" if installed else "content")
        own = {str(Path(file).parent) for file in self._marks if is_users(file) and file.endswith(CODE)}
        folders = own | {path for one in sys.path if is_users(path := _absolute(one))}
        return self._marks | {folder: mark(folder, "modules") for folder in folders}


def _silent(file: str) -> bool:
    """Tell whether files may be opened without a word to Python: by a compiled module that is not known, or the user's code."""
    if is_users(file):
        return file.endswith(CODE[1:]) or (file.endswith(".py") and SILENT.search(Path(file).read_bytes()) is not None)
    package = file.partition(f"-packages{os.sep}")[2].partition(os.sep)[0]
    return file.endswith(CODE[1:]) and bool(package) and package.partition(".")[0] not in HEARD


def _absolute(path: str) -> str:
    return os.path.abspath(path)  # noqa: PTH100  (without a look at the disk, where there may be nothing)
