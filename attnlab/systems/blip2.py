r"""BLIP-2's first stage: a Q-Former learns to read what a frozen image encoder sees.

The Q-Former (``attnlab.systems.qformer``) learns to read images with text, by three
losses of equal weight. Of $r$ images and texts, $Z_i$ are the queries of image i and $t_j$ is the
first vector of text j:

- contrastive: $s_{ij} = \max_a \cos(W_v Z_{i,a}, W_t t_j)/\tau$, one text against all of the batch
  and one image against all, with 0.1 of each label spread over all of them. Queries and words do
  not see each other.
- matching: queries and words see each other, each query gives two logits, and their mean says
  whether the text belongs to the image. Each pair comes with a wrong text and a wrong image, drawn
  the more often the larger $s_{ij}$: $p \propto \mathrm{softmax}(s) + 10^{-4}$.
- captioning: each word is predicted from the queries and the words before it. The text begins with
  a token of its own in the place of its first.

Second stage: ``attnlab.systems.blip2_second``, in which the queries stand in front of the words of
a frozen language model.

Common mistakes: a frozen encoder in training mode, whose dropout or statistics go on changing; a
temperature that multiplies; wrong partners that are right, because two images have the same
caption.

Departures.
- texts that are equal are no wrong answers for each other, in the contrastive loss and the draw
- $\tau$ stays between 0.001 and 0.5, as in BLIP; BLIP-2's code does not bound it

Li, Li, Savarese, Hoi. BLIP-2: Bootstrapping Language-Image Pre-training with Frozen Image Encoders
and Large Language Models. ICML 2023, arXiv:2301.12597, section 3.1; label smoothing,
$10^{-4}$ and the heads are those of the released code (LAVIS).
"""

from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.options import Size, check_value
from attnlab.core.precision import no_autocast, upcast
from attnlab.models.inputs import check_tensor
from attnlab.objectives.asked import Asked, kept
from attnlab.objectives.batches import UNSCORED, Batch, CrossEntropy
from attnlab.objectives.hiding import sampled, uniform
from attnlab.systems.frozen_parts import WithFrozenParts, frozen
from attnlab.systems.patches import check_finite
from attnlab.systems.qformer import QFormer, Read
from attnlab.systems.qformer_layers import EPSILON, QFormerOptions, first_weights

TEMPERATURE = 0.07
BOUNDS = (0.001, 0.5)
SMOOTHED = 0.1
LEAST = 1e-4
Losses = tuple[Literal["contrastive", "matching", "captioning"], ...]
LOSSES: Losses = ("contrastive", "matching", "captioning")

# ---- first stage


class FirstStage(WithFrozenParts):
    """A frozen image encoder, a Q-Former, and the heads of its three losses.

    encoder: ``encoder.encode(source, padding)`` gives vectors (b, m, image_dim); frozen here. None
        where images already come as such vectors.
    vocab: tokens of the text. The Q-Former has one more, with which captioning begins.
    shared: width of the space in which images and texts are compared.
    """

    keeps = ("encoder",)

    def __init__(
        self, encoder: nn.Module | None, vocab: Size, options: QFormerOptions = QFormerOptions(),
        shared: Size = 256,
    ) -> None:  # fmt: skip
        super().__init__()
        self.vocab = vocab = check_value("vocab", vocab, Size)
        self.qformer = QFormer(replace(options, vocab=vocab + 1))
        dim = options.dim
        self.of_image, self.of_text = (nn.Linear(dim, shared) for _ in range(2))
        self.match = nn.Linear(dim, 2)
        self.before_words = nn.Sequential(
            nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim, EPSILON)
        )
        self.word_bias = nn.Parameter(torch.zeros(vocab + 1))
        self.temperature = nn.Parameter(torch.tensor(TEMPERATURE))
        first_weights(self, dim)
        self.encoder: Any = nn.Identity() if encoder is None else frozen(encoder)

    @torch.no_grad()
    def see(self, source: Tensor, padding: Tensor | None = None) -> Float[Tensor, "b m width"]:
        """The vectors of images, without gradient: nothing before them is trained."""
        check_tensor("source", source)
        if isinstance(self.encoder, nn.Identity):
            return source
        vectors: Tensor = self.encoder.encode(source, padding)
        check_finite(source, padding)
        return vectors

    def compared(self, read: Read, text: Tensor) -> Float[Tensor, "b c"]:
        """Each image with each text (c, n, dim): the best of its queries, over the temperature."""
        z = F.normalize(upcast(self.of_image(read.queries)), dim=-1)
        t = F.normalize(upcast(self.of_text(text[:, 0])), dim=-1)
        with no_autocast(z.device):
            cosines = torch.einsum("bqw, cw -> bcq", z, t)
        return cosines.amax(-1) / upcast(self.temperature)

    def matching(self, *given: Any, **options: Any) -> Float[Tensor, "b 2"]:
        """Logits: a text that does not belong to the image, and one that does."""
        answer: Tensor = self.match(self.qformer(*given, **options, mask="together").queries).mean(
            1
        )
        return answer

    def words(self, tokens: Tensor, padding: Tensor | None, read: Read) -> Tensor:
        """Logits (b, n, vocab) of the next word at each of the tokens."""
        begun = torch.cat([torch.full_like(tokens[:, :1], self.vocab), tokens[:, 1:]], 1)
        x = self.before_words(self.qformer.write(begun, padding, read))
        assert self.qformer.table is not None
        return F.linear(x, self.qformer.table.weight, self.word_bias)[..., : self.vocab]


class Answers(NamedTuple):
    """What the model says of a batch: None for a loss that is left out.

    similarities: (b, b), images × texts, over the temperature.
    same: (b, b), True at other rows with the same text.
    matching, belongs: logits (3b, 2) and answers (3b,).
    words: logits (b, n, vocab).
    """

    similarities: Float[Tensor, "b b"]
    same: Bool[Tensor, "b b"]
    matching: Float[Tensor, "p 2"] | None
    belongs: Int[Tensor, "p"] | None
    words: Float[Tensor, "b n vocab"] | None


class ThreeLosses(CrossEntropy):
    """The losses of the first stage, for ``fit(model, task, objective=ThreeLosses())``.

    losses: which of the three; each is a mean, and the model learns their sum.
    """

    def __init__(self, losses: Losses = LOSSES) -> None:
        super().__init__()
        self.losses = check_value("losses", losses, Losses)
        if not self.losses or len(set(self.losses)) < len(self.losses):
            raise ValueError(f"losses should name one loss or more, each once, got {losses!r}")

    def extra_repr(self) -> str:
        return f"losses={self.losses}"

    def fitted(self, model: nn.Module) -> None:
        if not isinstance(model, FirstStage):
            raise TypeError(f"ThreeLosses trains a FirstStage, got a {type(model).__name__}")

    def after_step(self, model: Any, step: int, steps: int) -> None:
        model.temperature.clamp_(*BOUNDS)

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """One answer for each pair (b,): its own text. Keeps the words that are to be answered, and
        the numbers by which wrong partners are drawn."""
        if batch.source is not None:
            check_tensor("source", batch.source)
        if batch.source is None or batch.source.shape[1] == 0:
            raise ValueError(
                "the first stage reads images and texts, and this batch has no images (its source "
                "is missing or empty); take a task such as 'captions'"
            )
        asked: Batch = Asked.of(
            batch,
            inputs=batch.inputs,
            targets=torch.zeros(len(batch.inputs), dtype=torch.int64),
            words=batch.targets,
            noise=uniform(torch.Size((len(batch.inputs), 2)), generator),
        )
        return asked

    def answers(self, model: Any, batch: Batch) -> Answers:  # type: ignore[override]
        image, hidden = model.see(batch.source, batch.source_padding), batch.source_padding
        read = model.qformer.read(image, hidden)
        text = model.qformer.write(batch.inputs, batch.padding)
        similarities, same = model.compared(read, text), equal_texts(batch)
        matching = belongs = words = None
        if "matching" in self.losses:
            rows, belongs = pairs(similarities, same, kept(batch, "noise"))
            parts = (image, batch.inputs, batch.padding, hidden)
            of_image, of_text = rows.T
            images, tokens, padding, hides = (
                None if part is None else part[which]
                for part, which in zip(parts, (of_image, of_text, of_text, of_image), strict=True)
            )
            matching = model.matching(images, tokens, padding, image_padding=hides)
        if "captioning" in self.losses:
            words = model.words(batch.inputs, batch.padding, read)
        return Answers(similarities, same, matching, belongs, words)

    def loss(self, answers: Answers, batch: Batch) -> Tensor:  # type: ignore[override]
        """The sum of the means, times the number of pairs, of which ``fit`` takes the mean."""
        found = self.each(answers, batch)
        return torch.stack([found[name] for name in self.losses]).sum() * len(batch)

    def each(self, answers: Answers, batch: Batch) -> dict[str, Tensor]:
        """The mean of each loss, by its name."""
        found = {}
        if "contrastive" in self.losses:
            s, same = answers.similarities, answers.same
            both = [smoothed(each, same) for each in (s, s.T)]
            found["contrastive"] = torch.stack(both).mean()
        if answers.matching is not None and answers.belongs is not None:
            found["matching"] = F.cross_entropy(
                upcast(answers.matching), answers.belongs, ignore_index=UNSCORED
            )
        if answers.words is not None:
            logits, targets = upcast(answers.words).flatten(0, 1), kept(batch, "words").flatten()
            found["captioning"] = F.cross_entropy(logits, targets, ignore_index=UNSCORED)
        return found

    def right(self, answers: Answers, batch: Batch) -> Tensor:  # type: ignore[override]
        """How many images are nearest to their own text, or to an equal one."""
        return own_nearest(answers.similarities, answers.same).sum()


def equal_texts(batch: Batch) -> Bool[Tensor, "b b"]:
    """True at other rows of the batch with the same text."""
    text = batch.inputs if batch.padding is None else batch.inputs.masked_fill(~batch.padding, -1)
    same = (text[:, None] == text).all(-1)
    return same.fill_diagonal_(False)


def own_nearest(s: Float[Tensor, "b b"], same: Bool[Tensor, "b b"]) -> Bool[Tensor, "b"]:
    """Whether each row is most similar to its own column, or to one with an equal text."""
    nearest = s.argmax(-1, keepdim=True)
    own = torch.arange(len(s), device=s.device)[:, None]
    return ((nearest == own) | same.gather(1, nearest))[:, 0]


def smoothed(
    s: Float[Tensor, "r r"], same: Bool[Tensor, "r r"], spread: float = SMOOTHED
) -> Float[Tensor, ""]:
    """The mean cross-entropy of each row's own column, with the share ``spread`` of the label
    given to all columns alike; those with the same text are left out."""
    p = s.masked_fill(same, -torch.inf).log_softmax(-1)
    of_all = p.masked_fill(same, 0).sum(-1) / (~same).sum(-1)
    return -((1 - spread) * p.diagonal() + spread * of_all).mean()


@torch.no_grad()
def pairs(
    s: Float[Tensor, "b b"], same: Bool[Tensor, "b b"], noise: Float[Tensor, "b 2"]
) -> tuple[Int[Tensor, "p 2"], Int[Tensor, "p"]]:
    """The image and the text of 3b pairs, and whether they belong together: all own ones, each
    image with a wrong text, each text with a wrong image. Where no other text is in the batch, the
    wrong pair is not scored."""
    own = torch.arange(len(s), device=s.device)
    wrong = ~same & (own != own[:, None])
    drawn = [
        sampled((each.softmax(-1) + LEAST).masked_fill(~wrong, 0).log(), noise[:, side])
        for side, each in enumerate((s, s.T))
    ]
    rows = torch.stack([torch.cat([own, own, drawn[1]]), torch.cat([own, drawn[0], own])], 1)
    no = torch.where(wrong.any(-1), 0, UNSCORED)
    return rows, torch.cat([torch.ones_like(no), no, no])
