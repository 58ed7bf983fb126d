"""Processes that die, are late or disagree: a sentence that says which, soon, and none is left."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest
import torch

from attnlab.parallel.context import shared_attention
from attnlab.parallel.errors import ProcessesError
from attnlab.parallel.group import joined
from attnlab.parallel.launch import in_processes
from attnlab.parallel.layouts import positions
from attnlab.parallel.ring import ring_attention
from attnlab.parallel.tree import tree_attention
from attnlab.parallel.ulysses import ulysses_attention


@pytest.fixture(autouse=True)
def _no_process_is_left():
    """Only the server that others are copies of may stay; it ends with this process."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    assert multiprocessing.active_children() == []
    left = [c for c in psutil.Process().children(recursive=True) if c.pid not in before]
    servers = ("forkserver", "resource_tracker")
    assert all(any(s in " ".join(c.cmdline()) for s in servers) for c in left)
    assert all(not c.children() for c in left)


def sums(group, x):
    """The exchanges of a group, each of which has an exact answer."""
    rank, size = group.rank, group.size
    own = x + rank
    parts = [own + 10 * to for to in range(size)]
    return (
        group.all_reduce(own, "sum"),
        group.all_gather(own, "gather"),
        group.reduce_scatter(parts, "scatter"),
        group.all_to_all(parts, "all to all"),
        [sum(s.numbers for s in group.sent if s.what == what) for what in ("sum", "gather")],
    )


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_exchanges(processes):
    x = torch.arange(6.0).reshape(2, 3)
    p, ranks = processes, range(processes)
    for rank, (total, rows, scattered, came, sent) in enumerate(in_processes(sums, p, x)):
        assert torch.equal(total, p * x + sum(ranks))
        assert torch.equal(torch.stack(rows), torch.stack([x + r for r in ranks]))
        assert torch.equal(scattered, p * x + sum(ranks) + p * 10 * rank)
        assert torch.equal(torch.stack(came), torch.stack([x + r + 10 * rank for r in ranks]))
        assert sent == [2 * (p - 1) * 6 // p, (p - 1) * 6]


def dies(group, how):
    if group.rank == 1:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "raise":
            raise KeyError("no such layer")
        if how == "leave":
            return
        if how == "sleep":
            time.sleep(600)
    x = torch.ones(1, 2, 4, 3)
    for _ in range(3):
        ring_attention(group, x, x, x)


@pytest.mark.parametrize(
    ("how", "sentence", "note"),
    [
        ("kill", "Process 1 of 3 failed: it was ended by SIGKILL", "where process 1 of 3 did not"),
        (
            "raise",
            "Process 1 of 3 failed: KeyError: 'no such layer'",
            "Process 1 stopped: KeyError",
        ),
        ("leave", "Process 0 waited 2 s at ring_attention.*where process 1 of 3 did not come", ""),
        ("sleep", "Process 0 waited 2 s at ring_attention.*where process 1 of 3 did not come", ""),
    ],
)
def test_a_process_that_does_not_come_is_named(how, sentence, note):
    start = time.monotonic()
    with pytest.raises(ProcessesError, match=sentence) as error:
        in_processes(dies, 3, how, limit=2)
    assert note in " ".join(error.value.__notes__)
    assert time.monotonic() - start < 30


def stops_in_a_ring(group):
    if group.rank == 2:
        x = torch.ones(3)
        group.shift([x], "first").wait()
        time.sleep(600)
    for what in ("first", "second"):
        group.shift([torch.ones(3)], what).wait()


def test_who_stopped_in_the_middle_is_named():
    with pytest.raises(ProcessesError) as error:
        in_processes(stops_in_a_ring, 3, limit=2)
    said = str(error.value) + " ".join(error.value.__notes__)
    assert re.search(r"at second \(exchange 2\), where process 2 of 3 did not come", said)
    assert "process 2 was last at first" in said


def disagree(group, what):
    own = group.rank == 1
    x = torch.ones(1, 2, 6 if own and what == "shape" else 4, 3)
    if own and what == "call":
        return tree_attention(group, x, x, x)
    causal = own and what == "option"
    x = x.double() if own and what == "dtype" else x
    return ring_attention(group, x, x, x, causal=causal)


@pytest.mark.parametrize("what", ["shape", "call", "option", "dtype"])
def test_processes_that_disagree_are_told(what):
    with pytest.raises(
        ProcessesError, match=r"disagree: process 0 is at ring_attention.*process 1"
    ):
        in_processes(disagree, 2, what, limit=10)


def forever(group):
    while group.rank == 1:
        time.sleep(0.1)


def test_processes_that_never_end_are_ended():
    with pytest.raises(ProcessesError, match="process 1 of 2 not done within 3 s"):
        in_processes(forever, 2, total=3)


def ulysses_of_three_heads(group):
    x = torch.ones(1, 3, 4, 2)
    ulysses_attention(group, x, x, x)


def test_what_cannot_be_divided():
    with pytest.raises(
        ValueError, match="10 positions cannot be divided into 8 equal pieces for 4"
    ):
        positions("zigzag", 10, 4)
    with pytest.raises(ValueError, match="pad the text to 12 positions"):
        positions("striped", 10, 4)
    with pytest.raises(ValueError, match=r"did you mean 'zigzag'\?"):
        positions("zigzac", 16, 4)
    with pytest.raises(ProcessesError, match="3 heads cannot be divided among 2 processes"):
        in_processes(ulysses_of_three_heads, 2)
    x = torch.ones(1, 2, 10, 2)
    with pytest.raises(ValueError, match="10 positions cannot be divided into 4"):
        shared_attention(x, x, x, processes=4)
    with pytest.raises(ValueError, match="causal has no meaning"):
        shared_attention(x, x, x, processes=2, way="tree", causal=True)


def test_what_cannot_be_started():
    def local(group):
        return group

    with pytest.raises(
        ValueError, match="should stand in a module that other processes can import"
    ):
        in_processes(local, 2)
    with pytest.raises(ValueError, match="should be 1 to 64 on one machine, got 1000"):
        in_processes(forever, 1000)
    with pytest.raises(ValueError, match="`processes` should be at least 1, got 0"):
        in_processes(forever, 0)
    with pytest.raises(ValueError, match="`limit` should be above 0"):
        in_processes(forever, 2, limit=0)
    with pytest.raises(ProcessesError, match="start the script by torchrun"):
        joined(1)


TORCHRUN = """
import os, sys
import torch
from attnlab.parallel.group import joined
from attnlab.parallel.ring import ring_attention

group = joined(20)
x = torch.arange(48.0).reshape(1, 2, 8, 3).sin().double()
own = x[:, :, 4 * group.rank : 4 * group.rank + 4]
out = ring_attention(group, own, own, own, causal=True, layout="contiguous")
whole = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
torch.testing.assert_close(out, whole[:, :, 4 * group.rank : 4 * group.rank + 4])
open(f"{sys.argv[1]}/{group.rank}", "w").write(str(group.size))
group.agree("the end")
torch.distributed.destroy_process_group()
os._exit(0)
"""


def test_a_script_under_torchrun_joins(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(TORCHRUN, encoding="utf-8")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*launcher, "--nproc-per-node", "2", str(program), str(tmp_path)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert [(tmp_path / str(rank)).read_text() for rank in (0, 1)] == ["2", "2"]
