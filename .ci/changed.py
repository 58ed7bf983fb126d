"""What `make check` runs of what `make test` runs: for the files that changed since a commit.

    python .ci/changed.py tests [commit]      # pytest's arguments; main by default
    python .ci/changed.py browser [commit]    # the same for what needs a browser
    python .ci/changed.py goals [commit]      # further goals of the Makefile

What is not committed counts, too. A page of the shelf brings its claims, its mirror test and what
follows from the cards; core, catalogue or the claims themselves bring the claims of one page of
each family. Any module brings the test of its name, or its room's tests if none has it, and the
tests that import it; a room that is listed (`WHOLE`) brings all of its tests. A test brings itself.
The rules of the house always run. In the browser run the tests that have a changed widget's name,
what shows cards after a change of a page, and the lessons that read what has changed
(`tests/browser/green.py`).
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser import green  # noqa: E402

CLAIMS = (
    *("tests/test_claims.py", "tests/test_precision_claims.py"),
    *("tests/test_long_precision_claims.py", "tests/test_position_claims.py"),
    *("tests/test_bad_calls.py", "tests/test_second_device.py"),
)
SHELF = Path("attnlab/mechanisms")
DERIVED = (  # what follows from the cards
    *("tests/test_catalog.py", "tests/house/test_readme.py", "tests/widgets/test_survey.py"),
    *("tests/widgets/test_wall.py", "tests/core/test_card_patterns.py"),
)
LESSONS = (  # what is asked of a notebook without running it
    *("tests/test_lessons.py", "tests/test_trained.py", "tests/tools/course"),
    *("tests/house/test_readme.py", "tests/house/test_notation.py"),
)
IN_A_BROWSER = "tests/browser/test_lessons.py"
SHOW_CARDS = ("tests/browser/test_cards.py", "tests/browser/test_wall.py")
WHOLE = {
    "exercises": ("tests/exercises", "tests/test_lessons.py", "tests/tools/course"),
    "predictions": ("tests/test_lessons.py", "tests/widgets/test_predict.py"),
}
TESTED_BY = {
    "Makefile": "tests/house/test_make.py",
    "README.md": "tests/house/test_readme.py",
    "MECHANISMS.md": "tests/house/test_readme.py",
    "pyproject.toml": "tests/house/test_versions.py",
    "constraints.txt": "tests/house/test_versions.py",
    "tests/conftest.py": "tests/house/test_budgets.py",
    "tests/browser/green.py": "tests/house/test_green.py",
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
    """What pytest is to run for these files, the browser apart."""
    tests, pages = {"tests/test_rooms.py"}, set[str]()
    for name in changed:
        pages.update(pages_for(root, Path(name)))
        tests.update(tests_for(root, Path(name)))
    tests -= set(CLAIMS) if pages else set()
    tests = {test for test in tests if not {str(up) for up in Path(test).parents} & tests}
    claims = [*CLAIMS, f"--pages={','.join(sorted(pages))}"] if pages else []
    return [test for test in (*sorted(tests), *claims) if test[0] == "-" or (root / test).exists()]


def in_browser(root: Path, changed: Iterable[str]) -> list[str]:
    """What pytest is to run for these files in a browser: nothing, mostly."""
    tests, lessons = set[str](), list(green.stale(changed := list(changed), root))
    for path in map(Path, changed):
        if SHELF in path.parents:
            tests.update(SHOW_CARDS)
        if path.parts[0] == "widgets":
            tests.add(f"tests/browser/test_{widget_of(path)}.py")
        if path.parts[:2] == ("tests", "browser") and path.name.startswith("test_"):
            tests.add(str(path))
        if path.parts[:2] == ("attnlab", "exercises"):
            tests.add("tests/browser/test_exercises.py")
        if path.parts[0] == "docs":
            tests.add("tests/browser/test_site.py")
    tests = {test for test in tests - {IN_A_BROWSER} if (root / test).exists()}
    chosen = [IN_A_BROWSER, f"--lessons={','.join(lessons)}"] if lessons else []
    return [*sorted(tests), *chosen]


def goals(changed: Iterable[str]) -> list[str]:
    """Of the Makefile: a front end is built, compared with what is committed, and tested."""
    front = re.compile(r"widgets/(.*\.(js|css)|(test/.*|package[^/]*)\.json)")
    return ["check-widgets"] if any(map(front.fullmatch, changed)) else []


def pages_for(root: Path, path: Path) -> set[str]:
    """The pages, as `family/mechanism`, whose claims are asked."""
    shelf = sorted(page for found in (root / SHELF).glob("*/*") if (page := page_at(found)))
    if SHELF in path.parents:
        return {"/".join(path.with_suffix("").parts[2:4])} & set(shelf)
    shared = {("attnlab", "core"), ("attnlab", "catalog.py"), ("attnlab", "testing")}
    if path.parts[:2] in shared or str(path) in CLAIMS:
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
        yield from importers(root, path)
    elif path.parts[0] in {"attnlab", "widgets", "tools"}:
        yield from WHOLE.get(path.parts[1], ()) or (of_module(root, path),)
        yield from importers(root, path)
    elif path.parts[0] == "notebooks":
        yield from LESSONS
    elif path.parts[0] == "docs":
        yield "tests/house/test_guides.py"
    elif path.parts[0] == "tests" and path.parts[1] != "browser" and str(path) not in CLAIMS:
        yield from near(root, path)


def importers(root: Path, path: Path) -> Iterator[str]:
    """The tests that import a module of attnlab, by its name or from its package."""
    parts = path.with_suffix("").parts[path.parts[0] == "widgets" :]
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    if path.suffix != ".py" or len(parts) < 2:
        return
    package, name = re.escape(".".join(parts[:-1])), re.escape(parts[-1])
    imports = re.compile(
        rf"(?:from|import) {package}(?:\.{name}(?![\w.])| import [^\n]*\b{name}\b)"
    )
    for test in (root / "tests").rglob("test_*.py"):
        if "browser" not in test.parts and imports.search(test.read_text(encoding="utf-8")):
            yield str(test.relative_to(root))


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
    name = widget_of(path) if room == "widgets" else path.stem
    for test in (f"tests/{room}/test_{name}.py", f"tests/test_{room}.py", f"tests/{room}"):
        if (root / test).exists():
            return test
    return "tests/test_catalog.py"


def widget_of(path: Path) -> str:
    """The widget in whose folder a file stands, or the file's own name."""
    at = path.parts.index("attnlab_widgets") + 1 if "attnlab_widgets" in path.parts else -1
    return Path(path.parts[at]).stem


def main(given: list[str]) -> int:
    what, commit = [*given, "main"][:2] if given else ("tests", "main")
    changed = sorted(changed_since(ROOT, commit))
    found = {"tests": arguments, "browser": in_browser, "goals": lambda _, names: goals(names)}
    print(*found[what](ROOT, changed))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
