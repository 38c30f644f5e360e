"""Mistakes that people make, as operators on a syntax tree.

An operator takes a place in the tree and yields the nodes that replace it by mistake: an expression replaces an
expression, and `pass` replaces a statement.
"""

import ast
import copy
import re
from dataclasses import dataclass, field

from mutation.cells import asserts
from mutation.names import FUNCTIONS, bindings

SHOWS = {"print", "plots", "display", "warnings"}
# Functions whose arguments may come in any order, and functions that take another function and its arguments.
SYMMETRIC = {"equal", "allclose", "min", "max", "maximum", "minimum", "print", "isinstance", "zip", "add"}
CALLERS = {"apply", "apply_sync", "apply_async", "rpc_sync", "rpc_async", "remote", "partial", "map", "call"}
# Keywords whose effect shows only in a run that hangs, on a clock, or in a label.
PATIENCE = {"timeout", "preload", "title", "flush", "end", "sep", "strict", "label"}
OPPOSITES = {
    "min": "max",
    "amin": "amax",
    "argmin": "argmax",
    "minimum": "maximum",
    "MIN": "MAX",
    "train": "eval",
}
OPPOSITES |= {value: key for key, value in OPPOSITES.items()} | {"SUM": "MAX", "AVG": "SUM", "sum": "mean"}
DATA = re.compile(r"train(ing)?|val(idation|id)?|test(ing)?")
SEEDS = re.compile(r"(\.|^)(manual_seed|seed|default_rng|Random)$")


@dataclass
class Place:
    """A place in a tree: the node, its parent, the innermost function around it, and the names that are bound there."""

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    function: ast.AST | None = None
    on_ranks: bool = False
    names: dict = field(default_factory=dict)  # name -> kind, of the names bound before
    strings: dict = field(default_factory=dict)  # function or subscript -> its strings in the lesson

    def put(self, node: ast.AST) -> None:
        """Put a node into this place."""
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def name_of(function: ast.expr) -> str:
    """Return the name of what is called: `dist.barrier`, or `wait` where it belongs to an expression."""
    return ast.unparse(function) if isinstance(function, ast.Name | ast.Attribute) else ""


def takes_string(place: Place) -> str | None:
    """Return the function or subscript that takes the string at this place, or None."""
    if isinstance(place.parent, ast.Call) and place.field == "args" and place.index == 0:
        name = name_of(place.parent.func)
        return None if name.partition(".")[0] in SHOWS or name.endswith("Reference") else f"{name}()"
    if isinstance(place.parent, ast.Subscript) and place.field == "slice":
        return f"{ast.unparse(place.parent.value)}[]"
    return None


# ---------------------------------------------------------------- statements


def drop_statement(place: Place):
    """Drop a call whose result is not used, an augmented assignment, or an assignment to a name that has a value."""
    node = place.node
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        if name_of(node.value.func).partition(".")[0] not in SHOWS:
            yield ast.Pass()
    elif isinstance(node, ast.AugAssign):
        yield ast.Pass()
    elif isinstance(node, ast.Assign):
        targets = [part for target in node.targets for part in getattr(target, "elts", [target])]
        if all(isinstance(part, ast.Subscript | ast.Attribute) or known(part, place) for part in targets):
            yield ast.Pass()


def known(target: ast.expr, place: Place) -> bool:
    return isinstance(target, ast.Name) and target.id in place.names and not target.id.isupper()


def drop_context(place: Place):
    """Replace the context manager of a `with` block, such as `no_sync()`, by one that does nothing."""
    if isinstance(place.parent, ast.withitem) and place.parent.optional_vars is None:
        if isinstance(place.node, ast.Call):
            yield expression("__import__('contextlib').nullcontext()")


# ---------------------------------------------------------------- arguments


def drop_argument(place: Place):
    """Drop a keyword argument."""
    if isinstance(place.node, ast.Call) and name_of(place.node.func).partition(".")[0] not in SHOWS:
        for number, keyword in enumerate(place.node.keywords):
            if keyword.arg and keyword.arg not in PATIENCE:
                changed = copy.copy(place.node)
                changed.keywords = place.node.keywords[:number] + place.node.keywords[number + 1 :]
                yield changed


def swap_arguments(place: Place):
    """Swap two neighbouring arguments, unless their types differ at first sight."""
    node = place.node
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] not in SYMMETRIC | CALLERS:
        for number in range(len(node.args) - 1):
            pair = node.args[number : number + 2]
            if ast.dump(pair[0]) != ast.dump(pair[1]) and alike(*pair):
                changed = copy.copy(node)
                changed.args = [*node.args[:number], *reversed(pair), *node.args[number + 2 :]]
                yield changed


def alike(first: ast.expr, second: ast.expr) -> bool:
    """Return whether two arguments may have the same type."""
    odd = (ast.Starred, ast.Lambda, ast.JoinedStr)
    if isinstance(first, odd) or isinstance(second, odd):
        return False
    literal = (ast.Constant, ast.Tuple, ast.List, ast.Dict)
    return type(first) is type(second) or not isinstance(first, literal) and not isinstance(second, literal)


def is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def other_string(place: Place):
    """Replace a string by another string that the lesson passes to the same function or subscript."""
    taker = takes_string(place)
    if taker and is_string(place.node) and not is_bound(place.parent):
        for value in sorted(place.strings.get(taker, [])):
            if value != place.node.value:
                yield ast.Constant(value)


# ---------------------------------------------------------------- numbers


def change_constant(place: Place):
    """Change a number: a small integer by one, another number by a factor."""
    value = getattr(place.node, "value", None) if isinstance(place.node, ast.Constant) else None
    keyword = place.parent.arg if isinstance(place.parent, ast.keyword) else None
    if keyword in PATIENCE or isinstance(value, bool) or is_seconds_or_base(place):
        return
    if isinstance(value, float) or isinstance(value, int) and value >= 100:
        yield ast.Constant(2 * value)
        yield ast.Constant(value / 10 if isinstance(value, float) else value // 2)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
        if value > 1:
            yield ast.Constant(value - 1)


def is_seconds_or_base(place: Place) -> bool:
    """Return whether a number is how long something sleeps, or the 2 of 2**20."""
    if isinstance(place.parent, ast.Call):
        return name_of(place.parent.func) in {"time.sleep", "sleep", "timedelta"}
    return isinstance(place.parent, ast.BinOp) and isinstance(place.parent.op, ast.Pow) and place.field == "left"


def size_off_by_one(place: Place):
    """Replace n by n - 1, and n - 1 by n."""
    if is_size(place.node):
        yield ast.BinOp(place.node, ast.Sub(), ast.Constant(1))
    elif isinstance(place.node, ast.BinOp) and isinstance(place.node.op, ast.Sub):
        if is_size(place.node.left) and getattr(place.node.right, "value", None) == 1:
            yield place.node.left


def is_size(node: ast.AST) -> bool:
    """Return whether an expression reads the number of ranks."""
    text = ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute | ast.Call) else ""
    return text in {"n", "world.size", "WORLD_SIZE", "dist.get_world_size()"} and not is_bound(node)


def is_bound(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)


def drop_factor(place: Place):
    """Drop a factor or a divisor."""
    node = place.node
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv):
        if not is_string(node.left) and not is_string(node.right):
            yield node.left
            if isinstance(node.op, ast.Mult):
                yield node.right


# ---------------------------------------------------------------- names


def other_rank(place: Place):
    """Replace the own rank by rank 0 and by the next rank."""
    text = ast.unparse(place.node) if isinstance(place.node, ast.Name | ast.Call) else ""
    if text in {"rank", "dist.get_rank()"} and not is_bound(place.node):
        yield ast.Constant(0)
        if place.on_ranks:
            yield expression(f"({text} + 1) % dist.get_world_size()")


def other_name(place: Place):
    """Replace a name by one of the last three names of the same kind that are already bound, but not by an answer.

    A prediction is right in the run, so it equals the result that it replaces.
    """
    node = place.node
    if not isinstance(node, ast.Name) or is_bound(node):
        return
    kind = place.names.get(node.id)
    if kind is None or is_called(place) and not kind.startswith("function"):
        return
    same_kind = [
        name
        for name, its_kind in place.names.items()
        if its_kind == kind and name != node.id and not name.startswith("my_")
    ]
    for name in same_kind[-3:]:
        yield ast.Name(name, node.ctx)


def is_called(place: Place) -> bool:
    return isinstance(place.parent, ast.Call) and place.field == "func"


def training_for_validation(place: Place):
    """Replace training data by validation data, and validation data by training data."""
    node = place.node
    if isinstance(node, ast.Name) and not is_bound(node) and DATA.search(node.id):
        stem, kind = DATA.sub("*", node.id), place.names.get(node.id, "")
        for name, its_kind in place.names.items():
            same = its_kind == kind or not (kind + its_kind).count("function")
            if same and name != node.id and DATA.search(name) and DATA.sub("*", name) == stem:
                yield ast.Name(name, node.ctx)


def opposite(place: Place):
    """Replace min by max, a sum by a maximum or mean, and training mode by evaluation mode, or the reverse."""
    node = place.node
    if isinstance(node, ast.Name) and node.id in {"min", "max"}:
        yield ast.Name(OPPOSITES[node.id], node.ctx)
    elif isinstance(node, ast.Attribute) and node.attr in OPPOSITES and not is_bound(node):
        changed = copy.copy(node)
        changed.attr = OPPOSITES[node.attr]
        yield changed


def share_seed(place: Place):
    """Give all ranks the same seed where their seeds differ, and different seeds where they share a seed."""
    if place.field != "args" or not isinstance(place.parent, ast.Call):
        return
    if not SEEDS.search(ast.unparse(place.parent.func)):
        return
    ranks = [node for node in ast.walk(place.node) if isinstance(node, ast.Name) and node.id == "rank"]
    if ranks:
        changed = copy.deepcopy(place.node)
        for node in ast.walk(changed):
            if isinstance(node, ast.Name) and node.id == "rank":
                node.id = "0"
        yield expression(ast.unparse(changed))
    elif place.on_ranks:
        yield ast.BinOp(place.node, ast.Add(), expression("dist.get_rank()"))


# ---------------------------------------------------------------- tensors


def copy_or_view(place: Place):
    """Replace a copy by its tensor, a view by a copy, and a slice by the whole tensor."""
    node = place.node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args and not node.keywords:
        if node.func.attr in {"clone", "copy", "detach", "contiguous"}:
            yield node.func.value
    elif isinstance(node, ast.Call) and name_of(node.func) in {"copy.copy", "copy.deepcopy", "deepcopy"}:
        yield node.args[0]
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and not is_bound(node):
        yield node.value
    if makes_a_view(place):
        yield ast.Call(ast.Attribute(node, "clone", ast.Load()), [], [])


def makes_a_view(place: Place) -> bool:
    """Return whether a name is bound here to a view, or to a tensor that has another name already."""
    if not isinstance(place.parent, ast.Assign) or place.field != "value" or not place.on_ranks:
        return False
    node = place.node
    if isinstance(node, ast.Name):
        return place.names.get(node.id) == "tensor"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in {"view", "view_as", "reshape", "flatten", "narrow", "detach"}
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)


OPERATORS = {
    operator.__name__: operator
    for operator in (
        drop_statement,
        drop_context,
        drop_argument,
        swap_arguments,
        other_string,
        change_constant,
        size_off_by_one,
        drop_factor,
        other_rank,
        other_name,
        training_for_validation,
        opposite,
        share_seed,
        copy_or_view,
    )
}

# A mutant of these counts as theirs, even if a more general operator makes the same mutant.
SPECIAL = {"training_for_validation", "share_seed"}


# ---------------------------------------------------------------- places

LEFT_ALONE = (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Raise, ast.ExceptHandler)
HARMFUL = re.compile(
    r"^os\.(kill|killpg|remove|unlink|rmdir|rename|replace|system)$|^(shutil|subprocess)\.|\.(unlink|rmtree|kill|terminate)$"
)
NO_CODE = {"annotation", "returns", "decorator_list", "format_spec"}


def places(cell, statement: ast.stmt, index: int, lesson):
    """Yield the places in a statement of a cell, from the outside in.

    Asserts, imports, docstrings, annotations, handlers of expected errors and harmful calls are left out.
    """
    yield from _places(cell, Place(statement, cell.tree, "body", index), lesson)


def _places(cell, place, lesson):
    node = place.node
    if isinstance(node, LEFT_ALONE) or is_docstring(node) or asserts(node, lesson.asserting) or harms(node):
        return
    if hasattr(node, "lineno"):
        place.on_ranks = cell.on_ranks(node.lineno)
        place.names = names_at(place, cell, lesson)
        place.strings = lesson.strings
    yield place
    function = node if isinstance(node, FUNCTIONS) else place.function
    for name, value in ast.iter_fields(node):
        if name in NO_CODE:
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST):
                yield from _places(cell, Place(child, node, name, index, function), lesson)


def harms(node: ast.AST) -> bool:
    """Return whether a call ends processes or removes files: with a mutated argument it could hit those of others."""
    return isinstance(node, ast.Call) and HARMFUL.search(ast.unparse(node.func)) is not None


def is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def names_at(place, cell, lesson) -> dict:
    """Return name -> kind of all names that are bound before this place, in its function and outside of it."""
    names = dict(lesson.names.of_ranks if place.on_ranks else lesson.names.of_notebook)
    line = place.node.lineno
    for name, kind, at in bindings(cell.tree.body):
        if at < line and cell.on_ranks(at) == place.on_ranks:
            names[name] = kind
    if isinstance(place.function, ast.FunctionDef):
        own = [(name, kind, at) for name, kind, at in bindings(place.function.body)]
        for name in [name for name, _, _ in own] + [argument.arg for argument in place.function.args.args]:
            names.pop(name, None)
        names |= {name: kind for name, kind, at in own if at < line}
    return names
