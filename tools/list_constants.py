"""The page of numbers by which tipchain judges, ranks and searches: one row for each constant of the rooms that decide.

What a row says is the string below the constant, so that a number is explained where it is used and nowhere else.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("numbers", "weights", "frameworks", "explain", "parity", "live")
TITLES = {
    "numbers": "Comparing numbers",
    "weights": "Conversion of weights",
    "frameworks": "Frameworks",
    "explain": "Findings",
    "explain/locate": "Which layer differs",
    "explain/preflight": "Construction",
    "explain/causes": "Causes: layers, data, losses, metrics, optimizers and schedules",
    "parity": "Alignment of cases",
    "parity/stages": "Stages: recording and judging",
    "live": "Live models, training and prediction",
}
INTRODUCTION = (
    "Every number by which tipchain judges, ranks or searches, with what it is and where it comes from. What rounding makes "
    "of two computations is said once, in `tipchain/numbers/tolerance.py`; the other numbers build on it, are sizes of what is "
    "looked at, or are values that models usually have. *A choice* says that nothing derives it."
)


def numeric(node: ast.expr) -> bool:
    """Tell whether an expression is made of numbers: literals, other constants, arithmetic, tuples, sets and dicts."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.Name(id=name):
            return name.isupper()
        case ast.UnaryOp(operand=one):
            return numeric(one)
        case ast.BinOp(left=one, right=other):
            return numeric(one) and numeric(other)
        case ast.Tuple(elts=each) | ast.List(elts=each) | ast.Set(elts=each) | ast.Dict(values=each):
            return bool(each) and all(map(numeric, each))
    return False


def _literal(node: ast.expr) -> bool:
    return any(isinstance(one, ast.Constant) and not isinstance(one.value, str) for one in ast.walk(node))


@cache
def constants(path: Path) -> tuple[tuple[str, str, str, int], ...]:
    """Return the numeric constants of a module: names, value, the string below, and the line."""
    found = []
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for number, node in enumerate(body):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if target is None or value is None or not numeric(value) or not _literal(value):
            continue
        below = body[number + 1] if number + 1 < len(body) else None
        text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
        found.append((ast.unparse(target).strip("()"), ast.unparse(value), " ".join(str(text).split()), node.lineno))
    return tuple(found)


def modules() -> list[Path]:
    """Return the modules whose constants decide."""
    return sorted(path for room in ROOMS for path in (ROOT / "tipchain" / room).rglob("*.py"))


def constants_page(translated: Callable[[str], str] = str) -> str:
    """Return the page's text, its title and introduction in the reader's language."""
    rooms: dict[str, list[str]] = {}
    for path in sorted(modules(), key=lambda one: (one.name != "rounding.py", one)):
        for names, value, text, _ in constants(path):
            room = path.parent.relative_to(ROOT / "tipchain").as_posix()
            shown = value if len(value) <= 60 else f"{value[:57]}..."
            said = text.replace("|", "\\|").replace("``", "`")
            rooms.setdefault(room, []).append(f"| `{path.stem}.{names}` | `{shown}` | {said} |")
    parts = [f"# {translated('Numbers that decide')}\n\n{translated(INTRODUCTION)}\n"]
    for room, rows in rooms.items():
        parts.append("\n".join([f"## {TITLES.get(room, room)}", "", f"In `tipchain/{room}`.", "", "| constant | value | what it is |", "|---|---|---|", *rows, ""]))  # fmt: skip
    return "\n".join(parts)
