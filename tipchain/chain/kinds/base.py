"""Parts shared by the kinds of chains: requests, the lines of their files, commands with ids, logs and folders."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tipchain.chain.emitter import DEVICE_KINDS, PlanDraft, folders
from tipchain.chain.load import ON_CPU, fits, marks_in_checkout
from tipchain.chain.params import ParamFile, Slot, Words, check_folder_name, flag, split_words
from tipchain.chain.plan import Options, Plan
from tipchain.chain.profiles import SHIPPED, all_suites, get_suite, parse_layout, suite_names
from tipchain.chain.slots import Slots, distance, legacy_slots, read_slots
from tipchain.chain.suites import SlotRule
from tipchain.core.json_text import Json
from tipchain.core.yaml_reader import load_yaml
from tipchain.errors import ParamsError, UsageError
from tipchain.modes import Mode, parse_device


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The lines of one suite's files of a kind, with the attributes of a `Suite` that say how they are read.

    ``text`` has them as a suite's profile has; "" stands for those of the suite's own.
    """

    suite: str
    text: str = ""
    reads: int | None = None
    rest: bool = False
    unread: frozenset[str] = frozenset()
    layout: tuple[SlotRule, ...] = field(init=False)
    uncut: frozenset[str] = field(init=False)
    lacks: frozenset[str] = frozenset()
    to_static: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "uncut", self.unread)
        object.__setattr__(self, "layout", parse_layout(self.text) if self.text else get_suite(self.suite).layout)


def suite_data(kind: str) -> Mapping[str, Json]:
    """Return the data of each suite's own for a kind's chains, by suite; its ``layout`` is one."""
    data = load_yaml(SHIPPED / "kinds" / f"{kind}.yaml", "a kind's data").data
    for suite, own in data.items():
        if "layout" in own:
            lines = own["layout"]
            own["layout"] = Layout(suite=suite, **{**lines, "unread": frozenset(lines.get("unread", ()))})
    return data


LAST_LINE = frozenset({"log_iters", "skip_iters", "repeats", "task"})
"""Settings on the last line of PaddleSeg's files, which belongs to no section."""


def only_section(file: ParamFile, name: str) -> ParamFile:
    """Return ``file`` with one of its sections alone; as it is where ``name`` is ""."""
    if not name:
        return file
    return file._replace(
        headers=tuple(header for header in file.headers if header[0] == name),
        params=tuple(one for one in file.section(name) if one.key not in LAST_LINE),
    )


class UnknownLayoutError(ParamsError):
    """A file of a suite whose chains of this kind have lines that are not known."""


def choose_layout(request: Request, layouts: Sequence[Layout]) -> Layout:
    """Return the layout of a file: the named suite's, else by the checkout's folders, else the one it comes nearest to.

    Raises:
        UsageError: the named suite has none.
        UnknownLayoutError: the checkout is one of a suite that has none, and the file fits no other's.
    """
    if request.suite is not None:
        found = next((one for one in layouts if one.suite == request.suite), None)
        if found is None:
            get_suite(request.suite)  # an unknown one is told as such
            known = ", ".join(one.suite for one in layouts)
            raise UsageError(f"{request.suite} has no such chains\n  suites that have: {known}")
        return found
    shipped = [one for one in layouts if one.suite in suite_names()]
    of_checkout = (one for one in shipped if marks_in_checkout(get_suite(one.suite), request.root))
    if found := next(of_checkout, None):
        return found
    if found := next((one for one in layouts if fits(request.file, one)), None):
        return found
    if other := next((one for one in all_suites() if marks_in_checkout(one, request.root)), None):
        raise UnknownLayoutError(
            f"is a file of {other.title}, whose chains of this kind are not known",
            file=request.file.path,
            expected=f"a file of {', '.join(dict.fromkeys(one.suite for one in layouts))}",
            hint="--suite NAME reads it as one of theirs",
        )
    return min(layouts, key=lambda one: distance(request.file, one))


def read_lines(request: Request, layout: Layout) -> Slots:
    """Return the slots of a file by role; of a legacy plan as the original counts and cuts them.

    Raises:
        ParamsError: a line is missing, added or out of place.
    """
    if request.legacy:
        return legacy_slots(request.text, request.file.path, layout)
    return read_slots(request.file, layout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request for a plan: the text has the settings of the command line, the options a run and a root."""

    text: str
    file: ParamFile
    mode: Mode
    root: Path | None = None
    suite: str | None = None
    legacy: bool = False
    lenient: bool = False
    options: Options


class Chain(PlanDraft):
    """The plan of one kind of chain as it is built.

    In the default mode all of a run stands below ``<out>/runs/<run>``; the names that the suite is used to become links.
    ``out`` is the original's folder of logs, with ``{model}`` in it; "" for the usual one.

    Raises:
        ParamsError: the model's name is none of a folder.
    """

    def __init__(self, request: Request, *, kind: str, suite: str, slots: Slots, out: str = "") -> None:
        options, python, name = request.options, slots["python"], slots["model_name"]
        if not request.legacy:
            check_folder_name(name, name.value)
        self.request, self.kind, self.suite, self.slots, self.model = request, kind, suite, slots, name.value
        folder, run = folders(options, self.model, request.mode)
        if request.legacy:
            folder = run = posixpath.normpath(out.replace("{model}", self.model) or folder)
        head = Plan(
            params=request.file.path,
            mode=request.mode,
            suite=suite,
            chain=kind,
            model=self.model,
            status="",
            out=folder,
            run=run,
            data=options.data,
        )
        super().__init__(head, python, options, legacy=request.legacy, python=split_words(python.value, python))
        self.limit_s = None if request.legacy else self.limit_s

    def split(self, slot: Slot) -> Words:
        """Return a line's value as words."""
        return split_words(slot.value, slot, pipes=self.legacy)

    def words(self, role: str, value: str | None = None) -> Words:
        """Return a line's argument, with a value of ours for its own; nothing where the file has no such line."""
        slot = self.slots.get(role)
        return () if slot is None else flag(slot, value, literal=value is not None, legacy=self.legacy)

    def devices_of(self, slot: Slot, values: Sequence[str]) -> Sequence[tuple[str, str]]:
        """Return the devices to infer on, each as its kind and the file's word for it: the CPU alone with ``--device cpu``.

        Raises:
            UsageError: ``--device`` names none.
        """
        found = []
        for value in values:
            if kind := DEVICE_KINDS.get(value):
                found.append((kind, value))
            else:
                self.tell("default", f"no inference on the device {value!r}: it is neither a CPU nor a GPU", slot)
        chosen = self.request.options.device
        if chosen is None or parse_device(chosen).is_gpu:
            return found
        own = [pair for pair in found if pair[0] == "cpu"]
        return own or [("cpu", ON_CPU[value]) for _, value in found[:1]]

    def made(self, *, results_log: str, status: str, redirected: Iterable[str] = ()) -> Plan:
        """Return the plan, with the suite's log of status lines and its steps whose lines show the redirection."""
        return self.finished()._replace(results_log=results_log, status=status, redirected=frozenset(redirected))
