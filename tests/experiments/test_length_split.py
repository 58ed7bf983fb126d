"""SCAN's longer commands: scales at the start, what is asked, and the two ways of counting."""

import pytest
import torch
from torch.nn import functional as F

from attnlab.experiments import length_split as split
from attnlab.tasks import Batch
from attnlab.tasks.scan import END, Scan, actions

RATIOS = {"none": 2**0.5, "up": (4 * 64 / (21 + 64)) ** 0.5, "down": 2.0}


@pytest.mark.parametrize("scale", split.SCALES)
def test_tokens_beside_sinusoids_at_the_start(scale):
    found = split.ratio(split.build(scale))
    assert found == pytest.approx(RATIOS[scale], rel=0.06)


def test_relative_positions_add_nothing_to_tokens():
    model = split.build("relative")
    assert model.positions is None


def test_what_is_asked_was_not_trained_on():
    trained = set(split.TASK.commands("train"))
    for lengths, least, most in (("known lengths", 1, 26), ("longer", 27, 48)):
        batch = split.questions(lengths)
        assert len(batch) == split.ASKED
        said = {
            " ".join(split.TASK.tokens(row[real]))
            for row, real in zip(batch.source, batch.source_padding, strict=True)
        }
        assert len(said) == split.ASKED
        assert not said & trained
        counts = [len(actions(each)) for each in said]
        assert min(counts) >= least
        assert max(counts) <= most


class Planted(torch.nn.Module):
    """Right tokens everywhere but where ``wrong`` says {(row, place): token}; END comes second."""

    def __init__(self, batch, wrong):
        super().__init__()
        said = batch.targets.clamp(min=0).clone()
        for at, token in wrong.items():
            said[at] = token
        self.logits = 2.0 * F.one_hot(said, Scan().vocab)
        right = F.one_hot(batch.targets.clamp(min=0), Scan().vocab)
        self.logits = self.logits + right  # second to what is planted

    def forward(self, *_, **__):
        return self.logits


def test_right_answers_forced_ends_and_early_ends():
    batch = Scan().of(["jump twice", "walk", "look thrice", "run left", "turn left"])
    look = split.TASK.tokens(range(21)).index("LOOK")
    wrong = {(0, 1): END, (2, 1): look + 1, (2, 2): END, (3, 2): look, (4, 0): END}
    found = split.answers(Planted(batch, wrong), batch)
    assert found.right.tolist() == [False, True, False, False, False]
    assert found.forced.tolist() == [True, True, False, True, True]
    assert found.early.tolist() == [True, False, False, False, True], "only as the first mistake"


def test_one_pass_tells_what_greedy_decoding_writes():
    torch.manual_seed(1)
    model = split.build("relative").eval()
    model.output.weight.data *= 20
    own = split.TASK.of(["turn left"])
    given = {"source": own.source, "source_padding": own.source_padding}
    said = own.inputs[:, :1]
    for _ in range(7):
        logits = model(said, **given)
        said = torch.cat([said, logits[:, -1:].argmax(-1)], dim=1)
    whole = torch.ones(1, 7, dtype=torch.bool)
    batch = Batch(said[:, :-1], said[:, 1:], whole, **given)
    assert split.answers(model, batch).right.all()
    other = said[:, 1:].clone()
    other[0, 4] = (other[0, 4] + 1) % 21
    assert not split.answers(model, Batch(said[:, :-1], other, whole, **given)).right.any()
