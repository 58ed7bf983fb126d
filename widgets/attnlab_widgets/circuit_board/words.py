"""What is said of wires and answers; ``words.js`` says the same."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from attnlab_widgets import words
from attnlab_widgets.circuit_board.paths import LETTERS, LOGITS, PLACES, Wire
from attnlab_widgets.network import Network

MEASURES = ("probability", "logit")
OTHER = "another text"
KINDS = {
    "itself": "looks at itself",
    "before": "looks one {} back",
    "same": "where a {} repeats, at the same",
    "behind": "where a {} repeats, behind the same",
}
CLEAR, ROWS = 0.5, 2
"""From which mean weight on, over at least so many rows, a head is called after what it does."""
LEAST = 1e-12
"""What is below is the rounding of float64."""


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
    what = f"the logit of “{letter}” above the mean" if measure == "logit" else f"“{letter}”"
    one, other = before.said(measure), after.said(measure)
    return f"{what} stays at {one}" if one == other else f"{what} goes from {one} to {other}"


def noun(network: Network) -> str:
    """What a token of this model is called."""
    return "letter" if all(len(name) == 1 for name in network.names) else "token"


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

    def said(self, measure: str) -> str:
        return words.fixed(self.logit, 1) if measure == "logit" else percent(self.chance)


def summary(
    network: Network,
    watched: int,
    why: str,
    cuts: Sequence[Sequence[str]],
    before: Answer,
    after: Answer,
    measure: str,
) -> str:
    """The sentence above the board: what the model writes, or what it writes after the cuts."""
    shown = network.shown
    now = f"“{shown[after.first]}” with {percent(after.most)}"
    if not cuts:
        return f"The model writes {now}. {why}"
    many = f"the wire {wire(*cuts[0])}" if len(cuts) == 1 else f"{len(cuts)} wires"
    told = change(shown[watched], before, after, measure)
    stays = before.said(measure) == after.said(measure)
    told = f" {told[0].upper()}{told[1:]}."
    if after.first != before.first:
        said = f"With {many} cut, the model writes {now} instead of "
        said += f"“{shown[before.first]}” with {percent(before.most)}."
        return said if watched in (after.first, before.first) else said + told
    if percent(before.most) != percent(after.most):
        said = f"With {many} cut, the model still writes {now} instead of {percent(before.most)}."
        return said if watched == after.first or stays else said + told
    if stays:
        return f"With {many} cut, nothing changes: the model writes {now}."
    return f"With {many} cut, the model still writes {now}.{told}"


def thickest(
    network: Network, watched: int, strongest: Wire, before: Answer, alone: Answer, measure: str
) -> str:
    said = change(network.shown[watched], before, alone, measure)
    return f"The thickest wire leads {wire(*strongest)}: cut alone, {said}."


def idle(instead: str, same: bool) -> str:
    """Where no cut of one wire changes anything; ``same``: the other text is the text itself."""
    if same:
        return (
            "No cut changes anything, as the other text is this one again: "
            "let cut wires carry zeros or the mean."
        )
    found = "No wire that is cut alone changes anything"
    return f"{found}: let cut wires carry zeros or the mean." if instead == OTHER else f"{found}."


def habit(weights: Tensor, tokens: Sequence[int]) -> tuple[str, float]:
    """What a head (n, n) looks at in this text, and with which mean weight; "" if at no one
    thing. The same letter is its last earlier occurrence; only rows count in which one kind alone
    names a place, so that "aa" is no proof of any."""
    n, last = len(tokens), dict[int, int]()
    if n == 1:
        return "itself", 1.0
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for at in range(n):
        places = {"itself": at, "before": at - 1} if at else {}
        if (same := last.get(tokens[at])) is not None:
            places |= {"same": same, "behind": same + 1}
        for kind, place in places.items():
            if list(places.values()).count(place) == 1:
                found[kind].append(float(weights[at, place]))
        last[tokens[at]] = at
    means = {kind: sum(each) / len(each) for kind, each in found.items() if len(each) >= ROWS}
    best = max(means, key=lambda kind: means[kind], default="")
    return (best, means[best]) if best and means[best] >= CLEAR else ("", 0.0)


def caption(weights: Tensor, tokens: Sequence[int], noun: str) -> str:
    """``weights`` (n, n); ``noun`` is what a token is called."""
    kind, share = habit(weights, tokens)
    return (
        f"{KINDS[kind].format(noun)}, {words.fixed(100 * share, 0)} %" if kind else "no one habit"
    )


def asked(network: Network, tokens: Sequence[int], at: int, guess: int) -> tuple[int, str]:
    """The letter that is watched after the letter ``at``, and why this one."""
    shown = network.shown
    here = shown[tokens[at]]
    earlier = [j for j in range(at) if tokens[j] == tokens[at]]
    if earlier:
        watched = tokens[earlier[-1] + 1]
        found = f"After “{here}” came “{shown[watched]}” the last time"
        if at + 1 < len(tokens) and tokens[at + 1] != watched:
            found += f", and here comes “{shown[tokens[at + 1]]}”"
        return watched, f"{found}."
    if at + 1 < len(tokens):
        watched = tokens[at + 1]
        return watched, f"In the text comes “{shown[watched]}”; “{here}” did not occur before."
    return guess, f"“{here}” did not occur before, so no {noun(network)} is known to be right."
