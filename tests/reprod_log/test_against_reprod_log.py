"""Files and lines against the real reprod_log 1.0.1, which imports Paddle."""

import logging
import re

import numpy as np
import pytest

from tipchain import load_record
from tipchain.reprod_log import ReprodDiffHelper, ReprodLogger
from tipchain.reprod_log.compare import compute_diff as ours

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]

ARRAYS = {
    "float32": np.arange(6, dtype=np.float32).reshape(2, 3),
    "turned": np.arange(12.0).reshape(3, 4).T,
    "float16": np.array([1, 2], np.float16),
    "int": np.arange(3),
    "bool": np.array([True, False]),
    "0-d": np.array(3.5),
    "empty": np.zeros((0, 3)),
    "complex": np.array([1 + 2j]),
    "large": np.random.default_rng(0).random((300, 1000)),
    "text": np.array(["ab", "c"]),
}
TIME = re.compile(r"^\[[^]]*\] ", re.MULTILINE)


@pytest.fixture(scope="module")
def original():
    pytest.importorskip("torch")
    pytest.importorskip("paddle")
    return pytest.importorskip("reprod_log")


def filled(logger):
    for key, value in ARRAYS.items():
        logger.add(key, value)
    return logger


def assert_same(info):
    assert list(info) == list(ARRAYS)
    for key, value in ARRAYS.items():
        assert info[key].dtype == value.dtype
        assert info[key].shape == value.shape
        assert (info[key] == value).all()


def test_each_loads_the_others_dumps(original, tmp_path):
    filled(ReprodLogger()).save(str(tmp_path / "ours.npy"))
    assert_same(original.ReprodDiffHelper().load_info(str(tmp_path / "ours.npy")))
    filled(original.ReprodLogger()).save(str(tmp_path / "theirs.npy"))
    assert_same(ReprodDiffHelper().load_info(str(tmp_path / "theirs.npy")))
    assert_same(load_record(tmp_path / "theirs.npy").arrays)


@pytest.mark.parametrize("method", ["mean", "min", "max", "all", ["min", "mean"]])
@pytest.mark.parametrize("threshold", [1e-6, 0.3, 10.0])
def test_the_lines_are_reprod_logs(original, tmp_path, method, threshold):
    first = {"a": np.array([1.0, 2.5]), "n": {"b": np.arange(4), "c": np.array([[0.25]], np.float32)}}
    second = {"a": np.array([1.0, 2.0]), "n": {"b": np.arange(4), "c": np.array([[0.5]], np.float32)}}

    root, texts = logging.getLogger(), []
    before = list(root.handlers), root.level
    for helper in (original.ReprodDiffHelper(), ReprodDiffHelper()):
        helper.compare_info(first, second)
        path = tmp_path / f"{type(helper).__module__}.txt"
        helper.report(diff_method=method, diff_threshold=threshold, path=str(path))
        texts.append(TIME.sub("", path.read_text()))
        for handler in [handler for handler in root.handlers if handler not in before[0]]:
            root.removeHandler(handler)  # the original never does
            if isinstance(handler, logging.FileHandler):
                handler.close()
        root.setLevel(before[1])
    assert texts[0] == texts[1]


def test_the_statistics_are_reprod_logs(original):
    from reprod_log.compare import compute_diff as theirs

    generator = np.random.default_rng(0)
    first = {str(n): generator.standard_normal(10**n, dtype=np.float32) for n in range(7)}
    second = {k: v + generator.standard_normal(v.shape, dtype=np.float32) * np.float32(1e-5) for k, v in first.items()}
    left, right = theirs(first, second), ours(first, second)
    for key in first:
        assert right[key] == pytest.approx({k: float(v) for k, v in left[key].items()}, rel=1e-6)
