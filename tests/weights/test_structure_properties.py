"""On random trees whose truth is known nothing is matched wrongly, however the port is renamed, reordered or regrouped."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from test_structure import leaf

from tipchain.weights.structure import match_by_structure

SHORT = {
    "query": "q", "key": "k", "value": "v", "out_proj": "out", "fc1": "linear_1", "fc2": "linear_2", "norm1": "ln_1",
    "norm2": "ln_2", "attention": "attn", "encoder": "enc", "decoder": "dec", "embedding": "embed", "conv1": "convolution1",
    "conv2": "convolution2", "bn1": "batch_norm1", "bn2": "batch_norm2",
}  # fmt: skip
"""Other names that ports use, which still tell what is meant."""


@dataclass
class Node:
    """A container, or a layer of one kind; ``name`` is the port's, ``source`` torch's path."""

    name: str
    children: list[Node] = field(default_factory=list)
    kind: str = ""
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    source: str = ""


def linear(name, out, into, bias=True):
    shapes = {"weight": (out, into), **({"bias": (out,)} if bias else {})}
    return Node(name, kind="Linear", shapes=shapes)


def norm(name, size, kind="LayerNorm"):
    more = {"running_mean": (size,), "running_var": (size,)} if kind == "BatchNorm" else {}
    return Node(name, kind=kind, shapes={"weight": (size,), "bias": (size,), **more})


def attention(rng, name, size):
    parts = ["query", "key", "value"]
    return Node(name, [*(linear(one, size, size) for one in rng.sample(parts, 3)), linear("out_proj", size, size)])


def block(rng, name, size):
    made = [attention(rng, "attention", size), norm("norm1", size), linear("fc1", 2 * size, size)]
    made += [linear("fc2", size, 2 * size), norm("norm2", size)]
    if rng.random() < 0.3:
        made.insert(2, attention(rng, "cross", size))
    return Node(name, made)


def residual(rng, name, size):
    wide = size * rng.choice((1, 2))
    return Node(
        name,
        [
            Node("conv1", kind="Conv", shapes={"weight": (wide, size, 3, 3)}),
            norm("bn1", wide, "BatchNorm"),
            Node("conv2", kind="Conv", shapes={"weight": (size, wide, 3, 3)}),
            norm("bn2", size, "BatchNorm"),
        ],
    )


def tower(rng, name):
    size = rng.choice((4, 4, 6))
    make = rng.choice((block, residual))
    made = [Node("layers", [make(rng, str(number), size) for number in range(rng.randint(1, 3))])]
    if rng.random() < 0.5:
        made.insert(0, Node("embedding", kind="Embedding", shapes={"weight": (9, size)}))
    if rng.random() < 0.5:
        made.append(norm("norm", size))
    return Node(name, made)


def model(rng):
    names = rng.sample(["encoder", "decoder", "backbone", "neck"], rng.randint(1, 3))
    made = [tower(rng, name) for name in names]
    if rng.random() < 0.6:
        made.append(linear("head", 3, 4))
    return Node("", made)


def walk(node, path=""):
    for child in node.children:
        here = f"{path}.{child.name}" if path else child.name
        yield child, here
        yield from walk(child, here)


def remember(node):
    for child, path in walk(node):
        child.source = path


def copied(node):
    return Node(node.name, [copied(child) for child in node.children], node.kind, node.shapes, node.source)


def is_list(node):
    return node.children and all(child.name.isdigit() for child in node.children)


def rename(rng, node):
    """Give all children names that tell nothing; their order stays."""
    if not is_list(node):
        for number, child in enumerate(node.children):
            child.name = f"{rng.choice('abcdefgh')}{rng.choice('ijlmop')}x{'abcdefghijkl'[number]}"


def shorten(_rng, node):
    for child in node.children:
        child.name = SHORT.get(child.name, child.name)


def shuffle(rng, node):
    """Declare the children in another order; their names stay."""
    if not is_list(node):
        rng.shuffle(node.children)


def shift(_rng, node):
    """Number a list's children from 1."""
    if is_list(node):
        for child in node.children:
            child.name = str(int(child.name) + 1)


def wrap(rng, node):
    """Put some neighbours into a container of their own."""
    if len(node.children) > 2 and not is_list(node):
        start = rng.randrange(len(node.children) - 1)
        node.children[start : start + 2] = [Node("group", node.children[start : start + 2])]


def inline(_rng, node):
    """Take the children of the containers inside as its own."""
    if not is_list(node):
        flat = []
        for child in node.children:
            flat += child.children if child.children and not is_list(child) else [child]
        names = [child.name for child in flat]
        if len(set(names)) == len(names):
            node.children = flat


def port_of(rng, source, changes):
    """Return the model as a port has it: each container changed in one way, so that names or order still tell."""
    port = copied(source)
    for container in [port, *(node for node, _ in walk(port) if node.children)]:
        if container.children:
            rng.choice(changes)(rng, container)
    return port


def leaves(node):
    found, truth = [], {}
    for layer, path in walk(node):
        for name, shape in layer.shapes.items():
            found.append(leaf(path, layer.kind, shape, name))
            truth[found[-1].name] = f"{layer.source}.{name}"
    return found, truth


def compare(seed, changes):
    """Return wrong pairs, all pairs, and whether nothing was left open."""
    rng = random.Random(seed)
    source = model(rng)
    remember(source)
    torch, _ = leaves(source)
    paddle, truth = leaves(port_of(rng, source, changes))
    found = match_by_structure(torch, paddle)
    wrong = [one.name for one, other in found.pairs.items() if truth[other.name] != one.name]
    return wrong, found, len(found.pairs) == len(torch)


CHANGES = {
    "nothing": [lambda *_: None],
    "order": [shuffle, lambda *_: None],
    "names": [rename, shift, lambda *_: None],
    "short forms": [shorten, lambda *_: None],
    "order and short forms": [shuffle, shorten, lambda *_: None],
    "groups": [wrap, lambda *_: None],
    "opened groups": [inline, lambda *_: None],
    "names and groups": [rename, wrap, shift, lambda *_: None],
    "one of all": [shuffle, rename, shorten, wrap, inline, shift, lambda *_: None],
}


@pytest.mark.parametrize("changes", CHANGES)
def test_nothing_is_matched_wrongly(changes):
    whole = 0
    for seed in range(20):
        wrong, found, complete = compare(seed, CHANGES[changes])
        assert not wrong, f"seed {seed}: {wrong[:4]}, by order {found.by_order[:4]}"
        whole += complete
    assert whole >= 18


def test_where_nothing_tells_a_wrong_match_is_marked():
    """Containers that are renamed and declared in another order leave no evidence but a wrong one."""

    def both(rng, node):
        rename(rng, node)
        shuffle(rng, node)

    marked = 0
    for seed in range(40):
        wrong, found, _ = compare(seed, [both, lambda *_: None])
        assert all(any(f"{name}.".startswith(f"{one}.") for one, _ in found.by_order) for name in wrong)
        marked += len(wrong)
    assert marked, "else this test shows nothing"


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_matrices_of_own_classes_go_to_their_layers(share):
    """Torch keeps some of its matrices in classes of its own, the other way round, as GPT-2 does."""
    for seed in range(20):
        rng = random.Random(seed)
        source = model(rng)
        remember(source)
        torch, _ = leaves(source)
        paddle, truth = leaves(port_of(rng, source, CHANGES["one of all"]))
        owned = {path for path in sorted({one.layer.path for one in torch}) if rng.random() < share}
        torch = [
            leaf(one.layer.path, "own", one.slot.shape[::-1], one.slot.leaf)
            if one.layer.kind == "Linear" and one.layer.path in owned
            else one
            for one in torch
        ]
        pairs = match_by_structure(torch, paddle).pairs
        wrong = [one.name for one, other in pairs.items() if truth[other.name] != one.name]
        assert not wrong, f"seed {seed}: {wrong}"
