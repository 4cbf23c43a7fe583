"""Suites as data: what differs between the public TIPC drivers, over one engine.

A suite is a profile, a YAML file in ``tipchain/suites`` or one of the user's: a layout (which line means what) and
tables of arguments, names and rules. ``slots``, ``build`` and ``expand`` know no suite by name. ``docs/reference/suites.md``
describes the format; ``profiles`` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from tipchain.modes import Mode

FilledBy = Literal["key", "value"]
OPERATIONS = ("is", "not", "has", "lacks", "matches")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRule:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A test of a fact: of a variable, of ``key ROLE``, ``value ROLE``, ``fixed`` or ``unfixed``."""

    name: str
    operation: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A template with conditions; of several the first that holds counts."""

    value: str
    replace: tuple[str, str] | None = None
    when: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerRule:
    """A way to train.

    Attributes:
        kind: ``norm``, ``pact``, ``fpgm``, …
        key: role of the slot whose key is the trainer's name.
        command: roles of the slots whose values make the program.
        export: role of the slot that has its export.
    """

    kind: str
    key: str
    command: tuple[str, ...]
    export: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """How the original hands devices on.

    Attributes:
        parameter: the device argument: ``each`` (n-th value for the n-th gpu_list entry), ``whole`` (the slot as it
            stands), ``value`` (the slot, ``False`` on the CPU) or ``none``.
        hosts_from: a text of at least this many characters is taken for hosts.
        at_once: an entry of one character is exported at the start of its leg.
        before_training: ``keep`` or ``unset`` CUDA_VISIBLE_DEVICES.
        before_eval: exported before evaluation, not only before inference.
        hosts_export: exported for hosts too.
        export_all: all GPUs of an entry are exported, not the first.
        unset_after: ``inference`` or ``iteration``.
        launches_one_host: whether several GPUs of one host are trained on at all.
        overwritten: an inference leaves its last device as the device argument of the leg's further trainings.
    """

    parameter: str = "each"
    hosts_from: int = 16
    at_once: bool = True
    before_training: str = "keep"
    before_eval: bool = False
    hosts_export: bool = False
    export_all: bool = False
    unset_after: str = "inference"
    launches_one_host: bool = True
    overwritten: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The arguments and the log of a command.

    Attributes:
        arguments: the words after the program.
        log: the file that the original redirects to, the first that holds; none for the terminal.
        usual: the name under which the log is known where the original does not redirect.
        wrapper: words that the original starts it with (``timeout 5m``); shown, never run.
        when: it is run if all of these hold.
    """

    arguments: tuple[Item, ...]
    log: tuple[Choice, ...] = ()
    usual: tuple[Choice, ...] = ()
    wrapper: tuple[str, ...] = ()
    when: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """A command in front of each training, in a folder of its own.

    Attributes:
        words: the command.
        cwd: the folder that it runs in.
        when: it is run if all of these hold.
    """

    words: str
    cwd: str
    when: tuple[Condition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRule:
    """Inference on one kind of device.

    Attributes:
        axes: roles of the product, the outermost first.
        fixed_axes: the same where the original's lost settings are given (``inference-flags``).
        skip: points that cannot be, each a set of conditions that all hold.
        arguments: the words after the program.
        log: name of the log.
    """

    axes: tuple[str, ...]
    fixed_axes: tuple[str, ...]
    skip: tuple[tuple[Condition, ...], ...]
    arguments: tuple[Item, ...]
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Infer:
    """Inference.

    Attributes:
        cwd: the folder to run in.
        folder: template of the folder that holds the exported model.
        model: template of what the model's argument says.
        data: role of the data after training; "" for none.
        data_else: role of the data that the default mode passes where ``data`` is none or null; only for programs that
            take it.
        raw: roles that the original writes even if they are null.
        rules: inference on the CPU and on a GPU.
        result_file: pattern of a file that it must write, of the first choice that holds; none where it prints its
            result. Relative to the folder that the plan is made in.
    """

    cwd: str
    folder: str
    model: str
    data: str
    data_else: str
    raw: frozenset[str]
    rules: Mapping[str, InferRule]
    result_file: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """The modes without training.

    Attributes:
        style: ``models`` (the list of models, each with its export), ``kinds`` (a list of trainers' names, each with
            that trainer's export) or ``quantize`` (one program that quantizes).
        kinds: export slot by name, for ``kinds``.
        klquant_kinds: those of klquant_whole_infer.
        command: role of the program, for ``quantize``.
        folder: template of the folder that is exported to; "" for the model's own.
        infer_folder: template of the folder to infer in; "" for the same.
        gpus: what log names have for the GPU.
        unset: fix without which the original exports with variables that it never sets; "" for none.
        cwd: where the original is when it infers, the first that holds; none for inference's own folder.
        export: arguments of the export.
        log: log of the export.
    """

    style: str
    kinds: Mapping[str, str] = field(default_factory=dict)
    klquant_kinds: tuple[str, ...] = ()
    command: str = ""
    folder: str = ""
    infer_folder: str = ""
    gpus: str = "0"
    unset: str = ""
    cwd: tuple[Choice, ...] = ()
    export: tuple[Item, ...] = ()
    log: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """By what a suite's files and checkouts are recognised.

    Attributes:
        folders: folders of the checkout.
        headers: sections of the file.
        keys: keys of the file.
        values: first words of programs in the file.
    """

    folders: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """How one public driver turns a file into commands.

    Templates are filled in by ``str.format``; ``docs/reference/suites.md`` lists their variables.

    Attributes:
        name: what users type.
        title: whose driver it is.
        file: the profile's file.
        marks: by what it is recognised.
        layout: the lines.
        reads: physical lines that the original reads, None for all.
        rest: whether a value is all after the first ``:`` in the original too.
        pipes: whether a ``|`` in a command becomes a blank in the original.
        mode_lists: roles whose values are lists of ``mode=value``.
        fixed_epoch: the number of epochs that the original always trains, "" if it takes the file's.
        unread: roles that the original never reads.
        devices: how devices are handed on.
        launcher: words between the interpreter and a program for several processes.
        out: the original's output folder.
        trainers: ways to train, in the order in which names are looked up.
        amp_trainer: trainer that means AMP, where AMP is no axis.
        unknown_trainer: ``norm`` or ``skip``.
        finetune: what pact and fpgm start from: ``norm`` (what that trainer left), ``none`` or ``slot``.
        save: name of the folder that a training writes.
        vars: further variables.
        weights: what training leaves.
        weights_else: patterns of names below the folder, the first that is there counts: after ``weights`` where
            ``weights_there`` is given, otherwise instead.
        weights_there: when it is taken to be there in a plan of the original.
        train: training.
        before: commands in front of training.
        eval: evaluation.
        export: exports; the last makes what is inferred with.
        infer: inference.
        whole: the modes without training.
        klquant: ``models``, ``kinds`` or ``quantize`` if klquant_whole_infer is known, else "".
        klquant_trains: whether the original does not know that mode, and trains in it.
        results_log: name of the log of status lines.
        results_head: its line at the start of a run, "" for none.
        status: its lines after ``Run successfully with command - ``.
        redirected: steps whose lines show the redirection.
        result_line: regular expression of a line that an inference must print; "" for the usual ones.
        verified: chains that were really run; never inherited.
    """

    name: str
    title: str
    file: str
    marks: Marks
    layout: tuple[SlotRule, ...]
    reads: int | None
    rest: bool
    pipes: bool
    mode_lists: frozenset[str]
    fixed_epoch: str
    unread: frozenset[str]
    devices: Devices
    launcher: tuple[Item, ...]
    out: str
    trainers: tuple[TrainerRule, ...]
    amp_trainer: str
    unknown_trainer: str
    finetune: str
    save: str
    vars: Mapping[str, tuple[Choice, ...]]
    weights: str
    weights_else: tuple[str, ...]
    weights_there: tuple[Condition, ...]
    train: Step
    before: tuple[Before, ...]
    eval: Step
    export: tuple[Step, ...]
    infer: Infer
    whole: Whole
    klquant: str
    klquant_trains: bool
    results_log: str
    results_head: str
    status: str
    redirected: frozenset[str]
    result_line: str
    verified: tuple[Verified, ...] = ()

    def trains(self, mode: Mode, fixes: frozenset[str]) -> bool:
        """Return whether ``mode`` has training steps with ``fixes`` in force."""
        taken = mode is Mode.KLQUANT_WHOLE_INFER and self.klquant_trains and "closed-modes" not in fixes
        return mode.trains or taken

    @property
    def roles(self) -> frozenset[str]:
        """The roles that the layout has."""
        return frozenset(rule.role for rule in self.layout if rule.role)

    @property
    def programs(self) -> frozenset[str]:
        """The roles whose values are programs with their arguments."""
        trained = {role for rule in self.trainers for role in (*rule.command, rule.export)}
        return frozenset({"python", "eval", "inference", *self.whole.kinds.values(), *trained})

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
