"""A night's manifest: a YAML file that names chains, alignment cases and other commands, and what they need.

Every mistake is a `ManifestError` that names file, line, key, what was found and what was expected.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from tipchain.errors import ManifestError, did_you_mean
from tipchain.modes import Mode
from tipchain.nightly.entry_values import WORD, choices, env, quantity, resources, texts, words
from tipchain.nightly.items import Kind
from tipchain.nightly.layouts import LAYOUTS
from tipchain.quantities import MEMORY_EXPECTED, TIME_EXPECTED, parse_mebibytes, parse_seconds
from tipchain.stage_table import STAGES
from tipchain.yaml_lines import Reader, load_yaml

Device: TypeAlias = Literal["cpu", "gpu"]
DEVICES: tuple[Device, ...] = ("cpu", "gpu")
DEFAULT_TIMEOUT_S = 2 * 3600.0
MOST_REPEATS = 10_000
EVERY_MODE = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFolder:
    """Full data on this machine.

    Attributes:
        name: what entries call it.
        path: absolute.
        layout: a name in `tipchain.nightly.layouts.LAYOUTS`.
    """

    name: str
    path: Path
    layout: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What every entry may say, and `defaults` may say for all.

    Attributes:
        devices: ``cpu``, ``gpu``.
        repeats: how often each item runs.
        tags: words to select by.
        timeout_s: seconds that an item may take.
        cpus: slots that it takes.
        gpus: GPUs that it takes on the device ``gpu``.
        memory_mb: MiB that it takes; 0: not said.
        resources: what else it takes of a cluster's node, by name, sorted.
        env: variables that are set for it.
    """

    devices: tuple[Device, ...] = ("cpu",)
    repeats: int = 1
    tags: tuple[str, ...] = ()
    timeout_s: float = DEFAULT_TIMEOUT_S
    cpus: int = 1
    gpus: int = 1
    memory_mb: int = 0
    resources: tuple[tuple[str, float], ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A group of chains, of cases, or one command.

    Attributes:
        kind: which.
        place: the entry in the manifest, as ``chains.0``, for messages.
        line: its line.
        common: what it needs.
        modes: the TIPC modes; () for a command without any.
        files: globs below the root, each with its line; () for a command.
        exclude: globs of files that are left out.
        data: the name of the data folder that a mode needs; `EVERY_MODE` stands for all.
        suite: whose layout the parameter files have; "" if it is told from them.
        options: words that are added to each call.
        prepare: whether each item first prepares the data and weights of its mode.
        stages: of a case; () for all.
        id: of a command.
        argv: of a command.
        cwd: of a command, below the root.
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
class Manifest:
    """A manifest as it stands there.

    Attributes:
        path: the file.
        name: of its nights' folder; without it, the file's name.
        root: absolute; what files are named from. Without it, the nearest folder above with a ``pyproject.toml`` or a
            ``test_tipc``.
        sha256: of its bytes.
        data: full data, by name.
        entries: chains, cases and commands, in the order in which their items run.
    """

    path: Path
    name: str
    root: Path
    sha256: str
    data: Mapping[str, DataFolder]
    entries: tuple[Entry, ...]


def load_manifest(path: Path) -> Manifest:
    """Read and check the manifest in ``path``.

    Raises:
        ManifestError: it cannot be read, or something in it is wrong.
    """
    if not path.is_file():
        raise ManifestError(
            "no such manifest", file=path, expected="a YAML file with chains, cases or commands"
        )
    document = load_yaml(path, ManifestError, "a manifest")
    reader = Reader(path, document, (), document.data)
    root = _root(reader, path)
    name = reader.text("name", default=path.stem)
    if not WORD.fullmatch(name):
        raise reader.error(
            "name", "cannot be a folder's name", found=repr(name), expected="a name such as suite"
        )
    defaults = _defaults(reader)
    data = _data(reader, root)
    entries = [
        *(_chains(one, defaults, data) for one in _list(reader, "chains")),
        *(_cases(one, defaults, data) for one in _list(reader, "cases")),
        *(_command(one, defaults, data) for one in _list(reader, "commands")),
    ]
    reader.done()
    if not entries:
        raise reader.error(None, "names nothing to run", expected="chains, cases or commands")
    return Manifest(
        path=path,
        name=name,
        root=root,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        data=data,
        entries=tuple(entries),
    )


def _root(reader: Reader, path: Path) -> Path:
    """Return the root: as the manifest says, else the nearest folder above with a pyproject.toml or test_tipc."""
    given = reader.text("root", default=None)
    if given is not None:
        root = (path.resolve().parent / Path(given).expanduser()).resolve()
        if not root.is_dir():
            raise reader.error(
                "root", "there is no such folder", found=str(root), expected="the project's folder"
            )
        return root
    folder = path.resolve().parent
    for above in (folder, *folder.parents):
        if (above / "pyproject.toml").is_file() or (above / "test_tipc").is_dir():
            return above
    return folder


def _list(reader: Reader, key: str) -> list[Reader]:
    """Return a reader of each mapping in the list ``key``."""
    found = []
    for number, data in enumerate(reader.items(key, default=())):
        path = (key, str(number))
        one = Reader(reader.file, reader.document, path, data if isinstance(data, dict) else {})
        if not isinstance(data, dict):
            raise one.error(None, "is not an entry", found=repr(data), expected="a mapping of keys")
        found.append(one)
    return found


def _defaults(reader: Reader) -> Common:
    one = reader.mapping("defaults", default=None)
    if one is None:
        return Common()
    common = _common(one, Common())
    one.done()
    return common


def _common(one: Reader, defaults: Common) -> Common:
    return Common(
        devices=choices(one, "devices", DEVICES, defaults.devices),
        repeats=one.integer("repeats", defaults.repeats, least=1, most=MOST_REPEATS),
        tags=words(one, "tags", defaults.tags),
        timeout_s=quantity(one, "timeout", parse_seconds, TIME_EXPECTED, defaults.timeout_s),
        cpus=one.integer("cpus", defaults.cpus, least=1),
        gpus=one.integer("gpus", defaults.gpus, least=1),
        memory_mb=quantity(one, "memory", parse_mebibytes, MEMORY_EXPECTED, defaults.memory_mb),
        resources=tuple(sorted({**dict(defaults.resources), **resources(one)}.items())),
        env={**defaults.env, **env(one)},
    )


def _data(reader: Reader, root: Path) -> dict[str, DataFolder]:
    folders = reader.mapping("data", default=None)
    found: dict[str, DataFolder] = {}
    for name in folders.data if folders is not None else ():
        assert folders is not None
        one = folders.mapping(name)
        assert one is not None
        path = root / Path(one.text("path")).expanduser()
        found[name] = DataFolder(
            name=name, path=path, layout=one.choice("layout", tuple(LAYOUTS), default="any")
        )
        one.done()
    return found


def _needed(one: Reader, modes: Sequence[Mode], data: Mapping[str, DataFolder]) -> dict[str, str]:
    """Return the name of the data folder by mode; a text alone is for all modes."""
    found = one.value("data", (str, dict), "a name of data, or one by mode", default={})
    needed = (
        {EVERY_MODE: found} if isinstance(found, str) else {str(mode): name for mode, name in found.items()}
    )
    known = [mode.value for mode in modes]
    for mode, name in needed.items():
        if mode != EVERY_MODE and mode not in known:
            raise one.error("data", "names a mode that the entry does not have", found=mode,
                            expected=", ".join(known), hint=did_you_mean(mode, known))  # fmt: skip
        if name not in data:
            raise one.error("data", "is not known", found=repr(name), hint=did_you_mean(str(name), data),
                            expected=", ".join(data) or "a name from the manifest's own `data`")  # fmt: skip
    return needed


def _line(one: Reader) -> int:
    return one.document.line(one.path) or 1


def _globs(one: Reader, key: str) -> tuple[tuple[str, int], ...]:
    found = texts(one, key, "one or more globs below the root")
    if not found:
        raise one.error(key, "is empty", expected="one or more globs below the root")
    lines = [one.document.line((*one.path, key, str(number))) or _line(one) for number in range(len(found))]
    return tuple(zip(found, lines, strict=True))


def _modes(one: Reader, *, needed: bool = True) -> tuple[Mode, ...]:
    names = [mode.value for mode in Mode]
    if not needed and not one.data.get("modes"):
        one.asked.append("modes")
        return ()
    return tuple(map(Mode, choices(one, "modes", names)))


def _chains(one: Reader, defaults: Common, data: Mapping[str, DataFolder]) -> Entry:
    entry = replace(
        _of_files(one, "chain", "params", "run", defaults, data), suite=one.text("suite", default="")
    )
    one.done()
    return entry


def _cases(one: Reader, defaults: Common, data: Mapping[str, DataFolder]) -> Entry:
    entry = _of_files(one, "align", "case", "align", defaults, data)
    if "stages" in one.data:
        entry = replace(entry, stages=choices(one, "stages", STAGES, STAGES))
    else:
        one.asked.append("stages")
    one.done()
    return entry


def _of_files(
    one: Reader, kind: Kind, key: str, command: str, defaults: Common, data: Mapping[str, DataFolder]
) -> Entry:
    """Return an entry for the files that the globs below ``key`` name, each for ``tipchain COMMAND``."""
    files, modes = _globs(one, key), _modes(one)
    return Entry(
        kind=kind,
        place=".".join(one.path),
        line=_line(one),
        common=_common(one, defaults),
        modes=modes,
        files=files,
        exclude=texts(one, "exclude", "globs below the root", ()),
        data=_needed(one, modes, data),
        options=texts(one, "options", f"words for `tipchain {command}`", ()),
        prepare=one.flag("prepare", default=False),
    )


def _command(one: Reader, defaults: Common, data: Mapping[str, DataFolder]) -> Entry:
    name = one.text("id")
    if not WORD.fullmatch(name):
        raise one.error("id", "is not a word", found=repr(name), expected="letters, digits, '.', '_', '-'")
    modes = _modes(one, needed=False)
    argv = texts(one, "argv", "a list of words")
    if not argv or isinstance(one.data["argv"], str):
        raise one.error("argv", "is not a list of words", found=repr(one.data["argv"]),
                        expected="[program, argument, ...]; no shell reads it")  # fmt: skip
    entry = Entry(
        kind="command",
        place=".".join(one.path),
        line=_line(one),
        common=_common(one, defaults),
        modes=modes,
        data=_needed(one, modes, data),
        id=name,
        argv=argv,
        cwd=one.text("cwd", default="."),
    )
    one.done()
    return entry
