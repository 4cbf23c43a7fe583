"""A corrected line of the port, from a cause's fix."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from tipchain.explain.findings import Diagnosis

APPLIED = re.compile(
    r"apply `(?:F\.)?(?P<function>relu|gelu|silu|swish|sigmoid|tanh|softplus|hardswish|hardsigmoid|relu6|mish|elu|selu)` "
    r"(?:in front of `(?P<before>\w+)`|after `(?P<after>\w+)`)"
)
"""A function of ``nn.functional`` that takes one tensor, and the call that it belongs in front of or after."""
WRITTEN = re.compile(r"write (?P<wanted>`[^`]+`|\[[^\]]+\]) for (?P<written>`[^`]+`|\[[^\]]+\])")
"""A name, a call or an index, and its present spelling."""
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

HOLDERS = frozenset({"Sequential", "LayerList", "LayerDict"})
"""Layers that only hold others: no setting is theirs."""


def without_line(one: Diagnosis) -> str:
    """Return a fix without the line of code that it ends with: that stands below."""
    code = one.place.code.strip() if one.place else ""
    return one.fix.removesuffix(f": `{code}`") if code else one.fix


def corrected_line(fix: str, code: str) -> str | None:
    """Return a corrected line of the port; None where the fix does not say it, or several calls could be meant.

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
    meant = meant or [
        one for one in calls if _name(one)[:1].isupper() and _name(one) not in HOLDERS
    ]  # it makes a layer
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
    """Return a line in which a function is applied to a call's one argument (``first``), or to the call's result."""
    meant = [one for one in _calls(code) if _name(one) == name]
    if len(meant) != 1 or (first and (len(meant[0].args) != 1 or isinstance(meant[0].args[0], ast.Starred))):
        return None
    inside, text = meant[0].args[0] if first else meant[0], code.encode()
    start, end = inside.col_offset, inside.end_col_offset or 0
    return _edited(text, [(start, end, f"F.{function}({text[start:end].decode()})")])


def _edited(text: bytes, edits: Sequence[tuple[int, int, str]]) -> str:
    """Return a line with some ranges of bytes replaced; insertions at one place keep their order."""
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
