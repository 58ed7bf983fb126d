"""What the state returns for each key after a token, in sentences; ``words.js`` says the same."""

from collections.abc import Sequence

from attnlab_widgets.words import listed, two

ALIKE = 1e-9
"""Readings that differ by less are the same."""
NOTHING = 0.005
"""A reading of less shows as 0.00."""


def number(value: float) -> str:
    """Two digits; beyond 1,000 a power of ten. What is alike on both sides is said alike."""
    if abs(value) < 1000:
        return two(round(value, 9))
    digits, power = f"{value:.1e}".split("e")
    return f"{digits} · 10^{int(power)}".replace("-", "−")


def best(reading: Sequence[float]) -> list[int]:
    """The places of the largest reading; none where nothing is read."""
    most = max(reading)
    return [] if most < NOTHING else [j for j, x in enumerate(reading) if most - x < ALIKE]


def sentence(
    title: str, token: int, count: int, fact: Sequence[str], spectrum: Sequence[float],
    names: Sequence[str], values: Sequence[str], readings: Sequence[Sequence[float]],
    newest: Sequence[int | None],
) -> str:  # fmt: skip
    """What the transition of a token does, and what each key returns after it, in two sentences.
    ``newest`` holds the value that was last written to each key."""
    known = [i for i, value in enumerate(newest) if value is not None]
    said = [f"{names[i]} returns {_returned(values, readings[i])}" for i in known]
    right = sum(best(readings[i]) == [newest[i]] for i in known)
    are = "is" if len(spectrum) == 1 else "are"
    what = "eigenvalue" if len(spectrum) == 1 else "eigenvalues"
    return (
        f"{title}, token {token} of {count}, {fact[0]} → {fact[1]}: the {what} of A {are} "
        f"{listed([number(x) for x in spectrum])}. Now {listed(said)}: {right} of {len(known)} "
        f"{'key returns its' if len(known) == 1 else 'keys return their'} newest value."
    )


def _returned(values: Sequence[str], reading: Sequence[float]) -> str:
    found = best(reading)
    if not found:
        return "nothing"
    return f"{' or '.join(values[j] for j in found)} ({number(reading[found[0]])})"
