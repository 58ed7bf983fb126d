"""When `make check` runs a lesson again: what its last green run read, and that it is noticed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import green

LESSON = "07_seven"
CELL = 'from attnlab.tasks import sums\nattnlab.card("etc")\n%matplotlib inline\n!ls'
FILES = {
    f"notebooks/{LESSON}.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": [CELL]}]}),
    "attnlab/core/heads.py": "from attnlab.core.sizes import SMALL\ndef split(): return SMALL",
    "attnlab/core/sizes.py": "SMALL = 3",
    "attnlab/tasks/sums.py": "",
    "attnlab/tasks/words.json": "[]",
    "attnlab/mechanisms/fixed/etc/__init__.py": "",
    "attnlab/pretrained/load.py": "def load(): pass",
    "attnlab/pretrained/small.safetensors": "",
    "widgets/attnlab_widgets/lab.py": "def shown(): pass",
    "widgets/attnlab_widgets/static/lab.js": "",
    "constraints.txt": "",
}
PACKAGES = [
    f"{name}/__init__.py"
    for name in ("attnlab", "attnlab/core", "attnlab/pretrained", "widgets/attnlab_widgets")
]
UNREAD = {"attnlab/core/unread.py", "widgets/attnlab_widgets/static/other.js"}
RUN = f"""
import sys, threading
from pathlib import Path
root = Path.cwd()
sys.path[:0] = [str(root), str(root / "widgets"), {str(green.ROOT)!r}]
from attnlab.core import heads, unread
from attnlab.pretrained.load import load
from attnlab_widgets import lab
from tests.browser import green
green.watch(Path("log.txt"), root)
heads.split(), lab.shown(), open(root / "attnlab/tasks/words.json").close()
thread = threading.Thread(target=load)
thread.start(), thread.join()
"""


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """A repository with a lesson, and the log of a process that reads some of its files."""
    root = tmp_path_factory.mktemp("house")
    for name, text in (FILES | dict.fromkeys([*PACKAGES, *UNREAD], "")).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run([sys.executable, "-c", RUN], cwd=root, check=True)
    return root


@pytest.fixture
def house(read):
    green.keep(LESSON, read / "log.txt", read)
    yield read
    for name, text in FILES.items():
        (read / name).write_text(text)
    green.stored(LESSON, read).unlink(missing_ok=True)


def test_a_green_lesson_that_reads_what_it_read_need_not_run(house):
    assert green.is_green(LESSON, house)
    assert list(green.stale(["attnlab/core/unread.py"], house)) == []


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_lesson_runs_again_when_something_that_it_read_has_changed(house, name):
    (house / name).write_text(f"{FILES[name]} ")
    assert list(green.stale([], house)) == [LESSON]


@pytest.mark.parametrize("name", sorted(UNREAD))
def test_what_a_lesson_did_not_read_may_change(house, name):
    (house / name).write_text("other")
    assert green.is_green(LESSON, house)


def test_a_lesson_that_never_ran_runs_when_anything_has_changed_that_it_may_read(house):
    green.stored(LESSON, house).unlink()
    assert not green.is_green(LESSON, house)
    assert list(green.stale(["attnlab/core/unread.py"], house)) == [LESSON]
    assert list(green.stale([f"notebooks/{LESSON}.ipynb"], house)) == [LESSON]
    assert list(green.stale(["CHANGELOG.md", "notebooks/08_eight.ipynb"], house)) == []


def test_what_is_kept_is_never_committed():
    ignored = (green.ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    place = green.stored(LESSON, green.ROOT).relative_to(green.ROOT)
    assert f"{Path(place).parts[0]}/" in ignored
