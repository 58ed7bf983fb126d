"""BLIP-2's second stage: what the language model reads, what stays frozen, what learns."""

import copy

import pytest
import torch

from attnlab.models.tiny import TinyTransformer
from attnlab.systems.blip2_second import SecondStage
from attnlab.systems.qformer import QFormer
from attnlab.systems.qformer_layers import QFormerOptions
from attnlab.tasks import task
from attnlab.tasks.captions import Captions
from attnlab.train import fit

CAPTIONS = Captions(patch=4)
SIZES = QFormerOptions(
    dim=24, layers=3, heads=3, hidden=40, queries=3, image_dim=16, vocab=17, max_len=7
)


@pytest.fixture
def stage() -> SecondStage:
    torch.manual_seed(0)
    scenes = task("scenes", patch=4).model_options()
    encoder = TinyTransformer(**scenes, dim=16, heads=2, layers=1, dropout=0.5)
    words = {"vocab": CAPTIONS.vocab, "dim": 20, "heads": 2, "layers": 2, "max_len": 10}
    return SecondStage(encoder, QFormer(SIZES), TinyTransformer(**words, dropout=0.5)).eval()


def test_queries_stand_in_front_of_the_words(stage):
    batch = CAPTIONS.batch("train", 3, seed=0)
    logits = stage(batch.inputs, source=batch.source)
    assert logits.shape == (3, 7, CAPTIONS.vocab)
    prefix, words = stage.prefix(batch.source), stage.language_model.embedding(batch.inputs)
    whole = stage.language_model(inputs_embeds=torch.cat([prefix, words], 1))
    torch.testing.assert_close(logits, whole[:, 3:])
    other = CAPTIONS.batch("train", 3, seed=1)
    assert (stage(batch.inputs, source=other.source) - logits).abs().max() > 1e-6


def test_padded_words_change_nothing(stage):
    batch = CAPTIONS.batch("train", 2, seed=0)
    padding = torch.ones(2, 7, dtype=torch.bool)
    padding[1, 4:] = False
    wild = batch.inputs.clone()
    wild[1, 4:] = 999
    found = stage(wild, padding, source=batch.source)
    torch.testing.assert_close(found[:1], stage(batch.inputs[:1], source=batch.source[:1]))
    alone = stage(batch.inputs[1:, :4], source=batch.source[1:])
    torch.testing.assert_close(found[1:, :4], alone)


def test_gradients_pass_through_the_frozen_language_model_to_all_that_is_trained(stage):
    batch = CAPTIONS.batch("train", 5, seed=0)
    logits = stage.train()(batch.inputs, source=batch.source)
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()).backward()
    trained = {name: p for name, p in stage.named_parameters() if p.requires_grad}
    assert {name.partition(".")[0] for name in trained} == {"qformer", "project"}
    assert not any("text_" in name or "table" in name for name in trained)
    assert all(p.grad is not None for p in trained.values())
    still = {name for name, p in trained.items() if not p.grad.any()}
    assert all(name.endswith("key.bias") for name in still)  # moves all scores of a row alike
    frozen = {name: p for name, p in stage.named_parameters() if name not in trained}
    assert all(p.grad is None for p in frozen.values())


def test_training_leaves_encoder_and_language_model_as_they_were_bit_for_bit(stage):
    before = copy.deepcopy(stage.state_dict())
    fit(stage, CAPTIONS, 3, batch_size=8, seed=0, progress=False, device="cpu")
    after = stage.state_dict()
    trained = {name for name, p in stage.named_parameters() if p.requires_grad}
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved <= trained
    assert {"qformer.queries", "project.weight"} <= moved
    stage.train()
    assert not stage.language_model.training
    assert not stage.encoder.training


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda s, b: s(b.inputs[:2], source=b.source), ValueError, "got 2 texts and 3 images"),
        (lambda s, b: s(b.inputs.repeat(1, 2), source=b.source), ValueError, "17 positions"),
        (lambda s, b: s(b.inputs, source=b.source[..., :3]), ValueError, "features=16"),
        (lambda s, b: SecondStage(s.encoder, s.qformer, s.qformer), TypeError, "TinyTransformer"),
        (
            lambda s, b: SecondStage(s.encoder, s.qformer, s.encoder),
            ValueError,
            "kind='language_model', got kind='classifier'",
        ),
    ],
)
def test_what_does_not_fit_is_refused(stage, call, error, sentence):
    with pytest.raises(error, match=sentence):
        call(stage, CAPTIONS.batch("train", 3, seed=0))
