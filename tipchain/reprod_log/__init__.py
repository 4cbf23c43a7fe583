"""Drop-in for reprod_log 1.0.1: the same calls, files and log lines, without its defects.

Replace ``from reprod_log import ReprodLogger, ReprodDiffHelper`` by ``from tipchain.reprod_log import ...``.
``docs/reference/reprod_log.md`` lists the differences. Importing this package loads neither torch nor paddle.
"""

from __future__ import annotations

from tipchain.reprod_log import compare, utils
from tipchain.reprod_log.diff_helper import ReprodDiffHelper
from tipchain.reprod_log.logger import ReprodLogger

__all__ = ["ReprodDiffHelper", "ReprodLogger", "compare", "utils"]
