"""The page that `tipchain locate` writes, and the command that it names."""

import json
from types import SimpleNamespace

import pytest
from alignment_samples import failing

from tipchain.cli import main
from tipchain.live.worker import Launched, command_line

PAIR = ["--reference", "net:make it", "--port", "net:port", "--inputs", "x.npz"]


@pytest.fixture
def asked(monkeypatch) -> SimpleNamespace:
    """Let no process run: what would be asked of it is kept, and a report comes back."""
    kept = SimpleNamespace(request={})

    def launch(request, **_):
        kept.request = request
        return Launched(text="FAIL: x", exit_code=1, document={**json.loads(failing().to_json()), "text": "FAIL: x"})

    monkeypatch.setattr("tipchain.live.worker.launch", launch)
    return kept


def test_the_report_is_written_as_a_page(asked, tmp_path, capsys):
    assert main(["locate", *PAIR, "--html", str(tmp_path / "new" / "why.html")]) == 1
    assert "First divergence" in (tmp_path / "new" / "why.html").read_text(encoding="utf-8")
    assert "FAIL: x" in capsys.readouterr().out


@pytest.mark.parametrize(
    "given",
    [
        ["locate", *PAIR, "--no-causes"],
        [
            "locate",
            *PAIR,
            "--loss",
            "torch.nn:MSELoss",
            "paddle.nn:MSELoss",
            "--training",
            "--iterations",
            "3",
            "--seed",
            "7",
        ],
    ],
)
def test_the_command_that_is_told_asks_for_the_same(asked, given, capsys):
    import shlex

    main(given)
    first = asked.request
    told = shlex.split(command_line(first))
    assert told[:2] == ["tipchain", given[0]]
    main(told[1:])
    assert asked.request == first
    capsys.readouterr()


def test_the_command_of_a_case_names_its_mode():
    asked = {
        "case": "configs/a.yaml",
        "mode": "whole_infer",
        "reseed": 2,
        "options": {"training": False, "causes": True},
    }
    assert command_line(asked) == "tipchain locate configs/a.yaml --mode whole_infer --seed 2"
