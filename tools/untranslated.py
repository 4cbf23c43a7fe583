"""List the messages that tipchain can show and that no Chinese catalogue has: ``python tools/untranslated.py [FOLDER|FILE ...]``.

A message is a line of two words or more that the code makes: of a string, an f-string (its places get names), or several
that are added up. What chooses between texts is each of them. They are written as entries of ``tipchain/locale/zh.po`` whose
``msgstr`` is empty; a place is named as `tipchain.core.language` says: ``{n}`` is a number, ``{cNAME}`` is never translated.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml
from jinja2 import Environment, nodes

PACKAGE = Path(__file__).resolve().parents[1] / "tipchain"
UNREAD_CALLS = re.compile(
    r"re\.\w+|(logger|logging|LOG|_?log)\.\w+|.*\.(startswith|endswith|removeprefix|removesuffix|partition|rpartition|split"
    r"|replace|find|count|index|execute|executemany|strftime|strptime|encode|get|write_text|fixture)|namedtuple|TypeVar|NewType|cast"
    r"|Literal|ArgumentParser|AssertionError|NotImplementedError"
)
"""Calls whose texts nobody reads as a message: what code looks for, what a log holds, queries, impossible states."""
UNREAD_KEYWORDS = ("class_", "style", "metavar", "prog", "env", "argv", "pattern", "usage", "choices", "dest")
WORD = re.compile(r"[\"'(\[]*[A-Za-z][a-z]*(['-][a-z]+)*[.,:;?!\"')\]…]*")
NO_MESSAGE = tuple(
    re.compile(one, re.DOTALL)
    for one in (
        r"(SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|FROM|WHERE|ORDER BY) .*",  # queries
        r".*\\[dwsb][+*].*",  # patterns
        r"[=?][a-z]+_.*|device mkldnn .*|acc accuracy|dice mdice|lr learning_rate|avg loss: .*|\[.*\]",  # layouts, keys of logs
        r".*-src ['a-z].*|(base-uri|form-action|light) .*",  # rules of pages
        r"[#$] .*|if 1:.*|import .*|(local|case|compopt|complete|set|for word in) .*[$_-].*",  # programs
        r"(norm_train|eval|inference|[a-z]+_export):-?[a-z].*",  # parameter files
        r"tipchain (align|run|locate) \{.*|tipchain [a-z]+ [A-Z.…]*.*--.*|pip install [^ ]+",  # calls
        r".*\x1b.*|(ERROR|INFO|DEBUG):.*|\[Eval\].*|file: .*|total number .*|mean \{n\}.*|-{5,}.*|diff check .*",  # logs
        r"\(\{\}\.\w+ is (not )?None\)|None if \{\} else \w+",  # expressions that a port is given
        r"Traceback \(most.*|embedded null byte|Found 'dict' .*|(numpy|torch|collections) [A-Za-z]+",  # others' texts
    )
)
"""What is no message though it has words: queries, patterns, layouts, code, calls, what programs write."""
ENGLISH = re.compile(r"(?<![\w/.-])[A-Za-z]?[a-z]{2,}[,;:]? +(?:[a-z]+ +)?[a-z]{2,}(?![\w/.-])")
"""Two English words or more, one after the other."""
CALL = re.compile(
    r"`[^`]*`|(tipchain|ray|bash|pip)( [a-z][a-z.-]*){1,2}|torch module|Ray worker|loss scaling|state dict|batch sizes?|mode list|entry point|DP_N1C1|\(model, optimizer[^)]*\)|--\S+"
)
"""What stays as it is: code, and what is typed."""
FILLINGS = ("1", "1 %", "1%")
MOST_FORMS = 64


def messages(path: Path) -> list[str]:
    """Return every line of several words that a module or a template makes, in the order of the code, with names for its places."""
    texts = {".html": _template_texts, ".yaml": _table_texts}.get(path.suffix, _module_texts)
    found: dict[str, None] = {}
    for text in texts(path.read_text(encoding="utf-8")):
        for line in map(str.strip, text.split("\n")):
            if _is_message(line):
                found.setdefault(line.lstrip(",;: ").rstrip(",;:. ").replace("%(default)s", "{cdefault}"))
    return list(found)


def _module_texts(text: str) -> Iterator[str]:
    tree = ast.parse(text)
    return _texts(tree, {id(one) for node in ast.walk(tree) for one in _unread(node)})


def _table_texts(text: str) -> Iterator[str]:
    for table in yaml.safe_load(text).values():
        yield from table.values()


def _template_texts(text: str) -> Iterator[str]:
    """Yield the texts of a template's expressions, and what stands outside of its tags: that is never translated."""
    tree = Environment(autoescape=True).parse(text)
    raw = "\0".join(one.data for one in tree.find_all(nodes.TemplateData))
    yield from re.split("\0|\n", re.sub(r"(?s)<style>.*?</style>|<[^>]*>", "\0", raw))
    parts = {
        id(part)
        for one in tree.find_all((nodes.Concat, nodes.Call))
        for part in one.find_all(nodes.Node)
        if _is_part(one)
    }
    for node in tree.find_all((nodes.Concat, nodes.Const, nodes.Call)):
        if id(node) not in parts:
            yield from map(_named, _template_forms(node))


def _is_part(node: nodes.Node) -> bool:
    """Tell whether what is inside of a template's expression is no message by itself: a part of a sentence, a noun."""
    return isinstance(node, nodes.Concat) or (isinstance(node.node, nodes.Name) and node.node.name == "many")


def _template_forms(node: nodes.Node) -> list[tuple[Piece, ...]]:
    """Return what an expression of a template may be."""
    match node:
        case nodes.Const(value=str() as text):
            return [(text,)]
        case nodes.Concat(nodes=inner):
            return [tuple(itertools.chain(*form)) for form in itertools.product(*map(_template_forms, inner))]
        case nodes.CondExpr(expr1=first, expr2=second):
            return [*_template_forms(first), *(_template_forms(second) if second else [("",)])]
        case nodes.Call(node=nodes.Name(name="many"), args=[_, nodes.Const(value=one), *several]):
            return [(f"1 {one}",), (NUMBER, f" {several[0].value if several else f'{one}s'}")]
        case nodes.Filter() | nodes.Sub() | nodes.Call(node=nodes.Getattr(node=nodes.Const())):  # a number as a text
            return [(NUMBER,)]
        case nodes.Getattr(attr=name) | nodes.Name(name=name):
            return [(ast.Name(id=name),)]
    return [] if isinstance(node, nodes.Call) else [(ast.Name(id="text"),)]


def _is_message(text: str) -> bool:
    """Tell whether at least half of a text is words, two or more, and not all of them as short as names of variables."""
    parts = re.sub(r"`[^`]*`|[^\s{]*\{\w+\}\S*", " ", text).split()
    words = [one for one in parts if WORD.fullmatch(one)]
    counts = len(words) > 1 and 2 * len(words) >= len(parts) and any(re.search("[A-Za-z]{3}", one) for one in words)
    return counts and not any(one.fullmatch(text) for one in NO_MESSAGE)


def _texts(node: ast.AST, unread: set[int]) -> Iterator[str]:
    if id(node) in unread:
        return
    if isinstance(node, ast.expr) and _is_text(node):
        for form in _forms(node):
            yield _named(form)
        for inner in _inner(node):
            yield from _texts(inner, unread)
        return
    for child in ast.iter_child_nodes(node):
        yield from _texts(child, unread)


def _unread(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the texts below a node that are no messages."""
    match node:
        case ast.Expr(value=ast.Constant()):  # a docstring
            yield node.value
        case ast.Call():
            if UNREAD_CALLS.fullmatch(ast.unparse(node.func)):
                yield from (one for one in node.args if _is_text(one))
            yield from (one.value for one in node.keywords if one.arg in UNREAD_KEYWORDS)
            if isinstance(node.func, ast.Attribute) and node.func.attr == "split" and not node.args:  # a list of names
                yield node.func.value
        case ast.Module():  # a file or a program that is written or run elsewhere
            for one in node.body:
                if isinstance(one, ast.Assign) and _is_text(one.value) and ast.unparse(one.value).count("\\n") > 2:
                    yield one.value
        case ast.Compare():
            yield from (one for one in (node.left, *node.comparators) if _is_text(one))
        case ast.Subscript():
            yield node.slice
        case ast.AnnAssign():
            yield node.annotation
        case ast.arg() if node.annotation is not None:
            yield node.annotation
        case ast.FunctionDef() if node.returns is not None:
            yield node.returns


def _is_text(node: ast.AST) -> bool:
    match node:
        case ast.Constant():
            return isinstance(node.value, str)
        case ast.JoinedStr():
            return True
        case ast.BinOp(op=ast.Add()):
            return _is_text(node.left) or _is_text(node.right)
        case ast.Call(func=ast.Name(id="many"), args=[_, ast.Constant(), *_]):  # tipchain's: a number with its noun
            return True
    return False


Piece = str | ast.expr
"""A part of a text: what stands there, or what is put there."""
NUMBER = ast.FormattedValue(value=ast.Name(id="n"), conversion=-1, format_spec=ast.Constant(","))


def _forms(node: ast.expr) -> list[tuple[Piece, ...]]:
    """Return what a text may be."""
    match node:
        case ast.Constant(value=str() as text):
            return [(text,)]
        case ast.JoinedStr():
            return _products(node.values)
        case ast.BinOp(op=ast.Add()):
            return _products([node.left, node.right])
        case ast.FormattedValue(format_spec=None, conversion=-1):
            return _forms(node.value) if _chosen(node.value) else [(node,)]
        case ast.IfExp() if _chosen(node):
            return [*_forms(node.body), *_forms(node.orelse)]
        case ast.Call(func=ast.Name(id="suggestion")):
            return [("",), (", {hint}",)]
        case ast.Call(args=[count, ast.Constant(value=one), *several]) if _is_text(node):
            number = ast.FormattedValue(value=count, conversion=-1, format_spec=ast.Constant(","))
            return [(f"1 {one}",), (number, f" {ast.literal_eval(several[0]) if several else f'{one}s'}")]
    return [(node,)]


def _chosen(node: ast.expr) -> bool:
    """Tell whether an expression is a text, or chooses between texts, as `tipchain.errors.suggestion` does."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "suggestion":
        return True
    return _is_text(node) or (isinstance(node, ast.IfExp) and (_chosen(node.body) or _chosen(node.orelse)))


def _products(nodes: list[ast.expr]) -> list[tuple[Piece, ...]]:
    every = [_forms(one) for one in nodes]
    found = itertools.islice(itertools.product(*every), MOST_FORMS)
    return [tuple(itertools.chain.from_iterable(one)) for one in found]


def _inner(node: ast.expr) -> Iterator[ast.expr]:
    """Yield what stands in the places of a text, and the conditions of what it chooses."""
    match node:
        case ast.JoinedStr():
            for one in node.values:
                yield from _inner(one)
        case ast.BinOp(op=ast.Add()):
            yield from _inner(node.left)
            yield from _inner(node.right)
        case ast.FormattedValue():
            yield from _inner(node.value)
        case ast.IfExp() if _chosen(node):
            yield node.test
            yield from _inner(node.body)
            yield from _inner(node.orelse)
        case ast.Call() if _is_text(node):
            yield node.args[0]
        case ast.Constant():
            pass
        case _:
            yield node


def _named(form: tuple[Piece, ...]) -> str:
    """Return a text with names for its places, each of its own."""
    parts: list[str] = []
    used: set[str] = set()
    for piece in form:
        if isinstance(piece, str):
            parts.append(piece)
            continue
        name = _name(piece, in_code="".join(parts).count("`") % 2 == 1)
        names = itertools.chain([name], (f"{name}{number}" for number in itertools.count(2)))
        name = next(one for one in names if one not in used)
        used.add(name)
        parts.append(f"{{{name}}}")
    return "".join(parts)


NUMBERS = re.compile(r"count|total|number|steps?|size|seconds|line|left|done|percent|index|days|hours|bytes|limit|n")
CODE = re.compile(
    r".*(path|file|folder|name|names|key|id|root|target|url|cwd|log|word|option|flag|class|type|shape|place|where|module|version"
    r"|command|argv|variable|dtype|device|mode|suite|stage|slot|column|table|database|host|user|section|program|script).*"
)


def _name(node: ast.expr, *, in_code: bool) -> str:
    quoted = False
    if isinstance(node, ast.FormattedValue):
        spec = ast.unparse(node.format_spec) if node.format_spec else ""
        if re.search(r"[dgfe%]['\"]$|,", spec):
            return "n"
        quoted, node = node.conversion == ord("r"), node.value
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("len", "sum", "round", "int", "max", "min"):
        return "n"
    words = re.findall(r"[a-z][a-z_]*", ast.unparse(node))
    word = (words[-1] if words else "what").replace("_", "").removesuffix("text") or "text"
    if isinstance(node, ast.Call):
        word = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        word = word.replace("_", "")
        if word in ("clean", "escaped", "join", "sorted", "str", "first", "repr") and len(words) > 1:
            word = words[-1].replace("_", "")
    if NUMBERS.fullmatch(word):
        return "n"
    return f"c{word}" if quoted or in_code or (CODE.fullmatch(word) and not word.startswith("c")) else word


def is_translated(text: str) -> bool:
    """Tell whether the reader of Chinese reads no English in a message, in whose places stand numbers here."""
    return any(map(_is_chinese, (re.sub(r"\{\w+\}", one, text) for one in FILLINGS)))


def _is_chinese(text: str) -> bool:
    from tipchain.core.language import say

    said = say(text)
    return bool(re.search("[\u4e00-\u9fff]", said)) and not ENGLISH.search(CALL.sub("", said))


def untranslated(path: Path) -> list[str]:
    """Return the messages of a module that the catalogue lacks."""
    return [one for one in messages(path) if not is_translated(one)]


def modules(place: Path) -> list[Path]:
    """Return the modules and templates of a folder, or the file itself."""
    return (
        sorted((*place.rglob("*.py"), *place.rglob("*.html"), *place.rglob("roles.yaml")))
        if place.is_dir()
        else [place]
    )


def entry(text: str) -> str:
    """Return a message as an entry of a catalogue."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'msgid "{escaped}"\nmsgstr ""\n'


def main(places: list[str]) -> int:
    """Print what is missing; return 1 where something is."""
    import os

    os.environ["TIPCHAIN_LANG"] = "zh"
    count = 0
    for place in map(Path, places or [str(PACKAGE)]):
        for path in modules(place):
            missing = untranslated(path)
            count += len(missing)
            if missing:
                print(f"# {os.path.relpath(path)}\n", *map(entry, missing), sep="\n")
    print(f"{count} messages are not translated", file=sys.stderr)
    return int(count > 0)


if __name__ == "__main__":
    sys.path.insert(0, str(PACKAGE.parent))
    raise SystemExit(main(sys.argv[1:]))
