"""Cramming: models of several widths, each trained for the same 30 seconds of the clock.

The models, the text, the batches of 16 windows, the learning rates and the score are those of
``attnlab.experiments.scaling``: two layers of width 16 to 128 that predict the next byte. There
each width has a number of updates; here each has 30 seconds, and the rate rises and falls with the
clock (``attnlab.train.equal_time``). The five models of a seed take turns, so that whatever else
the machine does slows all of them alike. How many updates fit into the budget says the machine; a
faster one, or one that does nothing else, would take more.

Rows are the loss on unseen bytes, the updates, the seconds by the clock, and those of the
processor, which tell how much of the machine this training had. Lesson 72 draws what

    python -m attnlab.experiments cramming --threads 1 --json \\
        attnlab/experiments/assets/72_cramming.json

has written; rows that the file holds are not trained again. The same widths after 200 and 400
updates each stand in ``72_scaling.json``.

Geiping, Goldstein. Cramming: Training a Language Model on a Single GPU in One Day. ICML 2023,
arXiv:2212.14034.
"""

from attnlab.experiments import scaling
from attnlab.experiments.grid import BySeed
from attnlab.measure.report import Row
from attnlab.train import evaluate
from attnlab.train.equal_time import fit_for

SECONDS = 30
WIDTHS = (16, 32, 48, 64, 128)
QUICK = 0.05  # seconds of a quick run


def measured(seed: int, seconds: float, *, quick: bool = False) -> list[Row]:
    """All models of a seed, trained for so many seconds each."""
    arms = {width: f"width {width}, {scaling.STEPS[1]}" for width in (*scaling.WIDTHS, 128)}
    models = {str(width): scaling.build(arms[width], seed) for width in WIDTHS}
    options = {str(width): scaling.ARMS[arms[width]].training for width in WIDTHS}
    found = fit_for(
        seconds, models, scaling.text(), options=options, batch_size=scaling.BATCH, seed=seed
    )
    rows = list[Row]()
    for width, spent in found.items():
        batches, size = scaling.UNSEEN
        model = models[width].eval()
        unseen = evaluate(model, scaling.text(), batches=1 if quick else batches, batch_size=size)
        told = {
            "loss": (round(unseen.loss, 4), "nats per byte"),
            "updates": (float(spent.updates), ""),
            "by the clock": (round(spent.seconds, 2), "s"),
            "of the processor": (round(spent.processor, 2), "s"),
        }
        rows += [
            Row(f"width {width}, {what}, seed {seed}", value, unit)
            for what, (value, unit) in told.items()
        ]
    return rows


_BY_SEED = BySeed(lambda seed, quick: measured(seed, QUICK if quick else SECONDS, quick=quick))
rows, batches = _BY_SEED.rows, _BY_SEED.batches
