"""Frozen: vectors at their markers, what stays as it was, what a gradient reaches."""

import copy

import pytest
import torch

from attnlab.models.tiny import TinyTransformer
from attnlab.systems.among_words import at_markers
from attnlab.systems.frozen import WithImages
from attnlab.tasks.interleaved import MARKER, Interleaved
from attnlab.train import fit

TASK = Interleaved(written=("is",), shown=("is", "larger"), patch=4)


def system(**options) -> WithImages:
    torch.manual_seed(0)
    sizes = {"heads": 2, "layers": 1, "dropout": 0.5}
    encoder = TinyTransformer(
        features=16, kind="classifier", classes=10, dim=12, max_len=4, **sizes
    )
    language_model = TinyTransformer(TASK.vocab, dim=20, max_len=9, **sizes)
    return WithImages(encoder, language_model, marker=MARKER, patches=4, **options)


def called(model, batch):
    given = {"source": batch.source, "source_padding": batch.source_padding}
    return model(batch.inputs, batch.padding, **given)


def test_vectors_stand_at_their_markers_in_order():
    words = torch.arange(24.0).view(2, 4, 3)
    marked = torch.tensor([[False, True, True, False], [False, False, False, True]])
    vectors, real = (
        -torch.arange(1.0, 13).view(2, 2, 3),
        torch.tensor([[True, True], [False, True]]),
    )
    found = at_markers(words, marked, vectors, real)
    assert torch.equal(found[~marked], words[~marked])
    assert torch.equal(found[marked], torch.stack([vectors[0, 0], vectors[0, 1], vectors[1, 1]]))


def test_the_language_model_reads_words_and_vectors():
    model, batch = system().eval(), TASK.batch("train", 7, seed=0)
    words = model.language_model.embedding(batch.inputs.masked_fill(~batch.padding, 0))
    vectors, real = model.seen(batch.source, batch.source_padding)
    for row in range(7):
        places = (batch.inputs[row] == MARKER).nonzero()[:, 0]
        for place, vector in zip(places, vectors[row][real[row]], strict=True):
            words[row, place] = vector
    wanted = model.language_model(inputs_embeds=words, padding=batch.padding)
    torch.testing.assert_close(called(model, batch)[batch.padding], wanted[batch.padding])


def test_a_text_without_images_is_read_as_the_language_model_reads_it():
    model, text = system().eval(), Interleaved(written=("is", "larger"), shown=())
    batch = text.batch("train", 5, seed=0)
    wanted = model.language_model(batch.inputs, padding=batch.padding)
    found = model(batch.inputs, batch.padding)
    torch.testing.assert_close(found[batch.padding], wanted[batch.padding])


def test_images_that_are_not_there_change_nothing():
    model, batch = system().eval(), TASK.batch("train", 9, seed=1)
    wild = batch.source.masked_fill(~batch.source_padding[..., None], float("nan"))
    found = model(batch.inputs, batch.padding, source=wild, source_padding=batch.source_padding)
    assert torch.equal(found, called(model, batch))
    assert not batch.source_padding.all()


def test_a_blind_system_answers_without_looking():
    batch, other = (TASK.batch("train", 9, seed=1), TASK.batch("validation", 9, seed=1))
    for blind in (False, True):
        model = system(blind=blind).eval()
        given = (batch.inputs, batch.padding)
        hides = batch.source_padding
        one, two = (
            model(*given, source=source, source_padding=hides)
            for source in (batch.source, batch.source.flip(-1) + other.source.mean())
        )
        assert torch.equal(one, two) == blind


def test_mixed_words_lie_among_the_vectors_of_words():
    model, batch = system(of_words=True).eval(), TASK.batch("train", 9, seed=1)
    vectors, real = model.seen(batch.source, batch.source_padding)
    table = model.language_model.embedding.weight
    pooled = model.encoder.encode(batch.source.unflatten(1, (-1, 4)).flatten(0, 1)).mean(1)
    shares = model.project(pooled).view(9, -1, len(table)).softmax(-1)
    torch.testing.assert_close(vectors[real], (shares @ table)[real])
    assert not torch.equal(vectors, system().eval().seen(batch.source, batch.source_padding)[0])


def test_gradients_pass_through_the_frozen_model_to_the_encoder():
    model, batch = system().train(), TASK.batch("train", 9, seed=1)
    loss = torch.nn.functional.cross_entropy(
        called(model, batch).flatten(0, 1), batch.targets.flatten()
    )
    loss.backward()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert {name.partition(".")[0] for name in trained} == {"encoder", "project"}
    assert all(p.grad is not None and p.grad.any() for p in trained.values())
    assert all(p.grad is None for name, p in model.named_parameters() if name not in trained)


@pytest.mark.parametrize("freeze", [True, False])
def test_training_changes_the_language_model_only_where_it_may(freeze):
    model = system(freeze=freeze)
    before = copy.deepcopy(model.state_dict())
    fit(model, TASK, 3, batch_size=8, seed=0, progress=False, device="cpu")
    after = model.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert {"project.weight", "encoder.embedding.weight"} <= moved
    assert any(name.startswith("language_model.") for name in moved) == (not freeze)
    model.train()
    assert model.language_model.training == (not freeze)
    assert model.encoder.training


def changed(batch, **parts):
    return (batch.inputs, batch.padding), {
        "source": batch.source, "source_padding": batch.source_padding, **parts,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (lambda b: {"source": None}, "source_padding needs the source that it belongs to"),
        (lambda b: {"source_padding": None}, r"every vector needs a marker in the text"),
        (lambda b: {"source": b.source[:, :3]}, "holds images of 4 patches each"),
        (lambda b: {"source": b.source[..., :3]}, "features=16"),
    ],
)
def test_images_that_do_not_fit_their_text_are_refused(parts, sentence):
    batch = TASK.batch("train", 9, seed=1)
    given, named = changed(batch, **parts(batch))
    with pytest.raises(ValueError, match=sentence):
        system()(*given, **named)


def test_other_models_are_refused():
    encoder, language_model = system().encoder, system().language_model
    with pytest.raises(ValueError, match="kind='classifier' is needed here, got 'language_model'"):
        WithImages(language_model, language_model, marker=0, patches=4)
    mixed = TinyTransformer(23, dim=8, heads=2, layers=1, positions="complex", max_len=9)
    with pytest.raises(ValueError, match="of_words=True mixes the rows of a table"):
        WithImages(encoder, mixed, marker=MARKER, patches=4, of_words=True)
    with pytest.raises(ValueError, match="patches should be at least 1"):
        WithImages(encoder, language_model, marker=0, patches=0)
