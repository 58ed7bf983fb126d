"""Which modules of Python's standard library import which, as a graph.

`imports()` gives the one that comes with attnlab. It was read from the source of the standard
library of CPython once, so it is the same on every version of Python:

    python -m attnlab.tasks.import_graph    # writes the file again, from this Python

**What is kept.** The modules written in Python, without tests, development tools and the hundred
codecs (`_NOT_READ`); from each module an edge to every one of them that it imports, once, wherever
the `import` stands, inside functions too. `from package import name` leads to the module `name` if
there is one, otherwise to the package. What is written in C has no source to read and is left out.

**Licence.** Names of modules of Python, Copyright © 2001 Python Software Foundation; all rights
reserved; PSF License Agreement, https://docs.python.org/3/license.html.
"""

import ast
import json
import lzma
import platform
import sysconfig
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

FILE = "import_graph.json.xz"
_NOT_READ = {
    "site-packages", "dist-packages", "lib-dynload", "test", "tests", "ensurepip", "pydoc_data",
    "idlelib", "lib2to3", "turtledemo", "distutils", "encodings", "__phello__", "__pycache__",
}  # fmt: skip


class Imports(NamedTuple):
    """Names of modules in alphabetical order, and pairs (importing, imported) of their places."""

    modules: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]


@lru_cache
def imports() -> Imports:
    """The graph that comes with attnlab."""
    packed = (resources.files("attnlab.tasks") / FILE).read_bytes()
    stored = json.loads(lzma.decompress(packed))
    return Imports(tuple(stored["modules"]), tuple((u, v) for u, v in stored["pairs"]))


def read(library: Path) -> Imports:
    """The graph of the source below a folder."""
    files = {
        _name(path.relative_to(library)): path
        for path in sorted(library.rglob("*.py"))
        if not any(_left_out(part) for part in path.relative_to(library).parts)
    }
    modules = tuple(sorted(files))
    place = {name: index for index, name in enumerate(modules)}
    pairs = set()
    for name, path in files.items():
        tree = ast.parse(path.read_bytes())
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for wanted in imported(tree, package):
            found = _nearest(wanted, place)
            if found not in ("", name):
                pairs.add((place[name], place[found]))
    return Imports(modules, tuple(sorted(pairs)))


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


def _nearest(name: str, known: dict[str, int]) -> str:
    """The module of this name, or the package that it is part of; empty where there is none."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _left_out(part: str) -> bool:
    return part in _NOT_READ or part.startswith("config-")


def _write() -> None:
    found = read(Path(sysconfig.get_path("stdlib")))
    stored = {
        "python": platform.python_version(),
        "licence": "PSF License Agreement, https://docs.python.org/3/license.html",
        "modules": found.modules,
        "pairs": found.pairs,
    }
    Path(__file__).with_name(FILE).write_bytes(lzma.compress(json.dumps(stored).encode()))


if __name__ == "__main__":
    _write()
