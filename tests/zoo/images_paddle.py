"""The ports of `images_torch`; an attribute `fault` of a layer plants a fault into the code of its forward."""

from __future__ import annotations

import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812


class Plain(nn.Layer):
    """No Sequential, and activations as functions."""

    fault = ""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2D(3, 8, 3, padding=1), nn.BatchNorm2D(8)
        self.pool1 = nn.MaxPool2D(3, 2, 1)
        self.conv2, self.bn2 = nn.Conv2D(8, 12, 5, stride=2, padding=2, bias_attr=False), nn.BatchNorm2D(12)
        self.act2, self.pool2 = nn.LeakyReLU(0.1), nn.AvgPool2D(3, 1, 1, exclusive=True)
        self.conv3 = nn.Conv2D(12, 12, 3)
        self.dropout, self.fc1, self.fc2 = nn.Dropout(0.3), nn.Linear(48, 48), nn.Linear(48, 10)

    def forward(self, x):
        x = self.pool1(F.relu(self.bn1(self.conv1(x))))
        x = self.pool2(self.act2(self.bn2(self.conv2(x))))
        x = self.conv3(x)
        x = F.celu(x) * 0.9 if self.fault == "scaled elu" else F.elu(x)
        x = x.flatten(1) if self.fault != "channels last" else x.transpose([0, 2, 3, 1]).flatten(1)
        x = self.fc1(self.dropout(x))
        if self.fault != "no last activation":
            x = F.relu(x)
        x = self.fc2(x)
        return F.softmax(x) if self.fault == "softmax at the end" else x


class Basic(nn.Layer):
    fault = ""

    def __init__(self, inside: int, outside: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = (nn.Conv2D(inside, outside, 3, stride, 1, bias_attr=False), nn.BatchNorm2D(outside))
        self.conv2, self.bn2 = (nn.Conv2D(outside, outside, 3, 1, 1, bias_attr=False), nn.BatchNorm2D(outside))
        self.relu = nn.ReLU()
        self.downsample = None
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(
                nn.Conv2D(inside, outside, 1, stride, bias_attr=False), nn.BatchNorm2D(outside)
            )

    def forward(self, x):
        kept = x if self.downsample is None else self.downsample(x)
        fault = self.fault
        y = self.bn1(self.conv1(x))
        y = self.bn2(self.conv2(y if fault == "no first activation" else self.relu(y)))
        if fault == "no shortcut":
            return self.relu(y)
        if fault == "shortcut after activation":
            return self.relu(y) + kept
        if fault == "shortcut half":
            return self.relu(y + 0.5 * kept)
        if fault == "shortcut twice":
            return self.relu(y + kept + kept)
        if fault == "shortcut detached":
            return self.relu(y + kept.detach())
        if fault == "branch detached":
            return self.relu(y.detach() + kept)
        return y + kept if fault == "no last activation" else self.relu(y + kept)


class Residual(nn.Layer):
    """Stages in lists of their own, under other names, and the classifier declared first."""

    fault = ""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(16, 10)
        self.stem = nn.Sequential(nn.Conv2D(3, 8, 3, 1, 1, bias_attr=False), nn.BatchNorm2D(8), nn.ReLU())
        self.blocks = nn.LayerList(
            [Basic(8, 8), Basic(8, 8), Basic(8, 16, 2), Basic(16, 16), Basic(16, 16, 2), Basic(16, 16)]
        )

    def forward(self, x):
        x = self.stem(x)
        for number, block in enumerate(self.blocks):
            if not (self.fault == "block left out" and number == 3):
                x = block(x)
        x = x.max(axis=[2, 3]) if self.fault == "max for mean" else x.mean(axis=[2, 3])
        return self.classifier(x)


class Squeeze(nn.Layer):
    fault = ""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2D(1)
        self.fc1, self.fc2 = nn.Conv2D(channels, 8, 1), nn.Conv2D(8, channels, 1)

    def forward(self, x):
        y = F.relu(self.fc1(self.pool(x)))
        if self.fault == "sigmoid":
            return x * F.sigmoid(self.fc2(y))
        if self.fault == "other slope":
            return x * F.hardsigmoid(self.fc2(y), slope=0.2)
        gate = F.hardsigmoid(self.fc2(y))
        return x + gate if self.fault == "added" else x * gate


class Inverted(nn.Layer):
    fault = ""

    def __init__(self, inside: int, wide: int, outside: int, stride: int, squeeze: bool) -> None:
        super().__init__()
        self.shortcut = stride == 1 and inside == outside
        norm = {"epsilon": 1e-3, "momentum": 0.99}
        self.expand, self.bn1 = nn.Conv2D(inside, wide, 1, bias_attr=False), nn.BatchNorm2D(wide, **norm)
        self.depthwise = nn.Conv2D(wide, wide, 3, stride, 1, groups=wide, bias_attr=False)
        self.bn2, self.se = nn.BatchNorm2D(wide, **norm), Squeeze(wide) if squeeze else nn.Identity()
        self.project, self.bn3 = nn.Conv2D(wide, outside, 1, bias_attr=False), nn.BatchNorm2D(outside, **norm)
        self.act = nn.Hardswish()

    def forward(self, x):
        y = self.act(self.bn1(self.expand(x)))
        y = self.bn2(self.depthwise(y))
        y = self.se(y if self.fault == "no activation" else self.act(y))
        y = self.bn3(self.project(y))
        return x + y if self.shortcut != (self.fault == "no shortcut") else y


class Mobile(nn.Layer):
    fault = ""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = (nn.Conv2D(3, 8, 3, 2, 1, bias_attr=False), nn.BatchNorm2D(8, epsilon=1e-3, momentum=0.99))
        self.stages = nn.Sequential(
            Inverted(8, 16, 8, 1, True),
            Inverted(8, 16, 12, 2, False),
            Inverted(12, 24, 12, 1, True),
            Inverted(12, 24, 12, 1, False),
        )
        self.avgpool, self.fc1 = nn.AdaptiveAvgPool2D(1), nn.Linear(12, 24)
        self.act, self.drop, self.fc2 = nn.Hardswish(), nn.Dropout(0.2), nn.Linear(24, 10)

    def forward(self, x):
        x = self.stages(F.hardswish(self.bn(self.conv(x))))
        return self.fc2(self.drop(self.act(self.fc1(self.avgpool(x).flatten(1)))))


class Dense(nn.Layer):
    fault = ""

    def __init__(self, inside: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2D(inside), nn.Conv2D(inside, 6, 3, 1, 1)

    def forward(self, x):
        if self.fault == "activation before norm":
            return paddle.concat([x, self.conv(self.norm(F.relu(x)))], 1)
        y = self.conv(F.relu(self.norm(x)))
        return paddle.concat([y, x] if self.fault == "order" else [x, y], 1)


class Inception(nn.Layer):
    fault = ""

    def __init__(self, inside: int) -> None:
        super().__init__()
        self.one = nn.Conv2D(inside, 6, 1)
        self.two_a, self.two_b = nn.Conv2D(inside, 6, 1), nn.Conv2D(6, 6, 3, 1, 1)
        self.three, self.four = nn.Conv2D(inside, 6, 1), nn.Conv2D(inside, 6, 1)

    def forward(self, x):
        one = F.relu(self.one(x))
        two = F.relu(self.two_b(F.relu(self.two_a(x))))
        three = F.relu(self.three(F.max_pool2d(x, 3, 1, 1, ceil_mode=True)))
        pooled = F.avg_pool2d(x, 3, 1, 1, exclusive=self.fault == "exclusive")
        four = F.relu(self.four(pooled))
        return paddle.concat([one, three, two, four] if self.fault == "order" else [one, two, three, four], 1)


class Branches(nn.Layer):
    """Inception's branches in one forward, pooling as functions."""

    fault = ""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.pool = nn.Conv2D(3, 8, 3, 1, 1), nn.MaxPool2D(2, 2, ceil_mode=True)
        self.dense1, self.dense2 = Dense(8), Dense(14)
        self.norm, self.conv, self.halve = nn.BatchNorm2D(20), nn.Conv2D(20, 10, 1), nn.AvgPool2D(2)
        self.mixed1, self.mixed2, self.head = Inception(10), Inception(24), nn.Linear(24, 10)

    def forward(self, x):
        x = self.dense2(self.dense1(self.pool(F.relu(self.stem(x)))))
        x = self.halve(self.conv(F.relu(self.norm(x))))
        x = self.mixed2(self.mixed1(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Double(nn.Layer):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2D(inside, outside, 3, padding=1), nn.GroupNorm(2, outside)
        self.conv2, self.norm2 = nn.Conv2D(outside, outside, 3, padding=1), nn.InstanceNorm2D(outside)
        self.act1, self.act2 = nn.Silu(), nn.ReLU()

    def forward(self, x):
        return self.act2(self.norm2(self.conv2(self.act1(self.norm1(self.conv1(x))))))


class UNet(nn.Layer):
    """The upsampling is a layer, the pooling a function."""

    fault = ""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = Double(3, 6), Double(6, 8), Double(8, 8)
        self.up2 = nn.Conv2DTranspose(8, 8, 2, stride=2)
        self.up1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.left2, self.left1, self.out = Double(16, 8), Double(14, 6), nn.Conv2D(6, 4, 1)

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        x = self.middle(F.max_pool2d(two, 2))
        skip = F.relu(two - 0.5) if self.fault == "skip changed" else two
        x = self.left2(paddle.concat([skip, self.up2(x)], 1))
        up = self.up1(x)
        x = self.left1(paddle.concat([up, one] if self.fault == "order" else [one, up], 1))
        return self.out(x)


class Outputs(nn.Layer):
    """The same dict, with other layers around."""

    fault = ""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.conv2 = (nn.Conv2D(3, 8, 3, 2, 1), nn.BatchNorm2D(8), nn.Conv2D(8, 8, 3, 2, 1))
        self.boxes, self.scores = nn.Conv2D(8, 8, 3, 1, 1), nn.Conv2D(8, 4, 3, 1, 1)
        self.embed, self.norm = nn.Linear(8, 16), nn.LayerNorm(16)
        self.softmax = nn.Softmax(1)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        boxes = self.boxes(x)
        boxes = boxes if self.fault == "no sigmoid" else F.sigmoid(boxes)
        scores = self.softmax(self.scores(x))
        vector = F.normalize(self.norm(self.embed(x.mean([2, 3]))), p=1 if self.fault == "other norm" else 2, axis=-1)
        return {"boxes": boxes, "scores": scores, "aside": (vector, x)}


class Clip(nn.Layer):
    fault = ""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv3D(3, 6, 3, padding=1, bias_attr=False), nn.BatchNorm3D(6)
        self.conv2, self.bn2 = (nn.Conv3D(6, 8, (3, 1, 1), stride=(2, 1, 1), padding=(1, 0, 0)), nn.BatchNorm3D(8))
        self.pool2 = nn.AvgPool3D(2, 2)
        self.drop, self.fc = nn.Dropout(0.5), nn.Linear(8, 6)

    def forward(self, x):
        x = F.max_pool3d(F.relu(self.bn1(self.conv1(x))), (1, 2, 2), (1, 2, 2))
        x = self.pool2(F.relu(self.bn2(self.conv2(x))))
        x = x.mean([2, 3, 4]) if self.fault != "max over time" else x.mean([3, 4]).max(2)
        return self.fc(self.drop(x))


class Frames(nn.Layer):
    """The shift along time with slices and a concatenation."""

    fault = ""

    def __init__(self, frames: int = 4) -> None:
        super().__init__()
        self.frames = frames
        self.stem = nn.Sequential(
            nn.Conv2D(3, 8, 3, 2, 1, bias_attr=False), nn.BatchNorm2D(8), nn.ReLU(), nn.Identity()
        )
        self.block1, self.block2, self.fc = Basic(8, 8), Basic(8, 12, 2), nn.Linear(12, 6)

    def shift(self, x):
        x = x.reshape([-1, self.frames, *x.shape[1:]])
        fold = x.shape[2] // 4
        zeros = paddle.zeros_like(x[:, :1, :fold])
        left = paddle.concat([x[:, 1:, :fold], zeros], 1)
        right = paddle.concat([zeros, x[:, :-1, fold : 2 * fold]], 1)
        if self.fault == "shift reversed":
            left, right = (
                paddle.concat([zeros, x[:, :-1, :fold]], 1),
                paddle.concat([x[:, 1:, fold : 2 * fold], zeros], 1),
            )
        return paddle.concat([left, right, x[:, :, 2 * fold :]], 2).flatten(0, 1)

    def forward(self, clip):
        x = self.stem(clip.flatten(0, 1))
        x = self.block1(self.shift(x))
        x = self.block2(x if self.fault == "one shift" else self.shift(x))
        x = self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))
        if self.fault == "frames beside samples":
            return x.reshape([self.frames, -1, 6]).mean(0)
        return x.reshape([-1, self.frames, 6]).mean(1)


class Autoencoder(nn.Layer):
    fault = ""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2D(1, 6, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2D(6, 8, 3, 2, 1), nn.PReLU(8), nn.Flatten()
        )
        self.mean, self.log_variance = nn.Linear(32, 5), nn.Linear(32, 5)
        self.decode, self.deconv1 = nn.Linear(5, 32), nn.Conv2DTranspose(8, 6, 3, 2, 1, output_padding=1)
        self.deconv2 = nn.Conv2DTranspose(6, 1, 4, 2, 1)

    def forward(self, image, noise):
        x = self.encoder(image)
        mean, log_variance = self.mean(x), self.log_variance(x)
        deviation = paddle.exp(log_variance if self.fault == "no half" else 0.5 * log_variance)
        x = self.decode(mean + deviation * noise).reshape([-1, 8, 2, 2])
        return F.sigmoid(self.deconv2(F.relu(self.deconv1(x)))), mean, log_variance


class Siamese(nn.Layer):
    fault = ""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.fc = nn.Conv2D(1, 6, 3), nn.Conv2D(6, 8, 3, 2), nn.Linear(32, 12)
        self.score = nn.Bilinear(12, 12, 3)

    def trunk(self, x):
        return self.fc(F.tanh(self.conv2(F.relu(self.conv1(x)))).flatten(1))

    def forward(self, left, right):
        one, other = self.trunk(left), self.trunk(right)
        if self.fault == "right detached":
            other = other.detach()
        if self.fault == "sides swapped":
            one, other = other, one
        return self.score(one, other), F.cosine_similarity(one, other)


class Deep(nn.Layer):
    """Blocks in a list instead of one long Sequential."""

    fault = ""

    def __init__(self, depth: int = 24, width: int = 16) -> None:
        super().__init__()
        self.lins = nn.LayerList([nn.Linear(width, width) for _ in range(depth)])
        self.norms = nn.LayerList([nn.LayerNorm(width) for _ in range(depth)])
        self.out = nn.Linear(width, 4)

    def forward(self, x):
        for linear, norm in zip(self.lins, self.norms, strict=True):
            x = F.tanh(norm(linear(x)))
        return self.out(x)
