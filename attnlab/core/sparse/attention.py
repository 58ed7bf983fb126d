r"""Attention under a fixed pattern: its options, its forms, its layer and its card.

Query i attends to the keys $S_i$, which depend on positions alone; the weights depend on content:

$$o_i = \sum_{j \in S_i} w_{ij}\, v_j,\qquad
w_{ij} = \mathrm{softmax}_{j \in S_i}\!\left(\frac{q_i \cdot k_j}{\sqrt d}\right)$$

The page of such a mechanism defines $S_i$ in a subclass of ``PatternOptions``. The rest is here.

``naive``    the equation under the dense mask.
``blocked``  only the pairs that the pattern allows, block by block.
``flex``     the same pairs by one kernel, which FlexAttention compiles for the pattern; where it
             cannot run it says why.
``auto``     not a form of its own: ``blocked`` on a CPU, on a GPU the fastest for these lengths of
             ``blocked``, ``flex`` and PyTorch's dense kernel.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import sympy
from jaxtyping import Float
from torch import Tensor, nn

from attnlab.core import patterns
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads
from attnlab.core.layer import Layer
from attnlab.core.options import Options, Size
from attnlab.core.patterns import Pattern
from attnlab.core.positions import Rotation
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.shapes import (
    Keys,
    NewTokens,
    Outputs,
    Queries,
    TokenPadding,
    Tokens,
    Values,
    checked,
)
from attnlab.core.softmax import masked_softmax
from attnlab.core.sparse import auto as choice
from attnlab.core.sparse import blocked as engine
from attnlab.core.sparse import decoding
from attnlab.core.sparse import flex as compiled
from attnlab.core.story import story
from attnlab.core.tracing import is_abstract, on_cpu, transformed


@dataclass(frozen=True, kw_only=True)
class PatternOptions(Options):
    """The options of a mechanism whose queries attend to fixed positions.

    ``CAUSAL`` is "never", "optional" or "always"; where it is not "optional",
    ``CAUSAL_REASON`` gives the reason.
    """

    CAUSAL: ClassVar[str] = "optional"
    CAUSAL_REASON: ClassVar[str] = ""

    @abstractmethod
    def allowed(self, heads: int) -> Pattern:
        """The allowed pairs without the causal mask; a ``per_head`` pattern where heads differ."""

    @checked
    def pattern(self, *, causal: bool | None = None, heads: Size = 1) -> Pattern:
        """The allowed pairs; if ``causal``, those with j ≤ i (default: ``CAUSAL`` is "always")."""
        causal = self.CAUSAL == "always" if causal is None else causal
        if causal != (self.CAUSAL == "always") and self.CAUSAL != "optional":
            raise ValueError(f"{type(self).__name__} is {self.CAUSAL} causal: {self.CAUSAL_REASON}")
        seen = self.allowed(heads)
        return seen.causal() if causal else seen


# ---- forms


@form
def naive(q: Queries, k: Keys, v: Values, *, mask: Pattern | None = None) -> Outputs:
    """The equation under the dense mask; the queries are the last n of m positions."""
    allowed = dense_mask(mask, q, k)
    scores = note("scores", scaled_scores(q, k))
    weights = note("weights", masked_softmax(scores, allowed))
    return weights @ v


@checked
def blocked(q: Queries, k: Keys, v: Values, *, mask: Pattern | None = None) -> Outputs:
    """The same output, at a cost that grows with the allowed pairs. First derivatives only."""
    mask = patterns.FULL if mask is None else mask
    return engine.blocked(q, k, v, mask, allow_fully_masked=True)


@checked
def flex(q: Queries, k: Keys, v: Values, *, mask: Pattern | None = None) -> Outputs:
    """The same output by one kernel that FlexAttention compiles for the pattern, in seconds, the
    first time. A ValueError with the reason where it cannot run (``compiled.refusal``)."""
    return compiled.flex(q, k, v, patterns.FULL if mask is None else mask)


@checked
def auto(q: Queries, k: Keys, v: Values, *, mask: Pattern | None = None) -> Outputs:
    """``blocked`` on a CPU, and while ``torch.compile`` or ``torch.func`` traces; otherwise the
    form that ``attnlab.core.sparse.auto`` chooses, which is noted as "choice"."""
    mask = patterns.FULL if mask is None else mask
    by_blocks = on_cpu(q) or is_abstract(q) or transformed()
    by = engine.blocked if by_blocks else choice.auto
    return by(q, k, v, mask, allow_fully_masked=True)


@checked
def scaled_scores(q: Queries, k: Keys) -> Float[Tensor, "b h n m"]:
    """$q_i \\cdot k_j / \\sqrt d$."""
    return upcast(q) @ upcast(k).mT * q.shape[-1] ** -0.5


def dense_mask(mask: Pattern | None, q: Tensor, k: Tensor) -> Tensor | None:
    """The dense mask of these queries and keys; None if all pairs are allowed."""
    h = q.shape[1]
    if mask is not None and (made_for := mask.heads() or h) != h:
        raise ValueError(f"the pattern is for {made_for} heads, but there are {h}")
    return patterns.dense_of(mask, q, k)


FORMS: Mapping[str, Callable[..., Tensor]] = {"naive": naive, "blocked": blocked}
KERNELS: Mapping[str, Callable[..., Tensor]] = {"flex": flex}

Form = Literal["naive", "blocked", "flex", "auto"]
"""The forms that a layer can be built with; "auto" chooses at each call."""

BY_NAME: Mapping[str, Callable[..., Tensor]] = {**FORMS, **KERNELS, "auto": auto}

# ---- module


class PatternAttention(Layer):
    """Multi-head attention under a fixed pattern: (b, n, dim) → (b, n, dim).

    The output of a query without allowed keys is zero. A causal layer decodes with ``step``, whose
    state holds the keys and values that later positions can still attend to.
    """

    @checked
    def __init__(
        self, dim: Size, heads: Size, options: PatternOptions, *,
        causal: bool | None = None, form: Form = "auto", bias: bool = False,
        positions: Rotation | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads = Heads(dim, heads, bias=bias, positions=positions)
        self.options, self.form = options, form
        self.causal = options.CAUSAL == "always" if causal is None else causal
        self.heads.check_positions(causal=self.causal)
        self.pattern = options.pattern(causal=self.causal, heads=heads)

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        """Attention of each token to the tokens that it may see: (b, n, dim) → (b, n, dim).

        ``padding`` (b, n) is True at real tokens.
        """
        q, k, v = self.heads.project(x, padding=padding)
        mask = note("mask", patterns.both(self.pattern, patterns.padding(padding)))
        return self.heads.merge(BY_NAME[self.form](q, k, v, mask=mask))

    @checked
    def step(
        self, x: NewTokens, state: decoding.DecodingState | None = None
    ) -> tuple[NewTokens, decoding.DecodingState]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        self.heads.refuse_step(self.causal)
        start = 0 if state is None else state.length
        out, state = decoding.step(*self.heads.project(x, start=start), self.pattern, state)
        return self.heads.merge(out), state


# ---- card

h, n, m, d, e = letters("h n m d e")


def pattern_card(
    docstring: str | None,
    *,
    name: str,
    options: type[PatternOptions],
    pairs: Callable[[Any], sympy.Expr],
    letters: Mapping[str, str],
    variants: tuple[Mapping[str, Any], ...],
    forms: Mapping[str, Callable[..., Tensor]] = FORMS,
    kernels: Mapping[str, Callable[..., Tensor]] = KERNELS,
    kernel_pairs: Callable[[Any], sympy.Expr] | None = None,
    launches: sympy.Expr = sympy.S.One,
    build: Callable[..., nn.Module] = PatternAttention,
    aliases: tuple[str, ...] = (),
    small_options: Mapping[str, Any],
) -> Card:
    """The card of a mechanism that is a pattern, whose page has the given docstring.

    ``pairs`` gives, for the options, the number of allowed pairs of n queries in one head, up to
    terms that grow more slowly in n. ``blocked`` also computes masked pairs, as the queries of a
    block share one list of keys: ``layout(pattern, n, n).pairs`` counts both. Blocks with equally
    many keys are one launch; ``launches`` tells how many others there are. ``flex`` computes all
    pairs of the blocks of 128 × 128 in which some pair is allowed: ``kernel_pairs`` gives their
    number where it grows faster than that of the allowed ones.
    """
    told = story(docstring)
    return Card(
        told.text,
        name=name,
        family="fixed",
        role="attend",
        forms=forms,
        kernels=kernels,
        causal=options.CAUSAL,
        causal_reason=options.CAUSAL_REASON,
        options=options,
        letters=letters,
        time={
            "naive": 2 * h * n * m * (d + e),
            "blocked": lambda chosen: 2 * h * (d + e) * pairs(chosen),
            **dict.fromkeys(
                kernels, lambda chosen: 2 * h * (d + e) * (kernel_pairs or pairs)(chosen)
            ),
        },
        launches={"blocked": launches},
        memory={
            "naive": h * n * m,
            "blocked": lambda chosen: h * (pairs(chosen) + n * (d + e)),
            **dict.fromkeys(kernels, h * n * (d + e)),
        },
        notes={"naive": ("scores", "weights"), "blocked": ("log_sum_exp",)},
        departures=(
            *told.departures,
            "a row without allowed keys gives zeros",
            "no dropout on the weights",
        ),
        variants=variants,
        build=build,
        aliases=aliases,
        small_options=small_options,
    )
