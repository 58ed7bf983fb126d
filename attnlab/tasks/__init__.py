"""Tiny data sets and problems, one per file, all offline.

`tasks()` lists them by walking this folder and `task(name, **options)` builds one. A task has no
state: `batch(split, size, seed)` is a function of its three arguments alone, so a run that is
resumed or divided among processes sees exactly the data of an uninterrupted one. No global random
number generator is used.

To add a task, define a concrete subclass of `Task` with a `name` in a file of this folder.
"""

import functools
import importlib
import inspect
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from attnlab.core.integers import check_integer
from attnlab.core.lazy import modules_of
from attnlab.core.suggest import check_choice, choose, suggestion

__getattr__ = modules_of(__name__)

__all__ = ["SPLITS", "UNSCORED", "Batch", "Example", "Task", "task", "tasks"]

SPLITS = ("train", "validation")
LARGEST_SIZE = 2**20
MOST_POSITIONS = 2**25  # of one batch: a quarter of a gigabyte
UNSCORED = -100  # cross_entropy of torch ignores targets of this value


@dataclass(frozen=True, eq=False)
class Batch:
    """What one step of training sees.

    Attributes:
        inputs: tokens `(b, n)`, or feature vectors `(b, n, f)`.
        targets: the token, or the class, to predict at each position `(b, n)`, or one class per
            row `(b,)`;
            `UNSCORED` (-100) where no answer is wanted.
        padding: `(b, n)` bool, True = a real token; None when every token is real.
        source: tokens, or feature vectors `(b, m, f)`, that the encoder reads, for encoder-decoder
            tasks.
        source_padding: as `padding`, for `source`.
        structure: what connects the tokens, for models that are told: a `TreeBatch` or a
            `GraphBatch`, with as many rows and positions as the inputs (or the source, if there is
            one). Some objectives put a `Visibility` here: which token sees which.
    """

    inputs: Tensor
    targets: Tensor
    padding: Tensor | None = None
    source: Tensor | None = None
    source_padding: Tensor | None = None
    structure: Any = None

    def __post_init__(self) -> None:
        for name, part in vars(self).items():
            if name == "structure":
                continue
            if not isinstance(part, Tensor) and (part is not None or name in ("inputs", "targets")):
                raise TypeError(
                    f"{name} of a batch should be a tensor, got a {type(part).__name__}"
                )

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: slice) -> "Batch":
        if not isinstance(rows, slice) or not _whole_slice(rows):
            raise TypeError(
                f"A batch is cut with a slice of whole numbers, for example batch[0:8], got "
                f"batch[{rows!r}]; for a single row write batch[3:4]"
            )
        if rows.step is not None and rows.step < 1:
            raise ValueError(f"A batch is cut forwards, got a step of {rows.step}")
        return self._each(lambda part: part[rows])

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        try:
            device = torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                f"device should name one, for example 'cpu' or 'cuda', got {device!r}"
            ) from error
        return self._each(lambda part: part.to(device))

    def _each(self, change: Callable[[Any], Any]) -> "Batch":
        changed: dict[str, Any] = {
            name: None if part is None else change(part) for name, part in vars(self).items()
        }
        return Batch(**changed)


@dataclass(frozen=True, eq=False)
class Example:
    """One row of a task as data for a picture.

    Attributes:
        title: a short heading.
        description: the content of the picture in words, for readers who cannot see it.
        tokens: what stands at each input position, ready for display; empty for feature vectors.
        labels: what is to be predicted at each position, `""` where nothing is scored; for a
            classifier, one label.
        source: what the encoder reads, for encoder-decoder tasks; empty for feature vectors.
        image: `(height, width)`, for tasks made of images; zero is dark.
    """

    title: str
    description: str
    tokens: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    image: np.ndarray | None = None


class Task(ABC):
    """A problem that a `TinyTransformer` can be trained on.

    Subclasses are frozen dataclasses whose fields are their options.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def kind(self) -> str:
        """`"language_model"`, `"classifier"`, `"token_classifier"` or `"encoder_decoder"`."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Positions of the longest sequence that the model reads."""

    @property
    def vocab(self) -> int | None:
        """How many different tokens there are; None when the inputs are feature vectors."""
        return None

    @property
    def features(self) -> int | None:
        """Width of the feature vectors; None when the inputs are tokens."""
        return None

    @property
    def classes(self) -> int | None:
        """How many classes there are, of rows or of positions; None for the other kinds."""
        return None

    def batch(self, split: str, size: int, seed: int) -> Batch:
        """`size` rows of `split` ("train" or "validation"), chosen by `seed`.

        Equal arguments give equal batches, whatever was drawn before and in whatever process.
        """
        return self._draw(split, *self._begin(split, size, seed))

    def _begin(self, split: str, size: int, seed: int) -> tuple[int, np.random.Generator]:
        """What `_draw` takes beside the split: the checked size, and a generator of their own."""
        check_choice("split", split, SPLITS)
        size = check_integer("size", size, at_least=1)
        seed = check_integer("seed", seed, at_least=0)
        if size * self.length > MOST_POSITIONS:
            raise ValueError(
                f"A batch has at most {MOST_POSITIONS:,} positions in all; size={size} rows of "
                f"{self.length} are more; draw several smaller batches with different seeds"
            )
        return size, np.random.default_rng([SPLITS.index(split), seed])

    def example(self, index: int = 0, split: str = "validation") -> Example:
        """Row `index` of an endless, fixed sequence of rows of `split`, as data for a picture."""
        index = check_integer("index", index, at_least=0)
        return self._describe(self.batch(split, 1, seed=index))

    def model_options(self) -> dict[str, Any]:
        """The keyword arguments that a `TinyTransformer` for this task needs."""
        return {
            "vocab": self.vocab,
            "kind": self.kind,
            "classes": self.classes,
            "features": self.features,
            "max_len": self.length,
        }

    def _check_sizes(self, **at_least: int) -> None:
        """The named options are whole numbers within their bounds; numpy's become Python's."""
        for name, least in at_least.items():
            size = check_integer(name, getattr(self, name), at_least=least)
            if size > LARGEST_SIZE:
                raise ValueError(f"{name} should be at most {LARGEST_SIZE:,}, got {size}")
            object.__setattr__(self, name, size)

    @abstractmethod
    def _draw(self, split: str, size: int, generator: np.random.Generator) -> Batch:
        """A batch whose every choice comes from `generator`."""

    @abstractmethod
    def _describe(self, batch: Batch) -> Example:
        """The only row of `batch` as an `Example`, for display."""


def tasks() -> dict[str, type[Task]]:
    """Every task by name, found by walking this folder."""
    return dict(_found())


@functools.cache
def _found() -> dict[str, type[Task]]:
    found: dict[str, type[Task]] = {}
    for module_info in pkgutil.iter_modules(__path__, prefix=f"{__name__}."):
        module = importlib.import_module(module_info.name)
        for thing in vars(module).values():
            if _is_task(thing):
                found[thing.name] = thing
    return dict(sorted(found.items()))


def task(name: str, **options: Any) -> Task:
    """The task called `name`, with its options.

    >>> task("copying", items=5).length
    10
    """
    kind_of_task = choose("task", name, _found())
    known = inspect.signature(kind_of_task).parameters
    for option in options:
        if option not in known:
            raise TypeError(
                f"the task {name!r} has no option {option!r}{suggestion(option, known)}"
            )
    return kind_of_task(**options)


def _whole_slice(rows: slice) -> bool:
    bounds = (rows.start, rows.stop, rows.step)
    return all(bound is None or hasattr(bound, "__index__") for bound in bounds)


def _is_task(thing: object) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Task) and not inspect.isabstract(thing)


def __dir__() -> list[str]:
    """What Tab offers: the public names."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
