"""What a query chose, as a sentence; ``study.js`` says the same on the page."""

from typing import Any

from attnlab.lens.selected import SELECTED
from attnlab_widgets.words import fixed


def percent(share: float) -> str:
    return f"{fixed(100 * share, 1)} %"


def sentence(widget: Any) -> str:
    """What the query reads in the present branch, and how much of full attention that is."""
    one, i, head = widget.selected, widget.row, widget.head
    where = f"{one.name}, head {head}: query {widget.query} “{widget.tokens[widget.query]}”"
    earlier = int(one.allowed[i].sum())
    if not earlier:
        return f"{where} is padding and reads nothing."
    read = int(one.read(widget.branch)[head, i])
    keys = f"{read} of {counted(earlier, 'key')}"
    share = percent(float(widget.kept()[i]))
    mean = percent(float(one.mean_kept(widget.branch)[head].float()))
    means = f"on the mean over all queries {mean}"
    if widget.branch == "compressed":
        return (
            f"{where} reads the means of stretches that cover {keys}; on these lies {share} of "
            f"full attention, {means}."
        )
    return f"{where} reads {keys}{_why(widget)} and keeps {share} of full attention, {means}."


def _why(widget: Any) -> str:
    one, i, head = widget.selected, widget.row, widget.head
    if widget.branch != SELECTED:
        return ", the last ones,"
    if one.of == "token":
        return ", those of the largest scores,"
    chosen, always = (int(x[head, i].sum()) for x in (one.chosen, one.always))
    return f" in {counted(chosen, 'block')}, of which {always} {_be(always)} always read,"


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
