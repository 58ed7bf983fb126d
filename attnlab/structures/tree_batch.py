"""A batch of trees as tensors: what a layer is told beside its sequence of tokens.

Every token of a sequence is a leaf of its tree or a node. Leaves stand in the sequence in their
order from left to right; nodes stand anywhere, after all leaves when a batch is made from trees.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.structures.structure import Structure, cached
from attnlab.structures.tree import Tree

NONE = -1
"""In place of a token that does not exist: the parent of a root, what is above it, padding."""


class Level(NamedTuple):
    """Nodes of one height, among all b · n tokens of a batch counted in one row."""

    nodes: Int[Tensor, "m"]
    children: Int[Tensor, "c"]
    """The children of all of them."""
    parents: Int[Tensor, "c"]
    """Of each child its parent's index in ``nodes``."""


@dataclass(frozen=True, eq=False)
class TreeBatch(Structure):
    """b trees of up to n tokens each, with up to l leaves and up to y nodes above a leaf.

    Made by ``of``, from trees, or by ``from_parents``. A token is named by its place in the
    sequence; -1 means that there is none.
    """

    missing = "the trees of the sequences are missing: give structure=TreeBatch.of(trees)"

    parents: Int[Tensor, "b n"]
    padding: Bool[Tensor, "b n"]  # True = a token of the tree
    leaves: Int[Tensor, "b l"]  # from left to right
    nodes: Int[Tensor, "b m"]  # the deepest first
    paths: Int[Tensor, "b l y"]  # the nodes above each leaf, from its parent to the root
    depth: Int[Tensor, "b n"]  # how many nodes are above a token
    start: Int[Tensor, "b n"]  # the first leaf below, counted from 0; of a leaf itself
    stop: Int[Tensor, "b n"]  # the last leaf below, plus 1; start = stop at padding

    @classmethod
    def of(cls, trees: Sequence[Tree], length: int | None = None) -> "TreeBatch":
        """The leaves of each tree from left to right, then its nodes as ``Tree.nodes`` gives them.

        With ``length`` every row has so many tokens; otherwise as many as the largest tree.
        """
        if not trees:
            raise ValueError("a batch of trees has at least one tree, got none")
        rows = [parents_of(tree) for tree in trees]
        largest = max(map(len, rows))
        length = largest if length is None else check_integer("length", length, at_least=1)
        if largest > length:
            index = next(i for i, row in enumerate(rows) if len(row) > length)
            raise ValueError(
                f"tree {index} has {len(rows[index])} tokens (leaves and nodes), which is more "
                f"than length={length}"
            )
        parents = torch.tensor([row + [NONE] * (length - len(row)) for row in rows])
        sizes = torch.tensor([len(row) for row in rows])
        return cls.from_parents(parents, torch.arange(length) < sizes[:, None])

    @classmethod
    def from_parents(
        cls, parents: Int[Tensor, "b n"], padding: Bool[Tensor, "b n"] | None = None
    ) -> "TreeBatch":
        """The trees in which ``parents`` are the parents of the tokens, -1 at a root.

        ``padding`` is True at the tokens of the tree; without it all are.
        """
        padding = _checked_padding(parents, padding)
        parents = parents.long().masked_fill(~padding, NONE)
        _check_parents(parents, padding)
        above = _above(parents)
        is_leaf = padding & ~_with_children(parents)
        leaves = _places(is_leaf)
        paths = _rows_at(above, leaves)
        start, stop = _spans(leaves, paths, parents.shape[1])
        depth = (above != NONE).sum(-1)
        nodes = _deepest_first(depth, padding & ~is_leaf)
        return cls(parents, padding, leaves, nodes, paths, depth, start, stop)

    @classmethod
    def example(cls, padding: Bool[Tensor, "b n"]) -> "TreeBatch":
        """Balanced binary trees over the tokens that ``padding`` marks, leaves first.

        Of an even number of tokens the last is a root with a single child.
        """
        return cls._of(padding, _balanced)

    @classmethod
    def deep(cls, padding: Bool[Tensor, "b n"]) -> "TreeBatch":
        """Trees as deep as ``padding`` marks tokens: each node has a leaf and the next node.

        Of an even number of tokens the last is a root with a single child.
        """
        return cls._of(padding, _chain)

    @classmethod
    def _of(cls, padding: Bool[Tensor, "b n"], tree: Callable[[int], list[int]]) -> "TreeBatch":
        """The tree of so many tokens over the tokens that ``padding`` marks in each row."""
        rows = []
        for real in padding.tolist():
            places = [place for place, is_real in enumerate(real) if is_real]
            row = [NONE] * len(real)
            for place, parent in zip(places, tree(len(places)), strict=True):
                row[place] = NONE if parent == NONE else places[parent]
            rows.append(row)
        parents = torch.tensor(rows, dtype=torch.long, device=padding.device)
        return cls.from_parents(parents.view(padding.shape), padding)

    def __getitem__(self, rows: slice) -> "TreeBatch":
        return TreeBatch(*(getattr(self, each.name)[rows] for each in fields(self)))

    def pooled(self, x: Float[Tensor, "b n dim"]) -> Float[Tensor, "b dim"]:
        """The vector of each root; zeros where all is padding."""
        at_root = x[torch.arange(len(x), device=x.device), self.roots.clamp(min=0)]
        return at_root.masked_fill((self.roots < 0)[:, None], 0)

    @cached
    def is_leaf(self) -> Bool[Tensor, "b n"]:
        """True at leaves."""
        return self.padding & ~_with_children(self.parents)

    @cached
    def roots(self) -> Int[Tensor, "b"]:
        """The root of each tree; -1 where all is padding."""
        is_root = self.padding & (self.parents == NONE)
        return is_root.int().argmax(1).where(is_root.any(1), NONE)

    @cached
    def below(self) -> Bool[Tensor, "b n n"]:
        """Whether the second token belongs to the subtree of the first; each to its own."""
        start, stop, depth, real = self.start, self.stop, self.depth, self.padding
        inside = (start[:, :, None] <= start[:, None]) & (stop[:, None] <= stop[:, :, None])
        deeper = depth[:, :, None] <= depth[:, None]  # of nodes with the same leaves
        return inside & deeper & real[:, :, None] & real[:, None]

    @cached
    def subtree_mask(self) -> Bool[Tensor, "b 1 n n"]:
        """What each token may attend to: a node its own subtree, a leaf all leaves."""
        leaves = self.is_leaf[:, :, None] & self.is_leaf[:, None]
        return torch.where(self.is_leaf[:, :, None], leaves, self.below)[:, None]

    @cached
    def rank(self) -> Int[Tensor, "b n"]:
        """How many children of the same parent stand to the left of a token."""
        parents, start = self.parents, self.start
        siblings = (parents[:, :, None] == parents[:, None]) & (parents != NONE)[:, :, None]
        return (siblings & (start[:, None] < start[:, :, None])).sum(2)

    @cached
    def height(self) -> Int[Tensor, "b n"]:
        """The length of the longest path down to a leaf: 0 at leaves."""
        steps = torch.arange(1, self.paths.shape[2] + 1, device=self.paths.device)
        return _reduced(self.paths, steps.expand_as(self.paths), self.parents.shape[1], "amax")

    @cached
    def levels(self) -> list[Level]:
        """The nodes whose children are leaves, then those that need these, and so on up."""
        b, n = self.parents.shape
        first = torch.arange(b, device=self.parents.device)[:, None] * n
        flat = (self.parents + first).where(self.parents != NONE, NONE).flatten()
        children = (flat != NONE).nonzero()[:, 0]
        height, found = self.height.flatten(), []
        for level in range(1, self.paths.shape[2] + 1):
            nodes = (height == level).nonzero()[:, 0]
            index = torch.full_like(flat, NONE)
            index[nodes] = torch.arange(len(nodes), device=flat.device)
            parents = index[flat[children]]
            found.append(Level(nodes, children[parents != NONE], parents[parents != NONE]))
        return found

    def children(self, row: int) -> dict[int, list[int]]:
        """The children of each token of one tree, from left to right; children before parents."""
        parents, start = self.parents[row].tolist(), self.start[row].tolist()
        depth = self.depth[row].tolist()
        found: dict[int, list[int]] = {}
        places = self.padding[row].nonzero()[:, 0].tolist()
        for token in sorted(places, key=depth.__getitem__, reverse=True):
            found.setdefault(token, [])
        for token in sorted(places, key=start.__getitem__):
            if parents[token] != NONE:
                found[parents[token]].append(token)
        return found


def parents_of(tree: Tree) -> list[int]:
    """The parent of each token of one tree, leaves first; -1 at the root."""
    subtrees = list(tree.subtrees())
    leaves = sum(each.is_leaf for each in subtrees)
    found, seen_leaves, seen_nodes = [NONE] * len(subtrees), 0, 0
    waiting = [(tree, NONE)]
    while waiting:
        each, parent = waiting.pop()
        if each.is_leaf:
            place, seen_leaves = seen_leaves, seen_leaves + 1
        else:
            place, seen_nodes = leaves + seen_nodes, seen_nodes + 1
        found[place] = parent
        waiting.extend((child, place) for child in reversed(each.children))
    return found


def _balanced(tokens: int) -> list[int]:
    """The parents in a balanced binary tree of so many tokens, the leaves first."""
    leaves = (tokens + 1) // 2
    found = [NONE] * tokens
    waiting, seen = [(0, leaves, NONE)], 0
    while waiting and tokens:
        first, end, parent = waiting.pop()
        if end == first + 1:
            found[first] = parent
            continue
        place, seen = leaves + seen, seen + 1
        found[place] = parent
        middle = (first + end + 1) // 2
        waiting += [(middle, end, place), (first, middle, place)]
    if tokens and tokens % 2 == 0:
        found[found.index(NONE)] = tokens - 1
    return found


def _chain(tokens: int) -> list[int]:
    """The parents in a tree whose nodes each have a leaf and the next node, the leaves first."""
    leaves = (tokens + 1) // 2
    nodes = [*range(leaves, leaves + max(leaves - 1, 0))]  # of two children, from the root down
    found = ([*nodes, nodes[-1], NONE, *nodes[:-1]] if nodes else [NONE])[:tokens]
    if tokens and tokens % 2 == 0:
        return [*(tokens - 1 if parent == NONE else parent for parent in found), NONE]
    return found


def _checked_padding(parents: Tensor, padding: Tensor | None) -> Tensor:
    if parents.ndim != 2 or parents.is_floating_point() or parents.dtype == torch.bool:
        raise ValueError(
            "`parents` should hold whole numbers (b, n), got "
            f"{parents.dtype} of shape {tuple(parents.shape)}"
        )
    if padding is None:
        return torch.ones_like(parents, dtype=torch.bool)
    if padding.shape != parents.shape or padding.dtype != torch.bool:
        raise ValueError(
            f"`padding` should be bool of shape {tuple(parents.shape)} as `parents` is, got "
            f"{padding.dtype} of shape {tuple(padding.shape)}"
        )
    return padding


def _check_parents(parents: Tensor, padding: Tensor) -> None:
    n = parents.shape[1]
    wrong = (parents < NONE) | (parents >= n)
    if wrong.any():
        row, token = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"a parent is a place in the sequence, 0 … {n - 1}, or -1, got "
            f"{parents[row, token]} at token {token} of row {row}"
        )
    unreal = padding & (parents != NONE) & ~padding.gather(1, parents.clamp(min=0))
    if unreal.any():
        row, token = unreal.nonzero()[0].tolist()
        raise ValueError(
            f"the parent of token {token} of row {row} is token {parents[row, token]}, "
            "which is padding"
        )
    roots = (padding & (parents == NONE)).sum(1)
    if (roots > 1).any():
        row = int((roots > 1).nonzero()[0, 0])
        raise ValueError(
            f"a tree has one root, but row {row} has {roots[row]} tokens without a parent"
        )


def _above(parents: Tensor) -> Tensor:
    """(b, n, y): all that is above each token, its parent first."""
    found: list[Tensor] = []
    current = parents
    while (current != NONE).any():
        if len(found) == parents.shape[1]:
            row, token = (current != NONE).nonzero()[0].tolist()
            raise ValueError(
                f"row {row} has a cycle: the parents of token {token} lead back to it and never "
                "to a root"
            )
        found.append(current)
        current = parents.gather(1, current.clamp(min=0)).where(current != NONE, NONE)
    return torch.stack(found, dim=2) if found else parents[..., None][..., :0]


def _with_children(parents: Tensor) -> Tensor:
    """True at tokens that are somebody's parent."""
    one = (parents != NONE).int()
    return torch.zeros_like(one).scatter_reduce(1, parents.clamp(min=0), one, "amax") > 0


def _places(of: Tensor) -> Tensor:
    """(b, n) bool → (b, l): the places where each row is True, then -1."""
    order = (~of).int().argsort(dim=1, stable=True)
    return _trimmed(order.where(of.gather(1, order), NONE), of)


def _deepest_first(depth: Tensor, is_node: Tensor) -> Tensor:
    order = depth.masked_fill(~is_node, NONE).argsort(dim=1, descending=True, stable=True)
    return _trimmed(order.where(is_node.gather(1, order), NONE), is_node)


def _trimmed(places: Tensor, of: Tensor) -> Tensor:
    most = int(of.sum(1).max()) if len(of) else 0
    return places[:, :most]


def _rows_at(x: Tensor, places: Tensor) -> Tensor:
    """Gather rows of x (b, n, y) at ``places`` (b, l): (b, l, y), -1 where a place is missing."""
    index = places.clamp(min=0)[..., None].expand(-1, -1, x.shape[2])
    return x.gather(1, index).where(places[..., None] != NONE, NONE)


def _reduced(paths: Tensor, values: Tensor, n: int, how: str) -> Tensor:
    """(b, n): of each token the largest or smallest of the ``values`` on paths through it.

    0 for tokens that are on none.
    """
    b, real = len(paths), (paths != NONE).flatten(1)
    places = paths.flatten(1).where(real, n)
    found = values.new_zeros(b, n + 1)
    found = found.scatter_reduce(1, places, values.flatten(1), how, include_self=False)
    return found[:, :n]


def _spans(leaves: Tensor, paths: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The first and last leaf below each token; leaves below one node stand side by side."""
    b, count = leaves.shape
    branches = torch.cat([leaves[..., None], paths], dim=2)
    ranks = torch.arange(count, device=leaves.device)[:, None].expand_as(branches)
    start = _reduced(branches, ranks, n, "amin")
    stop = _reduced(branches, ranks + 1, n, "amax")
    ones = (branches != NONE).long()
    places = branches.flatten(1).where(branches.flatten(1) != NONE, n)
    below = ones.new_zeros(b, n + 1).scatter_add(1, places, ones.flatten(1))[:, :n]
    if (below != stop - start).any():
        row, token = (below != stop - start).nonzero()[0].tolist()
        raise ValueError(
            f"the leaves below a node stand side by side, but below token {token} of row {row} "
            "stand leaves with others between them; order the leaves from left to right"
        )
    return start, stop
