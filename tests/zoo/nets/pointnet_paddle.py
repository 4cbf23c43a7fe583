"""PointNet with both of its T-Nets, ported."""

import numpy as np
import paddle
import paddle.nn.functional as F  # noqa: N812
from paddle import nn


class TransformNet(nn.Layer):
    def __init__(self, k):
        super().__init__()
        self.k = k
        self.mlp = nn.Sequential(
            nn.Conv1D(k, 8, 1), nn.BatchNorm1D(8), nn.ReLU(), nn.Conv1D(8, 16, 1), nn.BatchNorm1D(16), nn.ReLU()
        )
        self.fc = nn.Sequential(nn.Linear(16, 12), nn.BatchNorm1D(12), nn.ReLU(), nn.Linear(12, k * k))

    def forward(self, x):
        x = paddle.max(self.mlp(x), axis=2)
        x = self.fc(x)
        identity = paddle.eye(self.k, dtype=x.dtype)
        return x.reshape([-1, self.k, self.k]) + identity


class PointNetCls(nn.Layer):
    def __init__(self, num_classes=4):
        super().__init__()
        self.input_transform = TransformNet(3)
        self.feature_transform = TransformNet(8)
        self.conv1 = nn.Conv1D(3, 8, 1)
        self.bn1 = nn.BatchNorm1D(8)
        self.conv2 = nn.Conv1D(8, 16, 1)
        self.bn2 = nn.BatchNorm1D(16)
        self.fc1 = nn.Linear(16, 12)
        self.bn3 = nn.BatchNorm1D(12)
        self.dropout = nn.Dropout(0.3)
        self.fc2 = nn.Linear(12, num_classes)

    def forward(self, pc):
        pc = pc - pc.mean(axis=2, keepdim=True)
        radius = paddle.sqrt((pc**2).sum(axis=1)).max(axis=1)
        pc = pc / radius.unsqueeze([1, 2])
        trans = self.input_transform(pc)
        x = paddle.matmul(trans.transpose([0, 2, 1]), pc)
        x = F.relu(self.bn1(self.conv1(x)))
        trans = self.feature_transform(x)
        x = paddle.matmul(trans.transpose([0, 2, 1]), x)
        x = self.bn2(self.conv2(x)).max(axis=-1)
        x = F.relu(self.bn3(self.dropout(self.fc1(x))))
        return F.log_softmax(self.fc2(x), axis=-1), trans


def build():
    return PointNetCls()


RENAMED = {
    "conv1": "mlp.0",
    "bn1": "mlp.1",
    "conv2": "mlp.3",
    "bn2": "mlp.4",
    "fc1": "fc.0",
    "bn3": "fc.1",
    "fc2": "fc.3",
}


def convert(state):
    weights = {}
    for key, value in state.items():
        parts = key.split(".")
        if parts[-1] == "num_batches_tracked":
            continue
        if len(parts) == 3:
            parts[0] = "input_transform" if parts[0] == "stn" else "feature_transform"
            parts[1] = RENAMED[parts[1]]
        name = ".".join(parts).replace("running_mean", "_mean").replace("running_var", "_variance")
        weights[name] = value.T if value.ndim == 2 else value
    return weights


def loss(output, labels):
    scores, trans = output
    eye = paddle.eye(trans.shape[1], dtype=trans.dtype)
    gap = paddle.bmm(trans, trans.transpose([0, 2, 1])) - eye
    return F.nll_loss(scores, labels) + 0.01 * paddle.norm(gap, p="fro", axis=[1, 2]).mean()


def scheduler():
    return paddle.optimizer.lr.StepDecay(learning_rate=3e-3, step_size=2, gamma=0.7)


def optimizer(parameters, learning_rate=3e-3):
    return paddle.optimizer.AdamW(learning_rate=learning_rate, parameters=parameters, weight_decay=0.05)


def transform(cloud):
    cloud = cloud[::2]
    xyz = cloud[:, :3] - cloud[:, :3].mean(axis=0, keepdims=True)
    xyz = xyz / np.linalg.norm(xyz, axis=1).max()
    normals = cloud[:, 3:]
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    normals = normals / np.clip(length, 1e-6, None)
    order = [0, 2, 1]
    return np.concatenate([xyz[:, order], normals[:, order]], axis=1).T.astype("float32")
