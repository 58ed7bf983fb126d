r"""Linear recurrences: attention by features, as running sums.

With features $\phi(q)$, $\phi(k)$ in place of a softmax,

$$o_i = \frac{\sum_{j \in S_i} \phi(q_i)\cdot\phi(k_j)\; v_j}{\sum_{j \in S_i}
\phi(q_i)\cdot\phi(k_j)} = \frac{\phi(q_i)^\top \sum_{j \in S_i} \phi(k_j)\, v_j^\top}
{\phi(q_i)^\top \sum_{j \in S_i} \phi(k_j)},$$

$S_i$ all keys, or causally those up to i. The left side has n × m weights; the right side, which is
computed here, two sums whose size does not depend on the length.

The arguments are features, of either sign and any scale: a factor per query, or one for all keys of
a head, cancels. To mask a key, zero its features. Nothing is added to a denominator; a row of
weights that sums to exactly zero gives zeros. Half precisions are summed in float32, and the output
has the dtype of the values. With fewer queries than keys, the queries are the last.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.carried import reset_rows
from attnlab.core.derivatives import forbid_double_backward
from attnlab.core.integers import check_integer
from attnlab.core.precision import no_autocast, upcast_together
from attnlab.core.probe import note
from attnlab.core.recurrence import check_state
from attnlab.core.tracing import on_cpu, plain


class Sums(NamedTuple):
    """What a query needs to know of all keys so far: Σ φ(k) vᵀ and Σ φ(k)."""

    values: Float[Tensor, "b h r e"]
    keys: Float[Tensor, "b h r"]

    def __add__(self, other: "Sums") -> "Sums":  # type: ignore[override]
        return Sums(self.values + other.values, self.keys + other.keys)

    def cleared(self, ended: Bool[Tensor, "b"]) -> "Sums":
        """Zeros, as at the beginning, in those sequences whose document has ``ended``."""
        return reset_rows(self, ended)


def chunked(
    q: Float[Tensor, "b h n r"],
    k: Float[Tensor, "b h m r"],
    v: Float[Tensor, "b h m e"],
    *,
    causal: bool = False,
    chunk: int = 64,
) -> Float[Tensor, "b h n e"]:
    """The right side, many tokens at once: by one sum, or causally by ``advance``.

    Notes the sums after the last key as "state".
    """
    check_integer("chunk", chunk, at_least=1)
    n, m = q.shape[-2], k.shape[-2]
    if not causal:
        with no_autocast(v.device):
            wide_q, wide_k, wide_v = upcast_together(q, k, v)
            return read(wide_q, note("state", summed(wide_k, wide_v))).to(v.dtype)
    if n > m:  # the first n - m queries see nothing: as if there were keys without features
        k, v, m = F.pad(k, (0, 0, n - m, 0)), F.pad(v, (0, 0, n - m, 0)), n
    with no_autocast(v.device):
        past = summed(*upcast_together(k[..., : m - n, :], v[..., : m - n, :]))
    out, state = advance(q, k[..., m - n :, :], v[..., m - n :, :], past, chunk=chunk)
    note("state", state)
    return out


def advance(
    q: Float[Tensor, "b h n r"],
    k: Float[Tensor, "b h n r"],
    v: Float[Tensor, "b h n e"],
    past: Sums | None = None,
    *,
    chunk: int = 64,
) -> tuple[Float[Tensor, "b h n e"], Sums]:
    """n further tokens, causally, after those that ``past`` has summed; and the sums after them.

    Within a chunk by its chunk × chunk weights, from one chunk to the next by the sums. The
    backward pass computes both again, so that memory is q, k, v and the output. First derivatives
    only.
    """
    check_integer("chunk", chunk, at_least=1)
    wide_q, wide_k, wide_v = upcast_together(q, k, v)
    state = initial_state(wide_k, wide_v)
    if past is not None:
        check_state(past, state)
        state = past
    if v.shape[0] == 0:
        return v.new_zeros(v.shape), state
    joined = torch.cat((state.values, state.keys[..., None]), dim=-1)
    if plain():
        n, missing = v.shape[-2], -v.shape[-2] % chunk  # keys without features have no weight
        qs, ks, vs = (F.pad(x, (0, 0, 0, missing)) for x in (wide_q, wide_k, wide_v))
        with no_autocast(q.device):
            sums, joined = span(qs, ks, vs, joined, chunk)
        out = (sums[..., :-1] * reciprocal(sums[..., -1:]))[:, :, :n]
    else:
        out, joined = _Advance.apply(wide_q, wide_k, wide_v, joined, chunk)
    return out.to(v.dtype), Sums(joined[..., :-1], joined[..., -1])


# ---- by chunks

SPAN = 2**18
"""Numbers per tensor that are worked on at once: on a processor, what its caches hold."""


class _Advance(torch.autograd.Function):
    """Spans of chunks, one span after the other; all chunks of a span in each matrix product.

    A one stands at the end of every value, so that the sums of the keys are one more column of the
    sums of the values, and the denominators one more column of the output.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, past: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        out, scale, kept = torch.empty_like(v), v.new_empty(*v.shape[:-1], 1), []
        with no_autocast(q.device):
            for rows in _spans(q, v, chunk):
                kept.append(past)
                few = min(chunk, rows.stop - rows.start)
                sums, past = span(q[:, :, rows], k[:, :, rows], v[:, :, rows], past, few)
                scale[:, :, rows] = reciprocal(sums[..., -1:])
                out[:, :, rows] = sums[..., :-1] * scale[:, :, rows]
        ctx.save_for_backward(q, k, v, out, scale, *kept)
        ctx.chunk = chunk
        return out, past

    @staticmethod
    def backward(ctx: Any, d_out: Tensor, later: Tensor) -> tuple[Tensor | None, ...]:
        forbid_double_backward("the chunked form")
        q, k, v, out, scale, *kept = ctx.saved_tensors  # once: a checkpoint gives them only once
        chunk, (b, h) = ctx.chunk, q.shape[:2]
        dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
        spans = _spans(q, v, chunk)
        with no_autocast(q.device):
            for rows, past in zip(reversed(spans), reversed(kept), strict=True):
                few = min(chunk, rows.stop - rows.start)
                qi, ki = _cut(q[:, :, rows], few), _cut(k[:, :, rows], few)
                vi = _cut(F.pad(v[:, :, rows], (0, 1), value=1), few)
                d_read = d_out[:, :, rows] * scale[:, :, rows]
                d_total = -(d_read * out[:, :, rows]).sum(dim=-1, keepdim=True)
                do = _cut(torch.cat((d_read, d_total), dim=-1), few)
                # Sums run forward through the keys, and their gradients back through the queries.
                before, _ = _before(past, ki.mT @ vi)
                after, later = _before(later, qi.mT @ do, backward=True)
                scores, d_scores = (qi @ ki.mT).tril_(), (do @ vi.mT).tril_()
                dqi = torch.baddbmm(do @ before.mT, d_scores, ki)
                dki = torch.baddbmm(vi @ after.mT, d_scores.mT, qi)
                dvi = torch.baddbmm(ki @ after, scores.mT, do)[..., :-1]
                for whole, part in ((dq, dqi), (dk, dki), (dv, dvi)):
                    whole[:, :, rows] = part.reshape(b, h, -1, whole.shape[-1])
        return dq, dk, dv, later, None


def span(q: Tensor, k: Tensor, v: Tensor, past: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """For each query the sums of weights times values and of weights, and the sums after all."""
    qi, ki = _cut(q, chunk), _cut(k, chunk)
    vi = _cut(F.pad(v, (0, 1), value=1), chunk)
    before, past = _before(past, ki.mT @ vi)
    scores = (qi @ ki.mT).tril_()
    return torch.baddbmm(qi @ before, scores, vi).view(*v.shape[:2], -1, vi.shape[-1]), past


def _spans(q: Tensor, v: Tensor, chunk: int) -> list[slice]:
    """Slices of whole chunks, and last what no chunk fills."""
    n = q.shape[-2]
    whole = n - n % chunk
    per_token = q.shape[0] * q.shape[1] * max(q.shape[-1], v.shape[-1])
    step = max(1, SPAN // max(1, per_token * chunk)) * chunk
    if not on_cpu(q):
        step = max(1, whole)  # an accelerator wants all of it at once
    spans = [slice(i, min(i + step, whole)) for i in range(0, whole, step)]
    return spans + [slice(whole, n)] * (whole < n)


def _cut(x: Tensor, chunk: int) -> Tensor:
    """(b, h, span, w) → (b·h·chunks, chunk, w)."""
    return x.unflatten(2, (-1, chunk)).flatten(0, 2)


def _before(past: Tensor, each: Tensor, *, backward: bool = False) -> tuple[Tensor, Tensor]:
    """The sums before every chunk, and after all of them; ``backward``, from the last to the first.

    Never by subtracting a chunk from the sums after it: what is rounded away there is news from the
    future.
    """
    each = each.unflatten(0, (*past.shape[:2], -1))
    each = each.flip(2) if backward else each
    sums = torch.cat((past[:, :, None], each), dim=2).cumsum(dim=2)
    before = sums[:, :, :-1].flip(2) if backward else sums[:, :, :-1]
    return before.flatten(0, 2), sums[:, :, -1].clone()  # a view would keep all of them


# ---- what the three are made of


def initial_state(k: Float[Tensor, "... n r"], v: Float[Tensor, "... n e"]) -> Sums:
    """The sums before the first key."""
    values = v.new_zeros(*v.shape[:-2], k.shape[-1], v.shape[-1])
    return Sums(values, values[..., 0].clone())


def summed(k: Float[Tensor, "... n r"], v: Float[Tensor, "... n e"]) -> Sums:
    return Sums(k.mT @ v, k.sum(dim=-2))


def read(q: Float[Tensor, "... n r"], state: Sums) -> Float[Tensor, "... n e"]:
    """What queries get that see exactly the keys in ``state``."""
    return q @ state.values * reciprocal(q @ state.keys[..., None])


def reciprocal(total: Tensor) -> Tensor:
    """1 / total, and 0 for 0, in values and in gradients."""
    empty = total == 0
    return (1 / (total + empty)).masked_fill(empty, 0)
