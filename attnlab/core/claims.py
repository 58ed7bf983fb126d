"""What a card claims, one class for each kind of page; every claim is tested for all of its kind.

The letters of these formulas, beside those of the house (``attnlab.core.shapes``):

=====  ==================================================================
L      layers, or sublayers (two or three in a layer) where a join counts
f      width of the hidden layer of a feed-forward layer, or of one of its experts
E      experts of a feed-forward layer
c      experts that take a token in the mean, where experts choose
x      elements of the stream that goes through the layers
a      elements that the backward pass of one layer keeps
p      parameters of one layer
N      weights of a module
B, S   bits of a weight that is an integer; scales, one for a matrix or for each of its rows
s      targets that the task itself scores
b      rows of a batch; n are then its real tokens
V, r   tokens that a text is made of; rows of a batch of which something is scored
=====  ==================================================================
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

import sympy

from attnlab.core.typeset import in_plain_text

Cost: TypeAlias = sympy.Expr | Callable[..., sympy.Expr]
"""A cost in n and the letters of options; a function of the options where it is another formula
for other options."""

Number: TypeAlias = sympy.Expr | int
"""A number of things, as a formula."""

Row: TypeAlias = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """The claims of a page that mixes positions or tells where they stand; ``Card`` says more."""

    ROLES: ClassVar[tuple[str, ...]] = ("attend", "mix", "encode", "bias", "embed")
    causal: str
    causal_reason: str = ""
    time: Cost | Mapping[str, Cost]
    memory: Cost | Mapping[str, Cost]
    launches: Mapping[str, Cost] = field(default_factory=dict)
    letters: Mapping[str, str] = field(default_factory=dict)

    def rows(self) -> list[Row]:
        """Nothing: the costs of each form are rows of the card itself."""
        return []


@dataclass(frozen=True, kw_only=True)
class Feed:
    """The claims of a feed-forward layer, which treats each position alone.

    ``time``        FLOPs of n positions, two per multiply-add.
    ``parameters``  all of them.
    ``active``      those that the output of one token is computed from; not given, all of them.
    ``together``    why a token's output depends on others, or on its position; empty where it does
                    not.
    ``ahead``       why it depends on later tokens, so that no decoder can have the layer; empty
                    where it does not.
    """

    ROLES: ClassVar[tuple[str, ...]] = ("feed",)
    time: sympy.Expr
    parameters: sympy.Expr
    active: sympy.Expr | None = None
    together: str = ""
    ahead: str = ""

    def rows(self) -> list[Row]:
        active = self.parameters if self.active is None else self.active
        return [
            ("time", f"{in_plain_text(self.time)} FLOPs"),
            ("parameters", in_plain_text(self.parameters)),
            ("active parameters", in_plain_text(active)),
            ("each token alone", f"no: {self.together}" if self.together else "yes"),
            ("in decoders", f"no: {self.ahead}" if self.ahead else "yes"),
        ]


@dataclass(frozen=True, kw_only=True)
class Join:
    """The claims of how a sublayer joins the stream before training, for L sublayers whose matrices
    keep the variance of what they read until the join has changed them (``initialise``).

    ``variance``  of the stream after them; that of the embedding is 1.
    ``gradient``  that of the stream after the first sublayer beside that after the last, as a norm.
    ``around``    the same where no gradient comes back through the sublayers: what goes around them
                  alone.

    A letter other than L is what the join holds under this name: its ``alpha``, its ``gain``.
    Where a join has the option ``shrink``, which divides the last matrices by √L, this is without.
    """

    ROLES: ClassVar[tuple[str, ...]] = ("join",)
    variance: Number
    gradient: Number
    around: Number

    def rows(self) -> list[Row]:
        return [
            ("variance after L sublayers", in_plain_text(self.variance)),
            ("gradient of the first beside the last", in_plain_text(self.gradient)),
            ("gradient around the sublayers alone", in_plain_text(self.around)),
        ]


@dataclass(frozen=True, kw_only=True)
class Depth:
    """The claims of a way through L layers.

    ``kept``        elements that the forward pass keeps for the backward pass.
    ``parameters``  of all layers together.
    ``equals``      whether it computes what its ``plain`` neighbour computes, the loop.
    """

    ROLES: ClassVar[tuple[str, ...]] = ("depth",)
    kept: Number
    parameters: Number
    equals: str

    def rows(self) -> list[Row]:
        return [
            ("kept for backward", f"{in_plain_text(self.kept)} elements"),
            ("parameters", in_plain_text(self.parameters)),
            ("computes", self.equals),
        ]


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The claims of an objective, which is what a model learns from.

    ``scored``  how many targets of a batch are scored.
    ``hidden``  what the model is not shown, in words.
    ``models``  the kinds of a ``TinyTransformer`` that can be trained by it, the usual one first.
    ``uniform``  the loss of each target where every weight is 0, in the V tokens of the text and
        the r rows that are scored; not given, the logarithm of the number of answers; or a
        function of the batch that is prepared and that number, where it depends on the targets.
    ``texts``  how many texts a row holds, one behind the other.
    ``together``  why the loss of a row depends on others; empty where parts of a batch add up.
    ``beside``  of how many places to either side an answer reads the vectors; 0, of its own alone.
    ``source``  whether a row is a target with the source of which it is written.
    """

    ROLES: ClassVar[tuple[str, ...]] = ("objective",)
    scored: Number
    hidden: str
    models: tuple[str, ...]
    uniform: Number | Callable[..., float] | None = None
    texts: int = 1
    together: str = ""
    beside: int = 0
    source: bool = False

    def rows(self) -> list[Row]:
        return [
            ("scored targets", in_plain_text(self.scored)),
            ("hidden", self.hidden),
            ("models", ", ".join(self.models)),
            *[("rows", "targets with their sources")] * self.source,
            *[("texts in a row", str(self.texts))] * (self.texts > 1),
            *[("loss depends on other rows", self.together)] * bool(self.together),
        ]


@dataclass(frozen=True, kw_only=True)
class Compression:
    """The claims of a smaller module in the place of another.

    ``bytes``  of its N weights when they are stored, in the options of the page.
    ``error``  a bound of the squared error of its weights, beside the sum of their squares.
    """

    ROLES: ClassVar[tuple[str, ...]] = ("compress",)
    bytes: sympy.Expr
    error: sympy.Expr

    def rows(self) -> list[Row]:
        return [
            ("stored", f"{in_plain_text(self.bytes)} bytes"),
            (
                "squared error of the weights",
                f"at most {in_plain_text(self.error)} of their squares",
            ),
        ]


Claims: TypeAlias = Mixing | Feed | Join | Depth | Objective | Compression
KINDS: tuple[type[Claims], ...] = (Mixing, Feed, Join, Depth, Objective, Compression)
ROLES: tuple[str, ...] = tuple(role for kind in KINDS for role in kind.ROLES)
