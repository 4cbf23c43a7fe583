"""The mixture of experts, ported: all experts see all tokens, and weights of zero drop what was not picked."""

import paddle
import paddle.nn.functional as F  # noqa: N812
from paddle import nn


class ExpertMLP(nn.Layer):
    def __init__(self, d_model, d_hidden):
        super().__init__()
        self.fc1 = nn.Linear(d_model, d_hidden)
        self.fc2 = nn.Linear(d_hidden, d_model)

    def forward(self, x):
        h = F.relu(self.fc1(x))
        return self.fc2(h * h)


class MoELayer(nn.Layer):
    def __init__(self, d_model, d_hidden, num_experts, top_k):
        super().__init__()
        self.num_experts = num_experts
        self.top_k = top_k
        self.gate = nn.Linear(d_model, num_experts, bias_attr=False)
        self.experts = nn.LayerList([ExpertMLP(d_model, d_hidden) for _ in range(num_experts)])
        self.shared_expert = ExpertMLP(d_model, d_hidden)

    def forward(self, hidden):
        tokens = hidden.reshape([-1, hidden.shape[-1]])
        logits = self.gate(tokens)
        probs = F.softmax(logits, axis=-1)
        topk_prob, topk_idx = paddle.topk(probs, self.top_k, axis=-1)
        topk_prob = topk_prob / topk_prob.sum(axis=-1, keepdim=True)
        mask = F.one_hot(topk_idx, self.num_experts).astype(probs.dtype)
        combine = (mask * topk_prob.unsqueeze(-1)).sum(axis=1)
        output = self.shared_expert(tokens)
        for e, expert in enumerate(self.experts):
            output = output + combine[:, e : e + 1] * expert(tokens)
        load = mask.sum(axis=1).mean(axis=0) / self.top_k
        importance = probs.mean(axis=0)
        aux = self.num_experts * (load * importance).sum()
        z_loss = paddle.logsumexp(logits, axis=-1).square().mean()
        return output.reshape(hidden.shape), aux + 0.1 * z_loss


class MoEBlock(nn.Layer):
    def __init__(self, d_model):
        super().__init__()
        self.ln1 = nn.LayerNorm(d_model)
        self.conv = nn.Conv1D(d_model, d_model, 3, padding=1, groups=2)
        self.ln2 = nn.LayerNorm(d_model)
        self.ffn = MoELayer(d_model, 12, 4, 2)
        self.layer_scale = self.create_parameter([d_model], default_initializer=nn.initializer.Constant(0.5))

    def forward(self, x):
        y = self.conv(self.ln1(x).transpose([0, 2, 1]))
        x = x + y.transpose([0, 2, 1])
        y, aux = self.ffn(self.ln2(x))
        return x + self.layer_scale * y, aux


class MoEClassifier(nn.Layer):
    def __init__(self, in_dim=6, d_model=8, num_classes=5, num_layers=2):
        super().__init__()
        self.proj = nn.Linear(in_dim, d_model)
        self.layers = nn.LayerList([MoEBlock(d_model) for _ in range(num_layers)])
        self.pool_query = self.create_parameter([d_model])
        self.classifier = nn.utils.weight_norm(nn.Linear(d_model, num_classes), name="weight", dim=1)

    def forward(self, x, lengths):
        h = self.proj(x)
        aux_total = 0.0
        for layer in self.layers:
            h, aux = layer(h)
            aux_total = aux_total + aux
        valid = paddle.arange(x.shape[1]).unsqueeze(0) < lengths.unsqueeze(1)
        score = paddle.matmul(h, self.pool_query)
        score = paddle.where(valid, score, paddle.full_like(score, -1e9))
        attention = F.softmax(score, axis=1)
        pooled = paddle.sum(attention.unsqueeze(-1) * h, axis=1)
        return self.classifier(pooled), aux_total / len(self.layers)


def build():
    return MoEClassifier()


RENAMED = (
    ("inner.", "proj."),
    ("blocks.", "layers."),
    ("norm1.", "ln1."),
    ("norm2.", "ln2."),
    (".mix.", ".conv."),
    (".moe.", ".ffn."),
    (".shared.", ".shared_expert."),
    (".up.", ".fc1."),
    (".down.", ".fc2."),
    (".scale", ".layer_scale"),
    ("query", "pool_query"),
    ("head.", "classifier."),
    ("parametrizations.weight.original0", "weight_g"),
    ("parametrizations.weight.original1", "weight_v"),
)


def convert(state):
    weights = {}
    for key, value in state.items():
        name = key
        for old, new in RENAMED:
            name = name.replace(old, new)
        if name.endswith("weight_g"):
            weights[name] = value.reshape([-1])
        else:
            weights[name] = value.T if value.ndim == 2 else value
    return weights


def loss(output, labels):
    logits, aux = output
    log_prob = F.log_softmax(logits, axis=-1)
    log_prob = paddle.take_along_axis(log_prob, labels.unsqueeze(-1), axis=1).squeeze(-1)
    focal = -paddle.pow(1 - paddle.exp(log_prob), 2) * log_prob
    return focal.mean() + 0.02 * aux


def optimizer(parameters, learning_rate=0.05):
    return paddle.optimizer.Adagrad(
        learning_rate=learning_rate, epsilon=1e-10, parameters=parameters, initial_accumulator_value=0.1
    )
