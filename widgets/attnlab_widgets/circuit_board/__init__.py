"""Which wire carries the answer?

    CircuitBoard()                                      # the shipped copier
    CircuitBoard(model, "a text", names=task.tokens(range(task.vocab)))     # a small model of yours

All heads of a language model as chips on a board, and the wires between them: from the letters, the
places and the heads below into the query, key and value of every head, and to the logits. Each wire
is as thick as what its cut does to the answer, and every one of these cuts is computed (``paths``).
Click a wire: it is cut, the pass is computed again, and the answer changes. What a cut wire carries
is said and can be chosen: zeros, a mean, or what its sender makes of another text.

The page computes all of it from the parameters, so that a saved file needs neither Python nor a
network. For the models that ``Walk`` takes, up to 240 wires.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import traitlets
from torch import Tensor

from attnlab.core.arguments import check_list, check_number
from attnlab.figures.drawing import Drawing
from attnlab.models.tiny import TinyTransformer
from attnlab_widgets.base import STATIC, Checked, Choice, as_trait_error, within
from attnlab_widgets.circuit_board import paths, words
from attnlab_widgets.circuit_board.paths import Wire
from attnlab_widgets.circuit_board.picture import picture
from attnlab_widgets.circuit_board.words import LEAST, MEASURES, OTHER, Answer
from attnlab_widgets.draws import LARGEST_SEED
from attnlab_widgets.legend import SaysUntrained
from attnlab_widgets.network import Network, begun, copier, network_of

TITLE = "The circuit board"
INSTEAD = ("zeros", "the mean", OTHER)
MOST_WIRES = 240
COPIER = (
    "A model that continues what repeats, its four heads as chips. Read it from below: head 0.1 "
    "tells every letter which one stood before it; heads 1.0 and 1.1 look for the place whose key "
    "says “before me stood this letter”, and copy the letter there."
)
HINT = "cut the wire from head 0.1 into the key of head 1.1, then that into the key of head 1.0."


class CircuitBoard(SaysUntrained):
    """The heads of a small language model, and what becomes of the answer if a wire is cut.

    ``model``    a ``TinyTransformer`` that ``Walk`` takes; unless given the shipped copier
                 (``attnlab.pretrained.load("induction")``)
    ``text``     what it reads, at most as long as it has positions; unless given a word that
                 begins again, or a few tokens where the model does not know its letters
    ``names``    how each token of the vocabulary is typed; unless given letters, digits, +, /
    ``untrained``  whether nobody trained the model: the page and the picture then say so

    ``at`` (the letter after which it answers, -1 for the last), ``cuts`` (pairs of a sender and a
    receiver, such as ["0.1", "1.0 key"] and ["letters", "logits"]), ``instead`` (what a cut wire
    carries: "zeros", "the mean" or "another text"), ``order`` (a seed of the order of letters in
    the other text), ``measure`` ("probability", or "logit" above the mean of all letters),
    ``least`` (wires with less than this share of the largest effect are grey) and ``through``
    (whether wires lead through the feed-forward layers) can be read and set.
    """

    _esm = STATIC / "circuit_board.js"

    text = traitlets.Unicode("").tag(sync=True)
    at = traitlets.Int(-1).tag(sync=True)
    cuts: Any = Checked().tag(sync=True)
    instead = Choice(INSTEAD, "another text").tag(sync=True)
    order = traitlets.Int(0).tag(sync=True)
    measure = Choice(MEASURES, "probability").tag(sync=True)
    least = traitlets.Float(0.05).tag(sync=True)
    through = traitlets.Bool(True).tag(sync=True)
    _told: Any = traitlets.Dict().tag(sync=True)
    _numbers = traitlets.Bytes().tag(sync=True)
    _means = traitlets.Bytes().tag(sync=True)

    def __init__(
        self,
        model: TinyTransformer | None = None,
        text: str | None = None,
        *,
        names: Sequence[str] | None = None,
        at: int = -1,
        cuts: Sequence[Sequence[str]] = (),
        instead: str = "another text",
        order: int = 0,
        measure: str = "probability",
        least: float = 0.05,
        through: bool = True,
        untrained: bool = False,
        theme: str = "auto",
    ) -> None:
        own = model is not None or names is not None
        self.network: Network = network_of(copier() if model is None else model, names)
        self.wires: list[Wire] = paths.wires(self.network)
        """Every wire of the board, as pairs of a sender and a receiver."""
        if len(self.wires) > MOST_WIRES:
            raise ValueError(
                f"this model has {len(self.wires)} wires, more than the {MOST_WIRES} that a board "
                "holds; take one with fewer heads or layers"
            )
        self._mean = paths.means(self.network) if own else _means_of_the_copier()
        about, hint = (self._size(), "") if own else (COPIER, HINT)
        told = self.network.told() | {"texts": paths.TEXTS}
        told |= {"noun": words.noun(self.network)}
        self._kept: dict[Any, Any] = {}
        super().__init__(
            _told=told | {"about": about, "try": hint},
            _numbers=self.network.packed(),
            _means=torch.cat(list(self._mean.values())).half().numpy().tobytes(),
            text=begun(self.network) if text is None else text,
            cuts=cuts,
            instead=instead,
            measure=measure,
            through=through,
            untrained=untrained,
            theme=theme,
        )
        self.at, self.order, self.least = at, order, least

    def _size(self) -> str:
        heads = sum(self.network.heads)
        count = len(self.network.heads)
        return (
            f"A language model of {count} {'layer' if count == 1 else 'layers'}, its {heads} "
            f"{'head' if heads == 1 else 'heads'} as chips, and {len(self.wires)} wires."
        )

    # What follows from the state

    def tokens(self) -> list[int]:
        """The tokens of the text."""
        return self.network.read(self.text)

    @property
    def place(self) -> int:
        """The letter after which it answers, from 0: ``at``, or the last one."""
        last = len(self.tokens()) - 1
        return last if self.at < 0 else min(self.at, last)

    def other(self) -> str:
        """The other text: the same letters in another order."""
        return "".join(
            self.network.names[token] for token in paths.reordered(self.tokens(), self.order)
        )

    def replaced(self) -> dict[str, Tensor]:
        """What cut wires carry, by their sender, (n, dim)."""
        tokens = self.tokens()
        if self.instead == "zeros":
            return paths.zeros(self.network, len(tokens))
        if self.instead == "the mean":
            return {name: mean.expand(len(tokens), -1) for name, mean in self._mean.items()}
        return paths.run(self.network, paths.reordered(tokens, self.order)).added

    def run(self, cuts: Sequence[Sequence[str]] | None = None) -> paths.Pass:
        """The pass of the text of n tokens with these wires cut; unless given those of ``cuts``.

        What each sender adds (n, dim), the weights of each head (n, n) and the logits (n, vocab),
        in float64. A ValueError for a wire that this board does not have."""
        chosen = self.cuts if cuts is None else _cuts(cuts, self.wires)
        instead = self.replaced() if chosen else None
        return paths.run(self.network, self.tokens(), chosen, instead, self.through)

    @property
    def watched(self) -> int:
        """The token whose probability or logit is watched: what came after the same letter before,
        else what comes in the text, else what the model expects."""
        return self._asked()[0]

    def _asked(self) -> tuple[int, str]:
        guess = int(self.run([]).logits[self.place].argmax())
        return words.asked(self.network, self.tokens(), self.place, guess)

    def answer(self, cuts: Sequence[Sequence[str]] | None = None) -> Answer:
        """What is watched of the pass with these wires cut."""
        return Answer(self.run(cuts).logits[self.place], self.watched)

    def alone(self) -> dict[Wire, Answer]:
        """What is watched if one wire alone is cut, of each."""
        key = (self.text, self.place, self.instead, self.order, self.through)
        if key not in self._kept:
            tokens, instead, watched = self.tokens(), self.replaced(), self.watched
            self._kept = {
                key: {
                    wire: Answer(
                        paths.run(self.network, tokens, [wire], instead, self.through).logits[
                            self.place
                        ],
                        watched,
                    )
                    for wire in self.wires
                }
            }
        found: dict[Wire, Answer] = self._kept[key]
        return found

    def effects(self) -> dict[Wire, float]:
        """By how much the answer falls if one wire alone is cut: its probability, or its logit
        above the mean of all letters. Below 0 it rises."""
        whole = self.answer([]).of(self.measure)
        return {wire: whole - cut.of(self.measure) for wire, cut in self.alone().items()}

    def _said(self) -> str:
        """What the model writes; with cuts, what it wrote before them."""
        watched, why = self._asked()
        answers = (self.answer([]), self.answer())
        return words.summary(self.network, watched, why, self.cuts, *answers, self.measure)

    def description(self) -> str:
        """What the model writes, and which wire is the thickest; with cuts, what it wrote before
        them."""
        said, tokens = self._said(), self.tokens()
        if self.instead == OTHER and paths.reordered(tokens, self.order) == tokens:
            return f"{said} {words.idle(OTHER, True)}"
        if self.cuts:
            return said
        effects = self.effects()
        strongest = max(effects, key=lambda wire: abs(effects[wire]))
        if abs(effects[strongest]) < LEAST:
            return f"{said} {words.idle(self.instead, False)}"
        pair = (self.answer([]), self.alone()[strongest])
        found = words.thickest(self.network, self.watched, strongest, *pair, self.measure)
        return f"{said} {found}"

    def still(self) -> Drawing:
        """The board and the answer."""
        return picture(self)

    def __repr__(self) -> str:
        return f"CircuitBoard: {self._said()}"

    # What may be set

    @traitlets.validate("text")
    def _a_text(self, proposal: Any) -> str:
        as_trait_error(self.network.read, proposal["value"])
        return str(proposal["value"])

    @traitlets.validate("at")
    def _a_place(self, proposal: Any) -> int:
        return within("at", proposal["value"], -1, self.network.longest - 1)

    @traitlets.validate("cuts")
    def _cut_wires(self, proposal: Any) -> list[list[str]]:
        return as_trait_error(_cuts, proposal["value"], self.wires)

    @traitlets.validate("order")
    def _an_order(self, proposal: Any) -> int:
        return within("order", proposal["value"], 0, LARGEST_SEED)

    @traitlets.validate("least")
    def _a_share(self, proposal: Any) -> float:
        found = as_trait_error(check_number, "least", proposal["value"])
        if not 0 <= found <= 1:
            raise traitlets.TraitError(f"`least` should be from 0 to 1, got {found:g}")
        return found


@cache
def _means_of_the_copier() -> dict[str, Tensor]:
    return paths.means(network_of(copier(), None))


def _cuts(cuts: Any, wires: list[Wire]) -> list[list[str]]:
    """The cut wires, each once and in the order of cutting."""
    found: list[list[str]] = []
    for pair in check_list("cuts", cuts):
        both = check_list("a wire of cuts", pair)
        if tuple(both) not in wires:
            raise ValueError(
                f"this board has no wire {both!r}: a wire is a sender and a receiver, such as "
                f"{list(wires[0])!r} or {list(wires[-1])!r}; the list `wires` has them all"
            )
        if list(both) not in found:
            found.append(list(both))
    return found
