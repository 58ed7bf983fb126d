"""Trees: tree attention one node at a time and all at once, and beside the child-sum Tree-LSTM.

A step is the forward and backward pass of one layer, dim 64 and 4 heads, over 32 trees of 64
leaves. Shapes of trees: random binary splits, balanced, and right-branching (one leaf split off at
each node: 63 levels). The Tree-LSTM is timed one node at a time, as the recursion is written, and
level by level, where all nodes of a height in all 32 trees are computed together.
"""

import random
from collections.abc import Callable, Iterator

import torch
from torch import nn

from attnlab import catalog
from attnlab.core.tree import Tree
from attnlab.core.tree_batch import TreeBatch
from attnlab.measure.count import exponent
from attnlab.measure.report import Row
from attnlab.measure.timing import Timing, compare

DIM, HEADS, TREES, LEAVES = 64, 4, 32, 64
PARALLEL = "tree attention, parallel"
SHAPES: dict[str, Callable[[random.Random, int], int]] = {
    "random": lambda chance, leaves: chance.randrange(1, leaves),
    "balanced": lambda _, leaves: leaves // 2,
    "right-branching": lambda _, leaves: 1,
}
"""How many of a node's leaves its first child takes."""


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """The steps of all layers on each shape, then those of tree attention as nodes are added."""
    trees, leaves, repeats = (4, 8, 2) if quick else (TREES, LEAVES, 7)
    for shape in SHAPES:
        structure = _batch(shape, trees, leaves)
        timed = _timed(_layers(), structure, repeats, threads)
        yield from _compared(timed, f"{shape} trees", long=not quick)
    yield from _by_nodes(trees, leaves, repeats, threads, long=not quick)


def _compared(timed: dict[str, Timing], where: str, *, long: bool) -> Iterator[Row]:
    own = timed.pop(PARALLEL)
    least = {"tree attention, naive": 20.0, "Tree-LSTM, naive": 3.0, "Tree-LSTM, levels": 3.0}
    for name, timing in timed.items():
        note = f"{timing.median * 1e3:.0f} ms beside {own.median * 1e3:.1f} ms"
        yield Row(
            f"{name} / {PARALLEL}, {where}", timing.ratio, "×",
            at_least=least.get(name) if long else None, quartiles=timing.ratio_quartiles, note=note,
        )  # fmt: skip


def _by_nodes(trees: int, leaves: int, repeats: int, threads: int, *, long: bool) -> Iterator[Row]:
    """Flat trees, then ones of arity 8, 4 and 2, then with a node above each of those."""
    layer = catalog.build("tree", dim=DIM, heads=HEADS)
    made = [_of_arity(leaves, arity) for arity in dict.fromkeys((leaves, 8, 4, 2))]
    made.append(_doubled(made[-1]))
    batches = [TreeBatch.of([tree] * trees) for tree in made]
    steps = {f"{batch.nodes.shape[1]} nodes": _step(layer, batch) for batch in batches}
    first = next(iter(steps))
    timed = compare(steps, baseline=first, repeats=repeats, warmup=1, threads=threads)
    for timing in timed[1:]:
        note = f"{timing.median * 1e3:.1f} ms, {leaves} leaves"
        spread = timing.ratio_quartiles
        yield Row(
            f"{timing.name} / {first}, parallel", timing.ratio, "×", quartiles=spread, note=note
        )
    lengths = [batch.padding.shape[1] for batch in batches]
    fitted = exponent(lengths, [timing.median for timing in timed]).slope
    note = "leaves and nodes; the card claims 2"
    yield Row(
        "exponent of the time in the number of tokens", fitted, "", 2.0 if long else None, note=note
    )


def _layers() -> dict[str, nn.Module]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return {
            PARALLEL: catalog.build("tree", dim=DIM, heads=HEADS),
            "tree attention, dense": catalog.build("tree", dim=DIM, heads=HEADS, form="dense"),
            "tree attention, naive": catalog.build("tree", dim=DIM, heads=HEADS, form="naive"),
            "Tree-LSTM, levels": catalog.build("tree_lstm", dim=DIM),
            "Tree-LSTM, naive": catalog.build("tree_lstm", dim=DIM, form="naive"),
        }


def _timed(
    layers: dict[str, nn.Module], structure: TreeBatch, repeats: int, threads: int
) -> dict[str, Timing]:
    steps = {name: _step(layer, structure) for name, layer in layers.items()}
    timed = compare(steps, baseline=PARALLEL, repeats=repeats, warmup=1, threads=threads)
    return {timing.name: timing for timing in timed}


def _step(layer: nn.Module, structure: TreeBatch) -> Callable[[], object]:
    x = torch.randn(*structure.padding.shape, DIM, requires_grad=True)
    leaves = (x, *layer.parameters())
    return lambda: torch.autograd.grad(layer(x, structure=structure).sum(), leaves)


# ---- trees


def _batch(shape: str, trees: int, leaves: int) -> TreeBatch:
    chance = random.Random(0)
    return TreeBatch.of([_split(chance, leaves, SHAPES[shape]) for _ in range(trees)])


def _split(chance: random.Random, leaves: int, first: Callable[..., int]) -> Tree:
    if leaves == 1:
        return Tree("word")
    left = first(chance, leaves)
    return Tree("n", (_split(chance, left, first), _split(chance, leaves - left, first)))


def _of_arity(leaves: int, arity: int) -> Tree:
    """Every node has ``arity`` children, up to one that has the rest."""
    level = [Tree("word") for _ in range(leaves)]
    while len(level) > 1:
        level = [Tree("n", tuple(level[i : i + arity])) for i in range(0, len(level), arity)]
    return level[0]


def _doubled(tree: Tree) -> Tree:
    """A node with a single child above every node."""
    if tree.is_leaf:
        return tree
    return Tree("n", (Tree("n", tuple(_doubled(child) for child in tree.children)),))
