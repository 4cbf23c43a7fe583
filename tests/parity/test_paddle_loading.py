"""Loading Paddle's batches: an exception in a data set arrives where the batches are used, and nothing hangs."""

import sys

import forking
import pytest
from chain_samples import ROOT
from programs import completed

pytestmark = pytest.mark.frameworks
PROGRAM = """
import sys
import numpy as np
from paddle.io import BatchSampler
from tipchain.frameworks.paddle_ import load_batches

class Ten:
    def __len__(self): return 10
    def __getitem__(self, index):
        if index == {bad}: {deed}
        return np.full(2, index, np.float32), index, f"{{index}}.png"

seen = 0
try:
    for image, label, name in load_batches(Ten(), BatchSampler(Ten(), batch_size=2), num_workers={workers}):
        seen += len(label)
except Exception as error:
    print(seen, type(error).__name__, str(error).splitlines()[-1])
else:
    print(seen, "all")
"""


@pytest.fixture
def load(tmp_path):
    pytest.importorskip("paddle")

    def loaded(bad=-1, deed="pass", workers=0):
        (tmp_path / "loading.py").write_text(PROGRAM.format(bad=bad, deed=deed, workers=workers))
        done = completed(
            [sys.executable, "loading.py"], cwd=tmp_path, env=forking.environment(ROOT), timeout=60, check=True
        )
        return done.stdout.splitlines()[-1]

    return loaded


def test_all_batches_come(load):
    assert load() == "10 all"


def test_what_the_data_set_raises_arrives(load):
    seen, kind, *message = load(5, "raise OSError('5.png is damaged')").split(maxsplit=2)
    assert (kind, message) == ("OSError", ["5.png is damaged"])
    assert int(seen) <= 5


def test_samples_that_do_not_fit_together_are_an_error(load):
    assert load(5, "return np.zeros(3, np.float32), 5, 'x'").split()[1] != "all"


def test_what_it_raises_in_a_process_of_the_loaders_arrives_with_its_traceback(load):
    """Paddle's loader raises a SystemError that does not say why; its thread alone knows."""
    _, kind, *message = load(5, "raise OSError('5.png is damaged')", workers=1).split(maxsplit=2)
    assert (kind, message) == ("OSError", ["OSError: 5.png is damaged"])
    assert load(workers=1) == "10 all"
