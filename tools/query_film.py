"""What ``QueriesView.stored()`` shows: queries of a Q-Former while it learns.

    python -m tools.query_film       trains it, in about a minute, and writes the file

It is the arm "three losses" of ``attnlab.experiments.queries_and_losses`` with seed 0, looked at
after some updates while it reads the first unseen scenes, each of two digits that differ.
"""

import json
from typing import Any

import torch
from attnlab_widgets.queries_view.film import FILE, Film

from attnlab.core.files import write_file
from attnlab.experiments import queries_and_losses as experiment
from attnlab.experiments.grid import QUICK
from attnlab.lens.watch import watch
from attnlab.tasks.digits import LEVELS, SIDE, from_patches
from attnlab.tasks.scenes import WIDTH

STEPS = (0, 25, 50, 100, 200, 400)
SCENES = 3


def filmed(steps: tuple[int, ...] = STEPS, scenes: int = SCENES) -> Film:
    """Weights of every layer in which queries attend to the image."""
    given = experiment.asked("validation", 10 * scenes)
    shown = given.scenes[given.digits[:, 0] != given.digits[:, 1]][:scenes]
    sees = experiment.learned("encoder", 0, quick=max(steps) <= QUICK)
    models: dict[int, Any] = dict(experiment.FIRST.film("three losses", 0, steps=steps))
    seen = {}
    with torch.no_grad():
        for step, model in models.items():
            model.encoder.load_state_dict(sees)  # the first of the film has not been given it yet
            with watch(model.qformer) as records:
                model.qformer.read(model.see(shown))
            seen[step] = {
                f"layer {layer}": experiment.crossing(records, layer)
                for layer in experiment.CROSSES
            }
    patch = experiment.SCENES.patch
    images = from_patches(shown.numpy(), patch, WIDTH) / (LEVELS - 1)
    return Film(seen, images, (SIDE // patch, WIDTH // patch))


def main() -> None:
    text = json.dumps(filmed().written(), separators=(",", ":"))
    write_file(FILE, text + "\n")


if __name__ == "__main__":
    main()
