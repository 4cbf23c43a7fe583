"""What stands around the Python of pages: two small models that are the same, inputs, losses, builders, data, a loop."""

# ruff: noqa: I001
import copy

import numpy as np
import torch  # before paddle
import paddle

import tipchain

random = np.random.default_rng(0)
reference = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
port = paddle.nn.Sequential(paddle.nn.Flatten(), paddle.nn.Linear(12, 5), paddle.nn.ReLU(), paddle.nn.Linear(5, 3))
tipchain.copy_weights(reference, port)

images = random.standard_normal((4, 3, 2, 2), dtype=np.float32)
labels = np.array([0, 1, 2, 0])
inputs = {"args": images, "labels": labels}
torch_loss, paddle_loss = torch.nn.CrossEntropyLoss(), paddle.nn.CrossEntropyLoss()
criterion = torch_loss
raw_images = [random.integers(0, 255, (2, 2, 3), dtype=np.uint8) for _ in range(3)]
NAMES = ("one", "two", "three")


def build_sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def build_momentum(parameters):
    return paddle.optimizer.Momentum(0.1, 0.9, parameters=parameters)


def build_step(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, 2)


def build_step_decay(_optimizer=None):
    return paddle.optimizer.lr.StepDecay(0.1, 2)


torch_loader = paddle_loader = [(images, labels)]


def torch_transform(image):
    return image.transpose(2, 0, 1).astype(np.float32) / 255


paddle_transform = torch_transform


def torch_accuracy(outputs, labels):
    return {"top1": float((outputs.argmax(1) == labels).float().mean())}


def prepare(raw):
    return torch_transform(raw)[None]


def paddle_predict(model, raw):
    scores = model(paddle.to_tensor(prepare(raw)))
    return {"label": NAMES[int(scores.argmax())], "scores": paddle.nn.functional.softmax(scores, 1)}


def update(average, model, decay):
    with torch.no_grad():
        for kept, new in zip(average.parameters(), model.parameters(), strict=True):
            kept.mul_(decay).add_(new, alpha=1 - decay)


class PaddleStep:
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.count = model, optimizer, 0
        self.ema = copy.deepcopy(model)

    def __call__(self, batch):
        loss = paddle_loss(self.model(batch["args"]), batch["labels"])
        (loss / 4).backward()
        self.count += 1
        if self.count % 4 == 0:
            self.optimizer.step()
            self.optimizer.clear_grad()
            with paddle.no_grad():
                for kept, new in zip(self.ema.parameters(), self.model.parameters(), strict=True):
                    kept.set_value(kept * 0.999 + new * 0.001)
        return loss


class MyNet(paddle.nn.Layer):
    def __init__(self, num_classes):
        super().__init__()
        self.head = paddle.nn.Linear(4, num_classes)
