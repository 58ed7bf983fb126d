"""Trees: tree attention one node at a time and all at once, and beside the child-sum Tree-LSTM.

All passes are forward and backward, over 32 trees of 64 leaves, dim 64 and 4 heads: of the
accumulation alone in each of its forms, then of whole layers. Shapes of trees: random binary
splits, balanced, and right-branching (one leaf split off at each node: 63 levels). The Tree-LSTM is
timed one node at a time, as the recursion is written, and level by level, where all nodes of a
height in all 32 trees are computed together.
"""

import functools
import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.measure.count import exponent
from attnlab.measure.report import Row
from attnlab.measure.timing import Timing, compare
from attnlab.structures.tree import Tree
from attnlab.structures.tree_batch import TreeBatch

DIM, HEADS, TREES, LEAVES = 64, 4, 32, 64
SHAPES: dict[str, Callable[[random.Random, int], int]] = {
    "random": lambda chance, leaves: chance.randrange(1, leaves),
    "balanced": lambda _, leaves: leaves // 2,
    "right-branching": lambda _, leaves: 1,
}
"""How many of a node's leaves its first child takes."""


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """The forms and the layers on each shape, then tree attention as nodes are added."""
    trees, leaves, repeats = (4, 8, 2) if quick else (TREES, LEAVES, 7)
    for shape in SHAPES:
        structure = _batch(shape, trees, leaves)
        for steps in (_forms(structure), _layers(structure)):
            timed = compare(steps, repeats=repeats, warmup=1, threads=threads)
            yield from _compared(timed, f"{shape} trees", long=not quick)
    yield from _by_nodes(trees, leaves, repeats, threads, long=not quick)


def _compared(timed: list[Timing], where: str, *, long: bool) -> Iterator[Row]:
    own, *others = timed
    least = {"naive": 20.0, "Tree-LSTM, naive": 3.0, "Tree-LSTM, levels": 3.0}
    for timing in others:
        note = f"{timing.median * 1e3:.0f} ms beside {own.median * 1e3:.1f} ms"
        target = least.get(timing.name) if long else None
        yield Row(
            f"{timing.name} / {own.name}, {where}", timing.ratio, "×",
            at_least=target, quartiles=timing.ratio_quartiles, note=note,
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


def _forms(structure: TreeBatch) -> dict[str, Callable[[], object]]:
    """The accumulation, `parallel` first."""
    forms = dict(reversed(list(catalog.card("tree").forms.items())))
    b, n = structure.padding.shape
    shapes = [(b, HEADS, n, DIM // HEADS), (b, HEADS, n), (100, DIM // HEADS), (100, DIM // HEADS)]
    made = [torch.randn(shape, requires_grad=True) for shape in shapes]

    def step(form: Callable[..., Tensor]) -> object:
        return torch.autograd.grad(form(*made, structure=structure).sum(), made)

    return {name: functools.partial(step, form) for name, form in forms.items()}


def _layers(structure: TreeBatch) -> dict[str, Callable[[], object]]:
    """Whole layers, tree attention first."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = {
            "tree attention": catalog.build("tree", dim=DIM, heads=HEADS),
            "tree attention, dense": catalog.build("tree", dim=DIM, heads=HEADS, form="dense"),
            "tree attention, naive": catalog.build("tree", dim=DIM, heads=HEADS, form="naive"),
            "Tree-LSTM, levels": catalog.build("tree_lstm", dim=DIM),
            "Tree-LSTM, naive": catalog.build("tree_lstm", dim=DIM, form="naive"),
        }
    return {name: _step(layer, structure) for name, layer in layers.items()}


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
