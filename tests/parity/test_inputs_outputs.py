"""Fake inputs of one or several shapes, and the names of what a model puts out."""

from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
from test_case import GOOD, write

from tipchain.errors import InputError, UsageError
from tipchain.frameworks.base import concat_outputs, flatten_outputs, map_nested
from tipchain.parity.case import load_case
from tipchain.parity.inputs import make_all_inputs, make_inputs

PLAIN = "image: {shape: [2, 3], dtype: float32}"
NUMPY = SimpleNamespace(name="numpy", is_tensor=lambda value: isinstance(value, np.ndarray), concat=np.concatenate)
A, B, C = (np.full(2, number) for number in range(3))
Pair = namedtuple("Pair", "logits aux")  # noqa: PYI024


def case_with(folder, image: str, *more: str):
    return load_case(
        write(folder, GOOD.replace(PLAIN, "\n  ".join([f"image: {image}", *more])) + "stages: [forward]\n")
    )


def test_several_shapes_keep_the_first_as_the_usual_one(tmp_path):
    case = case_with(tmp_path, "{shapes: [[2, 3], [1, 5]]}", "scale: {shapes: [[2], [1]]}", "bias: {shape: [7]}")
    sets = make_all_inputs(case)
    assert list(sets) == ["", "@1x5,1"]
    assert {name: array.shape for name, array in sets[""].items()} == {
        "image": (2, 3),
        "scale": (2,),
        "bias": (7,),
        "label": (2,),
    }
    assert {name: array.shape for name, array in sets["@1x5,1"].items()} == {
        "image": (1, 5),
        "scale": (1,),
        "bias": (7,),
    }
    one = make_inputs(case_with(tmp_path, "{shape: [2, 3]}"))["image"]
    np.testing.assert_array_equal(sets[""]["image"], one, err_msg="more shapes do not change the first's values")


def test_two_inputs_of_one_shape_have_other_values(tmp_path):
    made = make_inputs(
        case_with(tmp_path, "{shape: [2, 3]}", "right: {shape: [2, 3]}", "far: {shape: [2, 3], seed: 1}")
    )
    assert not np.isclose(made["image"], made["right"]).any(), "a port that takes one for the other would pass"
    np.testing.assert_array_equal(made["right"], made["far"], err_msg="a seed that is given counts")


def test_probabilities_are_positive_and_sum_to_one(tmp_path):
    values = make_inputs(case_with(tmp_path, "{shape: [4, 10], values: probabilities}"))["image"]
    assert values.dtype == np.float32
    assert values.min() > 0
    np.testing.assert_allclose(values.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("{shape: [2], shapes: [[2]]}", ["inputs.image.shape", "stands beside shapes"]),
        ("{shapes: [[2, 3], [2, 3]]}", ["names a shape twice"]),
        ("{shapes: [[2, 3], [2, 0]]}", ["inputs.image.shapes", "shapes.1.1: is too small", "found: 0"]),
        ("{shape: [2], dtype: int64, values: probabilities}", ["inputs.image.values", "float dtype"]),
        (
            "{shapes: [[2], [3]]}\n  other: {shapes: [[2], [3], [4]]}",
            ["inputs.other.shapes", "found: 3 shapes", "2, as image has"],
        ),
    ],
)
def test_impossible_inputs_are_named(tmp_path, image, words):
    with pytest.raises(InputError) as caught:
        case_with(tmp_path, image)
    for word in words:
        assert word in str(caught.value)


def test_a_label_has_one_shape(tmp_path):
    text = GOOD.replace("label: {shape: [2],", "label: {shapes: [[2], [3]],")
    with pytest.raises(InputError, match=r"inputs\.label\.shapes: is not for labels"):
        load_case(write(tmp_path, text))


@pytest.mark.parametrize(
    ("output", "names", "expected"),
    [
        (A, ["logits"], {"logits": A}),
        ((A, B), ["x", "y"], {"x": A, "y": B}),
        ({"x": A, "y": B}, ["logits"], {"x": A, "y": B}),
        (((A, B), C), ["x", "y"], {"x/0": A, "x/1": B, "y": C}),
        (({"box": A, "score": B}, C), ["x", "y"], {"x/box": A, "x/score": B, "y": C}),
        ((A, None), ["logits"], {"logits": A}),
        ((Pair(A, B), C), ["x", "y"], {"x/logits": A, "x/aux": B, "y": C}),
    ],
)
def test_every_output_has_a_name(output, names, expected):
    found = flatten_outputs(NUMPY, output, names)
    assert list(found) == list(expected)
    assert all(found[name] is expected[name] for name in expected)


@pytest.mark.parametrize(
    ("output", "names", "words"),
    [
        ((A, B), ["logits"], "returned 2 outputs, the case names 1"),
        ({"x": A, "n": 3}, ["x"], "output 'n' of the numpy model is a int"),
        ({"a": {"b": A}, "a/b": B}, ["x"], "two outputs of the numpy model have one name"),
    ],
)
def test_outputs_without_a_name_are_refused(output, names, words):
    with pytest.raises(UsageError, match=words):
        flatten_outputs(NUMPY, output, names)


def test_structures_are_kept_when_batches_are_joined_or_changed():
    batch = {"maps": [A, B], "pair": Pair(A, None)}
    joined = concat_outputs(NUMPY, [batch, batch])
    assert joined["maps"][1].shape == (4,)
    assert isinstance(joined["pair"], Pair)
    changed = map_nested(lambda value: None if value is None else value + 1, batch)
    np.testing.assert_array_equal(changed["pair"].logits, A + 1)
    assert changed["pair"].aux is None
