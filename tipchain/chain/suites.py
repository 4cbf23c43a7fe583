"""Suites as data: the differences between the public TIPC drivers, over one engine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, TypeAlias

from tipchain.chain.params import Slot
from tipchain.modes import Mode

SEVERITIES = ("error", "warning", "info")


class LintFinding(NamedTuple):
    """Something to say about a line of a parameter file.

    Attributes:
        code: the kind of finding, as ``typos``; ``default`` for what the original does alike.
        severity: ``error`` (refused without ``--lenient``), ``warning`` (told when planning) or ``info`` (told by lint).
        line: 1-based line, 0 for the whole file.
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
        """Return a finding about the line of a slot."""
        return cls(code, severity, slot.file, slot.line, slot.key, message)

    def __str__(self) -> str:
        return (f"{self.file}:{self.line}: {self.key}: " if self.line else "") + self.message


# A suite is a profile, a YAML file in ``tipchain/suites`` or one of the user's: a layout (which line means what) and
# tables of arguments, names and rules. ``slots``, ``build`` and ``expand`` know no suite by name. ``docs/reference/suites.md``
# describes the format; ``profiles`` reads it.


Style = Literal["models", "kinds", "quantize"]
Role: TypeAlias = Annotated[str, "a role of the layout"]
Template: TypeAlias = Annotated[str, "filled in by str.format"]
RoleOrTemplate: TypeAlias = Annotated[str, "a role, or words with variables"]
Conditions: TypeAlias = Mapping[str, tuple[str, ...]]
"""Conditions that must all hold: a fact, with ``not``, ``has`` or ``lacks`` behind it or nothing, and texts of which one fits."""
ROLE = re.compile(r"[a-z_]\w*")


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


def condition(text: str) -> tuple[str, str]:
    """Return the fact that a condition is about, and its operation."""
    name, _, operation = text.rpartition(" ")
    return (name, operation) if operation in ("not", "has", "lacks") else (text, "")


class ArgumentItem(NamedTuple):
    """Words of a command; one of ``add``, ``key`` and ``flag`` is given.

    Attributes:
        add: a role, whose words the engine makes (by default the slot's ``key=value``), or a template, split into words at
            its own blanks before it is filled in.
        key: role whose key stands alone.
        flag: role whose key (or value, by ``keyed_by``) is followed by ``value``.
        value: template of the flag's value, None for the slot's own.
        keyed_by: what of the slot names the flag.
        join: what stands between key and value.
        raw: written even if the value is absent.
        when: the item is left out unless all of these hold.
    """

    add: RoleOrTemplate = ""
    key: Role = ""
    flag: Role = ""
    value: Template | None = None
    keyed_by: Literal["key", "value"] = "key"
    join: str = "="
    raw: bool = False
    when: Conditions = MappingProxyType({})

    @property
    def role(self) -> str:
        """The role that the engine makes words for, "" for none."""
        return self.add if ROLE.fullmatch(self.add) else self.flag or self.key


class Choice(NamedTuple):
    """A template with conditions; of several the first that holds counts."""

    value: Template
    when: Conditions = MappingProxyType({})


class TrainerRule(NamedTuple):
    """A way to train.

    Attributes:
        kind: ``norm``, ``pact``, ``fpgm``, …
        key: the role whose key is the trainer's name. ``to_static`` means the section ``to_static_train_benchmark_params``.
        command: the roles whose values make up the program.
        export: the role of the export. An empty text: the original never exports its model.
    """

    kind: str
    key: Role
    command: tuple[Role, ...]
    export: Role


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
    when: Conditions = MappingProxyType({})


class Before(NamedTuple):
    """A command in front of each training, in a folder of its own.

    Attributes:
        words: the command.
        cwd: the folder in which the command runs.
        when: the command runs if all of these conditions hold.
    """

    words: str
    cwd: str = "."
    when: Conditions = MappingProxyType({})


class After(NamedTuple):
    """A command between each training and its evaluation.

    Attributes:
        program: the role of the program. Nothing runs if its line is null.
        arguments: the words after the program.
        log: the file that the original redirects the output to. The first template counts whose conditions hold. Without
            one the output goes to the terminal.
    """

    program: Role
    arguments: tuple[ArgumentItem, ...]
    log: tuple[Choice, ...] = ()


class InferRule(NamedTuple):
    """Inference on one kind of device.

    Attributes:
        axes: the roles whose values are combined, the outermost loop first.
        skip: combinations that are left out: each is a mapping of conditions that all hold.
        arguments: the words after the program.
        log: the name of the log.
    """

    axes: tuple[Role, ...]
    arguments: tuple[ArgumentItem, ...]
    log: Template
    skip: tuple[Conditions, ...] = ()


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
        cpu: the inference on the CPU.
        gpu: the inference on a GPU.
        result_file: a pattern of the file that the inference must write, for programs that print no result. It is relative
            to the folder in which the plan was made. Without it, a line must match ``result_line``.
    """

    folder: Template
    model: Template
    data: Role
    cpu: InferRule
    gpu: InferRule
    cwd: str = "."
    data_else: Role = ""
    raw: frozenset[Role] = frozenset()
    result_file: tuple[Choice, ...] = ()

    @property
    def axes(self) -> frozenset[str]:
        """The roles that are combined on any device."""
        return frozenset((*self.cpu.axes, *self.gpu.axes))


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
        unset: whether the original exports with variables that it never sets.
        skips_null: whether the original leaves out a model that is null.
        cwd: the folder in which the original infers. The first template counts whose conditions hold. Without one it is that
            of ``infer``.
        export: the arguments of the export.
        log: the log of the export.
    """

    style: Style
    kinds: Mapping[str, Role] = MappingProxyType({})
    klquant_kinds: tuple[str, ...] = ()
    command: Role = ""
    folder: Template = ""
    infer_folder: Template = ""
    gpus: str = "0"
    unset: bool = False
    skips_null: bool = False
    cwd: tuple[Choice, ...] = ()
    export: tuple[ArgumentItem, ...] = ()
    log: Template = ""


class Marks(NamedTuple):
    """The marks by which a suite's files and checkouts are recognised.

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


@lru_cache(maxsize=64)
def script_words(text: str) -> str:
    """Return the text of a script without its lines of comments, and with one blank for all between two words."""
    return " ".join(word for line in text.splitlines() if not line.lstrip().startswith("#") for word in line.split())


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
    mode_lists: frozenset[Role] = frozenset()
    modeless: Literal["refuse", "leave out"] = "refuse"
    model_name: Literal["name", "folders"] = "name"
    fixed_epoch: str = ""
    usual_epoch: str = ""
    unread: frozenset[Role] = frozenset()
    lacks: frozenset[str] = frozenset()
    amp_trainer: str = ""
    unknown_trainer: Literal["norm", "skip"] = "norm"
    vars: Mapping[str, tuple[Choice, ...]] = MappingProxyType({})
    weights_else: tuple[Template, ...] = ()
    weights_there: Conditions = MappingProxyType({})
    before: tuple[Before, ...] = ()
    after: tuple[After, ...] = ()
    export_from: Literal["train", "eval"] = "train"
    klquant: Literal["", Style] = ""
    klquant_exports: bool = False
    trains_in: frozenset[str] = frozenset()
    results_log: str = "results_python.log"
    results_head: Template = ""
    redirected: frozenset[Literal["train", "eval", "export", "infer"]] = frozenset()
    result_line: str = ""
    result_program: tuple[str, ...] = ()
    versions: tuple[Version, ...] = ()
    version: tuple[str, ...] = ()
    drivers: frozenset[str] = frozenset()

    def trains(self, mode: Mode, *, legacy: bool) -> bool:
        """Return whether ``mode`` has training steps."""
        return mode.trains or (legacy and mode.value in self.trains_in)

    @property
    def roles(self) -> frozenset[str]:
        """The roles that a file has slots for."""
        return frozenset(rule.role for rule in self.layout if rule.role) | self.lacks

    @property
    def uncut(self) -> frozenset[str]:
        """The roles whose values the original does not cut at a second colon."""
        return self.unread | ({"model_name"} if self.model_name == "folders" else frozenset())

    @property
    def to_static(self) -> bool:
        """Whether the section of the static-graph training holds a trainer."""
        return any(rule.key == "to_static" for rule in self.trainers)
