"""The faults of the fifth zoo: what reads otherwise in a port, where, and words that a right cause has."""

from __future__ import annotations

from typing import Any

from zoo.fifth.planting import PARTS, PLACED, pair
from zoo.fourth.around_faults import MEAN
from zoo.fourth.model_faults import AXES, ORDER
from zoo.fourth.planting import FourthFault
from zoo.third.planting import ThirdPair

__all__ = ["FIFTH_FAULTS", "PARTS", "PLACED", "planted", "sound"]

_fault = FourthFault.of
MASK = r"mask|\bpad"
SCALE = r"\bscal|factor|multipl|\bdivi|sqrt|\bratio|\btimes\b"
CUT = r"detach|stop_gradient|no_grad|stops?\b|\bcut|gradient.*(flow|pass|reach)"
DECAY = r"decay"
CONVERTED = 'return named_for_paddle(values, kept=("words.", "positions.", "kinds."))'


MODELS = (
    _fault("code", "default", "efficient-hardsigmoid", "blocks.0.se", r"hard.?sigmoid|slope", ("F.hardsigmoid(y)", "F.hardsigmoid(y, slope=0.2)")),
    _fault("layer", "default", "efficient-exclusive", "blocks.1.shortcut", r"exclusive|count_include_pad|padding", ("padding=1, exclusive=False)", "padding=1)")),
    _fault("layer", "default", "efficient-ceil", "pool", r"ceil", ("nn.MaxPool2D(2, ceil_mode=True)", "nn.MaxPool2D(2)")),
    _fault("code", "order", "efficient-pad-sides", "blocks.1", r"\bpad", ("[0, 1, 0, 1] if", "[1, 0, 1, 0] if")),
    _fault("code", "layout", "efficient-flat-channels-last", ".", AXES, ("self.average(x).flatten(1)", "self.average(x).transpose([0, 2, 3, 1]).flatten(1)")),
    _fault("code", "order", "efficient-sections", ".", rf"split|section|chunk|{ORDER}", ("paddle.split(x, 8, axis=1)", "paddle.split(x, 2, axis=1)")),
    _fault("training", "copied line", "efficient-momentum", "bn", r"momentum", ("self.bn = nn.BatchNorm2D(8, epsilon=1e-3, momentum=0.99)", "self.bn = nn.BatchNorm2D(8, epsilon=1e-3, momentum=0.01)")),
    _fault("code", "formula", "bert-mask-added", "layers.0.attention", r"-inf|where|masked_fill|other.operation|alone calls", ('paddle.where(mask.unsqueeze([1, 2]), scores, paddle.full_like(scores, float("-inf")))', "scores + mask.unsqueeze([1, 2]).astype(scores.dtype)")),
    _fault("code", "default", "bert-gelu", "layers.0", r"gelu|tanh|approx", ("F.gelu(self.fc1(x), approximate=True)", "F.gelu(self.fc1(x))")),
    _fault("code", "left out", "bert-positions-count-pads", ".", rf"{MASK}|position", ('paddle.cumsum(mask.astype("int64"), 1) * mask.astype("int64")', 'paddle.cumsum(mask.astype("int64"), 1)')),
    _fault("code", "layout", "bert-heads-viewed", "layers.0.attention", AXES, ("reshape([y.shape[0], y.shape[1], HEADS, -1]).transpose([0, 2, 1, 3])", "reshape([y.shape[0], HEADS, y.shape[1], -1])")),
    _fault("training", "left out", "bert-untied", "words decoder .", r"tied|\bshar|same (tensor|parameter)", ("        self.bias = ", "        self.decoder = nn.Linear(WIDTH, VOCAB, bias_attr=False)\n        self.bias = "), ("paddle.matmul(F.gelu(self.transform(x), True), self.words.weight, transpose_y=True)", "self.decoder(F.gelu(self.transform(x), True))"), (CONVERTED, f'named = {CONVERTED[7:]}\n    return named | {{"decoder.weight": named["words.weight"].T}}'), updates=True),
    _fault("values", "weights", "bert-query-as-it-is", "layers.0.attention.query", r"transpos", (CONVERTED, f'named = {CONVERTED[7:]}\n    name = "layers.0.attention.query.weight"\n    return named | {{name: named[name].T}}')),
    _fault("code", "formula", "bert-average-with-pads", ".", rf"{MASK}|mean|averag|divi|count", ("kept.sum(1)", "x.shape[1]")),
    _fault("training", "left out", "bert-residual-dropout", "layers.0", r"dropout", ("self.norm2(x + self.dropout(y))", "self.norm2(x + y)")),
    _fault("code", "order", "translate-gates", "cell", ORDER + "|gate", ("reset, update, new = self.input(x)", "update, reset, new = self.input(x)"), ("reset_h, update_h, new_h = self.hidden(h)", "update_h, reset_h, new_h = self.hidden(h)")),
    _fault("code", "formula", "translate-update", "cell", ORDER + r"|1 ?- ?z|complement|one minus", ("(1 - z) * n + z * h", "z * n + (1 - z) * h")),
    _fault("code", "formula", "translate-reset-first", "cell", r"reset|\br\b|before|formula|multipl", ("paddle.tanh(new + r * new_h)", "paddle.tanh(new + F.linear(r * h, self.hidden.weight[:, 2 * HIDDEN:], self.hidden.bias[2 * HIDDEN:]))")),
    _fault("code", "copied line", "translate-last-output", "encoder", r"last|final|state|direction|backward|index|slice|first|step|position", ("paddle.concat([last[0], last[1]], -1)", "outputs[:, -1]")),
    _fault("code", "order", "translate-directions", "encoder", ORDER, ("paddle.concat([last[0], last[1]], -1)", "paddle.concat([last[1], last[0]], -1)")),
    _fault("code", "default", "translate-assigned", ".", r"`reduce`|assign|accumul|overwrit", ('(1 - own) * weights, 1, reduce="add")', "(1 - own) * weights, 1)")),
    _fault("code", "setting", "translate-mask-longer", ".", MASK + r"|length|<", (".unsqueeze(0) < lengths", ".unsqueeze(0) <= lengths")),
    _fault("layer", "default", "translate-time-first", "encoder.gru", r"time_major|batch_first|\baxis|\baxes|transpos", ('direction="bidirect")', 'direction="bidirect", time_major=True)')),
    _fault("code", "setting", "fcos-corners", "pyramid", r"align_corners", ("align_corners=False)", "align_corners=True)")),
    _fault("code", "setting", "fcos-align-mode", "pyramid", r"align_mode|half.pixel|align", ("align_corners=False)", "align_corners=False, align_mode=1)")),
    _fault("code", "order", "fcos-places", "head", ORDER + r"|meshgrid|x and y", ("[grid_x.flatten(), grid_y.flatten()]", "[grid_y.flatten(), grid_x.flatten()]")),
    _fault("code", "copied line", "fcos-centre-branch", "head head.centre", r"another (tensor|layer|input)|input|boxes|classes|tower", ("self.centre(tower)", "self.centre(seen)")),
    _fault("code", "formula", "fcos-true-half", "head", r"//|round|floor|half|integer|divi|offset|add", ("paddle.arange(x.shape[2], dtype=x.dtype) * stride + stride // 2", "paddle.arange(x.shape[2], dtype=x.dtype) * stride + stride / 2"), ("paddle.arange(x.shape[3], dtype=x.dtype) * stride + stride // 2", "paddle.arange(x.shape[3], dtype=x.dtype) * stride + stride / 2")),
    _fault("code", "formula", "fcos-first-sample", ".", r"gather|take_along|batch|sample|index", ("paddle.take_along_axis(boxes, index.unsqueeze(-1).expand([-1, -1, 4]), 1)", "paddle.gather(boxes.reshape([-1, 4]), index.flatten()).reshape([-1, BEST, 4])")),
    _fault("code", "default", "gan-unbiased", "critic", r"unbias|n - 1|correction|varian|ddof", ("groups.var(0, unbiased=False)", "groups.var(0)")),
    _fault("code", "layout", "gan-spread-repeated", "critic", rf"repeat|tile|interleave|{ORDER}", ("spread.tile([2, 1, height, width])", "spread.repeat_interleave(2, 0).tile([1, 1, height, width])")),
    _fault("code", "layout", "gan-fan-out", "mapping.fc1", SCALE, ("math.sqrt(self.weight.shape[0])", "math.sqrt(self.weight.shape[1])")),
    _fault("code", "layout", "gan-demodulated-axes", "generator.first", r"\baxis|\baxes|\bdim|\bsum|norm", ("weight.pow(2).sum([2, 3, 4], keepdim=True)", "weight.pow(2).sum([1, 3, 4], keepdim=True)")),
    _fault("code", "formula", "gan-depth-to-space", "generator", AXES + "|shuffle", ("F.pixel_shuffle(self.paint(activate(x)), 2)", "self.paint(activate(x)).reshape([-1, 2, 2, 3, 4, 4]).transpose([0, 3, 4, 1, 5, 2]).reshape([-1, 3, 8, 8])")),
    _fault("code", "left out", "gan-not-detached", ". critic generator", CUT, ("self.critic(fake.detach())", "self.critic(fake)")),
    _fault("training", "copied line", "gan-average", "mapping", r"average|momentum|decay|buffer", ("w.mean(0) * 0.1 + self.average * 0.9", "w.mean(0) * 0.9 + self.average * 0.1")),
    _fault("code", "setting", "dlrm-bucket-edges", ".", r"`right`", ("paddle.bucketize(age, self.edges)", "paddle.bucketize(age, self.edges, right=True)")),
    _fault("code", "layout", "dlrm-upper-pairs", ".", ORDER + r"|tri[lu]|transpos", ("paddle.tril_indices(6, 6, offset=-1)", "paddle.triu_indices(6, 6, offset=1)")),
    _fault("code", "formula", "dlrm-bag-mean", ".", rf"{MASK}|{MEAN}", ("kept.sum(1).clip(min=1)", "bag.shape[1]")),
    _fault("layer", "setting", "dlrm-padding-index", "fields", r"padding_idx", ("nn.Embedding(sum(SIZES), WIDTH)", "nn.Embedding(sum(SIZES), WIDTH, padding_idx=0)")),
    _fault("code", "layout", "dlrm-gate-axis", "experts", r"\baxis|\baxes|\bdim|softmax", ("F.softmax(gate(x), -1)", "F.softmax(gate(x), 0)")),
    _fault("code", "formula", "dlrm-absolute-ids", ".", r"\babs|negativ|\bsign|remainder|%|modul", ("fields % self.sizes", "paddle.abs(fields) % self.sizes")),
    _fault("code", "left out", "dlrm-product-cut", ".", CUT, ("clicked * F.sigmoid", "clicked.detach() * F.sigmoid")),
)  # fmt: skip

AROUND = (
    _fault("loss", "default", "efficient-kl-mean", "", r"batchmean|reduction|\bmean|classes|kl|factor", ('reduction="batchmean") * HEAT**2', 'reduction="mean") * HEAT**2')),
    _fault("loss", "formula", "efficient-weights-mean", "", r"weight", ("F.cross_entropy(outputs, classes, weight=weight)", 'F.cross_entropy(outputs, classes, weight=weight, reduction="none").mean()')),
    _fault("loss", "default", "bert-ignored-counted", "", r"averag|\bmean|\bdivi|\bcount|all (labels|samples)", ('ignore_index=-100, reduction="sum")\n    masked = masked / (wanted != -100).astype(masked.dtype).sum()\n', "ignore_index=-100)\n")),
    _fault("loss", "left out", "translate-pads-learned", "", r"ignor|\bpad|\bmask", ("-(chosen * kept).sum() / kept.sum()", "-chosen.mean()")),
    _fault("loss", "default", "fcos-delta", "", r"delta|beta|smooth|huber|factor|times", ("delta=0.5) / 0.5", "delta=0.5)")),
    _fault("loss", "order", "fcos-alpha", "", r"writ\w+ 0\.25|are 0\.75|is 0\.75|reference's 0\.25|by 0\.75|by 0\.25", ("0.25 * onehot + 0.75 * (1 - onehot)", "0.75 * onehot + 0.25 * (1 - onehot)")),
    _fault("loss", "copied line", "gan-hinge-sign", "", r"\bsign|hinge|minus|negat|1 [+-]", ("F.relu(1 + cut)", "F.relu(1 - cut)")),
    _fault("loss", "default", "dlrm-logits", "", r"sigmoid|logit", ("click = F.binary_cross_entropy(outputs[0]", "click = F.binary_cross_entropy_with_logits(outputs[0]")),
    _fault("optimizer", "left out", "bert-decays-norms", "", DECAY, ("        apply_decay_param_fun=lambda name: name in decayed,\n", "")),
    _fault(
        "optimizer", "default", "bert-clip-by-group", "", r"clip",
        ("        parameters=parameters,\n", '        parameters=[{"params": [one for one in parameters if one.ndim > 1]}, {"params": [one for one in parameters if one.ndim <= 1]}],\n'),
    ),
    _fault("optimizer", "left out", "fcos-nesterov", "", r"nesterov", (", use_nesterov=True", "")),
    _fault("optimizer", "copied line", "fcos-bias-rate", "", (r"learning.?rate", r"0\.0002|0\.02\b|100 times (less|small)|bias"), ('"learning_rate": 2.0', '"learning_rate": 0.02')),
    _fault("optimizer", "default", "gan-beta", "", r"beta", ("beta1=0.0, ", "")),
    _fault("optimizer", "setting", "translate-l1", "", r"\bl1|sign|regulari", ("weight_decay=0.02", "weight_decay=paddle.regularizer.L1Decay(0.02)")),
    _fault("scheduler", "copied line", "bert-warm-up-from-zero", "", r"\bone (step|update|epoch|iteration)|by one|offset|shift|\blate|earl|\bstart|\+ ?1|first|warm", ("(step + 1) / WARM", "step / WARM")),
    _fault("scheduler", "left out", "efficient-eta-min", "", r"eta_min|minimum|lowest|floor|smallest", (", eta_min=1e-4", "")),
    _fault("scheduler", "setting", "translate-natural-decay", "", r"natural|exp|gamma|factor|decay", ("ExponentialDecay", "NaturalExpDecay")),
    _fault("data", "order", "efficient-statistics-order", "", r"mean|std|normali", ("mean = np.array([0.485, 0.456, 0.406]", "mean = np.array([0.406, 0.456, 0.485]"), ("std = np.array([0.229, 0.224, 0.225]", "std = np.array([0.225, 0.224, 0.229]")),
    _fault("data", "default", "efficient-bicubic", "", r"cubic|interpol|resiz", ("Image.BILINEAR", "Image.BICUBIC")),
    _fault("data", "order", "bert-cut-left", "", r"trunc|\bcut|left|first|last|front|begin|start|end", ("tokens[: LENGTH - 2]", "tokens[-(LENGTH - 2) :]")),
    _fault("data", "left out", "fcos-boxes-not-flipped", "", r"flip|mirror|box", ("        boxes = np.stack([width - boxes[:, 2], boxes[:, 1], width - boxes[:, 0], boxes[:, 3]], -1)\n", "")),
    _fault("data", "formula", "dlrm-missing-mean", "", r"\bnan|missing|fill|log|zero|mean", ("np.where(np.isnan(numbers), 0, numbers)", "np.where(np.isnan(numbers), np.nanmean(numbers), numbers)")),
    _fault("metric", "setting", "efficient-top5", "", r":5\]", (":3]", ":5]")),
    _fault("metric", "formula", "fcos-plus-one", "", r"\+ ?1|plus one|one (pixel|more)|width|area|add", ("np.clip(high - low, 0, None)", "np.clip(high - low + 1, 0, None)"), ("np.clip(one[..., 2:] - one[..., :2], 0, None)", "np.clip(one[..., 2:] - one[..., :2] + 1, 0, None)")),
    _fault("metric", "left out", "translate-perplexity-pads", "", r"chosen\[kept\]\.mean", ("-chosen[kept].mean()", "-chosen.mean()")),
    _fault("step", "left out", "efficient-not-divided", "", r"divi|accumul|\bsum|mean|scal", ("(value / 2).backward()", "value.backward()")),
    _fault("step", "order", "gan-average-first", "", r"before|order|averag|\bema", ("        self.optimizer.step()\n", ""), ("        return value\n", "        self.optimizer.step()\n        return value\n")),
)  # fmt: skip

FIFTH_FAULTS = (*MODELS, *AROUND)


def planted(fault: FourthFault, *, double: bool = False) -> ThirdPair:
    """Return the pair whose port has the fault."""
    return pair(fault.family, port_edits=fault.edits, double=double, **_run(fault))


def sound(fault: FourthFault) -> ThirdPair:
    """Return the fault's pair without it, in float64."""
    return pair(fault.family, double=True, **_run(fault))


def _run(fault: FourthFault) -> dict[str, Any]:
    """Return how a fault's pair is run: a recurrent layer of Paddle's has gradients in train mode alone."""
    needed = {
        "training": fault.part == "training" or fault.family == "translate",
        "updates": fault.part in ("optimizer", "scheduler", "step"),
        "step": fault.part == "step",
        "data": fault.part == "data",
        "metrics": fault.part == "metric",
    }
    return needed | dict(fault.how)
