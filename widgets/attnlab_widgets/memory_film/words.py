"""What is kept and what is lost while a token is read, in sentences; ``src/lib/film.js`` says the
same on the page."""

from collections.abc import Sequence
from typing import Any

from attnlab.lens.memories import FAR, LOST
from attnlab_widgets.words import fixed, listed


def of_attention(told: Any, shares: Sequence[float], zones: Sequence[int], chosen: Any) -> str:
    """What a query attends to.

    ``told`` is the layer's description, ``shares`` what the query gives to its segment, to the
    memory and to the far one; ``zones`` those of all positions while its segment is read. Of
    ``chosen``, ``query`` is its number, ``token`` its text, ``head`` None for the mean.
    """
    parts = ["its segment", f"the {told['near']}", *([f"the {told['far']}"] if told["far"] else [])]
    said = [f"{percent(share)} to {part}" for share, part in zip(shares, parts, strict=False)]
    segment, count = chosen["query"] // told["segment"], len(told["starts"])
    return (
        f"Token {chosen['query']} “{chosen['token']}” in segment {segment + 1} of {count} attends"
        f"{_who(told['h'], chosen['head'])} {listed(said)}. "
        f"{_kept(told, zones, chosen['query'])}"
    )


def _who(heads: int, head: int | None) -> str:
    if heads == 1:
        return ""
    return f", on the mean of {heads} heads," if head is None else f", in head {head},"


def _kept(told: Any, zones: Sequence[int], query: int) -> str:
    far = sum(zone == FAR for zone in zones)
    lost = sum(zone == LOST for zone in zones)
    columns = far // told["covers"]
    stand = ""
    if columns and told["covers"] > 1:
        stand = (
            f"{columns} compressed vector{'s stand' if columns > 1 else ' stands'} for {far} "
            "tokens. "
        )
    if not lost:
        return stand + "No token before it is lost yet." if query else "It is the first token."
    return stand + (
        f"{lost} of the {query} tokens before it {'has' if lost == 1 else 'have'} "
        "fallen out of reach."
    )


def of_state(told: Any, holds: Sequence[float], chosen: Any) -> str:
    """Which channels hold longest. ``holds`` are half-lives in tokens, or changes from one state
    to the next."""
    order = sorted(range(len(holds)), key=lambda channel: holds[channel])
    low, high = order[0], order[-1]
    query, dim = chosen["query"], len(holds)
    start = f"After token {query} “{chosen['token']}”: "
    if not told["half_lives"]:
        return start + (
            f"channel {low} changes least from one state to the next, by "
            f"{short(holds[low])} of its standard deviation on the mean, channel {high} most, by "
            f"{short(holds[high])}."
        )
    left = sum(half_life >= query for half_life in holds)
    of_first = f" {left} of {dim} channels still hold half or more of what was read first."
    longest, shortest = short(holds[high]), short(holds[low])
    if longest == shortest:
        said = f"all channels have a half-life of {longest} tokens."
    else:
        said = (
            f"channel {high} holds longest, with a half-life of {longest} tokens, channel {low} "
            f"shortest, with {shortest}."
        )
    return start + said + (of_first if query else "")


def percent(share: float) -> str:
    return f"{fixed(100 * share, 0)} %"


def short(number: float) -> str:
    """Three digits or so: 0.04, 12.5, 103."""
    return fixed(number, 0 if number >= 99.95 else 1 if number >= 9.995 else 2)
