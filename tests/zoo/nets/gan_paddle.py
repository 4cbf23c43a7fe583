import math

import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812

from zoo.planting import named_for_paddle

WIDTH, LATENT = 8, 6


class Equal(nn.Layer):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = self.create_parameter([inputs, outputs], default_initializer=nn.initializer.Normal())
        self.bias = self.create_parameter([outputs], is_bias=True)

    def forward(self, x):
        return F.linear(x, self.weight / math.sqrt(self.weight.shape[0]), self.bias)


def activate(x):
    return F.leaky_relu(x, 0.2) * math.sqrt(2)


class Mapping(nn.Layer):
    def __init__(self):
        super().__init__()
        self.fc1 = Equal(LATENT, WIDTH)
        self.fc2 = Equal(WIDTH, WIDTH)
        self.register_buffer("average", paddle.zeros([WIDTH]))

    def forward(self, z):
        z = z * paddle.rsqrt(z.pow(2).mean(1, keepdim=True) + 1e-8)
        w = activate(self.fc2(activate(self.fc1(z))))
        if self.training:
            with paddle.no_grad():
                self.average.set_value(w.mean(0) * 0.1 + self.average * 0.9)
        return w


class Modulated(nn.Layer):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.style = Equal(WIDTH, inputs)
        self.weight = self.create_parameter([1, outputs, inputs, 3, 3], default_initializer=nn.initializer.Normal())

    def forward(self, x, w):
        size, channels, height, width = x.shape
        outputs = self.weight.shape[1]
        style = self.style(w).reshape([size, 1, channels, 1, 1]) + 1
        weight = self.weight * style / math.sqrt(9 * channels)
        weight = weight * paddle.rsqrt(weight.pow(2).sum([2, 3, 4], keepdim=True) + 1e-8)
        weight = weight.reshape([size * outputs, channels, 3, 3])
        y = F.conv2d(x.reshape([1, size * channels, height, width]), weight, padding=1, groups=size)
        return y.reshape([size, outputs, height, width])


class Upsample(nn.Layer):
    def __init__(self, channels):
        super().__init__()
        self.channels = channels
        kernel = paddle.to_tensor([1.0, 3.0, 2.0])
        kernel = kernel.unsqueeze(1) * kernel.unsqueeze(0)
        self.register_buffer("kernel", kernel / kernel.sum())

    def forward(self, x):
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        kernel = self.kernel.expand([self.channels, 1, 3, 3])
        return F.conv2d(F.pad(x, [1, 1, 1, 1]), kernel, groups=self.channels)


class Generator(nn.Layer):
    def __init__(self):
        super().__init__()
        self.constant = self.create_parameter([1, 6, 2, 2], default_initializer=nn.initializer.Normal())
        self.first = Modulated(6, 8)
        self.up = Upsample(8)
        self.second = Modulated(8, 8)
        self.register_buffer("noise", paddle.randn([1, 1, 4, 4]))
        self.strength = self.create_parameter([1], is_bias=True)
        self.paint = nn.Conv2D(8, 12, 1)

    def forward(self, w):
        x = activate(self.first(self.constant.tile([w.shape[0], 1, 1, 1]), w))
        x = self.second(self.up(x), w) + self.noise * self.strength
        return paddle.tanh(F.pixel_shuffle(self.paint(activate(x)), 2))


class Critic(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2D(3, 8, 3, padding=1)
        self.conv2 = nn.Conv2D(8, 8, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2D(9, 8, 3, padding=1)
        self.fc = Equal(8 * 16, 1)

    def forward(self, x):
        x = activate(self.conv2(activate(self.conv1(x))))
        size, channels, height, width = x.shape
        groups = x.reshape([2, size // 2, channels, height, width])
        spread = paddle.sqrt(groups.var(0, unbiased=False) + 1e-8).mean([1, 2, 3], keepdim=True)
        spread = spread.tile([2, 1, height, width])
        x = activate(self.conv3(paddle.concat([x, spread], 1)))
        return self.fc(x.flatten(1)).squeeze(1)


class Gan(nn.Layer):
    def __init__(self):
        super().__init__()
        self.mapping = Mapping()
        self.generator = Generator()
        self.critic = Critic()

    def forward(self, z, real):
        fake = self.generator(self.mapping(z))
        return fake, self.critic(fake), self.critic(real), self.critic(fake.detach())


def build():
    return Gan()


def convert(values):
    return named_for_paddle(values)


def loss(outputs, labels):
    fake, judged, real, cut = outputs
    critic = F.relu(1 - real).mean() + F.relu(1 + cut).mean()
    return critic - judged.mean() + 10 * F.l1_loss(fake, labels)


def optimizer(parameters, rate=0.002):
    return paddle.optimizer.Adam(rate, beta1=0.0, beta2=0.99, epsilon=1e-8, parameters=parameters)


class Step:
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.count = model, optimizer, 0
        self.slow = {name: one.detach().clone() for name, one in model.generator.named_parameters()}

    def __call__(self, batch):
        value = loss(self.model(*batch["args"]), batch["labels"])
        self.optimizer.clear_grad()
        value.backward()
        self.optimizer.step()
        self.count += 1
        decay = min(0.9, (1 + self.count) / (10 + self.count))
        with paddle.no_grad():
            for name, one in self.model.generator.named_parameters():
                self.slow[name].set_value(self.slow[name] * decay + one * (1 - decay))
        return value
