r"""SPECTER: a text lies nearer to one that it refers to than to one that it does not.

What a scientific paper is about is said by the papers it cites. A row holds three documents, each a
title and the beginning of its text: the document $q$, one that it cites, $p$, and one that it does
not, $n$. An encoder gives each a vector, that of its first token; their distances make the loss:

$$\ell = \max\left(\lVert q - p \rVert - \lVert q - n \rVert + m,\ 0\right),\qquad m = 1$$

A triplet whose $n$ is farther than $p$ by the margin $m$ costs nothing and teaches nothing. So the
choice of $n$ decides what is learned: of five in the paper three are drawn at random, and two are
hard, cited by one that $q$ cites and not by $q$ (``attnlab.tasks.citations`` draws them). Nobody
needs the citations of a new document: its vector is read from its text alone.

The vectors are not of length 1. Multiplied by a large number they all keep the margin, so distances
of different models are not comparable; the order of the neighbours is.

``naive``       row by row.
``vectorised``  all rows at once.

Common mistakes: a negative that is cited after all; documents of a validation link that stand in a
link of the training in the other direction; PyTorch's triplet loss adds $10^{-6}$ to each
difference, so that a document has a distance to itself; the square of the distance, whose margin
is another.

Departures.
- the encoder begins untrained, where the paper's is SciBERT

Cohan, Feldman, Beltagy, Downey, Weld. SPECTER: Document-level Representation Learning using
Citation-informed Transformers. ACL 2020, arXiv:2004.07180, sections 2.2 and 2.3.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.options import Options
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.objectives.asked import Asked
from attnlab.objectives.batches import UNSCORED, Batch, CrossEntropy
from attnlab.objectives.encodings import Pooling, check_encoder, encoded, texts_of
from attnlab.objectives.hiding import check_tokens

# ---- options


@dataclass(frozen=True, kw_only=True)
class SpecterOptions(Options):
    """Distances.

    margin: by how much the cited document has to be nearer, m.
    pooling: the vector of a document, that of its "first" token or the "mean" over all.
    """

    margin: float = 1.0
    pooling: Pooling = "first"

    def check(self) -> None:
        if not (math.isfinite(self.margin) and self.margin > 0):
            raise ValueError(f"margin should be more than 0, got {self.margin}")


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: int, options: SpecterOptions = SpecterOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """max(|q - p| - |q - n| + m, 0), row by row."""
    asked = Specter(vocab, options).prepare(batch, generator)
    tokens, real = texts_of("specter", asked, 3)
    losses = [torch.zeros((), device=tokens.device)]
    for row, target in enumerate(asked.targets.tolist()):
        if target != UNSCORED:
            vectors = encoded("specter", model, tokens[row], real[row], options.pooling)
            q, p, n = upcast(vectors)
            apart = torch.linalg.vector_norm(q - p) - torch.linalg.vector_norm(q - n)
            losses.append((apart + options.margin).clamp(min=0))
    return sum(losses[1:], start=losses[0]), len(losses) - 1


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: int, options: SpecterOptions = SpecterOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes all rows at once."""
    return Specter(vocab, options)(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}


def triplet(
    q: Float[Tensor, "b d"], p: Float[Tensor, "b d"], n: Float[Tensor, "b d"]
) -> "Distances":
    """How far q is from p and from n."""
    return Distances(
        torch.linalg.vector_norm(q - p, dim=-1), torch.linalg.vector_norm(q - n, dim=-1)
    )


# ---- module


class Distances(NamedTuple):
    """From a document to the one that it cites, and to the one that it does not."""

    cited: Float[Tensor, "b"]
    other: Float[Tensor, "b"]


class Specter(CrossEntropy):
    """Compares the distances from the first of three documents to the two others.

    vocab: how many tokens the text has. A row holds three documents of the same width, each with
    padding of its own. Where the task has one target a row, 0 or 1, it says which of the two others
    is cited; else it is the first of them.
    """

    models = ("token_classifier", "classifier")

    def __init__(self, vocab: int, options: SpecterOptions = SpecterOptions()) -> None:
        super().__init__()
        self.vocab, self.options = vocab, options

    def extra_repr(self) -> str:
        return ", ".join(filter(None, (f"vocab={self.vocab}", str(self.options))))

    def fitted(self, model: nn.Module) -> None:
        check_encoder("specter", model)

    def longest(self, length: int) -> int:
        return max(1, length // 3)

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The document, the one that it cites, the one that it does not; the target (b,) is 0,
        "the first of the two", or says that a row with an empty document is not scored.

        Notes ``scored`` (b,).
        """
        check_tokens("specter", batch, self.vocab)
        tokens, real = texts_of("specter", batch, 3)
        if batch.targets.dim() == 1:
            tokens, real = (_cited_first(x, batch.targets) for x in (tokens, real))
        scored = real.any(-1).all(-1)
        if batch.targets.dim() == 1:
            scored = scored & (batch.targets != UNSCORED)
        targets = torch.zeros_like(scored, dtype=torch.int64)
        note("scored", scored)
        asked: Batch = Asked.of(
            batch,
            inputs=tokens.flatten(1),
            targets=targets.masked_fill(~scored, UNSCORED),
            padding=real.flatten(1),
        )
        return asked

    def answers(self, model: nn.Module, batch: Batch) -> Distances:  # type: ignore[override]
        tokens, real = texts_of("specter", batch, 3)
        vectors = encoded(
            "specter", model, tokens.flatten(0, 1), real.flatten(0, 1), self.options.pooling
        )
        return triplet(*upcast(vectors).reshape(len(tokens), 3, -1).unbind(1))

    def loss(self, answers: Distances, batch: Batch) -> Tensor:  # type: ignore[override]
        losses = (answers.cited - answers.other + self.options.margin).clamp(min=0)
        return losses.masked_fill(batch.targets == UNSCORED, 0).sum()

    def right(self, answers: Distances, batch: Batch) -> Tensor:  # type: ignore[override]
        """In how many rows the cited document is nearer."""
        return ((answers.cited < answers.other) & (batch.targets != UNSCORED)).sum()


def _cited_first(texts: Tensor, cited: Tensor) -> Tensor:
    """The two other documents exchanged where the second is cited."""
    exchanged = texts[:, [0, 2, 1]]
    return torch.where((cited == 1)[:, None, None], exchanged, texts)


# ---- card

(b,) = letters("b")

CARD = Card(
    __doc__,
    name="specter",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=b,
        hidden="which of two documents a document refers to",
        models=Specter.models,
        uniform=1,
        texts=3,
    ),
    options=SpecterOptions,
    build=Specter,
    variants=({"pooling": "mean"}, {"margin": 3.0}),
    aliases=("citation_triplets", "triplet_loss"),
    demo="""
    >>> problem = attnlab.tasks.task("citations", words=8)
    >>> problem.tokens(problem.batch("train", 1, 0).inputs[0])[0]
    '[cls]'
    >>> objective = attnlab.build("specter", vocab=problem.vocab)
    >>> model = attnlab.TinyTransformer(problem.vocab, kind="classifier", classes=2)
    >>> loss, count = objective(model, problem.batch("train", 4, 0))
    >>> count, bool(loss > 0)  # a loss for each triplet
    (4, True)
    """,
)
