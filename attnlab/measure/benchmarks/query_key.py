"""Query-key space: collecting, mapping and judging the heads of a model of BERT's size.

A language model of 12 layers × 12 heads of width 64 (dim 768, random weights: the cost is that of a
trained one) reads 2,500 tokens of documentation; each head has 2,500 queries and as many keys.
Everything about it is done in one fresh process, whose peak memory is that of the whole process.
Then one head alone, as somebody who looks at it waits for it, and a sentence placed on maps that
are there already. AttentionViz's authors needed about 3 hours on an A100 for one of their data sets
(arXiv:2305.03210).
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from attnlab.measure.memory import environment, peak
from attnlab.measure.report import Row
from attnlab.measure.timing import quartiles
from attnlab.models.tiny import TinyTransformer

LENGTH = 125
METHODS = ("pca", "umap")


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """All heads, then one head, then a sentence."""
    layers, heads, sequences = (1, 2, 2) if quick else (12, 12, 20)
    yield from _all_heads(layers, heads, sequences, threads, long=not quick)
    yield from _live(heads, sequences, repeats=2 if quick else 5, long=not quick)


def model_of(layers: int, heads: int) -> TinyTransformer:
    """A language model over bytes, with heads of width 64."""
    options = {"dim": 64 * heads, "layers": layers, "heads": heads, "max_len": 128}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return TinyTransformer(256, **options).eval()


def points_of(model: TinyTransformer, sequences: int, length: int = LENGTH) -> Any:
    """Its queries and keys on so many texts."""
    from attnlab.lens.query_key.collect import collect
    from attnlab.tasks.documentation import Documentation

    task = Documentation("bytes", length=length)
    return collect(model, task.batch("validation", sequences, seed=0).inputs.split(4), task.tokens)


def _all_heads(
    layers: int, heads: int, sequences: int, threads: int, *, long: bool
) -> Iterator[Row]:
    program = f"from {__name__} import alone; print(alone{(layers, heads, sequences, threads)})"
    child = [sys.executable, "-c", program]
    done = subprocess.run(child, env=environment(), check=True, capture_output=True, text=True)
    seconds, used = json.loads(done.stdout.splitlines()[-1])
    size = f"{layers * heads} heads × {2 * LENGTH * sequences:,} points"
    for name, taken in seconds.items():
        yield Row(f"{name}, {size}", taken, "s")
    bound = 600.0 if long else None
    yield Row(f"all of it, {size}", sum(seconds.values()), "s", at_most=bound)
    bound = 1500.0 if long else None
    yield Row("peak of that process", used / 1e6, "MB", at_most=bound, note="PyTorch included")


def _live(heads: int, sequences: int, repeats: int, *, long: bool) -> Iterator[Row]:
    from attnlab.lens.query_key.maps import project

    points = points_of(model_of(1, heads), sequences)
    size = f"{2 * LENGTH * sequences:,} points"
    one = partial(project, points, "umap", heads=[(0, 0)])
    taken = _timed(one, repeats)
    yield _row(f"one head: UMAP of {size} and its faithfulness", taken, 5.0 if long else None)
    model = model_of(4, 4) if long else model_of(1, 2)
    known = points_of(model, sequences)
    for method in METHODS:
        maps = project(known, method)
        taken = _timed(partial(_place, maps, model), repeats)
        figure = f"a sentence of 60 tokens placed on {len(maps)} maps by {method}"
        yield _row(figure, taken, 1.0 if long else None)


def _place(maps: Any, model: TinyTransformer) -> Any:
    return maps.place(points_of(model, 1, 60))


def _row(figure: str, taken: list[float], bound: float | None) -> Row:
    middle, spread = statistics.median(taken), quartiles(taken)
    return Row(figure, middle, "s", at_most=bound, quartiles=spread)


def _timed(call: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of each call, after one that is not counted (it compiles)."""
    taken = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return taken[1:]


def alone(layers: int, heads: int, sequences: int, threads: int) -> str:
    """Seconds of each part and the peak of the process in bytes, as JSON."""
    from attnlab.lens.query_key.maps import project

    torch.set_num_threads(threads)
    model = model_of(layers, heads)
    seconds = {}
    start = time.perf_counter()
    points = points_of(model, sequences)
    seconds["collecting"] = time.perf_counter() - start
    for method in METHODS:
        start = time.perf_counter()
        project(points, method)
        seconds[f"{method} and its faithfulness"] = time.perf_counter() - start
    return json.dumps([seconds, peak()])
