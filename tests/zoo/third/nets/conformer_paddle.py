"""A conformer with its front end, ported."""

import math

import numpy as np
import paddle
import paddle.nn.functional as F  # noqa: N812
from paddle import nn


class LogMel(nn.Layer):
    def __init__(self, n_fft=16, hop_length=8, n_mels=6):
        super().__init__()
        self.n_fft = n_fft
        self.hop_length = hop_length
        n = np.arange(n_fft)
        window = 0.5 - 0.5 * np.cos(2 * np.pi * n / n_fft)
        freqs = np.arange(n_fft // 2 + 1)
        phase = 2 * np.pi * np.outer(n, freqs) / n_fft
        self.register_buffer("cos", paddle.to_tensor((np.cos(phase) * window[:, None]).astype("float32")))
        self.register_buffer("sin", paddle.to_tensor((np.sin(phase) * window[:, None]).astype("float32")))
        points = np.linspace(0, n_fft // 2, n_mels + 2)
        fb = np.zeros([n_mels, n_fft // 2 + 1])
        for m in range(n_mels):
            lower, center, upper = points[m], points[m + 1], points[m + 2]
            rising = (freqs - lower) / (center - lower)
            falling = (upper - freqs) / (upper - center)
            fb[m] = np.maximum(0, np.minimum(rising, falling))
        self.register_buffer("mel_fb", paddle.to_tensor(fb.astype("float32")))

    def forward(self, wav):
        emphasized = wav[:, 1:] - 0.97 * wav[:, :-1]
        wav = paddle.concat([wav[:, :1], emphasized], axis=1)
        pad = self.n_fft // 2
        wav = F.pad(wav.unsqueeze(1), [pad, pad], mode="reflect", data_format="NCL").squeeze(1)
        num_frames = 1 + (wav.shape[1] - self.n_fft) // self.hop_length
        frames = paddle.stack(
            [wav[:, i * self.hop_length : i * self.hop_length + self.n_fft] for i in range(num_frames)], axis=1
        )
        real = paddle.matmul(frames, self.cos)
        imag = paddle.matmul(frames, self.sin)
        power = real.square() + imag.square()
        mel = paddle.matmul(power, self.mel_fb, transpose_y=True)
        logmel = paddle.log(paddle.clip(mel, min=1e-6))
        mean = logmel.mean(axis=1, keepdim=True)
        std = logmel.std(axis=1, keepdim=True)
        return (logmel - mean) / (std + 1e-5)


class FeedForwardModule(nn.Layer):
    def __init__(self, dim):
        super().__init__()
        self.layer_norm = nn.LayerNorm(dim)
        self.linear1 = nn.Linear(dim, dim * 2)
        self.dropout = nn.Dropout(0.1)
        self.linear2 = nn.Linear(dim * 2, dim)

    def forward(self, x):
        x = F.swish(self.linear1(self.layer_norm(x)))
        x = self.linear2(self.dropout(x))
        return self.dropout(x)


class ConvolutionModule(nn.Layer):
    def __init__(self, dim, kernel_size):
        super().__init__()
        self.layer_norm = nn.LayerNorm(dim)
        self.pointwise_conv1 = nn.Conv1D(dim, dim * 2, 1)
        self.depthwise_conv = nn.Conv1D(dim, dim, kernel_size, padding=(kernel_size - 1) // 2, groups=dim)
        self.batch_norm = nn.BatchNorm1D(dim, epsilon=1e-3, momentum=0.95)
        self.pointwise_conv2 = nn.Conv1D(dim, dim, 1)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        x = self.layer_norm(x).transpose([0, 2, 1])
        x = F.glu(self.pointwise_conv1(x), axis=1)
        x = F.swish(self.batch_norm(self.depthwise_conv(x)))
        x = self.pointwise_conv2(x)
        return self.dropout(x.transpose([0, 2, 1]))


class RelativeSelfAttention(nn.Layer):
    def __init__(self, dim, num_heads, max_distance=4):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.max_distance = max_distance
        self.layer_norm = nn.LayerNorm(dim)
        self.qkv_proj = nn.Linear(dim, dim * 3)
        self.out_proj = nn.Linear(dim, dim)
        self.relative_bias = nn.Embedding(2 * max_distance + 1, num_heads)

    def forward(self, x):
        batch, time, dim = x.shape
        qkv = self.qkv_proj(self.layer_norm(x)).reshape([batch, time, 3, self.num_heads, self.head_dim])
        q, k, v = qkv.transpose([2, 0, 3, 1, 4]).unbind(0)
        position = paddle.arange(time)
        distance = position.unsqueeze(0) - position.unsqueeze(1)
        distance = paddle.clip(distance, -self.max_distance, self.max_distance) + self.max_distance
        bias = self.relative_bias(distance).transpose([2, 0, 1])
        scores = paddle.matmul(q, k, transpose_y=True) / math.sqrt(self.head_dim)
        attn = F.softmax(scores + bias.unsqueeze(0), axis=-1)
        out = paddle.matmul(attn, v).transpose([0, 2, 1, 3]).reshape([batch, time, dim])
        return self.out_proj(out)


class ConformerBlock(nn.Layer):
    def __init__(self, dim):
        super().__init__()
        self.ffn1 = FeedForwardModule(dim)
        self.self_attn = RelativeSelfAttention(dim, 2)
        self.conv_module = ConvolutionModule(dim, 3)
        self.ffn2 = FeedForwardModule(dim)
        self.final_layer_norm = nn.LayerNorm(dim)

    def forward(self, x):
        x = x + 0.5 * self.ffn1(x)
        x = x + self.self_attn(x)
        x = x + self.conv_module(x)
        x = x + 0.5 * self.ffn2(x)
        return self.final_layer_norm(x)


class ConformerASR(nn.Layer):
    def __init__(self, n_mels=6, dim=8, vocab_size=7, num_layers=2):
        super().__init__()
        self.frontend = LogMel(n_mels=n_mels)
        self.subsampling = nn.Conv2D(1, 4, 3, stride=2, padding=1)
        self.proj = nn.Linear(4 * ((n_mels + 1) // 2), dim)
        self.encoder = nn.LayerList([ConformerBlock(dim) for _ in range(num_layers)])
        self.ctc_head = nn.Linear(dim, vocab_size)

    def forward(self, wav):
        feat = self.frontend(wav).unsqueeze(1)
        x = F.relu(self.subsampling(feat))
        x = x.transpose([0, 2, 1, 3]).flatten(2)
        x = self.proj(x)
        for layer in self.encoder:
            x = layer(x)
        return self.ctc_head(x)


def build():
    return ConformerASR()


RENAMED = (
    (".bn.running_mean", ".batch_norm._mean"),
    (".bn.running_var", ".batch_norm._variance"),
    (".bn.", ".batch_norm."),
    ("attention.out.", "self_attn.out_proj."),
    ("attention.qkv.", "self_attn.qkv_proj."),
    ("attention.far.", "self_attn.relative_bias."),
    ("attention.norm.", "self_attn.layer_norm."),
    (".ff1.", ".ffn1."),
    (".ff2.", ".ffn2."),
    (".lin1.", ".linear1."),
    (".lin2.", ".linear2."),
    (".conv.", ".conv_module."),
    (".point1.", ".pointwise_conv1."),
    (".point2.", ".pointwise_conv2."),
    (".depth.", ".depthwise_conv."),
    ("blocks.", "encoder."),
    ("sub.", "subsampling."),
    ("inner.", "proj."),
    ("head.", "ctc_head."),
)


def convert(state):
    weights = {}
    for key, value in state.items():
        if key.startswith("spectrum.") or "num_batches" in key:
            continue
        name = key
        for old, new in RENAMED:
            name = name.replace(old, new)
        parts = name.split(".")
        if parts[2:3] == ["norm"]:
            parts[2] = "final_layer_norm"
        name = ".".join("layer_norm" if part == "norm" else part for part in parts)
        linear = value.ndim == 2 and "relative_bias" not in name
        weights[name] = value.T if linear else value
    return weights


def loss(output, labels):
    num_classes = output.shape[-1]
    target = F.one_hot(labels, num_classes).astype(output.dtype) * 0.9 + 0.1 / num_classes
    return F.cross_entropy(output, target, soft_label=True)


def scheduler():
    return paddle.optimizer.lr.LambdaDecay(
        learning_rate=1.0, lr_lambda=lambda epoch: 64**-0.5 * min(max(epoch, 1) ** -0.5, max(epoch, 1) * 400**-1.5)
    )


def optimizer(parameters, learning_rate=1.0):
    return paddle.optimizer.Adam(
        learning_rate=learning_rate, beta1=0.9, beta2=0.98, epsilon=1e-9, parameters=parameters
    )


def transform(wave):
    x = wave.astype("float32").mean(axis=1) / 32768.0
    x = x[:64] if len(x) >= 64 else np.pad(x, (0, 64 - len(x)))
    return x / np.abs(x).max() * 0.95


def collapse(path):
    kept = [path[0]]
    for token in path[1:]:
        if token != kept[-1]:
            kept.append(token)
    return [token for token in kept if token != 0]


def edit_distance(hyp, ref):
    table = np.zeros([len(hyp) + 1, len(ref) + 1], dtype=int)
    table[:, 0] = np.arange(len(hyp) + 1)
    table[0] = np.arange(len(ref) + 1)
    for i in range(1, len(hyp) + 1):
        for j in range(1, len(ref) + 1):
            cost = int(hyp[i - 1] != ref[j - 1])
            table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + cost)
    return table[-1, -1]


def metric(outputs, labels):
    outputs, labels = np.asarray(outputs), np.asarray(labels)
    errors, words = 0, 0
    for path, target in zip(np.argmax(outputs, axis=-1), labels, strict=True):
        ref = [token for token in target.tolist() if token != 0]
        errors += edit_distance(collapse(path.tolist()), ref)
        words += len(ref)
    return float(errors / words)
