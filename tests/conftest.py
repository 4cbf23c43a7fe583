"""Being here, this file puts the tests' folder on the import path, for helpers that several folders share.

Hypothesis has three profiles: ``quick``, ``thorough`` for an engine that was just changed, and ``nightly`` with 100,000
examples for each property of the parser and half as many of plans. ``pytest -m nightly`` runs the last; whatever is
selected runs with ``HYPOTHESIS_PROFILE=...``.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import chromium
import pytest
from hypothesis import HealthCheck, settings

PROPERTIES = "test_properties.py"
IN_PLACE = ("test_main_job.py", "test_readme.py", "test_guide.py")
"""Files whose tests run chains in the project's own folder: one after the other, and first, for they take longest."""
BROWSER = "_browser.py"
"""How the names of files end whose tests look at pages: they share one browser."""
NIGHTLY_TIMEOUT_S = 4 * 3600

# Texts are compared in English, whatever the developer's locale is; tests/test_language.py has the others.
os.environ["TIPCHAIN_LANG"] = "en"
# The same examples every time: what a random one finds some night must not stop a change that has nothing to do with it.
settings.register_profile("quick", deadline=None, max_examples=300, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=10_000)
settings.register_profile(
    "nightly", deadline=None, max_examples=100_000, suppress_health_check=[HealthCheck.too_slow]
)


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
    """Let pytest-xdist give the tests of a file, those of all files in `IN_PLACE`, and all that want a browser, to one process."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            name = file.rpartition("/")[2]
            return "in place" if name in IN_PLACE else "browser" if name.endswith(BROWSER) else file

    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the properties be both, short every time and long at night; leave out what is for the night alone."""
    for item in items if profile(config) == "nightly" else ():
        if item.path.name == PROPERTIES:
            item.add_marker(pytest.mark.nightly)
            item.add_marker(pytest.mark.timeout(NIGHTLY_TIMEOUT_S))
    items.sort(key=lambda item: item.path.name not in IN_PLACE)
    if "nightly" not in str(config.getoption("markexpr")):
        _leave_out(config, items, [item for item in items if item.get_closest_marker("nightly")])


def _leave_out(config: pytest.Config, items: list[pytest.Item], some: list[pytest.Item]) -> None:
    """Take ``some`` out of ``items``; pytest's summary counts them as deselected."""
    config.hook.pytest_deselected(items=some)
    items[:] = [item for item in items if item not in some]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    """Return the page of a browser that all tests share; each opens what it looks at."""
    made = chromium.Page(str(chromium.find()), tmp_path_factory.mktemp("profile"))
    made.send("Emulation.setFocusEmulationEnabled", enabled=True)
    yield made
    made.close()
