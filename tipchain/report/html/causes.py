"""Causes on a page: what is wrong, what it explains, and what to change, with the line as it should be."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from tipchain.explain.findings import PIECES, Diagnosis, SourceLine
from tipchain.report.html.page import Markup, element, many, markup, path, prose
from tipchain.report.html.parts import fix

UNKNOWN = "unknown"
"""The code of a diagnosis that knows no cause."""
APPLIED = re.compile(
    r"apply `(?:F\.)?(?P<function>relu|gelu|silu|swish|sigmoid|tanh|softplus|hardswish|hardsigmoid|relu6|mish|elu|selu)` "
    r"(?:to what `(?P<before>\w+)` is given|after `(?P<after>\w+)`)"
)
"""A function of ``nn.functional`` that takes one tensor, and the call that it belongs in front of or after."""
SETTING = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>\S.*)")


def causes(diagnoses: Sequence[Diagnosis]) -> Markup:
    """Return the causes, the likeliest first."""
    return element("ol", [element("li", _cause(one)) for one in diagnoses], class_="causes")


def short_cause(one: Diagnosis, told: str = "") -> Markup:
    """Return the sentence of a cause, unless what was told already has it, and what to change."""
    return markup(
        element("p", element("b", "Cause: "), prose(one.message)) if one.message not in told else None,
        fix(without_line(one), copied=one.code != UNKNOWN) if one.fix else None,
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
        None if one.code == UNKNOWN else _explained(one.explained),
        element("p", prose(one.evidence), class_="evidence") if one.evidence else None,
        fix(without_line(one), copied=one.code != UNKNOWN) if one.fix else None,
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

    ``fix`` is what a `Diagnosis` says: to pass a setting, to write one text for another, to remove or to add a call.
    """
    quoted = fix.split("`")[1::2]
    settings = [found for one in quoted if (found := SETTING.fullmatch(one))]
    if fix.startswith("pass ") and settings:
        rest = quoted[len(settings) :]
        return _with_settings(code, settings, rest[0] if rest else "")
    if fix.startswith("write ") and len(quoted) > 1 and " for `" in fix:
        wanted, written = quoted[:2]
        if wanted.endswith(")") and not written.endswith(")"):  # a call with settings, for a name whose call goes on
            return None
        places = re.findall(rf"(?<!\w)(?<!self\.){re.escape(written)}(?!\w)", code)
        return code.replace(written, wanted) if len(places) == code.count(written) == 1 else None
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
    edits = []
    for one in settings:
        given = next((each.value for each in call.keywords if each.arg == one["name"]), None)
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
