"""What happens between the letters and the answer?

    Walk()                                              # the shipped copier
    Walk(model, "a text", names=task.tokens(range(task.vocab)))     # a small model of yours

One forward pass of a language model, from the vectors of letters to the probabilities of the next
one, step by step: norm, queries, keys, scores, weights, values, what each head gathers, what is
added to the stream, the feed-forward layer. The page computes all of it from the parameters, so
that a saved file needs neither Python nor a network: type another text, silence a head, let the
model write on.

For language models with full attention, pre-norm and GELU (``network``); for others a
sentence says what the page cannot compute.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import traitlets
from torch import Tensor

from attnlab.core.arguments import check_list, check_number
from attnlab.core.integers import check_integer
from attnlab.figures.drawing import Drawing
from attnlab.models.tiny import TinyTransformer
from attnlab_widgets.base import STATIC, BaseWidget, Checked, as_trait_error, check_range, within
from attnlab_widgets.draws import LARGEST_SEED, drawn, uniform
from attnlab_widgets.forward import forward
from attnlab_widgets.network import ADDED, TEXT, Network, begun, copier, network_of
from attnlab_widgets.walk import words
from attnlab_widgets.walk.picture import picture
from attnlab_widgets.walk.steps import steps

TITLE = "Walk through a model"
COPIER = (
    "A small language model that was trained to continue what repeats; below each letter stands "
    "its guess, yellow where right."
)
HINT = (
    "type a word with no letter twice, then again without its end, and press “Next letter”; then "
    "silence head 1.0 and head 1.1."
)
HOTTEST = 2.0


class Walk(BaseWidget):
    """One forward pass of a small language model, which the page computes.

    ``model``  a ``TinyTransformer`` of kind "language_model" with full attention; unless given the
               shipped copier (``attnlab.pretrained.load("induction")``)
    ``text``   what it reads, at most as long as it has positions; unless given a word that begins
               again, or a few tokens where the model does not know its letters
    ``names``  how each token of the vocabulary is typed; unless given a … z, A … Z, 0 … 9, + and /.
               A text is read from left to right, at each place the longest name that fits

    ``step`` (counted from 0), ``at`` (the letter that is looked at, -1 for the last), ``head``
    (within the layer of the step), ``silent`` (pairs [layer, head]), and for what is written on
    ``temperature`` (0 to 2), ``top_k`` (5 unless given, or all where there are fewer) and ``seed``
    can be read and set.
    """

    _esm = STATIC / "walk.js"

    text = traitlets.Unicode(TEXT).tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)
    at = traitlets.Int(-1).tag(sync=True)
    head = traitlets.Int(0).tag(sync=True)
    silent: Any = Checked().tag(sync=True)
    temperature = traitlets.Float(1.0).tag(sync=True)
    top_k = traitlets.Int(1).tag(sync=True)
    seed = traitlets.Int(0).tag(sync=True)
    _told: Any = traitlets.Dict().tag(sync=True)
    _numbers = traitlets.Bytes().tag(sync=True)

    def __init__(
        self,
        model: TinyTransformer | None = None,
        text: str | None = None,
        *,
        names: Sequence[str] | None = None,
        step: int | None = None,
        at: int = -1,
        head: int | None = None,
        silent: Sequence[Sequence[int]] = (),
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int = 0,
        theme: str = "auto",
    ) -> None:
        self.network: Network = network_of(copier() if model is None else model, names)
        self.steps = steps(self.network)
        about, hint = (self._size(), "") if model is not None or names else (COPIER, HINT)
        told = self.network.told() | {"steps": [one._asdict() for one in self.steps]}
        told |= {"about": about, "try": hint}
        super().__init__(
            _told=told,
            _numbers=self.network.packed(),
            text=begun(self.network) if text is None else text,
            silent=silent,
            theme=theme,
        )
        first, sharpest = self._sharpest()
        self.step = first if step is None else step
        self.head = sharpest if head is None else head
        self.at, self.seed = at, seed
        self.temperature = temperature
        self.top_k = min(5, len(self.network.names)) if top_k is None else top_k

    def _size(self) -> str:
        """What this model is, in a line."""
        numbers, heads = self.network.numbers, self.network.heads
        count = sum(values.numel() for name, values in numbers.items() if name != ADDED)
        width = numbers["embedding"].shape[1]
        each = f"{heads[0]}" if len(set(heads)) == 1 else ", ".join(map(str, heads))
        return (
            f"A language model of {len(heads)} {'layer' if len(heads) == 1 else 'layers'} with "
            f"{each} {'head' if set(heads) == {1} else 'heads'} each, vectors of {width} numbers "
            f"and {count:,} parameters; below each letter stands its guess, yellow where right."
        )

    def _sharpest(self) -> tuple[int, int]:
        """The step and the head in which the last letter gives most weight to an earlier one."""
        run, found = self.run(), []
        for at, step in enumerate(self.steps):
            if step.kind == "weights":
                rows = run[step.key][:, -1, :-1]
                found += [
                    (float(row.max()) if len(row) else 0.0, at, h) for h, row in enumerate(rows)
                ]
        _, at, head = max(found, key=lambda one: one[0], default=(0.0, 0, 0))
        return at, head

    # What follows from the state

    def tokens(self) -> list[int]:
        """The tokens of the text."""
        return self.network.read(self.text)

    def run(self) -> dict[str, Tensor]:
        """Every step of the pass by its key, in float64 (``forward``)."""
        return forward(self.network, self.tokens(), self.silent)

    def write(self, count: int = 1) -> str:
        """``count`` more letters, as the page writes them. It ends where the text may not be longer
        and where a token, joined to it, would be read as another. Returns what was added."""
        before = self.text
        for _ in range(check_integer("`count`", count)):
            tokens = self.tokens()
            if len(tokens) >= self.network.longest:
                break
            chance = uniform(self.seed, len(tokens))
            logits = self.run()["logits"][-1]
            token = drawn(logits, self.temperature, self.top_k, chance)
            after = self.text + self.network.names[token]
            if not self.network.reads(after, [*tokens, token]):
                break
            self.text = after
        return self.text.removeprefix(before)

    @property
    def place(self) -> int:
        """The letter that is looked at, from 0: ``at``, or the last one."""
        last = len(self.tokens()) - 1
        return last if self.at < 0 else min(self.at, last)

    def head_of(self, layer: int) -> int:
        """The head that is looked at in a layer."""
        return min(self.head, self.network.heads[layer] - 1)

    def save_html(self, path: str | Path, *, title: str | None = None) -> Path:
        """Write the widget in its present state as one standalone HTML file."""
        return super().save_html(path, title=title or TITLE)

    def description(self) -> str:
        """Which step this is, and what it gives at the letter that is looked at."""
        step, run, ids = self.steps[self.step], self.run(), self.tokens()
        layer = step.key.partition(".")[0]
        head = self.head_of(int(layer)) if layer.isdigit() else 0
        found = words.seen(self.network, run, ids, step, self.place, head, self.silent)
        return f"{words.where(step, self.step, len(self.steps))} {step.says} {found}"

    def still(self) -> Drawing:
        """The step, the heads, and the answer."""
        return picture(self)

    def __repr__(self) -> str:
        return f"Walk: {self.description()}"

    # What may be set

    @traitlets.validate("text")
    def _a_text(self, proposal: Any) -> str:
        as_trait_error(self.network.read, proposal["value"])
        return str(proposal["value"])

    @traitlets.validate("step")
    def _a_step(self, proposal: Any) -> int:
        return as_trait_error(check_range, "step", proposal["value"], len(self.steps))

    @traitlets.validate("at")
    def _a_place(self, proposal: Any) -> int:
        return within("at", proposal["value"], -1, self.network.longest - 1)

    @traitlets.validate("head")
    def _a_head(self, proposal: Any) -> int:
        most = max(self.network.heads, default=1)
        return as_trait_error(check_range, "head", proposal["value"], most)

    @traitlets.validate("silent")
    def _silent_heads(self, proposal: Any) -> list[list[int]]:
        return as_trait_error(_silent, proposal["value"], self.network.heads)

    @traitlets.validate("temperature")
    def _a_temperature(self, proposal: Any) -> float:
        found = as_trait_error(check_number, "temperature", proposal["value"])
        if not 0 <= found <= HOTTEST:
            raise traitlets.TraitError(
                f"`temperature` should be from 0 to {HOTTEST:g}, got {found:g}"
            )
        return found

    @traitlets.validate("top_k")
    def _a_top_k(self, proposal: Any) -> int:
        return within("top_k", proposal["value"], 1, len(self.network.names))

    @traitlets.validate("seed")
    def _a_seed(self, proposal: Any) -> int:
        return within("seed", proposal["value"], 0, LARGEST_SEED)


def _silent(silent: Any, heads: list[int]) -> list[list[int]]:
    """The silent heads, each once and in order."""
    found = set()
    for pair in check_list("silent", silent):
        both = check_list("a head of silent", pair)
        if len(both) != 2:
            raise ValueError(f"`silent` should hold pairs [layer, head], got {pair!r}")
        layer, head = (check_integer("a number in `silent`", number) for number in both)
        if not (0 <= layer < len(heads) and 0 <= head < heads[layer]):
            raise ValueError(
                f"this model has no head {layer}.{head}: its layers 0 … {len(heads) - 1} have "
                f"{', '.join(map(str, heads))} heads"
            )
        found.add((layer, head))
    return [list(pair) for pair in sorted(found)]
