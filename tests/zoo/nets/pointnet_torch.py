"""PointNet: a cloud is turned by a small net of its own, twice, and pooled by its maxima."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class TNet(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
        self.conv1 = nn.Conv1d(k, 8, 1)
        self.conv2 = nn.Conv1d(8, 16, 1)
        self.bn1 = nn.BatchNorm1d(8)
        self.bn2 = nn.BatchNorm1d(16)
        self.fc1 = nn.Linear(16, 12)
        self.bn3 = nn.BatchNorm1d(12)
        self.fc2 = nn.Linear(12, k * k)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = torch.max(x, 2)[0]
        x = self.fc2(F.relu(self.bn3(self.fc1(x))))
        return x.view(-1, self.k, self.k) + torch.eye(self.k, dtype=x.dtype)


class PointNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.stn = TNet(3)
        self.conv1 = nn.Conv1d(3, 8, 1)
        self.bn1 = nn.BatchNorm1d(8)
        self.fstn = TNet(8)
        self.conv2 = nn.Conv1d(8, 16, 1)
        self.bn2 = nn.BatchNorm1d(16)
        self.fc1 = nn.Linear(16, 12)
        self.bn3 = nn.BatchNorm1d(12)
        self.drop = nn.Dropout(p=0.3)
        self.fc2 = nn.Linear(12, classes)

    def forward(self, points):
        """``points``: (batch, 3, n)."""
        points = points - points.mean(dim=2, keepdim=True)
        points = points / points.norm(dim=1).max(dim=1).values[:, None, None]
        turn = self.stn(points)
        x = torch.bmm(points.transpose(2, 1), turn).transpose(2, 1)
        x = F.relu(self.bn1(self.conv1(x)))
        turn = self.fstn(x)
        x = torch.bmm(x.transpose(2, 1), turn).transpose(2, 1)
        x = self.bn2(self.conv2(x)).max(dim=2).values
        x = F.relu(self.bn3(self.drop(self.fc1(x))))
        return F.log_softmax(self.fc2(x), dim=-1), turn


def build():
    return PointNet()


def batch(rng):
    return {"args": (rng.normal(size=(4, 3, 10)).astype("float32"),), "labels": rng.integers(0, 4, size=(4,))}


def loss(output, labels):
    scores, turn = output
    gap = turn @ turn.transpose(1, 2) - torch.eye(turn.shape[1], dtype=turn.dtype)
    return F.nll_loss(scores, labels) + 0.01 * gap.norm(dim=(1, 2)).mean()


def optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.05)


def scheduler(opt):
    return torch.optim.lr_scheduler.StepLR(opt, step_size=2, gamma=0.7)


def samples():
    rng = np.random.default_rng(8)
    return [rng.normal(size=(20 + i, 6)).astype("float32") for i in range(3)]


def transform(cloud):
    """Every other point; xyz into the unit ball, z up; normals to length one."""
    xyz, normals = cloud[::2, :3], cloud[::2, 3:]
    xyz = xyz - xyz.mean(0)
    xyz = xyz / np.sqrt((xyz**2).sum(1)).max()
    normals = normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-6)
    return torch.from_numpy(np.concatenate([xyz[:, [0, 2, 1]], normals[:, [0, 2, 1]]], axis=1).T.copy())
