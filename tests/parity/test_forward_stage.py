import sys
from dataclasses import replace

import numpy as np
import pytest
from in_process import BothSides, failed

pytestmark = pytest.mark.frameworks


def test_every_shape_is_tried(both_sides):
    judged = both_sides.judge("forward")
    assert [verdict.subject for verdict in judged.verdicts] == ["forward/logits", "forward/logits@1x3x17x19"]
    assert failed(judged) == {}
    shapes = [verdict.diff.actual_shape for verdict in judged.verdicts if verdict.diff]
    assert shapes == [(4, 10), (1, 10)]


@pytest.mark.parametrize("kind", ["tuple", "dict", "nested"])
def test_all_outputs_are_compared_and_the_wrong_one_is_named(both_sides, monkeypatch, kind):
    outputs = {"tuple": ("logits", "twice"), "dict": ("logits",), "nested": ("logits", "more")}[kind]
    named = {"tuple": "twice", "dict": "twice", "nested": "more/twice"}[kind]
    sides = BothSides(
        torch=replace(both_sides.torch, case=replace(both_sides.torch.case, outputs=outputs), _kept={}),
        paddle=replace(both_sides.paddle, case=replace(both_sides.paddle.case, outputs=outputs), _kept={}),
    )

    def put_out(logits, factor):
        wrapped = {"tuple": (logits, factor * logits), "dict": {"logits": logits, "twice": factor * logits}}
        return wrapped.get(kind, (logits, {"once": logits, "twice": factor * logits}))

    def spoil(name, factor):
        tiny = sys.modules[name].Tiny
        forward = tiny.forward
        monkeypatch.setattr(tiny, "forward", lambda self, image: put_out(forward(self, image), factor))

    both_sides.torch.eval_model()
    both_sides.paddle.eval_model()
    spoil("tiny_torch", 2.0)
    reference = sides.record("forward", "torch")
    assert np.allclose(reference.arrays[named], 2 * reference.arrays["logits"])
    spoil("tiny_paddle", 2.5)
    assert set(failed(sides.judge("forward", reference))) == {f"forward/{named}", f"forward/{named}@1x3x17x19"}
