"""What KernelLab shows, in sentences; ``words.js`` says the same on the page."""

from attnlab.lens.kernel_maps import HEADS, KINDS, Approximation, Choice, Speed
from attnlab_widgets.kernel_lab.given import Head
from attnlab_widgets.words import fixed


def setting(choice: Choice, width: int) -> str:
    """A choice for heads of this width, in words; what has no effect is left out."""
    count = choice.count(width)
    said = KINDS[choice.feature]
    if count is not None:
        said += f", {count:,} features"
    if choice.random:
        said += f", {'orthogonal' if choice.orthogonal else 'i.i.d.'}, seed {choice.seed}"
    heat = temperature(choice.temperature)
    return said if heat == "1" else f"{said}, temperature {heat}"


def temperature(value: float) -> str:
    """At most two digits after the point."""
    return fixed(value, 2).rstrip("0").rstrip(".")


def percent(share: float) -> str:
    """Whole per cent from 10 on, below with a digit more."""
    if share == 0:
        return "0 %"
    if share < 0.001:
        return "less than 0.1 %"
    return f"{fixed(100 * share, 1)} %" if share < 0.0995 else f"{int(fixed(100 * share, 0)):,} %"


def description(seen: Approximation, choice: Choice, head: Head) -> str:
    """How much of the attention is in the wrong place, and in which row most."""
    said = setting(choice, head.width)
    said = said[0].upper() + said[1:]
    if choice.feature == "softmax":
        return f"{said}: the map that all others are measured by."
    worst = int(seen.misplaced.argmax())
    text = (
        f"{said}: {percent(seen.error)} of the attention sits in the wrong place; in the worst "
        f"row, {head.names[worst]} at position {worst}, {percent(float(seen.misplaced[worst]))}."
    )
    if seen.negative:
        text += (
            f" {seen.negative} of {len(seen.map)} rows are divided by a number below zero: "
            "their weights change sign."
        )
    if seen.empty:
        text += f" {seen.empty} of {len(seen.map)} rows have no weight at all."
    return text


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
