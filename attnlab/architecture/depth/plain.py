r"""Plain depth: each layer reads what the layer before has left.

$$x_{l+1} = \mathrm{layer}_l(x_l),\qquad l = 0, \dots, L - 1$$

The backward pass goes from the last layer to the first and needs what each computed, so everything
inside every layer is kept: memory grows with L.

Common mistakes: one layer that is called L times, which shares its weights without saying so.

Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser, Polosukhin. Attention Is All You Need.
NeurIPS 2017, arXiv:1706.03762, section 3.1.
"""

from attnlab.core.card import Card, letters
from attnlab.core.claims import Depth
from attnlab.core.depth import Way, loop

# ---- forms

FORMS = {"naive": loop}

# ---- module


class Plain(Way):
    """The loop over the layers."""


# ---- card

L, a, p = letters("L a p")

CARD = Card(
    __doc__,
    name="plain",
    family="depth",
    role="depth",
    forms=FORMS,
    claims=Depth(kept=L * a, parameters=L * p, equals="the loop over the layers"),
    build=Plain,
    demo="""
    >>> calls, x = [], torch.randn(1, 5, 8, requires_grad=True)
    >>> def layer(x):
    ...     calls.append("run")
    ...     return torch.tanh(x)
    >>> attnlab.build("plain")(x, 3 * [layer]).sum().backward()
    >>> len(calls)  # the backward pass has all that it needs
    3
    """,
)
