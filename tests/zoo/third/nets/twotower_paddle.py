"""The two towers, ported: attention by hand, one matrix for queries, keys and values."""

import math

import numpy as np
import paddle
import paddle.nn.functional as F  # noqa: N812
from paddle import nn


class CausalSelfAttention(nn.Layer):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        b, n, c = x.shape
        qkv = self.qkv(x).reshape([b, n, 3, self.num_heads, self.head_dim]).transpose([2, 0, 3, 1, 4])
        q, k, v = qkv[0], qkv[1], qkv[2]
        attn = paddle.matmul(q * self.head_dim**-0.5, k, transpose_y=True)
        mask = paddle.triu(paddle.full([n, n], -1e10, dtype=x.dtype), diagonal=1)
        attn = F.softmax(attn + mask, axis=-1)
        out = paddle.matmul(attn, v).transpose([0, 2, 1, 3]).reshape([b, n, c])
        return self.out_proj(out)


class TextBlock(nn.Layer):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(embed_dim)
        self.attn = CausalSelfAttention(embed_dim, num_heads)
        self.norm2 = nn.LayerNorm(embed_dim)
        self.fc1 = nn.Linear(embed_dim, 2 * embed_dim)
        self.fc2 = nn.Linear(2 * embed_dim, embed_dim)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        h = self.fc1(self.norm2(x))
        h = h * F.sigmoid(1.702 * h)
        return x + self.fc2(h)


class TextEncoder(nn.Layer):
    def __init__(self, vocab_size, context_length, embed_dim, out_dim):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab_size, embed_dim)
        self.positional_embedding = self.create_parameter([context_length, embed_dim])
        self.blocks = nn.LayerList([TextBlock(embed_dim, 2) for _ in range(2)])
        self.norm = nn.LayerNorm(embed_dim)
        self.text_projection = self.create_parameter([embed_dim, out_dim])

    def forward(self, text):
        x = self.token_embedding(text) + self.positional_embedding[: text.shape[1]]
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        eot = F.one_hot(text.argmax(axis=-1), x.shape[1]).astype(x.dtype)
        pooled = paddle.matmul(eot.unsqueeze(1), x).squeeze(1)
        return paddle.matmul(pooled, self.text_projection)


class PerceiverResampler(nn.Layer):
    def __init__(self, dim, num_latents, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.latents = self.create_parameter([num_latents, dim])
        self.norm_media = nn.LayerNorm(dim)
        self.norm_latents = nn.LayerNorm(dim)
        self.to_q = nn.Linear(dim, dim, bias_attr=False)
        self.to_kv = nn.Linear(dim, dim * 2, bias_attr=False)
        self.to_out = nn.Linear(dim, dim, bias_attr=False)
        self.ff = nn.Sequential(
            nn.LayerNorm(dim),
            nn.Linear(dim, dim * 2, bias_attr=False),
            nn.GELU(),
            nn.Linear(dim * 2, dim, bias_attr=False),
        )

    def heads(self, x):
        return x.reshape([x.shape[0], x.shape[1], self.num_heads, self.head_dim]).transpose([0, 2, 1, 3])

    def forward(self, media):
        latents = self.latents.unsqueeze(0).expand([media.shape[0], -1, -1])
        x = self.norm_media(media)
        y = self.norm_latents(latents)
        q = self.heads(self.to_q(y))
        k, v = self.to_kv(paddle.concat([x, y], axis=1)).chunk(2, axis=-1)
        k, v = self.heads(k), self.heads(v)
        sim = paddle.matmul(q, k, transpose_y=True) * (self.head_dim**-0.5)
        out = paddle.matmul(F.softmax(sim, axis=-1), v)
        out = out.transpose([0, 2, 1, 3]).flatten(2)
        latents = latents + self.to_out(out)
        return latents + self.ff(latents)


class ImageEncoder(nn.Layer):
    def __init__(self, embed_dim, out_dim):
        super().__init__()
        self.patch_embed = nn.Conv2D(3, embed_dim, 4, stride=4, bias_attr=False)
        self.norm_pre = nn.LayerNorm(embed_dim)
        self.resampler = PerceiverResampler(embed_dim, 3, 2)
        self.norm_post = nn.LayerNorm(embed_dim)
        self.proj = nn.Linear(embed_dim, out_dim, bias_attr=False)

    def forward(self, image):
        x = self.patch_embed(image).flatten(2).transpose([0, 2, 1])
        x = self.norm_pre(x)
        x = self.resampler(x)
        x = self.norm_post(x).mean(axis=1)
        return self.proj(x)


class TwoTowerModel(nn.Layer):
    def __init__(self, embed_dim=12, out_dim=8):
        super().__init__()
        self.image_encoder = ImageEncoder(embed_dim, out_dim)
        self.text_encoder = TextEncoder(25, 7, embed_dim, out_dim)
        self.logit_scale = self.create_parameter([], default_initializer=nn.initializer.Constant(math.log(1 / 0.07)))

    def forward(self, image, text):
        image_features = F.normalize(self.image_encoder(image), axis=-1)
        text_features = F.normalize(self.text_encoder(text), axis=-1)
        scale = paddle.exp(paddle.clip(self.logit_scale, max=math.log(100)))
        logits_per_image = scale * paddle.matmul(image_features, text_features, transpose_y=True)
        logits_per_text = logits_per_image.t()
        return logits_per_image, logits_per_text


def build():
    return TwoTowerModel()


RENAMED = (
    ("visual.", "image_encoder."), ("text.", "text_encoder."), (".patch.", ".patch_embed."), (".head.", ".proj."),
    (".ln_pre.", ".norm_pre."), (".ln_post.", ".norm_post."), (".ff_norm.", ".ff.0."), (".ff1.", ".ff.1."),
    (".ff2.", ".ff.3."), (".token.", ".token_embedding."), (".position", ".positional_embedding"),
    (".projection", ".text_projection"), (".ln_final.", ".norm."), (".ln_1.", ".norm1."), (".ln_2.", ".norm2."),
    (".mlp.0.", ".fc1."), (".mlp.2.", ".fc2."), ("attn.in_proj_weight", "attn.qkv.weight"),
    ("attn.in_proj_bias", "attn.qkv.bias"),
)  # fmt: skip
KEPT = ("token_embedding.weight", "positional_embedding", "text_projection", "latents")


def convert(state):
    weights = {}
    for key, value in state.items():
        name = key
        for old, new in RENAMED:
            name = name.replace(old, new)
        weights[name] = value.T if value.ndim == 2 and not name.endswith(KEPT) else value
    return weights


def loss(output, labels):
    loss_i = F.cross_entropy(output[0], labels)
    loss_t = F.cross_entropy(output[1], labels)
    return (loss_i + loss_t) / 2


def optimizer(parameters, learning_rate=2e-3):
    no_decay = [p for p in parameters if p.ndim < 2]
    decay = [p for p in parameters if p.ndim >= 2]
    return paddle.optimizer.AdamW(
        learning_rate=learning_rate,
        beta1=0.9,
        beta2=0.98,
        epsilon=1e-6,
        parameters=[{"params": no_decay, "weight_decay": 0.0}, {"params": decay, "weight_decay": 0.2}],
    )


def transform(image):
    height, width = image.shape[:2]
    y0 = round((height - 16) / 2.0)
    x0 = round((width - 16) / 2.0)
    crop = image[y0 : y0 + 16, x0 : x0 + 16, ::-1].astype("float32")
    small = crop.reshape([8, 2, 8, 2, 3]).mean(axis=(1, 3))
    small = small - np.array([103.94, 116.78, 123.68], dtype="float32")
    return small.transpose([2, 0, 1])


def metric(outputs, labels):
    first = np.asarray(outputs[0] if isinstance(outputs, tuple | list) else outputs)
    labels = np.asarray(labels)
    ranks = np.argsort(first, axis=-1)[:, ::-1]
    hits = ranks == labels.reshape([-1, 1])
    return {"R@1": float(hits[:, :1].sum() / len(labels)), "R@2": float(hits[:, :2].sum() / len(labels))}
