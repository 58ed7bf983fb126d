"""Expressions of Python's standard library as trees, with the types of their values.

`expressions()` gives those that come with attnlab. They were taken from the source of the standard
library of CPython once, so they are the same on every version of Python:

    python -m attnlab.tasks.python_expressions --write    # writes the file again, from this Python

**What is kept.** Every expression and subexpression whose type is one of `TYPES` by the rules of
`type_of`, whose root leaves the type open (`OPEN_ROOTS`), and that has at most `MOST_LEAVES` leaves
and `MOST_NODES` nodes; those that are equal as trees once. The tests of the standard library are
read too, packages of others are not. `%`, `and` and `or` are not open roots: by the rules, nearly
all of them give a string, or a truth value.

**Licence.** Copyright © 2001 Python Software Foundation; all rights reserved. Python is distributed
under the PSF License Agreement, https://docs.python.org/3/license.html, which allows derivative
works. What is changed: only single expressions are kept, and each is reduced to the shape of its
syntax tree over a small vocabulary (`reduced`), without the names, numbers and texts of the
program. `python_expressions.json.xz` states its version of Python and this licence.
"""

import ast
import json
import lzma
import platform
import sysconfig
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import resources
from pathlib import Path

from attnlab.core.files import write_file
from attnlab.structures.tree import Tree
from attnlab.tasks.standard_library import asked

TYPES = ("bool", "bytes", "int", "list", "str", "tuple")
OPEN_ROOTS = ("BinOp+", "BinOp*", "Call", "IfExp", "Subscript")
MOST_LEAVES, MOST_NODES = 32, 32
FILE = "python_expressions.json.xz"
_NOT_READ = {"site-packages", "dist-packages", "ensurepip", "pydoc_data"}

# fmt: off
FUNCTIONS = {
    "bool": ("all", "any", "bool", "callable", "hasattr", "isinstance", "issubclass"),
    "bytes": ("bytes",),
    "int": ("hash", "id", "int", "len", "ord"),
    "list": ("dir", "list", "sorted"),
    "str": ("ascii", "bin", "chr", "hex", "oct", "repr", "str"),
    "tuple": ("divmod", "tuple"),
    "float": ("float",),
    "of the arguments": ("abs", "max", "min"),
}
"""By the type of what they return, the builtin functions that have tokens of their own."""

METHODS = {
    "bool": ("endswith", "isalnum", "isalpha", "isdigit", "isidentifier", "islower", "isspace",
             "isupper", "startswith"),
    "bytes": ("encode",),
    "int": ("bit_length", "rfind"),
    "list": ("rsplit", "split", "splitlines"),
    "str": ("decode",),
    "tuple": ("partition", "rpartition"),
    "of the receiver": ("capitalize", "casefold", "expandtabs", "format", "join", "ljust", "lower",
                        "lstrip", "replace", "rjust", "rstrip", "strip", "upper", "zfill"),
}
"""By the type of what they return, the methods of strings that have tokens of their own.

Those of the receiver return bytes for bytes, and otherwise a string."""

_SIGNS = {
    "Add": "+", "Sub": "-", "Mult": "*", "Div": "/", "FloorDiv": "//", "Mod": "%", "Pow": "**",
    "LShift": "<<", "RShift": ">>", "BitOr": "|", "BitAnd": "&", "BitXor": "^", "MatMult": "@",
    "USub": "-", "UAdd": "+", "Invert": "~", "Not": " not", "And": " and", "Or": " or",
}
_CONSTANTS = {"str": '""', "bytes": 'b""', "int": "0", "float": "0.0", "complex": "0j",
              "ellipsis": "...", "NoneType": "None"}
_PLAIN_TYPES = {
    '""': "str", "JoinedStr": "str", 'b""': "bytes", "0": "int", "0.0": "float", "True": "bool",
    "False": "bool", "Compare": "bool", "UnaryOp not": "bool", "List": "list", "ListComp": "list",
    "Tuple": "tuple",
}
"""The types of what its label decides alone."""
# fmt: on
_KEPT = (ast.expr, ast.comprehension, ast.keyword)
_RETURNED = {name: returned for returned, names in FUNCTIONS.items() for name in names}
_RETURNED |= {f".{name}": returned for returned, names in METHODS.items() for name in names}
_SEQUENCES = ("bytes", "list", "str", "tuple")
_CUT = (".partition", ".rpartition", ".rsplit", ".split", ".splitlines")


# ---- trees


def reduced(expression: ast.AST) -> Tree:
    """The syntax tree of an expression, over a closed vocabulary.

    Nodes have the names of Python's `ast`, operators with their sign ("BinOp+"). Leaves are
    constants ('""' is any string, "0" any integer), names of `FUNCTIONS` and, with a dot, of
    `METHODS`; every other name is "name" and every other attribute ".attr". Which comparison is
    made, and which arguments a lambda has, is left out.
    """
    if isinstance(expression, ast.Constant):
        plain = type(expression.value).__name__
        return Tree(str(expression.value) if plain == "bool" else _CONSTANTS[plain])
    if isinstance(expression, ast.Name):
        return Tree(expression.id if expression.id in _RETURNED else "name")
    parts = [part for part in ast.iter_child_nodes(expression) if isinstance(part, _KEPT)]
    children = [reduced(part) for part in parts]
    if isinstance(expression, ast.Attribute):
        method = f".{expression.attr}"
        children.append(Tree(method if method in _RETURNED else ".attr"))
    operator = getattr(expression, "op", None)
    sign = _SIGNS[type(operator).__name__] if operator else ""
    return Tree(type(expression).__name__ + sign, tuple(children))


def vocabulary(trees: Iterable[Tree]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The labels of leaves and those of nodes, sorted."""
    leaves: set[str] = set()
    nodes: set[str] = set()
    for tree in trees:
        for part in tree.subtrees():
            (leaves if part.is_leaf else nodes).add(part.label)
    return tuple(sorted(leaves)), tuple(sorted(nodes))


# ---- types


def type_of(tree: Tree) -> str | None:
    """The type of the value of a reduced expression, or None where the rules do not give it.

    The rules go from the leaves upwards. A name has no known type; a builtin function is taken to
    be the builtin, and a method with a name of `METHODS` to be that of a string or of bytes. An
    operand of unknown type is taken to fit: string + name is a string.
    """
    if tree.label in _PLAIN_TYPES:
        return _PLAIN_TYPES[tree.label]
    if tree.is_leaf:
        return None
    rule = _RULES.get(tree.label.removeprefix("BinOp"))
    return rule(tree.children) if rule else None


def _same(children: Sequence[Tree]) -> str | None:
    """The type that all of them have."""
    types = {type_of(child) for child in children}
    return types.pop() if len(types) == 1 else None


def _of_branches(children: Sequence[Tree]) -> str | None:
    return _same(children[1:])


def _of_value(children: Sequence[Tree]) -> str | None:
    return type_of(children[-1])


def _number(children: Sequence[Tree]) -> str | None:
    """Integers give an integer, floats and integers a float."""
    types = {type_of(child) for child in children}
    if types <= {"int", "bool"}:
        return "int"
    return "float" if types <= {"int", "bool", "float"} else None


def _bits(children: Sequence[Tree]) -> str | None:
    return "bool" if _same(children) == "bool" else _integer(children)


def _integer(children: Sequence[Tree]) -> str | None:
    return "int" if _number(children) == "int" else None


def _quotient(children: Sequence[Tree]) -> str | None:
    return "float" if _number(children) else None


def _remainder(children: Sequence[Tree]) -> str | None:
    """The type of `a % b`: for a string on the left the formatted string."""
    left = type_of(children[0])
    return left if left in ("str", "bytes") else _number(children)


def _sum(children: Sequence[Tree]) -> str | None:
    known = {type_of(child) for child in children} - {None}
    if len(known) == 1 and known <= {*_SEQUENCES}:
        return known.pop()
    return _number(children)


def _product(children: Sequence[Tree]) -> str | None:
    for one, other in (children, children[::-1]):
        if type_of(one) in _SEQUENCES:
            return type_of(one) if type_of(other) in ("int", "bool", None) else None
    return _number(children)


def _part(children: Sequence[Tree]) -> str | None:
    """The type of a slice, or of one item."""
    value, index = children
    whole = type_of(value)
    if index.label == "Slice":
        return whole if whole in _SEQUENCES else None
    if whole in ("str", "bytes"):
        return "str" if whole == "str" else "int"
    if value.label in ("List", "Tuple") and not value.is_leaf:
        return _same(value.children)
    if value.label == "Call" and _called(value.children[0]) in _CUT:
        return _of_receiver(value.children[0])
    return None


def _returned(children: Sequence[Tree]) -> str | None:
    function, *arguments = children
    returned = _RETURNED.get(_called(function))
    if returned == "of the receiver":
        return _of_receiver(function)
    if returned == "of the arguments":
        values = [argument for argument in arguments if argument.label != "keyword"]
        if function.label == "abs":
            return _number(values)
        return _same(values) if len(values) > 1 else None
    return returned


def _called(function: Tree) -> str:
    """The name of the function, or of the method with its dot."""
    if function.label == "Attribute":
        return function.children[-1].label
    return function.label if function.is_leaf else ""


def _of_receiver(method: Tree) -> str:
    return "bytes" if type_of(method.children[0]) == "bytes" else "str"


_RULES = {
    "+": _sum, "-": _number, "*": _product, "%": _remainder, "//": _number, "/": _quotient,
    "<<": _integer, ">>": _integer, "&": _bits, "|": _bits, "^": _bits,
    "UnaryOp-": _number, "UnaryOp+": _number, "UnaryOp~": _integer,
    "BoolOp and": _same, "BoolOp or": _same, "IfExp": _of_branches, "NamedExpr": _of_value,
    "Subscript": _part, "Call": _returned,
}  # fmt: skip


# ---- files


def from_source(source: str | bytes) -> dict[Tree, str]:
    """The expressions of a program that are kept (see above), each with its type."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old programs: invalid escapes in strings
        program = ast.parse(source)
    found: dict[Tree, str] = {}
    for part in ast.walk(program):
        if isinstance(part, ast.BinOp | ast.BoolOp | ast.Call | ast.IfExp | ast.Subscript):
            tree = reduced(part)
            small = len(tree.leaves()) <= MOST_LEAVES and len(tree.nodes()) <= MOST_NODES
            if small and tree.label in OPEN_ROOTS and not _ambiguous(part):
                type_ = type_of(tree)
                if type_ in TYPES:
                    found[tree] = type_
    return found


def _ambiguous(expression: ast.AST) -> bool:
    """Whether a method is called that only looks like one of a string.

    `os.path.split` gives a pair and `datetime.replace`, with named arguments, a date. `join`
    without an argument waits for a thread.
    """
    for part in ast.walk(expression):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            method, receiver = part.func.attr, ast.unparse(part.func.value)
            of_paths = receiver.rpartition(".")[2] in ("path", "posixpath", "ntpath")
            if method == "split" and of_paths:
                return True
            if method == "replace" and part.keywords:
                return True
            if method == "join" and len(part.args) != 1 and not of_paths:
                return True
    return False


def pack(folder: Path) -> bytes:
    """The expressions of all programs in a folder, as the file that comes with attnlab has them."""
    found: dict[Tree, str] = {}
    for file in sorted(folder.rglob("*.py")):
        if not _NOT_READ.intersection(file.relative_to(folder).parts):
            with suppress(SyntaxError, ValueError, RecursionError):  # programs that test errors
                found |= from_source(file.read_bytes())
    contents = {
        "source": f"the standard library of CPython {platform.python_version()}",
        "licence": "PSF License Agreement, https://docs.python.org/3/license.html",
        "copyright": "Copyright © 2001 Python Software Foundation; all rights reserved",
        "expressions": sorted((tree.nested() for tree in found), key=json.dumps),
    }
    return lzma.compress(json.dumps(contents, ensure_ascii=False).encode())


def unpack(packed: bytes) -> dict[Tree, str]:
    """The expressions that `pack` wrote, in its order, each with its type."""
    trees = map(Tree.of, json.loads(lzma.decompress(packed))["expressions"])
    return {tree: type_of(tree) or "" for tree in trees}


@lru_cache(maxsize=1)
def expressions() -> dict[Tree, str]:
    """The expressions that come with attnlab, each with its type, in a fixed order."""
    return unpack(resources.files(__package__).joinpath(FILE).read_bytes())


if __name__ == "__main__" and asked("python_expressions", FILE):
    write_file(Path(__file__).with_name(FILE), pack(Path(sysconfig.get_path("stdlib"))))
