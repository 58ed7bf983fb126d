"""`make check` runs the tests of what changed: which these are, by planted changes."""

import subprocess
from pathlib import Path

import pytest

from attnlab.catalog import cards

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
CLAIMS = "tests/test_claims.py"
DERIVED = ["tests/test_catalog.py", "tests/house/test_readme.py", "tests/widgets/test_survey.py"]
ALL_CLAIMS = [CLAIMS, "tests/test_bad_calls.py"]


@pytest.fixture(scope="module")
def changed(script):
    return script("changed")


@pytest.fixture
def house(tmp_path):
    """A small repository with a branch that has left `main`."""
    for name in (
        *("attnlab/core/heads.py", "attnlab/lens/maps.py", "attnlab/lens/watch.py"),
        *("attnlab/mechanisms/fixed/axial.py", "attnlab/mechanisms/fixed/etc/__init__.py"),
        *("attnlab/mechanisms/fixed/etc/ids.py", "attnlab/mechanisms/fixed/__init__.py"),
        *("attnlab/mechanisms/__init__.py", "attnlab/mechanisms/dense/full.py"),
        *("tests/test_rooms.py", "tests/test_catalog.py", CLAIMS, "tests/test_lessons.py"),
        *("tests/core/test_heads.py", "tests/lens/test_watch.py", "tests/house/test_readme.py"),
        *("tests/mechanisms/fixed/test_etc.py", "tests/browser/test_lessons.py"),
        *("tests/widgets/test_survey.py", "tests/browser/test_wall.py", "tests/test_bad_calls.py"),
        *("tests/browser/test_lab.py", "tests/house/test_notation.py", "tests/core/test_reach.py"),
        *("attnlab/exercises/hashing.py", "tests/exercises/test_hashing.py"),
        *("tests/lens/conftest.py", "widgets/attnlab_widgets/lab.py", "tests/widgets/test_lab.py"),
        *("notebooks/00_start.ipynb", "CHANGELOG.md"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "tests/lens/test_watch.py").write_text("from tests.lens.models import small")
    (tmp_path / "tests/core/test_reach.py").write_text(
        "from attnlab.lens import maps, watch\nfrom attnlab.mechanisms.fixed.axial import naive"
    )
    for command in ("init -qb main", "add -A", "commit -qm first", "switch -qc branch"):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, "-C", tmp_path, *command.split()], check=True)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "tests"),
    [
        ("CHANGELOG.md", []),
        (
            "attnlab/mechanisms/fixed/etc/ids.py",
            ["tests/mechanisms/fixed/test_etc.py", *DERIVED, "--pages=fixed/etc"],
        ),
        (
            "attnlab/mechanisms/fixed/axial.py",
            ["tests/core/test_reach.py", *DERIVED, "--pages=fixed/axial"],
        ),
        ("attnlab/mechanisms/__init__.py", DERIVED),
        ("attnlab/core/heads.py", ["tests/core/test_heads.py", "--pages=dense/full,fixed/axial"]),
        (CLAIMS, ["--pages=dense/full,fixed/axial"]),
        (
            "attnlab/testing/mechanisms.py",
            ["tests/test_catalog.py", "--pages=dense/full,fixed/axial"],
        ),
        ("attnlab/lens/watch.py", ["tests/core/test_reach.py", "tests/lens/test_watch.py"]),
        ("attnlab/lens/maps.py", ["tests/core/test_reach.py", "tests/lens"]),
        ("attnlab/exercises/hashing.py", ["tests/exercises", "tests/test_lessons.py"]),
        ("widgets/attnlab_widgets/lab.py", ["tests/widgets/test_lab.py"]),
        ("widgets/attnlab_widgets/lab/picture.py", ["tests/widgets/test_lab.py"]),
        ("widgets/attnlab_widgets/lab/grid.js", ["tests/widgets/test_lab.py"]),
        ("widgets/src/lib/studio.js", ["tests/widgets"]),
        (
            "notebooks/00_start.ipynb",
            ["tests/house/test_notation.py", "tests/house/test_readme.py", "tests/test_lessons.py"],
        ),
        ("tests/lens/conftest.py", ["tests/lens"]),
        ("tests/lens/test_watch.py", ["tests/lens/test_watch.py"]),
        ("tests/lens/models.py", ["tests/lens/test_watch.py"]),
        ("tests/browser/test_lessons.py", []),
        ("README.md", ["tests/house/test_readme.py"]),
    ],
)
def test_a_change_brings_its_tests(changed, house, name, tests):
    (house / name).parent.mkdir(parents=True, exist_ok=True)
    (house / name).write_text("changed")
    found = changed.arguments(house, changed.changed_since(house, "main"))
    claims = ALL_CLAIMS if any(test.startswith("--pages") for test in tests) else []
    assert sorted(found) == sorted(["tests/test_rooms.py", *claims, *tests])


@pytest.mark.parametrize(
    ("name", "tests"),
    [
        ("CHANGELOG.md", []),
        ("attnlab/mechanisms/dense/full.py", ["tests/browser/test_wall.py", "00_start"]),
        ("attnlab/lens/maps.py", ["00_start"]),
        ("notebooks/00_start.ipynb", ["00_start"]),
        ("tests/browser/test_lab.py", ["tests/browser/test_lab.py"]),
        ("widgets/attnlab_widgets/lab/grid.css", ["tests/browser/test_lab.py", "00_start"]),
        ("widgets/attnlab_widgets/lab.py", ["tests/browser/test_lab.py", "00_start"]),
    ],
)
def test_a_change_brings_its_tests_in_a_browser(changed, house, name, tests):
    (house / name).parent.mkdir(parents=True, exist_ok=True)
    (house / name).write_text("changed")
    lessons = [f"--lessons={test}" for test in tests if not test.startswith("tests/")]
    lessons = ["tests/browser/test_lessons.py", *lessons] if lessons else []
    found = changed.in_browser(house, changed.changed_since(house, "main"))
    assert found == [*(test for test in tests if test.startswith("tests/")), *lessons]


@pytest.mark.parametrize(
    "name",
    [
        *("attnlab_widgets/lab/lab.js", "attnlab_widgets/lab/lab.css", "src/lib/a.js"),
        *("test/lab.test.js", "package.json", "build.js"),
    ],
)
def test_a_change_of_a_front_end_has_it_built_and_compared(changed, name):
    assert changed.goals([f"widgets/{name}"]) == ["check-widgets"]
    assert changed.goals(["widgets/attnlab_widgets/lab.py"]) == []


def test_what_main_did_meanwhile_is_not_a_change(changed, house):
    """Nor is a deleted page asked for its claims."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(house)]
    subprocess.run([*git, "rm", "-q", "attnlab/mechanisms/fixed/axial.py"], check=True)
    subprocess.run([*git, "commit", "-qm", "No axial"], check=True)
    subprocess.run([*git, "switch", "-q", "main"], check=True)
    (house / "attnlab/core/heads.py").write_text("changed")
    subprocess.run([*git, "commit", "-qam", "On main"], check=True)
    subprocess.run([*git, "switch", "-q", "branch"], check=True)
    found = changed.arguments(house, changed.changed_since(house, "main"))
    assert found == sorted([*DERIVED, "tests/core/test_reach.py", "tests/test_rooms.py"])


def test_an_unknown_commit_is_reported(changed, house):
    with pytest.raises(SystemExit, match=r"git merge-base failed: .*nowhere"):
        changed.changed_since(house, "nowhere")


def test_every_file_that_is_named_exists(changed):
    assert all((ROOT / each).exists() for pair in changed.TESTED_BY.items() for each in pair)


@pytest.fixture(scope="module", autouse=True)
def _pages_of_the_shelf():
    """Imported before pytester looks: it forgets again what is imported after that."""
    cards()


@pytest.fixture
def claims(pytester):
    """Runs one claim of all cards, and a test of another file, under the given options."""
    pytester.makeconftest((ROOT / "tests/conftest.py").read_text(encoding="utf-8"))
    claim = """
        import pytest
        from attnlab.catalog import cards

        @pytest.mark.parametrize("card", cards(), ids=lambda card: card.name)
        def test_something(card):
            pass
        """
    pytester.makepyfile(test_claims=claim, test_other=claim)
    return lambda *options: pytester.runpytest("-v", "-p", "no:cacheprovider", *options)


def test_claims_that_name_a_page_are_chosen_by_its_name(claims, pytester):
    named = """
        import pytest

        @pytest.mark.parametrize("target", ["form full naive", "form fullness", "task digits"])
        def test_something(target):
            pass
        """
    pytester.makepyfile(test_bad_calls=named)
    result = claims("--pages=dense/full", "test_claims.py", "test_bad_calls.py")
    assert result.parseoutcomes()["passed"] == 2
    result.stdout.fnmatch_lines(["*test_something?form full naive? PASSED*"])


def test_lessons_are_chosen_by_their_names(claims, pytester):
    lesson = """
        import pytest

        @pytest.mark.parametrize("lesson", ["01_a", "02_b"])
        def test_runs(lesson):
            pass
        """
    pytester.makepyfile(test_lessons=lesson)
    result = claims("--lessons=02_b", "test_lessons.py")
    result.stdout.fnmatch_lines(["*test_runs?02_b? PASSED*"])
    assert result.parseoutcomes() == {"passed": 1, "deselected": 1}


def test_claims_of_some_pages(claims):
    result = claims("--pages=dense/full,fixed/etc", "test_claims.py")
    assert result.parseoutcomes()["passed"] == 2
    result.stdout.fnmatch_lines(["*test_something?full? PASSED*", "*test_something?etc? PASSED*"])
    assert claims("--pages=dense/full").parseoutcomes()["passed"] > 3, "other files stay whole"


def test_a_page_without_claims_is_refused(claims):
    result = claims("--pages=dense/full,dense/fuller")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--pages: no claims of dense/fuller"])
