"""Which cells of a lesson print what a training in the same lesson has made: read from their code.

Processors round differently, and a training multiplies the differences: after some hundred steps
its numbers are no facts. The trace is coarse: a statement that trains, or that reads a name which a
training has made, has made all names that it writes. A function trains if it calls `fit`, or
`.step()` of an optimizer, or a function of attnlab or of the lesson that does.
"""

import ast
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FITS = (
    *("attnlab.train.fit", "attnlab.exercises.stages.train"),
    "attnlab.experiments.loop.descend",
    "attnlab.lens.attention_probes.attention_probe",
    "attnlab.lens.edge_probes.edge_probe",
)
EXPERIMENTS = "attnlab.experiments."
GRID_TRAINERS = {"train", "film"}
KEEPS = {"append", "extend", "update", "setdefault", "load_state_dict"}
Scope = ast.FunctionDef | ast.For | ast.With | ast.Try | ast.ClassDef


def printing_cells(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The code cells with a `print` of something that a training above has made."""
    lesson, found = _Lesson(), []
    for cell in cells:
        printed = [lesson.reads(statement) for statement in _statements(cell)]  # follow them all
        found += [cell] * any(printed)
    return found


def first_training(cells: Sequence[dict[str, Any]]) -> int | None:
    """The number of the first cell that has made something by a training."""
    lesson = _Lesson()
    for number, cell in enumerate(cells):
        for statement in _statements(cell):
            lesson.reads(statement)
        if lesson.trained:
            return number
    return None


def _statements(cell: dict[str, Any]) -> list[ast.stmt]:
    """None of prose and of exercises, which are empty."""
    if cell["cell_type"] != "code" or "exercise" in cell["metadata"].get("tags", []):
        return []
    text = re.sub(r"^(\s*)[%!].*$", r"\1pass", "".join(cell["source"]), flags=re.MULTILINE)
    return ast.parse(text).body


class _Lesson:
    """The names that stand for trained things, statement by statement."""

    def __init__(self, *, library: bool = False) -> None:
        self.library = library  # a module of the library itself
        self.trained: set[str] = set()
        self.functions: dict[str, ast.AST] = {}
        self.trainers: set[str] = set()  # those of these functions that train
        self.imported: dict[str, str] = {}  # name: dotted path

    def reads(self, statement: ast.stmt) -> bool:
        """Follow the statement; does it print something trained?"""
        for node in ast.walk(statement):
            if isinstance(node, ast.Import | ast.ImportFrom):
                above = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                self.imported |= {one.asname or one.name: above + one.name for one in node.names}
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            self.functions[statement.name] = statement
            self.trainers.discard(statement.name)
            if any(map(self.trains, _calls(statement))):
                self.trainers.add(statement.name)
            return False
        trainings = [call for call in _calls(statement) if self.trains(call)]
        live = bool(trainings or self._loaded(statement) & self.trained)
        written = _names(statement, ast.Store) - _targets(statement)
        if live:
            for node in ast.walk(statement):
                changes = isinstance(node, ast.Call) and _called(node) in KEEPS
                stores = isinstance(getattr(node, "ctx", None), ast.Store)
                if changes or (stores and not isinstance(node, ast.Name)):
                    written |= _root(node)
            written |= set().union(*(_root(each) for call in trainings for each in call.args[:1]))
            self.trained |= written - self.imported.keys()
        else:
            self.trained -= written
        return live and any(_called(call) == "print" for call in _calls(statement))

    def trains(self, call: ast.Call) -> bool:
        name = _called(call)
        if isinstance(call.func, ast.Name) and name in {*self.functions, *self.trainers}:
            return name in self.trainers
        if isinstance(call.func, ast.Attribute) and name == "step" and not call.args:
            return True
        if isinstance(call.func, ast.Attribute) and name in GRID_TRAINERS and len(call.args) > 1:
            return True  # of a grid of an experiment
        first, _, rest = ast.unparse(call.func).partition(".")
        path = f"{self.imported.get(first, '')}.{rest}".rstrip(".")
        if path in FITS or self.library or not path.startswith(EXPERIMENTS):
            return path in FITS
        return path in _training_functions()

    def _loaded(self, statement: ast.AST) -> set[str]:
        """The names that it reads and has not written itself, those in called functions, too."""
        found: set[str] = set()
        todo = _free(statement)
        while todo:
            found.add(name := todo.pop())
            if name in self.functions:
                todo |= _free(self.functions[name]) - found
        return found


@cache
def _training_functions() -> frozenset[str]:
    """The dotted paths of the functions of the experiments that train."""
    found: set[str] = set()
    for file in sorted((ROOT / "attnlab/experiments").glob("*.py")):
        module, body = _Lesson(library=True), ast.parse(file.read_text(encoding="utf-8")).body
        functions = [one for one in body if isinstance(one, ast.FunctionDef)]
        for one in (*body, *functions, *functions):  # one may call another that stands below
            if isinstance(one, ast.Import | ast.ImportFrom | ast.FunctionDef):
                module.reads(one)
            elif isinstance(one, ast.Assign):  # train, rows = GRID.train, GRID.rows
                module.trainers |= _of_a_grid(one)
        found |= {f"attnlab.experiments.{file.stem}.{name}" for name in module.trainers}
    return frozenset(found)


def _of_a_grid(statement: ast.Assign) -> set[str]:
    """The names that the statement gives to ``train`` and ``film`` of a grid."""
    names, values = (
        each.elts if isinstance(each, ast.Tuple) else [each]
        for each in (statement.targets[0], statement.value)
    )
    return {
        name.id
        for name, value in zip(names, values, strict=False)
        if isinstance(name, ast.Name)
        and isinstance(value, ast.Attribute)
        and value.attr in GRID_TRAINERS
    }


def _calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _names(tree: ast.AST, kind: type[ast.expr_context]) -> set[str]:
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {node.id for node in nodes if isinstance(node.ctx, kind)}


def _targets(tree: ast.AST) -> set[str]:
    """The names that live only within a comprehension."""
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.comprehension))
    return {name for loop in loops for name in _names(loop.target, ast.Store)}


def _free(tree: ast.AST) -> set[str]:
    """The names that it reads, without arguments and what its own loops and blocks write."""
    inner = _targets(tree) | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    if isinstance(tree, Scope):
        inner |= _names(tree, ast.Store)
    return _names(tree, ast.Load) - inner


def _root(node: ast.AST) -> set[str]:
    """The name that an expression like `name.part[3].append(…)` begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()
