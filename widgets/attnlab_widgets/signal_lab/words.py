"""What a kernel does to a signal, in a sentence or two; ``signals.js`` says the same on the
page."""

import cmath
import math
from collections.abc import Sequence

from attnlab_widgets.words import fixed, two

RULES = {"zoh": "zero-order hold", "bilinear": "bilinear rule"}
_STILL = 1e-9
"""A pole that fades or turns by less in a step does not fade or turn."""
_MOST = 9999.0  # tokens


def of_poles(
    poles: Sequence[Sequence[float]], decays: Sequence[complex], step: float, rule: str,
    kernel: Sequence[float],
) -> str:  # fmt: skip
    """A sentence of poles A, their decays Ā and the kernel: how long it remembers and how fast it
    turns."""
    slowest = max(map(abs, decays))
    fastest = max(abs(cmath.phase(decay)) for decay in decays)
    count = len(poles)
    begin = "One pole" if count == 1 else f"{count} poles"
    which = ("its mode", "it") if count == 1 else ("the slowest mode", "the fastest")
    return (
        f"{begin}, steps of {fixed(step, 4).rstrip('0').rstrip('.')} ({RULES[rule]}): {which[0]} "
        f"{fades(slowest)}, {which[1]} {turns(fastest)}.{_on_the_axis(poles)}"
        f"{_aliased(poles, step, rule)} {_sum(kernel)}"
    )


def of_taps(taps: Sequence[float], kernel: Sequence[float]) -> str:
    """A sentence of a kernel that ends."""
    count = len(taps)
    if count == 1:
        reach = "One tap: every token reads itself alone."
    else:
        before = "the token" if count == 2 else f"the {count - 1} tokens"
        reach = f"{count} taps: every token reads itself and {before} before it, and none older."
    return f"{reach} {_sum(kernel)}"


def fades(size: float) -> str:
    """How soon a mode of that |Ā| has faded to half."""
    if size > 1 - _STILL:
        return "does not fade"
    return f"fades to half in {_tokens(math.log(2) / -math.log(max(size, 1e-300)))}"


def turns(angle: float) -> str:
    """How long a mode of that |arg Ā| takes to turn once."""
    if angle < _STILL:
        return "does not turn"
    return f"turns once in {_tokens(2 * math.pi / angle)}"


def _tokens(count: float) -> str:
    return "more than 9,999 tokens" if count > _MOST else f"{fixed(count, 1)} tokens"


def _on_the_axis(poles: Sequence[Sequence[float]]) -> str:
    if all(real < 0 for real, _ in poles):
        return ""
    return " A pole on the imaginary axis never fades."


def _aliased(poles: Sequence[Sequence[float]], step: float, rule: str) -> str:
    """Samples of a mode that turns by more than half a circle look like those of a slower one."""
    found = sum(abs(turn) * step > math.pi for _, turn in poles)
    if rule != "zoh" or not found:
        return ""
    turns, looks = ("One mode turns", "looks") if found == 1 else (f"{found} modes turn", "look")
    return f" {turns} by more than half a circle in a step and {looks} slower."


def _sum(kernel: Sequence[float]) -> str:
    return f"The kernel sums to {two(sum(kernel))}."
