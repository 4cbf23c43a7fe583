"""Three scales fused both ways with learned weights, and boxes decoded from anchors."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class ConvBnAct(nn.Module):
    def __init__(self, inner, outer, kernel=3, stride=1, groups=1):
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(outer, eps=1e-3, momentum=0.03)

    def forward(self, x):
        return F.silu(self.bn(self.conv(x)))


class Fusion(nn.Module):
    def __init__(self, width, count, eps=1e-4):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(count))
        self.conv = ConvBnAct(width, width, 3, groups=width)

    def forward(self, *maps):
        w = F.relu(self.weight)
        w = w / (w.sum() + self.eps)
        return self.conv(sum(one * share for one, share in zip(maps, w, strict=True)))


class BiFpn(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.td4 = Fusion(width, 2)
        self.td3 = Fusion(width, 2)
        self.out4 = Fusion(width, 3)
        self.out5 = Fusion(width, 2)

    def forward(self, p3, p4, p5):
        t4 = self.td4(p4, F.interpolate(p5, size=p4.shape[2:], mode="nearest"))
        o3 = self.td3(p3, F.interpolate(t4, size=p3.shape[2:], mode="nearest"))
        o4 = self.out4(p4, t4, F.max_pool2d(o3, 3, 2, 1))
        o5 = self.out5(p5, F.max_pool2d(o4, 3, 2, 1))
        return o3, o4, o5


class Spp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.reduce = ConvBnAct(width, width // 2, 1)
        self.expand = ConvBnAct(width * 2, width, 1)

    def forward(self, x):
        x = self.reduce(x)
        a = F.max_pool2d(x, 3, 1, 1)
        b = F.max_pool2d(a, 3, 1, 1)
        c = F.max_pool2d(b, 3, 1, 1)
        return self.expand(torch.cat([x, a, b, c], dim=1))


class Detect(nn.Module):
    strides = (4, 8, 16)

    def __init__(self, width, classes):
        super().__init__()
        anchors = torch.tensor([[[5.0, 6], [8, 14]], [[15, 11], [16, 30]], [[33, 23], [30, 61]]])
        self.register_buffer("anchors", anchors)
        self.classes = classes
        self.heads = nn.ModuleList(nn.Conv2d(width, 2 * (5 + classes), 1) for _ in self.strides)

    def forward(self, maps):
        found = []
        for x, head, anchor, stride in zip(maps, self.heads, self.anchors, self.strides, strict=True):
            n, _, h, w = x.shape
            y = head(x).view(n, 2, 5 + self.classes, h, w).permute(0, 1, 3, 4, 2)
            ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
            grid = torch.stack([xs, ys], dim=-1).to(x.dtype)
            xy = (y[..., :2].sigmoid() * 2 - 0.5 + grid) * stride
            wh = (y[..., 2:4].sigmoid() * 2) ** 2 * anchor[None, :, None, None]
            found.append(torch.cat([xy, wh, y[..., 4:]], dim=-1).flatten(1, 3))
        return torch.cat(found, dim=1)


class Yolo(nn.Module):
    def __init__(self, width=8, classes=3):
        super().__init__()
        self.stem = ConvBnAct(3, width, 3, 2)
        self.c3 = ConvBnAct(width, width, 3, 2)
        self.c4 = ConvBnAct(width, width, 3, 2)
        self.c5 = ConvBnAct(width, width, 3, 2)
        self.spp = Spp(width)
        self.neck = BiFpn(width)
        self.detect = Detect(width, classes)

    def forward(self, image):
        c3 = self.c3(self.stem(image))
        c4 = self.c4(c3)
        c5 = self.spp(self.c5(c4))
        return self.detect(self.neck(c3, c4, c5))


def build():
    return Yolo()


def batch(rng):
    boxes = rng.uniform(2, 30, size=(2, 4, 2))
    target = np.concatenate([boxes, rng.uniform(4, 20, size=(2, 4, 2)), rng.uniform(size=(2, 4, 1)) * 3], axis=-1)
    return {"args": (rng.normal(size=(2, 3, 36, 28)).astype("float32"),), "labels": target.astype("float32")}


def ciou(a, b):
    a1, a2 = a[..., :2] - a[..., 2:] / 2, a[..., :2] + a[..., 2:] / 2
    b1, b2 = b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2
    both = (torch.minimum(a2, b2) - torch.maximum(a1, b1)).clamp(min=0).prod(-1)
    iou = both / (a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - both + 1e-7)
    hull = (torch.maximum(a2, b2) - torch.minimum(a1, b1)).pow(2).sum(-1) + 1e-7
    far = (a[..., :2] - b[..., :2]).pow(2).sum(-1)
    bent = (torch.atan(b[..., 2] / b[..., 3]) - torch.atan(a[..., 2] / a[..., 3])).pow(2) * 4 / math.pi**2
    with torch.no_grad():
        alpha = bent / (bent - iou + 1 + 1e-7)
    return iou - far / hull - alpha * bent


def loss(output, labels):
    """The first boxes are those that labels are about."""
    near = output[:, : labels.shape[1]]
    match = ciou(near[..., :4], labels[..., :4])
    objects = torch.zeros_like(output[..., 4])
    objects[:, : labels.shape[1]] = match.detach().clamp(min=0)
    seen = F.binary_cross_entropy_with_logits(output[..., 4], objects, pos_weight=torch.tensor(2.0, dtype=output.dtype))
    kind = F.one_hot(labels[..., 4].long(), output.shape[-1] - 5).to(output.dtype)
    return 0.05 * (1 - match).mean() + seen + 0.5 * F.binary_cross_entropy_with_logits(near[..., 5:], kind)


def optimizer(parameters):
    parameters = list(parameters)
    return torch.optim.SGD(
        [
            {"params": [one for one in parameters if one.ndim == 1]},
            {"params": [one for one in parameters if one.ndim > 1], "weight_decay": 5e-3},
        ],
        lr=0.02,
        momentum=0.937,
        nesterov=True,
    )


def scheduler(opt):
    return torch.optim.lr_scheduler.PolynomialLR(opt, total_iters=6, power=2.0)


def samples():
    rng = np.random.default_rng(9)
    return [rng.integers(0, 256, size=(14 + 5 * i, 25 - 2 * i, 3), dtype=np.uint8) for i in range(3)]


def transform(image):
    """A letterbox of 32 by 32: the picture by nearest pixels, grey around it, in [0, 1], channels first."""
    h, w = image.shape[:2]
    r = min(32 / h, 32 / w)
    nh, nw = round(h * r), round(w * r)
    x = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    x = F.interpolate(x, size=(nh, nw), mode="bilinear", align_corners=False)[0]
    top, left = (32 - nh) // 2, (32 - nw) // 2
    x = F.pad(x, (left, 32 - nw - left, top, 32 - nh - top), value=114.0)
    return x / 255


def metric(outputs, labels):
    """Share of labels whose box overlaps the one in its place by half a tenth."""
    outputs, labels = np.asarray(outputs), np.asarray(labels)
    a, b = torch.from_numpy(outputs[:, : labels.shape[1], :4]), torch.from_numpy(labels[..., :4])
    low = torch.maximum(a[..., :2] - a[..., 2:] / 2, b[..., :2] - b[..., 2:] / 2)
    high = torch.minimum(a[..., :2] + a[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2)
    both = (high - low).clamp(min=0).prod(-1)
    iou = both / (a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - both)
    return {"recall": float((iou > 0.05).double().mean()), "iou": float(iou.mean())}
