"""What keeps alignment quick must not change what is compared."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
from safetensors.numpy import save_file

from tipchain.parity import recorder
from tipchain.parity.stages import Bench
from tipchain.parity.stages.judging import TensorFile


class CountingFramework:
    name = "torch"

    def __init__(self) -> None:
        self.calls: list[str] = []

    def build(self, builder, args):
        self.calls.append("build")
        return SimpleNamespace(weight=None, training=None)

    def load_weights(self, model, path):
        self.calls.append("load")
        model.weight = path.name

    def set_training(self, model, training):
        model.training = training


def make_bench() -> Bench:
    side = SimpleNamespace(model="json:loads")
    case = SimpleNamespace(sides={"torch": side}, root=Path(), model_args={})
    return Bench(framework=CountingFramework(), case=case, weights=Path("w.pth"), inputs={}, train_data=Path(),
                 eval_data=Path(), epochs=1, folder=Path())  # fmt: skip


def test_eval_model_is_built_once_and_always_has_the_weights():
    bench = make_bench()
    first = bench.eval_model()
    first.weight, first.training = "changed by the model itself", True
    again = bench.eval_model()
    assert again is first
    assert (again.weight, again.training) == ("w.pth", False)
    assert bench.framework.calls == ["build", "load", "load"]


def test_a_model_to_train_is_never_one_that_was_used():
    bench = make_bench()
    used = bench.eval_model()
    trained = bench.model(training=True)
    assert trained is not used
    again = bench.eval_model()
    assert again is not used
    assert again is not trained


def test_asking_for_a_tensor_does_not_load_it(tmp_path, monkeypatch):
    save_file({"gradient/w": np.ones(3, np.float32)}, tmp_path / "t.safetensors")

    def refuse(self, name):
        raise AssertionError(name)

    monkeypatch.setattr(TensorFile, "__getitem__", refuse)
    with TensorFile(tmp_path / "t.safetensors") as tensors:
        assert "gradient/w" in tensors
        assert "gradient/x" not in tensors


def test_memory_is_kept_for_reuse_unless_the_user_says_otherwise(monkeypatch):
    job = SimpleNamespace(threads=1)
    monkeypatch.delenv("MALLOC_MMAP_MAX_", raising=False)
    assert recorder._environment(job)["MALLOC_MMAP_MAX_"] == "0"
    monkeypatch.setenv("MALLOC_MMAP_MAX_", "65536")
    assert recorder._environment(job)["MALLOC_MMAP_MAX_"] == "65536"
