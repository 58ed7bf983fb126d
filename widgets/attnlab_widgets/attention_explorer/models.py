"""The models that the explorers show: those that come with attnlab, and new ones of their size."""

import functools
from collections.abc import Mapping
from typing import Any

from attnlab import pretrained
from attnlab.catalog import cards
from attnlab.core.card import Card
from attnlab.lens.recorded_model import RecordedModel, new_model
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.copying import Copying
from attnlab.tasks.documentation import Documentation

REFERENCE = "documentation"
"""The shipped model whose vocabulary, size and text every other one takes."""
LANGUAGE, COPYING = "documentation", "copying"


def causal_cards() -> tuple[Card, ...]:
    """The cards that a causal language model can be built from."""
    return tuple(c for c in cards() if c.causal != "never" and c.role in ("attend", "mix"))


def shipped() -> dict[str, str]:
    """Mechanism → the pretrained text model that has it."""
    return {model.config["attention"]: name for name, (model, _) in _shipped_text().items()}


@functools.cache
def _shipped_text() -> dict[str, tuple[TinyTransformer, Documentation]]:
    loaded = {name: pretrained.load(name) for name in pretrained.names()}
    return {
        name: (model, task)
        for name, (model, task) in loaded.items()
        if isinstance(task, Documentation)
    }


def reference_model() -> tuple[TinyTransformer, Documentation]:
    """The shipped model whose options all others take, and its task; do not change it."""
    return _shipped_text()[REFERENCE]


@functools.cache
def copying() -> tuple[Mapping[str, Any], Copying]:
    """Options of a model that learns to copy letters in a few seconds, and that task."""
    problem = Copying(items=8, symbols=26)
    sizes = {"dim": 32, "layers": 2, "heads": 2, "hidden": 64}
    model = TinyTransformer(vocab=problem.vocab, max_len=problem.length, **sizes)
    return model.config, problem


def recorded_model(
    name: str, trained: bool, options: Mapping[str, Any], seed: int = 0, task: str = LANGUAGE
) -> RecordedModel:
    """The shipped weights, or a new model: as large as the shipped one, but for `options`."""
    if trained:
        model, _ = _shipped_text()[shipped()[name]]
        copy = new_model(name, model.config)
        copy.load_state_dict(model.state_dict())
        return RecordedModel(name, True, copy)
    config = reference_model()[0].config if task == LANGUAGE else copying()[0]
    return RecordedModel(name, False, new_model(name, {**config, **options}, seed))
