r"""The stages in which VLMo is trained, and the heads of its losses.

Pairs of an image and a text are few beside images and texts alone. So each part is trained on what
there is most of, one stage after the other, by ``fit(model, task, objective=…)``:

1. ``ImageStage``: masked patches. 40 % of the patches are hidden, and the model answers which of a
   few visual words each was, as in BEiT. Attention, the image's experts and the image's input
   learn.
2. ``TextStage``: masked words, from text alone. Attention and the image's experts are **frozen**;
   only the text's experts and its input learn. The attention that has learned from images serves
   texts, too, and what the model makes of an image is the same after this stage, bit for bit.
3. ``attnlab.systems.vlmo_pairs.PairStage``: everything, from pairs.

Each objective says by ``fitted`` which parameters its stage trains; ``model.begins(stage)`` does it
by hand.

Common mistakes: in the second stage a factor $g$, or the last norm, that goes on learning, so that
images are read in another way; weight decay on what is frozen.

Departures.
- a visual word is the nearest of a few centres of patches (k-means, as for Image GPT's colours), in
  the place of a trained tokeniser's, and hidden patches are drawn alone, not in blocks
- the first token of a text is never hidden; the table of words and that of answers are one
- the vector of a pair passes one layer with tanh, as in the released code

Bao, Wang, Dong, Liu, Mohammed, Aggarwal, Som, Piao, Wei. VLMo: Unified Vision-Language Pre-Training
with Mixture-of-Modality-Experts. NeurIPS 2022, arXiv:2111.02358, section 3.3. Bao, Dong, Piao, Wei.
BEiT: BERT Pre-Training of Image Transformers. ICLR 2022, arXiv:2106.08254, for the first stage.
"""

from dataclasses import replace
from typing import Any, Literal, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core.options import Size, check_value
from attnlab.core.precision import no_autocast, upcast
from attnlab.models.inputs import check_padding
from attnlab.objectives.asked import Asked, kept
from attnlab.objectives.batches import UNSCORED, Batch, CrossEntropy
from attnlab.objectives.hiding import lowest, real_tokens, share_of, uniform
from attnlab.objectives.masked_lm import MaskedLM
from attnlab.systems.among_words import check_rows
from attnlab.systems.blip2 import TEMPERATURE
from attnlab.systems.image_gpt import as_tokens
from attnlab.systems.qformer_layers import first_std, first_weights
from attnlab.systems.vlmo import VLMo
from attnlab.systems.vlmo_layers import Top, VLMoOptions

Stage = Literal["image", "text", "pairs"]
TOPS: tuple[Top, ...] = ("own", "pair")
HIDDEN = 0.4  # of the patches of an image


class VLMoTraining(nn.Module):
    """A VLMo and the heads of its losses.

    vocab: tokens of the text. The model has one more, which hides a word.
    visual: how many visual words there are; None without the first stage.
    """

    def __init__(
        self, vocab: Size, options: VLMoOptions = VLMoOptions(), visual: Size | None = None
    ) -> None:
        super().__init__()
        self.vocab = vocab = check_value("vocab", vocab, Size)
        visual = check_value("visual", visual, Size | None)
        dim = options.dim
        self.body = VLMo(replace(options, vocab=vocab + 1))
        self.of_text: Any
        self.of_image: Any
        self.of_text, self.of_image = (
            nn.ModuleDict({top: nn.Linear(dim, dim, bias=False) for top in TOPS}) for _ in range(2)
        )
        self.temperature = nn.Parameter(torch.full((len(TOPS),), TEMPERATURE))
        self.pool, self.match = nn.Linear(dim, dim), nn.Linear(dim, 2)
        self.before_words = nn.Sequential(
            nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim, options.epsilon)
        )
        self.word_bias = nn.Parameter(torch.zeros(vocab + 1))
        self.hides = nn.Parameter(torch.empty(dim))
        self.visual = None if visual is None else nn.Linear(dim, visual)
        for part in (self.of_text, self.of_image, self.pool, self.match, self.before_words):
            first_weights(part, dim)
        if self.visual is not None:
            first_weights(self.visual, dim)
        nn.init.normal_(self.hides, std=first_std(dim))
        self.stage: Stage | None = None

    def begins(self, stage: Stage) -> Self:
        """Lets the parameters of one stage learn, and no others. Gives the model itself."""
        stage = check_value("stage", stage, Stage)
        if stage == "image":
            _visual_words(self)
        self.stage = stage
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(_learns(name, stage))
        return self

    def compared(
        self, batch: Batch, tops: tuple[Top, ...] = TOPS
    ) -> tuple[Float[Tensor, "b c"], ...]:
        """Each image with each text, by vectors of each top: cosines over the temperature."""
        assert batch.source is not None
        texts = self.body.encode(self.body.embed_text(batch.inputs, batch.padding), tops)
        images = self.body.encode(self.body.embed_image(batch.source, batch.source_padding), tops)
        found = []
        for top, image, text in zip(tops, images, texts, strict=True):
            v = F.normalize(upcast(self.of_image[top](image[:, 0])), dim=-1)
            t = F.normalize(upcast(self.of_text[top](text[:, 0])), dim=-1)
            with no_autocast(v.device):
                found.append(v @ t.mT / upcast(self.temperature[TOPS.index(top)]))
        return tuple(found)

    def matching(
        self, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None, *,
        source: Float[Tensor, "b m features"], source_padding: Bool[Tensor, "b m"] | None = None,
    ) -> Float[Tensor, "b 2"]:  # fmt: skip
        """Logits: a text that does not belong to its image, and one that does."""
        both = self.body(tokens, padding, source=source, source_padding=source_padding)
        answer: Tensor = self.match(self.pool(both.text[:, 0]).tanh())
        return answer

    def words(self, x: Float[Tensor, "b n dim"]) -> Float[Tensor, "b n vocab"]:
        """Logits of the word at each of the vectors of a text."""
        read, table = self.before_words(x), self.body.table.weight
        return F.linear(read, table, self.word_bias)[..., : self.vocab]


def _visual_words(model: VLMoTraining) -> int:
    """How many a model answers with; a ValueError for one that was built without them."""
    if model.visual is None:
        raise ValueError("the first stage answers with visual words: build it with visual=…")
    return model.visual.out_features


def _learns(name: str, stage: Stage) -> bool:
    """Whether a parameter of this name learns in a stage."""
    inside = name.removeprefix("body.")
    of_layer = inside.startswith("layers.")
    shared = inside.startswith("norm.") or (of_layer and ".experts." not in inside)
    if stage == "image":
        own = ("patch.", "class_token", "image_positions", "hides", "visual.")
        return shared or ".experts.image." in inside or inside.startswith(own)
    if stage == "text":
        own = ("table.", "text_positions.", "text_norm.", "before_words.", "word_bias")
        return ".experts.text." in inside or inside.startswith(own)
    return not inside.startswith(("hides", "visual."))


# ---- stages


class OfStage(CrossEntropy):
    """What the objectives of the stages have in common."""

    stage: Stage

    def fitted(self, model: nn.Module) -> None:
        """Lets what the stage trains learn, and freezes the rest."""
        if not isinstance(model, VLMoTraining):
            raise TypeError(
                f"{type(self).__name__} trains a VLMoTraining, got a {type(model).__name__}"
            )
        self.check(model)
        model.begins(self.stage)

    def check(self, model: VLMoTraining) -> None:
        """A ValueError for a model that was built for another vocabulary."""
        vocab = getattr(self, "vocab", model.vocab)
        if vocab != model.vocab:
            raise ValueError(
                f"the objective was built for vocab={vocab}, and the model has {model.vocab}"
            )


class ImageStage(OfStage):
    """Masked patches, each answered by its visual word.

    centres: (visual, features), the patches that visual words stand for, such as
        ``attnlab.systems.image_gpt.colour_clusters(patches_as_pixels(source), visual)``.
    """

    stage = "image"

    def __init__(self, centres: Float[Tensor, "visual features"]) -> None:
        super().__init__()
        self.centres: Tensor
        self.register_buffer("centres", centres)
        self.classes = len(centres)

    def check(self, model: VLMoTraining) -> None:
        wanted = (_visual_words(model), model.body.options.features)
        if self.centres.shape != wanted:
            raise ValueError(
                f"centres should be {wanted[0]} patches of {wanted[1]} numbers, one for each "
                f"visual word of the model, got shape {tuple(self.centres.shape)}"
            )

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch with a share of its patches hidden; their visual words are the targets."""
        source, real = images_of(batch), batch.source_padding
        real = torch.ones(source.shape[:2], dtype=torch.bool) if real is None else real
        hidden = lowest(uniform(real.shape, generator), real, share_of(real, HIDDEN))
        words = as_tokens(patches_as_pixels(source), self.centres.to(source))
        targets = words.masked_fill(~hidden, UNSCORED)
        asked: Batch = Asked.of(batch, inputs=batch.inputs, targets=targets, hidden=hidden)
        return asked

    def answers(self, model: Any, batch: Batch) -> Tensor:
        body, hidden = model.body, kept(batch, "hidden")
        assert batch.source is not None
        hides = model.hides.to(batch.source.dtype)
        seen = body.embed_image(batch.source, batch.source_padding, hidden, hides)
        logits: Tensor = model.visual(body.encode(seen, ("own",))[0][:, 1:])
        return logits


class TextStage(OfStage):
    """Masked words of texts alone; the images of a batch, if it has some, are not read."""

    stage = "text"

    def __init__(self, vocab: Size) -> None:
        super().__init__()
        self.vocab = check_value("vocab", vocab, Size)

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch with words hidden, which are its targets."""
        inputs, targets = hidden_words(batch, self.vocab, generator)
        return replace(batch, inputs=inputs, targets=targets)  # type: ignore[type-var]

    def answers(self, model: Any, batch: Batch) -> Tensor:
        logits: Tensor = model.words(model.body.read_text(batch.inputs, batch.padding))
        return logits


# ---- helpers


def patches_as_pixels(source: Float[Tensor, "b m features"]) -> Float[Tensor, "b features m 1"]:
    """Patches as the pixels of an image of one column, whose channels are the numbers of a patch,
    as ``attnlab.systems.image_gpt`` takes them."""
    return source.mT[..., None]


def hidden_words(
    batch: Batch, vocab: int, generator: torch.Generator | None
) -> tuple[Int[Tensor, "b n"], Int[Tensor, "b n"]]:
    """The tokens with some hidden, as by masked_lm, and these as targets; the first token of a
    text, where its vector is read, stays."""
    tokens = batch.inputs
    whole = not (tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool)
    if tokens.ndim != 2 or tokens.shape[1] == 0 or not whole:
        raise ValueError(
            "a text should be whole numbers (b, n), at least one for each text, got "
            f"{tokens.dtype} of shape {tuple(tokens.shape)}"
        )
    batch = replace(batch, inputs=tokens.long())  # type: ignore[type-var]
    real = real_tokens(batch).clone()
    real[:, 0] = False
    asked = MaskedLM(vocab).prepare(replace(batch, padding=real), generator)  # type: ignore[type-var]
    return asked.inputs, asked.targets


def images_of(batch: Batch) -> Tensor:
    """The images of a batch, or a ValueError where there are none."""
    if batch.source is not None:
        check_rows(batch.source, batch.source_padding, batch.inputs)
        if batch.source_padding is not None:
            check_padding("source_padding", batch.source_padding, batch.source)
    if batch.source is None or batch.source.shape[1] == 0:
        raise ValueError(
            "this stage reads images, and this batch has none (its source is missing or empty); "
            "take a task such as 'captions'"
        )
    return batch.source
