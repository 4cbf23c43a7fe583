"""Which part may import which, and what starting up may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "tipchain"
HEAVY = ("numpy", "torch", "paddle", "yaml", "safetensors", "sklearn", "PIL", "sqlalchemy", "alembic")


def imports_of(path: Path) -> set[str]:
    """Return every module that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize(
    ("part", "forbidden"),
    [
        ("chain", ("parity", "reprod_log", "report", "commands", "cli", "prepare", "bundle", "history")),
        (
            "parity",
            ("chain", "report", "commands", "cli", "prepare", "reprod_log", "live", "bundle", "history"),
        ),
        ("bundle", ("chain", "report", "commands", "cli", "prepare", "reprod_log", "live", "nightly")),
        ("live", ("chain", "commands", "cli", "prepare", "reprod_log", "nightly", "history")),
        ("reprod_log", ("chain", "report", "commands", "cli", "prepare")),
        ("report", ("commands", "cli", "prepare", "reprod_log", "nightly", "history")),
        ("nightly", ("commands", "cli", "live", "prepare", "reprod_log", "history")),
        ("history", ("commands", "cli", "live", "prepare", "reprod_log", "bundle")),
        ("conversion", ("chain", "parity", "report", "commands", "cli", "prepare", "reprod_log")),
    ],
)
def test_parts_import_one_way(part, forbidden):
    for path in sorted((PACKAGE / part).rglob("*.py")):
        for name in imports_of(path):
            for other in forbidden:
                inside = name == f"tipchain.{other}" or name.startswith(f"tipchain.{other}.")
                assert not inside, f"{path.relative_to(PACKAGE)} imports {name}"


def test_small_modules_import_no_part():
    for path in sorted(PACKAGE.glob("*.py")):
        if path.stem in ("cli", "__main__", "__init__"):
            continue
        for name in imports_of(path):
            for part in ("chain", "report", "commands"):
                assert not name.startswith(f"tipchain.{part}"), f"{path.name} imports {name}"


def loaded_after(code: str, modules: tuple[str, ...] = HEAVY) -> list[str]:
    program = f"import sys\n{code}\nprint(*[name for name in {modules!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize(
    "code",
    [
        "import tipchain",
        "import tipchain.cli",
        "from tipchain.cli import main; main(['--version'])",
        "from tipchain.cli import main; main(['--help'])",
    ],
)
def test_starting_up_loads_nothing_heavy(code):
    assert loaded_after(code) == []


def test_a_plan_loads_only_what_planning_needs():
    params = PACKAGE.parent / "test_tipc/configs/alexnet/train_infer_python.txt"
    code = f"from tipchain.cli import main; main(['plan', {str(params)!r}, 'lite_train_lite_infer'])"
    slow = (
        "importlib.metadata",
        "importlib.resources",
        "email",
        "hashlib",
        "difflib",
        "json",
        "subprocess",
        "traceback",
    )
    others = (
        "tipchain.blame",
        "tipchain.parity.builders",
        "tipchain.chain.artifacts",
        "tipchain.chain.kinds.base",
    )
    assert loaded_after(code, (*HEAVY, *slow, *others)) == ["yaml"]


def test_every_command_explains_itself_without_a_framework():
    from tipchain.cli import COMMANDS

    for name in COMMANDS:
        code = f"from tipchain.cli import main\ntry: main([{name!r}, '--help'])\nexcept SystemExit as end: assert end.code == 0"
        assert not {"torch", "paddle"} & set(loaded_after(code)), name


def test_the_drop_in_loads_no_framework():
    assert not {"torch", "paddle"} & set(
        loaded_after("import tipchain.reprod_log, tipchain.reprod_log.compare")
    )


def test_judging_and_reports_load_no_framework():
    """Where only a bundle of the reference is, torch cannot be imported; a report is read where neither is."""
    stages = sorted(path.stem for path in (PACKAGE / "parity/stages").glob("*.py"))
    modules = [f"tipchain.parity.stages.{name}" for name in stages] + [
        "tipchain.parity.align",
        "tipchain.live.html",
    ]
    assert not {"torch", "paddle"} & set(loaded_after(f"import {', '.join(modules)}"))
