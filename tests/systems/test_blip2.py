"""BLIP-2's first stage: three losses by hand, wrong partners, what is frozen and what learns."""

import copy
import math

import pytest
import torch
from torch.nn import functional as F
from transformers import Blip2QFormerConfig, Blip2QFormerModel

from attnlab.models.tiny import TinyTransformer
from attnlab.objectives.asked import kept
from attnlab.objectives.batches import UNSCORED
from attnlab.systems.blip2 import (
    LOSSES,
    FirstStage,
    ThreeLosses,
    equal_texts,
    pairs,
    smoothed,
)
from attnlab.systems.qformer_layers import QFormerOptions
from attnlab.tasks import Batch, task
from attnlab.tasks.captions import Captions
from attnlab.train import fit

SIZES = QFormerOptions(dim=24, layers=3, heads=3, hidden=40, queries=3, image_dim=16, max_len=7)
CAPTIONS = Captions(patch=4)


@pytest.fixture
def encoder() -> TinyTransformer:
    options = task("scenes", patch=4).model_options()
    return TinyTransformer(**options, dim=16, heads=2, layers=1, dropout=0.5)


@pytest.fixture
def stage(encoder) -> FirstStage:
    torch.manual_seed(0)
    made = FirstStage(encoder, CAPTIONS.vocab, SIZES, shared=10)
    with torch.no_grad():
        for p in made.qformer.parameters():
            p.mul_(1.5)
    return made


def asked_of(objective, size=11, seed=0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return objective.prepare(CAPTIONS.batch("train", size, seed=seed), generator)


def test_the_three_losses_by_hand(stage):
    """Row by row, by the equation with its mask, without what is computed once for two losses."""
    objective = ThreeLosses()
    batch = asked_of(objective)
    answers = objective.answers(stage, batch)
    found = objective.each(answers, batch)
    image, tokens, b = stage.see(batch.source), batch.inputs, len(batch)
    apart = stage.qformer(image, tokens, mask="apart")
    s = torch.zeros(b, b)
    for i in range(b):
        for j in range(b):
            z, t = stage.of_image(apart.queries[i]), stage.of_text(apart.text[j, 0])
            s[i, j] = F.cosine_similarity(z, t[None], dim=-1).max() / stage.temperature
    torch.testing.assert_close(answers.similarities, s)
    if not answers.same.any():
        own = torch.arange(b)
        both = [F.cross_entropy(each, own, label_smoothing=0.1) for each in (s, s.T)]
        torch.testing.assert_close(found["contrastive"], sum(both) / 2)
    rows, belongs = pairs(s, answers.same, kept(batch, "noise"))
    of_image, of_text = rows.T
    together = stage.qformer(image[of_image], tokens[of_text], mask="together")
    logits = stage.match(together.queries).mean(1)
    torch.testing.assert_close(found["matching"], F.cross_entropy(logits, belongs))
    begun = tokens.clone()
    begun[:, 0] = CAPTIONS.vocab
    captioning = stage.qformer(image, begun, mask="captioning").text
    table = stage.qformer.table.weight
    words = (stage.before_words(captioning) @ table.T + stage.word_bias)[..., : CAPTIONS.vocab]
    wanted = F.cross_entropy(words.flatten(0, 1), kept(batch, "words").flatten())
    torch.testing.assert_close(found["captioning"], wanted)
    torch.testing.assert_close(objective.loss(answers, batch), sum(found.values()) * b)


def test_the_first_batch_has_no_equal_captions():
    """Or the contrastive loss above would not be compared with PyTorch's."""
    assert not equal_texts(asked_of(ThreeLosses())).any()


def test_equal_texts_are_no_wrong_answers():
    s = torch.tensor([[2.0, 1.0, 3.0], [0.5, 1.5, 0.0], [1.0, 0.0, 2.5]])
    same = torch.zeros(3, 3, dtype=torch.bool)
    plain = F.cross_entropy(s, torch.arange(3), label_smoothing=0.1)
    torch.testing.assert_close(smoothed(s, same), plain)
    same[0, 2] = same[2, 0] = True
    rows = [s[0, :2].log_softmax(-1), s[1].log_softmax(-1), s[2, 1:].log_softmax(-1)]
    own = (rows[0][0], rows[1][1], rows[2][1])
    wanted = -sum(0.9 * p + 0.1 * row.mean() for p, row in zip(own, rows, strict=True)) / 3
    torch.testing.assert_close(smoothed(s, same), wanted)


def test_texts_are_equal_whatever_stands_behind_their_end():
    tokens = torch.tensor([[1, 2, 9], [1, 2, 5], [1, 3, 9], [1, 2, 9]])
    padding = torch.tensor([[True, True, False]] * 3 + [[True] * 3])
    found = equal_texts(Batch(tokens, tokens, padding))
    assert found.nonzero().tolist() == [[0, 1], [1, 0]]


def test_wrong_partners_are_drawn_by_similarity_and_are_never_right():
    s = torch.tensor([[0.0, 5.0, 1.0, 0.0], [2.0, 0.0, 0.0, 9.0], [0.0] * 4, [1.0, 0.0, 0.0, 0.0]])
    same = torch.zeros(4, 4, dtype=torch.bool)
    same[1, 3] = same[3, 1] = True
    counts = torch.zeros(4, 4)
    for noise in torch.rand(4000, 4, 2, generator=torch.Generator().manual_seed(0)):
        rows, belongs = pairs(s, same, noise)
        counts[rows[4:8, 0], rows[4:8, 1]] += 1
        assert rows[:4].tolist() == [[i, i] for i in range(4)]
        assert rows[8:, 1].tolist() == [0, 1, 2, 3]
        assert (rows[8:, 0] != rows[8:, 1]).all()
        assert belongs.tolist() == [1] * 4 + [0] * 8
    p = (s.softmax(-1) + 1e-4).masked_fill(same | torch.eye(4, dtype=torch.bool), 0)
    wanted = p / p.sum(-1, keepdim=True)
    assert counts[1, 3] == 0
    torch.testing.assert_close(counts / 4000, wanted, atol=0.02, rtol=0)


def test_a_row_without_a_wrong_partner_is_not_asked():
    same = ~torch.eye(3, dtype=torch.bool)
    _, belongs = pairs(torch.zeros(3, 3), same, torch.full((3, 2), 0.5))
    assert belongs.tolist() == [1] * 3 + [UNSCORED] * 6


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_reaches_what_it_should_and_nothing_frozen(stage, loss):
    objective = ThreeLosses((loss,))
    batch = asked_of(objective)
    objective.loss(objective.answers(stage.train(), batch), batch).backward()
    reached = {name for name, p in stage.named_parameters() if p.grad is not None and p.grad.any()}
    assert not {name for name in reached if name.startswith("encoder.")}
    assert not any(p.requires_grad for p in stage.encoder.parameters())
    trained = {name for name, p in stage.named_parameters() if p.requires_grad}
    heads = {
        "contrastive": {"of_image.weight", "of_image.bias", "of_text.weight", "of_text.bias",
                        "temperature"},
        "matching": {"match.weight", "match.bias"},
        "captioning": {each for each in trained if each.startswith("before_words.")}
        | {"word_bias"},
    }  # fmt: skip
    shared = {name for name in trained if name.startswith("qformer.")}
    missing = shared - reached
    last = "qformer.layers.2."
    if loss == "matching":  # only queries answer: nothing follows the last layer's words
        assert {name for name in missing if "key.bias" not in name} == {
            name for name in shared if name.startswith(last + "text_")
        }
    elif loss == "captioning":  # words look at the queries as they come into a layer
        of_queries = ("feed", "cross")
        assert {name for name in missing if "key.bias" not in name} == {
            name
            for name in shared
            if name.startswith(tuple(last + each for each in of_queries)) and "key.bias" not in name
        }
    else:
        assert all("key.bias" in name for name in missing)
    assert heads[loss] == reached - shared


def test_training_leaves_the_encoder_as_it_was_bit_for_bit(stage):
    before = copy.deepcopy(stage.state_dict())
    history = fit(
        stage, CAPTIONS, 3, objective=ThreeLosses(), batch_size=12, seed=0, progress=False,
        device="cpu",
    )  # fmt: skip
    assert all(math.isfinite(loss) for loss in history.column("loss"))
    after = stage.state_dict()
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert {name for name in before if name.startswith("encoder.")} <= same
    moved = {name for name, p in stage.named_parameters() if p.requires_grad}
    assert all("positions" in name or name not in same for name in moved)
    assert moved - same


def test_a_frozen_encoder_stays_in_evaluation_mode(stage):
    image = CAPTIONS.batch("train", 3, seed=0).source
    assert stage.train().training
    assert not stage.encoder.training
    assert torch.equal(stage.see(image), stage.see(image))  # its dropout is off
    assert not stage.see(image).requires_grad


def test_it_learns_which_caption_belongs_to_which_image():
    """With an encoder that gives the two digits, so that only the Q-Former has to be trained."""

    class Told(Captions):
        def _draw(self, split, size, generator):
            batch = super()._draw(split, size, generator)
            digits = torch.tensor([self.pair(row) for row in batch.inputs])
            places = F.one_hot(digits, 10).float()
            marks = torch.eye(2).expand(size, 2, 2)
            source = torch.cat([places, marks], -1)
            padding = torch.ones(size, 2, dtype=torch.bool)
            return Batch(batch.inputs, batch.targets, source=source, source_padding=padding)

    sizes = QFormerOptions(dim=32, layers=2, heads=2, hidden=64, queries=2, image_dim=12, max_len=7)
    torch.manual_seed(0)
    stage, objective = FirstStage(None, CAPTIONS.vocab, sizes, shared=16), ThreeLosses()
    options = {"batch_size": 32, "learning_rate": 5e-3, "seed": 0, "progress": False}
    fit(stage, Told(), 150, objective=objective, device="cpu", **options)
    batch = objective.prepare(Told().batch("validation", 64, seed=9))
    with torch.no_grad():
        answers = objective.answers(stage.eval(), batch)
    assert objective.right(answers, batch) > 40  # of 64; at random one


def test_the_printed_size():
    """Queries, words and layers as Transformers has them, and the heads of the released code."""
    with torch.device("meta"):
        stage = FirstStage(None, 30_522)
        layers = Blip2QFormerModel(Blip2QFormerConfig(use_qformer_text_input=True))
    parameters, vocab, dim = sum(p.numel() for p in stage.parameters()), 30_523, 768
    inputs = (32 + vocab + 512) * dim
    compared, matched = 2 * (dim + 1) * 256 + 1, (dim + 1) * 2  # and the temperature
    words = (dim + 1) * dim + 2 * dim + vocab
    of_layers = sum(p.numel() for p in layers.parameters())
    assert parameters == of_layers + inputs + compared + matched + words == 186_702_654
    assert 0.99 < parameters / 188e6 < 1


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda s: ThreeLosses(()), ValueError, "one loss or more, each once"),
        (lambda s: ThreeLosses(("matching", "matching")), ValueError, "each once"),
        (lambda s: ThreeLosses(("match",)), ValueError, "losses"),
        (
            lambda s: ThreeLosses().fitted(s.qformer),
            TypeError,
            "trains a FirstStage, got a QFormer",
        ),
        (
            lambda s: ThreeLosses().prepare(task("copying").batch("train", 2, 0)),
            ValueError,
            "has no images",
        ),
        (lambda s: FirstStage(None, 0), ValueError, "vocab should be at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(stage, call, error, sentence):
    with pytest.raises(error, match=sentence):
        call(stage)
