"""What a builder rests on: the statements of the user's modules that its names reach."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path

from tipchain.errors import UsageError
from tipchain.port.convert import converts

INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages: beside a user's own package there, the others are not the user's."""
REFLECTS = frozenset({"globals", "eval", "exec"})
"""Functions that reach names which stand nowhere: a module that calls one is taken whole."""
COMPILERS = {
    "torch.jit.is_scripting": False,
    "torch.jit.is_tracing": False,
    "torch.compiler.is_compiling": False,
    "torch.fx.wrap": None,
    "torch._C._log_api_usage_once": None,
}
"""Functions that only torch's compilers need, with what they answer while code runs as it stands."""
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(eq=False)
class Module:
    """A module of the user's, with the top-level statements that are needed.

    Attributes:
        name: as it is imported.
        file: its source.
        tree: the source, parsed.
        needed: numbers of the statements that the builder reaches.
        aliases: names that needed imports bind.
    """

    name: str
    file: Path
    tree: ast.Module
    needed: set[int] = field(default_factory=set)
    aliases: set[str] = field(default_factory=set)

    @cached_property
    def bound(self) -> dict[str, list[int]]:
        """Numbers of the statements that bind a name."""
        found: dict[str, list[int]] = {}
        for number, statement in enumerate(self.tree.body):
            for name in dict.fromkeys(_bound_by(statement)):
                found.setdefault(name, []).append(number)
        return found

    @cached_property
    def tried(self) -> set[ast.AST]:
        """What stands in ``try`` statements."""
        return {one for node in ast.walk(self.tree) if isinstance(node, ast.Try) for one in ast.walk(node)}

    @property
    def top(self) -> str:
        """The package of all."""
        return self.name.partition(".")[0]

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        return self.name if self.file.name == "__init__.py" else self.name.rpartition(".")[0]

    def base(self, node: ast.ImportFrom) -> str:
        """Return the absolute name of the module that an import names."""
        parts = self.package.split(".")
        above = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
        return ".".join(filter(None, [above, node.module or ""]))


def _bound_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, Scope):
        yield node.name
        return
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (one.asname or one.name.partition(".")[0] for one in node.names)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.Lambda):
            yield from _bound_by(child)


@dataclass(eq=False)
class Sources:
    """The user's modules that a builder rests on.

    Attributes:
        root: where imports start.
        top: the package of the builder's module.
        modules: those that were read, by name.
        pending: needed statements whose names were not followed yet.
        looked_up: attributes that needed code reads where it looks modules up by name, in ``sys.modules``.
    """

    root: Path
    top: str
    modules: dict[str, Module] = field(default_factory=dict)
    pending: list[tuple[Module, ast.stmt]] = field(default_factory=list)
    looked_up: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, spec: str, root: Path) -> Sources:
        """Return what ``"module:callable"`` rests on.

        Raises:
            UsageError: the module, or the name in it, is not there; or a module cannot be read.
        """
        name, _, builder = spec.partition(":")
        sources = cls(root=root, top=name.partition(".")[0])
        module = sources.module(name)
        if module is None:
            raise UsageError(f"--torch: no module {name} below {root}")
        if not sources.need(module, builder.partition(".")[0]):
            raise UsageError(f"--torch: {module.file} binds no {builder!r}")
        while sources.pending or sources._more():
            while sources.pending:
                sources._reach(*sources.pending.pop())
        return sources

    def is_own(self, top: str) -> bool:
        """Tell whether a package is the user's."""
        return top == self.top or not (INSTALLED & set(self.root.parts) or _needs_torch(top))

    def source(self, module: Module, node: ast.ImportFrom, name: str) -> Module | None:
        """Return the module to convert that an import takes a name from; None where the import stays as it is.

        Of a library that needs torch, definitions are converted, too; but not what paconvert itself converts, whole modules,
        and what code only tries to import.
        """
        base = module.base(node)
        top = base.partition(".")[0]
        if top != module.top and not self.is_own(top):
            full = f"{base}.{name}"
            if node in module.tried or converts(full) or self.module(full) is not None:
                return None
        return self.module(base)

    def module(self, name: str) -> Module | None:
        """Return a module of the user's, or of a library that needs torch; None of any other."""
        if name in self.modules:
            return self.modules[name]
        top = name.partition(".")[0]
        if self.is_own(top):
            root = self.root
        elif _needs_torch(top):
            root = folder_of(top, self.root)
        else:
            return None
        place = root.joinpath(*name.split("."))
        file = next((one for one in (place / "__init__.py", place.with_suffix(".py")) if one.is_file()), None)
        if file is None:
            return None
        try:
            tree = ast.parse(file.read_bytes(), str(file))
        except SyntaxError as error:
            raise UsageError(f"{file}:{error.lineno}: {error.msg}") from error
        self.modules[name] = Module(name=name, file=file, tree=tree)
        return self.modules[name]

    def need(self, module: Module, name: str) -> bool:
        """Mark what binds a name in a module, and all that this reaches; tell whether anything binds it."""
        numbers = module.bound.get(name, ())
        for number in numbers:
            statement = module.tree.body[number]
            if isinstance(statement, ast.Import | ast.ImportFrom):
                if name in module.aliases:
                    continue
                module.aliases.add(name)
            elif number in module.needed:
                continue
            module.needed.add(number)
            self.pending.append((module, statement))
        return bool(numbers) or any(self.need(one, name) for one in self._starred(module))

    def need_all(self, module: Module) -> None:
        """Mark a module whole."""
        for name in list(module.bound):
            self.need(module, name)

    def definer(self, module: Module, name: str) -> tuple[Module, str]:
        """Return where a name that a module binds by imports is defined, and its name there."""
        for number in reversed(module.bound.get(name, ())):
            statement = module.tree.body[number]
            if isinstance(statement, ast.ImportFrom):
                alias = next(one for one in statement.names if (one.asname or one.name) == name)
                base = self.source(module, statement, alias.name)
                if base is not None and base is not module and (alias.name in base.bound or any(self._starred(base))):
                    return self.definer(base, alias.name)
            return module, name
        for one in self._starred(module):
            found = self.definer(one, name)
            if found[1] in found[0].bound:
                return found
        return module, name

    def foreign(self, module: Module, name: str) -> ast.Import | ast.ImportFrom | None:
        """Return the import by which a module takes a name from elsewhere than the user's modules; None of others."""
        for number in module.bound.get(name, ()):
            for node in ast.walk(module.tree.body[number]):
                if not isinstance(node, ast.Import | ast.ImportFrom) or name not in _bound_by(node):
                    continue
                alias = next(one for one in node.names if (one.asname or one.name.partition(".")[0]) == name)
                if isinstance(node, ast.Import):
                    return ast.Import(names=[alias]) if self.whole(alias.name) is None else None
                if self.source(module, node, alias.name) is None:
                    return ast.ImportFrom(module=node.module, names=[alias], level=node.level)
        return None

    def _starred(self, module: Module) -> Iterator[Module]:
        for statement in module.tree.body:
            if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
                base = self.module(module.base(statement))
                if base is not None and base is not module:
                    yield base

    def _reach(self, module: Module, statement: ast.stmt) -> None:
        """Mark what a needed statement rests on."""
        attributes = {id(one.value): one for one in ast.walk(statement) if isinstance(one, ast.Attribute)}
        if any(ast.unparse(one) == "sys.modules" for one in attributes.values()):
            self.looked_up |= {one.attr for one in attributes.values()}
        imports = [one for one in ast.walk(statement) if isinstance(one, ast.Import | ast.ImportFrom)]
        for node in imports:
            if statement is not node or isinstance(node, ast.ImportFrom):
                self._reach_import(module, node, only=module.aliases if statement is node else None)
        inside = {name for node in imports if node is not statement for name in _bound_by(node)}
        for name in ast.walk(statement):
            if not isinstance(name, ast.Name) or not isinstance(name.ctx, ast.Load):
                continue
            if name.id in REFLECTS:
                self.need_all(module)
            if name.id not in inside and self.need(module, name.id):
                self._reach_attribute(module, name, attributes)

    def _reach_import(self, module: Module, node: ast.Import | ast.ImportFrom, only: set[str] | None) -> None:
        if isinstance(node, ast.Import):
            for one in node.names:
                imported = self.whole(one.name)
                if imported is not None:
                    self.need_all(imported)
            return
        for one in node.names:
            base = self.source(module, node, one.name)
            if base is None or (only is not None and (one.asname or one.name) not in only):
                continue
            where, name = self.definer(base, one.name)
            if name in where.bound and self.foreign(where, name) is None:
                self.need(where, name)
            # else it is a module: its attributes are reached where they are read

    def _reach_attribute(self, module: Module, name: ast.Name, attributes: Mapping[int, ast.Attribute]) -> None:
        """Mark the attribute of a user's module that an expression reads, or all of the module where it is handed on."""
        found = self._imported(module, name.id)
        node: ast.expr = name
        while found is not None:
            outer = attributes.get(id(node))
            if outer is None:
                return self.need_all(found)
            inner = self.module(f"{found.name}.{outer.attr}")
            if inner is None or outer.attr in found.bound:
                where, attribute = self.definer(found, outer.attr)
                self.need(where, attribute)
                return None
            found, node = inner, outer
        return None

    def whole(self, name: str) -> Module | None:
        """Return the user's module that ``import`` names; None of a library's, which is never taken whole."""
        return self.module(name) if self.is_own(name.partition(".")[0]) else None

    def _imported(self, module: Module, name: str) -> Module | None:
        """Return the user's module that a name of a module stands for; None where it is no module."""
        for number in module.bound.get(name, ()):
            statement = module.tree.body[number]
            if isinstance(statement, ast.Import):
                for one in statement.names:
                    if (one.asname or one.name.partition(".")[0]) == name:
                        return self.whole(one.name if one.asname else name)
            if isinstance(statement, ast.ImportFrom):
                for one in statement.names:
                    if (one.asname or one.name) == name:
                        base = module.base(statement)
                        own = self.source(module, statement, one.name)
                        bound = own is not None and own is not module and one.name in own.bound
                        if bound and own is not None:
                            return self._imported(own, one.name)
                        return self.whole(f"{base}.{one.name}")
        return None

    def _more(self) -> bool:
        """Mark statements that bind nothing, of names that are all needed; tell whether there were any."""
        more = False
        for module in list(self.modules.values()):
            for name in self.looked_up.intersection(module.bound) if module.needed else ():
                self.need(module, name)
            needed = {name for name, numbers in module.bound.items() if module.needed.intersection(numbers)}
            for number, statement in enumerate(module.tree.body):
                if number in module.needed or list(_bound_by(statement)) or _is_text(statement):
                    continue
                read = {one.id for one in ast.walk(statement) if isinstance(one, ast.Name)} & set(module.bound)
                imported = {name for name in read if name not in needed and self.foreign(module, name) is not None}
                registers = self._fills(module, statement)
                # Not what is of its module's name: a program's start, or an entry of all the module's names in a table.
                of_module = any(isinstance(one, ast.Name) and one.id == "__name__" for one in ast.walk(statement))
                if (registers or (read - imported and read - imported <= needed)) and not of_module:
                    module.needed.add(number)
                    self.pending.append((module, statement))
                    more = True
        return more or bool(self.pending)

    def _fills(self, module: Module, statement: ast.stmt) -> bool:
        """Tell whether a statement calls a function of the user's that reads a table which is needed: it may fill it."""
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            return False
        where, name = self.definer(module, call.func.id)
        read = {
            one.id
            for number in where.bound.get(name, ())
            if isinstance(where.tree.body[number], ast.FunctionDef)
            for one in ast.walk(where.tree.body[number])
            if isinstance(one, ast.Name)
        }
        assigned = (number for one in read for number in where.bound.get(one, ()))
        return any(
            number in where.needed and isinstance(where.tree.body[number], ast.Assign | ast.AnnAssign)
            for number in assigned
        )

    # The modules as they are converted: what is needed of each, with imports from where a name is defined.

    def written(self, package: str) -> dict[str, str]:
        """Return the source of each module that is needed under a package of another name, by its path below that package."""
        found = {"__init__.py": ""}
        for module in list(self.modules.values()):
            if not module.needed:
                continue
            body = [
                _Imports(self, module, package).visit(self._kept(module, statement))
                for number, statement in enumerate(module.tree.body)
                if number in module.needed or _is_future(statement) or (number == 0 and _is_text(statement))
            ]
            first = next((at for at, one in enumerate(body) if one and not (_is_text(one) or _is_future(one))), 0)
            body[first:first] = [_Imports(self, module, package).visit(one) for one in self._of_stars(module)]
            path = self.path(module)
            tree = ast.Module(body=[one for one in body if one is not None], type_ignores=[])
            found[str(path)] = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
            for folder in path.parents:
                found.setdefault(str(folder / "__init__.py"), "")
        return found

    def path(self, module: Module) -> Path:
        """Return where a module lies below the port's package."""
        parts = module.name.split(".")
        inside = parts[1:] if (self.root / self.top).is_dir() and parts[0] == self.top else parts
        return Path(*inside, "__init__.py") if module.file.name == "__init__.py" else Path(*inside).with_suffix(".py")

    def renamed(self, name: str, package: str) -> str:
        """Return the name of a module of the user's in the port."""
        module = self.modules[name]
        parts = [package, *self.path(module).with_suffix("").parts]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def _of_stars(self, module: Module) -> Iterator[ast.stmt]:
        """Yield imports by name of what a module reads, and imports with all of another's."""
        needed = (module.tree.body[number] for number in module.needed)
        read = {one.id for statement in needed for one in ast.walk(statement) if isinstance(one, ast.Name)}
        for base in self._starred(module):
            defined = {name: self.definer(base, name) for name in sorted(read - set(module.bound))}
            names = [ast.alias(name=name) for name, (where, inner) in defined.items() if inner in where.bound]
            if names:
                yield ast.ImportFrom(module=base.name, names=names, level=0)

    @staticmethod
    def _kept(module: Module, statement: ast.stmt) -> ast.stmt:
        """Return a statement as it is needed: of an import the names that are."""
        if not isinstance(statement, ast.Import | ast.ImportFrom) or _is_future(statement):
            return statement
        names = [one for one in statement.names if (one.asname or one.name.partition(".")[0]) in module.aliases]
        if isinstance(statement, ast.Import):
            return ast.Import(names=names)
        return ast.ImportFrom(module=statement.module, names=names, level=statement.level)


class _Imports(ast.NodeTransformer):
    """Imports of the user's modules, made from where each name is defined, under the port's package."""

    def __init__(self, sources: Sources, module: Module, package: str) -> None:
        self.sources, self.module, self.package = sources, module, package

    def _full(self, node: ast.expr) -> str:
        """Return an expression with the whole name of what it begins with, where that is imported from elsewhere."""
        text = ast.unparse(node)
        first, dot, rest = text.partition(".")
        found = self.sources.foreign(self.module, first)
        if isinstance(found, ast.ImportFrom):
            return f"{found.module}.{found.names[0].name}{dot}{rest}"
        return f"{found.names[0].name}{dot}{rest}" if found is not None and found.names[0].asname else text

    def visit_Try(self, node: ast.Try) -> ast.stmt | list[ast.stmt]:
        """Take imports of torch's as they are tried first: paconvert leaves such a statement without a body."""
        self.generic_visit(node)
        return node.body if all(packages_of(one) == {"torch"} for one in node.body) else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Write the answers of functions that only torch's compilers need, and that paconvert leaves open."""
        self.generic_visit(node)
        called = self._full(node.func)
        if called == "torch.jit.annotate":  # a value, and its type
            return node.args[1]
        return ast.Constant(COMPILERS[called]) if called in COMPILERS else node

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        """Write ``{**dict(a or b)}`` for ``{**(a or b)}``, whose parentheses paconvert loses."""
        self.generic_visit(node)
        node.values = [
            ast.Call(func=ast.Name("dict"), args=[value], keywords=[])
            if key is None and isinstance(value, ast.BoolOp | ast.IfExp | ast.BinOp)
            else value
            for key, value in zip(node.keys, node.values, strict=True)
        ]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        """Leave out decorators that only torch's compilers need."""
        node.decorator_list = [
            one
            for one in node.decorator_list
            if not self._full(one).startswith(("torch.jit.", "torch.compile", "torch.fx."))
        ]
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        """Leave out of an annotation what only torch's compilers need: ``torch.jit.Final[bool]``."""
        self.generic_visit(node)
        if isinstance(node.annotation, ast.Subscript) and self._full(node.annotation.value) == "torch.jit.Final":
            node.annotation = node.annotation.slice
        return node

    def visit_Import(self, node: ast.Import) -> ast.stmt | list[ast.stmt]:
        made: list[ast.stmt] = []
        for one in node.names:
            if self.sources.whole(one.name) is None:
                made.append(ast.Import(names=[one]))
            elif one.asname:
                name = self.sources.renamed(one.name, self.package)
                made.append(ast.Import(names=[ast.alias(name=name, asname=one.asname)]))
            else:  # `import my.layers` binds `my`
                made.append(ast.Import(names=[ast.alias(name=self.sources.renamed(one.name, self.package))]))
                top = one.name.partition(".")[0]
                made.append(ast.Import(names=[ast.alias(name=self.package, asname=top)]))
        return made

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | list[ast.stmt]:
        base = self.module.base(node)
        made: list[ast.stmt] = []
        for one in node.names:
            own = self.sources.source(self.module, node, one.name)
            if own is None:
                kept = "typing" if node.module == "torch.jit.annotations" else node.module
                made.append(ast.ImportFrom(module=kept, names=[one], level=node.level))
                continue
            where, name = self.sources.definer(own, one.name)
            elsewhere = self.sources.foreign(where, name)
            bound = one.asname or one.name
            if elsewhere is not None:
                alias = elsewhere.names[0]
                elsewhere.names = [ast.alias(name=alias.name, asname=bound if bound != alias.name else None)]
                made.append(elsewhere)
                continue
            if name in where.bound:
                source, named = self.sources.renamed(where.name, self.package), name
            else:
                inner = self.sources.module(f"{base}.{one.name}")
                target = self.sources.renamed(inner.name, self.package) if inner else base
                source, _, named = target.rpartition(".")
            alias = ast.alias(name=named, asname=bound if bound != named else None)
            made.append(ast.ImportFrom(module=source, names=[alias], level=0))
        return made


@cache
def _needs_torch(top: str) -> bool:
    """Tell whether an installed package other than torch cannot be had without it."""
    try:
        needed = requires(top) or []
    except PackageNotFoundError:
        return False
    return any(re.match(r"torch(?![\w.-])", one) and "extra ==" not in one for one in needed)


def packages_of(node: ast.AST) -> set[str]:
    """Return the top packages that an import takes from; none of another node."""
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").partition(".")[0]}
    return {one.name.partition(".")[0] for one in node.names} if isinstance(node, ast.Import) else set()


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def folder_of(module: str, root: Path) -> Path:
    """Return where imports of a module start: the project's root, or the folder of an installed package.

    Raises:
        UsageError: there is no such module.
    """
    top = module.partition(".")[0]
    if any((root / one).exists() for one in (top, f"{top}.py")):
        return root
    found = find_spec(top)
    if found is None or found.origin is None:
        raise UsageError(f"--torch: no module {top} below {root}, nor installed")
    return Path(found.origin).parents[1 if found.submodule_search_locations else 0]
