"""A detector with a BiFPN and an anchor head, ported."""

import math

import numpy as np
import paddle
import paddle.nn.functional as F  # noqa: N812
from paddle import nn
from paddle.regularizer import L2Decay


class ConvBNLayer(nn.Layer):
    def __init__(self, ch_in, ch_out, filter_size=3, stride=1, groups=1):
        super().__init__()
        self.conv = nn.Conv2D(
            ch_in, ch_out, filter_size, stride, padding=(filter_size - 1) // 2, groups=groups, bias_attr=False
        )
        self.bn = nn.BatchNorm2D(
            ch_out,
            momentum=0.97,
            epsilon=1e-3,
            weight_attr=paddle.ParamAttr(regularizer=L2Decay(0.0)),
            bias_attr=paddle.ParamAttr(regularizer=L2Decay(0.0)),
        )

    def forward(self, x):
        x = self.bn(self.conv(x))
        return x * F.sigmoid(x)


class WeightedAdd(nn.Layer):
    def __init__(self, channels, num_inputs, epsilon=1e-4):
        super().__init__()
        self.epsilon = epsilon
        self.w = self.create_parameter(
            [num_inputs],
            attr=paddle.ParamAttr(regularizer=L2Decay(0.0)),
            default_initializer=nn.initializer.Constant(1.0),
        )
        self.conv = ConvBNLayer(channels, channels, 3, groups=channels)

    def forward(self, inputs):
        w = F.relu(self.w)
        w = w / (paddle.sum(w) + self.epsilon)
        out = w[0] * inputs[0]
        for i in range(1, len(inputs)):
            out = out + w[i] * inputs[i]
        return self.conv(out)


class BiFPN(nn.Layer):
    def __init__(self, channels):
        super().__init__()
        self.td_p4 = WeightedAdd(channels, 2)
        self.td_p3 = WeightedAdd(channels, 2)
        self.bu_p4 = WeightedAdd(channels, 3)
        self.bu_p5 = WeightedAdd(channels, 2)
        self.down = nn.MaxPool2D(3, stride=2, padding=1)

    def forward(self, feats):
        p3, p4, p5 = feats
        p5_up = F.interpolate(p5, size=p4.shape[2:], mode="nearest")
        td4 = self.td_p4([p4, p5_up])
        td4_up = F.interpolate(td4, size=p3.shape[2:], mode="nearest")
        out3 = self.td_p3([p3, td4_up])
        out4 = self.bu_p4([p4, td4, self.down(out3)])
        out5 = self.bu_p5([p5, self.down(out4)])
        return [out3, out4, out5]


class SPPF(nn.Layer):
    def __init__(self, channels):
        super().__init__()
        self.cv1 = ConvBNLayer(channels, channels // 2, 1)
        self.cv2 = ConvBNLayer(channels * 2, channels, 1)
        self.pool = nn.MaxPool2D(3, stride=1, padding=1)

    def forward(self, x):
        outs = [self.cv1(x)]
        for _ in range(3):
            outs.append(self.pool(outs[-1]))
        return self.cv2(paddle.concat(outs, axis=1))


class YOLOHead(nn.Layer):
    def __init__(self, channels, num_classes):
        super().__init__()
        self.num_classes = num_classes
        self.num_anchors = 2
        self.strides = [4, 8, 16]
        anchors = [[[5, 6], [8, 14]], [[15, 11], [16, 30]], [[33, 23], [30, 61]]]
        self.register_buffer("anchors", paddle.to_tensor(anchors, dtype="float32"))
        self.preds = nn.LayerList([nn.Conv2D(channels, self.num_anchors * (num_classes + 5), 1) for _ in self.strides])

    def make_grid(self, h, w, dtype):
        gy, gx = paddle.meshgrid(paddle.arange(h), paddle.arange(w))
        return paddle.stack([gx, gy], axis=-1).astype(dtype).reshape([1, 1, h, w, 2])

    def forward(self, feats):
        outputs = []
        for i, feat in enumerate(feats):
            b, _, h, w = feat.shape
            pred = self.preds[i](feat).reshape([b, self.num_anchors, self.num_classes + 5, h, w])
            pred = pred.transpose([0, 1, 3, 4, 2])
            anchor = self.anchors[i].reshape([1, self.num_anchors, 1, 1, 2])
            xy = (F.sigmoid(pred[..., 0:2]) * 2.0 - 0.5 + self.make_grid(h, w, pred.dtype)) * self.strides[i]
            wh = (F.sigmoid(pred[..., 2:4]) * 2.0) ** 2 * anchor
            out = paddle.concat([xy, wh, pred[..., 4:]], axis=-1)
            outputs.append(out.reshape([b, -1, self.num_classes + 5]))
        return paddle.concat(outputs, axis=1)


class YOLO(nn.Layer):
    def __init__(self, channels=8, num_classes=3):
        super().__init__()
        self.stem = ConvBNLayer(3, channels, 3, 2)
        self.stage3 = ConvBNLayer(channels, channels, 3, 2)
        self.stage4 = ConvBNLayer(channels, channels, 3, 2)
        self.stage5 = nn.Sequential(ConvBNLayer(channels, channels, 3, 2), SPPF(channels))
        self.neck = BiFPN(channels)
        self.head = YOLOHead(channels, num_classes)

    def forward(self, image):
        c3 = self.stage3(self.stem(image))
        c4 = self.stage4(c3)
        c5 = self.stage5(c4)
        return self.head(self.neck([c3, c4, c5]))


def build():
    return YOLO()


RENAMED = (
    ("c3.", "stage3."),
    ("c4.", "stage4."),
    ("c5.", "stage5.0."),
    ("spp.reduce.", "stage5.1.cv1."),
    ("spp.expand.", "stage5.1.cv2."),
    ("neck.td4.", "neck.td_p4."),
    ("neck.td3.", "neck.td_p3."),
    ("neck.out4.", "neck.bu_p4."),
    ("neck.out5.", "neck.bu_p5."),
    ("detect.heads.", "head.preds."),
    ("detect.anchors", "head.anchors"),
    (".running_mean", "._mean"),
    (".running_var", "._variance"),
)


def convert(state):
    weights = {}
    for key, value in state.items():
        if key.endswith("num_batches_tracked"):
            continue
        name = key
        for old, new in RENAMED:
            name = name.replace(old, new)
        if name.startswith("neck.") and name.count(".") == 2:
            name = name.replace(".weight", ".w")
        weights[name] = value
    return weights


def bbox_ciou(box1, box2, eps=1e-7):
    x1, y1, w1, h1 = paddle.unbind(box1, axis=-1)
    x2, y2, w2, h2 = paddle.unbind(box2, axis=-1)
    inter_w = paddle.minimum(x1 + w1 / 2, x2 + w2 / 2) - paddle.maximum(x1 - w1 / 2, x2 - w2 / 2)
    inter_h = paddle.minimum(y1 + h1 / 2, y2 + h2 / 2) - paddle.maximum(y1 - h1 / 2, y2 - h2 / 2)
    inter = F.relu(inter_w) * F.relu(inter_h)
    iou = inter / (w1 * h1 + w2 * h2 - inter + eps)
    cw = paddle.maximum(x1 + w1 / 2, x2 + w2 / 2) - paddle.minimum(x1 - w1 / 2, x2 - w2 / 2)
    ch = paddle.maximum(y1 + h1 / 2, y2 + h2 / 2) - paddle.minimum(y1 - h1 / 2, y2 - h2 / 2)
    rho2 = (x1 - x2) ** 2 + (y1 - y2) ** 2
    v = 4 / math.pi**2 * (paddle.atan(w2 / h2) - paddle.atan(w1 / h1)) ** 2
    alpha = (v / (v - iou + 1 + eps)).detach()
    return iou - rho2 / (cw**2 + ch**2 + eps) - alpha * v


def loss(output, labels):
    num = labels.shape[1]
    matched = output[:, :num]
    ciou = bbox_ciou(matched[..., :4], labels[..., :4])
    obj = paddle.clip(ciou.detach(), min=0)
    obj = paddle.concat([obj, paddle.zeros_like(output[:, num:, 4])], axis=1)
    obj_loss = F.binary_cross_entropy_with_logits(
        output[..., 4], obj, pos_weight=paddle.to_tensor(2.0, dtype=output.dtype)
    )
    onehot = F.one_hot(labels[..., 4].astype("int64"), output.shape[-1] - 5).astype(output.dtype)
    cls_loss = F.binary_cross_entropy_with_logits(matched[..., 5:], onehot)
    return 0.05 * (1 - ciou).mean() + obj_loss + 0.5 * cls_loss


def scheduler():
    return paddle.optimizer.lr.PolynomialDecay(learning_rate=0.02, decay_steps=6, end_lr=0.0, power=2.0)


def optimizer(parameters, learning_rate=0.02):
    weights = [p for p in parameters if p.ndim > 1]
    others = [p for p in parameters if p.ndim == 1]
    return paddle.optimizer.Momentum(
        learning_rate=learning_rate,
        momentum=0.937,
        use_nesterov=True,
        parameters=[{"params": others, "weight_decay": 0.0}, {"params": weights, "weight_decay": 5e-3}],
    )


def transform(image):
    h, w = image.shape[:2]
    ratio = min(32 / h, 32 / w)
    new_h, new_w = round(h * ratio), round(w * ratio)
    x = paddle.to_tensor(image.astype("float32")).transpose([2, 0, 1]).unsqueeze(0)
    x = F.interpolate(x, size=[new_h, new_w], mode="bilinear", align_corners=False, align_mode=0)[0].numpy()
    canvas = np.full([3, 32, 32], 114.0, dtype="float32")
    top, left = (32 - new_h) // 2, (32 - new_w) // 2
    canvas[:, top : top + new_h, left : left + new_w] = x
    return canvas / 255.0


def metric(outputs, labels):
    outputs, labels = np.asarray(outputs), np.asarray(labels)
    pred = outputs[:, : labels.shape[1], :4]
    gt = labels[..., :4]
    lt = np.maximum(pred[..., :2] - pred[..., 2:] / 2, gt[..., :2] - gt[..., 2:] / 2)
    rb = np.minimum(pred[..., :2] + pred[..., 2:] / 2, gt[..., :2] + gt[..., 2:] / 2)
    wh = np.clip(rb - lt, 0, None)
    inter = wh[..., 0] * wh[..., 1]
    area = pred[..., 2] * pred[..., 3] + gt[..., 2] * gt[..., 3]
    iou = inter / (area - inter)
    return {"recall": float(np.mean(iou > 0.05)), "iou": float(np.mean(iou))}
