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

import sympy
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.card import Card, Paper, letters
from attnlab.core.heads import Heads
from attnlab.core.patterns import Pattern
from attnlab.core.probe import note
from attnlab.core.shapes import checked
from attnlab.core.softmax import masked_softmax
from attnlab.core.sparse import blocked as over_blocks
from attnlab.core.sparse import stepping
from attnlab.core.words import choose

# ---- who may see whom


def pattern(
    *,
    window: int = 512,
    dilation: int | Sequence[int] = 1,
    global_positions: Sequence[int] = (),
    causal: bool = False,
) -> Pattern:
    """Who may see whom; one window per head where ``dilation`` is a sequence, one step per head."""
    radius = _radius(window)
    _refuse(global_positions, causal)
    if isinstance(dilation, Sequence):
        seen = patterns.per_head(*(_window(radius, step) for step in dilation))
    else:
        seen = _window(radius, dilation)
    seen = seen | patterns.global_(global_positions) if global_positions else seen
    return seen.causal() if causal else seen


def _window(radius: int, step: int) -> Pattern:
    return patterns.local(radius) if step == 1 else patterns.dilated(radius, step)


def _radius(window: int) -> int:
    if isinstance(window, bool) or not isinstance(window, int):
        raise TypeError(f"window should be a whole number, got {window!r}")
    if window < 2 or window % 2:
        raise ValueError(
            "window is the paper's total w, half of it to each side of a position, so it is even "
            f"and at least 2; got {window}"
        )
    return window // 2


def _refuse(global_positions: Sequence[int], causal: bool) -> None:
    if global_positions and causal:
        raise ValueError(
            "a causal Longformer has no global tokens: what sees all and is seen by all carries "
            "the future to everybody. Leave global_positions out, or compose a pattern: "
            "(local(r) | global_([0])).causal()"
        )
    if any(position < 0 for position in global_positions):
        raise ValueError(
            "global positions count from the start (padded sequences of a batch have no common "
            f"end); got {list(global_positions)}"
        )
    if len(set(global_positions)) < len(global_positions):
        raise ValueError(f"a global position is named twice: {list(global_positions)}")


def _refuse_heads(seen: Pattern, heads: int) -> None:
    if (made_for := seen.heads() or heads) != heads:
        raise ValueError(f"dilation gives a step to {made_for} heads, but there are {heads}")


def _refuse_rows(of_global: Sequence[Tensor | None], chosen: Sequence[int], n: int, m: int) -> bool:
    """Whether global rows have projections of their own; halves of that are refused."""
    given = [x for x in of_global if x is not None]
    if not given:
        return False
    if len(given) < 3:
        raise ValueError("global tokens need q_global, k_global and v_global, all or none of them")
    if n != m:
        raise ValueError(f"global projections are for whole sequences, got {n} queries, {m} keys")
    if given[0].shape[2] != len(chosen):
        raise ValueError(
            f"q_global has {given[0].shape[2]} rows, one for each of global_positions="
            f"{list(chosen)}, which are {len(chosen)}"
        )
    return True


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
    _refuse_heads(seen, q.shape[1])
    seen = patterns.both(seen, patterns.padding(padding))
    return _dense(q, k, v, seen, global_positions, (q_global, k_global, v_global))


Own = tuple[Tensor | None, Tensor | None, Tensor | None]
"""The queries of the global positions, and the keys and values that they look at."""


def _dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    seen: Pattern,
    at: Sequence[int] = (),
    of_global: Own = (None, None, None),
) -> Tensor:
    n, m, scale = q.shape[-2], k.shape[-2], q.shape[-1] ** -0.5
    allowed = patterns.as_mask(seen, n, m, q.device, len(q))
    scores = q @ k.mT * scale
    own = _refuse_rows(of_global, at, n, m)
    q_global, k_global, v_global = of_global
    if own and q_global is not None and k_global is not None:
        rows = torch.tensor(list(at), device=q.device)
        scores = scores.index_copy(2, rows, q_global @ k_global.mT * scale)
    weights = note("weights", masked_softmax(note("scores", scores), allowed))
    out = weights @ v
    if own and v_global is not None:
        out = out.index_copy(2, rows, weights[:, :, rows] @ v_global)
    return out


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
    _refuse_heads(seen, q.shape[1])
    seen = patterns.both(seen, patterns.padding(padding))
    return _sparse(q, k, v, seen, global_positions, (q_global, k_global, v_global))


def _sparse(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    seen: Pattern,
    at: Sequence[int] = (),
    of_global: Own = (None, None, None),
) -> Tensor:
    own = _refuse_rows(of_global, at, q.shape[-2], k.shape[-2])
    out = over_blocks.blocked(q, k, v, seen)
    q_global, k_global, v_global = of_global
    if not own or q_global is None or k_global is None or v_global is None:
        return out
    real = over_blocks.without_padding(seen)[1]
    scores = q_global @ k_global.mT * q.shape[-1] ** -0.5
    weights = masked_softmax(scores, None if real is None else real[:, None, None, :])
    note("log_sum_exp", None)  # of two kinds of scores there is no single one
    return out.index_copy(2, torch.tensor(list(at), device=q.device), weights @ v_global)


FORMS = {"naive": naive, "blocked": blocked}
UNDER: dict[str, Callable[..., Tensor]] = {"naive": _dense, "blocked": _sparse}

# ---- modules


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
        _refuse_heads(self.pattern, heads)
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
        return self.heads.merge(
            self.attend(q, k, v, mask, self.global_positions, self._of_global(x))
        )

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
        self, x: Float[Tensor, "b t dim"], state: stepping.Remembered | None = None
    ) -> tuple[Float[Tensor, "b t dim"], stepping.Remembered]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        if not self.causal:
            raise ValueError("step decodes from left to right; build the module with causal=True")
        out, state = stepping.step(*self.heads.project(x), self.pattern, state)
        return self.heads.merge(out), state

    def extra_repr(self) -> str:
        return f"form={self.form!r}, {self.pattern}"


class EncoderDecoder(nn.Module):
    """The attention of one layer of LED: (b, n, dim) and a context (b, m, dim) → (b, n, dim).

    The long source is read by Longformer; what is written sees all of its own past and all of the
    source, by full attention. Each part is added to its stream; norms and feed-forward layers are a
    model's. ``TinyTransformer(kind="encoder_decoder")`` stacks the same whole, if its ``attention``
    is a function that builds a Longformer for ``causal=False`` and full attention otherwise.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        form: str = "blocked",
        window: int = 512,
        dilation: int | Sequence[int] = 1,
        global_positions: Sequence[int] = (),
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = LongformerAttention(
            dim,
            heads,
            form=form,
            window=window,
            dilation=dilation,
            global_positions=global_positions,
            bias=bias,
        )
        self.decoder = Heads(dim, heads, bias=bias)
        self.cross = Heads(dim, heads, bias=bias)

    @checked
    def forward(
        self,
        x: Float[Tensor, "b n dim"],
        padding: Bool[Tensor, "b n"] | None = None,
        *,
        context: Float[Tensor, "b m dim"],
        context_padding: Bool[Tensor, "b m"] | None = None,
    ) -> Float[Tensor, "b n dim"]:
        source = context + self.encoder(context, context_padding)
        x = x + _full(self.decoder, x, None, patterns.visible(True, padding))
        seen = patterns.visible(False, None, source, context_padding)
        return x + _full(self.cross, x, source, seen)


def _full(heads: Heads, x: Tensor, context: Tensor | None, seen: Pattern) -> Tensor:
    q, k, v = heads.project(x, context)
    allowed = patterns.as_mask(note("mask", seen), q.shape[2], k.shape[2], q.device, len(q))
    return heads.merge(F.scaled_dot_product_attention(q, k, v, attn_mask=allowed))


# ---- card

b, h, n, m, d, e, w = letters("b h n m d e w")


def pairs(
    *, dilation: int | Sequence[int] = 1, global_positions: Sequence[int] = ()
) -> dict[str, sympy.Expr]:
    """How many pairs are seen, over all heads where they differ; else by each head."""
    steps = dilation if isinstance(dilation, Sequence) else (dilation,)
    if not global_positions:
        return {
            "full": sympy.Add(*(n + 2 * _side(step) for step in steps)),
            "causal": sympy.Add(*(n + _side(step) for step in steps)),
        }
    crosses = 2 * len(global_positions) * n - len(global_positions) ** 2
    seen = (crosses + n + 2 * _side(step) - _inside(global_positions, step) for step in steps)
    return {"full": sympy.Add(*seen)}


def _side(step: int) -> sympy.Expr:
    """Pairs of the window before the diagonal: Σ (n − k·step) over its offsets."""
    offsets = sympy.Min(w / 2, sympy.floor((n - 1) / sympy.Integer(step)))
    return offsets * n - step * offsets * (offsets + 1) / 2


def _inside(chosen: Sequence[int], step: int) -> sympy.Expr:
    """Pairs of the window that are in the row or the column of a global position."""
    radius = w / 2 * step
    rows = sum(
        sympy.floor(sympy.Min(side, radius) / step)
        for p in chosen
        for side in (sympy.Integer(p), n - 1 - p)
    )
    shared = sum(
        sympy.Piecewise((1, abs(p - other) <= radius), (0, True))
        for p in chosen
        for other in chosen
        if (p - other) % step == 0
    )
    return 2 * (rows + len(chosen)) - shared


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
