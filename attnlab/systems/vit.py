r"""The Vision Transformer (ViT): an image is cut into patches, which are read as words are.

An image of H × W pixels with C channels has N = H·W / P² patches of P × P pixels. A patch is a row
of P²·C numbers, and one matrix $E$ makes a vector of width dim of it. A learned vector, the
**class token**, is put in front of the N vectors, a learned vector for each place is added, and
what follows is an encoder as for text, without any change:

$$z_0 = [x_{class};\ x_1 E;\ \dots;\ x_N E] + E_{pos}, \qquad
  y = \mathrm{LN}(z_L)_0, \qquad \text{scores} = W y + b$$

The layers are pre-norm, with biases in every product and exact GELU. The answer is read from the
class token alone: attention has to bring there what the image shows.

Nothing in the encoder is told that patches have neighbours: without $E_{pos}$ the image and any
shuffle of its patches have the same answer. What a patch shows inside reaches the model through
$E$ only, which is one linear map, equal to a **convolution of stride P** with kernels of P × P
(``as_convolution``).

An image of another size has another number of patches. ``E_pos`` without the row of the class token
is then read as an image of H/P × W/P places with dim channels, and resized to the new grid
(``resized_positions``); the row of the class token stays.

``attnlab.systems.patches``         patches, positions of another grid, and what images are refused.
``ViT``, ``PatchClassifier``        the model, and the same called with patches.
``SIZES``, ``build``                the printed sizes, and a new model of one of them.
``from_transformers``               the same model as one of Hugging Face's, with its weights.

Common mistakes: a convolution's kernel (C, P, P) taken for a row of a patch, which is (P, P, C);
the class token as a corner of the grid when positions are resized; the mean over patches, which
other models read their answer from, called ViT; 255 levels where brightness from 0 to 1 is
expected.

Departures.
- images are brightness from 0 to 1 and the model itself makes them −1 to 1, as the released weights
  were trained on; other values are refused
- positions are resized by cubic curves, as in Transformers and DINO; the authors' code does it by
  straight lines
- one linear head, as after fine-tuning; the layer with tanh of the pretraining on ImageNet-21k is
  left out
- first weights are those of a ``TinyTransformer``; dropout on the residual branches and on the
  embedding, none on attention weights

Dosovitskiy, Beyer, Kolesnikov, Weissenborn, Zhai, Unterthiner, Dehghani, Minderer, Heigold, Gelly,
Uszkoreit, Houlsby. An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale.
ICLR 2021, arXiv:2010.11929, section 3 and table 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.core.options import Options, Size
from attnlab.core.suggest import choose
from attnlab.models.layers import embedding_std
from attnlab.models.tiny import TinyTransformer
from attnlab.systems.patches import (
    as_matrix,
    check_images,
    from_patches,
    grid_of,
    into_patches,
    resized_positions,
)

MOST_PATCHES = 1 << 16
EPSILON = 1e-6

Images = Float[Tensor, "b channels height width"]

# ---- the model


@dataclass(frozen=True, kw_only=True)
class ViTOptions(Options):
    """The sizes of a ViT; the defaults are those of ViT-B/16.

    image, patch: sides of the (square) images that positions are learned for, and of a patch.
    channels: 3 for colours, 1 for grey.
    dim, layers, heads, hidden: of the encoder. ``classes``: how many answers there are.
    """

    image: Size = 224
    patch: Size = 16
    channels: Size = 3
    dim: Size = 768
    layers: Size = 12
    heads: Size = 12
    hidden: Size = 3072
    classes: Size = 1000
    dropout: float = 0.0
    epsilon: float = EPSILON

    def check(self) -> None:
        grid_of((self.image, self.image), self.patch)

    @property
    def side(self) -> int:
        """Patches along each side of the grid that positions are learned for."""
        return self.image // self.patch

    def encoder(self) -> dict[str, Any]:
        """The options of the ``TinyTransformer`` that reads the patches and the class token."""
        return {
            "features": self.channels * self.patch**2,
            "kind": "token_classifier",
            "classes": self.classes,
            "dim": self.dim,
            "layers": self.layers,
            "heads": self.heads,
            "hidden": self.hidden,
            "max_len": MOST_PATCHES,
            "positions": "none",
            "attention_options": {"bias": True},
            "join_options": {"epsilon": self.epsilon},
            "dropout": self.dropout,
        }


SIZES: Mapping[str, ViTOptions] = {
    "B/32": ViTOptions(patch=32),
    "B/16": ViTOptions(),
    "L/32": ViTOptions(patch=32, dim=1024, layers=24, heads=16, hidden=4096),
    "L/16": ViTOptions(dim=1024, layers=24, heads=16, hidden=4096),
    "H/14": ViTOptions(patch=14, dim=1280, layers=32, heads=16, hidden=5120),
}
"""The sizes of the paper, table 1, with the side of the patches behind the stroke."""

PRINTED = {"B": 86_000_000, "L": 307_000_000, "H": 632_000_000}
"""Parameters as the paper prints them, rounded, for any side of the patches."""


class ViT(nn.Module):
    """Images (b, channels, height, width) of brightness from 0 to 1 → scores (b, classes).

    The model reads images of any height and width that patches tile: positions are resized to
    their grid (``resized_positions``). ``encode`` gives the vectors of the class token, which
    stands first, and of the patches in reading order; ``grid`` says how many rows and columns of
    ``patch_size`` × ``patch_size`` pixels they are.
    """

    def __init__(self, options: ViTOptions) -> None:
        super().__init__()
        if not isinstance(options, ViTOptions):
            raise TypeError(
                f"options should be ViTOptions, such as SIZES['B/16'], got a "
                f"{type(options).__name__}"
            )
        self.options, self.patch_size = options, options.patch
        self.body = TinyTransformer(**options.encoder())
        std = embedding_std(options.dim)
        self.class_token = nn.Parameter(torch.randn(options.dim) * std)
        self.positions = nn.Parameter(torch.randn(options.side**2 + 1, options.dim) * std)

    def forward(self, images: Images) -> Float[Tensor, "b classes"]:
        return self.body.logits(self.encode(images)[:, 0])

    def encode(self, images: Images) -> Float[Tensor, "b places dim"]:
        """The vector of the class token and of each patch, after the last norm."""
        return self.body.encode(inputs_embeds=self.embed(images))

    def embed(self, images: Images) -> Float[Tensor, "b places dim"]:
        """What the encoder reads: class token and patches, with their positions added."""
        check_images(images, self.options.channels)
        grid, weight = self.grid(images), self.positions
        patches = into_patches((images * 2 - 1).to(weight.dtype), self.patch_size)
        first = self.class_token.expand(len(images), 1, -1)
        known = (self.options.side,) * 2
        return torch.cat((first, self.body.embedding(patches)), 1) + resized_positions(
            weight, known, grid
        )

    def grid(self, images: Images) -> tuple[int, int]:
        """Rows and columns of the patches of these images."""
        rows, columns = grid_of(images.shape[-2:], self.patch_size)
        if rows * columns >= MOST_PATCHES:
            raise ValueError(
                f"images should have fewer than {MOST_PATCHES:,} patches, got {rows} × {columns}"
            )
        return rows, columns

    def extra_repr(self) -> str:
        return str(self.options)


class PatchClassifier(nn.Module):
    """A ViT that is called with the patches of square grey or coloured images in reading order,
    (b, n, P²·C), as ``Digits(unit="patches")`` has them, so that ``attnlab.train.fit`` trains it
    as any classifier."""

    def __init__(self, vit: ViT) -> None:
        super().__init__()
        self.vit = vit

    def forward(
        self, patches: Float[Tensor, "b n numbers"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b classes"]:
        if padding is not None:
            raise ValueError("an image has no padding; leave it out")
        grid, side = (self.vit.options.side,) * 2, self.vit.patch_size
        scores: Tensor = self.vit(from_patches(patches, grid, side))
        return scores


def build(size: str | ViTOptions = "B/16") -> ViT:
    """A new ViT of one of ``SIZES``, or of other sizes."""
    if isinstance(size, str):
        return ViT(choose("size", size, SIZES))
    return ViT(size)


# ---- from Transformers


def from_transformers(model: Any) -> ViT:
    """A ViT with copies of the weights of a ``ViTForImageClassification`` of Transformers, in the
    same dtype, on the same device, and in the same mode. Its ``pixel_values`` are ours · 2 − 1.

    Raises TypeError for another model; ValueError where it has what no ViT here has.
    """
    if type(model).__name__ != "ViTForImageClassification":
        raise TypeError(
            "from_transformers takes a ViTForImageClassification of Transformers, "
            f"got a {type(model).__name__}"
        )
    o = model.config
    for name, wanted in {"hidden_act": "gelu", "qkv_bias": True}.items():
        if getattr(o, name) != wanted:
            raise ValueError(f"{name} should be {wanted!r}, got {getattr(o, name)!r}")
    made = ViT(
        ViTOptions(
            image=o.image_size, patch=o.patch_size, channels=o.num_channels, dim=o.hidden_size,
            layers=o.num_hidden_layers, heads=o.num_attention_heads, hidden=o.intermediate_size,
            classes=model.num_labels, epsilon=o.layer_norm_eps,
        )
    )  # fmt: skip
    theirs = model.state_dict()
    first = theirs["vit.embeddings.cls_token"]
    made.to(first.device, first.dtype)
    made.load_state_dict({name: _theirs(name, theirs) for name in made.state_dict()})
    return made.train(model.training)


_ENDS = {
    "class_token": "embeddings.cls_token",
    "positions": "embeddings.position_embeddings",
    "body.embedding": "embeddings.patch_embeddings.projection",
    "body.encoder.norm": "layernorm",
}
_LAYERS = {
    "attention.heads.query": ("attention.q_proj", "attention.attention.query"),
    "attention.heads.key": ("attention.k_proj", "attention.attention.key"),
    "attention.heads.value": ("attention.v_proj", "attention.attention.value"),
    "attention.heads.output": ("attention.o_proj", "attention.output.dense"),
    "attention_residual.norm": ("layernorm_before", "layernorm_before"),
    "feed_forward.expand": ("mlp.fc1", "intermediate.dense"),
    "feed_forward.contract": ("mlp.fc2", "output.dense"),
    "feed_forward_residual.norm": ("layernorm_after", "layernorm_after"),
}
"""Their names of the parts of a layer: of version 5 of Transformers, and of version 4."""


def _theirs(ours: str, theirs: Mapping[str, Tensor]) -> Tensor:
    """Their tensor for one of our names."""
    if ours in _ENDS:
        found = theirs[f"vit.{_ENDS[ours]}"][0]
        return found[0] if ours == "class_token" else found
    module, _, kind = ours.rpartition(".")
    if module == "body.output":
        return theirs[f"classifier.{kind}"]
    if module in _ENDS:
        own = theirs[f"vit.{_ENDS[module]}.{kind}"]
        return as_matrix(own) if own.ndim == 4 else own
    number, _, part = module.removeprefix("body.encoder.blocks.").partition(".")
    new, old = _LAYERS[part]
    name = f"vit.layers.{number}.{new}.{kind}"
    return theirs[name if name in theirs else f"vit.encoder.layer.{number}.{old}.{kind}"]
