"""Helpers that several folders share, and the tools, are imported by name: this file puts their folders on the import path.

Hypothesis has three profiles: ``quick``, ``thorough`` for an engine that was just changed, and ``nightly`` with 100,000
examples for each property of the parser and half as many of plans. ``pytest -m nightly`` runs the last; whatever is
selected runs with ``HYPOTHESIS_PROFILE=...``.
"""

import atexit
import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import chromium
import forking
import pytest
from hypothesis import HealthCheck, settings

PROPERTIES = "test_properties.py"
MAIN_JOB = ("test_main_job.py", "test_guide.py")
"""Files whose tests write where the main job's AlexNet does: one process runs them all, one after the other."""
WAITING = (
    "test_ray_nights.py",
    "test_foreign_checkout.py",
    "test_process.py",
    "test_paddle_tools.py",
    "test_commands.py",
    "test_distributed_stage.py",
    "test_run_command.py",
    "test_run.py",
    "test_local.py",
)
"""Files that wait more than they compute: they run beside the main job, whose two sides keep both cores busy."""
LONG = (
    "test_faults.py",
    "test_align.py",
    "test_document_scripts.py",
    "test_one_judge.py",
    "test_equal.py",
    "test_page_commands.py",
    "test_setup.py",
    "test_suite_in_ci.py",
    "test_ci_files.py",
)
"""Files of the others that take longest, the dearest first."""
FIRST = (*MAIN_JOB, *WAITING, *LONG)
"""What is run before all others, so that no process is left with something long alone at the end."""
BROWSER = "_browser.py"
"""How the names of files end whose tests look at pages: they share one browser."""
NIGHTLY_TIMEOUT_S = 4 * 3600

# The folder of this file is there already.
sys.path.append(str(forking.HERE.parent / "tools"))
# Texts are compared in English, whatever the developer's locale is; tests/core/test_language.py has the others.
os.environ["TIPCHAIN_LANG"] = "en"
# The same examples every time: what a random one finds some night must not stop a change that has nothing to do with it.
settings.register_profile("quick", deadline=None, max_examples=120, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=10_000)
settings.register_profile("nightly", deadline=None, max_examples=100_000, suppress_health_check=[HealthCheck.too_slow])


def profile(config: pytest.Config) -> str:
    """Return the name of the profile that is asked for."""
    usual = "nightly" if str(config.getoption("markexpr")).split() == ["nightly"] else "quick"
    return os.environ.get("HYPOTHESIS_PROFILE", usual)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the profile before any test is decorated with it; let the garbage collector rest during collection."""
    settings.load_profile(profile(config))
    gc.disable()
    # A shell starts what runs in its background with interrupts ignored, nohup with hangups; all children inherit it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Tests and frameworks are there to stay: no collection looks at them, during the tests or at the end."""
    gc.freeze()
    gc.enable()
    atexit.register(gc.freeze)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let pytest-xdist give the tests of a file to one process, and so all that want a browser, and all that write in one place."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if file.endswith(BROWSER):
                return "browser"
            return "main job" if file.rpartition("/")[2] in MAIN_JOB else file

    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the properties be both, short every time and long at night; leave out what is for the night alone."""
    for item in items if profile(config) == "nightly" else ():
        if item.path.name == PROPERTIES:
            item.add_marker(pytest.mark.nightly)
            item.add_marker(pytest.mark.timeout(NIGHTLY_TIMEOUT_S))
    items.sort(key=lambda item: FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST))
    if "nightly" not in str(config.getoption("markexpr")):
        _leave_out(config, items, [item for item in items if item.get_closest_marker("nightly")])


def _leave_out(config: pytest.Config, items: list[pytest.Item], some: list[pytest.Item]) -> None:
    """Take ``some`` out of ``items``; pytest's summary counts them as deselected."""
    config.hook.pytest_deselected(items=some)
    items[:] = [item for item in items if item not in some]


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what needs torch or Paddle be forked from a process that has imported it (tests/forked)."""
    for name, value in forking.variables(forking.HERE.parent).items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    """Return the page of a browser that all tests share; each opens what it looks at."""
    made = chromium.Page(str(chromium.find()), tmp_path_factory.mktemp("profile"))
    made.send("Emulation.setFocusEmulationEnabled", enabled=True)
    yield made
    made.close()
