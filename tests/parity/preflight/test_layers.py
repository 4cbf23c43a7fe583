"""What layers are made with, compared kind by kind."""

from __future__ import annotations

import pytest

from tests.parity.preflight.samples import CHANGED, EQUAL


def findings(live, reference, port, shapes=None):
    from tipchain.parity.preflight import Pair, check_layers

    return check_layers(
        [Pair("ours", *live.built(reference, "None")[:1], "theirs", live.built("None", port)[1], shapes)]
    )


@pytest.mark.parametrize(("reference", "port"), EQUAL)
def test_layers_made_alike_differ_in_nothing(live, reference, port):
    assert findings(live, reference, port) == []


@pytest.mark.parametrize(("reference", "port", "code", "ours", "theirs"), CHANGED)
def test_a_changed_argument_is_the_one_finding(live, reference, port, code, ours, theirs):
    (found,) = findings(live, reference, port)
    assert (found.code, found.kind, found.harmless) == (code, "argument", False)
    assert ours in found.reference
    assert theirs in found.port
    assert (found.reference_path, found.port_path) == ("ours", "theirs")
    assert found.reference in found.message
    assert found.port in found.message
    assert "`theirs`" in found.fix


def test_every_property_of_every_kind_is_among_the_samples(live):
    from tipchain.parity.preflight.kinds import KINDS, kind_of

    seen = {(kind_of(live.built(sample[0], "None")[0], 0).name, sample[2]) for sample in CHANGED}
    alike = {kind_of(live.built(sample[0], "None")[0], 0).name for sample in EQUAL}
    wanted = {(kind.name, one.code) for kind in KINDS for one in kind.properties} - {
        (name, "time-order") for name in ("LSTM", "GRU", "RNN", "MultiheadAttention")
    }  # tested below: it needs shapes
    assert wanted <= seen
    assert {kind.name for kind in KINDS} <= alike
