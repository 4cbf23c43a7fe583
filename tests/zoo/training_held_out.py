"""Faults of trainings, written down with their causes before anything was run on them; and equal trainings.

Each is a small pair of equal models whose port has one thing wrong in its loss, optimizer or schedule. The codes are
those that name what was done, whatever else a report says after them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import paddle
import torch
from paddle.nn import functional as PF  # noqa: N812
from torch.nn import functional as TF  # noqa: N812

import tipchain
from zoo import judged
from zoo.pairs import Pair

RATE = 0.05
TO, PO = torch.optim, paddle.optimizer
TS, PS = torch.optim.lr_scheduler, paddle.optimizer.lr
LOSS, OPTIMIZER, SCHEDULER = "loss", "optimizer", "scheduler"
KINDS = ("setting", "parting")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """One pair.

    Attributes:
        part: the piece at fault: ``loss``, ``optimizer`` or ``scheduler``.
        ours: torch's builder of it, or its loss.
        theirs: Paddle's.
        codes: the causes that are right; none: the two are equal.
        says: what the cause's message must have.
        shape: sizes of the model's output, of each where there are several.
        labels: what the losses are given, of random numbers; integers by class without it.
        frozen: the reference's first layer is frozen, the port's is not.
    """

    part: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    codes: tuple[str, ...] = ()
    says: str = ""
    shape: tuple[int, ...] = (5,)
    labels: Callable[[np.random.Generator, int, int], Any] | None = None
    frozen: bool = False


class TorchNet(torch.nn.Module):
    """A perceptron with a normalization, and a head for each output."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.stem, self.norm = torch.nn.Linear(6, 16), torch.nn.LayerNorm(16)
        self.heads = torch.nn.ModuleList(torch.nn.Linear(16, size) for size in sizes)

    def forward(self, rows: Any) -> Any:
        hidden = torch.relu(self.norm(self.stem(rows)))
        found = tuple(head(hidden) for head in self.heads)
        return found if len(found) > 1 else found[0]


class PaddleNet(paddle.nn.Layer):
    """The same."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.stem, self.norm = paddle.nn.Linear(6, 16), paddle.nn.LayerNorm(16)
        self.heads = paddle.nn.LayerList([paddle.nn.Linear(16, size) for size in sizes])

    def forward(self, rows: Any) -> Any:
        hidden = PF.relu(self.norm(self.stem(rows)))
        found = tuple(head(hidden) for head in self.heads)
        return found if len(found) > 1 else found[0]


def align(one: HeldOut) -> Any:
    """Return the report of a pair."""
    return judged.align(planted(one))


def planted(one: HeldOut) -> Pair:
    """Return the models, and what they are trained with."""
    torch.manual_seed(0)
    reference, port = TorchNet(one.shape), PaddleNet(one.shape)
    tipchain.copy_weights(reference, port)
    if one.frozen:
        reference.stem.requires_grad_(False)
    random = np.random.default_rng(3)
    rows = random.standard_normal((12, 6)).astype(np.float32)
    labels = random.integers(0, one.shape[0], 12) if one.labels is None else one.labels(random, 12, one.shape[0])
    pieces: dict[str, Any] = {
        "loss": (TF.cross_entropy, PF.cross_entropy),
        "optimizers": (partial(_sgd, momentum=0.9), partial(_momentum)),
    }
    if one.part == LOSS:
        pieces["loss"] = one.ours, one.theirs
    elif one.part == OPTIMIZER:
        pieces["optimizers"] = one.ours, one.theirs
    else:
        pieces["schedulers"] = one.ours, one.theirs
    return Pair(reference=reference, port=port, inputs={"args": rows, "labels": labels}, **pieces)


def _sgd(parameters: Any, **options: Any) -> Any:
    return TO.SGD(parameters, lr=RATE, **options)


def _momentum(parameters: Any, learning_rate: Any = RATE, **options: Any) -> Any:
    return PO.Momentum(learning_rate, 0.9, parameters=list(parameters), **options)


def _ours(kind: str, **options: Any) -> Callable[..., Any]:
    return lambda parameters: getattr(TO, kind)(parameters, **{"lr": RATE, **options})


def _theirs(kind: str, rate: float = RATE, **options: Any) -> Callable[..., Any]:
    return lambda parameters: getattr(PO, kind)(rate, parameters=list(parameters), **options)


def _without_vectors(kind: str, *, decay: float, **options: Any) -> Callable[..., Any]:
    """Return torch's optimizer that decays matrices alone."""

    def build(parameters: Any) -> Any:
        given = list(parameters)
        groups = [
            {"params": [one for one in given if one.ndim > 1], "weight_decay": decay},
            {"params": [one for one in given if one.ndim <= 1], "weight_decay": 0.0},
        ]
        return getattr(TO, kind)(groups, lr=RATE, **options)

    return build


def _head_faster(parameters: Any) -> Any:
    given = list(parameters)
    return TO.SGD([{"params": given[:-2]}, {"params": given[-2:], "lr": RATE * 10}], lr=RATE, momentum=0.9)


def _slower(parameters: Any) -> Any:
    """Return momentum with a factor of the rate that one parameter's attributes have."""
    given = list(parameters)
    given[0].optimize_attr["learning_rate"] = 0.1
    return PO.Momentum(RATE, 0.9, parameters=given)


def _regularized(parameters: Any) -> Any:
    given = list(parameters)
    for one in given:
        one.regularizer = paddle.regularizer.L2Decay(0.02) if one.ndim > 1 else None
    return PO.Momentum(RATE, 0.9, parameters=given)


class _Own(PO.Optimizer):  # type: ignore[misc]
    """An optimizer of Paddle that is written by hand: ``rule(parameter, gradient, state, rate)`` returns the step."""

    def __init__(self, parameters: Any, rule: Callable[..., Any], rate: Any = RATE) -> None:
        super().__init__(rate, list(parameters))
        self.rule, self.states = rule, dict[str, dict[str, Any]]()

    @paddle.no_grad()
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        for one in (one for one in self._parameter_list if one.grad is not None):
            state = self.states.setdefault(one.name, {"t": 0, "m": 0.0 * one, "v": 0.0 * one})
            state["t"] += 1
            one.set_value(one - self.rule(one, one.grad, state, self.get_lr()))


def _own(rule: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return lambda parameters: _Own(parameters, partial(rule, **options))


def _adamw(
    value: Any,
    gradient: Any,
    state: Any,
    rate: float,
    *,
    correct: bool = True,
    by_rate: bool = True,
    decay: float = 0.05,
) -> Any:
    state["m"] = 0.9 * state["m"] + 0.1 * gradient
    state["v"] = 0.999 * state["v"] + 0.001 * gradient * gradient
    one, two = (1 - 0.9 ** state["t"], 1 - 0.999 ** state["t"]) if correct else (1.0, 1.0)
    step = rate / one * state["m"] / ((state["v"] / two).sqrt() + 1e-8)
    return step + (rate if by_rate else 1.0) * decay * value


def _averaged(value: Any, gradient: Any, state: Any, rate: float) -> Any:
    """Return the step of a momentum that is a moving average."""
    state["m"] = 0.9 * state["m"] + 0.1 * gradient
    return rate * state["m"]


def _shared(value: Any, gradient: Any, state: Any, rate: float, *, share: float, decay: float) -> Any:
    """Return the step of a momentum whose gradients are a share of what they should be."""
    state["m"] = 0.9 * state["m"] + share * gradient + decay * value
    return rate * state["m"]


class _ClearedLate(PO.Momentum):  # type: ignore[misc]
    """Momentum that clears its gradients at every other step."""

    times = 0

    def clear_grad(self, set_to_zero: bool = True) -> None:
        self.times += 1
        if self.times % 2 == 0:
            super().clear_grad(set_to_zero)


class _TorchLamb(TO.Optimizer):
    """LAMB (You et al., arXiv:1904.00962) as it is written for torch: the moments are corrected."""

    def __init__(self, parameters: Any, decay: float) -> None:
        super().__init__(parameters, {"lr": RATE, "weight_decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for one in group["params"]:
                state = self.state[one]
                state["t"] = state.get("t", 0) + 1
                state["m"] = 0.9 * state.get("m", 0.0) + 0.1 * one.grad
                state["v"] = 0.999 * state.get("v", 0.0) + 0.001 * one.grad**2
                root = (state["v"] / (1 - 0.999 ** state["t"])).sqrt() + 1e-6
                step = state["m"] / (1 - 0.9 ** state["t"]) / root + group["weight_decay"] * one
                sizes = one.norm(), step.norm()
                trust = float(sizes[0] / sizes[1]) if sizes[0] > 0 and sizes[1] > 0 else 1.0
                one.sub_(group["lr"] * trust * step)


def _clipped(parameters: Any, limit: float) -> Any:
    given = list(parameters)
    made = TO.AdamW(given, lr=RATE)

    def clip(*_: Any) -> None:
        torch.nn.utils.clip_grad_norm_(given, limit)

    made.register_step_pre_hook(clip)
    return made


def _each_clipped(parameters: Any) -> Any:
    given = list(parameters)
    made = TO.SGD(given, lr=RATE)

    def clip(*_: Any) -> None:
        for one in given:
            torch.nn.utils.clip_grad_norm_([one], 0.1)

    made.register_step_pre_hook(clip)
    return made


def _update(ours: Any, theirs: Any, says: str = "", **options: Any) -> HeldOut:
    return HeldOut(part=OPTIMIZER, ours=ours, theirs=theirs, codes=KINDS, says=says, **options)


MOMENTUM = _ours("SGD", momentum=0.9), _theirs("Momentum", momentum=0.9)
OPTIMIZERS: Mapping[str, HeldOut] = {
    "adamw-betas-swapped": _update(_ours("AdamW"), _theirs("AdamW", beta1=0.999, beta2=0.9), "`beta1`"),
    "adamw-no-correction": _update(_ours("AdamW", weight_decay=0.05), _own(_adamw, correct=False), "parts at update"),
    "adamw-decay-without-rate": _update(
        _ours("AdamW", weight_decay=0.05), _own(_adamw, by_rate=False), "parts at update"
    ),
    "adamw-decays-vectors": _update(
        _without_vectors("AdamW", decay=0.1), _theirs("AdamW", weight_decay=0.1), "`weight_decay`"
    ),
    "adamw-spares-vectors": _update(
        _ours("AdamW", weight_decay=0.1),
        lambda parameters: PO.AdamW(
            RATE,
            parameters=(given := list(parameters)),
            weight_decay=0.1,
            apply_decay_param_fun={one.name for one in given if one.ndim > 1}.__contains__,
        ),
        "`weight_decay`",
    ),
    "adam-for-adamw": _update(_ours("AdamW"), _theirs("Adam"), "`weight_decay`"),
    "adamw-for-adam": _update(_ours("Adam"), _theirs("AdamW"), "`weight_decay`"),
    "adam-epsilon-large": _update(_ours("Adam"), _theirs("Adam", epsilon=1e-3), "`epsilon`"),
    "adam-amsgrad-missing": _update(_ours("Adam", amsgrad=True), _theirs("Adam"), "`amsgrad`"),
    "adamax-for-adam": _update(_ours("Adam"), _theirs("Adamax"), "is Adamax, the reference's Adam"),
    "adamax-beta2": _update(_ours("Adamax"), _theirs("Adamax", beta2=0.99), "`beta2`"),
    "adagrad-rate-decay": _update(_ours("Adagrad", lr_decay=0.1, eps=1e-6), _theirs("Adagrad"), "`lr_decay`"),
    "adadelta-rho": _update(_ours("Adadelta"), _theirs("Adadelta", rho=0.95, epsilon=1e-6), "`rho`"),
    "rmsprop-alpha": _update(_ours("RMSprop", alpha=0.99), _theirs("RMSProp", rho=0.9, epsilon=1e-16), "`rho`"),
    "rmsprop-no-momentum": _update(
        _ours("RMSprop", alpha=0.95, momentum=0.9), _theirs("RMSProp", rho=0.95, epsilon=1e-16), "`momentum`"
    ),
    "rmsprop-uncentered-decayed": _update(
        _ours("RMSprop", alpha=0.9, centered=True, weight_decay=0.01),
        _theirs("RMSProp", rho=0.9, epsilon=1e-16, weight_decay=0.01),
        "`centered`",
    ),
    "nadam-momentum-decay": _update(_ours("NAdam"), _theirs("NAdam", momentum_decay=0.04), "`momentum_decay`"),
    "nadam-beta1": _update(_ours("NAdam"), _theirs("NAdam", beta1=0.8), "`beta1`"),
    "radam-beta2": _update(_ours("RAdam"), _theirs("RAdam", beta2=0.99), "`beta2`"),
    "radam-for-adam": _update(_ours("Adam"), _theirs("RAdam"), "is RAdam, the reference's Adam"),
    "nadam-for-adam": _update(_ours("Adam"), _theirs("NAdam"), "is NAdam, the reference's Adam"),
    "lamb-decay": _update(
        lambda parameters: _TorchLamb(parameters, 0.1), _theirs("Lamb", lamb_weight_decay=0.01), "`lamb_weight_decay`"
    ),
    "head-as-slow-as-the-rest": _update(_head_faster, MOMENTUM[1], "`learning_rate`"),
    "a-slower-layer": _update(MOMENTUM[0], _slower, "`learning_rate`"),
    "decay-by-attribute": _update(MOMENTUM[0], _regularized, "`weight_decay`"),
    "nesterov-and-decay": _update(
        _ours("SGD", momentum=0.9, nesterov=True, weight_decay=0.01),
        _theirs("Momentum", momentum=0.9, weight_decay=0.01),
        "`use_nesterov`",
    ),
    # From zero on, a momentum that averages is one of a tenth of the rate.
    "averaged-momentum": _update(MOMENTUM[0], _own(_averaged), "parts at update"),
    "gradients-of-a-quarter": _update(
        _ours("SGD", momentum=0.9, weight_decay=0.05), _own(_shared, share=0.25, decay=0.05), "parts at update"
    ),
    "cleared-every-other-step": _update(
        MOMENTUM[0], lambda parameters: _ClearedLate(RATE, 0.9, parameters=list(parameters)), "parts at update"
    ),
    "uphill": _update(MOMENTUM[0], _own(_shared, share=-1.0, decay=0.0), "parts at update"),
    "not-frozen": _update(*MOMENTUM, "the port alone updates", frozen=True),
    "clips-each-adamw": _update(
        partial(_clipped, limit=1.0), _theirs("AdamW", grad_clip=paddle.nn.ClipGradByNorm(1.0)), "gradients are clipped"
    ),
    "clips-at-five": _update(
        partial(_clipped, limit=1.0),
        _theirs("AdamW", grad_clip=paddle.nn.ClipGradByGlobalNorm(5.0)),
        "gradients are clipped",
    ),
    "clips-never": _update(partial(_clipped, limit=1.0), _theirs("AdamW"), "gradients are clipped"),
    "clips-by-value-too": _update(
        _ours("Adam"), _theirs("Adam", grad_clip=paddle.nn.ClipGradByValue(0.5)), "gradients are clipped"
    ),
}


def _schedule(ours: Any, theirs: Any, says: str = "") -> HeldOut:
    return HeldOut(part=SCHEDULER, ours=ours, theirs=theirs, codes=KINDS, says=says)


def _rates(kind: str, *args: Any, **options: Any) -> Callable[..., Any]:
    return lambda optimizer: getattr(TS, kind)(optimizer, *args, **options)


def _by(share: Callable[[int], float]) -> Callable[..., Any]:
    return lambda optimizer: TS.LambdaLR(optimizer, share)


def _decays(kind: str, *args: Any, **options: Any) -> Callable[..., Any]:
    return lambda: getattr(PS, kind)(*args, **options)


def _their_by(share: Callable[[int], float]) -> Callable[..., Any]:
    return lambda: PS.LambdaDecay(RATE, share)


def _warm(steps: int, start: float, main: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return torch's schedule after a linear warm-up."""

    def build(optimizer: Any) -> Any:
        rise = TS.LinearLR(optimizer, start, total_iters=steps)
        return TS.SequentialLR(optimizer, [rise, main(optimizer)], [steps])

    return build


def _their_warm(steps: int, start: float, main: Callable[[], Any]) -> Callable[..., Any]:
    return lambda: PS.LinearWarmup(main(), steps, start * RATE, RATE)


def _noam(warmup: int, size: int = 64) -> Callable[[int], float]:
    def share(step: int) -> float:
        return 0.0 if not step else size**-0.5 * min(step**-0.5, step * warmup**-1.5)

    return share


def _wave(step: int, length: int = 60) -> float:
    return (1 + math.cos(math.pi * min(step, length) / length)) / 2


COSINE = _rates("CosineAnnealingLR", 60)
PLATEAU = _rates("ReduceLROnPlateau", factor=0.5, patience=3)
TRIANGLE = partial(_rates, "CyclicLR", base_lr=RATE / 10, max_lr=RATE, cycle_momentum=False)
THEIR_TRIANGLE = partial(_decays, "CyclicLR", RATE / 10, RATE)
RESTARTS = _rates("CosineAnnealingWarmRestarts", 10, 2)
SCHEDULERS: Mapping[str, HeldOut] = {
    "cosine-in-epochs": _schedule(COSINE, _decays("CosineAnnealingDecay", RATE, 6), "`T_max`"),
    "cosine-floor-missing": _schedule(
        _rates("CosineAnnealingLR", 60, RATE / 100), _decays("CosineAnnealingDecay", RATE, 60), "`eta_min`"
    ),
    "linear-for-cosine": _schedule(COSINE, _decays("PolynomialDecay", RATE, 60, 0.0, 1.0), "PolynomialDecay"),
    "poly-power": _schedule(_rates("PolynomialLR", 60, 0.9), _decays("PolynomialDecay", RATE, 60, 0.0, 1.0), "`power`"),
    "poly-floor": _schedule(
        _rates("PolynomialLR", 60, 0.9), _decays("PolynomialDecay", RATE, 60, 1e-4, 0.9), "`end_lr`"
    ),
    "multistep-gamma": _schedule(
        _rates("MultiStepLR", [20, 40], 0.2), _decays("MultiStepDecay", RATE, [20, 40]), "`gamma`"
    ),
    "multistep-milestones": _schedule(
        _rates("MultiStepLR", [20, 40, 50]), _decays("MultiStepDecay", RATE, [20, 40]), "`milestones`"
    ),
    "piecewise-values": _schedule(
        _rates("MultiStepLR", [20, 40]),
        _decays("PiecewiseDecay", [20, 40], [RATE, RATE * 0.1, RATE * 0.05]),
        "PiecewiseDecay",
    ),
    "piecewise-boundary-late": _schedule(
        _rates("MultiStepLR", [20, 40]),
        _decays("PiecewiseDecay", [21, 41], [RATE, RATE * 0.1, RATE * 0.01]),
        "PiecewiseDecay",
    ),
    "step-never": _schedule(_rates("StepLR", 3), _decays("StepDecay", RATE, 10_000), "`step_size`"),
    "exponential-gamma": _schedule(_rates("ExponentialLR", 0.97), _decays("ExponentialDecay", RATE, 0.9), "`gamma`"),
    "natural-exponential": _schedule(
        _rates("ExponentialLR", 0.9), _decays("NaturalExpDecay", RATE, 0.1), "NaturalExpDecay"
    ),
    "inverse-time": _schedule(
        _by(lambda step: 1 / (1 + 0.1 * step)), _decays("InverseTimeDecay", RATE, 0.2), "InverseTimeDecay"
    ),
    "warmup-half": _schedule(
        _warm(10, 0.1, COSINE), _their_warm(5, 0.1, _decays("CosineAnnealingDecay", RATE, 60)), "`warmup_steps`"
    ),
    "warmup-start": _schedule(
        _warm(10, 0.1, COSINE), _their_warm(10, 0.001, _decays("CosineAnnealingDecay", RATE, 60)), "`start_lr`"
    ),
    "warmup-missing-step": _schedule(_warm(10, 0.1, _rates("StepLR", 20)), _decays("StepDecay", RATE, 20), "StepDecay"),
    "warmup-too-many": _schedule(
        _rates("MultiStepLR", [20, 40]), _their_warm(5, 0.1, _decays("MultiStepDecay", RATE, [20, 40])), "LinearWarmup"
    ),
    "warmup-counted": _schedule(
        _warm(10, 0.1, COSINE), _their_by(lambda step: 0.1 + 0.09 * step if step < 10 else _wave(step)), "LambdaDecay"
    ),
    "noam-warmup": _schedule(_by(_noam(30)), _decays("NoamDecay", 64, 60, RATE), "NoamDecay"),
    "noam-size": _schedule(_by(_noam(30)), _decays("NoamDecay", 256, 30, RATE), "NoamDecay"),
    "plateau-patience": _schedule(PLATEAU, _decays("ReduceOnPlateau", RATE, factor=0.5, patience=6), "`patience`"),
    "plateau-factor": _schedule(PLATEAU, _decays("ReduceOnPlateau", RATE, factor=0.1, patience=3), "`factor`"),
    "one-cycle-peak": _schedule(
        _rates("OneCycleLR", RATE, 60, cycle_momentum=False),
        _decays("OneCycleLR", RATE * 2, 60, 25.0, RATE * 2 / 25 / 1e4),
        "`max_learning_rate`",
    ),
    "one-cycle-start": _schedule(
        _rates("OneCycleLR", RATE, 60, cycle_momentum=False),
        _decays("OneCycleLR", RATE, 60, 10.0, RATE / 25 / 1e4),
        "`divide_factor`",
    ),
    "one-cycle-end": _schedule(
        _rates("OneCycleLR", RATE, 60, cycle_momentum=False),
        _decays("OneCycleLR", RATE, 60, 25.0, 1e-4),
        "`end_learning_rate`",
    ),
    "one-cycle-linear": _schedule(
        _rates("OneCycleLR", RATE, 60, cycle_momentum=False),
        _decays("OneCycleLR", RATE, 60, 25.0, RATE / 25 / 1e4, anneal_strategy="linear"),
        "`anneal_strategy`",
    ),
    "restarts-period": _schedule(RESTARTS, _decays("CosineAnnealingWarmRestarts", RATE, 20, 2), "`T_0`"),
    "restarts-never": _schedule(RESTARTS, _decays("CosineAnnealingDecay", RATE, 10), "CosineAnnealingDecay"),
    "restarts-alike": _schedule(RESTARTS, _decays("CosineAnnealingWarmRestarts", RATE, 10, 1), "`T_mult`"),
    "cycle-length": _schedule(TRIANGLE(step_size_up=10), THEIR_TRIANGLE(20), "`step_size_up`"),
    "cycle-halved": _schedule(TRIANGLE(step_size_up=10), THEIR_TRIANGLE(10, mode="triangular2"), "`mode`"),
    "once-an-epoch": _schedule(
        _by(lambda step: 0.98**step), _their_by(lambda step: 0.98 ** (step // 8)), "LambdaDecay"
    ),
    "once-a-batch": _schedule(_by(lambda step: 0.9 ** (step // 8)), _their_by(lambda step: 0.9**step), "LambdaDecay"),
    "late-by-five": _schedule(COSINE, _their_by(lambda step: _wave(max(step - 5, 0))), "LambdaDecay"),
    "constant": _schedule(COSINE, _their_by(lambda _: 1.0), "LambdaDecay"),
    "not-constant": _schedule(_by(lambda _: 1.0), _decays("CosineAnnealingDecay", RATE, 60), "CosineAnnealingDecay"),
    "other-rate": _schedule(
        _rates("MultiStepLR", [20, 40]), _decays("MultiStepDecay", RATE / 4, [20, 40]), "`learning_rate`"
    ),
}


def _loss(ours: Any, theirs: Any, *codes: str, **options: Any) -> HeldOut:
    return HeldOut(part=LOSS, ours=ours, theirs=theirs, codes=codes, **options)


def _real(random: np.random.Generator, rows: int, size: int) -> Any:
    return random.standard_normal((rows, size)).astype(np.float32)


def _share(random: np.random.Generator, rows: int, size: int) -> Any:
    found = random.random((rows, size)).astype(np.float32)
    return found / found.sum(axis=1, keepdims=True)


def _bits(random: np.random.Generator, rows: int, size: int) -> Any:
    return (random.random((rows, size)) < 0.4).astype(np.float32)


def _counts(random: np.random.Generator, rows: int, size: int) -> Any:
    return random.integers(0, 6, (rows, size)).astype(np.float32)


def _signs(random: np.random.Generator, rows: int, size: int) -> Any:
    return np.where(random.random(rows) < 0.5, 1.0, -1.0).astype(np.float32)


def _logs(random: np.random.Generator, rows: int, size: int) -> Any:
    return np.log(_share(random, rows, size))


def _our_focal(output: Any, labels: Any, alpha: float = 0.25, gamma: float = 2.0) -> Any:
    """Return the focal loss (Lin et al., arXiv:1708.02002) as torchvision has it."""
    chance = torch.sigmoid(output)
    entropy = TF.binary_cross_entropy_with_logits(output, labels, reduction="none")
    right = chance * labels + (1 - chance) * (1 - labels)
    return ((alpha * labels + (1 - alpha) * (1 - labels)) * (1 - right) ** gamma * entropy).mean()


def _their_focal(output: Any, labels: Any, **options: Any) -> Any:
    return PF.sigmoid_focal_loss(output, labels, reduction="mean", **options)


def _hard_focal(output: Any, labels: Any, gamma: float = 2.0) -> Any:
    right = TF.softmax(output, 1).gather(1, labels[:, None])
    return -((1 - right) ** gamma * right.log()).mean()


def _our_dice(output: Any, labels: Any, smooth: float = 1.0) -> Any:
    """Return the soft Dice loss (Milletari et al., arXiv:1606.04797)."""
    chance = torch.sigmoid(output)
    return 1 - (2 * (chance * labels).sum() + smooth) / (chance.sum() + labels.sum() + smooth)


def _their_dice(output: Any, labels: Any, smooth: float = 1.0) -> Any:
    chance = PF.sigmoid(output)
    return 1 - (2 * (chance * labels).sum() + smooth) / (chance.sum() + labels.sum() + smooth)


def _our_triplet(output: Any, _: Any, margin: float = 0.3) -> Any:
    return TF.triplet_margin_loss(*output, margin=margin)


def _their_triplet(output: Any, _: Any, margin: float = 0.3, **options: Any) -> Any:
    return PF.triplet_margin_loss(*output, margin=margin, **options)


def _squared_triplet(output: Any, _: Any) -> Any:
    near, far = (((output[0] - one) ** 2).sum(1) for one in output[1:])
    return PF.relu(near - far + 0.3).mean()


def _distilled(framework: Any, functional: Any, scale: float, heat: float = 4.0) -> Callable[..., Any]:
    """Return a distillation (Hinton et al., arXiv:1503.02531): the divergence of softened outputs."""

    def loss(output: Any, labels: Any) -> Any:
        logs, chances = functional.log_softmax(output / heat, 1), labels
        return functional.kl_div(logs, chances, reduction="batchmean") * scale

    return loss


THREE = {"shape": (8, 8, 8)}
PAIR = {"shape": (8, 8), "labels": _signs}
LOSSES: Mapping[str, HeldOut] = {
    "smoothing-missing": _loss(
        partial(TF.cross_entropy, label_smoothing=0.1), PF.cross_entropy, "label-smoothing"
    ),
    "smoothing-by-others": _loss(
        partial(TF.cross_entropy, label_smoothing=0.1),
        lambda output, labels: PF.cross_entropy(
            output, PF.one_hot(labels, 5) * (0.9 - 0.1 / 4) + 0.1 / 4, soft_label=True
        ),
        "label-smoothing", "extra-term",
    ),
    "class-weights-turned": _loss(
        lambda output, labels: TF.cross_entropy(output, labels, weight=torch.linspace(0.5, 1.5, 5, dtype=output.dtype)),
        lambda output, labels: PF.cross_entropy(
            output, labels, weight=paddle.linspace(1.5, 0.5, 5).astype(output.dtype)
        ),
        "class-weights", "position-table",
    ),
    "binary-batch-mean": _loss(
        TF.binary_cross_entropy_with_logits,
        lambda output, labels: PF.binary_cross_entropy_with_logits(output, labels, reduction="sum") / 12,
        "scale-factor", labels=_bits,
    ),
    "binary-positive-weight": _loss(
        lambda output, labels: TF.binary_cross_entropy_with_logits(
            output, labels, pos_weight=torch.tensor(3.0, dtype=output.dtype)
        ),
        PF.binary_cross_entropy_with_logits, "missing-pos-weight", labels=_bits,
    ),
    "binary-for-softmax": _loss(
        TF.cross_entropy,
        lambda output, labels: PF.binary_cross_entropy_with_logits(output, PF.one_hot(labels, 5).astype(output.dtype)),
        "other-code",
    ),
    "huber-delta": _loss(
        partial(TF.huber_loss, delta=0.5), partial(PF.smooth_l1_loss, delta=1.0), "other-code", labels=_real
    ),
    "squared-halved": _loss(
        TF.mse_loss, lambda output, labels: 0.5 * PF.mse_loss(output, labels), "scale-factor", labels=_real
    ),
    "root-missing": _loss(
        lambda output, labels: TF.mse_loss(output, labels).sqrt(), PF.mse_loss, "missing-root", "missing-function", "pooling",
        labels=_real,
    ),
    "triplet-margin": _loss(_our_triplet, partial(_their_triplet, margin=1.0), "margin", **THREE),
    "triplet-squared": _loss(_our_triplet, _squared_triplet, "distance", "loss-type", "other-activation", **THREE),
    "triplet-swapped": _loss(
        _our_triplet, lambda output, _: _their_triplet((output[0], output[2], output[1]), None),
        "output-order", "other-code", **THREE,
    ),
    "cosine-margin": _loss(
        lambda output, labels: TF.cosine_embedding_loss(*output, labels, margin=0.5),
        lambda output, labels: PF.cosine_embedding_loss(*output, labels), "margin", **PAIR,
    ),
    "ranking-margin": _loss(
        lambda output, labels: TF.margin_ranking_loss(output[0][:, 0], output[1][:, 0], labels, margin=0.5),
        lambda output, labels: PF.margin_ranking_loss(output[0][:, 0], output[1][:, 0], labels), "margin", **PAIR,
    ),
    "hinge-margin": _loss(
        lambda output, labels: TF.multi_margin_loss(output, labels, margin=1.0),
        lambda output, labels: PF.multi_margin_loss(output, labels, margin=0.5), "margin",
    ),
    "focal-gamma": _loss(_our_focal, partial(_their_focal, gamma=1.0), "other-activation", labels=_bits),
    "focal-alpha": _loss(_our_focal, partial(_their_focal, alpha=0.75), "other-activation", labels=_bits),
    "focal-missing": _loss(_hard_focal, PF.cross_entropy, "wrong-index"),
    "dice-smooth": _loss(_our_dice, partial(_their_dice, smooth=1e-5), "missing-term", "epsilon", labels=_bits),
    "poisson-log-input": _loss(
        TF.poisson_nll_loss,
        lambda output, labels: PF.poisson_nll_loss(output.exp(), labels), "extra-step", "log-input", labels=_counts,
    ),
    "divergence-of-logs": _loss(
        lambda output, labels: TF.kl_div(output.log_softmax(1), labels, reduction="batchmean", log_target=True),
        lambda output, labels: PF.kl_div(PF.log_softmax(output, 1), labels, reduction="batchmean"),
        "log-target", labels=_logs,
    ),
    "divergence-unsoftened": _loss(
        lambda output, labels: TF.kl_div((output / 4).log_softmax(1), labels, reduction="batchmean") * 16,
        lambda output, labels: PF.kl_div(PF.log_softmax(output, 1), labels, reduction="batchmean") * 16,
        "scale-factor", labels=_share,
    ),
    "divergence-scale": _loss(
        _distilled(torch, TF, 16.0), _distilled(paddle, PF, 1.0), "scale-factor", "reduction", labels=_share
    ),
    "signs-for-bits": _loss(
        lambda output, labels: TF.soft_margin_loss(output, 2 * labels - 1),
        PF.soft_margin_loss, "missing-term", labels=_bits,
    ),
    "second-head-detached": _loss(
        lambda output, labels: TF.cross_entropy(output[0], labels) + 0.4 * TF.cross_entropy(output[1], labels),
        lambda output, labels: PF.cross_entropy(output[0], labels) + 0.4 * PF.cross_entropy(output[1].detach(), labels),
        "stop-gradient", shape=(5, 5),
    ),
    "first-head-twice": _loss(
        lambda output, labels: TF.cross_entropy(output[0], labels) + 0.4 * TF.cross_entropy(output[1], labels),
        lambda output, labels: PF.cross_entropy(output[0], labels) + 0.4 * PF.cross_entropy(output[0], labels),
        "missing-term", "output-order", shape=(5, 5),
    ),
    "log-of-ten": _loss(
        lambda output, labels: TF.nll_loss(output.log_softmax(1), labels),
        lambda output, labels: PF.nll_loss(PF.log_softmax(output, 1) / math.log(10), labels), "scale-factor",
    ),
    "probabilities-for-logits": _loss(
        TF.cross_entropy, lambda output, labels: PF.nll_loss(PF.softmax(output), labels), "other-activation", "logits",
    ),
}  # fmt: skip


HELD_OUT: Mapping[str, HeldOut] = {
    **{f"optimizer-{name}": one for name, one in OPTIMIZERS.items()},
    **{f"scheduler-{name}": one for name, one in SCHEDULERS.items()},
    **{f"loss-{name}": one for name, one in LOSSES.items()},
}

EQUAL: Mapping[str, HeldOut] = {
    "nadam": _update(_ours("NAdam"), _theirs("NAdam")),
    "radam": _update(_ours("RAdam"), _theirs("RAdam")),
    "rmsprop": _update(_ours("RMSprop", alpha=0.9), _theirs("RMSProp", rho=0.9, epsilon=1e-16)),
    "adamw-by-hand": _update(_ours("AdamW", weight_decay=0.05), _own(_adamw)),
    "adamw-spares-vectors": _update(
        _without_vectors("AdamW", decay=0.1),
        lambda parameters: PO.AdamW(
            RATE,
            parameters=(given := list(parameters)),
            weight_decay=0.1,
            apply_decay_param_fun={one.name for one in given if one.ndim > 1}.__contains__,
        ),
    ),
    "clips-adamw": _update(
        partial(_clipped, limit=1.0), _theirs("AdamW", grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))
    ),
    "clips-each": _update(_each_clipped, _theirs("SGD", grad_clip=paddle.nn.ClipGradByNorm(0.1))),
    "adadelta": _update(_ours("Adadelta"), _theirs("Adadelta", rho=0.9, epsilon=1e-6)),
    "noam": _schedule(_by(_noam(30)), _decays("NoamDecay", 64, 30, RATE)),
    "restarts": _schedule(RESTARTS, _decays("CosineAnnealingWarmRestarts", RATE, 10, 2)),
    "cycle": _schedule(TRIANGLE(step_size_up=10), THEIR_TRIANGLE(10)),
    "cycle-halved": _schedule(TRIANGLE(step_size_up=10, mode="triangular2"), THEIR_TRIANGLE(10, mode="triangular2")),
    "plateau": _schedule(PLATEAU, _decays("ReduceOnPlateau", RATE, factor=0.5, patience=3)),
    "natural-exponential": _schedule(_rates("ExponentialLR", math.exp(-0.1)), _decays("NaturalExpDecay", RATE, 0.1)),
    "inverse-time": _schedule(_by(lambda step: 1 / (1 + 0.1 * step)), _decays("InverseTimeDecay", RATE, 0.1)),
    "piecewise": _schedule(
        _rates("MultiStepLR", [20, 40]), _decays("PiecewiseDecay", [20, 40], [RATE, RATE * 0.1, RATE * 0.01])
    ),
    "warm-then-cosine": _schedule(
        _warm(10, 0.1, COSINE), _their_warm(10, 0.1, _decays("CosineAnnealingDecay", RATE, 60))
    ),
    "triplet": _loss(_our_triplet, _their_triplet, **THREE),
    "cosine-margin": _loss(
        lambda output, labels: TF.cosine_embedding_loss(*output, labels, margin=0.5),
        lambda output, labels: PF.cosine_embedding_loss(*output, labels, margin=0.5),
        **PAIR,
    ),
    "hinge": _loss(TF.multi_margin_loss, PF.multi_margin_loss),
    "focal": _loss(_our_focal, _their_focal, labels=_bits),
    "dice": _loss(_our_dice, _their_dice, labels=_bits),
    "poisson": _loss(TF.poisson_nll_loss, PF.poisson_nll_loss, labels=_counts),
    "divergence-of-logs": _loss(
        lambda output, labels: TF.kl_div(output.log_softmax(1), labels, reduction="batchmean", log_target=True),
        lambda output, labels: PF.kl_div(PF.log_softmax(output, 1), labels, reduction="batchmean", log_target=True),
        labels=_logs,
    ),
    "huber": _loss(partial(TF.huber_loss, delta=0.5), partial(PF.smooth_l1_loss, delta=0.5), labels=_real),
}
"""Pairs that are equal: they must pass."""
