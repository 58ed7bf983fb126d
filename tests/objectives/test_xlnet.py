"""The permutation language model: who sees whom in a random order, and two streams."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch

import attnlab
from attnlab.core.probe import record
from attnlab.mechanisms.dense.full import naive as attend
from attnlab.objectives.batches import UNSCORED
from attnlab.objectives.permuted import Order
from attnlab.objectives.xlnet import XLNet, XLNetOptions
from attnlab.tasks import Batch, task
from attnlab.train import evaluate, fit, model_options

VOCAB, B, N = 11, 3, 12


def text(rows: int = B, width: int = N, lengths: list[int] | None = None) -> Batch:
    torch.manual_seed(1)
    tokens = torch.randint(VOCAB, (rows, width))
    if lengths is None:
        return Batch(tokens, tokens)
    return Batch(tokens, tokens, torch.arange(width) < torch.tensor(lengths)[:, None])


def model(**options: object):
    torch.manual_seed(2)
    given = {"kind": "token_classifier", "classes": VOCAB + 1, "dim": 12, "heads": 2, "layers": 3}
    given["max_len"] = 2 * N
    return attnlab.TinyTransformer(VOCAB + 1, **{**given, **options}).double()


def asked(batch: Batch, seed: int = 0, **options: object):
    with record() as notes:
        found = attnlab.build("xlnet", vocab=VOCAB, **options).prepare(
            batch, torch.Generator().manual_seed(seed)
        )
    return found, notes


def answers(made, batch: Batch) -> torch.Tensor:
    """The answers to the queries (b, q, classes)."""
    logits = made(batch.inputs, padding=batch.padding, structure=batch.structure)
    return logits[:, N:]


def test_one_token_in_six_is_asked_the_last_of_the_order() -> None:
    found, notes = asked(text(lengths=[12, 8, 1]))
    rank, hidden = notes.last("order"), notes.last("hidden")
    assert hidden.sum(-1).tolist() == [2, 1, 1]  # 12/6; 8/6 is rounded; at least 1
    for row, length in enumerate([12, 8, 1]):
        assert sorted(rank[row, :length].tolist()) == list(range(length))
        assert hidden[row].tolist() == [
            length > r >= length - hidden[row].sum() and i < length
            for i, r in enumerate(rank[row].tolist())
        ]
    wanted = found.targets[found.targets != UNSCORED]
    by_order = rank.masked_fill(~hidden, 99).argsort(-1)
    expected = found.inputs.gather(1, by_order[:, :2])[torch.tensor([[1, 1], [1, 0], [1, 0]]) == 1]
    assert torch.equal(wanted, expected)
    assert torch.equal(found.inputs[:, :N], text().inputs)  # the text stays as it is


def test_every_token_is_asked_as_often_as_another() -> None:
    _, notes = asked(text(3000, 12))
    often = notes.last("hidden").sum(0)
    assert often.sum() == 6000
    assert ((often > 390) & (often < 610)).all()  # five standard errors of 500


def test_no_query_sees_its_token_or_later_ones_even_through_others() -> None:
    for options in ({}, {"context": "open"}, {"one_in": 1}):
        found, notes = asked(text(lengths=[12, 8, 3]), **options)
        rank, width = notes.last("order"), found.inputs.shape[1]
        reach = torch.eye(width, dtype=torch.bool).expand(B, width, width)
        for _ in range(4):  # layers
            reach = (found.structure.allowed.float() @ reach.float() > 0) | reach
        for row, query in (found.targets != UNSCORED).nonzero().tolist():
            at = int(found.structure.positions[row, query])
            seen = reach[row, query, :N].nonzero()[:, 0]
            assert (rank[row, seen] < rank[row, at]).all()
            assert len(seen) == rank[row, at]  # and all before it
        assert not found.structure.allowed[:, :, N:].any()  # nobody sees a query


def test_a_token_changes_what_is_answered_after_it_alone() -> None:
    made, (found, notes) = model(), asked(text(), one_in=3)
    before, rank = answers(made, found), notes.last("order")
    for row in range(B):
        for at in notes.last("hidden")[row].nonzero()[:, 0].tolist():
            other = found.inputs.clone()
            other[row, at] = (other[row, at] + 1) % VOCAB
            after = answers(
                made, Batch(other, found.targets, found.padding, structure=found.structure)
            )
            later = torch.arange(4) + N - 4 > rank[row, at]
            same = torch.isclose(after[row], before[row]).all(-1)
            assert torch.equal(same, ~later)


def test_masks_in_the_content_hide_what_was_answered_before() -> None:
    """The mistake of a well-known collator: later queries do not see earlier targets."""
    made, (found, notes) = model(), asked(text(), one_in=3)
    hidden = torch.nn.functional.pad(notes.last("hidden"), (0, 4))
    masked, changed = found.inputs.clone(), found.inputs.clone()
    masked[hidden] = VOCAB
    changed[hidden] = (changed[hidden] + 1) % VOCAB
    changed_masked = changed.masked_fill(hidden, VOCAB)
    texts = [
        answers(made, Batch(each, found.targets, found.padding, structure=found.structure))
        for each in (found.inputs, changed, masked, changed_masked)
    ]
    assert not torch.isclose(texts[0][:, 1:], texts[1][:, 1:]).all(-1).any()
    assert torch.equal(texts[2], texts[3])


def test_in_the_order_of_the_text_the_content_is_causal() -> None:
    order = Order(
        torch.arange(N)[None], torch.tensor([[N - 2]]), torch.tensor([[N - 2, N - 1]]),
        torch.ones(1, 2, dtype=torch.bool),
    )  # fmt: skip
    allowed = attnlab.build("xlnet", vocab=VOCAB)._allowed(order)[0]
    assert torch.equal(allowed[:N, :N], torch.ones(N, N, dtype=torch.bool).tril())
    assert torch.equal(allowed[N:, :N], torch.ones(N, N, dtype=torch.bool).tril(-1)[-2:])


@pytest.mark.parametrize("context", ["ordered", "open"])
def test_it_is_two_streams_through_the_same_layers(context: str) -> None:
    """Content and queries as two tensors, with keys and values of the content alone."""
    made, (found, notes) = model(), asked(text(), context=context, one_in=3)
    rank, table = notes.last("order"), made.positions.weight
    c, at = 2 * N // 3, found.structure.positions[:, N:]
    last = rank.clamp(min=c - 1) if context == "open" else rank
    of_content = (rank[:, None] <= last[..., None])[:, None]
    of_queries = (rank[:, None] < rank.gather(1, at)[..., None])[:, None]
    h = made.embedding(found.inputs[:, :N]) + table[:N]
    g = made.embedding.weight[VOCAB] + table[at]
    for block in made.encoder.blocks:
        heads, norm = block.attention.heads, block.attention_residual.norm
        _, k, v = heads.project(norm(h))

        def read(x, allowed, heads=heads, k=k, v=v):
            q = heads.split(heads.query(x), heads.head_dim)
            return heads.merge(attend(q, k, v, mask=allowed))

        h, g = (
            block.feed_forward_residual(
                block.attention_residual(x, partial(read, allowed=allowed)), block.feed_forward
            )
            for x, allowed in ((h, of_content), (g, of_queries))
        )
    torch.testing.assert_close(made.logits(made.encoder.norm(g)), answers(made, found))


@pytest.mark.parametrize("options", [{}, {"context": "open"}, {"one_in": 1}])
def test_both_forms_ask_a_real_model_the_same(options: dict) -> None:
    card, made, batch = attnlab.card("xlnet"), model(), text(lengths=[12, 5, 2])
    losses = []
    for form in card.forms.values():
        given = card.arguments(form, {"vocab": VOCAB, **options})
        losses.append(form(made, batch, torch.Generator().manual_seed(0), **given))
    torch.testing.assert_close(*(loss for loss, _ in losses))
    assert losses[0][1] == losses[1][1]


def test_padding_is_neither_asked_nor_seen() -> None:
    batch = text(lengths=[12, 8, 0])
    found, _ = asked(batch)
    assert (found.targets[2] == UNSCORED).all()
    assert torch.equal(found.padding[:, :N], batch.padding)
    assert found.padding[:, N:].tolist() == [[True, True], [True, False], [False, False]]
    loss = attnlab.build("xlnet", vocab=VOCAB)
    other = batch.inputs.where(batch.padding, (batch.inputs + 1) % VOCAB)
    made = model()
    one, two = (
        loss(made, Batch(x, x, batch.padding), torch.Generator().manual_seed(0))
        for x in (batch.inputs, other)
    )
    assert torch.equal(one[0], two[0])
    nothing, count = loss(made, batch[2:])
    assert (nothing.item(), count) == (0, 0)


@pytest.mark.parametrize("length", range(1, 40))
def test_a_model_has_room_for_the_queries(length: int) -> None:
    for one_in in (1, 2, 6):
        found, _ = asked(text(1, length), one_in=one_in)
        objective = attnlab.build("xlnet", vocab=VOCAB, one_in=one_in)
        assert found.inputs.shape[1] == objective.longest(length)


class Pairs:
    """Texts of two equal tokens."""

    name, kind, vocab = "pairs", "language_model", 8

    def batch(self, split: str, size: int, seed: int) -> Batch:
        generator = torch.Generator().manual_seed(2 * seed + (split == "train"))
        both = torch.randint(8, (size, 1), generator=generator).repeat(1, 2)
        return Batch(both, both)


class MasksInTheContent(XLNet):
    """As a well-known collator has it."""

    def prepare(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        asked = super().prepare(batch, generator)
        content = torch.full_like(batch.inputs, self.vocab)
        return replace(asked, inputs=torch.cat([content, asked.inputs[:, 2:]], 1))


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (XLNet(8, XLNetOptions(one_in=1)), 0.5),
        (attnlab.build("mpnet", vocab=8, rate=1), 0.5),
        (MasksInTheContent(8, XLNetOptions(one_in=1)), 1),
        (attnlab.build("masked_lm", vocab=8, rate=1, masks=1, random=0), 1),
    ],
    ids=["xlnet", "mpnet", "masks in the content", "masked_lm"],
)
def test_of_two_equal_tokens_the_second_is_known(objective, expected: float) -> None:
    """A loss beside log V for each token, after training."""
    torch.manual_seed(0)
    made = attnlab.TinyTransformer(
        9, kind="token_classifier", classes=9, dim=16, heads=2, layers=1, max_len=6
    )
    more = {"batch_size": 32, "learning_rate": 2e-2, "progress": False}
    fit(made, Pairs(), 80, objective=objective, **more)
    found = evaluate(made, Pairs(), objective=objective).loss / math.log(8)
    assert found == pytest.approx(expected, abs=0.05)


def test_fit_learns_by_it() -> None:
    given = task("copying", symbols=5, items=5)
    torch.manual_seed(0)
    options = model_options(given, "xlnet")
    assert (options["kind"], options["vocab"]) == ("token_classifier", given.vocab + 1)
    made = attnlab.TinyTransformer(**options, dim=16, heads=2, layers=1)
    before = evaluate(made, given, objective="xlnet").loss
    fit(made, given, 40, batch_size=16, learning_rate=1e-2, objective="xlnet", progress=False)
    assert evaluate(made, given, objective="xlnet").loss < 0.9 * before


def test_what_cannot_be_asked_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="built for vocab=11, and a token of the task is 12"):
        asked(Batch(torch.tensor([[1, 12]]), torch.tensor([[1, 12]])))
    with pytest.raises(ValueError, match="xlnet hides tokens, and the inputs of this task are of"):
        asked(Batch(torch.zeros(2, 3, 4), torch.zeros(2, dtype=torch.long)))
    with pytest.raises(ValueError, match="one_in should be at least 1, got 0"):
        attnlab.build("xlnet", vocab=VOCAB, one_in=0)
    found, _ = asked(text(), one_in=12)
    with pytest.raises(ValueError, match="13 positions, more than the model's max_len=12"):
        model(max_len=N)(found.inputs, structure=found.structure)
    given = task("copying", symbols=5, items=5)
    causal = attnlab.TinyTransformer(**given.model_options(), dim=8, heads=2, layers=1)
    with pytest.raises(ValueError, match="XLNet trains models of kind 'token_classifier'"):
        fit(causal, given, 1, objective="xlnet", progress=False)
    choosing = attnlab.TinyTransformer(
        **model_options(given, "xlnet"), dim=8, heads=2, layers=1, feed="expert_choice"
    )
    with pytest.raises(ValueError, match="ExpertChoice treats the tokens of a sequence together"):
        fit(choosing, given, 1, objective="xlnet", progress=False)
