"""An import of a module's old path fails with a sentence that names the new one, and so do the old
names of what a public class has."""

import functools
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any, TypeVar

_PAGES = {
    ("mechanisms.spectral", "mechanisms.convolution"): (
        "convolutional_attention dynamic_convolution fnet hyena lightweight_convolution "
        "lite_transformer"
    ),
    ("mechanisms.spectral", "mechanisms.recurrence"): "gss h3 retention s4d selective_scan",
    ("mechanisms.memory", "mechanisms.recurrence"): "gru lstm rwkv",
    ("mechanisms.memory", "mechanisms.latents"): "perceiver_io set_transformer",
    ("core", "structures"): (
        "brackets edge_sums graph graph_attention graph_batch laplacian nltk_trees structure table "
        "text_pairs tree tree_batch"
    ),
    ("figures", "core"): "arguments arrays",
}
_MODULES = {
    "core.complex_heads": "attnlab.mechanisms.dense.complex_attention.heads",
    "core.linear_recurrence": "attnlab.mechanisms.kernelized.linear.recurrence",
    "core.bistable": "attnlab.mechanisms.recurrence.bistable",
    "measure.decoding": "attnlab.measure.benchmarks.decoding",
    "train.claims": "attnlab.train.ownership",
    "course.predictions": "attnlab.predictions",
    "course": "tools.course",
    "measure.notebooks": "tools.notebooks",
    "mechanisms.memory.brc": "attnlab.mechanisms.recurrence.bistable",
    "mechanisms.memory.nbrc": "attnlab.mechanisms.recurrence.bistable",
    "mechanisms.recurrence.brc": "attnlab.mechanisms.recurrence.bistable",
    "mechanisms.recurrence.nbrc": "attnlab.mechanisms.recurrence.bistable",
    "mechanisms.spectral": "attnlab.mechanisms.convolution or attnlab.mechanisms.recurrence",
    "models.reversible": "attnlab.architecture.depth.reversible",
    "readme": "tools.readme",
}
_WIDGETS = {
    "lens": "graph_structure graph_weights head_states kernel_maps recorded_model tree_tables",
    "figures": "drawing loss_curve mathml",
    "lens.sources": "inputs joined layer_names layers patches readers tokens windows",
}
_FOLDERS = {
    "attention_explorer": "models:explorer_models side:explorer_side",
    "attention_view": "picture vectors",
    "cost_lab": "picture:cost_picture",
    "depth_view": "picture:depth_picture words:depth_words",
    "energy_landscape": "picture:landscape_picture words:landscape_words",
    "experts_view": "picture:experts_picture words:experts_words",
    "graph_view": "path:graph_path picture:graph_picture words:graph_words",
    "head_switchboard": "picture:switchboard_picture",
    "long_range_use": "picture:far_picture",
    "memory_film": "picture:film_picture words:film_words",
    "pattern_studio": "picture:pattern_picture",
    "position_explorer": "picture:position_picture",
    "query_key_space": (
        "bytes:space_bytes colours:space_colours maps:space_maps picture:space_picture"
    ),
    "query_on_a_plane": "picture:plane_picture points:plane_points words:plane_words",
    "signal_lab": "picture:signal_picture presets:signal_presets words:signal_words",
    "survey": "parts:survey_parts picture:survey_picture",
    "table_view": "picture:table_picture words:table_words",
    "tree_explorer": "picture:tree_picture",
    "wall": "around:wall_around bytes:wall_bytes picture:wall_picture",
    "who_is_chosen": "picture:chosen_picture",
}
"""Widget → what stands in its folder, with its old name beside it where that was another."""
MOVED = {f"attnlab.{old}": new for old, new in _MODULES.items()} | {
    f"attnlab.{old}.{name}": f"attnlab.{new}.{name}"
    for (old, new), names in _PAGES.items()
    for name in names.split()
}
MOVED |= {
    f"attnlab_widgets.{name}": f"attnlab.{new}.{name}"
    for new, names in _WIDGETS.items()
    for name in names.split()
} | {
    "attnlab_widgets.cost_counts": "attnlab.measure.by_name",
    "attnlab_widgets.film_layers": "attnlab.lens.memories",
    "attnlab_widgets.live_training": "attnlab.train.in_turn",
    "attnlab_widgets.slim_row": "attnlab_widgets.toolbar",
    "attnlab_widgets.two_sides": "attnlab_widgets.two_columns",
}
MOVED |= {
    f"attnlab_widgets.{one.rpartition(':')[2]}": f"attnlab_widgets.{widget}.{one.partition(':')[0]}"
    for widget, names in _FOLDERS.items()
    for one in names.split()
}

T = TypeVar("T", bound=type)


def renamed(**names: str) -> Callable[[T], T]:
    """A decorator of a class: its attributes and arguments of old names are errors that name the
    new ones."""

    def answering(kind: T) -> T:
        made = kind.__init__  # type: ignore[misc]

        @functools.wraps(made)
        def make(self: Any, *given: Any, **more: Any) -> None:
            for name in names.keys() & more.keys():
                raise TypeError(f"{name}= of {kind.__name__} is now {names[name]}=")
            made(self, *given, **more)

        kind.__init__ = make  # type: ignore[misc]
        for name, new in names.items():
            setattr(
                kind, name, property(functools.partial(_refuse, f"{kind.__name__}.{name}", new))
            )
        return kind

    return answering


def _refuse(old: str, new: str, _: Any) -> Any:
    raise AttributeError(f"{old} is now {new}")


class _Moved(MetaPathFinder):
    """The last finder that Python asks: nobody before it has found the module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if new := MOVED.get(fullname):
            where = ", in a clone of the repository" if new.startswith("tools") else ""
            # Without a name: Python would take a named error for a missing attribute.
            raise ModuleNotFoundError(f"{fullname} is now {new}{where}")


def answer() -> None:
    """Answer imports of old paths for the rest of the process."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.append(_Moved())
