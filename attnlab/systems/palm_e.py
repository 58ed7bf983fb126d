r"""PaLM-E: a language model plans for a body; what is observed stands among its words.

A language model that is given words and observations in one sentence answers in words, which a
robot carries out step by step. Position $i$ of the prompt holds either the embedding of word $w_i$
or one of the $q$ vectors that an encoder $\phi_j$ makes of an observation $O_j$:

$$x_i = \gamma(w_i)\quad\text{or}\quad x_i = \phi_j(O_j)_i,\qquad
  \ell = -\sum_{t > p} \log p(w_t \mid x_1, \dots, x_p, w_{p+1}, \dots, w_{t-1})$$

The loss is that of the answer alone: the prompt of $p$ positions, words and vectors, is not scored.
It is read causally, as all that a decoder reads; nothing lets the prompt be read from both sides.

The encoders are small beside the language model:

    state vector      coordinates, sizes, colours in one vector → MLP → 1 vector, or q
    picture           ViT → the vector of each patch → affine map → as many vectors as patches
    objects           one vector or more for each, and a name for it in the prompt: "red is [·]"

Without names the model has to find out which vector is which object; with them a plan can speak of
objects. Objects are given in any order.

What is trained: everything; or the encoders alone, in front of a language model that stays as it
is (``freeze=True``); or everything, with texts among the batches, so that the language model does
not forget what it knew (co-training: ``GridWorld(also_words=True)``). Whether a plan is right is
found by carrying it out (``attnlab.tasks.blocks``), not by comparing words.

``StateEncoder``, ``PictureEncoder``  from vectors of numbers, and from patches.
``PaLME``                             an encoder and a language model; ``write`` answers prompts.
``PALM``, ``VIT``, ``PARTS``          the sizes of the papers; ``counted`` counts their parameters,
                                      to be compared with the numbers that are ``QUOTED``.

Common mistakes: the words of the prompt scored too; ``no_grad`` around the frozen language model,
so that nothing reaches the encoder; a picture's class token taken as one of its patches.

Departures.
- the encoders of the paper are pretrained on images, and its objects are found by slots of an
  object-centred network (OSRT), several vectors each; here objects are given by their coordinates
- names in the prompt are the colours of the objects, and so are they in the plan; the paper numbers
  them, "Object 1 is [·]", and plans speak of numbers where colours do not tell objects apart
- a picture takes one position of the prompt for each patch; its class token is left out

Driess, Xia, Sajjadi, Lynch, Chowdhery, Ichter, Wahid, Tompson, Vuong, Yu, Huang, Chebotar,
Sermanet, Duckworth, Levine, Vanhoucke, Hausman, Toussaint, Greff, Zeng, Mordatch, Florence. PaLM-E:
An Embodied Multimodal Language Model. ICML 2023, arXiv:2303.03378, sections 3 to 5. The language
models: Chowdhery and others, PaLM, arXiv:2204.02311; the image encoders: Dehghani and others,
Scaling Vision Transformers to 22 Billion Parameters, arXiv:2302.05442.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.architecture.feed.gated import Gated
from attnlab.core.attention import DenseAttention
from attnlab.core.heads import Heads
from attnlab.core.options import Size, check_value
from attnlab.core.suggest import choose
from attnlab.mechanisms.dense import multi_query
from attnlab.models.inputs import check_tensor
from attnlab.models.tiny import TinyTransformer
from attnlab.systems.among_words import AmongWords
from attnlab.systems.patches import from_patches
from attnlab.systems.vit import ViT, ViTOptions

# ---- encoders


class StateEncoder(nn.Module):
    """Each vector of numbers of a source makes q vectors: (b, s, numbers) → (b, s·q, dim), by two
    layers with GELU between them, of width ``hidden``, 4·dim if not given.

    vectors: q. A source of one row is a state; one of several rows holds objects, which share the
        layers, and the vectors of an object stand together.
    """

    def __init__(
        self, numbers: Size, dim: Size, *, vectors: Size = 1, hidden: Size | None = None
    ) -> None:
        super().__init__()
        self.vectors = check_value("vectors", vectors, Size)
        self.numbers = check_value("numbers", numbers, Size)
        self.dim = check_value("dim", dim, Size)
        hidden = 4 * self.dim if hidden is None else check_value("hidden", hidden, Size)
        self.expand = nn.Linear(self.numbers, hidden)
        self.contract = nn.Linear(hidden, self.vectors * self.dim)

    def forward(self, source: Float[Tensor, "b s numbers"]) -> Float[Tensor, "b k dim"]:
        check_source(source, self.numbers, "a vector of a state")
        hidden = F.gelu(self.expand(source.to(self.expand.weight.dtype)))
        made: Tensor = self.contract(hidden)
        return made.unflatten(-1, (self.vectors, self.dim)).flatten(1, 2)


class PictureEncoder(nn.Module):
    """Each patch of a picture makes one vector: (b, i · n, P²·C) → (b, i · n, dim), for i pictures
    of n patches one after the other. A ViT, and an affine map of its vectors of patches."""

    def __init__(self, vit: ViT, dim: Size) -> None:
        super().__init__()
        self.vit, self.dim = vit, check_value("dim", dim, Size)
        if vit.body.output is not None:
            vit.body.output.requires_grad_(False)  # no class is asked for
        self.vectors = 1
        self.numbers = vit.options.channels * vit.options.patch**2
        self.project = nn.Linear(vit.options.dim, self.dim)

    def forward(self, source: Float[Tensor, "b s numbers"]) -> Float[Tensor, "b s dim"]:
        check_source(source, self.numbers, "a patch of a picture")
        side = self.vit.options.side
        if source.shape[1] % side**2:
            raise ValueError(
                f"pictures have {side} × {side} = {side**2} patches each, got {source.shape[1]}"
            )
        patches = source.reshape(-1, side**2, self.numbers)
        pictures = from_patches(patches, (side, side), self.vit.options.patch)
        vectors: Tensor = self.project(self.vit.encode(pictures)[:, 1:])
        return vectors.reshape(*source.shape[:2], self.dim)


def check_source(source: Any, numbers: int, what: str) -> None:
    """A TypeError or ValueError unless a source is float, (b, s, numbers), with vectors in it."""
    check_tensor("source", source)
    if source.ndim != 3 or source.shape[2] != numbers or not source.is_floating_point():
        raise ValueError(
            f"{what} has {numbers} numbers: source should be float of shape (b, s, {numbers}), got "
            f"{source.dtype} of shape {tuple(source.shape)}"
        )


# ---- the system


class PaLME(AmongWords):
    """A language model that reads observations at the markers of its text, and plans.

    encoder: from a source (b, s, numbers) to ``encoder.vectors`` vectors for each of it, of the
        language model's width ``encoder.dim``, as a ``StateEncoder`` or a ``PictureEncoder`` does.
    language_model: a TinyTransformer of kind "language_model"; all of it is trained, unless
        ``freeze=True``.
    marker: the token in whose place a vector stands.
    blind: every observation is zeros, a black picture: the control.
    """

    def __init__(
        self, encoder: nn.Module, language_model: TinyTransformer, *, marker: int,
        freeze: bool = False, blind: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(encoder, language_model, marker=marker, freeze=freeze)
        width = getattr(encoder, "dim", None)
        if width != language_model.dim:
            raise ValueError(
                f"the encoder should make vectors of the language model's width, dim="
                f"{language_model.dim}, got an encoder of dim={width}"
            )
        self.blind = blind

    def seen(
        self, source: Float[Tensor, "b s f"], real: Bool[Tensor, "b s"] | None = None
    ) -> tuple[Float[Tensor, "b k dim"], Bool[Tensor, "b k"]]:
        """The vectors of a source, and which of them are those of something that is there."""
        check_source(source, self.encoder.numbers, "a vector of an observation")
        here = source.new_ones(source.shape[:2], dtype=torch.bool) if real is None else real
        if here.dtype != torch.bool or here.shape != source.shape[:2]:
            raise ValueError(
                f"source_padding should be bool of shape {tuple(source.shape[:2])}, got "
                f"{here.dtype} of shape {tuple(here.shape)}"
            )
        source = source.masked_fill(~here[..., None], 0)  # a NaN of what is not there
        vectors: Tensor = self.encoder(torch.zeros_like(source) if self.blind else source)
        return vectors, here.repeat_interleave(self.encoder.vectors, 1)


# ---- the sizes of the papers


class Palm(NamedTuple):
    """A size of PaLM. Each layer has heads of width 256 with one key and value head for all, and a
    SwiGLU layer of width 4·dim; there are no biases, and one table of 256,000 tokens for both ends.
    """

    dim: int
    layers: int
    heads: int


VOCABULARY, HEAD = 256_000, 256
PALM: Mapping[str, Palm] = {
    "8B": Palm(4096, 32, 16),
    "62B": Palm(8192, 64, 32),
    "540B": Palm(18_432, 118, 48),
}
"""The language models, table 1 of PaLM."""

VIT: Mapping[str, ViTOptions] = {
    "4B": ViTOptions(patch=14, dim=1792, layers=56, heads=16, hidden=15_360),
    "22B": ViTOptions(patch=14, dim=6144, layers=48, heads=48, hidden=24_576),
}
"""The image encoders, table 1 of the paper on ViT-22B, where the smaller one is called ViT-e."""

PARTS: Mapping[str, tuple[str, str]] = {
    "12B": ("8B", "4B"),
    "84B": ("62B", "22B"),
    "562B": ("540B", "22B"),
}
"""The three sizes of PaLM-E, which are named after the sums: their PaLM and their ViT."""

QUOTED = {
    "PaLM 8B": 8.63e9,
    "PaLM 62B": 62.50e9,
    "PaLM 540B": 540.35e9,
    "ViT 4B": 3.926e9,
    "ViT 22B": 21.743e9,
}
"""Parameters of the parts, as others quote them from the tables of the two papers. The widths and
depths above are taken from second-hand tables as well. All counts but one agree with these numbers
to a two-thousandth. That of ViT 4B is 3.1 % less; the head that pools patches and names classes is
not counted, and may be the difference."""


def palm(size: str) -> nn.ModuleDict:
    """The parts of a language model of one of ``PALM``, to be counted on the meta device.

    Attention and feed-forward layer stand side by side, behind one norm.
    """
    o = choose("size", size, PALM)
    projections = partial(Heads, head_dim=HEAD)

    def layer() -> nn.ModuleDict:
        attention = DenseAttention(
            o.dim, o.heads, multi_query.fused, kv_heads=1, causal=True, projections=projections
        )
        feed = Gated(o.dim, hidden=4 * o.dim)
        return nn.ModuleDict(
            {"norm": nn.LayerNorm(o.dim, bias=False), "attention": attention, "feed": feed}
        )

    return nn.ModuleDict(
        {
            "embedding": nn.Embedding(VOCABULARY, o.dim),
            "layers": nn.ModuleList(layer() for _ in range(o.layers)),
            "norm": nn.LayerNorm(o.dim, bias=False),
        }
    )


def vit(size: str) -> nn.ModuleDict:
    """The parts of an image encoder of one of ``VIT``, without a head, to be counted on the meta
    device. Layers are those of ``attnlab.systems.vit``, one sublayer after the other."""
    o = choose("size", size, VIT)

    def layer() -> nn.ModuleDict:
        attention = DenseAttention(o.dim, o.heads, multi_query.fused, bias=True)
        feed = nn.Sequential(nn.Linear(o.dim, o.hidden), nn.GELU(), nn.Linear(o.hidden, o.dim))
        norms = nn.ModuleList(nn.LayerNorm(o.dim) for _ in range(2))
        return nn.ModuleDict({"norms": norms, "attention": attention, "feed": feed})

    return nn.ModuleDict(
        {
            "patches": nn.Linear(o.channels * o.patch**2, o.dim),
            "positions": nn.Embedding(o.side**2, o.dim),
            "layers": nn.ModuleList(layer() for _ in range(o.layers)),
            "norm": nn.LayerNorm(o.dim),
        }
    )


def counted(size: str) -> dict[str, int]:
    """The parameters of the parts of a PaLM-E of one of ``PARTS``."""
    language, image = choose("size", size, PARTS)
    with torch.device("meta"):
        parts = {
            f"PaLM {language}": palm(language),
            f"ViT {image}": vit(image),
            "affine map": nn.Linear(VIT[image].dim, PALM[language].dim),
        }
    return {name: sum(each.numel() for each in part.parameters()) for name, part in parts.items()}
