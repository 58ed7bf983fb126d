"""Seven words, two of which have names."""

from collections.abc import Sequence

import torch

from attnlab.mechanisms.positions.complex_embedding import ComplexEmbedding
from attnlab_widgets.complex_words import ComplexWordExplorer


def example() -> ComplexWordExplorer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return ComplexWordExplorer(ComplexEmbedding(7, 5), {2: "the", 3: "of"})


def hostile(words: Sequence[str]) -> ComplexWordExplorer:
    return ComplexWordExplorer(ComplexEmbedding(len(words), 5), dict(enumerate(words)))
