"""Faults that porters make, and what a fair judge expects to be told of each: written before any was run.

A cause is right if its code, message or fix says one of the words; the layer, if it is one of the paths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from paddle import nn

from zoo.held_out import tokens_paddle
from zoo.held_out.families import SECOND_LOSSES, SECOND_OPTIMIZERS, SECOND_SCHEDULERS, build
from zoo.pairs import EVAL, TRAIN, Pair, Plant, code, frozen, instead, setting, swapped, weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One fault, or two, in the port of a family.

    Attributes:
        id: a name.
        family: of `SECOND`.
        where: paths of the port that are right answers; ``loss``, ``optimizer``, ``scheduler``.
        words: a right cause says one of them.
        plant: changes the port.
        mode: ``"eval"`` or ``"train"``.
        loss, optimizer, scheduler: names of pairs.
        part: ``"layer"``, ``"loss"``, ``"optimizer"`` or ``"scheduler"``.
    """

    id: str
    family: str
    where: tuple[str, ...]
    words: tuple[str, ...]
    plant: tuple[Plant, ...] = ()
    mode: str = EVAL
    loss: str = ""
    optimizer: str = ""
    scheduler: str = ""
    part: str = "layer"

    @property
    def codes(self) -> tuple[str, ...]:
        """The words, by the name that the first zoo has for them."""
        return self.words

    def is_named(self, diagnosis: Any) -> bool:
        """Tell whether a diagnosis names the cause."""
        if diagnosis is None or diagnosis.code == "unknown":
            return False
        said = f"{diagnosis.code} {diagnosis.message} {diagnosis.fix}".lower().replace("_", " ").replace("-", " ")
        return any(word in said for word in self.words)


def planted_second(fault: Expected, seed: int = 0) -> Pair:
    """Return the pair of a fault, its port changed."""
    pair = build(fault.family, seed, training=fault.mode == TRAIN)
    for plant in fault.plant:
        plant(pair.port)
    if fault.part != "layer":
        pair.loss = SECOND_LOSSES[fault.loss or "ce"]
    if fault.part in ("optimizer", "scheduler"):
        pair.optimizers = SECOND_OPTIMIZERS[fault.optimizer or "sgd right"]
    if fault.scheduler:
        pair.schedulers = SECOND_SCHEDULERS[fault.scheduler]
    return pair


ARRANGED = ("transpos", "reshape", "permut", "order of axes", "perm", "layout")
ORDER = ("order", "swap", "permut", "concat", "revers", "exchang", "interchang")
FACTOR = ("scale", "factor", "times", "multipl", "constant")
ACTIVATION = ("activation", "relu", "function")
RESIDUAL = ("residual", "shortcut", "skip", "added", "sum", "addition")
MASK = ("mask",)
POSITION = ("position", "shift", "offset", "off by one", "parameter", "token", "slice", "index")
NORM = ("norm",)


def _in(
    path: str, fault: str, words: tuple[str, ...], *, family: str, also: tuple[str, ...] = (), **options: Any
) -> Expected:
    """A fault in the code of a layer's forward."""
    plain = f"{family}-{path.rpartition('.')[2] or 'net'}-{fault.replace(' ', '-')}"
    return Expected(id=plain, family=family, where=(path, *also), words=words, plant=(code(path, fault),), **options)


def _one(
    name: str,
    family: str,
    path: str,
    words: tuple[str, ...],
    plant: Plant,
    *,
    also: tuple[str, ...] = (),
    **options: Any,
) -> Expected:
    return Expected(id=name, family=family, where=(path, *also), words=words, plant=(plant,), **options)


def _training(name: str, part: str, words: tuple[str, ...], family: str = "shuffle", **options: Any) -> Expected:
    return Expected(id=name, family=family, where=(part,), words=words, part=part, mode=TRAIN, **options)


def _transposed(matrix: Any) -> Any:
    return matrix.T


def _turned(matrix: Any) -> Any:
    """torch's in by out memory read as out by in."""
    return matrix.T.reshape(matrix.shape)


def _gates(order: tuple[int, ...]) -> Callable[[Any], Any]:
    return lambda matrix: np.concatenate([np.split(matrix, len(order))[i] for i in order])


def _undilated(port: Any) -> None:
    """A block whose dilation was not passed on."""
    for name in ("conv1", "conv2"):
        instead(f"blocks.1.{name}", lambda: nn.Conv1D(6, 6, 3))(port)
    setting("blocks.1", {"reach": 2})(port)


class _Hidden(nn.Layer):
    """A port's activation that its porter left out."""

    def forward(self, x):
        return x


TOKEN_FAULTS = (
    _in("", "patches reshaped", ARRANGED, family="vit"),
    _in("", "token behind", (*ORDER, *POSITION), family="vit"),
    _in("", "positions off by one", POSITION, family="vit"),
    _in("", "token has no position", POSITION, family="vit"),
    _in("", "mean of tokens", ("mean", "token", "pool", "index", "slice"), family="vit", also=("head", "norm")),
    _in("", "no last norm", NORM, family="vit", also=("norm",)),
    _in("blocks.1.attn", "heads before qkv", (*ARRANGED, *ORDER, "qkv", "head"), family="vit"),
    _in("blocks.2.attn", "scale of all heads", FACTOR, family="vit"),
    _in("blocks.0.attn", "softmax over queries", ("softmax", "axis"), family="vit"),
    _in("blocks.2.attn", "heads not moved back", ARRANGED, family="vit"),
    _one("vit-epsilon-default", "vit", "blocks.2.norm2", ("epsilon",), setting("blocks.2.norm2", {"_epsilon": 1e-5})),
    _one("vit-gelu-tanh", "vit", "blocks.1.mlp", ("gelu", "approximate"), setting("blocks.1.mlp", {"approximate": True})),
    _one("vit-no-activation", "vit", "blocks.1.mlp", ("activation", "gelu"), code("blocks.1.mlp", "no activation")),
    _in("blocks.1", "residual after norm", (*RESIDUAL, *NORM), family="vit"),
    _in("blocks.0", "no second residual", RESIDUAL, family="vit"),
    _one("vit-square-projection", "vit", "blocks.0.attn.proj", ARRANGED, weight("blocks.0.attn.proj.weight", _transposed)),
    _one("vit-token-frozen", "vit", "", ("stop gradient", "frozen", "gradient", "trainable", "requires"), frozen("cls_token"), also=("cls_token",)),
    _in("stage1.1.attn", "index transposed", (*ARRANGED, "bias", "index"), family="swin"),
    _in("stage1.1", "mask forgotten", MASK, family="swin", also=("stage1.1.attn",)),
    _in("stage1.1", "rolled on", ("roll", "shift", "direction", *ORDER), family="swin"),
    _in("stage1.1", "not rolled back", ("roll", "shift", *ORDER), family="swin"),
    _in("stage1.0", "windows not put back", ARRANGED, family="swin"),
    _in("merge", "rows first", ORDER, family="swin"),
    _one("swin-merge-eps", "swin", "merge.norm", ("epsilon",), setting("merge.norm", {"_epsilon": 1e-6})),
    _in("h.1.attn", "sees one ahead", (*MASK, "causal", "diagonal"), family="gpt"),
    _in("h.0.attn", "no mask", (*MASK, "causal"), family="gpt"),
    _in("h.1.attn", "k q v", (*ORDER, "q, k", "query"), family="gpt"),
    _in("", "positions begin at one", POSITION, family="gpt", also=("wpe",)),
    _in("", "tie broken", ("tie", "shared", "gradient", "detach"), family="gpt", also=("wte",)),
    _one("gpt-exact-gelu", "gpt", "h.0.mlp", ("gelu", "approximate"), setting("h.0.mlp", {"approximate": False})),
    _one("gpt-dropout-mode", "gpt-dropout", "h.1.attn.drop", ("mode", "infer", "upscale"),
         setting("h.1.attn.drop", {"mode": "downscale_in_infer"}), mode=TRAIN),
    _one("gpt-dropout-p", "gpt-dropout", "drop", ("probability", " p ", "p=", "dropout"), setting("drop", {"p": 0.1}), mode=TRAIN),
    _in("encoder.1.self_attn", "mask inverted", MASK, family="encdec"),
    _in("decoder.0.cross_attn", "values of queries", ("value", "memory", "query", "input", "wrong", "operand"), family="encdec"),
    _in("encoder.0.self_attn", "mild mask", MASK, family="encdec"),
    _in("decoder.1.self_attn", "mask times weights", MASK, family="encdec"),
    _in("encoder.0", "norm inside", (*RESIDUAL, *NORM), family="encdec"),
    _in("encoder.1", "gelu for relu", ACTIVATION, family="encdec"),
    _in("decoder.1", "last norm is the first", ("norm1", "norm3", "layer", "norm"), family="encdec"),
    _in("", "embedding not scaled", FACTOR, family="encdec"),
    _in("", "memory not masked", MASK, family="encdec", also=("decoder.0.cross_attn",)),
    _in("", "softmax without log", ("log", "softmax"), family="encdec"),
    _one("encdec-sinus-halves", "encdec", "", ("buffer", "value", "position", *ORDER),
         weight("positions", lambda table: tokens_paddle.sinusoids(*table.shape, halves=True)), also=("positions",)),
    _one("encdec-no-padding-idx", "encdec", "embed", ("padding idx", "padding"), setting("embed", {"_padding_idx": -1}), mode=TRAIN),
    _in("mixers.1", "tokens not transposed", ARRANGED, family="mixer"),
    _in("", "mean of channels", ("axis", "mean"), family="mixer"),
)  # fmt: skip

FIELD_FAULTS = (
    _in("stage1.1", "no gamma", (*FACTOR, "gamma", "parameter"), family="convnext"),
    _in("stage2.0", "gamma on the sum", (*FACTOR, *RESIDUAL, "gamma"), family="convnext"),
    _one("convnext-circular-padding", "convnext", "stage1.0.dwconv", ("padding mode", "circular", "padding"),
         instead("stage1.0.dwconv", lambda: nn.Conv2D(6, 6, 7, padding=3, groups=6, padding_mode="circular"))),
    _one("convnext-norm-epsilon", "convnext", "down.0", ("epsilon",), setting("down.0", {"epsilon": 1e-5})),
    _one("convnext-kernel-flipped", "convnext", "stage2.0.dwconv", ("flip", "revers", "value", "weight"),
         weight("stage2.0.dwconv.weight", lambda kernel: kernel[..., ::-1])),
    _in("dec2", "skip behind relu", (*RESIDUAL, *ORDER, *ACTIVATION), family="linknet"),
    _in("dec1", "no skip", RESIDUAL, family="linknet"),
    _in("dec1", "odd crop", ("padding", "crop", "shift", "offset"), family="linknet", also=("dec1.deconv",)),
    _in("", "nearest", ("mode", "nearest", "bilinear", "interpol"), family="linknet"),
    _in("", "align corners", ("align",), family="linknet"),
    _in("", "other order", ORDER, family="linknet"),
    _in("", "no sigmoid", ("sigmoid", "activation"), family="linknet"),
    _one("linknet-slope", "linknet", "enc1.act", ("slope",), instead("enc1.act", nn.LeakyReLU)),
    _one("linknet-padding-mode", "linknet", "stem", ("padding mode", "reflect", "padding"),
         instead("stem", lambda: nn.Conv2D(1, 4, 3, padding=1))),
    _one("linknet-batchnorm", "linknet", "enc2.norm", ("norm",),
         instead("enc2.norm", lambda: nn.BatchNorm2D(8)), mode=TRAIN),
    _in("head", "scores not transposed", ARRANGED, family="detector"),
    _in("head", "first scale", (*FACTOR, "parameter", "index"), family="detector"),
    _in("head", "relu for exp", (*ACTIVATION, "exp"), family="detector"),
    _in("head", "box detached", ("gradient", "detach"), family="detector", mode=TRAIN),
    _in("", "bilinear", ("mode", "nearest", "bilinear", "interpol"), family="detector"),
    _in("", "no second way down", (*RESIDUAL, "interpol", "term", "missing"), family="detector"),
    _in("", "levels reversed", ORDER, family="detector"),
    _one("detector-groups", "detector", "head.tower.1", ("group",), instead("head.tower.1", lambda: nn.GroupNorm(2, 8))),
    _one("detector-smooth-swapped", "detector", "smooth.0", (*ORDER, "weight", "value"), swapped("smooth.0", "smooth.1")),
    _one("detector-tower-no-relu", "detector", "head.tower", ("activation", "relu"),
         instead("head.tower.2", _Hidden), also=("head.tower.2",)),
    _in("units.2.se", "max pool", ("pool", "max", "mean", "average"), family="shuffle"),
    _in("units.2.se", "no relu", ("relu", "activation"), family="shuffle"),
    _in("units.0.se", "slope of old paddle", ("slope", "hardsigmoid"), family="shuffle"),
    _in("units.1.se", "sigmoid", ("sigmoid", "activation"), family="shuffle"),
    _in("units.1", "other half", ORDER, family="shuffle"),
    _in("units.0", "not shuffled", ("shuffle", *ARRANGED, *ORDER), family="shuffle"),
    _in("units.2", "shuffled otherwise", ("shuffle", *ARRANGED, *ORDER), family="shuffle"),
    _one("shuffle-swish", "shuffle", "units.1.branch.2", ("swish", "activation"), instead("units.1.branch.2", nn.Swish)),
    _one("shuffle-bn-epsilon", "shuffle", "units.2.branch.4", ("epsilon",), setting("units.2.branch.4", {"_epsilon": 1e-3})),
    _one("shuffle-bn-momentum", "shuffle", "stem.1", ("momentum",), setting("stem.1", {"_momentum": 0.1}), mode=TRAIN),
    _one("shuffle-bn-frozen", "shuffle", "units.0.branch.1", ("global", "statistic", "mode", "train"),
         setting("units.0.branch.1", {"_use_global_stats": True}), mode=TRAIN),
    _one("shuffle-bn-left-in-train", "shuffle", "units.1.branch.1", ("train", "eval", "mode"),
         setting("units.1.branch.1", {"training": True})),
    _one("shuffle-pool-kernel", "shuffle", "maxpool", ("kernel", "pool", "padding", "max"),
         instead("maxpool", lambda: nn.MaxPool2D(2, 2))),
    _one("shuffle-running-var", "shuffle", "units.0.branch.6", ("variance", "buffer", "statistic", "value"),
         weight("units.0.branch.6._variance", lambda v: v * 1.3)),
    _in("block2.0", "new ones first", ORDER, family="dense"),
    _in("block1.2", "relu first", ORDER, family="dense"),
    _in("", "no last relu", ("relu", "activation"), family="dense"),
    _in("", "dropout drops always", ("dropout", "train"), family="dense"),
    _one("dense-exclusive", "dense", "transition.3", ("exclusive", "count include pad"),
         instead("transition.3", lambda: nn.AvgPool2D(3, 2, 1))),
    _one("dense-max-for-average", "dense", "transition.3", ("pool", "max", "average"),
         instead("transition.3", lambda: nn.MaxPool2D(3, 2, 1))),
    _one("dense-conv-memory", "dense", "block1.0.conv1", (*ARRANGED, "weight", "value"),
         weight("block1.0.conv1.weight", lambda w: w[..., 0, 0].T.reshape(w.shape))),
    _in("blocks.0", "into the past", (*ORDER, "shift", "direction"), family="tsm"),
    _in("blocks.1", "an eighth", ("fold", "shift", "slice", "split", "channels", "factor"), family="tsm"),
    _in("blocks.1", "not shifted", ("shift", "missing", "identity", "roll"), family="tsm"),
    _in("blocks.0", "relu before the sum", (*ORDER, *ACTIVATION, *RESIDUAL), family="tsm"),
    _in("", "frames reshaped", ARRANGED, family="tsm"),
    _in("", "mean of pixels", ("mean", "max", "pool"), family="tsm"),
    _in("", "frames before samples", (*ARRANGED, *ORDER, "frames"), family="tsm"),
    _in("", "maximum of frames", ("mean", "max", "pool"), family="tsm"),
    _one("tsm-pool-in-time", "tsm", "pool", ("kernel", "stride", "pool", "padding"),
         instead("pool", lambda: nn.AvgPool3D((4, 2, 2), (2, 2, 2), (1, 0, 0)))),
    _in("body.1", "not scaled", FACTOR, family="edsr"),
    _in("", "mean not subtracted", ("mean", "subtract", "shift", "constant", "buffer", "term", "missing"), family="edsr"),
    _in("", "no long skip", RESIDUAL, family="edsr"),
    _in("", "bilinear", ("mode", "bicubic", "bilinear", "interpol"), family="edsr"),
    _one("edsr-channels-of-shuffle", "edsr", "up.0", (*ORDER, *ARRANGED, "weight", "value"),
         weight("up.0.weight", lambda w: w.reshape(8, 4, *w.shape[1:]).swapaxes(0, 1).reshape(w.shape))),
    _one("edsr-one-slope", "edsr", "body.0.act", ("slope", "weight", "value", "parameter"),
         weight("body.0.act._weight", lambda slopes: np.full_like(slopes, 0.25))),
    _in("mapping.1", "not scaled", FACTOR, family="style"),
    _in("layer1.conv", "not demodulated", ("norm", "modulat", *FACTOR), family="style"),
    _in("layer2.conv", "mean for sum", ("mean", "sum", *FACTOR), family="style"),
    _in("layer2", "no noise", ("noise", "parameter", "term", "missing", "added"), family="style"),
    _in("layer1", "default slope", ("slope",), family="style"),
    _in("layer2", "no gain", FACTOR, family="style"),
    _in("", "no pixel norm", ("norm", *FACTOR), family="style"),
    _in("", "align corners", ("align",), family="style"),
    _in("", "sigmoid for tanh", ("tanh", "sigmoid", "activation"), family="style"),
    _in("", "no identity", ("identity", "eye", "missing", "term", "added"), family="points"),
    _in("", "transform transposed", ARRANGED, family="points"),
    _in("", "mean of points", ("mean", "max", "pool"), family="points"),
    _in("", "axis of samples", ("axis", "softmax"), family="points"),
    _in("", "no relu", ("relu", "activation"), family="points"),
    _one("points-bn-epsilon", "points", "bn2", ("epsilon",), setting("bn2", {"_epsilon": 1e-6}), mode=TRAIN),
)  # fmt: skip

STREAM_FAULTS = (
    _in("attend", "no tanh", ("tanh", "activation"), family="captioner"),
    _in("attend", "padding attended", MASK, family="captioner"),
    _in("attend", "softmax over samples", ("axis", "softmax"), family="captioner"),
    _in("", "backward first", ORDER, family="captioner"),
    _in("", "last step of both ways", ("state", "step", "last", "direction", "slice", "index"), family="captioner"),
    _in("", "state of zeros", ("state", "zero", "initial", "input"), family="captioner"),
    _in("", "state not carried", ("state", "carried", "hidden", "input"), family="captioner", also=("cell",)),
    _one("captioner-gru-gates", "captioner", "encoder", ("gate", "permut", "order"),
         lambda port: [weight(name, _gates((1, 0, 2)))(port) for name in ("encoder.weight_ih_l0", "encoder.weight_hh_l0")]),
    _one("captioner-cell-bias-lost", "captioner", "cell", ("bias", "value"), weight("cell.bias_hh", np.zeros_like)),
    _one("captioner-directions-swapped", "captioner", "encoder", ("direction", "revers", *ORDER),
         lambda port: _exchange(port, "encoder.weight_ih_l0", "encoder.weight_ih_l0_reverse")),
    _in("crf", "transitions transposed", ARRANGED, family="crf"),
    _in("crf", "maximum for logsumexp", ("max", "logsumexp", "function"), family="crf"),
    _in("crf", "no start", ("start", "parameter", "missing", "term", "added"), family="crf"),
    _in("crf", "sign", ("sign", "negative", "factor", "-1"), family="crf"),
    _in("", "ways swapped", ORDER, family="crf"),
    _one("crf-forget-bias", "crf", "lstm", ("bias", "value"), weight("lstm.bias_ih_l1", lambda b: b + np.repeat([0, 1, 0, 0], 6))),
    _one("crf-lstm-gates", "crf", "lstm", ("gate", "permut", "order"),
         lambda port: [
             weight(f"lstm.{kind}_l1", _gates((0, 2, 1, 3)))(port) for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
         ]),
    _in("blocks.1", "padded behind", ("padding", "pad", "causal", "shift"), family="tcn"),
    _in("blocks.2", "padded both sides", ("padding", "pad", "causal", "shift"), family="tcn"),
    _in("blocks.0", "no relu behind the sum", ("relu", "activation"), family="tcn"),
    _one("tcn-dilation", "tcn", "blocks.1.conv1", ("dilation",), _undilated, also=("blocks.1.conv2", "blocks.1")),
    _in("", "other half gates", (*ORDER, "glu", "gate", "half"), family="tcn"),
    _in("", "tanh and sigmoid", ("tanh", "activation", "glu"), family="tcn"),
    _in("", "first step", ("slice", "index", "step", "last", "first", "revers", "flip"), family="tcn"),
    _in("", "mean of steps", ("slice", "index", "step", "last", "mean"), family="tcn"),
    _in("", "no offsets", ("offset", "index", "buffer", "shift", "added", "missing"), family="fm"),
    _in("", "not halved", FACTOR, family="fm"),
    _in("", "no logarithm", ("log", "function", "activation"), family="fm"),
    _in("", "numbers first", ORDER, family="fm"),
    _in("", "no linear part", ("term", "missing", "linear", "added", "sum"), family="fm"),
    _one("fm-elu-alpha", "fm", "deep.3", ("alpha",), instead("deep.3", nn.ELU)),
    _one("fm-selu", "fm", "deep.1", ("selu", "elu", "activation"), instead("deep.1", nn.ELU)),
    _one("fm-bn-momentum-eval", "fm", "norm", ("momentum",), setting("norm", {"_momentum": 0.1})),
    _in("", "norm of order 1", ("norm", "order"), family="tied"),
    _in("", "relu for softplus", ACTIVATION, family="tied"),
    _in("", "weights copied", ("gradient", "detach", "tie", "shared"), family="tied", mode=TRAIN),
    _one("tied-linear-turned", "tied", "encode2", (*ARRANGED, "weight", "value"), weight("encode2.weight", _turned)),
)  # fmt: skip


def _exchange(port: Any, one: str, other: str) -> None:
    state = port.state_dict()
    first, second = state[one].numpy().copy(), state[other].numpy().copy()
    state[one].set_value(second)
    state[other].set_value(first)


TRAINING_FAULTS = (
    _training("second-loss-sum", "loss", ("sum", "mean", "reduction", "factor"), loss="ce sum"),
    _training("second-loss-no-smoothing", "loss", ("smooth",), loss="smooth forgotten"),
    _training("second-loss-more-smoothing", "loss", ("smooth",), loss="smooth more"),
    _training("second-loss-ignore", "loss", ("ignore",), loss="ignore forgotten"),
    _training("second-loss-weights", "loss", ("weight",), loss="weights forgotten"),
    _training("second-loss-softmax-twice", "loss", ("softmax",), loss="softmax before"),
    _training("second-loss-focal", "loss", ("gamma", "pow", "exponent", "focal", "unknown"), loss="focal gamma"),
    _training("second-nesterov", "optimizer", ("nesterov",), optimizer="sgd nesterov"),
    _training("second-no-decay", "optimizer", ("weight decay", "decay"), optimizer="sgd no decay"),
    _training("second-clipped", "optimizer", ("clip",), optimizer="sgd clipped"),
    _training("second-beta2", "optimizer", ("beta",), optimizer="adam defaults"),
    _training("second-adam-epsilon", "optimizer", ("epsilon",), optimizer="adam epsilon"),
    _training("second-decay-of-biases", "optimizer", ("decay",), optimizer="adamw decays biases"),
    _training("second-coupled", "optimizer", ("decay", "couple"), optimizer="adamw coupled"),
    _training("second-rms-epsilon", "optimizer", ("epsilon", "root"), optimizer="rms epsilon"),
    _training("second-rate", "optimizer", ("learning rate", "factor"), optimizer="rate tenfold"),
    _training("second-cosine-minimum", "scheduler", ("eta min", "minimum"), scheduler="cosine minimum"),
    _training("second-step-gamma", "scheduler", ("gamma", "factor"), scheduler="steps default gamma"),
    _training(
        "second-steps-per-epoch",
        "scheduler",
        ("step size", "period", "epoch", "iteration"),
        scheduler="steps per epoch",
    ),
    _training("second-warm-up", "scheduler", ("warm", "start"), scheduler="warm-up from zero"),
    _training("second-polynomial", "scheduler", ("power",), scheduler="polynomial power"),
)

_EPSILON = setting("blocks.0.norm1", {"_epsilon": 1e-5})
COMPOSED = (
    Expected(id="two-vit-epsilon-and-scale", family="vit", where=("blocks.0.norm1", "blocks.2.attn"),
             words=("epsilon", *FACTOR), plant=(_EPSILON, code("blocks.2.attn", "scale of all heads"))),
    Expected(id="two-shuffle-slope-and-order", family="shuffle", where=("units.0.se", "units.2"),
             words=("slope", "hardsigmoid", *ORDER), plant=(code("units.0.se", "slope of old paddle"), code("units.2", "not shuffled"))),
    Expected(id="two-dense-pool-and-relu", family="dense", where=("transition.3", ""), words=("exclusive", "include pad", "relu", "activation"),
             plant=(instead("transition.3", lambda: nn.AvgPool2D(3, 2, 1)), code("", "no last relu"))),
    Expected(id="two-in-one-attention", family="gpt", where=("h.0.attn",), words=(*FACTOR, *MASK, "causal", *ORDER, "gelu", "approximate"),
             plant=(code("h.0.attn", "scale of all heads"), setting("h.0.mlp", {"approximate": False}))),
    Expected(id="two-tcn-pad-and-glu", family="tcn", where=("blocks.1", ""), words=("pad", "causal", "shift", *ORDER, "glu", "gate", "half"),
             plant=(code("blocks.1", "padded behind"), code("", "other half gates"))),
    Expected(id="two-decoder-mask-and-norm", family="encdec", where=("encoder.0.self_attn", "decoder.1"), words=(*MASK, *NORM),
             plant=(code("encoder.0.self_attn", "mild mask"), code("decoder.1", "last norm is the first"))),
    Expected(id="two-detector-groups-and-exp", family="detector", where=("head.tower.1", "head"), words=("group", *ACTIVATION, "exp"),
             plant=(instead("head.tower.1", lambda: nn.GroupNorm(2, 8)), code("head", "relu for exp"))),
)  # fmt: skip
SECOND_FAULTS = (*TOKEN_FAULTS, *FIELD_FAULTS, *STREAM_FAULTS, *TRAINING_FAULTS, *COMPOSED)
