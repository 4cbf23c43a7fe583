"""The manifest of a night: the list of its runs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from tipchain.core.files import project_above, sha256_of
from tipchain.core.json_text import Json
from tipchain.core.quantities import MEMORY_EXPECTED, TIME_EXPECTED, parse_mebibytes, parse_seconds
from tipchain.core.yaml_reader import Reader, load_yaml
from tipchain.errors import did_you_mean
from tipchain.modes import STAGES, Mode
from tipchain.nightly.items import CLUSTERS_OWN, Kind
from tipchain.nightly.nights import NIGHTS


def missing_data(path: Path, holds: Sequence[str]) -> str:
    """Return the missing part of the data in ``path``, with the path that was wanted; "" if they are there.

    Args:
        path: the folder.
        holds: globs of what must be in it; one that ends in a slash is of folders.
    """
    if not path.is_dir():
        return f"{path} is not there"
    try:
        for pattern in holds:
            found = path.glob(pattern.rstrip("/"))
            if not any(one.is_dir() or not pattern.endswith("/") for one in found):
                return f"{path}/{pattern} is not there"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return ""


# Values of a manifest's entries: lists of texts, choices, words, variables, times and sizes, each checked.

WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
RESOURCES_EXPECTED = (
    "names of a cluster's resources with amounts, {imagenet: 1}; cpus, gpus and memory have keys of their own"
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Count = Annotated[int, Meta(ge=1)]
Repeats = Annotated[int, Meta(ge=1, le=10_000)]
Amount = Annotated[float, Meta(gt=0, le=sys.float_info.max)]


def quantity(one: Reader, key: str, parse: Callable[[object], Json], expected: str, default: Json) -> Json:
    """Return the time or size of ``key``, as ``parse`` reads it."""
    found = one.read(key, str | int | float, expected, default=None)
    if found is None:
        return default
    try:
        return parse(found)
    except ValueError:
        raise one.error(key, "cannot be read", found=repr(found), expected=expected) from None


def texts(one: Reader, key: str, expected: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return a list of texts, none only where it has a default; one text alone is a list of one."""
    found = one.read(key, str | tuple[str, ...], expected, default=... if default is None else default)
    found = (found,) if isinstance(found, str) else tuple(found)
    if "" in found or (not found and default is None):
        raise one.error(key, "is empty", expected=expected)
    return found


def choices(one: Reader, key: str, choices: Sequence[Any], default: Sequence[Any] | None = None) -> tuple[Any, ...]:
    """Return a list of some of ``choices``, each once; none only where that is the default."""
    found = texts(one, key, f"a list of {', '.join(choices)}", default)
    for text in found:
        if text not in choices:
            raise one.unknown(key, choices, found=text)
    if not found and default:
        raise one.error(key, "is empty", expected=f"some of {', '.join(choices)}")
    return tuple(dict.fromkeys(found))


def word(one: Reader, key: str, text: str) -> str:
    """Return a text that can name a folder or be selected by."""
    if not WORD.fullmatch(text):
        raise one.error(key, "is not a word", found=repr(text), expected="letters, digits, '.', '_', '-'")
    return text


def env(one: Reader) -> dict[str, str]:
    """Return the variables of ``env``, as texts."""
    own = one.mapping("env", "a mapping of variables", optional=True)
    for name in own.data:
        if not _VARIABLE.fullmatch(name):
            raise own.error(name, "is not a variable's name", found=repr(name), expected="NAME: value")
    found = {name: own.read(name, str | int | float | bool, "NAME: value") for name in own.data}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in found.items()}


def resources(one: Reader) -> dict[str, float]:
    """Return the amounts of ``resources``, by name."""
    own = one.mapping("resources", RESOURCES_EXPECTED, optional=True)
    for name in own.data:
        if not name or name in CLUSTERS_OWN:
            raise own.error(name, "is not a resource's name", found=repr(name), expected=RESOURCES_EXPECTED)
    return {name: own.read(name, Amount, RESOURCES_EXPECTED) for name in own.data}


# A night's manifest: a YAML file that names chains, alignment cases and other commands, and what they need.
#
# Every mistake is a `InputError` that names file, line, key, what was found and what was expected.

Device: TypeAlias = Literal["cpu", "gpu"]
DEVICES: tuple[Device, ...] = ("cpu", "gpu")
EVERY_MODE = "*"
SECTIONS: Mapping[str, Kind] = {"chains": "chain", "cases": "align", "commands": "command"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFolder:
    """Full data on this machine.

    Attributes:
        name: what entries call it.
        path: the folder, absolute or relative to ``root``.
        holds: globs of what must be in the folder. One that ends in a slash is of folders. Without it, anything.
    """

    name: str
    path: Path
    holds: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """Keys of every entry, and of `defaults` for all.

    Attributes:
        devices: the devices on which each item runs.
        repeats: the number of runs of each item.
        tags: words by which items are selected (``--only tag:WORD``).
        timeout_s: the time limit of an item.
        cpus: the number of CPU slots of an item.
        gpus: the number of GPUs of an item on the device ``gpu``.
        memory_mb: the memory of an item. Without it, memory is not counted.
        resources: other resources of a cluster's node that an item takes, by name.
        env: environment variables of an item.
    """

    devices: tuple[Device, ...] = ("cpu",)
    repeats: int = 1
    tags: tuple[str, ...] = ()
    timeout_s: float = 2 * 3600.0
    cpus: int = 1
    gpus: int = 1
    memory_mb: int = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """A group of chains, of cases, or one command.

    Attributes:
        kind: which.
        place: the entry in the manifest, as ``chains.0``, for messages.
        line: its line.
        common: what it needs.
        modes: the TIPC modes. Each mode is an item. A command may have none.
        files: the files, as globs below the root.
        exclude: globs of files that are left out.
        data: the name of the data folder, or a mapping of modes to names.
        suite: the suite of the parameter files. Without it, the files decide.
        options: more words for the command line.
        prepare: whether each item first prepares the data and weights of its mode.
        stages: the stages that are compared. Without it, all.
        id: the name of the item.
        argv: the command, as a list of words. ``{mode}``, ``{device}``, ``{report}``, ``{log}``, ``{folder}`` and ``{python}`` are
            replaced.
        cwd: the folder in which the command runs, below the root.
    """

    kind: Literal["chain", "align", "command"]
    place: str
    line: int
    common: Common
    modes: tuple[Mode, ...] = ()
    files: tuple[tuple[str, int], ...] = ()
    exclude: tuple[str, ...] = ()
    data: Mapping[str, str] = field(default_factory=dict)
    suite: str = ""
    options: tuple[str, ...] = ()
    prepare: bool = False
    stages: tuple[str, ...] = ()
    id: str = ""
    argv: tuple[str, ...] = ()
    cwd: str = "."


@dataclass(frozen=True, slots=True, kw_only=True)
class NightManifest:
    """A manifest as it stands there.

    Attributes:
        path: the file.
        name: the name of the night. Without it, the name of the file.
        root: the folder to which globs and paths are relative. Without it, the nearest folder above with a ``pyproject.toml`` or a
            ``test_tipc``.
        sha256: of its bytes.
        data: folders of full data, by name.
        entries: the groups of items, in the order in which their items run.
    """

    path: Path
    name: str
    root: Path
    sha256: str
    data: Mapping[str, DataFolder]
    entries: tuple[ManifestEntry, ...]

    @property
    def nights(self) -> Path:
        """The folder of its nights, if the command line names no other."""
        return self.root / NIGHTS / self.name


def load_manifest(path: Path) -> NightManifest:
    """Read and check the manifest in ``path``.

    Raises:
        InputError: it cannot be read, or something in it is wrong.
    """
    reader = load_yaml(path, "a manifest")
    given, root = reader.read("root", str, default=None), project_above(path.resolve().parent)
    if given is not None:
        root = (path.resolve().parent / Path(given).expanduser()).resolve()
        if not root.is_dir():
            raise reader.error("root", "there is no such folder", found=str(root), expected="the project's folder")
    name = word(reader, "name", reader.read("name", str, default=path.stem))
    common = reader.mapping("defaults", optional=True)
    defaults = _common(common, Common())
    common.done()
    folders, data = reader.mapping("data", optional=True), dict[str, DataFolder]()
    for key in folders.data:
        folder = folders.mapping(key)
        place = root / Path(folder.read("path", str)).expanduser()
        holds = texts(folder, "holds", "globs below the folder, such as train/*/", ("*",))
        for pattern in holds:
            if PurePosixPath(pattern).is_absolute() or ".." in PurePosixPath(pattern).parts:
                raise folder.error("holds", "leads out of the folder", found=pattern, expected="a glob below it")
        data[key] = DataFolder(name=key, path=place, holds=holds)
        folder.done()
    entries = [
        _entry(one, kind, defaults, data)
        for key, kind in SECTIONS.items()
        for one in reader.entries(key, "a mapping of keys", wrong="is not an entry")
    ]
    reader.done()
    if not entries:
        raise reader.error(None, "names nothing to run", expected="chains, cases or commands")
    return NightManifest(path=path, name=name, root=root, sha256=sha256_of(path), data=data, entries=tuple(entries))


def _common(one: Reader, defaults: Common) -> Common:
    return Common(
        devices=choices(one, "devices", DEVICES, defaults.devices),
        repeats=one.read("repeats", Repeats, default=defaults.repeats),
        tags=tuple(
            dict.fromkeys(word(one, "tags", tag) for tag in texts(one, "tags", "a list of words", defaults.tags))
        ),
        timeout_s=quantity(one, "timeout", parse_seconds, TIME_EXPECTED, defaults.timeout_s),
        cpus=one.read("cpus", Count, default=defaults.cpus),
        gpus=one.read("gpus", Count, default=defaults.gpus),
        memory_mb=quantity(one, "memory", parse_mebibytes, MEMORY_EXPECTED, defaults.memory_mb),
        resources=dict(sorted({**defaults.resources, **resources(one)}.items())),
        env={**defaults.env, **env(one)},
    )


def _needed(one: Reader, modes: Sequence[Mode], data: Mapping[str, DataFolder]) -> dict[str, str]:
    """Return the name of the data folder by mode; a text alone is for all modes."""
    found = one.read("data", str | dict, "a name of data, or one by mode", default={})
    needed = {EVERY_MODE: found} if isinstance(found, str) else {str(mode): name for mode, name in found.items()}
    known = [mode.value for mode in modes]
    for mode, name in needed.items():
        if mode != EVERY_MODE and mode not in known:
            raise one.unknown("data", known, "names a mode that the entry does not have", mode)
        if name not in data:
            raise one.error(
                "data",
                "is not known",
                found=repr(name),
                hint=did_you_mean(str(name), data),
                expected=", ".join(data) or "a name from the manifest's own `data`",
            )
    return needed


def _entry(one: Reader, kind: Kind, defaults: Common, data: Mapping[str, DataFolder]) -> ManifestEntry:
    known = [mode.value for mode in Mode]
    modes = tuple(map(Mode, choices(one, "modes", known, () if kind == "command" else None)))
    line = one.line() or 1
    common, needed = _common(one, defaults), _needed(one, modes, data)
    own: dict[str, Any]
    if kind == "command":
        own, expected = {"id": word(one, "id", one.read("id", str))}, "[program, argument, ...]; no shell reads it"
        one.read("argv", list, expected)  # a text alone is for shells
        own |= {"argv": texts(one, "argv", expected), "cwd": one.read("cwd", str, default=".")}
    else:
        key, command = ("params", "run") if kind == "chain" else ("case", "align")
        globs = enumerate(texts(one, key, "one or more globs below the root"))
        own = {
            "files": tuple((glob, one.line(key, str(at)) or line) for at, glob in globs),
            "exclude": texts(one, "exclude", "globs below the root", ()),
            "options": texts(one, "options", f"words for `tipchain {command}`", ()),
            "prepare": one.read("prepare", bool, default=False),
        }
        own |= (
            {"suite": one.read("suite", str, default="")}
            if kind == "chain"
            else {"stages": choices(one, "stages", STAGES, ())}
        )
    one.done()
    return ManifestEntry(kind=kind, place=".".join(one.path), line=line, common=common, modes=modes, data=needed, **own)
