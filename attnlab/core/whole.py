"""Whole numbers: what a size, a count or a position has to be."""


def whole(name: str, value: object, *, at_least: int | None = None) -> None:
    """A TypeError or a ValueError, in a sentence, unless ``value`` is such a whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} should be a whole number, got {value!r}")
    if at_least is not None and value < at_least:
        raise ValueError(f"{name} should be at least {at_least}, got {value}")
