r"""The Q-Former: a few learned queries that read an image, and the text beside them.

An image encoder gives hundreds of vectors; a language model should be given few, and such as it
can read. Between the two BLIP-2 puts a transformer of BERT's form whose input is $q$ learned
queries and $n$ words. In every other layer, from the first on, the queries (they alone) also attend
to the image $E$ (m vectors of another width). Queries and words share the self-attention; each have
feed-forward layers of their own. With $\mathrm{LN}$ behind each sum, a layer is

$$H = \mathrm{LN}(X + \mathrm{attend}(X, X, M)),\qquad
  Z = \mathrm{LN}(H_Q + \mathrm{attend}(H_Q, E)),$$
$$X'_Q = \mathrm{LN}(Z + \mathrm{FFN}_Q(Z)),\qquad
  X'_T = \mathrm{LN}(H_T + \mathrm{FFN}_T(H_T)),$$

where $X = [X_Q; X_T]$ are queries and words. One set of weights answers three questions, which
differ in the mask M (rows see columns):

| mask | queries see | words see | for |
| --- | --- | --- | --- |
| ``apart`` | queries | words | comparing image and text (contrastive) |
| ``together`` | all | all | does this text belong to this image? (matching) |
| ``captioning`` | queries | queries and earlier words | which word comes next? |

Under ``apart`` and ``captioning`` no query sees a word. So the queries need be computed once for
both: ``read`` keeps their keys and values of each layer, and ``write`` continues with the words.
``forward`` is the equation, with the mask; a test compares the two.

Counts. 12 layers of width 768, 32 queries and an image of width 1408 are 105.1 million parameters
without words, and 186.7 with the words of BERT and all heads; the paper prints 188 million.

Common mistakes: queries that see the words while both are compared, which leaks the answer;
cross-attention for the words too; feed-forward layers shared by queries and words.

Departures.
- no dropout
- narrow models begin with larger weights, or nothing would reach from the image to the queries

Li, Li, Savarese, Hoi. BLIP-2: Bootstrapping Language-Image Pre-training with Frozen Image Encoders
and Large Language Models. ICML 2023, arXiv:2301.12597, section 3. The names of the three losses,
the sizes and the start of every weight are those of the released code (LAVIS).
"""

from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlab.core.lookup import checked_ids
from attnlab.core.options import check_value
from attnlab.core.patterns import Mask
from attnlab.core.shapes import KeyPadding, Tokens, checked
from attnlab.systems.qformer_layers import (
    EPSILON,
    Attended,
    QFormerLayer,
    QFormerOptions,
    first_weights,
)

MaskName = Literal["apart", "together", "captioning"]


class Read(NamedTuple):
    """What the queries have read of an image.

    queries: (b, q, dim), after the last layer.
    layers: keys and values of the queries in each layer, which words look at in ``write``.
    """

    queries: Float[Tensor, "b q dim"]
    layers: tuple[Attended, ...]


class Seen(NamedTuple):
    """Queries and words after the last layer."""

    queries: Float[Tensor, "b q dim"]
    text: Float[Tensor, "b n dim"]


# ---- masks


def visible(mask: MaskName, queries: int, padding: Bool[Tensor, "b n"]) -> Bool[Tensor, "b 1 s s"]:
    """Which of the s = q + n rows (queries, then words) may attend to which columns."""
    b, n = padding.shape
    place = torch.arange(queries + n, device=padding.device)
    row, column = place[:, None], place
    of_text, text = row >= queries, column >= queries
    allowed = {
        "apart": of_text == text,
        "together": row >= 0,
        "captioning": ~text | (of_text & (column <= row)),
    }[mask]
    real = torch.cat([padding.new_ones(b, queries), padding], 1)
    return (allowed & real[:, None])[:, None]


# ---- the model


class QFormer(nn.Module):
    """Queries that read an image, perhaps beside a text.

    ``forward(image, tokens, padding, mask=…)`` is the equation. ``read(image)`` gives the queries
    alone; ``write(tokens, padding, read)`` the words, which see what was read and the words before
    them, or without it all words and no image.
    """

    def __init__(self, options: QFormerOptions = QFormerOptions()) -> None:
        super().__init__()
        self.options = o = options
        self.queries = nn.Parameter(torch.empty(o.queries, o.dim))
        self.table = None if o.vocab is None else nn.Embedding(o.vocab, o.dim)
        self.positions = None if o.vocab is None else nn.Embedding(o.max_len, o.dim)
        self.norm = nn.LayerNorm(o.dim, EPSILON)
        self.layers: Any = nn.ModuleList(
            QFormerLayer(o, crosses=i % o.every == 0) for i in range(o.layers)
        )
        first_weights(self, o.dim)

    def extra_repr(self) -> str:
        return str(self.options)

    @checked
    def forward(
        self, image: Float[Tensor, "b m width"], tokens: Int[Tensor, "b n"],
        padding: Bool[Tensor, "b n"] | None = None, *,
        image_padding: KeyPadding = None, mask: MaskName = "together",
    ) -> Seen:  # fmt: skip
        """Queries and words under one of the three masks.

        ``padding`` (b, n) and ``image_padding`` (b, m) are True at real words and vectors.
        """
        mask = check_value("mask", mask, MaskName)
        text, padding = self._embedded(tokens, padding)
        q = self.options.queries
        x, seen = torch.cat([self._begun(image), text], 1), visible(mask, q, padding)
        for layer in self.layers:
            x = layer(x, q, _image(image, image_padding), seen)
        return Seen(x[:, :q], x[:, q:])

    @checked
    def read(self, image: Float[Tensor, "b m width"], image_padding: KeyPadding = None) -> Read:
        """The queries alone: those of the masks ``apart`` and ``captioning``."""
        x, layers, seen = self._begun(image), [], _image(image, image_padding)
        for layer in self.layers:
            x, found = layer.read(x, seen)
            layers.append(found)
        return Read(x, tuple(layers))

    @checked
    def write(
        self, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None,
        read: Read | None = None,
    ) -> Tokens:  # fmt: skip
        """The words of the mask ``captioning`` where an image was ``read``, else of ``apart``."""
        text, padding = self._embedded(tokens, padding)
        q = 0 if read is None else self.options.queries
        seen = visible("together" if read is None else "captioning", q, padding)[:, :, q:]
        for i, layer in enumerate(self.layers):
            text = layer.write(text, seen, None if read is None else read.layers[i])
        return text

    def _begun(self, image: Tensor) -> Tensor:
        """The queries (b, q, dim) before the first layer."""
        begun: Tensor = self.norm(self.queries).expand(len(image), -1, -1)
        return begun

    def _embedded(self, tokens: Tensor, padding: Tensor | None) -> tuple[Tensor, Tensor]:
        """The words before the first layer, and where they are real."""
        if self.table is None or self.positions is None:
            raise ValueError("this Q-Former has no words: build it with vocab=…")
        if tokens.shape[1] > self.options.max_len:
            raise ValueError(
                f"the text has {tokens.shape[1]} tokens, more than max_len={self.options.max_len}; "
                "shorten it, or build the Q-Former with a larger max_len"
            )
        padding = torch.ones_like(tokens, dtype=torch.bool) if padding is None else padding
        advice = f"vocab is {self.options.vocab}"
        ids = checked_ids(
            tokens.masked_fill(~padding, 0), self.table.num_embeddings, "tokens", advice
        )
        place = self.positions.weight[: tokens.shape[1]]
        return self.norm(self.table(ids) + place), padding


def _image(image: Tensor, padding: Tensor | None) -> tuple[Tensor, Mask]:
    """The context of cross-attention and its mask; a padded NaN must not spread."""
    if padding is None:
        return image, None
    return image.masked_fill(~padding[..., None], 0), padding[:, None, None]
