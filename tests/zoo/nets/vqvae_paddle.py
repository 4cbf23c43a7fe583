"""VQ-VAE with a moving codebook, ported."""

import paddle
import paddle.nn.functional as F  # noqa: N812
from paddle import nn

from zoo.planting import named_for_paddle


class ResBlock(nn.Layer):
    def __init__(self, dim):
        super().__init__()
        self.block = nn.Sequential(
            nn.ReLU(), nn.Conv2D(dim, dim // 2, 3, padding=1), nn.ReLU(), nn.Conv2D(dim // 2, dim, 1)
        )

    def forward(self, x):
        return x + self.block(x)


class VectorQuantizerEMA(nn.Layer):
    def __init__(self, num_codes, dim, decay=0.9, epsilon=1e-3):
        super().__init__()
        self.num_codes = num_codes
        self.decay = decay
        self.epsilon = epsilon
        embedding = paddle.randn([num_codes, dim])
        self.register_buffer("embedding", embedding)
        self.register_buffer("cluster_size", paddle.ones([num_codes]))
        self.register_buffer("embed_avg", embedding.clone())

    def forward(self, z):
        flat = z.reshape([-1, z.shape[-1]])
        distance = (
            paddle.sum(flat**2, axis=1, keepdim=True)
            - 2 * paddle.matmul(flat, self.embedding, transpose_y=True)
            + paddle.sum(self.embedding**2, axis=1)
        )
        indices = paddle.argmin(distance, axis=1)
        onehot = F.one_hot(indices, self.num_codes).astype(flat.dtype)
        z_q = paddle.gather(self.embedding, indices).reshape(z.shape)
        if self.training:
            self.update(flat.detach(), onehot)
        commitment = F.mse_loss(z, z_q.detach())
        avg_probs = onehot.mean(axis=0)
        perplexity = paddle.exp(-paddle.sum(avg_probs * paddle.log(avg_probs + 1e-10)))
        z_q = z + (z_q - z).detach()
        return z_q, commitment, perplexity

    @paddle.no_grad()
    def update(self, flat, onehot):
        size = self.cluster_size * self.decay + onehot.sum(axis=0) * (1 - self.decay)
        summed = paddle.matmul(onehot, flat, transpose_x=True)
        average = self.embed_avg * self.decay + summed * (1 - self.decay)
        n = size.sum()
        smoothed = (size + self.epsilon) / (n + self.num_codes * self.epsilon) * n
        self.cluster_size.set_value(size)
        self.embed_avg.set_value(average)
        self.embedding.set_value(average / smoothed.unsqueeze(1))


class VQVAE(nn.Layer):
    def __init__(self, dim=12, num_codes=16, code_dim=6):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2D(3, dim // 2, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2D(dim // 2, dim, 4, stride=2, padding=1),
            ResBlock(dim),
            ResBlock(dim),
            nn.ReLU(),
            nn.Conv2D(dim, code_dim, 1),
        )
        self.quantizer = VectorQuantizerEMA(num_codes, code_dim)
        self.decoder = nn.Sequential(
            nn.Conv2D(code_dim, dim, 3, padding=1),
            ResBlock(dim),
            ResBlock(dim),
            nn.GroupNorm(3, dim, epsilon=1e-6),
            nn.Silu(),
            nn.Conv2DTranspose(dim, dim // 2, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2DTranspose(dim // 2, 3, 3, stride=2, padding=1, output_padding=1),
            nn.Tanh(),
        )

    def forward(self, x):
        z = self.encoder(x)
        z_q, commitment, perplexity = self.quantizer(z.transpose([0, 2, 3, 1]))
        recon = self.decoder(z_q.transpose([0, 3, 1, 2]))
        return recon, commitment, perplexity


def build():
    return VQVAE()


RENAMED = {
    "enc_res.0.": "encoder.3.",
    "enc_res.1.": "encoder.4.",
    "dec_res.0.": "decoder.1.",
    "dec_res.1.": "decoder.2.",
    "conv1.": "block.1.",
    "conv2.": "block.3.",
    "enc1.": "encoder.0.",
    "enc2.": "encoder.2.",
    "pre.": "encoder.6.",
    "post.": "decoder.0.",
    "norm.": "decoder.3.",
    "up1.": "decoder.5.",
    "up2.": "decoder.7.",
    "book.embed": "quantizer.embedding",
    "book.count": "quantizer.cluster_size",
    "book.total": "quantizer.embed_avg",
}


def convert(state):
    return named_for_paddle(state, renames=RENAMED)


def loss(output, labels):
    recon, commitment, _ = output
    return F.mse_loss(recon, labels) / 0.3 + 0.25 * commitment


def optimizer(parameters, learning_rate=1e-3):
    return paddle.optimizer.Adam(learning_rate=learning_rate, parameters=parameters)
