"""Data folders that a mode needs, of the shipped sets or of the user's own: made whole or not at all."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from tipchain.errors import DataError, UsageError
from tipchain.images import LAYOUT, class_names, read_split, split_file
from tipchain.json_text import Json
from tipchain.modes import DIGITS, MINI_UCF, data_folder
from tipchain.prepare.sets import KINDS, DataRecipe, recipe_of, way_out
from tipchain.progress import Pace, Progress
from tipchain.runs import sha256_of

PIECE = 1 << 20


def archive_of(folder: Path) -> Path:
    """Return the archive that is kept beside ``folder``."""
    return folder.with_name(f"{folder.name}.tar")


def checksum_of(archive: Path) -> Path:
    """Return the file with the checksum of ``archive``."""
    return archive.with_name(f"{archive.name}.sha256")


def pack(folder: Path, archive: Path, *, workshop: Path) -> None:
    """Write the files below ``folder`` into ``archive``; equal folders give equal bytes.

    The names in it begin with the archive's own stem. The checksum comes last: an archive without one is not whole.

    Args:
        folder: what is packed.
        archive: the file, replaced if it is there.
        workshop: a folder on the same disk where it is made.

    Raises:
        OSError: it cannot be written.
    """
    made = workshop / archive.name
    with tarfile.open(made, "w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                content = path.read_bytes()
                entry = tarfile.TarInfo(f"{archive.stem}/{path.relative_to(folder).as_posix()}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    line = f"{sha256_of(made)}  {archive.name}\n"
    checksum_of(archive).unlink(missing_ok=True)
    made.replace(archive)
    checksum_of(made).write_text(line, encoding="utf-8")
    checksum_of(made).replace(checksum_of(archive))


def check_archive(archive: Path) -> None:
    """Check an archive against its checksum.

    Raises:
        DataError: it differs, or one of the two files is missing or cannot be read.
    """
    try:
        expected = checksum_of(archive).read_text(encoding="utf-8").split()[:1]
        found = sha256_of(archive)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError("cannot be checked", file=archive, found=error) from error
    if expected != [found]:
        raise DataError("is damaged: its checksum differs", file=archive, expected=" ".join(expected), found=found)


def read_archive(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the files that `pack` wrote.

    Raises:
        DataError: it is no such archive; or a file in it would lie outside of the folder.
    """
    try:
        with tarfile.open(archive, "r:") as tar:
            for entry in tar:
                parts = PurePosixPath(entry.name).parts
                file = tar.extractfile(entry) if entry.isreg() else None
                if file is None or parts[:1] != (archive.stem,) or len(parts) < 2 or ".." in parts:
                    raise DataError("holds what is no file of the folder", file=archive, found=entry.name)
                yield "/".join(parts[1:]), file.read()
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError("is damaged", file=archive, found=error) from error


# Data folders that a mode needs: made whole or not at all, and checked before they are used.
#
# A folder is made beside its place and renamed into it, so a folder under its own name is a whole one. Its
# ``manifest.json`` (recipe, size and SHA-256 of every file) tells whether it still is. A damaged folder is made
# again, but only if nothing in it is anybody else's. Beside the folder of a packed data set stands an archive; a folder
# that is missing or damaged is unpacked from it, and an archive that is damaged is made again.


FORMAT = 1
MANIFEST = "manifest.json"
Say = Callable[[str], None]


def prepare_data(
    root: Path, kind: str, data_set: str = DIGITS, *, force: bool = False, say: Say = lambda _: None
) -> Path:
    """Return the folder of the ``kind`` data below the project's ``root``, made if missing or damaged.

    Args:
        root: the project's root.
        kind: ``"lite"`` or ``"whole"``.
        data_set: one of ``tipchain.prepare.sets.PARAMS``.
        force: make it again even where it is whole.
        say: called with one line on what was done.

    Raises:
        UsageError: no such kind.
        DataError: it cannot be made (full disk, read-only folder, scikit-learn missing), or a file in it is
            not ours; nothing half-made stays.
    """
    if kind not in KINDS:
        raise UsageError(f"unknown data {kind!r}, expected one of: {', '.join(KINDS)}")
    folder = root / data_folder(kind, data_set)
    problem = "--force was given" if force else _problem(folder)
    if problem is None:
        say(f"{folder}: ready")
        return folder
    try:
        with _locked(folder):
            if not force:
                problem = _problem(folder)  # another preparation may have made it in the meantime
            if problem is not None:
                recipe = recipe_of(data_set, kind)
                existed = folder.exists()
                if existed:
                    _refuse_foreign(folder, recipe.names)
                    say(f"{folder}: {problem}; making it again")
                beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.making-", dir=folder.parent))
                archive, new = archive_of(folder), beside / "new"
                try:
                    unpacked = recipe.packed and archive.exists() and not force and _unpack(archive, new, say)
                    if not unpacked:
                        _fill(new, recipe, folder.name)
                        if recipe.packed:
                            pack(new, archive, workshop=beside)
                    if existed:
                        folder.rename(beside / "old")
                    new.rename(folder)
                finally:
                    shutil.rmtree(beside, ignore_errors=True)
                say(f"{folder}: {f'unpacked from {archive.name}' if unpacked else 'made'}, {recipe.said}")
    except OSError as error:
        raise DataError(
            f"cannot be made: {error.strerror or error}",
            file=folder,
            found=error.filename,
            hint="nothing half-made was left; free some space or choose a folder that can be written, then repeat",
        ) from error
    return folder


def check_data(folder: Path) -> None:
    """Check a made data folder against its manifest: every file there, none changed, none added.

    Raises:
        DataError: the message says what is wrong and how to make it good.
    """
    hint = way_out(folder.name)
    if not folder.is_dir():
        raise DataError("there is no such data folder", file=folder, hint=hint)
    manifest = _read_manifest(folder)
    if manifest is None:
        raise DataError("is half-made: it has no readable manifest.json", file=folder, hint=hint)
    if manifest.get("format") != FORMAT:
        raise DataError(
            "was made by another version of tipchain",
            file=folder / MANIFEST,
            key="format",
            found=manifest.get("format"),
            expected=FORMAT,
            hint=hint,
        )
    files = manifest["files"]
    for name, entry in files.items():
        path = folder / name
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise DataError("is missing", file=path, hint=hint) from None
        except OSError as error:
            raise DataError("cannot be read", file=path, found=error.strerror, hint=hint) from error
        if len(data) != entry["size"]:
            raise DataError(
                "is damaged", file=path, found=f"{len(data)} bytes", expected=f"{entry['size']} bytes", hint=hint
            )
        if hashlib.sha256(data).hexdigest() != entry["sha256"]:
            raise DataError("is damaged: its checksum differs from the manifest's", file=path, hint=hint)
    for name in _contents(folder):
        if name not in files and name != MANIFEST:
            raise DataError(
                "is not one of the folder's own files and would be taken for data",
                file=folder / name,
                hint="move it elsewhere; a data set of your own is used with --data-path",
            )


def _problem(folder: Path) -> str | None:
    try:
        check_data(folder)
    except DataError as error:
        return error.message
    return None


def _read_manifest(folder: Path) -> dict[str, Json] | None:
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("files"), dict):
        return None
    whole = all(isinstance(entry, dict) and {"size", "sha256"} <= set(entry) for entry in found["files"].values())
    return found if whole else None


def _contents(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if not path.is_dir() or path.is_symlink():
            yield path.relative_to(folder).as_posix()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    from filelock import FileLock

    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / f".{folder.name}.lock"):
        # Whoever left these is dead: the lock is ours.
        for leftover in folder.parent.glob(f".{folder.name}.making-*"):
            shutil.rmtree(leftover)
        yield


def _unpack(archive: Path, folder: Path, say: Say) -> bool:
    """Fill ``folder`` from an archive; say why and leave none if that cannot be done."""
    try:
        check_archive(archive)
        for name, content in read_archive(archive):
            _write(folder / name, content)
        check_data(folder)
    except DataError as error:
        say(f"{archive}: {error.message}; making it again")
        shutil.rmtree(folder, ignore_errors=True)
        return False
    return True


def _refuse_foreign(folder: Path, ours: AbstractSet[str]) -> None:
    """Raise if ``folder`` holds a file that no version of us made: it would be lost."""
    manifest = _read_manifest(folder) or {"files": {}}
    ours = ours | set(manifest["files"]) | {MANIFEST}
    foreign = [name for name in _contents(folder) if name not in ours] if folder.is_dir() else [folder.name]
    if foreign or folder.is_symlink():
        raise DataError(
            "must be made again, but holds files that are not ours",
            file=folder,
            found=", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "") or "a link",
            hint="move them or the folder elsewhere; a data set of your own is used with --data-path",
        )


def _fill(folder: Path, recipe: DataRecipe, name: str) -> None:
    files = {}
    for path, content in _with_progress(recipe.make(), len(recipe.names), name):
        files[path] = _write(folder / path, content)
    manifest = {"format": FORMAT, "recipe": dict(recipe.facts), "files": files}
    _write(folder / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())


def _write(path: Path, data: bytes) -> dict[str, Json]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _with_progress(files: Iterable[tuple[str, bytes]], total: int, title: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files, and say how many there are yet."""
    with Progress() as progress:
        pace = Pace(progress=progress)
        for number, file in enumerate(files):
            pace.tell(f"making {title}", number, total)
            yield file


# A data folder of the user's own, in ImageNet's layout: ``train/<class>/<image>`` and ``val/<class>/<image>``.

SPLITS = ("train", "val")
IMAGE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def check_image_folder(folder: Path) -> tuple[str, ...]:
    """Return the class names of ``folder``, sorted (their order gives the labels).

    Raises:
        DataError: a split is missing, the splits have different classes, or a class has no image.
    """
    layout = "train/<class>/ and val/<class>/ with images"
    if not folder.is_dir():
        raise DataError("there is no such data folder", file=folder, key="--data-path", expected=layout)
    train, val = (_classes(folder / split, layout) for split in SPLITS)
    if train != val:
        only = [
            f"{split} only: {', '.join(sorted(names)[:5])}"
            for split, names in (("train", set(train) - set(val)), ("val", set(val) - set(train)))
            if names
        ]
        raise DataError("train and val have different classes", file=folder, found="; ".join(only))
    for split in SPLITS:
        for name in train:
            _check_class(folder / split / name)
    return train


def _classes(folder: Path, layout: str) -> tuple[str, ...]:
    if not folder.is_dir():
        raise DataError("is missing", file=folder, expected=layout)
    classes = tuple(sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")))
    if not classes:
        raise DataError("has no class folders", file=folder, expected=layout)
    return classes


def _check_class(folder: Path) -> None:
    if not any(path.suffix.lower() in IMAGE_SUFFIXES and path.is_file() for path in folder.iterdir()):
        raise DataError("has no image", file=folder, expected=f"a file ending in {', '.join(IMAGE_SUFFIXES)}")


def check_own_data(folder: Path, data_set: str) -> tuple[str, ...]:
    """Return the class names of ``folder``, by label; none for a data set whose layout is the user's own.

    Args:
        folder: the data folder.
        data_set: a name in ``tipchain.modes.DATA_SETS``: images in class folders, videos as raw frames, or anything.

    Raises:
        DataError: it is missing, or is not laid out as data of that set are.
    """
    if data_set == DIGITS:
        return check_image_folder(folder)
    if not folder.is_dir():
        raise DataError(
            "there is no such data folder",
            file=folder,
            key="--data-path",
            expected=LAYOUT if data_set == MINI_UCF else "a folder",
        )
    return check_video_folder(folder) if data_set == MINI_UCF else ()


def check_video_folder(folder: Path) -> tuple[str, ...]:
    """Return the class names of a folder in UCF-101's raw-frames layout, by label.

    Of every video the first and the last frame are looked for.

    Raises:
        DataError: a split file is missing or wrong, a video is in both, or one has not the frames it should.
    """
    train, val = (read_split(folder, split) for split in ("train", "val"))
    both = {video.folder for video in train} & {video.folder for video in val}
    if both:
        raise DataError(
            "has videos that are in both splits",
            file=split_file(folder, "val"),
            found=", ".join(sorted(one.name for one in both)[:3]) + (", ..." if len(both) > 3 else ""),
        )
    for video in (*train, *val):
        for number in (1, video.frames):
            if not video.frame(number).is_file():
                there = len(list(video.folder.glob("img_*.jpg"))) if video.folder.is_dir() else "no such folder"
                raise DataError(
                    "is missing",
                    file=video.frame(number),
                    found=there,
                    expected=f"frames 1 to {video.frames}, as the split file says",
                )
    return class_names(folder)
