"""What torch.compile gains on a CPU, form by form, as ``python -m attnlab.measure compiled`` has
stored it."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from attnlab.core.card import Card
from attnlab.measure.benchmarks.compiled import LENGTH, PASSES, STEPS, named, tokens
from attnlab_widgets.words import to_fixed

NOT_YET = "not measured yet"
STORED = Path(__file__).parent / "compiled.json"


@cache
def stored() -> dict[str, Any]:
    """The machine, and the rows by their figures."""
    if not STORED.is_file():
        return {"machine": {}, "rows": {}}
    run = json.loads(STORED.read_text(encoding="utf-8"))
    return {
        "machine": run["machine"],
        "rows": {row["figure"]: row for row in run["topics"]["compiled"]},
    }


def forms_of(card: Card) -> list[str]:
    """The forms of a page that can be chosen, the last one first."""
    *others, last = card.forms
    return [last, *others] if "form" in card.option_names() else [last]


def rows_of(card: Card, form: str) -> list[Mapping[str, Any] | None]:
    """The stored row of each pass; None where there is none."""
    n = tokens(card, form)
    return [stored()["rows"].get(named(card.name, form, n, which)) for which in PASSES]


def gain(card: Card) -> dict[str, Any]:
    """What the table says of a mechanism: how many times as fast the forward pass of its last form
    is for ``LENGTH`` tokens, and the quartiles of the rounds (None where that is not measured), and
    of all its forms a sentence."""
    last = forms_of(card)[0]
    forward = rows_of(card, last)[0] if tokens(card, last) == LENGTH else None
    said = " ".join(f"{_upper(form)}: {sentence(card, form)}." for form in forms_of(card))
    known = forward if forward and forward["measured"] is not None else {}
    return {
        "compiled": known.get("measured"),
        "compiled_quartiles": known.get("quartiles"),
        "compiled_said": said,
    }


def sentence(card: Card, form: str) -> str:
    """What torch.compile gains for one form, in words, or why it is not known."""
    parts = zip(PASSES, rows_of(card, form), strict=True)
    found = {which: _of_pass(row) for which, row in parts}
    if {*found.values()} == {NOT_YET}:
        return NOT_YET
    few = "" if tokens(card, form) == LENGTH else f"for {STEPS} tokens, "
    return few + ", ".join(f"{which} {said}" for which, said in found.items())


def _of_pass(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return NOT_YET
    if row["measured"] is None:
        return why_not(row["note"])
    return f"{times(row['measured'], row['quartiles'])} times as fast ({spread(row['quartiles'])})"


def why_not(note: str) -> str:
    """Why there is no figure, in words; what the compiler said of it stands in the file alone."""
    if re.match(r"\w+: ", note):  # the name of an error
        return "does not compile"
    return f"not measured, {note}"


def times(gain: float, quartiles: Sequence[float]) -> str:
    """The median of the rounds; where half of them lie around 1, no gain and no loss is known."""
    low, high = quartiles
    return "≈ 1" if low <= 1 <= high else to_fixed(gain, 2)


def spread(quartiles: Sequence[float]) -> str:
    return " to ".join(to_fixed(each, 2) for each in quartiles)


def machine() -> str:
    """Where the gains were measured, in words."""
    if not (where := stored()["machine"]):
        return ""
    threads = f"{where['threads']} thread{'s' * (where['threads'] != '1')}"
    shared = f"{threads} of a processor that other programs used too ({where['processor']}"
    return f"{shared}, PyTorch {where['torch']}), n = {LENGTH:,} where no other length is named"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:].replace("_", " ")
