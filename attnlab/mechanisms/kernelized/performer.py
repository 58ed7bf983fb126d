r"""Performer: softmax attention by random features that are always positive (FAVOR+).

The exponential of a dot product is a mean over Gaussian vectors $\omega \sim N(0, I_d)$ of products
of one factor that knows the query and one that knows the key,

$$e^{x \cdot y} = \mathbb E_\omega\!\left[e^{\omega \cdot x - |x|^2/2}\;
e^{\omega \cdot y - |y|^2/2}\right],\qquad x = q\,d^{-1/4},\; y = k\,d^{-1/4},$$

so r drawn vectors $\omega_1 \ldots \omega_r$ give features whose dot products estimate the softmax
kernel without bias, and attention becomes linear attention:

$$\phi(x) = \frac{e^{-|x|^2/2}}{\sqrt r}\left(e^{\omega_1 \cdot x}, \ldots, e^{\omega_r \cdot
x}\right),\qquad o_i = \frac{\phi(q_i)^\top \sum_j \phi(k_j)\, v_j^\top}{\phi(q_i)^\top \sum_j
\phi(k_j)}.$$

The features are positive, so denominators are. The older trigonometric features (cos, sin) estimate
the same kernel, but where it is small their estimates scatter around zero: denominators can be
negative. Those are here as a feature function to compare with, not as an option of the layer. With
r independent features the variances are, $\mathrm{SM} = e^{x \cdot y}$,

positive $\frac1r \mathrm{SM}^2 (e^{|x+y|^2} - 1)$; hyperbolic (r vectors, each with its negative)
$\frac{1}{2}(1 - e^{-|x+y|^2})$ times that; trigonometric $\frac{1}{2r} \mathrm{SM}^{-2} e^{|x+y|^2}
(1 - e^{-|x-y|^2})^2$.

Rows of the projection that are orthogonal (in blocks of d) and as long as Gaussian vectors,
$\chi(d)$, keep the mean and lower the variance. ``relu`` features, max(ω·x, 0), are the paper's
generalised attention: another kernel, no estimate of the softmax.

Cost: $2 h r (2 d + 2 e) n$ FLOPs and $h n r$ numbers; r = d log d unless said otherwise.

Scale, and why nothing here leaks. Exponents of ±100 are common; something must be subtracted from
them. Per query anything may be, it cancels. For keys only what is common to all keys of a head
cancels, but a maximum over *all* keys would change earlier rows of causal attention in their last
bits when later keys change. So each key is divided by its own largest feature, whose logarithm
(its *size*) goes beside it; the sums are kept in units of the largest size *so far* and are scaled
down when a larger one comes, as in the online softmax. A row depends on keys it sees, bit for bit,
and so does ``step``. A row whose every product is lost even so (largest features of query and
keys apart by a factor of some $10^{28}$ in float32: logits of several hundred) gives zeros, never
NaN. Half precisions are computed in float32.

``naive``      the implied n × m map, then times the values: quadratic.
``chunked``    the sums in one product, or causally by chunks with running sums.
``recurrent``  one key at a time, state of r (e + 1) numbers per head.

The paper's letters: $L$ is our n, $m$ (features) our r, $\omega$ the rows of ``projection``,
SM-hat+ "positive", SM-hat hyp+ "hyperbolic".

Departures. Nothing is added to features or denominators (the authors' code and the package
performer-pytorch add 1e-4 or 1e-3 to features: a share of uniform attention in every row). Rows
that are orthogonal come from a QR decomposition with the signs of R's diagonal put back: without
them the first coordinate of the first row of every block always has the same sign, and the mean is
not the kernel. Redrawing is a call, ``redraw``, not a hidden counter. A row with nothing to see
gives zeros; causal rows are aligned at the bottom right.

Choromanski, Likhosherstov, Dohan, Song, Gane, Sarlos, Hawkins, Davis, Mohiuddin, Kaiser, Belanger,
Colwell, Weller. Rethinking Attention with Performers. ICLR 2021, arXiv:2009.14794, lemmas 1 and 2,
theorem 2, section 2.4.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.core import patterns
from attnlab.core.card import Card, Paper, letters
from attnlab.core.heads import Heads
from attnlab.core.probe import note
from attnlab.core.running import unrounded, widened
from attnlab.core.shapes import checked
from attnlab.core.words import choose

# ---- random projections


def gaussian_rows(features: int, width: int, generator: torch.Generator) -> Float[Tensor, "r d"]:
    """Independent rows ω ~ N(0, I)."""
    return torch.randn(
        features, width, generator=generator, device=generator.device, dtype=torch.float64
    )


def orthogonal_rows(
    features: int, width: int, generator: torch.Generator, *, norms: str = "chi"
) -> Float[Tensor, "r d"]:
    """Rows orthogonal within blocks of ``width``, each uniform in direction.

    ``norms="chi"``: as long as Gaussian vectors, so that each row alone is N(0, I) and estimates
    stay unbiased. ``"fixed"``: all √d long, the paper's regularised kernel: biased, less scattered.
    """
    blocks = gaussian_rows(-(-features // width) * width, width, generator).unflatten(
        0, (-1, width)
    )
    q, r = torch.linalg.qr(blocks)
    q = q * r.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]  # else q is not uniform
    rows = q.mT.flatten(0, 1)[:features]
    return rows * choose("norms", norms, NORMS)(features, width, generator)


NORMS: dict[str, Callable[[int, int, torch.Generator], Tensor | float]] = {
    "chi": lambda r, d, generator: gaussian_rows(r, d, generator).norm(dim=-1, keepdim=True),
    "fixed": lambda r, d, generator: math.sqrt(d),
}


def default_features(width: int) -> int:
    """r = d log d (theorem 4), and at least 2 d, which is more where d < 8."""
    return max(int(width * math.log(width)), 2 * width)


# ---- features


class Features(NamedTuple):
    """φ = ``values`` · e^``size`` / √r: what is left, and the logarithm of what was taken out."""

    values: Float[Tensor, "... n r"]
    size: Float[Tensor, "... n"]


def _exponential(x: Tensor, rows: Tensor) -> Features:
    """exp(ω·x - |x|²/2) over its largest entry. Both exponents come out of one product."""
    half_square = x.square().sum(dim=-1, keepdim=True) / 2
    one = rows.new_ones(*rows.shape[:-1], 1)
    exponents = torch.cat((x, -half_square), dim=-1) @ torch.cat((rows, one), dim=-1).mT
    size = exponents.detach().amax(dim=-1, keepdim=True)
    return Features(exponents.sub_(size).exp_(), size.squeeze(-1))  # the n × r numbers once


def _relu(x: Tensor, rows: Tensor) -> Features:
    """max(ω·x, 0) over its largest entry. A key of zeros alone is as if it were not there."""
    values = (x @ rows.mT).relu_()
    largest = values.detach().amax(dim=-1, keepdim=True)
    return Features(values / largest.masked_fill(largest == 0, 1), largest.log().squeeze(-1))


class Kernel(NamedTuple):
    """The rows that a drawn projection stands for, and what becomes of their products with x."""

    rows: Callable[[Tensor], Tensor]
    features: Callable[[Tensor, Tensor], Features]


KERNELS = {
    "positive": Kernel(lambda drawn: drawn, _exponential),
    "hyperbolic": Kernel(lambda drawn: torch.cat((drawn, -drawn), dim=-2), _exponential),
    "relu": Kernel(lambda drawn: drawn, _relu),
}


@checked
def features(
    x: Float[Tensor, "... n d"], projection: Float[Tensor, "... r d"], *, kernel: str = "positive"
) -> Float[Tensor, "... n s"]:
    """φ(x) as the paper writes it (r of them, "hyperbolic" 2 r), for x already times d^(-1/4)."""
    chosen = choose("kernel", kernel, KERNELS)
    values, size = chosen.features(x, chosen.rows(projection))
    return values * (size.exp() / math.sqrt(values.shape[-1]))[..., None]


@checked
def trigonometric_features(
    x: Float[Tensor, "... n d"], projection: Float[Tensor, "... r d"]
) -> Float[Tensor, "... n s"]:
    """e^(|x|²/2) / √r (cos ω·x, sin ω·x): unbiased too, but dot products may be negative."""
    angles = x @ projection.mT
    waves = torch.cat((angles.cos(), angles.sin()), dim=-1)
    grown = (x.square().sum(dim=-1, keepdim=True) / 2).exp()
    return grown / math.sqrt(angles.shape[-1]) * waves


class _Map(NamedTuple):
    """A kernel and its rows, applied to queries and keys as they come."""

    kernel: Kernel
    rows: Tensor

    @classmethod
    def of(cls, name: str, projection: Tensor) -> "_Map":
        kernel = choose("kernel", name, KERNELS)
        return cls(kernel, kernel.rows(projection))

    def queries(self, q: Tensor) -> Tensor:
        """A query's size cancels."""
        return self.kernel.features(q * q.shape[-1] ** -0.25, self.rows).values

    def keys(self, k: Tensor, padding: Tensor | None = None) -> Features:
        """The size of a padded key is minus infinity."""
        keys = self.kernel.features(k * k.shape[-1] ** -0.25, self.rows)
        if padding is None:
            return keys
        return keys._replace(size=keys.size.masked_fill(~padding[:, None], -torch.inf))


# ---- naive


@checked
def naive(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    projection: Float[Tensor, "h r d"],
    *,
    causal: bool = False,
    padding: Bool[Tensor, "b m"] | None = None,
    kernel: str = "positive",
) -> Float[Tensor, "b h n e"]:
    """The map that the features imply, dense: rows of φ(q)·φ(k), each over its sum."""
    with unrounded(q.device):
        wide_q, wide_k, wide_v, rows = widened(q, k, v, projection)
        phi = _Map.of(kernel, rows)
        queries, keys = phi.queries(wide_q), phi.keys(wide_k, padding)
        sizes = keys.size[..., None, :].expand(*q.shape[:-1], k.shape[-2])
        if causal:
            seen = patterns.causal().dense(q.shape[-2], k.shape[-2], q.device)
            sizes = sizes.masked_fill(~seen, -torch.inf)
        unit = sizes.amax(dim=-1, keepdim=True)
        scores = queries @ keys.values.mT * torch.exp(sizes - _finite(unit))
        weights = note("weights", _over(scores, scores.sum(dim=-1, keepdim=True)))
        return (weights @ wide_v).to(v.dtype)


# ---- sums in a unit of their own


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
        scaled = values * torch.exp(keys.size - _finite(unit)[..., None])[..., None]
        kept = self.sums * torch.exp(self.unit - _finite(unit))[..., None, None]
        return State(kept + keys.values.mT @ scaled, unit)

    def read(self, queries: Tensor) -> Tensor:
        """What queries get that see exactly these keys. The unit cancels."""
        return _mean(queries @ self.sums)


def _with_ones(v: Tensor) -> Tensor:
    """[v, 1]: sums of these hold numerator and denominator."""
    return F.pad(v, (0, 1), value=1.0)


def _mean(sums: Tensor) -> Tensor:
    return _over(sums[..., :-1], sums[..., -1:])


def _over(part: Tensor, total: Tensor) -> Tensor:
    """part / total, and 0 where so little is left of the total that gradients would overflow."""
    lost = total < torch.finfo(total.dtype).tiny ** 0.75
    return (part / total.masked_fill(lost, 1)).masked_fill(lost, 0)


def _finite(unit: Tensor) -> Tensor:
    """Where there is no key yet any unit will do, but not minus infinity."""
    return unit.masked_fill(unit == -torch.inf, 0)


# ---- chunked


@checked
def chunked(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    projection: Float[Tensor, "h r d"],
    *,
    causal: bool = False,
    padding: Bool[Tensor, "b m"] | None = None,
    kernel: str = "positive",
    chunk: int = 64,
) -> Float[Tensor, "b h n e"]:
    """Linear: the sums first, then every query reads them; causally chunk by chunk."""
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    with unrounded(q.device):
        wide_q, wide_k, wide_v, rows = widened(q, k, v, projection)
        phi, values = _Map.of(kernel, rows), _with_ones(wide_v)
        by_position = _advanced if causal else _absorbed
        out, state = by_position(phi, wide_q, wide_k, values, padding, chunk)
        note("state", state)
        return out.to(v.dtype)


SPAN = 2**21
"""Numbers per tensor that are worked on at once: on a processor, what its caches can hold."""


def _spans(n: int, rows: Tensor, values: Tensor, chunk: int) -> list[slice]:
    """Slices of whole chunks; an accelerator wants all of it at once."""
    per_chunk = chunk * values.shape[0] * values.shape[1] * rows.shape[-2]
    step = max(1, SPAN // per_chunk) * chunk if values.device.type == "cpu" else n
    return [slice(i, min(i + step, n)) for i in range(0, n, step)]


def _absorbed(
    phi: _Map, q: Tensor, k: Tensor, values: Tensor, padding: Tensor | None, chunk: int
) -> tuple[Tensor, State]:
    """Every query sees every key."""
    state = State.empty(phi.rows, values)
    for span in _spans(k.shape[-2], phi.rows, values, chunk):
        real = None if padding is None else padding[:, span]
        state = state.absorb(phi.keys(k[..., span, :], real), values[..., span, :])
    spans = _spans(q.shape[-2], phi.rows, values, chunk)
    out = [state.read(phi.queries(q[..., span, :])) for span in spans]
    return torch.cat(out, dim=-2), state


def _advanced(
    phi: _Map, q: Tensor, k: Tensor, values: Tensor, padding: Tensor | None, chunk: int
) -> tuple[Tensor, State]:
    """The last n of m positions ask. The first m - n are summed; if n > m, the first see none."""
    n, m = q.shape[-2], k.shape[-2]
    blind, early = max(n - m, 0), max(m - n, 0)
    state = State.empty(phi.rows, values)
    out = [values.new_zeros(*values.shape[:2], blind, values.shape[-1] - 1)]
    if early:
        real = None if padding is None else padding[:, :early]
        state = state.absorb(phi.keys(k[..., :early, :], real), values[..., :early, :])
    for span in _spans(n - blind, phi.rows, values, chunk):
        asked = slice(span.start + blind, span.stop + blind)
        told = slice(span.start + early, span.stop + early)
        real = None if padding is None else padding[:, told]
        queries, keys = phi.queries(q[..., asked, :]), phi.keys(k[..., told, :], real)
        rows, state = _advance(queries, keys, values[..., told, :], state, chunk)
        out.append(rows)
    return torch.cat(out, dim=-2), state


def _advance(
    queries: Tensor, keys: Features, values: Tensor, past: State, chunk: int
) -> tuple[Tensor, State]:
    """As many further queries as keys, each seeing ``past`` and the keys up to its own.

    Within a chunk by its chunk × chunk weights, from chunk to chunk by the running sums.
    """
    n = queries.shape[-2]
    chunk = min(chunk, n)
    q, k, v = (_chunks(x, chunk) for x in (queries, keys.values, values))
    size = _chunks(keys.size[..., None], chunk, fill=-torch.inf).squeeze(-1)
    unit = torch.maximum(size.flatten(2).cummax(dim=-1).values, past.unit[..., None])
    unit = unit.unflatten(-1, (-1, chunk))  # of the row: the largest size up to its own key
    ends = torch.cat((past.unit[..., None], unit[..., -1]), dim=-1)  # of the state after chunks
    states = [past.sums]
    kept = torch.exp(ends[..., :-1] - _finite(ends[..., 1:]))[..., None, None]
    added = k.mT @ (v * torch.exp(size - _finite(ends[..., 1:, None]))[..., None])
    for fade, new in zip(kept.unbind(2), added.unbind(2), strict=True):
        states.append(states[-1] * fade + new)
    weights = q @ k.mT * _decay(size, _finite(unit))
    older = torch.exp(ends[..., :-1, None] - _finite(unit))[..., None]
    out = _mean(weights @ v + q @ torch.stack(states[:-1], dim=2) * older)
    return out.flatten(2, 3)[..., :n, :], State(states[-1], ends[..., -1])


def _chunks(x: Tensor, chunk: int, fill: float = 0.0) -> Tensor:
    """(b, h, n, …) → (b, h, n / chunk, chunk, …), filled up to a whole number of chunks."""
    missing = -x.shape[-2] % chunk
    x = F.pad(x, (0, 0, 0, missing), value=fill) if missing else x
    return x.unflatten(-2, (-1, chunk))


def _decay(size: Tensor, unit: Tensor) -> Tensor:
    """e^(size of key j - unit of row i), 0 for the future, whose size may be larger."""
    exponents = size[..., None, :] - unit[..., None]
    past = torch.ones(exponents.shape[-2:], dtype=torch.bool, device=size.device).tril()
    return exponents.masked_fill_(~past, -torch.inf).exp_()


# ---- recurrent


@checked
def recurrent(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h m d"],
    v: Float[Tensor, "b h m e"],
    projection: Float[Tensor, "h r d"],
    *,
    causal: bool = False,
    padding: Bool[Tensor, "b m"] | None = None,
    kernel: str = "positive",
) -> Float[Tensor, "b h n e"]:
    """One key at a time into a state of constant size; each query reads it when it may."""
    n, m = q.shape[-2], k.shape[-2]
    with unrounded(q.device):
        wide_q, wide_k, wide_v, rows = widened(q, k, v, projection)
        phi, values = _Map.of(kernel, rows), _with_ones(wide_v)
        queries, keys = phi.queries(wide_q), phi.keys(wide_k, padding)
        state, out = State.empty(phi.rows, values), []
        for i in range(max(m, n)):  # position of the key, and causally of query i - (m - n)
            j = i - max(n - m, 0)
            if j >= 0:
                key = Features(keys.values[..., j : j + 1, :], keys.size[..., j : j + 1])
                state = state.absorb(key, values[..., j : j + 1, :])
            if causal and i >= m - n:
                row = i - max(m - n, 0)
                out.append(state.read(queries[..., row : row + 1, :]))
        note("state", state)
        return (torch.cat(out, dim=-2) if causal else state.read(queries)).to(v.dtype)


FORMS = {"naive": naive, "chunked": chunked, "recurrent": recurrent}

# ---- module


class Performer(nn.Module):
    """Attention by positive random features: (b, n, dim) → (b, n, dim).

    ``features`` r per head (d log d unless given). Every head has a projection of its own, drawn by
    a generator seeded with ``seed`` and kept as the buffer ``projection`` (h, r, d); ``redraw``
    draws a new one, which also ends the use of older states. ``orthogonal=False`` draws independent
    rows, and ``norms`` is as in ``orthogonal_rows``. ``step`` decodes with a state of r·(e + 1) + 1
    numbers per head.
    """

    projection: Tensor

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        causal: bool = False,
        features: int | None = None,
        kernel: str = "positive",
        orthogonal: bool = True,
        norms: str = "chi",
        seed: int = 0,
        form: str = "chunked",
        chunk: int = 64,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.heads = Heads(dim, heads, bias=bias)
        width = self.heads.head_dim
        features = default_features(width) if features is None else features
        _validate(features, chunk, orthogonal, norms)
        choose("kernel", kernel, KERNELS)
        self.attend = choose("form of Performer", form, FORMS)
        self.causal, self.kernel, self.form, self.chunk = causal, kernel, form, chunk
        self.orthogonal, self.norms = orthogonal, norms
        self.register_buffer("projection", torch.empty(heads, features, width))
        self.redraw(torch.Generator().manual_seed(seed))

    @torch.no_grad()
    def redraw(self, generator: torch.Generator) -> None:
        """A new projection in place of the old, from ``generator``, for each head in turn."""
        heads, features, width = self.projection.shape
        drawn = [
            orthogonal_rows(features, width, generator, norms=self.norms)
            if self.orthogonal
            else gaussian_rows(features, width, generator)
            for _ in range(heads)
        ]
        self.projection.copy_(torch.stack(drawn))

    @checked
    def forward(
        self, x: Float[Tensor, "b n dim"], padding: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n dim"]:
        q, k, v = self.heads.project(x)
        options = {"chunk": self.chunk} if self.form == "chunked" else {}
        out = self.attend(
            q, k, v, self.projection,
            causal=self.causal, padding=padding, kernel=self.kernel, **options,
        )  # fmt: skip
        return self.heads.merge(out)

    @checked
    def step(
        self, x: Float[Tensor, "b t dim"], state: State | None = None
    ) -> tuple[Float[Tensor, "b t dim"], State]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        if not self.causal:
            raise ValueError("step decodes from left to right; build the module with causal=True")
        q, k, v = self.heads.project(x)
        with unrounded(x.device):
            wide_q, wide_k, wide_v, rows = widened(q, k, v, self.projection)
            phi, values = _Map.of(self.kernel, rows), _with_ones(wide_v)
            fresh = State.empty(phi.rows, values)
            state = fresh if state is None else _fitting(state, fresh)
            out, state = _advance(phi.queries(wide_q), phi.keys(wide_k), values, state, self.chunk)
        return self.heads.merge(out.to(v.dtype)), state

    def extra_repr(self) -> str:
        features = self.projection.shape[1]
        return (
            f"causal={self.causal}, kernel={self.kernel!r}, features={features}, "
            f"orthogonal={self.orthogonal}, form={self.form!r}"
        )


def _validate(features: int, chunk: int, orthogonal: bool, norms: str) -> None:
    for name, size in (("features", features), ("chunk", chunk)):
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
    choose("norms", norms, NORMS)
    if norms != "chi" and not orthogonal:
        raise ValueError(
            f"norms={norms!r} is for orthogonal rows; independent Gaussian rows have their own "
            "length: leave norms out or set orthogonal=True"
        )


def _fitting(state: State, fresh: State) -> State:
    if state.sums.shape != fresh.sums.shape:
        raise ValueError(
            f"the state holds sums of shape {tuple(state.sums.shape)}, but these tokens need "
            f"{tuple(fresh.sums.shape)} (sequences, heads, features, value width + 1); "
            "start a new batch with state=None"
        )
    return state


# ---- card

b, h, n, m, d, e, r = letters("b h n m d e r")

CARD = Card(
    name="performer",
    title="Performer (FAVOR+)",
    family="kernelized",
    role="attend",
    paper=Paper(
        "Choromanski, Likhosherstov, Dohan, Song, Gane, Sarlos, Hawkins, Davis, Mohiuddin, Kaiser, "
        "Belanger, Colwell, Weller",
        "Rethinking Attention with Performers",
        "ICLR",
        2021,
        "2009.14794",
    ),
    forms=FORMS,
    causal="optional",
    time={
        "naive": 2 * h * n * m * (r + e) + 2 * h * r * d * (n + m),
        "chunked": 2 * h * r * (d + e) * (n + m),
        "recurrent": 2 * h * r * (d + e) * (n + m),
    },
    memory={"naive": h * n * m, "chunked": h * n * r, "recurrent": h * n * r},
    notes={"naive": ("weights",), "chunked": ("state",), "recurrent": ("state",)},
    departures=(
        "nothing is added to features or denominators, which would bias every row",
        "orthogonal rows are uniform in direction (signs of the QR decomposition put back)",
        "a running scale in place of one maximum over all keys, which causal rows would feel",
        "at least 2 d features, which is more than d log d where d < 8",
        "a row with nothing to see gives zeros",
        "causal rows are aligned at the bottom right when there are fewer queries than keys",
    ),
    variants=(
        {"kernel": "positive", "chunk": 32},
        {"kernel": "hyperbolic", "chunk": 3, "features": 7},
        {"kernel": "relu", "chunk": 5, "orthogonal": False},
    ),
    build=Performer,
)
