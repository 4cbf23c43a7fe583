"""Mamba without its kernels, ported."""

import math

import paddle
import paddle.nn.functional as F  # noqa: N812
from paddle import nn

from zoo.planting import named_for_paddle


class RMSNorm(nn.Layer):
    def __init__(self, hidden_size, epsilon=1e-5):
        super().__init__()
        self.weight = self.create_parameter([hidden_size], default_initializer=nn.initializer.Constant(1.0))
        self.epsilon = epsilon

    def forward(self, x):
        variance = paddle.mean(paddle.square(x), axis=-1, keepdim=True)
        return self.weight * (x * paddle.rsqrt(variance + self.epsilon))


class MambaMixer(nn.Layer):
    def __init__(self, hidden_size, d_state=4, d_conv=3, dt_rank=2):
        super().__init__()
        self.d_inner = hidden_size * 2
        self.d_state = d_state
        self.d_conv = d_conv
        self.dt_rank = dt_rank
        self.in_proj = nn.Linear(hidden_size, self.d_inner * 2, bias_attr=False)
        self.conv1d = nn.Conv1D(self.d_inner, self.d_inner, d_conv, groups=self.d_inner, padding=d_conv - 1)
        self.x_proj = nn.Linear(self.d_inner, dt_rank + d_state * 2, bias_attr=False)
        self.dt_proj = nn.Linear(dt_rank, self.d_inner)
        self.A_log = self.create_parameter([self.d_inner, d_state])
        self.D = self.create_parameter([self.d_inner])
        self.out_proj = nn.Linear(self.d_inner, hidden_size, bias_attr=False)

    def selective_scan(self, x, dt, b, c):
        a = -paddle.exp(self.A_log)
        state = paddle.zeros([x.shape[0], self.d_inner, self.d_state], dtype=x.dtype)
        outputs = []
        for i in range(x.shape[1]):
            step = dt[:, i].unsqueeze(-1)
            decay = paddle.exp(step * a)
            state = state * decay + step * b[:, i].unsqueeze(1) * x[:, i].unsqueeze(-1)
            outputs.append(paddle.matmul(state, c[:, i].unsqueeze(-1)).squeeze(-1))
        return paddle.stack(outputs, axis=1) + x * self.D

    def forward(self, hidden):
        seq_len = hidden.shape[1]
        x, gate = self.in_proj(hidden).chunk(2, axis=-1)
        x = self.conv1d(x.transpose([0, 2, 1]))[:, :, :seq_len]
        x = F.silu(x).transpose([0, 2, 1])
        params = self.x_proj(x)
        dt, b, c = paddle.split(params, [self.dt_rank, self.d_state, self.d_state], axis=-1)
        dt = F.softplus(self.dt_proj(dt))
        y = self.selective_scan(x, dt, b, c)
        return self.out_proj(y * F.silu(gate))


class MambaBlock(nn.Layer):
    def __init__(self, hidden_size):
        super().__init__()
        self.norm = RMSNorm(hidden_size)
        self.mixer = MambaMixer(hidden_size)

    def forward(self, hidden):
        residual = hidden
        hidden = self.mixer(self.norm(hidden))
        return residual + hidden


class MambaLM(nn.Layer):
    def __init__(self, vocab_size=30, hidden_size=8, num_layers=2):
        super().__init__()
        self.embed_scale = math.sqrt(hidden_size)
        self.embeddings = nn.Embedding(vocab_size, hidden_size)
        self.blocks = nn.LayerList([MambaBlock(hidden_size) for _ in range(num_layers)])
        self.norm_f = RMSNorm(hidden_size)

    def forward(self, input_ids):
        hidden = self.embeddings(input_ids) * self.embed_scale
        for block in self.blocks:
            hidden = block(hidden)
        hidden = self.norm_f(hidden)
        return paddle.matmul(hidden, self.embeddings.weight, transpose_y=True)


def build():
    return MambaLM()


RENAMED = {
    "layers.": "blocks.",
    ".conv.": ".conv1d.",
    "embed.": "embeddings.",
    "a_log": "A_log",
    "mixer.d": "mixer.D",
    "mixer.Dt": "mixer.dt",
}


def convert(state):
    weights = named_for_paddle(state, kept=("embed.",), renames=RENAMED)
    return weights | {"norm_f.weight": weights.pop("norm.weight")}


def loss(output, labels):
    logits = output[:, :-1].reshape([-1, output.shape[-1]])
    target = labels[:, 1:].reshape([-1])
    kept = (target != 0).astype(logits.dtype)
    log_prob = F.log_softmax(logits, axis=-1)
    nll = -paddle.take_along_axis(log_prob, target.unsqueeze(-1), axis=-1).squeeze(-1)
    smooth = -log_prob.mean(axis=-1)
    return ((0.9 * nll + 0.1 * smooth) * kept).sum() / kept.sum()


def scheduler():
    def factor(step):
        if step < 2:
            return (step + 1) / 3
        return 0.5 * (1 + math.cos(math.pi * (step - 2) / 8))

    return paddle.optimizer.lr.LambdaDecay(learning_rate=1e-2, lr_lambda=factor)


def optimizer(parameters, learning_rate=1e-2):
    decayed = {p.name for p in parameters if p.ndim > 1}
    return paddle.optimizer.AdamW(
        learning_rate=learning_rate,
        beta1=0.9,
        beta2=0.95,
        parameters=parameters,
        weight_decay=0.1,
        apply_decay_param_fun=lambda name: name in decayed,
    )
