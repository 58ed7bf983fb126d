"""Interleaved texts: what a model learns that reads words and images together from the start.

One system (``attnlab.systems.frozen.WithImages``, of the sizes of ``words_for_images``) is trained
from nothing, language model and image encoder together. (KOSMOS-1 trains its language model from
nothing, too; of its image encoder, a CLIP that was trained before, only the last layer.) Sentences
are those of ``attnlab.tasks.interleaved``: text is all six kinds in words; captions are images with
"this is a four"; interleaved are two images with "the larger is nine". All kinds are then asked
about images, and also those which no arm but the last has ever read about images: among them matrix
puzzles, where eight images are shown and the likeliest of ten words is the answer. What an answer
is compared with is the most frequent one (``words_for_images.most_frequent``).

    text, captions, interleaved    four sentences of ten are text, the others have images
    text and captions              no sentence compares two images
    captions and interleaved       no text
    black images                   the first arm, and every image is black
    puzzles too                    the first arm, and a third of what has images are puzzles

Each arm has 2,400 updates of 32 sentences at a learning rate of 0.003 for each of three seeds; no
other rate was tried, for no arm. Puzzles are also asked with some panels black. In "next, last row
hidden" these are the seventh and the eighth, without which no answer can be known: a model that is
right as often as before has not read them. In "next, first rows hidden" they are the six before.
All three rows go on by one step, so that the last row alone gives the answer, and a model that
solves every puzzle may lose nothing. One that loses something may have read the step in the first
rows, or six black images may disturb it, which no training shows: these rows do not say whether a
rule was found.

Sentences that compare images help to compare them: with these, "larger" is right for 69.5 % of the
sentences about images, without them for 49.5 %, 20.1 points less (standard error of the difference
over seeds 6.5), though the arm without them names more images. Puzzles about images are solved by
the arm alone that has read some: it is right for 60.0, 43.2 and 65.4 %, and for 13 to 14 % with the
last row hidden, the others for at most 16.8 %, where the most frequent answer has 15.0 %. After 800
updates the arms with text and images that are not black named 11 to 76 % of the images, and none
solved puzzles about images (at most 20.6 %); with sentences that compare images "larger" was right
for 16.6 points (6.3) more.

    python -m attnlab.experiments interleaved_texts --threads 1 --json \\
        attnlab/experiments/assets/91_interleaved_texts.json

S. Huang and others. Language Is Not All You Need: Aligning Perception with Language Models. NeurIPS
2023, arXiv:2302.14045.
"""

from typing import Any

import torch

from attnlab.experiments import words_for_images
from attnlab.experiments.grid import Arm, Grid, Scores, Trained
from attnlab.experiments.words_for_images import KINDS, TEXT, TRAINING, asked, make, right
from attnlab.tasks import Batch
from attnlab.tasks.interleaved import Interleaved

SHARE = 0.6
HIDDEN = {"first rows": range(6), "last row": range(6, 8)}
"""Which of the eight panels are black. Without the last row no answer can be known; without the
first ones every answer can."""
TOGETHER = Interleaved(written=KINDS, shown=("is", "larger"), share=SHARE)


def hidden(batch: Batch, panels: range, patches: int) -> Batch:
    """The puzzles with some panels black."""
    assert batch.source is not None
    images = batch.source.unflatten(1, (-1, patches)).clone()
    images[:, list(panels)] = 0
    return Batch(
        batch.inputs, batch.targets, batch.padding,
        source=images.flatten(1, 2), source_padding=batch.source_padding,
    )  # fmt: skip


@torch.no_grad()
def score(trained: Trained) -> Scores:
    """Each kind of sentence about images and in words, and puzzles with panels hidden."""
    model: Any = trained.model
    puzzles = asked("next")
    covered = {
        f"next, {name} hidden": right(model, "next", hidden(puzzles, panels, TEXT.patches))
        for name, panels in HIDDEN.items()
    }
    return {**words_for_images.score(trained), **covered}


GRID = Grid(
    arms={
        "text, captions, interleaved": Arm(TOGETHER),
        "text and captions": Arm(Interleaved(written=KINDS, shown=("is",), share=SHARE)),
        "captions and interleaved": Arm(Interleaved(shown=("is", "larger"))),
        "black images": Arm(TOGETHER, model={"blind": True}),
        "puzzles too": Arm(Interleaved(written=KINDS, shown=("is", "larger", "next"), share=SHARE)),
    },
    score=score,
    steps=2_400,
    model={"freeze": False},
    training=TRAINING,
    make=make,
)

build, train, rows, batches = GRID.build, GRID.train, GRID.rows, GRID.batches
