"""Style transfer by AdaIN, ported."""

import paddle
import paddle.nn.functional as F  # noqa: N812
from paddle import nn


def calc_mean_std(feat, eps=1e-5):
    n, c = feat.shape[:2]
    flat = feat.reshape([n, c, -1])
    mean = flat.mean(axis=2).reshape([n, c, 1, 1])
    var = flat.var(axis=2, unbiased=True) + eps
    return mean, var.sqrt().reshape([n, c, 1, 1])


class ConvLayer(nn.Layer):
    def __init__(self, in_channels, out_channels, kernel_size, stride=1):
        super().__init__()
        padding = kernel_size // 2
        self.conv = nn.Conv2D(in_channels, out_channels, kernel_size, stride, padding=padding, padding_mode="reflect")

    def forward(self, x):
        return self.conv(x)


class ResidualBlock(nn.Layer):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = ConvLayer(channels, channels, 3)
        self.norm1 = nn.InstanceNorm2D(channels)
        self.conv2 = ConvLayer(channels, channels, 3)
        self.norm2 = nn.InstanceNorm2D(channels)

    def forward(self, x):
        out = F.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        return x + out


class Encoder(nn.Layer):
    def __init__(self, base):
        super().__init__()
        self.conv1 = ConvLayer(3, base, 5)
        self.conv2 = ConvLayer(base, base * 2, 3, stride=2)
        self.pool = nn.MaxPool2D(2, ceil_mode=True)
        self.conv3 = ConvLayer(base * 2, base * 2, 3)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return self.conv3(self.pool(x))


class Decoder(nn.Layer):
    def __init__(self, base):
        super().__init__()
        self.resblock = ResidualBlock(base * 2)
        self.upsample = nn.Upsample(scale_factor=2, mode="nearest")
        self.conv1 = ConvLayer(base * 2, base, 3)
        self.norm = nn.InstanceNorm2D(base)
        self.prelu = nn.PReLU(base)
        self.conv2 = ConvLayer(base, base // 2 * 4, 3)
        self.shuffle = nn.PixelShuffle(2)
        self.final = ConvLayer(base // 2, 3, 5)

    def forward(self, x):
        x = self.upsample(self.resblock(x))
        x = self.prelu(self.norm(self.conv1(x)))
        x = self.shuffle(self.conv2(x))
        return paddle.tanh(self.final(x)) * 150 + 255.0 / 2


class StyleTransfer(nn.Layer):
    def __init__(self, base=6):
        super().__init__()
        self.encoder = Encoder(base)
        self.decoder = Decoder(base)

    def adain(self, content, style):
        content_mean, content_std = calc_mean_std(content)
        style_mean, style_std = calc_mean_std(style)
        normalized = (content - content_mean) / content_std
        return normalized * style_std + style_mean

    def forward(self, content, style, alpha):
        content_feat = self.encoder(content)
        style_feat = self.encoder(style)
        t = self.adain(content_feat, style_feat)
        alpha = alpha.reshape([-1, 1, 1, 1])
        t = alpha * t + (1 - alpha) * content_feat
        return self.decoder(t), t, style_feat


def build():
    return StyleTransfer()


RENAMED = (
    ("res.", "resblock."),
    (".in1.weight", ".norm1.scale"),
    (".in2.weight", ".norm2.scale"),
    (".in1.", ".norm1."),
    (".in2.", ".norm2."),
    ("decoder.norm.weight", "decoder.norm.scale"),
    ("act.weight", "prelu._weight"),
    (".out.", ".final."),
)


def convert(state):
    weights = {}
    for key, value in state.items():
        name = key
        for old, new in RENAMED:
            name = name.replace(old, new)
        weights[name] = value
    return weights


def gram_matrix(y):
    b, ch, h, w = y.shape
    features = y.reshape([b, ch, h * w])
    return paddle.bmm(features, features.transpose([0, 2, 1])) / (ch * h * w)


def loss(output, labels):
    picture, target, style = output
    dx = paddle.abs(picture[:, :, :, 1:] - picture[:, :, :, :-1])
    dy = paddle.abs(picture[:, :, 1:, :] - picture[:, :, :-1, :])
    tv = dx.mean() + dy.mean()
    content = F.smooth_l1_loss(picture, labels, delta=2.0, is_huber=False)
    style_loss = F.mse_loss(gram_matrix(target), gram_matrix(style), reduction="sum")
    return content + 10 * style_loss + 0.1 * tv


def scheduler():
    return paddle.optimizer.lr.InverseTimeDecay(learning_rate=1e-4, gamma=0.05)


def optimizer(parameters, learning_rate=1e-4):
    return paddle.optimizer.Momentum(learning_rate=learning_rate, momentum=0.8, parameters=parameters)
