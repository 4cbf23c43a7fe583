"""NeRF, ported: encoding, field and volume rendering."""

import math

import numpy as np
import paddle
import paddle.nn.functional as F  # noqa: N812
from paddle import nn


class FreqEncoder(nn.Layer):
    def __init__(self, num_freqs):
        super().__init__()
        self.num_freqs = num_freqs

    def forward(self, x):
        outputs = [x]
        for i in range(self.num_freqs):
            scaled = x * (2.0**i * math.pi)
            outputs += [paddle.sin(scaled), paddle.cos(scaled)]
        return paddle.concat(outputs, axis=-1)


class NerfMLP(nn.Layer):
    def __init__(self, hidden=16, num_freqs=4, num_freqs_view=2):
        super().__init__()
        self.encode_xyz = FreqEncoder(num_freqs)
        self.encode_dir = FreqEncoder(num_freqs_view)
        xyz_dim = 3 + 6 * num_freqs
        dir_dim = 3 + 6 * num_freqs_view
        self.layers = nn.LayerList(
            [nn.Linear(xyz_dim, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden + xyz_dim, hidden)]
        )
        self.skips = [2]
        self.sigma_head = nn.Linear(hidden, 1)
        self.bottleneck = nn.Linear(hidden, hidden)
        self.dir_layer = nn.Linear(hidden + dir_dim, hidden // 2)
        self.rgb_head = nn.Linear(hidden // 2, 3)

    def forward(self, xyz, viewdirs):
        encoded = self.encode_xyz(xyz)
        h = encoded
        for i, layer in enumerate(self.layers):
            if i in self.skips:
                h = paddle.concat([encoded, h], axis=-1)
            h = F.relu(layer(h))
        sigma = F.softplus(self.sigma_head(h) - 1.0, beta=2.0)
        h = paddle.concat([self.bottleneck(h), self.encode_dir(viewdirs)], axis=-1)
        h = F.relu(self.dir_layer(h))
        rgb = F.sigmoid(self.rgb_head(h))
        return rgb, sigma.squeeze(-1)


class NerfRenderer(nn.Layer):
    def __init__(self, near=0.5, far=2.5, n_samples=8):
        super().__init__()
        self.near = near
        self.far = far
        self.n_samples = n_samples
        self.mlp = NerfMLP()

    def forward(self, rays_o, rays_d):
        steps = paddle.linspace(0, 1, self.n_samples, dtype=rays_o.dtype)
        z_vals = self.near * (1 - steps) + self.far * steps
        pts = rays_o.unsqueeze(1) + z_vals.reshape([1, -1, 1]) * rays_d.unsqueeze(1)
        viewdirs = rays_d / paddle.linalg.norm(rays_d, axis=-1, keepdim=True)
        viewdirs = viewdirs.unsqueeze(1).expand([-1, self.n_samples, -1])
        rgb, sigma = self.mlp(pts, viewdirs)
        dists = z_vals[1:] - z_vals[:-1]
        dists = paddle.concat([dists, paddle.full([1], 0.4, dtype=dists.dtype)])
        dists = dists.unsqueeze(0) * paddle.linalg.norm(rays_d, axis=-1, keepdim=True)
        alpha = 1.0 - paddle.exp(-sigma * dists)
        survival = paddle.concat([paddle.ones_like(alpha[:, :1]), 1.0 - alpha + 1e-10], axis=-1)
        transmittance = paddle.cumprod(survival, dim=-1)[:, :-1]
        weights = alpha * transmittance
        rgb_map = paddle.sum(weights.unsqueeze(-1) * rgb, axis=1)
        depth_map = paddle.sum(weights * z_vals, axis=1)
        acc_map = paddle.sum(weights, axis=1, keepdim=True)
        rgb_map = rgb_map + (1.0 - acc_map)
        return rgb_map, depth_map, acc_map


def build():
    return NerfRenderer()


RENAMED = {
    "lin0": "layers.0",
    "lin1": "layers.1",
    "lin2": "layers.2",
    "density": "sigma_head",
    "feature": "bottleneck",
    "view": "dir_layer",
    "rgb": "rgb_head",
}


def convert(state):
    weights = {}
    for key, value in state.items():
        _, layer, kind = key.split(".")
        weights[f"mlp.{RENAMED[layer]}.{kind}"] = value.T if kind == "weight" else value
    return weights


def loss(output, labels):
    rgb, _, acc = output
    acc = paddle.clip(acc, 1e-5, 1 - 1e-5)
    entropy = -(acc * paddle.log(acc) + (1 - acc) * paddle.log(1 - acc))
    return F.mse_loss(rgb, labels) + 0.01 * entropy.mean()


def scheduler():
    return paddle.optimizer.lr.LambdaDecay(learning_rate=5e-4, lr_lambda=lambda step: 0.1 ** (step / 10))


def optimizer(parameters, learning_rate=5e-4):
    return paddle.optimizer.Adam(learning_rate=learning_rate, epsilon=1e-7, parameters=parameters)


def metric(outputs, labels):
    first = np.asarray(outputs[0] if isinstance(outputs, tuple | list) else outputs)
    labels = np.asarray(labels)
    mse = np.mean(np.square(first - labels))
    return float(-10.0 * np.log10(mse))
