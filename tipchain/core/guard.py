"""The edge of every program: turn an exception into one message and an exit code."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tipchain.core.language import escaped_lines, fold, say, terminal_width
from tipchain.errors import ExitCode, TipchainError

# The disk or a quota is full, a file would grow over its limit, a disk or terminal is gone.
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


def guarded(function: Callable[..., int], *args: object, said: Callable[[str], str] = say) -> int:
    """Call ``function(*args)``, and turn an exception into an exit code and a message.

    Args:
        function: what is called.
        args: what it is given.
        said: puts the message into a language; `str` leaves it in English, for a process that reads it.
    """
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115  (for the rest of the process)
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = int(function(*args))
        print(end="", flush=True)  # what cannot be written shall be known here, not when Python ends
    except KeyboardInterrupt:
        print(said("interrupted"), file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return ExitCode.FAILED
    except (Exception, SystemExit) as error:  # noqa: BLE001  (whose it is decides what is said)
        return _tell(error, said)
    return code


def _tell(error: Exception | SystemExit, said: Callable[[str], str]) -> int:
    from tipchain.core.blame import UsersError, tell

    if isinstance(error, TipchainError) and not isinstance(error, UsersError):
        text, code = error.in_language(said), error.exit_code
    elif isinstance(error, OSError) and error.errno in UNWRITABLE:
        text, code = f"{error.filename or 'the output'}: {error.strerror}", ExitCode.FAILED
        with suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
    elif isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        text, code = f"{str(error.filename)[:80]}…: {error.strerror}", ExitCode.USAGE
    elif (message := tell(error)) is not None:
        text, code = message, ExitCode.FAILED
    elif isinstance(error, SystemExit):  # argparse's, after its help
        raise error
    else:
        import traceback

        traceback.print_exception(error)
        print(said("this is a bug of tipchain; please report it with the lines above"), file=sys.stderr)
        return ExitCode.BUG
    text = said(f"error: {escaped_lines(text)}")
    print(fold(text, terminal_width()) if sys.stderr.isatty() else text, file=sys.stderr)
    return code
