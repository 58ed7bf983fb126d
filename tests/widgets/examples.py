"""An example of every widget, and one with hostile words of each that shows words of its user."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import torch
from attnlab_widgets.attention_explorer import AttentionExplorer
from attnlab_widgets.attention_view import AttentionView
from attnlab_widgets.base import BaseWidget
from attnlab_widgets.complex_words import ComplexWordExplorer
from attnlab_widgets.cost_lab import CostLab
from attnlab_widgets.depth_view import DepthView
from attnlab_widgets.energy_landscape import EnergyLandscape
from attnlab_widgets.experts_view import ExpertsView
from attnlab_widgets.graph_view import GraphView
from attnlab_widgets.head_switchboard import HeadSwitchboard
from attnlab_widgets.kernel_lab import KernelLab
from attnlab_widgets.long_range_use import LongRangeUse
from attnlab_widgets.memory_film import MemoryFilm
from attnlab_widgets.pattern_studio import PatternStudio
from attnlab_widgets.position_explorer import PositionExplorer
from attnlab_widgets.query_key_space import QueryKeySpace
from attnlab_widgets.query_on_a_plane import QueryOnAPlane
from attnlab_widgets.signal_lab import SignalLab
from attnlab_widgets.survey import Survey
from attnlab_widgets.synthesizer_lab import SynthesizerLab
from attnlab_widgets.table_view import TableView
from attnlab_widgets.tree_explorer import TreeExplorer
from attnlab_widgets.wall import Wall
from attnlab_widgets.what_is_hidden import WhatIsHidden
from attnlab_widgets.who_is_chosen import WhoIsChosen

from attnlab.lens.far_context import FarContext, far_context
from attnlab.mechanisms.positions.complex_embedding import ComplexEmbedding
from attnlab.models.tiny import TinyTransformer
from attnlab.structures.table import Table, TableQuestion
from tests.widgets.query_key_data import maps_of, points_of, tokens_of

TINY = {"dim": 8, "layers": 1, "heads": 2}


def view(n: int = 7) -> AttentionView:
    maps = np.random.default_rng(3).dirichlet(np.full(n, 0.4), size=(3, 5, n))
    return AttentionView(maps.astype("float32"), [*map(str, range(n))])


def words() -> ComplexWordExplorer:
    torch.manual_seed(0)
    return ComplexWordExplorer(ComplexEmbedding(7, 5), {2: "the", 3: "of"})


def switchboard() -> HeadSwitchboard:
    torch.manual_seed(0)
    model = TinyTransformer(29, dim=8, layers=2, heads=2, max_len=32)
    return HeadSwitchboard(model, "attention" * 2, silent=[(0, 1)])


def film() -> MemoryFilm:
    torch.manual_seed(0)
    sizes = {"segment": 12, "memory": 12, "compressed": 6, "rate": 4}
    given = {"attention": "compressive_transformer", "attention_options": sizes}
    model = TinyTransformer(29, dim=8, layers=2, heads=2, max_len=128, **given)
    return MemoryFilm(
        model, torch.randint(29, (96,)), tokens=[*"attention to the past "] * 4 + [*"attended"]
    )


def studies(n: int = 96, texts: int = 5, last: int = 24) -> dict[str, FarContext]:
    """Models that hardly fall short of each other: their logits depend on all, or on the newest."""
    tokens = torch.randint(29, (texts, n), generator=torch.Generator().manual_seed(3))
    found = {}
    for name, options in {
        "full": {"attention": "full"},
        "window": {"attention": "longformer", "attention_options": {"window": 16}},
    }.items():
        torch.manual_seed(0)
        model = TinyTransformer(29, **TINY, positions="sinusoidal", **options)
        found[name] = far_context(model, tokens, last=last, distances=(4, 8, 16, 32))
    return found


def long_range() -> LongRangeUse:
    return LongRangeUse(studies(), lambda ids: [chr(97 + token) * (1 + token % 5) for token in ids])


def table() -> TableView:
    """What three questions to a table of rivers lead to: the answer, a wrong row, both wrong."""
    rows = [
        ["Danube", "Black Sea", "2850", "Vienna"],
        ["Rhine", "North Sea", "1230", "Basel"],
        ["Rhône", "Mediterranean", "810", "Lyon"],
        ["Tagus", "Atlantic", "1010", "Lisbon"],
        ["Po", "Adriatic", "650", "Turin"],
    ]
    rivers = Table(["river", "flows into", "length in km", "a city"], rows)
    asked = [
        ("Into which sea does the Rhine flow?", [-1.2, 3.4, 1.9, -2, -2.6], [0.3, 2.8, -1.1, -0.4]),
        ("How long is the Rhône?", [-0.9, 2.2, 2.1, -1.5, -2], [-1, 0, 3.1, -1.7]),
        ("Which river is at Lisbon?", [1.4, 0.6, 0.2, 1.1, -1], [0.8, 0, -2, 1.5]),
        ("Which of the cities is best?", [0.1, 0.2, 0.3, 0.2, 0.1], [0, 0, 0, 1]),
    ]
    texts, sides, tops = zip(*asked, strict=True)
    answers = zip(texts[:3], [(1, 1), (2, 2), (3, 0)], strict=True)
    questions = [TableQuestion(rivers, text, *cell) for text, cell in answers]
    return TableView([*questions, (rivers, texts[3])], sides, tops)


def graph(**given: Any) -> GraphView:
    karate = nx.karate_club_graph()
    scores = torch.randn(2, 3, 34, 34, generator=torch.Generator().manual_seed(0))
    mask = torch.from_numpy(nx.to_numpy_array(karate, weight=None)) > 0
    return GraphView(karate, scores.masked_fill(~mask, -torch.inf).softmax(-1), **given)


def experts(tokens: Sequence[str] | None = None, n: int = 60, **given: Any) -> ExpertsView:
    """Two layers whose tokens choose two of five experts, one of which is chosen most."""
    made = np.random.default_rng(3)
    scores = made.normal(size=(2, n, 5)) + np.array([0, 1.2, 0, 0.3, 0])
    router = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    chosen = np.argsort(-router, axis=-1)[..., :2]
    gates = np.take_along_axis(router, chosen, -1)
    steps = np.arange(0, 500, 25)
    shares = made.dirichlet(np.full(5, 2), size=(2, len(steps)))
    history = {
        "steps": steps,
        "shares": shares,
        "balance": 1 + 2 * np.exp(-steps / 99)[None] + [[0], [1]],
    }
    words = [f"word{i % 17}" for i in range(n)]
    return ExpertsView(
        words if tokens is None else [*tokens], chosen, gates, router, capacity=n // 3,
        history=history, **given,
    )  # fmt: skip


def depth(tokens: Sequence[str] | None = None, n: int = 30, **given: Any) -> DepthView:
    """Tokens that leave after 1 to 7 layers."""
    made = np.random.default_rng(3)
    start, end = made.normal(size=(2, n, 11))
    left = made.integers(1, 8, size=n)
    states = np.stack(
        [end + (start - end) * 0.5 ** np.minimum(t, left)[:, None] for t in range(1, 8)]
    )
    words = [f"word{i}" for i in range(n)]
    guesses = [[str(i % t) for i in range(n)] for t in range(2, 9)]
    return DepthView(
        words if tokens is None else [*tokens], states, start=start, left=left, what="layer",
        guesses=guesses, probabilities=made.random((7, n)), **given,
    )  # fmt: skip


EXAMPLES: dict[type, Callable[[], Any]] = {
    AttentionView: view,
    PatternStudio: PatternStudio,
    TreeExplorer: TreeExplorer,
    PositionExplorer: PositionExplorer,
    ComplexWordExplorer: words,
    QueryKeySpace: lambda: QueryKeySpace(maps_of(points_of(tokens_of()))),
    QueryOnAPlane: QueryOnAPlane,
    HeadSwitchboard: switchboard,
    KernelLab: KernelLab,
    LongRangeUse: long_range,
    Wall: lambda: Wall("a for loop"),
    WhoIsChosen: WhoIsChosen,
    SynthesizerLab: SynthesizerLab,
    CostLab: lambda: CostLab(claims={"longformer": "n"}),
    Survey: Survey,
    EnergyLandscape: EnergyLandscape,
    GraphView: graph,
    MemoryFilm: film,
    SignalLab: SignalLab,
    TableView: table,
    ExpertsView: experts,
    DepthView: depth,
    WhatIsHidden: WhatIsHidden,
    AttentionExplorer: lambda: AttentionExplorer("a for loop", untrained=TINY),
}

PAGES: dict[type[BaseWidget], Callable[[], BaseWidget]] = {
    kind: make for kind, make in EXAMPLES.items() if issubclass(kind, BaseWidget)
}
"""The widgets that are a page of their own, which `save_html` writes."""

HOSTILE = (
    "<img src=x onerror=\"document.title='taken'\">",
    "</script><script>document.title = 'taken'</script>",
    "\"'&amp;",
    "שלום",
    "\u202egnp.exe",
    "\x07\x1b[31m\n",
    "👩‍🚀\u200b",
)
"""Tokens that a page must show as text: tags, quotes, right to left, control characters."""


def hostile_film(words: Sequence[str]) -> MemoryFilm:
    torch.manual_seed(0)
    sizes = {"segment": 4, "memory": 4, "compressed": 3, "rate": 2}
    given = {"attention": "compressive_transformer", "attention_options": sizes}
    model = TinyTransformer(26, dim=12, layers=1, heads=2, max_len=64, **given)
    return MemoryFilm(model, torch.arange(3 * len(words)) % 26, tokens=[*words] * 3)


def hostile_board(words: Sequence[str]) -> HeadSwitchboard:
    torch.manual_seed(0)
    model = TinyTransformer(29, dim=8, layers=2, heads=2, max_len=32)
    return HeadSwitchboard(model, [*range(len(words))], tokens=[*words])


def hostile_view(words: Sequence[str]) -> AttentionView:
    n = len(words)
    maps = np.random.default_rng(3).dirichlet(np.full(n, 0.4), size=(2, 3, n))
    return AttentionView(maps.astype("float32"), [*words])


def hostile_space(words: Sequence[str]) -> QueryKeySpace:
    tokens = tokens_of(2, len(words))
    space = QueryKeySpace(maps_of(points_of(replace(tokens, texts=(*words, *words)), 1, 2)))
    space.view, space.selected = "one", ["query", 0]
    return space


def hostile_table(words: Sequence[str]) -> TableView:
    first, *rest = words
    cells = Table([first, rest[0]], [[one, one] for one in rest])
    return TableView([(cells, first)], [[0.0] * len(rest)], [[0.0, 1.0]])


def hostile_choices(words: Sequence[str]) -> WhoIsChosen:
    points = np.random.default_rng(3).normal(size=(2, 8 * len(words), 2))
    return WhoIsChosen(*points, tokens=[*words] * 8)


HOSTILE_EXAMPLES: dict[type[BaseWidget], Callable[[Sequence[str]], BaseWidget]] = {
    AttentionView: hostile_view,
    TreeExplorer: lambda words: TreeExplorer(["S", *words[:3], ["X", *words[3:]]]),
    ComplexWordExplorer: lambda words: ComplexWordExplorer(
        ComplexEmbedding(len(words), 5), dict(enumerate(words))
    ),
    QueryKeySpace: hostile_space,
    QueryOnAPlane: lambda words: QueryOnAPlane(np.eye(len(words), 2) + 1, names=[*words]),
    HeadSwitchboard: hostile_board,
    LongRangeUse: lambda words: LongRangeUse(
        studies(), lambda ids: [words[token % len(words)] for token in ids]
    ),
    WhoIsChosen: hostile_choices,
    EnergyLandscape: lambda words: EnergyLandscape(np.eye(len(words), 2) + 1, names=[*words]),
    GraphView: lambda words: graph(labels=[*words, *map(str, range(34 - len(words)))]),
    MemoryFilm: hostile_film,
    TableView: hostile_table,
    ExpertsView: lambda words: experts(words, len(words)),
    DepthView: lambda words: depth(words, len(words), token=0),
    WhatIsHidden: lambda words: WhatIsHidden([*words, *words]),
    Wall: lambda words: Wall(" ".join(words)),
}
"""The widgets that show words of their user: an example of each with these words."""
