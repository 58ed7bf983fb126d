"""The decoder as it is published, whose clusters depend on later tokens."""

from attnlab.core import patterns
from attnlab.core.precision import upcast
from attnlab.core.shapes import Outputs, Queries, SelfValues, checked
from attnlab.mechanisms.learned.routing_transformer.clusters import (
    Centroids,
    RoutingOptions,
    normalised,
    top_members,
)
from attnlab.mechanisms.learned.routing_transformer.pairs import mean_over_clusters, scores_of


@checked
def leaky(
    q: Queries, v: SelfValues, centroids: Centroids, *, options: RoutingOptions = RoutingOptions()
) -> Outputs:
    """The published decoder (algorithm 1), in which later tokens decide who is in a cluster.

    It is here to be looked at: the output at i changes with tokens after i.
    """
    queries, n = normalised(q), q.shape[2]
    members = top_members(queries, centroids, options.window, None)
    past = patterns.causal().dense(n, n, q.device)
    weights = mean_over_clusters(scores_of(queries, queries), members, members, past)
    return (weights @ upcast(v)).to(v.dtype)
