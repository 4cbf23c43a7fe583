"""Small nets over images and clips as a reference has them, in torch."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Plain(nn.Module):
    """Convolutions, pooling and a classifier, all in two Sequentials."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(8, 12, 5, stride=2, padding=2, bias=False),
            nn.BatchNorm2d(12),
            nn.LeakyReLU(0.1),
            nn.AvgPool2d(3, 1, 1, count_include_pad=False),
            nn.Conv2d(12, 12, 3),
            nn.ELU(),
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 10))

    def forward(self, x):
        return self.classifier(self.features(x))


class Basic(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, inside: int, outside: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside)
        self.downsample = None
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        kept = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(x)) + kept)


class Residual(nn.Module):
    """ResNet in small (He et al. 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(Basic(8, 8), Basic(8, 8))
        self.layer2 = nn.Sequential(Basic(8, 16, 2), Basic(16, 16))
        self.layer3 = nn.Sequential(Basic(16, 16, 2), Basic(16, 16))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(16, 10)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Squeeze(nn.Module):
    """Squeeze and excitation (Hu et al. 2017)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pool, self.fc1, self.relu = nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 8, 1), nn.ReLU()
        self.fc2, self.gate = nn.Conv2d(8, channels, 1), nn.Hardsigmoid()

    def forward(self, x):
        return x * self.gate(self.fc2(self.relu(self.fc1(self.pool(x)))))


class Inverted(nn.Module):
    """An inverted residual block of MobileNetV3 (Howard et al. 2019)."""

    def __init__(self, inside: int, wide: int, outside: int, stride: int, squeeze: bool) -> None:
        super().__init__()
        self.shortcut = stride == 1 and inside == outside
        layers = [
            nn.Conv2d(inside, wide, 1, bias=False),
            nn.BatchNorm2d(wide, eps=1e-3, momentum=0.01),
            nn.Hardswish(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
            nn.BatchNorm2d(wide, eps=1e-3, momentum=0.01),
            nn.Hardswish(),
        ]
        if squeeze:
            layers.append(Squeeze(wide))
        layers += [nn.Conv2d(wide, outside, 1, bias=False), nn.BatchNorm2d(outside, eps=1e-3, momentum=0.01)]
        self.block = nn.Sequential(*layers)

    def forward(self, x):
        y = self.block(x)
        return x + y if self.shortcut else y


class Mobile(nn.Module):
    """MobileNetV3 in small."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False),
            nn.BatchNorm2d(8, eps=1e-3, momentum=0.01),
            nn.Hardswish(),
            Inverted(8, 16, 8, 1, True),
            Inverted(8, 16, 12, 2, False),
            Inverted(12, 24, 12, 1, True),
            Inverted(12, 24, 12, 1, False),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Linear(12, 24), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(24, 10))

    def forward(self, x):
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


class Dense(nn.Module):
    """Norm, activation, convolution, and what went in beside what came out (Huang et al. 2016)."""

    def __init__(self, inside: int) -> None:
        super().__init__()
        self.norm, self.relu, self.conv = nn.BatchNorm2d(inside), nn.ReLU(), nn.Conv2d(inside, 6, 3, 1, 1)

    def forward(self, x):
        return torch.cat([x, self.conv(self.relu(self.norm(x)))], 1)


class Inception(nn.Module):
    """Four branches (Szegedy et al. 2014)."""

    def __init__(self, inside: int) -> None:
        super().__init__()
        self.branch1 = nn.Sequential(nn.Conv2d(inside, 6, 1), nn.ReLU())
        self.branch2 = nn.Sequential(nn.Conv2d(inside, 6, 1), nn.ReLU(), nn.Conv2d(6, 6, 3, 1, 1), nn.ReLU())
        self.branch3 = nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), nn.Conv2d(inside, 6, 1), nn.ReLU())
        self.branch4 = nn.Sequential(nn.AvgPool2d(3, 1, 1), nn.Conv2d(inside, 6, 1), nn.ReLU())

    def forward(self, x):
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class Branches(nn.Module):
    """Dense blocks and Inception blocks one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2, 2, ceil_mode=True))
        self.dense1, self.dense2 = Dense(8), Dense(14)
        self.transition = nn.Sequential(nn.BatchNorm2d(20), nn.ReLU(), nn.Conv2d(20, 10, 1), nn.AvgPool2d(2))
        self.mixed1, self.mixed2 = Inception(10), Inception(24)
        self.head = nn.Linear(24, 10)

    def forward(self, x):
        x = self.transition(self.dense2(self.dense1(self.stem(x))))
        return self.head(self.mixed2(self.mixed1(x)).mean((2, 3)))


def _double(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1),
        nn.GroupNorm(2, outside),
        nn.SiLU(),
        nn.Conv2d(outside, outside, 3, padding=1),
        nn.InstanceNorm2d(outside, affine=True),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """Down, up and across (Ronneberger et al. 2015); one way up interpolates, the other is a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = _double(3, 6), _double(6, 8), _double(8, 8)
        self.pool = nn.MaxPool2d(2)
        self.up2 = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.up1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.left2, self.left1 = _double(16, 8), _double(14, 6)
        self.out = nn.Conv2d(6, 4, 1)

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(self.pool(one))
        x = self.middle(self.pool(two))
        x = self.left2(torch.cat([two, self.up2(x)], 1))
        x = self.left1(torch.cat([one, self.up1(x)], 1))
        return self.out(x)


class Outputs(nn.Module):
    """Several outputs of several shapes in one dict."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU()
        )
        self.boxes, self.scores = nn.Conv2d(8, 8, 3, 1, 1), nn.Conv2d(8, 4, 3, 1, 1)
        self.embed, self.norm = nn.Linear(8, 16), nn.LayerNorm(16)

    def forward(self, x):
        x = self.body(x)
        boxes = self.boxes(x).sigmoid()
        scores = F.softmax(self.scores(x), 1)
        vector = F.normalize(self.norm(self.embed(x.mean((2, 3)))), dim=-1)
        return {"boxes": boxes, "scores": scores, "aside": (vector, x)}


class Clip(nn.Module):
    """Convolutions over time and space (Tran et al. 2014)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv3d(3, 6, 3, padding=1, bias=False), nn.BatchNorm3d(6)
        self.pool1 = nn.MaxPool3d((1, 2, 2), (1, 2, 2))
        self.conv2, self.bn2 = (nn.Conv3d(6, 8, (3, 1, 1), stride=(2, 1, 1), padding=(1, 0, 0)), nn.BatchNorm3d(8))
        self.pool2, self.relu = nn.AvgPool3d(2, 2), nn.ReLU()
        self.drop, self.fc = nn.Dropout(0.5), nn.Linear(8, 6)

    def forward(self, x):
        x = self.pool1(self.relu(self.bn1(self.conv1(x))))
        x = self.pool2(self.relu(self.bn2(self.conv2(x))))
        return self.fc(self.drop(x.mean((2, 3, 4))))


class Frames(nn.Module):
    """Frames folded into the batch, a shift along time, and the mean over frames (Lin et al. 2018)."""

    def __init__(self, frames: int = 4) -> None:
        super().__init__()
        self.frames = frames
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.block1, self.block2 = Basic(8, 8), Basic(8, 12, 2)
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(12, 6)

    def shift(self, x):
        x = x.reshape(-1, self.frames, *x.shape[1:])
        fold = x.shape[2] // 4
        out = torch.zeros_like(x)
        out[:, :-1, :fold] = x[:, 1:, :fold]
        out[:, 1:, fold : 2 * fold] = x[:, :-1, fold : 2 * fold]
        out[:, :, 2 * fold :] = x[:, :, 2 * fold :]
        return out.flatten(0, 1)

    def forward(self, clip):
        x = self.stem(clip.flatten(0, 1))
        x = self.block2(self.shift(self.block1(self.shift(x))))
        x = self.fc(self.pool(x).flatten(1))
        return x.reshape(-1, self.frames, 6).mean(1)


class Autoencoder(nn.Module):
    """A variational autoencoder (Kingma and Welling 2013) that is given its noise."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 6, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(6, 8, 3, 2, 1), nn.PReLU(8), nn.Flatten()
        )
        self.mean, self.log_variance = nn.Linear(32, 5), nn.Linear(32, 5)
        self.decode = nn.Linear(5, 32)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(8, 6, 3, 2, 1, output_padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(6, 1, 4, 2, 1),
            nn.Sigmoid(),
        )

    def forward(self, image, noise):
        x = self.encoder(image)
        mean, log_variance = self.mean(x), self.log_variance(x)
        z = mean + torch.exp(0.5 * log_variance) * noise
        return self.decoder(self.decode(z).view(-1, 8, 2, 2)), mean, log_variance


class Siamese(nn.Module):
    """One trunk for two images (Bromley et al. 1993)."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(32, 12)
        )
        self.score = nn.Bilinear(12, 12, 3)

    def forward(self, left, right):
        one, other = self.trunk(left), self.trunk(right)
        return self.score(one, other), F.cosine_similarity(one, other)


class Deep(nn.Module):
    """Many equal layers."""

    def __init__(self, depth: int = 24, width: int = 16) -> None:
        super().__init__()
        layers = []
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.LayerNorm(width), nn.Tanh()]
        self.layers = nn.Sequential(*layers)
        self.out = nn.Linear(width, 4)

    def forward(self, x):
        return self.out(self.layers(x))
