"""Which lessons have passed as they stand: the digests of what their last green run read.

``watch`` writes down, in a lesson's kernel, each file of the repository whose code it executes and
each that it opens. After a green run ``keep`` stores the digests of these files, of those that they
and the notebook import (a constant is read without executing anything), and of the weights beside
them. ``is_green`` says whether all of them are still the same. The digests are stored in pytest's
cache, which git ignores: `make check` asks them, `make test` runs every lesson.
"""

import ast
import hashlib
import json
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ("attnlab", "widgets/attnlab_widgets")
ALWAYS = (
    *("constraints.txt", "tests/browser/conftest.py", "tests/browser/test_lessons.py"),
    *("tests/browser/warm_kernels.py", "tests/browser/green.py"),
)


# ------------------------------------------------------------------------------- in the kernel


def watch(log: Path, root: Path = ROOT) -> None:
    """Write to ``log`` the files of the repository that this process executes or opens from now."""
    seen, start, out = set[str](), f"{root}{os.sep}", log.open("a", buffering=1)

    def note(name: object) -> None:
        name = os.fspath(name) if isinstance(name, os.PathLike) else name
        if isinstance(name, str) and name.startswith(start) and name not in seen:
            seen.add(name)
            out.write(f"{name}\n")

    def executed(code: CodeType, _: int) -> object:
        note(code.co_filename)
        return sys.monitoring.DISABLE  # the same code need not be noted twice

    def called(frame: FrameType, *_: Any) -> None:
        note(frame.f_code.co_filename)

    sys.addaudithook(lambda event, given: note(given[0]) if event == "open" else None)
    if sys.version_info >= (3, 12):
        monitoring = sys.monitoring
        monitoring.use_tool_id(monitoring.COVERAGE_ID, "lessons")
        monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.PY_START, executed)
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.PY_START)
    else:
        threading.settrace(called)
        sys.settrace(called)


# ---------------------------------------------------------------------------------- on the disk


def lessons(root: Path = ROOT) -> list[str]:
    """The file names of the lessons."""
    return sorted(path.name for path in (root / "notebooks").glob("*.ipynb"))


def stale(changed: Iterable[str], root: Path = ROOT) -> Iterator[str]:
    """The lessons that `make check` runs: something has changed that the last green run read.

    Without a green run on this machine it is a lesson for which anything has changed that a lesson
    may read.
    """
    anything = set(changed)
    for name in lessons(root):
        lesson, near = Path(name).stem, (f"notebooks/{name}", *ALWAYS, *PACKAGES)
        known = stored(lesson, root).exists()
        if not is_green(lesson, root) if known else any(each.startswith(near) for each in anything):
            yield lesson


def keep(lesson: str, log: Path, root: Path = ROOT) -> None:
    """After a green run: store the digests of what it read."""
    noted = {Path(line) for line in log.read_text(encoding="utf-8").splitlines()}
    found = {name: digest(root / name) for name in files_behind(lesson, noted, root)}
    stored(lesson, root).parent.mkdir(parents=True, exist_ok=True)
    stored(lesson, root).write_text(json.dumps(found, indent=0), encoding="utf-8")


def is_green(lesson: str, root: Path = ROOT) -> bool:
    """Whether the lesson has run green and nothing has changed that it read."""
    try:
        kept = json.loads(stored(lesson, root).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return all(digest(root / name) == value for name, value in kept.items())


def stored(lesson: str, root: Path) -> Path:
    return root / ".pytest_cache/d/lessons" / f"{lesson}.json"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def files_behind(lesson: str, noted: Iterable[Path], root: Path) -> set[str]:
    """The files whose change may change what a lesson shows, below ``root``."""
    notebook = root / "notebooks" / f"{lesson}.ipynb"
    code = code_of(notebook)
    executed = {path for path in noted if not {"__pycache__", ".pytest_cache"} & set(path.parts)}
    modules = {path for path in executed if path.suffix == ".py"}
    named = set(re.findall(r'"(\w+)"', code))  # attnlab.card("longformer") shows its page
    pages = {p for p in (root / "attnlab/mechanisms").glob("*/*") if p.stem in named}
    found = executed | {notebook} | set(imported(code, root)) | {root / each for each in ALWAYS}
    found |= {page / "__init__.py" if page.is_dir() else page for page in pages}
    for module in modules:
        found.update(imported(module.read_text(encoding="utf-8"), root))
        found.update(module.parent.glob("*.safetensors"))  # opened where Python does not see it
        found.add(module.parent / "static" / f"{module.stem}.js")
    return {str(path.relative_to(root)) for path in found if path.is_file()}


def code_of(notebook: Path) -> str:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    lines = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code").splitlines()
    return "\n".join(re.sub(r"^(\s*)[%!].*", r"\1pass", line) for line in lines)


def imported(code: str, root: Path) -> Iterator[Path]:
    """The files of the modules that some code imports."""
    for node in ast.walk(ast.parse(code)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            for package in PACKAGES:
                path = (root / package).parent.joinpath(*name.split("."))
                yield from (
                    p for p in (path.with_suffix(".py"), path / "__init__.py") if p.exists()
                )
