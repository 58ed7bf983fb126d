r"""VLMo: one transformer that reads images, texts, and both together.

To find images by a text among millions, both must be encoded apart, so that only vectors need be
compared (a **dual encoder**). To judge whether this text fits this image, words should see patches
(a **fusion encoder**). VLMo is both with the same weights. All layers attend with one set of
weights, whatever they read; what follows the attention is an expert for what stands there:

$$h = x + g_1 \odot \mathrm{attend}(\mathrm{LN}(x)),\qquad
  y = h + g_2 \odot \mathrm{FFN}_m(\mathrm{LN}_m(h)),\quad m \in \{\text{text, image, pair}\}$$

Each expert has its own norm. The factors $g$ begin at 0.1. Nothing is routed by a learned choice:
a text is read by the text's experts, an image by the image's. A pair is one sequence, first the
text, then the image; in the lower layers each position is read by the expert of its side, and in
the last layers (2 of 12 in the base model, 3 of 24 in the large one) all positions by the expert
for pairs.

The vector of a text is that of its first token, that of an image the one of a learned class token
in front of the patches, and that of a pair the one of the text's first token.

``VLMo``             the model: ``read_text``, ``read_image``, and ``forward`` for pairs.
``SIZES``, ``build`` the printed sizes, and a new model of one of them.
``attnlab.systems.vlmo_layers``    the layer, its experts, and the control without shared attention.
``attnlab.systems.vlmo_training``  heads, and the stages of training with images and texts alone.
``attnlab.systems.vlmo_pairs``     the stage of pairs, with its three losses.

Routing by modality alone, as a feed-forward layer for any model, is
``attnlab.architecture.feed.modality_experts``; learned routing is ``feed/switch``.

Counts. The base model has 175.4 million parameters and the large one 561.3; the released models
are printed as 175 and 562.

Common mistakes: a norm that the experts share; the split counted without the text's first token;
the padding of the text forgotten as soon as the image stands behind it; the expert for pairs used
in the last layers when a text is read alone, where the dual encoder has the text's own.

Departures.
- positions are learned vectors that are added to the input, separate for text and image, so that no
  vector for the modality is added; the base and the large model have relative biases instead
- keys have a bias, which changes nothing; no dropout, and no layers are left out in training
- narrow models begin with larger weights, as those of the Q-Former

Bao, Wang, Dong, Liu, Mohammed, Aggarwal, Som, Piao, Wei. VLMo: Unified Vision-Language Pre-Training
with Mixture-of-Modality-Experts. NeurIPS 2022, arXiv:2111.02358, section 3; the norm behind the
text's embedding, the numbers of layers and the sizes are those of the released code.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnlab.core.lookup import checked_ids
from attnlab.core.options import check_value
from attnlab.core.shapes import KeyPadding, checked
from attnlab.core.suggest import choose
from attnlab.systems.patches import check_finite
from attnlab.systems.qformer_layers import first_std, first_weights
from attnlab.systems.vlmo_layers import Route, Top, VLMoLayer, VLMoOptions

SIZES: Mapping[str, VLMoOptions] = {
    "base": VLMoOptions(),
    "large": VLMoOptions(dim=1024, layers=24, heads=16, hidden=4096, pairs=3),
}
"""The two sizes with images of 224 × 224 pixels in patches of 16 × 16."""

PRINTED = {"base": 175_000_000, "large": 562_000_000}
"""Parameters as the released code prints them."""


class Fused(NamedTuple):
    """A text and its image after the last layer: (b, n, dim), and (b, 1 + m, dim) with the class
    token first."""

    text: Float[Tensor, "b n dim"]
    image: Float[Tensor, "b places dim"]


class Embedded(NamedTuple):
    """What enters the first layer, where it is real (None: everywhere), and what it is made of."""

    x: Float[Tensor, "b n dim"]
    real: Bool[Tensor, "b n"] | None
    route: Route


class VLMo(nn.Module):
    """Images as m patches (b, m, features) in reading order, texts as tokens (b, n), or both."""

    def __init__(self, options: VLMoOptions = SIZES["base"]) -> None:
        super().__init__()
        if not isinstance(options, VLMoOptions):
            raise TypeError(
                f"options should be VLMoOptions, such as SIZES['base'], got a "
                f"{type(options).__name__}"
            )
        self.options = o = options
        self.table, self.text_positions = (nn.Embedding(n, o.dim) for n in (o.vocab, o.max_len))
        self.text_norm = nn.LayerNorm(o.dim, o.epsilon)
        self.patch = nn.Linear(o.features, o.dim)
        self.class_token = nn.Parameter(torch.empty(o.dim))
        self.image_positions = nn.Parameter(torch.empty(o.patches + 1, o.dim))
        self.layers: Any = nn.ModuleList(
            VLMoLayer(o, pairs=i >= o.layers - o.pairs) for i in range(o.layers)
        )
        self.norm = nn.LayerNorm(o.dim, o.epsilon)
        first_weights(self, o.dim)
        for of_image in (self.class_token, self.image_positions):
            nn.init.normal_(of_image, std=first_std(o.dim))

    def extra_repr(self) -> str:
        return str(self.options)

    @checked
    def forward(
        self, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None, *,
        source: Float[Tensor, "b m features"], source_padding: KeyPadding = None,
    ) -> Fused:  # fmt: skip
        """The fusion encoder: words and patches that see each other.

        ``padding`` (b, n) and ``source_padding`` (b, m) are True at real tokens and patches.
        """
        both = joined(self.embed_text(tokens, padding), self.embed_image(source, source_padding))
        (x,) = self.encode(both, ("pair",))
        return Fused(x[:, : tokens.shape[1]], x[:, tokens.shape[1] :])

    @checked
    def read_text(
        self, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None,
        top: Top = "own",
    ) -> Float[Tensor, "b n dim"]:  # fmt: skip
        """The text alone; with the top "pair" its last layers have the expert for pairs."""
        return self.encode(self.embed_text(tokens, padding), (top,))[0]

    @checked
    def read_image(
        self, source: Float[Tensor, "b m features"], padding: KeyPadding = None, top: Top = "own"
    ) -> Float[Tensor, "b places dim"]:
        """The image alone, its class token first; ``top`` as for a text."""
        return self.encode(self.embed_image(source, padding), (top,))[0]

    def encode(self, read: Embedded, tops: Sequence[Top] = ("own", "pair")) -> tuple[Tensor, ...]:
        """The vectors after the last layer under each of the tops; what stands below the last
        layers is computed once for all."""
        for top in tops:
            check_value("top", top, Top)
        mask = None if read.real is None else read.real[:, None, None]
        below = self.options.layers - self.options.pairs
        x, found = read.x, []
        for layer in self.layers[:below]:
            x = layer(x, read.route, mask)
        for top in tops:
            above = x
            for layer in self.layers[below:]:
                above = layer(above, read.route, mask, top)
            found.append(self.norm(above))
        return tuple(found)

    @checked
    def embed_text(
        self, tokens: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Embedded:
        """The words before the first layer."""
        n, o = tokens.shape[1], self.options
        if n > o.max_len:
            raise ValueError(
                f"the text has {n} tokens, more than max_len={o.max_len}; shorten it, or build the "
                "model with a larger max_len"
            )
        if padding is not None:
            _refuse_empty(padding)
            tokens = tokens.masked_fill(~padding, 0)
        ids = checked_ids(tokens, o.vocab, "tokens", f"vocab is {o.vocab}")
        x = self.text_norm(self.table(ids) + self.text_positions.weight[:n])
        return Embedded(x, padding, (("text", n),))

    @checked
    def embed_image(
        self, source: Float[Tensor, "b m features"], padding: KeyPadding = None,
        hidden: KeyPadding = None, hides: Float[Tensor, "dim"] | None = None,
    ) -> Embedded:  # fmt: skip
        """The class token and the patches before the first layer; where ``hidden`` (b, m) is True,
        the vector ``hides`` stands in the place of the patch. A ValueError for one without the
        other."""
        m, o = source.shape[1], self.options
        if (hidden is None) != (hides is None):
            given, missing = ("hides", "hidden") if hidden is None else ("hidden", "hides")
            raise ValueError(
                f"hidden says which patches are hidden, hides what stands in their place: got "
                f"{given}; give {missing}, too, or neither"
            )
        if (m, source.shape[2]) != (o.patches, o.features):
            raise ValueError(
                f"images should have {o.patches} patches of {o.features} numbers, got {m} of "
                f"{source.shape[2]}; resize them, or build the model with other patches or features"
            )
        if padding is not None:  # a NaN in a padded patch must not spread
            source = source.masked_fill(~padding[..., None], 0)
            padding = torch.cat([padding.new_ones(len(padding), 1), padding], 1)
        check_finite(source)
        x = self.patch(source.to(self.patch.weight.dtype))
        if hidden is not None and hides is not None:
            x = torch.where(hidden[..., None], hides.to(x.dtype), x)
        first = self.class_token.to(x.dtype).expand(len(x), 1, -1)
        x = torch.cat([first, x], 1) + self.image_positions
        return Embedded(x, padding, (("image", m + 1),))


def joined(text: Embedded, image: Embedded) -> Embedded:
    """A pair as one sequence: the text, then the image."""
    real = None
    if text.real is not None or image.real is not None:
        real = torch.cat([_all_real(part) for part in (text, image)], 1)
    return Embedded(
        torch.cat([text.x, image.x.to(text.x.dtype)], 1), real, text.route + image.route
    )


def _all_real(part: Embedded) -> Tensor:
    if part.real is not None:
        return part.real
    return torch.ones(part.x.shape[:2], dtype=torch.bool, device=part.x.device)


def _refuse_empty(padding: Tensor) -> None:
    """A ValueError where the first token of a text, which stands for all of it, is padding."""
    if padding.is_meta or torch.compiler.is_compiling() or padding[:, 0].all():
        return
    row = int((~padding[:, 0]).nonzero()[0])
    raise ValueError(
        f"row {row} begins with padding, but its first token is read as the vector of the text; "
        "give every text at least one token, and put padding behind it"
    )


def build(size: str | VLMoOptions = "base") -> VLMo:
    """A new VLMo of one of ``SIZES``, or of other sizes."""
    return VLMo(choose("size", size, SIZES) if isinstance(size, str) else size)
