"""The karate club, with attention of chance along its edges."""

from collections.abc import Sequence
from typing import Any

import torch

from attnlab_widgets.graph_view import GraphView


def example(**given: Any) -> GraphView:
    import networkx as nx

    karate = nx.karate_club_graph()
    scores = torch.randn(2, 3, 34, 34, generator=torch.Generator().manual_seed(0))
    mask = torch.from_numpy(nx.to_numpy_array(karate, weight=None)) > 0
    return GraphView(karate, scores.masked_fill(~mask, -torch.inf).softmax(-1), **given)


def hostile(words: Sequence[str]) -> GraphView:
    return example(labels=[*words, *map(str, range(34 - len(words)))])
