"""What the tasks with random trees share: shapes of an exact depth, and the check of depths."""

from collections.abc import Sequence
from random import Random

from attnlab.structures.tree import Tree


def random_shape(
    depth: int, leaves: int, nodes: int, counts: Sequence[int], random: Random
) -> list[list[int]]:
    """The children of every node of a random tree of exactly `depth`; a leaf has none.

    Place 0 is the root and a node stands before its children, so a loop over the places goes down
    the tree and a loop in reverse goes up. A path of `depth` nodes is drawn first; then leaves are
    turned into nodes, in random order, while the tree stays below a size that is itself drawn.

    Args:
        depth: the number of nodes above the deepest leaf, at least 1.
        leaves: the most leaves, `depth + 1` or more.
        nodes: the most nodes with children; `depth` or more.
        counts: the numbers of children to choose from, 1 or 2 among them; one that stands twice is
            chosen twice as often.
        random: makes every choice.
    """
    least, most = min(counts), max(counts)
    children: list[list[int]] = [[]]
    above = [0]  # the number of nodes above each place
    free: list[int] = []  # leaves that may become nodes
    wanted = random.randint(depth + 1, leaves)
    grown = 1  # leaves so far

    def grow(place: int, room: int) -> list[int]:
        nonlocal grown
        fitting = counts if most <= room + 1 else [count for count in counts if count <= room + 1]
        if not fitting:
            return []
        count = fitting[int(random.random() * len(fitting))]
        first = len(children)
        children[place].extend(range(first, first + count))
        children.extend([] for _ in range(count))
        above.extend([above[place] + 1] * count)
        grown += count - 1
        return children[place]

    place = 0
    for level in range(depth):
        later = (depth - 1 - level) * (least - 1)  # what the rest of the path needs at least
        added = grow(place, wanted - grown - later)
        place = added[int(random.random() * len(added))]
        if level < depth - 1:
            free.extend(other for other in added if other != place)
    for _ in range(nodes - depth):
        if not free or grown >= wanted:
            break
        chosen = int(random.random() * len(free))
        free[chosen], free[-1] = free[-1], free[chosen]
        place = free.pop()
        added = grow(place, wanted - grown)
        if above[place] + 1 < depth:
            free.extend(added)
    return children


def labelled(children: Sequence[Sequence[int]], labels: Sequence[str]) -> Tree:
    """The tree of a shape, with the label of each place."""
    trees: dict[int, Tree] = {}
    for place in reversed(range(len(children))):
        trees[place] = Tree(labels[place], tuple(trees.pop(below) for below in children[place]))
    return trees[0]


def check_depths(shallowest: int, deepest: int, most: int, bound: str) -> None:
    """Refuse a range of depths that is empty or exceeds `most`, which `bound` explains."""
    if shallowest > deepest:
        raise ValueError(
            f"shallowest should be at most deepest, the depths drawn are those between, got "
            f"shallowest={shallowest} and deepest={deepest}"
        )
    if deepest > most:
        raise ValueError(
            f"deepest should be at most {most} with {bound}, so that the tree has room, got "
            f"{deepest}"
        )
