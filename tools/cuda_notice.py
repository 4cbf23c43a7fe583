"""Says before the set-up what pip would fetch for torch, where that is gigabytes of CUDA.

``python tools/cuda_notice.py`` reads the report of ``pip install --dry-run --report -`` from standard
input and prints a notice, or nothing. It needs the standard library only: nothing is installed yet.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

CUDA_NAME = re.compile(r"(nvidia|cuda|triton)([-_.\s\[;=<>!~]|$)", re.IGNORECASE)
NOTICE = """\
note: pip would fetch torch {version} with CUDA ({count} packages such as {example}):
  roughly 3 GB to download and 7 GB on disk. tipchain's checks need no GPU. For the CPU build
  (about 0.2 GB) press Ctrl-C and do one of these, then repeat the command:
  - put PyTorch's CPU wheel index, as PyTorch's "Get started" page shows it, into PIP_EXTRA_INDEX_URL;
  - put a folder with a CPU wheel of torch into PIP_FIND_LINKS;
  - use an environment of your own: bash prepare.sh PARAMS MODE --python PATH"""


def cuda_packages(report: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the CUDA packages that ``report`` would install or that torch there asks for."""
    names = {name for one in report["install"] for name in _names(one["metadata"]) if CUDA_NAME.match(name)}
    return tuple(sorted(names))


def notice(report: dict[str, Any]) -> str:
    """Return what to tell the user about ``report``, "" where no CUDA package would come."""
    found = cuda_packages(report)
    if not found:
        return ""
    version = next((one["metadata"]["version"] for one in report["install"] if one["metadata"]["name"] == "torch"), "")
    return NOTICE.format(version=version, count=len(found), example=", ".join(found[:3]))


def _names(metadata: dict[str, Any]) -> Iterator[str]:
    yield str(metadata["name"])
    for need in metadata.get("requires_dist", ()):
        if "extra ==" not in need:
            yield re.split(r"[\s\[;=<>!~(]", need, maxsplit=1)[0]


def main() -> int:
    """Read a report from standard input and print the notice."""
    try:
        text = notice(json.load(sys.stdin))
    except (ValueError, KeyError, TypeError) as error:
        print(f"error: pip's report cannot be read: {error}", file=sys.stderr)
        return 2
    if text:
        print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
