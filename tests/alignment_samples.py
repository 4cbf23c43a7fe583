"""Reports of live models, made without any model."""

from dataclasses import replace
from math import inf, nan

from tipchain.errors import Outcome
from tipchain.explain.findings import Diagnosis, difference
from tipchain.explain.locate.verdicts import Closeness, Direction, LayerVerdict
from tipchain.live.report import AlignmentReport, Histogram

NASTY = """<script>alert("1")</script>&'`x"""
BLOCKS, INSIDE = ("stem", "body", "head"), ("conv", "bn", "act")
FAULT = "body.1.bn"
ORIGIN = {"reference": "nets.torch.Net", "port": "nets.port.Net", "date": "2026-11-01 22:00+08:00", "commit": "1a2b3c4"}


def verdict(path: str, direction: Direction = "forward", **changed: object) -> LayerVerdict:
    """Return a verdict about a layer that is as close as rounding allows."""
    given: dict[str, object] = {
        "reference_path": path.replace("body", "layers"),
        "port_path": path,
        "reference_type": "Torch" + path[-2:],
        "port_type": "Paddle" + path[-2:],
        "turn": 0,
        "direction": direction,
        "inherited": 1e-9,
        "own": 5e-8,
        "ratio": 1.2,
        "closeness": Closeness.ROUNDING,
        "method": "float64",
        "reason": "output 0 is as close as rounding allows",
    }
    return LayerVerdict(**{**given, **changed})


def paths(depth: int) -> list[str]:
    """Return the paths of ``9 * depth`` layers."""
    return [f"{block}.{number}.{layer}" for block in BLOCKS for number in range(depth) for layer in INSIDE]


def passing(depth: int = 2) -> AlignmentReport:
    """Return the report of a port that is the reference, with ``18 * depth`` verdicts."""
    names = paths(depth)
    return AlignmentReport(
        stages={"preflight": Outcome.PASS, "forward": Outcome.PASS, "backward": Outcome.PASS},
        reasons={"forward": f"{len(names)} layers are as close as rounding allows"},
        layers=[
            *(verdict(one) for one in names),
            *(verdict(one, "backward", closeness=Closeness.BITWISE, own=0.0) for one in reversed(names)),
        ],
        numbers={"output 0": 1e-9},
        versions={"torch": "2.13.0", "numpy": "2.0.1"},
        command="tipchain.align(reference, port, inputs, iterations=5, training=False, seed=0)",
        origin=ORIGIN,
    )


def failing(depth: int = 2, *, nasty: str = "") -> AlignmentReport:
    """Return the report of a port of which one BatchNorm is another function, and its training is off too.

    ``nasty`` stands in every text that comes from a user.
    """
    first = verdict(
        FAULT,
        own=3e-3,
        ratio=4e4,
        closeness=Closeness.DIFFERS,
        reason=f"output 0 differs: relative 0.003{nasty}",
        port_type=f"BatchNorm2D{nasty}",
        reference_path=f"layers.1.bn{nasty}",
    )
    clean = passing(depth)
    layers = [
        replace(first, direction=one.direction)
        if one.port_path == FAULT
        else replace(one, inherited=2e-3)
        if one.port_path.startswith("head")
        else one
        for one in clean.layers
    ]
    layers.append(
        verdict("head.0.act", turn=1, own=None, ratio=None, inherited=inf, closeness=Closeness.NOT_COMPARABLE)
    )
    layers.append(verdict("", own=1e-3, ratio=None, closeness=Closeness.LOWER_PRECISION))
    losses = [2.3 - 0.1 * step for step in range(5)]
    return AlignmentReport(
        stages={"preflight": Outcome.FAIL, "forward": Outcome.FAIL, "loss": Outcome.ERROR, "train": Outcome.SKIP},
        reasons={"forward": f"{FAULT}: output 0 differs{nasty}", "loss": f"ValueError: odd{nasty}"},
        layers=layers, first_divergence=first,
        findings=[
            *(difference("epsilon", ("eps=1e-05", "epsilon=0.001"), f"body.{one} has epsilon=0.001{nasty}",
                         f"pass `epsilon=1e-05` to `body.{one}`", paths=(f"layers.{one}{nasty}", f"body.{one}{nasty}"))
              for one in range(6)),
            difference("mode", (f"training=True{nasty}", "training=False"), "the modes differ", "call `train()`",
                       code="setting", effect="none"),
        ],
        diagnoses=[
            Diagnosis(code="shift", port_path="optimizer", message=f"elsewhere{nasty}", evidence="", explained=0.25, fix=""),
            Diagnosis(code="epsilon", port_path=FAULT, message=f"its `epsilon` is 0.001{nasty}",
                      evidence=f"tried 7 values{nasty}", explained=0.99999, fix="pass `epsilon=1e-05` to `body.1.bn`"),
            Diagnosis(code="unknown", port_path="loss", message="not known", evidence="", fix="compare"),
        ],
        unmatched={"reference": [f"layers.drop (Dropout{nasty})"], "port": []}, numbers={"output 0": inf, f"x{nasty}": nan},
        curves={
            "train/reference": losses, "train/port": [*losses[:2], 2.2, 2.1, nan], "train/allowed": [1e-9] * 5,
            "lr/reference": [0.1, 0.1, 0.01, 0.01, 0.01], "lr/port": [0.1] * 5, "depth/own": [0.0], f"odd{nasty}": [1.0, 2.0],
        },
        histograms=[
            Histogram(what=f"output 0 of {FAULT}{nasty}", size=40, every=3, same=9, odd=1, scale=0.5, first=-20, counts=[1, 0, 29]),
            Histogram(what="output 0 of the model", size=4, every=1, same=4, odd=0, scale=0.5, first=0, counts=[]),
        ],
        versions={"torch": f"2.13{nasty}"}, command=f"tipchain locate case.yaml{nasty}",
        origin={**ORIGIN, "port": f"nets.port.Net{nasty}"},
    )  # fmt: skip
