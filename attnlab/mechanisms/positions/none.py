r"""No positions (NoPE): tokens are not told where they stand.

$$x_i = E_{w_i}$$

Without positions a layer that attends to both sides treats its tokens as a set: permute them and
the outputs are permuted. A causal layer does not: the first token can attend only to itself, the
second to two tokens, and so on, so that even a uniform mean over the past depends on the number of
tokens before. Kazemnejad et al. find that
causal models trained without positions generalise to longer sequences at least as well as with
them.

Cost: none.

``naive``   the equation.

Kazemnejad, Padhi, Natesan Ramamurthy, Das, Reddy. The Impact of Positional Encoding on Length
Generalization in Transformers. NeurIPS 2023, arXiv:2305.19466. The name NoPE is theirs; that causal
models need no positions: Haviv, Ram, Press, Izsak, Levy, Findings of EMNLP 2022, arXiv:2203.16634.
"""

from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core.card import Card, letters
from attnlab.core.positions import Positions
from attnlab.core.shapes import checked

# ---- naive


@checked
def naive(x: Float[Tensor, "b n dim"], positions: Positions) -> Float[Tensor, "b n dim"]:
    """The tokens as they are."""
    return x


FORMS = {"naive": naive}

# ---- module


class NoPositions(nn.Module):
    """Leaves tokens (b, n, dim) as they are. No parameters."""

    def __init__(self) -> None:
        super().__init__()

    @checked
    def forward(
        self, x: Float[Tensor, "b n dim"], positions: Positions
    ) -> Float[Tensor, "b n dim"]:
        return naive(x, positions)


# ---- card

n, dim = letters("n dim")

CARD = Card(
    __doc__,
    name="none",
    family="positions",
    role="embed",
    forms=FORMS,
    causal="optional",
    time=0 * n,
    memory=n * dim,
    build=NoPositions,
    aliases=("nope",),
)
