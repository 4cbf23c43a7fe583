import json
import shlex
from types import SimpleNamespace

import pytest
from alignment_samples import failing

from tipchain.cli import main
from tipchain.live.worker import Launched

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


def test_the_command_that_is_told_is_the_one_that_was_typed(asked, capsys):
    given = ["locate", *PAIR, "--training", "--iterations", "3", "--seed", "7"]
    main(given)
    assert shlex.split(asked.request["command"]) == ["tipchain", *given]
    capsys.readouterr()
