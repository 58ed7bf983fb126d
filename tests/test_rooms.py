"""The rules of the house, each a function from a folder to the sentences that say what breaks it.

They read the source (by `ast`) and import nothing, so that a fault can be planted in an empty
folder: below, every rule is shown to be silent on this repository and to speak on such a fault.
"""

import ast
import functools
import json
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

ROOT = Path(__file__).parents[1]

# Imports point down: a room may use those of a lower floor, and what is listed beside it.
FLOORS = {
    "core": 0,
    "predictions": 1,
    "structures": 1,
    "mechanisms": 2,
    "architecture": 2,
    "objectives": 2,
    "compression": 2,
    "catalog": 3,
    "models": 3,
    "parallel": 3,
    "lens": 4,
    "tasks": 4,
    "train": 4,
    "measure": 4,
    "systems": 4,
    "exercises": 4,
    "figures": 5,
    "experiments": 5,
    "pretrained": 5,
    "testing": 5,
    "widgets": 6,
    "tools": 7,
}
NEIGHBOURS = {
    ("models", "catalog"),  # a model takes its mechanism by name
    *(("systems", room) for room in ("lens", "tasks", "train")),  # a system is trained and watched
    ("experiments", "pretrained"),  # an experiment may look at a model that comes with attnlab
}
NEIGHBOURS_IN_FUNCTIONS = {  # a benchmark may build what it times
    ("measure", room) for room in ("lens", "tasks", "train", "exercises", "systems")
}
ONLY = {
    "figures": {"core", "structures"}
}  # pictures are drawn from arrays and cards, never from models
NEVER = {("widgets", "measure")}  # a widget shows what is; benchmarks are another matter
MEASURING = {"cost_lab", "survey", "cache_view"}  # but these widgets show measuring itself

# `import attnlab` must work, and be quick, on a machine that has torch and little else.
PACKAGES = {"torch", "numpy", "jaxtyping", "sympy"}
OURS = {"attnlab", "attnlab_widgets", "tools"}
KERNELS = "attnlab.core.kernels."
"""Its modules import Triton; they are themselves imported by their names, when called."""
MORE_PACKAGES = {
    "train": {"accelerate", "safetensors", "tqdm"},
    "figures": {"plotly"},
    "testing": {"pytest"},
    "widgets": {"plotly", "ipywidgets", "anywidget", "traitlets", "IPython"},
}
CLAIMS = ("attnlab", "testing")  # tests that ship; tests/test_claims.py collects them
OF_ONE_MACHINE = ("work", "root", "opt", "home")
GUARDS = {"fork_rng", "preserved_generators"}

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
HOLDING_STATEMENTS = ("body", "orelse", "finalbody", "handlers", "cases")

Rule = Callable[[Path], list[str]]
Node = TypeVar("Node", bound=ast.AST)


# ------------------------------------------------------------------------------------------ reading


def tracked(root: Path) -> list[Path]:
    """The files that git holds or would hold; every file where there is no git."""
    command = ["git", "-C", str(root), "ls-files", "-coz", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if (root / ".git").exists() and listed.returncode == 0:
        found = [root / name for name in listed.stdout.split("\0") if name]
    else:
        found = [
            path
            for path in root.rglob("*")
            if path.relative_to(root).parts[0] not in {".git", ".venv", "build", "dist"}
            and path.suffix != ".pyc"
        ]
    return sorted(path for path in found if path.is_file())


def library(root: Path) -> Iterator[tuple[Path, ast.Module]]:
    homes = (root / "attnlab", root / "widgets/attnlab_widgets", root / "tools")
    for path in tracked(root):
        if path.suffix == ".py" and any(home in path.parents for home in homes):
            yield path, tree_of(path)


def tree_of(path: Path) -> ast.Module:
    return parsed(path, path.stat().st_mtime_ns)


@functools.cache
def parsed(path: Path, _changed: int) -> ast.Module:
    """Once for all rules, which read trees and change none."""
    return ast.parse(path.read_text(encoding="utf-8"))


def where(root: Path, path: Path, node: ast.AST | None = None) -> str:
    line = f":{node.lineno}" if isinstance(node, ast.stmt | ast.expr) else ""
    return f"{path.relative_to(root)}{line}"


def module_of(root: Path, path: Path) -> str:
    parts = list(path.relative_to(root).with_suffix("").parts)
    parts = parts[1:] if parts[0] == "widgets" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """attnlab.core.shapes is in core; attnlab_widgets.x in widgets; attnlab itself is the face."""
    top, *rest = module.split(".")
    if top in ("attnlab_widgets", "tools"):
        return top.removeprefix("attnlab_")
    return rest[0] if rest else "face"


class Import(NamedTuple):
    module: str
    node: ast.stmt
    in_function: bool
    for_types: bool


def imports(root: Path, path: Path, tree: ast.Module) -> Iterator[Import]:
    """Every module that a file imports, relative ones and `from package import module` too."""
    package = module_of(root, path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node, in_function, for_types in import_statements(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            targets = [
                f"{source}.{alias.name}" if is_module(root, f"{source}.{alias.name}") else source
                for alias in node.names
            ]
        for target in targets:
            yield Import(target, node, in_function, for_types)


@functools.cache
def import_statements(tree: ast.Module) -> list[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
    """Each with whether a function and whether `if TYPE_CHECKING` is around it."""
    found: list[tuple[ast.Import | ast.ImportFrom, bool, bool]] = []
    waiting: list[tuple[ast.AST, bool, bool]] = [(tree, False, False)]
    while waiting:
        node, in_function, for_types = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append((node, in_function, for_types))
        in_function |= isinstance(node, FUNCTIONS)
        for_types |= isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for part in HOLDING_STATEMENTS:
            waiting += [(child, in_function, for_types) for child in getattr(node, part, ())]
    return found


def nodes(tree: ast.AST, *kinds: type[Node]) -> list[Node]:
    """Every node of these kinds in a tree."""
    held = _nodes(tree)
    return [node for kind in kinds for node in held.get(kind, ())]


@functools.cache
def _nodes(tree: ast.AST) -> dict[type[Any], list[Any]]:
    """All that a tree holds, by kind: looked through once for all rules."""
    held: dict[type[Any], list[Any]] = {}
    for node in ast.walk(tree):
        held.setdefault(type(node), []).append(node)
    return held


def is_module(root: Path, dotted: str) -> bool:
    base = root / "widgets" if dotted.startswith("attnlab_widgets") else root
    path = base / dotted.replace(".", "/")
    return path.with_suffix(".py").is_file() or path.is_dir()


@functools.cache
def called(node: ast.AST) -> str:
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


# ------------------------------------------------------------------------------------------- floors


def imports_point_down(root: Path) -> list[str]:
    faults = []
    for path, tree in library(root):
        room = room_of(module_of(root, path))
        if room == "face":
            continue
        if room not in FLOORS:
            faults.append(f"{where(root, path)}: the room {room!r} has no floor yet")
            continue
        for found in imports(root, path, tree):
            if not found.module.startswith(("attnlab", "tools")):
                continue
            target = room_of(found.module)
            if (room, target) in NEVER and MEASURING & {path.stem, path.parent.name}:
                continue
            if target != room and not may_import(room, target, found.in_function):
                faults.append(
                    f"{where(root, path, found.node)}: {room} must not import {found.module}"
                )
    return faults


def may_import(room: str, target: str, in_function: bool) -> bool:
    if room in ONLY:
        return target in ONLY[room]
    if (room, target) in NEVER:
        return False
    if (room, target) in NEIGHBOURS or (in_function and (room, target) in NEIGHBOURS_IN_FUNCTIONS):
        return True
    return FLOORS.get(target, 99) < FLOORS[room]


def module_level_packages_are_few(root: Path) -> list[str]:
    faults = []
    for path, tree in library(root):
        room = room_of(module_of(root, path))
        in_kernels = {"triton"} if module_of(root, path).startswith(KERNELS) else set()
        allowed = in_kernels | (
            PACKAGES | MORE_PACKAGES.get(room, set()) | {"attnlab", "attnlab_widgets", "tools"}
        )
        for found in imports(root, path, tree):
            top = found.module.split(".")[0]
            if found.in_function or found.for_types or top in sys.stdlib_module_names:
                continue
            if top not in allowed or found.module.startswith(KERNELS):
                name = found.module if top in OURS else top
                faults.append(
                    f"{where(root, path, found.node)}: import {name} in the function that uses it"
                )
    return faults


def no_imports_in_a_circle(root: Path) -> list[str]:
    """Of modules, inside a room too; an import inside a function closes a circle as any other."""
    graph: dict[str, set[str]] = {module_of(root, path): set() for path, _ in library(root)}
    for path, tree in library(root):
        module = module_of(root, path)
        graph[module] |= {found.module for found in imports(root, path, tree)} & set(graph)
    circles, seen = [], set()
    for module in sorted(graph):
        circle = shortest_circle(graph, module)
        if circle and not seen & set(circle):
            seen |= set(circle)
            circles.append(" → ".join(circle))
    return circles


def shortest_circle(graph: dict[str, set[str]], start: str) -> list[str]:
    """The modules on the shortest way from one back to itself; none if there is no such way."""
    ways, reached = [[start]], set()
    for way in ways:
        for following in sorted(graph[way[-1]] - reached):
            if following == start and len(way) > 1:
                return [*way, start]
            reached.add(following)
            ways.append([*way, following])
    return []


def page_of(module: str) -> str:
    """attnlab.mechanisms.family.page, for the page itself and for what a package holds below it."""
    return ".".join(module.split(".")[:4])


def pages(root: Path) -> dict[str, Path]:
    """Every page of the shelf, `family/mechanism`, a file or a package."""
    shelf = root / "attnlab/mechanisms"
    found = {}
    for path in tracked(root):
        parts = path.relative_to(shelf).with_suffix("").parts if shelf in path.parents else ()
        if path.suffix == ".py" and len(parts) >= 2 and parts[1] != "__init__":
            found.setdefault("/".join(parts[:2]), path)
    return found


def no_mechanism_imports_another(root: Path) -> list[str]:
    faults = []
    for path, tree in library(root):
        module = module_of(root, path)
        if not module.startswith("attnlab.mechanisms.") or module.count(".") < 3:
            continue
        for found in imports(root, path, tree):
            if found.module.startswith("attnlab.mechanisms") and (
                page_of(found.module) != page_of(module)
            ):
                faults.append(
                    f"{where(root, path, found.node)}: a page must not import {found.module}; "
                    "repeat the line, or move it to core"
                )
    return faults


def every_mechanism_has_its_mirror(root: Path) -> list[str]:
    faults = []
    for page in pages(root):
        family, name = page.split("/")
        mirror = root / f"tests/mechanisms/{family}/test_{name}.py"
        if not mirror.is_file():
            faults.append(f"attnlab/mechanisms/{page}: there is no {mirror.relative_to(root)}")
    return faults


# -------------------------------------------------------------------------------------------- tests


def every_test_is_collected(root: Path) -> list[str]:
    """pytest looks in tests/ alone, in files test_*.py, and passes over folders such as build/."""
    passed_over = ("*.egg", ".*", "_darcs", "build", "CVS", "dist", "node_modules", "venv")
    faults = []
    for path in tracked(root):
        inside = path.relative_to(root).parts
        if path.suffix != ".py" or not any(map(is_test, nodes(tree_of(path), *FUNCTIONS))):
            continue
        if inside[:2] == CLAIMS:
            continue
        if inside[0] != "tests":
            faults.append(f"{where(root, path)}: a test outside tests/ is never run")
        elif not fnmatch(path.name, "test_*.py"):
            faults.append(f"{where(root, path)}: a test in a file not named test_*.py is never run")
        elif any(fnmatch(part, pattern) for part in inside[:-1] for pattern in passed_over):
            faults.append(f"{where(root, path)}: pytest passes over this folder")
    return faults


def is_test(node: ast.AST) -> bool:
    return isinstance(node, FUNCTIONS) and node.name.startswith("test_")


def no_test_hides_another(root: Path) -> list[str]:
    """A second function of one name, and a method of a class not named Test…, are never run."""
    faults = []
    for path in tracked(root):
        if not fnmatch(path.name, "test_*.py"):
            continue
        tree = tree_of(path)
        for scope in [tree, *nodes(tree, ast.ClassDef)]:
            tests = [node for node in scope.body if is_test(node)]
            for index, test in enumerate(tests):
                if test.name in {other.name for other in tests[:index]}:
                    faults.append(f"{where(root, path, test)}: {test.name} is written twice")
            if tests and isinstance(scope, ast.ClassDef) and not scope.name.startswith("Test"):
                faults.append(f"{where(root, path, scope)}: pytest wants a class named Test…")
    return faults


# ------------------------------------------------------------------------------------------- habits


def the_library_does_not_print(root: Path) -> list[str]:
    """Commands (`__main__.py`, `…_command.py`, a function named main) speak; the rest returns."""
    faults = []
    for path, tree in library(root):
        commands = [node for node in nodes(tree, *FUNCTIONS, ast.ClassDef) if node.name == "main"]
        spoken = {id(node) for command in commands for node in ast.walk(command)}
        for node in nodes(tree, ast.Call):
            silent = not path.name.endswith(("__main__.py", "_command.py"))
            if called(node) == "print" and silent and id(node) not in spoken:
                faults.append(f"{where(root, path, node)}: the library does not print")
    return faults


def devices_are_arguments(root: Path) -> list[str]:
    return [
        f"{where(root, path, node)}: take the device as an argument; .cuda() knows one kind only"
        for path, tree in library(root)
        for node in nodes(tree, ast.Call)
        if called(node).endswith(".cuda")
    ]


def nothing_is_unpickled(root: Path) -> list[str]:
    """A pickle runs whatever its author wrote; safetensors and JSON hold data only."""
    picklers = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve"}
    faults = []
    for path, tree in library(root):
        for found in imports(root, path, tree):
            if found.module.split(".")[0] in picklers:
                faults.append(
                    f"{where(root, path, found.node)}: no {found.module}, use safetensors"
                )
        for node in nodes(tree, ast.Call):
            unsafe = called(node) in {"torch.load", "torch.save"}
            if unsafe or any(each.arg == "allow_pickle" for each in node.keywords):
                faults.append(f"{where(root, path, node)}: no {called(node)}, use safetensors")
    return faults


def generators_are_left_as_they_were(root: Path) -> list[str]:
    """A file that seeds a global generator must also put it back."""
    seeding = re.compile(
        r"^torch\.((random|cuda|mps)\.)?(manual_)?seed(_all)?$|^((np|numpy)\.)?random\.seed$|\bset_seed$"
    )
    faults = []
    for path, tree in library(root):
        if path.relative_to(root).parts[:2] == CLAIMS:  # `claims` puts the generator back
            continue
        guarded = any(
            called(item.context_expr).split(".")[-1] in GUARDS
            for node in nodes(tree, ast.With)
            for item in node.items
        )
        for node in nodes(tree, ast.Call):
            if seeding.search(called(node)) and not guarded:
                faults.append(
                    f"{where(root, path, node)}: {called(node)} changes the caller's randomness; "
                    "take a generator, or put the old state back"
                )
    return faults


def nothing_is_left_unfinished(root: Path) -> list[str]:
    """Neither as a mark that opens a comment or a line, nor as a method still to be written."""
    words = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
    marks = re.compile(rf"(?:^\W*|(?:#|//|/\*|<!--)\s*)({words.pattern})", re.MULTILINE)
    faults = [
        f"{where(root, path)}: {match[1]} stands here"
        for path in tracked(root)
        if words.search(text_of(path))  # which is looked up faster than what is prose
        if (match := marks.search(prose(path)))
    ]
    for path, tree in library(root):
        for node in nodes(tree, ast.Raise):
            if raised(node) == "NotImplementedError":
                faults.append(f"{where(root, path, node)}: finish it, or leave it out")
    return faults


def raised(node: ast.Raise) -> str:
    """The name of the exception."""
    return called(node.exc) or ast.unparse(node.exc) if node.exc else ""


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def prose(path: Path) -> str:
    """What is written for people: the comments and docstrings of Python, the cells of a notebook
    without their outputs, any other file as it is."""
    if path.suffix == ".py":
        return "\n".join([*comments(path), *docstrings(path)])
    if path.suffix == ".ipynb":
        return "\n".join("".join(cell["source"]) for cell in json.loads(text_of(path))["cells"])
    return text_of(path)


def comments(path: Path) -> list[str]:
    with path.open("rb") as file:
        return [
            token.string
            for token in tokenize.tokenize(file.readline)
            if token.type == tokenize.COMMENT
        ]


def docstrings(path: Path) -> list[str]:
    documented = nodes(tree_of(path), ast.Module, ast.ClassDef, *FUNCTIONS)
    return [ast.get_docstring(node) or "" for node in documented]


def no_machine_is_named(root: Path) -> list[str]:
    """A path that exists on one machine only; in Python's code, a string that begins with one."""
    folders = rf"/(?:{'|'.join(OF_ONE_MACHINE)})(?![\w-])"
    anywhere, at_the_start = re.compile(rf"(?<![\w.~:/)}}\]*]){folders}"), re.compile(folders)
    faults = []
    for path in tracked(root):
        found = [anywhere.search(text_of(path))]
        if path.suffix == ".py":
            if found[0]:  # what is prose takes longer to find
                found = [anywhere.search(prose(path))]
            found += [at_the_start.match(text) for text in strings(path)]
        faults += [
            f"{where(root, path)}: {machine_path[0]} is a path of one machine"
            for machine_path in found
            if machine_path
        ]
    return faults


def strings(path: Path) -> list[str]:
    """The strings in Python's code, parts of f-strings among them."""
    constants = (node.value for node in nodes(tree_of(path), ast.Constant))
    return [value for value in constants if isinstance(value, str)]


# -------------------------------------------------------------------------------------------- files


def files_are_small(root: Path) -> list[str]:
    """What is once in the history is cloned for ever."""
    faults = []
    for path in tracked(root):
        limit = 1_000_000 if path.suffix == ".ipynb" else 2_000_000
        if (size := path.stat().st_size) > limit:
            faults.append(f"{where(root, path)}: {size / 1e6:.1f} MB is over {limit / 1e6:.0f} MB")
    return faults


def no_stack_trace_is_stored(root: Path) -> list[str]:
    faults = []
    for path in tracked(root):
        if path.suffix != ".ipynb":
            continue
        for number, cell in enumerate(json.loads(text_of(path))["cells"], 1):
            for output in cell.get("outputs", ()):
                if output["output_type"] == "error" or "Traceback (most recent" in str(output):
                    faults.append(f"{where(root, path)}: cell {number} shows a stack trace")
    return faults


# ---------------------------------------------------------------------------------- this repository

RULES: list[Rule] = [
    imports_point_down,
    no_imports_in_a_circle,
    module_level_packages_are_few,
    no_mechanism_imports_another,
    every_mechanism_has_its_mirror,
    every_test_is_collected,
    no_test_hides_another,
    the_library_does_not_print,
    devices_are_arguments,
    nothing_is_unpickled,
    generators_are_left_as_they_were,
    nothing_is_left_unfinished,
    no_machine_is_named,
    files_are_small,
    no_stack_trace_is_stored,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps(rule):
    assert rule(ROOT) == []


def test_the_rules_read_the_whole_house():
    """An empty walk would keep every rule."""
    read = {room_of(module_of(ROOT, path)) for path, _ in library(ROOT)}
    assert {"face", "core", "mechanisms", "catalog", "models", "measure", "widgets"} <= read
    assert {"dense/full", "dense/multi_query"} <= set(pages(ROOT))
    names = {where(ROOT, path) for path in tracked(ROOT)}
    assert {"README.md", "pyproject.toml", ".ci/run", "tests/test_rooms.py"} <= names


def loaded_by(code: str) -> set[str]:
    """The packages that a fresh interpreter holds after running `code`."""
    show = "import sys; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    return set(done.stdout.split())


def test_import_attnlab_and_its_cards_need_little():
    """Neither Triton nor the widgets, which a card needs as soon as it is shown, among others."""
    bare = loaded_by("import torch, numpy, jaxtyping, sympy")
    more = loaded_by("import attnlab; attnlab.cards()") - bare - sys.stdlib_module_names
    assert {name for name in more if not name.startswith("_")} == {"attnlab"}


def test_a_heavy_import_is_seen():
    assert "plotly" in loaded_by("import plotly")


# ----------------------------------------------------------------------------------- planted faults

PAGE = "attnlab/mechanisms/dense/"
NOTEBOOK = {"cells": [{"cell_type": "code", "source": ["1 / 0"], "outputs": []}]}
ERROR = {"output_type": "error", "ename": "ZeroDivisionError", "evalue": "", "traceback": []}
STREAM = {"output_type": "stream", "text": ["Traceback (most recent call last):\n"]}


def notebook(*outputs: dict, source: str = "1 / 0") -> str:
    return json.dumps({"cells": [{"source": [source], "outputs": list(outputs)}]})


PLANTED = [
    # imports_point_down
    (imports_point_down, "attnlab/core/a.py", "import attnlab.lens.watch", "core must not import"),
    (imports_point_down, "attnlab/core/a.py", "from ..models import b", "attnlab.models"),
    (
        imports_point_down,
        "attnlab/lens/a.py",
        "def f():\n    from attnlab import train",
        "lens must",
    ),
    (imports_point_down, "attnlab/lens/a.py", "from attnlab import watch", "import attnlab"),
    (imports_point_down, "attnlab/figures/a.py", "from attnlab.models import x", "figures must"),
    (imports_point_down, "attnlab/figures/a.py", "import attnlab.lens", "figures must"),
    (imports_point_down, "attnlab/measure/a.py", "import attnlab.train", "measure must"),
    (imports_point_down, "attnlab/measure/a.py", "import attnlab.systems.a", "measure must"),
    (
        imports_point_down,
        "attnlab/measure/a.py",
        "def f():\n    import attnlab.experiments",
        "measure must",
    ),
    (imports_point_down, "attnlab/train/a.py", "import attnlab.experiments", "train must"),
    (imports_point_down, "widgets/attnlab_widgets/a.py", "import attnlab.measure.a", "widgets"),
    (imports_point_down, "attnlab/catalog.py", "import attnlab.models", "catalog must"),
    (imports_point_down, "attnlab/train.py", "import attnlab_widgets", "train must"),
    (imports_point_down, "attnlab/attic/a.py", "", "'attic' has no floor"),
    (
        imports_point_down,
        "attnlab/core/a.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import attnlab.models",
        "attnlab/core/a.py:3",
    ),
    # no_imports_in_a_circle
    (
        no_imports_in_a_circle,
        "attnlab/core/a.py",
        {
            "attnlab/core/a.py": "from attnlab.core import b",
            "attnlab/core/b.py": "def f():\n    from .a import g",
        },
        "attnlab.core.a → attnlab.core.b → attnlab.core.a",
    ),
    (
        no_imports_in_a_circle,
        PAGE + "a/b.py",
        {
            PAGE + "a/__init__.py": "from .b import f",
            PAGE + "a/b.py": "from .c import f",
            PAGE + "a/c.py": "import attnlab.mechanisms.dense.a",
        },
        "dense.a → attnlab.mechanisms.dense.a.b → attnlab.mechanisms.dense.a.c → attnlab",
    ),
    # module_level_packages_are_few
    (module_level_packages_are_few, "attnlab/lens/a.py", "import umap", "import umap in the"),
    (module_level_packages_are_few, "attnlab/core/a.py", "import plotly.io", "import plotly"),
    (module_level_packages_are_few, "attnlab/tasks/a.py", "from tokenizers import T", "tokenizers"),
    (module_level_packages_are_few, "attnlab/__init__.py", "import accelerate", "accelerate"),
    (module_level_packages_are_few, "attnlab/core/a.py", "import triton", "import triton in the"),
    (
        module_level_packages_are_few,
        "attnlab/mechanisms/a.py",
        "from attnlab.core.kernels.tiles import attend",
        "import attnlab.core.kernels.tiles in the",
    ),
    (
        module_level_packages_are_few,
        "attnlab/core/a.py",
        "try:\n    import einops\nexcept ImportError:\n    pass",
        "einops",
    ),
    # no_mechanism_imports_another
    (
        no_mechanism_imports_another,
        PAGE + "a.py",
        "from attnlab.mechanisms.dense.b import naive",
        "must not import attnlab.mechanisms.dense.b",
    ),
    (no_mechanism_imports_another, PAGE + "a.py", "from . import b", "attnlab.mechanisms.dense"),
    (
        no_mechanism_imports_another,
        PAGE + "a/kernel.py",
        "def f():\n    import attnlab.mechanisms.fixed.c",
        "attnlab.mechanisms.fixed.c",
    ),
    # every_mechanism_has_its_mirror
    (every_mechanism_has_its_mirror, PAGE + "a.py", "", "no tests/mechanisms/dense/test_a.py"),
    (every_mechanism_has_its_mirror, PAGE + "a/__init__.py", "", "mechanisms/dense/test_a.py"),
    # every_test_is_collected
    (every_test_is_collected, "tests/core/patterns_test.py", "def test_a(): ...", "not named"),
    (every_test_is_collected, "tests/core/helpers.py", "async def test_a(): ...", "not named"),
    (every_test_is_collected, "attnlab/core/test_a.py", "def test_a(): ...", "outside tests/"),
    (every_test_is_collected, "tests/build/test_a.py", "def test_a(): ...", "passes over"),
    (
        every_test_is_collected,
        "tests/core/shapes.py",
        "class TestA:\n    def test_a(self): ...",
        "not named",
    ),
    # no_test_hides_another
    (
        no_test_hides_another,
        "tests/test_a.py",
        "def test_a(): ...\ndef test_b(): ...\ndef test_a(): ...",
        "tests/test_a.py:3: test_a is written twice",
    ),
    (
        no_test_hides_another,
        "tests/test_a.py",
        "class Shapes:\n    def test_a(self): ...",
        "a class named Test",
    ),
    # the habits of the library
    (the_library_does_not_print, "attnlab/core/a.py", "def f():\n    print(1)", "a.py:2"),
    (devices_are_arguments, "attnlab/core/a.py", "def f(x):\n    return x.cuda()", "a.py:2"),
    (nothing_is_unpickled, "attnlab/train.py", "import pickle", "no pickle"),
    (nothing_is_unpickled, "attnlab/train.py", "from joblib import load", "no joblib"),
    (nothing_is_unpickled, "attnlab/train.py", "torch.load('a', weights_only=True)", "torch.load"),
    (nothing_is_unpickled, "attnlab/train.py", "np.load('a', allow_pickle=True)", "no np.load"),
    (generators_are_left_as_they_were, "attnlab/a.py", "torch.manual_seed(0)", "manual_seed"),
    (generators_are_left_as_they_were, "attnlab/a.py", "np.random.seed(0)", "np.random.seed"),
    (generators_are_left_as_they_were, "attnlab/a.py", "random.seed(0)", "random.seed"),
    (generators_are_left_as_they_were, "attnlab/a.py", "accelerate.utils.set_seed(0)", "set_seed"),
    # what is left behind
    (nothing_is_left_unfinished, "attnlab/a.py", "# TODO: the rest", "TODO stands here"),
    (nothing_is_left_unfinished, "tests/a.py", "x = 1  # FIXME", "FIXME stands here"),
    (nothing_is_left_unfinished, "tests/a.py", '"""A title.\n\nTODO: more\n"""', "TODO stands"),
    (nothing_is_left_unfinished, "docs.md", "- FIXME", "stands here"),
    (nothing_is_left_unfinished, "docs.md", "Done. <!-- TODO: the rest -->", "stands here"),
    (nothing_is_left_unfinished, "a.js", "f(); // TODO", "stands here"),
    (nothing_is_left_unfinished, "a.ipynb", notebook(source="# XXX"), "stands here"),
    (nothing_is_left_unfinished, "attnlab/a.py", "raise NotImplementedError", "finish it"),
    (nothing_is_left_unfinished, "attnlab/a.py", "raise NotImplementedError('b')", "finish it"),
    *(
        (no_machine_is_named, "a.md", f"see `/{folder}/there`", "a path of one machine")
        for folder in OF_ONE_MACHINE
    ),
    (no_machine_is_named, "a.md", "in /root", "a path of one machine"),
    (no_machine_is_named, "tests/a.py", "PATH = '/home/wheels'", " is a path of one machine"),
    (no_machine_is_named, "tests/a.py", "PATH = f'/home/{user}'", " is a path of one machine"),
    (no_machine_is_named, "tests/a.py", "# as in /home/there", " is a path of one machine"),
    (no_machine_is_named, "tests/a.py", '"""As in /home/there."""', " is a path of one machine"),
    (no_machine_is_named, "Makefile", "cd /home/somebody", "a path of one machine"),
    # files
    (files_are_small, "weights.safetensors", "x" * 2_000_001, "is over 2 MB"),
    (files_are_small, "notebooks/a.ipynb", "x" * 1_000_001, "is over 1 MB"),
    (no_stack_trace_is_stored, "a.ipynb", notebook(STREAM, ERROR), "cell 1 shows a stack trace"),
    (no_stack_trace_is_stored, "a.ipynb", notebook(STREAM), "cell 1 shows a stack trace"),
]


def plant(root: Path, name: str, text: str | dict[str, str]) -> None:
    """A file of that name and text, or several files."""
    for each, content in text.items() if isinstance(text, dict) else [(name, text)]:
        (root / each).parent.mkdir(parents=True, exist_ok=True)
        (root / each).write_text(content)


@pytest.mark.parametrize(
    ("rule", "name", "text", "message"),
    [pytest.param(*case, id=f"{case[0].__name__}-{number}") for number, case in enumerate(PLANTED)],
)
def test_a_planted_fault_is_found(rule, name, text, message, tmp_path):
    for room in FLOORS:
        (tmp_path / "attnlab" / room).mkdir(parents=True)
    assert rule(tmp_path) == []
    plant(tmp_path, name, text)
    faults = rule(tmp_path)
    assert len(faults) >= 1
    assert any(message in fault for fault in faults), faults
    assert all(name.split("/")[-1].split(".")[0] in fault or "dense/a" in fault for fault in faults)


def test_every_rule_has_a_planted_fault():
    assert {case[0] for case in PLANTED} == set(RULES)


KEPT = [
    (imports_point_down, "attnlab/models/a.py", "from attnlab import catalog"),
    (imports_point_down, "attnlab/measure/a.py", "def f():\n    from attnlab.train import fit"),
    (imports_point_down, "attnlab/measure/a.py", "def f():\n    import attnlab.systems.a"),
    (imports_point_down, "attnlab/measure/a.py", "from attnlab import measure\nfrom . import b"),
    (imports_point_down, "attnlab/experiments/a.py", "from attnlab.train import fit"),
    (imports_point_down, "attnlab/__init__.py", "from attnlab.lens.watch import watch"),
    (imports_point_down, "widgets/attnlab_widgets/a.py", "import attnlab.figures, attnlab.lens"),
    (imports_point_down, "widgets/attnlab_widgets/cost_lab/a.py", "import attnlab.measure"),
    (imports_point_down, "attnlab/figures/a.py", "from attnlab.core.card import Card"),
    (
        no_imports_in_a_circle,
        "",
        {
            "attnlab/core/a.py": "from attnlab.core.b import c",
            "attnlab/core/b/__init__.py": "from attnlab.core.b import c, d",
            "attnlab/core/b/c.py": "from .d import f",
            "attnlab/core/b/d.py": "import torch",
        },
    ),
    (module_level_packages_are_few, "attnlab/lens/a.py", "def f():\n    import umap"),
    (module_level_packages_are_few, "attnlab/train.py", "from accelerate import Accelerator"),
    (module_level_packages_are_few, "attnlab/core/a.py", "import json, torch.nn, numpy"),
    (module_level_packages_are_few, "attnlab/core/kernels/a.py", "import triton.language as tl"),
    (module_level_packages_are_few, "attnlab/mechanisms/a.py", "from attnlab.core import kernels"),
    (no_mechanism_imports_another, PAGE + "a/__init__.py", "from .kernel import run"),
    (no_mechanism_imports_another, PAGE + "a.py", "from attnlab.core.heads import Heads"),
    (every_test_is_collected, "tests/core/conftest.py", "def testing(): ..."),
    (every_test_is_collected, "attnlab/testing/a.py", "def test_a(): ..."),
    (generators_are_left_as_they_were, "attnlab/testing/a.py", "torch.manual_seed(0)"),
    (no_test_hides_another, "tests/test_a.py", "class TestA:\n    def test_a(self): ..."),
    (the_library_does_not_print, "attnlab/measure/__main__.py", "print(1)"),
    (the_library_does_not_print, "attnlab/measure/sweep_command.py", "print(1)"),
    (the_library_does_not_print, "tools/readme.py", "def main():\n    print(1)"),
    (generators_are_left_as_they_were, "attnlab/a.py", "torch.Generator().manual_seed(0)"),
    (
        generators_are_left_as_they_were,
        "attnlab/a.py",
        "with torch.random.fork_rng():\n    torch.manual_seed(0)",
    ),
    (
        no_machine_is_named,
        "a.md",
        "https://example.org/work/ the/root n/opt /optimal /roots ../work",
    ),
    (
        no_machine_is_named,
        "tests/a.py",
        "TEXT, PATTERN = 'cd /root', r'(/opt|/home)'",
    ),
    (
        nothing_is_left_unfinished,
        "attnlab/a.py",
        "# a TODO list is data here\nTEXT = 'TODO: the rest'",
    ),
    (nothing_is_left_unfinished, "attnlab/a.py", "raise ValueError('NotImplementedError')"),
    (nothing_is_left_unfinished, "docs.md", "Neither TODO nor FIXME may open a line."),
    (no_stack_trace_is_stored, "a.ipynb", json.dumps(NOTEBOOK)),
]


@pytest.mark.parametrize(("rule", "name", "text"), KEPT)
def test_what_is_allowed_stays_allowed(rule, name, text, tmp_path):
    for room in FLOORS:
        (tmp_path / "attnlab" / room).mkdir(parents=True)
    plant(tmp_path, name, text)
    assert rule(tmp_path) == []
