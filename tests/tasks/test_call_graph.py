"""The call graph: how calls are read, and that the stored one says what is called when it runs."""

import ast
import difflib
import inspect
import shutil
import sys
from pathlib import Path
from types import FrameType

import pytest

from attnlab.tasks.call_graph import MODULES, called, calls, read
from attnlab.tasks.standard_library import LIBRARY

BASES = """
class A:
    def __init__(self): pass
    def m(self): pass
    def n(self): pass
class B(A):
    def m(self): pass
class O:
    def m(self): pass
    def o(self): pass
class C(other.A, B, O):
"""


@pytest.mark.parametrize(
    ("body", "callees"),
    [
        ("g()", {"g"}),
        ("g(); g(g())", {"g"}),
        ("f()", {"f"}),
        ("return [g() for x in y], lambda: h()", {"g", "h"}),
        ("def inner(a=h()):\n        g()", {"g", "h"}),
        ("A()", {"A.__init__"}),
        ("A.m(x)", {"A.m"}),
        ("Late.m(x)", {"Late.m"}),
        ("A().m()", {"A.__init__"}),
        ("map(g, x), x.m(), len(x), other.g()", set()),
        ("self.m(), super().m()", set()),
        ("class Inner:\n        def m(self): g()", set()),
    ],
)
def test_calls_of_a_function(body: str, callees: set[str]) -> None:
    module = f"""
def f(x, y=h()):
    {body}
try:
    import other
    def g(): pass
except ImportError:
    async def h(): pass
    class A:
        def __init__(self): pass
        def m(self): pass
class Late:
    def m(self): pass
g()
"""
    assert called(ast.parse(module)) == {("f", callee) for callee in callees}


@pytest.mark.parametrize(
    "binding",
    [
        "g = 3",
        "def g(): pass",
        "async def g(): pass",
        "class g: pass",
        "import g.x",
        "from x import y as g",
        "(lambda g: 3)",
        "[0 for g in x]",
        "try: pass\n    except E as g: pass",
        "match x:\n        case [g]: pass",
    ],
)
def test_a_name_that_is_bound_in_the_function_is_not_the_module_s(binding: str) -> None:
    function = "def g(): pass\ndef f(x):\n    {}\n    g()"
    method = "class g:\n    def __init__(x): x\n    def m(x): x\ndef f(x):\n    {}\n    g(), g.m()"
    for module, callees in ((function, {"g"}), (method, {"g.m", "g.__init__"})):
        assert called(ast.parse(module.format("pass"))) == {("f", callee) for callee in callees}
        assert called(ast.parse(module.format(binding))) == set()
        assert called(ast.parse(module.format("pass").replace("f(x)", "f(*g)"))) == set()


@pytest.mark.parametrize(
    ("method", "callees"),
    [
        ("def m(self): self.n()", {"A.n"}),
        ("def n(self): self.m(), self.o()", {"B.m", "O.o"}),
        ("def m(this): this.m(), self.n()", {"C.m"}),
        ("def n(self, /): self.m(), self.other(), self.x.m(), self()", {"B.m"}),
        ("def m(self): super().m(), super().n()", {"B.m", "A.n"}),
        ("def m(self): super(C, self).__init__(), super(B, self).n()", {"A.__init__"}),
        ("def m(self): C(), B.n(self), A.m(self)", {"A.__init__", "A.n", "A.m"}),
        ("@classmethod\n    def m(cls): cls.n(), cls()", {"A.n"}),
        ("@staticmethod\n    def m(self): self.n()", set()),
        ("def m(*self): self.n()", set()),
        ("def m(self):\n        def inner(self): self.n()", set()),
        ("def m(self):\n        def inner(x): self.n()", {"A.n"}),
        ("m = A.m()", set()),
    ],
)
def test_calls_of_a_method(method: str, callees: set[str]) -> None:
    found = called(ast.parse(f"{BASES}    {method}"))
    assert {callee for _, callee in found} == callees
    assert {caller for caller, _ in found} <= {"C.m", "C.n"}


def test_a_folder_is_read(tmp_path: Path) -> None:
    """Functions without calls are left out, one that calls itself is not; getter and setter are one
    function."""
    for module in MODULES:
        (tmp_path / f"{module}.py").write_text("def alone(): print()\n")
    (tmp_path / "pprint.py").write_text("def up(): down()\ndef down(): alone\ndef alone(): pass\n")
    (tmp_path / "shutil.py").write_text(
        "class C:\n    @property\n    def x(self): self.y()\n    @x.setter\n"
        "    def x(self, z): self.z()\n    def y(self): self.y()\n    def z(self): pass\n"
    )
    (tmp_path / "other.py").write_text("def f(): f()\n")
    found = read(tmp_path)
    assert found.names == ("pprint.down", "pprint.up", "shutil.C.x", "shutil.C.y", "shutil.C.z")
    assert found.pairs == ((1, 0), (2, 3), (2, 4), (3, 3))


def test_what_is_called_when_it_runs_is_found(tmp_path: Path) -> None:
    """Of this Python, whichever it is: functions that call others by their names, and methods that
    call those of the same object."""
    modules = {module.__file__: module.__name__ for module in (difflib, inspect, shutil)}
    seen: set[tuple[str, str]] = set()

    def observe(frame: FrameType, event: str, _: object) -> None:
        callee, caller = frame.f_code, frame.f_back.f_code
        if event == "call" and callee.co_filename == caller.co_filename in modules:
            module = modules[callee.co_filename]
            seen.add((f"{module}.{caller.co_qualname}", f"{module}.{callee.co_qualname}"))

    (tmp_path / "folder").mkdir()
    before = sys.getprofile()
    sys.setprofile(observe)
    try:
        inspect.getsource(shutil.copy)
        inspect.signature(shutil.copytree)
        shutil.rmtree(tmp_path / "folder")
        difflib.SequenceMatcher(None, "abcd", "bcde").get_opcodes()
    finally:
        sys.setprofile(before)
    inner = {pair for pair in seen if not any("<" in name for name in pair)}
    inner -= {
        pair for pair in inner if pair[1].startswith(("inspect.Signature", "inspect.Parameter"))
    }
    assert len(inner) > 10
    assert inner <= read(LIBRARY).named_pairs() | {
        ("inspect.getblock", "inspect.BlockFinder.tokeneater"),  # methods of another object
    }


def test_the_stored_graph() -> None:
    functions, pairs = calls()
    assert {name.partition(".")[0] for name in functions} == set(MODULES)
    assert {place for pair in pairs for place in pair} == set(range(len(functions)))
    assert sum(u == v for u, v in pairs) == 9
    assert calls().named_pairs() >= {
        ("shutil.copytree", "shutil._copytree"),
        ("pprint.pprint", "pprint.PrettyPrinter.__init__"),
        ("argparse._StoreAction.__init__", "argparse.Action.__init__"),
        ("pprint.PrettyPrinter.pformat", "pprint.PrettyPrinter._format"),
        ("inspect.walktree", "inspect.walktree"),
    }
