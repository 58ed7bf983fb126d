r"""Frozen: an image encoder learns to speak to a language model that does not change.

A language model is trained on text and then frozen. An image encoder, trained from nothing, gives
the mean over its vectors, and one matrix makes $k$ vectors of the language model's width from it.
They stand in the sentence where words could stand, and the loss is that of the words that follow:

$$\ell = -\sum_t \log p(x_t \mid v_1, \dots, v_k, x_{<t}),\qquad [v_1; \dots; v_k] = W\,E(y)$$

Gradients pass through all layers of the language model to W and the encoder, which alone are
trained. As the images stand among words, a prompt may hold several, and sentences that were never
trained with images can be asked about them.

Common mistakes: ``no_grad`` around the frozen model, so that nothing reaches the encoder; its
dropout left on; gains of its norms that go on being trained. A fair test needs two controls: the
same system with a black image, which shows what the words alone say, and a language model that may
change.

``WithImages``  a language model, an image encoder and the matrix between them; ``freeze=False`` is
                the control, and a system that learns from text and images together. How vectors
                stand among words: ``attnlab.systems.among_words``.

Departures.
- the encoder is a small transformer on patches in the place of a ResNet, and the vectors stand at
  ordinary positions, where the paper has relative ones

Tsimpoukelli, Menick, Cabi, Eslami, Vinyals, Hill. Multimodal Few-Shot Learning with Frozen Language
Models. NeurIPS 2021, arXiv:2106.13884, section 3. Huang and others. Language Is Not All You Need:
Aligning Perception with Language Models. NeurIPS 2023, arXiv:2302.14045, for images anywhere in a
text, learned together with it.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.core.options import Size, check_value
from attnlab.models.inputs import check_padding
from attnlab.models.tiny import TinyTransformer, check_model
from attnlab.systems.among_words import AmongWords


class WithImages(AmongWords):
    """A language model that reads vectors of images at the markers of its text.

    encoder: a TinyTransformer of kind "classifier" over patches; its vectors are used, not its
        classes.
    language_model: a TinyTransformer of kind "language_model", frozen unless ``freeze=False``.
    marker: the token in whose place a vector of an image stands.
    vectors: how many each image gives.
    patches: how many patches an image has; a source holds the images one after the other.
    blind: every image is black: the control.
    of_words: the vectors are mixtures of the language model's vectors of words.
    """

    def __init__(
        self, encoder: TinyTransformer, language_model: TinyTransformer, *, marker: int,
        patches: Size, vectors: Size = 2, freeze: bool = True, blind: bool = False,
        of_words: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(encoder, language_model, marker=marker, freeze=freeze)
        check_model(encoder)
        if encoder.kind != "classifier":
            raise ValueError(f"a model of kind='classifier' is needed here, got {encoder.kind!r}")
        self.blind, self.of_words = blind, of_words
        self.patches = check_value("patches", patches, Size)
        self.vectors = check_value("vectors", vectors, Size)
        if encoder.output is not None:
            encoder.output.requires_grad_(False)
        table = language_model.embedding
        if of_words and not isinstance(table, nn.Embedding):
            raise ValueError(
                "of_words=True mixes the rows of a table of words, and this language model has a "
                f"{type(table).__name__}"
            )
        width = table.num_embeddings if of_words else language_model.dim
        self.project = nn.Linear(encoder.dim, self.vectors * width)

    def seen(
        self, source: Float[Tensor, "b s f"], real: Bool[Tensor, "b s"] | None = None
    ) -> tuple[Float[Tensor, "b k dim"], Bool[Tensor, "b k"]]:
        """The vectors of all images, and which of them are those of an image that is there."""
        if source.ndim != 3 or source.shape[1] % self.patches:
            raise ValueError(
                f"a source holds images of {self.patches} patches each, (b, images · "
                f"{self.patches}, features), got {tuple(source.shape)}"
            )
        count = source.shape[1] // self.patches
        images = source.unflatten(1, (count, self.patches))
        images = torch.zeros_like(images) if self.blind else images
        b, i = images.shape[:2]
        here = images.new_ones(b, i, dtype=torch.bool)
        if real is not None:
            check_padding("source_padding", real, source)
            here = self._whole(real)
            images = images.masked_fill(~here[..., None, None], 0)
        pooled = self.encoder.encode(images.flatten(0, 1)).mean(1)
        vectors: Tensor = self.project(pooled).unflatten(-1, (self.vectors, -1))
        if self.of_words:
            vectors = vectors.softmax(-1) @ self.language_model.embedding.weight
        return vectors.view(b, i * self.vectors, vectors.shape[-1]), here.repeat_interleave(
            self.vectors, 1
        )

    def looked_at(self, real: Bool[Tensor, "b s"] | None) -> Bool[Tensor, "b s"] | None:
        """The patches of whole images: an image of which a patch is missing is left out."""
        return None if real is None else self._whole(real).repeat_interleave(self.patches, 1)

    def _whole(self, real: Bool[Tensor, "b s"]) -> Bool[Tensor, "b i"]:
        return real.unflatten(1, (-1, self.patches)).all(-1)
