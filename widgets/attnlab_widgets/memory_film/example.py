"""Small models with a compressive memory that have not been trained."""

from collections.abc import Sequence

import torch

from attnlab.models.tiny import TinyTransformer
from attnlab_widgets.memory_film import MemoryFilm


def example() -> MemoryFilm:
    sizes = {"segment": 12, "memory": 12, "compressed": 6, "rate": 4}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = _model(29, 8, 2, sizes)
        tokens = torch.randint(29, (96,))
    return MemoryFilm(model, tokens, tokens=[*"attention to the past "] * 4 + [*"attended"])


def hostile(words: Sequence[str]) -> MemoryFilm:
    sizes = {"segment": 4, "memory": 4, "compressed": 3, "rate": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = _model(26, 12, 1, sizes)
    return MemoryFilm(model, torch.arange(3 * len(words)) % 26, tokens=[*words] * 3)


def _model(vocabulary: int, dim: int, layers: int, sizes: dict[str, int]) -> TinyTransformer:
    return TinyTransformer(
        vocabulary, dim=dim, layers=layers, heads=2, max_len=128,
        attention="compressive_transformer", attention_options=sizes,
    )  # fmt: skip
