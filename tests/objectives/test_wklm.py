"""Names that are replaced by others of their kind."""

import builtins
import math

import pytest
import torch
from torch import nn

import attnlab
from attnlab.core.probe import record
from attnlab.objectives.batches import UNSCORED
from attnlab.objectives.replacing import Types, alternating
from attnlab.tasks import Batch, task
from attnlab.tasks.entities import entities, names_by_kind
from attnlab.train import evaluate, fit, model_options

VOCAB = 17
KINDS = ((0, 1, 2), (5, 6, 7, 8))


def prepared(tokens, padding=None, seed: int = 0, **options):
    objective = attnlab.build("wklm", vocab=VOCAB, **{"types": KINDS, **options})
    with record() as notes:
        asked = objective.prepare(
            Batch(tokens, tokens, padding), torch.Generator().manual_seed(seed)
        )
    return objective, asked, notes


def texts(rows: int = 40, width: int = 23):
    torch.manual_seed(1)
    return torch.randint(VOCAB, (rows, width))


def test_an_entity_becomes_another_one_of_its_type() -> None:
    tokens = texts(200)
    _, asked, notes = prepared(tokens, masked=0)
    replaced = notes.last("replaced")
    assert replaced.any()
    assert torch.equal(asked.inputs != tokens, replaced)
    for kind in KINDS:
        of_kind = torch.isin(tokens, torch.tensor(kind))
        assert {*asked.inputs[replaced & of_kind].tolist()} == {*kind}
        assert torch.isin(asked.inputs[of_kind], torch.tensor(kind)).all()


def test_each_other_one_is_as_likely() -> None:
    types = Types.of(VOCAB, KINDS)
    noise = (torch.arange(3000, dtype=torch.float64) + 0.5) / 3000
    found = types.other(torch.full((3000,), 6), noise)
    assert (
        torch.bincount(found, minlength=VOCAB).tolist() == [0] * 5 + [1000, 0, 1000, 1000] + [0] * 8
    )


def test_two_neighbours_are_never_both_replaced() -> None:
    entity = torch.rand(300, 31, generator=torch.Generator().manual_seed(0)) < 0.4
    noise = torch.rand(300, 31, generator=torch.Generator().manual_seed(1)).double()
    for rate in (0.2, 1 / 3, 0.5):
        replaced = alternating(entity, noise, rate)
        assert not (replaced & ~entity).any()
        for row, own in zip(replaced, entity, strict=True):
            in_turn = row[own]  # whatever stands between them
            assert not (in_turn[1:] & in_turn[:-1]).any()
        share = replaced.sum() / entity.sum()
        assert share == pytest.approx(rate, abs=0.05)  # the first of a row has no neighbour before


def test_what_is_asked_and_where() -> None:
    tokens = torch.tensor([[0, 9, 1, 9, 9, 2, 10, 10], [9, 5, 9, 6, 9, 9, 9, 9]])
    padding = torch.tensor([[True] * 8, [True] * 4 + [False] * 4])
    _, asked, notes = prepared(tokens, padding, masked=0.5, rate=0.5)
    scored, hidden = notes.last("scored"), notes.last("hidden")
    assert scored[0].tolist()[::5] == [False, True]  # the first token has none before it
    assert not scored[1, 3:].any()  # nor has the last real one behind it
    assert scored[1, 1]
    assert (hidden.sum(-1) == torch.tensor([2, 1])).all()  # half of 5 others, rounded, and of 2
    assert not torch.isin(tokens[hidden], torch.tensor([0, 1, 2, 5, 6])).any()
    assert (asked.inputs[hidden] == VOCAB).all()
    assert torch.equal(asked.targets[hidden], tokens[hidden])
    entity = scored & ~hidden
    assert torch.equal(asked.targets[entity] == VOCAB + 1, notes.last("replaced")[entity])
    assert torch.equal(asked.targets != UNSCORED, scored)


class Vectors(nn.Module):
    """The vector of a token; its logits are the vector itself."""

    dim = VOCAB

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(VOCAB + 1, VOCAB))

    def encode(self, tokens, padding=None):
        return self.rows[tokens]

    def logits(self, x):
        return x


def test_the_answer_is_read_beside_the_entity() -> None:
    """log(1 + exp(-s)) with s from the two neighbours, for a replaced entity."""
    torch.manual_seed(0)
    model, tokens = Vectors(), torch.tensor([[9, 0, 10]])
    for first in (False, True):
        objective, asked, _ = prepared(tokens, masked=0, rate=0.5, first=first)
        objective.fitted(model)
        replaced = bool(asked.targets[0, 1] == VOCAB + 1)
        h = [model.rows[9], model.rows[10], *([model.rows[asked.inputs[0, 1]]] if first else [])]
        s = float(objective.head(torch.cat(h)).detach())
        loss = objective.loss(objective.answers(model, asked), asked)
        assert loss.item() == pytest.approx(math.log(1 + math.exp(-s if replaced else s)), rel=1e-5)
        model.rows.grad = None
        loss.backward()
        assert bool(model.rows.grad[asked.inputs[0, 1]].any()) == first
        judged = int(objective.right(objective.answers(model, asked), asked))
        assert judged == ((s > 0) == replaced)


def test_the_names_of_the_standard_library() -> None:
    found = names_by_kind()
    for kind, name in (
        ("exceptions", "OSError"), ("types", "dict"), ("functions", "open"), ("modules", "json"),
    ):  # fmt: skip
        assert name in found[kind]
    assert entities(["the", "oserror", "raises", "ValueError", "len", "in", "Print", "json"]) == (
        (1, 3),
        (4, 6),
    )


def test_names_that_a_notebook_adds_are_not_pythons(monkeypatch) -> None:
    def display() -> None: ...

    before = names_by_kind()
    display.__module__ = "IPython.core.display_functions"
    monkeypatch.setattr(builtins, "display", display, raising=False)
    assert names_by_kind() == before


def test_it_learns_which_names_belong_to_a_text() -> None:
    """Documents about Python: its names are the entities."""
    problem = task("citations", words=30)
    words = problem.tokens(range(problem.vocab))
    types = entities(words)
    assert types
    objective = attnlab.build("wklm", vocab=problem.vocab, types=types)
    torch.manual_seed(0)
    model = attnlab.TinyTransformer(**model_options(problem, objective), dim=16, heads=2, layers=1)
    before = evaluate(model, problem, objective=objective, batches=2)
    fit(model, problem, 30, objective=objective, learning_rate=1e-2, batch_size=8, progress=False)
    assert evaluate(model, problem, objective=objective, batches=2).loss < 0.97 * before.loss


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"types": ((1,), (2, 3))}, "a type of one token has nothing to replace it"),
        ({"types": ((1, 2), (2, 3))}, "stands in two of them"),
        ({"types": ((1, VOCAB),)}, f"types has the token {VOCAB}, and the text has vocab={VOCAB}"),
        ({"rate": 0.6}, "rate should be at most 0.5"),
        ({"masked": 1.5}, "masked should be a share"),
    ],
)
def test_types_that_make_no_sense(options, words) -> None:
    with pytest.raises(ValueError, match=words):
        attnlab.build("wklm", vocab=VOCAB, **options)
