"""What ``WhatIsHidden.stored()`` shows: one text, read by encoders of several objectives.

    python -m tools.hidden_text       trains them, in some minutes, and writes the file

They are those of ``attnlab.experiments.what_is_hidden`` with seed 0. At some steps each is asked
for its losses on the text, and in the end for its guesses. The text is in no topic that is trained
on.
"""

import json
from typing import Any

from attnlab_widgets.what_is_hidden import STORED, told_of

from attnlab.core.files import write_file
from attnlab.experiments import what_is_hidden as experiment
from attnlab.experiments.grid import by_fit
from attnlab.lens.objective_examples import Example, LossByPlace, draw

TEXT = "Lambda expressions (sometimes called lambda forms) are used to create"
STEPS = (1, 10, 30, 100, 300, 600, 1000)


def objective_of(name: str, model: Any) -> Any:
    """The objective, with what it builds for the model, such as a generator or a head."""
    made: Any = experiment.objective_of(name)
    made.fitted(model)
    return made


def example_of(name: str, objective: Any) -> Example:
    """The draw of the text whose losses are kept."""
    task = experiment.text()
    return draw(name, objective, task.encode(TEXT), task.tokens(range(task.vocab)))


def write(learned: dict[str, Any], history: dict[str, Any]) -> None:
    """The file, of models that have learned."""
    told = told_of(learned, TEXT, experiment.text(), history, rest=False)
    write_file(STORED, json.dumps(told, ensure_ascii=False, separators=(",", ":")) + "\n")


def main() -> None:
    learned, history = dict[str, Any](), dict[str, Any]()
    for name in experiment.OBJECTIVES:
        model: Any = experiment.build(name)
        objective = objective_of(name, model)
        drawn = example_of(name, objective)
        watch = None if drawn.whole else LossByPlace(objective, drawn, STEPS)
        callbacks = [] if watch is None else [watch]
        by_fit(
            model, experiment.text(), experiment.STEPS, callbacks=callbacks, objective=objective,
            batch_size=experiment.BATCH, learning_rate=experiment.RATES[name], seed=0,
        )  # fmt: skip
        learned[name] = (model, objective)
        if watch is not None:
            history[name] = watch.as_dict()
    write(learned, history)


if __name__ == "__main__":
    main()
