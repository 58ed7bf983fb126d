r"""Experts by modality: a feed-forward layer for text and another for images.

A transformer that reads text and images lets both attend to each other in every layer. What it then
computes at each position need not be the same for both: here each modality has an expert of its
own, and no router is needed, for the modality of a token is known:

$$y_i = E_{m(i)}(x_i)$$

where m(i) is given by a mask, or by the position: all before a split are text, all from it on are
image. The attention stays shared, and this is where the two meet. One model then encodes text
alone, images alone, or both.

Cost: 4 n dim f FLOPs, of one expert for each token; nothing is chosen, and nothing is dropped.

``naive``    the equation: every expert computes every token, and all but one result is left out.
``grouped``  tokens are sorted by expert once, and each expert computes its own only.

Multiway Transformers (BEiT-3, TorchScale) also have a copy of the attention's projections and norms
for each modality; VLMo has its two last layers, of twelve, with a third expert for pairs alone.

A split is a position in the whole text, so tokens that are read one by one do not know their side;
``generate`` reads the text again for each of them.

Common mistakes: a split that counts without the special tokens, so that the last of one modality is
read by the expert of the other; experts that begin as copies and get the same gradient.

Departures.
- the norm in front of the experts is shared. VLMo has one for each expert.
- GELU and biases as in the layer ``mlp``

Bao, Wang, Dong, Liu, Mohammed, Aggarwal, Som, Piao, Wei. VLMo: Unified Vision-Language Pre-Training
with Mixture-of-Modality-Experts. NeurIPS 2022, arXiv:2111.02358, section 3.1.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.card import Card, letters
from attnlab.core.claims import Feed
from attnlab.core.experts import (
    SEEN,
    Experts,
    Mixture,
    Routing,
    by_expert,
    one_by_one,
    room,
    routed,
)
from attnlab.core.forms import form
from attnlab.core.heads import check_input
from attnlab.core.options import Count, Size, check_value
from attnlab.core.shapes import TokenPadding, checked

# ---- forms


def route(
    x: Tensor, modality: Int[Tensor, "b n"], experts: int, padding: TokenPadding = None
) -> Routing:
    """Each token goes to the expert of its modality, with the gate 1."""
    if modality.is_meta:
        raise ValueError(
            "which expert computes a token is a number, and on the meta device there are none; "
            "give tensors of another device"
        )
    if not ((modality >= 0) & (modality < experts)).all():
        raise ValueError(
            f"modality should hold the numbers of experts, 0 to {experts - 1}, got "
            f"{modality.min().item()} to {modality.max().item()}"
        )
    known = F.one_hot(modality.long(), experts).to(x.dtype)
    chosen, places = modality[..., None].long(), room(x, experts, None, padding)
    return routed(known, chosen, torch.ones_like(x[..., :1]), places, padding)


def by_position(x: Tensor, split: tuple[int, ...]) -> Int[Tensor, "b n"]:
    """0 before the first split, 1 from it on, 2 from the second on, …"""
    split = check_value("split", split, tuple[Count, ...])
    positions = torch.arange(x.shape[1], device=x.device)
    passed = positions[:, None] >= torch.tensor(split, device=x.device)
    return passed.sum(-1).expand(x.shape[:2])


@form
def naive(
    x: Float[Tensor, "b n dim"], weights: Experts,
    *, split: tuple[Count, ...] = (40,), padding: TokenPadding = None,
) -> Float[Tensor, "b n dim"]:  # fmt: skip
    """The equation: every expert computes every token."""
    return one_by_one(x, route(x, by_position(x, split), len(weights.W_1), padding), weights)


@form
def grouped(
    x: Float[Tensor, "b n dim"], weights: Experts,
    *, split: tuple[Count, ...] = (40,), padding: TokenPadding = None,
) -> Float[Tensor, "b n dim"]:  # fmt: skip
    """``naive``, where each expert computes its own tokens only."""
    return by_expert(x, route(x, by_position(x, split), len(weights.W_1), padding), weights)


FORMS = {"naive": naive, "grouped": grouped}

# ---- module


class ModalityExperts(Mixture):
    """An expert for each modality.

    hidden: width of the hidden layer of each expert, 4·dim if not given.
    split: the position at which the second modality begins, the third, … There is one expert more
        than there are splits; VLMo reads 40 tokens of text and then the image.
    """

    steps = False

    def __init__(
        self,
        dim: Size,
        hidden: Size | None = None,
        form: Literal["naive", "grouped"] = "grouped",
        *,
        split: tuple[Count, ...] = (40,),
    ) -> None:
        self.split = check_value("split", split, tuple[Count, ...])
        if list(self.split) != sorted(self.split):
            raise ValueError(f"split should hold positions in ascending order, got {split}")
        super().__init__(dim, hidden, len(self.split) + 1, form)

    @checked
    def forward(
        self, x: Float[Tensor, "b n dim"], padding: TokenPadding = None,
        modality: Int[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n dim"]:  # fmt: skip
        """``modality`` is the number of each token's expert; not given, ``split`` says it."""
        check_input(x, "x", self.expand.in_features, self.expand.weight)
        modality = by_position(x, self.split) if modality is None else modality
        return self._computed(x, route(x, modality, len(self.split) + 1, padding))

    def route(self, x: Tensor, padding: TokenPadding) -> Routing:
        return route(x, by_position(x, self.split), len(self.split) + 1, padding)


# ---- card

n, dim, f, E = letters("n dim f E")
expert = 2 * dim * f + f + dim

CARD = Card(
    __doc__,
    name="modality_experts",
    family="feed",
    role="feed",
    forms=FORMS,
    claims=Feed(
        time=4 * n * dim * f,
        parameters=E * expert,
        active=expert,
        together="its position says which expert is that of its modality",
    ),
    build=ModalityExperts,
    notes=dict.fromkeys(FORMS, SEEN),
    variants=({"split": (3,)}, {"split": (0,)}, {"split": (2, 5), "hidden": 13}),
    aliases=("vlmo", "multiway"),
    demo="""
    >>> from attnlab.core.probe import record
    >>> layer = attnlab.build("modality_experts", dim=64, split=(3,))
    >>> with record() as notes:
    ...     y = layer(torch.randn(1, 5, 64))  # three tokens of a text, two of an image
    >>> notes.last("experts").flatten().tolist()
    [0, 0, 0, 1, 1]
    """,
)
