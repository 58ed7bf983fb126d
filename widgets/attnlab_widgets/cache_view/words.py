"""What a stack keeps, in two sentences; ``words.js`` says the same."""

from collections import Counter
from collections.abc import Sequence

from attnlab_widgets.cache_view.bills import Kind

UNITS = ("B", "kB", "MB", "GB", "TB")


def size(number: float) -> str:
    """Bytes in decimal units, with three digits."""
    at = 0
    while number >= 999.5 and at < len(UNITS) - 1:
        number, at = number / 1000, at + 1
    return f"{_three(number)} {UNITS[at]}"


def _three(number: float) -> str:
    if number >= 999.5:
        return f"{number:,.0f}"
    digits = 0 if number >= 99.95 else 1 if number >= 9.995 else 2
    text = f"{number:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def times(now: float, before: float) -> str:
    """How two sizes compare, in words."""
    if not now or not before:
        return "" if now == before else f", where the model keeps {size(before)}"
    if abs(now - before) < 1e-9 * before:
        return ""
    ratio, word = (before / now, "less") if now < before else (now / before, "more")
    return f", {_three(ratio)} times {word} than the model ({size(before)})"


def sentence(
    name: str, kinds: dict[str, Kind], layers: Sequence[str], published: float, tokens: int,
    bits: int,
) -> str:  # fmt: skip
    """What all layers keep, how it compares, and which kind keeps most."""
    each = Counter(layers)
    sums = {key: count * kinds[key].bytes(tokens, bits) for key, count in each.items()}
    whole = sum(sums.values())
    rounded = "" if bits == 16 else f" in {bits} bits"
    head = (
        f"{name}, {tokens:,} token{'s' * (tokens != 1)}{rounded}: {len(layers)} layers keep "
        f"{size(whole)}{times(whole, published)}."
    )
    if not whole:
        return head
    most = max(sums, key=lambda key: sums[key])
    share = 100 * sums[most] / whole
    said = "all" if share == 100 else f"{share:.0f} %" if share < 99.5 else "nearly all"
    return f"{head} {each[most]} × {kinds[most].title} keep {said} of it."
