"""MetaLM: what it is without spans and with one, and that nothing is asked of who has seen it."""

import math

import pytest
import torch
from torch import Tensor

from attnlab.models.tiny import TinyTransformer
from attnlab.objectives.asked import kept
from attnlab.objectives.batches import UNSCORED
from attnlab.objectives.next_token import NextToken
from attnlab.objectives.prefix_lm import sees
from attnlab.objectives.semi_causal import SemiCausal, SemiCausalOptions
from attnlab.systems.metalm import MetaLM, ReadApart
from attnlab.tasks import Batch, task
from attnlab.train import fit

VOCAB = 13


def system(**changes) -> MetaLM:
    torch.manual_seed(0)
    sizes = {"vocab": VOCAB, "heads": 2, "layers": 2, "max_len": 11}
    encoder = TinyTransformer(kind="token_classifier", classes=2, dim=12, **sizes | changes)
    made = MetaLM(encoder, TinyTransformer(dim=20, **sizes)).double()
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(torch.randn_like(p) * 0.4)
    return made


def texts(rows: int = 5, n: int = 11, seed: int = 0) -> Batch:
    tokens = torch.randint(VOCAB, (rows, n + 1), generator=torch.Generator().manual_seed(seed))
    padding = torch.ones(rows, n, dtype=torch.bool)
    padding[1:2, 8:] = False
    targets = tokens[:, 1:].masked_fill(~padding, UNSCORED)
    return Batch(tokens[:, :n], targets, padding)


def drawn(spans: int, rows: int = 40) -> tuple[Batch, Tensor]:
    objective = ReadApart(SemiCausalOptions(spans=spans))
    asked = objective.prepare(texts(rows), torch.Generator().manual_seed(3))
    return asked, kept(asked, "spans")


def depends(model: MetaLM, tokens: Tensor, spans: Tensor) -> Tensor:
    """(n, n): which logits of the first row have a gradient from which token, by either model."""
    found = torch.zeros(tokens.shape[1], tokens.shape[1], dtype=torch.bool)
    moved = []
    for part in (model.encoder, model.language_model):
        weight = part.embedding.weight.detach()
        moved.append(weight[tokens].requires_grad_())
        part.embedding.forward = lambda _, x=moved[-1]: x
    logits = model(tokens, spans=spans)
    for i in range(tokens.shape[1]):
        grads = torch.autograd.grad(
            logits[0, i].sin().sum(), moved, retain_graph=True, allow_unused=True
        )
        for grad in grads:
            found[i] |= False if grad is None else (grad[0].abs() > 1e-12).any(-1)
    return found


def test_without_spans_it_is_the_language_model_and_a_causal_one():
    model, batch = system(), texts()
    wanted = model.language_model(batch.inputs, batch.padding)
    none = torch.zeros_like(batch.inputs)
    for spans in (None, none):
        found = model(batch.inputs, batch.padding, spans=spans)
        assert torch.equal(found[batch.padding], wanted[batch.padding])
    _, spans = drawn(0)
    assert not spans.any()
    plain = NextToken()(model.language_model, texts(40))
    found = ReadApart(SemiCausalOptions(spans=0))(model, texts(40))
    torch.testing.assert_close(found[0], plain[0])
    assert found[1] == plain[1]


def test_one_span_at_the_front_is_a_prefix_language_model():
    model, tokens = system(), texts(1).inputs
    spans = torch.tensor([[7] * 4 + [0] * 7])
    assert torch.equal(depends(model, tokens, spans), sees(torch.tensor([4]), 11).allowed[0])


def test_of_a_text_that_is_one_span_only_what_comes_after_it_is_asked():
    class Whole(SemiCausalOptions):
        def drawn(self, n, width, generator):
            return (torch.arange(width) < n[:, None]).long()

    batch = texts()
    asked = ReadApart(Whole()).prepare(batch)
    assert (asked.targets[:, :-1] == UNSCORED)[[0, 2, 3, 4]].all()
    assert torch.equal(asked.targets[[0, 2, 3, 4], -1], batch.targets[[0, 2, 3, 4], -1])
    assert (asked.targets[1] != UNSCORED).nonzero().flatten().tolist() == [7]


@pytest.mark.parametrize(
    "spans", [[0, 1, 1, 1, 0, 0, 3, 3, 0, 0, 0], [5, 5, 0, 0, 0, 1, 0, 3, 3, 3, 3]]
)
def test_each_token_depends_on_what_came_before_and_on_all_of_its_span(spans):
    spans = torch.tensor([spans])
    place = torch.arange(11)
    same = (spans[0] == spans[0][:, None]) & (spans[0] > 0)
    wanted = (place <= place[:, None]) | same
    assert torch.equal(depends(system(), texts(1).inputs, spans), wanted)


@pytest.mark.parametrize("spans", [1, 4])
def test_no_scored_target_is_among_what_its_state_depends_on(spans):
    asked, of_row = drawn(spans, 12)
    seen_ahead = inside = 0
    for row in (each for each in range(12) if each != 1):
        found = depends(system(), asked.inputs[[row]], of_row[[row]])
        ahead = found.triu(1)
        scored = asked.targets[row] != UNSCORED
        assert not ahead[scored].any()
        seen_ahead += int(ahead.any())
        inside += int((of_row[row] > 0).sum())
        asked_tokens = scored.nonzero().flatten() + 1
        assert not (of_row[row][asked_tokens[asked_tokens < 11]] > 0).any()
        lasts = ((of_row[row][:-1] > 0) & (of_row[row][1:] == 0)).nonzero().flatten()
        assert scored[lasts].all()  # the token after a span, from the span's last position
    assert seen_ahead > 0 < inside


def test_targets_are_those_of_semi_causal():
    options = SemiCausalOptions(spans=3)
    batch, generators = texts(30), [torch.Generator().manual_seed(5) for _ in range(2)]
    ours = ReadApart(options).prepare(batch, generators[0])
    theirs = SemiCausal(options).prepare(batch, generators[1])
    assert torch.equal(ours.targets, theirs.targets)
    assert (kept(ours, "spans") > 0).any()


def test_a_span_is_read_alone_and_in_the_same_way_wherever_it_stands():
    model, tokens = system(), texts(2).inputs
    spans = torch.zeros_like(tokens)
    spans[0, 2:6], spans[0, 7:9], spans[1, 6:10] = 1, 3, 1
    tokens[1, 6:10] = tokens[0, 2:6]
    read = model.read(tokens, spans, spans > 0)
    torch.testing.assert_close(read[:4], read[6:])
    alone = model.encoder.encode(tokens[:1, 7:9])[0]
    torch.testing.assert_close(read[4:6], alone)
    vectors = model.language_model.embedding(tokens)
    vectors[spans > 0] = model.connect(read)
    wanted = model.language_model(inputs_embeds=vectors)
    torch.testing.assert_close(model(tokens, spans=spans), wanted)


def test_what_padding_holds_changes_nothing():
    """At the end of a row, and at its beginning, where all later tokens would see it."""
    model, batch = system(), texts()
    padding = batch.padding.clone()
    padding[2, :3] = False
    spans = torch.zeros_like(batch.inputs)
    spans[:, 5:7] = 1
    wanted = model(batch.inputs, padding, spans=spans)
    wild, of_wild = batch.inputs.masked_fill(~padding, 999), spans.masked_fill(~padding, -4)
    found = model(wild, padding, spans=of_wild)
    torch.testing.assert_close(found[padding], wanted[padding])


def test_without_a_span_there_is_nothing_to_read():
    model, tokens = system(), texts(2).inputs
    none = torch.zeros_like(tokens)
    read = model.read(tokens, none, none > 0)
    assert read.shape == (0, 12)
    assert read.dtype == torch.float64
    assert model.connect(read).shape == (0, 20)


def test_gradients_reach_all_three_parts():
    model = system()
    objective = ReadApart(SemiCausalOptions(spans=4))
    loss, count = objective(model, texts(9), torch.Generator().manual_seed(0))
    (loss / count).backward()
    missing = {
        name for name, p in model.named_parameters()
        if p.requires_grad and (p.grad is None or not p.grad.any()) and "key.bias" not in name
    }  # fmt: skip
    assert not {name for name in missing if not name.endswith("positions.weight")}


def test_it_is_trained_as_any_model():
    text = task("copying")
    options = text.model_options()
    sizes = {"dim": 16, "layers": 1, "heads": 2}
    torch.manual_seed(0)
    encoder = TinyTransformer(**options | {"kind": "token_classifier", "classes": 2}, **sizes)
    model = MetaLM(encoder, TinyTransformer(**options, **sizes))
    history = fit(
        model, text, 30, objective=ReadApart(), batch_size=16, learning_rate=1e-2, seed=0,
        progress=False, device="cpu",
    )  # fmt: skip
    loss = history.column("loss")
    assert all(math.isfinite(each) for each in loss)
    assert sum(loss[-5:]) < 0.99 * sum(loss[:5])


@pytest.mark.parametrize("kind", ["half", "autocast"])
def test_bfloat16_and_autocast_are_near_float32(kind):
    model, batch = system().float(), texts()
    spans = torch.zeros_like(batch.inputs)
    spans[:, 2:7] = 1
    wanted = model(batch.inputs, batch.padding, spans=spans)
    if kind == "half":
        found = model.bfloat16()(batch.inputs, batch.padding, spans=spans)
        assert found.dtype == torch.bfloat16
    else:
        with torch.autocast("cpu", torch.bfloat16):
            found = model(batch.inputs, batch.padding, spans=spans)
    found.float()[batch.padding].sin().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    error = (found.float() - wanted)[batch.padding].abs().max()
    assert 0 < error < 0.1 * wanted.abs().max()


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda m, t: MetaLM(m.language_model, m.language_model), ValueError, "token_classifier"),
        (lambda m, t: MetaLM(m.encoder, m.connect), TypeError, "a TinyTransformer"),
        (
            lambda m, t: MetaLM(system(vocab=7).encoder, m.language_model),
            ValueError,
            "their vocab are 7 and 13",
        ),
        (lambda m, t: m(t, spans=torch.ones(5, 3).long()), ValueError, "n is 3, expected 11"),
        (lambda m, t: m(t, spans=torch.ones(5, 11)), ValueError, "spans.*float32"),
        (
            lambda m, t: m(t, spans=torch.zeros_like(t).index_fill(1, torch.tensor([3]), -2)),
            ValueError,
            "0 outside of spans and above 0 inside, got -2 at token 3 of row 0",
        ),
        (
            lambda m, t: system(max_len=4)(t, spans=torch.ones_like(t)),
            ValueError,
            "11 tokens, more than max_len=4 of the encoder",
        ),
        (lambda m, t: ReadApart().fitted(m.encoder), TypeError, "trains a MetaLM"),
        (
            lambda m, t: ReadApart().prepare(task("scenes").batch("train", 2, 0)),
            ValueError,
            "asks for the next token of a text",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call(system(), texts().inputs)
