r"""Contrastive pairs: of all second texts of a batch, which one belongs to this first one?

A row holds a pair, such as two pieces of one document, or what is said of a thing and the thing. An
encoder gives each of both a vector, two matrices bring them into one space, and there they are made
of length 1, $u_i$ and $v_i$. Each asks for its partner among all $r$ pairs of the batch:

$$s_{ij} = e^{\tau}\, u_i^\top v_j,\qquad
  \ell = -\frac{1}{2} \sum_i \left( \log \frac{e^{s_{ii}}}{\sum_j e^{s_{ij}}}
  + \log \frac{e^{s_{ii}}}{\sum_j e^{s_{ji}}} \right)$$

One direction alone is InfoNCE; both together are the loss of CLIP. Nobody says what is wrong: the
partners of the other rows are. So a larger batch is a harder question, $\log r$ at random, and a
batch that is cut into parts asks easier ones: with ``fit(accumulate=…)`` or on several devices
every part has its own negatives.

The scale $e^{\tau}$ is learned. It begins at 1/0.07 and is at most 100, or a few pairs would decide
everything.

``naive``       pair by pair.
``vectorised``  one product of matrices.

Common mistakes: negatives gathered from other devices without their gradients; one direction alone;
a pair that occurs twice in a batch and is its own negative; the scale itself as the parameter,
which may become negative; vectors that are not of length 1, whose lengths then are the answer.

Departures.
- one encoder reads both texts; a pair of encoders overrides ``vectors``
- the pieces of a text without pairs are its halves

van den Oord, Li, Vinyals. Representation Learning with Contrastive Predictive Coding. arXiv 2018,
arXiv:1807.03748, section 2.3. Radford, Kim, Hallacy, Ramesh, Goh, Agarwal, Sastry, Askell, Mishkin,
Clark, Krueger, Sutskever. Learning Transferable Visual Models From Natural Language Supervision.
ICML 2021, arXiv:2103.00020, sections 2.3 and 2.5.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import sympy
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.options import Options, Size
from attnlab.core.precision import no_autocast, upcast
from attnlab.core.probe import note
from attnlab.objectives.asked import Asked
from attnlab.objectives.batches import UNSCORED, Batch, CrossEntropy
from attnlab.objectives.encodings import Pooling, beside, check_encoder, encoded, texts_of
from attnlab.objectives.hiding import check_tokens

# ---- options


@dataclass(frozen=True, kw_only=True)
class ContrastiveOptions(Options):
    """How two texts are compared.

    width: of the space in which they are.
    temperature: the reciprocal of the scale at the beginning.
    largest: what the scale never exceeds.
    pooling: the vector of a text, the "mean" over its tokens or that of the "first".
    """

    width: Size = 32
    temperature: float = 0.07
    largest: float = 100.0
    pooling: Pooling = "mean"

    def check(self) -> None:
        for name in ("temperature", "largest"):
            if not (math.isfinite(value := getattr(self, name)) and value > 0):
                raise ValueError(f"{name} should be more than 0, got {value}")
        if self.temperature * self.largest < 1:
            raise ValueError(
                f"the scale begins at 1 / temperature = {1 / self.temperature:g}, beyond "
                f"largest={self.largest:g}"
            )


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    objective: "Contrastive",
) -> tuple[Tensor, int]:  # fmt: skip
    """Minus the mean of both log-probabilities, pair by pair."""
    asked = objective.prepare(batch, generator)
    pairs = objective.answers(model, asked)
    rows = (asked.targets != UNSCORED).nonzero()[:, 0].tolist()
    losses = [pairs.first.sum() * 0]
    for i in rows:
        own = (pairs.scale * pairs.first[i] @ pairs.second[i]).exp()
        of_first = sum((pairs.scale * pairs.first[i] @ pairs.second[j]).exp() for j in rows)
        of_second = sum((pairs.scale * pairs.first[j] @ pairs.second[i]).exp() for j in rows)
        losses.append(-((own / of_first).log() + (own / of_second).log()) / 2)
    return torch.stack(losses).sum(), len(rows)


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    objective: "Contrastive",
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes the loss by one product of all with all."""
    return objective(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}


def info_nce(similarities: Float[Tensor, "r r"]) -> Float[Tensor, "r"]:
    """-log of the probability of each row's own column."""
    exact = similarities if similarities.dtype == torch.float64 else similarities.float()
    own = torch.arange(len(exact), device=exact.device)
    return F.cross_entropy(exact, own, reduction="none")


# ---- module


class Pairs(NamedTuple):
    """Vectors of length 1 of the first and the second of each pair, and the scale."""

    first: Float[Tensor, "b width"]
    second: Float[Tensor, "b width"]
    scale: Float[Tensor, ""]


class Contrastive(CrossEntropy):
    """Finds the partner of each half of a row.

    vocab: how many tokens the text has. A row holds two texts of the same width, each with padding
        of its own; a last odd token is left out.
    """

    models = ("token_classifier", "classifier")

    def __init__(self, vocab: Size, options: ContrastiveOptions = ContrastiveOptions()) -> None:
        super().__init__()
        self.vocab, self.options = vocab, options
        self.log_scale = nn.Parameter(torch.tensor(-math.log(options.temperature)))
        self.first: nn.Module | None = None
        self.second: nn.Module | None = None

    def extra_repr(self) -> str:
        return ", ".join(filter(None, (f"vocab={self.vocab}", str(self.options))))

    def fitted(self, model: Any) -> None:
        check_encoder("contrastive", model)
        if self.first is None:
            self.first, self.second = (
                beside(nn.Linear(model.dim, self.options.width, bias=False), model)
                for _ in range(2)
            )

    def after_step(self, model: nn.Module, step: int, steps: int) -> None:
        self.log_scale.clamp_(max=math.log(self.options.largest))

    def longest(self, length: int) -> int:
        return max(1, length // 2)

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """Two texts of each row; the target (b,) is 0, "its own partner", or says that a row with
        an empty text is not scored. Notes ``scored`` (b,)."""
        check_tokens("contrastive", batch, self.vocab)
        tokens, real = texts_of("contrastive", batch, 2, rest=True)
        scored = note("scored", real.any(-1).all(-1))
        targets = torch.zeros(len(tokens), dtype=torch.int64).masked_fill(~scored, UNSCORED)
        asked: Batch = Asked.of(
            batch, inputs=tokens.flatten(1), targets=targets, padding=real.flatten(1)
        )
        return asked

    def vectors(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """The vectors (b, dim) of the first and the second of each pair."""
        tokens, real = texts_of("contrastive", batch, 2)
        first, second = (
            encoded("contrastive", model, tokens[:, i], real[:, i], self.options.pooling)
            for i in range(2)
        )
        return first, second

    def answers(self, model: nn.Module, batch: Batch) -> Pairs:  # type: ignore[override]
        """Both vectors of each pair. Notes ``similarities`` (b, b), their cosines."""
        if self.first is None or self.second is None:
            raise ValueError("contrastive has no matrices yet: call objective.fitted(model) first")
        first, second = self.vectors(model, batch)
        both = upcast(self.first(first)), upcast(self.second(second))
        # In float32: the least length that normalize divides by is 0 in half precision.
        first, second = (F.normalize(x, dim=-1) for x in both)
        note("similarities", lambda: first @ second.T)
        return Pairs(first, second, upcast(self.log_scale).exp())

    def loss(self, answers: Pairs, batch: Batch) -> Tensor:  # type: ignore[override]
        s = self._similarities(answers, batch)
        return (info_nce(s) + info_nce(s.T)).sum() / 2

    def right(self, answers: Pairs, batch: Batch) -> Tensor:  # type: ignore[override]
        """How many of the first are nearest to their own partner."""
        s = self._similarities(answers, batch)
        return (s.argmax(-1) == torch.arange(len(s), device=s.device)).sum() if len(s) else s.sum()

    def _similarities(self, answers: Pairs, batch: Batch) -> Float[Tensor, "r r"]:
        """The similarities of all pairs that are scored."""
        scored = batch.targets != UNSCORED
        with no_autocast(scored.device):
            return answers.scale * answers.first[scored] @ answers.second[scored].T


# ---- card

b, r = letters("b r")

CARD = Card(
    __doc__,
    name="contrastive",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=b,
        hidden="which of the other texts of the batch belongs to a text",
        models=Contrastive.models,
        uniform=sympy.log(r),
        texts=2,
        together="the partners of the other rows are the wrong answers",
    ),
    options=ContrastiveOptions,
    build=Contrastive,
    variants=({"pooling": "first", "temperature": 0.5},),
    aliases=("info_nce", "clip_loss"),
    demo="""
    >>> from attnlab.tasks import Batch
    >>> model = attnlab.TinyTransformer(50, kind="token_classifier", classes=50, dim=32)
    >>> objective, tokens = attnlab.build("contrastive", vocab=50), torch.randint(50, (8, 20))
    >>> objective.fitted(model)
    >>> pairs = objective.answers(model, objective.prepare(Batch(tokens, tokens)))
    >>> pairs.first.shape, round(pairs.scale.item(), 2)
    (torch.Size([8, 32]), 14.29)
    """,
)
