import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812

from zoo.planting import named_for_paddle

SYMBOLS = 7  # the blank is 0


class Excite(nn.Layer):
    def __init__(self, channels):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2D(1)
        self.down = nn.Conv2D(channels, channels // 2, 1)
        self.up = nn.Conv2D(channels // 2, channels, 1)

    def forward(self, x):
        weight = F.hardsigmoid(self.up(F.relu(self.down(self.pool(x)))))
        return x * weight


class Unit(nn.Layer):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2D(inputs, outputs, 3, padding=1, bias_attr=False)
        self.bn = nn.BatchNorm2D(outputs)
        self.act = nn.Hardswish()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class Encoder(nn.Layer):
    def __init__(self):
        super().__init__()
        self.unit1 = Unit(3, 8)
        self.pool1 = nn.MaxPool2D(2)
        self.unit2 = Unit(8, 12)
        self.excite = Excite(12)
        self.pool2 = nn.MaxPool2D((2, 1), (2, 1))

    def forward(self, x):
        x = self.pool1(self.unit1(x))
        return self.pool2(self.excite(self.unit2(x)))


class CRNN(nn.Layer):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.squeeze = nn.Linear(24, 16)
        self.rnn = nn.LSTM(16, 8, direction="bidirect")
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(16, SYMBOLS)

    def forward(self, x):
        x = self.encoder(x)
        x = x.transpose([0, 3, 1, 2]).flatten(2)
        x = self.squeeze(x)
        x, _ = self.rnn(x)
        return self.fc(self.dropout(x))


def build():
    return CRNN()


def convert(values):
    return named_for_paddle(values, kept=("rnn.",))


def loss(outputs, labels):
    targets, lengths = labels
    logits = outputs.transpose([1, 0, 2])
    times = paddle.full([outputs.shape[0]], outputs.shape[1], dtype="int64")
    return F.ctc_loss(logits, targets.astype("int32"), times, lengths, blank=0, reduction="mean")


def optimizer(parameters, rate=0.01):
    return paddle.optimizer.Adam(rate, beta1=0.9, beta2=0.99, parameters=parameters, weight_decay=0.05)


def scheduler():
    return paddle.optimizer.lr.CosineAnnealingDecay(0.01, T_max=6)
