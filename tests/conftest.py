"""What every test stands on: one seed, one thread (workers share the cores; `.ci/machines.py` asks
for others), the accelerator, and a source tree in which nothing is written.

A run ends with the seconds of processor time that the claims of each mechanism and each lesson
took: processor time, because a clock also counts what else the machine does, and in seconds of the
machine on which the budgets were set, because another one may take twice as long for the same work.
"""

import gc
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import torch
from hypothesis import HealthCheck, settings

os.environ.setdefault("TQDM_DISABLE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# A clock also counts what else the machine does: no property fails because it took long.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

if not torch.accelerator.is_available():

    def _seed(seed: int) -> torch.Generator:
        """What `torch.manual_seed` does without an accelerator, but for one thing: it would also
        format the stack three times, for devices that are not there: 0.47 ms a call at a depth of
        45 frames, as measured."""
        return torch.default_generator.manual_seed(int(seed))

    torch.manual_seed = _seed


@pytest.fixture(autouse=True)
def _reproducible() -> Iterator[None]:
    """One seed; no test leaves settings of PyTorch changed, by which a later one would count."""
    torch.manual_seed(0)
    torch.set_num_threads(int(os.environ.get("ATTNLAB_TEST_THREADS", "1")))
    before = _settings()
    yield
    assert _settings() == before, "the test leaves settings of PyTorch changed"


def _settings() -> dict[str, Any]:
    return {
        "default dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "fill uninitialized memory": torch.utils.deterministic.fill_uninitialized_memory,
        "flash": torch.backends.cuda.flash_sdp_enabled(),
        "math": torch.backends.cuda.math_sdp_enabled(),
        "denormal numbers": bool(torch.tensor(1e-40) == 0),
        "anomalies": torch.is_anomaly_enabled(),
    }


@pytest.fixture
def accelerator() -> torch.device:
    """The GPU; the test is skipped where there is none."""
    from attnlab.testing.mechanisms import the_accelerator

    if (device := the_accelerator()) is None:
        pytest.skip("no accelerator on this machine")
    return device


# ------------------------------------------------------------------------------------- source tree

ROOT = Path(__file__).parents[1]
SOURCES = ("attnlab", "binder", "docs", "notebooks", "tests", "widgets")
BUILT = ("__pycache__", "node_modules")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


PICTURES: list[str] = []
"""The folder that `make pictures` writes to, in its parts."""


def _refuse_writing(event: str, given: tuple[Any, ...]) -> None:
    """An audit hook: the test that would write into the source tree fails, and nothing is written.

    What a test writes there changes what the tests after it read, and what is committed.
    """
    if event == "open" and isinstance(given[2], int) and given[2] & WRITES:
        paths = given[:1]
    elif event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"):
        if given[-1] not in (-1, None):  # names in a folder that is open, and was named before
            return
        paths = given[:2] if event == "os.rename" else given[:1]
    else:
        return
    for path in paths:
        if isinstance(path, (str, os.PathLike)):
            parts = Path(os.path.abspath(path)).parts
            below = parts[len(ROOT.parts) :] if parts[: len(ROOT.parts)] == ROOT.parts else ()
            asked = PICTURES and list(parts[: len(PICTURES)]) == PICTURES
            if below and below[0] in SOURCES and not set(below) & set(BUILT) and not asked:
                raise AssertionError(f"a test writes {path} into the source tree: take tmp_path")


if (ROOT / SOURCES[0]).is_dir():  # not where a test of tests copies this file
    sys.addaudithook(_refuse_writing)


# ------------------------------------------------------------------------------------------ choice


BY_PAGE = (
    *("test_claims.py", "test_precision_claims.py", "test_long_precision_claims.py"),
    *("test_position_claims.py", "test_bad_calls.py", "test_second_device.py"),
)
"""The files of which ``--pages`` runs only tests with a parameter that is, or names, a page."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--pages", help=f"of {', '.join(BY_PAGE)}, only what is about these: family/mechanism,…"
    )
    parser.addoption("--lessons", help="of test_lessons.py in a browser, only these: 05_…,07_…")
    parser.addoption(
        "--pictures", help="draw the pictures in README into this folder: make pictures"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left = set[pytest.Item]()
    if chosen := config.getoption("pages"):
        left |= set(of_other_pages(items, set(chosen.split(","))))
    if chosen := config.getoption("lessons"):
        asked = set(chosen.split(","))
        left |= {
            each for each in items if parameters_of(each).get("lesson", "") not in {"", *asked}
        }
    if left:
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


def of_other_pages(items: list[pytest.Item], pages: set[str]) -> Iterator[pytest.Item]:
    """The tests of ``BY_PAGE`` that are about none of these pages."""
    page_of = {card.name: page for card, page in shelf()}
    if unknown := pages - set(page_of.values()):
        raise pytest.UsageError(f"--pages: no claims of {', '.join(sorted(unknown))}")
    for item in items:
        if item.path.name in BY_PAGE:
            given = [getattr(value, "name", value) for value in parameters_of(item).values()]
            words = {word for text in given if isinstance(text, str) for word in text.split()}
            about = {page_of[word] for word in words & set(page_of)}
            if not about & pages:
                yield item


def parameters_of(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def shelf() -> list[tuple[Any, str]]:
    """Each card of the shelf with its page: `family/mechanism`."""
    from attnlab.catalog import cards_of

    return [
        (card, "/".join(name.split(".")[2:4]))
        for name, module in list(sys.modules.items())
        if name.startswith("attnlab.mechanisms.")
        for card in cards_of(module)
    ]


# ----------------------------------------------------------------------------------------- budgets


class Budget(NamedTuple):
    """Seconds of processor time for all tests of a file that share the value of a parameter."""

    what: str
    file: str
    parameter: str
    seconds: float
    children: bool = False
    """Whether the work is done by other processes: browser, server, kernel."""


BUDGETS = (
    Budget("the claims of", "test_claims.py", "card", 12),
    Budget("the lesson", "browser/test_lessons.py", "lesson", 75, children=True),
)
SLOWEST_FILES = 20
FAR_ABOVE = 4
"""So many times a budget is a failure; what is between is reported."""
USUAL = 0.055
"""Processor seconds of ``_a_piece_of_work`` on the machine on which the budgets were set."""


def _a_piece_of_work() -> float:
    """The processor seconds of a fixed number of steps of Python and of small tensors' operations,
    which is what the tests are made of."""
    x, total, before = torch.ones(8), 0, time.process_time()
    for step in range(200_000):
        total += step
    for _ in range(10_000):
        x = x * 1.0
    return time.process_time() - before


def slowness() -> float:
    """How many times longer than usual this machine takes now; 1 where it is as fast or faster."""
    return max(1.0, statistics.median(_a_piece_of_work() for _ in range(5)) / USUAL)


def pytest_collection_finish() -> None:
    """What stays for the whole run is looked through no more: over a million objects of 40,000
    tests, which would cost each later collection of garbage, one a measurement, a second."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Notes on the report which budget the test draws on, for what, and how much."""
    parameters = parameters_of(item)
    for index, budget in enumerate(BUDGETS):
        if budget.parameter in parameters and item.path.as_posix().endswith(f"/{budget.file}"):
            owner, before = parameters[budget.parameter], processor_seconds(budget.children)
            try:
                return (yield)
            finally:
                spent = processor_seconds(budget.children) - before
                item.user_properties.append(
                    ("spent", [index, str(getattr(owner, "name", owner)), spent])
                )
    return (yield)


def processor_seconds(children: bool) -> float:
    """Of this process; of its children and theirs, too, if asked."""
    total = time.process_time()
    for process in psutil.Process().children(recursive=True) if children else ():
        try:
            total += sum(process.cpu_times()[:2])
        except psutil.Error:  # it ended between the list and the look
            continue
    return total


class Spending:
    """Adds up what the tests report, whichever worker ran them, and compares with the budgets."""

    def __init__(self) -> None:
        self.spent: dict[Budget, dict[str, float]] = {budget: {} for budget in BUDGETS}
        self.files = Counter[str]()
        self.slowness = slowness()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.files[report.nodeid.split("::")[0]] += report.duration
        for name, value in report.user_properties:
            if name == "spent" and report.when == "call":
                index, owner, seconds = value
                spent = self.spent[BUDGETS[index]]
                spent[owner] = spent.get(owner, 0) + seconds

    def above(self, times: float) -> list[str]:
        return [
            f"{budget.what} {owner} took {seconds:.1f} s, more than {times * budget.seconds:g} s"
            for budget, spent in self.spent.items()
            for owner, measured in spent.items()
            if (seconds := measured / self.slowness) > times * budget.seconds
        ]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if any(self.spent.values()):  # the machine may have slowed down since the start
            self.slowness = max(self.slowness, slowness())
        if self.above(FAR_ABOVE) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        write = terminalreporter.write_line
        if len(self.files) > SLOWEST_FILES:
            terminalreporter.section(f"slowest {SLOWEST_FILES} files, of {len(self.files)}")
            for name, seconds in self.files.most_common(SLOWEST_FILES):
                write(f"{seconds:7.1f} s {seconds / self.files.total():4.0%} {name}")
        if not any(self.spent.values()):
            return
        terminalreporter.section("seconds of processor time")
        if self.slowness > 1:
            write(f"Divided by {self.slowness:.1f}: this machine is so many times slower.")
        for budget, spent in self.spent.items():
            usual = {owner: seconds / self.slowness for owner, seconds in spent.items()}
            dearest = sorted(usual.items(), key=lambda each: -each[1])[:6]
            if usual:
                write(
                    f"{budget.what} {len(usual)}: {sum(usual.values()):.1f} s in all; "
                    + ", ".join(f"{owner} {seconds:.1f} s" for owner, seconds in dearest)
                )
        for sentence in self.above(1):
            write(f"WARNING: {sentence}", yellow=True)
        for sentence in self.above(FAR_ABOVE):
            write(f"FAILED: {sentence}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    if folder := config.getoption("pictures"):
        PICTURES.extend(Path(os.path.abspath(folder)).parts)
    config.pluginmanager.register(Spending())
