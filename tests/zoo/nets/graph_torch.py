"""A graph convolution, a graph attention and a readout, with scattered sums."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class GraphConv(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.lin = nn.Linear(inner, outer, bias=False)
        self.bias = nn.Parameter(torch.zeros(outer))

    def forward(self, x, edges):
        n = x.shape[0]
        loops = torch.arange(n)
        src, dst = torch.cat([edges[0], loops]), torch.cat([edges[1], loops])
        degree = torch.zeros(n, dtype=x.dtype).index_add(0, dst, torch.ones(dst.shape, dtype=x.dtype))
        norm = degree[src].rsqrt() * degree[dst].rsqrt()
        h = self.lin(x)
        return torch.zeros_like(h).index_add(0, dst, h[src] * norm[:, None]) + self.bias


class GraphAttention(nn.Module):
    def __init__(self, inner, outer, heads):
        super().__init__()
        self.heads = heads
        self.lin = nn.Linear(inner, heads * outer, bias=False)
        self.att_src = nn.Parameter(torch.empty(heads, outer))
        self.att_dst = nn.Parameter(torch.empty(heads, outer))
        nn.init.xavier_uniform_(self.att_src)
        nn.init.xavier_uniform_(self.att_dst)
        self.bias = nn.Parameter(torch.zeros(heads * outer))

    def forward(self, x, edges):
        n = x.shape[0]
        src, dst = edges
        h = self.lin(x).view(n, self.heads, -1)
        score = (h * self.att_src).sum(-1)[src] + (h * self.att_dst).sum(-1)[dst]
        score = F.leaky_relu(score, 0.2)
        top = torch.full((n, self.heads), -1e9, dtype=x.dtype).scatter_reduce(
            0, dst[:, None].expand(-1, self.heads), score.detach(), "amax"
        )
        weight = (score - top[dst]).exp()
        total = torch.zeros(n, self.heads, dtype=x.dtype).index_add(0, dst, weight)
        weight = weight / total[dst]
        out = torch.zeros_like(h).index_add(0, dst, h[src] * weight[..., None])
        return out.flatten(1) + self.bias


class GraphNet(nn.Module):
    def __init__(self, features=5, width=8, classes=3):
        super().__init__()
        self.conv = GraphConv(features, width)
        self.norm = nn.BatchNorm1d(width)
        self.att = GraphAttention(width, 6, 2)
        self.gate = nn.GRUCell(12, width)
        self.out = nn.Linear(2 * width, classes)

    def forward(self, x, edges, graph):
        h = F.elu(self.norm(self.conv(x, edges)))
        h = self.gate(F.elu(self.att(h, edges)), h)
        graphs = int(graph.max()) + 1
        total = torch.zeros(graphs, h.shape[1], dtype=h.dtype).index_add(0, graph, h)
        count = torch.bincount(graph, minlength=graphs).to(h.dtype)
        top = torch.stack([h[graph == g].max(dim=0).values for g in range(graphs)])
        return self.out(torch.cat([total / count[:, None], top], dim=1))


def build():
    return GraphNet()


def batch(rng):
    sizes = (5, 3, 6)
    graph, edges, start = [], [], 0
    for number, size in enumerate(sizes):
        graph += [number] * size
        edges += [(start + i, start + (i + 1) % size) for i in range(size)]
        edges += [(start + int(rng.integers(size)), start + int(rng.integers(size))) for _ in range(size)]
        start += size
    return {
        "args": (
            rng.normal(size=(start, 5)).astype("float32"),
            torch.tensor(edges).T.contiguous().numpy(),
            torch.tensor(graph).numpy(),
        ),
        "labels": rng.integers(0, 3, size=(3,)),
    }


def loss(output, labels):
    return F.nll_loss(F.log_softmax(output, dim=1), labels)


def optimizer(parameters):
    return torch.optim.Adam(parameters, lr=5e-3, weight_decay=5e-3)
