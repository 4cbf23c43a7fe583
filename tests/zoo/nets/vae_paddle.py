import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812

from zoo.planting import named_for_paddle

LATENT = 16


class Encoder(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2D(1, 6, 4, stride=2, padding=1)
        self.bn1 = nn.BatchNorm2D(6)
        self.conv2 = nn.Conv2D(6, 8, 4, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2D(8)
        self.fc = nn.Linear(8 * 2 * 4, 2 * LATENT)

    def forward(self, x):
        x = F.leaky_relu(self.bn1(self.conv1(x)), 0.01)
        x = F.leaky_relu(self.bn2(self.conv2(x)), 0.01)
        mean, logvar = self.fc(x.flatten(1)).chunk(2, -1)
        return mean, logvar.clip(-6.0, 4.0)


class Decoder(nn.Layer):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(LATENT, LATENT)
        self.fc = nn.Linear(LATENT, 8 * 2 * 4)
        self.up1 = nn.Conv2DTranspose(8, 6, 4, stride=2, padding=1)
        self.bn1 = nn.BatchNorm2D(6)
        self.up2 = nn.Conv2DTranspose(6, 6, 4, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2D(6)
        self.out = nn.Conv2D(6, 1, 3, padding=1)

    def forward(self, z):
        x = self.fc(F.elu(self.mix(z))).reshape([-1, 8, 2, 4])
        x = F.leaky_relu(self.bn1(self.up1(x)), 0.01)
        return self.out(F.leaky_relu(self.bn2(self.up2(x)), 0.01))


class VAE(nn.Layer):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()

    def forward(self, x, noise):
        mean, logvar = self.encoder(x)
        z = mean + noise * paddle.exp(0.5 * logvar)
        return self.decoder(z), mean, logvar


def build():
    return VAE()


def convert(values):
    return named_for_paddle(values)


def loss(outputs, labels):
    scores, mean, logvar = outputs
    entropy = F.binary_cross_entropy_with_logits(scores, labels, reduction="none").sum([1, 2, 3]).mean()
    divergence = -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(1)
    return entropy + 0.25 * divergence.clip(min=0.5).mean()


def optimizer(parameters, rate=5e-4):
    return paddle.optimizer.Adam(rate, parameters=parameters, weight_decay=1e-2)


def scheduler():
    return paddle.optimizer.lr.StepDecay(5e-4, step_size=2, gamma=0.5)


def transform(image):
    image = image.astype("float32") / 255
    return (image >= 0.5).astype("float32")[None]
