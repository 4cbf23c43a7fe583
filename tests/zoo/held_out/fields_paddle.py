"""Ports of `fields_torch`, by hand; `fault` names what is wrong in a layer's own code."""

from __future__ import annotations

import math

import paddle
import paddle.nn.functional as F  # noqa: N812
from paddle import nn

ONES = nn.initializer.Constant(1.0)


class ConvNextBlock(nn.Layer):
    fault = ""

    def __init__(self, dim):
        super().__init__()
        self.dwconv = nn.Conv2D(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, epsilon=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = self.create_parameter([dim], default_initializer=ONES)

    def forward(self, x):
        y = self.dwconv(x).transpose([0, 2, 3, 1])
        y = self.pwconv2(self.act(self.pwconv1(self.norm(y))))
        if self.fault == "gamma on the sum":
            return ((x.transpose([0, 2, 3, 1]) + y) * self.gamma).transpose([0, 3, 1, 2])
        if self.fault != "no gamma":
            y = self.gamma * y
        return x + y.transpose([0, 3, 1, 2])


class LayerNorm2D(nn.Layer):
    def __init__(self, dim, epsilon=1e-6):
        super().__init__()
        self.epsilon = epsilon
        self.weight = self.create_parameter([dim], default_initializer=ONES)
        self.bias = self.create_parameter([dim], is_bias=True)

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / paddle.sqrt(variance + self.epsilon)
        return x * self.weight.reshape([1, -1, 1, 1]) + self.bias.reshape([1, -1, 1, 1])


class ConvNext(nn.Layer):
    def __init__(self, dim=6, classes=5):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2D(3, dim, 2, 2), LayerNorm2D(dim))
        self.stage1 = nn.Sequential(ConvNextBlock(dim), ConvNextBlock(dim))
        self.down = nn.Sequential(LayerNorm2D(dim), nn.Conv2D(dim, 2 * dim, 2, 2))
        self.stage2 = nn.Sequential(ConvNextBlock(2 * dim))
        self.norm = nn.LayerNorm(2 * dim, epsilon=1e-6)
        self.head = nn.Linear(2 * dim, classes)

    def forward(self, x):
        x = self.stage2(self.down(self.stage1(self.stem(x))))
        return self.head(self.norm(x.mean([2, 3])))


class Encode(nn.Layer):
    def __init__(self, ins, outs):
        super().__init__()
        self.conv = nn.Conv2D(ins, outs, 3, 2, 1)
        self.norm = nn.InstanceNorm2D(outs)
        self.act = nn.LeakyReLU(0.2)

    def forward(self, x):
        return self.act(self.norm(self.conv(x)))


class Decode(nn.Layer):
    fault = ""

    def __init__(self, ins, outs):
        super().__init__()
        self.deconv = nn.Conv2DTranspose(ins, outs, 3, 2, 1, output_padding=1)
        self.norm = nn.InstanceNorm2D(outs)

    def forward(self, x, skip):
        if self.fault == "skip behind relu":
            return F.relu(self.norm(self.deconv(x))) + skip
        if self.fault == "no skip":
            return F.relu(self.norm(self.deconv(x)))
        if self.fault == "odd crop":
            y = F.conv2d_transpose(x, self.deconv.weight, self.deconv.bias, stride=2)[:, :, :-1, :-1]
            return F.relu(self.norm(y) + skip)
        return F.relu(self.norm(self.deconv(x)) + skip)


class LinkNet(nn.Layer):
    fault = ""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(1, 4, 3, padding=1, padding_mode="reflect")
        self.enc1, self.enc2 = Encode(4, 6), Encode(6, 8)
        self.dec2, self.dec1 = Decode(8, 6), Decode(6, 4)
        self.fuse = nn.Conv2D(10, 6, 1)
        self.mask = nn.Conv2D(6, 2, 1)

    def forward(self, x):
        s = F.relu(self.stem(x))
        a = self.enc1(s)
        b = self.enc2(a)
        d = self.dec2(b, a)
        full = self.dec1(d, s)
        if self.fault == "nearest":
            up = F.interpolate(d, scale_factor=2, mode="nearest")
        else:
            up = F.interpolate(d, scale_factor=2, mode="bilinear", align_corners=self.fault == "align corners")
        parts = [up, full] if self.fault == "other order" else [full, up]
        y = self.mask(F.relu(self.fuse(paddle.concat(parts, axis=1))))
        return y if self.fault == "no sigmoid" else F.sigmoid(y)


class Head(nn.Layer):
    fault = ""

    def __init__(self, dim, anchors, classes, levels):
        super().__init__()
        self.classes = classes
        self.tower = nn.Sequential(nn.Conv2D(dim, dim, 3, padding=1), nn.GroupNorm(4, dim), nn.ReLU())
        self.cls = nn.Conv2D(dim, anchors * classes, 3, padding=1)
        self.box = nn.Conv2D(dim, anchors * 4, 3, padding=1)
        self.scales = self.create_parameter([levels], default_initializer=ONES)

    def forward(self, levels):
        scores, boxes = [], []
        for i, x in enumerate(levels):
            y = self.tower(x)
            b = x.shape[0]
            s = self.cls(y)
            s = s if self.fault == "scores not transposed" else s.transpose([0, 2, 3, 1])
            scores.append(s.reshape([b, -1, self.classes]))
            box = self.box(y.detach() if self.fault == "box detached" else y)
            box = box * self.scales[0 if self.fault == "first scale" else i]
            box = F.relu(box) if self.fault == "relu for exp" else box.exp()
            boxes.append(box.transpose([0, 2, 3, 1]).reshape([b, -1, 4]))
        return paddle.concat(scores, 1), paddle.concat(boxes, 1)


class Detector(nn.Layer):
    fault = ""

    def __init__(self, dim=8, classes=3):
        super().__init__()

        def stage(i, o):
            return nn.Sequential(nn.Conv2D(i, o, 3, 2, 1, bias_attr=False), nn.BatchNorm2D(o), nn.ReLU())

        self.c1, self.c2, self.c3 = stage(3, 6), stage(6, 10), stage(10, 12)
        self.lateral = nn.LayerList([nn.Conv2D(n, dim, 1) for n in (6, 10, 12)])
        self.smooth = nn.LayerList([nn.Conv2D(dim, dim, 3, padding=1) for _ in range(3)])
        self.head = Head(dim, 2, classes, 3)

    def forward(self, x):
        c1 = self.c1(x)
        c2 = self.c2(c1)
        c3 = self.c3(c2)
        mode = "bilinear" if self.fault == "bilinear" else "nearest"
        p3 = self.lateral[2](c3)
        p2 = self.lateral[1](c2) + F.interpolate(p3, scale_factor=2, mode=mode)
        p1 = self.lateral[0](c1)
        if self.fault != "no second way down":
            p1 = p1 + F.interpolate(p2, scale_factor=2, mode=mode)
        levels = [conv(p) for conv, p in zip(self.smooth, (p1, p2, p3), strict=False)]
        scores, boxes = self.head(levels[::-1] if self.fault == "levels reversed" else levels)
        return {"scores": scores, "boxes": boxes}


class SqueezeExcite(nn.Layer):
    fault = ""

    def __init__(self, dim):
        super().__init__()
        self.reduce = nn.Conv2D(dim, dim // 2, 1)
        self.expand = nn.Conv2D(dim // 2, dim, 1)

    def forward(self, x):
        y = F.adaptive_max_pool2d(x, 1) if self.fault == "max pool" else F.adaptive_avg_pool2d(x, 1)
        y = self.reduce(y)
        y = self.expand(y if self.fault == "no relu" else F.relu(y))
        if self.fault == "slope of old paddle":
            return x * F.hardsigmoid(y, slope=0.2, offset=0.5)
        if self.fault == "sigmoid":
            return x * F.sigmoid(y)
        return x * F.hardsigmoid(y)


class ShuffleUnit(nn.Layer):
    fault = ""

    def __init__(self, dim):
        super().__init__()
        half = dim // 2
        self.branch = nn.Sequential(
            nn.Conv2D(half, half, 1, bias_attr=False),
            nn.BatchNorm2D(half),
            nn.Hardswish(),
            nn.Conv2D(half, half, 3, 1, 1, groups=half, bias_attr=False),
            nn.BatchNorm2D(half),
            nn.Conv2D(half, half, 1, bias_attr=False),
            nn.BatchNorm2D(half),
            nn.Hardswish(),
        )
        self.se = SqueezeExcite(half)

    def forward(self, x):
        one, other = paddle.split(x, 2, axis=1)
        if self.fault == "other half":
            one, other = other, one
        x = paddle.concat([one, self.se(self.branch(other))], axis=1)
        if self.fault == "not shuffled":
            return x
        b, c, h, w = x.shape
        if self.fault == "shuffled otherwise":
            return x.reshape([b, c // 2, 2, h, w]).transpose([0, 2, 1, 3, 4]).reshape([b, c, h, w])
        return x.reshape([b, 2, c // 2, h, w]).transpose([0, 2, 1, 3, 4]).reshape([b, c, h, w])


class ShuffleNet(nn.Layer):
    def __init__(self, dim=12, classes=5):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2D(3, dim, 3, 2, 1, bias_attr=False), nn.BatchNorm2D(dim), nn.Hardswish())
        self.maxpool = nn.MaxPool2D(3, 2, 1)
        self.units = nn.Sequential(*(ShuffleUnit(dim) for _ in range(3)))
        self.fc = nn.Linear(dim, classes)

    def forward(self, x):
        return self.fc(self.units(self.maxpool(self.stem(x))).mean([2, 3]))


class DenseLayer(nn.Layer):
    fault = ""

    def __init__(self, ins, growth):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2D(ins), nn.Conv2D(ins, 2 * growth, 1, bias_attr=False)
        self.norm2 = nn.BatchNorm2D(2 * growth)
        self.conv2 = nn.Conv2D(2 * growth, growth, 3, padding=1, bias_attr=False)

    def forward(self, x):
        y = self.norm1(F.relu(x)) if self.fault == "relu first" else F.relu(self.norm1(x))
        y = self.conv2(F.relu(self.norm2(self.conv1(y))))
        return paddle.concat([y, x] if self.fault == "new ones first" else [x, y], axis=1)


class DenseNet(nn.Layer):
    fault = ""

    def __init__(self, growth=4, classes=5):
        super().__init__()
        self.conv0 = nn.Conv2D(3, 8, 3, padding=1, bias_attr=False)
        self.pool0 = nn.MaxPool2D(3, 2, ceil_mode=True)
        self.block1 = nn.Sequential(*(DenseLayer(8 + i * growth, growth) for i in range(3)))
        self.transition = nn.Sequential(
            nn.BatchNorm2D(20), nn.ReLU(), nn.Conv2D(20, 10, 1, bias_attr=False), nn.AvgPool2D(3, 2, 1, exclusive=False)
        )
        self.block2 = nn.Sequential(*(DenseLayer(10 + i * growth, growth) for i in range(2)))
        self.norm5 = nn.BatchNorm2D(18)
        self.drop = nn.Dropout(0.3)
        self.classifier = nn.Linear(18, classes)

    def forward(self, x):
        x = self.norm5(self.block2(self.transition(self.block1(self.pool0(self.conv0(x))))))
        if self.fault != "no last relu":
            x = F.relu(x)
        x = F.adaptive_avg_pool2d(x, 1).flatten(1)
        if self.fault == "dropout drops always":
            return self.classifier(F.dropout(x, 0.3))
        return self.classifier(self.drop(x))


class ShiftBlock(nn.Layer):
    fault = ""

    def __init__(self, dim, frames):
        super().__init__()
        self.frames = frames
        self.conv1, self.bn1 = nn.Conv2D(dim, dim, 3, 1, 1, bias_attr=False), nn.BatchNorm2D(dim)
        self.conv2, self.bn2 = nn.Conv2D(dim, dim, 3, 1, 1, bias_attr=False), nn.BatchNorm2D(dim)

    def shift(self, x):
        bt, c, h, w = x.shape
        x = x.reshape([-1, self.frames, c, h, w])
        fold = c // (8 if self.fault == "an eighth" else 4)
        none = paddle.zeros_like(x[:, :1])
        later = paddle.concat([x[:, 1:], none], 1)
        before = paddle.concat([none, x[:, :-1]], 1)
        if self.fault == "into the past":
            later, before = before, later
        parts = [later[:, :, :fold], before[:, :, fold : 2 * fold], x[:, :, 2 * fold :]]
        return paddle.concat(parts, 2).reshape([bt, c, h, w])

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x if self.fault == "not shifted" else self.shift(x))))
        y = self.bn2(self.conv2(y))
        return x + F.relu(y) if self.fault == "relu before the sum" else F.relu(x + y)


class ShiftNet(nn.Layer):
    fault = ""

    def __init__(self, dim=8, classes=6):
        super().__init__()
        self.stem = nn.Conv3D(3, dim, (3, 3, 3), (1, 2, 2), (1, 1, 1))
        self.bn = nn.BatchNorm3D(dim)
        self.pool = nn.AvgPool3D((2, 2, 2), (2, 2, 2))
        self.blocks = nn.Sequential(ShiftBlock(dim, 4), ShiftBlock(dim, 4))
        self.fc = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.pool(F.relu(self.bn(self.stem(x))))
        b, c, t, h, w = x.shape
        if self.fault != "frames reshaped":
            x = x.transpose([0, 2, 1, 3, 4])
        x = self.blocks(x.reshape([b * t, c, h, w]))
        x = x.mean([2, 3]) if self.fault == "mean of pixels" else x.max([2, 3])
        x = self.fc(x)
        if self.fault == "frames before samples":
            return x.reshape([t, b, -1]).mean(0)
        return x.reshape([b, t, -1]).max(1) if self.fault == "maximum of frames" else x.reshape([b, t, -1]).mean(1)


class ResBlock(nn.Layer):
    fault = ""

    def __init__(self, dim, scale=0.1):
        super().__init__()
        self.conv1, self.act, self.conv2 = (nn.Conv2D(dim, dim, 3, 1, 1), nn.PReLU(dim), nn.Conv2D(dim, dim, 3, 1, 1))
        self.scale = scale

    def forward(self, x):
        y = self.conv2(self.act(self.conv1(x)))
        return x + (y if self.fault == "not scaled" else y * self.scale)


class SuperResolution(nn.Layer):
    fault = ""

    def __init__(self, dim=8):
        super().__init__()
        self.register_buffer("mean", paddle.zeros([1, 3, 1, 1]))
        self.head = nn.Conv2D(3, dim, 3, 1, 1)
        self.body = nn.Sequential(ResBlock(dim), ResBlock(dim), nn.Conv2D(dim, dim, 3, 1, 1))
        self.up = nn.Sequential(nn.Conv2D(dim, 4 * dim, 3, 1, 1), nn.PixelShuffle(2))
        self.tail = nn.Conv2D(dim, 3, 3, 1, 1)

    def forward(self, x):
        y = self.head(x if self.fault == "mean not subtracted" else x - self.mean)
        z = self.body(y)
        y = self.tail(self.up(z if self.fault == "no long skip" else y + z))
        mode = "bilinear" if self.fault == "bilinear" else "bicubic"
        return paddle.clip(y + self.mean + F.interpolate(x, scale_factor=2, mode=mode, align_corners=False), 0, 4)


class EqualLinear(nn.Layer):
    fault = ""

    def __init__(self, ins, outs, bias=0.0):
        super().__init__()
        self.weight = self.create_parameter([ins, outs], default_initializer=nn.initializer.Normal())
        self.bias = self.create_parameter([outs], is_bias=True, default_initializer=nn.initializer.Constant(bias))
        self.scale = 1 / math.sqrt(ins)

    def forward(self, x):
        scale = 1.0 if self.fault == "not scaled" else self.scale
        return F.linear(x, self.weight * scale, self.bias)


class ModulatedConv(nn.Layer):
    fault = ""

    def __init__(self, ins, outs, styles, demodulate=True):
        super().__init__()
        self.demodulate = demodulate
        self.weight = self.create_parameter([1, outs, ins, 3, 3], default_initializer=nn.initializer.Normal())
        self.modulation = EqualLinear(styles, ins, 1.0)
        self.scale = 1 / math.sqrt(ins * 9)

    def forward(self, x, style):
        b, c, h, w = x.shape
        weight = self.scale * self.weight * self.modulation(style).reshape([b, 1, c, 1, 1])
        if self.demodulate and self.fault != "not demodulated":
            squares = weight.square()
            total = squares.sum([3, 4]).mean(2) if self.fault == "mean for sum" else squares.sum([2, 3, 4])
            weight = weight * paddle.rsqrt(total + 1e-8).reshape([b, -1, 1, 1, 1])
        weight = weight.reshape([-1, c, 3, 3])
        return F.conv2d(x.reshape([1, b * c, h, w]), weight, padding=1, groups=b).reshape([b, -1, h, w])


class StyleLayer(nn.Layer):
    fault = ""

    def __init__(self, dim, styles):
        super().__init__()
        self.conv = ModulatedConv(dim, dim, styles)
        self.noise_strength = self.create_parameter([1])
        self.bias = self.create_parameter([dim], is_bias=True)

    def forward(self, x, style, noise):
        x = self.conv(x, style)
        if self.fault != "no noise":
            x = x + self.noise_strength * noise
        x = F.leaky_relu(x + self.bias.reshape([1, -1, 1, 1]), 0.01 if self.fault == "default slope" else 0.2)
        return x if self.fault == "no gain" else x * math.sqrt(2)


class Generator(nn.Layer):
    fault = ""

    def __init__(self, dim=6, styles=8):
        super().__init__()
        self.mapping = nn.LayerList([EqualLinear(styles, styles) for _ in range(2)])
        self.const = self.create_parameter([1, dim, 4, 4])
        self.layer1, self.layer2 = StyleLayer(dim, styles), StyleLayer(dim, styles)
        self.rgb = ModulatedConv(dim, 3, styles, demodulate=False)

    def take(self, state):
        linear = lambda name: name.endswith("weight") and ("mapping" in name or "modulation" in name)  # noqa: E731
        return {name: value.T if linear(name) else value for name, value in state.items()}

    def forward(self, z, noise1, noise2):
        w = z if self.fault == "no pixel norm" else z * paddle.rsqrt(z.square().mean(1, keepdim=True) + 1e-8)
        for layer in self.mapping:
            w = F.leaky_relu(layer(w), 0.2)
        x = self.layer1(self.const.expand([z.shape[0], -1, -1, -1]), w, noise1)
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=self.fault == "align corners")
        x = self.rgb(self.layer2(x, w, noise2), w)
        return F.sigmoid(x) if self.fault == "sigmoid for tanh" else paddle.tanh(x)


class PointNet(nn.Layer):
    fault = ""

    def __init__(self, classes=5):
        super().__init__()
        self.tconv = nn.Sequential(nn.Conv1D(3, 8, 1), nn.BatchNorm1D(8), nn.ReLU())
        self.tfc = nn.Linear(8, 9)
        self.conv1, self.bn1 = nn.Conv1D(3, 8, 1), nn.BatchNorm1D(8)
        self.conv2, self.bn2 = nn.Conv1D(8, 16, 1), nn.BatchNorm1D(16)
        self.fc = nn.Linear(16, classes)

    def forward(self, points):
        x = points.transpose([0, 2, 1])
        t = self.tfc(self.tconv(x).max(axis=2)).reshape([-1, 3, 3])
        if self.fault != "no identity":
            t = t + paddle.eye(3, dtype=t.dtype)
        if self.fault == "transform transposed":
            t = t.transpose([0, 2, 1])
        x = paddle.bmm(points, t).transpose([0, 2, 1])
        x = self.bn1(self.conv1(x))
        x = self.bn2(self.conv2(x if self.fault == "no relu" else F.relu(x)))
        x = x.mean(axis=2) if self.fault == "mean of points" else x.max(axis=2)
        return F.log_softmax(self.fc(x), 0 if self.fault == "axis of samples" else 1)
