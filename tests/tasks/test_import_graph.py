"""The import graph: how imports are read, and that the stored one is a graph of modules."""

import ast
import sys
from pathlib import Path

import pytest

from attnlab.tasks.import_graph import imported, imports, read


@pytest.mark.parametrize(
    ("source", "package", "names"),
    [
        ("import a, b.c as d", "p", {"a", "b.c"}),
        ("from a import b, c", "p", {"a.b", "a.c"}),
        ("from . import b", "p.q", {"p.q.b"}),
        ("from .a import b", "p.q", {"p.q.a.b"}),
        ("from ..a import b", "p.q", {"p.a.b"}),
        ("def f():\n    from . import *", "p", {"p.*"}),
        ("x = 1", "p", set()),
    ],
)
def test_import_statements(source: str, package: str, names: set[str]) -> None:
    assert imported(ast.parse(source), package) == names


def test_a_folder_is_read(tmp_path: Path) -> None:
    """Of `from p import x` the module p.x where there is one, otherwise p; loops are left out."""
    (tmp_path / "p").mkdir()
    (tmp_path / "test").mkdir()
    (tmp_path / "p/__init__.py").write_text("from . import one\nfrom p import missing\n")
    (tmp_path / "p/one.py").write_text("import sys, two\nfrom .three import name\n")
    (tmp_path / "p/three.py").write_text("from . import VALUE, one\n")
    (tmp_path / "two.py").write_text("import test.four\n")
    (tmp_path / "test/four.py").write_text("import two\n")
    found = read(tmp_path)
    assert found.names == ("p", "p.one", "p.three", "two")
    assert found.named_pairs() == {
        ("p", "p.one"), ("p.one", "two"), ("p.one", "p.three"), ("p.three", "p"),
        ("p.three", "p.one"),
    }  # fmt: skip


def test_the_stored_graph_says_what_python_does() -> None:
    """Modules of top level are here, too; what `json` imports when it is run is among its edges."""
    modules, pairs = imports()
    assert list(modules) == sorted(set(modules))
    assert len(set(pairs)) == len(pairs)
    assert all(u != v and min(u, v) >= 0 and max(u, v) < len(modules) for u, v in pairs)
    top = {module for module in modules if "." not in module}
    assert len(top & sys.stdlib_module_names) > 0.8 * len(top)  # some go with later Pythons
    named = imports().named_pairs()
    for pair in (
        ("json", "json.decoder"),
        ("json.decoder", "json.scanner"),
        ("json.decoder", "re"),
    ):
        assert pair in named
