r"""Longformer: a window for everybody, and a few tokens that speak with all.

Most of what a word needs stands near it, and layers carry it further: with w positions around each
token, L layers see L·w. What must see everything at once (the token that is classified, a question)
is made *global*: it attends to all, and all attend to it. With the global tokens G

$$S_i = \{j : |i - j| \le w/2\} \cup G \;\text{ for } i \notin G,\qquad S_i = \text{all for } i \in
G$$

A *dilated* window has gaps: $|i - j| = k D,\ k \le w/2$, reaches D times as far for the same price,
and may differ from head to head (``dilation=(1, 1, 2, 4)``) and, as a module's option, from layer
to layer. The question that a global token asks is of another kind, so it has projections of its
own, $Q_g, K_g, V_g$, that start equal to the local ones:

$$o_i = \mathrm{softmax}\!\left(\frac{q_i K_{S_i}^\top}{\sqrt d}\right) V_{S_i} \;(i \notin G),
\qquad o_i = \mathrm{softmax}\!\left(\frac{q^g_i {K^g}^\top}{\sqrt d}\right) V^g \;(i \in G)$$

Time: $O(n w)$ and $O(n)$ for each global token.

``naive``    the equation under the dense mask; the rows of global tokens are computed by their own
             projections.
``blocked``  only the pairs of the windows and the global columns (``attnlab.core.sparse``), then
             the rows of the global tokens.

``LongformerAttention.step`` decodes and remembers w/2 positions (times the largest dilation).
``EncoderDecoder`` is a layer of LED: Longformer reads the source, full attention writes.

The papers' letters: $w$, $d$ (dilation, our D) and $Q_s, K_s, V_s$ (our local projections) are
those of section 3.

Readings. The paper does not say which projections an ordinary token uses to look at a global one.
The released code uses the local ones, so $Q_g, K_g, V_g$ serve the rows of global tokens only; so
they do here. A global key inside the window is counted once.

The traps. ``window`` is the paper's w, in total, w/2 to each side, and w + 1 keys with the position
itself. The authors' code calls the one-sided width by that name; Hugging Face's is the total, and
even. Their chunks want a length that is a multiple of w and support neither dilation nor causality;
here every length is right. A benchmark's copy sees w/2 to the right and w/2 − 1 to the left; the
variant without overlap of chunks is another pattern altogether.

A causal Longformer has no global tokens, as in the paper's language model: seeing all and being
seen by all, a token would carry the future to everybody, and without that it is not global. What is
left of it under causality is a pattern of its own: ``(local(r) | global_([0])).causal()``.

Departures. A row with nothing to see gives zeros. No dropout on the weights. Global positions are
the same for all sequences of a batch and count from the start.

Beltagy, Peters, Cohan. Longformer: The Long-Document Transformer. 2020, arXiv:2004.05150, sections
3 and 7.
"""

import copy
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlab.core import patterns
from attnlab.core.card import Card, Paper, letters
from attnlab.core.heads import Heads
from attnlab.core.patterns import Pattern
from attnlab.core.probe import note
from attnlab.core.shapes import checked
from attnlab.core.softmax import masked_softmax
from attnlab.core.sparse import blocked as over_blocks
from attnlab.core.sparse import decoding
from attnlab.core.suggest import choose
from attnlab.mechanisms.fixed.longformer.led import EncoderDecoder as EncoderDecoder
from attnlab.mechanisms.fixed.longformer.windows import pairs, pattern, refuse_heads

# ---- naive


@checked
def naive(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    *,
    window: int = 512,
    dilation: int | Sequence[int] = 1,
    global_positions: Sequence[int] = (),
    q_global: Float[Tensor, "b h rows d"] | None = None,
    k_global: Float[Tensor, "b h m d"] | None = None,
    v_global: Float[Tensor, "b h m e"] | None = None,
    causal: bool = False,
    padding: Bool[Tensor, "b m"] | None = None,
) -> Float[Tensor, "b h n e"]:
    """The equation under the dense mask; the queries are the last n of m positions.

    ``q_global`` holds the queries of the global positions alone, in their order; without the three
    the global rows use q, k and v.
    """
    seen = pattern(
        window=window, dilation=dilation, global_positions=global_positions, causal=causal
    )
    refuse_heads(seen, q.shape[1])
    seen = patterns.both(seen, patterns.padding(padding))
    return _dense(q, k, v, seen, global_positions, (q_global, k_global, v_global))


Own = tuple[Tensor | None, Tensor | None, Tensor | None]
"""The queries of the global positions, and the keys and values that they look at."""


def _dense(
    q: Tensor, k: Tensor, v: Tensor, seen: Pattern, at: Sequence[int], of_global: Own
) -> Tensor:
    n, m, scale = q.shape[-2], k.shape[-2], q.shape[-1] ** -0.5
    allowed = patterns.as_mask(seen, n, m, q.device, len(q))
    scores = q @ k.mT * scale
    if own := _all_or_none(of_global, at, n, m):
        q_global, k_global, v_global = own
        rows = torch.tensor(list(at), device=q.device)
        scores = scores.index_copy(2, rows, q_global @ k_global.mT * scale)
    weights = note("weights", masked_softmax(note("scores", scores), allowed))
    out = weights @ v
    return out.index_copy(2, rows, weights[:, :, rows] @ v_global) if own else out


def _all_or_none(
    of_global: Own, chosen: Sequence[int], n: int, m: int
) -> tuple[Tensor, Tensor, Tensor] | None:
    """What global rows have of their own, None if nothing; halves of it are refused."""
    q, k, v = of_global
    if q is None and k is None and v is None:
        return None
    if q is None or k is None or v is None:
        raise ValueError("global tokens need q_global, k_global and v_global, all or none of them")
    if n != m:
        raise ValueError(f"global projections are for whole sequences, got {n} queries, {m} keys")
    if q.shape[2] != len(chosen):
        raise ValueError(
            f"q_global has {q.shape[2]} rows, one for each of global_positions="
            f"{list(chosen)}, which are {len(chosen)}"
        )
    return q, k, v


# ---- blocked


@checked
def blocked(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    *,
    window: int = 512,
    dilation: int | Sequence[int] = 1,
    global_positions: Sequence[int] = (),
    q_global: Float[Tensor, "b h rows d"] | None = None,
    k_global: Float[Tensor, "b h m d"] | None = None,
    v_global: Float[Tensor, "b h m e"] | None = None,
    causal: bool = False,
    padding: Bool[Tensor, "b m"] | None = None,
) -> Float[Tensor, "b h n e"]:
    """The same at the cost of the pairs that are seen. First derivatives only."""
    seen = pattern(
        window=window, dilation=dilation, global_positions=global_positions, causal=causal
    )
    refuse_heads(seen, q.shape[1])
    seen = patterns.both(seen, patterns.padding(padding))
    return _sparse(q, k, v, seen, global_positions, (q_global, k_global, v_global))


def _sparse(
    q: Tensor, k: Tensor, v: Tensor, seen: Pattern, at: Sequence[int], of_global: Own
) -> Tensor:
    own = _all_or_none(of_global, at, q.shape[-2], k.shape[-2])
    out = over_blocks.blocked(q, k, v, seen)
    if own is None:
        return out
    q_global, k_global, v_global = own
    real = over_blocks.without_padding(seen)[1]
    scores = q_global @ k_global.mT * q.shape[-1] ** -0.5
    weights = masked_softmax(scores, None if real is None else real[:, None, None, :])
    note("log_sum_exp", None)  # of two kinds of scores there is no single one
    return out.index_copy(2, torch.tensor(list(at), device=q.device), weights @ v_global)


FORMS = {"naive": naive, "blocked": blocked}
UNDER: dict[str, Callable[..., Tensor]] = {"naive": _dense, "blocked": _sparse}

# ---- module


class LongformerAttention(nn.Module):
    """Windowed multi-head attention with global tokens: (b, n, dim) → (b, n, dim).

    With ``global_positions`` it has a second query, key and value projection for their rows, equal
    to the first when it is built.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        causal: bool = False,
        form: str = "blocked",
        window: int = 512,
        dilation: int | Sequence[int] = 1,
        global_positions: Sequence[int] = (),
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.heads = Heads(dim, heads, bias=bias)
        self.causal, self.form = causal, form
        self.attend = choose("form of longformer", form, UNDER)
        self.global_positions = tuple(global_positions)
        self.pattern = pattern(
            window=window, dilation=dilation, global_positions=self.global_positions, causal=causal
        )
        refuse_heads(self.pattern, heads)
        if self.global_positions:
            self.query_global = copy.deepcopy(self.heads.query)
            self.key_global = copy.deepcopy(self.heads.key)
            self.value_global = copy.deepcopy(self.heads.value)

    @checked
    def forward(
        self, x: Float[Tensor, "b n dim"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n dim"]:
        q, k, v = self.heads.project(x)
        self._reaches(x.shape[1])
        mask = note("mask", patterns.both(self.pattern, patterns.padding(padding)))
        out = self.attend(q, k, v, mask, self.global_positions, self._of_global(x))
        return self.heads.merge(out)

    def _reaches(self, n: int) -> None:
        if self.global_positions and max(self.global_positions) >= n:
            raise ValueError(
                f"global position {max(self.global_positions)} is outside of a sequence of {n}: "
                f"0 … {n - 1}"
            )

    def _of_global(self, x: Tensor) -> Own:
        if not self.global_positions:
            return None, None, None
        linears = (self.query_global, self.key_global, self.value_global)
        inputs = (x[:, list(self.global_positions)], x, x)
        q, k, v = (
            linear(of).unflatten(-1, (self.heads.heads, -1)).transpose(1, 2)
            for linear, of in zip(linears, inputs, strict=True)
        )
        return q, k, v

    @checked
    def step(
        self, x: Float[Tensor, "b t dim"], state: decoding.DecodingState | None = None
    ) -> tuple[Float[Tensor, "b t dim"], decoding.DecodingState]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        if not self.causal:
            raise ValueError("step decodes from left to right; build the module with causal=True")
        out, state = decoding.step(*self.heads.project(x), self.pattern, state)
        return self.heads.merge(out), state

    def extra_repr(self) -> str:
        return f"form={self.form!r}, {self.pattern}"


# ---- card

b, h, n, m, d, e, w = letters("b h n m d e w")

CARD = Card(
    name="longformer",
    title="Longformer",
    family="fixed",
    role="attend",
    paper=Paper(
        "Beltagy, Peters, Cohan",
        "Longformer: The Long-Document Transformer",
        "arXiv",
        2020,
        "2004.05150",
    ),
    forms=FORMS,
    causal="optional",
    time={"naive": 2 * h * n * m * (d + e), "blocked": 2 * h * n * (w + 1) * (d + e)},
    memory={"naive": h * n * m, "blocked": n * (w + 1) - w / 2 * (w / 2 + 1)},
    notes={"naive": ("scores", "weights"), "blocked": ("log_sum_exp",)},
    departures=(
        "the global projections serve the rows of global tokens only, as in the released code",
        "a causal Longformer refuses global tokens",
        "global positions are the same for all sequences of a batch",
        "a row with nothing to see gives zeros",
        "no dropout on the weights",
    ),
    variants=(
        {"window": 36},
        {"window": 4, "dilation": 3},
        {"window": 6},
    ),
    options={"w": "window"},
    pattern=pattern,
    pairs=pairs,
    build=LongformerAttention,
)
