r"""A Transformer of complex numbers throughout, for complex word embeddings.

Words at positions become $r\,e^{i(\omega p + \theta)}$; every linear map is complex; attention
compares complex queries and keys and mixes complex values; at the end the real and the imaginary
part stand side by side before an ordinary linear map to classes or words. All tensors are real and
hold [real, imaginary], so ``dim`` counts real numbers: a layer has half the parameters of a real
layer of that width.

- ``classifier``: sees both sides, mean over real positions, (b, n) → (b, classes);
- ``language_model``: causal, predicts the next token, (b, n) → (b, n, vocab).

Wang, Zhao, Lioma, Li, Zhang, Simonsen. Encoding Word Order in Complex Embeddings. ICLR 2020,
arXiv:1912.12333, appendix B. Departures: pre-norm by layer norms instead of batch norms, GELU,
queries and keys conjugated (``mechanisms.dense.complex_attention``). The authors' classification
code exchanges real and imaginary parts between two stacks and adds the normalised output of the
attention to itself; both are left out.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlab.core.complex_linear import Weights, refuse_odd
from attnlab.core.options import Options, Size
from attnlab.core.positions import positions_of
from attnlab.mechanisms.dense.complex_attention import ComplexAttention, Score
from attnlab.mechanisms.positions.complex_embedding import ComplexEmbedding
from attnlab.mechanisms.positions.complex_embedding.tables import ComplexEmbeddingOptions
from attnlab.models.complex_layers import ComplexBlock, ComplexDropout, SeparateNorm
from attnlab.models.inputs import Reading
from attnlab.models.layers import embedding_std


@dataclass(frozen=True, kw_only=True)
class ComplexOptions(Options):
    """The sizes and choices of a ``ComplexTransformer``.

    ``hidden`` is 4·dim if not given; ``score`` and ``weights`` are those of the attention and of
    all linear maps; ``words`` are the options of the embedding.
    """

    vocab: Size
    kind: Literal["classifier", "language_model"] = "language_model"
    classes: Size | None = None
    dim: Size = 128
    layers: Size = 4
    heads: Size = 4
    hidden: Size | None = None
    max_len: Size = 256
    dropout: float = 0.0
    score: Score = "modulus"
    weights: Weights = "free"
    words: ComplexEmbeddingOptions = field(default_factory=ComplexEmbeddingOptions)

    def check(self) -> None:
        refuse_odd("dim", self.dim)
        if (self.kind == "classifier") != (self.classes is not None):
            raise ValueError(
                "classes belongs to kind='classifier', and only to that, got "
                f"kind={self.kind!r} and classes={self.classes!r}"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout should be at least 0 and less than 1, got {self.dropout}")


class ComplexTransformer(nn.Module):
    """The network of the module's docstring; options are those of ``ComplexOptions``."""

    def __init__(self, vocab: int, **options: Any) -> None:
        super().__init__()
        o = ComplexOptions(vocab=vocab, **options)
        self.options, self.vocab, self.max_len = o, o.vocab, o.max_len
        self.features: int | None = None
        self.kind = o.kind
        self.embedding = ComplexEmbedding(o.vocab, o.dim // 2, output="pairs", options=o.words)
        self.blocks = nn.ModuleList(_block(o) for _ in range(o.layers))
        self.norm, self.dropout = SeparateNorm(o.dim), ComplexDropout(o.dropout)
        self.output = nn.Linear(o.dim, o.classes or o.vocab)
        nn.init.normal_(self.output.weight, std=embedding_std(o.dim))

    def forward(
        self, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n vocab"] | Float[Tensor, "b classes"]:
        """Logits. ``padding`` is True at real tokens; other tokens have no influence."""
        x = self.encode(tokens, padding)
        if self.kind == "language_model":
            return self.output(x)
        if padding is None:
            return self.output(x.mean(1))
        total = x.masked_fill(~padding[..., None], 0).sum(1)
        return self.output(total / padding.sum(1, keepdim=True).clamp(min=1))

    def encode(
        self, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n dim"]:
        """The vectors [real, imaginary] at every position, after the last layer."""
        tokens = Reading.of(self, tokens, padding).tokens
        at = positions_of(tokens.shape[1], tokens.device, padding=padding)
        x = self.dropout(self.embedding(tokens, at))
        for block in self.blocks:
            x = block(x, padding)
        return self.norm(x)


def _block(o: ComplexOptions) -> ComplexBlock:
    attention = ComplexAttention(
        o.dim, o.heads, causal=o.kind == "language_model", score=o.score, weights=o.weights
    )
    return ComplexBlock(attention, o.dim, o.hidden or 4 * o.dim, o.dropout, o.weights)
