"""Renew constraints.txt: the versions that the set-up installs, for every supported Python.

    python tools/lock_constraints.py PYTHON [PYTHON ...]      e.g. python3.10 python3.11 python3.12 python3.13

For each interpreter given, pip resolves the project in a temporary environment (``--dry-run --report``: nothing
is installed), with the framework versions below held fixed. What all interpreters agree on becomes one line, what
they differ in becomes one line per range of Pythons with an environment marker. CUDA packages are left to torch,
which pins them itself; they are never fetched here.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PIP = "26.3"
FRAMEWORKS = ("torch==2.13.0", "paddlepaddle==3.3.1")
SET_UP = ("hatchling", "editables", "uv")
CUDA = re.compile(r"^(nvidia-|cuda-|triton\b)")
HEADER = """\
# Versions that the set-up installs (prepare.sh passes this file to pip and uv as constraints).
# Written by tools/lock_constraints.py; renew it with that rather than by hand.
"""
Python = tuple[int, int]
Versions = Mapping[str, str]


def normalize(name: str) -> str:
    """Return a distribution's name in the form that indexes use. Source: PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def resolve(python: str, folder: Path) -> tuple[Python, dict[str, str]]:
    """Return the version of ``python`` and the version of each package that pip would install for it."""
    environment = folder / "environment"
    subprocess.run([python, "-m", "venv", environment], check=True)
    pip = (environment / "bin" / "python", "-m", "pip")
    subprocess.run([*pip, "install", "--quiet", f"pip=={PIP}"], check=True)
    torch = _report([*pip, "install", "--no-deps", FRAMEWORKS[0]], folder)
    requirements = folder / "requirements.txt"
    requirements.write_text("\n".join([*_plain_needs(torch), *FRAMEWORKS[1:], *SET_UP, *_project_needs()]))
    everything = _report(
        [*pip, "install", "--ignore-installed", "--requirement", requirements, "--group", f"{ROOT}/pyproject.toml:dev"],
        folder,
    )
    name, version = FRAMEWORKS[0].split("==")
    return _version(python), {**_versions(everything), name: version, "pip": PIP}


def merge(resolved: Mapping[Python, Versions]) -> list[str]:
    """Return the constraint lines for the versions found per Python."""
    pythons = sorted(resolved)
    lines = []
    for name in sorted({name for versions in resolved.values() for name in versions}):
        found = [resolved[python].get(name) for python in pythons]
        for version in dict.fromkeys(version for version in found if version is not None):
            where = [number for number, other in enumerate(found) if other == version]
            for first, last in _ranges(where):
                lines.append(f"{name}=={version}{_marker(pythons, first, last)}")
    return lines


def _ranges(numbers: Sequence[int]) -> Iterable[tuple[int, int]]:
    start = 0
    for end in range(1, len(numbers) + 1):
        if end == len(numbers) or numbers[end] != numbers[end - 1] + 1:
            yield numbers[start], numbers[end - 1]
            start = end


def _marker(pythons: Sequence[Python], first: int, last: int) -> str:
    parts = []
    if first > 0:
        parts.append(f'python_version >= "{pythons[first][0]}.{pythons[first][1]}"')
    if last < len(pythons) - 1:
        parts.append(f'python_version < "{pythons[last + 1][0]}.{pythons[last + 1][1]}"')
    return f" ; {' and '.join(parts)}" if parts else ""


def _report(command: Sequence[object], folder: Path) -> list[dict[str, dict[str, object]]]:
    report = folder / "report.json"
    subprocess.run([*map(str, command), "--dry-run", "--quiet", "--report", str(report)], check=True, cwd=folder)
    installs: list[dict[str, dict[str, object]]] = json.loads(report.read_text())["install"]
    return installs


def _versions(installs: Iterable[Mapping[str, Mapping[str, object]]]) -> dict[str, str]:
    return {normalize(str(one["metadata"]["name"])): _public(str(one["metadata"]["version"])) for one in installs}


def _public(version: str) -> str:
    # A local build such as 2.13.0+cpu meets ==2.13.0, but no other machine may have it.
    return version.partition("+")[0]


def _plain_needs(torch: Sequence[Mapping[str, Mapping[str, object]]]) -> list[str]:
    needs = torch[0]["metadata"].get("requires_dist", [])
    assert isinstance(needs, list)
    return [need for need in needs if not CUDA.match(normalize(need.split()[0])) and "extra ==" not in need]


def _project_needs() -> list[str]:
    # pip reads the tables itself, but torch must stay out; one regular expression spares a TOML parser on 3.10.
    text = (ROOT / "pyproject.toml").read_text()
    tables = re.findall(r"^(?:dependencies|cpu|cases|onnx) = \[(.*?)\]", text, flags=re.DOTALL | re.MULTILINE)
    needs = [need for table in tables for need in re.findall(r'"([^"]+)"', table)]
    return [need for need in needs if re.split(r"[<>=!~ ]", need)[0] not in ("torch", "paddlepaddle")]


def _version(python: str) -> Python:
    code = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    major, minor = done.stdout.split()
    return int(major), int(minor)


def main(argv: Sequence[str] | None = None) -> int:
    """Resolve for every interpreter named and replace constraints.txt."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    parser.add_argument("--out", type=Path, default=ROOT / "constraints.txt")
    args = parser.parse_args(argv)
    resolved: dict[Python, dict[str, str]] = {}
    for python in args.pythons:
        with tempfile.TemporaryDirectory() as folder:
            version, versions = resolve(python, Path(folder))
        print(f"Python {version[0]}.{version[1]}: {len(versions)} packages", file=sys.stderr)
        resolved[version] = versions
    beside = args.out.with_name(f".{args.out.name}.new")
    beside.write_text(HEADER + "\n".join(merge(resolved)) + "\n")
    beside.replace(args.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
