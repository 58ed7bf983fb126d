r"""Routing Transformer: tokens attend to each other where they fall into one cluster.

Reformer hashes queries and keys by random directions. Here the directions are learned, by k-means
that runs along with the training. Queries and keys are scaled to one length by a layer norm without
scale and bias; each of k centroids μ takes the w queries and the w keys that it is most like, and
those attend to each other. With k = w = √n there are n^1.5 pairs instead of n²:

$$Q_\mu = \mathrm{top}_w(\mu \cdot \hat q),\quad K_\mu = \mathrm{top}_w(\mu \cdot \hat k),\qquad
o_i = \frac{1}{|\{\mu : i \in Q_\mu\}|} \sum_{\mu : i \in Q_\mu} \sum_{j \in K_\mu}
\mathrm{softmax}_{j \in K_\mu}\!\left(\frac{\hat q_i \cdot \hat k_j}{\sqrt d}\right) v_j$$

A token that several centroids take has the mean of their outputs; one that none takes has zero.
``combine`` is not an option: a sum would grow with the number of clusters that happen to want a
token.

**Causal.** The published decoder shares queries and keys, K ← Q, takes each cluster's top w of the
*whole* sequence, and masks the future inside of each cluster. No value leaks, but membership does:
a later token can push an earlier one out of a cluster, and the earlier one's output changes.
``leaky`` computes that, for whoever wants to see it; no layer uses it. A causal layer follows the
paper's own definition of a cluster instead: token i belongs to the centroid nearest to it, which
depends on i alone, and attends to the most recent $w_i$ members up to and including itself,

$$S_i = \{j \le i : \mu(j) = \mu(i),\ \text{fewer than } w_i \text{ members are in } (j, i]\}.$$

Clusters may then be of any size; the bound $w_i$ keeps the cost. Without a ``window`` it is
$\lceil (i + 1) / k \rceil$, which an average cluster has by then.

Cost: $4 h k d\, n$ to compare tokens with centroids, $2 h k w^2 (d + e)$ for the pairs; with
k = w = √n both are $O(n^{1.5})$. The compared numbers are h k n, and as many weights.

``naive``     the equations, with dense weights, one cluster after the other.
``gathered``  the members of each cluster side by side, and PyTorch's
              ``scaled_dot_product_attention`` in all clusters at once. Causal: tokens sorted by
              cluster and position, in chunks that see themselves and one chunk back.

Centroids are a buffer, without gradient. In training mode they move each time the gradient comes
back to the queries (not in the forward pass, which gradient checkpointing runs twice: it would
choose other members the second time). In evaluation mode they stay.

The paper's letters: $\mu$, $w$ and k as here; $\lambda$ is ``decay``; R is the matrix of centroids.

Readings, where paper, survey and code differ. Scores are divided by √d (the released code divides
by nothing after its layer norm). Centroids and the sums that move them have unit length: as
printed, the centroid of a large cluster would grow with its members and become the nearest of ever
more. In the mean over clusters the released code adds 0.01 to the count.

Another implementation: the package routing-transformer lets learned keys join each cluster, gives a
token of a shared layer hardly any weight on itself, adds a loss that draws queries to centroids,
and has the leak in its causal form.

Departures.
- a causal layer puts a token into the cluster of its nearest centroid, where it attends to the most
  recent members: the published top-w of the whole sequence lets later tokens decide who is in a
  cluster
- centroids have unit length, and move by the direction of the sum of their members
- scores are divided by √d
- a token that no cluster takes gives zeros, and so does padding

Gives up. Tokens in different clusters do not attend to each other.

Roy, Saffar, Vaswani, Grangier. Efficient Content-Based Sparse Attention with Routing Transformers.
TACL 2021, arXiv:2003.05997, section 4.1 and algorithm 1.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.core.cache import KeyValueCache
from attnlab.core.card import Card, letters
from attnlab.core.forms import form
from attnlab.core.heads import Heads, zero_nonfinite_padding
from attnlab.core.layer import Layer
from attnlab.core.options import Size
from attnlab.core.precision import upcast
from attnlab.core.probe import note
from attnlab.core.shapes import (
    NewTokens,
    Outputs,
    Queries,
    SelfKeys,
    SelfValues,
    TokenPadding,
    Tokens,
    checked,
)
from attnlab.core.softmax import masked_softmax
from attnlab.mechanisms.learned.routing_transformer.causal import by_chunks, reach, recent
from attnlab.mechanisms.learned.routing_transformer.clusters import (
    Centroids,
    RoutingOptions,
    largest,
    moved,
    nearest,
    normalised,
)
from attnlab.mechanisms.learned.routing_transformer.costs import compared, taken_by_each
from attnlab.mechanisms.learned.routing_transformer.leaky import leaky
from attnlab.mechanisms.learned.routing_transformer.pairs import (
    by_clusters,
    mean_over_clusters,
    members_of,
    real_tokens,
    refuse_keys,
    scores_of,
)

__all__ = [
    "CARD", "FORMS", "RoutingAttention", "RoutingOptions", "gathered", "leaky", "moved", "naive",
]  # fmt: skip

# ---- naive


@form
def naive(
    q: Queries, v: SelfValues, centroids: Centroids, *, k: SelfKeys | None = None,
    causal: bool = False, padding: TokenPadding = None, options: RoutingOptions = RoutingOptions(),
) -> Outputs:  # fmt: skip
    """The equations, dense. Without ``k`` the queries are the keys as well, as causal wants it.

    What is padding belongs to no cluster: its output is zero.
    """
    refuse_keys(k, causal)
    queries = normalised(q)
    keys = queries if k is None else normalised(k)
    scores = note("scores", scores_of(queries, keys))
    if causal:
        own = note("clusters", nearest(queries, centroids))
        back = reach(real_tokens(q, padding), centroids.shape[1], options.window)
        weights = masked_softmax(scores, recent(own, back, padding))
    else:
        asking, asked = members_of(queries, keys, centroids, padding, options)
        weights = mean_over_clusters(scores, asking, asked)
    return note("weights", weights) @ v


# ---- gathered


@checked
def gathered(
    q: Queries, v: SelfValues, centroids: Centroids, *, k: SelfKeys | None = None,
    causal: bool = False, padding: TokenPadding = None, options: RoutingOptions = RoutingOptions(),
) -> Outputs:  # fmt: skip
    """Only the pairs inside of clusters, all clusters at once."""
    refuse_keys(k, causal)
    queries, values = normalised(q), upcast(v)
    if causal:
        own = note("clusters", nearest(queries, centroids))
        back = reach(real_tokens(q, padding), centroids.shape[1], options.window)
        size = largest(q.shape[2], centroids.shape[1], options.window)
        return by_chunks(queries, values, own, back, size=size, padding=padding).to(v.dtype)
    keys = queries if k is None else normalised(k)
    asking, asked = members_of(queries, keys, centroids, padding, options)
    return by_clusters(queries, keys, values, asking, asked, padding).to(v.dtype)


FORMS = {"naive": naive, "gathered": gathered}

# ---- module


class RoutingAttention(Layer):
    """Multi-head attention inside of learned clusters: (b, n, dim) → (b, n, dim).

    A causal layer has no key projection, since its queries are its keys. The buffer ``centroids``
    (h, clusters, d) starts at random; each backward pass in training mode moves it. ``step``
    decodes; its state is all keys and values so far.
    """

    centroids: Tensor

    @checked
    def __init__(
        self, dim: Size, heads: Size, *, causal: bool = False,
        form: Literal["naive", "gathered"] = "gathered", options: RoutingOptions = RoutingOptions(),
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads = Heads(dim, heads)
        if causal:
            del self.heads.key
        self.causal, self.form, self.options = causal, form, options
        drawn = torch.randn(heads, options.clusters, self.heads.head_dim)
        self.register_buffer("centroids", F.normalize(drawn, dim=-1))

    @checked
    def forward(self, x: Tokens, padding: TokenPadding = None) -> Tokens:
        q, k, v = self._project(x, padding)
        out = FORMS[self.form](
            *(q, v, self.centroids), k=None if self.causal else k,
            causal=self.causal, padding=padding, options=self.options,
        )  # fmt: skip
        if self.training and q.requires_grad:
            q.register_hook(self._mover(q.detach(), k.detach(), padding))
        return self.heads.merge(out)

    def _project(self, x: Tensor, padding: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        if not self.causal:
            return self.heads.project(x, padding=padding)
        self.heads.check_input(x, "x")
        x = zero_nonfinite_padding(x, padding)
        q = note("queries", self.heads.split(self.heads.query(x), self.heads.head_dim))
        return q, note("keys", q), note("values", self.heads.values(x))

    def _mover(self, q: Tensor, k: Tensor, padding: Tensor | None) -> Callable[[Tensor], None]:
        def move(_: Tensor) -> None:
            # Under autocast q and k have its dtype, and autocast has ended when gradients come.
            queries, keys = (x.to(self.centroids.dtype) for x in (q, k))
            new = moved(self.centroids, queries, keys, decay=self.options.decay, padding=padding)
            self.centroids.copy_(new)

        return move

    @checked
    def step(
        self, x: NewTokens, state: KeyValueCache | None = None
    ) -> tuple[NewTokens, KeyValueCache]:
        """The next t tokens given the state of all before them (None at the beginning)."""
        self.heads.refuse_step(self.causal)
        q, k, v = self._project(x, None)
        state = KeyValueCache.extended(state, k, v)
        keys, n, m = normalised(state.keys), q.shape[2], state.length
        back = reach(real_tokens(keys, None), self.options.clusters, self.options.window)
        seen = recent(nearest(keys, self.centroids), back[..., m - n :], None)
        weights = masked_softmax(scores_of(keys[:, :, m - n :], keys), seen)
        return self.heads.merge((weights @ upcast(state.values)).to(v.dtype)), state


# ---- card

h, n, d, e, k, w = letters("h n d e k w")


CARD = Card(
    __doc__,
    name="routing_transformer",
    family="learned",
    role="attend",
    forms=FORMS,
    causal="optional",
    options=RoutingOptions,
    letters={"k": "clusters", "w": "window"},
    positions_reason="its clusters are of queries and keys by content, and turned ones would "
    "be put into clusters by position as well",
    time={
        "naive": 4 * h * k * d * n + 2 * h * n**2 * (d + e),
        "gathered": lambda chosen, causal=False: (
            4 * h * k * d * n + 2 * h * compared(chosen, causal) * (d + e)
        ),
    },
    memory={
        "naive": h * n**2,
        "gathered": lambda chosen, causal=False: (
            h * k * (n + taken_by_each(chosen) * (d + e))
            + int(causal) * h * compared(chosen, causal)
        ),
    },
    notes={
        "naive": ("scores", "clusters", "members", "weights"),
        "gathered": ("clusters", "members"),
    },
    variants=({"clusters": 3}, {"clusters": 4, "window": 3}, {"clusters": 2, "decay": 0.5}),
    build=RoutingAttention,
    aliases=("routing",),
    small_options={"clusters": 4},
)
