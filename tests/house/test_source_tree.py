"""No test writes into the source tree: `tests/conftest.py` refuses it."""

import os
import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parent
WRITE = (
    lambda path: path.write_text("written by a test"),
    lambda path: path.open("a"),
    lambda path: os.open(path, os.O_CREAT | os.O_WRONLY),
    lambda path: path.mkdir(),
    lambda path: path.unlink(),
    lambda path: shutil.copy(__file__, path),
)


@pytest.mark.parametrize("write", WRITE)
def test_writing_there_is_refused(write, tmp_path):
    made = HERE / "made.txt"
    with pytest.raises(AssertionError, match="source tree: take tmp_path"):
        write(made)
    assert not made.exists()


def test_nothing_is_moved_there_or_away(tmp_path):
    (tmp_path / "made.txt").write_text("elsewhere it is right")
    for old, new in ((tmp_path / "made.txt", HERE / "made.txt"), (__file__, tmp_path / "moved.py")):
        with pytest.raises(AssertionError, match="source tree"):
            os.replace(old, new)
    assert Path(__file__).exists()
