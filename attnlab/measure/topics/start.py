"""Start: what `import attnlab` adds to `import torch`."""

import statistics
import subprocess
import sys
from collections.abc import Iterator

from attnlab.measure.memory import environment
from attnlab.measure.report import Row
from attnlab.measure.timing import compare, quartiles

_INSIDE = (
    "import time, torch; start = time.perf_counter(); import attnlab; "
    "print(time.perf_counter() - start)"
)


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
    inside = [float(_fresh(_INSIDE)) for _ in range(repeats)]
    yield Row(
        "import attnlab, after torch in the same interpreter",
        statistics.median(inside),
        "s",
        at_most=0.3,
        quartiles=quartiles(inside),
    )
