"""``python -m attnlab.pretrained NAME``: train a shipped model again and write its file."""

import argparse
from pathlib import Path

import torch

from attnlab import train
from attnlab.core.files import checked_place
from attnlab.core.suggest import choose
from attnlab.models.tiny import TinyTransformer
from attnlab.pretrained import FOLDER
from attnlab.pretrained.recipes import RECIPES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m attnlab.pretrained", description=__doc__)
    parser.add_argument("name", choices=RECIPES)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the file goes")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    try:
        make(chosen.name, chosen.folder, chosen.seed)
    except OSError as error:
        parser.error(str(error))


def make(name: str, folder: Path, seed: int) -> Path:
    """Train by the recipe and write ``folder/name.safetensors`` in half precision."""
    recipe = choose("pretrained model", name, RECIPES)
    path = checked_place(folder / f"{name}.safetensors")  # before it takes minutes
    task = recipe.task("")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = TinyTransformer(**task.model_options(), **recipe.model)
    train.fit(model, task, **recipe.training, seed=seed, evaluate_every=250)
    score = train.evaluate(model, task, batches=32)
    extra = {"validation_loss": f"{score.loss:.3f}", "validation_accuracy": f"{score.accuracy:.3f}"}
    vocabulary = getattr(task, "vocabulary", "")
    model.half().save(path, extra | ({"vocabulary": vocabulary} if vocabulary else {}))
    return path


if __name__ == "__main__":
    main()
