"""Graphs: attention over a list of edges, beside the dense form and PyTorch Geometric.

Random graphs of ten edges to each node, dim 64 and 4 heads. The largest tensors are counted; times
are of a forward pass, and of a forward and a backward pass. TransformerConv does equal work: where
the edges have features it adds them, by a linear map, to keys and values, and ours multiplies the
scores by them; its map of each node to itself is as large as our output projection. The
eigenvectors are the first 16 of a graph of 10,000 nodes without directions.
"""

import functools
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from attnlab import catalog
from attnlab.measure.comparison import ratio
from attnlab.measure.count import count, exponent
from attnlab.measure.report import Row
from attnlab.measure.timing import compare, thread_count
from attnlab.structures.graph import Graph
from attnlab.structures.graph_batch import GraphBatch
from attnlab.structures.laplacian import spectrum

DIM, HEADS, DEGREE, FEATURES, REPEATS = 64, 4, 10, 8, 7


def rows(*, quick: bool, threads: int) -> Iterator[Row]:
    """The forms, the largest tensors, the peer, the eigenvectors."""
    repeats = 2 if quick else REPEATS
    yield from _forms(200 if quick else 2000, repeats, threads, long=not quick)
    yield from _tensors((100, 200) if quick else (1000, 2000), long=not quick)
    for features in (0, FEATURES):
        yield from _beside_peer(
            300 if quick else 10_000, features, repeats, threads, long=not quick
        )
    yield _eigenvectors(600 if quick else 10_000, threads, long=not quick)


def random_graph(nodes: int, *, both_ways: bool = False, features: int = 0) -> Graph:
    """About ten edges for each node, their ends drawn at random; ``both_ways`` half of them and
    their reverses. So many random numbers are ``features`` of each edge."""
    drawn = torch.randint(nodes, (nodes * DEGREE, 2), generator=torch.Generator().manual_seed(0))
    drawn = drawn.unique(dim=0)  # without parallel edges, which the dense form pays for
    if both_ways:
        return Graph(nodes, drawn[::2]).both_ways()
    values = torch.randn(len(drawn), features, generator=torch.Generator().manual_seed(1))
    return Graph(nodes, drawn, features=values)


def _forms(nodes: int, repeats: int, threads: int, *, long: bool) -> Iterator[Row]:
    structure = GraphBatch.of([random_graph(nodes)])
    layers = {name: _layer(name) for name in ("naive", "edges")}
    x = torch.randn(1, nodes, DIM, requires_grad=True)
    calls = {
        name: functools.partial(layer, x, structure=structure) for name, layer in layers.items()
    }
    for words, run in _RUNS.items():
        steps = {name: functools.partial(run, layers[name], call) for name, call in calls.items()}
        timed = compare(steps, repeats=repeats, warmup=1, threads=threads)
        figure = f"naive / edges, {nodes:,} nodes, {words}"
        work = f"{DEGREE} edges of a node; naive compares it with all {nodes:,}"
        yield ratio(figure, *timed, work=work, at_least=20 if long else None)


def _tensors(lengths: tuple[int, ...], *, long: bool) -> Iterator[Row]:
    """The largest tensor of each form, and how it grows."""
    largest: dict[str, list[int]] = {"naive": [], "edges": []}
    for nodes in lengths:
        structure = GraphBatch.of([random_graph(nodes)])
        x = torch.randn(1, nodes, DIM)
        for name, sizes in largest.items():
            layer = _layer(name)
            layer(x, structure=structure)  # what is found once for each graph is found before
            call = functools.partial(layer, x, structure=structure)
            sizes.append(count(call).largest_tensor.elements)
    slope = exponent(lengths, largest["naive"]).slope
    yield Row("naive: exponent of the largest tensor in the nodes", slope)
    edges = [len(random_graph(nodes).edges) for nodes in lengths]
    slope = exponent(edges, largest["edges"]).slope
    yield Row("edges: exponent of the largest tensor in the edges", slope, at_most=1.01)
    nodes = 10_000
    listed = largest["edges"][-1] * nodes // lengths[-1]
    dense = largest["naive"][-1] * (nodes // lengths[-1]) ** 2
    yield Row(
        f"naive / edges, largest tensor at {nodes:,} nodes", dense / listed, "×",
        at_least=20 if long else None,
        note=f"counted at {lengths[-1]:,} nodes and grown by n² and n",
    )  # fmt: skip


def _beside_peer(
    nodes: int, features: int, repeats: int, threads: int, *, long: bool
) -> Iterator[Row]:
    graph = random_graph(nodes, features=features)
    structure = GraphBatch.of([graph])
    x = torch.randn(1, nodes, DIM, requires_grad=True)
    layer = _layer("edges", edge_features=features)
    own = functools.partial(layer, x, structure=structure)
    beside = f" of {features} features" if features else ""
    figure = f"TransformerConv / edges, {len(graph.edges):,} edges{beside}"
    if not find_spec("torch_geometric"):
        yield Row(
            figure, None, note="torch_geometric is not installed: pip install torch_geometric"
        )
        alone = compare({"edges": own}, repeats=repeats, warmup=1, threads=threads)[0]
        yield Row(f"edges, {len(graph.edges):,} edges{beside}, forward", alone.median * 1e3, "ms")
        return
    with warnings.catch_warnings():  # it compiles by torch.jit, which is deprecated
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch_geometric.nn import TransformerConv

    peer = TransformerConv(DIM, DIM // HEADS, heads=HEADS, edge_dim=features or None).eval()
    attributes = graph.features if features else None
    theirs = functools.partial(peer, x[0], graph.edges.mT.contiguous(), attributes)
    for words, run in _RUNS.items():
        steps = {
            "TransformerConv": functools.partial(run, peer, theirs),
            "edges": functools.partial(run, layer, own),
        }
        timed = compare(steps, repeats=repeats, warmup=1, threads=threads)
        work = "the same nodes, edges, features, heads and widths in both"
        yield ratio(f"{figure}, {words}", *timed, work=work, at_least=1 if long else None)


def _eigenvectors(nodes: int, threads: int, *, long: bool) -> Row:
    structure = GraphBatch.of([random_graph(nodes, both_ways=True)])
    with thread_count(threads):
        start = time.perf_counter()
        spectrum(structure, 16)
        seconds = time.perf_counter() - start
    figure = f"16 eigenvectors of the Laplacian, {nodes:,} nodes"
    solver = "scipy's Lanczos iteration" if find_spec("scipy") else "PyTorch's dense solver"
    return Row(figure, seconds, "s", at_most=5.0 if long else None, note=solver)


def _layer(form: str, edge_features: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return catalog.build(
            "graph_transformer", dim=DIM, heads=HEADS, form=form, edge_features=edge_features
        ).eval()


def _infer(layer: nn.Module, call: Callable[[], Tensor]) -> object:
    del layer
    with torch.no_grad():
        return call()


def _train(layer: nn.Module, call: Callable[[], Tensor]) -> object:
    return torch.autograd.grad(call().sum(), list(layer.parameters()))


_RUNS: dict[str, Callable[..., object]] = {"forward": _infer, "forward and backward": _train}
