"""A lesson read as a teacher reads it: its exercises, its predictions, its recap."""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab.predictions import Prediction
from attnlab.predictions import prediction as by_key

Cell = Mapping[str, Any]
Notebook = Mapping[str, Any]

DETAILS = re.compile(r"<details><summary>(.*?)</summary>\n*(.*?)\n*</details>\n*", re.DOTALL)
_HEADING = re.compile(r"^### (\d+) · (.*?) — ([●○]{3}), (\d+) minutes\s*$", re.MULTILINE)
_PREDICT = re.compile(r"^predict\(\"([^\"]+)\"", re.MULTILINE)
_CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Exercise:
    """One exercise with an instant check. ``level`` is ●○○, ●●○ or ●●●."""

    number: int
    title: str
    level: str
    minutes: int
    prompt: str
    hint: str
    solution: str
    stub: str
    check: str

    @property
    def points(self) -> int:
        return self.level.count("●")

    @property
    def names(self) -> list[str]:
        """What the solution defines, and the attempt is asked to define."""
        return sorted(_bound(ast.parse(self.solution).body))


@dataclass(frozen=True)
class Design:
    """An experiment to design, which a person marks. ``example`` is an answer that would do."""

    number: int
    title: str
    level: str
    minutes: int
    prompt: str
    hint: str
    example: str

    @property
    def points(self) -> int:
        return self.level.count("●")


def read(path: Path) -> Notebook:
    found: Notebook = json.loads(path.read_text(encoding="utf-8"))
    return found


def source(cell: Cell) -> str:
    return "".join(cell["source"])


def tags(cell: Cell) -> list[str]:
    return list(cell["metadata"].get("tags", []))


def is_attempt(cell: Cell) -> bool:
    """Whether it is the cell in which an exercise is solved."""
    return bool(cell["cell_type"] == "code" and "exercise" in tags(cell))


def exercises(notebook: Notebook) -> Iterator[tuple[int, Exercise]]:
    """Each exercise with the place of its cell."""
    cells = notebook["cells"]
    for place, cell in enumerate(cells):
        if is_attempt(cell):
            yield place, _exercise(cells, place)


def _exercise(cells: list[Cell], place: int) -> Exercise:
    before = "\n\n".join(source(c) for c in cells[max(0, place - 3) : place] if _is_text(c))
    headings = list(_HEADING.finditer(before))
    if not headings:
        raise ValueError(f"cell {place}: no heading such as '### 1 · Title — ●○○, 5 minutes'")
    number, title, level, minutes = headings[-1].groups()
    folded = _folded_after(cells, place)
    solution = "".join(_CODE.findall(folded["Solution"])).strip()
    stub, check = _parted(source(cells[place]), solution)
    return Exercise(
        int(number),
        title,
        level,
        int(minutes),
        before[headings[-1].end() :].strip(),
        folded.get("Hint", ""),
        solution,
        stub,
        check,
    )


def designs(notebook: Notebook) -> Iterator[Design]:
    """The exercises without a check: a heading, and in the same text an answer that would do."""
    checked = {exercise.number for _, exercise in exercises(notebook)}
    for cell in notebook["cells"]:
        words = source(cell) if _is_text(cell) else ""
        for heading in _HEADING.finditer(words):
            number, title, level, minutes = heading.groups()
            if int(number) not in checked:
                rest = words[heading.end() :]
                folded = dict(DETAILS.findall(rest))
                example = next(text for name, text in folded.items() if "good answer" in name)
                prompt = rest.split("<details>")[0].strip()
                hint = folded.get("Hint", "")
                yield Design(int(number), title, level, int(minutes), prompt, hint, example)


def _parted(attempt: str, solution: str) -> tuple[str, str]:
    """Split an attempt into the stub, which defines what the solution defines, and the check."""
    bound = _bound(ast.parse(solution).body)
    body = ast.parse(attempt).body
    replaced = [one for one in body if _bound([one]) & bound]
    rest = [one for one in body if one not in replaced]
    stub = "\n\n".join(ast.get_source_segment(attempt, one) or "" for one in replaced)
    return stub, "\n".join(ast.unparse(one) for one in rest)


def _bound(statements: Sequence[ast.stmt]) -> set[str]:
    """The names that statements assign or define."""
    found: set[str] = set()
    for one in statements:
        if isinstance(one, ast.FunctionDef | ast.ClassDef):
            found.add(one.name)
        elif isinstance(one, ast.Assign):
            nodes = [node for target in one.targets for node in ast.walk(target)]
            found |= {node.id for node in nodes if isinstance(node, ast.Name)}
    return found


def _folded_after(cells: list[Cell], place: int) -> dict[str, str]:
    """What is folded below an exercise, by its title."""
    found: dict[str, str] = {}
    for cell in cells[place + 1 :]:
        if not _is_text(cell) or "Solution" in found:
            break
        for title, content in DETAILS.findall(source(cell)):
            found.setdefault(title, content)
    if "Solution" not in found:
        raise ValueError(f"cell {place}: no folded solution follows the exercise")
    return found


def _is_text(cell: Cell) -> bool:
    return bool(cell["cell_type"] == "markdown")


def prediction(cell: Cell) -> Prediction | None:
    """The prediction that a cell asks for, or None."""
    found = _PREDICT.search(source(cell)) if cell["cell_type"] == "code" else None
    return by_key(found[1]) if found else None


def imports(notebook: Notebook) -> str:
    """The import lines of a lesson and what it sets in the environment: its solutions need both."""
    return "\n".join(
        line
        for cell in notebook["cells"]
        if cell["cell_type"] == "code" and not is_attempt(cell)
        for line in source(cell).splitlines()
        if re.match(r"import |from |os\.environ\[", line)
    )
