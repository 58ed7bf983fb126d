"""What torch.compile gains on a CPU, form by form, as ``python -m attnlab.measure compiled`` has
stored it."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from attnlab.core.card import Card
from attnlab.measure.benchmarks.compiled import LENGTH, PASSES, named

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
    return [stored()["rows"].get(named(card.name, form, LENGTH, which)) for which in PASSES]


def gain(card: Card) -> dict[str, Any]:
    """What the table says of a mechanism: how many times as fast the forward pass of its last form
    is (None where that is not measured), and of all its forms a sentence."""
    forward, _ = rows_of(card, forms_of(card)[0])
    said = " ".join(f"{_upper(form)}: {sentence(card, form)}." for form in forms_of(card))
    return {"compiled": forward["measured"] if forward else None, "compiled_said": said}


def sentence(card: Card, form: str) -> str:
    """What torch.compile gains for one form, in words, or why it is not known."""
    parts = zip(PASSES, rows_of(card, form), strict=True)
    found = [(which, row, why_not(card, form, row)) for which, row in parts]
    if len({why for *_, why in found}) == 1 and found[0][2]:
        return found[0][2]
    return ", ".join(
        f"{which} {why}" if why or row is None else f"{which} {row['measured']:.2f} times as fast"
        for which, row, why in found
    )


def why_not(card: Card, form: str, row: Mapping[str, Any] | None) -> str:
    """Why a pass has no figure; empty where it has one."""
    if row is not None:
        return "" if row["measured"] is not None else f"not measured, {row['note']}"
    if card.order("launches", form) == 1:
        return "not measured yet"
    return "not measured: its operations grow in number with n, and the compiler writes all out"


def machine() -> str:
    """Where the gains were measured, in words."""
    if not (where := stored()["machine"]):
        return ""
    threads = f"{where['threads']} thread{'s' * (where['threads'] != '1')}"
    shared = f"{threads} of a processor that other programs used too ({where['processor']}"
    return f"{shared}, PyTorch {where['torch']}), n = {LENGTH:,}"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:].replace("_", " ")
