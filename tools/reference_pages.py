"""Write the reference pages that are made from the code: ``python tools/reference_pages.py``. Stage the site for MkDocs.

The pages stand in git, so that links to them work in a plain clone; a test holds them to the code.
Keys, types and defaults of YAML files are what the readers of these files ask for: a document that has every mapping once
is read, and each call of `tipchain.core.yaml_reader.Reader` is one row; what a key means is the line about it in the ``Attributes`` of
the dataclass that holds it. Commands come from their argparse parsers, exit codes, stages and tolerances from the tables that the program itself uses.
"""

from __future__ import annotations

import argparse
import ast
import atexit
import inspect
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import polib

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from list_constants import constants_page  # noqa: E402

from tipchain.core.language import VARIABLE, language, say, variable_set  # noqa: E402
from tipchain.core.yaml_reader import Reader, expected_of  # noqa: E402

MADE = "_Made from the code by `tools/reference_pages.py`._\n"
CATALOGUE = ROOT / "docs/reference.zh.po"
"""What only these pages show, in Chinese: docstrings and headings. Messages of the program are in its own catalogue."""
REQUIRED = "**required**"
LINK = re.compile(r"(\]\()((?:\.\./)+[^)#\s]+)(#[^)]*)?(\))")
CHINESE_BREAK = re.compile(r"(?<=[\u3001-\u303f\u4e00-\u9fff\uff00-\uffef])\n *(?=[\u4e00-\u9fff\uff08\u201c\u300a])")
SOURCE = "source"
"""The folder of the site that holds the project's files to which pages link."""

CASE = """\
id: net
root: .
sides:
  torch: {SIDE}
  paddle: {SIDE}
model_args: {}
weights: {}
inputs:
  NAME: {shape: [1, 3]}
  label: {shape: [1], dtype: int64}
outputs: [logits]
backward: {}
train: {envelope: {}, benchmark: {METRIC: 1.0}}
data: {}
loss: {variants: {VARIANT: {ARGUMENT: 1}}}
init: {}
inference: {}
distributed: {}
train_data: {}
optimizer: {}
scheduler: {}
updates: {variants: {VARIANT: {ARGUMENT: 1}}}
lr: {}
tolerances: {forward: {logits: {threshold: 1.0e-6}}}
modes: {lite_train_lite_infer: {}}
known_deviations: [{subject: forward/logits, reason: why}]
overrides: {forward: {inputs: {NAME: {shape: [1, 3]}}, weights: {}}}
"""
CASE_MORE = (
    ("NAME: {shape: [1, 3]}\n  label", "NAME: {shapes: [[1, 3]]}\n  label"),
    ("lr: {}", "lr: {learning_rate: 0.1}"),
    (
        "overrides: {forward: {inputs: {NAME: {shape: [1, 3]}}",
        "overrides: {forward: {model_args: {}, outputs: [logits], inputs: {NAME: {shapes: [[1, 3]]}}",
    ),
)
"""What a second document says besides or otherwise: keys that are asked for only where they are given, and have no default."""
MANIFEST = """\
defaults: {}
data: {FOLDER: {path: x}}
chains: [{params: x, modes: lite_train_lite_infer}]
cases: [{case: x, modes: lite_train_lite_infer}]
commands: [{id: x, argv: [x]}]
"""
MANIFEST_MORE = (("case: x,", "case: x, stages: [forward],"), ("argv: [x]", "argv: [x], modes: lite_train_lite_infer"))
PLACES = {
    "case": {
        "sides.torch": "sides.SIDE",
        "sides.paddle": "sides.SIDE",
        "overrides.forward": "overrides.STAGE",
        "tolerances.forward": "tolerances.STAGE",
        "tolerances.STAGE.logits": "tolerances.STAGE.KEY",
        "modes.lite_train_lite_infer": "modes.MODE",
        "inputs.label": "inputs.NAME",
    },
    "profile": {"infer.cpu": "infer.DEVICE", "infer.gpu": "infer.DEVICE", "trainers.norm": "trainers.KIND"},
}
"""How a mapping is called in the page whose key is a name that the user chooses, or one of several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a YAML file: the mapping that it stands in, what it may be, and its default."""

    path: str
    name: str
    expected: str
    default: str


def _either(english: str, chinese: str) -> str:
    return chinese if language() == "zh" else english


def _made() -> str:
    return _either(MADE, "_由 `tools/reference_pages.py` 根据代码生成。_\n")


@cache
def catalogue() -> Mapping[str, str]:
    """Return the Chinese texts of these pages by the English ones."""
    return {one.msgid: one.msgstr for one in polib.pofile(str(CATALOGUE))}


def translated(text: str) -> str:
    """Return a text of a page in the reader's language; it may be a message of the program."""
    return say(text) if language() == "en" or text not in catalogue() else catalogue()[text]


def _table(*columns: str) -> list[str]:
    return [f"| {' | '.join(map(translated, columns))} |", "|---" * len(columns) + "|"]


# YAML files


@contextmanager
def _recorded() -> Iterator[list[tuple[tuple[str, ...], str, str, Any]]]:
    """Yield a list that every key asked for goes into: path, key, what was expected, default."""
    asked: list[tuple[tuple[str, ...], str, str, Any]] = []
    read = Reader.read

    def read_(self: Reader, key: str, kind: Any, expected: str = "", *, default: Any = ...) -> Any:
        choices = [get_args(one) for one in (kind, *get_args(kind)) if get_origin(one) is Literal]
        words = _either(" or ", " 或 ").join(f"`{one}`" for one in choices[0] if one) if choices else ""
        asked.append((self.path, key, expected or words or expected_of(kind), default))
        return read(self, key, kind, expected, default=default)

    Reader.read = read_  # type: ignore[method-assign, assignment]
    try:
        yield asked
    finally:
        Reader.read = read  # type: ignore[method-assign]


def keys_of(kind: str, *reads: Callable[[], object]) -> list[Key]:
    """Return the keys that ``reads`` ask a kind of file for, each once; what only a later one asks for has no default."""
    found: dict[tuple[str, str], Key] = {}
    for number, read in enumerate(reads):
        with _recorded() as asked:
            read()
        _add_keys(kind, [(*one[:3], one[3] if number == 0 else None) for one in asked], found)
    return list(found.values())


def _add_keys(
    kind: str, asked: Sequence[tuple[tuple[str, ...], str, str, Any]], found: dict[tuple[str, str], Key]
) -> None:
    for path, name, expected, default in asked:
        place = re.sub(r"\.\d+\b", "[]", ".".join(path))
        for old, new in PLACES.get(kind, {}).items():
            place = re.sub(rf"^{re.escape(old)}(?=$|\.)", new, place)
        if (place, name) in found or _is_name(name, place):
            continue
        found[place, name] = Key(path=place, name=name, expected=expected, default=_default(default))


def _is_name(name: str, place: str) -> bool:
    """Tell whether a key is a name that the user chooses, whose mapping has rows of its own."""
    return name.isupper() or (place, name) in {
        ("inputs", "label"),
        ("overrides", "forward"),
        ("tolerances", "forward"),
        ("tolerances.STAGE", "logits"),
        ("modes", "lite_train_lite_infer"),
        ("sides", "torch"),
        ("sides", "paddle"),
    }


def _default(value: Any) -> str:
    if value is ...:
        return translated(REQUIRED)
    if value is None or value in ("", (), [], {}):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, (list, tuple)):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def attributes_of(owner: type) -> dict[str, str]:
    """Return what the ``Attributes`` of a class's docstring say, by name."""
    text = inspect.cleandoc(owner.__doc__ or "").partition("Attributes:\n")[2]
    found: dict[str, str] = {}
    name = ""
    for indented in text.splitlines():
        if indented and not indented.startswith(" "):
            break
        line = indented[4:]
        head = re.match(r"(\w+): (.*)", line)
        if head:
            name = head[1]
            found[name] = head[2]
        elif name and line.startswith(" "):
            found[name] += " " + line.strip()
    return {key: value.replace("``", "`") for key, value in found.items()}


def _changed(text: str, more: Sequence[tuple[str, str]]) -> str:
    for old, new in more:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def _read_case(text: str = CASE) -> None:
    from tipchain.parity.case import BUILDERS, load_case

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "case.yaml")
        builders = ", ".join(f"{name}: 'my.net:{name}'" for name in BUILDERS)
        file.write_text(text.replace("SIDE", builders))
        load_case(file)


def _read_manifest(text: str = MANIFEST) -> None:
    from tipchain.nightly.manifest import load_manifest

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "night.yaml")
        file.write_text(text)
        load_manifest(file)


def _read_profiles() -> None:
    from tipchain.chain.profiles import SHIPPED, read_versions, suite_names

    for name in suite_names():
        read_versions.__wrapped__(SHIPPED / f"{name}.yaml")  # anew, whatever was read before


def _case_owners() -> dict[str, type]:
    from tipchain.numbers.tolerance import Tolerance
    from tipchain.parity import case, settings
    from tipchain.parity.case import Case

    weights, inputs = case.WeightsSpec, case.InputSpec
    return {
        "": Case, "sides.SIDE": case.Side, "weights": weights, "inputs.NAME": inputs,
        "overrides.STAGE": case.Override, "overrides.STAGE.weights": weights, "overrides.STAGE.inputs.NAME": inputs,
        "backward": settings.BackwardSettings, "train": settings.TrainSettings, "train.envelope": settings.EnvelopeSettings,
        "data": settings.DataSettings, "loss": settings.LossSettings, "init": settings.InitSettings,
        "inference": settings.InferenceSettings, "distributed": settings.DistributedSettings,
        "train_data": settings.TrainDataSettings, "updates": settings.UpdatesSettings, "lr": settings.LrSettings,
        "tolerances.STAGE.KEY": Tolerance, "modes.MODE": settings.ModeSettings,
        "known_deviations[]": case.KnownDeviation,
    }  # fmt: skip


def _manifest_owners() -> dict[str, type]:
    from tipchain.nightly.manifest import Common, DataFolder, ManifestEntry, NightManifest

    entry = type("Entry", (), {"__doc__": _joined(Common, ManifestEntry)})
    return {
        "": NightManifest,
        "defaults": Common,
        "data.FOLDER": DataFolder,
        "chains[]": entry,
        "cases[]": entry,
        "commands[]": entry,
    }


def _profile_owners() -> dict[str, type]:
    from tipchain.chain import suites

    return {
        "": suites.Suite,
        "recognise": suites.Marks,
        "devices": suites.Devices,
        "trainers.KIND": suites.TrainerRule,
        "train": suites.Step,
        "train.before[]": suites.Before,
        "train.after[]": suites.After,
        "eval": suites.Step,
        "export[]": suites.Step,
        "infer": suites.Infer,
        "infer.DEVICE": suites.InferRule,
        "whole": suites.Whole,
        "versions[]": suites.Version,
    }


def _joined(*owners: type) -> str:
    """Return a docstring whose ``Attributes`` are those of several classes."""
    lines = [f"    {name}: {text}" for one in owners for name, text in attributes_of(one).items()]
    return "\n".join(["One.", "", "Attributes:", *lines])


ALSO_CALLED = {
    "timeout": "timeout_s", "memory": "memory_mb", "params": "files", "case": "files", "optimizer": "optimizer_args",
    "scheduler": "scheduler_args", "train_data": "training_data", "suite": "name", "recognise": "marks", "values": "rest",
    "chains": "entries", "cases": "entries", "commands": "entries", "cpu": "rules", "gpu": "rules",
}  # fmt: skip
"""The attribute that holds a key, where the two are called differently."""


ALONE = {
    "train.envelope.reason": "the reason of a `factor` above the default.",
    "defaults": "values of the keys below for all entries.",
    "train.before": "commands in front of each training.",
    "train.after": "commands between each training and its evaluation.",
}
"""What keys mean that no attribute holds by itself."""


KINDS: Mapping[str, tuple[Sequence[Callable[[], object]], Callable[[], Mapping[str, type]]]] = {
    "case": ((_read_case, lambda: _read_case(_changed(CASE, CASE_MORE))), _case_owners),
    "manifest": ((_read_manifest, lambda: _read_manifest(_changed(MANIFEST, MANIFEST_MORE))), _manifest_owners),
    "profile": ((_read_profiles,), _profile_owners),
}
"""How the keys of each kind of file are found, and the dataclasses that describe them."""
NOT_KEYS = {
    "": ("path", "file", "digest", "sha256", "variant", "reseed", "before", "after", "version"),
    "inputs.NAME": ("name",),
    "overrides.STAGE.inputs.NAME": ("name",),
    "data.FOLDER": ("name",),
    "trainers.KIND": ("kind",),
}
"""Attributes that no key of the same mapping gives, by mapping."""


def undescribed(kind: str) -> list[str]:
    """Return the keys of a kind of file without a docstring, and the attributes without a key."""
    described = _described(kind)
    found = [f"{key.path}.{key.name}" for key, text in described if not text]
    for place, owner in KINDS[kind][1]().items():
        keys = {key.name for key, _ in described if key.path == place}
        held = keys | {ALSO_CALLED[key] for key in keys if key in ALSO_CALLED} | set(NOT_KEYS.get(place, ()))
        if not place.endswith("[]") or kind != "manifest":  # its three lists share one dataclass
            found += [f"{place}.{name}" for name in attributes_of(owner) if name not in held]
    return found


def _described(kind: str) -> list[tuple[Key, str]]:
    reads, owners = KINDS[kind]
    told = {place: attributes_of(owner) for place, owner in owners().items()}
    found = []
    for key in keys_of(kind, *reads):
        texts = told.get(key.path)
        if texts is not None:
            also = f"{key.path}.{key.name}".lstrip(".")
            found.append(
                (key, texts.get(key.name) or texts.get(ALSO_CALLED.get(key.name, ""), "") or ALONE.get(also, ""))
            )
    return found


def yaml_page(kind: str, title: str, text: str) -> str:
    """Return the page of a kind of YAML file."""
    lines = [f"# {translated(title)}", "", translated(text), "", _made()]
    rows: dict[str, list[str]] = {}
    for key, meaning in _described(kind):
        cells = (f"`{key.name}`", _cell(translated(key.expected)), key.default, _cell(translated(meaning)))
        rows.setdefault(key.path, []).append(f"| {' | '.join(cells)} |")
    for place, table in rows.items():
        head = f"`{place}`" if place else translated("The file")
        lines += ["", f"## {head}", "", *_table("key", "value", "default", "meaning"), *table]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;").strip()


# Commands


def commands_page() -> str:
    """Return the page of all commands, from their parsers."""
    from tipchain.cli import COMMANDS, GROUPS, parser_of
    from tipchain.commands.options import leaves

    title, terminal = (
        _either("Commands", "命令"),
        _either(
            "`tipchain COMMAND --help` says the same in a terminal.",
            "在终端中用 `tipchain --lang zh COMMAND --help` 查看同样的内容。",
        ),
    )
    lines = [f"# {title}", "", _made(), "", terminal, ""]
    for group, commands in GROUPS.items():
        lines += [f"## {say(group).capitalize()}", ""]
        for name in commands:
            lines += [f"### tipchain {name}", "", _sentence(say(COMMANDS[name])), ""]
            for leaf in leaves(parser_of(name)):
                lines += _leaf(leaf, leaf.prog != f"tipchain {name}")
    return "\n".join(lines) + "\n"


def _leaf(parser: argparse.ArgumentParser, is_action: bool) -> list[str]:
    lines = []
    if is_action:
        lines += [f"#### {parser.prog}", ""] + (
            [_cell(_sentence(say(parser.description))), ""] if parser.description else []
        )
    rows = []
    for action in parser._actions:  # noqa: SLF001
        if action.help is argparse.SUPPRESS or {"-h", "--help"} & {*action.option_strings}:
            continue
        rows.append(f"| {_called(action)} | {_cell(_help(parser, action))} |")
    head = _either("| argument | meaning |", "| 参数 | 含义 |")
    return [*lines, head, "|---|---|", *rows, ""] if rows else lines


def _called(action: argparse.Action) -> str:
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    value = " ".join(value) if isinstance(value, tuple) else str(value)
    if action.nargs == 0:
        value = ""
    elif action.nargs in ("*", "+"):
        value += " …"
    names = [f"{name} {value}".strip() for name in action.option_strings] or [value]
    return ", ".join(f"`{name}`" for name in names)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = parser._get_formatter()._expand_help(action) if action.help else ""  # noqa: SLF001
    shown = (
        action.default not in (None, False, argparse.SUPPRESS)
        and action.default != []
        and "default" not in text
        and "默认" not in text
    )
    default = _either(f" (default: {action.default})", f"（默认 {action.default}）")
    return text + (default if shown and action.option_strings else "")


def _sentence(text: str | None) -> str:
    text = (text or "").strip()
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "。")) else _either(".", "。")) if text else ""


# Exit codes, files, tolerances


def files_page() -> str:
    """Return the page of exit codes, outcomes, files and default tolerances."""
    from tipchain import errors
    from tipchain.modes import INFO
    from tipchain.numbers.tolerance import DEFAULTS

    lines = [f"# {translated('Exit codes and files')}", "", _made()]
    lines += ["", f"## {translated('Exit codes')}", "", *_table("code", "name", "meaning")]
    codes = members_of(errors.ExitCode)
    lines += [
        f"| {int(errors.ExitCode[name])} | `{name}` | {_cell(translated(text))} |" for name, text in codes.items()
    ]
    lines += ["", f"## {translated('Outcomes')}", "", *_table("outcome", "meaning")]
    lines += [f"| {name} | {_cell(translated(text))} |" for name, text in members_of(errors.Outcome).items()]
    latest = "`tipchain-output/CASE/MODE/log_reprod/` (in a TIPC checkout `test_tipc/output/CASE/MODE/log_reprod/`) has the latest run's; `runs/TIME-ID/` each run whole."
    lines += ["", f"## {translated('Files of an alignment')}", "", translated(latest), ""]
    lines += _table("stage", "needs the builders", "dumps", "log")
    for stage, info in INFO.items():
        dumps = f"`{info.prefix}_{{{info.reference},paddle}}.npy`" + (", `.safetensors`" if info.tensors else "")
        lines.append(f"| `{stage}` | {', '.join(info.builders)} | {dumps} | `{info.prefix}_diff.log` |")
    first = "The first pattern that matches a tensor's name counts. A case may name others, looser ones with a reason."
    lines += ["", f"## {translated('Default tolerances')} {{#default-tolerances}}", "", translated(first), ""]
    lines += _table("stage", "tensor", "tolerance")
    lines += [
        f"| `{stage}` | `{key}` | {_cell(str(one))} |"
        for stage, rules in DEFAULTS.items()
        for key, one in rules.items()
    ]
    return "\n".join(lines) + "\n"


def members_of(owner: type) -> dict[str, str]:
    """Return the text that stands below each member of an enum."""
    (tree,) = ast.parse(inspect.getsource(owner)).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for one, following in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(one, ast.Assign)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            (target,) = one.targets
            assert isinstance(target, ast.Name)
            found[target.id] = str(following.value.value).replace("``", "`")
    return found


# What corresponds in both frameworks


def correspondence_page() -> str:
    """Return the page of layers, functions, optimizers and schedules, from their tables."""
    from tipchain.facts import functions, layers, optimizers, schedules

    intro = "Preflight, the copying of weights and the search for causes read these tables. What has no row is compared by what it computes."
    lines = [f"# {translated('What corresponds')}", "", _made(), "", translated(intro)]
    lines += ["", f"## {translated('Layers')}", ""]
    lines += _table("torch", "Paddle", "settings", "tensors", "what Paddle computes otherwise")
    for row in layers.KINDS:
        ours, theirs = (", ".join(side) for side in row.classes)
        settings = [_renamed(one.torch, one.argument) for one in row.properties if " " not in one.torch]
        differs = [translated(one) for one in (row.differs, *(trait.lacking for trait in row.properties)) if one]
        cells = (ours, theirs, ", ".join(dict.fromkeys(settings)), "; ".join(_tensors(row.storage)), "; ".join(differs))
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    lines += ["", f"## {translated('Functions')}", "", *_table("Paddle", "what Paddle computes otherwise", "write")]
    for name, meaning in functions.OTHERWISE.items():
        lines.append(f"| {name} | {_cell(translated(meaning.words))} | `{meaning.write}` |")
    lines += ["", f"## {translated('Optimizers')}", ""]
    lines += _table("torch", "Paddle", "settings", "what Paddle computes otherwise")
    for one in optimizers.KINDS:
        ours, theirs = (", ".join(side) for side in one.classes)
        settings = [_renamed(torch, paddle) for paddle, torch in one.arguments.items()]
        lines.append(
            f"| {ours} | {theirs} | {', '.join(settings)} | {_cell(translated(one.differs)) if one.differs else ''} |"
        )
    lines += ["", f"## {translated('Schedules')}", "", *_table("torch", "Paddle", "settings")]
    for ours, kind in schedules.SCHEDULES.items():
        settings = [
            _renamed(one, name) if isinstance(one, str) and one[0] != "_" else f"`{name}`"
            for name, one in _torch_names(kind.arguments)
        ]
        lines.append(f"| {ours} | {kind.paddle} | {', '.join(settings)} |")
    return "\n".join(lines) + "\n"


def _torch_names(readers: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for name, one in readers.items():
        yield name, one if isinstance(one, str) else one[0]


def _renamed(torch: str, paddle: str) -> str:
    return f"`{paddle}`" if torch == paddle else f"`{torch}` → `{paddle}`"


def _tensors(storage: Any) -> Iterator[str]:
    if storage is None:
        return
    if storage.transposed:
        yield translated("the matrix is transposed")
    if storage.renamed or storage.children:
        yield ", ".join(f"`{ours}` → `{theirs}`" for ours, theirs in {**storage.renamed, **storage.children}.items())
    if storage.dropped:
        yield translated("without") + " " + ", ".join(f"`{one}`" for one in sorted(storage.dropped))


# Python


def python_page() -> str:
    """Return the page of the Python interface, from signatures and docstrings."""
    import tipchain

    lines = [_either("# Python", "# Python 接口"), "", _made()]
    for name in ("align", "AlignmentReport", "copy_weights", "compare", "Tolerance", "load_record", "save_record"):
        owner = getattr(tipchain, name)
        lines += ["", f"## {name}", "", *_signature(f"tipchain.{name}", owner), *_sections(inspect.getdoc(owner) or "")]
        bases = (
            [one for one in owner.__mro__ if one.__module__.startswith("tipchain")] if inspect.isclass(owner) else []
        )
        for base in bases[1:]:
            text = inspect.cleandoc(base.__doc__ or "")
            lines += _sections(text[text.index("Attributes:") :]) if "Attributes:" in text else []
        for called, member in {name: one for base in reversed(bases) for name, one in vars(base).items()}.items():
            function = member.fget if isinstance(member, property) else member
            if called.startswith("_") or not inspect.isfunction(function):
                continue
            shown = [f"`{name}.{called}`"] if isinstance(member, property) else _signature(f"{name}.{called}", function)
            lines += ["", f"### {name}.{called}", "", *shown, "", *_sections(inspect.getdoc(member) or "")]
    return "\n".join(lines) + "\n"


def _signature(name: str, owner: Any) -> list[str]:
    """Return the signature as a block of Python, one parameter a line where it is long."""
    signature = inspect.signature(owner)
    signature = signature.replace(
        parameters=[one.replace(annotation=_annotation(one.annotation)) for one in signature.parameters.values()],
        return_annotation=_annotation(signature.return_annotation),
    )
    text = f"{name}{signature}"
    if len(text) > 88:
        parameters = [str(one) for one in signature.parameters.values() if one.name != "self"]
        for number, one in enumerate(signature.parameters.values()):
            if one.kind is one.KEYWORD_ONLY:
                parameters.insert(number, "*")
                break
        end = "" if inspect.isclass(owner) else text.rpartition(") -> ")[2]
        text = "\n".join([f"{name}(", *(f"    {one}," for one in parameters), f") -> {end}" if end else ")"])
    return ["```python-signature", text, "```", ""]


class _Shown(str):
    """A text that is shown without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def _annotation(found: Any) -> Any:
    return _Shown(found) if isinstance(found, str) else found


def _sections(text: str) -> list[str]:
    """Return a docstring in Google's style as Markdown: its sections are lists, each paragraph or item is one line."""
    lines: list[str] = []
    inside = prose = False
    for line in text.replace("``", "`").splitlines():
        head = re.fullmatch(r"(Args|Attributes|Returns|Yields|Raises):", line)
        inside = bool(head) or (inside and (not line or line.startswith("    ")))
        if head:
            prose = head[1] in ("Returns", "Yields")
            lines += [f"**{head[1]}**", ""]
        elif inside and not prose and re.match(r"    \S", line):
            lines.append(re.sub(r"^([\w*., ]+): ", r"- `\1`: ", line.strip()))
        elif line and lines and lines[-1]:
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line.strip())
    return [_paragraph(line) for line in lines]


def _paragraph(line: str) -> str:
    """Return a line of a docstring in the reader's language; of an item, what follows its name."""
    item = re.fullmatch(r"(- `[^`]*`): (.*)", line)
    if item:
        return f"{item[1]}{_either(': ', '：')}{_cell(translated(item[2]))}"
    return translated(line)


MAKERS: Mapping[str, Callable[[], str]] = {
    "reference/commands.md": commands_page,
    "reference/case.md": lambda: yaml_page(
        "case", "Cases", "A case is a YAML file that names the two sides of an alignment. `tipchain init` writes one."
    ),
    "reference/manifest.md": lambda: yaml_page(
        "manifest",
        "Manifests",
        "A manifest is a YAML file that says what a night runs: [nights](../how-to/nightly.md).",
    ),
    "reference/profile.md": lambda: yaml_page(
        "profile",
        "Profiles",
        "A profile is a YAML file that says how a suite's driver turns a parameter file into commands. [Suites](suites.md) explains layouts, arguments, templates and conditions. `extends: NAME` takes over all keys of a shipped suite: mappings are merged, lists and texts replaced. A required key must be in the profile or in the suite that it extends.",
    ),
    "reference/python.md": python_page,
    "reference/files.md": files_page,
    "reference/correspondence.md": correspondence_page,
    "reference/constants.md": lambda: constants_page(translated),
}
"""What makes each page, by its path below docs."""


def made_pages() -> dict[Path, str]:
    """Return the text of each page in English and in Chinese, by its file."""
    made = {}
    for name, ending in (("en", ".md"), ("zh", ".zh.md")):
        with variable_set(VARIABLE, name):
            for path, make in MAKERS.items():
                made[(ROOT / "docs" / path).with_suffix(ending)] = make()
    return made


# What MkDocs calls


def stage(folder: Path) -> None:
    """Copy all pages into a folder, with the project's files they link to."""
    shutil.copytree(ROOT / "docs", folder, dirs_exist_ok=True)
    for page in sorted((ROOT / "docs").rglob("*.md")):
        place = page.relative_to(ROOT / "docs")
        text = page.read_text(encoding="utf-8")
        changed = LINK.sub(lambda match, place=place: _in_site(match, place, folder), text)  # type: ignore[misc]
        if page.name.endswith(".zh.md"):
            changed = joined(changed)
        if changed != text:
            folder.joinpath(place).write_text(changed, encoding="utf-8")


def joined(text: str) -> str:
    """Return a Chinese page without its line breaks between Chinese characters: a browser would show each as a blank."""
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else CHINESE_BREAK.sub("", part) for part in parts)


def _in_site(match: re.Match[str], place: Path, folder: Path) -> str:
    """Return a link of the page ``place``; one to a file beyond docs leads to a copy of that file in the site."""
    target = Path(os.path.normpath(ROOT / "docs" / place.parent / match[2]))
    if target.is_relative_to(ROOT / "docs") or not target.is_file():
        return match[0]
    # The languages' plugin would take the `sh` of `x.sh.txt` for a language.
    copy = Path(SOURCE, target.relative_to(ROOT).as_posix().replace(".", "_") + ".txt")
    folder.joinpath(copy).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(target, folder / copy)
    return f"{match[1]}{os.path.relpath(copy, place.parent)}{match[4]}"


def on_config(config: Any) -> Any:
    """Let MkDocs read the staged pages; it asks once for each language."""
    if Path(config["docs_dir"]) == ROOT / "docs":
        folder = tempfile.mkdtemp(prefix="tipchain-site-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        stage(Path(folder))
        config["docs_dir"] = folder
    return config


if __name__ == "__main__":
    for file, text in made_pages().items():
        file.write_text(text, encoding="utf-8")
