"""Ports of public torch models by `tipchain port`: how many lines paconvert leaves open, what the port does, what ``--fix`` makes of it.

The same models run under Paddle's compat layer, too, from their own source.

    python benchmarks/converted.py [--out FILE.csv] [--input 1,3,64,64] MODULE:CALLABLE[=SHAPE] ...
    python benchmarks/converted.py torchvision.models.resnet:resnet18 timm.models.vit:vit_tiny_patch16_224=1,3,224,224

Each model is ported with ``--fix --yes`` in an empty folder. A row has the model, the uses of torch's API, those that were converted,
lines left open, what the port does at first ("equal", "raises", "differs", with the place), the edits that were kept, what it does
after them, seconds; and what the source does with ``--compat``. Packages that must be installed: torchvision, timm or whatever
the models come from. With the CPU build of torch, torchvision imports once ``torchvision._meta_registrations`` is an empty module.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

LIMIT_S = 1200
"""Seconds for one model, unless told otherwise."""
ROW = re.compile(r"^\S+\.py +(\d+)/(\d+) +(\d+)", re.MULTILINE)
STUB = """\
import sys
import types

sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("torchvision._meta_registrations"))
"""
"""What lets torchvision be imported beside torch's CPU build."""


@dataclass(frozen=True)
class Row:
    """One model: see the module's docstring."""

    model: str
    uses: int
    converted: int
    left_open: int
    first: str
    edits: int
    after: str
    seconds: float
    compat: str


def outcome(report: dict[str, object], said: str) -> str:
    """Return in a few words what a port does."""
    verdict = str(report.get("verdict", "")) or said.strip().splitlines()[-1]
    kind = {"PASS": "equal", "FAIL": "differs", "ERROR": "raises", "SKIP": "not compared"}
    return f"{kind.get(str(report.get('outcome')), 'refused')}: {verdict}"[:300]


def ported(spec: str, folder: Path, shape: str, *more: str, limit: int) -> tuple[str, str, str]:
    """Port the model of a folder; return what was printed, and what the port does at first and at last."""
    target = folder / "report.json"
    words = [sys.executable, "-m", "tipchain", "port", "--torch", spec, "--input", shape, "--json", target, *more]
    try:
        paths = os.pathsep.join(filter(None, [str(folder / "stub"), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": paths}
        done = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return "", f"not done in {limit} s", f"not done in {limit} s"
    runs = sorted(folder.glob("tipchain-output/*/*/runs/*/log_reprod/alignment_forward.json"))
    reports = [json.loads(one.read_bytes()) for one in (*runs[:1], target) if one.is_file()] or [{}]
    first, last = (outcome(one, done.stderr or done.stdout) for one in (reports[0], reports[-1]))
    return done.stdout, first, last


def measure(spec: str, shape: str, *, compat: bool, limit: int) -> Row:
    """Port one model, and run its source under Paddle if ``compat``."""
    results = []
    for more in (["--fix", "--yes"], *([["--compat"]] if compat else [])):
        with tempfile.TemporaryDirectory(prefix="tipchain-converted-") as text:
            folder, begun = Path(text), time.monotonic()
            (folder / "stub").mkdir()
            (folder / "stub" / "sitecustomize.py").write_text(STUB)
            results.append((*ported(spec, folder, shape, *more, limit=limit), round(time.monotonic() - begun, 1)))
    said, first, after, seconds = results[0]
    files = [tuple(map(int, one)) for one in ROW.findall(said)]
    kept = re.search(r"edits that were kept: (\d+)", said)
    converted, uses, left_open = (sum(one[at] for one in files) for at in range(3))
    return Row(
        spec,
        uses,
        converted,
        left_open,
        first,
        int(kept[1]) if kept else 0,
        after,
        seconds,
        results[1][2] if compat else "not run",
    )


def main() -> int:
    """Measure the models; the exit code is 0 if each could be ported."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODULE:CALLABLE[=SHAPE]")
    parser.add_argument("--input", default="1,3,64,64", help="the input of models that name none")
    parser.add_argument("--out", type=Path, help="a CSV file, written anew")
    parser.add_argument("--no-compat", action="store_true", help="leave the run of the source under Paddle out")
    parser.add_argument("--limit", type=int, default=LIMIT_S, metavar="S", help="seconds for one model")
    args = parser.parse_args()
    rows = []
    for one in args.models:
        spec, _, shape = one.partition("=")
        rows.append(measure(spec, shape or args.input, compat=not args.no_compat, limit=args.limit))
        print(json.dumps(asdict(rows[-1])), flush=True)
        if args.out:
            with args.out.open("w", newline="") as file:
                writer = csv.DictWriter(file, [each.name for each in fields(Row)])
                writer.writeheader()
                writer.writerows(map(asdict, rows))
    return int(any(row.first.startswith("refused") for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
