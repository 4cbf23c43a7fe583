"""Five alignment scripts as reproduction guides have them: what `bench_align.py` compares `tipchain align` with.

    python benchmarks/usual_scripts.py forward|data|metric|loss|train SETTINGS.json

Each is run as a process of its own. It imports both frameworks, builds both models, loads both weight files, runs
one side after the other on the same inputs, logs with reprod_log and compares with it. What is compared is what
these guides compare: outputs, batches, metrics, losses and learning rates; no gradients, parameters or buffers.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
from pathlib import Path

import numpy as np

import torch  # isort: skip  (before paddle: the other way round the two fall out over shared libraries)
import paddle  # isort: skip
from reprod_log import ReprodDiffHelper, ReprodLogger

SIDES = ("torch", "paddle")


class Script:
    """What every one of the five scripts begins with."""

    def __init__(self, settings: dict) -> None:
        self.settings = settings
        self.out = Path(settings["out"])
        inputs = ReprodDiffHelper().load_info(settings["inputs"])
        self.label = inputs.pop("label")
        self.inputs = list(inputs.values())
        torch.manual_seed(settings["seed"])
        paddle.seed(settings["seed"])
        np.random.seed(settings["seed"])  # noqa: NPY002
        random.seed(settings["seed"])
        paddle.set_device("cpu")

    def build(self, side: str, name: str):
        module, _, function = self.settings["sides"][side][name].partition(":")
        return getattr(importlib.import_module(module), function)

    def models(self) -> dict:
        args, weights = self.settings["model_args"], self.settings["weights"]
        reference = self.build("torch", "model")(**args)
        reference.load_state_dict(torch.load(weights["torch"]))
        port = self.build("paddle", "model")(**args)
        port.set_state_dict(paddle.load(weights["paddle"]))
        reference.eval()
        port.eval()
        return {"torch": reference, "paddle": port}

    def fake_data(self, side: str) -> tuple[list, object]:
        if side == "torch":
            return [torch.from_numpy(array) for array in self.inputs], torch.from_numpy(self.label)
        return [paddle.to_tensor(array) for array in self.inputs], paddle.to_tensor(self.label)

    def dataset(self, side: str, split: str):
        return self.build(side, "dataset")(self.settings[f"{split}_data"], split)

    def optimizer(self, side: str, model, learning_rate: float) -> tuple:
        args, schedule = self.settings["optimizer"], self.settings["scheduler"]
        if side == "torch":
            optimizer = self.build(side, "optimizer")(model.parameters(), learning_rate, **args)
            return optimizer, self.build(side, "scheduler")(optimizer, **schedule)
        scheduler = self.build(side, "scheduler")(None, learning_rate=learning_rate, **schedule)
        return self.build(side, "optimizer")(model.parameters(), scheduler, **args), scheduler

    def evaluate(self, side: str, model) -> dict:
        loader = make_loader(side, self.dataset(side, "val"), self.settings["batch_size"])
        with no_grad(side):
            pairs = [(model(image), label) for image, label, _ in loader]
        outputs, labels = zip(*pairs, strict=True)
        join = torch.cat if side == "torch" else paddle.concat
        return self.build(side, "metric")()(join(list(outputs)), join(list(labels)))

    def check(self, name: str, loggers: dict, threshold: float, **names: str) -> bool:
        """Save both dumps, load them again, compare and write the log, as each of the scripts ends."""
        helper, infos = ReprodDiffHelper(), []
        for side in SIDES:
            path = str(self.out / f"{name}_{names.get(side, side)}.npy")
            loggers[side].save(path)
            infos.append(helper.load_info(path))
        helper.compare_info(*infos)
        log = self.out / f"{name}_diff.log"
        helper.report(diff_threshold=threshold, path=str(log))
        return "diff check passed" in log.read_text()


def no_grad(side: str):
    return torch.no_grad() if side == "torch" else paddle.no_grad()


def make_loader(side: str, dataset, batch_size: int, order: list | None = None):
    if order is None:
        if side == "torch":
            return torch.utils.data.DataLoader(dataset, batch_size=batch_size, shuffle=False)
        return paddle.io.DataLoader(dataset, batch_size=batch_size, shuffle=False)
    if side == "torch":
        sampler = torch.utils.data.BatchSampler(order, batch_size, drop_last=False)
        return torch.utils.data.DataLoader(dataset, batch_sampler=sampler)
    sampler = paddle.io.BatchSampler(sampler=Order(order), batch_size=batch_size)
    return paddle.io.DataLoader(dataset, batch_sampler=sampler)


class Order(paddle.io.Sampler):
    """A fixed order, so that both sides train on equal batches."""

    def __init__(self, order: list) -> None:
        super().__init__()
        self.order = order

    def __iter__(self):
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)


def new_loggers() -> dict:
    return {side: ReprodLogger() for side in SIDES}


def forward(script: Script) -> bool:
    models, loggers = script.models(), new_loggers()
    for side, model in models.items():
        inputs, _ = script.fake_data(side)
        with no_grad(side):
            output = model(*inputs)
        loggers[side].add("logits", output.numpy())
    return script.check("forward", loggers, 1e-5)


def data(script: Script) -> bool:
    loggers = new_loggers()
    for side, logger in loggers.items():
        dataset = script.dataset(side, "val")
        logger.add("length", np.array(len(dataset)))
        for number, (image, label, _) in enumerate(make_loader(side, dataset, script.settings["batch_size"])):
            if number >= script.settings["max_batches"]:
                break
            logger.add(f"dataloader_{number}", image.numpy())
            logger.add(f"label_{number}", label.numpy())
    return script.check("data", loggers, 1e-6)


def metric(script: Script) -> bool:
    models, loggers = script.models(), new_loggers()
    for side, model in models.items():
        for key, value in script.evaluate(side, model).items():
            loggers[side].add(key, np.array([value]))
    return script.check("metric", loggers, 1e-6)


def loss(script: Script) -> bool:
    models, loggers = script.models(), new_loggers()
    for side, model in models.items():
        inputs, label = script.fake_data(side)
        with no_grad(side):
            value = script.build(side, "loss")()(model(*inputs), label)
        loggers[side].add("loss", value.numpy())
    return script.check("loss", loggers, 1e-5)


def train(script: Script) -> bool:
    """Run the backward alignment, then the training alignment from the same weights."""
    loggers = new_loggers()
    for side, model in script.models().items():
        _iterate(script, side, model, loggers[side])
    passed = script.check("bp_align", loggers, 1e-5)
    loggers = new_loggers()
    for side, model in script.models().items():
        _train(script, side, model)
        for key, value in script.evaluate(side, model).items():
            loggers[side].add(key, np.array([value]))
    return script.check("train_align", loggers, 0.15, torch="benchmark") and passed


def _iterate(script: Script, side: str, model, logger: ReprodLogger) -> None:
    settings, criterion = script.settings["backward"], script.build(side, "loss")()
    optimizer, scheduler = script.optimizer(side, model, settings["learning_rate"])
    for number in range(settings["iterations"]):
        inputs, label = script.fake_data(side)
        rate = optimizer.param_groups[0]["lr"] if side == "torch" else optimizer.get_lr()
        value = criterion(model(*inputs), label)
        value.backward()
        optimizer.step()
        optimizer.zero_grad() if side == "torch" else optimizer.clear_grad()
        scheduler.step()
        logger.add(f"loss_{number}", value.detach().numpy())
        logger.add(f"lr_{number}", np.array(rate))


def _train(script: Script, side: str, model) -> None:
    settings, criterion = script.settings["train"], script.build(side, "loss")()
    model.train()
    for layer in model.modules() if side == "torch" else model.sublayers():
        if "Dropout" in type(layer).__name__:
            layer.eval()
    optimizer, scheduler = script.optimizer(side, model, settings["learning_rate"])
    dataset = script.dataset(side, "train")
    for epoch in range(settings["epochs"]):
        order = np.random.default_rng([script.settings["seed"], epoch]).permutation(len(dataset)).tolist()
        for image, label, _ in make_loader(side, dataset, settings["batch_size"], order):
            value = criterion(model(image), label)
            value.backward()
            optimizer.step()
            optimizer.zero_grad() if side == "torch" else optimizer.clear_grad()
        scheduler.step()
    model.eval()


STAGES = {"forward": forward, "data": data, "metric": metric, "loss": loss, "train": train}


def main() -> int:
    script = Script(json.loads(Path(sys.argv[2]).read_text()))
    return 0 if STAGES[sys.argv[1]](script) else 1


if __name__ == "__main__":
    raise SystemExit(main())
