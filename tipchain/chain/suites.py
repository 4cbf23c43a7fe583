"""Suites as data: what differs between the public TIPC drivers, over one engine, and their defects that are fixed."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, TypeAlias

from tipchain.chain.params import Slot
from tipchain.modes import Mode

# The defects of the original drivers that the default mode fixes, by name.
#
# A plan is made with a set of fixes: all of them by default, none for ``--legacy``. What a fix changes in a file is said
# where it happens, as a finding that ``tipchain lint`` shows.


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
    "export-keys": "whole_infer's export gets the keys of the file; the original writes those of another suite",
    "clas-weights": "the export gets the trained weights for every model name",
    "panoptic-vars": "whole_infer's export gets the model of the file; the original uses variables that it never sets",
    "rec-multi-gpu": "several GPUs of one host are trained on; the original trains nothing there",
    "train-folder": "a training on several GPUs is told its folder; the original writes another argument in its place",
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


class LintFinding(NamedTuple):
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

    @classmethod
    def at(cls, slot: Slot, code: str, message: str, severity: str = "warning") -> LintFinding:
        """Return what is to be said about the line of a slot."""
        return cls(code, severity, slot.file, slot.line, slot.key, message)

    def __str__(self) -> str:
        return (f"{self.file}:{self.line}: {self.key}: " if self.line else "") + self.message


# Suites as data: what differs between the public TIPC drivers, over one engine.
#
# A suite is a profile, a YAML file in ``tipchain/suites`` or one of the user's: a layout (which line means what) and
# tables of arguments, names and rules. ``slots``, ``build`` and ``expand`` know no suite by name. ``docs/reference/suites.md``
# describes the format; ``profiles`` reads it.


FilledBy = Literal["key", "value"]
Style = Literal["models", "kinds", "quantize"]
Template: TypeAlias = Annotated[str, "filled in by str.format"]
OPERATIONS = ("is", "not", "has", "lacks", "matches")


class SlotRule(NamedTuple):
    """One line of a layout.

    Attributes:
        kind: ``header``, ``separator`` (a ``##`` line), ``slot`` or ``optional`` (``##`` may stand for it, or nothing).
        role: what the engine calls the slot; "" for headers and separators without one.
        keys: what may stand there as key (for a header: as section), each with ``*`` as a wildcard; () for any.
    """

    kind: str
    role: str = ""
    keys: tuple[str, ...] = ()

    def allows(self, key: str) -> bool:
        """Return whether ``key`` may stand there."""
        return not self.keys or key in self.keys or any(fnmatchcase(key, one) for one in self.keys)


class Condition(NamedTuple):
    """A test of a fact: of a variable, of ``key ROLE``, ``value ROLE``, ``fixed`` or ``unfixed``."""

    name: str
    operation: str
    values: tuple[str, ...]


class ArgumentItem(NamedTuple):
    """Words of a command; one of ``role``, ``text``, ``key`` and ``flag`` is given.

    Attributes:
        role: words that the engine makes for this role; by default the slot's ``key=value``.
        text: a template, split into words at its own blanks before it is filled in.
        key: role whose key stands alone.
        flag: role whose key (or value, by ``keyed_by``) is followed by ``value``.
        value: template of the flag's value, None for the slot's own.
        keyed_by: what of the slot names the flag.
        join: what stands between key and value.
        raw: written even if the value is absent.
        when: the item is left out unless all of these hold.
    """

    role: str = ""
    text: str = ""
    key: str = ""
    flag: str = ""
    value: str | None = None
    keyed_by: FilledBy = "key"
    join: str = "="
    raw: bool = False
    when: tuple[Condition, ...] = ()


class Choice(NamedTuple):
    """A template with conditions; of several the first that holds counts."""

    value: str
    when: tuple[Condition, ...] = ()


class TrainerRule(NamedTuple):
    """A way to train.

    Attributes:
        kind: ``norm``, ``pact``, ``fpgm``, …
        key: the role whose key is the trainer's name. ``to_static`` means the section ``to_static_train_benchmark_params``.
        command: the roles whose values make up the program.
        export: the role of the export. An empty text: the original never exports its model.
    """

    kind: str
    key: str
    command: tuple[str, ...]
    export: str


class Devices(NamedTuple):
    """How the original hands devices on.

    Attributes:
        parameter: the device argument of a training. ``each``: the n-th value of ``use_gpu`` for the n-th entry of
            gpu_list. ``whole``: the line as it is. ``value``: the line, or ``False`` on the CPU. ``none``: no argument.
        hosts_from: the original takes an entry of at least this many characters for host names.
        at_once: whether the original exports CUDA_VISIBLE_DEVICES at the start of a leg, for an entry of one character.
        before_training: whether the original then keeps or unsets CUDA_VISIBLE_DEVICES for the training, or exports it for one on
            a single GPU.
        before_eval: whether the original exports it before the evaluation, and not only before the inference.
        hosts_export: whether the original exports it for an entry with hosts, too.
        export_all: whether the original exports all GPUs of an entry, and not only the first.
        exports: whether the original exports CUDA_VISIBLE_DEVICES at all.
        unset_after: after which part of a leg the original unsets it.
        launches_one_host: whether the original trains on several GPUs of one host at all.
        overwritten: whether an inference overwrites the device argument of the later trainings of its leg.
    """

    parameter: Literal["each", "whole", "value", "none"] = "each"
    hosts_from: int = 16
    at_once: bool = True
    before_training: Literal["keep", "unset", "export"] = "keep"
    before_eval: bool = False
    hosts_export: bool = False
    export_all: bool = False
    exports: bool = True
    unset_after: Literal["inference", "iteration"] = "inference"
    launches_one_host: bool = True
    overwritten: bool = False


class Step(NamedTuple):
    """The arguments and the log of a command.

    Attributes:
        arguments: the words after the program.
        log: the file that the original redirects the output to. The first template counts whose conditions hold. Without
            one the output goes to the terminal.
        usual: the usual name of the log, if the original does not redirect.
        wrapper: words in front of the command, such as ``timeout 5m``. They are shown and never run.
        when: the command runs if all of these conditions hold.
    """

    arguments: tuple[ArgumentItem, ...]
    log: tuple[Choice, ...] = ()
    usual: tuple[Choice, ...] = ()
    wrapper: str = ""
    when: tuple[Condition, ...] = ()


class Before(NamedTuple):
    """A command in front of each training, in a folder of its own.

    Attributes:
        words: the command.
        cwd: the folder in which the command runs.
        when: the command runs if all of these conditions hold.
    """

    words: str
    cwd: str = "."
    when: tuple[Condition, ...] = ()


class After(NamedTuple):
    """A command between each training and its evaluation.

    Attributes:
        program: the role of the program. Nothing runs if its line is null.
        arguments: the words after the program.
        log: the file that the original redirects the output to. The first template counts whose conditions hold. Without
            one the output goes to the terminal.
    """

    program: str
    arguments: tuple[ArgumentItem, ...]
    log: tuple[Choice, ...] = ()


class InferRule(NamedTuple):
    """Inference on one kind of device.

    Attributes:
        axes: the roles whose values are combined, the outermost loop first.
        fixed_axes: the same in the default mode, if the original drops a role (``inference-flags``).
        skip: combinations that are left out: each is a mapping of conditions that all hold.
        arguments: the words after the program.
        log: the name of the log.
    """

    axes: tuple[str, ...]
    fixed_axes: tuple[str, ...]
    skip: tuple[tuple[Condition, ...], ...]
    arguments: tuple[ArgumentItem, ...]
    log: Template


class Infer(NamedTuple):
    """Inference.

    Attributes:
        cwd: the folder in which the inference runs.
        folder: the folder of the exported model.
        model: the value of the model's argument.
        data: the role of the data after a training; "" for none.
        data_else: the role of the data in the default mode, if ``data`` is "" or its line is null. Only for programs that
            were seen to take it.
        raw: roles that the original writes even if they are null.
        rules: the inference on the CPU and on a GPU.
        result_file: a pattern of the file that the inference must write, for programs that print no result. It is relative
            to the folder in which the plan was made. Without it, a line must match ``result_line``.
    """

    folder: Template
    model: Template
    data: str
    rules: Mapping[str, InferRule]
    cwd: str = "."
    data_else: str = ""
    raw: frozenset[str] = frozenset()
    result_file: tuple[Choice, ...] = ()


class Whole(NamedTuple):
    """The modes without training.

    Attributes:
        style: ``models``: ``infer_model`` lists weights or folders, each with its ``infer_export``. ``kinds``: it lists names of
            trainers, each with that trainer's export. ``quantize``: one program quantizes.
        kinds: the role of the export, by name of the trainer; for ``kinds``.
        klquant_kinds: the names in klquant_whole_infer.
        command: the role of the program; for ``quantize``, and for ``models`` if ``infer_export`` says only whether to export.
        folder: the folder to export to; "" for the model's own.
        infer_folder: the folder to infer in; "" for the same one.
        gpus: the text for the GPU in names of logs.
        unset: the fix without which the original exports with variables that it never sets; "" for none.
        skips_null: whether the original leaves out a model that is null.
        cwd: the folder in which the original infers. The first template counts whose conditions hold. Without one it is that
            of ``infer``.
        export: the arguments of the export.
        log: the log of the export.
    """

    style: Style
    kinds: Mapping[str, str] = MappingProxyType({})
    klquant_kinds: tuple[str, ...] = ()
    command: str = ""
    folder: Template = ""
    infer_folder: Template = ""
    gpus: str = "0"
    unset: str = ""
    skips_null: bool = False
    cwd: tuple[Choice, ...] = ()
    export: tuple[ArgumentItem, ...] = ()
    log: Template = ""


class Marks(NamedTuple):
    """By what a suite's files and checkouts are recognised.

    Attributes:
        folders: folders of the checkout; each counts 4.
        headers: sections of the file; each counts 1.
        keys: keys of the file; each counts 1.
        values: first words of programs in the file; each counts 1.
        driver: texts of the checkout's own driver. If it has all of them, they decide, whatever other suites' marks count.
    """

    folders: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    driver: tuple[str, ...] = ()


class Version(NamedTuple):
    """Another version of a suite's driver, told by the text of the checkout's driver and of ``common_func.sh``.

    Attributes:
        title: which version it is, in words.
        has: texts that this driver has, all of them. One blank in them stands for all between two words, line ends and
            lines of comments too.
        lacks: texts that it does not have, none of them.
        changes: the keys of the profile that are otherwise for it, merged as for ``extends``.
    """

    title: str
    has: tuple[str, ...]
    lacks: tuple[str, ...] = ()

    def is_of(self, driver: str) -> bool:
        """Return whether a driver is of this version; ``driver`` is what `script_words` makes of its text."""
        return all(text in driver for text in self.has) and not any(text in driver for text in self.lacks)


@lru_cache(maxsize=64)
def script_words(text: str) -> str:
    """Return the text of a script without its lines of comments, and with one blank for all between two words."""
    return " ".join(word for line in text.splitlines() if not line.lstrip().startswith("#") for word in line.split())


class Verified(NamedTuple):
    """A chain that was really run with a profile.

    Attributes:
        commit: the suite's commit.
        model: the model's name.
        paddle: the version of Paddle.
        date: the day.
    """

    commit: str
    model: str
    paddle: str
    date: str


class Suite(NamedTuple):
    """How one public driver turns a file into commands.

    Templates are filled in by ``str.format``; ``docs/reference/suites.md`` lists their variables.

    Attributes:
        name: the suite's name on the command line.
        title: the project that has this driver.
        file: the profile's file.
        marks: the marks by which the suite is recognised; never inherited.
        layout: the lines of a file, in the words of the page on suites.
        reads: the number of lines that the original reads.
        rest: ``rest``: in the original, too, a value is everything after the first colon. ``cut``: the original cuts it at
            the second colon.
        pipes: the original's treatment of an unquoted ``|`` in a command: it becomes a blank, or it is a real pipe and refused.
        mode_lists: roles whose values are lists of ``mode=value``.
        modeless: what becomes of a value in them that names no mode, which no original reads: the file is refused, or the value left
            out with a warning.
        model_name: the meaning of a colon in the model's name: it belongs to it (``name``), or what stands before it is a folder
            above the model's output (``folders``: ``cd:bit``).
        fixed_epoch: the number of epochs that the original always trains, whatever the file says.
        usual_epoch: the number of epochs that the original trains if the file has none for the mode.
        unread: roles that the original never reads.
        lacks: roles that no line of a file stands for. They count as null, and without ``trainer`` every chain trains as ``norm``.
        devices: how the original passes on devices. All keys but ``parameter`` count with ``--legacy`` only: by default every
            command of a leg gets its GPUs, and hosts are parsed.
        launcher: words between the interpreter and the program, for several processes.
        out: the output folder of the original.
        trainers: the ways to train, by kind, in the order in which names are looked up; ``norm`` must be there.
        amp_trainer: the trainer that means AMP, in a suite without a precision axis.
        unknown_trainer: the original's treatment of an unknown name: it trains as ``norm``, or skips it.
        finetune: the weights from which pact and fpgm start: those of the ``norm`` training, those of the file's line
            (``slot``), or none.
        save: the name of the folder that a training writes.
        vars: more variables, each a template, or a list of which the first counts whose conditions hold (``value``, ``when``).
        weights: the file that a training writes.
        weights_else: patterns of names below the training's folder; the first that exists counts. With ``weights_there`` they are
            tried after ``weights``, otherwise instead of it.
        weights_there: the conditions under which the original expects the file of ``weights``.
        train: the training.
        before: commands in front of each training.
        after: commands between each training and its evaluation.
        eval: the evaluation.
        export_from: the step whose weights are exported: the training, or the evaluation, if the file has one.
        export: the exports. The last one makes the model for the inference.
        infer: the inference.
        whole: the modes without training.
        klquant: the style of klquant_whole_infer, if the suite has this mode.
        klquant_exports: whether the original does no more than export in klquant_whole_infer.
        trains_in: modes without training that the original does not know, so that it trains in them as in any other.
        results_log: the name of the log of status lines.
        results_head: the line of that log at the start of a run.
        status: the text of a status line after ``Run successfully with command - ``. Its variables are ``model``, ``command`` and ``log``.
        redirected: the steps whose status lines show the redirection.
        result_line: a regular expression. One line of an inference must match it. Lines of the framework never count. Default:
            the usual result lines.
        result_program: texts that the inference program has which prints ``result_line``. Of another program any line with a result
            counts. Without them that program is the one in a checkout with the marks of the suite.
        versions: other versions of the driver, and what is otherwise for them; never inherited. All whose texts fit the
            checkout's driver count, a later one over an earlier one.
        version: the titles of the versions that count.
        drivers: fingerprints of each driver, and each ``common_func.sh``, of which plans were seen to have the commands; never
            inherited. Whoever's driver is another is told so. Empty: nobody is.
        verified: chains that were really run with this profile; never inherited.
    """

    name: str
    title: str
    file: str
    layout: tuple[SlotRule, ...]
    devices: Devices
    launcher: tuple[ArgumentItem, ...]
    out: Template
    trainers: tuple[TrainerRule, ...]
    finetune: Literal["norm", "none", "slot"]
    save: Template
    weights: Template
    train: Step
    eval: Step
    export: tuple[Step, ...]
    infer: Infer
    whole: Whole
    status: Template
    marks: Marks = Marks()
    reads: int | None = None
    rest: bool = False
    pipes: bool = True
    mode_lists: frozenset[str] = frozenset()
    modeless: Literal["refuse", "leave out"] = "refuse"
    model_name: Literal["name", "folders"] = "name"
    fixed_epoch: str = ""
    usual_epoch: str = ""
    unread: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()
    amp_trainer: str = ""
    unknown_trainer: Literal["norm", "skip"] = "norm"
    vars: Mapping[str, tuple[Choice, ...]] = MappingProxyType({})
    weights_else: tuple[Template, ...] = ()
    weights_there: tuple[Condition, ...] = ()
    before: tuple[Before, ...] = ()
    after: tuple[After, ...] = ()
    export_from: Literal["train", "eval"] = "train"
    klquant: Literal["", Style] = ""
    klquant_exports: bool = False
    trains_in: frozenset[str] = frozenset()
    results_log: str = "results_python.log"
    results_head: Template = ""
    redirected: frozenset[str] = frozenset()
    result_line: str = ""
    result_program: tuple[str, ...] = ()
    versions: tuple[Version, ...] = ()
    version: tuple[str, ...] = ()
    drivers: frozenset[str] = frozenset()
    verified: tuple[Verified, ...] = ()

    def trains(self, mode: Mode, fixes: frozenset[str]) -> bool:
        """Return whether ``mode`` has training steps with ``fixes`` in force."""
        return mode.trains or (mode.value in self.trains_in and "closed-modes" not in fixes)

    @property
    def roles(self) -> frozenset[str]:
        """The roles that a file has slots for."""
        return frozenset(rule.role for rule in self.layout if rule.role) | self.lacks

    @property
    def uncut(self) -> frozenset[str]:
        """The roles whose values the original does not cut at a second colon."""
        return self.unread | ({"model_name"} if self.model_name == "folders" else frozenset())

    @property
    def programs(self) -> frozenset[str]:
        """The roles whose values are programs with their arguments."""
        trained = {role for rule in self.trainers for role in (*rule.command, rule.export)}
        after = {one.program for one in self.after}
        return frozenset({"python", "eval", "inference", *self.whole.kinds.values(), *trained, *after})

    @property
    def named_axes(self) -> frozenset[str]:
        """The inference axes whose values are a part of a path in an argument."""
        rules = self.infer.rules.values()
        paths = "".join(item.value or "" for rule in rules for item in rule.arguments)
        axes = {axis for rule in rules for axis in (*rule.axes, *rule.fixed_axes)}
        return frozenset(axis for axis in axes if f"{{{axis}}}" in paths)

    @property
    def to_static(self) -> bool:
        """Whether the section of the static-graph training holds a trainer."""
        return any(rule.key == "to_static" for rule in self.trainers)
