"""Whose an exception is: the user's own, with the place, or tipchain's."""

import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from stage_records import recording_job

import tipchain.cli
import tipchain.core.blame
from tipchain.core.blame import UsersError, is_users, message_of, one_line, serving, side_of, tell, users_fault
from tipchain.core.guard import guarded
from tipchain.errors import ExitCode, did_you_mean
from tipchain.frameworks.base import Trainer, check_batch, checking
from tipchain.parity import recorder


@pytest.mark.parametrize(
    ("file", "own"),
    [
        (np.__file__, False),
        (tipchain.cli.__file__, False),
        ("/elsewhere/site-packages/net.py", False),
        ("/elsewhere/my-site-packages/net.py", True),
        (__file__, True),
    ],
)
def test_what_python_packages_and_tipchain_brought_is_not_the_users(file, own):
    assert is_users(file) is own


def raised(function, *args):
    try:
        function(*args)
    except BaseException as error:  # noqa: BLE001  (that is what is looked at)
        return error.with_traceback(error.__traceback__.tb_next)
    raise AssertionError("nothing was raised")


def lines_here(words):
    """Return ``file:line`` of the only line of this file that has ``words`` and no quotes around them."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [at for at, line in enumerate(lines, 1) if line.strip() == words]
    return f"{__file__}:{number}"


def boom(*_, **__):
    raise ValueError("boom\nand more")


def outer():
    return boom()


def call(function, *args):
    """What tipchain does: a frame of its own below which the user's code runs."""
    return checking("anything", "paddle", function)(*args)


def exit_quietly():
    raise SystemExit


def test_what_the_users_code_raises_has_its_place_side_and_stage_and_is_no_bug(capsys):
    def work():
        with serving(side="paddle", stage="evaluation"):
            call(outer)

    assert guarded(work) == ExitCode.FAILED
    said = capsys.readouterr().err
    place = lines_here('raise ValueError("boom\\nand more")')
    assert f"error: {place}: ValueError: boom\n" in said
    assert f"\n  called from: {lines_here('return boom()')}, " in said
    assert said.endswith("\n  in: the port (Paddle), building the anything\n")
    assert "bug of tipchain" not in said


def test_what_tipchain_alone_raises_is_its_bug(capsys):
    assert guarded(did_you_mean, "word", 5) == ExitCode.BUG
    assert "this is a bug of tipchain" in capsys.readouterr().err


def test_the_deepest_own_line_counts_though_libraries_go_on_below():
    error = raised(call, lambda: json.loads("{"))
    assert users_fault(error).startswith(f"{__file__}:")
    assert "JSONDecodeError: Expecting property name" in users_fault(error)


def exit_now():
    sys.exit(0)


def test_an_exit_from_the_users_code_is_no_success(capsys):
    assert guarded(lambda: call(exit_now)) == ExitCode.FAILED
    said = capsys.readouterr().err
    assert f"{lines_here('sys.exit(0)')}: SystemExit: it ends the program here, with exit code 0" in said
    assert users_fault(raised(exit_quietly)).endswith("with exit code 0")


def build_net(width):
    return width


class Net:
    def __init__(self, width):
        self.width = width


@pytest.mark.parametrize(
    ("builder", "line"), [(build_net, "def build_net(width):"), (Net, "def __init__(self, width):")]
)
def test_a_builder_that_does_not_take_its_arguments_is_named_by_its_place(builder, line):
    told = users_fault(raised(checking("anything", "paddle", builder), 1, 2))
    assert told.startswith(f"{lines_here(line)}: TypeError: ")
    assert "positional argument" in told


TORCH_WORKER = """Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/x/site-packages/torch/utils/data/_utils/fetch.py", line 54, in fetch
    data = [self.dataset[idx] for idx in possibly_batched_index]
  File "/home/me/data.py", line 11, in __getitem__
    raise ValueError("boom")
ValueError: boom
"""
PADDLE_STATIC = """In transformed code:

    File "/home/me/port.py", line 20, in forward
\tif x.shape[0] > 2:
    File "/home/me/port.py", line 21, in forward
            y = undefined_thing(x)
            ~~~~~~~~~~~~~~~~~~~~~~ <--- HERE
        return x

    NameError: name 'undefined_thing' is not defined
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TORCH_WORKER, "/home/me/data.py:11: ValueError: boom"),
        (PADDLE_STATIC, "/home/me/port.py:21: NameError: name 'undefined_thing' is not defined"),
    ],
)
def test_a_place_that_only_the_message_has_is_read_from_it(text, told):
    assert users_fault(RuntimeError(text)) == told


def test_of_a_kernels_message_what_is_wrong_is_told():
    text = "\n\n-----\nC++ Traceback\n-----\n0  f()\n\n-----\nError Message Summary:\n-----\nInvalidArgumentError: 3 is not 4.\n  [Hint: no]"
    assert message_of(RuntimeError(text)) == "InvalidArgumentError: 3 is not 4."
    assert message_of(ValueError("")) == ""
    told = 'In user code:\n\n    File "m.py", line 12, in forward\n        y = x\n\n    InvalidArgumentError: 3 is not 4.\n'
    assert message_of(RuntimeError(told)) == "InvalidArgumentError: 3 is not 4."
    assert message_of(ValueError("Error(s) in loading:\n  a is missing")) == "Error(s) in loading: a is missing"


def test_a_syntax_error_is_where_it_is(tmp_path):
    (tmp_path / "broken.py").write_text("x = (\n")
    error = raised(lambda: compile("x = (\n", str(tmp_path / "broken.py"), "exec"))
    assert users_fault(error) == f"{tmp_path}/broken.py:1: SyntaxError: '(' was never closed"


def test_a_package_that_a_builder_is_named_from_counts_as_the_users(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "their_zoo"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setattr(tipchain.core.blame, "_claimed", set())
    assert not is_users(str(package / "nets.py"))
    tipchain.core.blame.claim("their_zoo.nets")
    assert is_users(str(package / "nets.py"))
    tipchain.core.blame.claim("tipchain.pairs")
    assert not is_users(tipchain.cli.__file__)


def framework(name):
    made = ModuleType(f"{name}.nn")
    code = compile(
        "def run(): raise ValueError('shapes')\nclass Tensor: pass", f"/x/site-packages/{name}/nn.py", "exec"
    )
    exec(code, vars(made))
    return made


@pytest.mark.parametrize("name", ["torch", "paddle"])
def test_the_side_is_told_by_the_framework_that_raised_or_whose_values_were_at_hand(name):
    made = framework(name)

    def loss(output):
        return 1 // output.size

    made.Tensor.size = 0
    assert side_of(raised(made.run)) == name
    error = raised(loss, made.Tensor())
    assert side_of(error) == name
    assert one_line(error).startswith(f"{__file__}:")
    assert ("the reference (torch)" if name == "torch" else "the port (Paddle)") in one_line(error)
    assert side_of(raised(boom)) == ""


@pytest.mark.parametrize(
    ("name", "made", "expected"),
    [
        ("scheduler", 0.1, "returned a float\n  expected: a schedule, which has `step()`"),
        ("dataset", iter(()), "expected: a data set, which has `__len__` and `__getitem__`"),
        ("metric", "acc", "returned a str\n  expected: a callable `(output, label)"),
    ],
)
def test_a_builder_that_makes_something_else_is_told_with_its_place(name, made, expected):
    told = told_of(name, lambda: made)
    assert expected in told
    assert told.endswith(f"in: the port (Paddle), building the {name}")


def told_of(name, builder):
    with pytest.raises(UsersError) as raised_:
        checking(name, "paddle", builder)()
    told = tell(raised_.value)
    assert told.startswith(f"{__file__}:")
    return told


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("loss", "(**loss.args)` and returns a callable `(output, label) -> scalar`"),
        ("scheduler", "(None, learning_rate=..., **scheduler)` and returns a schedule"),
    ],
)
def test_what_is_no_builder_is_told_how_a_builder_is_called(name, called):
    def criterion(output, label):
        return output - label

    told = told_of(name, criterion)
    assert "criterion() missing 2 required positional arguments" in told
    assert f"expected: a builder that is called with `{called}" in told


def test_samples_of_other_parts_are_told_with_the_data_sets_place():
    class Pairs:
        def __getitem__(self, index):
            return index, index

    with pytest.raises(UsersError, match=r"test_blame.py:\d+: a sample of Pairs is 2 values\n  expected: \(image"):
        check_batch([1, 2], Pairs())
    assert check_batch([1, 2, 3], Pairs()) == (1, 2, 3)


def open_missing(*_):
    return Path("/nowhere/image.png").read_bytes()


def interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("users", "told"),
    [
        (open_missing, "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/image.png'"),
        (interrupt, "KeyboardInterrupt"),
        (exit_quietly, "SystemExit: it ends the program here, with exit code 0"),
    ],
)
def test_a_recorded_stage_tells_the_users_line_of_errors_of_the_system_too(monkeypatch, users, told):
    def run(_stage, _bench):
        users()

    monkeypatch.setattr(recorder, "open_bench", lambda *_: None)
    monkeypatch.setattr(recorder, "record", run)
    job = recording_job("data")
    ended = recorder._record_stage(job, None, None, {}, "data", "cpu")
    assert ended["ok"] is False
    assert ended["message"].startswith(f"{__file__}:")
    assert ended["message"].endswith(told)
    assert "bug of tipchain" not in ended["message"]


def test_a_full_disk_under_a_recorder_is_nobodys_code(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", "dump.npy")

    job = recording_job("data")
    monkeypatch.setattr(recorder, "open_bench", full)
    monkeypatch.setattr(tipchain.core.blame, "is_users", lambda _: False)
    ended = recorder._record_stage(job, None, None, {}, "data", "cpu")
    assert ended["message"] == "data: [Errno 28] No space left on device: 'dump.npy'"


class Schedules:
    def get_last_lr(self):
        """A schedule of two, which lacks a step."""


@pytest.mark.parametrize("lacking", [Schedules(), Schedules])
def test_what_tipchain_finds_lacking_in_the_users_object_is_asked_of_its_class(lacking):
    error = raised(Trainer(None, lacking, float, float).step_schedule)
    line = Schedules.get_last_lr.__code__.co_firstlineno
    assert users_fault(error).startswith(f"{__file__}:{line}: AttributeError: ")
    assert users_fault(raised(Trainer(None, [], float, float).step_schedule)) is None
