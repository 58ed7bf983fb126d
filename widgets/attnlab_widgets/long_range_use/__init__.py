"""Whose loss changes when the far context is changed?

    study = far_context(model, tokens, last=64, distances=(32, 64, 128, 256))
    LongRangeUse(study, decode)                                # one model
    LongRangeUse({"full": study, "window": other}, decode)     # several, of the same tokens

The text with its far part tinted, the measured tokens coloured by how much their loss changed, and
the mean change of each class of tokens against the distance. ``attnlab.lens.far_context`` measures
and defines all of it; nothing is computed here, so a saved file stays alive.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import traitlets

from attnlab.core.arguments import check_mapping
from attnlab.figures.drawing import Drawing
from attnlab.figures.labels import visible
from attnlab.lens.far_context import CLASSES, PERTURBATIONS, FarContext
from attnlab_widgets.base import STATIC, BaseWidget, Checked, Choice
from attnlab_widgets.long_range_use.picture import picture

MOST_MODELS, MOST_TEXTS, MOST_TOKENS = 6, 16, 1024
STEP = 1e-3
"""Losses and their changes of single tokens are sent in steps of a thousandth of a nat."""
CHANGED = {
    "cut": "is left out",
    "shuffle": "is shuffled",
    "replace": "is replaced by another text",
    "random": "is replaced by random tokens",
}

Names = Callable[[list[int]], Sequence[str]]


class LongRangeUse(BaseWidget):
    """What models lose when the text beyond a distance is changed.

    ``studies``       what ``far_context`` returned, or up to six such by the names of their models;
                      of the same tokens, distances and perturbations
    ``names``         a function from a list of token numbers to their texts, such as the ``tokens``
                      of a task; the numbers themselves unless given
    ``perturbation``  "cut", "shuffle", "replace" or "random", whichever was measured
    ``distance``      one of those measured
    ``model``         whose losses colour the text, and whose classes are compared
    ``token_class``   the class in which models are compared
    ``lines``         what the curves compare: the "classes" of one model, or the "models" in one
                      class
    ``text``          the sequence that is shown, of the first sixteen
    ``token``         the measured token that is read out, counted from the first one

    All but the studies and the names can be set.
    """

    _esm = STATIC / "long_range_use.js"

    models: Any = Checked(read_only=True).tag(sync=True)
    perturbations: Any = Checked(read_only=True).tag(sync=True)
    distances: Any = Checked(read_only=True).tag(sync=True)
    perturbation = Choice(PERTURBATIONS, "cut").tag(sync=True)
    distance = traitlets.Int(0).tag(sync=True)
    model = traitlets.Unicode("").tag(sync=True)
    token_class = Choice(CLASSES, "far").tag(sync=True)
    lines = Choice(("classes", "models"), "classes").tag(sync=True)
    text = traitlets.Int(0).tag(sync=True)
    token = traitlets.Int(0).tag(sync=True)
    _texts: Any = traitlets.List().tag(sync=True)  # of each different token
    _tokens = traitlets.Bytes().tag(sync=True)  # (texts, n) into _texts
    _size: Any = traitlets.List().tag(sync=True)  # texts, n, last
    _intact = traitlets.Bytes().tag(sync=True)  # (models, texts, last)
    _differences = traitlets.Bytes().tag(sync=True)  # (models, distances, perturbations, …)
    _members = traitlets.Bytes().tag(sync=True)  # (distances, texts, last): a bit for each class
    _count: Any = traitlets.List().tag(sync=True)  # classes × distances
    _means = traitlets.Bytes().tag(sync=True)  # (models, classes, distances, perturbations)
    _errors = traitlets.Bytes().tag(sync=True)

    def __init__(
        self,
        studies: FarContext | Mapping[str, FarContext],
        names: Names | None = None,
        *,
        perturbation: str | None = None,
        distance: int | None = None,
        model: str | None = None,
        token_class: str = "far",
        lines: str = "classes",
        text: int = 0,
        token: int = 0,
        theme: str = "auto",
    ) -> None:
        found = {"the model": studies} if isinstance(studies, FarContext) else studies
        self._studies = _check_studies(found)
        first = self._first = next(iter(self._studies.values()))
        tokens = first.tokens[:MOST_TEXTS].cpu()
        kinds, ids = tokens.unique(return_inverse=True)
        numbers = kinds.tolist()
        shown = [*map(str, numbers)] if names is None else [*map(visible, names(numbers))]
        if len(shown) != len(numbers):
            raise ValueError(
                f"`names` should return one text for each token it is given, {len(numbers)}, "
                f"got {len(shown)}"
            )
        tables = [one.table() for one in self._studies.values()]
        size = [*tokens.shape, first.intact.shape[1]]
        super().__init__(_texts=shown, _size=size, theme=theme)
        self._tokens = ids.numpy().astype("<u2").tobytes()
        every = self._studies.values()
        self._intact = _steps([one.intact[:MOST_TEXTS] for one in every])
        self._differences = _steps([one.differences[:, :, :MOST_TEXTS] for one in every])
        self._members = _bits(first.members[:, :, :MOST_TEXTS])
        self._count = tables[0].counts.tolist()
        self._means = _floats([one.difference for one in tables])
        self._errors = _floats([one.error for one in tables])
        self.set_trait("models", [*self._studies])
        self.set_trait("perturbations", [*first.perturbations])
        self.set_trait("distances", [*first.distances])
        middle = first.distances[(len(first.distances) - 1) // 2]
        self.distance = middle if distance is None else distance
        self.perturbation = perturbation or first.perturbations[0]
        self.model = model or self.models[0]
        self.token_class, self.lines, self.text, self.token = token_class, lines, text, token

    # What follows from the state

    @property
    def study(self) -> FarContext:
        """The study of the present model."""
        return self._studies[self.model]

    def curve(self, name: str) -> list[tuple[int, float, float]]:
        """(distance, mean change, standard error) of a class of the present model, or, if
        ``lines`` is "models", of a model in the present class."""
        owner, of_class = (name, self.token_class)
        if self.lines == "classes":
            owner, of_class = self.model, name
        if owner not in self._studies or of_class not in CLASSES:
            known = CLASSES if self.lines == "classes" else self.models
            raise ValueError(f"a curve is one of {', '.join(known)}, got {name!r}")
        table = self._studies[owner].table()
        at = CLASSES.index(of_class), slice(None), self.perturbations.index(self.perturbation)
        ends = (values[at].float().tolist() for values in (table.difference, table.error))
        return [*zip(self.distances, *ends, strict=True)]

    @property
    def names(self) -> list[str]:
        """What the curves are called."""
        return [*(CLASSES if self.lines == "classes" else self.models)]

    def description(self) -> str:
        """What is seen, in a sentence or two."""
        at = self.distances.index(self.distance)
        parts = []
        for name in self.names:
            _, mean, error = self.curve(name)[at]
            spread = "" if np.isnan(error) else f" ± {error:.3f}"
            parts.append(f"{name} {'none' if np.isnan(mean) else f'{mean:+.3f}{spread}'}")
        where = f"of {self.model}, by class of token"
        if self.lines == "models":
            where = f"on tokens of the class “{self.token_class}”, by model"
        return (
            f"If the text farther than {self.distance} tokens away {CHANGED[self.perturbation]}, "
            f"the loss {where}, changes by (nats): {', '.join(parts)}."
        )

    def still(self) -> Drawing:
        """The curves, and the text around the measured tokens."""
        return picture(self)

    def __repr__(self) -> str:
        return f"LongRangeUse: {self.description()}"

    # What may be set

    @traitlets.validate("perturbation", "distance", "model")
    def _was_measured(self, proposal: Any) -> Any:
        name, value = proposal["trait"].name, proposal["value"]
        known = getattr(self, f"{name}s")
        if value not in known:
            wanted = f"`{name}` should be one of {', '.join(map(str, known))}"
            raise traitlets.TraitError(f"{wanted}, got {value!r}")
        return value

    @traitlets.validate("text", "token")
    def _in_range(self, proposal: Any) -> int:
        name, value = proposal["trait"].name, proposal["value"]
        most = self._size[0 if name == "text" else 2] - 1
        if not 0 <= value <= most:
            raise traitlets.TraitError(f"`{name}` should be 0 to {most}, got {value}")
        return int(value)


def _check_studies(given: Any) -> dict[str, FarContext]:
    found = dict(check_mapping("studies", given, '{"full": far_context(model, tokens, …)}'))
    if len(found) > MOST_MODELS:
        raise ValueError(f"`studies` should be at most {MOST_MODELS}, got {len(found)}")
    for name, study in found.items():
        if not isinstance(study, FarContext):
            raise TypeError(
                f"`studies` should hold what attnlab.lens.far_context.far_context returns; that of "
                f"{name!r} is a {type(study).__name__}"
            )
    first, *others = found.values()
    if first.tokens.shape[1] > MOST_TOKENS:
        raise ValueError(
            f"texts should be of at most {MOST_TOKENS} tokens, got {first.tokens.shape[1]}"
        )
    for name, study in zip([*found][1:], others, strict=True):
        if not _alike(first, study):
            raise ValueError(
                f"all models should be measured on the same tokens, distances, perturbations and "
                f"classes; {name!r} was not"
            )
    return found


def _alike(a: FarContext, b: FarContext) -> bool:
    settings = a.distances == b.distances and a.perturbations == b.perturbations
    same = a.tokens.shape == b.tokens.shape and torch.equal(a.tokens, b.tokens)
    return (
        settings
        and same
        and a.members.shape == b.members.shape
        and torch.equal(a.members, b.members)
    )


def _steps(values: list[torch.Tensor]) -> bytes:
    """Whole steps in 16 bits each: up to 32 nats."""
    stacked = torch.stack([one.cpu().double() for one in values]).numpy()
    return np.clip(np.rint(stacked / STEP), -32767, 32767).astype("<i2").tobytes()


def _floats(values: list[torch.Tensor]) -> bytes:
    return torch.stack(values).cpu().numpy().astype("<f4").tobytes()


def _bits(members: torch.Tensor) -> bytes:
    places = 2 ** torch.arange(len(members))[:, None, None, None]
    return (members.cpu().long() * places).sum(0).numpy().astype("u1").tobytes()
