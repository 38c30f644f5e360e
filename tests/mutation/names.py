"""Find the names that a lesson binds, and the kind of value of each, so that a name can replace another of its kind."""

import ast
from dataclasses import dataclass, field

FACTORIES = {"zeros", "ones", "empty", "full", "arange", "tensor", "rand", "randn", "randint", "clone", "linspace"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
SCOPES = (*FUNCTIONS, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def kind_of(value: ast.expr) -> str:
    """Return the kind of an expression's value: names of the same kind can replace each other."""
    if isinstance(value, ast.Call):
        name = ast.unparse(value.func).rpartition(".")[2]
        return "tensor" if name.removesuffix("_like") in FACTORIES else f"what {name} returns"
    if isinstance(value, ast.Constant):
        number = isinstance(value.value, int | float) and not isinstance(value.value, bool)
        return "number" if number else type(value.value).__name__
    if isinstance(value, ast.BinOp | ast.UnaryOp):
        return "number"
    if isinstance(value, ast.Subscript):
        return f"part of {ast.unparse(value.value)}"
    if isinstance(value, ast.Attribute):
        return f"attribute {value.attr}"
    return type(value).__name__.removesuffix("Comp")


def bindings(statements):
    """Yield (name, kind, line) for each name that these statements bind, without going into functions and classes."""
    for statement in statements:
        if isinstance(statement, ast.FunctionDef):
            yield statement.name, f"function of {len(statement.args.args)}", statement.lineno
        elif isinstance(statement, ast.ClassDef):
            yield statement.name, "class", statement.lineno
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                yield from bound(target, statement.value)
        elif isinstance(statement, ast.For):
            yield from bound(statement.target, None)
        elif isinstance(statement, ast.With):
            for item in statement.items:
                if item.optional_vars is not None:
                    yield from bound(item.optional_vars, item.context_expr)
        if not isinstance(statement, SCOPES):
            for block in ("body", "orelse", "finalbody"):
                yield from bindings(getattr(statement, block, []))


def bound(target, value):
    """Yield (name, kind, line) for each name in the target of an assignment."""
    if isinstance(target, ast.Name):
        yield target.id, kind_of(value) if value else f"loop of line {target.lineno}", target.lineno
    elif isinstance(target, ast.Tuple | ast.List):
        apart = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
        for place, part in enumerate(target.elts):
            if isinstance(part, ast.Name):
                kind = kind_of(value.elts[place]) if apart else f"unpacked in line {target.lineno}"
                yield part.id, kind, part.lineno


@dataclass
class Names:
    """The names that are bound on the ranks and in the notebook by the cells read so far."""

    of_ranks: dict = field(default_factory=dict)  # name -> kind
    of_notebook: dict = field(default_factory=dict)

    def read(self, cell) -> None:
        """Add the names that a cell binds. A kind with a line number also gets the number of the cell."""
        for name, kind, line in bindings(cell.tree.body):
            kind = f"{kind} of cell {cell.number}" if " line " in kind else kind
            (self.of_ranks if cell.on_ranks(line) else self.of_notebook)[name] = kind
