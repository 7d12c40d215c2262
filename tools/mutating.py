"""Single changes of a module's source after which a number may be wrong: what `tools/mutants.py` tries.

A change swaps an operator, a comparison, a constant, `and` and `or`, `min` and `max` and their like, turns a condition
round, or drops a sign or a `not`. Words are left alone: strings, docstrings, annotations, and what is raised.
"""

from __future__ import annotations

import ast
import fnmatch
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Mutant", "code_objects", "mutants"]

_OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_TWINS = (("min", "max"), ("minimum", "maximum"), ("amin", "amax"), ("ceil", "floor"), ("any", "all"), ("log", "exp"))
_NAMES = {old: new for pair in _TWINS for old, new in (pair, pair[::-1])}
_WORDLESS_KEYWORDS = frozenset({"strict", "keepdim", "keepdims", "description", "summary", "key"})
"""Arguments that check or name something, and decide no number."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change of one module: a field of one node of its tree, and the value it is given."""

    tree: ast.Module
    owner: Any
    field: str
    index: int | None
    value: object
    text: str
    """What it changes into what, as source, with the function around it."""
    lines: range
    """The lines of the statement, whose tests may notice it."""
    function: tuple[str, int] | None
    """The outermost function around it, by qualified name and first line; None for what runs on import."""
    mentions: frozenset[int]
    """Of what runs on import, the lines that name what it assigns."""

    def compiled(self, path: Path) -> types.CodeType:
        """The module with this change and no other."""
        old = _exchange(self.owner, self.field, self.index, self.value)
        try:
            return compile(self.tree, str(path), "exec")
        finally:
            _exchange(self.owner, self.field, self.index, old)


def _exchange(owner: Any, field: str, index: int | None, value: object) -> object:
    """Put a value into a node's field, and return what was there."""
    held = getattr(owner, field)
    if index is None:
        setattr(owner, field, value)
        return held
    old, held[index] = held[index], value
    return old


@dataclass(frozen=True)
class _Change:
    owner: Any
    field: str
    index: int | None
    value: object
    shown: ast.AST
    """The node to print before and after, which says where the change is."""


def mutants(path: Path, functions: Sequence[str] = ("*",)) -> list[Mutant]:
    """All changes of this module, or of those functions whose qualified names match a pattern."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    walk = _Walk(functions)
    walk.body(tree.body)
    repeated: Counter[str] = Counter()
    made = []
    for change, statement, qualified, function in walk.changes:
        text = _text(change, qualified)
        repeated[text] += 1
        made.append(
            Mutant(
                tree=tree,
                owner=change.owner,
                field=change.field,
                index=change.index,
                value=change.value,
                text=text if repeated[text] == 1 else f"{text} (no. {repeated[text]})",
                lines=range(statement.lineno, _end(statement) + 1),
                function=function,
                mentions=frozenset() if function else _mentions(tree, statement),
            )
        )
    return made


def code_objects(module: types.CodeType) -> dict[tuple[str, int], types.CodeType]:
    """All code of a module, by qualified name and first line."""
    objects = {}
    waiting = [module]
    while waiting:
        code = waiting.pop()
        objects[code.co_qualname, code.co_firstlineno] = code
        waiting += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return objects


def _text(change: _Change, qualified: str) -> str:
    before = ast.unparse(change.shown)
    old = _exchange(change.owner, change.field, change.index, change.value)
    # Where the shown node is itself replaced, its replacement is what is shown.
    shown = change.value if change.shown is old else change.shown
    after = ast.unparse(shown) if isinstance(shown, ast.AST) else repr(shown)
    _exchange(change.owner, change.field, change.index, old)
    return f"{qualified or '<module>'}: {before} → {after}"


def _end(statement: ast.stmt) -> int:
    """The last line of a statement, or of its head where it has a body."""
    body = getattr(statement, "body", None)
    return max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno or statement.lineno


def _mentions(tree: ast.Module, statement: ast.stmt) -> frozenset[int]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    names = {
        node.id for target in targets if target is not None for node in ast.walk(target) if isinstance(node, ast.Name)
    }
    return frozenset(
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id in names) or (isinstance(node, ast.Attribute) and node.attr in names)
    )


class _Walk:
    """Walks statements and their expressions, and collects the changes with what surrounds them."""

    def __init__(self, functions: Sequence[str]) -> None:
        self.functions = functions
        self.changes: list[tuple[_Change, ast.stmt, str, tuple[str, int] | None]] = []
        self.scopes: list[ast.AST] = []
        self.statement: ast.stmt | None = None

    def body(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Raise | ast.Import | ast.ImportFrom | ast.Assert | ast.Pass | ast.Global):
            return
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            return
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return
        self.statement = statement
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            if isinstance(statement, ast.FunctionDef):
                for default in (*statement.args.defaults, *statement.args.kw_defaults):
                    if default is not None:
                        self._expression(default, statement.args)
            self.scopes.append(statement)
            self.body(statement.body)
            self.scopes.pop()
            return
        for change in _changes(statement, statement):
            self._add(change)
        for name, value in ast.iter_fields(statement):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, ast.stmt):
                    self._statement(item)
                elif isinstance(item, ast.AST):
                    self.statement = statement
                    self._expression(item, statement)
        self.statement = None

    def _expression(self, node: ast.AST, parent: ast.AST) -> None:
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.keyword) and node.arg in _WORDLESS_KEYWORDS):
            return
        for change in _changes(node, parent):
            self._add(change)
        if isinstance(node, ast.ExceptHandler):
            self.body(node.body)
            return
        signed = isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)
        for child in () if signed else ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self._statement(child)
            else:
                self._expression(child, node)

    def _add(self, change: _Change) -> None:
        qualified = ".".join(scope.name for scope in self.scopes)  # type: ignore[attr-defined]
        if self.statement is None or not any(fnmatch.fnmatch(qualified, pattern) for pattern in self.functions):
            return
        self.changes.append((change, self.statement, qualified, self._outermost()))

    def _outermost(self) -> tuple[str, int] | None:
        for depth, scope in enumerate(self.scopes):
            if isinstance(scope, ast.FunctionDef):
                first = min([scope.lineno, *(d.lineno for d in scope.decorator_list)])
                return ".".join(s.name for s in self.scopes[: depth + 1]), first  # type: ignore[attr-defined]
        return None


def _changes(node: ast.AST, parent: ast.AST) -> Iterator[_Change]:
    for kinds, changes in _CHANGES:
        if isinstance(node, kinds):
            yield from changes(node, parent)
    for field, index, test in _conditions(node):
        if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.NamedExpr):
            negated = ast.fix_missing_locations(ast.copy_location(ast.UnaryOp(ast.Not(), test), test))
            yield _Change(node, field, index, negated, test)


def _operator(node: Any, parent: ast.AST) -> Iterator[_Change]:
    if (other := _OPERATORS.get(type(node.op))) is not None:
        yield _Change(node, "op", None, other(), node)


def _comparison(node: ast.Compare, parent: ast.AST) -> Iterator[_Change]:
    for index, operator in enumerate(node.ops):
        if (other := _OPERATORS.get(type(operator))) is not None:
            yield _Change(node, "ops", index, other(), node)


def _sign(node: ast.UnaryOp, parent: ast.AST) -> Iterator[_Change]:
    if not isinstance(node.op, ast.Not | ast.USub):
        return
    field, index = _place(node, parent)
    yield _Change(parent, field, index, node.operand, node if isinstance(parent, ast.stmt) else parent)


def _constant(node: ast.Constant, parent: ast.AST) -> Iterator[_Change]:
    value = node.value
    if isinstance(value, bool):
        yield _Change(node, "value", None, not value, _shown(parent, node))
    elif isinstance(value, int):
        yield _Change(node, "value", None, value + 1, _shown(parent, node))
    elif isinstance(value, float):
        yield _Change(node, "value", None, value * 2 if value else 1.0, _shown(parent, node))


def _call(node: ast.Call, parent: ast.AST) -> Iterator[_Change]:
    name = node.func
    if isinstance(name, ast.Name) and name.id in _NAMES:
        yield _Change(name, "id", None, _NAMES[name.id], node)
    elif isinstance(name, ast.Attribute) and name.attr in _NAMES:
        yield _Change(name, "attr", None, _NAMES[name.attr], node)


_CHANGES: tuple[tuple[Any, Callable[[Any, ast.AST], Iterator[_Change]]], ...] = (
    ((ast.BinOp, ast.BoolOp, ast.AugAssign), _operator),
    (ast.Compare, _comparison),
    (ast.UnaryOp, _sign),
    (ast.Constant, _constant),
    (ast.Call, _call),
)


def _shown(parent: ast.AST, node: ast.AST) -> ast.AST:
    """A constant alone says nothing: what is around it is printed, but not a statement with all of its body."""
    return node if isinstance(parent, ast.arguments) or hasattr(parent, "body") else parent


def _conditions(node: ast.AST) -> Iterator[tuple[str, int | None, ast.expr]]:
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield "test", None, node.test
    if isinstance(node, ast.comprehension):
        yield from (("ifs", index, test) for index, test in enumerate(node.ifs))


def _place(node: ast.AST, parent: ast.AST) -> tuple[str, int | None]:
    for field, value in ast.iter_fields(parent):
        if value is node:
            return field, None
        if isinstance(value, list) and any(item is node for item in value):
            return field, next(index for index, item in enumerate(value) if item is node)
    raise AssertionError(f"Expected {ast.dump(node)} below {ast.dump(parent)}.")
