"""Small trained models that come with attnlab, whose heads can be looked at without training.

    model, task = attnlab.pretrained.load("documentation")

"documentation" and "induction" are language models; "digits" is a vision transformer that
classifies handwritten digits, with a patch for each of their 8 × 8 pixels.

Each file holds weights (half precision), the configuration and, where there is a text, its own
vocabulary; none is larger than 2 MB. ``python -m attnlab.pretrained NAME`` trains one again by the
recipe in ``attnlab.pretrained.recipes`` and writes the file. The text of "documentation" is that of
the Python that runs it, so another Python gives slightly different weights.
"""

from pathlib import Path

from attnlab.core.lazy import modules_of
from attnlab.core.suggest import choose
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks import Task

__getattr__ = modules_of(__name__)

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """The models that come with attnlab."""
    return sorted(path.stem for path in FOLDER.glob("*.safetensors"))


def load(name: str) -> tuple[TinyTransformer, Task]:
    """The trained model, ready to look at (eval mode, float32), and the task it was trained on.

    The task has the model's own vocabulary, not one made from this Python's documentation.
    """
    from attnlab.pretrained.recipes import RECIPES

    path = choose("pretrained model", name, {n: FOLDER / f"{n}.safetensors" for n in names()})
    model = TinyTransformer.load(path).float().eval()
    return model, RECIPES[name].task(model.extra.get("vocabulary", ""))
