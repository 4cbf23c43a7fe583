"""The equal pairs of the fifth zoo: as they are, and with ports that say the same in other words."""

from __future__ import annotations

from typing import Any

from zoo.fifth.planting import FAMILIES, pair
from zoo.fourth.clean import FourthClean
from zoo.third.planting import ThirdPair

EVERYTHING = {
    "efficient": ("updates", "data", "metrics"),
    "bert": ("updates", "data", "metrics"),
    "translate": ("updates", "metrics"),
    "fcos": ("updates", "data", "metrics"),
    "gan": ("updates", "data"),
    "dlrm": ("updates", "data", "metrics"),
}


class FifthClean(FourthClean):
    """A pair of this zoo that must pass."""

    def build(self, *, double: bool = False) -> ThirdPair:
        """Make the pair."""
        edits = {"port_edits": self.port_edits, "reference_edits": self.reference_edits}
        return pair(self.family, double=double, **edits, **self.how)


def _port(name: str, *edits: tuple[str, str], **how: Any) -> FifthClean:
    if name.startswith("translate"):
        how["training"] = True
    return FifthClean(id=name, port_edits=edits, how=how)


AS_THEY_ARE = tuple(
    FifthClean(id=f"{family}-trained", how=dict.fromkeys(("training", *EVERYTHING[family]), True))
    for family in FAMILIES
)
VARIED = (
    _port("efficient-hardsigmoid-written", ("F.hardsigmoid(y)", "F.relu6(y + 3) / 6")),
    _port("efficient-groups-indexed", ("paddle.concat(paddle.split(x, 8, axis=1)[::-1], 1)", "x.reshape([x.shape[0], 8, 2, *x.shape[2:]]).flip(1).flatten(1, 2)")),
    _port("efficient-accumulated", updates=True, step=True),
    _port("efficient-teacher-written", ('F.kl_div(F.log_softmax(outputs / HEAT, -1), teacher, reduction="batchmean")', "(teacher * (teacher.log() - F.log_softmax(outputs / HEAT, -1))).sum(-1).mean()")),
    _port("bert-added-mask", ('paddle.where(mask.unsqueeze([1, 2]), scores, paddle.full_like(scores, float("-inf")))', "scores + (1 - mask.unsqueeze([1, 2]).astype(scores.dtype)) * -1e9")),
    _port("bert-words-shared", ("        self.bias = ", "        self.decoder = self.words\n        self.bias = "), ("self.words.weight, transpose_y=True", "self.decoder.weight, transpose_y=True")),
    _port("bert-clip-written", ("paddle.nn.ClipGradByGlobalNorm(0.5)", "paddle.nn.ClipGradByGlobalNorm(clip_norm=0.5)"), ("weight_decay=0.1", "weight_decay=1e-1"), updates=True),
    _port("translate-cells-mixed", ("(1 - z) * n + z * h", "n + z * (h - n)")),
    _port("translate-one-hot-copy", ('paddle.put_along_axis(words, source, (1 - own) * weights, 1, reduce="add")', "words + paddle.bmm(((1 - own) * weights).unsqueeze(1), F.one_hot(source, VOCAB).astype(words.dtype)).squeeze(1)")),
    _port("translate-loss-by-mask", ("-(chosen * kept).sum() / kept.sum()", "-((outputs * F.one_hot(labels, VOCAB).astype(outputs.dtype)).sum(-1) * (labels > 0).astype(outputs.dtype)).sum() / (labels > 0).astype(outputs.dtype).sum()")),
    _port("fcos-index-sample", ("paddle.take_along_axis(boxes, index.unsqueeze(-1).expand([-1, -1, 4]), 1)", "paddle.stack([paddle.gather(one, where) for one, where in zip(boxes, index)])")),
    _port("fcos-product-of-roots", ("paddle.sqrt(F.sigmoid(scores) * F.sigmoid(centres).unsqueeze(-1))", "F.sigmoid(scores).sqrt() * F.sigmoid(centres).sqrt().unsqueeze(-1)")),
    _port("fcos-huber-written", ("F.smooth_l1_loss(boxes[positive], wanted[positive], delta=0.5) / 0.5", "paddle.where((boxes[positive] - wanted[positive]).abs() < 0.5, (boxes[positive] - wanted[positive]) ** 2 / (2 * 0.5), (boxes[positive] - wanted[positive]).abs() - 0.5 * 0.5).mean()")),
    _port("gan-average-step", updates=True, step=True),
    _port("gan-scaled-before", ("F.linear(x, self.weight / math.sqrt(self.weight.shape[0]), self.bias)", "paddle.matmul(x * self.weight.shape[0] ** -0.5, self.weight) + self.bias")),
    _port("gan-one-critic", ("        return fake, self.critic(fake), self.critic(real), self.critic(fake.detach())", "        cut = self.critic(fake.detach())\n        return fake, self.critic(fake), self.critic(real), cut")),
    _port("dlrm-masked-pairs", ("rows, columns = paddle.tril_indices(6, 6, offset=-1)", "rows, columns = paddle.nonzero(paddle.tril(paddle.ones([6, 6]), -1)).transpose([1, 0])")),
    _port("dlrm-counted-edges", ("paddle.bucketize(age, self.edges)", '(age.unsqueeze(1) > self.edges).astype("int64").sum(1)')),
    _port("dlrm-gates-at-once", ('paddle.einsum("be,bed->bd", F.softmax(gate(x), -1), seen)', "(F.softmax(gate(x), -1).unsqueeze(-1) * seen).sum(1)")),
)  # fmt: skip
FIFTH_CLEAN = (*AS_THEY_ARE, *VARIED)
