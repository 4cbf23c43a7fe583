"""Profiles of suites: YAML files, read and checked."""

from __future__ import annotations

import re
import shlex
import string
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, get_args, get_origin, get_type_hints

from tipchain.chain.suites import (
    FIXES,
    OPERATIONS,
    After,
    ArgumentItem,
    Before,
    Choice,
    Condition,
    Infer,
    InferRule,
    Marks,
    SlotRule,
    Step,
    Suite,
    Template,
    TrainerRule,
    Verified,
    Version,
    script_words,
)
from tipchain.errors import ProfileError, UsageError, did_you_mean, suggestion

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from tipchain.core.json_text import Json
    from tipchain.core.yaml_reader import LinedYaml, Reader


FACTS = frozenset(
    "root model model_pp model_below config_name config_rest mode base epoch batch config trainer kind gpus autocast nodes nodes_n launched multi_host train save_name save "
    "inference_dir name weights ips device quant folder results number model_file".split()
)
"""What templates and conditions may name besides a profile's own variables and the settings of inference."""
STATUS = frozenset(("model", "command", "log"))
VALUE = "v["

Place = Sequence[str]


def fields(template: str) -> Iterator[str]:
    """Yield the variables of a template as they stand, ``v[role]`` for the value of a slot.

    Raises:
        ValueError: it is no template: a brace without its other, a format, an attribute.
    """
    for _, name, form, conversion in string.Formatter().parse(template):
        if name is None:
            continue
        bare = name.removeprefix(VALUE).removesuffix("]") if name.startswith(VALUE) else name
        if form or conversion or not bare.isidentifier():
            raise ValueError(f"{{{name}}} is no variable")
        yield name


def variables(suite: Suite) -> frozenset[str]:
    """Return what a profile's templates and conditions may name; what is not known in their place is refused there."""
    axes = {axis for rule in suite.infer.rules.values() for axis in (*rule.axes, *rule.fixed_axes)}
    return FACTS | axes | frozenset(suite.vars)


# What is wrong with a suite's profile although each of its keys can be read.
#
# Names are looked up here: roles in the layout, variables where templates stand, fixes, steps; and the layout must have
# what no chain can do without.


# Roles whose words the engine makes although a layout may lack their line.
ENGINE_ROLES = frozenset(("model", "data", "use_gpu", "autocast"))
NEEDED_ROLES = (
    *("model_name", "python", "gpu_list", "save", "train_model_name", "trainer", "train_norm", "eval"),
    *("infer_model", "inference", "device", "model_dir", "infer_data"),
)
STEPS = frozenset(("train", "eval", "export", "infer"))


class Seen:
    """What was read of a profile that can be checked only when all is read, each with its place.

    Args:
        path: the profile's file.
        document: its YAML.
    """

    def __init__(self, path: Path, document: LinedYaml) -> None:
        self.path, self.document = path, document
        self.templates: list[tuple[Place, str]] = []
        self.tested: list[tuple[Place, Condition]] = []
        self.named: list[tuple[Place, str]] = []

    def known(self, place: Place, what: str, name: str, known: Collection[str]) -> None:
        """Refuse a name that is none of ``known``.

        Raises:
            ProfileError: it is not.
        """
        if name not in known:
            raise self.fault(
                place, f"unknown {what}", found=name, expected=", ".join(sorted(known)), hint=did_you_mean(name, known)
            )

    def fault(self, place: Place, message: str, **more: str | None) -> ProfileError:
        """Return an error that names the file, and the line and key of a place."""
        path = tuple(place)
        return ProfileError(message, file=self.path, line=self.document.line(path), key=".".join(path), **more)


def check_profile(suite: Suite, seen: Seen) -> None:
    """Check what was read.

    Raises:
        ProfileError: a name is unknown where it stands, or something needed is missing.
    """
    roles = suite.roles | ({"to_static"} if suite.to_static else frozenset())
    for place, role in seen.named:
        seen.known(place, "role", role, roles | ENGINE_ROLES)
    for place, role in _listed_roles(suite):
        seen.known(place, "role", role, roles)
    _check_needed(suite, seen)
    for place, template in seen.templates:
        _check_template(place, template, suite, seen, roles)
    for place, condition in seen.tested:
        _check_condition(place, condition, suite, seen, roles)
    if suite.whole.unset:
        seen.known(("whole", "unset"), "fix", suite.whole.unset, FIXES)
    for step in sorted(suite.redirected):
        seen.known(("redirected",), "step", step, STEPS)
    if "/" in suite.results_log or suite.results_log in ("", ".", ".."):
        raise seen.fault(("results_log",), "is no file's name", found=suite.results_log)
    _check_pattern(("result_line",), suite.result_line, seen)


def _listed_roles(suite: Suite) -> Iterator[tuple[Place, str]]:
    """Yield the roles that stand in lists and tables, each with its place."""
    for key, names in (("mode_lists", suite.mode_lists), ("unread", suite.unread)):
        yield from (((key,), role) for role in sorted(names))
    for rule in suite.trainers:
        named = (rule.key, *rule.command, *filter(None, [rule.export]))
        yield from ((("trainers", rule.kind), role) for role in named)
    for name, role in (("data", suite.infer.data), ("data_else", suite.infer.data_else)):
        if role:
            yield ("infer", name), role
    for device, own in suite.infer.rules.items():
        yield from ((("infer", device, "axes"), role) for role in (*own.axes, *own.fixed_axes))
    yield from ((("infer", "raw"), role) for role in sorted(suite.infer.raw))
    yield from ((("whole", "kinds", name), role) for name, role in suite.whole.kinds.items())
    if suite.whole.style == "quantize" or suite.whole.command:
        yield ("whole", "command"), suite.whole.command
    yield from ((("train", "after", str(index), "program"), one.program) for index, one in enumerate(suite.after))


def _check_needed(suite: Suite, seen: Seen) -> None:
    """Refuse a layout without what the engine reads of every file."""
    needed = set(NEEDED_ROLES)
    needed -= {"infer_data"} & suite.roles
    needed |= {"pretrained"} if suite.finetune == "norm" else set()
    needed |= {"infer_export"} if suite.whole.style == "models" else set()
    needed |= {rule.command[0] for rule in suite.trainers if rule.command[0] != "to_static"}
    needed |= {role for rule in suite.infer.rules.values() for role in (*rule.axes, *rule.fixed_axes)}
    for role in sorted(needed - suite.lacks - {rule.role for rule in suite.layout if rule.kind == "slot"}):
        kind = "may be missing" if role in suite.roles else "is missing"
        raise seen.fault(("layout",), f"the role {role!r} {kind}; no chain can do without it")
    if all(rule.kind != "norm" for rule in suite.trainers):
        raise seen.fault(("trainers",), "the trainer 'norm' is missing", expected="norm: {}")


def _check_template(place: Place, template: str, suite: Suite, seen: Seen, roles: frozenset[str]) -> None:
    if "{" not in template:
        return
    try:
        names = list(fields(template))
    except ValueError as error:
        raise seen.fault(place, f"is no template: {error}", found=template) from error
    allowed = STATUS if place[0] == "status" else variables(suite)
    for name in names:
        if not name.startswith(VALUE):
            seen.known(place, "variable", name, allowed)
        elif place[0] == "status":
            raise seen.fault(place, f"the value of a line, {{{name}}}, is not known there")
        else:
            seen.known(place, "role", name.removeprefix(VALUE).removesuffix("]"), roles)


def _check_condition(place: Place, condition: Condition, suite: Suite, seen: Seen, roles: frozenset[str]) -> None:
    what, _, role = condition.name.partition(" ")
    if what in ("fixed", "unfixed"):
        for value in condition.values:
            seen.known(place, "fix", value, FIXES)
    elif role and what in ("key", "value"):
        seen.known(place, "role", role, roles)
    else:
        seen.known(place, "condition", condition.name, variables(suite))
    for value in condition.values if condition.operation == "matches" else ():
        _check_pattern(place, value, seen)


def _check_pattern(place: Place, text: str, seen: Seen) -> None:
    try:
        re.compile(text)
    except re.error as error:
        raise seen.fault(place, f"is no regular expression: {error}", found=text) from error


# Profiles of suites: YAML files, read and checked.
#
# The shipped ones are in ``tipchain/suites``. A user's own is named on the command line (``--suite my.yaml``), stands
# in the checkout as ``test_tipc/tipchain_suite.yaml``, or comes with an installed package: its entry point
# ``NAME = PACKAGE`` in the group ``tipchain.suites`` says that ``NAME.yaml`` lies in the folder of ``PACKAGE``.


SHIPPED = Path(__file__).resolve().parents[1] / "suites"
OWN = Path("test_tipc/tipchain_suite.yaml")
ENTRY_POINTS = "tipchain.suites"
ROLE = re.compile(r"[a-z_]\w*")
OWN_KEYS = ("suite", "title", "recognise", "versions", "drivers", "verified")
"""What a profile does not inherit."""


@cache
def _shipped() -> Mapping[str, Path]:
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yaml"))}


@cache
def _profiles() -> Mapping[str, Path]:
    """Return the files of all suites that have a name: the shipped ones, and those of installed packages."""
    from importlib.metadata import entry_points

    found = dict(_shipped())
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda one: one.name):
        if point.name in found:
            raise _broken(point, f"there is a suite {point.name!r} already: {found[point.name]}")
        # Profile that an entry point names; its package is not imported, for a profile runs no code.
        top, *below = point.value.split(".")
        spec = find_spec(top) if top.isidentifier() else None
        places = [] if spec is None else list(spec.submodule_search_locations or ())
        files = [Path(place, *below, f"{point.name}.yaml") for place in places]
        if not files:
            raise _broken(point, f"there is no package {point.value!r}")
        file = next((one for one in files if one.is_file()), None)
        if file is None:
            raise _broken(point, f"there is no {files[0]}")
        found[point.name] = file
    return found


def _broken(point: EntryPoint, message: str) -> UsageError:
    owner = "an installed package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
    return UsageError(
        f"the suite {point.name!r} of {owner} cannot be used: {message}\n"
        f"  found: the entry point {point.name} = {point.value} in the group {ENTRY_POINTS}\n"
        f"  expected: NAME = PACKAGE, with NAME.yaml in the folder of that package"
    )


def suite_names() -> tuple[str, ...]:
    """Return the names of the suites that are shipped or come with installed packages.

    Raises:
        UsageError: the entry point of an installed package is broken.
    """
    return tuple(_profiles())


def get_suite(name: str, driver: str = "") -> Suite:
    """Return the suite called ``name``: shipped, of an installed package, or a profile file (``*.yaml``, ``*.yml``).

    Args:
        name: its name or file.
        driver: the text of the checkout's driver, which tells the version; "" for the newest.

    Raises:
        UsageError: no such suite (the message names all), or the entry point of an installed package is broken.
        ProfileError: the profile is wrong.
    """
    shipped = _shipped().get(name)
    if shipped is not None:
        return read_profile(shipped, driver)
    if name.endswith((".yaml", ".yml")):
        return read_profile(Path(name), driver)
    installed = _profiles().get(name)
    if installed is None:
        raise UsageError(
            f"unknown suite {name!r}{suggestion(name, suite_names())}\n  suites: {', '.join(suite_names())}"
            "\n  or a profile of your own: a file that ends with .yaml"
        )
    suite = read_profile(installed, driver)
    if suite.name != name:
        raise ProfileError(
            "is called otherwise than its entry point", file=installed, key="suite", found=suite.name, expected=name
        )
    return suite


def all_suites(driver: str = "") -> tuple[Suite, ...]:
    """Return the suites that have a name, each in the version that the text of a driver tells."""
    return tuple(get_suite(name, driver) for name in suite_names())


def read_profile(path: Path, driver: str = "") -> Suite:
    """Read the profile at ``path``, in the version that the text of a driver tells.

    Raises:
        ProfileError: it cannot be read, or something in it is wrong; with file, line and key.
    """
    suite = read_versions(path)
    if not suite.versions:
        return suite
    for index in range(len(suite.versions)) if path.parent != SHIPPED else ():
        read_versions(path, (index,))  # what is wrong in a version counts though the version does not
    words = script_words(driver)
    found = tuple(index for index, one in enumerate(suite.versions) if words and one.is_of(words))
    return read_versions(path, found) if found else suite


@cache
def read_versions(path: Path, versions: tuple[int, ...] = ()) -> Suite:
    """Read the profile at ``path`` with the changes of some of its versions.

    Raises:
        ProfileError: as `read_profile`.
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
def _document(path: Path) -> tuple[LinedYaml, dict[str, Json]]:
    """Return the document at ``path`` and its data, with what it extends merged in."""
    from tipchain.core.yaml_reader import load_yaml

    document = load_yaml(path, ProfileError, "a suite's profile")
    data = dict(document.data)
    base = data.pop("extends", None)
    if base is not None:
        if base not in _shipped():
            raise ProfileError(
                "extends an unknown suite",
                file=path,
                line=document.line(("extends",)),
                key="extends",
                found=base,
                expected=", ".join(_shipped()),
                hint=did_you_mean(str(base), _shipped()),
            )
        if path == SHIPPED / f"{base}.yaml":
            raise ProfileError("extends itself", file=path, line=document.line(("extends",)), key="extends")
        inherited = dict(_document(SHIPPED / f"{base}.yaml")[1])
        for key in OWN_KEYS:
            inherited.pop(key, None)
        data = _merge(inherited, data)
    return document, data


def _changed(path: Path, versions: Sequence[int]) -> tuple[LinedYaml, dict[str, Json]]:
    """Return the document at ``path`` and its data with the changes of some of its versions."""
    document, data = _document(path)
    for index in versions:
        data = _merge(data, data["versions"][index]["changes"])
        place = ("versions", str(index), "changes")
        own = {key[len(place) :]: line for key, line in document.lines.items() if key[: len(place)] == place}
        document = document._replace(lines={**document.lines, **own})
    return document, data


def text_of(value: object) -> str:
    """Return a YAML scalar as it would stand in a parameter file."""
    return "null" if value is None else str(value)


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


@cache
def _hints(kind: type) -> Mapping[str, Json]:
    return get_type_hints(kind, include_extras=True)


class _Profile:
    """One profile file on its way to a Suite."""

    def __init__(self, path: Path, versions: Sequence[int]) -> None:
        from tipchain.core.yaml_reader import Reader

        document, data = _changed(path, versions)
        self.applied = versions
        self.path = path
        self.reader = Reader(path, document, (), data)
        self.layout: tuple[SlotRule, ...] = ()
        self.seen = Seen(path, document)

    def suite(self) -> Suite:
        reader = self.reader
        self.layout = self.checked_layout(parse_layout(reader.text("layout")))
        train, infer, own = reader.mapping("train"), reader.mapping("infer"), reader.mapping("vars", optional=True)
        before, after = (
            [self.nested(train, key, *one) for one in enumerate(train.items(key, default=[]))]
            for key in ("before", "after")
        )
        versions = tuple(self.version(index, one) for index, one in enumerate(reader.items("versions", default=[])))
        suite = self.read(
            Suite,
            reader,
            name=reader.text("suite"),
            file=str(self.path),
            marks=self.read(Marks, reader.mapping("recognise", optional=True)),
            layout=self.layout,
            reads=reader.value("reads", int, "a number of lines", default=None),
            rest=reader.choice("values", ("cut", "rest"), default="cut") == "rest",
            pipes=reader.choice("pipes", ("blanks", "refuse"), default="blanks") == "blanks",
            trainers=self.trainers(),
            vars={name: self.choices(own, name) for name in own.data},
            train=self.read(Step, train),
            before=tuple(self.read(Before, one) for one in before),
            after=tuple(self.read(After, one) for one in after),
            infer=self.read(Infer, infer, rules={device: self.infer_rule(infer, device) for device in ("cpu", "gpu")}),
            versions=versions,
            version=tuple(versions[index].title for index in self.applied),
            drivers=frozenset(reader.text("drivers", default="").split()),
            verified=tuple(self.verified(index, one) for index, one in enumerate(reader.items("verified", default=[]))),
        )
        check_profile(suite, self.seen)
        return suite

    def read(self, kind: type[_Part], reader: Reader, **given: object) -> _Part:
        """Return a part of the profile, each key as the type of its field says; ``given`` are fields that are read otherwise."""
        make: Json = kind
        for name, hint in _hints(make).items():
            if name not in given:
                defaults = make._field_defaults
                given[name] = self.value(reader, name, hint, {"default": defaults[name]} if name in defaults else {})
        reader.done()
        found: _Part = make(**given)
        return found

    def value(self, reader: Reader, key: str, hint: Json, default: Mapping[str, Json]) -> object:
        """Return the value of a key by its type."""
        plain: Mapping[Json, Json] = {bool: reader.flag, int: reader.integer, str: reader.text}
        origin: Json = get_origin(hint)
        inner = get_args(hint)[:1]
        found: object
        if hint in plain:
            found = plain[hint](key, **default)
        elif hint is Template:
            found = self.template(reader, key, **default)
        elif origin is Literal:
            found = reader.choice(key, get_args(hint), **default)
        elif origin is None:
            found = self.read(hint, reader.mapping(key))
        elif origin is Mapping:
            found = {name: text_of(role) for name, role in reader.args(key).items()}
        elif inner in ((str,), (Template,)):
            found = origin(self.texts(reader, key, templates=inner == (Template,)))
        elif inner == (Step,):
            found = tuple(self.read(Step, self.nested(reader, key, *one)) for one in enumerate(reader.items(key)))
        elif inner == (ArgumentItem,):
            found = self.arguments(reader, key) if not default or key in reader.data else ()
        else:
            found = (self.choices if inner == (Choice,) else self.conditions)(reader, key)
        return found

    def version(self, index: int, entry: object) -> Version:
        own = self.nested(self.reader, "versions", index, entry)
        for key in own.mapping("changes").data:
            if key in OWN_KEYS:
                raise own.error(("changes", key), "is of the whole profile, and no version's")
        found = self.read(Version, own)
        if not found.has:
            raise own.error("has", "names no text of the driver", expected="a text or a list of texts")
        return found

    def verified(self, index: int, entry: object) -> Verified:
        own = self.nested(self.reader, "verified", index, entry)
        return self.read(Verified, own, date=own.value("date", date, "a day, as 2026-11-22").isoformat())

    def nested(self, reader: Reader, key: str, index: int, data: object) -> Reader:
        from tipchain.core.yaml_reader import Reader as _Reader

        if not isinstance(data, dict):
            raise reader.error(key, "has an entry that is no mapping", found=repr(data))
        return _Reader(self.path, self.reader.document, (*reader.path, key, str(index)), data)

    def texts(self, reader: Reader, key: str, *, templates: bool = False) -> tuple[str, ...]:
        found = reader.value(key, (list, str), "a text or a list of texts", default=[])
        texts = (found,) if isinstance(found, str) else tuple(text_of(one) for one in found)
        if templates:
            self.seen.templates += [((*reader.path, key), text) for text in texts]
        return texts

    def template(self, reader: Reader, key: str, **default: Json) -> Json:
        """Return a text that is a template."""
        found = reader.text(key, **default)
        if found is not None:
            self.seen.templates.append(((*reader.path, key), found))
        return found

    def checked_layout(self, layout: tuple[SlotRule, ...]) -> tuple[SlotRule, ...]:
        """Return the layout.

        Raises:
            ProfileError: it does not begin with a section, or a role is no name or stands twice.
        """
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
        for kind in list(reader.data):
            if reader.data[kind] is None:
                continue  # taken away from what is extended
            own = reader.mapping(kind)
            rule = TrainerRule(
                kind=kind,
                key=own.text("key", default=f"train_{kind}"),
                command=self.texts(own, "command") or (f"train_{kind}",),
                export=own.text("export", default=f"export_{kind}"),
            )
            own.done()
            rules.append(rule)
        return tuple(rules)

    def choices(self, reader: Reader, key: str) -> tuple[Choice, ...]:
        """Return a template, or a list of templates with conditions."""
        found = reader.value(key, (str, dict, list), "a template, or a list of them", default="")
        if found == "":
            return ()
        if isinstance(found, str):
            return (Choice(value=self.template(reader, key)),)
        entries = found if isinstance(found, list) else [found]
        return tuple(self.choice(reader, key, index, one) for index, one in enumerate(entries))

    def choice(self, reader: Reader, key: str, index: int, entry: object) -> Choice:
        if isinstance(entry, str):
            self.seen.templates.append(((*reader.path, key, str(index)), entry))
            return Choice(value=entry)
        own = self.nested(reader, key, index, entry)
        choice = Choice(value=self.template(own, "value"), when=self.conditions(own, "when"))
        own.done()
        return choice

    def infer_rule(self, reader: Reader, device: str) -> InferRule:
        own = reader.mapping(device)
        axes = self.texts(own, "axes")
        skip = tuple(self.tests(own, "skip", one) for one in own.items("skip", default=[]))
        return self.read(InferRule, own, axes=axes, fixed_axes=self.texts(own, "fixed_axes") or axes, skip=skip)

    # Items and conditions

    def arguments(self, reader: Reader, key: str) -> tuple[ArgumentItem, ...]:
        return tuple(
            item for index, one in enumerate(reader.items(key)) for item in self.items(reader, key, index, one)
        )

    def items(self, reader: Reader, key: str, index: int, entry: object) -> Sequence[ArgumentItem]:
        if isinstance(entry, str):
            return [self.plain((*reader.path, key, str(index)), entry)]
        own = self.nested(reader, key, index, entry)
        when = self.conditions(own, "when")
        if "add" in own.data:
            plain = self.plain((*own.path, "add"), own.text("add"))
            items = [ArgumentItem(role=plain.role, text=plain.text, when=when)]
        elif "key" in own.data:
            items = [ArgumentItem(key=self.role(own, "key"), when=when)]
        else:
            items = [
                ArgumentItem(
                    flag=self.role(own, "flag"),
                    value=self.template(own, "value", default=None),
                    keyed_by=own.choice("keyed_by", ("key", "value"), default="key"),
                    join=own.text("join", default="="),
                    raw=own.flag("raw", False),
                    when=when,
                )
            ]
        own.done()
        return items

    def plain(self, place: Place, text: str) -> ArgumentItem:
        """Return an item that is a role, or words with variables."""
        if ROLE.fullmatch(text):
            self.seen.named.append((place, text))
            return ArgumentItem(role=text)
        try:
            shlex.split(text)
        except ValueError as error:
            raise self.seen.fault(place, f"cannot be split into words: {str(error).lower()}", found=text) from error
        self.seen.templates.append((place, text))
        return ArgumentItem(text=text)

    def role(self, reader: Reader, key: str) -> str:
        found: str = reader.text(key)
        known = [rule.role for rule in self.layout if rule.role]
        if found not in known:
            raise reader.error(
                key, "is no role of the layout", found=found, expected=", ".join(known), hint=did_you_mean(found, known)
            )
        return found

    def conditions(self, reader: Reader, key: str) -> tuple[Condition, ...]:
        found = reader.value(key, dict, "a mapping of conditions", default={})
        return self.tests(reader, key, found)

    def tests(self, reader: Reader, key: str, data: object) -> tuple[Condition, ...]:
        if not isinstance(data, dict):
            raise reader.error(key, "has an entry that is no mapping of conditions", found=repr(data))
        conditions = []
        for name, value in data.items():
            words = text_of(name).split()
            operation = words.pop() if words and words[-1] in OPERATIONS else "is"
            values = value if isinstance(value, list) else [value]
            texts = tuple(text_of(one) for one in values)
            conditions.append(Condition(name=" ".join(words), operation=operation, values=texts))
            self.seen.tested.append(((*reader.path, key, str(name)), conditions[-1]))
        return tuple(conditions)
