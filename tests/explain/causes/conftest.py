"""The live frameworks of the locator's tests, and one way to diagnose the first fault of a pair."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

_spec = importlib.util.spec_from_file_location("locate_fixtures", Path(__file__).parents[1] / "locate/conftest.py")
_locate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_locate)
live, nets = _locate.live, _locate.nets


class Causes:
    """Diagnoses pairs of live models."""

    def __init__(self, live: Any) -> None:
        self.live = live

    def located(self, reference: Any, port: Any, inputs: Any) -> tuple[Any, Any]:
        from tipchain.explain.locate.locate import Locator
        from tipchain.explain.locate.runs import read_inputs

        store = self.live.store()
        given = inputs if isinstance(inputs, dict) else {"args": inputs}
        return Locator(self.live.sides, store).locate(reference, port, read_inputs(given)), store

    def of(self, reference: Any, port: Any, inputs: Any, **options: Any) -> list[Any]:
        """Return what is told about the first verdict at fault, as a list."""
        from tipchain.explain.causes.search import diagnose
        from tipchain.explain.locate.matching import pair_layers
        from tipchain.explain.preflight.construction import check

        found, store = self.located(reference, port, inputs)
        assert found.first is not None, "the fault is located"
        findings = check(reference, port, pair_layers(reference, port), found.matching.pairs)
        options = {"findings": findings, "models": (reference, port), **options}
        return list(diagnose(found, found.first, self.live.sides, store, **options))

    def first(self, reference: Any, port: Any, inputs: Any) -> Any:
        """Return the likeliest cause; it explains the error."""
        cause = self.of(reference, port, inputs)[0]
        assert cause.explained is None or cause.explained >= 0.99, cause
        return cause


@pytest.fixture(scope="session")
def causes(live: Any) -> Causes:
    return Causes(live)
