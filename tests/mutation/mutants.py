"""Find the mutants of a module: small changes of its code that a test should notice."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_FUNCTIONS = {"max": "min", "min": "max", "any": "all", "all": "any"}

#: Functions whose arguments are not swapped: the result would be the same, or an error of types.
_NOT_SWAPPED = {"max", "min", "isinstance", "issubclass", "getattr", "cast", "TypeVar", "Callable"}

#: Maximum number of characters of code in the name of a mutant.
_MAX_TEXT = 70


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of a module.

    Attributes:
        module: path of the module in the package.
        name: the function and the change, without line numbers, so that the name outlives changes elsewhere.
        start: first byte of the text that is replaced.
        end: the byte after it.
    """

    module: str
    name: str
    line: int
    start: int
    end: int
    replacement: str

    def apply(self, source: bytes) -> bytes:
        """Return the source of the mutated module."""
        return source[: self.start] + self.replacement.encode() + source[self.end :]


def find_mutants(module: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a module."""
    finder = _Finder(module, source)
    finder.visit(ast.parse(source))
    return finder.found


class _Finder(ast.NodeVisitor):
    def __init__(self, module: str, source: bytes) -> None:
        self.found: list[Mutant] = []
        self._module = module
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._scope: list[str] = []
        self._names: Counter[str] = Counter()
        self._is_in_function = False

    # ---- what is not mutated ----

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts of messages."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Assertions are for readers and type checkers."""

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg not in ("daemon", "exc_info", "name"):
            self.visit(node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_in(node.name, node.body)

    # ---- functions and statements ----

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        before, self._is_in_function = self._is_in_function, True
        self._scope.append(node.name)
        is_stub = not body or isinstance(body[0], (ast.Raise, ast.Pass)) or body[0].lineno == node.lineno
        if not is_stub and node.name != "__init__":
            at = self._position(body[0].lineno, body[0].col_offset)
            self._add(body[0], at, at, f"return\n{' ' * body[0].col_offset}", "", "return at the beginning")
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        for statement in body:
            self.visit(statement)
        self._scope.pop()
        self._is_in_function = before

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) or _is_log_call(node.value):
            return
        if isinstance(node.value, ast.Call):
            self._remove(node)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.targets[0], (ast.Attribute, ast.Subscript)):
            self._remove(node)
        if not (isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"):
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._remove(node)
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        if not all(isinstance(target, ast.Name) for target in node.targets):
            self._remove(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._remove(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._remove(node)
        else:
            self.visit(node.value)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "continue")

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if not any(isinstance(statement, ast.Raise) for statement in node.body):
            last = node.body[-1]
            start = self._position(node.body[0].lineno, node.body[0].col_offset)
            end = self._position(last.end_lineno or 0, last.end_col_offset or 0)
            kind = ast.unparse(node.type) if node.type else ""
            self._add(node, start, end, "raise", f"except {kind}", "raise again")
        for statement in node.body:
            self.visit(statement)

    # ---- expressions ----

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> None:
        if not isinstance(node.test, (ast.Compare, ast.BoolOp, ast.Constant)) and not _is_not(node.test):
            self._replace(node.test, f"not ({ast.unparse(node.test)})")
        self.generic_visit(node)

    visit_While = visit_IfExp = visit_If

    def visit_Compare(self, node: ast.Compare) -> None:
        for number, operator in enumerate(node.ops):
            if (other := _COMPARISONS.get(type(operator))) is not None:
                operators = [*node.ops[:number], other(), *node.ops[number + 1 :]]
                self._replace(node, ast.Compare(node.left, operators, node.comparators))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._replace(node, ast.BoolOp(other, node.values))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        is_text = any(isinstance(side, (ast.JoinedStr, ast.List)) for side in (node.left, node.right))
        if not is_text and (other := _OPERATORS.get(type(node.op))) is not None:
            self._replace(node, ast.BinOp(node.left, other(), node.right))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if _is_not(node):
            self._replace(node, node.operand)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = _name_of(node.func)
        if isinstance(node.func, ast.Name) and name in _FUNCTIONS:
            self._replace(node.func, _FUNCTIONS[name])
        first, second = [*node.args, None, None][:2]
        if first is not None and second is not None and name not in _NOT_SWAPPED:
            is_starred = any(isinstance(one, ast.Starred) for one in (first, second))
            if not is_starred and ast.unparse(first) != ast.unparse(second):
                self._replace(node, ast.Call(node.func, [second, first, *node.args[2:]], node.keywords))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._replace(node, str(not value))
        elif isinstance(value, int):
            self._replace(node, str(value + 1))
        elif isinstance(value, float):
            self._replace(node, str(value * 2 or 1.0))

    # ---- results ----

    def _visit_in(self, name: str, statements: Sequence[ast.stmt]) -> None:
        self._scope.append(name)
        for statement in statements:
            self.visit(statement)
        self._scope.pop()

    def _remove(self, node: ast.stmt) -> None:
        if self._is_in_function and self._scope[-1] != "__init__":  # without an attribute, nothing works
            self._replace(node, "pass")

    def _replace(self, node: ast.expr | ast.stmt, replacement: ast.expr | str) -> None:
        text = replacement if isinstance(replacement, str) else f"({ast.unparse(replacement)})"
        start = self._position(node.lineno, node.col_offset)
        end = self._position(node.end_lineno or 0, node.end_col_offset or 0)
        after = text if isinstance(replacement, str) else text[1:-1]
        self._add(node, start, end, text, ast.unparse(node), after)

    def _position(self, line: int, column: int) -> int:
        return self._lines[line - 1] + column

    def _add(
        self,
        node: ast.expr | ast.stmt | ast.ExceptHandler,
        start: int,
        end: int,
        replacement: str,
        before: str,
        after: str,
    ) -> None:
        change = f"{_short(before)} -> {_short(after)}" if before else after
        name = f"{self._module} {'.'.join(self._scope) or 'module'}: {change}"
        self._names[name] += 1
        if self._names[name] > 1:
            name += f" ({self._names[name]})"
        self.found.append(Mutant(self._module, name, node.lineno, start, end, replacement))


def _short(code: str) -> str:
    text = " ".join(code.split())
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 3]}..."


def _name_of(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _parts(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Attribute):
        yield node.attr
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def _is_log_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and any(part.strip("_") in ("log", "logger") for part in _parts(node.func))


def _is_not(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
