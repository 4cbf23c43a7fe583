"""Which layer of a port is the first to do something else than the reference's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tipchain.parity.locate.differences import Sketch
from tipchain.parity.locate.judging import PairJudge
from tipchain.parity.locate.layer_pairs import LayerPair, pair_layers
from tipchain.parity.locate.matching import Matching, match_calls
from tipchain.parity.locate.pair_replays import Copies, Models
from tipchain.parity.locate.runs import Inputs, Loss, Run, run_model
from tipchain.parity.locate.sides import LiveSide
from tipchain.parity.locate.store import NotHeld, Store
from tipchain.parity.locate.trace import Value
from tipchain.parity.locate.twins import Twins
from tipchain.parity.locate.verdicts import LayerVerdict

ALIKE = 1e-6
"""How close sketches of tensors must be for them to be taken for one when calls are matched."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Located:
    """What was found about a pair of models.

    Attributes:
        matching: which call is which.
        verdicts: forward, in the order in which the port's calls ended; then backward, in the opposite order.
        first: the first that is at fault, or None.
        reference: the reference's run in float64.
        port: the port's.
        outputs: relative RMS differences of the models' outputs, in float64 where both run in it.
        gradients: the largest relative RMS difference of a parameter's gradients, in float64; inf where it is not known.
        alike: whether outputs and the gradients of all parameters agree in float64.
        models: copies of both models' layers; none in float64 where a model does not run so.
    """

    matching: Matching
    verdicts: tuple[LayerVerdict, ...]
    first: LayerVerdict | None
    reference: Run
    port: Run
    outputs: tuple[float, ...]
    gradients: float
    alike: bool
    models: tuple[Models, Models]

    @property
    def losses(self) -> bool:
        """Whether backward started from losses."""
        return self.reference.loss is not None

    @property
    def learns(self) -> bool:
        """Whether the reference has parameters that take gradients."""
        models = self.models[0]
        return models.double is not None and bool(models.side.parameters(models.double[""]))

    @property
    def exact(self) -> bool:
        """Whether both ran in float64."""
        return self.models[1].double is not None


@dataclass(slots=True)
class Locator:
    """Runs both models once in float64, and each pair of layers on the reference's input in float32.

    Attributes:
        sides: torch's and Paddle's.
        store: where tensors go.
        seed: of every random number.
        backward: whether gradients are compared too.
        training: the mode both are run in; None: each layer in its own.
    """

    sides: tuple[LiveSide, LiveSide]
    store: Store
    seed: int = 0
    backward: bool = True
    training: bool | None = None
    _sketches: dict[int, Sketch] = field(default_factory=dict)

    def locate(
        self, reference: Any, port: Any, inputs: Inputs, losses: tuple[Loss | None, Loss | None] = (None, None),
        names: Mapping[str, str] | None = None, pairs: Sequence[LayerPair] | None = None,
    ) -> Located:  # fmt: skip
        """Compare two models layer by layer; neither is changed.

        Args:
            reference: a ``torch.nn.Module``.
            port: a ``paddle.nn.Layer``.
            inputs: what both are called with.
            losses: what backward starts from.
            names: Paddle's path by torch's where names and structure cannot tell.
            pairs: the layers that belong together, if that is known; else they are paired.

        Raises:
            Exception: what a model raises in float32, or the reference in float64 with a loss.
        """
        layers = pair_layers(reference, port, names) if pairs is None else pairs
        with suppress(NotHeld):
            self.store.samples = samples_of(inputs)
            found = self._compare((reference, port), inputs, losses, layers)
            if found.first is None or not self.store.cut:
                return found
        self._sketches.clear()
        self.store.samples = None
        return self._compare((reference, port), inputs, losses, layers)

    def _compare(
        self, models: tuple[Any, Any], inputs: Inputs, losses: tuple[Loss | None, Loss | None],
        layers: Sequence[LayerPair],
    ) -> Located:  # fmt: skip
        """Run both and compare them, with what the store holds of their tensors.

        Raises:
            NotHeld: that is too little.
        """
        ours, reference = self._run(self.sides[0], models[0], inputs, losses[0])
        known = Twins(reference.trace, self.store)
        theirs, port = self._run(
            self.sides[1], models[1], inputs, losses[1], known, double=ours.double is not None
        )
        matching = match_calls(reference.trace, port.trace, layers, self._close)
        judge = PairJudge(
            models=(ours, theirs), runs=(reference, port), matching=matching, store=self.store, seed=self.seed,
            exact=theirs.double is not None,
        )  # fmt: skip
        verdicts = judge.judge()
        return Located(
            matching=matching, verdicts=verdicts, first=next((one for one in verdicts if one.at_fault), None),
            reference=reference, port=port, outputs=judge.outputs_apart(), models=(ours, theirs),
            gradients=judge.gradients_apart(), alike=judge.alike_outside and judge.alike_inside,
        )  # fmt: skip

    def _run(
        self, side: LiveSide, model: Any, inputs: Inputs, loss: Loss | None, known: Twins | None = None, *,
        double: bool = True,
    ) -> tuple[Models, Run]:  # fmt: skip
        """Run a copy of a model in float64, or in float32 if it does not run so or the reference does not."""
        single = Copies(side, model, self.training)
        options: dict[str, Any] = {"loss": loss, "seed": self.seed, "backward": self.backward, "known": known}
        if double:
            made = side.copied(model, double=True, training=self.training)
            try:
                run = run_model(side, made, inputs, self.store, double=True, **options)
                return Models(side, single, dict(side.layers(made))), run
            except Exception:
                if side is self.sides[0] and loss is not None:
                    raise  # it may be the loss that does not run so
        made = side.copied(model, double=False, training=self.training)
        run = run_model(side, made, inputs, self.store, double=False, **options)
        return Models(side, single, None), run

    def _close(self, one: Value, other: Value) -> bool:
        ours, theirs = one.stored, other.stored
        if theirs.twin is ours:
            return True
        if prod(ours.shape) != prod(theirs.shape):
            return False
        if ours.outline is not None and theirs.outline is not None and ours.shape == theirs.shape:
            return ours.outline.projected.relative(theirs.outline.projected) <= ALIKE
        return self._sketch(one).close(self._sketch(other), ALIKE)

    def _sketch(self, value: Value) -> Sketch:
        stored = value.stored.twin or value.stored
        found = self._sketches.get(id(stored))
        if found is None:
            found = self._sketches[id(stored)] = Sketch(self.store.get(stored))
        return found


def samples_of(inputs: Inputs) -> int | None:
    """Return how many samples a batch has, by the first axis of the first input; None of a scalar."""
    arrays = [*inputs.args, *inputs.kwargs.values()]
    return arrays[0].shape[0] if arrays and arrays[0].ndim else None
