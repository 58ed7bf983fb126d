"""The masked and permuted language model: every row sees each position once."""

import pytest
import torch

import attnlab
from attnlab.core.probe import record
from attnlab.objectives.batches import UNSCORED
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
    return attnlab.TinyTransformer(VOCAB + 1, max_len=3 * N, **{**given, **options}).double()


def asked(batch: Batch, seed: int = 0, **options: object):
    with record() as notes:
        found = attnlab.build("mpnet", vocab=VOCAB, **options).prepare(
            batch, torch.Generator().manual_seed(seed)
        )
    return found, notes


@pytest.mark.parametrize("rate", [0.15, 0.5, 1])
def test_every_row_sees_each_position_once(rate: float) -> None:
    found, _ = asked(text(lengths=[12, 8, 3]), rate=rate)
    allowed = found.structure.allowed & found.padding[:, None]
    for row, length in enumerate([12, 8, 3]):
        at = found.structure.positions[row]
        for i in found.padding[row].nonzero()[:, 0].tolist():
            assert sorted(at[allowed[row, i]].tolist()) == list(range(length))


def test_masks_and_queries_stand_where_their_tokens_do() -> None:
    found, notes = asked(text(), rate=0.25)
    at, hidden = found.structure.positions, notes.last("hidden")
    assert torch.equal(at[:, N : N + 3], at[:, N + 3 :])
    assert (found.inputs[:, N:] == VOCAB).all()
    assert torch.equal(found.inputs.gather(1, at[:, N + 3 :]), found.targets[:, N + 3 :])
    assert (found.targets[:, : N + 3] == UNSCORED).all()
    assert [sorted(row.tolist()) for row in at[:, N + 3 :]] == [
        row.nonzero()[:, 0].tolist() for row in hidden
    ]


def test_the_real_tokens_are_those_of_an_xlnet_with_an_open_context() -> None:
    batch = text(lengths=[12, 8, 3])
    found, _ = asked(batch, rate=0.25)
    objective = attnlab.build("xlnet", vocab=VOCAB, one_in=4, context="open")
    other = objective.prepare(batch, torch.Generator().manual_seed(0))
    tokens_and_queries = [*range(N), *range(N + 3, N + 6)]
    mine = found.structure.allowed[:, tokens_and_queries, :N]
    real = found.padding[:, tokens_and_queries]
    assert torch.equal(mine[real], other.structure.allowed[:, :, :N][real])
    assert torch.equal(found.targets[:, tokens_and_queries], other.targets)


def test_no_query_sees_its_token_or_later_ones_even_through_others() -> None:
    for rate in (0.3, 1):
        found, notes = asked(text(lengths=[12, 8, 3]), rate=rate)
        rank, width = notes.last("order"), found.inputs.shape[1]
        reach = torch.eye(width, dtype=torch.bool).expand(B, width, width)
        for _ in range(4):  # layers
            reach = (found.structure.allowed.float() @ reach.float() > 0) | reach
        for row, query in (found.targets != UNSCORED).nonzero().tolist():
            at = int(found.structure.positions[row, query])
            seen = reach[row, query, :N].nonzero()[:, 0]
            assert (rank[row, seen] < rank[row, at]).all()
            assert len(seen) == rank[row, at]


def test_a_query_knows_where_later_tokens_stand() -> None:
    """Which a query of the permutation language model does not."""
    made = model()
    for name, knows in (("mpnet", True), ("xlnet", False)):
        own = {"rate": 0.25} if name == "mpnet" else {"one_in": 4, "context": "open"}
        found = attnlab.build(name, vocab=VOCAB, **own).prepare(
            text(1), torch.Generator().manual_seed(0)
        )
        first = (found.targets != UNSCORED).nonzero()[0, 1]
        moved = found.structure.positions.clone()
        moved[:, N + 1 : N + 3] += N  # the second and third token that are asked
        logits = [
            made(found.inputs, structure=type(found.structure)(found.structure.allowed, at))
            for at in (found.structure.positions, moved)
        ]
        assert torch.allclose(logits[0][0, first], logits[1][0, first]) != knows


@pytest.mark.parametrize("rate", [0.15, 0.5, 1])
def test_both_forms_ask_a_real_model_the_same(rate: float) -> None:
    card, made, batch = attnlab.card("mpnet"), model(), text(lengths=[12, 5, 2])
    losses = []
    for form in card.forms.values():
        given = card.arguments(form, {"vocab": VOCAB, "rate": rate})
        losses.append(form(made, batch, torch.Generator().manual_seed(0), **given))
    torch.testing.assert_close(*(loss for loss, _ in losses))
    assert losses[0][1] == losses[1][1]


@pytest.mark.parametrize(("rate", "count"), [(0, 0), (1, 12)])
def test_nothing_or_everything_is_asked(rate: float, count: int) -> None:
    _, notes = asked(text(), rate=rate)
    assert notes.last("hidden").sum(-1).tolist() == [count] * B
    loss, scored = attnlab.build("mpnet", vocab=VOCAB, rate=rate)(model(), text())
    assert scored == B * count
    assert loss.isfinite()
    assert (loss == 0) == (count == 0)


def test_padding_is_neither_asked_nor_seen() -> None:
    batch, made = text(lengths=[12, 8, 0]), model()
    objective = attnlab.build("mpnet", vocab=VOCAB)
    other = batch.inputs.where(batch.padding, (batch.inputs + 1) % VOCAB)
    one, two = (
        objective(made, Batch(x, x, batch.padding), torch.Generator().manual_seed(0))
        for x in (batch.inputs, other)
    )
    assert torch.equal(one[0], two[0])
    loss, count = objective(made, batch[2:])
    assert (loss.item(), count) == (0, 0)


@pytest.mark.parametrize("length", range(1, 40))
def test_a_model_has_room_for_masks_and_queries(length: int) -> None:
    found, _ = asked(text(1, length))
    assert found.inputs.shape[1] == attnlab.build("mpnet", vocab=VOCAB).longest(length)


def test_fit_learns_by_it() -> None:
    given = task("copying", symbols=5, items=5)
    torch.manual_seed(0)
    made = attnlab.TinyTransformer(**model_options(given, "mpnet"), dim=16, heads=2, layers=1)
    before = evaluate(made, given, objective="mpnet").loss
    fit(made, given, 40, batch_size=16, learning_rate=1e-2, objective="mpnet", progress=False)
    assert evaluate(made, given, objective="mpnet").loss < 0.9 * before


def test_what_cannot_be_asked_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="built for vocab=11, and a token of the task is 12"):
        asked(Batch(torch.tensor([[1, 12]]), torch.tensor([[1, 12]])))
    with pytest.raises(ValueError, match="rate should be a share from 0 to 1, got -1"):
        attnlab.build("mpnet", vocab=VOCAB, rate=-1)
    given = task("copying", symbols=5, items=5)
    sliding = attnlab.TinyTransformer(
        **model_options(given, "mpnet"), dim=8, heads=2, layers=1, attention="longformer"
    )
    with pytest.raises(ValueError, match="decides itself which token sees which"):
        fit(sliding, given, 1, objective="mpnet", progress=False)
