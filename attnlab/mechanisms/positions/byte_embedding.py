r"""Byte embedding: a vocabulary that nobody has to make, and sequences that are longer.

A vocabulary of words or subwords is made from some text, once, by a rule of its own; a word that it
does not hold is split into many small pieces, and a model of 30,000 words spends 30,000 rows on it.
ByT5 reads the bytes of UTF-8 instead. There are 256, in every language, whatever is misspelled:

$$\mathrm{id}_t = \mathrm{byte}_t + 3, \qquad x_t = A_{\mathrm{id}_t},\quad
A \in \mathbb{R}^{384 \times dim}$$

0 is padding, 1 the end of a text, 2 unknown (never written). So 259 ids are in use; the table has
384 rows, for a round number. The price is the length: about one byte per letter in English, two in
Greek or Russian, three in Chinese, so that an English text is some four times as long as in
subwords. ByT5 puts the parameters that the table no longer needs into the encoder, which is three
times as deep as the decoder.

``naive``   one-hot rows times the table.
``lookup``  fetches the rows.

``encode`` and ``decode`` are the way from text to ids and back, ``batch`` fills several texts up to
one length. ``decode`` leaves out ids that stand for no byte (below 3, or from 259 on) and bytes
that do not form valid UTF-8: what a model writes need not be valid.

``sentinel`` gives the ids that stand for a hole in the text when the model is trained to fill it:
the byte ids from the top, 258, 257, … The first eleven are bytes (255 … 245) that UTF-8 never uses;
from the twelfth on they are bytes of real text.

Cost: no multiplication at all by lookup, 2 n 384 dim FLOPs by one-hot rows.

Known elsewhere. Hugging Face's tokenizer reads the texts ``</s>`` and ``<pad>`` as ids 1 and 0;
here they are ordinary bytes. Its sentinels are ids 259 … 383, which the published weights were not
trained with.

Departures.
- a text that looks like a special token is ordinary bytes

Xue, Barua, Constant, Al-Rfou, Narang, Kale, Roberts, Raffel. ByT5: Towards a Token-Free Future with
Pre-trained Byte-to-Byte Models. TACL 2022, arXiv:2105.13626, section 3.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.integers import check_integer
from attnlab.core.layer import Layer
from attnlab.core.lookup import one_hot, rows_of
from attnlab.core.options import Count, Options, Size
from attnlab.core.probe import note
from attnlab.core.shapes import checked

PAD, END, UNKNOWN = 0, 1, 2
FIRST = 3
"""The id of byte 0."""

IN_USE = FIRST + 256


@dataclass(frozen=True, kw_only=True)
class ByteEmbeddingOptions(Options):
    """The size of the table.

    ``rows``  how many rows it has: those in use, and spare ones.
    """

    rows: Size = 384

    def check(self) -> None:
        if self.rows < IN_USE:
            raise ValueError(f"rows should be at least {IN_USE}, one for each id, got {self.rows}")


# ---- naive


@checked
def naive(tokens: Int[Tensor, "b n"], table: Float[Tensor, "rows dim"]) -> Float[Tensor, "b n dim"]:
    """One-hot rows times the table."""
    return note("vectors", one_hot(tokens, table, "tokens") @ table)


def encode(text: str | bytes, *, end: bool = True) -> list[int]:
    """The ids of a text: its bytes in UTF-8, each plus 3, and 1 at the end if ``end``.

    Raises ValueError for half a surrogate pair, which no UTF-8 can hold.
    """
    if not isinstance(text, str | bytes):
        raise TypeError(f"encode takes a text or bytes, got a {type(text).__name__}")
    try:
        raw = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        raise ValueError(
            f"character {error.start} of the text is half a surrogate pair, which UTF-8 cannot "
            "hold; remove it"
        ) from error
    return [byte + FIRST for byte in raw] + [END] * end


def decode(ids: Int[Tensor, "n"] | Sequence[int]) -> str:
    """The text of ids: what stands for no byte, and bytes that are no UTF-8, are left out."""
    numbers = _numbers(ids)
    raw = bytes(number - FIRST for number in numbers if FIRST <= number < IN_USE)
    return raw.decode(errors="ignore")


def _numbers(ids: object) -> list[int]:
    if isinstance(ids, Tensor):
        if ids.dim() != 1 or ids.is_floating_point():
            raise TypeError(
                "decode takes one row of whole numbers, (n,), got "
                f"{str(ids.dtype).removeprefix('torch.')} of shape {tuple(ids.shape)}"
            )
        ids = ids.tolist()
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise TypeError(f"decode takes a row of ids, got a {type(ids).__name__}")
    return [check_integer("an id", number) for number in ids]


def batch(
    texts: Sequence[str | bytes], *, end: bool = True
) -> tuple[Int[Tensor, "b n"], Bool[Tensor, "b n"]]:
    """The ids of several texts, filled up with 0, and their padding (True = a real byte)."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Sequence):
        raise TypeError(f"batch takes a list of texts, got a {type(texts).__name__}; [text] is one")
    rows = [encode(text, end=end) for text in texts]
    longest = max(map(len, rows), default=0)
    if not longest:
        raise ValueError("there is no text that has a byte; give at least one")
    tokens = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    return tokens, torch.arange(longest) < lengths[:, None]


@checked
def sentinel(index: Count) -> int:
    """The id that stands for hole number ``index`` of a text: 258, 257, …"""
    if index >= 256:
        raise ValueError(f"there are 256 sentinels, one per byte; there is no number {index}")
    return IN_USE - 1 - index


# ---- lookup


@checked
def lookup(
    tokens: Int[Tensor, "b n"], table: Float[Tensor, "rows dim"]
) -> Float[Tensor, "b n dim"]:
    """The rows are fetched, not multiplied out."""
    return note("vectors", rows_of(table, tokens, "tokens"))


FORMS = {"naive": naive, "lookup": lookup}

# ---- module


class ByteEmbedding(Layer):
    """Bytes as vectors: ids (b, n) → (b, n, dim). Positions are the model's business."""

    @checked
    def __init__(
        self, dim: Size, *,
        form: Literal["naive", "lookup"] = "lookup",
        options: ByteEmbeddingOptions = ByteEmbeddingOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        self.form, self.options = form, options
        self.table = nn.Parameter(torch.randn(options.rows, dim))

    @checked
    def forward(self, tokens: Int[Tensor, "b n"]) -> Float[Tensor, "b n dim"]:
        return FORMS[self.form](tokens, self.table)


# ---- card

n, dim, v = letters("n dim v")

CARD = Card(
    __doc__,
    name="bytes",
    family="positions",
    role="embed",
    forms=FORMS,
    causal="optional",
    options=ByteEmbeddingOptions,
    letters={"v": "rows"},
    time={"naive": 2 * n * v * dim, "lookup": 0 * n},
    memory={"naive": n * (v + dim), "lookup": n * dim},
    notes={"naive": ("vectors",), "lookup": ("vectors",)},
    variants=({"rows": 259},),
    aliases=("byt5",),
    build=ByteEmbedding,
)
