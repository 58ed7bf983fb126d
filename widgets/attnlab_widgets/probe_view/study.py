"""What ProbeView has to say, computed once: curves, orders and the sentence of each point."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlab.core.arguments import check_mapping
from attnlab.figures.labels import visible
from attnlab.lens.known_where import Known
from attnlab_widgets.words import two

ORDERS = ("as given", "expected layer", "selectivity")
MOST_TASKS, MOST_LAYERS = 16, 49


@dataclass(frozen=True)
class Task:
    """One question: (seeds, layers) of right answers and of the control, from 0 to 1."""

    name: str
    right: np.ndarray
    control: np.ndarray
    expected: float
    """NaN where the probes of some seed do not rise."""
    centre: float
    divergence: float

    @property
    def beyond(self) -> np.ndarray:
        """(seeds, layers): the selectivity."""
        return self.right - self.control

    def error(self, layer: int) -> float:
        """The standard error of the selectivity; NaN of a single seed."""
        seeds = self.beyond[:, layer]
        return float(seeds.std(ddof=1) / math.sqrt(len(seeds))) if len(seeds) > 1 else math.nan

    def told(self, layer: int) -> bool:
        """Whether the score is beyond its control by more than twice its error."""
        error = self.error(layer)
        return bool(self.beyond[:, layer].mean() > 2 * (0 if math.isnan(error) else error))

    def sentence(self, layer: int) -> str:
        read = "the embedding alone" if layer == 0 else f"layers 0 to {layer}"
        right, control = (100 * each[:, layer].mean() for each in (self.right, self.control))
        error = self.error(layer)
        several = not math.isnan(error)
        more = f" ± {100 * error:.1f}" if several else ""
        seeds = f"{len(self.right)} seeds" if several else ""
        said = f"“{self.name}”, {read}: {right:.1f} % right, "
        if self.told(layer):
            said += f"{right - control:.1f}{more} points beyond the control of {control:.1f} %"
            said += f" ({seeds})." if several else "."
        else:
            apart = f"{right - control:+.1f}{more}".replace("-", "−") + (
                f", {seeds}" if several else ""
            )
            said += f"not told from the control of {control:.1f} % ({apart})."
        return f"{said} {self.where()}"

    def where(self) -> str:
        """Where the answer comes in, or why nothing can be said of it."""
        if not self.told(-1):
            return "With all layers it is at its control, so its place means nothing."
        come = (
            "no expected layer"
            if math.isnan(self.expected)
            else f"expected layer {two(self.expected)}"
        )
        mix = f"centre of gravity {self.centre:.2f}, K {self.divergence:.2f} nats"
        return f"{come[0].upper()}{come[1:]}, {mix}."


@dataclass(frozen=True)
class Study:
    """All questions of one model."""

    tasks: tuple[Task, ...]

    @property
    def layers(self) -> int:
        """The embedding and the layers."""
        return int(self.tasks[0].right.shape[1])

    @property
    def low(self) -> float:
        """Where the axis of all rows begins."""
        least = min(min(task.right.min(), task.control.min()) for task in self.tasks)
        return float(max(0.0, math.floor(10 * least) / 10))

    def order(self, by: str) -> list[int]:
        """The numbers of the tasks from the top; what has no expected layer comes last."""
        if by == ORDERS[0]:
            return list(range(len(self.tasks)))
        if by == ORDERS[1]:
            places = [task.expected if task.told(-1) else math.nan for task in self.tasks]
            keys = [math.inf if math.isnan(place) else place for place in places]
        else:
            keys = [-float(task.beyond[:, -1].mean()) for task in self.tasks]
        return sorted(range(len(keys)), key=lambda at: keys[at])

    def telling(self) -> tuple[int, int]:
        """The task and layer of the largest selectivity."""
        means = np.stack([task.beyond.mean(0) for task in self.tasks])
        task, layer = np.unravel_index(int(means.argmax()), means.shape)
        return int(task), int(layer)

    def sent(self) -> dict[str, Any]:
        """What the page is told."""
        return {
            "layers": self.layers,
            "low": self.low,
            "orders": {by: self.order(by) for by in ORDERS},
            "tasks": [
                {
                    "name": task.name,
                    "right": np.round(task.right, 4).tolist(),
                    "control": np.round(task.control.mean(0), 4).tolist(),
                    "expected": None if math.isnan(task.expected) or not task.told(-1)
                    else round(task.expected, 3),
                    "said": [task.sentence(layer) for layer in range(self.layers)],
                }
                for task in self.tasks
            ],
        }  # fmt: skip


def study_of(known: Any) -> Study:
    """The study of {task: what ``known_where`` found, or a list of it, one for each seed}."""
    given: Mapping[str, Any] = check_mapping("known", known, '{"brackets": known_where(…)}')
    if len(given) > MOST_TASKS:
        raise ValueError(
            f"`known` should hold at most {MOST_TASKS} tasks, got {len(given)}; show the others "
            "in a view of their own"
        )
    tasks = tuple(_task(_shown(name), each) for name, each in given.items())
    layers = {task.right.shape[1] for task in tasks}
    if len(layers) > 1 or max(layers) > MOST_LAYERS:
        raise ValueError(
            f"all tasks should be of one model of at most {MOST_LAYERS - 1} layers, got probes of "
            f"{' and '.join(map(str, sorted(layers)))} layers, the embedding counted"
        )
    return Study(tasks)


def _shown(name: object) -> str:
    """A name of words on one line, whatever it holds."""
    return " ".join(visible(word, 24) for word in str(name)[:32].split(" "))


def _task(name: str, given: Any) -> Task:
    seeds = [given] if isinstance(given, Known) else given
    if not isinstance(seeds, Sequence) or not seeds or not all(isinstance(s, Known) for s in seeds):
        raise TypeError(
            f"“{name}” should be what known_where found, or a list of it for several seeds, got "
            f"{type(given).__name__}"
        )
    if len({len(seed.trained.right) for seed in seeds}) > 1:
        raise ValueError(f"the seeds of “{name}” should have the same number of layers")
    last = [seed.trained.last for seed in seeds]
    return Task(
        name,
        np.stack([seed.trained.right.numpy() for seed in seeds]),
        np.stack([seed.control.numpy() for seed in seeds]),
        float(np.mean([seed.trained.expected_layer for seed in seeds])),
        float(np.mean([probe.centre_of_gravity for probe in last])),
        float(np.mean([probe.divergence for probe in last])),
    )
