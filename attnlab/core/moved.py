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
