"""What does each query read of an image, and when does it learn to?

    seen = {}
    for step in (0, 100, 400):                              # or in a callback of fit
        with attnlab.watch(model.qformer) as seen[step]:
            model.qformer.read(vectors)
    QueriesView(seen, image, grid=(4, 8))                   # the maps of all queries, by update
    QueriesView.stored()                                    # a small Q-Former during its training

For every system in which a few queries attend to the patches of an image: a Q-Former, a resampler,
a decoder with cross-attention. A map has a cell for each patch, in colours that end at the
largest weight of all. A saved file stays alive.

Li, Li, Savarese, Hoi. BLIP-2: Bootstrapping Language-Image Pre-training with Frozen Image Encoders
and Large Language Models. ICML 2023, arXiv:2301.12597, section 3.1.
"""

from collections.abc import Mapping
from typing import Any

import traitlets
from torch import Tensor

from attnlab.figures.drawing import Drawing
from attnlab.lens.record import Seen
from attnlab.lens.sources.patches import Grid
from attnlab_widgets.base import STATIC, BaseWidget, as_trait_error, check_range, within
from attnlab_widgets.queries_view import words
from attnlab_widgets.queries_view.film import stored
from attnlab_widgets.queries_view.picture import picture
from attnlab_widgets.queries_view.study import study_of


class QueriesView(BaseWidget):
    """The cross-attention of queries to the patches of one image, during training.

    ``seen``   what ``attnlab.watch`` recorded, or weights as {layer's name: (b, h, q, m)}; of
               several moments {update: such a recording}. The q queries are others than the m keys,
               which are the patches, perhaps behind a class token; other layers are left out
    ``image``  (height, width), (height, width, 3), (3, height, width) or a PIL image; numbers from
               0 to 1, or bytes
    ``grid``   (rows, columns) of its patches; found from the number of keys unless given
    ``batch``  which image of the recordings this is

    ``moment`` (counted from 0; unless given the last), ``layer`` (unless given the last), ``head``
    (-1 for the mean over heads), ``query`` and ``patch`` (in reading order, -1 for none) can be
    read and set. ``found`` holds the numbers.
    """

    _esm = STATIC / "queries_view.js"

    moment = traitlets.Int(0).tag(sync=True)
    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(-1).tag(sync=True)
    query = traitlets.Int(0).tag(sync=True)
    patch = traitlets.Int(-1).tag(sync=True)
    _told: Any = traitlets.Dict().tag(sync=True)
    _data = traitlets.Bytes().tag(sync=True)

    def __init__(
        self,
        seen: Seen | Mapping[str, Tensor] | Mapping[int, Seen | Mapping[str, Tensor]],
        image: Any,
        *,
        grid: Grid | None = None,
        batch: int = 0,
        moment: int | None = None,
        layer: int | None = None,
        head: int = -1,
        query: int = 0,
        patch: int = -1,
        theme: str = "auto",
    ) -> None:
        self.found = study_of(seen, image, grid, batch)
        super().__init__(_told=self.found.told(), _data=self.found.data(), theme=theme)
        self.moment = len(self.found.steps) - 1 if moment is None else moment
        self.layer = len(self.found.layers) - 1 if layer is None else layer
        self.head, self.query, self.patch = head, query, patch

    @classmethod
    def stored(cls, scene: int = 0, **given: Any) -> "QueriesView":
        """Four queries that read scenes of two digits, while a Q-Former learns by all three losses
        (``attnlab.experiments.queries_and_losses``, seed 0); head 2 of layer 0 unless told others.

        ``scene``  the number of one of the scenes, which were not in the training
        ``given``  any of the options above but ``grid`` and ``batch``
        """
        film = stored()
        scene = check_range("scene", scene, len(film.images))
        shown = {"layer": 0, "head": 2} | given
        return cls(film.seen, film.images[scene], grid=film.grid, batch=scene, **shown)

    # What follows from the state

    def weights(self) -> Any:
        """(q, patches) of the chosen moment, layer and head, each to half a step of its square
        root, which goes from 0 to 1 in 254 steps; 0 where a pair is masked."""
        return self.found.weights[self.moment, self.layer, self.head + 1]

    def readers(self) -> list[int]:
        """The queries by the weight that they give the chosen patch, the largest first; without one
        an empty list."""
        codes = self.found.chosen(self.moment, self.layer, self.head)
        return [] if self.patch < 0 else words.readers(codes, self.patch)

    def description(self) -> str:
        """Which patches the chosen query attends to, and which queries read the chosen patch."""
        at = (self.moment, self.layer, self.head, self.query, self.patch)
        return words.announcement(self.found, *at)

    def still(self) -> Drawing:
        """The image, the map of the chosen query, and the maps of all queries."""
        return picture(self)

    def __repr__(self) -> str:
        return f"QueriesView: {self.description()}"

    # What may be set

    @traitlets.validate("moment")
    def _a_moment(self, proposal: Any) -> int:
        return as_trait_error(check_range, "moment", proposal["value"], len(self.found.steps))

    @traitlets.validate("layer")
    def _a_layer(self, proposal: Any) -> int:
        return as_trait_error(check_range, "layer", proposal["value"], len(self.found.layers))

    @traitlets.validate("query")
    def _a_query(self, proposal: Any) -> int:
        return as_trait_error(check_range, "query", proposal["value"], self.found.queries)

    @traitlets.validate("head")
    def _a_head(self, proposal: Any) -> int:
        return within("head", proposal["value"], -1, self.found.heads - 1)

    @traitlets.validate("patch")
    def _a_patch(self, proposal: Any) -> int:
        return within("patch", proposal["value"], -1, self.found.patches - 1)
