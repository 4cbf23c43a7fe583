"""Does MVFNet see motion? The same network with and without MVF modules, trained on videos whose class is a motion.

Each network is trained from scratch in torch, in a process of its own with one thread. The videos are those of mini_ucf,
drawn anew for every step: the scans of the training groups, with places, speeds and backgrounds that never come twice,
each of them once for every motion. Accuracies are those on the 168 validation videos of the whole data, whose scans no
training video shows. The exit code is 1 if the worst network with MVF modules is not 20 points above the best without.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

SEGMENTS, SIDE = 8, 32
"""Frames of a clip, and pixels of their sides, half of the videos' own: four times as fast."""
STARTS = 2
"""Different videos in a batch; each comes with all six motions."""
LEARNING_RATE, MAX_NORM = 0.01, 20.0
FRESH = 1000
"""Number of the first training video of a group: far from those of the data."""
WITHOUT = (0, 0, 0, 0)
NETWORKS = (WITHOUT, (0, 0, 1, 1), (1, 1, 1, 1))
MARGIN = 20.0


@dataclass(frozen=True)
class Training:
    """One network to train."""

    mvf_freq: tuple[int, ...]
    seed: int
    steps: int


@dataclass(frozen=True)
class Outcome:
    """What a trained network can do: accuracies in percent."""

    training: Training
    top1: float
    mean_class: float
    loss: float
    seconds: float


def read_clips(videos: Sequence[tuple[str, int, int, Sequence[float] | None]]):
    """Return clips float32 ``[n, SEGMENTS, 3, SIDE, SIDE]`` and labels of (motion, group, number, places) videos."""
    import torch

    from alignment.mvf.torch_side import segment_frames, transform_frame
    from tipchain.prepare.data import MOTIONS, load_scans, render

    scans, names, clips = load_scans()[0], list(MOTIONS), []
    for motion, group, number, places in videos:
        frames = list(render(motion, group, number, scans))
        chosen = [frames[one - 1] for one in segment_frames(len(frames), SEGMENTS, places)]
        clips.append(torch.stack([transform_frame(frame, SIDE, SIDE) for frame in chosen]))
    return torch.stack(clips), torch.tensor([names.index(video[0]) for video in videos])


def train(training: Training) -> Outcome:
    """Train and evaluate one network."""
    import numpy as np
    import torch

    from alignment.mvf import torch_side
    from tipchain.prepare.data import GROUPS, MOTIONS

    torch.set_num_threads(1)
    torch.manual_seed(training.seed)
    random, start = np.random.default_rng(training.seed), time.perf_counter()
    model = torch_side.build_model(
        num_classes=len(MOTIONS), depth=18, num_segments=SEGMENTS, mvf_freq=training.mvf_freq
    )
    optimizer = torch_side.build_optimizer(model.parameters(), LEARNING_RATE, max_norm=MAX_NORM)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=training.steps)
    criterion, losses = torch_side.build_loss(), []
    for step in range(training.steps):
        groups = random.choice(list(GROUPS["whole"]["train"]), STARTS)
        videos = [
            (motion, int(group), FRESH + STARTS * step + place, random.random(SEGMENTS).tolist())
            for place, group in enumerate(groups)
            for motion in MOTIONS
        ]
        clips, labels = read_clips(videos)
        loss = criterion(model(clips), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % 50 == 49:
            print(f"{training}: step {step + 1}, loss {np.mean(losses[-50:]):.3f}", file=sys.stderr, flush=True)
    found = evaluate(model)
    return Outcome(
        training,
        found["top1_acc"],
        found["mean_class_accuracy"],
        float(np.mean(losses[-50:])),
        time.perf_counter() - start,
    )


def evaluate(model) -> dict[str, float]:
    """Return the metrics over the validation videos, of which the frames in the middle of each segment are taken."""
    import torch

    from alignment.mvf.torch_side import build_metric
    from tipchain.prepare.data import choose_clips

    model.eval()
    videos = [(one.motion, one.group, one.clip, None) for one in choose_clips("whole") if one.split == "val"]
    outputs, labels = [], []
    with torch.no_grad():
        for start in range(0, len(videos), 24):
            clips, label = read_clips(videos[start : start + 24])
            outputs.append(model(clips))
            labels.append(label)
    return build_metric()(torch.cat(outputs), torch.cat(labels))


def main() -> int:
    """Train all networks, print a table, and tell whether those with MVF modules are better."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=300, help="batches of 12 videos (default %(default)s)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="default 0")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="networks trained at once")
    args = parser.parse_args()
    trainings = [Training(freq, seed, args.steps) for seed in args.seeds for freq in NETWORKS]
    with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        outcomes = list(pool.map(train, trainings))
    print("mvf_freq      seed  top-1 %  mean class %  training loss  seconds")
    for one in outcomes:
        freq = ",".join(map(str, one.training.mvf_freq))
        print(
            f"{freq:<12}  {one.training.seed:>4}  {one.top1:>7.1f}  {one.mean_class:>12.1f}  {one.loss:>13.3f}  "
            f"{one.seconds:>7.0f}"
        )
    without = max(one.top1 for one in outcomes if one.training.mvf_freq == WITHOUT)
    with_modules = min(one.top1 for one in outcomes if one.training.mvf_freq != WITHOUT)
    print(f"with MVF modules at least {with_modules:.1f} %, without at most {without:.1f} %; chance 16.7 %")
    return 0 if with_modules >= without + MARGIN else 1


if __name__ == "__main__":
    raise SystemExit(main())
