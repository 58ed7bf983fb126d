"""What is said of one step at one letter; ``words.js`` says the same."""

from typing import Any

import torch
from torch import Tensor

from attnlab_widgets import words
from attnlab_widgets.network import Network
from attnlab_widgets.walk.steps import Step

NAMED = 3  # answers that are named


def where(step: Step, at: int, count: int) -> str:
    return f"Step {at + 1} of {count}, {step.part}: {step.name}."


def seen(network: Network, run: dict[str, Tensor], ids: list[int], step: Step, at: int,
         head: int, silent: Any) -> str:  # fmt: skip
    """What this step gives at the letter ``at``, of one head where there are several."""
    values = run[step.key]
    letter = placed(network, ids, at)
    if step.kind in ("logits", "chances"):
        return f"After {letter}: {answers(network, values[at], step.kind)}."
    if step.kind == "vectors":
        return f"{letter}: {vector(values[at])}."
    layer = int(step.key.partition(".")[0])
    name = f"Head {layer}.{head}"
    row = values[head, at]
    if step.kind == "heads":
        mute = " It is silent: what it gathers is replaced by zeros."
        shows = step.key.endswith(".gathered") and [layer, head] in silent
        return f"{name}, {letter}: {vector(row)}.{mute if shows else ''}"
    best = int(row[: at + 1].argmax())
    other = placed(network, ids, best) if best != at else "itself"
    if step.kind == "scores":
        return f"{name}: {letter} scores highest with {other}, {fixed(row[best])}."
    mute = " It is silent: nothing that it gathers is passed on." if [layer, head] in silent else ""
    return f"{name}: {letter} gives {fixed(row[best])} of its weight to {other}.{mute}"


def placed(network: Network, ids: list[int], at: int) -> str:
    return f"“{network.shown[ids[at]]}” ({at})"


def vector(row: Tensor) -> str:
    """How long it is, and its largest number."""
    most = int(row.abs().argmax())
    numbers = "1 number" if len(row) == 1 else f"{len(row)} numbers"
    if not row[most]:
        return f"{numbers}, all zeros"
    largest = f"{'+' if row[most] > 0 else ''}{fixed(row[most])}"
    return f"{numbers} of length {fixed(row.norm())}; the largest, number {most}, is {largest}"


def answers(network: Network, row: Tensor, kind: str) -> str:
    """The most probable letters, or those with the highest logits."""
    order = torch.argsort(row, descending=True, stable=True)[:NAMED].tolist()
    said = percent if kind == "chances" else fixed
    return ", ".join(f"“{network.shown[token]}” {said(row[token])}" for token in order)


def fixed(value: Any) -> str:
    return words.two(float(value))


def percent(value: Any) -> str:
    return f"{words.fixed(100 * float(value), 1)} %"
