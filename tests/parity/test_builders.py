"""Builders that cannot be there are told before anything is prepared or imported, all in one error."""

import inspect
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tipchain.core.files import ROOT_VARIABLE, find_root
from tipchain.errors import InputError
from tipchain.frameworks.base import _OwnImports, candidates, checking, resolve
from tipchain.parity.case import check_builders, load_case

CASE = """\
id: x
sides:
  torch: {{model: "{torch}", loss: "{loss}"}}
  paddle: {{model: "{paddle}"}}
inputs: {{image: {{shape: [1]}}}}
stages: [forward]
"""


@pytest.fixture
def case(tmp_path):
    (tmp_path / "own/inner").mkdir(parents=True)
    (tmp_path / "own/inner/port.py").write_text("raise SystemExit('it must not be imported')\ndef build(): pass\n")
    (tmp_path / "own/broken.py").write_text("def (")
    (tmp_path / "own/open.py").write_text("from somewhere import *\n")
    (tmp_path / "own/late.py").write_text("if True:\n    build = make = None\nimport x.y as z\n")

    def write(torch="own.inner.port:build", paddle="own.inner.port:build", loss="own.nothing:loss"):
        (tmp_path / "case.yaml").write_text(CASE.format(torch=torch, paddle=paddle, loss=loss))
        return load_case(tmp_path / "case.yaml")

    return write


@pytest.mark.parametrize(
    "spec",
    [
        "own.inner.port:build",
        "own.broken:build",
        "own.open:build",
        "own.late:build",
        "own.late:make",
        "own.late:z",
        "torch.nn:Anything",
        "json:nothing",
        "numpy.nowhere:x",
    ],
)
def test_what_may_be_there_is_left_to_its_import(case, spec):
    before = set(sys.modules)
    check_builders(case(torch=spec), ["forward"], ["torch", "paddle"])
    assert not {name for name in set(sys.modules) - before if name.startswith("own")}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("alignment_x.torch_side:build", "alignment_x does not exist"),
        ("own.side:build", "own.side does not exist"),
        ("own.inner.side.more:build", "own.inner.side does not exist"),
        ("own.late.more:build", "own.late is no package, so it has no more"),
        ("own.inner.port:biuld", "own.inner.port has no 'biuld'"),
    ],
)
def test_what_cannot_be_there_is_told_with_its_line(case, tmp_path, spec, said):
    with pytest.raises(InputError) as raised:
        check_builders(case(paddle=spec), ["forward"], ["torch", "paddle"])
    text = str(raised.value)
    assert text.startswith(f"{tmp_path}/case.yaml:4: sides.paddle.model: {said}\n  found: {spec}")
    assert f"imports start at {tmp_path}" in text or "did you mean 'build'?" in text
    check_builders(case(paddle=spec), ["forward"], ["torch"])


def test_all_are_told_in_one_error_and_only_what_the_stages_need(case):
    wrong = case(torch="own.a:b", paddle="own.c:d")
    with pytest.raises(
        InputError, match=r"(?s)sides.torch.model: own.a does not exist.*and own.c does not exist"
    ) as raised:
        check_builders(wrong, ["forward"], ["torch", "paddle"])
    assert "own.nothing" not in str(raised.value)
    with pytest.raises(InputError, match=r"and own\.nothing does not exist"):
        check_builders(wrong, ["forward", "loss"], ["torch"])


def test_the_root_is_what_the_case_or_the_environment_says(case, tmp_path, monkeypatch):
    made = case()
    text = made.path.read_text()
    made.path.write_text(f"root: own\n{text}")
    assert load_case(made.path).root == tmp_path / "own"
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "own/inner"))
    assert load_case(made.path).root == find_root(made.path) == tmp_path / "own/inner"
    monkeypatch.delenv(ROOT_VARIABLE)
    made.path.write_text(f"root: nowhere\n{text}")
    with pytest.raises(InputError, match="root: is no folder"):
        load_case(made.path)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("cross_entropy", ["nobodys.nn:CrossEntropyLoss", "nobodys.nn.functional:cross_entropy"]),
        ("linear", ["nobodys.nn:Linear"]),
        ("Linaer", ["nobodys.nn:Linear"]),
        ("size", []),
        ("wholly_different", []),
    ],
)
def test_what_may_have_been_meant(monkeypatch, name, near):
    made = {}
    for module in ("nobodys", "nobodys.nn", "nobodys.nn.functional", "nobodys._hidden"):
        made[module] = ModuleType(module)
        monkeypatch.setitem(sys.modules, module, made[module])
    made["nobodys.nn"].CrossEntropyLoss = made["nobodys.nn"].Linear = type
    made["nobodys.nn.functional"].cross_entropy = made["nobodys._hidden"].cross_entropy = len
    made["nobodys.nn"].size = 3
    assert candidates(made["nobodys.nn"], name) == near


@pytest.fixture
def checkouts(tmp_path, monkeypatch):
    """Write two repositories that both have a package `models`, and a module for each side that puts its own on the path."""

    def write(add, port="port"):
        for side, folder in (("torch", "reference"), ("paddle", port)):
            package = tmp_path / folder / "models"
            package.mkdir(parents=True)
            (package / "__init__.py").write_text(f"SIDE = {side!r}\n")
            (package / "net.py").write_text(f"class Net:\n    side = {side!r}\n")
            (package / "late.py").write_text(f"SIDE = {side!r}\n")
            lines = [
                "import sys" if folder != "." else "",
                add.format(tmp_path / folder) if folder != "." else "",
                "from models.net import Net",
                "def build(): return Net",
                "def late():\n    import models.late\n    return models.late.SIDE",
            ]
            (tmp_path / f"{side}_side.py").write_text("\n".join(lines) + "\n")
        return tmp_path

    kept = dict(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("tipchain.frameworks.base._imports", _OwnImports())
    yield write
    for name in set(sys.modules) - set(kept):
        if name.partition("@")[0].partition(".")[0] in ("models", "torch_side", "paddle_side"):
            del sys.modules[name]


class Lazy:
    """Among the modules, but none: like torch.classes it raises for names that it lacks."""

    def __getattr__(self, name):
        raise RuntimeError(name)


@pytest.mark.parametrize("order", [("torch", "paddle"), ("paddle", "torch")])
@pytest.mark.parametrize(
    ("add", "port"),
    [("sys.path.insert(0, '{}')", "port"), ("sys.path.append('{}')", "port"), ("sys.path.insert(0, '{}')", ".")],
)
def test_two_repositories_with_a_package_of_one_name_share_a_process(checkouts, monkeypatch, add, port, order):
    root = checkouts(add, port)
    monkeypatch.setitem(sys.modules, "lazy_of_test", Lazy())
    built = {side: resolve(f"{side}_side:build", root, side) for side in order}
    late = {side: resolve(f"{side}_side:late", root, side) for side in order}
    for side in order:
        assert built[side]().side == side
    for side in (*order, *order):
        assert checking("loader", side, late[side])() == side
    for side, folder in (("torch", "reference"), ("paddle", port)):
        assert Path(inspect.getsourcefile(built[side]())) == root / folder / "models/net.py"
