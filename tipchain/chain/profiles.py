"""Profiles of suites: YAML files, read and checked."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Literal, TypeVar, get_args, get_origin, get_type_hints

from tipchain.chain.suites import (
    ROLE,
    After,
    ArgumentItem,
    Before,
    Choice,
    Conditions,
    Marks,
    Role,
    RoleOrTemplate,
    SlotRule,
    Step,
    Suite,
    Template,
    TrainerRule,
    Version,
    condition,
    script_words,
)
from tipchain.errors import UsageError, suggestion

if TYPE_CHECKING:
    from tipchain.core.json_text import Json
    from tipchain.core.yaml_reader import Reader


FACTS = frozenset(
    "root model model_pp model_below model_folders config_name config_rest mode legacy base epoch batch config trainer kind gpus autocast nodes nodes_n launched multi_host "
    "train save_name save inference_dir name weights ips device quant folder results number model_file".split()
)
"""Names that templates and conditions may use besides a profile's own variables and the settings of inference."""
STATUS = frozenset(("model", "command", "log"))
VALUE = "v["
# Roles whose words the engine makes although a layout may lack their line.
ENGINE_ROLES = frozenset(("model", "data", "use_gpu", "autocast"))
NEEDED_ROLES = (
    *("model_name", "python", "gpu_list", "save", "train_model_name", "trainer", "train_norm", "eval"),
    *("infer_model", "inference", "device", "model_dir", "infer_data"),
)

# The shipped ones are in ``tipchain/suites``. A user's own is named on the command line (``--suite my.yaml``), or stands
# in the checkout as ``test_tipc/tipchain_suite.yaml``.


SHIPPED = Path(__file__).resolve().parents[1] / "suites"
OWN = Path("test_tipc/tipchain_suite.yaml")
OWN_KEYS = ("suite", "title", "recognise", "versions", "drivers")
"""Keys that a profile does not inherit."""


@cache
def _shipped() -> Mapping[str, Path]:
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yaml"))}


def suite_names() -> tuple[str, ...]:
    """Return the names of the shipped suites."""
    return tuple(_shipped())


def get_suite(name: str, driver: str = "") -> Suite:
    """Return the suite called ``name``, or of a profile file (``*.yaml``, ``*.yml``).

    Args:
        name: its name or file.
        driver: the text of the checkout's driver, which tells the version; "" for the newest.

    Raises:
        UsageError: no such suite; the message names all.
        InputError: the profile is wrong.
    """
    shipped = _shipped().get(name)
    if shipped is not None:
        return read_profile(shipped, driver)
    if name.endswith((".yaml", ".yml")):
        return read_profile(Path(name), driver)
    raise UsageError(
        f"unknown suite {name!r}{suggestion(name, suite_names())}\n  suites: {', '.join(suite_names())}"
        "\n  or a profile of your own: a file that ends with .yaml"
    )


def all_suites(driver: str = "") -> tuple[Suite, ...]:
    """Return the suites that have a name, each in the version that the text of a driver tells."""
    return tuple(get_suite(name, driver) for name in suite_names())


def read_profile(path: Path, driver: str = "") -> Suite:
    """Read the profile at ``path``, in the version that the text of a driver tells.

    Raises:
        InputError: it cannot be read, or something in it is wrong; with file, line and key.
    """
    suite = read_versions(path)
    if not suite.versions:
        return suite
    for index in range(len(suite.versions)) if path.parent != SHIPPED else ():
        read_versions(path, (index,))  # what is wrong in a version counts though the version does not
    words = script_words(driver)
    found = tuple(
        index
        for index, one in enumerate(suite.versions)
        if words and all(text in words for text in one.has) and not any(text in words for text in one.lacks)
    )
    return read_versions(path, found) if found else suite


@cache
def read_versions(path: Path, versions: tuple[int, ...] = ()) -> Suite:
    """Read the profile at ``path`` with the changes of some of its versions.

    Raises:
        InputError: as `read_profile`.
    """
    return _Profile(path, versions).suite()


def _merge(base: object, own: object) -> Json:
    if isinstance(base, dict) and isinstance(own, dict):
        merged = {**base}
        for key, value in own.items():
            merged[key] = _merge(base.get(key), value) if key in base else value
        return merged
    return own


@cache
def _document(path: Path) -> tuple[Reader, dict[str, Json]]:
    from tipchain.core.yaml_reader import load_yaml

    document = load_yaml(path, "a suite's profile")
    data = dict(document.data)
    base = data.pop("extends", None)
    if base is not None:
        if base not in _shipped():
            raise document.unknown("extends", _shipped(), "extends an unknown suite", base)
        if path == SHIPPED / f"{base}.yaml":
            raise document.error("extends", "extends itself")
        inherited = dict(_document(SHIPPED / f"{base}.yaml")[1])
        for key in OWN_KEYS:
            inherited.pop(key, None)
        data = _merge(inherited, data)
    return document, data


def parse_layout(text: str) -> tuple[SlotRule, ...]:
    """Return the rules of a layout: words ``role[:key|key]``, ``?role`` optional, ``=section[@role]``, ``##``.

    ``=?section`` is a header that may be missing.
    """
    rules = []
    for word in text.split():
        role, _, keys = word.partition(":")
        patterns = tuple(filter(None, keys.split("|")))
        if role.startswith("="):
            names, _, header_role = role[1:].partition("@")
            kind = "optional header" if names.startswith("?") else "header"
            sections = tuple(names.removeprefix("?").split("|"))
            rules.append(SlotRule(kind=kind, role=header_role, keys=sections))
        elif role == "##":
            rules.append(SlotRule(kind="separator"))
        elif role.startswith("?"):
            rules.append(SlotRule(kind="optional", role=role[1:], keys=patterns))
        else:
            rules.append(SlotRule(kind="slot", role=role, keys=patterns))
    return tuple(rules)


_Part = TypeVar("_Part")
NAMED: Sequence[Json] = (Role, Template, RoleOrTemplate)
TEXTS = list | str | bool | int | float | None, "a text or a list of texts"
LISTS: Mapping[Json, tuple[Json, str]] = {
    **dict.fromkeys((str, Role, Template), TEXTS),
    Choice: (list | dict | str, "a template, or a list of them"),
}
"""Types that may stand for a list, and the list's name."""


@cache
def _hints(kind: type) -> Mapping[str, Json]:
    return get_type_hints(kind, include_extras=True)


class _Profile:
    """One profile file on its way to a Suite: keys are read by the types of its fields, then names are looked up."""

    def __init__(self, path: Path, versions: Sequence[int]) -> None:
        document, data = _document(path)
        lines = dict(document.lines)
        for index in versions:
            data = _merge(data, data["versions"][index]["changes"])
            place = ("versions", str(index), "changes")
            lines |= {key[len(place) :]: line for key, line in document.lines.items() if key[: len(place)] == place}
        self.applied, self.path, self.reader = versions, path, document.at((), data, lines)
        # Roles, templates and conditions, which can be checked only when all is read, each with its place.
        self.seen: list[tuple[Sequence[str], Json, str]] = []

    def suite(self) -> Suite:
        reader = self.reader
        layout = self.layout()
        train = reader.mapping("train")
        versions = tuple(
            self.version(one)
            for one in reader.entries("versions", "a mapping of keys", wrong="has an entry that is no mapping")
        )
        suite = self.read(
            Suite,
            reader,
            name=reader.read("suite", str),
            file=str(self.path),
            marks=self.read(Marks, reader.mapping("recognise", optional=True)),
            layout=layout,
            reads=reader.read("reads", int, "a number of lines", default=None),
            rest=reader.choice("values", ("cut", "rest"), default="cut") == "rest",
            pipes=reader.choice("pipes", ("blanks", "refuse"), default="blanks") == "blanks",
            trainers=self.trainers(),
            before=self.value(train, "before", tuple[Before, ...], default=()),
            after=self.value(train, "after", tuple[After, ...], default=()),
            train=self.read(Step, train),
            versions=versions,
            version=tuple(versions[index].title for index in self.applied),
            drivers=frozenset(reader.read("drivers", str, default="").split()),
        )
        self.check(suite)
        return suite

    def read(self, kind: type[_Part], reader: Reader, /, **given: object) -> _Part:
        make: Json = kind
        for name, hint in _hints(make).items():
            if name not in given:
                default = {"default": make._field_defaults[name]} if name in make._field_defaults else {}
                given[name] = self.value(reader, name, hint, **default)
        reader.done()
        found: _Part = make(**given)
        return found

    def value(self, reader: Reader, key: str, hint: Json, **default: Json) -> Json:
        """Return the value of a key by its type; of a list with one entry the entry may stand alone."""
        origin: Json = get_origin(hint)
        inner, path, given = get_args(hint), (*reader.path, key), reader.data.get(key)
        found: Json
        if hint in (*NAMED, str) or type(None) in inner:
            found = reader.read(key, str, **default)
            kind = inner[0] if type(None) in inner else hint
            self.seen += [(path, kind, found)] if found and kind in NAMED else []
        elif hint in (bool, int) or origin is Literal:
            found = reader.read(key, hint, **default)
        elif origin is Mapping:
            own = reader.mapping(key, optional=bool(default))
            self.seen += [((*path, name), hint, name) for name in own.data if hint == Conditions]
            more = {"default": ()} if hint != Conditions and get_origin(inner[1]) is tuple else {}
            found = {name: self.value(own, name, inner[1], **more) for name in own.data}
        elif origin in (tuple, frozenset):
            kinds, expected = LISTS.get(inner[0], (list, "a list"))
            entries = reader.read(key, kinds, expected, **dict.fromkeys(default, ()))
            entries = entries if isinstance(entries, (list, tuple, frozenset)) else [] if entries == "" else [entries]
            if inner[0] in (str, Role):
                entries = ["null" if one is None else str(one) for one in entries]
            own = self.reader.at(path, {str(number): one for number, one in enumerate(entries)})
            found = origin([self.value(own, number, inner[0]) for number in own.data])
        elif isinstance(given, str) and hint in (ArgumentItem, Choice):
            self.seen.append((path, _hints(hint)[hint._fields[0]], given))
            found = hint(given)
        else:
            found = self.read(hint, reader.mapping(key))
        return found

    def version(self, own: Reader) -> Version:
        for key in own.mapping("changes").data:
            if key in OWN_KEYS:
                raise own.error(("changes", key), "is of the whole profile, and no version's")
        found = self.read(Version, own)
        if not found.has:
            raise own.error("has", "names no text of the driver", expected="a text or a list of texts")
        return found

    def layout(self) -> tuple[SlotRule, ...]:
        layout = parse_layout(self.reader.read("layout", str))
        if not layout or layout[0].kind != "header":
            raise self.reader.error("layout", "does not begin with a section", expected="=train_params ...")
        roles = [rule.role for rule in layout if rule.role]
        for index, role in enumerate(roles):
            if not ROLE.fullmatch(role):
                raise self.reader.error("layout", f"{role!r} is no role", expected="letters, digits and _")
            if role in roles[:index]:
                raise self.reader.error("layout", f"the role {role!r} stands twice")
        return layout

    def trainers(self) -> tuple[TrainerRule, ...]:
        reader = self.reader.mapping("trainers")
        rules = []
        for kind in [kind for kind, own in reader.data.items() if own is not None]:  # null takes one away
            own = reader.mapping(kind)
            usual = {"key": f"train_{kind}", "export": f"export_{kind}"}
            roles = {name: self.value(own, name, Role, default=default) for name, default in usual.items()}
            command = self.value(own, "command", tuple[Role, ...], default=()) or (usual["key"],)
            rules.append(self.read(TrainerRule, own, kind=kind, command=command, **roles))
        return tuple(rules)

    # What is wrong although each key can be read.

    def check(self, suite: Suite) -> None:
        roles = suite.roles | ({"to_static"} if suite.to_static else frozenset())
        facts = FACTS | suite.infer.axes | frozenset(suite.vars)
        for place, hint, text in self.seen:
            if hint == Conditions:
                name = condition(text)[0]
                what, _, role = name.partition(" ")
                known = role and what in ("key", "value")
                self.known(place, *(("role", role, roles) if known else ("condition", name, facts)))
            elif hint == Role:
                self.known(place, "role", text, roles)
            elif hint == RoleOrTemplate and ROLE.fullmatch(text):
                self.known(place, "role", text, roles | ENGINE_ROLES)
            else:
                self.check_template(place, text, roles, facts, words=hint == RoleOrTemplate)
        needed = set(NEEDED_ROLES) - ({"infer_data"} & suite.roles)
        needed |= {"pretrained"} if suite.finetune == "norm" else set()
        needed |= {"infer_export"} if suite.whole.style == "models" else set()
        needed |= {suite.whole.command} if suite.whole.style == "quantize" else set()
        needed |= {rule.command[0] for rule in suite.trainers if rule.command[0] != "to_static"} | suite.infer.axes
        for role in sorted(needed - suite.lacks - {rule.role for rule in suite.layout if rule.kind == "slot"}):
            kind = "may be missing" if role in suite.roles else "is missing"
            raise self.reader.error("layout", f"the role {role!r} {kind}; no chain can do without it")
        if all(rule.kind != "norm" for rule in suite.trainers):
            raise self.reader.error("trainers", "the trainer 'norm' is missing", expected="norm: {}")
        if "/" in suite.results_log or suite.results_log in ("", ".", ".."):
            raise self.reader.error("results_log", "is no file's name", found=suite.results_log)
        try:
            re.compile(suite.result_line)
        except re.error as error:
            message = f"is no regular expression: {error}"
            raise self.reader.error("result_line", message, found=suite.result_line) from error

    def check_template(
        self, place: Sequence[str], template: str, roles: Collection[str], facts: Collection[str], *, words: bool
    ) -> None:
        try:
            names = [(name, form or conversion) for _, name, form, conversion in Formatter().parse(template)]
            if words:
                shlex.split(template)
        except ValueError as error:
            raise self.reader.error(tuple(place), f"is no template: {str(error).lower()}", found=template) from error
        for name, form in names:
            role = name.removeprefix(VALUE).removesuffix("]") if name and name.startswith(VALUE) else ""
            if name is None:
                continue
            if form or not (role or name).isidentifier() or (role and place[0] == "status"):
                raise self.reader.error(tuple(place), f"is no template: {{{name}}} is no variable", found=template)
            if role:
                self.known(place, "role", role, roles)
            else:
                self.known(place, "variable", name, STATUS if place[0] == "status" else facts)

    def known(self, place: Sequence[str], what: str, name: str, known: Collection[str]) -> None:
        if name not in known:
            raise self.reader.unknown(tuple(place), sorted(known), f"unknown {what}", name)
