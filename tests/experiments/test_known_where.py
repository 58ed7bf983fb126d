"""Known where: what is stored is told again, and the model is the one that is shipped."""

import torch

from attnlab import pretrained
from attnlab.experiments import known_where as experiment
from attnlab.experiments import stored
from attnlab.lens.edge_probes import Cumulative, EdgeProbed
from attnlab.lens.known_where import Known
from attnlab.tasks.asked_spans import DOCUMENTATION


def test_rows_are_read_as_they_were_told() -> None:
    made = torch.Generator().manual_seed(0)

    def curve() -> Cumulative:
        right = torch.rand(5, generator=made, dtype=torch.float64)
        first = torch.randint(6, (31,), generator=made)
        shares = torch.rand(5, generator=made, dtype=torch.float64).softmax(0)
        return Cumulative(right, first, EdgeProbed(float(right[-1]), first, shares))

    known, rows = {}, {}
    for question in DOCUMENTATION:
        for seed in experiment.SEEDS:
            one = known[question, seed] = Known(curve(), curve(), curve())
            told = experiment._told(one)
            rows |= {
                f"{question}, {what}, documentation, seed {seed}": value[0]
                if isinstance(value, tuple)
                else value
                for what, value in told.items()
            }
    for question, seeds in experiment.found(rows).items():
        for seed, read in zip(experiment.SEEDS, seeds, strict=True):
            one = known[question, seed]
            assert torch.allclose(read.trained.right, one.trained.right, atol=1e-4)
            assert torch.allclose(read.selectivity, one.selectivity, atol=2e-4)
            assert torch.allclose(read.trained.last.shares, one.trained.last.shares, atol=1e-4)
            right = one.trained.first_layer[one.trained.first_layer < 5]
            assert torch.equal(read.trained.first_layer, right.sort().values)


def test_every_question_is_stored() -> None:
    found = experiment.found(stored("68_known_where.json", "known_where"))
    assert list(found) == list(DOCUMENTATION)
    for seeds in found.values():
        for known in seeds:
            assert abs(float(known.trained.last.shares.sum()) - 1) < 1e-3
            assert abs(known.trained.last.right - known.trained.right[-1]) < 1e-6


def test_the_model_is_the_shipped_one() -> None:
    model, history = experiment.GRID.train("documentation", 1, steps=1)
    assert history is None
    wanted = pretrained.load("documentation")[0].state_dict()
    assert all(torch.equal(own, wanted[name]) for name, own in model.state_dict().items())
