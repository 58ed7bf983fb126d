"""What ``WhatIsHidden.stored()`` shows: one text, read by encoders of several objectives.

    python -m tools.hidden_text       trains them, in some minutes, and writes the file

All encoders have the same size and begin with the same embeddings and layers. Each makes 600
updates of 16 windows of the Python documentation, at one rate that was tuned for none of them. At
some steps each is asked for its losses on the text, and in the end for its guesses. The text is in
no topic that is trained on.
"""

import json
from functools import cache
from typing import Any

import torch
from attnlab_widgets.what_is_hidden import STORED, told_of
from torch import nn

from attnlab import catalog
from attnlab.core.files import write_file
from attnlab.experiments.grid import by_fit, seeded
from attnlab.lens.objective_examples import Example, LossByPlace, draw
from attnlab.models.tiny import TinyTransformer
from attnlab.tasks.documentation import Documentation
from attnlab.train import model_options

OBJECTIVES = ("next_token", "prefix_lm", "masked_lm", "electra", "contrastive")
TEXT = "Lambda expressions (sometimes called lambda forms) are used to create"
STEPS = (1, 10, 30, 100, 200, 400, 600)
SIZES = {"dim": 48, "layers": 2, "heads": 4, "max_len": 128, "tie": False}


@cache
def text() -> Documentation:
    """The windows that are learned from."""
    return Documentation("bpe", 64, bpe_size=512)


def encoder(name: str) -> TinyTransformer:
    """A model of the kind that the objective trains, whose embeddings and layers do not depend on
    it: they are those of a token classifier that is drawn first."""
    with seeded(0):
        plain = TinyTransformer(**(model_options(text(), "masked_lm") | SIZES))
        vocab = {"vocab": text().vocab + 1}
        model = TinyTransformer(**(model_options(text(), name) | SIZES | vocab))
    drawn = {_place(key): value for key, value in plain.state_dict().items()}
    with torch.no_grad():
        for key, value in model.state_dict().items():
            if not key.startswith("output"):
                value.copy_(drawn[_place(key)])
    return model


def _place(name: str) -> str:
    return name.removeprefix("encoder.").removeprefix("decoder.")


def objective_of(name: str, model: nn.Module) -> Any:
    """The objective, with what it builds for the model, such as a generator or a head."""
    takes_vocab = "vocab" in catalog.with_role("objective")[name].option_names()
    given: dict[str, Any] = {"vocab": text().vocab} if takes_vocab else {}
    made: Any = catalog.build(name, **given)
    made.fitted(model)
    return made


def example_of(name: str, objective: Any) -> Example:
    """The draw of the text whose losses are kept."""
    return draw(name, objective, text().encode(TEXT), text().tokens(range(text().vocab)))


def write(learned: dict[str, Any], history: dict[str, Any]) -> None:
    """The file, of models that have learned."""
    told = told_of(learned, TEXT, text(), history, rest=False)
    write_file(STORED, json.dumps(told, ensure_ascii=False, separators=(",", ":")) + "\n")


def main() -> None:
    learned, history = dict[str, Any](), dict[str, Any]()
    for name in OBJECTIVES:
        model: Any = encoder(name)
        objective = objective_of(name, model)
        drawn = example_of(name, objective)
        watch = None if drawn.whole else LossByPlace(objective, drawn, STEPS)
        by_fit(
            model, text(), STEPS[-1], objective=objective, seed=0, batch_size=16,
            learning_rate=5e-3, callbacks=[] if watch is None else [watch],
        )  # fmt: skip
        learned[name] = (model, objective)
        if watch is not None:
            history[name] = watch.as_dict()
    write(learned, history)


if __name__ == "__main__":
    main()
