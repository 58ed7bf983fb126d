"""Which functions of some modules of Python's standard library call which, as a graph.

`calls()` gives the one that comes with attnlab; `attnlab.tasks.standard_library` says how it is
kept, and under which licence.

    python -m attnlab.tasks.call_graph --write    # writes the file again, from this Python

**Nodes** are the functions of `MODULES` and the methods of their classes, such as
`shutil.copytree` and `pprint.PrettyPrinter.format`, that call one of them or are called by one.
What a function inside a function or a lambda calls counts for the function or method around it. A
function that is defined several times (under `if`, or as the getter and setter of a property) is
one node. Classes inside functions and inside classes are left out.

**Edges** lead from caller to callee, where the syntax tree tells the callee inside the module:

    f()             the function f of the module
    C()             the method `__init__` of its class C
    C.m()           the method m of its class C
    self.m()        the method m of the class around it; self is whatever the first parameter of a
                    method is called, in a class method the class
    super().m()     the method m of the bases of that class; also super(C, self).m()

A method that the class does not have is looked for in its bases in the same module, from left to
right. However often one function calls another, there is one edge. A function that calls itself
has an edge to itself.

**What is not in it.** Four of five calls that stand in these functions: of builtins and of other
modules; of methods of any other object (`self.file.close()`, the m of `C().m()`); of names that are
bound in the calling function, parameters above all. Neither are functions that are passed on
without being called, and calls outside functions, in decorators and in default values of
parameters. `self.m()` leads to the method of the class in which it is written, even where a
subclass has another.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from attnlab.tasks.standard_library import LIBRARY, NamedGraph, asked, store, stored

FILE = "call_graph.json.xz"
MODULES = (
    "argparse", "difflib", "doctest", "inspect", "plistlib", "pprint", "shutil", "subprocess",
)  # fmt: skip
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@lru_cache
def calls() -> NamedGraph:
    """The graph that comes with attnlab: pairs (caller, callee) of functions."""
    return stored(FILE)


def read(library: Path) -> NamedGraph:
    """The graph of the source of `MODULES` in a folder."""
    pairs = {
        (f"{module}.{caller}", f"{module}.{callee}")
        for module in MODULES
        for caller, callee in called(ast.parse((library / f"{module}.py").read_bytes()))
    }
    return NamedGraph.of((name for pair in pairs for name in pair), pairs)


def called(module: ast.Module) -> set[tuple[str, str]]:
    """The pairs (caller, callee) of the functions and methods of one module, by name."""
    known = _Definitions(module)
    return {
        (name, callee)
        for name, function in known.functions
        for callee in known.called_in(name, function)
    }


class _Definitions:
    """The functions and methods of a module with their names, and its classes: each with itself and
    those of its bases that stand above it in the module."""

    def __init__(self, module: ast.Module) -> None:
        self.functions: list[tuple[str, _Function]] = []
        self.classes: dict[str, list[str]] = {}
        for found in _defined(module):
            if not isinstance(found, ast.ClassDef):
                self.functions.append((found.name, found))
                continue
            bases = [base.id for base in found.bases if isinstance(base, ast.Name)]
            above = [name for base in bases for name in self.classes.get(base, ())]
            self.classes[found.name] = [found.name, *above]
            for method in _defined(found):
                if not isinstance(method, ast.ClassDef):
                    self.functions.append((f"{found.name}.{method.name}", method))
        self.names = {name for name, _ in self.functions}

    def called_in(self, name: str, function: _Function) -> set[str]:
        """The functions and methods that one of them calls."""
        body = ast.Module(function.body, [])
        bound = Counter(_bound([*_inside(function.args), *_inside(body)]))
        own = self.classes.get(name.rpartition(".")[0], [])
        visible = {found: line for found, line in self.classes.items() if found not in bound}
        objects = {**visible, "super()": own[1:]}
        receiver = _receiver(function)
        if own and bound[receiver] == 1:
            objects |= {receiver: own, f"super({own[0]}, {receiver})": own[1:]}
        found = set()
        for node in _inside(body):
            match node:
                case ast.Call(func=ast.Attribute(value=on, attr=called)):
                    found.add(self._method(objects.get(ast.unparse(on), []), called))
                case ast.Call(func=ast.Name(id=called)) if called not in bound:
                    method = self._method(visible.get(called, []), "__init__")
                    found.add(called if called in self.names else method)
        return found - {""}

    def _method(self, line: list[str], name: str) -> str:
        """The method of this name of the first of some classes that has it; empty if none has."""
        methods = (f"{of}.{name}" for of in line)
        return next((method for method in methods if method in self.names), "")


def _defined(within: ast.AST) -> Iterator[_Function | ast.ClassDef]:
    """The functions and classes defined in a module or class, also under `if` and `try`."""
    for node in ast.iter_child_nodes(within):
        if isinstance(node, _Function | ast.ClassDef):
            yield node
        else:
            yield from _defined(node)


def _inside(within: ast.AST) -> Iterator[ast.AST]:
    """All below a node, without what stands in classes."""
    for node in ast.iter_child_nodes(within):
        yield node
        if not isinstance(node, ast.ClassDef):
            yield from _inside(node)


def _bound(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names that parameters, assignments, definitions and imports give to something."""
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.alias(asname=str(name)):
                yield name
            case ast.alias(name=name):
                yield name.partition(".")[0]
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name


def _receiver(function: _Function) -> str:
    """What the first parameter of a method is called; empty where it is not the object or class."""
    first = [*function.args.posonlyargs, *function.args.args][:1]
    static = "staticmethod" in map(ast.unparse, function.decorator_list)
    return "" if static or not first else first[0].arg


if __name__ == "__main__" and asked("call_graph", FILE):
    store(FILE, read(LIBRARY))
