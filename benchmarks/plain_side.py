"""One side's calculations alone: the limit that `bench_align.py` holds an alignment against.

    python benchmarks/plain_side.py torch|paddle SETTINGS.json

It imports one framework and runs what the stages of an alignment run of the model: forward, the evaluation, the iterations
of the backward stage in the case's precision, the training. It records nothing and compares nothing.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np

from tipchain.numbers.dumps import load_record


class Plain:
    """A side's model, with the few calls in which the frameworks differ."""

    def __init__(self, side: str, settings: dict) -> None:
        self.side, self.settings = side, settings
        self.framework = importlib.import_module(side)
        if side == "torch":
            from tipchain.frameworks.torch_ import Dynamo

            Dynamo(self.framework).install()  # which an alignment does without, too

    def build(self, name: str):
        module, _, function = self.settings["sides"][self.side][name].partition(":")
        return getattr(importlib.import_module(module), function)

    def model(self):
        made, file = self.build("model")(**self.settings["model_args"]), self.settings["weights"][self.side]
        if self.side == "torch":
            made.load_state_dict(self.framework.load(file))
        else:
            made.set_state_dict(self.framework.load(file))
        made.eval()
        return made

    def tensor(self, array: np.ndarray, *, double: bool = False):
        if double and array.dtype == np.float32:
            array = array.astype(np.float64)
        return (
            self.framework.from_numpy(array)
            if self.side == "torch"
            else self.framework.to_tensor(array, array.dtype.name)
        )

    def loader(self, split: str, size: int):
        dataset = self.build("dataset")(self.settings[f"{split}_data"], split)
        data = self.framework.utils.data if self.side == "torch" else self.framework.io
        return data.DataLoader(dataset, batch_size=size, shuffle=False)

    def evaluate(self, model) -> None:
        with self.framework.no_grad():
            for image, _, _ in self.loader("val", self.settings["batch_size"]):
                model(image)

    def optimizer(self, model, rate: float):
        args, schedule = self.settings["optimizer"], self.settings["scheduler"]
        if self.side == "torch":
            return self.build("optimizer")(model.parameters(), rate, **args)
        return self.build("optimizer")(
            model.parameters(), self.build("scheduler")(None, learning_rate=rate, **schedule), **args
        )

    def step(self, model, criterion, optimizer, inputs: list, label) -> None:
        criterion(model(*inputs), label).backward()
        optimizer.step()
        optimizer.zero_grad() if self.side == "torch" else optimizer.clear_grad()


def main() -> None:
    side = Plain(sys.argv[1], json.loads(Path(sys.argv[2]).read_text()))
    settings = side.settings
    given = dict(load_record(Path(settings["inputs"])).arrays)
    label, arrays = given.pop("label"), list(given.values())
    model, criterion = side.model(), side.build("loss")()
    with side.framework.no_grad():
        criterion(model(*map(side.tensor, arrays)), side.tensor(label))
    side.evaluate(model)
    backward, double = settings["backward"], settings["backward"]["dtype"] == "float64"
    if double:
        model = model.double() if side.side == "torch" else model.to(dtype="float64")
    optimizer = side.optimizer(model, backward["learning_rate"])
    for _ in range(backward["iterations"]):
        side.step(model, criterion, optimizer, [side.tensor(one, double=double) for one in arrays], side.tensor(label))
    del model, optimizer
    model, training = side.model(), settings["train"]
    model.train()
    optimizer = side.optimizer(model, training["learning_rate"])
    for _ in range(training["epochs"]):
        for image, target, _ in side.loader("train", training["batch_size"]):
            side.step(model, criterion, optimizer, [image], target)
    model.eval()
    side.evaluate(model)


if __name__ == "__main__":
    main()
