"""Step 11 of the guide, training."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from tipchain.parity.frameworks.base import scalar
from tipchain.parity.stages.bench import Bench, Recording, split
from tipchain.parity.stages.evaluation import evaluate


def record(bench: Bench) -> Recording:
    """Metrics after a short real training from equal weights on equal batches, random layers off."""
    settings, framework = bench.case.train, bench.framework
    model, dataset = bench.model(training=True), bench.dataset("train")
    criterion, trainer = bench.builder("loss")(), bench.trainer(model, settings.learning_rate)
    losses: list[float] = []
    batches = hashlib.sha256()
    for epoch in range(bench.epochs):
        order = np.random.default_rng([bench.case.seed, epoch]).permutation(len(dataset))
        for image, label, files in framework.batches(dataset, split(order.tolist(), settings.batch_size)):
            batches.update(json.dumps([files, framework.array(label).tolist()]).encode())
            loss = criterion(model(image), label)
            loss.backward()
            trainer.step()
            if settings.schedule_per == "iteration":
                trainer.step_schedule()
            losses.append(float(scalar(framework.array(loss))[0]))
        if settings.schedule_per == "epoch":
            trainer.step_schedule()
    framework.set_training(model, training=False)
    metrics, facts = evaluate(bench, model)
    details = {"losses": losses, "epochs": bench.epochs, "batches": batches.hexdigest(), **facts}
    return Recording(arrays=metrics, details=details)
