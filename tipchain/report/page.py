"""One HTML page that needs no other file: its frame, tables, curves, and text that cannot become markup."""

from __future__ import annotations

import ast
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib.resources import files
from math import ceil, floor, inf, isfinite, isnan, log10

from tipchain.core.language import clean, language, many, say
from tipchain.errors import Outcome
from tipchain.explain.findings import PIECES, Diagnosis, SourceLine

Part = str | Iterable[str | Iterable[str] | None] | None
"""What goes into an element: see `markup`."""
VOID = {"br", "meta", "link", "input", "hr"}
VERBATIM = {"code", "pre", "dd"}
"""What holds code, paths and values, in no language."""
SAID = {"aria-label", "placeholder", "title"}
"""Attributes that people read."""


class Markup(str):
    """HTML that needs no escaping."""

    __slots__ = ()


def markup(*parts: Part) -> Markup:
    """Return parts one after the other: `Markup` as it is, None left out, any other text escaped, without control characters."""
    found: list[str] = []
    for part in parts:
        if isinstance(part, Markup):
            found.append(part)
        elif isinstance(part, str):
            found.append(literal(say(part)))
        elif part is not None:
            found.append(markup(*part))
    return Markup("".join(found))


def literal(text: str) -> Markup:
    """Return a text that is in no language, as a name that users gave, escaped and without control characters."""
    return Markup(escape(clean(text).encode(errors="backslashreplace").decode()))


def _as_it_is(parts: Iterable[Part]) -> Iterator[Part]:
    for part in parts:
        if isinstance(part, Markup) or part is None:
            yield part
        elif isinstance(part, str):
            yield literal(part)
        else:
            yield from _as_it_is(part)


def element(name: str, /, *parts: Part, **attributes: object) -> Markup:
    """Return an element.

    Args:
        name: of the element.
        parts: what is inside, as for `markup`.
        attributes: ``_`` becomes ``-``, one at the end goes; None and False leave the attribute out, True leaves its
            value out.
    """
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VERBATIM:
        parts = tuple(_as_it_is(parts))
    return Markup(f"<{name}{given}>" if name in VOID else f"<{name}{given}>{markup(*parts)}</{name}>")


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{markup(str(value)) if name in SAID else literal(str(value))}"'


def prose(text: str) -> Markup:
    """Return a sentence, what stands between backticks as code."""
    text = say(text)
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick that nothing ends
        return literal(text)
    return markup(element("code", part) if place % 2 else literal(part) for place, part in enumerate(parts))


def path(text: str) -> Markup:
    """Return a layer's path, which may be broken after a dot; the model itself has none, and words for it."""
    first, *rest = (say(text) if " " in text else text).split(".")
    return markup(literal(first), (Markup(f".<wbr>{literal(part)}") for part in rest))


def table(heads: Iterable[str], rows: Iterable[Iterable[str]], **attributes: object) -> Markup:
    """Return a table whose rows begin with a heading of their own; it scrolls where it is too wide."""
    head = element("tr", [element("th", one, scope="col") for one in heads])
    body = [
        element(
            "tr",
            [element("td" if place else "th", cell, scope=None if place else "row") for place, cell in enumerate(row)],
        )
        for row in rows
    ]
    inside = element("table", element("thead", head), element("tbody", body), **attributes)
    return element("div", inside, class_="wide")


def number(value: float | None) -> str:
    """Return an error as text; one that is not finite has no size that could be told."""
    if value is None:
        return "\u2013"
    if not isfinite(value):
        return "undefined"
    return "0" if not value else f"{value:.1e}"


def exactly(value: float) -> str:
    """Return a value as text, with as many digits as tell losses apart."""
    if isnan(value):
        return "NaN"
    if value in (inf, -inf):
        return "∞" if value > 0 else "-∞"
    return f"{value:.9g}"


def page(title: str, body: Iterable[Markup], *, style: str, script: str) -> str:
    """Return a page as HTML.

    It forbids itself, by its Content-Security-Policy (https://www.w3.org/TR/CSP3/), to load anything or to run any
    script but its own.
    """
    digest = b64encode(sha256(script.encode()).digest()).decode()
    rules = (
        "default-src 'none'",
        "img-src data:",
        "style-src 'unsafe-inline'",
        f"script-src 'sha256-{digest}'",
        "base-uri 'none'",
        "form-action 'none'",
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content="; ".join(rules)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", Markup(style)),
    )
    inside = element("body", element("main", markup(body)), element("script", Markup(script)))
    return f"<!DOCTYPE html>\n{element('html', head, inside, lang='zh-CN' if language() == 'zh' else 'en')}\n"


def asset(name: str, package: str = "tipchain.report") -> str:
    """Return the text of a style or script that lies beside a package's modules; all pages share those of this one."""
    return (files(package) / name).read_text(encoding="utf-8")


Section = tuple[str, str, Markup]
"""A part of a page: its name in addresses, its title, what is inside."""


def banner(tone: str, word: str, words: str, *inside: Markup | None) -> Markup:
    """Return the head of a page: the verdict, and below it where, why and what to change.

    Args:
        tone: ``pass``, ``fail``, or ``unknown`` where nothing is known to be wrong, nor to be right.
        word: of the verdict.
        words: what goes with it.
        inside: what stands below.
    """
    title = element("h1", element("strong", word), " ", prose(words))
    return element("header", title, *inside, class_=f"verdict {tone}", id="verdict")


def facts_line(facts: Mapping[str, str]) -> Markup:
    """Return what ran, when and at which commit, on one line; what is not known is left out."""
    told = [markup(f"{name} ", element("code", path(value))) for name, value in facts.items() if value]
    return element("p", [markup(" · " if at else "", one) for at, one in enumerate(told)], class_="note")


def sections(found: Iterable[Section]) -> list[Markup]:
    """Return the parts of a page, links to them first."""
    parts = list(found)
    links = [element("li", element("a", title, href=f"#{name}")) for name, title, _ in parts]
    return [
        element("nav", element("ul", links), aria_label="sections"),
        *(
            element(
                "section", element("h2", title, id=f"{name}-title"), inside, id=name, aria_labelledby=f"{name}-title"
            )
            for name, title, inside in parts
        ),
    ]


def outcome(ended: Outcome) -> Markup:
    """Return how something ended."""
    return element("span", ended.value, class_=f"outcome {ended.value.lower()}")


def notes(told: Iterable[str]) -> Markup:
    """Return notes as a list, such as what was left out."""
    return element("ul", [element("li", prose(one)) for one in told], class_="notes")


def fix(text: str, *, copied: bool = True) -> Markup:
    """Return what to change; the code in it, else all of it, can be copied."""
    parts = text.split("`")
    code = parts[1] if len(parts) % 2 and len(parts) > 1 else text
    return element(
        "p",
        element("b", "Fix: "),
        element("span", prose(text)),
        " ",
        _copy(code, f"copy {code}") if copied else None,
        class_="fix",
    )


def _copy(text: str, label: str) -> Markup:
    return element(
        "button",
        "copy",
        type="button",
        data_copy=text,
        data_done=say("copied"),
        data_failed=say("could not copy"),
        aria_label=label,
        hidden=True,
    )


def origin(command: str, facts: Mapping[str, str]) -> Markup:
    """Return the command that repeats a run, and its versions, machine and commit."""
    call = (
        [element("pre", element("code", command), tabindex="0"), element("p", _copy(command, "copy the command"))]
        if command
        else []
    )
    listed = [element("div", element("dt", name), " ", element("dd", value)) for name, value in facts.items()]
    return markup(call, element("dl", listed, class_="versions") if listed else None)


APPLIED = re.compile(
    r"apply `(?:F\.)?(?P<function>relu|gelu|silu|swish|sigmoid|tanh|softplus|hardswish|hardsigmoid|relu6|mish|elu|selu)` "
    r"(?:to what `(?P<before>\w+)` is given|after `(?P<after>\w+)`)"
)
"""A function of ``nn.functional`` that takes one tensor, and the call that it belongs in front of or after."""
WRITTEN = re.compile(r"write (?P<wanted>`[^`]+`|\[[^\]]+\]) for (?P<written>`[^`]+`|\[[^\]]+\])")
"""A name, a call or an index, and what stands in its place now."""
ORDERED = re.compile(r"give `(?P<function>\w+)` at \S+ its tensors in the order \[(?P<order>[\d, ]+)\]")
SETTING = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>\S.*)")
POSITIONS = {
    r"Conv\dD": "in_channels out_channels kernel_size stride padding dilation groups".split(),
    r"Conv\dDTranspose": "in_channels out_channels kernel_size stride padding output_padding".split(),
    r"(Max|Avg)Pool\dD": "kernel_size stride padding".split(),
    r"(max|avg)_pool\dd": "x kernel_size stride padding".split(),
    r"BatchNorm\dD|SyncBatchNorm": "num_features momentum epsilon".split(),
    r"InstanceNorm\dD": "num_features epsilon momentum".split(),
    r"GroupNorm": "num_groups num_channels epsilon".split(),
    r"LayerNorm": "normalized_shape epsilon".split(),
    r"Linear": "in_features out_features".split(),
    r"Embedding": "num_embeddings embedding_dim padding_idx".split(),
    r"LSTM|GRU|SimpleRNN": "input_size hidden_size num_layers direction time_major dropout".split(),
    r"(Alpha)?Dropout(\dD)?": "p".split(),
    r"dropout([23]d)?": "x p".split(),
    r"LeakyReLU": "negative_slope".split(),
    r"leaky_relu": "x negative_slope".split(),
    r"C?ELU": "alpha".split(),
    r"c?elu": "x alpha".split(),
    r"GELU": "approximate".split(),
    r"gelu": "x approximate".split(),
    r"(Log)?Softmax": "axis".split(),
    r"(log_)?softmax": "x axis".split(),
    r"Softplus": "beta threshold".split(),
    r"softplus": "x beta threshold".split(),
    r"Hardtanh": "min max".split(),
    r"hardtanh": "x min max".split(),
    r"hardsigmoid": "x slope offset".split(),
    r"Momentum": "learning_rate momentum".split(),
    r"AdamW?|Adamax": "learning_rate beta1 beta2 epsilon".split(),
    r"RMSProp": "learning_rate rho epsilon momentum".split(),
    r"StepDecay": "learning_rate step_size gamma".split(),
    r"MultiStepDecay": "learning_rate milestones gamma".split(),
    r"ExponentialDecay": "learning_rate gamma".split(),
    r"CosineAnnealingDecay": "learning_rate T_max eta_min".split(),
    r"CrossEntropyLoss": "weight ignore_index reduction soft_label axis".split(),
    r"SmoothL1Loss": "reduction delta".split(),
}
"""Paddle's first parameters in their order, by the callable's name: which of them a call gives without their names."""


def causes(diagnoses: Sequence[Diagnosis]) -> Markup:
    """Return the causes, the likeliest first."""
    return element("ol", [element("li", _cause(one)) for one in diagnoses], class_="causes")


def short_cause(one: Diagnosis, told: str = "") -> Markup:
    """Return the sentence of a cause, unless what was told already has it, and what to change."""
    return markup(
        element("p", element("b", "Cause: "), prose(one.message)) if one.message not in told else None,
        fix(without_line(one), copied=one.is_known) if one.fix else None,
        _lines(one),
    )


def _cause(one: Diagnosis) -> Markup:
    place = one.port_path if one.port_path in PIECES else element("code", path(one.port_path or "the model"))
    others = one.layers[1:]
    beside = f", and {many(len(others), 'other layer')}" if others else None
    head = element("h3", element("code", one.code, class_="slug"), " in ", place, beside)
    return markup(
        head,
        element("p", prose(one.message)),
        None if not one.is_known else _explained(one.explained),
        element("p", prose(one.evidence), class_="evidence") if one.evidence else None,
        fix(without_line(one), copied=one.is_known) if one.fix else None,
        _lines(one),
        _folded(many(len(others), "other layer"), others),
        _folded(f"{many(len(one.explains), 'check')} failed because of it", one.explains),
    )


def _folded(title: str, names: Sequence[str]) -> Markup | None:
    if not names:
        return None
    listed = element("ul", [element("li", element("code", path(one))) for one in names])
    return element("details", element("summary", title), listed, class_="more")


def _explained(share: float | None) -> Markup:
    if share is None:
        return element("p", "rests on a difference of construction; nothing was run", class_="note")
    shown = min(max(share, 0.0), 1.0)
    bar = element("span", element("span", style=f"width:{shown:.2%}"), class_="share", aria_hidden="true")
    return element("p", bar, f" explains {_percent(shown)} of the error", class_="explained")


def _percent(share: float) -> str:
    """Return a share, as 100 % only where nothing is left."""
    return "100 %" if share == 1 else "more than 99.99 %" if share > 0.9999 else f"{100 * share:.4g} %"


def without_line(one: Diagnosis) -> str:
    """Return what to change without the line of code that it ends with: that stands below."""
    code = one.place.code.strip() if one.place else ""
    return one.fix.removesuffix(f": `{code}`") if code else one.fix


def _lines(one: Diagnosis) -> Markup | None:
    """Return the port's line as it is and as it should be, and the reference's."""
    port, reference = one.place, one.reference_place
    wanted = corrected_line(one.fix, port.code) if port else None
    rows = [_line("port", port, element("del", port.code.strip()) if wanted else port.code.strip())] if port else []
    rows += [_line("", None, element("ins", wanted.strip()))] if wanted else []
    rows += [_line("reference", reference, reference.code.strip())] if reference else []
    return element("dl", rows, class_="lines") if rows else None


def _line(side: str, place: SourceLine | None, code: str) -> Markup:
    title = element("dt", side, " ", element("code", str(place))) if place else element("dt", "as it should be")
    return element("div", title, element("dd", element("code", code)) if code else None)


def corrected_line(fix: str, code: str) -> str | None:
    """Return a line of the port as it should be; None where what to change does not say it, or several calls could be meant.

    ``fix`` is what a `Diagnosis` says: to pass a setting, to write one text or index for another, to remove or to add
    a call, to give a call its tensors in another order.
    """
    quoted = fix.split("`")[1::2]
    settings = [found for one in quoted if (found := SETTING.fullmatch(one))]
    if fix.startswith("pass ") and settings:
        rest = quoted[len(settings) :]
        return _with_settings(code, settings, rest[0] if rest else "")
    if found := WRITTEN.match(fix):
        wanted, written = found["wanted"].strip("`"), found["written"].strip("`")
        whole = wanted.endswith(")") <= written.endswith(
            ")"
        )  # else a call with settings, for a name whose call goes on
        begins = "" if written.startswith("[") else r"(?<!\w)(?<!self\.)"
        places = re.findall(rf"{begins}{re.escape(written)}(?!\w)", code)
        return code.replace(written, wanted) if whole and len(places) == code.count(written) == 1 else None
    if found := ORDERED.match(fix):
        # Line in which a call's list of tensors stands in another order, by their places now.
        name = found["function"]
        order = [int(one) for one in found["order"].split(",")]
        lists = [one.args[0] for one in _calls(code) if _name(one) == name and one.args]
        if len(lists) != 1 or not isinstance(lists[0], ast.List | ast.Tuple) or len(lists[0].elts) != len(order):
            return None
        text, parts = code.encode(), [(one.col_offset, one.end_col_offset or 0) for one in lists[0].elts]
        words = [text[start:end].decode() for start, end in parts]
        return _edited(text, [(*place, words[number]) for place, number in zip(parts, order, strict=True)])
    if fix.startswith("remove ") and quoted:
        return _without_call(code, quoted[0])
    if found := APPLIED.match(fix):
        return _with_call(code, found["function"], found["before"] or found["after"], first=bool(found["before"]))
    return None


def _with_settings(code: str, settings: Sequence[re.Match[str]], called: str) -> str | None:
    """Return a line whose one call that is meant is given keyword arguments."""
    calls = _calls(code)
    names = {one["name"] for one in settings}
    meant = [one for one in calls if _name(one) == called]
    meant = meant or [one for one in calls if names <= {each.arg for each in one.keywords}]
    meant = meant or [one for one in calls if _name(one)[:1].isupper()]  # it makes a layer
    if len(meant) != 1 or any(each.arg is None for each in meant[0].keywords):
        return None
    call, text = meant[0], code.encode()
    order = next((each for name, each in POSITIONS.items() if re.fullmatch(name, _name(call))), [])
    if any(isinstance(each, ast.Starred) for each in call.args):
        return None
    values = dict(zip(order, call.args, strict=False)) | {str(each.arg): each.value for each in call.keywords}
    edits = []
    for one in settings:
        given = values.get(one["name"])
        if given is not None:
            edits.append((given.col_offset, given.end_col_offset or 0, one["value"]))
        else:
            end = (call.end_col_offset or 0) - 1
            before = text[:end].rstrip()
            first = before.endswith(b"(") and not any(edit[0] == end for edit in edits)
            comma = "" if first else " " if before.endswith(b",") else ", "
            edits.append((end, end, f"{comma}{one['name']}={one['value']}"))
    return _edited(text, edits)


def _without_call(code: str, name: str) -> str | None:
    """Return a line in which a call's one argument stands for the call."""
    meant = [one for one in _calls(code) if _name(one) == name]
    if len(meant) != 1 or len(meant[0].args) != 1 or meant[0].keywords:
        return None
    call, inside, text = meant[0], meant[0].args[0], code.encode()
    kept = text[inside.col_offset : inside.end_col_offset].decode()
    return _edited(text, [(call.col_offset, call.end_col_offset or 0, kept)])


def _with_call(code: str, function: str, name: str, *, first: bool) -> str | None:
    """Return a line in which a function is applied to a call's one argument (``first``), or to what the call gives."""
    meant = [one for one in _calls(code) if _name(one) == name]
    if len(meant) != 1 or (first and (len(meant[0].args) != 1 or isinstance(meant[0].args[0], ast.Starred))):
        return None
    inside, text = meant[0].args[0] if first else meant[0], code.encode()
    start, end = inside.col_offset, inside.end_col_offset or 0
    return _edited(text, [(start, end, f"F.{function}({text[start:end].decode()})")])


def _edited(text: bytes, edits: Sequence[tuple[int, int, str]]) -> str:
    """Return a line with what is from one byte to another replaced; what is put at one place keeps its order."""
    last_first = list(edits[::-1])
    last_first.sort(key=lambda one: one[0], reverse=True)
    for start, end, words in last_first:
        text = text[:start] + words.encode() + text[end:]
    return text.decode()


def _calls(code: str) -> list[ast.Call]:
    """Return the calls of one line that is whole by itself; none of another."""
    for ending in ("", " pass"):
        indent = len(code) - len(code.lstrip())
        try:
            # In a block of its own, so that places are those of the line with its indent.
            tree = ast.parse(f"if 1:\n{code}{ending}" if indent else code + ending)
        except (SyntaxError, ValueError):
            continue
        return [one for one in ast.walk(tree) if isinstance(one, ast.Call)]
    return []


def _name(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


# Curves and grids as SVG.


SPAN, HEIGHT = 1000, 250
"""Of what is stretched: units from side to side, and pixels from top to bottom."""
TOP, BOTTOM = 36, 44
TICKS = 6
LANE = 16
"""Height of the lane below a logarithmic axis, for zeros; and above it, for what is not finite."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to places, and says which values have a mark.

    Attributes:
        low: the value at ``start``; its logarithm to base 10 on a logarithmic scale.
        high: that at ``end``.
        start: a place in the SVG's units.
        end: another.
        log: whether the scale is logarithmic.
        lane: how far beyond the ends zeros and what is not finite stand, on a logarithmic scale.
        whole: only whole numbers have a mark.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    lane: float = 0
    whole: bool = False

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        direction = 1.0 if self.end > self.start else -1
        if not isfinite(value):
            return self.end + direction * self.lane
        if self.log and value <= 0:
            return self.start - direction * self.lane
        given = log10(value) if self.log else value
        share = (given - self.low) / ((self.high - self.low) or 1)
        return self.start + (self.end - self.start) * share

    def ticks(self) -> list[tuple[float, str]]:
        """Return the values that have a mark, with their text."""
        if self.log:
            step = max(1, ceil((self.high - self.low) / TICKS))
            return [(10.0**power, f"1e{power}") for power in range(ceil(self.low), floor(self.high) + 1, step)]
        apart = max(nice_step((self.high - self.low) / TICKS), 1.0 if self.whole else 0.0)
        places = range(ceil(self.low / apart - 1e-9), floor(self.high / apart + 1e-9) + 1)
        return [(place * apart, _short(place * apart, apart)) for place in places]


def nice_step(wanted: float) -> float:
    """Return 1, 2 or 5 times a power of ten, the smallest that is no less than ``wanted``."""
    if not wanted > 0:
        return 1.0
    power = 10.0 ** floor(log10(wanted))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= wanted * (1 - 1e-9))


def _short(value: float, step: float) -> str:
    if not value or 1e-4 <= abs(value) < 1e6:
        return f"{value:.{max(0, -floor(log10(step) + 1e-9))}f}" if step < 1 else f"{value:g}"
    return f"{value:.2g}" if step > abs(value) / 50 else f"{value:.4g}"


def linear(values: Iterable[float]) -> tuple[float, float]:
    """Return the ends of a linear scale that shows all finite values, with some room; 0 and 1 without any."""
    finite = [one for one in values if isfinite(one)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return low - room, high + room


def decades(values: Iterable[float]) -> tuple[float, float]:
    """Return the powers of ten between which all positive finite values are, two at least apart."""
    logs = [log10(one) for one in values if 0 < one < inf]
    if not logs:
        return -8.0, 0.0
    low, high = floor(min(logs) - 0.05), ceil(max(logs) + 0.05)
    return (low, high) if high - low >= 2 else (low - 1, high)


class Chart:
    """Collects what a chart shows, and returns it as one SVG.

    Args:
        title: what the chart is called where it is not seen.
        x: the ends of its horizontal scale, on which whole numbers have marks.
        y: the ends of its vertical one, powers of ten where ``log``.
        names: of the two axes.
        log: whether the vertical scale is logarithmic.
        lanes: whether a logarithmic scale has room for zeros, and for what is not finite.
        counts: the vertical scale has whole numbers only.
    """

    def __init__(
        self,
        title: str,
        x: tuple[float, float],
        y: tuple[float, float],
        names: tuple[str, str],
        *,
        log: bool = False,
        lanes: tuple[bool, bool] = (False, False),
        counts: bool = False,
    ) -> None:
        below, above = (LANE * one for one in lanes)
        self.title, self.names = title, names
        self.x = Scale(*x, 0, SPAN, whole=True)
        self.y = Scale(*y, HEIGHT - BOTTOM - below, TOP + above, log=log, lane=LANE, whole=counts)
        self._parts: list[Markup] = []
        self._labels: list[Markup] = []
        self._lanes = lanes

    def line(self, xs: Sequence[float], ys: Sequence[float], kind: str, *, stairs: bool = False) -> None:
        """Draw a line; it is broken where a value is not finite, if there is no room for that. One point alone is a dot.

        With ``stairs`` a value holds until the next.
        """
        steps: list[str] = []
        pen = "M"
        for x, y in zip(xs, ys, strict=True):
            if not isfinite(y) and not self._lanes[1]:
                pen = "M"
                continue
            steps.append(
                f"H{self.x(x):.1f}V{self.y(y):.1f}"
                if stairs and pen == "L"
                else f"{pen}{self.x(x):.1f} {self.y(y):.1f}"
            )
            pen = "L"
        if len(steps) == 1:
            self.dots(xs, ys, kind)
        elif steps:
            self._parts.append(element("path", d="".join(steps), class_=f"line {kind}"))

    def band(self, xs: Sequence[float], low: Sequence[float], high: Sequence[float], kind: str) -> None:
        """Fill what is between two lines."""
        given = [one for one in zip(xs, low, high, strict=True) if all(map(isfinite, one))]
        there = [f"{self.x(x):.1f} {self.y(top):.1f}" for x, _, top in given]
        back = [f"{self.x(x):.1f} {self.y(bottom):.1f}" for x, bottom, _ in reversed(given)]
        if len(given) > 1:
            self._parts.append(element("path", d=f"M{'L'.join([*there, *back])}Z", class_=f"band {kind}"))

    def dots(self, xs: Iterable[float], ys: Iterable[float], kind: str) -> None:
        """Draw dots, all in one path."""
        places = [
            f"M{self.x(x):.1f} {self.y(y):.1f}h0" for x, y in zip(xs, ys, strict=True)
        ]  # a line of no length with round ends
        if places:
            self._parts.append(element("path", d="".join(places), class_=f"dots {kind}"))

    def bars(self, edges: Sequence[float], heights: Sequence[float], kind: str) -> None:
        """Draw bars from the axis upwards, one between each two edges."""
        floor_ = self.y.start
        for left, right, height in zip(edges, edges[1:], heights, strict=False):
            if height > 0:
                width, top = self.x(right) - self.x(left), self.y(height)
                self._parts.append(
                    element(
                        "rect",
                        x=f"{self.x(left) + 0.5:.1f}",
                        width=f"{max(width - 1, 1):.1f}",
                        y=f"{top:.1f}",
                        height=f"{max(floor_ - top, 1):.1f}",
                        class_=f"column {kind}",
                    )
                )

    def mark(self, x: float, words: str, kind: str) -> None:
        """Draw a vertical line with a label beside its upper end."""
        place = self.x(x)
        right = place > SPAN / 2
        self._parts.append(element("path", d=f"M{place:.1f} {TOP}V{HEIGHT - BOTTOM}", class_=f"mark {kind}"))
        self._labels.append(
            element(
                "text",
                words,
                x=_style_percent(place),
                y=TOP - 6,
                dx=-5 if right else 5,
                text_anchor="end" if right else "start",
                class_=kind,
            )
        )

    def level(self, y: float, kind: str) -> None:
        """Draw a horizontal line."""
        self._parts.append(element("path", d=f"M0 {self.y(y):.1f}H{SPAN}", class_=f"line {kind}"))

    def svg(self, tell_x: Callable[[float], str] | None = None) -> Markup:
        """Return the chart; ``tell_x`` gives the text of a horizontal mark."""
        stretched = element(
            "svg",
            *self._lines(),
            *self._parts,
            viewBox=f"0 0 {SPAN} {HEIGHT}",
            preserveAspectRatio="none",
            class_="stretched",
            aria_hidden="true",
        )
        names = [
            element("text", self.names[0], x="50%", y=HEIGHT - 6, text_anchor="middle", class_="title"),
            element("text", self.names[1], x=-58, y=14, class_="title"),
        ]
        picture = element(
            "svg",
            stretched,
            *self._marks(tell_x),
            *self._labels,
            *names,
            height=HEIGHT,
            class_="chart",
            role="img",
            aria_label=self.title,
        )
        return element("div", picture, class_="plot")

    def _rows(self) -> list[tuple[float, str]]:
        """Return the marks of the vertical axis: places, and their text."""
        lanes = zip((0, inf), ("0", "undefined"), self._lanes, strict=True)
        return [
            *((self.y(value), words) for value, words in self.y.ticks()),
            *((self.y(value), words) for value, words, lane in lanes if lane),
        ]

    def _lines(self) -> list[Markup]:
        base = HEIGHT - BOTTOM
        return [
            *(element("path", d=f"M0 {place:.1f}H{SPAN}", class_="grid") for place, _ in self._rows()),
            element("path", d=f"M0 {base}H{SPAN}", class_="axis"),
            *(element("path", d=f"M{self.x(value):.1f} {base}v4", class_="axis") for value, _ in self.x.ticks()),
        ]

    def _marks(self, tell: Callable[[float], str] | None) -> list[Markup]:
        return [
            *(element("text", words, x=-7, y=f"{place + 4:.1f}", text_anchor="end") for place, words in self._rows()),
            *(
                element(
                    "text",
                    tell(value) if tell else words,
                    x=_style_percent(self.x(value)),
                    y=HEIGHT - BOTTOM + 17,
                    text_anchor="middle",
                )
                for value, words in self.x.ticks()
            ),
        ]


def _style_percent(place: float) -> str:
    return f"{100 * place / SPAN:.2f}%"


def figure(words: str | Markup, chart: Markup, keys: Iterable[tuple[str, str]], *more: Markup) -> Markup:
    """Return a chart with its caption and its legend: pairs of a kind and its name."""
    legend = [
        element("li", element("span", class_=f"key {kind}", aria_hidden="true"), " ", name) for kind, name in keys
    ]
    caption = element("figcaption", words, element("ul", legend, class_="legend") if legend else None)
    return element("figure", caption, chart, more)


def lanes(values: Iterable[float]) -> tuple[bool, bool]:
    """Return whether there are zeros, and whether there is what is not finite."""
    given = list(values)
    return any(not one for one in given), not all(map(isfinite, given))
