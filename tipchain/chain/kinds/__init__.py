"""The kinds of TIPC chains: which driver a parameter file is for, told from the file.

Most files are for ``test_train_inference_python.sh``. Each other kind that tipchain runs is a module of this folder, which is
imported only when a file of its kind is at hand. It has

- ``plan(request) -> Plan``: the commands (`tipchain.chain.kinds.base.Request` says what is asked for);
- ``LAYOUTS``: the suites' layouts (`tipchain.chain.kinds.base.Layout`), by which ``lint`` reads a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import NamedTuple

from tipchain.chain.params import ParamFile
from tipchain.errors import UsageError, suggestion
from tipchain.modes import CHAIN_MODES, Mode

TRAIN_INFER = "train_infer_python"


class Mark(NamedTuple):
    """The marks of a kind, all needed: the file's first section, its name's pattern, the mode."""

    section: str
    name: str = "*"
    mode: Mode | None = None

    def holds(self, file: ParamFile, mode: Mode | None) -> bool:
        """Return whether a file, in the mode that is asked for, has this mark."""
        first = file.headers[0][0] if file.headers else ""
        named = fnmatchcase(PurePath(file.path).name, self.name)
        return first == self.section and named and self.mode in (None, mode)

    def __str__(self) -> str:
        parts = [f"it begins with the section [{self.section}]"]
        parts += [f"its name is like {self.name}"] if self.name != "*" else []
        parts += [f"the mode is {self.mode.value}"] if self.mode else []
        return " and ".join(parts)


class Kind(NamedTuple):
    """One kind of chain.

    Attributes:
        name: as users type it, ``Plan.chain``, and ``chain`` in reports.
        title: the purpose of its chains, for lint and reports.
        driver: the suites' script.
        modes: its modes; where there is one, it need not be named.
        marks: each tells it.
        module: its planner; "" for `TRAIN_INFER` and for what tipchain does not run.
        section: the one section that its layouts are of; "" for the whole file.
        lacks: the reason why tipchain does not run its chains; "" where it does.
    """

    name: str
    title: str
    driver: str
    modes: tuple[Mode, ...]
    marks: tuple[Mark, ...]
    module: str = ""
    section: str = ""
    lacks: str = ""

    @property
    def refusal(self) -> str:
        """Why nothing of such a file is run; "" where it is."""
        return self.lacks and f"tipchain does not run {self.driver}: it needs {self.lacks}"


# In the order in which they are told.
_ALL = (
    Kind(
        name="benchmark_train",
        title="the speed of training",
        driver="benchmark_train.sh",
        modes=(Mode.BENCHMARK_TRAIN,),
        marks=(Mark(section="train_params", mode=Mode.BENCHMARK_TRAIN),),
        module="tipchain.chain.kinds.benchmark_train",
        section="train_benchmark_params",
    ),
    Kind(
        name="paddle2onnx",
        title="conversion to ONNX, and inference with it",
        driver="test_paddle2onnx.sh",
        modes=(Mode.PADDLE2ONNX_INFER,),
        marks=(Mark(section="paddle2onnx_params"),),
        module="tipchain.chain.kinds.paddle2onnx",
    ),
    Kind(
        name="ptq_infer_python",
        title="post-training quantization, and inference with it",
        driver="test_ptq_inference_python.sh",
        modes=(Mode.WHOLE_INFER,),
        marks=(
            Mark(section="ptq_params"),
            Mark(section="kl_quant_params"),
            Mark(section="train_params", name="*ptq_infer_python*"),
        ),
        module="tipchain.chain.kinds.ptq_infer_python",
    ),
    Kind(
        name="dy2static",
        title="one training in dynamic mode and as a static graph, with equal losses",
        driver="test_train_dy2static_python.sh",
        modes=(Mode.LITE_TRAIN_LITE_INFER,),
        marks=(Mark(section="base_train"), Mark(section="amp_train")),
        module="tipchain.chain.kinds.dy2static",
    ),
    Kind(
        name="serving_cpp",
        title="a C++ server and a client that asks it",
        driver="test_serving_infer_cpp.sh",
        modes=(Mode.SERVING_INFER,),
        marks=(Mark(section="serving_infer_cpp_params"), Mark(section="serving_params", name="*serving*cpp*")),
        lacks="Paddle Serving, which no version of Paddle since 2.3 has",
    ),
    Kind(
        name="serving_python",
        title="a server and a client that asks it",
        driver="test_serving_infer_python.sh",
        modes=(Mode.SERVING_INFER,),
        marks=(Mark(section="serving_infer_python_params"), Mark(section="serving_params")),
        lacks="Paddle Serving, which no version of Paddle since 2.3 has",
    ),
    Kind(
        name="inference_cpp",
        title="inference with a C++ program",
        driver="test_inference_cpp.sh",
        modes=(Mode.CPP_INFER,),
        marks=(Mark(section="cpp_infer_params"), Mark(section="cpp_program_params")),
        lacks="a program that is built with Paddle's C++ library",
    ),
    Kind(
        name="lite",
        title="inference on a phone",
        driver="test_lite_arm_cpu_cpp.sh",
        modes=(Mode.LITE_INFER,),
        marks=(Mark(section="lite_params"),),
        lacks="a phone and Paddle Lite's library for it",
    ),
    Kind(
        name=TRAIN_INFER,
        title="training, evaluation, export and inference",
        driver="test_train_inference_python.sh",
        modes=CHAIN_MODES,
        marks=(Mark(section="train_params"),),
    ),
)
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _ALL}


class Told(NamedTuple):
    """A file's kind and why it was taken for it."""

    kind: Kind
    reason: str

    def mode(self, mode: Mode | None, path: str) -> Mode:
        """Return the mode to plan: the one asked for, or the only one.

        Raises:
            UsageError: the kind does not have it, or has several and none was asked for.
        """
        kind, names = self.kind, ", ".join(one.value for one in self.kind.modes)
        if mode is None and len(kind.modes) == 1:
            return kind.modes[0]
        if mode is None:
            raise UsageError(f"MODE is missing\n  expected one of: {names}")
        if mode not in kind.modes:
            others = [one.name for one in KINDS.values() if mode in one.modes]
            hint = f"\n  --chain {'|'.join(others)} takes it for another" if others else ""
            raise UsageError(
                f"{path}: {mode.value} is no mode of {kind.name} chains\n  expected one of: {names}\n"
                f"  it is taken for one of {kind.driver}: {self.reason}{hint}"
            )
        return mode


def tell_kind(file: ParamFile, mode: Mode | None = None, chain: str | None = None) -> Told:
    """Return the kind of ``file``: the one called ``chain``, else the first that it has a mark of, else `TRAIN_INFER`.

    Raises:
        UsageError: no kind is called ``chain``.
    """
    if chain is not None:
        if chain not in KINDS:
            raise UsageError(f"unknown kind of chain {chain!r}{suggestion(chain, KINDS)}\n  kinds: {', '.join(KINDS)}")
        return Told(kind=KINDS[chain], reason="named by --chain")
    marks = ((kind, mark) for kind in KINDS.values() for mark in kind.marks if mark.holds(file, mode))
    kind, reason = next(marks, (KINDS[TRAIN_INFER], "it has no other kind's marks"))
    return Told(kind=kind, reason=str(reason))
