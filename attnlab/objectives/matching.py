r"""Matching with hard negatives: do these two texts belong together?

Contrastive pairs compare two vectors, each made without a look at the other text. Here a model
reads both together and answers yes or no. Almost all wrong pairs are easily told, so the wrong
partners are chosen: for the first text $x_i$ of each pair one among the second texts $y_j$ of the
other rows, and for each second text one among the first texts, each as likely as the model itself
finds them alike, by the cosine $c_{ij}$ of the vectors of both alone:

$$p(j \mid i) = \frac{e^{c_{ij}/T}}{\sum_{k \ne i} e^{c_{ik}/T}}\quad (j \ne i),\qquad
  \ell_i = -\log p(1 \mid x_i, y_i) - \log p(0 \mid x_i, y_j) - \log p(0 \mid x_{j'}, y_i)$$

So two questions of three have the answer 0, and who always says 0 is right at 2/3. The draw passes
no gradient, and neither do the vectors it is made by.

``naive``       pair by pair.
``vectorised``  all pairs at once.

Common mistakes: a text that is its own negative; a negative that belongs to the text as well, such
as the same one twice in a batch; a temperature so high that the negatives are random; vectors of
the texts that learn from the draw.

Departures.
- the cosines are those of the encoder's own vectors; in ALBEF those that the contrastive loss
  trains: add the sums of both objectives for this
- one stack reads the two texts one behind the other, with a separator, where ALBEF's crosses over

Li, Selvaraju, Gotmare, Joty, Xiong, Hoi. Align before Fuse: Vision and Language Representation
Learning with Momentum Distillation. NeurIPS 2021, arXiv:2107.07651, section 3.2.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.card import Card, letters
from attnlab.core.claims import Objective
from attnlab.core.options import Options, Size
from attnlab.core.probe import note
from attnlab.objectives.asked import Asked, kept
from attnlab.objectives.batches import UNSCORED, Batch, CrossEntropy, one_by_one
from attnlab.objectives.encodings import check_encoder, encoded, texts_of
from attnlab.objectives.hiding import check_tokens, sampled, uniform

# ---- options


@dataclass(frozen=True, kw_only=True)
class MatchingOptions(Options):
    """How wrong partners are chosen.

    negatives: "hard", the more likely the more alike they are, or "random".
    temperature: T; the lower, the more alike.
    """

    negatives: Literal["hard", "random"] = "hard"
    temperature: float = 0.07

    def check(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ValueError(f"temperature should be more than 0, got {self.temperature}")


# ---- forms


def naive(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: MatchingOptions = MatchingOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """-log p of the three answers of each pair."""
    objective = Matching(vocab, options)
    asked = objective.prepare(batch, generator)
    tokens, real = texts_of("matching", asked, 2)
    wrong = objective.wrong_partners(model, asked)
    rows = []
    for i in range(len(tokens)):
        seconds, firsts = wrong[i].tolist()
        for x, y in ((i, i), (i, seconds), (firsts, i)):
            separator = torch.tensor([vocab])
            row = torch.cat([tokens[x, 0], separator, tokens[y, 1]])
            mask = torch.cat([real[x, 0], torch.tensor([True]), real[y, 1]])
            rows.append(model(row[None], padding=mask[None]))
    return one_by_one(torch.cat(rows), asked.targets)


def vectorised(
    model: nn.Module, batch: Batch, generator: torch.Generator | None = None, *,
    vocab: Size, options: MatchingOptions = MatchingOptions(),
) -> tuple[Tensor, int]:  # fmt: skip
    """Computes all pairs at once."""
    return Matching(vocab, options)(model, batch, generator)


FORMS = {"naive": naive, "vectorised": vectorised}


def hard_negatives(
    cosines: Float[Tensor, "b b"], scored: Bool[Tensor, "b"], noise: Float[Tensor, "b"], *,
    temperature: float,
) -> Int[Tensor, "b"]:  # fmt: skip
    """Another column for each row, drawn by the cosines among those that are scored; a row without
    any gets its own."""
    own = torch.arange(len(cosines), device=cosines.device)
    possible = scored & (own != own[:, None])
    any_possible = possible.any(-1)
    logits = (cosines / temperature).masked_fill(~possible, -torch.inf)
    logits = logits.masked_fill(~any_possible[:, None], 0)
    return torch.where(any_possible, sampled(logits, noise), own)


# ---- module


class Matching(CrossEntropy):
    """Asks whether two halves of rows belong together.

    vocab: how many tokens the text has. The separator is the token after them, so the model needs
        one more. A row holds two texts of the same width, each with padding of its own; a last odd
        token is left out.
    """

    models, specials, classes = ("classifier",), 1, 2

    def __init__(self, vocab: Size, options: MatchingOptions = MatchingOptions()) -> None:
        super().__init__()
        self.vocab, self.options = vocab, options

    def extra_repr(self) -> str:
        return ", ".join(filter(None, (f"vocab={self.vocab}", str(self.options))))

    def fitted(self, model: nn.Module) -> None:
        if self.options.negatives == "hard":
            check_encoder("matching", model)

    def longest(self, length: int) -> int:
        return length // 2 * 2 + 1

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """Two texts of each row, and three answers (b, 3): 1 for the pair, 0 with each of two wrong
        partners. A row with an empty text is not scored, and the only pair of a batch has no wrong
        partner. Notes ``scored`` (b, 3)."""
        check_tokens("matching", batch, self.vocab)
        tokens, real = texts_of("matching", batch, 2, rest=True)
        scored = real.any(-1).all(-1)
        others = torch.tensor([True, *[bool(scored.sum() > 1)] * 2])
        asked_of = note("scored", scored[:, None] & others)
        targets = torch.tensor([1, 0, 0]).expand(len(tokens), 3)
        asked: Batch = Asked.of(
            batch,
            inputs=tokens.flatten(1),
            targets=targets.masked_fill(~asked_of, UNSCORED),
            padding=real.flatten(1),
            noise=uniform(torch.Size((len(tokens), 2)), generator),
        )
        return asked

    def wrong_partners(self, model: nn.Module, batch: Batch) -> Int[Tensor, "b 2"]:
        """The row whose second text, and the row whose first text, stands in each wrong pair."""
        scored, wanted = (batch.targets != UNSCORED).unbind(1)[:2]
        if bool(wanted.any()) and int(scored.sum()) < 2:
            raise ValueError(
                "matching draws wrong partners among the pairs that are computed together, and "
                "here is one pair alone; take smaller accumulate=, or a larger batch_size"
            )
        cosines = self._cosines(model, batch)
        noise, temperature = kept(batch, "noise"), self.options.temperature
        drawn = [
            hard_negatives(c, scored, noise[:, side], temperature=temperature)
            for side, c in enumerate((cosines, cosines.T))
        ]
        return torch.stack(drawn, 1)

    def answers(self, model: nn.Module, batch: Batch) -> Tensor:
        """Logits (b, 3, 2): of the pair, with another second text, with another first one.

        Notes ``partners`` (b, 2), the rows of these.
        """
        tokens, real = texts_of("matching", batch, 2)
        wrong = note("partners", self.wrong_partners(model, batch))
        own = torch.arange(len(tokens), device=tokens.device)
        firsts = torch.stack([own, own, wrong[:, 1]], 1)
        seconds = torch.stack([own, wrong[:, 0], own], 1)
        separator = tokens.new_full((*firsts.shape, 1), self.vocab)
        read = torch.cat([tokens[firsts, 0], separator, tokens[seconds, 1]], -1)
        mask = torch.cat([real[firsts, 0], separator >= 0, real[seconds, 1]], -1)
        logits: Tensor = model(read.flatten(0, 1), padding=mask.flatten(0, 1))
        if logits.shape != (len(read) * 3, 2):
            raise ValueError(
                "the model should answer each pair of texts with two logits: build a classifier "
                f"with classes=2; it returned {tuple(logits.shape)}"
            )
        return logits.unflatten(0, (-1, 3))

    @torch.no_grad()
    def _cosines(self, model: nn.Module, batch: Batch) -> Float[Tensor, "b b"]:
        tokens, real = texts_of("matching", batch, 2)
        if self.options.negatives == "random":
            return torch.zeros(len(tokens), len(tokens), device=tokens.device)
        first, second = (
            F.normalize(encoded("matching", model, tokens[:, i], real[:, i], "mean"), dim=-1)
            for i in range(2)
        )
        return first @ second.T


# ---- card

(b,) = letters("b")

CARD = Card(
    __doc__,
    name="matching",
    family="objectives",
    role="objective",
    forms=FORMS,
    claims=Objective(
        scored=3 * b,
        hidden="whether two texts belong together",
        models=Matching.models,
        texts=2,
        together="wrong partners are drawn among them",
    ),
    options=MatchingOptions,
    build=Matching,
    variants=({"negatives": "random"}, {"temperature": 1.0}),
    aliases=("hard_negatives", "image_text_matching", "itm"),
    demo="""
    >>> from attnlab.tasks import Batch
    >>> model = attnlab.TinyTransformer(51, kind="classifier", classes=2, dim=32)
    >>> objective, tokens = attnlab.build("matching", vocab=50), torch.randint(50, (8, 20))
    >>> asked = objective.prepare(Batch(tokens, tokens))
    >>> objective.wrong_partners(model, asked).shape  # of each pair two others
    torch.Size([8, 2])
    >>> objective.answers(model, asked).shape, asked.targets[0].tolist()
    (torch.Size([8, 3, 2]), [1, 0, 0])
    """,
)
