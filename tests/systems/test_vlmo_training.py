"""The stages of VLMo: what each trains and leaves bit for bit, the losses by hand, what learns."""

import copy
import math

import pytest
import torch
from torch.nn import functional as F

from attnlab.objectives.asked import kept
from attnlab.objectives.batches import UNSCORED
from attnlab.systems.blip2 import equal_texts, pairs
from attnlab.systems.image_gpt import colour_clusters
from attnlab.systems.vlmo_layers import VLMoOptions
from attnlab.systems.vlmo_pairs import LOSSES, PairStage
from attnlab.systems.vlmo_training import ImageStage, TextStage, VLMoTraining, patches_as_pixels
from attnlab.tasks import Batch, task
from attnlab.tasks.captions import Captions
from attnlab.train import fit

CAPTIONS = Captions(patch=4)
VOCAB = CAPTIONS.vocab
OPTIONS = VLMoOptions(
    dim=24, layers=3, heads=3, hidden=40, pairs=1, max_len=7, features=16, patches=8
)
CENTRES = colour_clusters(
    patches_as_pixels(CAPTIONS.batch("train", 50, seed=0).source), 6,
    generator=torch.Generator().manual_seed(0),
)  # fmt: skip


@pytest.fixture
def model() -> VLMoTraining:
    torch.manual_seed(0)
    made = VLMoTraining(VOCAB, OPTIONS, visual=6)
    with torch.no_grad():
        for p in made.body.parameters():
            p.mul_(1.5)
    return made


def asked_of(objective, size=11, seed=0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return objective.prepare(CAPTIONS.batch("train", size, seed=seed), generator)


def objectives():
    return {"image": ImageStage(CENTRES), "text": TextStage(VOCAB), "pairs": PairStage(VOCAB)}


def read(model, batch) -> torch.Tensor:
    return model.body.read_image(batch.source)


def test_the_three_losses_by_hand(model):
    """Row by row, from the two ways to read, without what is computed once for two losses."""
    objective = PairStage(VOCAB)
    with torch.no_grad():
        model.temperature.copy_(torch.tensor([0.07, 0.2]))
    batch = asked_of(objective)
    answers = objective.answers(model, batch)
    found = objective.each(answers, batch)
    tokens, source, b = batch.inputs, batch.source, len(batch)
    assert not equal_texts(batch).any()  # or the loss below were another one
    sums = []
    for i, top in enumerate(("own", "pair")):
        v = model.of_image[top](model.body.read_image(source, top=top)[:, 0])
        t = model.of_text[top](model.body.read_text(tokens, top=top)[:, 0])
        s = F.cosine_similarity(v[:, None], t, dim=-1) / model.temperature[i]
        torch.testing.assert_close((answers.similarities, answers.above)[i], s)
        sums += [F.cross_entropy(each, torch.arange(b)) for each in (s, s.T)]
    torch.testing.assert_close(found["contrastive"], sum(sums) / 4)
    rows, belongs = pairs(answers.similarities, answers.same, kept(batch, "noise"))
    logits = [
        model.match(model.pool(model.body(tokens[[j]], source=source[[i]]).text[:, 0]).tanh())[0]
        for i, j in rows.tolist()
    ]
    torch.testing.assert_close(found["matching"], F.cross_entropy(torch.stack(logits), belongs))
    hidden, words = kept(batch, "hidden"), kept(batch, "words")
    x = model.body(hidden, source=source).text[words != UNSCORED]
    scores = model.before_words(x) @ model.body.table.weight.T + model.word_bias
    wanted = F.cross_entropy(scores[:, :VOCAB], words[words != UNSCORED])
    torch.testing.assert_close(found["words"], wanted)
    whole = found["contrastive"] + found["matching"] + found["words"] / 4
    torch.testing.assert_close(objective.loss(answers, batch), whole * b)


def test_words_are_hidden_but_for_the_first_and_those_of_padding():
    batch = CAPTIONS.batch("train", 40, seed=0)
    padding = torch.ones_like(batch.inputs, dtype=torch.bool)
    padding[::2, 4:] = False
    padding[0, 1:] = False
    given = Batch(batch.inputs, batch.targets, padding, batch.source)
    asked = TextStage(VOCAB).prepare(given, torch.Generator().manual_seed(0))
    scored = asked.targets != UNSCORED
    assert torch.equal(asked.padding, padding)
    assert not scored[:, 0].any()
    assert not scored[~padding].any()
    assert scored.sum(1).tolist() == [0] + [1] * 39
    assert torch.equal(asked.targets[scored], batch.inputs[scored])
    assert torch.equal(asked.inputs[~scored], batch.inputs[~scored])
    assert (asked.inputs[scored] == VOCAB).float().mean() > 0.6


def test_visual_words_are_the_nearest_centres_and_hidden_patches_are_not_seen(model):
    objective = ImageStage(CENTRES)
    batch = asked_of(objective)
    hidden = kept(batch, "hidden")
    assert hidden.sum(1).tolist() == [3] * 11  # 40 % of 8
    assert torch.equal(hidden, batch.targets != UNSCORED)
    nearest = torch.cdist(batch.source[hidden], CENTRES).argmin(-1)
    assert torch.equal(batch.targets[hidden], nearest)
    answers = objective.answers(model, batch)
    other = copy.copy(vars(batch)) | {"source": batch.source.where(~hidden[..., None], 0.3)}
    assert torch.equal(objective.answers(model, type(batch)(**other)), answers)
    other["source"] = batch.source.where(hidden[..., None], 0.3)
    assert not torch.equal(objective.answers(model, type(batch)(**other)), answers)


TRAINED = {
    "image": ("body.patch.", "body.class_token", "body.image_positions", "hides", "visual."),
    "text": ("body.table.", "body.text_positions.", "body.text_norm.", "before_words.",
             "word_bias"),
}  # fmt: skip


def learns(name: str, stage: str) -> bool:
    """By the definition: the layers' own part, and what stands before and behind them."""
    if stage == "pairs":
        return name != "hides" and not name.startswith("visual.")
    expert = f".experts.{stage}." in name
    of_all = ".experts." not in name and name.startswith(("body.layers.", "body.norm."))
    return expert or (of_all and stage == "image") or name.startswith(TRAINED[stage])


@pytest.mark.parametrize("stage", ["image", "text", "pairs"])
def test_a_stage_moves_what_it_trains_and_leaves_the_rest_bit_for_bit(model, stage):
    before, batch = copy.deepcopy(model.state_dict()), CAPTIONS.batch("validation", 5, seed=3)
    seen = read(model, batch)
    history = fit(
        model, CAPTIONS, 3, objective=objectives()[stage], batch_size=9, learning_rate=1e-2,
        weight_decay=0.1, seed=0, progress=False, device="cpu",
    )  # fmt: skip
    assert all(math.isfinite(loss) for loss in history.column("loss"))
    assert model.stage == stage
    moved = {name for name, x in model.state_dict().items() if not torch.equal(x, before[name])}
    wanted = {name for name in before if learns(name, stage)}
    assert moved <= wanted
    # The last layer's own experts see no gradient from matching and words, but contrast has one.
    assert wanted - moved <= {name for name in wanted if "key.bias" in name}
    assert torch.equal(read(model, batch), seen) == (stage == "text")


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_reaches_what_it_should(model, loss):
    objective = PairStage(VOCAB, (loss,))
    objective.fitted(model)
    batch = asked_of(objective)
    objective.loss(objective.answers(model, batch), batch).backward()
    reached = {
        name for name, p in model.named_parameters()
        if p.grad is not None and p.grad.any() and "key.bias" not in name
    }  # fmt: skip
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    body = {name for name in trained if name.startswith("body.") and "key.bias" not in name}
    heads = {
        "contrastive": ("of_text.", "of_image.", "temperature"),
        "matching": ("pool.", "match."),
        "words": ("before_words.", "word_bias"),
    }[loss]
    assert {n for n in reached if not n.startswith("body.")} == {
        n for n in trained if n.startswith(heads)
    }
    own = ("body.layers.2.experts.text.", "body.layers.2.experts.image.")
    left = set() if loss == "contrastive" else {n for n in body if n.startswith(own)}
    assert body - reached == left


def test_the_temperature_stays_within_its_bounds(model):
    objective = PairStage(VOCAB)
    with torch.no_grad():
        model.temperature.copy_(torch.tensor([-1.0, 7.0]))
        objective.after_step(model, 1, 1)
    torch.testing.assert_close(model.temperature.detach(), torch.tensor([0.001, 0.5]))


def test_it_learns_from_pairs_to_compare_and_to_match():
    """Of images that show the two digits as numbers, so that little has to be seen."""

    class Told(Captions):
        def _draw(self, split, size, generator):
            batch = super()._draw(split, size, generator)
            digits = torch.tensor([self.pair(row) for row in batch.inputs])
            return Batch(batch.inputs, batch.targets, source=F.one_hot(digits, 10).float())

    torch.manual_seed(0)
    sizes = {"dim": 32, "layers": 2, "heads": 2, "hidden": 64, "pairs": 1, "max_len": 7}
    told = VLMoOptions(**sizes, features=10, patches=2, scale=1.0)
    model, objective = VLMoTraining(VOCAB, told), PairStage(VOCAB, ("contrastive", "matching"))
    options = {"batch_size": 32, "learning_rate": 3e-3, "seed": 0, "progress": False}
    fit(model, Told(), 350, objective=objective, device="cpu", **options)
    generator = torch.Generator().manual_seed(1)
    batch = objective.prepare(Told().batch("validation", 64, seed=9), generator)
    with torch.no_grad():
        answers = objective.answers(model.eval(), batch)
    assert objective.right(answers, batch) > 40  # of 64; at random one
    scored = answers.belongs != UNSCORED
    right = (answers.matching.argmax(-1) == answers.belongs)[scored]
    assert right.float().mean() > 0.8  # "wrong" is right for two of three


@pytest.mark.parametrize("stage", ["image", "text", "pairs"])
def test_losses_in_bfloat16_and_under_autocast_are_near_those_of_float32(model, stage):
    objective = objectives()[stage]
    batch = asked_of(objective)

    def lost(model):
        objective.fitted(model)
        return objective.loss(objective.answers(model, batch), batch) / len(batch)

    wanted = lost(model)
    half = lost(copy.deepcopy(model).bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        cast = lost(model)
    cast.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    with torch.autocast("cpu", torch.bfloat16):
        for s in model.compared(batch):  # cosines are not rounded to eight bits
            assert s.dtype == torch.float32
            assert (s.bfloat16() != s).any()
    for found in (half, cast):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, wanted, atol=0.1, rtol=0.05)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda m: PairStage(VOCAB, ()), ValueError, "one loss or more, each once"),
        (lambda m: PairStage(VOCAB, ("word",)), ValueError, "losses"),
        (lambda m: PairStage(0), ValueError, "vocab should be at least 1"),
        (lambda m: VLMoTraining(VOCAB, OPTIONS, visual=0), ValueError, "visual should be at least"),
        (lambda m: PairStage(VOCAB + 1).fitted(m), ValueError, "vocab=17, and the model has"),
        (
            lambda m: TextStage(VOCAB).fitted(m.body),
            TypeError,
            "TextStage trains a VLMoTraining, got a VLMo",
        ),
        (lambda m: ImageStage(CENTRES[:, :3]).fitted(m), ValueError, "6 patches of 16 numbers"),
        (lambda m: VLMoTraining(VOCAB, OPTIONS).begins("image"), ValueError, "with visual="),
        (lambda m: m.begins("last"), ValueError, "no stage 'last'"),
        (
            lambda m: PairStage(VOCAB).prepare(task("copying").batch("train", 2, 0)),
            ValueError,
            "has none",
        ),
        (
            lambda m: ImageStage(CENTRES).prepare(task("copying").batch("train", 2, 0)),
            ValueError,
            "has none",
        ),
        (
            lambda m: PairStage(3).prepare(CAPTIONS.batch("train", 2, 0)),
            ValueError,
            "built for vocab=3, and a token of the task is 14$",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(model, call, error, sentence):
    with pytest.raises(error, match=sentence):
        call(model)


@pytest.mark.parametrize(
    ("visual", "sentence"), [(None, "build it with visual="), (5, "centres should be 5 patches")]
)
def test_a_model_that_a_stage_refuses_stays_as_it_is(visual, sentence):
    model = VLMoTraining(VOCAB, OPTIONS, visual=visual).begins("text")
    before = [p.requires_grad for p in model.parameters()]
    with pytest.raises(ValueError, match=sentence):
        ImageStage(CENTRES).fitted(model)
    if visual is None:
        with pytest.raises(ValueError, match="with visual="):
            model.begins("image")
    assert model.stage == "text"
    assert [p.requires_grad for p in model.parameters()] == before
