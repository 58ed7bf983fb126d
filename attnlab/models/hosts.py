r"""Three small classifiers without attention, for comparing ways to embed words at positions.

Each reads vectors of words at positions, by any scheme that works at the embedding, and gives class
scores:

- ``"average"``: the mean of the vectors, then a linear map (fastText);
- ``"convolution"``: windows of three words, the largest value of each channel;
- ``"lstm"``: the mean of the states of a recurrent network.

The average shows the difference between schemes best. With vectors $E_{w_p} + P_p$ it is
$\frac1n \sum E_{w_p} + \frac1n \sum P_p$: the same for every order of the words, whatever
was learned. With $r_w e^{i\omega_w p}$ each word brings its position with it, and the mean of
two orders differs.

Wang et al. (ICLR 2020) put complex word embeddings into complex versions of fastText, a CNN, an
LSTM and a Transformer; here the networks are real and read [real, imaginary].

Joulin, Grave, Bojanowski, Mikolov. Bag of Tricks for Efficient Text Classification. EACL 2017,
arXiv:1607.01759. Kim. Convolutional Neural Networks for Sentence Classification. EMNLP 2014,
arXiv:1408.5882. Hochreiter, Schmidhuber. Long Short-Term Memory. Neural Computation 1997.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.options import Size
from attnlab.core.positions import positions_of
from attnlab.core.shapes import checked
from attnlab.models import positions
from attnlab.models.inputs import Reading
from attnlab.models.options import Options

Kind = Literal["average", "convolution", "lstm"]


class WordClassifier(nn.Module):
    """Tokens (b, n) → class scores (b, classes), by one of the three ``kind`` of network.

    ``scheme`` is the name of a position scheme that works at the embedding ("none", "learned",
    "sinusoidal", "complex"), ``scheme_options`` its options. Words, and what a scheme learns, start
    with standard deviation 1/√dim.
    """

    @checked
    def __init__(
        self, vocab: Size, classes: Size, *, kind: Kind = "average", dim: Size = 64,
        max_len: Size = 256, scheme: str = "none", scheme_options: Mapping[str, Any] | None = None,
        dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        sizes = {"vocab": vocab, "classes": classes, "dim": dim, "max_len": max_len, "heads": 1}
        own = {**positions.starting_at(scheme, dim**-0.5), **(scheme_options or {})}
        o = Options(kind="classifier", positions=scheme, position_options=own, **sizes)  # type: ignore[arg-type]
        positions.refuse_in_layers(o)
        self.kind, self.vocab, self.max_len, self.dropout = kind, vocab, max_len, dropout
        self.features: int | None = None
        self.embedding: Any = positions.of_tokens(o)
        self.scheme = positions.at_embedding(o)
        if self.embedding is None:
            self.embedding = nn.Embedding(vocab, dim)
            nn.init.normal_(self.embedding.weight, std=dim**-0.5)
        self.network = _network(kind, dim)
        self.output = nn.Linear(dim, classes)

    @checked
    def forward(
        self, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b classes"]:
        real = torch.ones_like(tokens, dtype=torch.bool) if padding is None else padding
        x = self.vectors(tokens, padding).masked_fill(~real[..., None], 0)
        x = F.dropout(x, self.dropout, self.training)
        if isinstance(self.network, nn.Conv1d):
            x = F.relu(self.network(x.mT).mT).masked_fill(~real[..., None], 0)
            return self.output(x.amax(1))
        if isinstance(self.network, nn.LSTM):
            x = self.network(x)[0].masked_fill(~real[..., None], 0)
        return self.output(x.sum(1) / real.sum(1, keepdim=True).clamp(min=1))

    def vectors(self, tokens: Tensor, padding: Tensor | None = None) -> Float[Tensor, "b n dim"]:
        """The words at their positions; padding takes no position."""
        tokens = Reading.of(self, tokens, padding).tokens
        at = positions_of(tokens.shape[1], tokens.device, padding=padding)
        if not isinstance(self.embedding, nn.Embedding):
            found: Tensor = self.embedding(tokens, at)
            return found
        x = self.embedding(tokens)
        return x if self.scheme is None else self.scheme(x, at)

    def extra_repr(self) -> str:
        return f"kind={self.kind!r}"


def _network(kind: str, dim: int) -> nn.Module | None:
    if kind == "convolution":
        return nn.Conv1d(dim, dim, 3, padding=1)
    return nn.LSTM(dim, dim, batch_first=True) if kind == "lstm" else None
