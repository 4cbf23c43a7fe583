"""What `tipchain.align` costs on models, against a plain forward and backward of both frameworks in float32.

Each measurement is a process of its own that has both models in memory and runs one of the two, once to warm up and
once measured; the two take turns. Memory is the largest resident size of such a process, over that of one that has the
models and runs nothing. Seconds are those of the processor, which other programs hardly change. One pair has a fault.

    python benchmarks/bench_live.py [--pair resnet50|bert-base|alexnet-fault] [--runs 3] [--batch 2] [--size 224] [--threads 1]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from timing import describe_machine, in_turns

ROOT = Path(__file__).resolve().parents[1]
GOALS = {"resnet50": (2.5, 2.0), "bert-base": (2.5, 2.0), "alexnet-fault": (None, 2.5)}
"""How many times plain a pair may take, and how many times its memory; None: `FAULT_S` seconds."""
FAULT_S = 60.0
WAYS = ("models alone", "plain", "tipchain.align", "two plain in float64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Processor seconds of the measured part, and the process's largest resident size in MiB."""

    seconds: float
    memory: float


def measure(pair: str, way: str, batch: int, size: int, threads: int) -> Cost:
    """Run this file as a process that does one of the ways, and return what that cost."""
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, __file__, "--pair", pair, "--way", way, "--batch", str(batch), "--size", str(size)],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{way} failed:\n{done.stderr[-2000:]}")
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def run(pair: str, way: str, batch: int, size: int) -> None:
    """Do one of the ways twice, and print what the second time cost."""
    import torch  # before paddle

    import tipchain

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(0)
    reference, port, image = _build(pair, batch, size)
    tipchain.copy_weights(reference, port)
    reference.eval()
    port.eval()
    ways: dict[str, Callable[[], Any]] = {
        "models alone": lambda: None,
        "plain": partial(_plain, reference, port, image),
        "two plain in float64": partial(_double, reference, port, image),
        "tipchain.align": partial(_align, reference, port, image, passing=not pair.endswith("-fault")),
    }
    seconds = 0.0
    for _ in range(2):
        start = time.process_time()
        ways[way]()
        seconds = time.process_time() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "memory": memory}))


def _build(pair: str, batch: int, size: int) -> tuple[Any, Any, Any]:
    """Return both models and what they are called with."""
    import numpy as np
    import paddle
    import torch

    random = np.random.default_rng(0)
    images = random.standard_normal((batch, 3, size, size)).astype(np.float32)
    if pair == "bert-base":
        # Hidden states: the embeddings' rows are gathered alike, and add parameters only.
        sizes = {"d_model": 768, "nhead": 12, "dim_feedforward": 3072, "dropout": 0.0, "activation": "gelu"}
        layer = torch.nn.TransformerEncoderLayer(**sizes, batch_first=True)
        reference = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
        port = paddle.nn.TransformerEncoder(paddle.nn.TransformerEncoderLayer(**sizes), 12)
        return reference, port, random.standard_normal((batch, 128, 768)).astype(np.float32)
    if pair == "alexnet-fault":
        from alignment.alexnet import paddle_side, torch_side

        port = paddle_side.build_model()
        kept = [(name, one) for name, one in port.classifier.named_children() if name != "5"]
        port.classifier = paddle.nn.Sequential(*kept)
        return torch_side.build_model(), port, images
    from paddle.vision.models import resnet50

    from tests.zoo.vision_torch import Bottleneck, ResNet

    return ResNet(Bottleneck, (3, 4, 6, 3)), resnet50(num_classes=10), images


def _plain(reference: Any, port: Any, image: Any) -> None:
    import paddle
    import torch

    reference(torch.from_numpy(image)).sum().backward()
    port(paddle.to_tensor(image)).sum().backward()
    reference.zero_grad()
    port.clear_gradients()


def _double(reference: Any, port: Any, image: Any) -> None:
    import copy

    import numpy as np

    _plain(
        copy.deepcopy(reference).double(), copy.deepcopy(port).to(dtype="float64"), image.astype(np.float64)
    )


def _align(reference: Any, port: Any, image: Any, *, passing: bool) -> None:
    import tipchain

    report = tipchain.align(reference, port, {"args": image}, iterations=1)
    if report.passed is not passing:
        raise RuntimeError(str(report))


def main() -> int:
    """Measure, print a table, and return 1 where the goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair", choices=GOALS, default="resnet50")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        run(args.pair, args.way, args.batch, args.size)
        return 0
    print(describe_machine())
    found = in_turns(
        {way: partial(measure, args.pair, way, args.batch, args.size, args.threads) for way in WAYS},
        args.runs,
        warm=0,
    )
    middle = {
        way: Cost(
            seconds=statistics.median(one.seconds for one in costs),
            memory=statistics.median(one.memory for one in costs),
        )
        for way, costs in found.items()
    }
    bare, plain = middle["models alone"].memory, middle["plain"]
    print(f"{args.pair}, batch {args.batch}, {args.threads} threads, median of {args.runs}")
    print(f"{'':<22}{'seconds':>10}{'ratio':>8}{'MiB':>10}{'ratio':>8}")
    for way in WAYS[1:]:
        one = middle[way]
        print(
            f"{way:<22}{one.seconds:>10.2f}{one.seconds / plain.seconds:>8.2f}{one.memory:>10.0f}{one.memory / plain.memory:>8.2f}"
        )
    print(f"the models and both frameworks alone: {bare:.0f} MiB")
    aligned = middle["tipchain.align"]
    times, memory = GOALS[args.pair]
    most = FAULT_S if times is None else times * plain.seconds
    met = aligned.seconds <= most and aligned.memory <= memory * plain.memory
    print(f"goal, at most {most:.1f} s and {memory:g} times the memory: {'met' if met else 'missed'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
