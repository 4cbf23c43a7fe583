"""Layers are matched by kind, shapes and order where that leaves one way, and listed where it does not."""

from __future__ import annotations

from tipchain.conversion.structure import Tensor, Unit, match_by_structure


def unit(path, kind="Linear", shape=(4, 4), torch_path=None, **more):
    tensors = (Tensor("weight", shape, f"{path}.weight {list(shape)}"),)
    return Unit(
        path=path, torch_path=path if torch_path is None else torch_path, kind=kind, tensors=tensors, **more
    )


def match(torch, paddle):
    found = match_by_structure(torch, paddle)
    return {one.path: other.path for one, other in found.pairs}, found.problems


def test_order_decides_where_no_name_agrees():
    pairs, problems = match([unit("a"), unit("b"), unit("c")], [unit("x"), unit("y"), unit("z")])
    assert pairs == {"a": "x", "b": "y", "c": "z"}
    assert not problems


def test_kinds_are_kept_apart_and_may_be_declared_between_each_other():
    torch = [unit("conv1", "Conv"), unit("conv2", "Conv"), unit("bn1", "BatchNorm"), unit("bn2", "BatchNorm")]
    paddle = [unit("c.0", "Conv"), unit("n.0", "BatchNorm"), unit("c.1", "Conv"), unit("n.1", "BatchNorm")]
    pairs, problems = match(torch, paddle)
    assert pairs == {"conv1": "c.0", "conv2": "c.1", "bn1": "n.0", "bn2": "n.1"}
    assert not problems
    assert match([unit("a", "Conv")], [unit("b", "ConvTranspose")])[1]


def test_alike_layers_in_another_order_are_ambiguous():
    torch = [unit("a"), unit("mid", shape=(8, 4)), unit("b")]
    paddle = [unit("m", shape=(8, 4)), unit("x"), unit("y")]
    pairs, problems = match(torch, paddle)
    assert pairs == {"mid": "m"}, "the only one of its shape needs no order"
    assert [text.split(",")[0] for text in problems] == ["ambiguous: a may be x", "ambiguous: b may be y"]


def test_one_kind_out_of_order_makes_the_order_of_the_others_doubtful():
    """A residual block whose port declares the shortcut first: the BatchNorms alone look alike in any order."""
    torch, paddle = (
        [unit(f"{side}{name}", kind, shape) for name, kind, shape in layers]
        for side, layers in (
            ("t", [("1", "Conv", (8, 8, 3, 3)), ("n1", "BN", (8,)), ("s", "Conv", (8, 8, 1, 1)), ("ns", "BN", (8,))]),
            ("p", [("s", "Conv", (8, 8, 1, 1)), ("ns", "BN", (8,)), ("1", "Conv", (8, 8, 3, 3)), ("n1", "BN", (8,))]),
        )
    )  # fmt: skip
    pairs, problems = match(torch, paddle)
    assert pairs == {"t1": "p1", "ts": "ps"}
    assert len(problems) == 2
    assert all("ambiguous: tn" in text for text in problems)


def test_what_one_side_has_more_is_listed_from_both():
    torch = [unit("a"), unit("aux", shape=(2, 4))]
    paddle = [unit("x"), unit("more", "Conv", (1, 1))]
    pairs, problems = match(torch, paddle)
    assert pairs == {"a": "x"}
    assert problems == ("missing: more.weight [1, 1]", "unknown: aux.weight [2, 4]")


def test_a_shift_of_names_is_not_guessed():
    _, problems = match([unit("conv0"), unit("conv1")], [unit("conv1"), unit("conv2")])
    assert len(problems) == 1
    assert problems[0].startswith("ambiguous: conv0 may be conv2")
    _, problems = match([unit("a.x"), unit("b.x")], [unit("b.x"), unit("c.x")])
    assert problems[0].startswith("ambiguous: a.x may be c.x"), "likewise of the layers that hold them"


def test_a_shift_of_numbers_is_one_of_positions():
    torch, paddle = [unit("body.0"), unit("body.1")], [unit("body.1"), unit("body.2")]
    pairs, problems = match(torch, paddle)
    assert pairs == {"body.0": "body.1", "body.1": "body.2"}
    assert not problems


def test_equal_numbers_are_names():
    torch = [unit("layers.0"), unit("layers.1"), unit("head")]
    pairs, problems = match(torch, [unit("layers.0"), unit("layers.1"), unit("fc")])
    assert pairs == {"layers.0": "layers.0", "layers.1": "layers.1", "head": "fc"}
    assert not problems
    _, problems = match(torch, [unit("fc"), unit("layers.0"), unit("layers.1")])
    assert problems[0].startswith("ambiguous: head may be fc"), "declared elsewhere, it may be another's"


def test_layers_below_a_name_that_both_have_stay_there():
    torch = [unit("enc.a"), unit("dec.b")]
    pairs, problems = match(torch, [unit("dec.y"), unit("enc.x")])
    assert pairs == {"enc.a": "enc.x", "dec.b": "dec.y"}
    assert not problems
    _, problems = match(
        [unit("enc.a"), unit("dec.b"), unit("dec.c")], [unit("dec.y"), unit("enc.x"), unit("enc.z")]
    )
    assert len(problems) == 6, "not moved from one to the other"


def test_given_names_decide_and_are_no_evidence_of_order():
    torch = [unit("conv0", given=True), unit("conv1")]
    pairs, problems = match(torch, [unit("conv1", torch_path="conv0"), unit("conv2")])
    assert pairs == {"conv0": "conv1", "conv1": "conv2"}
    assert not problems
    torch = [unit("a", given=True), unit("b", given=True, shape=(9, 9))]
    pairs, problems = match(torch, [unit("y", torch_path="b"), unit("x", torch_path="a")])
    assert pairs == {"a": "x", "b": "y"}, "even against shapes, which are told apart later"
    assert not problems


def test_a_given_name_that_leads_nowhere_is_not_replaced_by_a_guess():
    pairs, problems = match([unit("a", given=True)], [unit("x")])
    assert not pairs
    assert problems == ("missing: x.weight [4, 4]", "unknown: a.weight [4, 4]")


def test_only_what_differs_in_a_layer_of_one_name_is_listed():
    bias = Tensor("bias", (4,), "fc.bias [4]")
    weight = Tensor("weight", (4, 4), "fc.weight [4, 4]")
    torch = Unit(path="fc", torch_path="fc", kind="Linear", tensors=(weight,))
    paddle = Unit(path="fc", torch_path="fc", kind="Linear", tensors=(weight, bias))
    assert match([torch], [paddle])[1] == ("missing: fc.bias [4]",)


def test_tensors_that_one_side_shares_and_the_other_does_not_have_again():
    torch = [unit("embed", "Embedding"), unit("head", again=True)]
    pairs, problems = match(torch, [unit("words", "Embedding")])
    assert pairs == {"embed": "words"}
    assert not problems
