"""How heavy the house is: lines by room, what one mechanism brings to each, and its plan's health.

    python -m tools.weight                         # this tree
    python -m tools.weight --since main            # beside what it was at a commit
    python -m tools.weight --mechanism reformer tree s4d

Lines are those of the files, blank ones and docstrings included; of a notebook those of its cells.
A mechanism brings the files that are named for it, and in all other files the lines that name it.
Nothing is imported: any commit of the repository can be weighed.
"""

import argparse
import ast
import io
import json
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILT = {"node_modules", "static", "__pycache__", ".git", ".venv", "site", "course", "screenshots"}
RUN = 8
"""Lines of code in a row that are a duplicate where they stand in two places."""

LONG = 280
"""Lines that no front page is to have."""

Table = dict[str, dict[str, int]]
"""Section → row → number."""


def main(given: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.weight", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--since", metavar="COMMIT", help="also weigh this commit, as `before`")
    parser.add_argument(
        "--mechanism", nargs="*", default=["reformer", "tree"], help="whose lines are counted"
    )
    asked = parser.parse_args(given)
    now = weigh(root, asked.mechanism)
    if asked.since is None:
        print(table({"now": now}))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            check_out(root, asked.since, Path(folder))
        except ValueError as error:
            parser.error(str(error))
        print(table({asked.since: weigh(Path(folder), asked.mechanism), "now": now}))
    return 0


def check_out(root: Path, commit: str, folder: Path) -> None:
    """Write the files of a commit to a folder."""
    done = subprocess.run(
        ["git", "-C", str(root), "archive", commit], capture_output=True, check=False
    )
    if done.returncode:
        raise ValueError(f"git knows no commit {commit!r}: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as files:
        files.extractall(folder, filter="data")


def weigh(root: Path, mechanisms: Sequence[str] = ()) -> Table:
    """All numbers of a tree."""
    sources = {path.relative_to(root): lines_of(path) for path in files_of(root)}
    rooms, each = Counter[str](), Counter[str]()
    for path, lines in sources.items():
        rooms[group(path)] += len(lines)
        each[room(path)] += len(lines)
    found: Table = {"lines": dict(rooms.most_common()), "lines by room": dict(sorted(each.items()))}
    for name in mechanisms:
        found[f"lines of {name}"] = of_mechanism(sources, name)
    found["pages"] = pages(root)
    found["imports"] = arrows(root, sources)
    found[f"lines in runs of {RUN} that stand twice"] = duplicates(sources)
    return found


# ----------------------------------------------------------------------------------------- lines


def files_of(root: Path) -> Iterator[Path]:
    """The sources that somebody wrote: Python, JavaScript, styles, notebooks."""
    for folder in ("attnlab", "widgets", "tests", "tools", "docs", ".ci", "notebooks"):
        for path in sorted((root / folder).rglob("*")):
            written = path.suffix in {".py", ".js", ".css", ".ipynb"} and path.is_file()
            if written and not BUILT & set(path.relative_to(root / folder).parts[:-1]):
                yield path


def lines_of(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    return text.splitlines()


def group(path: Path) -> str:
    """One of a few large rooms."""
    top, script = path.parts[0], path.suffix in {".js", ".css"}
    if top == "widgets":
        tested = path.parts[1] == "test"
        return "tests of JavaScript" if tested else f"widgets, {'JS' if script else 'Python'}"
    return {"attnlab": "library", "notebooks": "lessons", ".ci": "tools"}.get(top, top)


def room(path: Path) -> str:
    """A folder of the library or of the tests; each of the others is one room."""
    if path.parts[0] not in ("attnlab", "tests"):
        return group(path)
    return "/".join(path.parts[:2]) if len(path.parts) > 2 else f"{path.parts[0]}/*.py"


def of_mechanism(sources: dict[Path, list[str]], name: str) -> dict[str, int]:
    """The lines that a mechanism brings to each room."""
    named = re.compile(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])", re.IGNORECASE)
    found = Counter[str]()
    for path, lines in sources.items():
        whole = any(named.search(part) for part in path.with_suffix("").parts)
        found[room(path)] += len(lines) if whole else sum(1 for x in lines if named.search(x))
    brought = {room: count for room, count in sorted(found.items()) if count}
    return {**brought, "sum": sum(brought.values())}


# ----------------------------------------------------------------------------------------- pages


def pages(root: Path) -> dict[str, int]:
    """Lines of the front pages (a page that is a package: its `__init__.py`)."""
    lengths, naive = dict[Path, int](), list[int]()
    for path in (root / "attnlab/mechanisms").glob("*/*"):
        front = path / "__init__.py" if path.is_dir() else path
        if not front.is_file() or front.suffix != ".py" or path.stem == "__init__":
            continue
        text = front.read_text(encoding="utf-8")
        if re.search(r"^CARD\b", text, re.MULTILINE):
            lengths[path] = len(text.splitlines())
            naive += [
                node.lineno
                for node in ast.parse(text).body
                if isinstance(node, ast.FunctionDef) and node.name == "naive"
            ]
    return {
        "pages": len(lengths),
        "lines of the longest": max(lengths.values(), default=0),
        f"longer than {LONG} lines": sum(lines > LONG for lines in lengths.values()),
        "median line of `naive`": int(statistics.median(naive)) if naive else 0,
    }


# --------------------------------------------------------------------------------------- imports


def arrows(root: Path, sources: dict[Path, list[str]]) -> dict[str, int]:
    """Modules of library and widgets that lead back to themselves, and imports of higher floors."""
    modules = {module(path): path for path in sources if is_library(path)}
    graph = {name: set(imports(modules[name], sources, modules)) for name in modules}
    floors = floors_of(root)
    up = sum(
        1
        for name, targets in graph.items()
        for target in targets
        if floors.get(floor(target), 0) > floors.get(floor(name), 99)
    )
    return {"modules in a circle": sum(in_circle(graph, name) for name in graph), "arrows up": up}


def is_library(path: Path) -> bool:
    written = path.parts[0] in ("attnlab", "tools") or path.parts[:2] == (
        "widgets",
        "attnlab_widgets",
    )
    return written and path.suffix == ".py"


def module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts[path.parts[0] == "widgets" :]).removesuffix(
        ".__init__"
    )


def imports(path: Path, sources: dict[Path, list[str]], known: dict[str, Path]) -> Iterator[str]:
    """The modules that one imports, inside functions too, but not for types alone."""
    tree = ast.parse("\n".join(sources[path]))
    for node in outside_of_type_checking(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                target = inner if inner in known else node.module
                if target in known:
                    yield target


def outside_of_type_checking(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield child
            yield from outside_of_type_checking(child)


def in_circle(graph: dict[str, set[str]], start: str) -> bool:
    reached, ahead = set[str](), [*graph[start] - {start}]
    while ahead:
        name = ahead.pop()
        if name == start:
            return True
        if name not in reached:
            reached.add(name)
            ahead += graph[name]
    return False


def floors_of(root: Path) -> dict[str, int]:
    """``FLOORS`` of the tree's own test of its rooms."""
    rules = root / "tests/test_rooms.py"
    for node in ast.parse(rules.read_text(encoding="utf-8")).body if rules.exists() else ():
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FLOORS":
            return dict(ast.literal_eval(node.value))
    return {}


def floor(name: str) -> str:
    """The room of a module, as ``FLOORS`` has it."""
    top, _, rest = name.partition(".")
    return {"attnlab_widgets": "widgets", "tools": "tools"}.get(top) or rest.split(".")[0]


# ------------------------------------------------------------------------------------ duplicates


def duplicates(sources: dict[Path, list[str]]) -> dict[str, int]:
    """Lines of each large room in a run that stands elsewhere, too; imports do not count."""
    runs, codes = Counter[tuple[str, ...]](), dict[Path, list[str]]()
    for path, lines in sources.items():
        if path.suffix in {".py", ".js"}:
            codes[path] = [line for line in map(str.strip, lines) if is_code(line)]
            runs.update(runs_of(codes[path]))
    found = Counter[str]()
    for path, code in codes.items():
        repeated = [at for at, run in enumerate(runs_of(code)) if runs[run] > 1]
        found[group(path)] += len({line for at in repeated for line in range(at, at + RUN)})
    return dict(sorted(found.items()))


def is_code(line: str) -> bool:
    return len(line) > 3 and not line.startswith(("#", "//", "import ", "from "))


def runs_of(code: list[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(code[at : at + RUN]) for at in range(len(code) - RUN + 1))


# ----------------------------------------------------------------------------------------- table


def table(weights: dict[str, Table]) -> str:
    """The numbers as Markdown; with two trees also their difference."""
    heads = [*weights, "change"] if len(weights) > 1 else [*weights]
    lines = []
    for section in dict.fromkeys(name for each in weights.values() for name in each):
        lines += ["", f"| {section} | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
        columns = [each.get(section, {}) for each in weights.values()]
        rows = dict.fromkeys(name for column in columns for name in column)
        for row in sorted(rows, key=lambda name: name == "sum"):
            numbers = [column.get(row) for column in columns]
            cells = ["–" if number is None else f"{number:,}" for number in numbers]
            if len(numbers) > 1:
                cells.append(f"{(numbers[-1] or 0) - (numbers[0] or 0):+,}")
            lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines[1:])


if __name__ == "__main__":
    sys.exit(main())
