import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812
from PIL import Image
from zoo.fourth.planting import named_for_paddle


def instance_norm(channels):
    return nn.InstanceNorm2D(channels, weight_attr=False, bias_attr=False)


class Residual(nn.Layer):
    def __init__(self, channels):
        super().__init__()
        self.pad1 = nn.Pad2D(1, mode="reflect")
        self.conv1 = nn.Conv2D(channels, channels, 3)
        self.norm1 = instance_norm(channels)
        self.pad2 = nn.Pad2D(1, mode="reflect")
        self.conv2 = nn.Conv2D(channels, channels, 3)
        self.norm2 = instance_norm(channels)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(self.pad1(x))))
        return x + self.norm2(self.conv2(self.pad2(y)))


class Generator(nn.Layer):
    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Pad2D(2, mode="reflect"), nn.Conv2D(3, 8, 5), instance_norm(8), nn.ReLU())
        self.down = nn.Sequential(nn.Conv2D(8, 12, 3, stride=2, padding=1), instance_norm(12), nn.ReLU())
        self.blocks = nn.Sequential(Residual(12), Residual(12))
        self.up = nn.Conv2DTranspose(12, 8, 3, stride=2, padding=1, output_padding=1)
        self.up_norm = instance_norm(8)
        self.tail_pad = nn.Pad2D(2, mode="reflect")
        self.tail = nn.Conv2D(8, 3, 5)

    def forward(self, x):
        x = self.blocks(self.down(self.head(x)))
        x = F.relu(self.up_norm(self.up(x)))
        return paddle.tanh(self.tail(self.tail_pad(x)))


class Critic(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2D(6, 8, 4, stride=2, padding=1)
        self.conv2 = nn.Conv2D(8, 12, 4, stride=2, padding=1)
        self.norm = instance_norm(12)
        self.conv3 = nn.Conv2D(12, 1, 3, padding=1)

    def forward(self, x, y):
        x = F.leaky_relu(self.conv1(paddle.concat([x, y], 1)), 0.2)
        x = F.leaky_relu(self.norm(self.conv2(x)), 0.2)
        return self.conv3(x)


class Translator(nn.Layer):
    def __init__(self):
        super().__init__()
        self.generator = Generator()
        self.critic = Critic()

    def forward(self, x):
        fake = self.generator(x)
        return fake, self.critic(x, fake)


def build():
    return Translator()


def convert(values):
    return named_for_paddle(values)


def loss(outputs, labels):
    fake, verdict = outputs
    return F.mse_loss(verdict, paddle.ones_like(verdict)) + 100.0 * F.l1_loss(fake, labels)


def optimizer(parameters, rate=2e-4):
    return paddle.optimizer.Adam(rate, beta1=0.5, beta2=0.999, parameters=parameters)


def scheduler():
    return paddle.optimizer.lr.LambdaDecay(2e-4, lambda step: 1.0 - max(0, step + 1 - 2) / 6)


def transform(image):
    image = Image.fromarray(image).resize((20, 20), Image.BICUBIC).crop((2, 2, 18, 18))
    image = np.asarray(image, "float32").transpose(2, 0, 1)
    return image / 127.5 - 1.0
