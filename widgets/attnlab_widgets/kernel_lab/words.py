"""What KernelLab shows, in sentences; ``words.js`` says the same on the page."""

from collections.abc import Iterable

from attnlab.lens.kernel_maps import HEADS, KINDS, Approximation, Choice, Speed
from attnlab_widgets.kernel_lab.given import Head
from attnlab_widgets.words import fixed, two

FEWEST_DIGITS, MOST_DIGITS = 2, 20


def setting(choice: Choice, width: int, digits: int = FEWEST_DIGITS) -> str:
    """A choice for heads of this width, in words; what has no effect is left out."""
    count = choice.count(width)
    said = KINDS[choice.feature]
    if count is not None:
        said += f", {count:,} feature{'' if count == 1 else 's'}"
    if choice.random:
        said += f", {'orthogonal' if choice.orthogonal else 'i.i.d.'}, seed {choice.seed}"
    heat = temperature(choice.temperature, digits)
    return said if heat == "1" else f"{said}, temperature {heat}"


def temperature(value: float, digits: int = FEWEST_DIGITS) -> str:
    """At most so many digits after the point."""
    return fixed(value, digits).rstrip("0").rstrip(".")


def digits_of(temperatures: Iterable[float]) -> int:
    """How many digits after the point tell these temperatures apart: two, or more."""
    apart = set(temperatures)
    for digits in range(FEWEST_DIGITS, MOST_DIGITS):
        if len({temperature(value, digits) for value in apart}) == len(apart):
            return digits
    return MOST_DIGITS


def percent(share: float) -> str:
    """Whole per cent from 10 on, below with a digit more."""
    if share == 0:
        return "0 %"
    if share < 0.001:
        return "less than 0.1 %"
    return f"{fixed(100 * share, 1)} %" if share < 0.0995 else f"{int(fixed(100 * share, 0)):,} %"


def description(
    seen: Approximation, choice: Choice, head: Head, digits: int = FEWEST_DIGITS
) -> str:
    """How much of the attention is in the wrong place, and in which row most."""
    said = setting(choice, head.width, digits)
    said = said[0].upper() + said[1:]
    if choice.feature == "softmax":
        return f"{said}: the map that all others are measured by."
    worst = int(seen.misplaced.argmax())
    name = head.names[worst]
    where = f"that at position {worst}" if name == str(worst) else f"{name} at position {worst}"
    text = (
        f"{said}: {percent(seen.error)} of the attention sits in the wrong place; in the worst "
        f"row, {where}, {percent(float(seen.misplaced[worst]))}."
    )
    rows = f"of {len(seen.map)} row{'' if len(seen.map) == 1 else 's'}"
    if seen.negative:
        one = seen.negative == 1
        text += (
            f" {seen.negative} {rows} {'is' if one else 'are'} divided by a number below zero: "
            f"{'its' if one else 'their'} weights change sign."
        )
    if seen.empty:
        text += f" {seen.empty} {rows} {'has' if seen.empty == 1 else 'have'} no weight at all."
    return text


def reach(seen: Approximation) -> str:
    """How far weights go that have both signs, where the colours end before; "" otherwise."""
    least, most = float(seen.map.min()), float(seen.map.max())
    if max(-least, most) < 1.005:
        return ""
    return f"colours end at ±1: here weights go from {two(least)} to {two(most)}"


def timed(measured: Speed, n: int, width: int, causal: bool) -> str:
    """What was measured, as the page shows it."""
    ratio = measured.ratio
    verdict = (
        f"it is {1 / ratio:.1f} × as fast" if ratio <= 1 else f"it takes {ratio:.1f} × as long"
    )
    return (
        f"{n:,} tokens, {HEADS} heads of width {width}{', causal' if causal else ''}: "
        f"{1e3 * measured.own:.3g} ms, exact softmax {1e3 * measured.exact:.3g} ms: {verdict}. "
        "Median of 5 passes where Python ran."
    )
