"""The benchmark of query-key maps runs, and says what it measured."""

import math
import subprocess
import sys
from typing import Any

import pytest
import torch

from attnlab.measure.benchmarks import query_key


def run_here(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
    """What a Python would print that is asked for one value."""
    python, option, program = command
    assert (python, option) == (sys.executable, "-c")
    threads, said = torch.get_num_threads(), list[str]()
    exec(program, {"print": said.append})
    torch.set_num_threads(threads)
    return subprocess.CompletedProcess(command, 0, "\n".join(said))


def test_quick_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fresh process is this one: in another one UMAP would be compiled once more."""
    monkeypatch.setattr(query_key.subprocess, "run", run_here)
    found = {row.figure: row for row in query_key.rows(quick=True, threads=1)}
    assert set(found) == {
        "collecting, 2 heads × 500 points",
        "pca and its faithfulness, 2 heads × 500 points",
        "umap and its faithfulness, 2 heads × 500 points",
        "all of it, 2 heads × 500 points",
        "peak of that process",
        "one head: UMAP of 500 points and its faithfulness",
        "a sentence of 60 tokens placed on 2 maps by pca",
        "a sentence of 60 tokens placed on 2 maps by umap",
    }
    assert all(math.isfinite(row.measured) and row.measured > 0 for row in found.values())
    parts = [row.measured for figure, row in found.items() if ", 2 heads" in figure]
    assert sum(parts[:3]) == parts[3]
    assert found["peak of that process"].measured > 100  # PyTorch alone takes more


def test_a_head_has_as_many_queries_as_the_texts_have_tokens() -> None:
    points = query_key.points_of(query_key.model_of(1, 2), 3)
    assert points[0].queries.shape == points[0].keys.shape == (2, 3 * query_key.LENGTH, 64)
