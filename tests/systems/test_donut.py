"""Donut: what is read and written, the empty page, gradients, sizes."""

import pytest
import torch

from attnlab.systems.donut import PRINTED, Donut, DonutOptions, counts
from attnlab.tasks.receipts import END, PROMPTS, Receipts
from attnlab.train import fit

TASK = Receipts(patch=12)


def made(**options) -> Donut:
    torch.manual_seed(1)
    sizes = {"length": TASK.length, "patches": 8, "numbers": 144, "dim": 12, "heads": 2}
    return Donut(DonutOptions(vocab=TASK.vocab, **{**sizes, "layers": 1, **options})).eval()


def called(model, batch, **changed):
    given = {"source": batch.source, "source_padding": batch.source_padding, **changed}
    return model(batch.inputs, batch.padding, **given)


def test_logits_are_those_of_the_body_for_the_ink_of_each_patch():
    model, batch = made(), TASK.batch("train", 5, seed=0)
    embeds = model.patch(1 - batch.source)
    wanted = model.body(batch.inputs, batch.padding, source_embeds=embeds)
    torch.testing.assert_close(called(model, batch), wanted)


@pytest.mark.parametrize("blind", [False, True])
def test_an_empty_page_is_read_where_the_system_is_blind(blind):
    model, batch = made(blind=blind), TASK.batch("train", 5, seed=0)
    other = TASK.batch("validation", 5, seed=1).source
    same = torch.equal(called(model, batch), called(model, batch, source=other))
    assert same == blind
    empty = torch.ones_like(other)
    assert torch.equal(called(model, batch), called(model, batch, source=empty)) == blind


def test_each_token_is_written_from_those_before_it():
    model, batch = made(), TASK.batch("validation", 7, seed=2)
    row = model.write(batch.source, PROMPTS["parsing"], END, steps=9)
    assert row.shape == (7, 10)
    assert (row[:, 0] == PROMPTS["parsing"]).all()
    logits = model(row, source=batch.source)
    ended = (row == END).cumsum(1).bool()
    likeliest = logits[:, :-1].argmax(-1).masked_fill(ended[:, :-1], END)
    assert torch.equal(row[:, 1:], likeliest)


def test_writing_stops_at_the_end_of_the_last_row():
    model, batch = made(), TASK.batch("validation", 3, seed=2)
    written = model.write(batch.source, PROMPTS["parsing"], END, steps=9)
    token = int(written[0, 1])  # what the first row writes first is taken for an end
    found = model.write(batch.source, PROMPTS["parsing"], token, steps=9)
    for row, free in zip(found.tolist(), written.tolist(), strict=True):
        cut = row.index(token, 1) if token in row[1:] else len(row)
        assert row[:cut] == free[:cut]
        assert set(row[cut:]) <= {token}
    assert model.write(batch.source[:1], PROMPTS["parsing"], token).shape == (1, 2)


def test_behind_its_end_a_row_is_filled_with_ends(monkeypatch):
    model, batch = made(), TASK.batch("validation", 2, seed=2)
    said = iter([[END, 5], [3, 5], [4, END]])  # the first row would go on after its end

    def step(tokens, state, memory):
        return torch.eye(TASK.vocab)[torch.tensor(next(said))], state

    monkeypatch.setattr(model.body, "step", step)
    prompt = PROMPTS["parsing"]
    written = model.write(batch.source, prompt, END)
    assert written.tolist() == [[prompt, END, END, END], [prompt, 5, 5, END]]


def test_gradients_reach_every_parameter_and_a_blind_system_learns_no_patch():
    batch = TASK.batch("train", 19, seed=0)
    for blind in (False, True):
        model = made(blind=blind)
        logits = called(model.train(), batch)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()).backward()
        idle = {name for name, p in model.named_parameters() if not p.grad.any()}
        assert idle == ({"patch.weight"} if blind else set())


@pytest.mark.slow
def test_a_few_receipts_are_learned_by_heart():
    task = Receipts(patch=12, examples=3)
    model = made(dim=32)
    fit(model, task, 120, batch_size=16, learning_rate=1e-2, seed=0, progress=False, device="cpu")
    batch = task.batch("train", 16, seed=9)
    written = model.write(batch.source, PROMPTS["parsing"], END)
    assert [task.said(row) for row in written] == [task.said(row) for row in batch.targets]


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda m, b: m(b.inputs, source=b.source[:, :7]), ValueError, "8 patches of 144 numbers"),
        (lambda m, b: m(b.inputs, source=b.source[..., :9]), ValueError, "8 patches of 144"),
        (lambda m, b: m(b.inputs, source=None), ValueError, "got NoneType"),
        (lambda m, b: m(b.inputs, source=b.source.long()), TypeError, "brightness from 0 to 1"),
        (lambda m, b: m.write(b.source, 99, END), ValueError, "prompt should be a token from 0"),
        (lambda m, b: m.write(b.source, 0, -1), ValueError, "end should be at least 0"),
        (lambda m, b: m.write(b.source, 0, END, 99), ValueError, "steps should be at most 15"),
        (lambda m, b: Donut({}), TypeError, "options should be DonutOptions, got a dict"),
        (lambda m, b: made(dim=13), ValueError, "heads"),
    ],
)
def test_what_cannot_be_read_or_written_is_refused(call, error, sentence):
    batch = TASK.batch("train", 2, seed=0)
    with pytest.raises(error, match=sentence):
        call(made(), batch)


def test_the_printed_size_is_counted_as_transformers_builds_it():
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        encoder = transformers.DonutSwinModel(
            transformers.DonutSwinConfig(
                image_size=[2560, 1920], embed_dim=128, depths=[2, 2, 14, 2], window_size=10,
                num_heads=[4, 8, 16, 32],
            ),
            add_pooling_layer=False,
        )  # fmt: skip
        decoder = transformers.MBartForCausalLM(
            transformers.MBartConfig(
                is_decoder=True, is_encoder_decoder=False, add_cross_attention=True,
                decoder_layers=4, max_position_embeddings=1536, vocab_size=57_525,
                scale_embedding=True, add_final_layer_norm=True,
            )
        )  # fmt: skip
    built = [sum(p.numel() for p in each.parameters()) for each in (encoder, decoder)]
    found = counts()
    assert built == [found["encoder"], found["decoder"] + found["tokens"]]
    assert round(found["encoder"] + found["decoder"], -6) == PRINTED
