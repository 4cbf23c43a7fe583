"""The defects of the original drivers that the default mode fixes, by name.

A plan is made with a set of fixes: all of them by default, none for ``--legacy``. What a fix changes in a file is said
where it happens, as a finding that ``tipchain lint`` shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FIXES: Mapping[str, str] = {
    "true-exit": "each command is judged by its own exit status, and a failed step skips what needs it",
    "nothing-planned": "a plan without commands is exit code 4 with the reason",
    "run-id": "each run has a folder of its own; no log is overwritten, the usual names are links to the latest run",
    "clas-epochs": "the mode's number of epochs is used; the original always trains 2",
    "mode-fallback": "lite_train_whole_infer takes a missing value from lite_train_lite_infer",
    "closed-modes": "an unknown mode is refused; the original trains in full length with settings left out",
    "whole-value": "a value is all after the first ':', and in a mode list all after its first '='",
    "device-per-leg": "a missing device value repeats the last one, and no inference changes that of training",
    "inference-flags": "a setting that a program was seen to take is passed on every device, int8 runs on GPUs, and equal commands are planned once",
    "null": "null and an empty value are absent everywhere: no export without weights, no `python null`",
    "clas-weights": "the export gets the trained weights for every model name",
    "panoptic-vars": "whole_infer's export gets the model of the file; the original uses variables that it never sets",
    "rec-multi-gpu": "several GPUs of one host are trained on; the original trains nothing there",
    "kl-index": "each model has its own quant flag without training, and in klquant_whole_infer it is quantized",
    "typos": "unknown trainers, modes, booleans and keys are refused unless --lenient is given",
    "checkpoint": "the model file is the one that training left, in the folder and by the name that its version uses",
    "sections": "the layout is checked by sections and keys; blank and comment lines shift nothing",
    "no-shell": "values are split into words and nothing is run by a shell; patterns in model names are settled late",
    "cwd": "a missing folder to run in is an ERROR",
    "last-line": "an argument in the place of a missing one keeps its value; the original writes a path for it",
    "cpu-words": "on the CPU a program that would look for a GPU is told so",
    "no-installs": "a conversion fetches and installs no packages while it runs",
    "onnx-flags": "an argument that paddle2onnx has no more is left out",
    "quantize-flags": "the quantization's arguments keep their names; PaddleSeg's original writes those of inference",
    "to-static": "a section without words for the static graph is a SKIP; the original trains it twice in dynamic mode",
    "program-file": "an exported program is the file that is there: Paddle 3 writes .json where Paddle 2 wrote .pdmodel",
    "devices": "CUDA_VISIBLE_DEVICES is set for every command of a leg and for no other; hosts are parsed",
    "no-sleep": "there are no fixed pauses between steps",
    "timeouts": "there is no hidden limit of 5 minutes; --timeout sets one",
}
ALL = frozenset(FIXES)
NONE: frozenset[str] = frozenset()
SEVERITIES = ("error", "warning", "info")


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFinding:
    """Something to say about a line of a parameter file.

    Attributes:
        code: a fix's name, or ``default`` for what the original does alike.
        severity: ``error`` (refused without ``--lenient``), ``warning`` (told when planning) or ``info`` (told by lint).
        file: the file.
        line: 1-based line, 0 for the whole file.
        key: the line's key.
        message: one sentence.
    """

    code: str
    severity: str
    file: str
    line: int
    key: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: {self.key}: " if self.line else ""
        return place + self.message
