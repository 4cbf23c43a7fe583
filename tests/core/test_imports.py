"""How frameworks are imported: without the garbage collector, which never looks at what they brought."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tipchain.core.machine import kept_import


@pytest.fixture
def collector() -> Iterator[None]:
    """Leave the collector as it was found."""
    enabled, frozen = gc.isenabled(), gc.get_freeze_count()
    gc.enable()
    yield
    (gc.freeze if frozen else gc.unfreeze)()
    (gc.enable if enabled else gc.disable)()


@pytest.mark.usefixtures("collector")
def test_the_collector_rests_and_what_came_is_frozen():
    gc.unfreeze()
    with kept_import("no_such_framework"):
        assert not gc.isenabled()
        kept = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() > 1000
    assert not any(one is kept for one in gc.get_objects())


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("error", [None, ImportError])
def test_a_collector_that_was_off_stays_off_and_one_that_was_on_comes_back(error):
    def attempt() -> None:
        with kept_import("no_such_framework"):
            if error:
                raise error

    for switch, expected in ((gc.disable, False), (gc.enable, True)):
        switch()
        if error:
            with pytest.raises(error):
                attempt()
        else:
            attempt()
        assert gc.isenabled() is expected


def test_a_command_is_loaded_without_the_collector_and_runs_with_it():
    program = """
import gc, sys
from types import SimpleNamespace
from tipchain import cli
def load(name):
    loaded.append(gc.isenabled())
    return SimpleNamespace(add_arguments=lambda parser: None, run=lambda args: print(gc.isenabled(), gc.get_freeze_count() > 1000))
loaded, cli.load_command = [], load
sys.argv = ["tipchain", "plan"]
cli.main(["plan"])
cli.main()
print(loaded)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    # Within a process of somebody else, the collector is left alone.
    assert done.stdout == "True False\nTrue True\n[True, True, False, False]\n"
