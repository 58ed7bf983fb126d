"""What GraphView shows, in a sentence or two; ``graph.js`` says the same on the page."""

from collections.abc import Sequence

from attnlab_widgets.words import listed, two

MOST_NAMED = 3
"""Nodes that a sentence names."""
_WHOLE = 0.995
"""A sum of weights that shows as 1.00."""


def named(labels: Sequence[str], node: int) -> str:
    """What a node is called: its label, or, where that is its number, "node 3"."""
    return f"node {node}" if labels[node] == str(node) else f"“{labels[node]}”"


def place_of(title: str, heads: int, head: int | None) -> str:
    """Where the weights come from."""
    if head is not None:
        return f"{title} (head {head})"
    return title if heads == 1 else f"{title} (mean of {heads} heads)"


def of_attention(
    labels: Sequence[str], node: int, weights: dict[int, float], where: str, own: bool
) -> str:
    """Whom a node attends to; ``weights`` of those above 0, ``own`` whether any edge leads to
    it."""
    name = named(labels, node)
    if not weights:
        why = "its weights are 0" if own else "no edge leads to it"
        return f"In {where} {name} attends to nothing: {why}."
    order = sorted(weights, key=lambda other: (-weights[other], other))
    most = [
        f"{'itself' if other == node else named(labels, other)} ({two(weights[other])})"
        for other in order[:MOST_NAMED]
    ]
    total = sum(weights[other] for other in sorted(weights))
    count = len(order)
    to = (
        f"to {listed(most)}" if count <= MOST_NAMED else f"to {count} nodes, most to {listed(most)}"
    )
    rest = "" if total >= _WHOLE else f" These weights sum to {two(total)}."
    return f"In {where} {name} attends {to}.{rest}"


def of_edges(labels: Sequence[str], node: int, sources: Sequence[int]) -> str:
    """From which nodes edges lead to a node, where no weights are known."""
    name, count = named(labels, node), len(sources)
    if not count:
        return f"No edge leads to {name}."
    first = ["itself" if one == node else named(labels, one) for one in sources[:MOST_NAMED]]
    left = count - len(first)
    if left:
        first.append(f"{left} {'other' if left == 1 else 'others'}")
    return f"{'An edge leads' if count == 1 else 'Edges lead'} to {name} from {listed(first)}."


def of_field(depth: int, hops: Sequence[int]) -> str:
    """How many nodes are reached after ``depth`` layers."""
    reached = sum(0 <= hop <= depth for hop in hops)
    layers = "1 layer" if depth == 1 else f"{depth} layers"
    return f" After {layers} its receptive field holds {reached} of {len(hops)} nodes."


def of_graph(n: int, m: int) -> str:
    nodes = "1 node" if n == 1 else f"{n} nodes"
    return f"{nodes} and {'1 edge' if m == 1 else f'{m} edges'}."


def of_largest(labels: Sequence[str], pair: Sequence[int], weight: float, where: str) -> str:
    """The largest weight of a map."""
    node, other = pair
    to = "itself" if node == other else named(labels, other)
    return (
        f" The largest weight in {where} is {two(weight)}, with which {named(labels, node)} "
        f"attends to {to}. Choose a node to see whom it attends to."
    )


def of_path(labels: Sequence[str], path: Sequence[int]) -> str:
    """Where a path leads, before its first hop."""
    hops = "1 hop" if len(path) == 2 else f"{len(path) - 1} hops"
    return f"A path of {hops} leads from {named(labels, path[0])} to {named(labels, path[-1])}."


def of_hop(
    labels: Sequence[str], path: Sequence[int], hop: int, weight: float | None, where: str
) -> str:
    """Who attends to whom in a hop; ``weight`` is None where no weights are known."""
    source, target = path[hop - 1], path[hop]
    name, said = named(labels, source), f"Hop {hop} of {len(path) - 1}: "
    if weight is None:
        to = "itself" if source == target else named(labels, target)
        return f"{said}an edge leads from {name} to {to}."
    to = "itself" if source == target else name
    return f"{said}{named(labels, target)} attends to {to} with {two(weight)} in {where}."
