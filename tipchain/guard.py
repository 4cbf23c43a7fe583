"""The edge of every program: what is raised becomes one message and an exit code."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

from tipchain.errors import TipchainError
from tipchain.outcome import ExitCode


def guarded(function: Callable[..., int], *args: object) -> int:
    """Call ``function(*args)`` and turn what it raises into an exit code and one message."""
    try:
        return int(function(*args))
    except TipchainError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return ExitCode.FAILED
    except Exception:  # noqa: BLE001  (whatever is left is a bug of ours and says so)
        traceback.print_exc()
        print("this is a bug of tipchain; please report it with the lines above", file=sys.stderr)
        return ExitCode.BUG
