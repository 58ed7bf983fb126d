r"""Shared layers: several layers use the same parameters, which are stored and trained once.

ALBERT applies one set of parameters N times, or G sets in turn, each N / G times:

$$x_{l+1} = \mathrm{layer}_{s(l)}(x_l),\qquad s(l) = \lfloor l\,G / N \rfloor,\qquad
l = 0, \dots, N - 1$$

The loop is that of ``plain`` and takes its time, and what each layer keeps for the backward pass is
kept N times too: only parameters are saved. The gradient of a set is the sum of the gradients that
its layers would have with parameters of their own:

$$\frac{\partial \mathcal{L}}{\partial \theta_s} = \sum_{l:\,s(l) = s}
\frac{\partial \mathcal{L}}{\partial \theta_l}$$

``what`` chooses what is shared: whole layers ("all"), their attention alone ("attention"), or their
feed-forward layers alone ("feed"). The layer norm that stands beside a sublayer is shared with it.
``groups`` is G, which must divide N.

``naive``  the loop.

The paper's letters: H is our dim, E the width of the factorized embedding (``embedding_rank`` of a
``TinyTransformer``).

Common mistakes: scaling the initial weights for one layer, where a stack of N layers adds 2N
branches to the stream (the joins of a ``TinyTransformer`` count applications); expecting a faster
model from fewer parameters.

Departures.
- a cross-attention is shared where attention is, in decoders that have one; ALBERT has none

Lan, Chen, Goodman, Gimpel, Sharma, Soricut. ALBERT: A Lite BERT for Self-supervised Learning of
Language Representations. ICLR 2020, arXiv:1909.11942, section 3.1. Sharing in groups is of its
authors' code.
"""

from typing import Literal

from attnlab.core.card import Card, letters
from attnlab.core.claims import Depth
from attnlab.core.depth import Sets, Way, loop
from attnlab.core.options import Size

# ---- forms

FORMS = {"naive": loop}

# ---- module

What = Literal["all", "attention", "feed"]


class Shared(Way):
    """The loop over layers of which N / groups in turn share their parameters."""

    def __init__(self, layers: Size, what: What = "all", groups: Size = 1) -> None:
        super().__init__()
        if layers % groups:
            fits = [g for g in range(1, layers + 1) if layers % g == 0]
            raise ValueError(
                f"groups should divide the number of layers, {layers}, got {groups}; those that "
                f"do are {', '.join(map(str, fits))}"
            )
        self.what, self.groups = what, groups

    def sets(self, layers: int) -> Sets:
        own = tuple(range(layers))
        shared = tuple(layer * self.groups // layers for layer in own)
        return Sets(
            attention=own if self.what == "feed" else shared,
            feed=own if self.what == "attention" else shared,
        )


# ---- card

L, a, p = letters("L a p")

CARD = Card(
    __doc__,
    name="shared",
    family="depth",
    role="depth",
    forms=FORMS,
    claims=Depth(kept=L * a, parameters=p, equals="the loop over the layers"),
    build=Shared,
    aliases=("cross_layer_sharing",),
    demo="""
    >>> plain = attnlab.TinyTransformer(50, dim=32, layers=6)
    >>> shared = attnlab.TinyTransformer(50, dim=32, layers=6, depth="shared")
    >>> count = lambda model: sum(p.numel() for p in model.decoder.blocks.parameters())
    >>> count(plain) / count(shared)
    6.0
    >>> len({id(block) for block in shared.decoder.blocks})  # one block, applied six times
    1
    """,
)
