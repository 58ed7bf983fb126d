"""Which heads attend alike, and to what?

    with attnlab.watch(model) as seen:
        model(tokens)
    HeadMap(seen, names)                    # the heads as points, the map of the chosen one
    HeadMap.of(model, "a text", tokenizer)  # any model, those of Hugging Face too

Heads are points whose distances in the plane are as near as possible to those of their maps; colour
and shape say the kind of a head, size how much the model needs it. A saved file stays alive.

Clark, Khandelwal, Levy, Manning. What Does BERT Look At? BlackboxNLP 2019, arXiv:1906.04341,
section 6.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import traitlets
from torch import Tensor, nn

from attnlab.core.integers import check_integer
from attnlab.core.modes import mode
from attnlab.figures.drawing import Drawing
from attnlab.lens.head_distances import HeadDistances
from attnlab.lens.head_kinds.kinds import Heads
from attnlab.lens.record import Seen
from attnlab.lens.sources.inputs import inputs_of
from attnlab.lens.watch import watch
from attnlab_widgets.base import STATIC, BaseWidget, Choice, as_trait_error, check_range
from attnlab_widgets.head_map import words
from attnlab_widgets.head_map.picture import picture
from attnlab_widgets.head_map.study import study_of

COLOURS = ("kind", "layer")
MOST_NEAR = 6


class HeadMap(BaseWidget):
    """Heads as points, and the map of the chosen head over one text.

    ``seen``        what ``attnlab.watch`` recorded of a batch of texts, or weights as {layer's
                    name: (b, h, n, n)}; of words, weights from ``attnlab.lens.word_maps``
    ``tokens``      the n names of one text, or a list for each text of the batch; the positions
                    where None
    ``padding``     (b, n) bool, True = a real token
    ``mask``        beside weights given as a dict: bool, True = may attend, broadcastable to
                    (b, h, n, n); records have their own
    ``distances``   what ``attnlab.lens.head_distances`` found on more texts; of ``seen`` unless
                    given
    ``kinds``       what ``find_heads`` or a ``HeadFinder`` found on more texts, or {(layer, head):
                    name}; of ``seen`` unless given
    ``importance``  one number of at least 0 for each head, such as that of
                    ``attnlab.compression.head_importance``: a dict {layer's name: (h,)} or a list;
                    points are as large
    ``batch``       which of the texts is shown, at most 128 tokens of it
    ``layer``, ``head``, ``query``  what is chosen; unless given the most important head, or the one
                    of sharpest rows, and the query that attends to another token most

    ``layer``, ``head``, ``query``, ``near`` (to how many of the nearest heads lines are drawn, 0 to
    6) and ``colour`` ("kind" or "layer") can be read and set. ``found`` holds the numbers.
    """

    _esm = STATIC / "head_map.js"

    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(0).tag(sync=True)
    query = traitlets.Int(0).tag(sync=True)
    near = traitlets.Int(3).tag(sync=True)
    colour = Choice(COLOURS, COLOURS[0]).tag(sync=True)
    _told: Any = traitlets.Dict().tag(sync=True)
    _data = traitlets.Bytes().tag(sync=True)

    def __init__(
        self,
        seen: Seen | Mapping[str, Tensor],
        tokens: Sequence[Any] | None = None,
        *,
        padding: Tensor | None = None,
        mask: Tensor | None = None,
        distances: HeadDistances | None = None,
        kinds: Heads | Mapping[tuple[int, int], str] | None = None,
        importance: Any = None,
        batch: int = 0,
        layer: int | None = None,
        head: int | None = None,
        query: int | None = None,
        near: int = 3,
        colour: str = "kind",
        theme: str = "auto",
    ) -> None:
        self.found = study_of(
            seen, tokens, padding=padding, mask=mask, distances=distances, kinds=kinds,
            importance=importance, batch=batch,
        )  # fmt: skip
        super().__init__(_told=self.found.told(), _data=self.found.data(), theme=theme)
        with self.hold_trait_notifications():
            self.layer, self.head = self._start(layer, head)
        self.query = self.found.telling(self.at) if query is None else query
        self.near, self.colour = near, colour

    @classmethod
    def of(
        cls, model: nn.Module, inputs: Any, tokenizer: Any = None, *, only: Any = None,
        batch: int = 0, **given: Any,
    ) -> "HeadMap":  # fmt: skip
        """The heads of a model that reads ``inputs``, as ``attnlab.view`` takes them: a text with a
        tokenizer, tokens (n,) or (b, n), or a dict of what the model takes.

        ``only``   the modules to record, as in ``attnlab.watch``
        ``given``  any of the options above; ``padding`` is the attention mask of the inputs
        """
        if not isinstance(model, nn.Module) or isinstance(model, type):
            raise TypeError(f"`model` should be an nn.Module, got {model!r}; load it first")
        batch = check_integer("`batch`", batch, at_least=0)
        with mode(model, training=False), torch.no_grad():
            found = inputs_of(model, inputs, tokenizer, None, None)
            with watch(model, only=only) as seen:
                found.run(model)
            if not len(seen):
                raise ValueError(f"there is nothing to show: {repr(seen)[1:-1]}")
            ids = found.own
            rows = 0 if ids is None else len(ids)
            names = [found.read(ids, row) for row in range(rows)] or None
            real = found.named.get("attention_mask")
            if isinstance(real, Tensor) and real.dim() == 2:
                given = {"padding": real.bool()} | given
            return cls(seen, names, batch=batch, **given)

    def _start(self, layer: int | None, head: int | None) -> tuple[int, int]:
        heads = self.found.heads
        first = heads[self.found.opening()]
        if layer is None and head is None:
            return first
        return (first[0] if layer is None else layer, 0 if head is None else head)

    # What follows from the state

    @property
    def at(self) -> int:
        """The number of the chosen head among all."""
        return self.found.heads.index((self.layer, self.head))

    @property
    def tokens(self) -> list[str]:
        """The names of the tokens, made visible."""
        return self.found.tokens

    def nearest(self) -> list[tuple[int, int]]:
        """The heads to which lines are drawn, the nearest first."""
        return [self.found.heads[other] for other in self.found.nearest(self.at)[: self.near]]

    def description(self) -> str:
        """The kinds of all heads, which one is chosen, and what the chosen query attends to."""
        return words.announcement(self.found, self.at, self.query)

    def still(self) -> Drawing:
        """The heads as points, and the map of the chosen one."""
        return picture(self)

    def __repr__(self) -> str:
        return f"HeadMap: {self.description()}"

    # What may be set

    @traitlets.validate("layer")
    def _a_layer(self, proposal: Any) -> int:
        count = self.found.heads[-1][0] + 1
        return as_trait_error(check_range, "layer", proposal["value"], count)

    @traitlets.validate("head")
    def _a_head(self, proposal: Any) -> int:
        count = sum(layer == self.layer for layer, _ in self.found.heads)
        return as_trait_error(check_range, "head", proposal["value"], count)

    @traitlets.observe("layer")
    def _settle(self, _change: Any) -> None:
        """Where the layer has fewer heads, its last one."""
        count = sum(layer == self.layer for layer, _ in self.found.heads)
        if self.head >= count:
            self.head = count - 1

    @traitlets.validate("query")
    def _a_query(self, proposal: Any) -> int:
        return as_trait_error(check_range, "query", proposal["value"], len(self.found.tokens))

    @traitlets.validate("near")
    def _some(self, proposal: Any) -> int:
        return as_trait_error(check_range, "near", proposal["value"], MOST_NEAR + 1)
