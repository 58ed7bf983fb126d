"""How tokens come to their final state, in sentences; ``depth.js`` says the same on the page."""

from attnlab.lens.depths import Passage
from attnlab_widgets.memory_film.words import percent
from attnlab_widgets.words import two

NEAR = 0.1
"""A token within this share of its final state is said to have settled."""


def announcement(found: Passage, tokens: list[str], what: str, token: int) -> str:
    """What is common to all tokens, and the way of one. ``what`` a step is called, "layer"."""
    return f"{_of_all(found, what)} {_of_token(found, tokens, what, token)}"


def _of_all(found: Passage, what: str) -> str:
    n, s = found.distance.shape
    steps = f"{s} {what}{'s' if s > 1 else ''}"
    if found.early:
        first, last = int(found.left.min()), int(found.left.max())
        span = f"after {what} {found.steps[first - 1]}"
        if last > first:
            span = f"between {what} {found.steps[first - 1]} and {found.steps[last - 1]} of {s}"
        return (
            f"{n} tokens leave {span}: {percent(found.share())} of the work of all {steps} is done."
        )
    if found.residual is not None:
        residual = found.residual.tolist()
        return f"In {steps} the residual falls from {power(residual[0])} to {power(residual[-1])}."
    return f"All {n} tokens go through all {steps}."


def _of_token(found: Passage, tokens: list[str], what: str, token: int) -> str:
    left, settled = int(found.left[token]), found.settled(token, NEAR)
    name = f"Token {token} “{tokens[token]}”"
    at = f"{what} {found.steps[settled - 1]}"
    if found.early:
        said = f"{name} leaves after {what} {found.steps[left - 1]}"
        said += f" and is near its final state from {at} on" if settled < left else ""
    else:
        said = f"{name} is near its final state, within {percent(NEAR)}, from {at} on"
    if found.guesses is None or found.probabilities is None:
        return f"{said}."
    row, probable = found.guesses[token][:left], found.probabilities[token]
    same = next(i for i in range(left) if all(guess == row[-1] for guess in row[i:]))
    return (
        f"{said}; its answer, “{row[-1]}” with {two(float(probable[left - 1]))}, is the same from "
        f"{what} {found.steps[same]} on."
    )


def power(value: float) -> str:
    """A number of any size in few letters: 0.04, 12.5, 3.1e−5."""
    if value == 0 or 0.01 <= value < 1000:
        return two(value)
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits}e{int(exponent)}".replace("-", "−")
