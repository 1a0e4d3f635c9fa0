"""Mutants of a module from its syntax tree: operators, constants, conditions, statements."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
NAMES = {
    "min": "max", "max": "min", "any": "all", "all": "any", "sum": "mean", "mean": "sum",
    "argmin": "argmax", "argmax": "argmin", "minimum": "maximum", "maximum": "minimum",
    "floor": "ceil", "ceil": "floor", "isfinite": "isnan", "var": "std", "std": "var",
    "exp": "expm1", "log": "log1p", "cumsum": "cumprod", "left": "right", "row_stack": "hstack",
}  # fmt: skip
UNTESTED_CALLS = {"_log"}  # what is logged is no result
COSMETIC = {  # and what only guards against mistakes that nobody makes
    "alpha", "color", "ec", "figsize", "fill", "frameon", "ha", "label", "layout", "ls", "lw",
    "marker", "ms", "ncols", "steps", "strict", "textcoords", "xycoords", "xytext",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """Characters ``start`` to ``end`` of a module's text, replaced by something wrong."""

    module: str
    start: int
    end: int
    wrong: str

    def apply(self, text: str) -> str:
        return text[: self.start] + self.wrong + text[self.end :]

    def changes(self, text: str) -> bool:
        """Whether the mutated text is a program, and another one: too slow to ask of all."""
        try:
            return ast.dump(ast.parse(self.apply(text))) != ast.dump(ast.parse(text))
        except SyntaxError:
            return False

    def line(self, text: str) -> int:
        return text.count("\n", 0, self.start) + 1

    def lines(self, text: str) -> range:
        """The numbers of the changed lines."""
        return range(self.line(text), text.count("\n", 0, self.end) + 2)

    def diff(self, text: str) -> str:
        """The changed lines before and after."""
        first = text.rfind("\n", 0, self.start) + 1
        last = text.find("\n", self.end)
        before = text[first:last]
        after = text[first : self.start] + self.wrong + text[self.end : last]
        return "\n".join(
            f"  {sign} {line.strip()}"
            for sign, part in (("-", before), ("+", after))
            for line in part.splitlines()
        )


def generated(module: str, text: str) -> list[Mutant]:
    """Every mutant of a module that the operators know."""
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    raw = [line.encode() for line in text.splitlines()]

    def offset(row: int, column: int) -> int:
        return lines[row - 1] + len(raw[row - 1][:column].decode())

    found = []
    for node, wrong in _mutations(ast.parse(text)):
        start = offset(node.lineno, node.col_offset)
        end = offset(node.end_lineno, node.end_col_offset)
        found.append(Mutant(module, start, end, wrong))
    return found


def _mutations(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    for node in _code(tree):
        test = getattr(node, "test", None)
        if isinstance(test, ast.Name | ast.Call | ast.Attribute):
            yield test, f"(not {ast.unparse(test)})"
        for operator in OPERATORS:
            for wrong in operator(node):
                yield node, wrong


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Walk what decides results: no annotations, docstrings, decorators, texts or type checks."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_idle(child):
                yield from _code(child)


def _is_idle(node: ast.AST) -> bool:
    if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom | ast.TypeAlias):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.keyword) and node.arg in COSMETIC:
        return True
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func).split(".")[0] in UNTESTED_CALLS
    return False


def swap_comparison(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            operators = list(node.ops)
            operators[place] = COMPARISONS[type(operator)]()
            yield _written(ast.Compare(node.left, operators, node.comparators))


def swap_arithmetic(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in ARITHMETIC:
        operator = ARITHMETIC[type(node.op)]()
        if isinstance(node, ast.BinOp):
            yield _written(ast.BinOp(node.left, operator, node.right))
        else:
            yield ast.unparse(ast.AugAssign(node.target, operator, node.value))


def change_constant(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield str(not node.value)
        elif isinstance(node.value, int | float):
            yield repr(node.value + 1 if abs(node.value) < 10 else 2 * node.value)


def negate_condition(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield _written(ast.BoolOp(other, node.values))
        for left_out in range(len(node.values)):
            kept = [v for i, v in enumerate(node.values) if i != left_out]
            yield _written(kept[0] if len(kept) == 1 else ast.BoolOp(node.op, kept))
    elif isinstance(node, ast.UnaryOp):
        yield _written(node.operand)
    elif isinstance(node, ast.IfExp):
        yield _written(ast.IfExp(node.test, node.orelse, node.body))


def drop_statement(node: ast.AST) -> Iterator[str]:
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    kept_elsewhere = isinstance(target, ast.Subscript | ast.Attribute)
    dropped = ast.Expr | ast.AugAssign | ast.Raise | ast.Continue | ast.Break
    if isinstance(node, dropped) or kept_elsewhere:
        yield "pass"


def drop_argument(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call):
        for left_out, keyword in enumerate(node.keywords):
            if _is_idle(keyword):
                continue
            keywords = [k for i, k in enumerate(node.keywords) if i != left_out]
            yield ast.unparse(ast.Call(node.func, node.args, keywords))


def swap_name(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        if name in {"abs", "sorted", "float64"} and len(node.args) == 1:
            yield _written(node.args[0])
        if name not in NAMES:
            return
        builtin = isinstance(node.func, ast.Name)
        if builtin and name in {"sum", "mean"}:
            return
        other = ast.Name(NAMES[name]) if builtin else ast.Attribute(node.func.value, NAMES[name])
        yield ast.unparse(ast.Call(other, node.args, node.keywords))


def turn_around(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute) and node.attr == "T":
        yield _written(node.value)
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
        yield f"return {ast.unparse(ast.Tuple(node.value.elts[::-1], ast.Load()))}"
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Compare | ast.BoolOp):
        yield f"return not ({ast.unparse(node.value)})"


def _written(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


OPERATORS = (
    swap_comparison,
    swap_arithmetic,
    change_constant,
    negate_condition,
    drop_statement,
    drop_argument,
    swap_name,
    turn_around,
)
