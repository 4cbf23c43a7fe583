"""The graph net, ported: gathers and scatters by index."""

import paddle
import paddle.nn.functional as F  # noqa: N812
from paddle import nn

from zoo.planting import named_for_paddle


class GCNConv(nn.Layer):
    def __init__(self, in_dim, out_dim):
        super().__init__()
        self.linear = nn.Linear(in_dim, out_dim, bias_attr=False)
        self.bias = self.create_parameter([out_dim], is_bias=True)

    def forward(self, x, edge_index):
        num_nodes = x.shape[0]
        loop = paddle.arange(num_nodes, dtype="int64")
        row = paddle.concat([edge_index[0], loop])
        col = paddle.concat([edge_index[1], loop])
        deg = paddle.zeros([num_nodes], dtype=x.dtype)
        deg = paddle.scatter_nd_add(deg, col.unsqueeze(-1), paddle.ones(col.shape, dtype=x.dtype))
        norm = deg.gather(row).rsqrt() * deg.gather(col).rsqrt()
        h = self.linear(x)
        msg = paddle.gather(h, row) * norm.unsqueeze(-1)
        out = paddle.index_add(paddle.zeros_like(h), col, 0, msg)
        return out + self.bias


class GATConv(nn.Layer):
    def __init__(self, in_dim, out_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.linear = nn.Linear(in_dim, num_heads * out_dim, bias_attr=False)
        self.att_src = self.create_parameter([num_heads, out_dim])
        self.att_dst = self.create_parameter([num_heads, out_dim])
        self.bias = self.create_parameter([num_heads * out_dim], is_bias=True)

    def forward(self, x, edge_index):
        num_nodes = x.shape[0]
        src, dst = edge_index[0], edge_index[1]
        h = self.linear(x).reshape([num_nodes, self.num_heads, -1])
        alpha_src = (h * self.att_src).sum(-1)
        alpha_dst = (h * self.att_dst).sum(-1)
        alpha = paddle.gather(alpha_src, src) + paddle.gather(alpha_dst, dst)
        alpha = F.leaky_relu(alpha, negative_slope=0.2)
        alpha = paddle.exp(alpha - alpha.detach().max())
        denom = paddle.index_add(paddle.zeros([num_nodes, self.num_heads], dtype=x.dtype), dst, 0, alpha)
        alpha = alpha / paddle.gather(denom, dst)
        msg = paddle.gather(h, src) * alpha.unsqueeze(-1)
        out = paddle.index_add(paddle.zeros_like(h), dst, 0, msg)
        return out.reshape([num_nodes, -1]) + self.bias


class GraphNet(nn.Layer):
    def __init__(self, in_dim=5, hidden=8, num_classes=3):
        super().__init__()
        self.gcn = GCNConv(in_dim, hidden)
        self.bn = nn.BatchNorm1D(hidden)
        self.gat = GATConv(hidden, 6, 2)
        self.gru = nn.GRUCell(12, hidden)
        self.fc = nn.Linear(2 * hidden, num_classes)

    def forward(self, x, edge_index, graph_id):
        h = F.elu(self.bn(self.gcn(x, edge_index)))
        h, _ = self.gru(F.elu(self.gat(h, edge_index)), h)
        mean = paddle.geometric.segment_mean(h, graph_id)
        top = paddle.geometric.segment_max(h, graph_id)
        return self.fc(paddle.concat([mean, top], axis=1))


def build():
    return GraphNet()


RENAMED = {"conv.": "gcn.", ".lin.": ".linear.", "norm.": "bn.", "att.": "gat.", "gate.": "gru.", "out.": "fc."}


def convert(state):
    return named_for_paddle(state, renames=RENAMED)


def loss(output, labels):
    return F.nll_loss(F.log_softmax(output, axis=1), labels)


def optimizer(parameters, learning_rate=5e-3):
    return paddle.optimizer.Adam(learning_rate=learning_rate, parameters=parameters, weight_decay=5e-3)
