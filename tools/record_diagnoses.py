"""Record what tipchain says of the ports with one known fault each: one port for each diagnosis code.

    python tools/record_diagnoses.py [--list third --list fourth --list codes] [--out docs/diagnoses.json]

The ports are those of ``tests/zoo/third``, ``tests/zoo/fourth`` and ``tests/zoo/codes.py``: their faults are edits of a net's source, so that
both the port's line and the line that mends it are known. A port stands for a code if its fault was caught and named by that
code in the first place; of several the one with the shortest edit. The page of codes is made of the file
(``tools/reference_pages.py``), and a nightly test records it anew.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LISTS = ("third", "fourth", "codes")
"""A port of the first two is preferred: the last has ports of a few lines, for codes that those lack."""
PLANTED = re.compile(r"\w+_(torch|paddle)_[0-9a-f]{10}\.py")
"""The file that a net with planted edits is loaded from."""
OTHERWISE = ("adain-net-biased",)
"""Ports whose fault is caught, and whose cause is named by a code for another fault."""


def examples(lists: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return for each code the port that has it: list, name, net, part, the edits that planted it, message and fix."""
    sys.path.insert(0, str(ROOT / "tests"))
    from zoo.third.run import read_list, run

    found: dict[str, dict[str, Any]] = {}
    for name in lists:
        faults = {fault.id: fault for fault in read_list(name).faults}
        for fault_id, result in run(tuple(faults), of=name).items():
            fault = faults[fault_id]
            if result.get("cause") and result["code"] != "unknown" and fault.edits and fault_id not in OTHERWISE:
                one = {
                    "list": name,
                    "id": fault_id,
                    "net": fault.family,
                    "part": fault.part,
                    "edits": [list(edit) for edit in fault.edits],
                    "message": _text(result["message"]),
                    "fix": _text(result["fix"]),
                }
                other = found.get(result["code"])
                if other is None or (name != "codes" and _length(one) < _length(other)):
                    found[result["code"]] = one
    return dict(sorted(found.items()))


def _text(said: str) -> str:
    """Return what was said, with plain names for the two files."""
    return PLANTED.sub(lambda name: "reference.py" if name[1] == "torch" else "port.py", said)


def _length(one: Mapping[str, Any]) -> tuple[int, int]:
    return len(one["edits"]), sum(len(text) for edit in one["edits"] for text in edit)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ports and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="append", choices=LISTS, help="only these lists")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/diagnoses.json")
    args = parser.parse_args(argv)
    text = json.dumps(examples(args.list or LISTS), indent=1, ensure_ascii=False) + "\n"
    beside = args.out.with_name(f".{args.out.name}.new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(args.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
