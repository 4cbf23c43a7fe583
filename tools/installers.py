"""What the set-up asks of its installers, pip and uv. It needs the standard library only: nothing is installed yet.

``python tools/installers.py notice`` reads what would be installed for torch, as pip's ``--dry-run --report -`` or
``uv pip compile`` tells it, and prints a notice where that is gigabytes of CUDA. ``python tools/installers.py uv`` reads
``pip config list`` and prints the variables that tell uv the same, a line each; exit code 2: uv cannot be told it all.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

CUDA_NAME = re.compile(r"(nvidia|cuda|triton)([-_.\s\[;=<>!~]|$)", re.IGNORECASE)
NOTICE = """\
note: this would fetch torch {version} with CUDA ({count} packages such as {example}):
  roughly 3 GB to download and 7 GB on disk. tipchain's checks need no GPU. For the CPU build
  (about 0.2 GB) press Ctrl-C and do one of these, then repeat the command:
  - put PyTorch's CPU wheel index, as PyTorch's "Get started" page shows it, into PIP_EXTRA_INDEX_URL;
  - put a folder with a CPU wheel of torch into PIP_FIND_LINKS;
  - use an environment of your own: bash prepare.sh PARAMS MODE --python PATH"""

LOCK = "constraints.txt"
UV_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    "extra-index-url": ("UV_INDEX", "UV_EXTRA_INDEX_URL"),
    "find-links": ("UV_FIND_LINKS",),
    "no-index": ("UV_NO_INDEX",),
    "trusted-host": ("UV_INSECURE_HOST",),
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("ALL_PROXY",),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
    "retries": ("UV_HTTP_RETRIES",),
    "no-cache-dir": ("UV_NO_CACHE",),
    "constraint": ("UV_CONSTRAINT",),
    "build-constraint": ("UV_BUILD_CONSTRAINT",),
}
"""The variables of uv for a setting of pip's: the one to set, and others that say the same."""
FLAGS = {"no-index", "no-cache-dir"}
LOCKED = {"constraint", "build-constraint"}
"""The settings that the project's lock comes first in, whatever the user adds."""
OF_NO_WEIGHT = set(
    "cache-dir config-file disable-pip-version-check log no-color no-input no-python-version-warning no-warn-conflicts "
    "no-warn-script-location progress-bar quiet require-virtualenv root-user-action verbose".split()
)
"""Settings of pip's that change nothing of what is installed into an environment, or from where."""


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


def read_report(text: str) -> dict[str, Any]:
    """Return pip's report as it is, and the lines ``name==version`` of uv's in its form."""
    if text.lstrip().startswith("{"):
        return dict(json.loads(text))
    pairs = [line.split("==", 1) for line in text.splitlines() if line]
    return {"install": [{"metadata": {"name": name, "version": version}} for name, version in pairs]}


def uv_variables(listed: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that tell uv what pip is told, less those that ``environment`` has for uv.

    Args:
        listed: what ``pip config list`` prints, of its files and of its variables.
        environment: this process's variables.

    Raises:
        ValueError: pip is told something that uv has no variable for; or the lines cannot be read.
    """
    settings: dict[str, str] = {}
    lines = [re.split("[.=]", line, maxsplit=2) for line in listed.splitlines()]
    for section in ("global", "install", ":env:"):  # the last one counts
        settings |= {name: str(ast.literal_eval(value)) for part, name, value in lines if part == section}
    # pip takes the best of all indexes.
    found = {"UV_INDEX_STRATEGY": environment.get("UV_INDEX_STRATEGY", "unsafe-best-match")}
    for name, value in {**dict.fromkeys(LOCKED, ""), **settings}.items():
        if name in OF_NO_WEIGHT or (name in FLAGS and value.lower() in ("0", "n", "no", "off", "f", "false")):
            continue
        if name not in UV_VARIABLES:
            raise ValueError(f"uv has no variable for {name}")
        given = next((environment[one] for one in UV_VARIABLES[name] if one in environment), None)
        words = [os.path.expanduser(word) for word in value.split()] if given is None else [given]  # noqa: PTH111
        if name in LOCKED:
            found[UV_VARIABLES[name][0]] = " ".join([LOCK, *words])
        elif given is None:
            between = "," if name == "find-links" else " "
            found[UV_VARIABLES[name][0]] = "true" if name in FLAGS else between.join(words)
    return found


def main(argv: list[str]) -> int:
    """Read standard input and print what ``argv[0]`` asks for."""
    what = "pip's settings" if argv == ["uv"] else "the installer's report"
    try:
        if argv == ["uv"]:
            text = "\n".join(f"{name}={value}" for name, value in uv_variables(sys.stdin.read(), os.environ).items())
        else:
            text = notice(read_report(sys.stdin.read()))
    except (ValueError, KeyError, TypeError, SyntaxError) as error:
        print(f"error: {what}: {error}", file=sys.stderr)
        return 2
    if text:
        print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
