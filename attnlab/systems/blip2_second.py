r"""BLIP-2's second stage: queries that a frozen language model reads as if they were words.

The Q-Former of the first stage (``attnlab.systems.blip2``) has learned to read images. Now its
queries, by one matrix $W$ from their width to that of the language model, stand in front of the
words, and the loss is the language model's own:

$$\ell = -\sum_t \log p(x_t \mid Z W, x_{<t})$$

Gradients pass through the language model to W and the Q-Former, which alone are trained. The text
half of the Q-Former is not needed any more.

Common mistakes: ``no_grad`` around the frozen language model, so that nothing reaches the
Q-Former; its dropout left on; a model whose positions have no room for the queries.

Li, Li, Savarese, Hoi. BLIP-2: Bootstrapping Language-Image Pre-training with Frozen Image Encoders
and Large Language Models. ICML 2023, arXiv:2301.12597, section 3.2.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlab.models.inputs import check_input, check_tensor, in_vocabulary
from attnlab.models.tiny import TinyTransformer, check_model
from attnlab.systems.frozen_parts import WithFrozenParts, frozen
from attnlab.systems.patches import check_finite
from attnlab.systems.qformer import QFormer


class SecondStage(WithFrozenParts):
    """A Q-Former whose queries stand in front of the words of a frozen language model.

    encoder: ``encoder.encode(source, padding)`` gives vectors (b, m, image_dim); frozen here.
    qformer: trained, but for what it has for words.
    language_model: a TinyTransformer of kind "language_model", frozen here, whose ``max_len`` has
        room for the queries and the words.

    Raises TypeError or ValueError for another language model.
    """

    keeps = ("encoder", "language_model")

    def __init__(
        self, encoder: nn.Module, qformer: QFormer, language_model: TinyTransformer
    ) -> None:
        super().__init__()
        check_model(language_model)
        if language_model.kind != "language_model":
            raise ValueError(
                "the queries stand in front of the words of a model of kind='language_model', got "
                f"kind={language_model.kind!r}"
            )
        self.encoder: Any = frozen(encoder)
        self.qformer = qformer
        for name, parameter in qformer.named_parameters():
            if name.startswith(("table.", "positions.")) or ".text_" in name:
                parameter.requires_grad_(False)
        self.language_model: Any = frozen(language_model)
        self.project = nn.Linear(qformer.options.dim, language_model.dim)

    def prefix(
        self, source: Tensor, source_padding: Tensor | None = None
    ) -> Float[Tensor, "b q dim"]:
        """What an image gives the language model to read."""
        check_tensor("source", source)
        with torch.no_grad():
            image = self.encoder.encode(source, source_padding)
            check_finite(source, source_padding)
        vectors: Tensor = self.project(self.qformer.read(image, source_padding).queries)
        return vectors

    def forward(
        self, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None, *,
        source: Tensor, source_padding: Tensor | None = None,
    ) -> Float[Tensor, "b n vocab"]:  # fmt: skip
        """Logits of the next word at each of the tokens, which come after the queries."""
        check_tensor("tokens", tokens)
        prefix = self.prefix(source, source_padding)
        if len(prefix) != len(tokens):
            raise ValueError(
                f"each text comes with its image: got {len(tokens)} texts and {len(prefix)} images"
            )
        check_input(tokens, padding, prefix.shape[1], self.language_model)
        if padding is not None:
            tokens = tokens.masked_fill(~padding, 0)
            padding = torch.cat([padding.new_ones(prefix.shape[:2]), padding], 1)
        words = self.language_model.embedding(in_vocabulary(tokens, self.language_model.vocab))
        both = torch.cat([prefix.to(words.dtype), words], 1)
        x = self.language_model.decode(inputs_embeds=both, padding=padding)
        logits: Tensor = self.language_model.logits(x[:, prefix.shape[1] :])
        return logits
