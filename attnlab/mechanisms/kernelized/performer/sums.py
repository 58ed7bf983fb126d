"""The linear forms: running sums over the keys, kept in units of the largest size so far."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.forms import form
from attnlab.core.positions import Turn
from attnlab.core.probe import note
from attnlab.core.shapes import KeyPadding, Keys, Outputs, Queries, Values
from attnlab.core.tracing import exporting, on_cpu
from attnlab.mechanisms.kernelized.performer.random_features import (
    FeatureMap,
    Features,
    PerformerOptions,
    Projection,
)


class State(NamedTuple):
    """Σ φ(k) [vᵀ, 1] over the keys so far, as ``sums`` · e^``unit``; constant in size."""

    sums: Float[Tensor, "b h r s"]
    unit: Float[Tensor, "b h"]

    @classmethod
    def empty(cls, rows: Tensor, values: Tensor) -> "State":
        b, h, _, width = values.shape
        sums = values.new_zeros(b, h, rows.shape[-2], width)
        return cls(sums, values.new_full((b, h), -torch.inf))

    def absorb(self, keys: Features, values: Tensor) -> "State":
        """The state after further keys, whose ``values`` end in a column of ones."""
        unit = torch.maximum(self.unit, keys.size.amax(dim=-1))
        scaled = values * torch.exp(keys.size - finite_unit(unit)[..., None])[..., None]
        kept = self.sums * torch.exp(self.unit - finite_unit(unit))[..., None, None]
        return State(kept + keys.values.mT @ scaled, unit)

    def read(self, queries: Tensor) -> Tensor:
        """The outputs of queries that attend to exactly these keys. The unit cancels."""
        return _mean(queries @ self.sums)


def with_ones(v: Tensor) -> Tensor:
    """[v, 1], whose weighted sums are numerator and denominator."""
    return F.pad(v, (0, 1), value=1.0)


def _mean(sums: Tensor) -> Tensor:
    return ratio(sums[..., :-1], sums[..., -1:])


def ratio(part: Tensor, total: Tensor) -> Tensor:
    """part / total, and 0 where the total is so small that gradients would overflow."""
    lost = total < torch.finfo(total.dtype).tiny ** 0.75
    return (part / total.masked_fill(lost, 1)).masked_fill(lost, 0)


def finite_unit(unit: Tensor) -> Tensor:
    """The unit, with 0 in place of minus infinity (no key yet; any number would do)."""
    return unit.masked_fill(unit == -torch.inf, 0)


# ---- rescaled


@form
def rescaled(
    q: Queries, k: Keys, v: Values, projection: Projection, *,
    causal: bool = False, padding: KeyPadding = None,
    options: PerformerOptions = PerformerOptions(), turn: Turn | None = None,
) -> Outputs:  # fmt: skip
    """The same map, also where the exponents are too large or too small for ``naive``."""
    phi = FeatureMap.of(options.kernel, projection)
    queries, keys = phi.queries(q), phi.keys(k, padding)
    sizes = keys.size[..., None, :].expand(*q.shape[:-1], k.shape[-2])
    if causal:
        seen = patterns.causal().dense(q.shape[-2], k.shape[-2], q.device)
        sizes = sizes.masked_fill(~seen, -torch.inf)
    unit = sizes.amax(dim=-1, keepdim=True)
    size = torch.exp(sizes - finite_unit(unit))
    scores = compared = queries @ keys.values.mT * size
    if turn is not None:
        scores = turn.queries(queries) @ turn.keys(keys.values).mT * size
    weights = note("weights", ratio(scores, compared.sum(dim=-1, keepdim=True)))
    return weights @ v


# ---- chunked


@form
def chunked(
    q: Queries, k: Keys, v: Values, projection: Projection, *,
    causal: bool = False, padding: KeyPadding = None,
    options: PerformerOptions = PerformerOptions(), turn: Turn | None = None,
) -> Outputs:  # fmt: skip
    """Linear: the sums first, then every query reads them; causally chunk by chunk."""
    phi = FeatureMap.of(options.kernel, projection)
    by_position = _over_past_keys if causal else _over_all_keys
    if turn is not None:
        return turned_at_once(phi, q, k, v, padding, turn, causal, options.chunk)
    values = with_ones(v)
    out, state = by_position(phi, q, k, values, padding, options.chunk)
    note("state", state)
    return out


SPAN = 2**21
"""Numbers per tensor that are computed at once; on a CPU, what its caches can hold."""


def _spans(n: int, rows: Tensor, values: Tensor, chunk: int) -> list[slice]:
    """Slices of whole chunks; on an accelerator, one slice of everything."""
    if exporting():
        return [slice(0, n)]
    per_chunk = chunk * values.shape[0] * values.shape[1] * rows.shape[-2]
    step = max(1, SPAN // max(1, per_chunk)) * chunk if on_cpu(values) else n
    return [slice(i, min(i + step, n)) for i in range(0, n, step)]


def _over_all_keys(
    phi: FeatureMap, q: Tensor, k: Tensor, values: Tensor, padding: Tensor | None, chunk: int
) -> tuple[Tensor, State]:
    """Every query attends to every key."""
    state = State.empty(phi.rows, values)
    for span in _spans(k.shape[-2], phi.rows, values, chunk):
        valid = None if padding is None else padding[:, span]
        state = state.absorb(phi.keys(k[..., span, :], valid), values[..., span, :])
    spans = _spans(q.shape[-2], phi.rows, values, chunk)
    out = [state.read(phi.queries(q[..., span, :])) for span in spans]
    return torch.cat(out, dim=-2), state


def _over_past_keys(
    phi: FeatureMap, q: Tensor, k: Tensor, values: Tensor, padding: Tensor | None, chunk: int
) -> tuple[Tensor, State]:
    """The queries are the last n of m positions. If n > m, the first n - m have no keys."""
    n, m = q.shape[-2], k.shape[-2]
    keyless, early = max(n - m, 0), max(m - n, 0)
    state = State.empty(phi.rows, values)
    out = [values.new_zeros(*values.shape[:2], keyless, values.shape[-1] - 1)]
    if early:
        valid = None if padding is None else padding[:, :early]
        state = state.absorb(phi.keys(k[..., :early, :], valid), values[..., :early, :])
    for span in _spans(n - keyless, phi.rows, values, chunk):
        rows_of = slice(span.start + keyless, span.stop + keyless)
        keys_of = slice(span.start + early, span.stop + early)
        valid = None if padding is None else padding[:, keys_of]
        queries, keys = phi.queries(q[..., rows_of, :]), phi.keys(k[..., keys_of, :], valid)
        read, state = advance(queries, keys, values[..., keys_of, :], state, chunk)
        out.append(read)
    return torch.cat(out, dim=-2), state


def advance(
    queries: Tensor, keys: Features, values: Tensor, past: State, chunk: int
) -> tuple[Tensor, State]:
    """n more queries and keys; each query attends to ``past`` and the keys up to its own."""
    sums, state = gathered(queries, keys, values, past, chunk)
    return _mean(sums), state


def gathered(
    queries: Tensor, keys: Features, values: Tensor, past: State, chunk: int
) -> tuple[Tensor, State]:
    """What each query reads of ``past`` and the keys up to its own, in units of its row.

    Within a chunk by chunk × chunk weights, from chunk to chunk by the running sums.
    """
    n = queries.shape[-2]
    chunk = min(chunk, n)
    q, k, v = (_chunks(x, chunk) for x in (queries, keys.values, values))
    size = _chunks(keys.size[..., None], chunk, fill=-torch.inf).squeeze(-1)
    unit = torch.maximum(size.flatten(2).cummax(dim=-1).values, past.unit[..., None])
    unit = unit.unflatten(-1, (-1, chunk))  # of the row: the largest size up to its own key
    ends = torch.cat((past.unit[..., None], unit[..., -1]), dim=-1)  # of the state after chunks
    states = [past.sums]
    kept = torch.exp(ends[..., :-1] - finite_unit(ends[..., 1:]))[..., None, None]
    added = k.mT @ (v * torch.exp(size - finite_unit(ends[..., 1:, None]))[..., None])
    for fade, new in zip(kept.unbind(2), added.unbind(2), strict=True):
        states.append(states[-1] * fade + new)
    weights = q @ k.mT * _decay(size, finite_unit(unit))
    older = torch.exp(ends[..., :-1, None] - finite_unit(unit))[..., None]
    out = weights @ v + q @ torch.stack(states[:-1], dim=2) * older
    return out.flatten(2, 3)[..., :n, :], State(states[-1], ends[..., -1])


def _chunks(x: Tensor, chunk: int, fill: float = 0.0) -> Tensor:
    """(b, h, n, …) → (b, h, n / chunk, chunk, …), padded to whole chunks."""
    missing = -x.shape[-2] % chunk
    x = F.pad(x, (0, 0, 0, missing), value=fill) if missing else x
    return x.unflatten(-2, (-1, chunk))


def _decay(size: Tensor, unit: Tensor) -> Tensor:
    """e^(size of key j - unit of row i), 0 for the future, whose size may be larger."""
    exponents = size[..., None, :] - unit[..., None]
    past = torch.ones(exponents.shape[-2:], dtype=torch.bool, device=size.device).tril()
    return exponents.masked_fill_(~past, -torch.inf).exp_()


# ---- recurrent


@form
def recurrent(
    q: Queries, k: Keys, v: Values, projection: Projection, *,
    causal: bool = False, padding: KeyPadding = None,
    options: PerformerOptions = PerformerOptions(), turn: Turn | None = None,
) -> Outputs:  # fmt: skip
    """One key at a time is added to a state of constant size, which each query reads."""
    phi = FeatureMap.of(options.kernel, projection)
    queries, keys = phi.queries(q), phi.keys(k, padding)
    if turn is None:
        return _mean(_one_by_one(queries, keys, with_ones(v), causal))
    turned = keys._replace(values=turn.keys(keys.values))
    part = _one_by_one(turn.queries(queries), turned, v, causal)
    return ratio(part, _one_by_one(queries, keys, torch.ones_like(v[..., :1]), causal))


def _one_by_one(queries: Tensor, keys: Features, values: Tensor, causal: bool) -> Tensor:
    n, m = queries.shape[-2], values.shape[-2]
    state, out = State.empty(queries.mT, values), []
    for i in range(max(m, n)):  # position of the key, and causally of query i - (m - n)
        j = i - max(n - m, 0)
        if j >= 0:
            key = Features(keys.values[..., j : j + 1, :], keys.size[..., j : j + 1])
            state = state.absorb(key, values[..., j : j + 1, :])
        if causal and i >= m - n:
            row = i - max(m - n, 0)
            out.append(queries[..., row : row + 1, :] @ state.sums)
    note("state", state)
    return torch.cat(out, dim=-2) if causal else queries @ state.sums


# ---- turned features


class TurnedState(NamedTuple):
    """The sums Σ R φ(k) vᵀ and Σ φ(k) over the keys so far, as ``sums`` and ``totals`` times
    e^``unit``, and how many keys there were."""

    sums: Float[Tensor, "b h r e"]
    totals: Float[Tensor, "b h r one"]
    unit: Float[Tensor, "b h"]
    length: Int[Tensor, "b"]

    @classmethod
    def empty(cls, features: int, values: Tensor) -> "TurnedState":
        b, h, _, width = values.shape
        sums = values.new_zeros(b, h, features, width)
        unit = values.new_full((b, h), -torch.inf)
        length = torch.zeros(b, dtype=torch.int64, device=values.device)
        return cls(sums, sums[..., :1].clone(), unit, length)


def advance_turned(
    queries: Tensor, keys: Features, v: Tensor, turn: Turn, past: TurnedState, chunk: int
) -> tuple[Tensor, TurnedState]:
    """As ``advance``, where numerators have turned features and denominators those as they are."""
    turned, one = keys._replace(values=turn.keys(keys.values)), torch.ones_like(v[..., :1])
    before, of_all = State(past.sums, past.unit), State(past.totals, past.unit)
    part, state = gathered(turn.queries(queries), turned, v, before, chunk)
    total, totals = gathered(queries, keys, one, of_all, chunk)
    length = past.length + v.shape[-2]
    return ratio(part, total), TurnedState(state.sums, totals.sums, state.unit, length)


def turned_at_once(
    phi: FeatureMap, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, turn: Turn,
    causal: bool, chunk: int,
) -> Tensor:  # fmt: skip
    """``chunked`` with turned features: all queries and keys; the queries are the last n."""
    queries, keys, n, m = phi.queries(q), phi.keys(k, padding), q.shape[-2], k.shape[-2]
    if causal:
        wide = F.pad(queries, (0, 0, max(0, m - n), 0))  # where n < m, as if all had asked
        keys = Features(
            F.pad(keys.values, (0, 0, max(0, n - m), 0)),
            F.pad(keys.size, (max(0, n - m), 0), value=-torch.inf),
        )
        v = F.pad(v, (0, 0, max(0, n - m), 0))
        start = TurnedState.empty(phi.rows.shape[-2], v)
        out, state = advance_turned(wide, keys, v, turn, start, chunk)
        note("state", state)
        return out[:, :, out.shape[2] - n :]
    one = torch.ones_like(v[..., :1])
    turned = keys._replace(values=turn.keys(keys.values))
    parts = State.empty(phi.rows, v).absorb(turned, v)
    totals = State.empty(phi.rows, one).absorb(keys, one)
    note("state", parts)
    return ratio(turn.queries(queries) @ parts.sums, queries @ totals.sums)
