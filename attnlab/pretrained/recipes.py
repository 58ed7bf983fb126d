"""How each shipped model was trained."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from attnlab.tasks import Task
from attnlab.tasks.digits import Digits
from attnlab.tasks.documentation import Documentation
from attnlab.tasks.induction import Induction


class Recipe(NamedTuple):
    """The task (given a vocabulary, or "" for a new one), the options of model and training."""

    task: Callable[[str], Task]
    model: Mapping[str, Any]
    training: Mapping[str, Any]


def _documentation(vocabulary: str) -> Task:
    if vocabulary:
        return Documentation.from_vocabulary(vocabulary, length=128)
    return Documentation("bpe", length=128, bpe_size=512)


RECIPES = {
    "digits": Recipe(
        lambda _: Digits(unit="patches", patch=1),
        model={"dim": 64, "layers": 3, "heads": 4, "hidden": 64, "dropout": 0.05}
        | {"position_options": {"std": 0.5}},  # with the usual 0.02, places are told apart late
        training={"steps": 1200, "batch_size": 32, "learning_rate": 4e-3, "weight_decay": 0.3},
    ),
    "documentation": Recipe(
        _documentation,
        model={"dim": 128, "layers": 4, "heads": 4, "dropout": 0.1},
        training={"steps": 2000, "batch_size": 16, "learning_rate": 2e-3, "weight_decay": 0.1},
    ),
    "induction": Recipe(
        lambda _: Induction(),
        model={"dim": 64, "layers": 2, "heads": 2},
        training={"steps": 1000, "batch_size": 32, "learning_rate": 2e-3},
    ),
}
