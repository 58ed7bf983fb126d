"""What CompressionLab says of its state; the page says the same."""

import math
from typing import Any

from attnlab.lens.smaller import Settings

WHAT = {
    "all weights": "all weights",
    "each matrix": "the weights of each matrix",
    "hidden units": "the hidden units",
    "heads": "the heads",
}


def share(value: float) -> str:
    """Per cent with one digit: 0.9549 → 95.5 %."""
    tenths = math.floor(1000 * value + 0.5)
    return f"{tenths // 10}.{tenths % 10} %"


def size(count: int) -> str:
    """Bytes in thousands: 42,376 → 42.4 kB."""
    tenths = (count + 50) // 100
    return f"{tenths // 10}.{tenths % 10} kB"


def done(how: Settings) -> str:
    """What is kept, with how many bits."""
    kept = f"{math.floor(100 * how.kept + 0.5)} % of {WHAT[how.cut]} kept"
    if how.bits == 32:
        return f"{kept}, 32 bits each"
    per = "a matrix" if how.per == "tensor" else "a row"
    return f"{kept}, {how.bits} bits each with a scale for {per}"


def sentence(name: str, how: Settings, sizes: tuple[int, int], right: str) -> str:
    """Settings, bytes beside those of the whole model, and what is right."""
    now, whole = sizes
    of = f"{size(now)} of {size(whole)} ({share(now / whole)})"
    return f"{name[:1].upper()}{name[1:]}, {done(how)}: {of}. {right}"


def right(score: tuple[float, float, float] | None, whole: float, told: Any) -> str:
    """The share of right answers with its interval."""
    if score is None:
        return "How many answers are right is not stored for this way of cutting."
    middle, low, high = (share(each) for each in score)
    interval = f"95 % interval over the {told['over']} {low[:-2]} to {high}"
    found = f"{middle} of {told['answers']} are right ({interval})"
    return f"{found}; of the whole model {share(whole)}."


def seeds(name: str, found: list[float]) -> str:
    """What other trainings of the same size have right."""
    if not found:
        return ""
    listed = ", ".join(f"{each:.1f}" for each in found)
    return f"{len(found)} trainings of this size, nothing cut: {listed} % right."
