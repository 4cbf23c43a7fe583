"""One interface of both frameworks; and from ``"module:callable"`` to a case builder's checked result."""

from __future__ import annotations

import difflib
import importlib
import inspect
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial, wraps
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tipchain.core.blame import UsersError, blame, claim, is_users, place_of, placed, serving
from tipchain.errors import InputError, TipchainError, UsageError
from tipchain.facts.layers import kind_of
from tipchain.framework_types import Array, Model, Optimizer, Schedule

if TYPE_CHECKING:
    from tipchain.frameworks import Framework

# From ``"module:callable"`` to the callable, and to what a builder of a case makes, checked.


CANDIDATES, SHOWN = 3, 8
"""How many names are told that may have been meant, and of those that there are."""
MODELS = {"torch": "torch.nn.Module", "paddle": "paddle.nn.Layer"}
EXPECTED = {
    "loss": "a callable `(output, label) -> scalar`",
    "optimizer": "an optimizer, which has `step()`",
    "scheduler": "a schedule, which has `step()`",
    "dataset": "a data set, which has `__len__` and `__getitem__`",
    "metric": "a callable `(output, label) -> {name: percent}`, or an object with `update` and `compute`",
}
"""The result that a builder has to return, by its key in the case."""
CALLED = {
    "model": "`(**model_args)`",
    "loss": "`(**loss.args)`",
    "optimizer": "`(parameters, learning_rate, **optimizer)`",
    "scheduler": "`(optimizer, **scheduler)`",
    "dataset": "`(root, split, **data.args)`",
    "metric": "`()`",
}
"""How a builder is called, by its key in the case; Paddle's scheduler gets ``(None, learning_rate=..., **scheduler)``."""


def imports_start(root: Path) -> str:
    """Return the hint that says where imports start."""
    return f"imports start at {root}; --root, or root: in the case, says another folder"


class _OwnImports:
    """Keep the imports of each side apart, where both share a process: two repositories may each have a package ``models``.

    A side's own folders are those that its modules put on the import path. The side at work finds these first. What the
    other side has imported is put apart meanwhile, under a name by which Python still finds the files of its classes.
    """

    def __init__(self) -> None:
        self.folders: dict[str, list[str]] = {side: [] for side in MODELS}
        self.apart: dict[str, set[str]] = {side: set() for side in MODELS}
        self.added: dict[str, list[str]] = {}
        self.proxied: dict[str, set[ModuleType]] = {}
        self.guarded: set[str] = set()

    @contextmanager
    def paddle_as_torch(self, package: str) -> Iterator[None]:
        """Let the modules that are imported meanwhile, of a package and of those it uses, find Paddle where they import torch.

        They are the port's, whatever the reference has imported of them.

        Raises:
            UsageError: this Paddle has no such layer.
        """
        import paddle

        if not hasattr(paddle, "use_compat_guard"):
            raise UsageError(
                f"compat: Paddle {paddle.__version__} has no paddle.enable_compat()\n  expected: Paddle 3.3 or later"
            )
        self.guarded = {package, *_borrowers()}
        self.proxied.update({one: set() for one in self.guarded - self.proxied.keys()})
        self.enter("paddle")
        try:
            with paddle.use_compat_guard(scope=self.guarded, silent=True):
                yield
        finally:
            self._claim()
            self.guarded = set()

    def _claim(self) -> None:
        """Note the modules that have found Paddle where they import torch."""
        for one in self.guarded | _borrowers():
            own = self.proxied.setdefault(one, set())
            own.update(module for name, module in sys.modules.items() if _top(name) == one)

    def load(self, side: str, name: str, load: Callable[[], ModuleType]) -> ModuleType:
        """Import a module among the side's own modules; once more, if it met the other's.

        Raises:
            TipchainError: it cannot be imported.
        """
        self._own(side, self.added.get(name, []))
        self.enter(side)
        known, path = set(sys.modules), {Path(one).absolute() for one in sys.path}
        failure: TipchainError | None = None
        try:
            module = load()
        except TipchainError as error:
            failure = error
        if self.guarded:
            self._claim()
        self.added.setdefault(name, []).extend(one for one in sys.path if Path(one).absolute() not in path)
        self._own(side, self.added[name])
        if self.enter(side):
            for one in [one for one in sys.modules if one not in known and "@" not in one]:
                if is_users(_file(sys.modules[one])):
                    del sys.modules[one]
            module, failure = load(), None
        if failure is not None:
            raise failure
        return module

    def _own(self, side: str, folders: Sequence[str]) -> None:
        self.folders[side] += [one for one in folders if one not in self.folders[side]]

    def enter(self, side: str) -> bool:
        """Let a side find its own first; tell whether it would have found something of the other's in its place."""
        (other,) = MODELS.keys() - {side}
        own = [one for one in self.folders[side] if one in sys.path]
        theirs = [one for one in self.folders[other] if one in sys.path and one not in own]
        if not own and not theirs and not self.proxied:
            return False
        sys.path[:] = [*own, *(one for one in sys.path if one not in {*own, *theirs}), *theirs]
        folders = {f"{Path(one).absolute()}/": one for one in sys.path}
        misled = set()
        for name, module in list(sys.modules.items()):
            file, package = _file(module), _top(name)
            if package in self.proxied:
                if (module in self.proxied[package]) != (side == "paddle"):
                    misled.add(name)
            elif package and is_users(file):
                folder = folders.get(max((one for one in folders if file.startswith(one)), key=len, default=""))
                named = (Path(one, package).is_dir() or Path(one, f"{package}.py").is_file() for one in own)
                namesake = folder not in own and any(named)
                if folder in theirs or namesake:
                    misled.add(name)
        for name in misled:
            _rename(name, f"{name}@{other}")
        for name in self.apart[side]:
            _rename(f"{name}@{side}", name)
        self.apart[side] = set()
        self.apart[other] |= misled
        return bool(misled)


def _file(module: ModuleType | None) -> str:
    """Return a module's file, or a file in the folder of a package without one; a module with neither is no user's."""
    known = getattr(module, "__dict__", {})  # of what is no module, as torch.classes is, any name may raise
    return known.get("__file__") or next((f"{one}/" for one in known.get("__path__", ())), "<")


def _top(name: str) -> str:
    """Return the package of a module by its name; empty of one that was put apart."""
    return "" if "@" in name else name.partition(".")[0]


def _borrowers() -> set[str]:
    """Return the imported packages that hold something of torch's, or of what stands in for it, or of such a package's."""
    apart = {"", "__main__", "__mp_main__", "torch", "paddle", "tipchain", *sys.stdlib_module_names}
    holding = {_top(name): set[str]() for name in sys.modules if _top(name) not in apart}
    for name, module in list(sys.modules.items()):
        for one in list(getattr(module, "__dict__", {}).values()) if _top(name) in holding else ():
            holding[_top(name)] |= _owners(one)
    found = {"torch"}
    while more := {name for name, owners in holding.items() if owners & found} - found:
        found |= more
    return found - apart


def _owners(value: object) -> set[str]:
    if isinstance(value, ModuleType):
        return {_top(value.__name__)}
    if isinstance(value, type):
        return {_top(str(getattr(one, "__module__", ""))) for one in value.__mro__}
    if type(value) is BuiltinFunctionType:
        return {"torch"} if getattr(sys.modules.get("torch"), value.__name__, None) is value else set()
    return {_top(str(value.__module__))} if isinstance(value, FunctionType) else set()


def _rename(name: str, other: str) -> None:
    """Have a module under another name, and let its classes say so."""
    module = sys.modules[other] = sys.modules.pop(name)
    for one in vars(module).values():
        if isinstance(one, type) and one.__module__ == name:
            one.__module__ = other


_imports = _OwnImports()


def resolve(spec: str, root: Path, side: str = "", *, compat: bool = False) -> Callable[..., Any]:
    """Import and return the callable that ``"module:callable"`` names, with ``root`` on the import path.

    Args:
        spec: what is named.
        root: where imports start.
        side: whose it is, ``"torch"`` or ``"paddle"``: it does not meet what the other's modules have imported.
        compat: torch's source under Paddle: its package finds Paddle where it imports torch, while it is imported and called.

    Raises:
        UsageError: ``compat`` with a Paddle that cannot do that.
        InputError: the module cannot be found, has no such name, or the name is not callable.
        UsersError: it raised while it was imported.
    """
    module_name, _, name = spec.partition(":")
    claim(module_name)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    package = module_name.partition(".")[0]
    proxy = partial(_imports.paddle_as_torch, package) if compat else nullcontext
    with serving(stage=f"importing {module_name}"), proxy():
        load = partial(_import, module_name, spec, root)
        module = _imports.load(side, module_name, load) if side else load()
    if not hasattr(module, name):
        near = candidates(module, name)
        own = [known for known, value in vars(module).items() if known[:1] != "_" and callable(value)]
        hint = f"it has {', '.join(own[:SHOWN])}{', …' if len(own) > SHOWN else ''}" if own else None
        raise InputError(
            f"{module_name} has no {name!r}", key=spec, hint=f"did you mean {' or '.join(near)}?" if near else hint
        )
    builder = getattr(module, name)
    if not callable(builder):
        raise InputError("is not callable", key=spec, found=type(builder).__name__)

    @wraps(builder)
    def build(*args: object, **settings: object) -> object:
        with proxy():
            return builder(*args, **settings)

    return build if compat else builder


def candidates(module: ModuleType, name: str) -> list[str]:
    """Return likely names in place of one that a module lacks, the likeliest first, as ``module:callable``.

    That is what is spelt so in the module but for case and underscores, longer, or nearly so, and what is called exactly so
    elsewhere in the package.
    """
    own = {_bare(known): known for known, value in vars(module).items() if known[:1] != "_" and callable(value)}
    longer = sorted((bare for bare in own if _bare(name) in bare), key=len)
    spelt = longer or difflib.get_close_matches(_bare(name), own, n=CANDIDATES)
    named = [f"{module.__name__}:{own[bare]}" for bare in spelt]
    package = module.__name__.partition(".")[0]
    elsewhere = [
        f"{path}:{name}"
        for path, other in list(sys.modules.items())
        if path.startswith(f"{package}.") and "._" not in path and callable(vars(other).get(name))
    ]
    nearest = sorted(elsewhere, key=lambda path: (path.count("."), len(path), path))[:1]
    return [*named[:1], *nearest, *named[1:]][:CANDIDATES]


def _bare(name: str) -> str:
    return name.replace("_", "").lower()


def _import(name: str, spec: str, root: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise InputError(f"{error.name} does not exist", key=spec, hint=imports_start(root)) from error
        raise UsersError(blame(error)) from error
    except (Exception, SystemExit) as error:  # the user's own module may raise anything
        raise UsersError(blame(error)) from error


def check_batch(batch: object, dataset: Any) -> tuple[Any, Any, Any]:
    """Return the three parts of a loader's batch: images, labels, file names.

    Raises:
        UsersError: the data set's samples have other parts.
    """
    if isinstance(batch, tuple | list) and len(batch) == 3:
        return batch[0], batch[1], batch[2]
    found = f"{len(batch)} values" if isinstance(batch, tuple | list) else described(batch)
    place = place_of(getattr(type(dataset), "__getitem__", dataset))
    raise UsersError(
        f"{place + ': ' if place else ''}a sample of {type(dataset).__name__} is {found}\n"
        "  expected: (image, label, file name)"
    )


def checking(name: str, side: str, builder: Callable[..., object]) -> Callable[..., Any]:
    """Return a builder of a side, by its key in the case, with its result checked."""

    @wraps(builder)
    def build_checked(*args: object, **settings: object) -> object:
        with serving(side=side, stage=f"building the {name}"):
            expected = EXPECTED.get(name) or f"a {MODELS[side]}"
            _imports.enter(side)
            try:
                made = builder(*args, **settings)
            except TypeError as error:
                if name not in CALLED or _takes(builder, args, settings):
                    raise
                call = (
                    f"`(None, learning_rate=..., **{name})`"
                    if (name, side) == ("scheduler", "paddle")
                    else CALLED[name]
                )
                place = placed(builder).rpartition(": ")[0]
                raise UsersError(
                    f"{place + ': ' if place else ''}TypeError: {error}\n  expected: a builder that is called with {call} and returns {expected}"
                ) from error
            if not _is_kind(name, side, made):
                raise UsersError(f"{placed(builder)} returned {described(made)}\n  expected: {expected}")
            return made

    return build_checked


def _takes(called: Callable[..., object], args: Sequence[object], settings: Mapping[str, object]) -> bool:
    """Tell whether something may be called with these arguments; True where that cannot be known."""
    try:
        inspect.signature(called).bind(*args, **settings)
    except TypeError:
        return False
    except ValueError:  # it has no signature
        pass
    return True


def described(made: object) -> str:
    """Describe a value in words."""
    kind = type(made)
    root = kind.__module__.partition(".")[0]
    return "None" if made is None else f"a {kind.__name__}" + ("" if root == "builtins" else f" of {root}")


def _is_kind(name: str, side: str, made: Any) -> bool:
    match name:
        case "model":
            layers: Any = sys.modules[side].nn
            return isinstance(made, layers.Module if side == "torch" else layers.Layer)
        case "optimizer" | "scheduler":
            return callable(getattr(made, "step", None))
        case "dataset":
            with suppress(TypeError, NotImplementedError):  # Paddle's Dataset has a __len__ that says there is none
                return hasattr(made, "__getitem__") and len(made) >= 0
            return False
        case "metric":
            return callable(made) or (hasattr(made, "update") and hasattr(made, "compute"))
        case "loss":
            return callable(made)
        case _:
            return True


# How an optimizer's builder is called, and the factor of the rate that each parameter has in Paddle's.


def make_optimizer(builder: Callable[..., Any], model: Model, learning_rate: Any, args: Mapping[str, Any]) -> Any:
    """Return ``builder(model.parameters(), learning_rate, **args)``, and the model where the builder asks for it.

    Rules for some of the parameters need names or layer types.
    """
    asks = "model" in inspect.signature(builder).parameters
    return builder(model.parameters(), learning_rate, **args, **({"model": model} if asks else {}))


def rate_factor(optimizer: object, parameter: object) -> float:
    """Return the factor of the learning rate that a parameter has in a Paddle optimizer: its own, and AdamW's ``lr_ratio``."""
    own = float((getattr(parameter, "optimize_attr", None) or {}).get("learning_rate", 1.0))
    ratio = getattr(optimizer, "_lr_ratio", None)
    return own if ratio is None else own * float(ratio(parameter))


# What a side trains with, and what a model of either framework returns.


Builder = Callable[..., Any]
Batch = tuple[Any, Any, list[str]]
"""Image tensor, label tensor, file names."""


class Trainer:
    """An optimizer with its schedule, if there is one."""

    def __init__(
        self, optimizer: Optimizer, scheduler: Schedule, rate: Callable[[], float], clear: Callable[[], object]
    ) -> None:
        self.optimizer, self.scheduler, self._rate, self._clear = optimizer, scheduler, rate, clear

    def learning_rate(self) -> float:
        """Return the rate that the next step uses."""
        return float(self._rate())

    def step(self) -> None:
        """Update the parameters and clear their gradients."""
        self.optimizer.step()
        self._clear()

    def step_schedule(self) -> None:
        """Advance the learning rate schedule, if there is one."""
        if self.scheduler is not None:
            self.scheduler.step()


class LoadedFramework:
    """Both frameworks in the same words."""

    name: Literal["torch", "paddle"]
    library: Any

    def layers(self, model: Model) -> Iterator[tuple[str, Model]]:
        """Yield every layer with its path, the model itself (path empty) first; one used twice comes once."""
        yield from model.named_modules() if self.name == "torch" else model.named_sublayers(include_self=True)

    def set_training(self, model: Model, training: bool) -> None:
        """Switch train or eval mode; dropout-like layers stay in eval mode."""
        model.train() if training else model.eval()
        for _, layer in self.layers(model):
            if "drop" in type(layer).__name__.lower():
                layer.eval()

    def wake_dropout(self, model: Model) -> None:
        """Switch the framework's own dropout layers to train mode."""
        for _, layer in self.layers(model):
            kind = kind_of(layer, 0 if self.name == "torch" else 1)
            if kind is not None and kind.drops:
                layer.train()

    def seed(self, seed: int) -> None:
        """Seed the framework's, numpy's and Python's generators."""
        self._seed_own(seed)
        np.random.seed(seed)  # noqa: NPY002  (user code may draw from it)
        random.seed(seed)

    def _seed_own(self, seed: int) -> None:
        raise NotImplementedError

    @contextmanager
    def double_precision(self) -> Iterator[None]:
        """Let float64 be the framework's default dtype for a while."""
        usual = self.library.get_default_dtype()
        self.library.set_default_dtype(self.library.float64)
        try:
            yield
        finally:
            self.library.set_default_dtype(usual)

    def inference(self) -> AbstractContextManager[Any]:
        """Return the framework's ``no_grad()``."""
        context: AbstractContextManager[Any] = self.library.no_grad()
        return context

    def is_tensor(self, value: Any) -> bool:
        """Tell whether ``value`` is a tensor of the framework's."""
        return bool(self.library.is_tensor(value))

    def concat(self, tensors: Sequence[object]) -> Any:
        """Join tensors along axis 0."""
        return self.library.concat(list(tensors))

    def build_layers(self) -> Model:
        """Return one layer of every kind that optimizers' rules tell apart, in a layer that is never run."""
        nn = self.library.nn
        kind, conv, norm = (
            (nn.Layer, nn.Conv2D, nn.BatchNorm2D) if hasattr(nn, "Layer") else (nn.Module, nn.Conv2d, nn.BatchNorm2d)
        )
        layers = kind()
        layers.conv, layers.bn, layers.embedding = conv(3, 4, 3), norm(4), nn.Embedding(7, 5)
        layers.norm, layers.linear, layers.head = nn.LayerNorm(5), nn.Linear(5, 6), nn.Linear(6, 3)
        return layers


def flatten_outputs(framework: Framework, output: object, names: Sequence[str]) -> dict[str, Any]:
    """Return a model's output tensors by name, whatever their structure.

    A dict's tensors are called after its keys. Those of a tuple, a list or a single tensor take ``names`` in order:
    one for each tensor, however deep, or one for each item; then the tensors of an item that holds several are
    called ``name/key`` or ``name/index``. An item that is None is no output.

    Raises:
        UsageError: the number of outputs is not that of ``names``, one is no tensor, or two have one name.
    """
    leaves = list(_leaves(framework, output, ""))
    if isinstance(output, Mapping):
        pairs = leaves
    elif len(leaves) == len(names):
        pairs = [(name, value) for name, (_, value) in zip(names, leaves, strict=True)]
    else:
        values = list(output) if isinstance(output, tuple | list) else [output]
        items = [value for value in values if value is not None]
        if len(items) != len(names):
            raise UsageError(
                f"the {framework.name} model returned {len(items)} outputs, the case names {len(names)}: "
                f"{', '.join(names)}\n  expected: `outputs:` in the case lists one name for each"
            )
        pairs = [leaf for name, item in zip(names, items, strict=True) for leaf in _leaves(framework, item, name)]
    if not pairs:
        raise UsageError(f"the {framework.name} model returned no tensor")
    named = dict(pairs)
    if len(named) < len(pairs):
        raise UsageError(f"two outputs of the {framework.name} model have one name: {', '.join(n for n, _ in pairs)}")
    return named


def _leaves(framework: Framework, output: object, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(output, Mapping | tuple | list):
        fields = getattr(output, "_fields", range(len(output)))  # a namedtuple's have names
        items = output.items() if isinstance(output, Mapping) else zip(fields, output, strict=True)
        for key, value in items:
            yield from _leaves(framework, value, f"{path}/{key}" if path else str(key))
    elif framework.is_tensor(output):
        yield path, output
    elif output is not None:
        what = f"output {path!r}" if path else "the output"
        raise UsageError(f"{what} of the {framework.name} model is a {type(output).__name__}, not a tensor")


def map_nested(change: Callable[[Any], object], value: object) -> Any:
    """Return a value of the same structure, with ``change`` applied to everything that is no mapping, tuple or list."""
    if isinstance(value, Mapping):
        return {key: map_nested(change, one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return like_sequence(value, [map_nested(change, one) for one in value])
    return change(value)


def widened_array(value: object) -> object:
    """Return an array of float32 in float64; anything else as it is."""
    single = isinstance(value, np.ndarray | np.generic) and value.dtype == np.float32
    return np.asarray(value, np.float64) if single else value


def concat_outputs(framework: Framework, outputs: Sequence[Any]) -> Any:
    """Join the outputs of several batches, whatever their structure."""
    first = outputs[0]
    if isinstance(first, Mapping):
        return {key: concat_outputs(framework, [one[key] for one in outputs]) for key in first}
    if isinstance(first, tuple | list):
        return like_sequence(first, [concat_outputs(framework, list(ones)) for ones in zip(*outputs, strict=True)])
    return framework.concat(outputs) if framework.is_tensor(first) else first


def like_sequence(sequence: object, values: list[object]) -> object:
    """Return values as a tuple, as a namedtuple of the sequence's own class, or as a list."""
    kind: Any = type(sequence)
    if hasattr(kind, "_fields"):  # a constructor of its own, as torch's PackedSequence has, may take no other values
        return tuple.__new__(kind, values)
    return tuple(values) if isinstance(sequence, tuple) else values


def scalar(array: Array) -> Array:
    """Return a one-element array of shape (1,); a loss that has more elements is refused."""
    if array.size != 1:
        raise UsageError(f"the loss has shape {array.shape}, expected one number")
    return np.asarray(array).reshape(1)
