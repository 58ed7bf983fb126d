"""Which modules of Python's standard library import which, as a graph.

`imports()` gives the one that comes with attnlab; `attnlab.tasks.standard_library` says how it is
kept, and under which licence.

    python -m attnlab.tasks.import_graph --write    # writes the file again, from this Python

**What is kept.** The modules written in Python, without tests, development tools and the hundred
codecs (`_NOT_READ`); from each module an edge to every one of them that it imports, once, wherever
the `import` stands, inside functions too. `from package import name` leads to the module `name` if
there is one, otherwise to the package. What is written in C has no source to read and is left out.
"""

import ast
from collections.abc import Container
from functools import lru_cache
from pathlib import Path

from attnlab.tasks.standard_library import LIBRARY, NamedGraph, asked, store, stored

FILE = "import_graph.json.xz"
_NOT_READ = {
    "site-packages", "dist-packages", "lib-dynload", "test", "tests", "ensurepip", "pydoc_data",
    "idlelib", "lib2to3", "turtledemo", "distutils", "encodings", "__phello__", "__pycache__",
}  # fmt: skip


@lru_cache
def imports() -> NamedGraph:
    """The graph that comes with attnlab: pairs (importing, imported) of modules."""
    return stored(FILE)


def read(library: Path) -> NamedGraph:
    """The graph of the source below a folder."""
    files = {
        _name(path.relative_to(library)): path
        for path in sorted(library.rglob("*.py"))
        if not any(_left_out(part) for part in path.relative_to(library).parts)
    }
    pairs = set()
    for name, path in files.items():
        tree = ast.parse(path.read_bytes())
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        found = {_nearest(wanted, files) for wanted in imported(tree, package)}
        pairs |= {(name, other) for other in found - {"", name}}
    return NamedGraph.of(files, pairs)


def imported(tree: ast.AST, package: str) -> set[str]:
    """The full names in all import statements of a module of ``package``; of `from a import b` it
    is `a.b`, which may be no module."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            start = [*(above if node.level else []), *([node.module] if node.module else [])]
            found |= {".".join([*start, alias.name]) for alias in node.names}
    return found


def _nearest(name: str, known: Container[str]) -> str:
    """The module of this name, or the package that it is part of; empty where there is none."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _left_out(part: str) -> bool:
    return part in _NOT_READ or part.startswith("config-")


if __name__ == "__main__" and asked("import_graph", FILE):
    store(FILE, read(LIBRARY))
