"""Where do the queries and keys of each head lie, and what does that say of its attention?

    points = collect(model, batches, tokens)          # attnlab.lens.query_key
    QueryKeySpace(project(points, "umap"))

All heads as small maps, one of them large, beside it the sentence (or the image) of the token that
was clicked. Every map says how far it can be trusted: how many of each query's strongest keys are
among its nearest on the map.

Catherine Yeh and others, AttentionViz: A Global View of Transformer Attention, IEEE TVCG 30 (2023),
arXiv:2305.03210.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import traitlets

from attnlab.figures.drawing import Drawing
from attnlab.lens.head_kinds.kinds import Heads
from attnlab_widgets.base import STATIC, BaseWidget, Choice
from attnlab_widgets.query_key_space.maps import TRAINING, checked, packed_space, placed_in
from attnlab_widgets.query_key_space.picture import draw

COLOURS = (
    *("side", "position", "modulo", "token", "kind"),
    *("norm", "frequency", "class", "value_norm"),
)


class QueryKeySpace(BaseWidget):
    """Maps of the queries and keys of many heads, with their faithfulness.

    ``maps``   what ``attnlab.lens.query_key.maps.project`` returns; a list of such maps of the same
               points (other methods, 2-D and 3-D), to choose from; or a dict {training step: maps}
               of the same tokens, a film with a slider (other names than numbers: {name: maps})
    ``kinds``  what ``attnlab.lens.head_kinds`` returns, or {(layer, head): kind of head}: written
               on the heads, which can be ordered by them
    ``place``  from a text to the maps of its tokens, placed on the first of ``maps`` (of a film, on
               the last): what ``attnlab.lens.query_key.placing.placer`` returns. With it a sentence
               can be typed in

    What is chosen can be read and set from Python: ``layer``, ``head``; ``view`` ("all" or "one"
    head); ``shown`` (which of the maps, or of the steps, from 0); ``colour`` ("side", "position",
    "modulo", "token", "kind", "norm", "frequency", "class", "value_norm"), ``modulo`` (of the
    positions); ``order`` ("layer", "kind" or a statistic of the heads); ``search`` (a token, or
    ``th*`` for all that begin so); ``selected`` (["query", row] or ["key", row], [] for none);
    ``labels``; ``sentence`` (typed in, where ``place`` is given).
    """

    _esm = STATIC / "query_key_space.js"

    _space = traitlets.Dict().tag(sync=True)
    _data = traitlets.Bytes().tag(sync=True)
    _placed = traitlets.Dict().tag(sync=True)
    _typing = Choice(("", "kernel", "page"), "").tag(sync=True)
    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(0).tag(sync=True)
    view = Choice(("all", "one"), "all").tag(sync=True)
    shown = traitlets.Int(0).tag(sync=True)
    colour = Choice(COLOURS, "side").tag(sync=True)
    modulo = traitlets.Int(5, min=2, max=512).tag(sync=True)
    order = traitlets.Unicode("layer").tag(sync=True)
    search = traitlets.Unicode().tag(sync=True)
    selected: Any = traitlets.List().tag(sync=True)
    labels = traitlets.Bool(True).tag(sync=True)
    sentence = traitlets.Unicode().tag(sync=True)

    def __init__(
        self,
        maps: Any,
        *,
        kinds: Heads | Mapping[tuple[int, int], str] | None = None,
        place: Callable[[str], Any] | None = None,
        theme: str = "auto",
    ) -> None:
        if place is not None and not callable(place):
            raise TypeError(
                "`place` should be a function from a text to its maps, or None, "
                f"got {type(place).__name__}"
            )
        names, several, film = checked(maps)
        self._place, self._base = place, several[-1 if film else 0]
        space, data = packed_space(names, several, film, kinds)
        layer, head = space["maps"][0]["heads"][0]["is"]
        super().__init__(
            _space=space,
            _data=data,
            _typing="" if place is None else "kernel",
            layer=layer,
            head=head,
            shown=len(several) - 1 if film else 0,
            theme=theme,
        )

    # What may be set

    @property
    def _heads(self) -> list[tuple[int, int]]:
        return [tuple(one["is"]) for one in self._space["maps"][self.shown]["heads"]]

    @traitlets.validate("layer", "head")
    def _head_is_on_a_map(self, proposal: Any) -> int:
        name, value = proposal["trait"].name, proposal["value"]
        at = ("layer", "head").index(name)
        known = sorted({one[at] for one in self._heads})
        if value not in known:
            raise traitlets.TraitError(
                f"`{name}` should be one that was mapped, {_listed(known)}, got {value}"
            )
        return int(value)

    @traitlets.observe("layer", "head")
    def _settle(self, _change: Any) -> None:
        """Where that head of the layer was not mapped, the first that was."""
        heads = self._heads
        if (self.layer, self.head) not in heads:
            self.head = next(head for layer, head in heads if layer == self.layer)

    @traitlets.validate("shown")
    def _map_exists(self, proposal: Any) -> int:
        last = len(self._space["maps"]) - 1
        if not 0 <= proposal["value"] <= last:
            raise traitlets.TraitError(
                f"`shown` should be from 0 to {last}, one of the maps, got {proposal['value']}"
            )
        return int(proposal["value"])

    @traitlets.validate("order")
    def _order_is_known(self, proposal: Any) -> str:
        known = ["layer", *["kind"] * bool(self._space["kinds"]), *self._space["statistics"]]
        if proposal["value"] not in known:
            raise traitlets.TraitError(
                f"`order` should be one of {', '.join(known)}, got {proposal['value']!r}"
            )
        return str(proposal["value"])

    @traitlets.validate("colour")
    def _colour_is_known(self, proposal: Any) -> str:
        if proposal["value"] == "class" and not self._space["classes"]:
            raise traitlets.TraitError(
                '`colour` can be "class" only where the tokens have labels: collect(…, labels=…)'
            )
        return str(proposal["value"])

    @traitlets.validate("selected")
    def _row_exists(self, proposal: Any) -> list[Any]:
        found = list(proposal["value"])
        if not found:
            return found
        layer = self._space["points"][self._space["maps"][self.shown]["points"]]["layers"][
            self.layer
        ]
        counts = {side: self._space["tokens"][layer[side[0]]]["n"] for side in ("query", "key")}
        side, row = (*found, None, None)[:2]
        if side not in counts or not isinstance(row, int) or not 0 <= row < counts[side]:
            raise traitlets.TraitError(
                f'`selected` should be ["query", row] with a row from 0 to {counts["query"] - 1}, '
                f'["key", row] to {counts["key"] - 1}, or [], got {found}'
            )
        return found

    @traitlets.validate("sentence")
    def _sentence_can_be_placed(self, proposal: Any) -> str:
        if proposal["value"] and self._place is None:
            raise traitlets.TraitError(
                "`sentence` can be set only where `place` was given: QueryKeySpace(maps, place=…)"
            )
        return str(proposal["value"])

    @traitlets.observe("sentence")
    def _place_it(self, _change: Any) -> None:
        """A sentence that cannot be placed is answered with a sentence on the page."""
        if self._place is None or not self.sentence.strip():
            self._placed = {}
            return
        try:
            found = placed_in(self._place(self.sentence), self._base)
        except (TypeError, ValueError, IndexError, KeyError) as error:
            found = {"error": str(error)}
        self._placed = {"text": self.sentence, **found}

    # Without widgets

    def still(self) -> Drawing:
        """The picture that pages without widgets get."""
        return draw(self)

    @property
    def which(self) -> str:
        """The map that is shown, or the training step, in words."""
        name = str(self._space["maps"][self.shown]["name"])
        return f"training step {name}" if self._space["film"] == TRAINING else name

    def _saved_state(self) -> dict[str, Any]:
        return {**super()._saved_state(), "_typing": self._typing and "page"}

    def __repr__(self) -> str:
        space = self._space
        one = space["maps"][self.shown]
        many = f"{len(one['heads'])} heads" if len(one["heads"]) > 1 else "1 head"
        found = next(x for x in one["heads"] if x["is"] == [self.layer, self.head])
        return (
            f"QueryKeySpace: {many}, {self.which}; layer {self.layer}, head {self.head}. "
            f"{found['said']}"
        )


def _listed(known: Sequence[int]) -> str:
    if list(known) == list(range(known[0], known[-1] + 1)) and len(known) > 2:
        return f"{known[0]} … {known[-1]}"
    return " or ".join(map(str, known))
