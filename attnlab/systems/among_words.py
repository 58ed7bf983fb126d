"""Vectors among words: a language model reads a sentence some of whose words are vectors.

In the text a marker, a token of its own, holds the place of each vector. An encoder makes the
vectors of what is seen, and they stand at the markers, in their order: to the language model they
are words, at the positions of words. ``attnlab.systems.frozen`` and ``attnlab.systems.palm_e`` are
such systems, which differ in their encoders.

``at_markers``  vectors in the place of the markers of a sentence.
``AmongWords``  a language model, frozen or not, and what a system of this kind has in common; it
                is trained as any model, and writes.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlab.core.integers import check_integer
from attnlab.core.modes import mode
from attnlab.models.inputs import check_input, check_tensor, in_vocabulary
from attnlab.models.tiny import TinyTransformer, check_model
from attnlab.systems.frozen_parts import WithFrozenParts, frozen
from attnlab.systems.patches import check_finite


def at_markers(
    words: Float[Tensor, "b n dim"], marked: Bool[Tensor, "b n"],
    vectors: Float[Tensor, "b k dim"], real: Bool[Tensor, "b k"],
) -> Float[Tensor, "b n dim"]:  # fmt: skip
    """The words, where the vectors that are real stand, in their order, at the marked places.

    A ValueError unless every row has as many markers as vectors.
    """
    markers, given = marked.sum(1), real.sum(1)
    if not torch.equal(markers, given):
        row = int((markers != given).nonzero()[0])
        raise ValueError(
            f"row {row} has {int(markers[row])} markers, but its source gives {int(given[row])} "
            "vectors; every vector needs a marker in the text, and every marker a vector"
        )
    return words.masked_scatter(marked[..., None], vectors[real].to(words.dtype))


def check_rows(source: Any, source_padding: Any, tokens: Tensor) -> None:
    """A TypeError or ValueError unless a source has as many rows as there are texts."""
    check_tensor("source", source)
    check_tensor("tokens", tokens)
    if source_padding is not None:
        check_tensor("source_padding", source_padding)
    if source.ndim > 2 and tokens.ndim and len(source) != len(tokens):
        raise ValueError(
            f"each text comes with its source: got {len(tokens)} texts and {len(source)} sources"
        )


class AmongWords(WithFrozenParts, ABC):
    """A language model that reads vectors at the markers of its text.

    encoder: what a system makes vectors with.
    language_model: a TinyTransformer of kind "language_model", frozen if ``freeze``.
    marker: the token in whose place a vector stands.

    A system of this kind says in ``seen`` what vectors it makes of a source.
    """

    def __init__(
        self, encoder: Any, language_model: TinyTransformer, *, marker: int, freeze: bool
    ) -> None:
        super().__init__()
        check_model(language_model)
        if language_model.kind != "language_model":
            raise ValueError(
                f"a model of kind='language_model' is needed here, got {language_model.kind!r}"
            )
        self.marker, self.freeze, self.encoder = marker, freeze, encoder
        self.language_model: Any = frozen(language_model) if freeze else language_model

    @property
    def keeps(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("language_model",) if self.freeze else ()

    @abstractmethod
    def seen(
        self, source: Float[Tensor, "b s f"], real: Bool[Tensor, "b s"] | None = None
    ) -> tuple[Float[Tensor, "b k dim"], Bool[Tensor, "b k"]]:
        """The vectors of a source, and which of them are those of something that is there."""

    def looked_at(self, real: Bool[Tensor, "b s"] | None) -> Bool[Tensor, "b s"] | None:
        """Which vectors of a source ``seen`` reads; None for all of them."""
        return real

    def forward(
        self, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None, *,
        source: Tensor | None = None, source_padding: Tensor | None = None,
    ) -> Float[Tensor, "b n vocab"]:  # fmt: skip
        """Logits of the next token at each of the tokens, or vectors in their place."""
        words, padding = self.embedded(tokens, padding, source, source_padding)
        logits: Tensor = self.language_model(inputs_embeds=words, padding=padding)
        return logits

    def embedded(
        self, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None,
        source: Tensor | None, source_padding: Tensor | None,
    ) -> tuple[Float[Tensor, "b n dim"], Bool[Tensor, "b n"]]:  # fmt: skip
        """What the language model reads, vectors of words and of the source, and its padding."""
        check_input(tokens, padding, 0, self.language_model)
        padding = torch.ones_like(tokens, dtype=torch.bool) if padding is None else padding
        tokens = in_vocabulary(tokens.masked_fill(~padding, 0), self.language_model.vocab)
        words, marked = self.language_model.embedding(tokens), (tokens == self.marker) & padding
        if source is None:
            if source_padding is not None:
                raise ValueError("source_padding needs the source that it belongs to; give both")
            return at_markers(words, marked, words[:, :0], marked[:, :0]), padding
        check_rows(source, source_padding, tokens)
        vectors, real = self.seen(source, source_padding)
        check_finite(source, self.looked_at(source_padding))
        return at_markers(words, marked, vectors, real), padding

    @torch.no_grad()
    def write(
        self, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None, *,
        source: Tensor | None = None, source_padding: Tensor | None = None, steps: int, end: int,
    ) -> Int[Tensor, "b steps"]:  # fmt: skip
        """The likeliest token after each prompt, again and again, up to ``steps`` tokens; rows that
        have written ``end`` are filled up with it. Dropout is off.

        tokens, padding: prompts, each with its real tokens first.
        """
        steps = check_integer("steps", steps, at_least=1)
        if check_integer("end", end, at_least=0) >= (vocab := self.language_model.vocab):
            raise ValueError(f"end should be a token from 0 to {vocab - 1}, got {end}")
        with mode(self, training=False):
            words, padding = self.embedded(tokens, padding, source, source_padding)
            length, rows = padding.sum(1), torch.arange(len(words), device=words.device)
            if (padding[:, 1:] & ~padding[:, :-1]).any() or not length.all():
                raise ValueError("a prompt has its real tokens first, one at least, then padding")
            written = tokens.new_full((len(tokens), steps), end)
            going = torch.ones_like(rows, dtype=torch.bool)
            for step in range(steps):
                logits = self.language_model(inputs_embeds=words, padding=padding)
                chosen = logits[rows, length - 1].argmax(-1)
                written[:, step] = chosen.masked_fill(~going, end)
                going &= chosen != end
                if not going.any():
                    break
                at = rows[going]  # rows that have ended stay as they are
                room = int(length[at].max()) + 1 - words.shape[1]
                words = nn.functional.pad(words, (0, 0, 0, max(0, room)))
                padding = nn.functional.pad(padding, (0, max(0, room)))
                words[at, length[at]] = self.language_model.embedding(chosen[at])
                padding[at, length[at]] = True
                length = length + going
        return written
