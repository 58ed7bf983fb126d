"""The seconds that claims and lessons take are added up over all processes, and reported."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = (
    (Path(__file__).parents[1] / "conftest.py")
    .read_text(encoding="utf-8")
    .replace("import torch\n", "from unittest.mock import MagicMock\ntorch = MagicMock()\n")
)
WITHOUT = [
    f"-pno:{plugin}" for plugin in ("cacheprovider", "nbval", "jaxtyping", "hypothesispytest")
]
CLAIMS = """
import time
from types import SimpleNamespace
import pytest

def work(seconds):
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass

cards = pytest.mark.parametrize("card", [SimpleNamespace(name=name) for name in ("dear", "cheap")])

@cards
@pytest.mark.parametrize("size", [1, 2])
def test_something(card, size):
    work(0.3 if card.name == "dear" else 0.02)

def test_without_a_card():
    work(0.2)
"""
LESSON = """
import subprocess, sys
import pytest

WORK = "import time\\nwhile time.process_time() < 0.6: pass\\nprint()\\ninput()"

@pytest.mark.parametrize("lesson", ["07_seven"])
def test_a_lesson(lesson, request):
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", WORK], stdin=pipe, stdout=pipe)
    request.addfinalizer(lambda: child.communicate(b"\\n"))
    child.stdout.readline()
"""


@pytest.fixture
def spend(pytester):
    """Runs pytest on the two files under the given budgets; gives its result."""

    def run(claims: float, lesson: float, *options: str, slower: float = 1) -> pytest.RunResult:
        ours = CONFTEST.replace('"card", 12', f'"card", {claims}')
        ours = ours.replace('"lesson", 75', f'"lesson", {lesson}')
        pytester.makeconftest(f"{ours}\n_a_piece_of_work = lambda: {slower} * USUAL\n")
        pytester.makepyfile(test_claims=CLAIMS)
        pytester.mkdir("browser")
        (pytester.path / "browser/test_lessons.py").write_text(LESSON)
        return pytester.runpytest(*WITHOUT, *options)

    return run


def test_seconds_of_all_workers_are_added_up_and_far_above_the_run_fails(spend):
    result = spend(0.1, 0.4, "-n", "2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes()["passed"] == 6
    result.stdout.re_match_lines(
        [
            r"=+ seconds of processor time =+",
            r"the claims of 2: 0\.[67]\d* s in all; dear 0\.[67] s, cheap 0\.[01] s",
            r"the lesson 1: (0\.[6-9]|1\.\d) s in all; 07_seven .* s",
            r"WARNING: the claims of dear took 0\.[67] s, more than 0\.1 s",
            r"WARNING: the lesson 07_seven took .* s, more than 0\.4 s",
            r"FAILED: the claims of dear took 0\.[67] s, more than 0\.4 s",
        ]
    )


def test_above_a_budget_is_a_warning(spend):
    result = spend(0.5, 10)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.re_match_lines([r"WARNING: the claims of dear took 0\.[67] s, more than 0\.5 s"])
    result.stdout.no_fnmatch_line("FAILED*")


def test_within_its_budget_nothing_is_warned_of(spend):
    result = spend(2, 10)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("WARNING*")


def test_seconds_are_those_of_the_machine_on_which_the_budgets_were_set(spend):
    result = spend(0.1, 10, slower=3)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.re_match_lines(
        [
            r"Divided by 3\.0: this machine is so many times slower\.",
            r"the claims of 2: 0\.2\d* s in all; dear 0\.2 s, cheap 0\.0 s",
            r"WARNING: the claims of dear took 0\.2 s, more than 0\.1 s",
        ]
    )


def test_a_faster_machine_is_given_no_less(spend):
    assert spend(0.5, 10, slower=0.1).ret == pytest.ExitCode.OK
