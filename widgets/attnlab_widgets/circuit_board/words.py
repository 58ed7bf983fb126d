"""What is said of wires and answers; ``words.js`` says the same."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from attnlab_widgets import words
from attnlab_widgets.circuit_board.paths import LETTERS, LOGITS, PLACES
from attnlab_widgets.network import Network

MEASURES = ("probability", "logit")
KINDS = {
    "itself": "looks at itself",
    "before": "looks one letter back",
    "same": "looks at the same letter",
    "behind": "looks behind the same letter",
}
CLEAR = 0.5
"""From which mean weight on a head is called after what it does."""


def called(sender: str) -> str:
    return f"the {sender}" if sender in (LETTERS, PLACES) else f"head {sender}"


def wire(sender: str, receiver: str) -> str:
    """from head 0.1 into the key of head 1.0"""
    if receiver == LOGITS:
        return f"from {called(sender)} to the logits"
    head, _, into = receiver.partition(" ")
    return f"from {called(sender)} into the {into} of head {head}"


def percent(share: Any) -> str:
    return f"{words.fixed(100 * float(share), 1)} %"


def change(letter: str, before: "Answer", after: "Answer", measure: str) -> str:
    """What becomes of the letter that is watched."""
    if measure == "logit":
        names = (f"{words.fixed(one.logit, 1)}" for one in (before, after))
        return f"the logit of “{letter}” above the mean goes from {' to '.join(names)}"
    return f"“{letter}” goes from {percent(before.chance)} to {percent(after.chance)}"


class Answer:
    """What is watched of one pass: the ``chance`` of a letter, its ``logit`` above the mean of all,
    and the ``first`` letter with its chance ``most``."""

    def __init__(self, logits: Tensor, watched: int) -> None:
        self.chances = logits.softmax(-1)
        self.chance = float(self.chances[watched])
        self.logit = float(logits[watched] - logits.mean())
        self.first = int(self.chances.argmax())
        self.most = float(self.chances[self.first])

    def of(self, measure: str) -> float:
        return self.logit if measure == "logit" else self.chance


def summary(
    network: Network,
    watched: int,
    why: str,
    cuts: Sequence[Sequence[str]],
    before: Answer,
    after: Answer,
    strongest: Sequence[str],
    measure: str,
    alone: Answer,
) -> str:
    """The sentence above the board: what the model writes, or what it writes after the cuts."""
    shown = network.shown
    letter = shown[watched]
    now = f"“{shown[after.first]}” with {percent(after.most)}"
    if not cuts:
        found = f"The model writes {now}. {why}"
        said = change(letter, before, alone, measure)
        return f"{found} The thickest wire leads {wire(*strongest)}: cut alone, {said}."
    many = f"the wire {wire(*cuts[0])}" if len(cuts) == 1 else f"{len(cuts)} wires"
    if after.first == before.first:
        return f"With {many} cut, the model still writes {now} instead of {percent(before.most)}."
    said = f"With {many} cut, the model writes {now} instead of "
    said += f"“{shown[before.first]}” with {percent(before.most)}."
    if watched not in (after.first, before.first):
        said += f" “{letter}” has {percent(after.chance)}."
    return said


def habit(weights: Tensor, tokens: Sequence[int]) -> tuple[str, float]:
    """What a head (n, n) looks at in this text, and with which mean weight; "" if at no one
    thing. The letter behind the same letter is that after its last earlier occurrence."""
    n, last = len(tokens), dict[int, int]()
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for at in range(n):
        row = weights[at]
        if at:
            found["itself"].append(float(row[at]))
            found["before"].append(float(row[at - 1]))
        if (same := last.get(tokens[at])) is not None:
            found["same"].append(float(row[same]))
            found["behind"].append(float(row[same + 1]))
        last[tokens[at]] = at
    means = {kind: sum(each) / len(each) for kind, each in found.items() if each}
    best = max(means, key=lambda kind: means[kind], default="")
    return (best, means[best]) if best and means[best] >= CLEAR else ("", 0.0)


def caption(weights: Tensor, tokens: Sequence[int]) -> str:
    kind, share = habit(weights, tokens)
    return f"{KINDS[kind]}, {words.fixed(100 * share, 0)} %" if kind else "looks at several letters"


def asked(network: Network, tokens: Sequence[int], at: int, guess: int) -> tuple[int, str]:
    """The letter that is watched after the letter ``at``, and why this one."""
    shown = network.shown
    here = shown[tokens[at]]
    earlier = [j for j in range(at) if tokens[j] == tokens[at]]
    if earlier:
        watched = tokens[earlier[-1] + 1]
        return watched, f"Right is “{shown[watched]}”, which came after “{here}” before."
    if at + 1 < len(tokens):
        watched = tokens[at + 1]
        return watched, f"In the text comes “{shown[watched]}”; “{here}” did not occur before."
    return guess, f"“{here}” did not occur before, so no letter is known to be right."
