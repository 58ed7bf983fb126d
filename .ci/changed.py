"""The tests that `make check` runs: prints pytest's arguments for what changed since a commit.

    python .ci/changed.py [commit]    # main by default; what is not committed counts, too

A page of the shelf brings its claims and its mirror test; core, catalogue or the claims themselves
bring the claims of one page of each family; any other module brings the test of its name, or its
room's tests if none has it; a lesson brings the tests of lessons; a test brings itself. The rules
of the house always run. What needs a browser is left to `make test`.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CLAIMS = "tests/test_claims.py"
SHELF = Path("attnlab/mechanisms")
DERIVED = ("tests/house/test_readme.py", "tests/widgets/test_survey.py")  # follow from the cards
TESTED_BY = {
    "Makefile": "tests/house/test_make.py",
    "README.md": "tests/house/test_readme.py",
    "MECHANISMS.md": "tests/house/test_readme.py",
    "pyproject.toml": "tests/house/test_versions.py",
    "constraints.txt": "tests/house/test_versions.py",
    "tests/conftest.py": "tests/house/test_budgets.py",
    ".ci/changed.py": "tests/house/test_changed.py",
    ".ci/lessons.py": "tests/house/test_run_lessons.py",
}


def changed_since(root: Path, commit: str) -> set[str]:
    """The files that differ from where this branch left that commit, new ones included."""
    base = git(root, "merge-base", commit, "HEAD")[0]
    new = git(root, "ls-files", "--others", "--exclude-standard")
    return {*git(root, "diff", "--name-only", base), *new}


def git(root: Path, *command: str) -> list[str]:
    done = subprocess.run(
        ["git", "-C", str(root), *command], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"git {command[0]} failed: {done.stderr.strip()}")
    return done.stdout.splitlines()


def arguments(root: Path, changed: Iterable[str]) -> list[str]:
    """What pytest is to run for these files."""
    tests, pages = {"tests/test_rooms.py"}, set[str]()
    for name in changed:
        pages.update(pages_for(root, Path(name)))
        tests.update(tests_for(root, Path(name)))
    claims = [CLAIMS, f"--pages={','.join(sorted(pages))}"] if pages else []
    return [*sorted(test for test in tests if (root / test).exists()), *claims]


def pages_for(root: Path, path: Path) -> set[str]:
    """The pages, as `family/mechanism`, whose claims are asked."""
    shelf = sorted(page for found in (root / SHELF).glob("*/*") if (page := page_at(found)))
    if SHELF in path.parents:
        return {"/".join(path.with_suffix("").parts[2:4])} & set(shelf)
    shared = {("attnlab", "core"), ("attnlab", "catalog.py"), ("attnlab", "testing")}
    if path.parts[:2] in shared or str(path) == CLAIMS:
        return set({page.split("/")[0]: page for page in reversed(shelf)}.values())
    return set()


def page_at(path: Path) -> str:
    """A file, or a folder that is a package; empty for what is no page."""
    is_page = path.suffix == ".py" or (path / "__init__.py").is_file()
    return f"{path.parent.name}/{path.stem}" if is_page and path.stem != "__init__" else ""


def tests_for(root: Path, path: Path) -> Iterator[str]:
    """The test files and folders, claims apart; some may not exist."""
    if str(path) in TESTED_BY:
        yield TESTED_BY[str(path)]
    elif SHELF in path.parents:
        family, page = [*path.with_suffix("").parts[2:4], ""][:2]
        yield from ("tests/test_catalog.py", f"tests/mechanisms/{family}/test_{page}.py")
        yield from DERIVED
    elif path.parts[0] in {"attnlab", "widgets"}:
        yield of_module(root, path)
    elif path.parts[0] == "notebooks":
        yield from ("tests/test_lessons.py", "tests/house/test_readme.py")
    elif path.parts[0] == "tests" and path.parts[1] != "browser" and str(path) != CLAIMS:
        yield from near(root, path)


def near(root: Path, path: Path) -> Iterator[str]:
    """A test itself, the folder of a conftest.py, the tests beside a helper that name it."""
    if path.name.startswith("test_"):
        yield str(path)
    elif path.name == "conftest.py":
        yield str(path.parent)
    else:
        beside = (root / path).parent.glob("test_*.py")
        named = (test for test in beside if path.stem in test.read_text(encoding="utf-8"))
        yield from (str(test.relative_to(root)) for test in named)


def of_module(root: Path, path: Path) -> str:
    """The test of a module's name, else its room's folder of tests, else the catalogue's test."""
    room = "widgets" if path.parts[0] == "widgets" else Path(path.parts[1]).stem
    for test in (f"tests/{room}/test_{path.stem}.py", f"tests/test_{room}.py", f"tests/{room}"):
        if (root / test).exists():
            return test
    return "tests/test_catalog.py"


if __name__ == "__main__":
    print(*arguments(ROOT, changed_since(ROOT, *sys.argv[1:] or ["main"])))
