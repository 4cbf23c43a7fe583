"""Llama, ported."""

import math

import numpy as np
import paddle
import paddle.nn.functional as F  # noqa: N812
from paddle import nn


class LlamaRMSNorm(nn.Layer):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = self.create_parameter([hidden_size], default_initializer=nn.initializer.Constant(1.0))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        return hidden_states * paddle.rsqrt(variance + self.variance_epsilon) * self.weight


def rotate_half(x):
    x1, x2 = paddle.chunk(x, 2, axis=-1)
    return paddle.concat([-x2, x1], axis=-1)


def repeat_kv(x, n_rep):
    batch, length, kv_heads, head_dim = x.shape
    x = x.unsqueeze(3).expand([batch, length, kv_heads, n_rep, head_dim])
    return x.reshape([batch, length, kv_heads * n_rep, head_dim])


class LlamaAttention(nn.Layer):
    def __init__(self, hidden_size, num_heads, num_kv_heads, rope_base=10000.0):
        super().__init__()
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = hidden_size // num_heads
        self.q_proj = nn.Linear(hidden_size, num_heads * self.head_dim, bias_attr=False)
        self.k_proj = nn.Linear(hidden_size, num_kv_heads * self.head_dim, bias_attr=False)
        self.v_proj = nn.Linear(hidden_size, num_kv_heads * self.head_dim, bias_attr=False)
        self.o_proj = nn.Linear(num_heads * self.head_dim, hidden_size, bias_attr=False)
        self.inv_freq = 1.0 / rope_base ** (np.arange(0, self.head_dim, 2) / self.head_dim)

    def rope(self, length, dtype):
        freqs = np.outer(np.arange(length), self.inv_freq)
        emb = np.concatenate([freqs, freqs], axis=-1)[None, :, None, :]
        return paddle.to_tensor(np.cos(emb), dtype=dtype), paddle.to_tensor(np.sin(emb), dtype=dtype)

    def forward(self, hidden_states, attention_mask):
        bsz, q_len, _ = hidden_states.shape
        query = self.q_proj(hidden_states).reshape([bsz, q_len, self.num_heads, self.head_dim])
        key = self.k_proj(hidden_states).reshape([bsz, q_len, self.num_kv_heads, self.head_dim])
        value = self.v_proj(hidden_states).reshape([bsz, q_len, self.num_kv_heads, self.head_dim])
        cos, sin = self.rope(q_len, query.dtype)
        query = query * cos + rotate_half(query) * sin
        key = key * cos + rotate_half(key) * sin
        key = repeat_kv(key, self.num_heads // self.num_kv_heads)
        value = repeat_kv(value, self.num_heads // self.num_kv_heads)
        query = query.transpose([0, 2, 1, 3]) / math.sqrt(self.head_dim)
        key = key.transpose([0, 2, 3, 1])
        value = value.transpose([0, 2, 1, 3])
        weights = paddle.matmul(query, key) + attention_mask
        weights = F.softmax(weights, axis=-1)
        context = paddle.matmul(weights, value).transpose([0, 2, 1, 3])
        return self.o_proj(context.reshape([bsz, q_len, -1]))


class LlamaMLP(nn.Layer):
    def __init__(self, hidden_size, intermediate_size):
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias_attr=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias_attr=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias_attr=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaDecoderLayer(nn.Layer):
    def __init__(self, hidden_size, num_heads, num_kv_heads):
        super().__init__()
        self.input_layernorm = LlamaRMSNorm(hidden_size)
        self.self_attn = LlamaAttention(hidden_size, num_heads, num_kv_heads)
        self.post_attention_layernorm = LlamaRMSNorm(hidden_size)
        self.mlp = LlamaMLP(hidden_size, 20)

    def forward(self, hidden_states, attention_mask):
        residual = hidden_states
        hidden_states = self.self_attn(self.input_layernorm(hidden_states), attention_mask)
        hidden_states = residual + hidden_states
        residual = hidden_states
        hidden_states = self.mlp(self.post_attention_layernorm(hidden_states))
        return residual + hidden_states


class LlamaForCausalLM(nn.Layer):
    def __init__(self, vocab_size=40, hidden_size=16, num_heads=4, num_kv_heads=2, num_layers=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab_size, hidden_size)
        self.layers = nn.LayerList([LlamaDecoderLayer(hidden_size, num_heads, num_kv_heads) for _ in range(num_layers)])
        self.norm = LlamaRMSNorm(hidden_size)
        self.lm_head = nn.Linear(hidden_size, vocab_size, bias_attr=False)

    def expand_mask(self, attention_mask, dtype):
        length = attention_mask.shape[1]
        causal = paddle.tril(paddle.ones([length, length], dtype="bool"))
        allowed = paddle.logical_and(causal, attention_mask.astype("bool").unsqueeze([1, 2]))
        return paddle.where(allowed, paddle.zeros([1], dtype=dtype), paddle.full([1], -1e9, dtype=dtype))

    def forward(self, input_ids, attention_mask):
        hidden_states = self.embed_tokens(input_ids)
        mask = self.expand_mask(attention_mask, hidden_states.dtype)
        for layer in self.layers:
            hidden_states = layer(hidden_states, mask)
        hidden_states = self.norm(hidden_states)
        return self.lm_head(hidden_states)


def build():
    return LlamaForCausalLM()


RENAMED = (
    ("attention_norm.", "input_layernorm."),
    ("ffn_norm.", "post_attention_layernorm."),
    ("attention.q.", "self_attn.q_proj."),
    ("attention.k.", "self_attn.k_proj."),
    ("attention.v.", "self_attn.v_proj."),
    ("attention.o.", "self_attn.o_proj."),
    ("feed_forward.w1.", "mlp.gate_proj."),
    ("feed_forward.w2.", "mlp.down_proj."),
    ("feed_forward.w3.", "mlp.up_proj."),
    ("tok_embeddings.", "embed_tokens."),
    ("output.", "lm_head."),
)


def convert(state):
    weights = {}
    for key, value in state.items():
        name = key
        for old, new in RENAMED:
            name = name.replace(old, new)
        weights[name] = value.T if "_proj" in name or "lm_head" in name else value
    return weights


def loss(output, labels):
    logits = output[:, :-1, :]
    target = labels[:, 1:]
    token_loss = F.cross_entropy(logits, target, ignore_index=-100, reduction="none")
    ce = token_loss.sum() / (target != -100).astype(token_loss.dtype).sum()
    z_loss = paddle.logsumexp(output, axis=-1).square().mean()
    return ce + 1e-3 * z_loss


def scheduler():
    return paddle.optimizer.lr.CosineAnnealingDecay(learning_rate=3e-3, T_max=8, eta_min=3e-4)


def optimizer(parameters, learning_rate=3e-3):
    return paddle.optimizer.AdamW(
        learning_rate=learning_rate, beta1=0.9, beta2=0.95, epsilon=1e-5, parameters=parameters, weight_decay=0.1
    )


def metric(outputs, labels):
    outputs, labels = np.asarray(outputs), np.asarray(labels)
    logits = outputs[:, :-1].astype("float64")
    target = labels[:, 1:]
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_prob = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    valid = target != -100
    picked = np.take_along_axis(log_prob, np.where(valid, target, 0)[..., None], axis=-1)[..., 0]
    return float(np.exp(-(picked * valid).sum() / valid.sum()))
