"""Which part may import which, and what starting up may load."""

import ast
import operator
import re
import sys
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from programs import completed

PACKAGE = Path(__file__).resolve().parents[1] / "tipchain"
HEAVY = ("numpy", "torch", "paddle", "yaml", "safetensors", "sklearn", "PIL", "sqlalchemy")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports_of(path: Path) -> set[str]:
    """Return every module that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


CONTRIBUTING = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|([^|]*)\| (\d+) \|$", CONTRIBUTING, re.MULTILINE)
ROOMS = {
    name: (set(re.findall(r"`(\w+)`", imports)), imports.strip() == "all", re.findall(r"`(tests/\w+)`", tests))
    for name, imports, tests, _ in ROWS
}
LINES = {PACKAGE / name: int(lines) for name, *_, lines in ROWS} | {
    PACKAGE.parent / "tests": int(re.search(r"`tests/` has at\s+most (\d+)", CONTRIBUTING)[1])
}


def test_the_house_has_every_room_and_its_tests():
    assert set(ROOMS) == {path.parent.name for path in PACKAGE.glob("*/*.py")}
    assert [path for *_, paths in ROOMS.values() for path in paths if not (PACKAGE.parent / path).is_dir()] == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_the_house_lets_it(room):
    allowed, everything, _ = ROOMS[room]
    above = list(ROOMS)[: list(ROOMS).index(room)]
    assert allowed <= set(above), f"{room} stands on {allowed - set(above)}, which the house has below it"
    for path in sorted((PACKAGE / room).rglob("*.py")):
        rooms = {name.split(".")[1] for name in imports_of(path) if name.startswith("tipchain.")} & set(ROOMS)
        assert everything or rooms <= allowed | {room}, f"{path.relative_to(PACKAGE)} imports {rooms - allowed}"


@pytest.mark.parametrize(
    "journey", re.findall(r"^- (.*? to .*?): (.*(?:\n  .*)*)", CONTRIBUTING, re.MULTILINE), ids=operator.itemgetter(0)
)
def test_a_journey_goes_one_way(journey):
    """Each module is imported by one that stands before it."""
    steps = [f"tipchain.{one.replace('/', '.')}" for one in re.findall(r"`([\w/]+)`", journey[1])]
    assert len(steps) >= 5
    reached = set()
    for step in steps:
        path = PACKAGE.parent / f"{step.replace('.', '/')}.py"
        file = path if path.is_file() else path.with_suffix("") / "__init__.py"
        assert file.is_file(), step
        assert not reached or step in reached, f"{step} is called by none before it"
        for name in imports_of(file):
            reached.add(name)


@pytest.mark.parametrize("folder", LINES, ids=operator.attrgetter("name"))
def test_a_folder_keeps_to_its_lines(folder):
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))
    assert lines <= LINES[folder], "it has grown: make room in it"
    assert LINES[folder] - lines < 100, f"it has shrunk: lower its figure in CONTRIBUTING.md to {lines}"


def test_no_circle_of_imports():
    files = {
        path.relative_to(PACKAGE.parent).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__"): path
        for path in PACKAGE.rglob("*.py")
    }
    needs = {}
    for name, path in files.items():
        top = [node for node in tree_of(path).body if isinstance(node, ast.ImportFrom) and node.module]
        found = {f"{node.module}.{alias.name}" for node in top for alias in node.names} | {node.module for node in top}
        needs[name] = {one for one in found if one in files} - {name}
    order = TopologicalSorter(
        {name: {one for one in each if not name.startswith(f"{one}.")} for name, each in needs.items()}
    )
    order.prepare()


def test_a_class_name_stands_for_one_thing():
    names = Counter(
        node.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def loaded_after(code: str, modules: tuple[str, ...] = HEAVY) -> list[str]:
    program = f"import sys\n{code}\nprint(*[name for name in {modules!r} if name in sys.modules])"
    done = completed([sys.executable, "-c", program], check=True)
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
    slow = "importlib.metadata importlib.resources email hashlib difflib json shutil subprocess traceback"
    others = "tipchain.core.blame tipchain.frameworks.base tipchain.chain.artifacts tipchain.chain.kinds.base"
    assert loaded_after(code, (*HEAVY, *slow.split(), *others.split())) == ["yaml"]


def test_every_command_explains_itself_without_a_framework():
    from tipchain.cli import COMMANDS

    lines = [
        "from tipchain.cli import main",
        f"for name in {list(COMMANDS)}:",
        "    try: main([name, '--help'])",
        "    except SystemExit as end: assert end.code == 0, name",
        "    assert not {'torch', 'paddle'} & {*sys.modules}, name",
    ]
    assert not {"torch", "paddle"} & set(loaded_after("\n".join(lines)))


def test_the_drop_in_loads_no_framework():
    assert not {"torch", "paddle"} & set(loaded_after("import tipchain.reprod_log, tipchain.reprod_log.compare"))


def test_judging_and_reports_load_no_framework():
    """Where only a bundle of the reference is, torch cannot be imported; a report is read where neither is."""
    stages = sorted(path.stem for path in (PACKAGE / "parity/stages").glob("*.py"))
    modules = [f"tipchain.parity.stages.{name}" for name in stages] + ["tipchain.parity.align", "tipchain.live.html"]
    assert not {"torch", "paddle"} & set(loaded_after(f"import {', '.join(modules)}"))
