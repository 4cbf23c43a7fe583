"""A data folder as one file: a tar archive, and its checksum beside it as ``sha256sum`` writes it."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tipchain.errors import DataError

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
    line = f"{_sha256(made)}  {archive.name}\n"
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
        found = _sha256(archive)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError("cannot be checked", file=archive, found=error) from error
    if expected != [found]:
        raise DataError(
            "is damaged: its checksum differs", file=archive, expected=" ".join(expected), found=found
        )


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


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()
