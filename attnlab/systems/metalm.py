r"""MetaLM: encoders that read spans from both sides, docked onto a causal language model.

A causal model writes well, but reads what it is given from one side only. An encoder reads from
both sides, but does not write. MetaLM joins the two. Spans $[s_1, e_1), [s_2, e_2), \dots$ of a
text, none beside another, are each read by a bidirectional encoder that sees this span alone; a
connector, here one matrix $W$, makes vectors of the language model's width of what it found; and
these stand in the text where the words of the span stood. The language model, which is the
interface to all of it, writes the rest:

$$\ell = -\sum_{i} \sum_{t = e_i}^{s_{i+1} - 1} \log p(x_t \mid x_{<t}),\qquad
  x_{[s_i, e_i)} \text{ read as } W\, E(x_{s_i}, \dots, x_{e_i - 1})$$

Only tokens outside spans are asked, each from the position before it, which for the first token
after a span is the last of the span. A vector of a span knows the whole span, so that a token
inside would be asked of a state that has seen it.

Without spans this is the language model as it is, and with one at the beginning a prefix language
model whose prefix has an encoder of its own. With one over the whole text nothing is asked but the
token that comes after it.

``MetaLM``    encoder, connector and language model.
``ReadApart`` the objective: spans are drawn as for ``attnlab.objectives.semi_causal``, which trains
              one stack to do both, and is the same but for the encoder.

Common mistakes: a loss inside a span; spans that touch, which would be read as one; positions of
the encoder that count from the beginning of the text, so that a span is read in another way
wherever it stands.

Departures.
- one encoder for all spans; the paper has one for each kind of input, of which images are one
- the connector is linear; gradients pass through it to an encoder that begins untrained, where the
  paper's is pretrained

Hao, Song, Dong, Huang, Chi, Wang, Ma, Wei. Language Models are General-Purpose Interfaces. arXiv
2022, arXiv:2206.06336, section 2.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlab.core.shapes import checked
from attnlab.models.inputs import check_input, in_vocabulary
from attnlab.models.tiny import TinyTransformer, check_model
from attnlab.objectives.asked import Asked, kept
from attnlab.objectives.batches import Batch
from attnlab.objectives.semi_causal import SemiCausal


class MetaLM(nn.Module):
    """A language model whose spans are read by an encoder.

    encoder: a TinyTransformer of kind "token_classifier" with the language model's vocabulary; its
        vectors are used, not its classes, and its ``max_len`` is that of the longest span.
    language_model: a TinyTransformer of kind "language_model".
    """

    def __init__(self, encoder: TinyTransformer, language_model: TinyTransformer) -> None:
        super().__init__()
        for part, kind in ((encoder, "token_classifier"), (language_model, "language_model")):
            check_model(part)
            if part.kind != kind:
                raise ValueError(f"a model of kind={kind!r} is needed here, got {part.kind!r}")
        if encoder.vocab != language_model.vocab:
            raise ValueError(
                "encoder and language model read the same tokens, but their vocab are "
                f"{encoder.vocab} and {language_model.vocab}"
            )
        self.encoder, self.language_model = encoder, language_model
        if encoder.output is not None:
            encoder.output.requires_grad_(False)
        self.connect = nn.Linear(encoder.dim, language_model.dim)

    @checked
    def forward(
        self, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None, *,
        spans: Int[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n vocab"]:  # fmt: skip
        """Logits of the next token at each token.

        spans: a number above 0 of the span in which a token stands, and 0 outside of spans; None
            where there are none. Where the number changes, another span begins. A ValueError for
            a number below 0.
        """
        if spans is None:
            logits: Tensor = self.language_model(tokens, padding)
            return logits
        check_input(tokens, padding, 0, self.language_model)
        if padding is not None:
            tokens, spans = tokens.masked_fill(~padding, 0), spans.masked_fill(~padding, 0)
        _refuse_negative(spans)
        inside = spans > 0
        tokens = in_vocabulary(tokens, self.language_model.vocab)
        words = self.language_model.embedding(tokens)
        if inside.any():
            read = self.connect(self.read(tokens, spans, inside)).to(words.dtype)
            words = words.masked_scatter(inside[..., None], read)
        logits = self.language_model(inputs_embeds=words, padding=padding)
        return logits

    def read(
        self, tokens: Int[Tensor, "b n"], spans: Int[Tensor, "b n"], inside: Bool[Tensor, "b n"]
    ) -> Float[Tensor, "k dim"]:
        """The encoder's vectors of the k tokens inside spans, in their order; each span is a text
        of its own; (0, dim) without any."""
        if not inside.any():
            return self.encoder.embedding(tokens)[inside]
        before = nn.functional.pad(spans[:, :-1], (1, 0))
        begins = inside & (spans != before)
        place = torch.arange(tokens.shape[1], device=tokens.device)
        begun = place.masked_fill(~begins, 0).cummax(-1).values
        span, at = begins.flatten().cumsum(0).view_as(tokens)[inside] - 1, (place - begun)[inside]
        longest = int(at.max()) + 1
        if longest > self.encoder.max_len:
            raise ValueError(
                f"a span has {longest} tokens, more than max_len={self.encoder.max_len} of the "
                "encoder; draw shorter ones, or build an encoder with a larger max_len"
            )
        words = self.encoder.embedding(tokens)[inside]
        rows = words.new_zeros(int(span[-1]) + 1, longest, words.shape[-1])
        real = torch.zeros(rows.shape[:2], dtype=torch.bool, device=rows.device)
        real[span, at] = True
        rows = rows.index_put((span, at), words)
        found: Tensor = self.encoder.encode(inputs_embeds=rows, padding=real)[span, at]
        return found


def _refuse_negative(spans: Tensor) -> None:
    """A ValueError where a token stands in a span of a number below 0."""
    if spans.is_meta or torch.compiler.is_compiling() or not (spans < 0).any():
        return
    row, place = (spans < 0).nonzero()[0].tolist()
    raise ValueError(
        f"spans should be 0 outside of spans and above 0 inside, got {int(spans[row, place])} at "
        f"token {place} of row {row}"
    )


class KeepsSpans(SemiCausal):
    """The targets of ``semi_causal``, of a model whose layers decide who sees whom."""

    orders = ""  # type: ignore[assignment]

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch with the targets outside of spans; keeps which span each token stands in."""
        piece, targets = self.cut(batch, generator)
        spans = torch.where(piece % 2 == 1, piece, 0)
        asked: Batch = Asked.of(batch, inputs=batch.inputs, targets=targets, spans=spans)
        return asked


class ReadApart(KeepsSpans):
    """``semi_causal`` whose spans are read by the encoder of a ``MetaLM``."""

    def fitted(self, model: nn.Module) -> None:
        if not isinstance(model, MetaLM):
            raise TypeError(f"ReadApart trains a MetaLM, got a {type(model).__name__}")

    def answers(self, model: Any, batch: Batch) -> Tensor:
        logits: Tensor = model(batch.inputs, batch.padding, spans=kept(batch, "spans"))
        return logits
