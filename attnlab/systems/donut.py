r"""Donut: a page is read and written down as tokens, without a program that recognises letters.

An encoder makes a vector of each patch of the image; a decoder reads them by cross-attention and
writes one token after the other:

$$h_1, \dots, h_N = E(x_1, \dots, x_N),\qquad p(y_t \mid y_{<t}, h),\qquad
  \ell = -\sum_t \log p(y_t \mid y_{<t}, h)$$

The first token, the **prompt**, says what is to be written. Training has two parts: first
**reading**, all text of the page in reading order, then a task such as **parsing**, the page's
content as a JSON document (``attnlab.structures.json_tokens``). Nobody tells the model where a
character stands; to write the next one, cross-attention has to find it, and so it moves along the
line as a pointer (``attnlab.lens.pointer``).

``Donut``         the model: patches and tokens → logits; ``write`` goes on from a prompt to an end.
``counts``          how many numbers the paper's size holds, by its parts.
``attnlab.systems.document_scores``  how far a written document agrees with the right one.

Common mistakes: a model that is judged on the next token after the right ones, which hides that one
wrong character leads to others; keys that are no tokens of the vocabulary; a test without an empty
page, which shows what can be guessed.

Departures.
- a plain encoder in the place of a Swin Transformer, whose windows save work on the 4,800 vectors
  of the paper's images, and a pre-norm decoder from nothing in the place of four layers of a
  multilingual BART
- patches and tokens share one table of positions, as in every ``TinyTransformer`` with a source

Kim, Hong, Yim, Nam, Park, Yim, Hwang, Yun, Han, Park. OCR-free Document Understanding Transformer.
ECCV 2022, arXiv:2111.15664, section 3.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlab.core.integers import check_integer
from attnlab.core.modes import mode
from attnlab.core.options import Options, Size
from attnlab.models.inputs import check_padding
from attnlab.models.tiny import DecoderState, TinyTransformer
from attnlab.systems.among_words import check_rows
from attnlab.systems.patches import check_brightness


@dataclass(frozen=True, kw_only=True)
class DonutOptions(Options):
    """The sizes of a Donut.

    vocab: tokens that it writes. length: the most of them, with the prompt.
    patches, numbers: how many patches an image has, and of how many numbers each is.
    dim, layers, heads: of encoder and decoder, which have as many layers each.
    blind: every page is empty: the control, which knows what pages say and not what this one does.
    """

    vocab: Size
    length: Size
    patches: Size
    numbers: Size
    dim: Size = 64
    layers: Size = 2
    heads: Size = 4
    dropout: float = 0.0
    blind: bool = False


class Donut(nn.Module):
    """Patches of a page, brightness from 0 to 1, and the tokens so far → logits of the next one.

    Trained by ``attnlab.train.fit`` on a task such as ``receipts``.
    """

    def __init__(self, options: DonutOptions) -> None:
        super().__init__()
        if not isinstance(options, DonutOptions):
            raise TypeError(f"options should be DonutOptions, got a {type(options).__name__}")
        o = self.options = options
        self.body = TinyTransformer(
            o.vocab, kind="encoder_decoder", dim=o.dim, layers=o.layers, heads=o.heads,
            max_len=max(o.length, o.patches), dropout=o.dropout,
        )  # fmt: skip
        self.patch = nn.Linear(o.numbers, o.dim)

    def forward(
        self, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None, *,
        source: Float[Tensor, "b m numbers"], source_padding: Bool[Tensor, "b m"] | None = None,
    ) -> Float[Tensor, "b n vocab"]:  # fmt: skip
        """Logits of the next token at each of the tokens."""
        embeds = self.embed(source, source_padding)
        check_rows(source, source_padding, tokens)
        logits: Tensor = self.body(
            tokens, padding, source_embeds=embeds, source_padding=source_padding
        )
        return logits

    def embed(
        self, source: Float[Tensor, "b m numbers"], padding: Bool[Tensor, "b m"] | None = None
    ) -> Float[Tensor, "b m dim"]:
        """What the encoder reads: a vector for each patch, before its position is added.

        padding: True at patches of the page; the others are blank, whatever they hold.
        """
        o = self.options
        if not isinstance(source, Tensor) or source.shape[1:] != (o.patches, o.numbers):
            found = tuple(source.shape) if isinstance(source, Tensor) else type(source).__name__
            raise ValueError(
                f"source should hold {o.patches} patches of {o.numbers} numbers, (b, {o.patches}, "
                f"{o.numbers}), got {found}"
            )
        if not source.is_floating_point():
            raise TypeError(f"source should be float, brightness from 0 to 1, got {source.dtype}")
        if padding is not None:
            check_padding("source_padding", padding, source)
            source = source.masked_fill(~padding[..., None], 1)
        check_brightness("source", source)
        ink = 1 - source.to(self.patch.weight.dtype)
        vectors: Tensor = self.patch(torch.zeros_like(ink) if o.blind else ink)
        return vectors

    @torch.no_grad()
    def write(
        self, source: Float[Tensor, "b m numbers"], prompt: int, end: int, steps: int | None = None
    ) -> Int[Tensor, "b n"]:
        """The likeliest token after the other, from the prompt on, until every row has its end.

        steps: the most tokens after the prompt; as many as the model has positions for, if not
            given. Behind its end a row is filled with ends.
        """
        o = self.options
        for name, token in (("prompt", prompt), ("end", end)):
            if not 0 <= check_integer(name, token, at_least=0) < o.vocab:
                raise ValueError(f"{name} should be a token from 0 to {o.vocab - 1}, got {token}")
        most = self.body.max_len
        steps = most if steps is None else check_integer("steps", steps, at_least=0)
        if steps > most:
            raise ValueError(f"steps should be at most {most}, the model's positions, got {steps}")
        with mode(self, training=False):
            memory = self.body.encode(inputs_embeds=self.embed(source))
            written = torch.full((len(source), 1), prompt, device=source.device)
            ended = torch.zeros_like(written, dtype=torch.bool)
            state: DecoderState | None = None
            for _ in range(steps):
                logits, state = self.body.step(written[:, -1:], state, memory=memory)
                written = torch.cat([written, logits.argmax(-1, True).masked_fill(ended, end)], 1)
                ended = written[:, -1:] == end
                if ended.all():
                    break
            return written


# ---- the size of the paper

PRINTED = 143_000_000
"""Parameters as the paper prints them, rounded, without the table of tokens."""


def counts(
    vocab: Size = 57_525, depths: tuple[Size, ...] = (2, 2, 14, 2), window: Size = 10,
    layers: Size = 4, length: Size = 1536,
) -> dict[str, int]:  # fmt: skip
    """Numbers of the encoder, the decoder and its table of tokens in the paper's size: a Swin
    Transformer of width 128, doubled from stage to stage, and BART's decoder of width 1,024.

    depths, window: layers of each stage, and the side of a window in patches.
    layers, length: of the decoder, and the most tokens that it reads.
    """
    channels, side, width = 3, 4, 128
    encoder = (channels * side**2 + 1) * width + 2 * width  # patches and their norm
    for stage, depth in enumerate(depths):
        c = width * 2**stage
        places = (2 * window - 1) ** 2 * (c // 32)  # a bias for each offset and head of width 32
        encoder += depth * (12 * c**2 + 13 * c + places)
        if stage < len(depths) - 1:
            encoder += 8 * c**2 + 8 * c  # four patches become one of twice the width
    d, hidden = 1024, 4096
    attention, feed = 4 * (d**2 + d), 2 * d * hidden + d + hidden
    decoder = layers * (2 * attention + feed + 6 * d) + (length + 2) * d + 4 * d
    return {"encoder": encoder, "decoder": decoder, "tokens": vocab * d}
