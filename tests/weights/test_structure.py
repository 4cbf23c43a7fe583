"""Tensors are matched by content, names and, last, order of declaration; what these do not settle is told."""

from tipchain.weights.sides import LayerTensors, TensorSlot
from tipchain.weights.structure import Leaf, match_by_structure


def leaf(path, kind="Linear", shape=(4, 4), name="weight"):
    slot = TensorSlot(name=f"{path}.{name}", leaf=name, shape=shape, dtype="float32", kind="parameter")
    return Leaf(layer=LayerTensors(path=path, torch_path=path, kind=kind, slots=(slot,)), slot=slot)


def match(torch, paddle):
    """Return the layers matched, the layers that are in doubt, and what was decided by order."""
    found = match_by_structure(torch, paddle)
    pairs = {layer(one.name): layer(other.name) for one, other in found.pairs.items()}
    return pairs, found


def layer(name):
    return name.removesuffix(".weight")


def doubtful(found):
    return [tuple(map(layer, doubt.expected)) for doubt in found.doubts]


def test_names_decide_whatever_the_order():
    """Query, key and value are alike; ports declare them in another order, and shorten them."""
    torch = [leaf(f"attn.{name}") for name in ("k_proj", "v_proj", "q_proj", "out_proj")]
    for names in (("q_proj", "k_proj", "v_proj", "out_proj"), ("out", "query", "key", "value")):
        pairs, found = match(torch, [leaf(f"self_attention.{name}") for name in names])
        assert {one[5]: other.rpartition(".")[2][0] for one, other in pairs.items()} == {
            "k": "k",
            "v": "v",
            "q": "q",
            "o": "o",
        }
        assert not found.by_order
        assert not found.doubts


def test_names_that_all_agree_decide_whatever_the_classes():
    """Which norm is of the user's own class is the other one in the port."""
    torch = [leaf("a", "own", (4,)), leaf("b", "LayerNorm", (4,))]
    pairs, _ = match(torch, [leaf("a", "LayerNorm", (4,)), leaf("b", "own", (4,))])
    assert pairs == {"a": "a", "b": "b"}


def test_numbers_are_ranks_where_names_differ():
    torch = [leaf("blocks.fc2"), leaf("blocks.fc1")]
    pairs, _ = match(torch, [leaf("body.linear_0"), leaf("body.linear_1")])
    assert pairs == {"blocks.fc1": "body.linear_0", "blocks.fc2": "body.linear_1"}


def test_alike_layers_in_another_order_are_ambiguous():
    torch = [leaf("a"), leaf("mid", shape=(8, 4)), leaf("b")]
    pairs, found = match(torch, [leaf("m", shape=(8, 4)), leaf("x"), leaf("y")])
    assert pairs == {"mid": "m"}, "the only one of its shape needs no order"
    assert doubtful(found) == [("a", "b")]


def test_one_kind_out_of_order_makes_the_order_of_what_lies_between_doubtful():
    """A residual block whose port declares the shortcut first: the BatchNorms alone look alike in any order."""
    torch, paddle = (
        [leaf(f"{side}{name}", kind, shape) for name, kind, shape in layers]
        for side, layers in (
            ("t", [("x", "Conv", (8, 8, 3, 3)), ("nx", "BN", (8,)), ("s", "Conv", (8, 8, 1, 1)), ("ns", "BN", (8,))]),
            ("p", [("s", "Conv", (8, 8, 1, 1)), ("ms", "BN", (8,)), ("x", "Conv", (8, 8, 3, 3)), ("mx", "BN", (8,))]),
        )
    )
    pairs, found = match(torch, paddle)
    assert pairs == {"tx": "px", "ts": "ps"}
    assert doubtful(found) == [("tnx", "tns")]


def test_a_shift_of_names_is_not_guessed():
    _, found = match([leaf("conv0"), leaf("conv1")], [leaf("conv1"), leaf("conv2")])
    assert doubtful(found) == [("conv0", "conv1")]
    pairs, found = match([leaf("a.x"), leaf("b.x")], [leaf("b.x"), leaf("c.x")])
    assert pairs == {"b.x": "b.x"}
    assert len(found.doubts) == 1, "likewise of the layers that hold them"


def test_equal_numbers_are_names():
    torch = [leaf("layers.0"), leaf("layers.1"), leaf("head")]
    pairs, found = match(torch, [leaf("layers.0"), leaf("layers.1"), leaf("fc")])
    assert pairs == {"layers.0": "layers.0", "layers.1": "layers.1", "head": "fc"}
    assert not found.doubts
    pairs, found = match(torch, [leaf("fc"), leaf("layers.0"), leaf("layers.1")])
    assert pairs["head"] == "fc", "nothing else is left for it"
