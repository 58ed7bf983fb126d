"""PaLM-E: vectors of observations among words, what is trained, and what is written."""

import copy

import pytest
import torch

from attnlab.models.tiny import TinyTransformer
from attnlab.systems.palm_e import (
    PARTS,
    QUOTED,
    PaLME,
    PictureEncoder,
    StateEncoder,
    counted,
)
from attnlab.systems.vit import ViT, ViTOptions
from attnlab.tasks import UNSCORED
from attnlab.tasks.grid_world import MARKER, STOP, GridWorld
from attnlab.train import fit

DIM = 20
TASKS = {
    "state": GridWorld("state", places=6),
    "objects": GridWorld("objects"),
    "named": GridWorld("named", markers=2),
    "with texts": GridWorld("named", markers=2, also_words=True),
    "picture": GridWorld("picture"),
}


def system(task: GridWorld, **options) -> PaLME:
    torch.manual_seed(0)
    if task.observation == "picture":
        sizes = ViTOptions(
            image=8, patch=2, channels=3, dim=12, layers=1, heads=3, hidden=17, dropout=0.5
        )  # fmt: skip
        encoder: torch.nn.Module = PictureEncoder(ViT(sizes), DIM)
    else:
        encoder = StateEncoder(task.numbers, DIM, vectors=task.markers, hidden=13)
    words = TinyTransformer(
        task.vocab, dim=DIM, heads=2, layers=1, dropout=0.5, max_len=task.length + 8
    )
    return PaLME(encoder, words, marker=MARKER, **options)


def called(model, batch):
    given = {"source": batch.source, "source_padding": batch.source_padding}
    return model(batch.inputs, batch.padding, **given)


@pytest.mark.parametrize("name", TASKS)
def test_the_language_model_reads_words_and_the_vectors_of_each_observation(name):
    task = TASKS[name]
    model, batch = system(task).eval(), task.batch("train", 7, seed=0)
    words = model.language_model.embedding(batch.inputs.masked_fill(~batch.padding, 0))
    for row in range(7):
        places = (batch.inputs[row] == MARKER).nonzero()[:, 0]
        if not len(places):
            continue
        vectors = model.encoder(batch.source[row : row + 1])[0]
        assert len(vectors) == len(places) == task.vectors * task.markers
        for place, vector in zip(places, vectors, strict=True):
            words[row, place] = vector
    wanted = model.language_model(inputs_embeds=words, padding=batch.padding)
    torch.testing.assert_close(called(model, batch)[batch.padding], wanted[batch.padding])


def test_a_state_encoder_is_two_layers_and_keeps_the_vectors_of_an_object_together():
    encoder, source = StateEncoder(5, 7, vectors=3, hidden=11), torch.randn(2, 4, 5)
    hidden = torch.nn.functional.gelu(source @ encoder.expand.weight.T + encoder.expand.bias)
    out = hidden @ encoder.contract.weight.T + encoder.contract.bias
    wanted = torch.cat([out[:, row].reshape(2, 3, 7) for row in range(4)], 1)
    torch.testing.assert_close(encoder(source), wanted)


def test_a_picture_encoder_gives_patches_without_the_class_token():
    task = TASKS["picture"]
    encoder = system(task).eval().encoder
    worlds = [question.world for question in task.questions("train", 5, seed=0)]
    source = task.batch("train", 5, seed=0).source
    light = torch.stack([torch.from_numpy(world.picture()) for world in worlds])
    seen = encoder.vit.encode(light)
    assert seen.shape == (5, 17, 12)
    torch.testing.assert_close(encoder(source), encoder.project(seen[:, 1:]))
    two = encoder(source[:4].reshape(2, 32, 12))  # two pictures, one after the other
    torch.testing.assert_close(two.reshape(4, 16, DIM), encoder(source[:4]))


def test_the_prompt_is_read_causally():
    task = TASKS["objects"]
    model, batch = system(task).eval(), task.batch("train", 5, seed=0)
    changed = batch.source.clone()
    changed[:, 2] += 1
    other = model(batch.inputs, batch.padding, source=changed, source_padding=batch.source_padding)
    same = called(model, batch)
    assert torch.equal(same[:, :3], other[:, :3])  # "start" and the first two objects
    assert not torch.isclose(same[:, 3], other[:, 3]).all(-1).any()


@pytest.mark.parametrize("name", TASKS)
def test_the_loss_is_that_of_the_answer_alone(name):
    task = TASKS[name]
    batch = task.batch("train", 9, seed=1)
    first = (batch.targets != UNSCORED).int().argmax(1)
    question = task.tokens([*range(task.vocab)]).index("?")
    assert (batch.inputs[torch.arange(9), first] == question).all()


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("name", TASKS)
def test_every_gradient_that_should_flow_flows_and_no_other(name, freeze):
    task = TASKS[name]
    model, batch = system(task, freeze=freeze).train(), task.batch("train", 30, seed=1)
    torch.nn.functional.cross_entropy(
        called(model, batch).flatten(0, 1), batch.targets.flatten(), ignore_index=UNSCORED
    ).backward()
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    parts = {n.partition(".")[0] for n in trained}
    assert parts == ({"encoder"} if freeze else {"encoder", "language_model"})
    assert all(p.grad is not None and p.grad.any() for p in trained.values())
    left = {n for n, _ in model.named_parameters()} - {*trained}
    unused = {"encoder.vit.body.output.weight", "encoder.vit.body.output.bias"}
    unused = unused if name == "picture" else set()
    frozen = {f"language_model.{n}" for n, _ in model.language_model.named_parameters()}
    assert left == unused | (frozen if freeze else set())
    assert all(p.grad is None for n, p in model.named_parameters() if n in left)


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("name", ["named", "with texts", "picture"])
def test_a_frozen_language_model_stays_as_it_is_bit_for_bit(name, freeze):
    task = TASKS[name]
    model = system(task, freeze=freeze)
    before = copy.deepcopy(model.state_dict())
    fit(model, task, 3, batch_size=8, seed=0, progress=False, device="cpu")
    after = model.state_dict()
    moved = {n for n in before if not torch.equal(before[n], after[n])}
    assert any(n.startswith("encoder.") for n in moved)
    assert any(n.startswith("language_model.") for n in moved) == (not freeze)
    model.train()
    assert model.language_model.training == (not freeze)
    assert model.encoder.training


@pytest.mark.parametrize("name", ["state", "named", "picture"])
def test_a_blind_system_answers_without_looking(name):
    task = TASKS[name]
    batch = task.batch("train", 9, seed=1)
    for blind in (False, True):
        model = system(task, blind=blind).eval()
        one = called(model, batch)
        two = model(
            batch.inputs, batch.padding, source=1 - batch.source,
            source_padding=batch.source_padding,
        )  # fmt: skip
        assert torch.equal(one, two) == blind


def test_observations_that_are_not_there_change_nothing():
    task = TASKS["with texts"]
    model, batch = system(task).eval(), task.batch("train", 9, seed=1)
    assert not batch.source_padding.all()
    wild = batch.source.masked_fill(~batch.source_padding[..., None], float("nan"))
    found = model(batch.inputs, batch.padding, source=wild, source_padding=batch.source_padding)
    assert torch.equal(found, called(model, batch))
    found.logsumexp(-1).sum().backward()
    assert all(p.grad.isfinite().all() for p in model.encoder.parameters())


def talkative(task: GridWorld) -> PaLME:
    """A system that says different things to different prompts, without any training."""
    model = system(task)
    for parameter in model.parameters():
        parameter.data.mul_(3)
    model.language_model.embedding.weight.data[MARKER] = 0  # of all words it never says this one
    return model


def by_hand(model, batch, row: int, begin: int, steps: int) -> list[int]:
    """The likeliest tokens after a prompt, each asked for with all before it."""
    tokens, written = batch.inputs[row : row + 1, : begin + 1], []
    for _ in range(steps):
        source, real = batch.source[row : row + 1], batch.source_padding[row : row + 1]
        logits = model(tokens, source=source, source_padding=real)
        written.append(int(logits[0, -1].argmax()))
        if written[-1] == STOP:
            break
        tokens = torch.cat([tokens, torch.tensor([written[-1:]])], 1)
    return written + [STOP] * (steps - len(written))


def test_what_is_written_is_the_likeliest_word_after_the_other():
    task = TASKS["with texts"]  # whose prompts have several lengths
    model, batch = talkative(task), task.batch("train", 12, seed=2)
    begin = (batch.targets != UNSCORED).int().argmax(1)
    longest = int(begin.max()) + 1
    prompt = torch.arange(longest) <= begin[:, None]
    given = {"source": batch.source, "source_padding": batch.source_padding}
    model.train()
    written = model.write(batch.inputs[:, :longest], prompt, **given, steps=5, end=STOP)
    assert model.language_model.training  # dropout was off only while it wrote
    model.eval()
    assert len(set(begin.tolist())) > 2
    assert len({tuple(row) for row in written.tolist()}) > 4
    for row in range(12):
        assert written[row].tolist() == by_hand(model, batch, row, int(begin[row]), 5)


def test_rows_that_have_ended_are_filled_up():
    task = TASKS["objects"]
    model, batch = talkative(task), task.batch("train", 3, seed=0)
    given = {"source": batch.source, "source_padding": batch.source_padding, "steps": 6}
    written = (model.write(batch.inputs[:, :6], **given, end=end) for end in range(task.vocab))
    free = next(tokens for end, tokens in enumerate(written) if end not in tokens)
    row, end = free[0].tolist(), int(free[0, 1])
    assert end not in (row[0], row[2])
    written = model.write(batch.inputs[:, :6], **given, end=end)
    assert written[0].tolist() == [row[0], *[end] * 5]


def test_a_row_that_has_ended_leaves_the_others_all_positions():
    """A prompt of 10 tokens that ends at once beside one of 3, in a model of 12 positions."""
    torch.manual_seed(0)
    words = TinyTransformer(19, dim=DIM, heads=2, layers=1, max_len=12)
    model = PaLME(StateEncoder(6, DIM), words, marker=MARKER).eval()
    for parameter in model.parameters():
        parameter.data.mul_(3)
    prompts = torch.randint(15, (9, 10))
    padding = torch.ones(9, 10, dtype=torch.bool)
    padding[1:, 3:] = False
    end = int(model.write(prompts[:1], steps=1, end=0)[0, 0])
    alone = [model.write(row[None, :3], steps=6, end=end)[0].tolist() for row in prompts[1:]]
    assert any(end not in row for row in alone)  # one at least goes on to the last step
    together = model.write(prompts, padding, steps=6, end=end).tolist()
    assert together == [[end] * 6, *alone]


@pytest.mark.parametrize("size", PARTS)
def test_the_sizes_of_the_papers_have_the_quoted_numbers(size):
    found = counted(size)
    for part, number in found.items():
        if part in QUOTED:
            less = 0.031 if part == "ViT 4B" else 0  # its head is not counted
            assert 1 - number / QUOTED[part] == pytest.approx(less, abs=0.0005)
    assert int(sum(found.values()) / 1e9) == int(size.removesuffix("B"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda b: {"source": None}, "row 0 has 6 markers, but its source gives 0 vectors"),
        (
            lambda b: {"source": torch.cat([b.source, b.source[:, :1]], 1)},
            "row 0 has 6 markers, but its source gives 8 vectors",
        ),
        (
            lambda b: {"source": b.source[:, :2]},
            "its source gives 4 vectors; every vector needs a marker in the text",
        ),
        (lambda b: {"source": b.source[..., :5]}, "has 6 numbers: source should be float of shape"),
        (lambda b: {"source": b.source[0]}, r"\(b, s, 6\), got torch.float32 of shape \(3, 6\)"),
        (lambda b: {"source": b.source.long()}, "should be float of shape .* got torch.int64"),
        (
            lambda b: {"source_padding": torch.ones(9, 2, dtype=torch.bool)},
            r"source_padding should be bool of shape \(9, 3\), got torch.bool of shape \(9, 2\)",
        ),
    ],
)
def test_observations_that_do_not_fit_their_text_are_refused(change, sentence):
    batch = TASKS["named"].batch("train", 9, seed=1)
    with pytest.raises(ValueError, match=sentence):
        system(TASKS["named"])(
            batch.inputs, batch.padding, **{"source": batch.source} | change(batch)
        )


def test_pictures_and_prompts_that_do_not_fit_are_refused():
    task = TASKS["picture"]
    model, batch = system(task), task.batch("train", 3, seed=0)
    with pytest.raises(ValueError, match=r"pictures have 4 × 4 = 16 patches each, got 15"):
        model.encoder(batch.source[:, :15])
    with pytest.raises(ValueError, match="brightness from 0 to 1"):
        model.encoder(batch.source * 255)
    with pytest.raises(TypeError, match="source should be a tensor, got a list"):
        model(batch.inputs, batch.padding, source=[1])
    words = GridWorld("words").batch("train", 3, seed=0)
    holes = torch.ones_like(words.inputs, dtype=torch.bool)
    holes[1, 4] = False
    with pytest.raises(ValueError, match="a prompt has its real tokens first, one at least"):
        model.write(words.inputs, holes, steps=1, end=STOP)
    with pytest.raises(ValueError, match="more than the model's max_len"):
        model.write(batch.inputs, batch.padding, source=batch.source, steps=60, end=0)
    with pytest.raises(ValueError, match=r"end should be a token from 0 to \d+, got 1000000"):
        model.write(words.inputs, steps=1, end=10**6)
    with pytest.raises(ValueError, match="steps should be at least 1, got 0"):
        model.write(words.inputs, steps=0, end=STOP)


def test_models_that_do_not_fit_each_other_are_refused():
    words = system(TASKS["objects"]).language_model
    with pytest.raises(ValueError, match="width, dim=20, got an encoder of dim=21"):
        PaLME(StateEncoder(6, 21), words, marker=MARKER)
    with pytest.raises(ValueError, match="width, dim=20, got an encoder of dim=None"):
        PaLME(torch.nn.Linear(6, 20), words, marker=MARKER)
    reader = TinyTransformer(9, kind="classifier", classes=2, dim=20, heads=2, max_len=9)
    with pytest.raises(ValueError, match="kind='language_model' is needed here, got 'classifier'"):
        PaLME(StateEncoder(6, 20), reader, marker=MARKER)
    with pytest.raises(ValueError, match="vectors should be at least 1"):
        StateEncoder(6, 20, vectors=0)
