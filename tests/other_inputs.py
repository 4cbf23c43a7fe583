"""Forwards that the given inputs do not tell from the reference's; other inputs do. Nets have ``conv``, ``rows`` and ``last``."""

import numpy as np
import paddle
import torch

TF, PF = torch.nn.functional, paddle.nn.functional
WIDE = 8
RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.standard_normal((4, 3, 28, 28)).astype(np.float32)
SEQUENCES = RANDOM.standard_normal((4, 6, WIDE)).astype(np.float32)
NODES, EDGES = RANDOM.standard_normal((5, WIDE)).astype(np.float32), RANDOM.integers(0, 5, (2, 9))
IDS = RANDOM.integers(1, 20, (4, 6))


def last(net, x):
    return net.last(x)


def refuse(net, x):
    if x.shape[1] != SEQUENCES.shape[1]:
        raise ValueError("I was made for six steps")
    return net.last(x)


FAULTS = {
    "pool": (
        lambda net, x: net.last(TF.adaptive_avg_pool2d(net.conv(x), 1).flatten(1)),
        lambda net, x: net.last(PF.avg_pool2d(net.conv(x), 14).flatten(1)),
        (IMAGES,),
    ),
    "constant-length": (
        lambda net, x: net.last(x).sum(1) / x.shape[1],
        lambda net, x: net.last(x).sum(1) / 6,
        (SEQUENCES,),
    ),
    "branch-on-batch": (last, lambda net, x: net.last(x) * (2 if len(x) == 1 else 1), (SEQUENCES,)),
    "squeezed": (
        lambda net, x: net.last(x.mean(1, keepdim=True)).squeeze(1),
        lambda net, x: net.last(x.mean(1, keepdim=True)).squeeze(),
        (SEQUENCES,),
    ),
    "padding": (
        lambda net, x: (net.last(net.rows(x)) * (x != 0).unsqueeze(-1)).sum(1),
        lambda net, x: net.last(net.rows(x)).sum(1),
        (IDS,),
    ),
    "mask": (
        lambda net, x, mask: net.last(x * mask.unsqueeze(-1)),
        lambda net, x, mask: net.last(x),
        (SEQUENCES, np.ones((4, 6), np.float32)),
    ),
}
"""What gives other outputs: the reference's forward, the port's, and inputs."""
RAISING = {
    "batch": (last, lambda net, x: net.last(x.reshape([4, 6, WIDE])), (SEQUENCES,)),
    "size": (
        lambda net, x: net.last(TF.adaptive_avg_pool2d(net.conv(x), 1).flatten(1)),
        lambda net, x: net.last(net.conv(x).reshape([-1, WIDE, 14 * 14]).mean(-1)),
        (IMAGES,),
    ),
}
"""What raises where the reference does not."""
EXCUSED = {
    "stated": (last, refuse, (SEQUENCES,)),
    "memory": (last, lambda net, x: net.last(x) if len(x) > 1 else paddle.zeros([1 << 20, 1 << 20]), (SEQUENCES,)),
    # Two sequences of three are one of six for this reference, which was not made for them.
    "reference-means-nothing": (
        lambda net, x: net.last(x.view(-1, 6, WIDE)),
        lambda net, x: net.last(x.reshape([len(x), 6, WIDE])),
        (SEQUENCES[:1],),
    ),
    "nan": (
        lambda net, x: net.last(x) * (1 if x.shape[1] == 6 else float("nan")),
        lambda net, x: net.last(x.reshape([-1, 6, WIDE])),
        (SEQUENCES,),
    ),
}
"""What raises too, and is no fault of the port's."""
