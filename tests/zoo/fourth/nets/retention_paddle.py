import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812
from zoo.fourth.planting import named_for_paddle

WORDS, WIDTH, HEADS, PADDED = 23, 16, 2, 0


def rotate_every_two(x):
    return paddle.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)


class RMSNorm(nn.Layer):
    def __init__(self, width, eps=1e-6, affine=True):
        super().__init__()
        self.eps = eps
        self.weight = self.create_parameter([width]) if affine else None

    def forward(self, x):
        x = x * paddle.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return x if self.weight is None else x * self.weight


class Retention(nn.Layer):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, WIDTH, bias_attr=False)
        self.k_proj = nn.Linear(WIDTH, WIDTH, bias_attr=False)
        self.v_proj = nn.Linear(WIDTH, 2 * WIDTH, bias_attr=False)
        self.g_proj = nn.Linear(WIDTH, 2 * WIDTH, bias_attr=False)
        self.out_proj = nn.Linear(2 * WIDTH, WIDTH, bias_attr=False)
        self.group_norm = RMSNorm(2 * WIDTH // HEADS, affine=False)

    def forward(self, x, sin, cos, decay):
        size, count, _ = x.shape
        q = self.q_proj(x).reshape([size, count, HEADS, -1]).transpose([0, 2, 1, 3])
        k = self.k_proj(x).reshape([size, count, HEADS, -1]).transpose([0, 2, 1, 3]) * (WIDTH // HEADS) ** -0.5
        v = self.v_proj(x).reshape([size, count, HEADS, -1]).transpose([0, 2, 1, 3])
        q, k = q * cos + rotate_every_two(q) * sin, k * cos + rotate_every_two(k) * sin
        scores = paddle.matmul(q, k, transpose_y=True) * decay
        scores = scores / scores.detach().abs().sum(-1, keepdim=True).clip(min=1)
        y = self.group_norm(paddle.matmul(scores, v).transpose([0, 2, 1, 3])).reshape([size, count, -1])
        return self.out_proj(F.silu(self.g_proj(x)) * y)


class GLU(nn.Layer):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, 24, bias_attr=False)
        self.fc1 = nn.Linear(WIDTH, 24, bias_attr=False)
        self.fc2 = nn.Linear(24, WIDTH, bias_attr=False)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return self.dropout(self.fc2(F.gelu(self.gate(x)) * self.fc1(x)))


class Block(nn.Layer):
    def __init__(self):
        super().__init__()
        self.norm1 = RMSNorm(WIDTH)
        self.retention = Retention()
        self.norm2 = RMSNorm(WIDTH)
        self.mlp = GLU()

    def forward(self, x, *positions):
        x = x + self.retention(self.norm1(x), *positions)
        return x + self.mlp(self.norm2(x))


class Positions(nn.Layer):
    def __init__(self):
        super().__init__()
        angle = 1.0 / (10000 ** paddle.linspace(0, 1, WIDTH // HEADS // 2))
        self.register_buffer("angle", angle.repeat_interleave(2), persistable=False)
        self.register_buffer(
            "decay", paddle.log(1 - 2 ** (-2 - paddle.arange(HEADS, dtype="float32"))), persistable=False
        )

    def forward(self, count):
        place = paddle.arange(count).astype(self.angle.dtype)
        apart = place.unsqueeze(1) - place.unsqueeze(0)
        mask = paddle.exp(apart * self.decay.reshape([-1, 1, 1])) * (apart >= 0).astype(apart.dtype)
        mask = mask / mask.sum(-1, keepdim=True).sqrt()
        return paddle.sin(place.unsqueeze(1) * self.angle), paddle.cos(place.unsqueeze(1) * self.angle), mask


class Retentive(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.positions = Positions()
        self.blocks = nn.LayerList([Block(), Block()])
        self.norm = RMSNorm(WIDTH)

    def forward(self, tokens):
        x = self.embed(tokens) * WIDTH**0.5
        positions = self.positions(tokens.shape[1])
        for block in self.blocks:
            x = block(x, *positions)
        return paddle.matmul(self.norm(x), self.embed.weight, transpose_y=True)


def build():
    return Retentive()


def convert(values):
    return named_for_paddle(values, kept=("embed.",))


def loss(outputs, labels):
    logits, targets = outputs[:, :-1].reshape([-1, WORDS]), labels[:, 1:].reshape([-1])
    entropy = F.cross_entropy(logits, targets, ignore_index=PADDED)
    kept = (targets != PADDED).astype(logits.dtype)
    z = (paddle.logsumexp(logits, -1) ** 2 * kept).sum() / kept.sum()
    return entropy + 1e-2 * z


def optimizer(parameters, rate=1e-3):
    return paddle.optimizer.AdamW(rate, beta1=0.9, beta2=0.98, parameters=parameters, weight_decay=0.05)


def scheduler():
    return paddle.optimizer.lr.LambdaDecay(1e-3, lambda step: min((step + 1) / 3, (3 / (step + 1)) ** 0.5))


def transform(words):
    kept = list(words)[-8:]
    tokens = [1, *kept]
    return np.array(tokens + [PADDED] * (9 - len(tokens)), "int64")


def metric(outputs, labels):
    logits, labels = np.asarray(outputs, "float64")[:, :-1], np.asarray(labels)[:, 1:]
    logs = logits - logits.max(-1, keepdims=True)
    logs = logs - np.log(np.exp(logs).sum(-1, keepdims=True))
    gained = -np.take_along_axis(logs, labels[..., None], -1)[..., 0]
    kept = labels != PADDED
    return {"perplexity": float(np.exp(gained[kept].mean()))}
