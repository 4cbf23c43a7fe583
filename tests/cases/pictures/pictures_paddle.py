"""A classifier of small photographs in Paddle, with all that its training is made of."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from PIL import Image

from tipchain.pairs.paddle_initializers import like_torch

HERE = Path(__file__).resolve().parent / "photographs"
MEAN, STD = (np.array(one, "float32").reshape(3, 1, 1) for one in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
BILINEAR = Image.Resampling.BILINEAR


class Net(nn.Layer):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2D(3, 16, 3, stride=2, padding=1, bias_attr=False)
        self.bn1 = nn.BatchNorm2D(16)
        self.conv = nn.Conv2D(16, 32, 3, stride=2, padding=1, groups=2, bias_attr=False)
        self.bn2 = nn.BatchNorm2D(32)
        self.token = self.create_parameter((1, 32))
        self.fc = nn.Linear(32, 128)
        self.norm = nn.LayerNorm(128)
        self.head = nn.Linear(128, num_classes)
        like_torch(self)
        for layer in self.sublayers():
            if isinstance(layer, nn.Conv2D):
                fan_out = layer.weight.shape[0] * layer.weight.shape[2] * layer.weight.shape[3]
                nn.initializer.Normal(0.0, math.sqrt(2.0 / fan_out))(layer.weight)
        nn.initializer.Normal(std=0.02)(self.token)
        nn.initializer.Normal(std=0.02)(self.fc.weight)
        nn.initializer.Constant(0.0)(self.fc.bias)
        nn.initializer.Constant(0.0)(self.bn2.weight)

    def forward(self, image):
        hidden = nn.functional.relu(self.bn1(self.stem(image)))
        hidden = nn.functional.relu(self.bn2(self.conv(hidden))) + hidden.mean([1, 2, 3], keepdim=True)
        hidden = hidden.mean([2, 3]) + self.token
        return self.head(self.norm(nn.functional.gelu(self.fc(hidden))))


def build_model(num_classes=5):
    return Net(num_classes)


def build_loss():
    return nn.CrossEntropyLoss(label_smoothing=0.1)


def build_optimizer(parameters, learning_rate, weight_decay, clip):
    parameters = list(parameters)
    decayed = {one.name for one in parameters if one.ndim > 1}
    return paddle.optimizer.AdamW(
        learning_rate,
        beta1=0.9,
        beta2=0.95,
        epsilon=1e-6,
        parameters=parameters,
        weight_decay=weight_decay,
        apply_decay_param_fun=lambda name: name in decayed,
        grad_clip=nn.ClipGradByGlobalNorm(clip),
    )


def build_scheduler(optimizer, learning_rate, total_steps, warmup_steps):
    def factor(step):
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        return 0.5 * (1 + math.cos(math.pi * (step - warmup_steps) / (total_steps - warmup_steps)))

    return paddle.optimizer.lr.LambdaDecay(learning_rate, factor)


def resize(image):
    wide, high = image.size
    size = (24, int(24 * high / wide)) if wide < high else (int(24 * wide / high), 24)
    return image.resize(size, BILINEAR)


def crop(image):
    wide, high = image.size
    left, top = round((wide - 20) / 2), round((high - 20) / 2)
    return image.crop((left, top, left + 20, top + 20))


def normalize(image):
    pixels = np.asarray(image, dtype="float32").transpose(2, 0, 1) / np.float32(255)
    return np.ascontiguousarray((pixels - MEAN) / STD)


class Folder(paddle.io.Dataset):
    def __init__(self, split: str) -> None:
        super().__init__()
        self.classes = sorted(path.name for path in (HERE / split).iterdir())
        self.samples = [
            (path, label) for label, name in enumerate(self.classes) for path in sorted((HERE / split / name).iterdir())
        ]

    def __len__(self) -> int:
        return len(self.samples)

    def read(self, index: int):
        with Image.open(self.samples[index][0]) as file:
            return file.convert("RGB")

    def __getitem__(self, index: int):
        path, label = self.samples[index]
        return normalize(crop(resize(self.read(index)))), label, path.name


def build_dataset(root, split):
    return Folder(split)


def build_loader(dataset, batch_size, seed, epoch):
    sampler = paddle.io.DistributedBatchSampler(dataset, batch_size, 1, 0, shuffle=True, drop_last=True)
    sampler.set_epoch(1000 * seed + epoch)
    return paddle.io.DataLoader(dataset, batch_sampler=sampler)


def build_augmentation(root, seed):
    folder = Folder("train")

    def draw(number):
        image = folder.read(number)
        wide, high = image.size
        for _ in range(10):
            area = wide * high * random.uniform(0.35, 1.0)
            ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
            width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < width <= wide and 0 < height <= high:
                left, top = random.randint(0, wide - width), random.randint(0, high - height)
                break
        else:
            left, top, width, height = 0, 0, wide, high
        image = image.resize((20, 20), BILINEAR, box=(left, top, left + width, top + height))
        flip = random.random() < 0.5
        if flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return normalize(image), {"box": (left, top, width, height), "flip": flip}

    return draw


class Accuracy:
    def __init__(self) -> None:
        self.hits, self.hits3, self.count = 0, 0, 0

    def update(self, output, label):
        found = paddle.topk(output, 3, axis=1)[1] == label.reshape([-1, 1])
        self.hits += int(found[:, 0].sum())
        self.hits3 += int(found.sum())
        self.count += len(label)

    def compute(self):
        return {"acc_top1": 100 * self.hits / self.count, "acc_top3": 100 * self.hits3 / self.count}


def build_metric():
    return Accuracy()
