"""Start: what `import attnlab` adds to `import torch`."""

import statistics
import subprocess
import sys
from collections.abc import Iterator

from attnlab.measure.memory import environment
from attnlab.measure.report import Row
from attnlab.measure.timing import compare, quartiles

_INSIDE = """
import time, torch
start = time.perf_counter()
{statement}
print(time.perf_counter() - start)
"""


def _fresh(program: str) -> str:
    """What the program prints, run by a new interpreter."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    repeats = 3 if quick else 15
    torch_alone, both = compare(
        {
            "torch": lambda: _fresh("import torch"),
            "torch, attnlab": lambda: _fresh("import torch, attnlab"),
        },
        repeats=repeats,
        warmup=1,
        threads=threads,
    )
    extra = [b - a for a, b in zip(torch_alone.seconds, both.seconds, strict=True)]
    yield Row(
        "import attnlab, beyond torch's own (fresh interpreters, pair by pair)",
        statistics.median(extra),
        "s",
        at_most=0.3,
        quartiles=quartiles(extra),
        note=f"import torch alone: {torch_alone.median:.2f} s",
    )
    inside = {
        "import attnlab, after torch in the same interpreter": ("import attnlab", 0.3),
        "the same and attnlab.cards(): what was put off": ("import attnlab; attnlab.cards()", None),
    }
    for figure, (statement, bound) in inside.items():
        program = _INSIDE.format(statement=statement)
        taken = [float(_fresh(program)) for _ in range(repeats)]
        middle, spread = statistics.median(taken), quartiles(taken)
        yield Row(figure, middle, "s", at_most=bound, quartiles=spread)
