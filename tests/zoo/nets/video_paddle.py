"""The film net, ported."""

import paddle
import paddle.nn.functional as F  # noqa: N812
from paddle import nn


class ConvLSTMCell(nn.Layer):
    def __init__(self, in_channels, hidden, size):
        super().__init__()
        self.hidden = hidden
        self.conv = nn.Conv2D(in_channels + hidden, 4 * hidden, 3, padding=1)
        self.w_ci = self.create_parameter([hidden, size, size])
        self.w_cf = self.create_parameter([hidden, size, size])
        self.w_co = self.create_parameter([hidden, size, size])

    def forward(self, x, state):
        h, c = state
        combined = self.conv(paddle.concat([x, h], axis=1))
        cc_i, cc_f, cc_g, cc_o = paddle.split(combined, 4, axis=1)
        i = F.sigmoid(cc_i + self.w_ci * c)
        f = F.sigmoid(cc_f + self.w_cf * c + 1.0)
        c_next = f * c + i * paddle.tanh(cc_g)
        o = F.sigmoid(cc_o + self.w_co * c_next)
        h_next = o * paddle.tanh(c_next)
        return h_next, c_next


class BackWarp(nn.Layer):
    def forward(self, img, flow):
        h, w = img.shape[-2:]
        grid_y, grid_x = paddle.meshgrid(paddle.arange(h, dtype=img.dtype), paddle.arange(w, dtype=img.dtype))
        x = grid_x.unsqueeze(0) + flow[:, 0]
        y = grid_y.unsqueeze(0) + flow[:, 1]
        x = 2.0 * x / (w - 1) - 1.0
        y = 2.0 * y / (h - 1) - 1.0
        grid = paddle.stack([x, y], axis=3)
        return F.grid_sample(img, grid, mode="bilinear", padding_mode="border", align_corners=True)


class VideoPredictor(nn.Layer):
    def __init__(self, hidden=6, size=8):
        super().__init__()
        self.size = size
        self.stem = nn.Conv2D(3, hidden, 3, stride=2, padding=1)
        self.gn = nn.GroupNorm(2, hidden)
        self.act = nn.GELU(approximate=True)
        self.rnn = nn.LayerList([ConvLSTMCell(hidden, hidden, size) for _ in range(2)])
        self.dropout = nn.Dropout2D(0.2)
        self.to_flow = nn.Conv2DTranspose(hidden, 2, 2, stride=2)
        self.to_mask = nn.Conv2D(hidden, 1, 1)
        self.to_rgb = nn.Conv2D(hidden, 3, 3, padding=1)
        self.warp = BackWarp()

    def forward(self, frames):
        zeros = paddle.zeros([frames.shape[0], self.rnn[0].hidden, self.size, self.size], dtype=frames.dtype)
        states = [(zeros, zeros) for _ in self.rnn]
        for t in range(frames.shape[1]):
            x = self.act(self.gn(self.stem(frames[:, t])))
            for k, cell in enumerate(self.rnn):
                h, c = cell(x, states[k])
                states[k] = (h, c)
                x = h
        x = self.dropout(x)
        flow = paddle.tanh(self.to_flow(x)) * 2
        warped = self.warp(frames[:, -1], flow)
        mask = F.interpolate(F.sigmoid(self.to_mask(x)), scale_factor=2, mode="bilinear", align_corners=False)
        rgb = F.interpolate(self.to_rgb(x), scale_factor=2, mode="bilinear", align_corners=False)
        return mask * warped + (1 - mask) * rgb, flow


def build():
    return VideoPredictor()


RENAMED = (
    ("embed.", "stem."),
    ("norm.", "gn."),
    ("cells.", "rnn."),
    (".gates.", ".conv."),
    ("flow.", "to_flow."),
    ("mask.", "to_mask."),
    ("fill.", "to_rgb."),
)


def convert(state):
    weights = {}
    for key, value in state.items():
        name = key
        for old, new in RENAMED:
            name = name.replace(old, new)
        if name.endswith(".peep"):
            cell = name[: -len("peep")]
            weights[cell + "w_ci"], weights[cell + "w_cf"], weights[cell + "w_co"] = value
        else:
            weights[name] = value
    return weights


def loss(output, labels):
    picture, flow = output
    charbonnier = paddle.sqrt((picture - labels) ** 2 + 1e-6).mean()
    smooth = paddle.abs(flow[:, :, :, 1:] - flow[:, :, :, :-1]).sum(axis=1).mean()
    return charbonnier + 0.05 * smooth


def scheduler():
    return paddle.optimizer.lr.LinearLR(learning_rate=2e-3, start_factor=0.25, end_factor=1.0, total_steps=3)


def optimizer(parameters, learning_rate=2e-3):
    return paddle.optimizer.AdamW(learning_rate=learning_rate, parameters=parameters, weight_decay=0.01)
