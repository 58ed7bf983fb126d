"""The widgets of attnlab, each loaded when it is first used: a widget answers one question.

    from attnlab_widgets import AttentionView, PatternStudio

Each stands in a folder of its own: its state, still picture and sentences, an example, and the
sources of its front end; what several share stands beside the folders. Python holds the state,
checks it and computes the numbers; what reads models is in `attnlab.lens`. The page draws what
follows the hand and says it, because a saved file is alive without Python. A notebook is also read
where nothing runs, on GitHub and in the site, and after ``nbconvert --execute`` where no browser
has ever drawn; therefore every widget also draws its present state in Python (``still()``), and
``description()`` is the alternative text of that picture. A sentence that depends on few states is
made in Python alone and sent with them (`table_view.words`). Where both sides must compute the
same, cases that Python has written (widgets/test) hold the page to it.
"""

import importlib as _importlib
import typing as _typing

_HOMES = {
    "AttentionExplorer": "attention_explorer",
    "AttentionView": "attention_view",
    "CacheView": "cache_view",
    "CircuitBoard": "circuit_board",
    "ComplexWordExplorer": "complex_words",
    "CompressionLab": "compression_lab",
    "CostLab": "cost_lab",
    "DepthView": "depth_view",
    "EnergyLandscape": "energy_landscape",
    "ErrorGraph": "error_graph",
    "ExpertsView": "experts_view",
    "GraphView": "graph_view",
    "HeadMap": "head_map",
    "HeadSwitchboard": "head_switchboard",
    "KernelLab": "kernel_lab",
    "LayerChoices": "layer_choices",
    "LongRangeUse": "long_range_use",
    "MemoryFilm": "memory_film",
    "PatternStudio": "pattern_studio",
    "PositionExplorer": "position_explorer",
    "ProbeView": "probe_view",
    "QueriesView": "queries_view",
    "QueryKeySpace": "query_key_space",
    "QueryOnAPlane": "query_on_a_plane",
    "SignalLab": "signal_lab",
    "StateView": "state_view",
    "Survey": "survey",
    "SynthesizerLab": "synthesizer_lab",
    "TableView": "table_view",
    "TreeExplorer": "tree_explorer",
    "Walk": "walk",
    "Wall": "wall",
    "WhatIsHidden": "what_is_hidden",
    "WhoIsChosen": "who_is_chosen",
    "to_bertviz": "bertviz",
}

__all__ = [
    "AttentionExplorer",
    "AttentionView",
    "CacheView",
    "CircuitBoard",
    "ComplexWordExplorer",
    "CompressionLab",
    "CostLab",
    "DepthView",
    "EnergyLandscape",
    "ErrorGraph",
    "ExpertsView",
    "GraphView",
    "HeadMap",
    "HeadSwitchboard",
    "KernelLab",
    "LayerChoices",
    "LongRangeUse",
    "MemoryFilm",
    "PatternStudio",
    "PositionExplorer",
    "ProbeView",
    "QueriesView",
    "QueryKeySpace",
    "QueryOnAPlane",
    "SignalLab",
    "StateView",
    "Survey",
    "SynthesizerLab",
    "TableView",
    "TreeExplorer",
    "Walk",
    "Wall",
    "WhatIsHidden",
    "WhoIsChosen",
    "to_bertviz",
]

if _typing.TYPE_CHECKING:
    from attnlab_widgets.attention_explorer import AttentionExplorer
    from attnlab_widgets.attention_view import AttentionView
    from attnlab_widgets.bertviz import to_bertviz
    from attnlab_widgets.cache_view import CacheView
    from attnlab_widgets.circuit_board import CircuitBoard
    from attnlab_widgets.complex_words import ComplexWordExplorer
    from attnlab_widgets.compression_lab import CompressionLab
    from attnlab_widgets.cost_lab import CostLab
    from attnlab_widgets.depth_view import DepthView
    from attnlab_widgets.energy_landscape import EnergyLandscape
    from attnlab_widgets.error_graph import ErrorGraph
    from attnlab_widgets.experts_view import ExpertsView
    from attnlab_widgets.graph_view import GraphView
    from attnlab_widgets.head_map import HeadMap
    from attnlab_widgets.head_switchboard import HeadSwitchboard
    from attnlab_widgets.kernel_lab import KernelLab
    from attnlab_widgets.layer_choices import LayerChoices
    from attnlab_widgets.long_range_use import LongRangeUse
    from attnlab_widgets.memory_film import MemoryFilm
    from attnlab_widgets.pattern_studio import PatternStudio
    from attnlab_widgets.position_explorer import PositionExplorer
    from attnlab_widgets.probe_view import ProbeView
    from attnlab_widgets.query_key_space import QueryKeySpace
    from attnlab_widgets.query_on_a_plane import QueryOnAPlane
    from attnlab_widgets.signal_lab import SignalLab
    from attnlab_widgets.state_view import StateView
    from attnlab_widgets.survey import Survey
    from attnlab_widgets.synthesizer_lab import SynthesizerLab
    from attnlab_widgets.table_view import TableView
    from attnlab_widgets.tree_explorer import TreeExplorer
    from attnlab_widgets.walk import Walk
    from attnlab_widgets.wall import Wall
    from attnlab_widgets.what_is_hidden import WhatIsHidden
    from attnlab_widgets.who_is_chosen import WhoIsChosen


def __getattr__(name: str) -> _typing.Any:
    if name in _HOMES:
        extras = _importlib.import_module("attnlab.core.extras")
        return extras.of_widgets(f"attnlab_widgets.{_HOMES[name]}", name)
    raise AttributeError(f"attnlab_widgets has no {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("_")), *_HOMES})
