"""Kept: what lessons have trained before, so that nobody has to wait for all of it.

    kept = Kept("14")
    model = kept.trained("separate, seed 1", model, train)  # loads its weights

A lesson trains some of its models in view. The others, which the same function trains from other
seeds or with other options, have their weights here, in half precision, one file a lesson, none
larger than 2 MB. ``Kept("14", anew=True)`` trains them, too, and

    python -m tools.kept notebooks/14_reformer_hashing.ipynb

writes the file again: it runs the lesson with all trainings.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from attnlab.core.suggest import choose
from attnlab.models.storage import load_tensors, save_tensors

FOLDER = Path(__file__).parent / "lessons"
Model = TypeVar("Model", bound=nn.Module)


class Kept:
    """The trained models of a lesson, which is named by its two digits, and their scores.

    anew: train every model and measure every score instead of loading it. Nothing is written.
    """

    def __init__(self, lesson: str, *, anew: bool = False) -> None:
        files = {path.stem: path for path in FOLDER.glob("*.safetensors")}
        self.lesson, self.anew = lesson, anew
        self._found: dict[str, Tensor] = (
            {} if anew else load_tensors(choose("lesson with kept models", lesson, files))
        )

    @property
    def names(self) -> list[str]:
        """What can be asked for."""
        return list(dict.fromkeys(name.split("/")[0] for name in self._found))

    def trained(self, name: str, model: Model, train: Callable[[Model], object]) -> Model:
        """The model, ready to be asked (eval mode), with the weights that it had after its
        training; ``train`` is called only if it is trained anew. Its initial weights do not matter
        otherwise.

        Raises ValueError if no such model is kept, or if its weights do not fit.
        """
        if self.anew:
            train(model)
            state = {f"{name}/{key}": _half(value) for key, value in model.state_dict().items()}
            self._found |= state
            return model.eval()
        choose(f"kept model of lesson {self.lesson}", name, dict.fromkeys(self.names))
        own = {k.split("/", 1)[1]: v for k, v in self._found.items() if k.startswith(f"{name}/")}
        try:
            model.load_state_dict(own)
        except RuntimeError as error:
            raise ValueError(
                f"the weights of {name!r} do not fit this model; was the lesson's model changed? "
                f'Kept("{self.lesson}", anew=True) trains it. ({error})'
            ) from error
        return model.eval()

    def number(self, name: str, measure: Callable[[], float]) -> float:
        """A score of a model that is trained for nothing else; ``measure`` is called only if it is
        measured anew.

        Raises ValueError if no such number is kept.
        """
        if self.anew:
            self._found[name] = torch.tensor(measure(), dtype=torch.float64)
        return choose(f"kept number of lesson {self.lesson}", name, self._found).item()

    def save(self, path: str | Path | None = None) -> Path:
        """Writes what was trained anew to the lesson's own file, or to another place."""
        path = Path(path or FOLDER / f"{self.lesson}.safetensors")
        save_tensors(self._found, path, {})
        return path


def _half(value: Tensor) -> Tensor:
    kept = value.detach().cpu().contiguous().clone()
    return kept.half() if kept.is_floating_point() else kept
