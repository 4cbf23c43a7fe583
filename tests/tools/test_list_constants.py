import ast

import list_constants as table
from chain_samples import ROOT

from tipchain.numbers import tolerance

EXPLAINING = ("explain/locate", "explain/causes", "explain/preflight", "live")


def said_in_place(path):
    """Yield the tolerances that code compares with and that no constant names: where they stand and what they are."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Call):
            parts = [one.value for one in node.keywords if one.arg in ("rtol", "atol", "rel_tol", "abs_tol")]
        else:
            continue
        for part in parts:
            for one in ast.walk(part):
                if isinstance(one, ast.Constant) and isinstance(one.value, float) and 0 < one.value <= 0.01:
                    yield f"{path.relative_to(ROOT)}:{one.lineno}: {one.value}"


def test_every_number_that_decides_says_what_it_is():
    silent = [
        f"{path}:{line}: {names} = {value}"
        for path in table.modules()
        for names, value, text, line in table.constants(path)
        if len(text) < 12
    ]
    assert not silent


def test_no_tolerance_is_written_where_causes_are_looked_for():
    paths = [path for room in EXPLAINING for path in (ROOT / "tipchain" / room).rglob("*.py")]
    assert not [said for path in paths if not path.stem.startswith("html") for said in said_in_place(path)]


def test_what_rounding_makes_is_said_once():
    said = {value: name for name, value in vars(tolerance).items() if name.isupper() and isinstance(value, float)}
    again = [
        f"{path}:{line}: {names} is tolerance.{said[float(value)]}"
        for path in table.modules()
        for names, value, _, line in table.constants(path)
        if path.name != "tolerance.py"
        and value.replace(".", "").replace("e-", "").isdigit()
        and float(value) in said
        and "e-" in value
    ]
    assert not again
