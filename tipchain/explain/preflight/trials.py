"""Effects of findings, by running: on these inputs, on others or a training, or none.

Where the models' runs do not show it, both layers are tried on inputs that are made to tell: large, negative and tiny values,
other sizes, every token; in both modes, forward and backward.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from tipchain.core.progress import Pace
from tipchain.explain.findings import BUILT, Diagnosis, difference
from tipchain.explain.locate.differences import relative_arranged
from tipchain.explain.locate.locate import Located
from tipchain.explain.locate.matching import CallPair
from tipchain.explain.locate.other_runs import in_mode
from tipchain.explain.locate.rerun import NotReplayed, Rerun, rerun_layer, steps_after
from tipchain.explain.locate.trace import NotHeld, Store, TracedValue
from tipchain.explain.locate.verdicts import FINE
from tipchain.explain.preflight.construction import PairedLayers, alike, check_layers, every_path, name_of, place_of
from tipchain.facts.layers import is_activation
from tipchain.framework_types import Array, Model
from tipchain.frameworks.live_models import Sides
from tipchain.numbers.tolerance import NOISE, ROUGH
from tipchain.weights.sides import join

LAYOUT = ("transposed-weight", "permuted-weight", "shape")
"""Codes of a parameter that holds the reference's numbers in another arrangement."""
PADDING = ("padding-idx", "padding-row")
"""Codes of an embedding's index of padding."""
JOINED = ("activation", "bias", "affine", "shape", "layers", "missing-dropout", "extra-dropout")
"""Codes of differences that another layer may make up for: two layers alone tell nothing."""

IN_TRAINING = "a run in train mode"
LARGEST = 2**20
"""Elements of an input beyond which a layer is not tried."""
TOKENS = 4096
"""Tokens that an embedding is tried on at most."""


class LayerTrial:
    """Weighs findings, and tries layers whose runs agree.

    A layer that gives what its counterpart gives, in float64, may keep its parameters as it likes; layers that turned out
    to be no counterparts may have other arguments and parameters.

    Args:
        located: what the models' runs told.
        sides: torch's and Paddle's.
        models: the users', which are not changed.
        store: where tensors of the runs are.
        seed: of random numbers.
        pace: how long it may take: no layer is tried after that, and a finding says so.
    """

    def __init__(
        self, located: Located, sides: Sides, models: tuple[Model, Model], store: Store, seed: int, pace: Pace
    ) -> None:
        self.located, self.sides, self.store, self.seed, self.pace = located, sides, store, seed, pace
        self.unlike: set[tuple[str, str]] = set()
        reference, port = models
        self.layers = dict(reference.named_modules(remove_duplicate=False)), dict(every_path(port))
        self.first = [{id(layer): path for path, layer in reversed(own.items())} for own in self.layers]
        with in_mode(sides, models, training=True):  # a model's own `train` may keep layers as they are
            self.trained = [
                {path: bool(getattr(layer, "training", True)) for path, layer in own.items()} for own in self.layers
            ]
        self.seen: dict[Hashable, str | None] = {}
        verdicts = [((one.reference_path, one.port_path), one) for one in located.verdicts]
        self.refuted = {paths for paths, one in verdicts if one.refuted}
        self.faulty = {paths for paths, one in verdicts if one.at_fault}
        forward = [(paths, one) for paths, one in verdicts if one.direction == "forward" and one.method == "float64"]
        self.fine = {paths for paths, one in forward if one.closeness in FINE} - self.faulty

    def weigh(self, told: Sequence[Diagnosis]) -> list[Diagnosis]:
        """Return differences of construction with their effects on the results, and those that only these runs show."""
        wrong = (one for one in told if one.code == "parameter" and not one.harmless)
        self.unlike = {(one.reference_path, one.port_path) for one in wrong}
        found = []
        for number, one in enumerate(told):
            self.pace.tell("weighing differences of construction", number, len(told))
            found.append(self._weighed(one))
        return [*found, *self._activations(found), *self._cut_gradients()]

    def _weighed(self, one: Diagnosis) -> Diagnosis:
        paths = self._first(0, one.reference_path), self._first(1, one.port_path)
        otherwise = paths in self.refuted and one.code != "setting"
        fine = paths in self.fine or (self.located.alike and paths not in self.faulty)
        arranged = fine and one.code == "parameter" and one.name in LAYOUT
        frozen = (one.name, one.port) == ("trainable", "stop_gradient=True")
        if otherwise or arranged or (frozen and self._takes_none()):
            return replace(one, effect="none")
        if one.code not in BUILT or not all(path in own for path, own in zip(paths, self.layers, strict=True)):
            return one
        pair = self._pair(paths)
        if one.name in PADDING:
            return self._padding(one, pair)
        if paths in self.faulty:
            return one if one.harmless else replace(one, effect="here")
        if self.pace.over:
            return replace(one, message=f"{one.message}; not tried on other inputs: out of time")
        call = next((call for call in self._calls(paths) if not call.whole), None)
        if one.name in JOINED or paths in self.unlike or call is None or paths not in self.fine:
            return one
        # Where they differ without effect and are given other tensors, they are perhaps no counterparts.
        alone = one.harmless and not alike(call.reference.inputs, call.port.inputs)
        shapes = tuple(value.shape for value in call.reference.inputs)
        key = type(pair.reference), type(pair.port), one.name, one.reference, one.port, shapes
        shown = None if alone else self._shown_by(key, pair, call)
        if not shown:
            return one if shown is None else replace(one, effect="none")
        return replace(one, effect="elsewhere", message=f"{one.message}; {shown} would show it")

    def _takes_none(self) -> bool:
        """Tell whether no gradient comes to the layers whose parameters the port freezes, though they were called: a target's, say."""
        reference, port = self.layers
        frozen = {
            pair.port
            for pair in self.located.layers
            if any(one.stop_gradient for one in port[pair.port].parameters(include_sublayers=False))
            if any(one.requires_grad for one in reference[pair.reference].parameters(recurse=False))
        }
        calls = [call for call in self.located.matching.pairs if call.port.path in frozen]
        reached = any(one.gradient is not None for call in calls for one in call.reference.outputs)
        return self.located.learns and not reached and frozen <= {call.port.path for call in calls}

    def _first(self, number: int, path: str) -> str:
        """Return the path by which calls and verdicts know a layer that has several."""
        layer = self.layers[number].get(path)
        return path if layer is None else self.first[number][id(layer)]

    def _pair(self, paths: tuple[str, str]) -> PairedLayers:
        (ours, theirs), (path, port_path) = self.layers, paths
        return PairedLayers(path, ours[path], port_path, theirs[port_path])

    def _calls(self, paths: tuple[str, str]) -> list[CallPair]:
        pairs = (*self.located.joint, *self.located.matching.pairs)
        return [one for one in pairs if (one.reference.path, one.port.path) == paths]

    def _activations(self, known: Sequence[Diagnosis]) -> Iterator[Diagnosis]:
        """Yield the differences of layers' own activations, where the models' inputs hide them.

        timm's BatchNormAct2d is a norm and an activation, which a port has as a layer or an argument. Of a function nothing is
        told: these inputs may not tell it from another.
        """
        eager = [one for one in known if not one.harmless and IN_TRAINING not in one.message]
        told = {path for one in eager for path in (one.reference_path, one.port_path)}
        calls = (*(one for one in self.located.matching.pairs if not one.whole), *self.located.joint)
        for paths, call in {(one.reference.path, one.port.path): one for one in calls}.items():
            shown = call in self.located.joint and paths in self.faulty
            if not (shown or paths in self.fine) or told.intersection(paths):
                continue
            if not (self._activates(0, call) and self._activates(1, call)):
                continue
            pair = self._pair(paths)
            ours, theirs = [*self._acting(0, call)], [*self._acting(1, call)]
            argument = getattr(pair.port, "_act", None)
            if not (any(call.then) or ours or theirs or argument):
                continue
            acts = [*check_layers([PairedLayers(*ours[0], *theirs[0])])] if len(ours) == len(theirs) == 1 else []
            if shown:
                yield from (one if one.harmless else replace(one, effect="here") for one in acts)
                continue
            key = repr((pair.reference, pair.port, argument, [one for _, one in (*ours, *theirs)]))
            if proof := self._shown_by(key, pair, call, activation=True):
                # The layer and its successor differ from torch's only together.
                reference, port = (f"nn.{type(one).__name__}" for one in (pair.reference, pair.port))
                after, port_after = (f" with {steps[0].name} after it" if steps else "" for steps in call.then)
                names = " and ".join(f"nn.{type(one).__name__}" for _, one in ours)
                message = (
                    f"{name_of(pair)} ({port}){port_after} computes something else than torch's ({reference}){after}"
                )
                fix = f"apply the activation that torch's has to the result of {place_of(pair)}"
                both, fix = (reference + after, port + port_after), fix + (f": {names}" if names else "")
                together = difference("layer-type", both, message, fix, code="structure", paths=pair.paths)
                for one in acts or [together]:
                    yield replace(one, effect="elsewhere", message=f"{one.message}; {proof} would show it")

    def _cut_gradients(self) -> Iterator[Diagnosis]:
        """Yield the layers of the port that stop a gradient which the models' runs do not have: their inputs take none."""
        for call in self.located.matching.pairs:
            paths, ours = (call.reference.path, call.port.path), call.reference
            if call.whole or paths not in self.fine or any(one.gradient is not None for one in ours.outputs):
                continue
            if not any(one.dtype.kind == "f" for one in ours.inputs) or len(ours.inputs) != len(call.port.inputs):
                continue
            pair = self._pair(paths)
            given, port_given = ([self._held(value) for value in one.inputs] for one in (ours, call.port))
            runs = self._run(0, pair, call, given, training=False), self._run(1, pair, call, port_given, training=False)
            if any(len(one) < 2 for one in runs):
                continue
            (_, first), (_, port_first) = runs
            if any(map(_flows, first.inputs)) and not any(map(_flows, port_first.inputs)):
                message = (
                    f"{name_of(pair)} gives what it is called with no gradient, torch's does; training what gives it its "
                    "input would show it"
                )
                fix = f"let gradients through {place_of(pair)}: no `no_grad`, `detach` or `stop_gradient`"
                cut = difference("stop-gradient", ("gradient", "None"), message, fix, code="setting", paths=pair.paths)
                yield replace(cut, effect="elsewhere")

    def _held(self, value: TracedValue) -> Array:
        """Return a tensor as it was, or, of one that is not held, numbers of its shape."""
        held = value.stored.outline is None
        return self.store.get(value.stored) if held else np.random.default_rng(self.seed).standard_normal(value.shape)

    def _activates(self, number: Literal[0, 1], call: CallPair) -> bool:
        steps, layers = call.then[number], self.layers[number]
        return all(not one.function and is_activation(layers[one.name], number) for one in steps)

    def _acting(self, number: Literal[0, 1], call: CallPair) -> Iterator[tuple[str, Model]]:
        """Yield the activations inside a layer, and the layers that its result is given to."""
        path = call.calls[number].path
        for name, one in self.sides[number].layers(self.layers[number][path]):
            if name and is_activation(one, number):
                yield join(path, name), one
        yield from ((step.name, self.layers[number][step.name]) for step in call.then[number])

    def _padding(self, one: Diagnosis, pair: PairedLayers) -> Diagnosis:
        """Return an index of padding's effect: Paddle's zeroes the output, torch's the gradient.

        Where the reference's row is not zero, an exact port has no such index: the row's gradient alone may differ.
        """
        paths = pair.reference_path, pair.port_path
        ours, theirs = pair.reference.padding_idx, pair.port._padding_idx  # noqa: SLF001
        rows = pair.reference.num_embeddings
        row = next(index for index in (ours, theirs) if index is not None) % rows
        filled = bool(pair.reference.weight[row].detach().any())
        if ours is not None and filled:
            fix = (
                f"leave {place_of(pair)} with `padding_idx=None`, which in Paddle zeroes the output, and stop the "
                f"gradient of row {row} of its weight"
            )
            one = replace(one, fix=fix, edit=None)
        if paths in self.faulty:
            return replace(one, effect="here")
        tokens: list[Array] = []
        with suppress(NotHeld):
            tokens = [self.store.get(value.stored) for call in self._calls(paths) for value in call.reference.inputs]
        told = ""
        if any(bool((given % rows == row).any()) for given in tokens):
            told = f"with token {row} in the inputs, neither output nor gradient differs"
        elif theirs is None and filled:
            told = f"Paddle's would zero the row, which is not zero in torch's, and no input has token {row}: its gradient is zero"
        if told:
            return replace(one, effect="none", message=f"{one.message}; {told}")
        where = "training on" if theirs is None or not filled else "an input with"
        return replace(one, effect="elsewhere", message=f"{one.message}; {where} token {row} would show it")

    def _shown_by(self, key: Hashable, pair: PairedLayers, call: CallPair, *, activation: bool = False) -> str | None:
        """Return the proof that two layers differ, once by a ``key``; empty if none, None if they cannot run.

        That the port's alone does not run forward, or gives no finite numbers, shows it. Of an ``activation`` only what it gives in
        eval mode does.
        """
        if key in self.seen:
            return self.seen[key]
        self.seen[key] = None
        for what, training, given in self._inputs(pair, call):
            if training and activation:
                continue
            expected = self._run(0, pair, call, given, training=training)
            if not expected or not all(np.isfinite(one).all() for one in expected[0].outputs):
                continue
            actual = self._run(1, pair, call, given, training=training)
            if not actual and activation:
                continue
            if not actual or any(map(_apart, expected, actual)):
                self.seen[key] = what
                break
            if len(expected) == len(actual):
                self.seen[key] = ""
        return self.seen[key]

    def _inputs(self, pair: PairedLayers, call: CallPair) -> Iterator[tuple[str, bool, list[Array]]]:
        shapes = [one.shape for one in call.reference.inputs]
        same = shapes == [one.shape for one in call.port.inputs]
        if not shapes or not same or any(np.prod(shape) > LARGEST for shape in shapes):
            return
        kinds = [one.dtype.kind for one in call.reference.inputs]
        if "f" not in kinds:
            rows = int(getattr(pair.reference, "num_embeddings", 0))
            if rows and len(shapes) == 1:
                tokens = np.arange(min(rows, TOKENS))
                yield "an input with every token", False, [tokens]
                yield "training on every token, some twice", True, [np.concatenate([tokens, tokens[:2]])]
            return
        if any(kind != "f" for kind in kinds):
            return
        generator = np.random.default_rng([self.seed, 3])
        usual = [generator.standard_normal(shape) for shape in shapes]
        yield "an input of large values, of both signs,", False, [20 * one for one in usual]
        yield "an input of negative values", False, [-np.abs(one) for one in usual]
        yield "an input of small values", False, [1e-3 * one for one in usual]
        if len(shapes) == 1 and len(shapes[0]) in (3, 4, 5):
            shape = (*shapes[0][:2], *(size + 1 for size in shapes[0][2:]))
            yield "an input of another size", False, [generator.standard_normal(shape)]
        yield IN_TRAINING, True, usual

    def _run(
        self, number: Literal[0, 1], pair: PairedLayers, call: CallPair, given: Sequence[Array], *, training: bool
    ) -> list[Rerun]:
        """Return a layer's results forward, with gradients, and after a training, until it fails."""
        side, one = self.sides[number], call.calls[number]
        training = training and self.trained[number].get(one.path, True)
        copied = partial(side.copied, double=True, training=training)
        layer = copied((pair.reference, pair.port)[number])
        then = steps_after(side, call.then[number], lambda path: copied(self.layers[number][path]))
        run, found = partial(rerun_layer, side, layer, one, given, double=True, seed=self.seed, then=then), []
        with suppress(NotReplayed):
            found.append(run())
            generator = np.random.default_rng([self.seed, 4])
            outputs = found[0].outputs
            starts = [generator.standard_normal(one.shape) if one.dtype.kind == "f" else None for one in outputs]
            found.append(run(cotangents=starts))
            if training:  # what it has left shows in eval mode
                layer.eval()
                found.append(run())
        return found


def _flows(gradient: Array | None) -> bool:
    """Tell whether a gradient is more than the rounding of float64; it was made from one of standard normal numbers."""
    return gradient is not None and bool((np.abs(gradient) > NOISE).any())


def _apart(one: Rerun, other: Rerun) -> bool:
    """Tell whether a result or gradient of the port's differs from the reference's, if that is finite."""
    expected, actual = one.parameters or {}, other.parameters or {}
    pairs = [*zip(one.outputs, other.outputs, strict=False)]
    pairs += [(a, b) for a, b in zip(one.inputs, other.inputs, strict=False) if a is not None and b is not None]
    pairs += [(expected[name], actual[name]) for name in expected.keys() & actual.keys()]
    known = (two for two in pairs if np.isfinite(two[0]).all())
    return len(one.outputs) != len(other.outputs) or any(not relative_arranged(*two) <= ROUGH for two in known)
