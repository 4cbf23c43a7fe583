import io
import logging
import re

import numpy as np
import pytest

from tipchain.errors import RecordError
from tipchain.reprod_log import ReprodDiffHelper, ReprodLogger
from tipchain.reprod_log.compare import check_data, compute_diff
from tipchain.reprod_log.utils import check_print_diff, init_logger

PREFIX = re.compile(r"^\[\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\] root INFO: ")


def report(first, second, tmp_path, **options):
    helper = ReprodDiffHelper()
    helper.compare_info(first, second)
    passed = helper.report(path=str(tmp_path / "diff.txt"), **options)
    return passed, [PREFIX.sub("", line) for line in (tmp_path / "diff.txt").read_text().splitlines()]


def test_add_takes_numpy_scalars_and_nested_dicts(tmp_path):
    logger, inner = ReprodLogger(), {"b": np.float32(2), "c": {"d": np.arange(2)}}
    logger.add("a", inner)
    logger.add("s", np.int64(3))
    inner["c"]["d"][0] = 9
    logger.save(str(tmp_path / "deep" / "x"))
    info = ReprodDiffHelper().load_info(str(tmp_path / "deep" / "x.npy"))
    assert info["a"]["b"].shape == ()
    assert info["a"]["c"]["d"].tolist() == [0, 1]
    assert info["s"] == 3


@pytest.mark.parametrize("value", [[1], 1.0, None, "text", {"b": [1]}, np.array([None])])
def test_add_refuses_what_is_no_array_and_says_how_to_convert(value):
    with pytest.raises(AssertionError, match=r"a(/b)?: found [\s\S]*tensor\.detach\(\)\.numpy\(\)"):
        ReprodLogger().add("a", value)


def test_remove_and_clear(capsys):
    logger = ReprodLogger()
    logger.add("a", np.zeros(1))
    logger.add("b", np.zeros(1))
    logger.remove("a")
    logger.remove("z")
    assert capsys.readouterr().out == "z is not in dict_keys(['b'])\n"
    assert list(logger.data) == ["b"]
    logger.clear()
    assert logger.data == {}


def test_loaded_arrays_can_be_changed_as_before(tmp_path):
    for size in (3, 500_000):
        np.save(tmp_path / "x.npy", {"a": np.zeros(size)})
        info = ReprodDiffHelper().load_info(str(tmp_path / "x.npy"))
        info["a"] += 1
        assert info["a"][0] == 1


def test_load_info_of_nothing_and_of_no_dump(tmp_path):
    with pytest.raises(AssertionError, match=r"no such file: .*nope\.npy"):
        ReprodDiffHelper().load_info(str(tmp_path / "nope.npy"))
    (tmp_path / "x.npy").write_text("a text")
    with pytest.raises(RecordError, match="is not a dump"):
        ReprodDiffHelper().load_info(str(tmp_path / "x.npy"))


def test_compare_info_names_the_missing_keys():
    first = {"a": np.zeros(1), "logits": np.zeros(1), "n": {"x": np.zeros(1)}}
    second = {"a": np.zeros(1), "loss": np.zeros(1), "n": {"y": np.zeros(1)}}
    message = "in data1 but not found in data2: logits, n/x\nin data2 but not found in data1: loss, n/y"
    for function in (ReprodDiffHelper().compare_info, check_data, compute_diff):
        with pytest.raises(AssertionError) as caught:
            function(first, second)
        assert str(caught.value) == message


def test_compare_info_wants_dicts():
    with pytest.raises(AssertionError, match="info2 must be a dict, found list"):
        ReprodDiffHelper().compare_info({}, [])
    with pytest.raises(AssertionError, match="a: a dict and an array"):
        compute_diff({"a": {}}, {"a": np.zeros(1)})
    with pytest.raises(NotImplementedError, match="a: cannot compare a str"):
        compute_diff({"a": "x"}, {"a": "x"})


def test_report_returns_its_verdict_and_logs_each_line_once(tmp_path, capsys):
    helper = ReprodDiffHelper()
    helper.compare_info({"logits": np.array([1, 2], np.float32)}, {"logits": np.array([1, 2.0000002], np.float32)})
    path = tmp_path / "logs" / "diff.txt"
    for _ in range(3):
        assert helper.report(path=str(path)) is True
        out = capsys.readouterr().out
        assert path.read_text() == out
        assert [PREFIX.sub("", line) for line in out.splitlines()] == [
            "logits: ",
            "\tmean diff: check passed: True, value: 1.1920928955078125e-07",
            "diff check passed",
        ]
    assert helper.report(diff_threshold=1e-8, path=None) is False
    assert capsys.readouterr().out.endswith("root INFO: diff check failed\n")


def test_users_own_root_logging_is_left_alone(tmp_path, capsys):
    root = logging.getLogger()
    handlers, level, stream = list(root.handlers), root.level, io.StringIO()
    mine = logging.StreamHandler(stream)
    root.addHandler(mine)
    try:
        report({"a": np.zeros(1)}, {"a": np.zeros(1)}, tmp_path)
        logger = init_logger(str(tmp_path / "x.log"))
        logger.info("hello")
        logger.handlers[-1].close()
        assert root.handlers == [*handlers, mine]
        assert root.level == level
        assert stream.getvalue() == ""
    finally:
        root.removeHandler(mine)
    assert (tmp_path / "x.log").read_text().endswith("root INFO: hello\n")
    assert capsys.readouterr().out.count("root INFO: hello") == 1


def test_a_named_logger_does_not_double_its_lines(tmp_path, capsys):
    for name in ("a.log", "b.log"):
        logger = init_logger(str(tmp_path / name), name="tipchain_test", log_level=logging.INFO)
        logger.info("hello")
        logger.debug("not this")
    logger.handlers[-1].close()
    assert logger is logging.getLogger("tipchain_test")
    assert capsys.readouterr().out.count("tipchain_test INFO: hello") == 2
    assert (tmp_path / "a.log").read_text().count("hello") == 1


@pytest.mark.parametrize("shapes", [((64, 1), (1, 64)), ((2, 3), (3, 2))])
def test_shapes_must_match(tmp_path, shapes, capsys):
    passed, lines = report({"a": np.zeros(shapes[0])}, {"a": np.zeros(shapes[1])}, tmp_path)
    assert not passed
    assert lines == [
        "a: ",
        "\tmean diff: check passed: False, value: nan",
        f"\tshapes differ: {shapes[0]} and {shapes[1]}",
        "diff check failed",
    ]
    assert "transpose" not in capsys.readouterr().out


def test_nothing_compared_is_a_failure(tmp_path):
    assert report({}, {}, tmp_path) == (False, ["nothing was compared", "diff check failed"])
    assert report({"a": {}}, {"a": {}}, tmp_path)[0] is False
    passed, lines = report({"a": np.zeros((0, 2))}, {"a": np.zeros((0, 2))}, tmp_path)
    assert not passed
    assert "\tnothing was compared: empty" in lines


def test_a_failure_in_an_early_tensor_is_not_forgotten(tmp_path):
    first = {"n": {"a": np.zeros(1)}, "b": np.zeros(1)}
    assert not report(first, {"n": {"a": np.ones(1)}, "b": np.zeros(1)}, tmp_path)[0]
    assert not report(first, {"n": {"a": np.zeros(1)}, "b": np.ones(1)}, tmp_path)[0]


def test_methods_one_several_all_and_unknown():
    values = {"a": {"mean": 1.0, "max": 3.0, "min": 0.0}}
    lines = []
    assert not check_print_diff(values, "all", 2.0, lines.append)
    # As in reprod_log, once a method has failed the later ones are marked failed too.
    assert lines == [
        "a: ",
        "\tmin diff: check passed: True, value: 0.0",
        "\tmax diff: check passed: False, value: 3.0",
        "\tmean diff: check passed: False, value: 1.0",
    ]
    assert check_print_diff(values, ["mean", "min"], 1.0, lines.append)
    for method in ("median", ["mean", "x"], []):
        with pytest.raises(AssertionError, match="diff_method"):
            check_print_diff(values, method, 1.0, lines.append)
