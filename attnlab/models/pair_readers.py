"""Two models that read a question and a text, and say whether the text answers the question.

They are those of row-column intersection (Glass et al., NAACL 2021, arXiv:2104.08303), small and
without pre-training. ``PairReader`` reads both together (the interaction model). ``TwoEncoders``
reads each alone (the representation model): the vector of a text does not depend on the question,
so those of all rows and columns of a table can be computed once and stored.
"""

from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlab.architecture.feed.mlp import MLP
from attnlab.architecture.join.pre_norm import PreNorm
from attnlab.core.options import Size
from attnlab.core.shapes import checked
from attnlab.mechanisms.structure.rci import PairAttention, joined
from attnlab.models.layers import Block, Stack
from attnlab.models.tiny import TinyTransformer
from attnlab.structures.text_pairs import TextPairs


class PairReader(nn.Module):
    """Logits (no, yes) for each pair of a question and a text that are read together.

    The vector of a token is that of its word, of its place, of the part in which it stands (the
    question or the text) and, with ``marks``, of whether its word stands in the other part too.
    The marks are a departure: a pre-trained encoder finds equal words by itself.
    """

    @checked
    def __init__(
        self, vocab: Size, *, dim: Size = 32, heads: Size = 4, layers: Size = 2,
        max_len: Size = 128, marks: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.words, self.places = nn.Embedding(vocab, dim), nn.Embedding(max_len, dim)
        self.parts = nn.Embedding(2, dim)
        self.marks = nn.Embedding(2, dim) if marks else None
        for table in (self.words, self.places, self.parts, self.marks):
            if table is not None:
                nn.init.normal_(table.weight, std=0.5)
        join = partial(PreNorm, dim)
        blocks = [Block(PairAttention(dim, heads), MLP(dim, 2 * dim), join) for _ in range(layers)]
        self.stack = Stack(blocks, dim)
        self.output = nn.Linear(dim, 2)

    def forward(
        self,
        tokens: Int[Tensor, "b n"],
        padding: Bool[Tensor, "b n"] | None = None,
        *,
        structure: TextPairs | None = None,
    ) -> Float[Tensor, "b 2"]:
        """Score sequences of a question and a text, as ``structure`` divides them; ``padding``, if
        given, must be that of the structure."""
        pairs = TextPairs.fitting(structure, tokens, padding)
        out: Tensor = self.output(pairs.pooled(self.encode(tokens, pairs)))
        return out

    def encode(self, tokens: Int[Tensor, "b n"], pairs: TextPairs) -> Float[Tensor, "b n dim"]:
        """The vector of each token after the last layer; [CLS], the first, is classified."""
        n, most = tokens.shape[1], len(self.places.weight)
        if n > most:
            raise ValueError(f"a pair has {n} tokens, but the model was built with max_len={most}")
        x = self.words(tokens) + self.places.weight[:n] + self.parts(pairs.in_text.long())
        if self.marks is not None:
            x = x + self.marks(in_both(tokens, pairs).long())
        return self.stack(x, pairs.padding, structure=pairs)


class TwoEncoders(nn.Module):
    """Logits (no, yes) for each pair of a question and a text that are read apart.

    ``question`` and ``text`` are classifiers with equally many classes: what they give for a class
    is a coordinate of the vector. Departure: this vector is a linear map of the mean over all
    tokens, where the paper's is made of [CLS].
    """

    def __init__(self, question: TinyTransformer, text: TinyTransformer) -> None:
        super().__init__()
        widths = [each.config.get("classes") for each in (question, text)]
        if widths[0] is None or widths[0] != widths[1]:
            raise ValueError(
                "both encoders should be classifiers with equally many classes, the width of their "
                f"vectors, got classes={widths[0]} and classes={widths[1]}"
            )
        self.question, self.text = question, text
        self.output = nn.Linear(4 * widths[0], 2)

    def forward(
        self,
        tokens: Int[Tensor, "b n"],
        padding: Bool[Tensor, "b n"] | None = None,
        *,
        structure: TextPairs | None = None,
    ) -> Float[Tensor, "b 2"]:
        """As ``PairReader`` is called."""
        pairs = TextPairs.fitting(structure, tokens, padding)
        asked = self.question(*pairs.part(tokens, text=False))
        return self.compared(asked, self.text(*pairs.part(tokens, text=True)))

    def compared(
        self, questions: Float[Tensor, "... dim"], texts: Float[Tensor, "... dim"]
    ) -> Float[Tensor, "... 2"]:
        """The logits of vectors that ``question`` and ``text`` have given."""
        out: Tensor = self.output(joined(questions, texts))
        return out


def in_both(tokens: Int[Tensor, "b n"], pairs: TextPairs) -> Bool[Tensor, "b n"]:
    """True at tokens of the question that the text has too, and at tokens of the text that the
    question has."""
    same = tokens[:, :, None] == tokens[:, None]
    across = pairs.together[:, 0] & ~pairs.apart[:, 0]
    return torch.any(same & across, 2)
