"""Experiments of the lessons, whose results are stored: each row is one small model's training.

An experiment is a module whose docstring's first line is its title, with `rows(*, quick, threads)`
that trains everything and yields its rows; nearly all are a `Grid` (`attnlab.experiments.grid`).
`quick` trains for a few steps, to check that everything runs. There are no timings and no
thresholds here; those are benchmarks, in `attnlab.measure`.

    python -m attnlab.experiments needle --threads 1 --json \\
        attnlab/experiments/assets/11_needle.json

Two mechanisms were mended after rows of theirs had been stored: RWKV starts as the released code
does, and S4D's poles have eigenvectors of one sign on every processor. The rows of these two arms
in ``far_context``, ``latching``, ``quality``, ``recall`` and ``selection`` are older. Two of RWKV's
copying trainings in ``latching``, run again, differ by at most 0.9 points, and one of S4D's in
``selection`` by 0.9 points at the length of its training and 5 at twice that length: RWKV still
solves its task, and S4D its own in part. A row of another arm, run again, is the stored one.
"""

import json
from pathlib import Path

from attnlab.core.lazy import modules_of
from attnlab.core.suggest import choose

__getattr__ = modules_of(__name__)

ASSETS = Path(__file__).parent / "assets"
SHARED = ("grid", "loop")
"""Modules that experiments are made of; all others are experiments."""


def asset(file: str) -> Path:
    """Where a file of the lessons lies. All are part of the package, so that a lesson finds the
    data of the attnlab that runs it, wherever it is opened and without a network.
    """
    return choose("asset", file, {path.name: path for path in ASSETS.iterdir()})


def stored(file: str, experiment: str) -> dict[str, float]:
    """What an experiment has measured, by the name of its figure, from an ``asset``."""
    path = asset(file)
    rows = json.loads(path.read_text(encoding="utf-8"))["experiments"]
    if experiment not in rows:
        raise ValueError(f"{path} holds the experiments {sorted(rows)}, not {experiment!r}")
    return {row["figure"]: row["measured"] for row in rows[experiment]}
