"""Notebooks in kernels of their own: what is measured, and what is reported."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest

from tools.notebooks import Profile, _held, _sampled, find, main, profile, report


def _write(path, *cells):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbformat.write(notebook, path)
    return path


def test_a_good_and_a_failing_notebook(tmp_path, capsys):
    where = "import attnlab, pathlib\nassert pathlib.Path('a_good.ipynb').exists()"
    hold = "import time; block = bytearray(b'x') * (300 * 10**6); time.sleep(1); del block"
    before = _write(tmp_path / "a_good.ipynb", where, hold).read_text()
    _write(tmp_path / "b_bad.ipynb", "1 / 0")
    assert main([str(tmp_path)]) == 1
    good, bad = (line for line in capsys.readouterr().out.splitlines() if ".ipynb" in line)
    assert good.endswith("ok")
    assert float(good.split()[2]) > 0.3
    assert bad.endswith("failed: ZeroDivisionError: division by zero")
    assert (tmp_path / "a_good.ipynb").read_text() == before


def test_a_missing_notebook_is_a_sentence(capsys):
    assert main(["nosuch.ipynb"]) == 2
    assert "no notebook at nosuch.ipynb" in capsys.readouterr().err


def test_a_cell_that_hangs_is_a_failure(tmp_path):
    hanging = profile(_write(tmp_path / "n.ipynb", "import time; time.sleep(600)"), timeout=1)
    assert "timed out" in hanging.error
    assert hanging.seconds < 600


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system keeps no peak")
def test_a_peak_between_two_samples_is_not_lost():
    peak = [0]
    with _sampled(os.getpid(), peak, every=60):
        pass
    assert peak[0] >= psutil.Process().memory_info().rss // 2


def test_children_are_counted():
    holding = "block = bytearray(200 * 10**6); print(flush=True); input()"
    pipe = subprocess.PIPE
    before = _held(psutil.Process())
    with subprocess.Popen([sys.executable, "-c", holding], stdin=pipe, stdout=pipe) as child:
        child.stdout.readline()
        assert _held(psutil.Process()) - before > 190 * 10**6
        child.communicate(b"\n")


def test_verdicts():
    assert Profile(Path("n"), 59.9, 1_490_000_000).verdict() == "ok"
    assert Profile(Path("n"), 60.1, 1_510_000_000).verdict() == "over 60 s, over 1.5 GB"
    assert Profile(Path("n"), 1.0, 1, "NameError: x").verdict() == "failed: NameError: x"


def test_report_has_one_line_per_notebook():
    lines = report([Profile(Path("n.ipynb"), 1.23, 456_000_000)]).splitlines()
    assert lines[0].split() == ["notebook", "seconds", "peak", "memory", "verdict"]
    assert lines[2].split() == ["n.ipynb", "1.2", "0.46", "GB", "ok"]


def test_find_takes_files_and_folders(tmp_path):
    paths = [_write(tmp_path / name, "1") for name in ("b.ipynb", "a.ipynb")]
    assert find([str(tmp_path)]) == paths[::-1]
    assert find([str(paths[0])]) == paths[:1]
    with pytest.raises(FileNotFoundError, match=r"no notebook at .*c\.ipynb"):
        find([str(tmp_path / "c.ipynb")])
