r"""The last stage of VLMo: three losses for pairs of an image and a text.

One model learns to encode images and texts apart, and to read them together:

- contrastive: $s_{ij} = \cos(W_v v_i, W_t t_j)/\tau$, one text against all of the batch and one
  image against all. It is computed twice, of vectors of the own experts, and of vectors that the
  experts for pairs in the last layers have made of each alone, with heads and $\tau$ of their own;
  each counts half.
- matching: a pair is read as one sequence, and the vector of its first token says whether the text
  belongs to the image. Each pair comes with a wrong text and a wrong image, which are drawn the
  more often the larger $s_{ij}$ is (the draw is that of ``attnlab.systems.blip2``).
- words: words of the text are hidden, and read off the text and the image together. It counts 0.25.

Common mistakes: wrong partners that are right, because two images have the same caption; pairs that
are matched by the vectors of the dual encoder, which have not seen each other; one temperature for
both similarities.

Departures.
- texts that are equal are no wrong answers for each other, and $\tau$ stays between 0.001 and 0.5,
  as in BLIP-2

Bao, Wang, Dong, Liu, Mohammed, Aggarwal, Som, Piao, Wei. VLMo: Unified Vision-Language Pre-Training
with Mixture-of-Modality-Experts. NeurIPS 2022, arXiv:2111.02358, section 3.2; the second
contrastive loss and the 0.25 are those of the released code.
"""

from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.options import Size, check_value
from attnlab.core.precision import upcast
from attnlab.objectives.asked import Asked, kept
from attnlab.objectives.batches import UNSCORED, Batch
from attnlab.objectives.hiding import uniform
from attnlab.systems.blip2 import BOUNDS, equal_texts, own_nearest, pairs, smoothed
from attnlab.systems.vlmo_training import TOPS, OfStage, hidden_words, images_of

Losses = tuple[Literal["contrastive", "matching", "words"], ...]
LOSSES: Losses = ("contrastive", "matching", "words")
WEIGHTS = {"contrastive": 1.0, "matching": 1.0, "words": 0.25}


class PairAnswers(NamedTuple):
    """What the model says of a batch of pairs; None for a loss that is left out.

    similarities, above: (b, b), images × texts over the temperature, of the own experts and of
        those for pairs.
    same: (b, b), True at other rows with the same text.
    matching, belongs: logits (3b, 2) and answers (3b,).
    words: logits (b, n, vocab).
    """

    similarities: Float[Tensor, "b b"]
    above: Float[Tensor, "b b"] | None
    same: Bool[Tensor, "b b"]
    matching: Float[Tensor, "p 2"] | None
    belongs: Int[Tensor, "p"] | None
    words: Float[Tensor, "b n vocab"] | None


class PairStage(OfStage):
    """The losses of pairs, for ``fit(model, task, objective=PairStage(task.vocab))``.

    losses: which of the three; each is a mean, and the model learns their sum by ``WEIGHTS``.
    """

    stage = "pairs"

    def __init__(self, vocab: Size, losses: Losses = LOSSES) -> None:
        super().__init__()
        self.vocab = check_value("vocab", vocab, Size)
        self.losses = check_value("losses", losses, Losses)
        if not self.losses or len(set(self.losses)) < len(self.losses):
            raise ValueError(f"losses should name one loss or more, each once, got {losses!r}")

    def extra_repr(self) -> str:
        return f"vocab={self.vocab}, losses={self.losses}"

    def after_step(self, model: Any, step: int, steps: int) -> None:
        model.temperature.clamp_(*BOUNDS)

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """One answer for each pair (b,): its own text. Keeps the text with words hidden, these
        words, and the numbers by which wrong partners are drawn."""
        images_of(batch)
        hidden, words = hidden_words(batch, self.vocab, generator)
        rows = len(batch.inputs)
        asked: Batch = Asked.of(
            batch, inputs=batch.inputs, targets=torch.zeros(rows, dtype=torch.int64),
            hidden=hidden, words=words, noise=uniform(torch.Size((rows, 2)), generator),
        )  # fmt: skip
        return asked

    def answers(self, model: Any, batch: Batch) -> PairAnswers:  # type: ignore[override]
        tops = TOPS if "contrastive" in self.losses else TOPS[:1]
        similarities, *above = model.compared(batch, tops)
        same = equal_texts(batch)
        matching = belongs = words = None
        if "matching" in self.losses:
            rows, belongs = pairs(similarities, same, kept(batch, "noise"))
            matching = model.matching(**_pairs_of(batch, *rows.T))
        if "words" in self.losses:
            everything = torch.arange(len(batch.inputs), device=batch.inputs.device)
            given = {**_pairs_of(batch, everything, everything), "tokens": kept(batch, "hidden")}
            words = model.words(model.body(**given).text)
        return PairAnswers(similarities, next(iter(above), None), same, matching, belongs, words)

    def loss(self, answers: PairAnswers, batch: Batch) -> Tensor:  # type: ignore[override]
        """The weighted sum of the means, times the number of pairs, of which ``fit`` takes the
        mean."""
        found = self.each(answers, batch)
        weighted = [WEIGHTS[name] * found[name] for name in self.losses]
        return torch.stack(weighted).sum() * len(batch)

    def each(self, answers: PairAnswers, batch: Batch) -> dict[str, Tensor]:
        """The mean of each loss, by its name."""
        found = {}
        if "contrastive" in self.losses and answers.above is not None:
            both = (answers.similarities, answers.above)
            sides = [smoothed(each, answers.same, 0) for s in both for each in (s, s.T)]
            found["contrastive"] = torch.stack(sides).mean()
        if answers.matching is not None and answers.belongs is not None:
            found["matching"] = _cross_entropy(answers.matching, answers.belongs)
        if answers.words is not None:
            found["words"] = _cross_entropy(answers.words, kept(batch, "words"))
        return found

    def right(self, answers: PairAnswers, batch: Batch) -> Tensor:  # type: ignore[override]
        """How many images are nearest to their own text, or to an equal one."""
        return own_nearest(answers.similarities, answers.same).sum()


def _pairs_of(batch: Batch, of_image: Tensor, of_text: Tensor) -> dict[str, Any]:
    """What the model is called with for these rows of images and of texts."""

    def at(part: Tensor | None, rows: Tensor) -> Tensor | None:
        return None if part is None else part[rows]

    return {
        "tokens": at(batch.inputs, of_text), "padding": at(batch.padding, of_text),
        "source": at(batch.source, of_image), "source_padding": at(batch.source_padding, of_image),
    }  # fmt: skip


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean over the scored targets; 0 where none is."""
    found = upcast(logits).flatten(0, -2), targets.flatten()
    total = F.cross_entropy(*found, ignore_index=UNSCORED, reduction="sum")
    return total / (targets != UNSCORED).sum().clamp(min=1)
