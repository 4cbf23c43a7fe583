"""What `tipchain.align` costs on models, against a plain forward and backward of both frameworks in float32.

Each measurement is a process of its own that has both models in memory and does one thing twice; ways take turns. The
second time counts; the first, with what frameworks do once in a process, is shown beside it. Of a pair with a fault
the first counts. Memory is the largest resident size of the process. Seconds are the processor's, in user mode and in the
system, of the process and those that it starts: other programs change them less than the time that passes.

    python benchmarks/bench_live.py [--pair resnet50|bert-base|alexnet|encoder|alexnet-fault] [--runs 3] [--batch N] [--size 224] [--threads 1]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from timing import describe_machine, in_turns

ROOT = Path(__file__).resolve().parents[1]
FAULT_S = 25.0
SMALL_S = 0.25
WAYS = ("plain", "tipchain.align", "two plain in float64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one thing took: processor seconds of the first and of the second time, and the process's memory in MiB."""

    first: tuple[float, float]
    again: tuple[float, float]
    memory: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A pair: its usual batch, the most seconds that aligning it may take, given plain's, and times plain's memory."""

    batch: int
    most: Callable[[float], float]
    memory: float
    fault: bool = False


PAIRS = {
    "resnet50": Pair(batch=8, most=lambda plain: 2.6 * plain, memory=1.5),
    "bert-base": Pair(batch=4, most=lambda plain: 2.5 * plain, memory=2.0),
    "alexnet": Pair(batch=4, most=lambda plain: 2.5 * plain, memory=2.0),
    "encoder": Pair(batch=2, most=lambda plain: plain + SMALL_S, memory=2.0),
    "alexnet-fault": Pair(batch=4, most=lambda _: FAULT_S, memory=2.5, fault=True),
}


def measure(pair: str, way: str, batch: int, size: int, threads: int) -> Cost:
    """Run this file as a process that does one of the ways, and return what that cost."""
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, __file__, "--pair", pair, "--way", way, "--batch", str(batch), "--size", str(size)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{way} failed:\n{done.stderr[-2000:]}")
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def run(pair: str, way: str, batch: int, size: int) -> None:
    """Do one of the ways twice, and print what that cost."""
    import torch  # before paddle

    import tipchain

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(0)
    reference, port, image = _build(pair, batch, size)
    tipchain.copy_weights(reference, port)
    reference.eval()
    port.eval()
    ways: dict[str, Callable[[], Any]] = {
        "plain": partial(_plain, reference, port, image),
        "two plain in float64": partial(_double, reference, port, image),
        "tipchain.align": partial(_align, reference, port, image, passing=not PAIRS[pair].fault),
    }
    taken = []
    for _ in range(2):
        before = _seconds()
        ways[way]()
        taken.append([after - start for start, after in zip(before, _seconds(), strict=True)])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"first": taken[0], "again": taken[1], "memory": memory}))


def _seconds() -> tuple[float, float]:
    """Return the processor's seconds so far, in user mode and in the system, of this process and those it started."""
    used = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(one.ru_utime for one in used), sum(one.ru_stime for one in used)


def _build(pair: str, batch: int, size: int) -> tuple[Any, Any, Any]:
    """Return both models and what they are called with."""
    import numpy as np
    import paddle
    import torch

    random = np.random.default_rng(0)
    images = random.standard_normal((batch, 3, size, size)).astype(np.float32)
    if pair in ("bert-base", "encoder"):
        # Hidden states: the embeddings' rows are gathered alike, and add parameters only.
        wide, heads, layers, tokens = (768, 12, 12, 128) if pair == "bert-base" else (32, 4, 2, 16)
        sizes = {"d_model": wide, "nhead": heads, "dim_feedforward": 4 * wide, "dropout": 0.0, "activation": "gelu"}
        layer = torch.nn.TransformerEncoderLayer(**sizes, batch_first=True)
        reference = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        for one in reference.parameters():  # else every layer is a copy of the first
            torch.nn.init.normal_(one, std=0.02)
        port = paddle.nn.TransformerEncoder(paddle.nn.TransformerEncoderLayer(**sizes), layers)
        return reference, port, random.standard_normal((batch, tokens, wide)).astype(np.float32)
    if pair.startswith("alexnet"):
        from alignment.alexnet import paddle_side, torch_side

        port = paddle_side.build_model()
        if PAIRS[pair].fault:
            kept = [(name, one) for name, one in port.classifier.named_children() if name != "5"]
            port.classifier = paddle.nn.Sequential(*kept)
        return torch_side.build_model(), port, images
    from paddle.vision.models import resnet50

    return _resnet50(), resnet50(num_classes=10), images


def _resnet50() -> Any:
    """Return torch's side of `paddle.vision.models.resnet50`."""
    from torch import nn

    class Bottleneck(nn.Module):
        def __init__(self, inside: int, planes: int, stride: int) -> None:
            super().__init__()
            wide = 4 * planes
            self.conv1, self.bn1 = nn.Conv2d(inside, planes, 1, bias=False), nn.BatchNorm2d(planes)
            self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes)
            self.conv3, self.bn3 = nn.Conv2d(planes, wide, 1, bias=False), nn.BatchNorm2d(wide)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = nn.Identity()
            if stride != 1 or inside != wide:
                conv = nn.Conv2d(inside, wide, 1, stride, bias=False)
                self.downsample = nn.Sequential(conv, nn.BatchNorm2d(wide))

        def forward(self, x: Any) -> Any:
            kept = self.downsample(x)
            x = self.relu(self.bn1(self.conv1(x)))
            x = self.relu(self.bn2(self.conv2(x)))
            return self.relu(self.bn3(self.conv3(x)) + kept)

    blocks, inside = [], 64
    for number, depth in enumerate((3, 4, 6, 3)):
        for place in range(depth):
            blocks.append(Bottleneck(inside, 64 * 2**number, 2 if number and not place else 1))
            inside = 256 * 2**number
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 10))


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

    _plain(copy.deepcopy(reference).double(), copy.deepcopy(port).to(dtype="float64"), image.astype(np.float64))


def _align(reference: Any, port: Any, image: Any, *, passing: bool) -> None:
    import tipchain

    report = tipchain.align(reference, port, {"args": image}, iterations=1)
    if report.passed is not passing:
        raise RuntimeError(str(report))


def main() -> int:
    """Measure, print a table, and return 1 where the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", choices=PAIRS, default="resnet50")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--batch", type=int, help="samples; by default those that the figures are of")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    pair = PAIRS[args.pair]
    batch = args.batch or pair.batch
    if args.way:
        run(args.pair, args.way, batch, args.size)
        return 0
    print(describe_machine(), flush=True)
    found = in_turns(
        {way: partial(measure, args.pair, way, batch, args.size, args.threads) for way in WAYS}, args.runs, warm=0
    )
    print(f"{args.pair}, batch {batch}, {args.threads} threads, median of {args.runs}")
    print(f"{'':<22}{'user':>8}{'system':>8}{'sum':>8}{'times':>7}{'first':>8}{'MiB':>8}{'times':>7}")
    seconds, memory = {}, {}
    for way in WAYS:
        counted = [one.first if pair.fault and way == "tipchain.align" else one.again for one in found[way]]
        user, system = (statistics.median(one[place] for one in counted) for place in (0, 1))
        seconds[way] = statistics.median(map(sum, counted))
        memory[way] = statistics.median(one.memory for one in found[way])
        first = statistics.median(sum(one.first) for one in found[way])
        times = seconds[way] / seconds["plain"], memory[way] / memory["plain"]
        print(
            f"{way:<22}{user:>8.2f}{system:>8.2f}{seconds[way]:>8.2f}{times[0]:>7.2f}{first:>8.2f}{memory[way]:>8.0f}{times[1]:>7.2f}"
        )
    most = pair.most(seconds["plain"]), pair.memory * memory["plain"]
    met = seconds["tipchain.align"] <= most[0] and memory["tipchain.align"] <= most[1]
    print(f"goal, at most {most[0]:.1f} s and {pair.memory:g} times the memory: {'met' if met else 'missed'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
